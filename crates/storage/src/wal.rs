//! A write-ahead log: numbered records, durable in batches.

use std::fmt;

use tracing::{debug, trace};

use crate::disk::{Disk, DiskError, remove_if_there};

mod error;
mod format;
mod recovery;
mod verify;
mod window;

pub use error::{AppendError, Damage, OpenError, SyncError};
pub use recovery::{Recovery, Torn};
pub use verify::{SegmentInfo, Verified, segments, verify};

use format::{HEADER_LEN, Header, Owner, RECORD_BYTES_MAX, RECORD_HEADER_LEN, UNFINISHED};
use format::{encode_mark, encode_record, segment_name};

/// Bytes that a file of the log takes without a record.
pub const HEADER_BYTES: u64 = HEADER_LEN as u64;

/// The number of a record in its log. The first one is 1; 0 stands for none.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct RecordNumber(pub u64);

impl RecordNumber {
    /// Before the first record.
    pub const NONE: Self = Self(0);

    /// The record after this one.
    ///
    /// # Panics
    /// There is none after 2^64 - 1.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.checked_add(1).expect("there are fewer than 2^64 records"))
    }
}

impl fmt::Display for RecordNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Job and shard of a log, and the size of its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The job; a log of another one is refused.
    pub job: u64,
    /// The shard; a log of another one is refused.
    pub shard: u32,
    /// A file that is this long gets no more records. It can be longer by the bytes of one sync.
    pub segment_bytes: u64,
    /// At most so many bytes wait for a sync.
    pub pending_bytes_max: usize,
}

impl Settings {
    /// Files of 64 MiB, and at most 256 MiB that wait.
    #[must_use]
    pub fn new(job: u64, shard: u32) -> Self {
        Self { job, shard, segment_bytes: 64 << 20, pending_bytes_max: 256 << 20 }
    }

    fn owner(&self) -> Owner {
        Owner { job: self.job, shard: self.shard }
    }
}

/// A log on a disk.
///
/// [`append`](Self::append) only puts a record into memory; [`sync`](Self::sync) writes all that was appended and
/// makes it durable by one sync of the disk, however many records it is. So a caller that gathers records while a
/// sync is under way gets group commit. `sync` waits for the disk; a caller that must not wait gives the log to a
/// thread of its own.
///
/// **When the disk fails.** Records stay in memory until they are durable, so nothing is lost by a `sync` that
/// fails: the next one tries again.
/// - After a *write* that failed (a full disk), the bytes that came to be in the file are cut off again first.
/// - After a *sync* that failed, the system may have lost data that it could not write, and a later sync of the same
///   file proves nothing. Then the records are written again, to a new file, and their copies in the old one are
///   never looked at again.
#[derive(Debug)]
pub struct Log<D> {
    disk: D,
    settings: Settings,
    salt: u32,
    /// First records of the segments, rising. There is always one; the last is written to.
    segments: Vec<RecordNumber>,
    /// Number of bytes of the last segment that are durable.
    active_bytes: u64,
    tail: Tail,
    newest: RecordNumber,
    durable: RecordNumber,
    /// The records after `durable`, as they will be in the file.
    pending: Vec<u8>,
}

/// The bytes of the last segment after `active_bytes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tail {
    Nothing,
    /// A part of the bytes to write.
    Torn,
    /// The bytes of a sync that failed: the system may report them as written.
    Doubtful,
}

impl<D: Disk> Log<D> {
    /// Appends a record. It is in memory only, until [`sync`](Self::sync).
    ///
    /// # Errors
    /// It is too long, or too much waits. Nothing changed.
    pub fn append(&mut self, record: &[u8]) -> Result<RecordNumber, AppendError> {
        if record.len() > RECORD_BYTES_MAX {
            return Err(AppendError::TooLong { bytes: record.len(), most: RECORD_BYTES_MAX });
        }
        let (pending, most) = (self.pending.len(), self.settings.pending_bytes_max);
        // A record longer than the limit is taken if it waits alone.
        if pending > 0 && pending + RECORD_HEADER_LEN + record.len() > most {
            return Err(AppendError::Behind { pending, most });
        }
        let number = self.newest.next();
        encode_record(&mut self.pending, self.salt, number, self.durable, record);
        self.newest = number;
        Ok(number)
    }

    /// Makes all records that were appended durable, and returns the newest.
    ///
    /// # Errors
    /// The disk refused, or is full. The records wait for the next call; none of them is durable.
    pub fn sync(&mut self) -> Result<RecordNumber, SyncError> {
        self.try_sync().map_err(|cause| {
            debug!(%cause, newest = self.newest.0, "records cannot be made durable");
            // At once, so that on a full disk there is room for others, and for a checkpoint that lets the log be trimmed.
            if self.tail == Tail::Torn {
                self.cut().ok();
            }
            SyncError { durable: self.durable, waiting: self.newest.0 - self.durable.0, cause }
        })
    }

