//! Pushes of workers: synthetic with a skew, or recorded in a training.

use core::fmt;
use std::collections::BTreeMap;

use libra_faultsim::Random;

/// One push: distinct keys, and the gradients of their rows one behind the other.
#[derive(Debug, Clone, PartialEq)]
pub struct Push {
    /// Distinct keys.
    pub keys: Vec<u64>,
    /// As many values for each as its row has.
    pub gradients: Vec<f32>,
    /// Updates of rows that the worker has made for it: as many as keys, unless some are kept back or come from before.
    pub pairs: u64,
}

/// The pushes of one worker, in their order. A simulation takes as many as it has time for; a recording that is to last is repeated.
pub struct Pushes(pub Box<dyn Iterator<Item = Push>>);

impl Pushes {
    /// Those of an iterator.
    pub fn new(pushes: impl Iterator<Item = Push> + 'static) -> Self {
        Self(Box::new(pushes))
    }
}

impl fmt::Debug for Pushes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Pushes")
    }
}

/// Keeps the rows that a worker caches from its pushes, and pushes what they have come to in every `bound`-th, as a cache with bounded staleness on
/// each worker does (Miao et al., HET, VLDB 2022: a row is written back when its clock is the bound ahead).
///
/// All cached rows are written back in the same push here, where HET counts for each row; over time it is as many.
#[must_use]
pub fn cached(pushes: Pushes, width: usize, is_cached: impl Fn(u64) -> bool + 'static, bound: u32) -> Pushes {
    let mut kept: BTreeMap<u64, Vec<f32>> = BTreeMap::new();
    let mut step = 0;
    Pushes::new(pushes.0.map(move |push| {
        let mut sent = Push { keys: Vec::new(), gradients: Vec::new(), pairs: push.pairs };
        for (key, gradients) in push.keys.iter().zip(push.gradients.chunks(width)) {
            if is_cached(*key) {
                let sums = kept.entry(*key).or_insert_with(|| vec![0.0; width]);
                sums.iter_mut().zip(gradients).for_each(|(sum, gradient)| *sum += gradient);
            } else {
                sent.keys.push(*key);
                sent.gradients.extend_from_slice(gradients);
            }
        }
        step += 1;
        if step >= bound || sent.keys.is_empty() {
            step = 0;
            for (key, sums) in core::mem::take(&mut kept) {
                sent.keys.push(key);
                sent.gradients.extend(sums);
            }
        }
        sent
    }))
}

/// Ranks by a power law: that of rank i, from 0, has a share in proportion to (i + 1)^-exponent.
///
/// The first 4,096 ranks have exactly their shares; those behind are drawn from the continuous law through them, which differs by less than one
/// part in a thousand there.
#[derive(Debug, Clone)]
pub struct PowerLaw {
    cumulative: Vec<f64>,
    exponent: f64,
    end: f64,
}

/// See [`PowerLaw`].
const EXACT: u32 = 4096;

impl PowerLaw {
    /// The law over so many ranks.
    #[must_use]
    pub fn new(ranks: u64, exponent: f64) -> Self {
        let exact = u32::try_from(ranks).unwrap_or(u32::MAX).min(EXACT);
        let mut cumulative: Vec<f64> = Vec::with_capacity(exact as usize + 1);
        let mut sum = 0.0;
        for rank in 1..=exact {
            sum += f64::from(rank).powf(-exponent);
            cumulative.push(sum);
        }
        let (from, end) = (f64::from(exact) + 0.5, ranks as f64 + 0.5);
        sum += if (exponent - 1.0).abs() < 1e-9 {
            (end / from).ln()
        } else {
            (end.powf(1.0 - exponent) - from.powf(1.0 - exponent)) / (1.0 - exponent)
        };
        cumulative.push(sum);
        Self { cumulative, exponent, end }
    }

    /// A rank.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank is a whole number")]
    pub fn draw(&self, random: &mut Random) -> u64 {
        let exact = self.cumulative.len() - 1;
        let all = self.cumulative[exact];
        let at = random.unit() * all;
        let rank = self.cumulative.partition_point(|sum| *sum <= at);
        if rank < exact {
            return rank as u64;
        }
        let (from, exponent) = (exact as f64 + 0.5, self.exponent);
        let share = random.unit();
        let place = if (exponent - 1.0).abs() < 1e-9 {
            from * (self.end / from).powf(share)
        } else {
            let power = |place: f64| place.powf(1.0 - exponent);
            (power(from) + share * (power(self.end) - power(from))).powf(1.0 / (1.0 - exponent))
        };
        (place.round() as u64).clamp(exact as u64 + 1, self.end as u64) - 1
    }

    /// The share of the first so many ranks.
    #[must_use]
    pub fn share(&self, ranks: u64) -> f64 {
        let exact = self.cumulative.len() - 1;
        let whole = self.cumulative[exact];
        let Some(ranks) = usize::try_from(ranks).ok().filter(|ranks| *ranks > 0) else { return 0.0 };
        if ranks <= exact {
            return self.cumulative[ranks - 1] / whole;
        }
        let (from, end, exponent) = (exact as f64 + 0.5, (ranks as f64 + 0.5).min(self.end), self.exponent);
        let tail = if (exponent - 1.0).abs() < 1e-9 {
            (end / from).ln()
        } else {
            (end.powf(1.0 - exponent) - from.powf(1.0 - exponent)) / (1.0 - exponent)
        };
        (self.cumulative[exact - 1] + tail) / whole
    }
}

