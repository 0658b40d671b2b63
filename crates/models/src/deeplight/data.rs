//! Click logs: who was shown what, and whether they clicked.
//!
//! | source | what it is |
//! |---|---|
//! | a file of 40 columns, or a directory with one | the log of Criteo's display advertising challenge: a label, 13 whole numbers, 26 hashes; empty is missing |
//! | a file of 2 columns, or a directory with one | a label and a bag of keys below 2^20: features that were hashed, and whose fields are forgotten |
//! | the word `synthetic` | made from a seed, with weights planted in it |
//!
//! In a directory the log is `train.txt`, or the one file beside a README. The last rows are tested on, the others trained on. All else is
//! a data set of `libra-data`, and hashed.
//!
//! A log is read twice when it is opened, to count its rows and then the values of its fields (see [`Vocabulary`]), and is checked as
//! a whole. A short one ([`HELD_ROWS_MAX`]) is then held in memory; of a longer one, a worker reads the chunks that it gets, again in every epoch.

mod bags;
mod criteo;
mod file;
mod hashed;
mod rows;
mod synthetic;
mod vocabulary;

use std::{ops::Range, path::Path, path::PathBuf};

pub use synthetic::Synthetic;
pub use vocabulary::Vocabulary;

use file::LogFile;
pub(super) use file::RUN_ROWS;
pub(super) use hashed::{HashedSet, is_data_set};
pub(crate) use rows::{Cursor, Row};
use rows::{Held, RawRow};
use vocabulary::Counter;

use crate::data::{DataError, DataFile, Directory, name_of};

/// Logs of up to so many rows are held in memory: 20 MB of Criteo's.
pub const HELD_ROWS_MAX: usize = 1 << 17;

/// Layout of the features of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// One value, or none, of each of so many fields.
    Fields(usize),
    /// Any number of values of a single field.
    Bag,
}

impl Layout {
    /// Returns the number of fields.
    pub fn fields(self) -> usize {
        match self {
            Self::Fields(fields) => fields,
            Self::Bag => 1,
        }
    }
}

/// Settings by which a log becomes a data set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    /// Values that occur less often among the training rows share one row of parameters.
    pub min_count: u32,
    /// Partition of the rows, from the end, that is tested on: above 0, below 1.
    pub test: f64,
}

/// A click log whose values have been given rows of parameters.
#[derive(Debug)]
pub struct Dataset {
    /// A short name, for reports and for the provenance of a plan.
    pub name: String,
    /// Layout of its rows.
    pub layout: Layout,
    /// The rows of parameters.
    pub vocabulary: Vocabulary,
    /// Counts of the rows to train on, at the front.
    pub train: Counts,
    /// The same of those that are tested on, behind them.
    pub test: Counts,
    /// The file that it was read from, if there is one.
    pub files: Vec<DataFile>,
    log: Log,
}

/// Counts of rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// All.
    pub rows: usize,
    /// Those with a click.
    pub clicks: usize,
}

impl Counts {
    /// Returns the share of clicks, kept away from 0 and 1, whose logarithms are infinite.
    pub fn rate(self) -> f64 {
        (self.clicks as f64 + 0.5) / (self.rows as f64 + 1.0)
    }
}

/// Location of the rows.
#[derive(Debug)]
enum Log {
    Held(Held),
    File(LogFile),
}

impl Dataset {
    /// Opens what `source` names: the word `synthetic`, a file, or a directory with one (see the module's table). `seed` makes
    /// the synthetic set.
    ///
    /// # Errors
    /// Whatever is missing or malformed, with file, line, what was found and what was expected.
    ///
    /// ```
    /// use libra_models::deeplight::{Dataset, Reading};
    ///
    /// let dataset = Dataset::open("synthetic", Reading { min_count: 2, test: 0.2 }, 1)?;
    /// assert!(dataset.train.rows > 10_000 && dataset.test.clicks > 100);
    /// # Ok::<(), libra_models::DataError>(())
    /// ```
    pub fn open(source: &str, reading: Reading, seed: u64) -> Result<Self, DataError> {
        if source == "synthetic" {
            return Synthetic { seed, ..Synthetic::default() }.generate(reading);
        }
        let path = Path::new(source);
        if path.is_file() {
            return Self::read(path, name_of(path), reading, HELD_ROWS_MAX);
        }
        let directory = Directory::list(path)?;
        Self::read(&log_of(&directory)?, directory.name(), reading, HELD_ROWS_MAX)
    }

