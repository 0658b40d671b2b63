//! Distributions of durations, in buckets of a fixed number.

use core::time::Duration;

/// Number of buckets with an upper bound.
pub const HISTOGRAM_BOUNDS: usize = 21;
/// Upper bound of the first bucket; that of each other is twice the one before.
const FIRST_BOUND: Duration = Duration::from_micros(16);

/// Counts of durations by their size: up to 16 us, up to 32 us, and so on up to 16.8 s, and above.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; HISTOGRAM_BOUNDS + 1],
    sum: Duration,
}

impl Histogram {
    /// Counts a duration.
    pub fn record(&mut self, duration: Duration) {
        let units = duration.as_nanos().div_ceil(FIRST_BOUND.as_nanos()).max(1);
        // The least k with 2^k >= units.
        let bucket = u128::BITS - (units - 1).leading_zeros();
        self.counts[HISTOGRAM_BOUNDS.min(bucket as usize)] += 1;
        self.sum = self.sum.saturating_add(duration);
    }

    /// The upper bound of each bucket and the number of durations in it alone; the last has no bound.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<Duration>, u64)> {
        let bounds = (0..).map(|power: u32| FIRST_BOUND * (1 << power)).take(HISTOGRAM_BOUNDS);
        bounds.map(Some).chain([None]).zip(self.counts)
    }

    /// Number of durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Sum of the durations.
    pub fn sum(&self) -> Duration {
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_duration_is_in_the_first_bucket_that_bounds_it(micros in proptest::collection::vec(0u64..40_000_000, 0..50)) {
            let mut histogram = Histogram::default();
            micros.iter().for_each(|micros| histogram.record(Duration::from_micros(*micros)));
            let mut below = Duration::ZERO;
            for (bound, count) in histogram.buckets() {
                let within = |micros: &&u64| {
                    let duration = Duration::from_micros(**micros);
                    (duration > below || below.is_zero()) && bound.is_none_or(|bound| duration <= bound)
                };
                prop_assert_eq!(count, micros.iter().filter(within).count() as u64, "up to {:?}", bound);
                below = bound.unwrap_or(below);
            }
            prop_assert_eq!(histogram.count(), micros.len() as u64);
            prop_assert_eq!(histogram.sum(), Duration::from_micros(micros.iter().sum()));
        }
    }
}
