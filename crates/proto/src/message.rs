//! Messages of the bulk and control path, over ordered reliable streams.

use core::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::bulk::Bulk;
use crate::cluster::{Cluster, Peer};
use crate::statistics::Statistics;

/// The version of the messages. Members of a cluster must have the same: the format is not self-describing.
pub const VERSION: u16 = 1;

/// What a process that joins a cluster can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// Holds a shard.
    Server,
    /// Aggregates hot rows.
    Switch,
    /// Trains.
    Worker,
}

impl core::fmt::Display for Kind {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str(match self {
            Self::Server => "server",
            Self::Switch => "switch",
            Self::Worker => "worker",
        })
    }
}

/// Everything that one member says to another outside the hot path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// To the controller, first on a stream: take me in.
    Join(Join),
    /// From the controller: the cluster is complete, this is your place in it.
    Start {
        /// Who the receiver is.
        you: Peer,
        /// The whole picture.
        cluster: Box<Cluster>,
    },
    /// To the controller: the server or switch can serve now.
    Ready,
    /// To a server, first on a stream: who is calling.
    Hello {
        /// The job the caller works for.
        job: u16,
        /// The caller.
        from: Peer,
    },
    /// To the controller, regularly.
    Heartbeat(Statistics),
    /// From a worker: it has come to this barrier.
    Barrier {
        /// The barrier's number, counted from zero.
        number: u64,
    },
    /// From the controller: every worker has come to this barrier.
    Release {
        /// The barrier's number.
        number: u64,
    },
    /// From a worker, last: what came of its task, in words that the roles do not read.
    Report {
        /// The worker's account.
        text: String,
        /// Its final counts.
        statistics: Statistics,
    },
    /// From the controller: every worker has reported; send a last heartbeat and stop.
    Finish,
    /// From anyone to anyone: the job has failed.
    Abort {
        /// Who failed and why.
        reason: String,
    },
    /// From a worker to a shard: add these gradients, and answer with the new values if asked.
    Push(ColdPush),
    /// From a shard: the push is applied.
    Pushed {
        /// Its number.
        number: u64,
        /// The new values of its rows, if they were asked for.
        values: Bulk<f32>,
    },
    /// From a worker to a shard: read these rows.
    Pull {
        /// The request's number, counted by the worker for each shard.
        number: u64,
        /// Keys of rows of that shard.
        keys: Bulk<u64>,
    },
    /// From a shard: the rows of a pull, one after the other.
    Pulled {
        /// The request's number.
        number: u64,
        /// Their values.
        values: Bulk<f32>,
    },
    /// From a switch to a shard: an epoch of one of its regions.
    Drained(Drained),
    /// From a shard to a switch: the epoch is applied; these are the new values.
    Committed(Committed),
}

/// The first message of a process to the controller.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Join {
    /// [`VERSION`] of the sender.
    pub version: u16,
    /// What it is.
    pub kind: Kind,
    /// Where it accepts streams (servers). An unspecified address means: where this stream comes from.
    pub stream: Option<SocketAddr>,
    /// Where it takes datagrams (switches) or sends them from (workers), likewise.
    pub datagrams: Option<SocketAddr>,
    /// Bytes of datagrams that wait for it in its machine at most (switches): all workers together must not send more
    /// before they are answered.
    pub receive_bytes: u32,
}

/// Gradients on the cold path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ColdPush {
    /// Counted by the worker for each shard, from one: a shard applies each number once.
    pub number: u64,
    /// Rows of that shard, each once.
    pub keys: Bulk<u64>,
    /// Their gradients one after the other.
    pub gradients: Bulk<f32>,
    /// Whether the answer must hold the new values.
    pub answer: bool,
}

/// A run of neighbouring slots: the first, and how many.
pub type SlotRun = (u16, u16);

/// What a bank held when it was drained.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Drained {
    /// The region.
    pub region: u8,
    /// The epoch, counted from one for the life of the region.
    pub epoch: u64,
    /// Which packets the region has taken up to and including this epoch.
    pub cut: Cut,
    /// The slots that were touched, ascending.
    pub slots: Vec<SlotRun>,
    /// Their sums, as the slots hold them: i32 under the row's scale, or the bits of an f32.
    pub sums: Bulk<u32>,
}

/// New values of hot rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Committed {
    /// The region.
    pub region: u8,
    /// The newest epoch that the shard has applied.
    pub epoch: u64,
    /// The slots that get new values, ascending.
    pub slots: Vec<SlotRun>,
    /// The bits of their f32 values.
    pub values: Bulk<u32>,
}

/// For each flow of a region, exactly which sequence numbers it has taken so far.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cut {
    /// By worker.
    pub flows: Vec<FlowCut>,
}

/// The sequence numbers that were taken of one flow.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowCut {
    /// Every sequence number below this one.
    pub below: u32,
    /// And these runs above it: first and count, ascending.
    pub above: Vec<(u32, u32)>,
}

/// Why bytes are not a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a message of version {VERSION}: {0}")]
pub struct Malformed(postcard::Error);

impl Message {
    /// The message as the bytes of one frame.
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("a vector takes any message")
    }

    /// The message in the bytes of one frame.
    pub fn decode(frame: &[u8]) -> Result<Self, Malformed> {
        postcard::from_bytes(frame).map_err(Malformed)
    }
}
