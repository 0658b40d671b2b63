//! Messages between nodes of a mesh, apart from those of applications.

use serde::{Deserialize, Serialize};

use super::roster::{NodeRole, Roster};

/// A message of the mesh itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Control {
    /// To the scheduler, first on a stream: take me in.
    Join(Join),
    /// To the scheduler, on the same stream: I have one customer more that counts as a worker.
    JoinAgain,
    /// From the scheduler: all processes are there.
    Roster(Roster),
    /// From the scheduler: there is no place for you.
    Refused { reason: String },
    /// From a worker to a server, first on a stream.
    Hello { from: i32 },
    /// To the scheduler: I have come to a barrier of this group.
    Barrier { group: i32 },
    /// From the scheduler: all of the group have.
    Released { group: i32 },
    /// From the scheduler: some of the group never will.
    BarrierFailed { group: i32, reason: String },
    /// To the scheduler, and from it to all: this node has died.
    Died { node: i32, peer: String, reason: String },
    /// Last on a stream: its end means nothing.
    Bye,
}

/// The description that a process gives of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Join {
    pub(super) role: NodeRole,
    /// Numbers of workers and servers, as this process was told.
    pub(super) workers: u16,
    pub(super) servers: u16,
    /// Under which name others reach it, if not under the address that it calls from.
    pub(super) host: Option<String>,
    /// Port at which it listens (servers).
    pub(super) port: u16,
}

impl Control {
    pub(super) fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("a control message is made of numbers and texts")
    }

    /// `None` if these bytes are none.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        postcard::from_bytes(bytes).ok()
    }
}
