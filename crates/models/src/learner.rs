//! Interface of a model that can be trained.

use std::{ops::Range, sync::Arc};

use libra_client::{Parameters, ReadCounts, TableSpec};

use crate::{DataFile, Measure, Quality, TrainError, Training};

/// Most samples of a chunk, but of one that is read from large parts of a file.
pub const CHUNK_SAMPLES_MAX: u64 = 1 << 16;

/// A part of a phase of training that one worker does at a time: `number` of `chunks` parts of the samples of an epoch, or of the test data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// This one, below `chunks`.
    pub number: u32,
    /// All of the phase.
    pub chunks: u32,
}

impl Chunk {
    /// Everything, as a single chunk.
    pub const WHOLE: Self = Self { number: 0, chunks: 1 };

    /// Returns the range of `count` things in a row that belongs to this chunk.
    pub fn range(self, count: u64) -> Range<u64> {
        let bound = |number: u32| {
            let bound = u128::from(count) * u128::from(number) / u128::from(self.chunks);
            u64::try_from(bound).expect("at most the count")
        };
        bound(self.number)..bound(self.number + 1)
    }

    /// Returns the range of a slice of so many things that belongs to this chunk.
    pub(crate) fn places(self, count: usize) -> Range<usize> {
        places(self.range(count as u64))
    }

    /// Returns the range of the samples of an epoch that belongs to this chunk: a run of whole batches, so that only the last batch of an epoch is short.
    pub fn samples(self, samples: u64, batch: usize) -> Range<u64> {
        let batch = batch as u64;
        let batches = self.range(samples.div_ceil(batch));
        let bound = |batches: u64| (batches * batch).min(samples);
        bound(batches.start)..bound(batches.end)
    }
}

/// The same range of something that is in memory.
pub(crate) fn places(range: Range<u64>) -> Range<usize> {
    let place = |at: u64| usize::try_from(at).expect("it is in memory");
    place(range.start)..place(range.end)
}

/// Numbers of chunks of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunks {
    /// Chunks of the training of an epoch.
    pub training: u32,
    /// Chunks of its evaluation.
    pub evaluation: u32,
}

/// A file of data that are followed, as work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileChunks {
    /// Its rows.
    pub rows: u64,
    /// Chunks of training on it, and of an evaluation on it.
    pub chunks: Chunks,
}

/// Returns the number of chunks of an epoch that a single worker goes through, no larger than they may be.
pub(crate) fn whole_chunks(samples: u64) -> u32 {
    u32::try_from(samples.div_ceil(CHUNK_SAMPLES_MAX)).unwrap_or(u32::MAX)
}

/// Units of a chunk, as long as each worker gets [`CHUNKS_MIN`]: the end of a chunk takes about half as long as a small batch.
const CHUNK_UNITS_MIN: u64 = 32;

/// Chunks of a phase that there are for each worker, if it has as many units.
const CHUNKS_MIN: u64 = 8;

/// Returns the number of chunks for `count` things that come in units, such as samples in batches: `per_worker` for each worker, fewer of small data, more if one
/// had over [`CHUNK_SAMPLES_MAX`] things otherwise, and no more than there are units.
pub(crate) fn chunks_of(count: u64, unit: u64, workers: u16, per_worker: u32) -> u32 {
    let units = count.div_ceil(unit).max(1);
    // Chunks differ by one unit at most.
    let units_max = (CHUNK_SAMPLES_MAX / unit).max(1);
    let workers = u64::from(workers);
    let worthwhile = (units / CHUNK_UNITS_MIN).max(workers * CHUNKS_MIN);
    let wanted = (workers * u64::from(per_worker)).min(worthwhile);
    let chunks = wanted.max(units.div_ceil(units_max)).min(units);
    u32::try_from(chunks).unwrap_or(u32::MAX)
}

/// A model and its data: what a job trains. The workers of a process share one.
///
/// Everything follows from settings, data and seeds, so that every process of a job has the same.
pub trait Workload: Send + Sync {
    /// The model and its size, for people: `neumf, 8 factors`.
    fn model(&self) -> String;

    /// A short name of the data set.
    fn data(&self) -> &str;

    /// Size of the data: 6040 users, 3706 items. A worker compares it with the controller's to detect that it has
    /// other data.
    fn size(&self) -> Vec<(u64, &'static str)>;

    /// The files of the data, in the order in which they are read; none for built-in data.
    fn files(&self) -> Vec<DataFile>;

    /// The tables of the model (see [`LAYER_KEYS`](crate::LAYER_KEYS)), for the parameter server.
    fn tables(&self) -> Vec<TableSpec>;

    /// Samples of one epoch, of all workers together.
    fn samples_per_epoch(&self) -> u64;

    /// Samples that are enough for a [`profile`](crate::profile()) run, all its passes together.
    fn profile_samples_max(&self) -> u64 {
        u64::MAX
    }

    /// Returns the loss of an untrained model.
    fn untrained_loss(&self) -> f64;

    /// Returns the quality of baselines without a model, which training has to beat.
    fn baselines(&self) -> Vec<Measure>;

    /// Returns the numbers of chunks for a job of so many workers: many enough that a slow worker does not hold up the others for long.
    fn chunks(&self, workers: u16) -> Chunks;

    /// Opens a file of data that are [followed](crate::TrainConfig::follow), and returns what the work on it is for so many workers.
    ///
    /// # Errors
    /// The file cannot be read, or has other columns than the first one.
    fn file(&self, _name: &str, _workers: u16) -> Result<FileChunks, TrainError> {
        unreachable!("these data are not followed")
    }

    /// The training of one worker, on a part `sample` of the training data that the seed draws: above 0, at most 1, which is all of them.
    ///
    /// # Errors
    /// There is no such part, or data or settings cannot be used.
    fn training(self: Arc<Self>, sample: f64) -> Result<Box<dyn Training>, TrainError>;
}

/// A model at one worker: deals batches, and computes.
pub trait Learner {
    /// Samples of a step, between being dealt and being computed.
    type Batch: Default;