/// Set of rows, and the distribution from which a push is drawn.
#[derive(Debug, Clone)]
pub struct Model {
    /// Rows of the table.
    pub rows: u64,
    /// Values of a row.
    pub width: usize,
    /// Skew of their updates.
    pub law: PowerLaw,
    /// Distinct rows of a push.
    pub batch: usize,
}

impl Model {
    /// The key of a rank. Ranks are spread over the keys, so that neighbours in rank are none in memory.
    #[must_use]
    pub fn key(&self, rank: u64) -> u64 {
        const PRIMES: [u128; 2] = [2_654_435_761, 4_294_967_291];
        let rows = u128::from(self.rows);
        let prime = if rows.is_multiple_of(PRIMES[0]) { PRIMES[1] } else { PRIMES[0] };
        u64::try_from(u128::from(rank) * prime % rows).expect("it is below the number of rows")
    }

    /// The distinct ranks of one push.
    pub fn draw_ranks(&self, random: &mut Random) -> Vec<u64> {
        let mut ranks: Vec<u64> = Vec::with_capacity(self.batch + self.batch / 2);
        while ranks.len() < self.batch {
            // Sorting is cheaper than a set: most of what is drawn is new.
            let missing = self.batch - ranks.len();
            ranks.extend((0..missing).map(|_| self.law.draw(random)));
            ranks.sort_unstable();
            ranks.dedup();
        }
        ranks
    }

    /// The pushes of a worker, without end. So many are drawn and then repeated.
    #[must_use]
    pub fn pushes(&self, worker: u16, seed: u64, drawn: usize) -> Pushes {
        let mut random = Random::new(seed).fork(u64::from(worker) + 1);
        let mut keys: Vec<Vec<u64>> = Vec::with_capacity(drawn);
        for _ in 0..drawn {
            let mut push: Vec<u64> =
                self.draw_ranks(&mut random).into_iter().map(|rank| self.key(rank)).collect();
            push.sort_unstable();
            keys.push(push);
        }
        let width = self.width;
        let repeated = (0..keys.len()).cycle();
        Pushes::new(repeated.map(move |number| {
            let keys = keys[number].clone();
            Push { gradients: vec![0.001; keys.len() * width], pairs: keys.len() as u64, keys }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_as_frequent_as_the_law_says() {
        for exponent in [0.0, 0.8, 1.0, 1.05] {
            let law = PowerLaw::new(9_000_000, exponent);
            let mut random = Random::new(5);
            let drawn: Vec<u64> = (0..200_000).map(|_| law.draw(&mut random)).collect();
            for ranks in [1, 1000, 30_000, 1_000_000] {
                let found = drawn.iter().filter(|rank| **rank < ranks).count() as f64 / 200_000.0;
                assert!(
                    (found - law.share(ranks)).abs() < 0.005,
                    "{exponent}: {found} for {}",
                    law.share(ranks)
                );
            }
            assert!(drawn.iter().all(|rank| *rank < 9_000_000));
        }
    }

    #[test]
    fn a_push_has_as_many_distinct_keys_as_it_should() {
        let model = Model { rows: 100_000, width: 2, law: PowerLaw::new(100_000, 1.05), batch: 500 };
        let pushes: Vec<Push> = model.pushes(0, 1, 3).0.take(7).collect();
        assert!(pushes.iter().all(|push| push.keys.windows(2).all(|pair| pair[0] < pair[1])));
        assert!(pushes.iter().all(|push| push.keys.len() == 500 && push.gradients.len() == 1000));
        assert_eq!(pushes[0], pushes[3]);
        assert_ne!(pushes[0], model.pushes(1, 1, 3).0.next().unwrap());
    }

    #[test]
    fn a_cache_keeps_back_what_it_pushes_later_and_loses_nothing() {
        let model = Model { rows: 1000, width: 1, law: PowerLaw::new(1000, 1.0), batch: 50 };
        let sum = |pushes: &[Push]| {
            pushes.iter().flat_map(|push| &push.gradients).map(|value| f64::from(*value)).sum::<f64>()
        };
        let plain: Vec<Push> = model.pushes(0, 1, 8).0.take(8).collect();
        let hot: std::collections::BTreeSet<u64> = (0..100).map(|rank| model.key(rank)).collect();
        let kept: Vec<Push> =
            cached(model.pushes(0, 1, 8), 1, move |key| hot.contains(&key), 4).0.take(8).collect();
        assert!((sum(&plain) - sum(&kept)).abs() < 1e-4);
        let sent = |pushes: &[Push]| pushes.iter().map(|push| push.keys.len()).sum::<usize>();
        assert!(sent(&kept) * 10 < sent(&plain) * 8, "{} of {}", sent(&kept), sent(&plain));
        assert_eq!(kept.iter().map(|push| push.pairs).sum::<u64>(), 400);
    }
}
