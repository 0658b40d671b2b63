//! The one source of chance: a seed.

/// Steele, Lea, Flood: Fast splittable pseudorandom number generators (OOPSLA 2014), with the constants of
/// Stafford's variant 13. The same on every machine.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// 32 bits, the upper ones of 64.
    pub(crate) fn word(&mut self) -> u32 {
        (self.bits() >> 32) as u32
    }

    /// A number below `end`, which is not 0. The bias of the modulus is below 2^-32.
    pub(crate) fn below(&mut self, end: u32) -> u32 {
        u32::try_from(self.bits() % u64::from(end)).expect("it is below a u32")
    }

    /// A number in \[0, 1).
    pub(crate) fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Puts the elements in random order (Fisher, Yates).
    pub(crate) fn shuffle<T>(&mut self, elements: &mut [T]) {
        for last in (1..elements.len()).rev() {
            let end = u32::try_from(last + 1).expect("fewer than 2^32 elements are shuffled");
            let other = usize::try_from(self.below(end)).expect("an index is a usize");
            elements.swap(last, other);
        }
    }
}
