//! Durations that a shard has measured, for its status.

use core::time::Duration;

use super::shard::Shard;
use crate::histogram::Histogram;
use crate::status::ServerDetails;
use crate::time::Instant;

/// Durations of what its disk does.
#[derive(Debug, Clone, Default)]
pub(super) struct DiskTimes {
    log_sync: Histogram,
    /// The newest record at a moment, and that moment, until the log has the record.
    syncing: Option<(u64, Instant)>,
    checkpoint: Histogram,
    checkpoint_at: Option<Instant>,
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
}

impl Shard {
    /// Records were written to the log: measures how long it takes for the newest to be durable, one after the other.
    pub(super) fn time_log(&mut self, now: Instant) {
        if self.disk_times.syncing.is_none() && !self.journal.has(self.journal.newest()) {
            self.disk_times.syncing = Some((self.journal.newest(), now));
        }
    }

    pub(super) fn details(&self, now: Instant) -> ServerDetails {
        let DiskTimes { log_sync, checkpoint, checkpoint_at, .. } = self.disk_times;
        ServerDetails {
            store_bytes: self.store.memory_bytes() as u64,
            log_sync,
            checkpoint,
            checkpoint_age: checkpoint_at.map(|at| now.since(at)),
            is_log_suspended: self.journal.is_suspended(),
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
}
