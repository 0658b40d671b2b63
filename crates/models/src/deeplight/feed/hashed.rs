//! A data set of `libra data`, whose keys are hashes.

use std::{collections::VecDeque, mem, ops::Range, sync::Arc, vec};

use libra_client::ReadCounts;
use libra_data::{ChunkReader, Columns, DataSet, Ordered, ReadAhead, Readers, Selection, Shuffle};

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

/// A job begins within seconds, whatever the size of its data. Of 20 million rows of Criteo's kind, the hot rows of twice as many have 1% more of the updates.
const PROFILE_ROWS_MAX: u64 = 1 << 16;

/// Rows that are read ahead, in two batches at least. As many are trained while the open places of a chunk are filled, which all become empty at about the same
/// time.
const AHEAD_ROWS: usize = 1 << 15;

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
        if self.followed.is_some() {
            return vec![(self.fields() as u64, "fields")];
        }
        vec![
            (self.train.rows(), "rows to train on"),
            (self.test.rows(), "to test on"),
            (self.fields() as u64, "fields"),
            (self.set.files().count() as u64, "files"),
        ]
    }

    fn files(&self) -> Vec<DataFile> {
        if self.followed.is_some() {
            return Vec::new();
        }
        let name = |name: &str| name.rsplit('/').next().unwrap_or(name).to_owned();
        self.set.files().map(|file| DataFile { name: name(&file.name), bytes: file.bytes }).collect()
    }

    fn rows(&self) -> u64 {
        self.train.rows()
    }

    fn profile_rows_max(&self) -> u64 {
        PROFILE_ROWS_MAX
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

    fn file(&self, name: &str) -> Result<Arc<dyn Source>, DataError> {
        let followed = self.followed.as_ref().expect("these data are followed");
        Ok(Arc::new(self.file_of(followed, name)?))
    }

    fn feed(self: Arc<Self>, sample: f64, batch: usize, seed: u64) -> Result<Box<dyn Feed>, TrainError> {
        if !(sample > 0.0 && sample <= 1.0) {
            return Err(TrainError::Sample { sample });
        }
        let set = Arc::new(self.set.counted_apart());
        let reader = ReadAhead::start(Rows {
            source: self.clone(),
            set: set.clone(),
            shuffle: None,
            left: (0, 0),
            chunks: VecDeque::new(),
            reader: None,
            readers: Readers::default(),
            rows: 0,
            columns: Columns::default(),
            distinct: DistinctKeys::default(),
        });
        let rows = self.train.sample(sample, seed);
        let (present, expected) = (None, None);
        Ok(Box::new(HashedFeed {
            source: self,
            set,
            rows,
            batch,
            seed,
            epoch_seed: 0,
            reader,
            present,
            expected,
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

/// Rows of a worker, read by a thread that is ahead of it.
struct HashedFeed {
    source: Arc<HashedSet>,
    /// Its data, read by this worker.
    set: Arc<DataSet>,
    rows: Selection,
    batch: usize,
    seed: u64,
    epoch_seed: u64,
    reader: ReadAhead<Rows>,
    /// The chunk that is read: of the epoch, or of the test data.
    present: Option<Ordered<Batch>>,
    /// The next one, as far as it is known.
    expected: Option<(Chunk, Ordered<Batch>)>,
}

/// Samples with their distinct features.
type Batch = (Samples, Vec<u64>);

/// The content of a chunk.
enum Order {
    /// Rows of these pieces, in an order that follows from the seed: so many batches of as many rows.
    Shuffled { pieces: Vec<Vec<libra_data::Chunk>>, seed: u64, rows: u64, batches: u64 },
    /// Rows as they are in the set, so many in a batch.
    InOrder { chunks: Vec<libra_data::Chunk>, rows: usize },
}

/// The thread's own part: reads what is ordered.
struct Rows {
    source: Arc<HashedSet>,
    set: Arc<DataSet>,
    shuffle: Option<Shuffle<Arc<DataSet>, vec::IntoIter<Vec<libra_data::Chunk>>>>,
    /// Rows and batches of the shuffle that are left.
    left: (u64, u64),
    chunks: VecDeque<libra_data::Chunk>,
    reader: Option<ChunkReader>,
    readers: Readers,
    /// Rows of a batch that is not shuffled.
    rows: usize,
    columns: Columns,
    distinct: DistinctKeys,
}

impl HashedFeed {
    fn order(&mut self, chunk: Chunk) -> Ordered<Batch> {
        let pieces = self.rows.part(chunk.number, chunk.chunks, self.epoch_seed);
        let rows = pieces.iter().flatten().map(|chunk| chunk.rows).sum::<u64>();
        // Batches of equal size, instead of a short one at the end of each chunk.
        let batches = rows.div_ceil(self.batch as u64);
        let seed = splitmix64(self.epoch_seed ^ u64::from(chunk.number));
        let ahead = (AHEAD_ROWS / self.batch).max(2);
        self.reader.order(Order::Shuffled { pieces, seed, rows, batches }, ahead)
    }

    fn next(&mut self, samples: &mut Samples, keys: &mut Vec<u64>) -> Result<(), TrainError> {
        let Some(present) = &mut self.present else { return Ok(()) };
        let mut batch = (mem::take(samples), mem::take(keys));
        self.reader.next(present, &mut batch).map_err(DataError::from)?;
        (*samples, *keys) = batch;
        Ok(())
    }
}

impl Feed for HashedFeed {
    fn rows(&self) -> u64 {
        self.rows.rows()
    }

    fn chunks_alone(&self) -> u32 {
        // Neighbouring parts of a sample would be read from the same chunks, again and again.
        let is_sample = self.rows.rows() < self.source.train.rows();
        if is_sample { 1 } else { parts(&self.rows, self.source.train.part_rows(), self.batch, 1) }
    }

    fn reads(&self) -> ReadCounts {
        let libra_data::Counts { requests, retries, bytes, .. } = self.set.counts();
        ReadCounts { requests, retries, bytes }
    }

    fn start_epoch(&mut self, epoch: u32) {
        self.epoch_seed = epoch_seed(self.seed, epoch);
        (self.present, self.expected) = (None, None);
    }

    fn epoch_seed(&self) -> u64 {
        self.epoch_seed
    }

    fn start_chunk(&mut self, chunk: Chunk) -> Result<u64, TrainError> {
        // Cancelled first, so that the thread does not wait for what is left of it to be taken.
        self.present = None;
        let ordered = match self.expected.take() {
            Some((expected, ordered)) if expected == chunk => ordered,
            _ => self.order(chunk),
        };
        self.present = Some(ordered);
        Ok(u64::from(chunk.number) << 32)
    }

    fn expect_chunk(&mut self, chunk: Chunk) {
        if self.expected.as_ref().is_none_or(|(expected, _)| *expected != chunk) {
            self.expected = None;
            self.expected = Some((chunk, self.order(chunk)));
        }
    }

    fn next_batch(&mut self, samples: &mut Samples, keys: &mut Vec<u64>) -> Result<(), TrainError> {
        self.next(samples, keys)
    }

    fn start_test(&mut self, chunk: Chunk, rows: usize) -> Result<u64, TrainError> {
        let range = chunk.range(self.source.test.rows());
        let first = self.source.rows_untested() + range.start;
        (self.present, self.expected) = (None, None);
        let order = Order::InOrder { chunks: self.source.test.range(range), rows };
        self.present = Some(self.reader.order(order, (AHEAD_ROWS / rows).max(2)));
        Ok(first)
    }

    fn next_test(&mut self, samples: &mut Samples, keys: &mut Vec<u64>) -> Result<(), TrainError> {
        self.next(samples, keys)
    }
}

impl libra_data::Source for Rows {
    type Order = Order;
    type Item = Batch;

    fn begin(&mut self, order: Order) -> Result<(), libra_data::DataError> {
        match order {
            Order::Shuffled { pieces, seed, rows, batches } => {
                self.left = (rows, batches);
                self.chunks.clear();
                (self.reader, self.readers) = (None, Readers::default());
                let pieces = pieces.into_iter();
                match &mut self.shuffle {
                    Some(shuffle) => shuffle.go_on(pieces, seed),
                    None => self.shuffle = Some(Shuffle::new(self.set.clone(), pieces, seed)),
                }
            }
            Order::InOrder { chunks, rows } => {
                self.shuffle = None;
                self.left = (0, 0);
                if let Some(reader) = self.reader.take() {
                    self.readers.keep(reader);
                }
                (self.chunks, self.rows) = (chunks.into(), rows);
            }
        }
        Ok(())
    }

    fn next(&mut self, (samples, keys): &mut Batch) -> Result<bool, libra_data::DataError> {
        samples.clear();
        keys.clear();
        if let Some(shuffle) = &mut self.shuffle {
            let (rows, batches) = self.left;
            if batches == 0 {
                return Ok(false);
            }
            let of_batch = rows.div_ceil(batches);
            self.left = (rows - of_batch, batches - 1);
            let of_batch = usize::try_from(of_batch).expect("no more than a batch");
            shuffle.next_batch(of_batch, &mut self.columns)?;
        } else {
            self.read_in_order()?;
        }
        self.source.add(&self.columns, &mut self.distinct, samples, keys);
        Ok(samples.len() > 0)
    }
}

impl Rows {
    fn read_in_order(&mut self) -> Result<(), libra_data::DataError> {
        if self.columns.categories.is_empty() && self.columns.numbers.is_empty() {
            self.columns = self.set.schema().columns();
        }
        self.columns.clear();
        while self.columns.rows() < self.rows {
            if let Some(mut reader) = self.reader.take() {
                if reader.read(self.rows - self.columns.rows(), &mut self.columns)? > 0 {
                    self.reader = Some(reader);
                } else {
                    self.readers.keep(reader);
                }
            } else if let Some(chunk) = self.chunks.pop_front() {
                self.reader = Some(self.readers.open(&self.set, &chunk)?);
            } else {
                break;
            }
        }
        Ok(())
    }
}
