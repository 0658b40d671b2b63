//! Requests of a server to its disk, and events of the disk.
//!
//! A server does no I/O: it reports what is to be written as an event ([`ServerEvent::Storage`](crate::ServerEvent)), and its
//! driver reports the result as a command. `libra-storage` carries it out.

use libra_store::{RowBlock, TableSpec};

use crate::cluster::Upload;
use crate::work::Position;

/// A request of a server to its disk. Requests of the log are to be done in order, and so are those of a checkpoint; a log
/// must not wait for a checkpoint.
#[derive(Debug, Clone, PartialEq)]
pub enum StorageRequest {
    /// Make a place for this shard, which nothing is in yet, or what an earlier run of the job has left. Comes first, and is answered if it
    /// cannot be done.
    Create {
        /// The job.
        job: u16,
        /// The shard.
        shard: u16,
        /// True if there will be a log.
        log: bool,
        /// True if the job resumes one whose shard may be there.
        resumes: bool,
    },
    /// Read the rows of a checkpoint, of however many shards, but for those that are of another shard for certain: answered by [`StorageEvent::Loaded`] for some rows, or by
    /// [`StorageEvent::LoadEnded`].
    Load {
        /// The data directory that it is in.
        directory: String,
        /// Its number.
        number: u64,
        /// The seed of the job, which must be that of the checkpoint.
        seed: u64,
        /// The tables of the job, which must be those of the checkpoint.
        tables: Vec<TableSpec>,
        /// The shard, and the number of shards of the job.
        shard: (u16, u16),
        /// True if the states of its shards are wanted, too.
        states: bool,
    },
    /// Send the next rows of that checkpoint: those before are in the store.
    LoadNext,
    /// Add a record to the log: answered by [`StorageEvent::Durable`], one answer for as many as were synced together.
    Append {
        /// Its number, one above that of the record before.
        number: u64,
        /// Bytes to write.
        record: Vec<u8>,
    },
    /// Restart the log: a checkpoint has everything before this record. What was appended from it on is still to be written.
    RestartLog {
        /// The first record.
        from: u64,
    },
    /// No checkpoint that is kept needs the records before this one.
    TrimLog {
        /// The first record that is needed.
        before: u64,
    },
    /// Begin a checkpoint: nothing is answered.
    Begin(Box<CheckpointHead>),
    /// Rows of that checkpoint: answered by [`StorageEvent::RowsWritten`].
    Rows(RowBlock),
    /// The end of that checkpoint: answered by [`StorageEvent::Checkpointed`] or [`StorageEvent::CheckpointFailed`].
    Finish {
        /// State that the server needs beside rows.
        state: Vec<u8>,
    },
    /// Give up the checkpoint that was begun.
    Abandon,
    /// Upload a checkpoint that is there, with what it builds on: answered by [`StorageEvent::Uploaded`].
    Upload {
        /// Its number.
        number: u64,
        /// The place.
        to: Upload,
        /// Bytes to send in a second, at most.
        bytes_per_second: u64,
    },
}

/// Description of a checkpoint in itself.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckpointHead {
    /// Its number, above all before.
    pub number: u64,
    /// The checkpoint that it builds on; a full one has none.
    pub base: Option<u64>,
    /// The newest record of the log whose effect is in it.
    pub covers: u64,
    /// The job.
    pub job: u16,
    /// The seed that first values follow from.
    pub seed: u64,
    /// The shard, and how many there are.
    pub shard: u16,
    /// Number of shards.
    pub shards: u16,
    /// The tables of the job, and how many steps each has made in this shard.
    pub tables: Vec<(TableSpec, u64)>,
    /// The position of the job; none without work.
    pub position: Option<Position>,
    /// Number of checkpoints to keep when this one is there.
    pub keep: usize,
    /// Others that are kept: the newest that all shards have, and the one that was requested last, which they may have. None: nothing is
    /// removed (rule L11).
    pub besides: Option<[u64; 2]>,
}

/// An event of a server's disk.
#[derive(Debug, Clone, PartialEq)]
pub enum StorageEvent {
    /// There is no place for the shard, or nothing can be loaded: the server cannot do its part.
    Failed {
        /// The reason, in words for a person.
        reason: String,
    },
    /// The log is durable up to this record.
    Durable {
        /// Its number.
        record: u64,
    },
    /// The log could not be written for some time. What waited is dropped, and no record is taken until it restarts.
    LogFailed {
        /// The reason, in words for a person.
        reason: String,
    },
    /// One [`StorageRequest::Rows`] was taken, and its memory is free.
    RowsWritten,
    /// A checkpoint is there, durable.
    Checkpointed {
        /// Its number.
        number: u64,
        /// The first record of the log that a checkpoint that is kept still needs.
        log_from: u64,
    },
    /// A checkpoint could not be written; what was there is removed.
    CheckpointFailed {
        /// Its number.
        number: u64,
        /// The reason, in words for a person.
        reason: String,
    },
    /// An upload has ended. The checkpoint is on the disk, whatever came of that.
    Uploaded {
        /// Its number.
        number: u64,
        /// Bytes that were sent.
        bytes: u64,
        /// The reason why it was not uploaded, in words for a person.
        failure: Option<String>,
    },
    /// Rows of the checkpoint that is to be loaded, those of other shards among them.
    Loaded(RowBlock),
    /// All of them were sent.
    LoadEnded {
        /// Number of steps of each table.
        steps: Vec<u64>,
        /// The states of its shards, if they were wanted: as in [`StorageRequest::Finish`].
        states: Vec<Vec<u8>>,
    },
}
