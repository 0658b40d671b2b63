//! Finding a number that is none.

/// Number of values that are tested before the answer is looked at: enough for the compiler to test several at once.
const BLOCK: usize = 64;

/// The position of the first value that is infinite or not a number; `None` if all are finite.
///
/// For gradients that a worker sent: one that is not finite would make its row so too, and every row that is
/// computed from it.
#[must_use]
pub fn first_non_finite(values: &[f32]) -> Option<usize> {
    let mut blocks = values.chunks_exact(BLOCK);
    // The sum has no early exit, which makes it vectorizable; a whole block is looked through again only when it
    // holds a bad value.
    let bad_block = |block: &[f32]| block.iter().fold(0, |bad, value| bad | exponent_is_full(*value)) != 0;
    let start = match blocks.position(bad_block) {
        Some(block) => block * BLOCK,
        None => values.len() - values.len() % BLOCK,
    };
    let rest = &values[start..];
    rest.iter().position(|value| !value.is_finite()).map(|position| start + position)
}

/// 1 for infinities and what is not a number, 0 for others.
fn exponent_is_full(value: f32) -> u32 {
    const EXPONENT: u32 = 0x7f80_0000;
    u32::from(value.to_bits() & EXPONENT == EXPONENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bad_value_is_found_wherever_it_is() {
        for length in [0, 1, 63, 64, 65, 200] {
            let good = vec![f32::MAX; length];
            assert_eq!(first_non_finite(&good), None);
            for position in 0..length {
                for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                    let mut values = good.clone();
                    values[position] = bad;
                    values[length - 1] = bad;
                    assert_eq!(first_non_finite(&values), Some(position));
                }
            }
        }
        let edges = [0.0, -0.0, f32::MIN, f32::MIN_POSITIVE, f32::from_bits(1), -f32::from_bits(1)];
        assert_eq!(first_non_finite(&edges), None);
    }
}