    /// Goes to a file of data that are [followed](crate::TrainConfig::follow): its rows are those of an epoch, and the test data.
    ///
    /// # Errors
    /// The file cannot be read, or has other columns than the first one.
    fn start_file(&mut self, _name: &str) -> Result<(), TrainError> {
        unreachable!("these data are not followed")
    }

    /// Goes to an epoch, which decides the order of the samples. What is dealt follows from the numbers of epoch and chunk, not from what was dealt before.
    fn start_epoch(&mut self, epoch: u32);

    /// Goes to the start of a chunk of the epoch. The last batch of the chunk before may not have been computed yet.
    ///
    /// # Errors
    /// The data cannot be read.
    fn start_chunk(&mut self, chunk: Chunk) -> Result<(), TrainError>;

    /// The chunk of the epoch that is most likely started after the present one: its data may be read ahead.
    fn expect_chunk(&mut self, _chunk: Chunk) {}

    /// Called after [`Self::start_epoch`], before the first batch is dealt: for a model that has to see parameters beyond those of its batches.
    ///
    /// # Errors
    /// The parameter server failed.
    fn before_epoch(&mut self, _epoch: u32, _parameters: &mut dyn Parameters) -> Result<(), TrainError> {
        Ok(())
    }

    /// Samples of an epoch, of all workers together.
    fn samples_per_epoch(&self) -> u64;

    /// Chunks of an epoch that a single worker goes through.
    fn chunks_alone(&self) -> u32 {
        whole_chunks(self.samples_per_epoch())
    }

    /// Replaces `batch` by the next samples, and `keys`, which is empty, by the rows that it takes: each once, and those of layers as well.
    /// Returns how many samples there are; none at the end of the chunk.
    ///
    /// # Errors
    /// The data cannot be read.
    fn next_batch(&mut self, batch: &mut Self::Batch, keys: &mut Vec<u64>) -> Result<usize, TrainError>;

    /// Returns what was read so far of data that are not in memory.
    fn reads(&self) -> ReadCounts {
        ReadCounts::default()
    }

    /// The mean loss of a batch. Batches are computed in the order in which they are dealt. `values` holds its rows in the order of their keys; `gradients` is replaced by the gradients of the mean, laid out
    /// like them.
    ///
    /// # Errors
    /// The computation failed.
    fn step(
        &mut self,
        batch: &Self::Batch,
        values: &[f32],
        gradients: &mut Vec<f32>,
    ) -> Result<f64, TrainError>;

    /// Returns the quality on no test data, to which that on some can be added.
    fn quality_of_nothing(&self) -> Quality;

    /// Called before the first chunk of an evaluation after an epoch: reads what all chunks need. Returns findings beside the quality, about the whole model; most
    /// models have none.
    ///
    /// # Errors
    /// The parameter server failed.
    fn start_evaluation(
        &mut self,
        epoch: u32,
        parameters: &mut dyn Parameters,
    ) -> Result<Vec<Measure>, TrainError>;

    /// Measures the current parameters on a chunk of the test data.
    ///
    /// # Errors
    /// The parameter server failed, or a score is not a number.
    fn evaluate(&mut self, chunk: Chunk, parameters: &mut dyn Parameters) -> Result<Quality, TrainError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_runs_of_whole_batches() {
        for (samples, batch, chunks) in [(1, 1, 1), (1000, 64, 13), (10, 64, 5), (6400, 64, 100), (77, 8, 3)]
        {
            let mut end = 0;
            for number in 0..chunks {
                let range = Chunk { number, chunks }.samples(samples, batch);
                assert_eq!(
                    (range.start, range.start.is_multiple_of(batch as u64) || range.is_empty()),
                    (end, true)
                );
                end = range.end;
            }
            assert_eq!(end, samples);
        }
        assert_eq!(Chunk::WHOLE.samples(1000, 64), 0..1000);
        assert_eq!(Chunk { number: 3, chunks: 4 }.range(u64::MAX).end, u64::MAX);
    }

    #[test]
    fn chunks_are_many_but_not_empty() {
        // 64 a worker; 32 batches each, or 8 a worker; at most one a batch; none too large.
        assert_eq!(chunks_of(5_000_000, 1024, 2, 64), 128);
        assert_eq!([chunks_of(800 * 256, 256, 2, 64), chunks_of(60 * 256, 256, 2, 64)], [25, 16]);
        assert_eq!(
            [chunks_of(8000, 256, 5, 64), chunks_of(1, 256, 2, 64), chunks_of(0, 1, 1, 64)],
            [32, 1, 1]
        );
        for (samples, batch) in
            [(100_000_000, 1024), (100_000_000, 1000), (65_537, 65_536), (1 << 40, 1 << 20)]
        {
            let chunks = chunks_of(samples, batch, 1, 64);
            let of = |number| Chunk { number, chunks }.samples(samples, usize::try_from(batch).unwrap());
            let largest = [0, 1, chunks / 2, chunks - 1].map(|number| of(number).end - of(number).start);
            assert!(
                largest.into_iter().all(|samples| samples > 0 && samples <= CHUNK_SAMPLES_MAX.max(batch))
            );
        }
    }
}
