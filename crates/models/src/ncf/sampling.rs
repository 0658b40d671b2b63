//! Training batches: positives in a new order every epoch, each followed by negatives drawn for it.
//!
//! The stream of worker w of N in one epoch, cut into batches wherever they are full:
//! ```text
//! shuffled positives:  p0 p1 p2 p3 p4 p5 ..        the same order at every worker, from (seed, epoch)
//! worker 0 of 2:       p0 n n n n  p2 n n n n  p4 n n n n ..
//! worker 1 of 2:       p1 n n n n  p3 n n n n  p5 n n n n ..
//! ```
//! Negatives stand right behind their positive so that they share its user row: a batch of 1024 touches about 205 users
//! instead of a thousand, and a push is that much smaller.

use std::sync::Arc;

use rand::{SeedableRng, rngs::SmallRng, seq::SliceRandom};

use super::data::{Dataset, Interactions};

/// Samples of one step; the three vectors are equally long.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Batch {
    /// The user of each sample.
    pub(crate) users: Vec<u32>,
    /// The item of each sample.
    pub(crate) items: Vec<u32>,
    /// 1 if the user touched the item, 0 if the item is a negative.
    pub(crate) labels: Vec<f32>,
}

impl Batch {
    /// Returns the number of samples.
    pub(crate) fn len(&self) -> usize {
        self.users.len()
    }

    /// Returns true if it holds no samples.
    pub(crate) fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    fn clear(&mut self) {
        self.users.clear();
        self.items.clear();
        self.labels.clear();
    }

    fn push(&mut self, user: u32, item: u32, label: f32) {
        self.users.push(user);
        self.items.push(item);
        self.labels.push(label);
    }
}

/// Selection of the pairs that one worker trains on, and its sampling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchConfig {
    /// This worker, below `workers`.
    pub(crate) worker: usize,
    /// All workers.
    pub(crate) workers: usize,
    /// Samples of a batch.
    pub(crate) batch: usize,
    /// Negatives drawn for each positive.
    pub(crate) negatives: usize,
    /// Decides order and negatives. The same at every worker: they would train on overlapping parts otherwise.
    pub(crate) seed: u64,
}

/// A user touched every item, so that no negative can be drawn for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("user {user} touched every item: no negative can be drawn for it")]
pub struct NoNegatives {
    /// The user.
    pub user: u32,
}

/// Deals the batches of one worker. In steady state it allocates nothing.
#[derive(Debug)]
pub(crate) struct Sampler {
    dataset: Arc<Dataset>,
    touched: Interactions,
    batch_config: BatchConfig,
    /// The positives that are trained on, as indices, ascending; `None` for all of them.
    subset: Option<Vec<u32>>,
    order: Vec<u32>,
    /// Index of this worker's next positive in `order`.
    next: usize,
    /// The user that negatives are still owed for, and how many.
    owed: (u32, usize),
    random: SmallRng,
}

impl Sampler {
    /// Deals from all training pairs of `dataset`, or from those whose indices `subset` names.
    ///
    /// Negatives are items that their user touched in no training pair, whether that pair is in the subset or not.
    ///
    /// # Errors
    /// A user of a training pair touched every item.
    ///
    /// # Panics
    /// If `batch_config` has no batches (`worker >= workers`, an empty batch), if ids are out of range (see
    /// [`Dataset::check`]) or if there are more than 2^32 pairs.
    pub(crate) fn new(
        dataset: Arc<Dataset>,
        subset: Option<Vec<u32>>,
        batch_config: BatchConfig,
    ) -> Result<Self, NoNegatives> {
        assert!(
            batch_config.worker < batch_config.workers && batch_config.batch > 0,
            "{batch_config:?} has no batches"
        );
        assert!(u32::try_from(dataset.train.len()).is_ok(), "pairs are numbered with 32 bits");
        let touched = Interactions::new(dataset.users, dataset.items, dataset.train.iter().copied());
        if batch_config.negatives > 0
            && let Some(&(user, _)) = dataset.train.iter().find(|(user, _)| touched.untouched(*user) == 0)
        {
            return Err(NoNegatives { user });
        }
        let positives = subset.as_ref().map_or(dataset.train.len(), Vec::len);
        Ok(Self {
            order: Vec::with_capacity(positives),
            next: positives,
            owed: (0, 0),
            random: SmallRng::seed_from_u64(0),
            dataset,
            touched,
            batch_config,
            subset,
        })
    }

    /// Shuffles for epoch `epoch` and goes to its start. What is dealt depends on nothing that was dealt before.
    pub(crate) fn start_epoch(&mut self, epoch: u32) {
        self.order.clear();
        match &self.subset {
            Some(subset) => self.order.extend_from_slice(subset),
            None => self.order.extend((0u32..).take(self.dataset.train.len())),
        }
        let seed = self.batch_config.seed ^ (u64::from(epoch) << 32);
        self.order.shuffle(&mut SmallRng::seed_from_u64(seed));
        self.next = self.batch_config.worker;
        self.owed = (0, 0);
        // seed_from_u64 mixes well, so neighbouring seeds give unrelated streams.
        let worker = u64::try_from(self.batch_config.worker).unwrap_or(u64::MAX);
        self.random = SmallRng::seed_from_u64(seed.wrapping_add(worker.wrapping_add(1)));
    }

    /// Samples that this worker trains on in one epoch.
    pub(crate) fn samples_per_epoch(&self) -> u64 {
        let positives = self.subset.as_ref().map_or(self.dataset.train.len(), Vec::len);
        let own = positives.saturating_sub(self.batch_config.worker).div_ceil(self.batch_config.workers);
        own as u64 * (self.batch_config.negatives as u64 + 1)
    }

