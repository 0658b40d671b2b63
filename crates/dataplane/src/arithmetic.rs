//! Addition in a slot: with integers only, as in a switch.

use crate::table::FLOAT_TABLES;
use crate::wire::Malformed;

/// Interpretation of the bits of gradients and sums, and their addition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Arithmetic {
    /// Two's complement fixed point; the plan determines the place of the point. The sum is the same in any order of arrival.
    Fixed {
        /// The largest magnitude of a gradient. With at most n packets in a bank and `n * bound < 2^31` no slot can
        /// overflow; [`Region::new`](crate::Region::new) checks that.
        bound: u32,
    },
    /// IEEE 754 single precision, rounded to nearest even: the bits that an FPU computes, except that every NaN
    /// becomes [`F32_NAN`]. They depend on the order of arrival. Gradients that are not finite are malformed.
    F32,
    /// Single precision, added by looking up [`FLOAT_TABLES`]: what a switch can do that has no unit for floats. Each
    /// addition is wrong by up to 0.8% of the larger summand, so sums depend on the order of arrival even more. Gradients that are not finite are
    /// malformed; those that are subnormal are zeros.
    Table,
}

/// The one NaN that [`add_f32`] yields.
pub const F32_NAN: u32 = 0x7FC0_0000;

pub(crate) const SIGN: u32 = 1 << 31;
const MAGNITUDE: u32 = SIGN - 1;
/// All bits of a single but its sign.
pub(crate) const F32_MAGNITUDE: u32 = MAGNITUDE;
/// The magnitude of the largest finite single.
pub(crate) const F32_MAX: u32 = INFINITY - 1;
pub(crate) const INFINITY: u32 = 0xFF << FRACTION_BITS;
pub(crate) const FRACTION_BITS: u32 = 23;
/// The leading bit of a normal number, which is not stored; as a magnitude, the least normal number.
pub(crate) const HIDDEN: u32 = 1 << FRACTION_BITS;
/// Bits kept below the last place while adding: guard, round, and one that is sticky.
const EXTRA_BITS: u32 = 3;

impl Arithmetic {
    /// Returns true if a gradient of these bits may be added.
    #[inline]
    #[must_use]
    pub const fn allows(self, gradient: u32) -> bool {
        match self {
            Self::Fixed { bound } => gradient.cast_signed().unsigned_abs() <= bound,
            Self::F32 | Self::Table => gradient & MAGNITUDE < INFINITY,
        }
    }

    /// Adds a gradient to a sum.
    #[inline]
    #[must_use]
    pub fn add(self, sum: u32, gradient: u32) -> u32 {
        match self {
            Self::Fixed { .. } => sum.wrapping_add(gradient),
            Self::F32 => add_f32(sum, gradient),
            Self::Table => FLOAT_TABLES.add(sum, gradient),
        }
    }

    pub(crate) const fn check(self, gradient: u32) -> Result<(), Malformed> {
        if self.allows(gradient) { Ok(()) } else { Err(Malformed::Value) }
    }
}

/// The sum of two IEEE 754 single precision numbers, given and returned as their bits.
///
/// Rounds to nearest, ties to even; subnormal numbers, infinities and signed zeros as the standard says; any NaN is
/// [`F32_NAN`].
///
/// ```
/// use libra_dataplane::add_f32;
/// let sum = add_f32(0.1_f32.to_bits(), 0.2_f32.to_bits());
/// assert_eq!(sum, (0.1_f32 + 0.2).to_bits());
/// ```
#[inline]
#[must_use]
pub const fn add_f32(a: u32, b: u32) -> u32 {
    let (large, small) = if a & MAGNITUDE >= b & MAGNITUDE { (a, b) } else { (b, a) };
    let sign = large & SIGN;
    // All ones to subtract, zero to add.
    let subtract = ((large ^ small).cast_signed() >> (u32::BITS - 1)).cast_unsigned();
    if large & MAGNITUDE >= INFINITY {
        let two_infinities = small & MAGNITUDE == INFINITY;
        let nan = large & MAGNITUDE > INFINITY || (two_infinities && subtract != 0);
        return if nan { F32_NAN } else { large };
    }

    // From here on branches that depend on the data would be guessed wrong half of the time: selections instead.
    let (exponent, large) = unpack(large);
    let (small_exponent, small) = unpack(small);
    let small = shift_right_sticky(small, exponent.wrapping_sub(small_exponent));
    let fraction = large.wrapping_add((small ^ subtract).wrapping_sub(subtract));
    if fraction == 0 {
        return sign & !subtract;
    }

    // A sum may be one bit too long, a difference too short: back to the place of the hidden bit, but not below the
    // exponent of subnormal numbers.
    let carry = fraction >> (FRACTION_BITS + EXTRA_BITS + 1);
    let fraction = shift_right_sticky(fraction, carry);
    let exponent = exponent.wrapping_add(carry);
    let up = fraction.leading_zeros().wrapping_sub((HIDDEN << EXTRA_BITS).leading_zeros());
    let up = if up < exponent { up } else { exponent.wrapping_sub(1) };
    let fraction = fraction.wrapping_shl(up);
    let exponent = exponent.wrapping_sub(up);

    let rest = fraction & ((1 << EXTRA_BITS) - 1);
    let half = 1 << (EXTRA_BITS - 1);
    let fraction = fraction >> EXTRA_BITS;
    let round_up = rest > half || (rest == half && fraction & 1 == 1);
    // The hidden bit, where there is one, adds one to the exponent; so does a fraction that rounds up to the next
    // power of two. Without it the exponent is 1 and becomes 0, that of subnormal numbers.
    let packed =
        (exponent.wrapping_sub(1) << FRACTION_BITS).wrapping_add(fraction).wrapping_add(round_up as u32);
    sign | if packed < INFINITY { packed } else { INFINITY }
}

