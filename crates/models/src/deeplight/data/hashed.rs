//! A data set of `libra data`, of any size and at any place, whose values are hashed to the keys of their rows.
//!
//! So there is no vocabulary and no pass over the rows before training. A number stands for its bin, a category for its id, or for its ids if it is a list;
//! each field has a key for what is missing.

use std::path::Path;
use std::sync::Arc;

use libra_data::{
    At, Chunk, ColumnKind, Columns, DataSet, FILE_NAME, Fault, Field, Followed, Keys, Options, Selection,
    Split,
};

use super::{super::model::Samples, Reading, criteo::bin, log_of};
use crate::{
    data::{DataError, Directory},
    rows::DistinctKeys,
    tables::hashed_key,
};

/// Files of Criteo's log of a terabyte.
const DAYS: usize = 24;

/// The value of a field that has none. No number has this bin, and of the ids of a category one in 2^64 the same key.
const MISSING: u64 = u64::MAX;

/// A data set whose rows are read when they are trained on.
#[derive(Debug)]
pub(crate) struct HashedSet {
    pub(crate) name: String,
    pub(crate) set: DataSet,
    /// The rows to train on.
    pub(crate) train: Selection,
    /// The rows to test on.
    pub(crate) test: Selection,
    /// The fields of numbers, then those of categories.
    fields: Vec<Field>,
    has_lists: bool,
    /// The directory of the file, if its data are followed: then all rows are trained and tested on.
    pub(crate) followed: Option<Arc<Followed>>,
}

/// Returns true for data that `libra-data` reads, and not [`Dataset`](super::Dataset): all but a plain text that is named by itself or alone in its
/// directory.
pub(crate) fn is_data_set(source: &str) -> Result<bool, DataError> {
    let path = Path::new(source);
    let is_described = |directory: &Path| directory.join(FILE_NAME).is_file();
    if path.is_file() {
        return Ok(is_of_set(source) || path.parent().is_some_and(is_described));
    }
    if !path.is_dir() {
        return Ok(source.contains("://") || source.contains(['*', '?', '[', '{']));
    }
    let directory = Directory::list(path)?;
    Ok(is_described(path)
        || match log_of(&directory) {
            Ok(log) => log.is_dir() || log.to_str().is_some_and(is_of_set),
            Err(_) => directory.names.iter().any(|name| is_of_set(name) || path.join(name).is_dir()),
        })
}

/// Returns true if a file is one of a data set by its name: Parquet, a packed text, or a day of Criteo's terabyte.
fn is_of_set(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let is_day = name.strip_prefix("day_").is_some_and(|day| day.bytes().all(|byte| byte.is_ascii_digit()));
    is_day || [".parquet", ".pq", ".gz", ".zst"].iter().any(|end| name.ends_with(end))
}

impl HashedSet {
    pub(crate) fn open(source: &str, reading: Reading) -> Result<Self, DataError> {
        let set = DataSet::open(source, &options())?;
        let name = name_of(source);
        if set.rows() < 2 {
            return Err(DataError::TooFewRows { name, rows: 1 });
        }
        let split = if is_terabyte(&set) { Split::LastFile } else { Split::Tail(reading.test) };
        let (train, test) = set.split(split);
        Self::new(name, set, (train, test), None)
    }

    /// Opens the first file of a directory to which files are added.
    pub(crate) fn follow(source: &str) -> Result<Self, DataError> {
        let followed = Followed::open(source, &options())?;
        let listing = followed.list()?;
        let first = listing.files.first().ok_or_else(|| At::file(source).error(Fault::NoFiles))?;
        let set = followed.file(&first.name)?;
        let all = set.chunks().to_vec();
        Self::new(name_of(source), set, (all.clone(), all), Some(Arc::new(followed)))
    }

