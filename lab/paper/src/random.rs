//! The one source of chance: a seed.

use libra_plan::SplitMix64;

/// Words, numbers and orders from [`SplitMix64`].
#[derive(Debug, Clone)]
pub(crate) struct Random(SplitMix64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    /// 64 bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0.bits()
    }

    /// 32 bits, the upper ones of 64.
    pub(crate) fn word(&mut self) -> u32 {
        (self.bits() >> 32) as u32
    }

    /// A number below `end`, which is not 0. The bias of the modulus is below 2^-32.
    pub(crate) fn below(&mut self, end: u32) -> u32 {
        u32::try_from(self.0.below(end.into())).expect("it is below a u32")
    }

    /// A number in \[0, 1).
    pub(crate) fn unit(&mut self) -> f64 {
        self.0.unit()
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
