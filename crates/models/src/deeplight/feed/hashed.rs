//! A data set of `libra data`, whose keys are hashes.

use std::{collections::VecDeque, ops::Range, sync::Arc, vec};

use libra_client::ReadCounts;
use libra_data::{ChunkReader, Columns, DataSet, Selection, Shuffle};

use super::{
    super::{
        data::{HashedSet, Layout},
        model::Samples,
    },
    Feed, Source,
};
use crate::{
    CHUNK_SAMPLES_MAX, Chunk, Chunks, DataError, DataFile, HASHED_KEYS, Measure, TrainError,
    order::epoch_seed, rows::DistinctKeys, splitmix::splitmix64,
};

/// Chunks of each worker, at least: so many that it does not wait long for others at the end of an epoch, and no more than reading is worth.
const CHUNKS_PER_WORKER: u64 = 8;

impl Source for HashedSet {
    fn name(&self) -> &str {
        &self.name
    }

    fn layout(&self) -> Layout {
        Layout::Fields(self.fields())
    }

    fn keys(&self) -> Range<u64> {
        HASHED_KEYS
    }

    fn size(&self) -> Vec<(u64, &'static str)> {
        vec![
            (self.train.rows(), "rows to train on"),
            (self.test.rows(), "to test on"),
            (self.fields() as u64, "fields"),
            (self.set.files().count() as u64, "files"),
        ]
    }

    fn files(&self) -> Vec<DataFile> {
        let name = |name: &str| name.rsplit('/').next().unwrap_or(name).to_owned();
        self.set.files().map(|file| DataFile { name: name(&file.name), bytes: file.bytes }).collect()
    }

    fn rows(&self) -> u64 {
        self.train.rows()
    }

    fn baselines(&self) -> Vec<Measure> {
        vec![Measure::new("auc_of_chance", "chance", 0.5)]
    }

    fn chunks(&self, batch: usize, workers: u16) -> Chunks {
        let test_rows = (self.test.part_rows() / 16).max(CHUNK_SAMPLES_MAX);
        Chunks {
            training: parts(&self.train, self.train.part_rows(), batch, workers),
            evaluation: parts(&self.test, test_rows, batch, workers),
        }
    }

    fn feed(self: Arc<Self>, sample: f64, batch: usize, seed: u64) -> Result<Box<dyn Feed>, TrainError> {
        if !(sample > 0.0 && sample <= 1.0) {
            return Err(TrainError::Sample { sample });
        }
        Ok(Box::new(HashedFeed {
            rows: self.train.sample(sample, seed),
            batch,
            seed,
            epoch_seed: 0,
            shuffle: None,
            left: (0, 0),
            test: (VecDeque::new(), None),
            columns: Columns::default(),
            distinct: DistinctKeys::default(),
            set: Arc::new(self.set.counted_apart()),
            source: self,
        }))
    }
}

/// Returns the number of parts of at least `part_rows` rows: fewer than these where a worker would have fewer than it should.
fn parts(rows: &Selection, part_rows: u64, batch: usize, workers: u16) -> u32 {
    let wanted = (rows.rows() / part_rows).max(CHUNKS_PER_WORKER * u64::from(workers));
    // Whole batches, so that they are not shorter than they need to be.
    let batches = rows.rows().div_ceil(batch as u64).max(1);
    let of_part = (batches / wanted).max(1);
    u32::try_from(batches.div_ceil(of_part)).unwrap_or(u32::MAX)
}

struct HashedFeed {
    source: Arc<HashedSet>,
    /// Its data, read by this worker.
    set: Arc<DataSet>,
    rows: Selection,
    batch: usize,
    seed: u64,
    epoch_seed: u64,
    /// The rows of the chunk.
    shuffle: Option<Shuffle<Arc<DataSet>, vec::IntoIter<Vec<libra_data::Chunk>>>>,
    /// Rows and batches of it that are left.
    left: (u64, u64),
    /// The test rows that are left.
    test: (VecDeque<libra_data::Chunk>, Option<ChunkReader>),
    columns: Columns,
    distinct: DistinctKeys,
}

impl Feed for HashedFeed {
    fn rows(&self) -> u64 {
        self.rows.rows()
    }

    fn chunks_alone(&self) -> u32 {
        parts(&self.rows, self.source.train.part_rows(), self.batch, 1)
    }

    fn reads(&self) -> ReadCounts {
        let libra_data::Counts { requests, retries, bytes } = self.set.counts();
        ReadCounts { requests, retries, bytes }
    }

    fn start_epoch(&mut self, epoch: u32) {
        self.epoch_seed = epoch_seed(self.seed, epoch);
        self.shuffle = None;
        self.left = (0, 0);
    }

    fn epoch_seed(&self) -> u64 {
        self.epoch_seed
    }

    fn start_chunk(&mut self, chunk: Chunk) -> Result<u64, TrainError> {
        let pieces = self.rows.part(chunk.number, chunk.chunks, self.epoch_seed);
        let rows = pieces.iter().flatten().map(|chunk| chunk.rows).sum::<u64>();
        // Batches of equal size, instead of a short one at the end of each chunk.
        self.left = (rows, rows.div_ceil(self.batch as u64));
        let seed = splitmix64(self.epoch_seed ^ u64::from(chunk.number));
        self.shuffle = Some(Shuffle::new(self.set.clone(), pieces.into_iter(), seed));
        Ok(u64::from(chunk.number) << 32)
    }

    fn next_batch(&mut self, samples: &mut Samples, keys: &mut Vec<u64>) -> Result<(), TrainError> {
        let (rows, batches) = self.left;
        let Some(shuffle) = self.shuffle.as_mut().filter(|_| batches > 0) else { return Ok(()) };
        let of_batch = rows.div_ceil(batches);
        self.left = (rows - of_batch, batches - 1);
        let of_batch = usize::try_from(of_batch).expect("no more than a batch");
        shuffle.next_batch(of_batch, &mut self.columns).map_err(DataError::from)?;
        self.source.add(&self.columns, &mut self.distinct, samples, keys);
        Ok(())
    }

    fn start_test(&mut self, chunk: Chunk) -> Result<u64, TrainError> {
        let rows = chunk.range(self.source.test.rows());
        let first = self.source.train.rows() + rows.start;
        self.test = (self.source.test.range(rows).into(), None);
        Ok(first)
    }

    fn next_test(
        &mut self,
        rows: usize,
        samples: &mut Samples,
        keys: &mut Vec<u64>,
    ) -> Result<(), TrainError> {
        let (chunks, reader) = &mut self.test;
        let columns = &mut self.columns;
        *columns = self.set.schema().columns();
        while columns.rows() < rows {
            if let Some(open) = reader {
                if open.read(rows - columns.rows(), columns).map_err(DataError::from)? == 0 {
                    *reader = None;
                }
            } else if let Some(chunk) = chunks.pop_front() {
                *reader = Some(self.set.read(&chunk).map_err(DataError::from)?);
            } else {
                break;
            }
        }
        self.source.add(columns, &mut self.distinct, samples, keys);
        Ok(())
    }
}
