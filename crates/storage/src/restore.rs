//! The state of a shard when its process ended.

use crate::checkpoint::{Block, Checkpoints, Skipped};
use crate::disk::{Disk, DiskError};
use crate::wal::{Log, OpenError, Recovery, Settings};
use libra_proto::{MemoryLimit, RestoreError, Restored};
use libra_store::RowBlock;
use thiserror::Error;
use tracing::debug;

use crate::shard_log::ShardLog;

/// Rows that are read at once.
const ROWS: usize = 8192;

/// A shard as it was, with its log and checkpoints.
#[derive(Debug)]
pub struct Recovered<D> {
    /// The shard.
    pub restored: Restored,
    /// Its log, if it has one.
    pub log: Option<ShardLog<D>>,
    /// The checkpoint that it was read from.
    pub checkpoint: u64,
    /// Newer checkpoints that cannot be used.
    pub skipped: Vec<Skipped>,
    /// Result of opening the log.
    pub recovery: Option<Recovery>,
}

/// The reason for which a shard cannot go on from its disk.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RestoreFailure {
    /// The disk refused.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// There is no checkpoint to begin with, but something that one must have been there for.
    #[error("there is no checkpoint that can be used{}", because(skipped))]
    NoCheckpoint {
        /// Those that cannot.
        skipped: Vec<Skipped>,
    },
    /// The disk did not read the newest checkpoint, which is not to say that it is damaged; and there is no log that has what an older one lacks.
    #[error(
        "{newer} cannot be read: {why}. Without a log, to go on from checkpoint {older} would lose everything after it: try again, or move \
         {newer} away to go on from there"
    )]
    Unread {
        /// The directory of the newest.
        newer: String,
        /// Error of the disk.
        why: String,
        /// The newest that can be read.
        older: u64,
    },
    /// The checkpoint cannot be read, though it was sound a moment ago.
    #[error(transparent)]
    Checkpoint(#[from] crate::checkpoint::CheckpointError),
    /// The bytes read are not the state of a shard.
    #[error("checkpoint {checkpoint}: {cause}")]
    State {
        /// The checkpoint.
        checkpoint: u64,
        /// The error.
        cause: RestoreError,
    },
    /// The log is damaged, or something of it is not there.
    #[error(transparent)]
    Log(#[from] OpenError),
}

fn because(skipped: &[Skipped]) -> String {
    match skipped.first() {
        Some(Skipped { directory, why, .. }) => format!(": {directory}: {why}"),
        None => ", but a log that begins after one".to_owned(),
    }
}

/// Reads the shard that is on a disk: its newest sound checkpoint, and the log after it. `None` if there never was one. A memory limit is in
/// force while it is read.
///
/// # Errors
/// See [`RestoreFailure`]. Nothing that was durable is dropped silently: an older checkpoint is only taken if the log still has all since, or
/// if there is no log; see [`Recovered::skipped`].
pub fn restore<D: Disk + Clone>(
    disk: D,
    memory_limit: Option<MemoryLimit>,
) -> Result<Option<Recovered<D>>, RestoreFailure> {
    let checkpoints = Checkpoints::new(disk.clone());
    checkpoints.discard_unfinished()?;
    let newest = checkpoints.newest_valid()?;
    let skipped = newest.skipped;
    let Some(checkpoint) = newest.checkpoint else {
        if skipped.is_empty() && !has_records(&disk)? {
            return Ok(None);
        }
        return Err(RestoreFailure::NoCheckpoint { skipped });
    };
    let description = &checkpoint.manifest().description;
    debug!(checkpoint = description.number, skipped = skipped.len(), "a shard is restored");
    let (number, covers) = (description.number, description.covers);
    let state = |cause| RestoreFailure::State { checkpoint: number, cause };
    let mut restored =
        Restored::with_memory_limit(checkpoint.state(), covers.0, memory_limit).map_err(state)?;
    let mut blocks = checkpoint.blocks(ROWS);
    while let Some(block) = blocks.next_block()? {
        restored.rows(&rows_of(block)).map_err(state)?;
    }
    let (mut log, mut recovery) = (None, None);
    if restored.has_log() {
        let settings = Settings::new(restored.job().into(), restored.number().into());
        let (opened, found) = Log::open(disk.clone(), settings.clone(), covers.next(), |number, record| {
            Ok(restored.record(number.0, record)?)
        })?;
        let opened = ShardLog::of(disk, settings, opened);
        opened.durable().into_iter().for_each(|record| restored.durable_up_to(record));
        log = Some(opened);
        recovery = Some(found);
    } else if let Some(unread) = unread(&skipped) {
        // A disk that did not read it now may read it later, and no other file has its contents.
        let (newer, why) = (unread.directory.clone(), unread.why.to_string());
        return Err(RestoreFailure::Unread { newer, why, older: number });
    }
    skipped.iter().for_each(|skipped| restored.passed_over(skipped.number));
    Ok(Some(Recovered { restored, log, checkpoint: number, skipped, recovery }))
}

/// The newest checkpoint that the disk did not read, if there is one: it may be sound.
fn unread(skipped: &[Skipped]) -> Option<&Skipped> {
    skipped.iter().find(|skipped| skipped.why.is_of_disk())
}

/// Returns true if there is a log that is not empty. A shard that stopped while it was made has left an empty one.
fn has_records(disk: &impl Disk) -> Result<bool, DiskError> {
    let segments = disk.list("")?.into_iter().filter(|entry| entry.name.starts_with("log-"));
    let mut longest = 0;
    for segment in segments {
        longest = longest.max(disk.bytes(&segment.name)?);
    }
    Ok(longest > crate::wal::HEADER_BYTES)
}

/// A block of a checkpoint as the store takes it.
pub(crate) fn rows_of(block: Block<'_>) -> RowBlock {
    match block {
        Block::Rows { table, keys, values, state } => RowBlock {
            table,
            keys: keys.to_vec(),
            values: values.to_vec(),
            state: state.to_vec(),
            ..RowBlock::default()
        },
        Block::Removed { table, keys } => RowBlock { table, removed: keys.to_vec(), ..RowBlock::default() },
    }
}

impl<D> Recovered<D> {
    /// Describes the files that it was read from, in words for a person.
    pub fn describe(&self) -> String {
        let mut text = format!("{} rows from checkpoint {}", self.restored.row_count(), self.checkpoint);
        if let Some(Recovery { replayed, torn, .. }) = &self.recovery {
            text += &format!(" and {replayed} records of the log after it");
            if let Some(torn) = torn {
                text += &format!(
                    "; of {} the last {} bytes were never durable, and are cut off",
                    torn.file, torn.bytes
                );
            }
        }
        for Skipped { directory, why, .. } in &self.skipped {
            text += &format!("; {directory} cannot be used: {why}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::CheckpointError;
    use crate::disk::Operation;

    #[test]
    fn a_checkpoint_that_was_not_read_is_told_from_a_damaged_one() {
        let of = |number, why| Skipped { number, directory: format!("checkpoint-{number}"), why };
        let (operation, path) = (Operation::Read, "x".to_owned());
        let refused =
            || DiskError { operation, path: path.clone(), cause: std::io::Error::from_raw_os_error(5) };
        let damaged = || CheckpointError::Unfinished { directory: "checkpoint-9.partial".into() };
        assert!(unread(&[of(9, damaged())]).is_none());
        let found = [of(9, damaged()), of(8, refused().into())];
        assert_eq!(unread(&found).map(|skipped| skipped.number), Some(8));
        // So is one that builds on such a one.
        let cause = Box::new(refused().into());
        let base = [of(7, CheckpointError::Base { number: 7, base: 6, cause })];
        assert_eq!(unread(&base).map(|skipped| skipped.number), Some(7));
    }
}
