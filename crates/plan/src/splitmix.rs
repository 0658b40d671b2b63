//! splitmix64: numbers that follow from a seed, the same on every machine.

/// The sequence of a seed (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014; constants of
/// Stafford's variant 13). Its bits never change: initial rows, owners of keys and seeds of simulations rest on them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitMix64 {
    state: u64,
}

/// Increment of the state.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

impl SplitMix64 {
    /// The sequence from its beginning.
    #[must_use]
    #[inline]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The seed of a generator that goes on as this one does.
    #[must_use]
    #[inline]
    pub const fn state(&self) -> u64 {
        self.state
    }

    /// Draws 64 bits.
    #[inline]
    pub const fn bits(&mut self) -> u64 {
        let state = self.state;
        self.state = state.wrapping_add(GAMMA);
        splitmix64(state)
    }

    /// Draws a number below `end`, with the bias of the modulus: below 2^-32 for an `end` below 2^32.
    ///
    /// # Panics
    /// If `end` is 0.
    #[inline]
    pub const fn below(&mut self, end: u64) -> u64 {
        self.bits() % end
    }

    /// Draws a number in \[0, 1), in steps of 2^-53.
    #[inline]
    pub const fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Returns the first 64 bits of a seed's sequence: a hash, and a bijection.
#[must_use]
#[inline]
pub const fn splitmix64(seed: u64) -> u64 {
    finalizer(seed.wrapping_add(GAMMA))
}

/// The finalizer of [`splitmix64`]: a bijection, too, but 0 stays 0.
#[must_use]
#[inline]
pub const fn finalizer(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Vigna's reference in C prints them.
    #[test]
    fn outputs_are_those_of_the_reference() {
        let mut numbers = SplitMix64::new(0);
        assert_eq!(
            [(); 3].map(|()| numbers.bits()),
            [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f]
        );
        assert_eq!(SplitMix64::new(1).bits(), 0x910a_2dec_8902_5cc1);
        assert_eq!(SplitMix64::new(1_234_567).bits(), 6_457_827_717_110_365_317);
    }

    #[test]
    fn numbers_lie_within_their_range() {
        let mut numbers = SplitMix64::new(7);
        for _ in 0..1000 {
            assert!(numbers.below(3) < 3 && (0.0..1.0).contains(&numbers.unit()));
        }
        assert_eq!(SplitMix64::new(numbers.state()).bits(), numbers.bits());
        assert_eq!(finalizer(0), 0);
    }
}
