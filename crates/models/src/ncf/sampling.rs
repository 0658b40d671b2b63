//! Training batches: positives in a new order every epoch, each followed by negatives drawn for it.
//!
//! The samples of an epoch, cut into batches wherever they are full, and into chunks of whole batches:
//! ```text
//! positives in order:  p0 n n n n  p1 n n n n  p2 n n n n  p3 ..      the same at every worker, from seed and epoch
//! batches of 7:        |------ 0 ------|------ 1 -------|------ 2 ..
//! ```
//! Negatives follow from their positive's place in the order, so a batch is the same wherever its chunk begins. They stand right behind
//! their positive so that they share its user row: a batch of 1024 touches about 205 users instead of a thousand, and a push is that
//! much smaller.

use std::{ops::Range, sync::Arc};

use rand::{SeedableRng, rngs::SmallRng};

use super::data::{Dataset, Interactions};
use crate::{
    Chunk, TrainError,
    order::{Order, draw, epoch_seed, random_at},
};

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

/// Batches of a training.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct BatchConfig {
    /// Samples of a batch.
    pub(crate) batch: usize,
    /// Negatives drawn for each positive.
    pub(crate) negatives: usize,
    /// The part of the positives that is trained on.
    pub(crate) sample: f64,
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
    order: Order,
    epoch_seed: u64,
    /// Samples of the chunk that are not dealt yet, by their places in the epoch.
    next: Range<u64>,
    /// User of the current positive, and the source of its negatives.
    user: u32,
    random: SmallRng,
}

impl Sampler {
    /// Deals from the training pairs of `dataset`, or from a part of them.
    ///
    /// Negatives are items that their user touched in no training pair, whether that pair is in the part or not.
    ///
    /// # Errors
    /// A user of a training pair touched every item, or the part is none.
    ///
    /// # Panics
    /// If ids are out of range (see [`Dataset::check`]) or if there are more than 2^32 pairs.
    pub(crate) fn new(dataset: Arc<Dataset>, batch_config: BatchConfig) -> Result<Self, TrainError> {
        assert!(u32::try_from(dataset.train.len()).is_ok(), "pairs are numbered with 32 bits");
        let subset = draw(dataset.train.len(), batch_config.sample, batch_config.seed)?;
        let touched = Interactions::new(dataset.users, dataset.items, dataset.train.iter().copied());
        if batch_config.negatives > 0
            && let Some(&(user, _)) = dataset.train.iter().find(|(user, _)| touched.untouched(*user) == 0)
        {
            return Err(NoNegatives { user }.into());
        }
        Ok(Self {
            order: Order::new(0, 1, 0),
            epoch_seed: 0,
            next: 0..0,
            user: 0,
            random: SmallRng::seed_from_u64(0),
            dataset,
            touched,
            batch_config,
            subset,
        })
    }

    /// Goes to an epoch.
    pub(crate) fn start_epoch(&mut self, epoch: u32) {
        self.epoch_seed = epoch_seed(self.batch_config.seed, epoch);
        self.order = Order::new(self.positives() as u64, 1, self.epoch_seed);
        self.next = 0..0;
    }

    /// Goes to the start of a chunk of the epoch. What is dealt depends on nothing that was dealt before.
    pub(crate) fn start_chunk(&mut self, chunk: Chunk) {
        self.next = chunk.samples(self.samples_per_epoch(), self.batch_config.batch);
        let (positive, negatives) = (self.next.start / self.group(), self.next.start % self.group());
        // A chunk may begin between a positive and its negatives: those of the chunk before are drawn and forgotten.
        if negatives > 0 && !self.next.is_empty() {
            self.start_positive(positive);
            for _ in 1..negatives {
                self.draw_negative();
            }
        }
    }

    /// Samples of an epoch.
    pub(crate) fn samples_per_epoch(&self) -> u64 {
        self.positives() as u64 * self.group()
    }

    /// Fills `batch` with the next samples; false, and an empty batch, at the end of the chunk. The last batch of an epoch may be short.
    pub(crate) fn next_batch(&mut self, batch: &mut Batch) -> bool {
        batch.clear();
        let group = self.group();
        for place in self.next.start..self.next.end.min(self.next.start + self.batch_config.batch as u64) {
            if place.is_multiple_of(group) {
                let item = self.start_positive(place / group);
                batch.push(self.user, item, 1.0);
            } else {
                let item = self.draw_negative();
                batch.push(self.user, item, 0.0);
            }
        }
        self.next.start += batch.len() as u64;
        !batch.is_empty()
    }

    fn positives(&self) -> usize {
        self.subset.as_ref().map_or(self.dataset.train.len(), Vec::len)
    }

