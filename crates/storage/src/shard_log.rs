//! The log of a shard.

use core::time::Duration;
use std::collections::VecDeque;

use crate::disk::{Disk, DiskError};
use crate::wal::{AppendError, Log, OpenError, RecordNumber, Settings, SyncError};
use libra_proto::{Instant, StorageEvent, StorageRequest};

/// Time for which the log may fail before the server goes on without: its workers wait as long.
const PATIENCE: Duration = Duration::from_secs(1);

/// Records that wait until the log begins again take at most so much memory.
const WAITING_BYTES_MAX: usize = 256 << 20;

/// The log of a shard. When the disk does not take it for a second, it is given up, and begins again after a checkpoint.
#[derive(Debug)]
pub struct ShardLog<D> {
    disk: D,
    settings: Settings,
    /// None while it is given up.
    log: Option<Log<D>>,
    /// Records appended while it was given up: some of them go into the next log.
    waiting: VecDeque<(u64, Vec<u8>)>,
    waiting_bytes: usize,
    /// The reason for which a record could not be appended: the log is given up at the next sync.
    refused: Option<AppendError>,
    failing_since: Option<Instant>,
}

impl<D: Disk + Clone> ShardLog<D> {
    /// A log that did not sync should be asked again after this.
    pub const RETRY_PAUSE: Duration = Duration::from_millis(50);

    /// Begins the log of a new shard.
    ///
    /// # Errors
    /// The disk refused, or there is a log already.
    pub fn begin(disk: D, job: u16, shard: u16) -> Result<Self, OpenError> {
        let settings = Settings::new(job.into(), shard.into());
        let (log, recovery) = Log::open(disk.clone(), settings.clone(), RecordNumber::NONE, |_, _| Ok(()))?;
        if recovery.newest > RecordNumber::NONE {
            let reason = format!("there is a log with {} records already", recovery.newest);
            return Err(OpenError::Disk(refused(&reason)));
        }
        Ok(Self::of(disk, settings, log))
    }

    /// Goes on with a log that was read.
    pub(crate) fn of(disk: D, settings: Settings, log: Log<D>) -> Self {
        Self {
            disk,
            settings,
            log: Some(log),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            refused: None,
            failing_since: None,
        }
    }

    /// Carries out a request about the log; returns an immediate event for the server. An appended record is in memory until [`sync`](Self::sync).
    ///
    /// # Panics
    /// It is about something else, or the number of a record does not follow that of the one before.
    pub fn handle(&mut self, request: StorageRequest) -> Option<StorageEvent> {
        match request {
            StorageRequest::Append { number, record } => {
                self.append(number, record);
                None
            }
            StorageRequest::RestartLog { from } => Some(match self.restart(from) {
                Ok(record) => StorageEvent::Durable { record },
                Err(error) => StorageEvent::LogFailed { reason: error.to_string() },
            }),
            StorageRequest::TrimLog { before } => {
                // Files that cannot be removed cost room, no more; the next checkpoint tries again.
                let _ = self.log.as_mut().map(|log| log.remove_before(RecordNumber(before)));
                None
            }
            other => panic!("{other:?} is not about the log"),
        }
    }

    fn append(&mut self, number: u64, record: Vec<u8>) {
        match &mut self.log {
            None => self.wait(number, record),
            // One is missing already, and the log is about to be given up.
            Some(_) if self.refused.is_some() => {}
            Some(log) => match log.append(&record) {
                Ok(appended) => {
                    assert_eq!(appended.0, number, "the server numbers records as the log does");
                }
                Err(error) => self.refused = Some(error),
            },
        }
    }

    fn wait(&mut self, number: u64, record: Vec<u8>) {
        self.waiting_bytes += record.len();
        self.waiting.push_back((number, record));
        // A log that begins again must have all from there on: it will begin after a later checkpoint.
        while self.waiting_bytes > WAITING_BYTES_MAX {
            let Some((_, record)) = self.waiting.pop_front() else { break };
            self.waiting_bytes -= record.len();
        }
    }

    /// Makes appended records durable, by one sync; returns the newest if there are new ones. While the disk refuses, the log
    /// [lags](Self::lags) and waits for the next call; in the end it is given up.
    pub fn sync(&mut self, now: Instant) -> Option<StorageEvent> {
        let log = self.log.as_mut()?;
        if let Some(error) = self.refused.take() {
            return Some(self.give_up(&error));
        }
        if log.durable() == log.newest() {
            return None;
        }
        match log.sync() {
            Ok(record) => {
                self.failing_since = None;
                Some(StorageEvent::Durable { record: record.0 })
            }
            Err(error) => {
                let since = *self.failing_since.get_or_insert(now);
                (now.since(since) >= PATIENCE).then(|| self.give_up(&error))
            }
        }
    }

