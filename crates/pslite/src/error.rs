//! Errors of calls.

use crate::mesh::MeshError;
use thiserror::Error;

/// The error of a call of the library.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum CallError {
    /// The network, or those in it.
    #[error(transparent)]
    Mesh(#[from] MeshError),
    /// A server refused a request.
    #[error("refused: {reason}")]
    Refused {
        /// The server, and its reason.
        reason: String,
    },
    /// There is no such request.
    #[error("there is no request {timestamp}")]
    UnknownRequest {
        /// Its number.
        timestamp: i32,
    },
    /// A second customer of the same number.
    #[error("application {app} has a customer {customer} already")]
    CustomerExists {
        /// The application.
        app: i32,
        /// The customer.
        customer: i32,
    },
    /// A pointer that must not be null, or a length that goes with no pointer.
    #[error("{what} must not be null")]
    Null {
        /// The argument.
        what: &'static str,
    },
    /// A text that is none.
    #[error("{what} is not UTF-8")]
    NotText {
        /// The argument.
        what: &'static str,
    },
    /// A variable of the environment that is missing, or whose value cannot be used.
    #[error("the environment variable {name} {problem}")]
    Environment {
        /// Its name.
        name: &'static str,
        /// The problem.
        problem: String,
    },
    /// Room for fewer numbers than there are.
    #[error("there is room for {room} numbers, and there are {needed}")]
    TooSmall {
        /// Number of elements that fit.
        room: usize,
        /// Number of elements that there are.
        needed: usize,
    },
    /// Hot keys cannot go through a switch, although there is a plan.
    #[error("hot keys cannot go through a switch: {reason}")]
    Switching {
        /// The reason.
        reason: String,
    },
    /// A thread cannot be had.
    #[error("cannot start a thread: {os_error}")]
    Thread {
        /// Error of the system.
        os_error: String,
    },
    /// A bug of this library.
    #[error("the library panicked: {message}")]
    Panicked {
        /// Message of the panic.
        message: String,
    },
}
