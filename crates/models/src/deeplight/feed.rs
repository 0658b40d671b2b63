//! Clicks to learn from: a source, wherever it is, and the rows of it that a worker is dealt.

mod hashed;
mod log;

use std::{fmt, ops::Range, sync::Arc};

use libra_client::ReadCounts;

use super::{
    data::{Dataset, HashedSet, Layout, Reading, is_data_set},
    model::Samples,
};
use crate::{Chunk, Chunks, DataError, DataFile, Measure, TrainConfig, TrainError};

/// Data of clicks.
pub(crate) trait Source: fmt::Debug + Send + Sync {
    /// A short name.
    fn name(&self) -> &str;

    /// Layout of the rows.
    fn layout(&self) -> Layout;

    /// Keys of the features.
    fn keys(&self) -> Range<u64>;

    /// Its size, as in [`Workload::size`](crate::Workload::size).
    fn size(&self) -> Vec<(u64, &'static str)>;

    /// Its files.
    fn files(&self) -> Vec<DataFile>;

    /// Rows that are trained on.
    fn rows(&self) -> u64;

    /// Rows that are enough for a profile run, all its passes together.
    fn profile_rows_max(&self) -> u64 {
        u64::MAX
    }

    /// Quality without a model, as far as it is known without a pass over the rows.
    fn baselines(&self) -> Vec<Measure>;

    /// Numbers of chunks for so many workers, with batches of `batch` rows.
    fn chunks(&self, batch: usize, workers: u16) -> Chunks;

    /// Opens a file of data that are followed.
    fn file(&self, _name: &str) -> Result<Arc<dyn Source>, DataError> {
        unreachable!("these data are not followed")
    }

    /// Opens it for a worker, or a part `sample` of the rows that are trained on.
    fn feed(self: Arc<Self>, sample: f64, batch: usize, seed: u64) -> Result<Box<dyn Feed>, TrainError>;
}

/// Rows of a source, as a worker is dealt them.
pub(crate) trait Feed {
    /// Rows of an epoch.
    fn rows(&self) -> u64;

    /// Chunks of an epoch that a single worker goes through.
    fn chunks_alone(&self) -> u32;

    /// Returns what was read so far of data that are not in memory.
    fn reads(&self) -> ReadCounts;

    /// Goes to an epoch.
    fn start_epoch(&mut self, epoch: u32);

    /// Returns the seed of the epoch.
    fn epoch_seed(&self) -> u64;

    /// Goes to the start of a chunk of the epoch. Returns the number of its first batch, which no batch of another chunk has.
    fn start_chunk(&mut self, chunk: Chunk) -> Result<u64, TrainError>;

    /// The chunk of the epoch that is most likely started after the present one.
    fn expect_chunk(&mut self, _chunk: Chunk) {}

    /// Adds the next batch to `samples`, which are empty, and its distinct features to `keys`. There is none at the end of the chunk.
    fn next_batch(&mut self, samples: &mut Samples, keys: &mut Vec<u64>) -> Result<(), TrainError>;

    /// Goes to the start of a chunk of the test data, of which so many rows are taken at once. Returns the number of its first row.
    fn start_test(&mut self, chunk: Chunk, rows: usize) -> Result<u64, TrainError>;

    /// Adds the next rows of the test data, or those that are left.
    fn next_test(&mut self, samples: &mut Samples, keys: &mut Vec<u64>) -> Result<(), TrainError>;
}

/// Opens what `source` names: data that are followed, a data set of `libra data`, or what [`Dataset::open`] opens.
pub(crate) fn open(
    source: &str,
    reading: Reading,
    config: &TrainConfig,
) -> Result<Arc<dyn Source>, DataError> {
    Ok(if config.follow {
        Arc::new(HashedSet::follow(source)?)
    } else if is_data_set(source)? {
        Arc::new(HashedSet::open(source, reading)?)
    } else {
        Arc::new(Dataset::open(source, reading, config.seed)?)
    })
}