    /// Returns true if the disk has refused, now or when the log was read, and should be asked again after [`RETRY_PAUSE`](Self::RETRY_PAUSE).
    pub fn lags(&self) -> bool {
        self.log.as_ref().is_some_and(|log| log.durable() < log.newest())
    }

    /// The newest record that is durable; `None` while the log is given up.
    pub(crate) fn durable(&self) -> Option<u64> {
        self.log.as_ref().map(|log| log.durable().0)
    }

    /// Gives up the log, and records that were not synced.
    fn give_up(&mut self, why: &dyn core::fmt::Display) -> StorageEvent {
        self.log = None;
        self.failing_since = None;
        StorageEvent::LogFailed { reason: why.to_string() }
    }

    /// Begins a log again that was given up, and returns the newest durable record. A checkpoint has everything before record
    /// `from`.
    ///
    /// # Errors
    /// The disk refused, or records from there on were dropped because they were too many: the log stays given up.
    fn restart(&mut self, from: u64) -> Result<u64, RestartError> {
        while self.waiting.front().is_some_and(|(number, _)| *number < from) {
            self.waiting.pop_front();
        }
        let first = self.waiting.front().map_or(from, |(number, _)| *number);
        if first != from {
            self.waiting_bytes = self.waiting.iter().map(|(_, record)| record.len()).sum();
            return Err(RestartError::Missing { from, first });
        }
        let mut log = self.open(from).map_err(RestartError::Open)?;
        for (_, record) in &self.waiting {
            log.append(record).map_err(RestartError::Append)?;
        }
        let durable = log.sync().map_err(RestartError::Sync)?;
        self.log = Some(log);
        self.waiting.clear();
        self.waiting_bytes = 0;
        Ok(durable.0.max(from - 1))
    }

    fn open(&self, from: u64) -> Result<Log<D>, OpenError> {
        // Records that may be there from that one on were never called durable.
        let (log, _) =
            Log::open(self.disk.clone(), self.settings.clone(), RecordNumber(from), |_, _| Ok(()))?;
        Ok(log)
    }

    /// Syncs the log, and marks its end.
    ///
    /// # Errors
    /// The disk refused.
    pub fn close(self) -> Result<(), SyncError> {
        self.log.map_or(Ok(()), Log::close)
    }
}

/// The reason for which a log could not begin again.
#[derive(Debug, thiserror::Error)]
enum RestartError {
    /// Too much was appended while there was no log.
    #[error("the log cannot begin with record {from}: the records still in memory begin with {first}")]
    Missing {
        /// The record with which it should begin.
        from: u64,
        /// The first record that is there.
        first: u64,
    },
    /// The disk refused to begin it.
    #[error(transparent)]
    Open(OpenError),
    /// Too much waits.
    #[error(transparent)]
    Append(AppendError),
    /// The disk refused to write it.
    #[error(transparent)]
    Sync(SyncError),
}

fn refused(reason: &str) -> DiskError {
    DiskError {
        operation: crate::disk::Operation::Open,
        path: "the log".to_owned(),
        cause: std::io::Error::new(std::io::ErrorKind::AlreadyExists, reason.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::SimulatedDisk;

    #[test]
    fn a_log_that_was_read_on_a_full_disk_lags_until_there_is_room() {
        let disk = SimulatedDisk::new(1);
        let mut log = ShardLog::begin(disk.clone(), 1, 0).unwrap();
        log.handle(StorageRequest::Append { number: 1, record: vec![7; 40] });
        assert_eq!(log.sync(Instant::ZERO), Some(StorageEvent::Durable { record: 1 }));
        drop(log);
        // The next process reads the record, which nothing shows to be durable.
        disk.set_capacity(Some(disk.used()));
        let settings = Settings::new(1, 0);
        let (opened, _) =
            Log::open(disk.clone(), settings.clone(), RecordNumber::NONE, |_, _| Ok(())).unwrap();
        let mut log = ShardLog::of(disk.clone(), settings, opened);
        assert_eq!((log.durable(), log.lags()), (Some(0), true));
        assert_eq!(log.sync(Instant::ZERO), None);
        assert!(log.lags());
        disk.set_capacity(None);
        assert_eq!(log.sync(Instant::ZERO), Some(StorageEvent::Durable { record: 1 }));
        assert!(!log.lags());
    }
}
