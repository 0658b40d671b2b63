//! Errors of data sets.

use std::{io, path::PathBuf};

use thiserror::Error;

/// A data set cannot be read or used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DataError {
    /// A data set of `libra data` cannot be read.
    #[error(transparent)]
    Set(#[from] libra_data::DataError),
    /// The path does not exist.
    #[error("there is no file or directory {}: give one, or the word `synthetic`", path.display())]
    Missing {
        /// The path that was given.
        path: PathBuf,
    },
    /// The operating system refused to read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file or directory.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The directory holds none of the known file names.
    #[error(
        "{} holds no data set that Libra can read; it reads either the three files `*.train.pairs.tsv` (or \
         `*.train.rating`), `*.test.rating` and `*.test.negative`, or the one file `u.data`",
        path.display()
    )]
    Unrecognised {
        /// The directory.
        path: PathBuf,
    },
    /// More than one file of the directory could be the click log.
    #[error(
        "{} holds no file `train.txt`, nor one file alone beside a README: name the click log itself",
        path.display()
    )]
    NoClickLog {
        /// The directory.
        path: PathBuf,
    },
    /// A file has too few rows to learn and to test.
    #[error("{name} has {rows} rows: at least 2 are needed, to learn from and to test")]
    TooFewRows {
        /// The data set.
        name: String,
        /// Their number.
        rows: usize,
    },
    /// A file ends before the rows that it had when it was opened.
    #[error("{} has fewer rows than when it was opened: it must not change while it is trained on", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// There is no text where one was looked for.
    #[error(
        "{} holds no text that Libra can read; it reads a directory with `*.train.txt` and `*.valid.txt`, and one with \
         the files of the One Billion Word Benchmark",
        path.display()
    )]
    NoText {
        /// The file or directory.
        path: PathBuf,
    },
    /// A training file is there, but a file that belongs to it is not.
    #[error("{} has a training file but no file `*.{suffix}`", path.display())]
    Incomplete {
        /// The directory.
        path: PathBuf,
        /// End of the name of the missing file.
        suffix: &'static str,
    },
    /// More than one file could be meant.
    #[error(
        "{} holds more than one file `*.{suffix}` ({}): keep one data set in a directory",
        path.display(),
        files.join(", ")
    )]
    Ambiguous {
        /// The directory.
        path: PathBuf,
        /// End of these names.
        suffix: &'static str,
        /// The names found.
        files: Vec<String>,
    },
    /// A line is not as it must be.
    #[error("{} line {line}: expected {expected}, found {found:?}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// Expected content.
        expected: &'static str,
        /// Actual content, shortened when long.
        found: String,
    },
    /// An id is too large for the arrays that are indexed by it.
    #[error("{} line {line}: the id {found} is too large, ids go up to {limit}", path.display())]
    IdTooLarge {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The id.
        found: u64,
        /// The largest id.
        limit: u32,
    },
    /// A file has no rows.
    #[error("{} holds no rows", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The two test files are not about the same pairs.
    #[error("{} line {line}: the pair is {found}, but line {line} of {} has {expected}", path.display(), other.display())]
    Disagreement {
        /// The file of negatives.
        path: PathBuf,
        /// The file of test pairs.
        other: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The pair in the file of test pairs.
        expected: String,
        /// The pair in the file of negatives.
        found: String,
    },
    /// No user has anything to be tested on.
    #[error(
        "data set {name} has no test case: a user needs two interactions with different items and one item \
         that it never touched"
    )]
    NothingToTest {
        /// The data set.
        name: String,
    },
    /// The data set in memory contradicts itself.
    #[error("data set {name}: {what} {id} is outside 0..{limit}")]
    OutOfRange {
        /// The data set.
        name: String,
        /// `user`, `item` or `word`.
        what: &'static str,
        /// The id that is too large.
        id: u32,
        /// Their number.
        limit: u32,
    },
    /// The data of the model are always synthetic.
    #[error("{model} has synthetic data only: give `--data synthetic`, not {found:?}")]
    SyntheticOnly {
        /// The model.
        model: String,
        /// The source that was given.
        found: String,
    },
    /// There is nothing to learn from.
    #[error("data set {name} has no training pairs")]
    NothingToLearn {
        /// The data set.
        name: String,
    },
    /// A text has no words to predict.
    #[error("data set {name}: the {which} text has no words")]
    NoWords {
        /// The data set.
        name: String,
        /// `training` or `validation`.
        which: &'static str,
    },
}
