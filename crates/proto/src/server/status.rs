//! Durations that a shard has measured, for its status.

use core::time::Duration;

use super::shard::Shard;
use crate::histogram::Histogram;
use crate::status::{ServerDetails, UploadStatus};
use crate::time::Instant;

/// Durations of what its disk does.
#[derive(Debug, Clone, Default)]
pub(super) struct DiskTimes {
    log_sync: Histogram,
    /// The newest record at a moment, and that moment, until the log has the record.
    syncing: Option<(u64, Instant)>,
    checkpoint: Histogram,
    checkpoint_at: Option<Instant>,
    upload: UploadStatus,
    /// Uploads that have not ended, and when they were asked for.
    uploads: Vec<(u64, Instant)>,
}

impl DiskTimes {
    /// The log is durable up to a record, or nothing waits for it any more.
    pub(super) fn synced(&mut self, now: Instant, record: u64) {
        if let Some((_, since)) = self.syncing.take_if(|(awaited, _)| *awaited <= record) {
            self.log_sync.record(now.since(since));
        }
    }

    /// A checkpoint is there that took so long.
    pub(super) fn checkpointed(&mut self, now: Instant, took: Duration) {
        self.checkpoint.record(took);
        self.checkpoint_at = Some(now);
    }

    /// The upload of a checkpoint is asked for.
    pub(super) fn uploading(&mut self, now: Instant, number: u64) {
        self.uploads.push((number, now));
    }

    /// The upload of a checkpoint has ended.
    pub(super) fn uploaded(&mut self, now: Instant, number: u64, bytes: u64, is_there: bool) {
        self.upload.bytes += bytes;
        let begun = self.uploads.extract_if(.., |(uploading, _)| *uploading == number).last();
        match begun {
            Some((_, since)) if is_there => {
                self.upload.seconds.record(now.since(since));
                self.upload.number = number;
            }
            _ => self.upload.failed += u64::from(!is_there),
        }
    }
}

impl Shard {
    /// Records were written to the log: measures how long it takes for the newest to be durable, one after the other.
    pub(super) fn time_log(&mut self, now: Instant) {
        if self.disk_times.syncing.is_none() && !self.journal.has(self.journal.newest()) {
            self.disk_times.syncing = Some((self.journal.newest(), now));
        }
    }

    pub(super) fn details(&self, now: Instant) -> ServerDetails {
        let DiskTimes { log_sync, checkpoint, checkpoint_at, upload, .. } = self.disk_times;
        ServerDetails {
            store_bytes: self.store.memory_bytes() as u64,
            log_sync,
            checkpoint,
            checkpoint_age: checkpoint_at.map(|at| now.since(at)),
            is_log_suspended: self.journal.is_suspended(),
            upload,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn one_record_is_timed_until_the_log_has_it() {
        let mut times = DiskTimes { syncing: Some((5, at(10))), ..DiskTimes::default() };
        times.synced(at(12), 4);
        assert_eq!(times.log_sync.count(), 0);
        times.synced(at(15), 7);
        times.synced(at(20), 9);
        assert_eq!((times.log_sync.count(), times.log_sync.sum()), (1, Duration::from_millis(5)));
    }

    #[test]
    fn uploads_that_overlap_are_timed_each() {
        let mut times = DiskTimes::default();
        times.uploading(at(10), 4);
        times.uploading(at(20), 5);
        times.uploaded(at(30), 4, 100, true);
        times.uploaded(at(60), 5, 10, false);
        times.uploading(at(100), 6);
        times.uploaded(at(130), 6, 1, true);
        let UploadStatus { seconds, number, failed, bytes } = times.upload;
        assert_eq!((seconds.count(), seconds.sum()), (2, Duration::from_millis(50)));
        assert_eq!((number, failed, bytes), (6, 1, 111));
        assert_eq!(times.uploads, []);
    }
}