    /// A positive and its negatives.
    fn group(&self) -> u64 {
        self.batch_config.negatives as u64 + 1
    }

    /// Goes to a positive by its place in the order. Returns its item.
    fn start_positive(&mut self, place: u64) -> u32 {
        self.random = random_at(self.epoch_seed, place);
        let index = usize::try_from(self.order.at(place)).expect("pairs are in memory");
        let pair = self.subset.as_ref().map_or(index, |subset| subset[index] as usize);
        let (user, item) = self.dataset.train[pair];
        self.user = user;
        item
    }

    fn draw_negative(&mut self) -> u32 {
        let item = self.touched.draw_untouched(self.user, &mut self.random);
        item.expect("`new` refused users without untouched items")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::ncf::data::Synthetic;

    const CONFIG: BatchConfig = BatchConfig { batch: 32, negatives: 4, sample: 1.0, seed: 7 };

    fn dataset() -> Arc<Dataset> {
        Arc::new(Synthetic { users: 50, items: 60, picks_min: 5, ..Synthetic::default() }.generate())
    }

    fn chunk_of(sampler: &mut Sampler, chunk: Chunk) -> Vec<Batch> {
        let mut batches = Vec::new();
        let mut batch = Batch::default();
        sampler.start_chunk(chunk);
        while sampler.next_batch(&mut batch) {
            batches.push(batch.clone());
        }
        batches
    }

    fn batches_of(sampler: &mut Sampler, epoch: u32) -> Vec<Batch> {
        sampler.start_epoch(epoch);
        chunk_of(sampler, Chunk::WHOLE)
    }

    #[test]
    fn an_epoch_has_all_positives_and_negatives_follow_them() {
        let dataset = dataset();
        let touched = Interactions::new(dataset.users, dataset.items, dataset.train.iter().copied());
        let mut positives = Vec::new();
        let mut sampler = Sampler::new(dataset.clone(), CONFIG).unwrap();
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
        let mut expected = dataset.train.clone();
        positives.sort_unstable();
        expected.sort_unstable();
        assert_eq!(positives, expected);
    }

    #[test]
    fn chunks_are_the_epoch_whatever_their_number() {
        let mut sampler = Sampler::new(dataset(), CONFIG).unwrap();
        let whole = batches_of(&mut sampler, 3);
        for chunks in [2, 13, 1000] {
            // From the last to the first, by a worker that has done something else before.
            let mut batches = Vec::new();
            for number in (0..chunks).rev() {
                batches.splice(0..0, chunk_of(&mut sampler, Chunk { number, chunks }));
            }
            assert_eq!(batches, whole, "{chunks}");
        }
    }

    #[test]
    fn an_epoch_depends_on_its_number_only() {
        let mut sampler = Sampler::new(dataset(), CONFIG).unwrap();
        let first = batches_of(&mut sampler, 3);
        let other = batches_of(&mut sampler, 4);
        assert_ne!(first, other);
        assert_eq!(first, batches_of(&mut sampler, 3));
    }

    #[test]
    fn a_part_is_dealt_alone() {
        let dataset = dataset();
        let sample = 3.0 / dataset.train.len() as f64;
        let mut sampler = Sampler::new(dataset.clone(), BatchConfig { sample, ..CONFIG }).unwrap();
        let batches = batches_of(&mut sampler, 0);
        assert_eq!((batches.len(), sampler.samples_per_epoch()), (1, 15));
        let mut found: Vec<(u32, u32)> = (0..15)
            .filter(|&i| batches[0].labels[i] > 0.0)
            .map(|i| (batches[0].users[i], batches[0].items[i]))
            .collect();
        let subset = draw(dataset.train.len(), sample, CONFIG.seed).unwrap().unwrap();
        let mut expected: Vec<(u32, u32)> =
            subset.into_iter().map(|pair| dataset.train[pair as usize]).collect();
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
            files: Vec::new(),
        };
        let batch_config = BatchConfig { negatives: 10_000, batch: 50_000, ..CONFIG };
        let mut sampler = Sampler::new(Arc::new(dataset), batch_config).unwrap();
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
            files: Vec::new(),
        };
        let dataset = Arc::new(dataset);
        let error = Sampler::new(dataset.clone(), CONFIG).unwrap_err();
        assert!(matches!(error, TrainError::Negatives(NoNegatives { user: 1 })), "{error}");
        let mut without = Sampler::new(dataset, BatchConfig { negatives: 0, ..CONFIG }).unwrap();
        assert_eq!(batches_of(&mut without, 0)[0].len(), 3);
    }
}
