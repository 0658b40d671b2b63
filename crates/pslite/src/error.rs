//! Why a call came to nothing.

use crate::mesh::MeshError;
use thiserror::Error;

/// What a caller of the library is told.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum CallError {
    /// The network, or those in it.
    #[error(transparent)]
    Mesh(#[from] MeshError),
    /// A server did not do what it was asked.
    #[error("refused: {reason}")]
    Refused {
        /// Who, and why.
        reason: String,
    },
    /// Nobody made that request.
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
        /// Which argument.
        what: &'static str,
    },
    /// A text that is none.
    #[error("{what} is not UTF-8")]
    NotText {
        /// Which argument.
        what: &'static str,
    },
    /// A variable of the environment that is missing, or that nobody can use.
    #[error("the environment variable {name} {problem}")]
    Environment {
        /// Its name.
        name: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// Room for fewer numbers than there are.
    #[error("there is room for {room} numbers, and there are {needed}")]
    TooSmall {
        /// How many fit.
        room: usize,
        /// How many there are.
        needed: usize,
    },
    /// Hot keys cannot go through a switch, although there is a plan.
    #[error("hot keys cannot go through a switch: {reason}")]
    Switching {
        /// Why.
        reason: String,
    },
    /// A thread cannot be had.
    #[error("cannot start a thread: {said}")]
    Thread {
        /// What the system said.
        said: String,
    },
    /// A bug of this library.
    #[error("the library panicked: {message}")]
    Panicked {
        /// With what.
        message: String,
    },
}
