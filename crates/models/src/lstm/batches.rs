//! Training batches: a chunk of the text is cut into streams, which are read side by side.
//!
//! ```text
//! text:                |-- chunk 0 --------------------|-- chunk 1 --------------------|
//! streams of chunk 0:  |-- 0 ---|-- 1 ---|-- 2 ---|..
//! batches:             |aaa|bbb| |aaa|bbb| |aaa|bbb|     a: the first `steps` words of every stream
//! ```
//! The next batch of a chunk begins with the model's state of each stream at the end of the one before. A chunk is whole batches of words, so its streams are equally long;
//! but at the end of the text their lengths may differ by one word: those that are longer come first, and their last words are a batch of
//! their own. So each word is predicted once.

use std::sync::Arc;

use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::{data::Text, model::Model, sampling::LogUniform};
use crate::{
    Chunk, TrainError,
    learner::places,
    order::{draw, epoch_seed, random_at},
    rows::DistinctRows,
};

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
    /// True for the first of a chunk, which begins without a state.
    pub(super) is_first: bool,
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
    /// The pieces of the text that are read, ascending; `None` for all.
    pieces: Option<Vec<u32>>,
    /// Words that are predicted in an epoch.
    samples: usize,
    epoch_seed: u64,
    /// Those of the chunk, counted over the pieces.
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
        sample: f64,
    ) -> Result<Self, TrainError> {
        let pieces = draw(text.samples().div_ceil(PIECE), sample, batch_config.seed)?;
        let samples = match &pieces {
            Some(pieces) => words_of(pieces, text.samples()),
            None => text.samples(),
        };
        Ok(Self {
            sampler: LogUniform::new(text.vocabulary()),
            distinct: DistinctRows::new(2 * text.vocabulary()),
            text,
            model,
            batch_config,
            pieces,
            samples,
            epoch_seed: 0,
            range: 0..0,
            step: 0,
            random: SmallRng::seed_from_u64(0),
            sample: Vec::new(),
        })
    }

    /// Goes to an epoch: negatives, and what is dropped, depend on its number.
    pub(super) fn start_epoch(&mut self, epoch: u32) {
        self.epoch_seed = epoch_seed(self.batch_config.seed, epoch);
        self.range = 0..0;
    }

    /// Goes to the start of a chunk of the epoch. What is dealt depends on nothing that was dealt before.
    pub(super) fn start_chunk(&mut self, chunk: Chunk) {
        let batch = self.batch_config.streams * self.batch_config.steps;
        let range = chunk.samples(self.samples as u64, batch);
        self.random = random_at(self.epoch_seed, range.start);
        (self.range, self.step) = (places(range), 0);
    }

    /// Returns the number of words that are predicted in an epoch.
    pub(super) fn samples_per_epoch(&self) -> u64 {
        self.samples as u64
    }

    /// Replaces `batch` by the next words and adds its rows to `keys`, which is empty. Returns how many words there are; none at the end
    /// of the chunk.
    pub(super) fn next_batch(&mut self, batch: &mut Batch, keys: &mut Vec<u64>) -> usize {
        let (length, longer) =
            (self.range.len() / self.batch_config.streams, self.range.len() % self.batch_config.streams);
        let (streams, steps) = match length.saturating_sub(self.step) {
            0 if self.step == length && longer > 0 => (longer, 1),
            0 => return 0,
            rest => (self.batch_config.streams, rest.min(self.batch_config.steps)),
        };
        batch.is_first = self.step == 0;
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

/// Words of some pieces of a text: the last of a text may be short.
fn words_of(pieces: &[u32], samples: usize) -> usize {
    pieces.iter().map(|&piece| PIECE.min(samples - piece as usize * PIECE)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LAYER_KEYS, ModelKind, lstm::LstmConfig};

    fn batch_reader(samples: usize, streams: usize, sample: f64) -> BatchReader {
        // Each word once, so that a word is a place.
        let words = u32::try_from(samples + 1).unwrap();
        let text = Text {
            name: "x".into(),
            counts: vec![1; samples + 1],
            train: (0..words).collect(),
            valid: vec![0, 1],
            files: Vec::new(),
        };
        let model = Model::new(&LstmConfig::default(), &ModelKind::Lstm.config(), text.vocabulary());
        let batch_config = BatchConfig { streams, steps: 4, samples: 5, seed: 1 };
        let mut batch_reader = BatchReader::new(Arc::new(text), model, batch_config, sample).unwrap();
        batch_reader.start_epoch(0);
        batch_reader
    }

    /// The place of each word of each batch of a chunk.
    fn places_of(batch_reader: &mut BatchReader, number: u32, chunks: u32) -> Vec<Vec<u64>> {
        batch_reader.start_chunk(Chunk { number, chunks });
        places(batch_reader)
    }

    /// The same of what is left of it.
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
            assert_eq!(batch.is_first, batches.is_empty());
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
        // 23 words: chunks have 12 and 11 of them, in three streams of 4, and of 4, 4 and 3.
        let mut batch_reader = batch_reader(23, 3, 1.0);
        let last = places_of(&mut batch_reader, 1, 2);
        assert_eq!(last, [vec![12, 16, 20, 13, 17, 21, 14, 18, 22], vec![15, 19]]);
        let first = places_of(&mut batch_reader, 0, 2);
        assert_eq!(first, [vec![0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11]]);
        assert!(places(&mut batch_reader).is_empty());
        assert_eq!(places_of(&mut batch_reader, 1, 2), last);
    }

    #[test]
    fn each_word_is_predicted_once_whatever_the_chunks() {
        for (samples, streams, chunks) in [(1, 3, 2), (50, 3, 4), (100, 8, 1), (64, 4, 2), (1000, 3, 13)] {
            let mut batch_reader = batch_reader(samples, streams, 1.0);
            let chunks =
                (0..chunks).rev().map(|number| places_of(&mut batch_reader, number, chunks).concat());
            let mut found = chunks.collect::<Vec<_>>().concat();
            found.sort_unstable();
            assert_eq!(found, (0..samples as u64).collect::<Vec<u64>>());
        }
    }

    #[test]
    fn a_chunk_has_the_same_negatives_and_seeds_again() {
        let mut batch_reader = batch_reader(100, 3, 1.0);
        let mut batches = |epoch, number| {
            batch_reader.start_epoch(epoch);
            batch_reader.start_chunk(Chunk { number, chunks: 4 });
            let (mut batch, mut keys, mut found) = (Batch::default(), Vec::new(), Vec::new());
            while batch_reader.next_batch(&mut batch, &mut keys) > 0 {
                found.push((batch.clone(), std::mem::take(&mut keys)));
            }
            found
        };
        let first = batches(1, 2);
        assert_ne!(batches(2, 2), first);
        assert_ne!(batches(1, 1), first);
        assert_eq!(batches(1, 2), first);
    }

    #[test]
    fn a_sample_is_pieces_of_the_text() {
        let samples = 10 * PIECE + 7;
        let mut batch_reader = batch_reader(samples, 2, 0.3);
        let mut found: Vec<u64> = places_of(&mut batch_reader, 0, 1).concat();
        found.sort_unstable();
        let pieces = batch_reader.pieces.clone().unwrap();
        assert_eq!((pieces.len(), found.len() as u64), (3, batch_reader.samples_per_epoch()));
        let expected = pieces.iter().flat_map(|&piece| {
            let start = piece as usize * PIECE;
            (start..samples.min(start + PIECE)).map(|place| place as u64)
        });
        assert_eq!(found, expected.collect::<Vec<u64>>());
        assert_eq!(words_of(&[10], samples), 7);
    }
}
