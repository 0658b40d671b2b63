//! A place for a new shard.

use crate::disk::{Disk, DiskError};
use crate::wal::OpenError;
use thiserror::Error;

use crate::shard_checkpoints::ShardCheckpoints;
use crate::shard_log::ShardLog;

/// The reason for which a new shard has no place on a disk.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CreateError {
    /// Another shard was kept there.
    #[error("there is a shard already ({entry}): choose an empty data directory, or remove it")]
    Taken {
        /// The entry found.
        entry: String,
    },
    /// The disk refused.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The disk refused to begin the log.
    #[error(transparent)]
    Log(#[from] OpenError),
}

/// Makes a place for a shard on a disk: for its log, if it has one, and its checkpoints. It takes some milliseconds.
///
/// # Errors
/// See [`CreateError`]. Files that were there stay as they were.
pub fn create<D: Disk + Clone>(
    disk: D,
    job: u16,
    shard: u16,
    with_log: bool,
) -> Result<(Option<ShardLog<D>>, ShardCheckpoints<D>), CreateError> {
    let is_of_a_shard = |name: &str| name.starts_with("checkpoint-") || name.starts_with("log-");
    if let Some(taken) = disk.list("")?.into_iter().find(|entry| is_of_a_shard(&entry.name)) {
        return Err(CreateError::Taken { entry: taken.name });
    }
    let log = with_log.then(|| ShardLog::begin(disk.clone(), job, shard)).transpose()?;
    Ok((log, ShardCheckpoints::new(disk)))
}
