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

/// Makes a place for a shard on a disk: for its log, if it has one, and its checkpoints. It takes some milliseconds. One of a job that resumes
/// goes on behind the checkpoints of the run before; the log of that is removed, as it begins after one of them.
///
/// # Errors
/// See [`CreateError`]. Files that were there stay as they were.
pub fn create<D: Disk + Clone>(
    disk: D,
    job: u16,
    shard: u16,
    with_log: bool,
    resumes: bool,
) -> Result<(Option<ShardLog<D>>, ShardCheckpoints<D>), CreateError> {
    for entry in disk.list("")? {
        let is_log = entry.name.starts_with("log-");
        if is_log && resumes {
            disk.remove(&entry.name)?;
        } else if is_log || entry.name.starts_with("checkpoint-") && !resumes {
            return Err(CreateError::Taken { entry: entry.name });
        }
    }
    let log = with_log.then(|| ShardLog::begin(disk.clone(), job, shard)).transpose()?;
    Ok((log, ShardCheckpoints::new(disk)))
}
