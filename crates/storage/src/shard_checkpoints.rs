//! The checkpoints of a shard.

use std::collections::BTreeMap;

use crate::checkpoint::{Checkpoints, Description, PartSettings, TableInfo, WriteError, Writer};
use crate::disk::Disk;
use crate::wal::RecordNumber;
use libra_proto::{CheckpointHead, StorageEvent, StorageRequest};
use libra_store::{RowBlock, TableSpec};
use tracing::debug;

/// Writes the checkpoints of a shard, one at a time, and removes old ones.
#[derive(Debug)]
pub struct ShardCheckpoints<D: Disk + Clone> {
    checkpoints: Checkpoints<D>,
    open: Option<Open<D>>,
}

/// A checkpoint that is being written.
#[derive(Debug)]
struct Open<D: Disk + Clone> {
    number: u64,
    keep: usize,
    besides: Option<[u64; 2]>,
    is_increment: bool,
    writer: Writer<D>,
}

impl<D: Disk + Clone> ShardCheckpoints<D> {
    /// The checkpoints on a disk.
    pub fn new(disk: D) -> Self {
        Self { checkpoints: Checkpoints::new(disk), open: None }
    }

    /// Carries out a request about checkpoints; returns the event for the server.
    ///
    /// # Panics
    /// It is about something else.
    pub fn handle(&mut self, request: StorageRequest) -> Option<StorageEvent> {
        match request {
            StorageRequest::Begin(head) => {
                // A checkpoint that was given up is removed first: the disk may be full of it.
                self.open = None;
                // And so are files that could not be removed when it failed, if they can be now.
                let _ = self.checkpoints.discard_unfinished();
                let number = head.number;
                self.begin(*head).err().map(|error| failed(number, &error))
            }
            StorageRequest::Rows(rows) => {
                let open = self.open.as_mut()?;
                let number = open.number;
                Some(match open.write(&rows) {
                    Ok(()) => StorageEvent::RowsWritten,
                    Err(error) => {
                        self.open = None;
                        failed(number, &error)
                    }
                })
            }
            StorageRequest::Finish { state } => {
                let Open { number, keep, besides, writer, .. } = self.open.take()?;
                Some(match writer.finish(&state) {
                    Ok(manifest) => {
                        debug!(number, covers = manifest.description.covers.0, "a checkpoint is written");
                        // Without one that all shards have for certain, each may be the one that the job goes on from.
                        let keep = if besides.is_some() { keep } else { usize::MAX };
                        // Those that cannot be removed now can be next time.
                        let pruned = self.checkpoints.retain(keep, besides.as_slice().as_flattened()).ok();
                        let from = pruned.and_then(|pruned| pruned.log_from);
                        let log_from = from.map_or(0, |from| from.0).min(manifest.description.covers.0 + 1);
                        StorageEvent::Checkpointed { number, log_from }
                    }
                    Err(error) => failed(number, &error),
                })
            }
            StorageRequest::Abandon => {
                self.open = None;
                None
            }
            other => panic!("{other:?} is not about checkpoints"),
        }
    }

    fn begin(&mut self, head: CheckpointHead) -> Result<(), WriteError> {
        let CheckpointHead { number, base, keep, besides, .. } = head;
        let writer = self.checkpoints.begin(description(head), base, PartSettings::default())?;
        debug!(number, base, keep, "a checkpoint is begun");
        self.open = Some(Open { number, keep, besides, is_increment: base.is_some(), writer });
        Ok(())
    }
}

impl<D: Disk + Clone> Open<D> {
    fn write(&mut self, rows: &RowBlock) -> Result<(), WriteError> {
        let RowBlock { table, keys, values, state, removed, .. } = rows;
        if !removed.is_empty() && self.is_increment {
            self.writer.remove_rows(*table, removed)?;
        }
        if keys.is_empty() { Ok(()) } else { self.writer.write_rows(*table, keys, values, state) }
    }
}

fn failed(number: u64, error: &WriteError) -> StorageEvent {
    debug!(number, %error, "a checkpoint has failed");
    StorageEvent::CheckpointFailed { number, reason: error.to_string() }
}

fn description(head: CheckpointHead) -> Description {
    let CheckpointHead { number, covers, job, seed, shard, shards, tables, position, .. } = head;
    let position = position.map(|position| serde_json::to_value(position).expect("it is texts and numbers"));
    Description {
        number,
        job: job.into(),
        seed,
        shards: shards.into(),
        shard: shard.into(),
        covers: RecordNumber(covers),
        steps: tables.iter().map(|(table, steps)| (table.name.clone(), *steps)).collect::<BTreeMap<_, _>>(),
        tables: tables.iter().map(|(table, _)| info(table)).collect(),
        position,
    }
}

/// A table as in the manifest of a checkpoint.
pub(crate) fn info(table: &TableSpec) -> TableInfo {
    let words = |count: usize| u32::try_from(count).expect("a row of a table has fewer than 2^32 values");
    TableInfo {
        name: table.name.clone(),
        keys: table.keys.clone(),
        width: words(table.width),
        state: words(table.rule.state_len(table.width)),
        rule: serde_json::to_value(table.rule).expect("a rule is names and numbers"),
    }
}
