//! Errors of exports.

use std::io;

use libra_objects::{BadPlace, Fault as ObjectFault};
use thiserror::Error;

use crate::checkpoint::{CheckpointError, Fault};

/// The reason for which nothing was exported.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServingError {
    /// It is no place for an export.
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
        fault: ObjectFault,
    },
    /// Another process exports there.
    #[error(
        "{url} is the place of another exporter, {owner}: wait until that has ended, or choose another --to"
    )]
    Taken {
        /// The URL.
        url: String,
        /// The process, in words.
        owner: String,
    },
    /// Another process has taken the place over.
    #[error("{url} was taken over by another exporter, {owner}")]
    Lost {
        /// The URL.
        url: String,
        /// The process, in words.
        owner: String,
    },
    /// An object of the export is not as it was written.
    #[error("{file} is damaged: {fault}. Remove the export, and begin again with a base")]
    Damaged {
        /// The object.
        file: String,
        /// The damage.
        fault: Fault,
    },
    /// Written by another version of this code.
    #[error("{file} is in format {found}; this program knows format {known}")]
    Format {
        /// The object.
        file: String,
        /// Its format.
        found: u64,
        /// The format that is known.
        known: u64,
    },
    /// The export that is there is another one.
    #[error("the export at {url} has {there}, and this one has {here}: choose another --to")]
    Different {
        /// The URL.
        url: String,
        /// Its property, in words.
        there: String,
        /// The property of this export.
        here: String,
    },
    /// Versions only rise.
    #[error(
        "checkpoint {number} is not above version {version}, which is at {url}: for checkpoints of another run choose another --to"
    )]
    NotNewer {
        /// The URL.
        url: String,
        /// The checkpoint.
        number: u64,
        /// The newest version.
        version: u64,
    },
    /// No such table.
    #[error("the checkpoint has no table {table:?}; it has {there}")]
    NoTable {
        /// The name.
        table: String,
        /// Those that there are.
        there: String,
    },
    /// The parts of a checkpoint do not belong together.
    #[error("checkpoint {number}: shard {shard} does not belong to the first one: {field} differs")]
    Shard {
        /// The checkpoint.
        number: u64,
        /// The shard.
        shard: usize,
        /// The field that differs.
        field: &'static str,
    },
    /// Two shards have a row.
    #[error("table {table:?}: row {key} is in two shards of the checkpoint")]
    TwoOwners {
        /// The table.
        table: String,
        /// The row.
        key: u64,
    },
    /// The checkpoint cannot be read.
    #[error("{file}: {cause}")]
    Checkpoint {
        /// The place of the shard.
        file: String,
        /// The reason.
        cause: CheckpointError,
    },
    /// The disk with the rows that were exported refused.
    #[error("{attempted}: {cause}. --spool DIR names another place for what is exported")]
    Spool {
        /// The operation and the file.
        attempted: String,
        /// Error of the system.
        cause: io::Error,
    },
    /// The process is about to end.
    #[error("the export was given up")]
    GivenUp,
}

impl ServingError {
    /// True if another attempt cannot succeed.
    pub fn is_final(&self) -> bool {
        !matches!(
            self,
            Self::Object { .. } | Self::Checkpoint { .. } | Self::TwoOwners { .. } | Self::Spool { .. }
        )
    }
}

impl From<BadPlace> for ServingError {
    fn from(BadPlace { place, reason }: BadPlace) -> Self {
        Self::Place { place, reason }
    }
}
