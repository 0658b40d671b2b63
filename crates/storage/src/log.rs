//! The log of a shard.

use std::collections::VecDeque;

use libra_durable::disk::{Disk, DiskError};
use libra_durable::log::{AppendError, Log, OpenError, RecordNumber, Settings, SyncError};

/// Records that wait until the log begins anew take at most so much memory.
const WAITING_BYTES_MAX: usize = 256 << 20;

/// The log of a shard. When the disk does not take it, it is [given up](Self::give_up), and begins anew after a checkpoint.
#[derive(Debug)]
pub struct ShardLog<D> {
    disk: D,
    settings: Settings,
    /// None while it is given up.
    log: Option<Log<D>>,
    /// What was appended while it was given up: some of it goes into the next log.
    waiting: VecDeque<(u64, Vec<u8>)>,
    waiting_bytes: usize,
}

impl<D: Disk + Clone> ShardLog<D> {
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
        Self { disk, settings, log: Some(log), waiting: VecDeque::new(), waiting_bytes: 0 }
    }

    /// Adds a record: it is in memory until [`sync`](Self::sync).
    ///
    /// # Errors
    /// Too much waits for the disk. The log should be given up.
    ///
    /// # Panics
    /// The number does not follow that of the record before.
    pub fn append(&mut self, number: u64, record: &[u8]) -> Result<(), AppendError> {
        let Some(log) = &mut self.log else {
            self.wait(number, record.to_vec());
            return Ok(());
        };
        let appended = log.append(record)?;
        assert_eq!(appended.0, number, "the server numbers records as the log does");
        Ok(())
    }

    fn wait(&mut self, number: u64, record: Vec<u8>) {
        self.waiting_bytes += record.len();
        self.waiting.push_back((number, record));
        // A log that begins anew must have all from there on: it will begin after a later checkpoint.
        while self.waiting_bytes > WAITING_BYTES_MAX {
            let Some((_, record)) = self.waiting.pop_front() else { break };
            self.waiting_bytes -= record.len();
        }
    }

    /// Makes durable what was appended, by one sync. Says up to which record it is, if that is news.
    ///
    /// # Errors
    /// The disk refused. What was appended waits for the next call.
    pub fn sync(&mut self) -> Result<Option<u64>, SyncError> {
        let Some(log) = &mut self.log else { return Ok(None) };
        if log.durable() == log.newest() {
            return Ok(None);
        }
        Ok(Some(log.sync()?.0))
    }

    /// Lets go of the log, and of what was not synced.
    pub fn give_up(&mut self) {
        self.log = None;
    }

    /// Begins a log again that was given up, and says up to which record it is durable. A checkpoint has everything before record
    /// `from`.
    ///
    /// # Errors
    /// The disk refused, or records from there on were dropped because they were too many: the log stays given up.
    pub fn restart(&mut self, from: u64) -> Result<u64, RestartError> {
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
        // What may be there from that record on was never called durable.
        let (log, _) =
            Log::open(self.disk.clone(), self.settings.clone(), RecordNumber(from), |_, _| Ok(()))?;
        Ok(log)
    }

    /// Removes files that hold only records before this one.
    ///
    /// # Errors
    /// The disk refused; it can be tried again.
    pub fn trim(&mut self, before: u64) -> Result<(), DiskError> {
        self.log.as_mut().map_or(Ok(()), |log| log.remove_before(RecordNumber(before)))
    }

    /// Syncs the log, and marks its end.
    ///
    /// # Errors
    /// The disk refused.
    pub fn close(self) -> Result<(), SyncError> {
        self.log.map_or(Ok(()), Log::close)
    }
}

/// Why a log could not begin anew.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestartError {
    /// Too much was appended while there was no log.
    #[error("the log cannot begin with record {from}: what is still in memory begins with record {first}")]
    Missing {
        /// Where it should begin.
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
        operation: libra_durable::disk::Operation::Open,
        path: "the log".to_owned(),
        source: std::io::Error::new(std::io::ErrorKind::AlreadyExists, reason.to_owned()),
    }
}