    /// Opens another file of that directory.
    pub(crate) fn file_of(&self, followed: &Arc<Followed>, name: &str) -> Result<Self, DataError> {
        let set = followed.file(name)?;
        let all = set.chunks().to_vec();
        let file = Self::new(self.name.clone(), set, (all.clone(), all), Some(followed.clone()))?;
        if file.fields != self.fields || file.has_lists && !self.has_lists {
            let reason = "its columns are others than those of the first file that was followed".to_owned();
            return Err(At::file(name).error(Fault::BadDescription { reason }).into());
        }
        Ok(Self { has_lists: self.has_lists, ..file })
    }

    /// Rows in front of those that are tested on.
    pub(crate) fn rows_untested(&self) -> u64 {
        if self.followed.is_some() { 0 } else { self.train.rows() }
    }

    fn new(
        name: String,
        set: DataSet,
        (train, test): (Vec<Chunk>, Vec<Chunk>),
        followed: Option<Arc<Followed>>,
    ) -> Result<Self, DataError> {
        let description = &set.schema().description;
        let categories = description.categories.iter().map(|category| &category.name);
        let fields: Vec<Field> =
            description.numbers.iter().chain(categories).map(|it| Field::of(it)).collect();
        if fields.is_empty() {
            let reason = "it names no numbers and no categories".to_owned();
            return Err(At::file(FILE_NAME).error(Fault::BadDescription { reason }).into());
        }
        Ok(Self {
            name,
            train: Selection::new(train),
            test: Selection::new(test),
            fields,
            has_lists: set.schema().categories.contains(&ColumnKind::List),
            set,
            followed,
        })
    }

    /// Returns the number of fields.
    pub(crate) fn fields(&self) -> usize {
        self.fields.len()
    }

    /// Adds rows to the samples, and their distinct features to `keys`.
    pub(crate) fn add(
        &self,
        rows: &Columns,
        distinct: &mut DistinctKeys,
        samples: &mut Samples,
        keys: &mut Vec<u64>,
    ) {
        distinct.start();
        for (row, &label) in rows.labels.iter().enumerate() {
            let mut add = |hash, number, part| {
                let feature = distinct.index(hashed_key(hash), keys);
                samples.add(feature, self.has_lists.then_some((number, part)));
            };
            let mut fields = (0..).zip(&self.fields);
            for (column, (number, field)) in rows.numbers.iter().zip(fields.by_ref()) {
                add(field.key(bin_of(column[row])), number, 1.0);
            }
            for (column, (number, field)) in rows.categories.iter().zip(fields) {
                let ids = column.row(row);
                if ids.is_empty() {
                    add(field.key(MISSING), number, 1.0);
                }
                ids.iter().for_each(|&id| add(id, number, 1.0 / ids.len() as f32));
            }
            samples.end(label);
        }
        samples.weigh(&rows.weights);
    }
}

fn options() -> Options {
    Options { keys: Some(Keys::Hashed), ..Options::default() }
}

/// The last part of a place.
fn name_of(source: &str) -> String {
    let source = source.trim_end_matches('/');
    source.rsplit('/').next().unwrap_or(source).to_owned()
}

/// Returns the bin of a number: of whole ones that of Criteo's log; others are in four bins for each power of two.
fn bin_of(number: f64) -> u64 {
    const FRACTIONS: u64 = 1 << 40;
    // The sign, the exponent, and two bits behind the point.
    const SHIFT: u32 = 50;
    if number.is_nan() {
        MISSING
    } else if number.fract() == 0.0 {
        bin(number)
    } else {
        FRACTIONS + (number.to_bits() >> SHIFT)
    }
}

/// Returns true for the days of Criteo's terabyte, all of them.
fn is_terabyte(set: &DataSet) -> bool {
    let is_day = |(day, name): (usize, &str)| {
        let name = name.rsplit('/').next().unwrap_or(name);
        name.split('.').next() == Some(&format!("day_{day}"))
    };
    set.files().count() == DAYS && set.files().map(|file| file.name.as_str()).enumerate().all(is_day)
}
