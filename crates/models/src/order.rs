//! Order of the samples of an epoch, and samples of a data set, drawn by a seed.
//!
//! Every worker has the same order without holding it: the sample at a place is computed from the place alone.

use rand::{SeedableRng, rngs::SmallRng};

use crate::{TrainError, splitmix::splitmix64};

/// Rounds of the Feistel network. Four are a pseudo-random permutation of a large domain if the round function is random
/// (Luby, Rackoff 1988).
const ROUNDS: usize = 6;

/// A permutation of `0..count`, drawn by a key.
///
/// A Feistel network permutes the numbers of as many bits as the largest index has. What comes out beyond the count is put in again until it is below
/// (cycle walking, Black, Rogaway 2002): less than once on average, as the numbers are fewer than twice the count.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Permutation {
    count: u64,
    /// Bits of the lower half of an index.
    low_bits: u32,
    /// The lower half, and the upper one where it stands alone.
    low: u64,
    high: u64,
    keys: [u64; ROUNDS],
}

impl Permutation {
    pub(crate) fn new(count: u64, key: u64) -> Self {
        let bits = (u64::BITS - count.saturating_sub(1).leading_zeros()).max(2);
        let low_bits = bits / 2;
        let mask = |bits: u32| (1 << bits) - 1;
        let mut keys = [key; ROUNDS];
        for round in 1..ROUNDS {
            keys[round] = splitmix64(keys[round - 1]);
        }
        Self { count, low_bits, low: mask(low_bits), high: mask(bits - low_bits), keys }
    }

    /// Returns the number at an index, which must be below the count.
    pub(crate) fn at(&self, index: u64) -> u64 {
        debug_assert!(index < self.count, "{index} of {}", self.count);
        let mut number = index;
        loop {
            let (mut high, mut low) = (number >> self.low_bits, number & self.low);
            for keys in self.keys.chunks_exact(2) {
                high ^= splitmix64(low ^ keys[0]) & self.high;
                low ^= splitmix64(high ^ keys[1]) & self.low;
            }
            number = high << self.low_bits | low;
            if number < self.count {
                return number;
            }
        }
    }
}

/// The order of an epoch: runs of neighbours are permuted, and the samples of a run stay together. What is left over of the last run comes last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Order {
    runs: Permutation,
    run: u64,
}

impl Order {
    /// The order of `count` samples in runs of `run`.
    pub(crate) fn new(count: u64, run: u64, seed: u64) -> Self {
        Self { runs: Permutation::new(count / run, seed), run }
    }

    /// Returns the number of the sample at a place, which must be below the count.
    pub(crate) fn at(&self, place: u64) -> u64 {
        let run = place / self.run;
        if run < self.runs.count { self.runs.at(run) * self.run + place % self.run } else { place }
    }
}

/// Returns the seed of an epoch.
pub(crate) fn epoch_seed(seed: u64, epoch: u32) -> u64 {
    splitmix64(seed ^ splitmix64(u64::from(epoch) + 1))
}

/// Returns a source of randomness of what is at a place of an epoch: it does not depend on the worker that gets there, or how.
pub(crate) fn random_at(epoch_seed: u64, place: u64) -> SmallRng {
    SmallRng::seed_from_u64(epoch_seed.wrapping_add(place))
}

/// Returns indices of a random share of `count` things, at least one, ascending; `None` for all.
///
/// # Errors
/// [`TrainError::Sample`].
///
/// # Panics
/// If there are more than 2^32 things.
pub(crate) fn draw(count: usize, sample: f64, seed: u64) -> Result<Option<Vec<u32>>, TrainError> {
    if !(sample > 0.0 && sample <= 1.0) {
        return Err(TrainError::Sample { sample });
    }
    if sample >= 1.0 {
        return Ok(None);
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at most `count`, and not negative"
    )]
    let drawn = ((count as f64 * sample).round() as usize).clamp(1, count);
    let mut random = SmallRng::seed_from_u64(seed ^ 0x0b5e_55ed_5a3b_1e00);
    let mut indices: Vec<u32> = rand::seq::index::sample(&mut random, count, drawn)
        .into_iter()
        .map(|index| u32::try_from(index).expect("they are numbered with 32 bits"))
        .collect();
    indices.sort_unstable();
    Ok(Some(indices))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_permutation(count: u64, at: impl Fn(u64) -> u64) {
        let mut found = vec![false; usize::try_from(count).unwrap()];
        for index in 0..count {
            let seen = &mut found[usize::try_from(at(index)).unwrap()];
            assert!(!*seen, "{} twice of {count}", at(index));
            *seen = true;
        }
    }

    #[test]
    fn each_number_comes_once_whatever_the_count() {
        for count in (1..=2000).chain([4096, 65_537, 1 << 20, 1_000_003]) {
            let permutation = Permutation::new(count, count.rotate_left(20) ^ 7);
            assert_permutation(count, |index| permutation.at(index));
        }
    }

    #[test]
    fn each_sample_comes_once_in_runs() {
        for (count, run) in [(1, 1), (100, 7), (5, 8), (4096, 64), (1001, 250)] {
            let order = Order::new(count, run, 3);
            assert_permutation(count, |place| order.at(place));
            for place in (0..count).filter(|place| place % run > 0) {
                assert_eq!(order.at(place), order.at(place - 1) + 1, "{place} of {count} in runs of {run}");
            }
        }
    }

    #[test]
    fn a_permutation_is_as_good_as_a_random_one() {
        // Where the first of ten goes, and how far apart neighbours come to lie: a third of the count, as of random numbers.
        let mut counts = [0; 10];
        for key in 0..10_000 {
            counts[usize::try_from(Permutation::new(10, splitmix64(key)).at(0)).unwrap()] += 1;
        }
        assert!(counts.iter().all(|count| (880..1120).contains(count)), "{counts:?}");
        let permutation = Permutation::new(100_000, 5);
        let apart = |index| permutation.at(index).abs_diff(permutation.at(index + 1)) as f64;
        let mean = (0..99_999).map(apart).sum::<f64>() / 99_999.0 / 100_000.0;
        assert!((mean - 1.0 / 3.0).abs() < 0.005, "{mean}");
    }

    #[test]
    fn another_key_is_another_order() {
        let same = (0..1000).filter(|&index| {
            let at = |epoch| Permutation::new(1000, epoch_seed(1, epoch)).at(index);
            at(0) == at(1)
        });
        assert!(same.count() < 10);
    }

    #[test]
    fn a_share_is_drawn_once_each_and_is_never_empty() {
        let drawn = draw(1000, 0.3, 1).unwrap().unwrap();
        assert_eq!(drawn.len(), 300);
        assert!(drawn.is_sorted_by(|a, b| a < b) && drawn[299] < 1000);
        assert_eq!(draw(1000, 1.0, 1).unwrap(), None);
        assert_eq!(draw(1, 1e-9, 1).unwrap(), Some(vec![0]));
        for sample in [0.0, -1.0, 1.5, f64::NAN] {
            assert!(matches!(draw(10, sample, 1), Err(TrainError::Sample { .. })), "{sample}");
        }
    }
}
