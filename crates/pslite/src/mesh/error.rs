//! What may go wrong in a mesh.

use std::io;
use std::net::SocketAddr;

use thiserror::Error;

/// Why a mesh could not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MeshError {
    /// Somebody went without a word. Nothing goes on.
    #[error("{whom} has died: {reason}")]
    Died {
        /// Who.
        whom: String,
        /// How that was noticed.
        reason: String,
    },
    /// Somebody has finalized.
    #[error("{whom} has finalized")]
    Left {
        /// Who.
        whom: String,
    },
    /// The scheduler has no place for this process.
    #[error("the scheduler refuses this process: {reason}")]
    Refused {
        /// Why.
        reason: String,
    },
    /// Somebody does not listen.
    #[error("cannot reach {whom}: {said}")]
    Unreachable {
        /// Who, and where.
        whom: String,
        /// What the system said.
        said: String,
    },
    /// A port cannot be had.
    #[error("cannot listen at {address}: {said}")]
    Bind {
        /// What was asked for.
        address: SocketAddr,
        /// What the system said.
        said: String,
    },
    /// The machine refused something else.
    #[error("{attempted}: {said}")]
    Io {
        /// What was attempted.
        attempted: &'static str,
        /// What the system said.
        said: String,
    },
    /// A node or group that does not exist, or to which this node has no stream: workers talk to servers, and all to the scheduler.
    #[error("there is no node or group {node} that this one could reach")]
    UnknownNode {
        /// Its number.
        node: i32,
    },
    /// A barrier of others.
    #[error("this node is not in group {group}, for which the barrier is")]
    NotInGroup {
        /// The group.
        group: i32,
    },
    /// Somebody will never come to a barrier.
    #[error("a barrier cannot open: {reason}")]
    BarrierFailed {
        /// Who, and why.
        reason: String,
    },
    /// A message that no memory holds.
    #[error("the message is too large")]
    TooLarge,
}

impl MeshError {
    pub(super) fn io(attempted: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { attempted, said: source.to_string() }
    }

    /// Whose fault it is, in words.
    pub(super) fn whom(&self) -> &str {
        match self {
            Self::Died { whom, .. } | Self::Left { whom } | Self::Unreachable { whom, .. } => whom,
            _ => "somebody",
        }
    }
}
