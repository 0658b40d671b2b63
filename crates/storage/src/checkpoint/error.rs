//! Errors of checkpoints.

use thiserror::Error;

use crate::disk::DiskError;

/// The reason for which a checkpoint cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The disk refused.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// There is no checkpoint of this number.
    #[error("there is no checkpoint {number}")]
    Missing {
        /// Its number.
        number: u64,
    },
    /// It was not written to its end, or it was being removed.
    #[error("{directory} is no complete checkpoint: the process that wrote or removed it was interrupted")]
    Unfinished {
        /// Its directory.
        directory: String,
    },
    /// A file of it is not as it was written.
    #[error(
        "{file} is damaged: {fault}. Do not use this checkpoint; put back a sound copy of the file, or load another"
    )]
    Damaged {
        /// The file.
        file: String,
        /// The damage.
        fault: Fault,
    },
    /// Written by another version of this code.
    #[error("{file} is in version {found} of the format; this program reads version {known}")]
    Version {
        /// The manifest.
        file: String,
        /// Its version.
        found: u64,
        /// The version that can be read.
        known: u64,
    },
    /// It builds on another one, which cannot be used.
    #[error("checkpoint {number} has only what changed since checkpoint {base}: {cause}")]
    Base {
        /// The increment.
        number: u64,
        /// The checkpoint it builds on.
        base: u64,
        /// The reason for which that cannot be used.
        cause: Box<Self>,
    },
    /// It builds on another one, and the checkpoint that has its number now is a different one.
    #[error(
        "checkpoint {number} builds on another checkpoint {base} than the one that is there: {field} differs"
    )]
    OtherBase {
        /// The increment.
        number: u64,
        /// The checkpoint it builds on.
        base: u64,
        /// The field that differs.
        field: &'static str,
    },
}

impl CheckpointError {
    /// Returns true if the disk refused, which does not mean that its contents are damaged.
    #[must_use]
    pub fn is_of_disk(&self) -> bool {
        match self {
            Self::Disk(_) => true,
            Self::Base { cause, .. } => cause.is_of_disk(),
            _ => false,
        }
    }
}

/// Damage to a file of a checkpoint.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// It is not there.
    #[error("it is missing")]
    Missing,
    /// It is shorter or longer than in the manifest.
    #[error("it has {found} bytes, not {expected}")]
    Length {
        /// Length in the manifest.
        expected: u64,
        /// Length of the file.
        found: u64,
    },
    /// Its checksum differs.
    #[error("its checksum is {found:08x}, not {expected:08x}")]
    Checksum {
        /// Checksum in the manifest.
        expected: u32,
        /// Checksum of the file.
        found: u32,
    },
    /// It does not begin as it must.
    #[error("its header is not that of {expected}")]
    Header {
        /// The expected contents.
        expected: &'static str,
    },
    /// The manifest is not the JSON that it should be.
    #[error("line {line}, column {column}: {message}")]
    Json {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// The error.
        message: String,
    },
    /// A field of the manifest has a value that it cannot have.
    #[error("field {field} is {found}, but must be {wanted}")]
    Field {
        /// The field.
        field: String,
        /// Its value.
        found: String,
        /// The expected value.
        wanted: &'static str,
    },
    /// A row that its table cannot have.
    #[error("it has key {key}, which is none of table {table:?}")]
    Key {
        /// The key.
        key: u64,
        /// The table.
        table: String,
    },
}

/// The reason for which a checkpoint could not be written. The writer removes what there is of it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The disk refused, or is full.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// Its number is not above those of all checkpoints that are there.
    #[error("checkpoint {number} would not be the newest: there is checkpoint {newest}")]
    NotNewest {
        /// Its number.
        number: u64,
        /// The newest one.
        newest: u64,
    },
    /// The checkpoint it should build on cannot be used.
    #[error("cannot write an increment: {0}")]
    Base(CheckpointError),
    /// A value that no manifest can hold.
    #[error("{0}")]
    Description(Fault),
    /// No such table.
    #[error("there is no table number {table}")]
    UnknownTable {
        /// Its position.
        table: usize,
    },
    /// Not as many numbers as these rows have.
    #[error("{field} of {rows} rows of table {table:?} are {expected} numbers, not {found}")]
    Ragged {
        /// The table.
        table: String,
        /// Values or state.
        field: &'static str,
        /// Number of rows.
        rows: usize,
        /// Number of values that they have.
        expected: usize,
        /// Number of values that were given.
        found: usize,
    },
    /// A row that the table cannot have.
    #[error("table {table:?} has no key {key}")]
    Key {
        /// The table.
        table: String,
        /// The key.
        key: u64,
    },
    /// A full checkpoint has nothing to remove rows from.
    #[error("a full checkpoint cannot remove rows")]
    NotIncremental,
    /// Writing failed before: this checkpoint will not be.
    #[error("this checkpoint failed before")]
    Failed,
}

impl WriteError {
    /// Returns true if there was no room on the disk.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Disk(error) if error.is_full())
    }
}
