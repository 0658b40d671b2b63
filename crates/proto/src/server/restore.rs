//! A server that goes on where one before it stopped: from its newest checkpoint, and what is in the log after it (rule L3).

use core::net::SocketAddr;

use libra_dataplane::mutants::{Mutant, is_enabled};
use libra_store::RowBlock;
use thiserror::Error;

use super::Server;
use super::journal::{Journal, Record};
use super::memory_limit::MemoryLimit;
use super::shard::Shard;
use super::snapshot::State;

/// Reason for which a server cannot go on from its disk.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RestoreError {
    /// The state of a checkpoint was written by another version of Libra, or by something else.
    #[error("the state of the checkpoint is not one of this version of libra: {0}")]
    State(String),
    /// The job was done.
    #[error(
        "the job that it is of was done; another job can begin with its rows (--restore-from), in another directory"
    )]
    Done,
    /// Rows do not fit the shard and the tables that the state names.
    #[error("rows of the checkpoint do not fit its state: {0}")]
    Rows(String),
    /// Its rows cannot be moved between memory and disk, or take more memory than they may.
    #[error("{0}")]
    Store(String),
    /// A record of the log was written by another version of Libra, or by something else.
    #[error("record {number} of the log is not one of this version of libra: {reason}")]
    Record {
        /// Its number.
        number: u64,
        /// Description of the fault.
        reason: String,
    },
}

/// A shard while it is read from a disk: first the state, then the rows, then the records of the log.
#[derive(Debug)]
pub struct Restored {
    shard: Shard,
    newest: u64,
    /// The newest record that is durable.
    durable: u64,
    /// Bytes of the records.
    log_bytes: u64,
    /// True once all rows of the checkpoint are there, and what comes is a change.
    has_rows: bool,
}

impl Restored {
    /// Begins with the state of a checkpoint, which covers the log up to record `covers`.
    ///
    /// # Errors
    /// [`RestoreError::State`].
    pub fn new(state: &[u8], covers: u64) -> Result<Self, RestoreError> {
        Self::with_memory_limit(state, covers, None)
    }

    /// The same with a limit of memory, which is in force from here on.
    ///
    /// # Errors
    /// [`RestoreError::State`].
    pub fn with_memory_limit(
        state: &[u8],
        covers: u64,
        memory_limit: Option<MemoryLimit>,
    ) -> Result<Self, RestoreError> {
        let state = State::of_bytes(state).map_err(RestoreError::State)?;
        let State { number, cluster, pushed, regions, steps, statistics, checkpoints, admission, work_done } =
            state;
        if checkpoints.is_last {
            return Err(RestoreError::Done);
        }
        let journal = Journal::new(false, covers);
        let mut shard = Shard::new(number, cluster, journal, memory_limit).map_err(RestoreError::State)?;
        if steps.len() != shard.store.tables().len() || !shard.regions.keys().eq(regions.keys()) {
            return Err(RestoreError::State("its tables or regions are not those of its cluster".to_owned()));
        }
        for (table, steps) in steps.into_iter().enumerate() {
            shard.store.set_steps(table, steps);
        }
        for (table, counts) in admission {
            let has_table = table < shard.store.tables().len();
            if !has_table || shard.store.restore_admission(table, &counts.0).is_err() {
                return Err(RestoreError::State(
                    "what it counted for admission is of another table".to_owned(),
                ));
            }
        }
        for (region, (committed, contents)) in shard.regions.values_mut().zip(regions.into_values()) {
            (region.committed, region.contents) = (committed, contents);
        }
        (shard.pushed, shard.statistics, shard.checkpoints) = (pushed, statistics, checkpoints);
        shard.work_done = work_done;
        // What became of checkpoints meanwhile, only the controller knows.
        shard.complete_checkpoint = None;
        shard.statistics.checkpoint = checkpoints.newest;
        Ok(Self { shard, newest: covers, durable: u64::MAX, log_bytes: 0, has_rows: false })
    }

    /// Returns the instance of the job and the number of the shard that the state of a checkpoint is of, if it is one.
    pub fn whose(state: &[u8]) -> Option<(u64, u16)> {
        let State { number, cluster, .. } = State::of_bytes(state).ok()?;
        Some((cluster.instance, number))
    }