    /// Fills `batch` with the next samples; false, and an empty batch, at the end of the epoch. The last batch may be short.
    pub(crate) fn next_batch(&mut self, batch: &mut Batch) -> bool {
        batch.clear();
        while batch.len() < self.batch_config.batch {
            let (user, owed) = self.owed;
            if owed > 0 {
                let item = self.touched.draw_untouched(user, &mut self.random);
                batch.push(user, item.expect("`new` refused users without untouched items"), 0.0);
                self.owed.1 -= 1;
            } else if let Some(&place) = self.order.get(self.next) {
                let (user, item) = self.dataset.train[place as usize];
                batch.push(user, item, 1.0);
                self.owed = (user, self.batch_config.negatives);
                self.next += self.batch_config.workers;
            } else {
                break;
            }
        }
        !batch.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::ncf::data::Synthetic;

    fn dataset() -> Arc<Dataset> {
        Arc::new(Synthetic { users: 50, items: 60, picks_min: 5, ..Synthetic::default() }.generate())
    }

    fn batch_config(worker: usize, workers: usize) -> BatchConfig {
        BatchConfig { worker, workers, batch: 32, negatives: 4, seed: 7 }
    }

    fn batches_of(sampler: &mut Sampler, epoch: u32) -> Vec<Batch> {
        let mut batches = Vec::new();
        let mut batch = Batch::default();
        sampler.start_epoch(epoch);
        while sampler.next_batch(&mut batch) {
            batches.push(batch.clone());
        }
        batches
    }

    #[test]
    fn workers_share_all_positives_and_negatives_follow_them() {
        let dataset = dataset();
        let touched = Interactions::new(dataset.users, dataset.items, dataset.train.iter().copied());
        let mut positives = Vec::new();
        for worker in 0..3 {
            let mut sampler = Sampler::new(dataset.clone(), None, batch_config(worker, 3)).unwrap();
            let batches = batches_of(&mut sampler, 0);
            assert!(batches.iter().rev().skip(1).all(|batch| batch.len() == 32));
            let samples = batches.iter().map(|batch| batch.len() as u64).sum::<u64>();
            assert_eq!(samples, sampler.samples_per_epoch());
            let stream: Vec<(u32, u32, f32)> = batches
                .iter()
                .flat_map(|batch| (0..batch.len()).map(|i| (batch.users[i], batch.items[i], batch.labels[i])))
                .collect();
            for group in stream.chunks(5) {
                assert_eq!(group[0].2, 1.0);
                positives.push((group[0].0, group[0].1));
                for negative in &group[1..] {
                    assert_eq!((negative.0, negative.2), (group[0].0, 0.0));
                    assert!(!touched.contains(negative.0, negative.1));
                }
            }
        }
        let mut expected = dataset.train.clone();
        positives.sort_unstable();
        expected.sort_unstable();
        assert_eq!(positives, expected);
    }

    #[test]
    fn an_epoch_depends_on_its_number_only() {
        let mut sampler = Sampler::new(dataset(), None, batch_config(1, 2)).unwrap();
        let first = batches_of(&mut sampler, 3);
        let other = batches_of(&mut sampler, 4);
        assert_ne!(first, other);
        assert_eq!(first, batches_of(&mut sampler, 3));
    }

    #[test]
    fn a_subset_is_dealt_alone() {
        let dataset = dataset();
        let mut sampler = Sampler::new(dataset.clone(), Some(vec![3, 10, 11]), batch_config(0, 1)).unwrap();
        let batches = batches_of(&mut sampler, 0);
        assert_eq!((batches.len(), sampler.samples_per_epoch()), (1, 15));
        let mut found: Vec<(u32, u32)> = (0..15)
            .filter(|&i| batches[0].labels[i] > 0.0)
            .map(|i| (batches[0].users[i], batches[0].items[i]))
            .collect();
        let mut expected = vec![dataset.train[3], dataset.train[10], dataset.train[11]];
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected);
    }

    #[test]
    fn negatives_are_uniform_over_what_was_not_touched() {
        let dataset = Dataset {
            name: "one".into(),
            users: 1,
            items: 10,
            train: vec![(0, 2), (0, 3), (0, 9)],
            test: Vec::new(),
        };
        let batch_config = BatchConfig { negatives: 10_000, batch: 50_000, ..batch_config(0, 1) };
        let mut sampler = Sampler::new(Arc::new(dataset), None, batch_config).unwrap();
        let mut counts = HashMap::new();
        let batch = batches_of(&mut sampler, 0).remove(0);
        for (item, label) in batch.items.iter().zip(&batch.labels) {
            if *label == 0.0 {
                *counts.entry(*item).or_insert(0) += 1;
            }
        }
        assert_eq!(counts.len(), 7);
        // 30000 draws over 7 items: 4286 each, with a standard deviation of 61.
        assert!(counts.values().all(|count| (3980..4590).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_user_without_untouched_items_is_an_error() {
        let dataset = Dataset {
            name: "full".into(),
            users: 2,
            items: 2,
            train: vec![(0, 0), (1, 0), (1, 1)],
            test: Vec::new(),
        };
        let dataset = Arc::new(dataset);
        let error = Sampler::new(dataset.clone(), None, batch_config(0, 1)).unwrap_err();
        assert_eq!(error, NoNegatives { user: 1 });
        let mut without =
            Sampler::new(dataset, None, BatchConfig { negatives: 0, ..batch_config(0, 1) }).unwrap();
        assert_eq!(batches_of(&mut without, 0)[0].len(), 3);
    }
}
