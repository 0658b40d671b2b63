//! The one source of chance.

use core::ops::{Range, RangeInclusive};
use core::time::Duration;

use libra_plan::{SplitMix64, splitmix64};

/// Draws for faults, by [`SplitMix64`]: a seed makes the same ones on every machine.
#[derive(Debug, Clone)]
pub struct Random(SplitMix64);

impl Random {
    /// The sequence that this seed names.
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    /// A sequence of its own for one subject, so that drawing more for one does not change what another gets.
    #[must_use]
    pub fn fork(&self, subject: u64) -> Self {
        let subject = subject.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self::new(splitmix64(self.0.state() ^ subject))
    }

    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0.bits()
    }

    /// A number below `end`; 0 if there is none.
    pub fn below(&mut self, end: u64) -> u64 {
        // The bias of the modulus is below 2^-32 for every range that is drawn from here.
        self.bits().checked_rem(end).unwrap_or(0)
    }

    /// A position in something of this length; 0 if it is empty.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).expect("it is below a usize")
    }

    /// A number of this range, both ends included.
    pub fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        range.start() + self.below(range.end().saturating_sub(*range.start()).saturating_add(1))
    }

    /// A u16 of this range, both ends included.
    pub fn small(&mut self, range: RangeInclusive<u16>) -> u16 {
        let drawn = self.within(u64::from(*range.start())..=u64::from(*range.end()));
        u16::try_from(drawn).expect("both ends are u16")
    }

    /// A number in \[0, 1).
    pub fn unit(&mut self) -> f64 {
        self.0.unit()
    }

    /// Returns true with this probability. A probability of zero draws nothing.
    pub fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.unit() < probability
    }

    /// A duration of this range; of all magnitudes alike, so that short ones are as likely as long ones.
    pub fn duration(&mut self, range: Range<Duration>) -> Duration {
        let (low, high) = (nanos(range.start).max(1), nanos(range.end).max(2));
        let octaves = u64::from((high / low).max(1).ilog2());
        let octave = low << self.below(octaves + 1);
        Duration::from_nanos((octave + self.below(octave)).min(high))
    }

    /// A duration up to `end`, evenly.
    pub fn up_to(&mut self, end: Duration) -> Duration {
        Duration::from_nanos(self.below(nanos(end)))
    }

    /// One of these.
    ///
    /// # Panics
    /// If there are none.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.index(choices.len())]
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_lie_within_their_range() {
        let mut random = Random::new(7);
        for _ in 0..10_000 {
            assert!((3..=9).contains(&random.within(3..=9)));
            assert!(random.below(1) == 0 && random.below(0) == 0);
            assert!((0.0..1.0).contains(&random.unit()));
            let (low, high) = (Duration::from_micros(20), Duration::from_millis(3));
            let drawn = random.duration(low..high);
            assert!(drawn >= low && drawn <= high, "{drawn:?}");
        }
        assert!(!random.chance(0.0) && random.chance(1.0));
    }

    #[test]
    fn a_fork_does_not_depend_on_what_was_drawn_elsewhere() {
        let trunk = Random::new(7);
        let mut first = trunk.fork(1);
        let mut other = trunk.fork(2);
        other.bits();
        assert_eq!(trunk.fork(1).bits(), first.bits());
        assert_ne!(trunk.fork(1).bits(), trunk.fork(2).bits());
    }
}
