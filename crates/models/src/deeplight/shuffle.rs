//! Order of the rows that a worker trains on.

use std::{mem, sync::Arc};

use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::data::{Cursor, Dataset, Row};
use crate::{DataError, Partition, splitmix::splitmix64};

/// Rows from which the next one is drawn.
pub(super) const SHUFFLED_ROWS: usize = 1 << 16;

/// Deals the rows of a worker, each once, in an order that the seed and the number of the epoch decide.
///
/// The next row is drawn from a buffer of [`SHUFFLED_ROWS`], whose place the next row of the log takes. So a part of the log that fits
/// into the buffer is shuffled as a whole, and of a longer one nothing but the buffer is in memory.
pub(super) struct Shuffle {
    dataset: Arc<Dataset>,
    part: Part,
    seed: u64,
    random: SmallRng,
    cursor: Cursor,
    /// Rows to draw from are those in front; behind them are rows whose memory is used again.
    buffer: Vec<Row>,
    waiting: usize,
    room: usize,
}

impl Shuffle {
    pub(super) fn new(dataset: &Arc<Dataset>, partition: Partition, seed: u64) -> Result<Self, DataError> {
        Self::with_room(dataset, partition, seed, SHUFFLED_ROWS)
    }

    fn with_room(
        dataset: &Arc<Dataset>,
        partition: Partition,
        seed: u64,
        room: usize,
    ) -> Result<Self, DataError> {
        let rows = partition.range(dataset.train_rows().len());
        Ok(Self {
            part: Part::new(rows.start, rows.end, partition.sample, seed),
            seed: seed ^ (partition.worker as u64) << 48,
            random: SmallRng::seed_from_u64(seed),
            cursor: Cursor::new(dataset, 0..0)?,
            dataset: dataset.clone(),
            buffer: Vec::new(),
            waiting: 0,
            room,
        })
    }

    /// Rows of an epoch.
    pub(super) fn rows(&self) -> usize {
        self.part.count
    }

    /// Goes to the start of an epoch.
    pub(super) fn start_epoch(&mut self, epoch: u32) -> Result<(), DataError> {
        self.random = SmallRng::seed_from_u64(splitmix64(self.seed ^ splitmix64(u64::from(epoch) + 1)));
        self.cursor = Cursor::new(&self.dataset, self.part.start..self.part.end)?;
        self.waiting = 0;
        let part = self.part;
        while self.waiting < self.room {
            if self.waiting == self.buffer.len() {
                self.buffer.push(Row::default());
            }
            if !self.cursor.read(&mut self.buffer[self.waiting], |row| part.has(row))? {
                break;
            }
            self.waiting += 1;
        }
        Ok(())
    }

    /// Replaces `row` by the next one; `false` at the end of the epoch.
    pub(super) fn next(&mut self, row: &mut Row) -> Result<bool, DataError> {
        if self.waiting == 0 {
            return Ok(false);
        }
        let drawn = self.random.random_range(0..self.waiting);
        mem::swap(row, &mut self.buffer[drawn]);
        let part = self.part;
        if !self.cursor.read(&mut self.buffer[drawn], |row| part.has(row))? {
            self.waiting -= 1;
            self.buffer.swap(drawn, self.waiting);
        }
        Ok(true)
    }
}

/// The rows of a worker, or a sample of them. Number and seed alone decide if a row is in it.
#[derive(Debug, Clone, Copy)]
struct Part {
    start: usize,
    end: usize,
    seed: u64,
    /// Rows with a smaller or equal hash are in it.
    limit: u64,
    count: usize,
}

impl Part {
    fn new(start: usize, end: usize, sample: f64, seed: u64) -> Self {
        let mut part = Self { start, end, seed, limit: u64::MAX, count: end - start };
        if sample < 1.0 {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
            let limit = (sample * u64::MAX as f64) as u64;
            // A sample has at least one row, if there is any.
            let least = (start..end).map(|row| part.hash(row)).min().unwrap_or(0);
            part.limit = limit.max(least);
            part.count = (start..end).filter(|&row| part.has(row)).count();
        }
        part
    }

    fn hash(&self, row: usize) -> u64 {
        splitmix64(self.seed ^ splitmix64(row as u64))
    }

    fn has(&self, row: usize) -> bool {
        self.limit == u64::MAX || self.hash(row) <= self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::data::{Reading, Synthetic},
        *,
    };

    fn dataset() -> Arc<Dataset> {
        let recipe =
            Synthetic { rows: 500, values: vec![400, 400, 400], exponent: 0.0, ..Synthetic::default() };
        Arc::new(recipe.generate(Reading { min_count: 1, test: 0.2 }).unwrap())
    }

    fn batches_of(shuffle: &mut Shuffle, epoch: u32) -> Vec<Row> {
        shuffle.start_epoch(epoch).unwrap();
        let mut rows = Vec::new();
        let mut row = Row::default();
        while shuffle.next(&mut row).unwrap() {
            rows.push(row.clone());
        }
        assert_eq!(rows.len(), shuffle.rows());
        rows
    }

    fn sorted(mut rows: Vec<Row>) -> Vec<Row> {
        rows.sort_unstable_by(|a, b| a.parameters.cmp(&b.parameters));
        rows
    }

    fn all(dataset: &Arc<Dataset>) -> Vec<Row> {
        let mut cursor = Cursor::new(dataset, dataset.train_rows()).unwrap();
        let (mut rows, mut row) = (Vec::new(), Row::default());
        while cursor.read(&mut row, |_| true).unwrap() {
            rows.push(row.clone());
        }
        rows
    }

    #[test]
    fn workers_share_all_rows_whatever_the_buffer() {
        let dataset = dataset();
        for room in [1, 7, 1000] {
            let mut rows = Vec::new();
            for worker in 0..3 {
                let mut shuffle = Shuffle::with_room(&dataset, Partition::of(worker, 3), 5, room).unwrap();
                rows.extend(batches_of(&mut shuffle, 2));
                assert!(shuffle.buffer.len() <= room);
            }
            assert_eq!(rows.len(), 400);
            assert_eq!(sorted(rows), sorted(all(&dataset)));
        }
    }

    #[test]
    fn an_epoch_depends_on_its_number_only() {
        let mut shuffle = Shuffle::with_room(&dataset(), Partition::of(1, 2), 5, 60).unwrap();
        let first = batches_of(&mut shuffle, 3);
        let other = batches_of(&mut shuffle, 4);
        assert_ne!(first, other);
        assert_eq!(first, batches_of(&mut shuffle, 3));
        assert_eq!(sorted(first), sorted(other));
    }

    #[test]
    fn a_sample_is_the_same_however_it_is_shared() {
        let dataset = dataset();
        let sample = |worker, workers| Partition { worker, workers, sample: 0.3 };
        let mut whole = Shuffle::new(&dataset, sample(0, 1), 5).unwrap();
        let rows = sorted(batches_of(&mut whole, 0));
        assert!((90..150).contains(&rows.len()), "{}", rows.len());
        let mut parts = batches_of(&mut Shuffle::new(&dataset, sample(0, 2), 5).unwrap(), 0);
        parts.extend(batches_of(&mut Shuffle::new(&dataset, sample(1, 2), 5).unwrap(), 0));
        assert_eq!(sorted(parts), rows);
        let tiny = Partition { sample: 1e-9, ..Partition::WHOLE };
        assert_eq!(Shuffle::new(&dataset, tiny, 5).unwrap().rows(), 1);
    }
}
