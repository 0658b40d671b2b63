//! Rows that are trained on, in the order of an epoch.

use std::{ops::Range, sync::Arc};

use super::data::{Cursor, Dataset, RUN_ROWS, Row};
use crate::{
    DataError, TrainError,
    learner::places,
    order::{Order, Permutation, draw, epoch_seed},
};

/// Deals the rows of chunks in the order of an epoch, which the seed and the number of the epoch decide.
///
/// A log that is held in memory has an order of single rows, whatever the chunks. Of one in a file runs of [`RUN_ROWS`] neighbours are in a random order, so that a chunk
/// is read in few pieces from all over the log; its rows are held in memory and shuffled once more, over the whole chunk.
pub(super) struct Shuffle {
    dataset: Arc<Dataset>,
    /// The rows that are trained on, ascending; `None` for all of them.
    subset: Option<Vec<u32>>,
    seed: u64,
    epoch_seed: u64,
    order: Order,
    /// Places in the order, of the chunk and of those of its rows that are not dealt yet.
    chunk: Range<u64>,
    next: u64,
    /// Rows of the chunk, and their order, if the log is in a file. Memory of rows behind them is used again.
    rows: Vec<Row>,
    rows_order: Permutation,
}

impl Shuffle {
    /// Deals from the rows of `dataset` that are trained on, or from a part `sample` of them.
    pub(super) fn new(dataset: &Arc<Dataset>, sample: f64, seed: u64) -> Result<Self, TrainError> {
        Ok(Self {
            subset: draw(dataset.train_rows().len(), sample, seed)?,
            dataset: dataset.clone(),
            seed,
            epoch_seed: 0,
            order: Order::new(0, 1, 0),
            chunk: 0..0,
            next: 0,
            rows: Vec::new(),
            rows_order: Permutation::new(0, 0),
        })
    }

    /// Rows of an epoch.
    pub(super) fn rows(&self) -> usize {
        self.subset.as_ref().map_or(self.dataset.train.rows, Vec::len)
    }

    /// Returns the seed of the epoch.
    pub(super) fn epoch_seed(&self) -> u64 {
        self.epoch_seed
    }

    /// Goes to an epoch.
    pub(super) fn start_epoch(&mut self, epoch: u32) {
        self.epoch_seed = epoch_seed(self.seed, epoch);
        let run = if self.dataset.is_held() { 1 } else { RUN_ROWS as u64 };
        self.order = Order::new(self.rows() as u64, run, self.epoch_seed);
        (self.chunk, self.next) = (0..0, 0);
    }

    /// Goes to the start of a chunk of the epoch: those places in its order.
    pub(super) fn start_chunk(&mut self, chunk: Range<u64>) -> Result<(), DataError> {
        self.next = chunk.start;
        self.chunk = chunk;
        if self.dataset.is_held() {
            return Ok(());
        }
        let mut read = 0;
        let mut place = self.chunk.start;
        while place < self.chunk.end {
            let first = self.order.at(place);
            let count = (place..self.chunk.end)
                .zip(first..)
                .take_while(|&(place, row)| self.order.at(place) == row)
                .count();
            self.read(places(first..first + count as u64), &mut read)?;
            place += count as u64;
        }
        self.rows_order = Permutation::new(read as u64, self.epoch_seed ^ self.chunk.start);
        Ok(())
    }

    /// Reads neighbours into `rows`, the first behind those that are there, and counts them.
    fn read(&mut self, indices: Range<usize>, read: &mut usize) -> Result<(), DataError> {
        let subset = self.subset.as_ref().map(|subset| &subset[indices.clone()]);
        let rows = subset.map_or(indices, |rows| rows[0] as usize..rows[rows.len() - 1] as usize + 1);
        let is_in = |rows: &[u32], row: usize| rows.binary_search_by(|&of| (of as usize).cmp(&row)).is_ok();
        let wanted = |row: usize| subset.is_none_or(|rows| is_in(rows, row));
        let mut cursor = Cursor::new(&self.dataset, rows)?;
        loop {
            if *read == self.rows.len() {
                self.rows.push(Row::default());
            }
            if !cursor.read(&mut self.rows[*read], wanted)? {
                return Ok(());
            }
            *read += 1;
        }
    }