    /// Adds rows of the checkpoint: an increment after what it builds on.
    ///
    /// # Errors
    /// [`RestoreError::Rows`].
    pub fn rows(&mut self, rows: &RowBlock) -> Result<(), RestoreError> {
        if !self.shard.owns(&rows.keys) || !self.shard.owns(&rows.removed) {
            return Err(RestoreError::Rows("some of them are of other shards".to_owned()));
        }
        self.shard.put(rows).map_err(|error| RestoreError::Rows(error.to_string()))?;
        self.check_store()
    }

    /// Applies a record of the log again. Numbers ascend by ones.
    ///
    /// # Errors
    /// [`RestoreError::Record`].
    pub fn record(&mut self, number: u64, record: &[u8]) -> Result<(), RestoreError> {
        self.end_rows();
        let bytes = record.len() as u64;
        let shard = &mut self.shard;
        let wrong = |reason: &str| RestoreError::Record { number, reason: reason.to_owned() };
        let record = postcard::from_bytes(record).map_err(|error| wrong(&error.to_string()))?;
        match record {
            Record::View(view) if view.servers.len() != shard.cluster.view.servers.len() => {
                return Err(wrong("a view with another number of servers"));
            }
            Record::View(view) => shard.apply_view(view),
            Record::Push { worker, number, keys, gradients } => {
                let applied = shard.apply_written_push(worker, number, &keys, &gradients.0);
                applied.map_err(|_| wrong("a push of rows that are not here"))?;
            }
            Record::Round(drained) => {
                shard.apply_written_round(drained).map_err(|_| wrong("a round that does not fit"))?;
            }
            // Its packets before the violation count.
            Record::Replay { worker, replay } => drop(shard.apply_replay(worker, replay)),
            Record::Forgotten { region, round, contents } => {
                shard.forget(region, round, contents).map_err(|_| wrong("rounds that do not fit"))?;
            }
            Record::Assign { worker, assign } => {
                shard.apply_written_assign(worker, &assign).map_err(|_| wrong("rows that do not fit"))?;
            }
            Record::Reset { worker, reset } => {
                shard.apply_written_reset(worker, &reset).map_err(|_| wrong("a table that is not here"))?;
            }
            Record::Evicted { keys } => {
                if !shard.owns(&keys.0) {
                    return Err(wrong("it has rows of other shards"));
                }
                shard.evict_again(&keys.0).map_err(|error| wrong(&error.to_string()))?;
            }
        }
        self.newest = number;
        self.log_bytes += bytes;
        self.check_store()
    }

    fn check_store(&self) -> Result<(), RestoreError> {
        self.shard.store_fault().map_or(Ok(()), |reason| Err(RestoreError::Store(reason)))
    }

    /// Notes that of the records that were read only those up to this one are durable: the disk refuses to take the others for now. No reply that
    /// rests on them is sent before it has (rule L1).
    pub fn durable_up_to(&mut self, record: u64) {
        self.durable = record;
    }

    /// Notes that there is a checkpoint of this number on the disk, which could not be used: the next one has a higher one.
    pub fn passed_over(&mut self, checkpoint: u64) {
        let highest = &mut self.shard.highest_checkpoint;
        *highest = checkpoint.max(*highest);
    }

    fn end_rows(&mut self) {
        if !core::mem::replace(&mut self.has_rows, true) {
            self.shard.track_changes();
        }
    }

    /// Returns the address at which workers and switches reach the shard: it must listen there again.
    pub fn address(&self) -> SocketAddr {
        self.shard.cluster.view.servers[usize::from(self.shard.number)]
    }

    /// The job that it is part of.
    pub fn job(&self) -> u16 {
        self.shard.cluster.job
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.shard.number
    }

    /// Returns true if it writes a log.
    pub fn has_log(&self) -> bool {
        self.shard.cluster.durability.log
    }

    /// Returns the number of its rows.
    pub fn row_count(&self) -> usize {
        self.shard.store.rows()
    }

    /// Returns the server, which will report to the controller that it is back, and that it accepts streams at `stream`.
    pub fn finish(mut self, stream: SocketAddr) -> Server {
        self.end_rows();
        let log = self.has_log();
        self.shard.journal =
            Journal::new(log, self.newest).with_durable(self.durable).with_bytes(self.log_bytes);
        self.shard.has_returned = true;
        self.shard.expect_owners();
        if is_enabled(Mutant::PushesForgotten) {
            self.shard.pushed.clear();
        }
        Server::returning(stream, self.shard)
    }
}
