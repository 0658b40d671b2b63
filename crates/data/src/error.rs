//! Errors of data sets: a place, and a fault at it.

use std::fmt;
use std::io;

use thiserror::Error;

/// A data set cannot be opened, read or written.
#[derive(Debug, Error)]
#[error("{at}: {fault}")]
pub struct DataError {
    /// Place of the fault.
    pub at: Box<At>,
    /// Kind of the fault.
    pub fault: Fault,
}

/// A place in a data set, as precise as it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct At {
    /// A file, or the place that was given.
    pub file: String,
    /// A row group of a Parquet file, counted from 0.
    pub row_group: Option<usize>,
    /// Name of a column.
    pub column: Option<String>,
    /// A row of the file.
    pub row: Option<Row>,
}

/// A row of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Row {
    /// Line of a text, counted from 1.
    Line(u64),
    /// Row of a Parquet file, counted from 0, as pyarrow counts.
    Number(u64),
}

impl At {
    /// A file as a whole.
    pub fn file(file: impl Into<String>) -> Self {
        Self { file: file.into(), ..Self::default() }
    }

    /// The same place, in a row group.
    #[must_use]
    pub fn row_group(mut self, row_group: usize) -> Self {
        self.row_group = Some(row_group);
        self
    }

    /// The same place, in a column.
    #[must_use]
    pub fn column(mut self, column: impl Into<String>) -> Self {
        self.column = Some(column.into());
        self
    }

    /// The same place, in a row.
    #[must_use]
    pub fn row(mut self, row: Row) -> Self {
        self.row = Some(row);
        self
    }

    /// An error at this place.
    pub fn error(self, fault: Fault) -> DataError {
        DataError { at: Box::new(self), fault }
    }
}

impl fmt::Display for At {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.file)?;
        if let Some(row_group) = self.row_group {
            write!(formatter, ", row group {row_group}")?;
        }
        if let Some(column) = &self.column {
            write!(formatter, ", column {column}")?;
        }
        match self.row {
            Some(Row::Line(line)) => write!(formatter, ", line {line}"),
            Some(Row::Number(row)) => write!(formatter, ", row {row}"),
            None => Ok(()),
        }
    }
}

/// Kind of a fault.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Fault {
    /// The path, object or directory does not exist.
    #[error("there is no such file or directory")]
    Missing,
    /// A pattern matches no file.
    #[error("no file matches the pattern")]
    NoMatch,
    /// A directory has no data files.
    #[error(
        "holds no data files: in a directory those count that are named *.parquet, *.pq, *.txt, *.tsv or \
         day_N, the texts with .gz or .zst, too; name others by a pattern, such as '*.gz'"
    )]
    NoFiles,
    /// A directory has files of both formats.
    #[error("holds both Parquet and text: name one kind by a pattern, such as '*.parquet'")]
    MixedFormats,
    /// The place is no path and no URL of a known kind.
    #[error("is not a place that Libra reads: {reason}")]
    BadPlace {
        /// The reason.
        reason: &'static str,
    },
    /// A directory that is to be written has files.
    #[error("the directory is not empty: a data set is written into an empty one")]
    NotEmpty,
    /// The place of a data set that is to be written takes none.
    #[error("a server of HTTP can only be read: give a directory, or a URL of s3, gs or az")]
    ReadOnly,
    /// A shuffle with this memory would have too many parts.
    #[error("too little to shuffle {rows} rows in at most 512 parts: give at least {least_kib}KiB")]
    TooLittleMemory {
        /// The least memory that suffices, in KiB.
        least_kib: u64,
        /// Rows of the set.
        rows: u64,
    },
    /// The operating system refused.
    #[error("{doing} failed: {source}")]
    Io {
        /// The attempt.
        doing: &'static str,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A server refused, or was not reached.
    #[error(transparent)]
    Object(libra_objects::Fault),
    /// The file is not what it was when it was opened or indexed.
    #[error("the file has changed since the data set was opened: it must not change during a job")]
    Changed,
    /// The file has no rows.
    #[error("holds no rows")]
    Empty,
    /// A file ends before its end.
    #[error("the file is cut off: {reason}")]
    Cut {
        /// Missing part.
        reason: String,
    },
    /// The file is encrypted.
    #[error("the file is encrypted, which Libra does not read: decrypt it first")]
    Encrypted,
    /// Parquet that cannot be decoded.
    #[error("damaged or unsupported Parquet: {reason}")]
    Corrupt {
        /// Reason of the decoder.
        reason: String,
    },
    /// A column is described, but the file has none of that name.
    #[error("the file has no such column; it has: {has}")]
    NoColumn {
        /// Names of its columns.
        has: String,
    },
    /// A column has a type that does not fit its role.
    #[error("the column has the type {found}, expected {expected}")]
    WrongType {
        /// Type in the file.
        found: String,
        /// Types that are read.
        expected: &'static str,
    },
    /// A column has another type than in the first file, by which its values mean something else.
    #[error("the column has the type {found}, but {expected} in {first}: give it one type in all files")]
    OtherType {
        /// Type in the file.
        found: String,
        /// Type in the first file.
        expected: String,
        /// The first file.
        first: String,
    },
    /// Pages are compressed in a way that is not read.
    #[error(
        "the column is compressed by {codec}, which Libra does not read: write it with snappy, zstd, gzip or \
         lz4, or uncompressed"
    )]
    Codec {
        /// Name of the codec.
        codec: &'static str,
    },
    /// A value does not fit its column.
    #[error("expected {expected}, found {found}")]
    BadValue {
        /// Expected content.
        expected: &'static str,
        /// Actual content, shortened when long.
        found: String,
    },
    /// The description of the data set is not right.
    #[error("the description is not right: {reason}")]
    BadDescription {
        /// The reason, with the key.
        reason: String,
    },
    /// A Parquet data set without description, whose columns do not show their roles.
    #[error(
        "needs a dataset.toml beside the data, that names label, numbers and categories; \
         `libra data inspect` proposes one"
    )]
    NoDescription,
}

/// Text of a bad value is shown up to this many characters.
const SHOWN_MAX: usize = 60;

impl From<libra_objects::Fault> for Fault {
    fn from(fault: libra_objects::Fault) -> Self {
        match fault {
            libra_objects::Fault::Missing => Self::Missing,
            libra_objects::Fault::Changed => Self::Changed,
            other => Self::Object(other),
        }
    }
}

impl Fault {
    /// A value that does not fit.
    pub(crate) fn bad_value(expected: &'static str, found: impl fmt::Display) -> Self {
        let text = found.to_string();
        let mut shown: String = text.chars().take(SHOWN_MAX).collect();
        if shown.len() < text.len() {
            shown.push('…');
        }
        Self::BadValue { expected, found: format!("{shown:?}") }
    }

    /// A failed call of the operating system.
    pub(crate) fn io(doing: &'static str, source: io::Error) -> Self {
        if source.kind() == io::ErrorKind::NotFound { Self::Missing } else { Self::Io { doing, source } }
    }
}
