//! The parameter server as a training loop sees it.

use thiserror::Error;

use crate::membership::EndCause;
use crate::statistics::ReadCounts;

/// Names one pull that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PullId(pub u64);

/// The answer to a pull.
#[derive(Debug, Clone, PartialEq)]
pub struct Pulled {
    /// The keys that were asked for, in the order they were asked for.
    pub keys: Vec<u64>,
    /// The rows of those keys one after the other, each as wide as its table.
    pub values: Vec<f32>,
}

/// Reason for which an operation of a worker could not be carried out.
#[derive(Debug, Error, Clone, PartialEq)]
#[non_exhaustive]
pub enum ClientError {
    /// No table holds this key.
    #[error("key {key} belongs to no table of this job")]
    UnknownKey {
        /// The key that was asked for.
        key: u64,
    },
    /// The gradients do not have the shape of the rows they are for.
    #[error("a push of {keys} rows needs {expected} gradient values, it has {found}")]
    WrongLength {
        /// Rows in the push.
        keys: usize,
        /// Values these rows have.
        expected: usize,
        /// Values that were given.
        found: usize,
    },
    /// A gradient is infinite or not a number: applying it would poison the row for every worker. Nothing of the push was sent.
    #[error("a gradient of row {key} of table \"{table}\" is not finite: value {lane} is {}", f32::from_bits(*.bits))]
    NotFinite {
        /// The name of the table.
        table: String,
        /// The row it is for.
        key: u64,
        /// The position of the value in the row.
        lane: usize,
        /// The bits of the value: what is not a number is equal to nothing. If the key occurs more than once, they may be those of a sum.
        bits: u32,
    },
    /// The same, found by a server: nothing of what it was to apply in that message is applied, while other rows of the push may be
    /// (rule C11).
    #[error("server {server} refused a push: value {lane} of the gradient of row {key} of table \"{table}\" is {}", f32::from_bits(*.bits))]
    Refused {
        /// The server.
        server: u16,
        /// The name of the table.
        table: String,
        /// The row it is for.
        key: u64,
        /// The position of the value in the row.
        lane: usize,
        /// The bits of the value.
        bits: u32,
    },
    /// The states do not have the shape of the rows they are for.
    #[error("states of {keys} rows of table \"{table}\" are {expected} values, not {found}")]
    WrongStates {
        /// The name of the table.
        table: String,
        /// Rows that are set.
        keys: usize,
        /// Values these rows have as states.
        expected: usize,
        /// Values that were given.
        found: usize,
    },
    /// The job has no table at this position.
    #[error("the job has {tables} tables, none at position {table}")]
    UnknownTable {
        /// The position.
        table: usize,
        /// Number of tables.
        tables: usize,
    },
    /// No pull of that name is under way.
    #[error("no pull {0:?} is under way")]
    UnknownPull(PullId),
    /// The controller does not take a report that long (rule S2).
    #[error("a report of {bytes} bytes is too long: at most {bytes_max} are allowed")]
    LongReport {
        /// Length of the message.
        bytes: usize,
        /// Upper bound of the length.
        bytes_max: usize,
    },
    /// This worker was asked to end, and its step is done: it is to leave now.
    #[error("this worker was asked to end")]
    Drained,
    /// The job ended before the operation did.
    #[error("the job ended: {reason}")]
    Ended {
        /// The member that ended it, and its reason.
        reason: String,
        /// Whether the member may come back.
        cause: EndCause,
    },
}

impl ClientError {
    /// Returns true if a worker may do better when it is started again, and nothing is changed before.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Drained | Self::Ended { cause: EndCause::Lost, .. })
    }
}

/// When a tick of a worker's clock counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tick {
    /// At once.
    Now,
    /// As soon as every push before it is visible, and every tick before it counts.
    Visible,
}

/// Progress of a training loop, for those who watch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TrainingNote {
    /// It will train on so many samples more.
    Plans {
        /// Number of samples.
        samples: u64,
    },
    /// It reads samples from now on.
    Reads,
    /// It has read so much up to now.
    Read(ReadCounts),
    /// It computes from now on.
    Computes,
    /// It has trained on a batch.
    Trained {
        /// Samples of the batch.
        samples: u64,
        /// Mean loss of the samples of the epoch so far.
        loss: f64,
    },
}

/// The interface that a training loop needs of a parameter server: read rows, add gradients, wait for the others.
///
/// For waiting there are barriers and, between two of them, clocks, which let a worker be some way ahead of others. A clock counts ticks
/// since the last barrier; what a tick means is the caller's business.
///
/// A worker of a cluster implements it over the network; a profile run implements it over a store in memory.
pub trait Parameters {
    /// Starts to read the rows of `keys`, which must be distinct.
    fn start_pull(&mut self, keys: Vec<u64>) -> Result<PullId, ClientError>;

    /// Waits for the answer to a pull.
    fn finish_pull(&mut self, pull: PullId) -> Result<Pulled, ClientError>;

    /// Reads the rows of `keys`, which must be distinct.
    fn pull(&mut self, keys: Vec<u64>) -> Result<Pulled, ClientError> {
        let pull = self.start_pull(keys)?;
        self.finish_pull(pull)
    }

    /// Adds gradients to rows, laid out as in [`Pulled`]. A key that occurs twice has its gradients summed.
    /// Returns as soon as the push is under way, and waits first when too much is under way already.
    fn push(&mut self, keys: Vec<u64>, gradients: Vec<f32>) -> Result<(), ClientError>;

    /// Waits until every push of this worker is visible: applied by its shard and readable.
    fn flush(&mut self) -> Result<(), ClientError>;

    /// Waits until every worker of the job has come to the same barrier. A worker that waits at one does not block the others,
    /// whatever its clock: what others must see is flushed before.
    fn barrier(&mut self) -> Result<(), ClientError>;

    /// Advances the clock of this worker by one, when the tick counts. Does not wait for that.
    fn tick(&mut self, tick: Tick) -> Result<(), ClientError>;

    /// Waits until the clock of every worker that trains, this one too, is at least this. Then a pull reads what their ticks have made
    /// visible.
    fn wait_for_clocks(&mut self, least: u64) -> Result<(), ClientError>;

    /// Returns the next chunk of the present phase that is this worker's to do, of `chunks`; `last` is the one that it got before, in this phase.
    /// None while it has one that is not finished: none is at hand. None otherwise: all chunks of the phase are done, by this worker or others.
    /// Waits for that, as a chunk may come back from another worker.
    ///
    /// A phase is a part of the work before which all that comes earlier is visible: the training of an epoch, or its evaluation. Without others,
    /// chunks are dealt in order.
    fn next_chunk(&mut self, chunks: u32, last: Option<u32>) -> Result<Option<u32>, ClientError> {
        let next = last.map_or(0, |last| last + 1);
        Ok((next < chunks).then_some(next))
    }

    /// Returns the chunk that [`next_chunk`](Self::next_chunk) is going to return, as far as that is known: its data can be read ahead.
    fn expected_chunk(&self, chunks: u32, last: Option<u32>) -> Option<u32> {
        let next = last.map_or(0, |last| last + 1);
        (next < chunks).then_some(next)
    }

    /// Every push of this chunk was handed over: it is done when they are visible. `account` is what this worker has done in this phase, up to
    /// and with this chunk, as a text for the front end of the controller.
    fn finish_chunk(&mut self, _chunk: u32, _account: String) -> Result<(), ClientError> {
        Ok(())
    }

    /// Takes note of the progress; it changes nothing.
    fn note(&mut self, _note: TrainingNote) {}
}
