//! The interface of a worker to its user: commands and events.

use super::hot::PathChange;
use super::operations::Level;
use crate::client::{ClientError, PullId, Pulled, Tick};
use crate::cluster::Cluster;
use crate::membership::EndCause;
use crate::message::TablePage;
use crate::statistics::TrainingCounts;
use crate::work::AddedPhases;

/// Commands of a user to a worker. The user numbers operations, each number once.
#[derive(Debug, Clone, PartialEq)]
pub enum WorkerCommand {
    /// Read rows.
    Pull {
        /// The operation.
        id: PullId,
        /// Distinct keys.
        keys: Vec<u64>,
    },
    /// Add gradients to rows, laid out one behind the other. A key that occurs twice has its gradients summed.
    Push {
        /// The operation.
        number: u64,
        /// Keys.
        keys: Vec<u64>,
        /// Gradients of their rows.
        gradients: Vec<f32>,
        /// When it counts as done.
        level: Level,
    },
    /// Add gradients to rows and read the same rows in one trip. A hot row answers with the value it has while the
    /// gradient waits for the end of its round. Completes like a pull; `keys` of the answer are distinct.
    PushPull {
        /// The operation.
        id: PullId,
        /// Keys.
        keys: Vec<u64>,
        /// Gradients of their rows.
        gradients: Vec<f32>,
    },
    /// Set rows of a table. Done when the new values can be read: then [`WorkerEvent::Pushed`] comes.
    Assign {
        /// The operation.
        number: u64,
        /// The rows.
        rows: AssignedRows,
    },
    /// Make all rows of a table those that never had a gradient. Done likewise.
    Reset {
        /// The operation.
        number: u64,
        /// The position of the table in [`Cluster::tables`].
        table: u16,
        /// Number of steps of the table, which its schedule depends on.
        steps: u64,
    },
    /// Read the rows that a shard keeps of a table, as many as fit a page: then [`WorkerEvent::Scanned`] comes.
    Scan {
        /// The operation.
        number: u64,
        /// The shard.
        shard: u16,
        /// The position of the table in [`Cluster::tables`].
        table: u16,
        /// [`TablePage::next`] of the page before.
        after: Option<u64>,
    },
    /// Report when every push so far is visible.
    Flush {
        /// The operation.
        number: u64,
    },
    /// Report when every worker has come to this barrier.
    Barrier {
        /// Counted from zero.
        number: u64,
    },
    /// Ask for so many leases of chunks at a time from now on (rule K2).
    Lease {
        /// Number of leases.
        wanted: u16,
    },
    /// All pushes of a chunk that it has a lease of are begun: the chunk is done when they are visible (rule K3).
    FinishChunk {
        /// The chunk.
        chunk: u32,
        /// The account of this worker in this phase, up to and with this chunk, for the front end of the controller.
        account: String,
    },
    /// Advance the clock of this worker by one.
    Tick(Tick),
    /// The progress of its training, for those who watch.
    Training(TrainingCounts),
    /// The task is done, this is its result. The worker ends when the controller has received the reports of all.
    Report {
        /// The account, for the user of the controller.
        text: String,
    },
    /// This worker goes, and the others go on without it. A user who wants its pushes to stay flushes first.
    Leave {
        /// True if another is to come in its place: a job without a worker then waits for one.
        returns: bool,
    },
    /// End the job for all members.
    Abort {
        /// The reason.
        reason: String,
    },
}

/// Rows of a table, and what they are set to.
#[derive(Debug, Clone, PartialEq)]
pub struct AssignedRows {
    /// The position of the table in [`Cluster::tables`].
    pub table: u16,
    /// Distinct keys.
    pub keys: Vec<u64>,
    /// Values of their rows one after the other.
    pub values: Vec<f32>,
    /// States of their optimizers one after the other; empty: those of rows that never had a gradient.
    pub states: Vec<f32>,
}

/// Events that a worker reports to its user.
#[derive(Debug, Clone, PartialEq)]
pub enum WorkerEvent {
    /// The cluster is complete and this worker is connected.
    Started {
        /// The number of this worker.
        worker: u16,
        /// Its share of the task, below [`Cluster::shares`].
        share: u16,
        /// The number of its first barrier: zero, unless it takes the place of a worker that is gone.
        barrier: u64,
        /// The cluster.
        cluster: Box<Cluster>,
    },
    /// A pull, or a push with pull, is complete.
    Pulled(PullId, Pulled),
    /// The answer to a scan.
    Scanned {
        /// The operation.
        number: u64,
        /// The rows.
        page: TablePage,
    },
    /// A push has reached its level, or rows are set.
    Pushed {
        /// The operation.
        number: u64,
    },
    /// An operation cannot be carried out. Nothing of it was sent, unless a server refused it
    /// ([`ClientError::Refused`]): then all other answers have come.
    Refused {
        /// The operation.
        number: u64,
        /// The reason.
        error: ClientError,
    },
    /// Every push before this flush is visible.
    Flushed {
        /// The operation.
        number: u64,
    },
    /// Every worker has come to the barrier.
    Released {
        /// The barrier.
        number: u64,
    },
    /// These chunks are its own to do from now on.
    Leased {
        /// The chunks.
        chunks: Vec<u32>,
        /// The ticks by which its clock has advanced by itself: it goes on from the slowest of the others.
        skipped: u64,
    },
    /// The phases of open work, as they are now (rule K9).
    PhasesAdded(Box<AddedPhases>),
    /// No worker that trains is behind this since the last barrier. A pull that begins now reads what their ticks have made visible.
    Clocks {
        /// The least of their clocks.
        least: u64,
    },
    /// Packets to a switch have another length from now on.
    PathChanged(PathChange),
    /// The user of the controller asks this worker to end in order, as SIGTERM does: its own user sees to that.
    DrainAsked,
    /// All workers have reported, or this one has left: the job is done.
    Finished,
    /// The job ended before it was done.
    Ended {
        /// The member that ended it, and its reason.
        reason: String,
        /// Whether the member may come back.
        cause: EndCause,
    },
}