    /// Reads the log at `path`, and holds it if it has no more than `held_max` rows.
    pub(super) fn read(
        path: &Path,
        name: String,
        reading: Reading,
        held_max: usize,
    ) -> Result<Self, DataError> {
        let file = LogFile::open(path)?;
        let layout = file.layout();
        let mut dataset = Self::count(name, layout, file.rows(), reading, |visit| file.visit(visit))?;
        dataset.files.push(file.data_file().clone());
        dataset.log = if file.rows() <= held_max {
            Log::Held(Held::new(&dataset.vocabulary, |visit| file.visit(visit))?)
        } else {
            Log::File(file)
        };
        Ok(dataset)
    }

    /// A data set of rows that are in memory: of each whether there was a click, and a value for each of `fields` fields.
    fn of_rows(name: &str, fields: usize, rows: &[RawRow], reading: Reading) -> Result<Self, DataError> {
        let walk = |visit: &mut dyn FnMut(&RawRow)| {
            rows.iter().for_each(visit);
            Ok(())
        };
        let mut dataset = Self::count(name.to_owned(), Layout::Fields(fields), rows.len(), reading, walk)?;
        dataset.log = Log::Held(Held::new(&dataset.vocabulary, walk)?);
        Ok(dataset)
    }

    /// Counts clicks, and the values of the rows that are trained on. `walk` visits all `rows`. The rows themselves are still missing.
    fn count(
        name: String,
        layout: Layout,
        rows: usize,
        reading: Reading,
        walk: impl FnOnce(&mut dyn FnMut(&RawRow)) -> Result<(), DataError>,
    ) -> Result<Self, DataError> {
        if rows < 2 {
            return Err(DataError::TooFewRows { name, rows });
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "`as` saturates, and the clamp does the rest"
        )]
        let tested = ((rows as f64 * reading.test).round() as usize).clamp(1, rows - 1);
        let mut train = Counts { rows: rows - tested, clicks: 0 };
        let mut test = Counts { rows: tested, clicks: 0 };
        let mut counter = Counter::default();
        let mut number = 0;
        walk(&mut |row| {
            if number < train.rows {
                train.clicks += usize::from(row.clicked);
                counter.add(&row.values);
            } else {
                test.clicks += usize::from(row.clicked);
            }
            number += 1;
        })?;
        let vocabulary = counter.finish(layout.fields(), reading.min_count);
        Ok(Self { name, layout, vocabulary, train, test, files: Vec::new(), log: Log::Held(Held::default()) })
    }

    /// The numbers of the rows that are trained on.
    pub fn train_rows(&self) -> Range<usize> {
        0..self.train.rows
    }

    /// Returns true if the rows are in memory.
    pub(super) fn is_held(&self) -> bool {
        matches!(self.log, Log::Held(_))
    }

    /// Replaces `row` by the row of this number, which must be in memory.
    pub(super) fn read_held(&self, number: usize, row: &mut Row) {
        let Log::Held(held) = &self.log else { unreachable!("callers look first") };
        held.read(number, row);
    }

    /// The numbers of the rows that are tested on.
    pub fn test_rows(&self) -> Range<usize> {
        self.train.rows..self.train.rows + self.test.rows
    }
}

/// The log in a directory.
fn log_of(directory: &Directory) -> Result<PathBuf, DataError> {
    const USUAL: &str = "train.txt";
    if directory.names.iter().any(|name| name == USUAL) {
        return Ok(directory.path.join(USUAL));
    }
    let mut others = directory.names.iter().filter(|name| !name.to_ascii_uppercase().starts_with("README"));
    match (others.next(), others.next()) {
        (Some(name), None) => Ok(directory.path.join(name)),
        _ => Err(DataError::NoClickLog { path: directory.path.clone() }),
    }
}

#[cfg(test)]
mod tests;