/// Exponent, at least 1, and fraction with its hidden bit and room below it, of a finite number.
const fn unpack(bits: u32) -> (u32, u32) {
    let exponent = (bits & MAGNITUDE) >> FRACTION_BITS;
    let fraction = bits & (HIDDEN - 1);
    let (exponent, fraction) = if exponent == 0 { (1, fraction) } else { (exponent, fraction | HIDDEN) };
    (exponent, fraction << EXTRA_BITS)
}

/// Shifts right; the last bit of the result is also set if any bit that fell out was. For less than 2^31.
const fn shift_right_sticky(fraction: u32, by: u32) -> u32 {
    let by = if by < u32::BITS { by } else { u32::BITS - 1 };
    let kept = fraction.wrapping_shr(by);
    let lost = kept.wrapping_shl(by) != fraction;
    kept | lost as u32
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng as _, SeedableRng as _};

    use super::*;

    fn agrees_with_hardware(a: u32, b: u32) {
        let sum = f32::from_bits(a) + f32::from_bits(b);
        let expected = if sum.is_nan() { F32_NAN } else { sum.to_bits() };
        assert_eq!(add_f32(a, b), expected, "{a:#010x} + {b:#010x}");
    }

    #[test]
    fn special_values_agree_with_hardware() {
        let mut magnitudes = [0; 42];
        let edges = [
            0,
            1,
            2,
            3,
            0x007F_FFFE,
            0x007F_FFFF,
            0x0080_0000,
            0x0080_0001,
            0x00FF_FFFF,
            0x0100_0000,
            0x3F80_0000,
            0x3F80_0001,
            0x3FFF_FFFF,
            0x4000_0000,
            0x4B00_0000,
            0x4B80_0000,
            0x4B80_0001,
            0x4C00_0000,
            0x7EFF_FFFF,
            0x7F00_0000,
            0x7F7F_FFFE,
            0x7F7F_FFFF,
            0x7F80_0000,
            0x7F80_0001,
            0x7FC0_0000,
            0x7FFF_FFFF,
        ];
        magnitudes[..edges.len()].copy_from_slice(&edges);
        for (place, magnitude) in magnitudes[edges.len()..].iter_mut().enumerate() {
            *magnitude = (100 + 2 * u32::try_from(place).unwrap()) << FRACTION_BITS | 0x0055_5555;
        }
        for a in magnitudes {
            for b in magnitudes {
                for signs in 0..4 {
                    agrees_with_hardware(a | (signs & 1) << 31, b | (signs >> 1) << 31);
                }
            }
        }
    }

    #[test]
    fn random_pairs_agree_with_hardware() {
        let mut random = SmallRng::seed_from_u64(1);
        for _ in 0..1_500_000 {
            let [a, b] = random.random::<[u32; 2]>();
            agrees_with_hardware(a, b);
            // The same fractions with exponents at most 31 apart, where alignment and rounding happen.
            let near = (a & INFINITY).wrapping_add(((b >> FRACTION_BITS) & 31) << FRACTION_BITS);
            agrees_with_hardware(a, (near & INFINITY) | (b & !INFINITY));
            // Few bits set, where ties happen.
            agrees_with_hardware(a & 0xFFF0_0000, (near & INFINITY) | (b & 0x8000_0007));
            // Subnormal numbers and their neighbours.
            agrees_with_hardware(a & 0x80FF_FFFF, b & 0x81FF_FFFF);
        }
    }

    #[test]
    fn fixed_point_is_bounded_both_ways() {
        let fixed = Arithmetic::Fixed { bound: 5 };
        for value in -7_i32..=7 {
            assert_eq!(fixed.allows(value.cast_unsigned()), value.abs() <= 5);
        }
        assert!(!fixed.allows(i32::MIN.cast_unsigned()));
        assert_eq!(fixed.add(3, (-5_i32).cast_unsigned()).cast_signed(), -2);
    }

    #[test]
    fn only_finite_floats_are_gradients() {
        for (value, finite) in [(0.0, true), (-0.0, true), (f32::MAX, true), (f32::MIN, true)] {
            assert_eq!(Arithmetic::F32.allows(f32::to_bits(value)), finite);
            assert_eq!(Arithmetic::Table.allows(f32::to_bits(value)), finite);
        }
        for value in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -f32::NAN] {
            assert!(!Arithmetic::F32.allows(value.to_bits()));
            assert!(!Arithmetic::Table.allows(value.to_bits()));
        }
    }
}
