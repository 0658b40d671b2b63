//! Training batches: a worker's part of the text is cut into streams, which are read side by side.
//!
//! ```text
//! text:                 |-- worker 0 -------------------|-- worker 1 -------------------|
//! streams of worker 0:  |-- 0 ---|-- 1 ---|-- 2 ---|..
//! batches:              |aaa|bbb|  |aaa|bbb| |aaa|bbb|     a: the first `steps` words of every stream
//! ```
//! The next batch begins with the model's state of each stream at the end of the one before. Lengths of streams differ by one word at
//! most; those that are longer come first, and their last words are a batch of their own. So each word is predicted once.

use std::sync::Arc;

use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::{data::Text, model::Model, sampling::LogUniform};
use crate::{Partition, rows::DistinctRows};

/// A sample of the text consists of pieces of so many words.
const PIECE: usize = 1 << 10;

/// The samples of a step, as indices into the rows of its pull: first words, then outputs, then layers.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Batch {
    /// Streams side by side.
    pub(super) streams: usize,
    /// The row of the word at each step of each stream: those of the first step, then those of the second, ..
    pub(super) inputs: Vec<u32>,
    /// The row of the word that follows, counted from the first output.
    pub(super) targets: Vec<u32>,
    /// Rows of words.
    pub(super) words: usize,
    /// Rows of outputs that stand for all words that do not follow; they come first.
    pub(super) negatives: usize,
    /// For each row of an output the logarithm of how often it was expected among those.
    pub(super) log_expected: Vec<f32>,
    /// Decides what is dropped.
    pub(super) seed: u64,
}

/// Shape and seed of the batches.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchConfig {
    /// Streams side by side.
    pub(super) streams: usize,
    /// Words of a stream in a batch.
    pub(super) steps: usize,
    /// Words that stand for all others.
    pub(super) samples: usize,
    /// Decides samples and what is dropped.
    pub(super) seed: u64,
}

/// Deals the batches of one worker.
pub(super) struct BatchReader {
    text: Arc<Text>,
    model: Model,
    batch_config: BatchConfig,
    worker: u64,
    /// The pieces of the text that are read, ascending; `None` for all.
    pieces: Option<Vec<u32>>,
    /// Words that this worker predicts, counted over the pieces.
    range: std::ops::Range<usize>,
    /// Current step of all streams.
    step: usize,
    random: SmallRng,
    sampler: LogUniform,
    sample: Vec<u32>,
    distinct: DistinctRows,
}

impl BatchReader {
    pub(super) fn new(
        text: Arc<Text>,
        model: Model,
        batch_config: BatchConfig,
        partition: Partition,
    ) -> Self {
        let pieces = draw(text.samples(), partition.sample, batch_config.seed);
        let samples = match &pieces {
            Some(pieces) => words_of(pieces, text.samples()),
            None => text.samples(),
        };
        Self {
            sampler: LogUniform::new(text.vocabulary()),
            distinct: DistinctRows::new(2 * text.vocabulary()),
            range: partition.range(samples),
            text,
            model,
            batch_config,
            worker: partition.worker as u64,
            pieces,
            step: 0,
            random: SmallRng::seed_from_u64(0),
            sample: Vec::new(),
        }
    }

    /// Goes back to the start. Negatives, and what is dropped, depend on the number of the epoch.
    pub(super) fn start_epoch(&mut self, epoch: u32) {
        self.step = 0;
        let seed = self.batch_config.seed ^ (u64::from(epoch) << 32);
        self.random = SmallRng::seed_from_u64(seed.wrapping_add(self.worker + 1));
    }

    /// Returns the number of words that this worker predicts in an epoch.
    pub(super) fn samples_per_epoch(&self) -> u64 {
        self.range.len() as u64
    }

    /// Replaces `batch` by the next words and adds its rows to `keys`, which is empty. Returns how many words there are; none at the end
    /// of the epoch.
    pub(super) fn next_batch(&mut self, batch: &mut Batch, keys: &mut Vec<u64>) -> usize {
        let (length, longer) =
            (self.range.len() / self.batch_config.streams, self.range.len() % self.batch_config.streams);
        let (streams, steps) = match length.saturating_sub(self.step) {
            0 if self.step == length && longer > 0 => (longer, 1),
            0 => return 0,
            rest => (self.batch_config.streams, rest.min(self.batch_config.steps)),
        };
        batch.streams = streams;
        batch.inputs.clear();
        batch.targets.clear();
        self.distinct.start();
        for step in self.step..self.step + steps {
            for stream in 0..streams {
                let place = self.place(self.range.start + stream * length + stream.min(longer) + step);
                let key = self.model.word_key(self.text.train[place]);
                batch.inputs.push(self.distinct.index(key, keys));
                batch.targets.push(self.text.train[place + 1]);
            }
        }
        self.step += steps;
        batch.words = keys.len();

        let tries = self.sampler.draw(self.batch_config.samples, &mut self.random, &mut self.sample);
        batch.negatives = self.sample.len();
        batch.log_expected.clear();
        for word in self.sample.iter().chain(&batch.targets) {
            if self.distinct.index(self.model.output_key(*word), keys) as usize
                == batch.words + batch.log_expected.len()
            {
                batch.log_expected.push(self.sampler.log_expected(*word, tries));
            }
        }
        for target in &mut batch.targets {
            let row = self.distinct.index(self.model.output_key(*target), keys) as usize - batch.words;
            *target = u32::try_from(row).expect("fewer than 2^32 rows");
        }
        keys.extend(self.model.layer_keys());
        batch.seed = self.random.random();
        batch.targets.len()
    }