    fn try_sync(&mut self) -> Result<RecordNumber, DiskError> {
        if self.pending.is_empty() {
            return Ok(self.durable);
        }
        let is_full = self.active_bytes >= self.settings.segment_bytes && self.has_records();
        if is_full || self.tail == Tail::Doubtful {
            self.write_segment()?;
        } else {
            self.write_to_active()?;
        }
        self.tail = Tail::Nothing;
        trace!(newest = self.newest.0, bytes = self.pending.len(), "records are durable");
        self.durable = self.newest;
        self.pending.clear();
        // One large batch must not keep its memory for ever.
        self.pending.shrink_to(1 << 20);
        Ok(self.durable)
    }

    fn write_to_active(&mut self) -> Result<(), DiskError> {
        if self.tail == Tail::Torn {
            self.cut()?;
        }
        let name = self.active_name();
        self.tail = Tail::Torn;
        self.disk.append(&name, &self.pending)?;
        self.tail = Tail::Doubtful;
        self.disk.sync(&name)?;
        self.active_bytes += self.pending.len() as u64;
        Ok(())
    }

    fn cut(&mut self) -> Result<(), DiskError> {
        self.disk.truncate(&self.active_name(), self.active_bytes)?;
        self.tail = Tail::Nothing;
        Ok(())
    }

    /// Writes what is pending into a new segment. It gets its name when all of it is durable, so a segment without a
    /// sound header is damage and nothing else; and it ends the one before, whatever follows there.
    fn write_segment(&mut self) -> Result<(), DiskError> {
        self.try_write_segment().inspect_err(|_| {
            // At once: a checkpoint, after which the log begins again, may need the room.
            remove_if_there(&self.disk, UNFINISHED).ok();
        })
    }

    fn try_write_segment(&mut self) -> Result<(), DiskError> {
        let first = self.durable.next();
        let header = Header { owner: self.settings.owner(), first }.to_bytes();
        remove_if_there(&self.disk, UNFINISHED)?;
        self.disk.create(UNFINISHED)?;
        self.disk.append(UNFINISHED, &header)?;
        self.disk.append(UNFINISHED, &self.pending)?;
        self.disk.sync(UNFINISHED)?;
        // If one of this name is there, it has no record that was called durable.
        self.disk.rename(UNFINISHED, &segment_name(first))?;
        self.disk.sync_directory("")?;
        if self.segments.last() != Some(&first) {
            if let Some(last) = self.segments.last() {
                self.disk.close(&segment_name(*last));
            }
            self.segments.push(first);
        }
        debug!(first = first.0, "a segment of the log begins");
        self.active_bytes = (HEADER_LEN + self.pending.len()) as u64;
        Ok(())
    }

    fn has_records(&self) -> bool {
        self.active_bytes > HEADER_LEN as u64
    }

    fn active_name(&self) -> String {
        segment_name(*self.segments.last().expect("a log has a segment"))
    }

    /// The newest record that is durable; [`RecordNumber::NONE`] if there is none.
    #[must_use]
    pub fn durable(&self) -> RecordNumber {
        self.durable
    }

    /// The newest record that was appended.
    #[must_use]
    pub fn newest(&self) -> RecordNumber {
        self.newest
    }

    /// Bytes that wait for a sync.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.pending.len()
    }

    /// The first records of its files, rising.
    #[must_use]
    pub fn segments(&self) -> &[RecordNumber] {
        &self.segments
    }

    /// Removes files that hold only records before `number`: those that every checkpoint that may still be loaded
    /// covers. The file that is written to stays.
    ///
    /// # Errors
    /// The disk refused. Some of the files may be gone; another call goes on.
    pub fn remove_before(&mut self, number: RecordNumber) -> Result<(), DiskError> {
        let mut removed = false;
        while self.segments.get(1).is_some_and(|second| *second <= number) {
            debug!(first = self.segments[0].0, "a segment of the log is removed");
            remove_if_there(&self.disk, &segment_name(self.segments[0]))?;
            self.segments.remove(0);
            removed = true;
        }
        // A crash may bring back any of them. They are older than the records that the owner asks for when it opens the log.
        if removed { self.disk.sync_directory("") } else { Ok(()) }
    }

    /// Makes all records durable, and marks the log as closed: from then on any damage to it can be distinguished from a tail that
    /// a crash tore.
    ///
    /// # Errors
    /// The disk refused. The log can be opened all the same.
    pub fn close(mut self) -> Result<(), SyncError> {
        self.sync()?;
        // If it does not come to be there, nothing but the certainty is missing.
        let mut mark = Vec::new();
        encode_mark(&mut mark, self.salt, self.newest.next(), self.durable);
        let name = self.active_name();
        let synced = self.disk.append(&name, &mark).and_then(|()| self.disk.sync(&name));
        self.disk.close(&name);
        synced.map_err(|cause| SyncError { durable: self.durable, waiting: 0, cause })
    }
}

#[cfg(test)]
mod tests;