    /// Returns the next row; `None` at the end of the chunk.
    pub(super) fn next(&mut self) -> Option<&Row> {
        if self.next == self.chunk.end {
            return None;
        }
        let place = self.next;
        self.next += 1;
        let index = |index: u64| usize::try_from(index).expect("it is in memory");
        if !self.dataset.is_held() {
            return Some(&self.rows[index(self.rows_order.at(place - self.chunk.start))]);
        }
        let row = index(self.order.at(place));
        let row = self.subset.as_ref().map_or(row, |subset| subset[row] as usize);
        if self.rows.is_empty() {
            self.rows.push(Row::default());
        }
        self.dataset.read_held(row, &mut self.rows[0]);
        Some(&self.rows[0])
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::{
        super::data::{Reading, Synthetic},
        *,
    };
    use crate::Chunk;

    const READING: Reading = Reading { min_count: 1, test: 0.2 };

    fn dataset() -> Arc<Dataset> {
        let recipe =
            Synthetic { rows: 500, values: vec![400, 400, 400], exponent: 0.0, ..Synthetic::default() };
        Arc::new(recipe.generate(READING).unwrap())
    }

    /// A log of 2000 rows to train on, held or in its file: each row has a key of its own.
    fn log(directory: &Path, held_max: usize) -> Arc<Dataset> {
        let path = directory.join("train.txt");
        let lines: Vec<String> = (0..2500).map(|row| format!("{}\t{row}\n", row % 2)).collect();
        fs::write(&path, lines.concat()).unwrap();
        Arc::new(Dataset::read(&path, "log".to_owned(), READING, held_max).unwrap())
    }

    fn chunk_of(shuffle: &mut Shuffle, number: u32, chunks: u32) -> Vec<Row> {
        let rows = shuffle.rows() as u64;
        shuffle.start_chunk(Chunk { number, chunks }.samples(rows, 16)).unwrap();
        let mut found = Vec::new();
        while let Some(row) = shuffle.next() {
            found.push(row.clone());
        }
        found
    }

    fn rows_of(shuffle: &mut Shuffle, epoch: u32) -> Vec<Row> {
        shuffle.start_epoch(epoch);
        let rows = chunk_of(shuffle, 0, 1);
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
        sorted(rows)
    }

    #[test]
    fn chunks_have_each_row_once_in_any_order_of_dealing() {
        let directory = tempfile::tempdir().unwrap();
        for dataset in [dataset(), log(directory.path(), 0)] {
            let mut shuffle = Shuffle::new(&dataset, 1.0, 5).unwrap();
            shuffle.start_epoch(2);
            for chunks in [1, 2, 13, 100, 1000] {
                let last_first = (0..chunks).rev().map(|number| chunk_of(&mut shuffle, number, chunks));
                let rows = last_first.collect::<Vec<_>>().concat();
                assert_eq!(sorted(rows), all(&dataset), "{chunks}");
            }
        }
    }

    #[test]
    fn a_held_log_has_one_order_whatever_the_chunks() {
        let mut shuffle = Shuffle::new(&dataset(), 1.0, 5).unwrap();
        let whole = rows_of(&mut shuffle, 2);
        let chunks: Vec<_> = (0..13).map(|number| chunk_of(&mut shuffle, number, 13)).collect();
        assert_eq!(chunks.concat(), whole);
    }

    #[test]
    fn a_chunk_of_a_file_is_the_same_when_it_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let dataset = log(directory.path(), 0);
        let mut shuffle = Shuffle::new(&dataset, 1.0, 5).unwrap();
        shuffle.start_epoch(0);
        let first = chunk_of(&mut shuffle, 2, 3);
        let before = chunk_of(&mut shuffle, 1, 3);
        let mut other = Shuffle::new(&dataset, 1.0, 5).unwrap();
        other.start_epoch(0);
        assert_eq!((chunk_of(&mut other, 2, 3), chunk_of(&mut other, 1, 3)), (first.clone(), before));
        // Neighbours in the log are not neighbours in the chunk.
        let keys: Vec<u32> = first.iter().map(|row| row.parameters[0]).collect();
        let neighbours = keys.windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
        assert!(neighbours < 10, "{neighbours} of {}", keys.len());
        assert!(keys.iter().max().unwrap() - keys.iter().min().unwrap() > 1000, "from all over the log");
    }

    #[test]
    fn an_epoch_depends_on_its_number_only() {
        let mut shuffle = Shuffle::new(&dataset(), 1.0, 5).unwrap();
        let first = rows_of(&mut shuffle, 3);
        let other = rows_of(&mut shuffle, 4);
        assert_ne!(first, other);
        assert_eq!(first, rows_of(&mut shuffle, 3));
        assert_eq!(sorted(first), sorted(other));
    }

    #[test]
    fn a_sample_is_the_same_in_memory_and_in_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let (dataset, held) = (log(directory.path(), 0), log(directory.path(), 10_000));
        assert!(held.is_held() && !dataset.is_held());
        let rows = |dataset| {
            let mut shuffle = Shuffle::new(dataset, 0.3, 5).unwrap();
            sorted(rows_of(&mut shuffle, 0))
        };
        let found = rows(&dataset);
        assert_eq!(found.len(), 600);
        assert_eq!(found, rows(&held));
        assert_eq!(Shuffle::new(&dataset, 1e-9, 5).unwrap().rows(), 1);
    }
}
