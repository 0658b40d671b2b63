//! Errors of a mesh.

use std::io;
use std::net::SocketAddr;

use thiserror::Error;

/// The reason for which a mesh could not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MeshError {
    /// A process ended without a message. Nothing goes on.
    #[error("{peer} has died: {reason}")]
    Died {
        /// The process.
        peer: String,
        /// Sign by which this was noticed.
        reason: String,
    },
    /// A process has finalized.
    #[error("{peer} has finalized")]
    Left {
        /// The process.
        peer: String,
    },
    /// The scheduler has no place for this process.
    #[error("the scheduler refuses this process: {reason}")]
    Refused {
        /// The reason.
        reason: String,
    },
    /// A process does not listen.
    #[error("cannot reach {peer}: {os_error}")]
    Unreachable {
        /// The process, and its address.
        peer: String,
        /// Error of the system.
        os_error: String,
    },
    /// A process has another token than this one, or one of both has none.
    #[error("no connection to {peer}: {reason}")]
    Unidentified {
        /// The process, and its address.
        peer: String,
        /// The reason.
        reason: String,
    },
    /// A port cannot be had.
    #[error("cannot listen at {address}: {os_error}")]
    Bind {
        /// The address that was asked for.
        address: SocketAddr,
        /// Error of the system.
        os_error: String,
    },
    /// The machine refused something else.
    #[error("{attempted}: {os_error}")]
    Io {
        /// The attempted operation.
        attempted: &'static str,
        /// Error of the system.
        os_error: String,
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
    /// A process will never come to a barrier.
    #[error("a barrier cannot open: {reason}")]
    BarrierFailed {
        /// The process, and the reason.
        reason: String,
    },
    /// A message that no memory holds.
    #[error("the message is too large")]
    TooLarge,
}

impl MeshError {
    pub(super) fn io(attempted: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { attempted, os_error: source.to_string() }
    }

    /// Names the process at fault.
    pub(super) fn peer(&self) -> &str {
        match self {
            Self::Died { peer, .. }
            | Self::Left { peer }
            | Self::Unreachable { peer, .. }
            | Self::Unidentified { peer, .. } => peer,
            _ => "a process",
        }
    }
}