    /// Returns the position in the text of a word that is counted over the pieces.
    fn place(&self, index: usize) -> usize {
        match &self.pieces {
            Some(pieces) => pieces[index / PIECE] as usize * PIECE + index % PIECE,
            None => index,
        }
    }
}

/// Pieces of a random share of `samples` words, at least one, ascending; `None` for all.
fn draw(samples: usize, share: f64, seed: u64) -> Option<Vec<u32>> {
    if share >= 1.0 {
        return None;
    }
    let count = samples.div_ceil(PIECE);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at most `count`, and not negative"
    )]
    let drawn = ((count as f64 * share).round() as usize).clamp(1, count);
    let mut random = SmallRng::seed_from_u64(seed ^ 0x0b5e_55ed_5a3b_1e00);
    let mut pieces: Vec<u32> = rand::seq::index::sample(&mut random, count, drawn)
        .into_iter()
        .map(|piece| u32::try_from(piece).expect("fewer than 2^32 pieces"))
        .collect();
    pieces.sort_unstable();
    Some(pieces)
}

/// Words of some pieces of a text: the last of a text may be short.
fn words_of(pieces: &[u32], samples: usize) -> usize {
    pieces.iter().map(|&piece| PIECE.min(samples - piece as usize * PIECE)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LAYER_KEYS, ModelKind, lstm::LstmConfig};

    fn batch_reader(samples: usize, streams: usize, partition: Partition) -> BatchReader {
        // Each word once, so that a word is a place.
        let words = u32::try_from(samples + 1).unwrap();
        let text = Text {
            name: "x".into(),
            counts: vec![1; samples + 1],
            train: (0..words).collect(),
            valid: vec![0, 1],
        };
        let model = Model::new(&LstmConfig::default(), &ModelKind::Lstm.config(), text.vocabulary());
        BatchReader::new(
            Arc::new(text),
            model,
            BatchConfig { streams, steps: 4, samples: 5, seed: 1 },
            partition,
        )
    }

    /// The place of each word of each batch.
    fn places(batch_reader: &mut BatchReader) -> Vec<Vec<u64>> {
        let (mut batch, mut keys, mut batches) = (Batch::default(), Vec::new(), Vec::new());
        let outputs = batch_reader.text.vocabulary() as u64;
        while batch_reader.next_batch(&mut batch, &mut keys) > 0 {
            for (&input, &target) in batch.inputs.iter().zip(&batch.targets) {
                assert_eq!(keys[batch.words + target as usize], outputs + keys[input as usize] + 1);
            }
            assert_eq!(batch.negatives, batch_reader.text.vocabulary().min(5));
            assert_eq!(
                keys.len(),
                batch.words + batch.log_expected.len() + batch_reader.model.layer_keys().count()
            );
            assert!(keys[keys.len() - 1] >= LAYER_KEYS);
            let mut distinct = keys.clone();
            distinct.sort_unstable();
            distinct.dedup();
            assert_eq!(distinct.len(), keys.len());
            batches.push(batch.inputs.iter().map(|&input| keys[input as usize]).collect());
            keys.clear();
        }
        batches
    }

    #[test]
    fn streams_are_read_side_by_side() {
        // 23 words: workers get 11 and 12, and streams of 4, 4 and 3, of 4 each.
        let mut batch_reader = batch_reader(23, 3, Partition::of(0, 2));
        batch_reader.start_epoch(0);
        let batches = places(&mut batch_reader);
        assert_eq!(batches, [vec![0, 4, 8, 1, 5, 9, 2, 6, 10], vec![3, 7]]);
        assert_eq!(batch_reader.samples_per_epoch(), 11);
        assert!(places(&mut batch_reader).is_empty());
        batch_reader.start_epoch(0);
        assert_eq!(places(&mut batch_reader), batches);
    }

    #[test]
    fn each_word_is_predicted_once_by_any_number_of_workers() {
        for (samples, streams, workers) in [(1, 3, 2), (50, 3, 4), (100, 8, 1), (64, 4, 2)] {
            let mut found = Vec::new();
            for worker in 0..workers {
                let mut batch_reader = batch_reader(samples, streams, Partition::of(worker, workers));
                batch_reader.start_epoch(1);
                let own: Vec<u64> = places(&mut batch_reader).concat();
                assert_eq!(own.len() as u64, batch_reader.samples_per_epoch());
                found.extend(own);
            }
            found.sort_unstable();
            assert_eq!(found, (0..samples as u64).collect::<Vec<u64>>());
        }
    }

    #[test]
    fn a_sample_is_pieces_of_the_text() {
        let samples = 10 * PIECE + 7;
        let mut batch_reader = batch_reader(samples, 2, Partition { sample: 0.3, ..Partition::WHOLE });
        batch_reader.start_epoch(0);
        let mut found: Vec<u64> = places(&mut batch_reader).concat();
        found.sort_unstable();
        let pieces = batch_reader.pieces.clone().unwrap();
        assert_eq!((pieces.len(), found.len() as u64), (3, batch_reader.samples_per_epoch()));
        let expected = pieces.iter().flat_map(|&piece| {
            let start = piece as usize * PIECE;
            (start..samples.min(start + PIECE)).map(|place| place as u64)
        });
        assert_eq!(found, expected.collect::<Vec<u64>>());
        assert_eq!(words_of(&[10], samples), 7);
        assert_eq!(draw(5, 1e-9, 1), Some(vec![0]));
    }
}
