//! Errors of a log.

use std::error::Error;

use thiserror::Error;

use super::RecordNumber;
use crate::disk::DiskError;

/// The reason for which a record was not taken. Nothing changed.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AppendError {
    /// Longer than the format can hold.
    #[error("a record of {bytes} bytes: the log takes at most {most}")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The longest possible.
        most: usize,
    },
    /// Too much is waiting for [`Log::sync`](super::Log::sync), probably because that fails.
    #[error(
        "{pending} bytes are waiting to be written to the log, and no more than {most} may: sync it first"
    )]
    Behind {
        /// Bytes that wait.
        pending: usize,
        /// [`Settings::pending_bytes_max`](super::Settings::pending_bytes_max).
        most: usize,
    },
}

/// The reason for which records could not be made durable. They wait in memory, with their numbers; the next
/// [`Log::sync`](super::Log::sync) tries again.
#[derive(Debug, Error)]
#[error("the log is durable up to record {durable}; {waiting} later ones wait: {cause}")]
pub struct SyncError {
    /// The newest durable record, the same as before.
    pub durable: RecordNumber,
    /// Number of records that wait.
    pub waiting: u64,
    /// Error of the disk.
    pub cause: DiskError,
}

impl SyncError {
    /// Returns true if there was no room: it may work again once there is.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.cause.is_full()
    }
}

/// The reason for which a log could not be opened. Nothing was changed on the disk.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The disk refused.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// Bytes of the log are not as they were written, and they were durable or may have been.
    #[error(
        "{file} is damaged at offset {offset}, where record {record} should be: {damage}. Records before it are \
         sound, those from it on were acknowledged and cannot be read. Put back a sound copy of the file; or, to go \
         on without them, move this and all later log-* files away and start from the newest checkpoint"
    )]
    Damaged {
        /// The segment.
        file: String,
        /// Place in it.
        offset: u64,
        /// The record that should be there.
        record: RecordNumber,
        /// The damage.
        damage: Damage,
    },
    /// Records that are needed are in no segment.
    #[error(
        "records {from} to {to} of the log are in no file; the next one is in {next}. Put back the file that is \
         missing, or start from a checkpoint that covers record {to}"
    )]
    Missing {
        /// The first that is missing.
        from: RecordNumber,
        /// The last that is missing.
        to: RecordNumber,
        /// The segment after them.
        next: String,
    },
    /// It is another's log.
    #[error("{file} is of {field} {found}, not {expected}: it belongs to another log")]
    Foreign {
        /// The segment.
        file: String,
        /// The field that differs: job or shard.
        field: &'static str,
        /// Its value in the log.
        found: u64,
        /// Its value as asked for.
        expected: u64,
    },
    /// Written by another version of this code.
    #[error("{file} is in version {found} of the format; this program reads version {known}")]
    Version {
        /// The segment.
        file: String,
        /// Its version.
        found: u32,
        /// The version that can be read.
        known: u32,
    },
    /// Named like a part of the log, but no name that the log gives.
    #[error("{file} is named like a part of the log and is none: move it away")]
    UnknownFile {
        /// The file.
        file: String,
    },
    /// Its owner made no sense of a record that is sound.
    #[error("record {record} of the log, in {file} at offset {offset}, was not understood: {cause}")]
    Refused {
        /// The segment.
        file: String,
        /// Place in it.
        offset: u64,
        /// The record.
        record: RecordNumber,
        /// Error of the owner.
        cause: Box<dyn Error + Send + Sync>,
    },
}

/// Damage to bytes of a log.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Damage {
    /// It does not begin as a segment does.
    #[error("the file does not begin as a part of a log does")]
    Magic,
    /// The checksum of the header of a segment differs.
    #[error("the checksum of the file's header is wrong")]
    HeaderChecksum,
    /// The segment begins with another record than follows from its name, or from the segment before it.
    #[error("the file begins with record {found}")]
    FirstRecord {
        /// The record.
        found: RecordNumber,
    },
    /// The checksum of a record differs.
    #[error("the checksum of the record is wrong")]
    Checksum,
    /// The file ends before the record does.
    #[error("the file ends before the record does")]
    CutShort,
    /// The record is sound, and another.
    #[error("record {found} is there instead")]
    Number {
        /// The record.
        found: RecordNumber,
    },
}
