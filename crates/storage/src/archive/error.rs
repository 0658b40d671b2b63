//! Errors of checkpoints at a URL.

use libra_objects::{BadPlace, Fault};
use thiserror::Error;

use crate::checkpoint::CheckpointError;
use crate::disk::DiskError;

/// The reason for which checkpoints at a URL were not read or written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// It is no place for checkpoints.
    #[error("{place}: {reason}")]
    Place {
        /// The place, without secrets.
        place: String,
        /// The reason.
        reason: &'static str,
    },
    /// The store did not carry out a request.
    #[error("{name}: {fault}")]
    Object {
        /// The object, or the URL.
        name: String,
        /// The reason.
        fault: Fault,
    },
    /// Another job writes there, or has.
    #[error(
        "{url} has the checkpoints of another job, {owner}: choose another URL, or begin with them by --restore-from {url}"
    )]
    Taken {
        /// The URL.
        url: String,
        /// The job, in words.
        owner: String,
    },
    /// A job that goes on from these checkpoints has taken them over.
    #[error("{url} was taken over by another job, {owner}")]
    Lost {
        /// The URL.
        url: String,
        /// The job, in words.
        owner: String,
    },
    /// A checkpoint of this number is there, and is another one.
    #[error("{url} has another checkpoint {number}")]
    NumberTaken {
        /// The URL.
        url: String,
        /// The number.
        number: u64,
    },
    /// Not all shards have uploaded their part.
    #[error("checkpoint {number} is not complete at {url}: {lacks}")]
    Incomplete {
        /// The number.
        number: u64,
        /// The URL.
        url: String,
        /// The missing part, in words.
        lacks: String,
    },
    /// A checkpoint cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The disk that files are uploaded from refused.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The process is about to end.
    #[error("the upload was given up")]
    GivenUp,
}

impl From<BadPlace> for ArchiveError {
    fn from(BadPlace { place, reason }: BadPlace) -> Self {
        Self::Place { place, reason }
    }
}
