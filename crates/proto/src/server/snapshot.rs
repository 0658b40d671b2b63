//! A checkpoint of a shard: its rows as of one moment, a few at a time, while pushes go on.

use core::time::Duration;
use std::collections::BTreeMap;

use libra_dataplane::mutants::{Mutant, is_enabled};
use libra_store::{Extent, RowBlock, Store};
use serde::{Deserialize, Serialize};

use super::shard::{Pushed, Shard};
use crate::bulk::Bulk;
use crate::cluster::Cluster;
use crate::message::{RoundContents, VERSION};
use crate::statistics::ServerStatistics;
use crate::storage::{CheckpointHead, StorageRequest};
use crate::time::Instant;
use crate::work::{Position, Work, WorkDone};

/// Rows that are handed to the disk at once. The push that comes meanwhile waits for so many to be copied.
const ROWS: usize = 8192;
/// A timer that comes late by more than this makes a checkpoint take longer.
const CATCH_UP: Duration = Duration::from_millis(20);
/// Number of blocks that may be on their way to the disk: it works on one while the next are copied.
const BLOCKS: usize = 4;
/// With so many rows copied by updates, blocks are handed over although the disk is behind: they are in memory anyway.
const COPIED_ROWS_MAX: usize = 4 * ROWS;

/// The state that a server needs to go on from a checkpoint, beside the rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) number: u16,
    pub(super) cluster: Box<Cluster>,
    pub(super) pushed: BTreeMap<u16, Pushed>,
    /// Of each region the newest round that is applied, and what it and all before it contain.
    pub(super) regions: BTreeMap<u8, (u64, RoundContents)>,
    /// Number of steps of each table.
    pub(super) steps: Vec<u64>,
    pub(super) statistics: ServerStatistics,
    pub(super) checkpoints: Checkpoints,
    /// Counters of the admission of tables, in pieces with the position of the table.
    pub(super) admission: Vec<(usize, Bulk<u8>)>,
    pub(super) work_done: WorkDone,
}

/// First bytes of a state, before the version of the messages that it and the records after it are made of.
const MAGIC: &[u8] = b"LIBRASTATE";

impl State {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        postcard::to_extend(self, bytes).expect("a vector takes any state")
    }

    /// Reads the state in these bytes. Other bytes may parse as well: only the version shows that they are meant so.
    pub(super) fn of_bytes(bytes: &[u8]) -> Result<Self, String> {
        let behind = bytes.strip_prefix(MAGIC).and_then(<[u8]>::split_first_chunk);
        let (version, state) = behind.ok_or("it has no version")?;
        let version = u16::from_le_bytes(*version);
        if version != VERSION {
            return Err(format!("it is in version {version}, this program reads version {VERSION}"));
        }
        postcard::from_bytes(state).map_err(|error| error.to_string())
    }
}

/// The checkpoints of a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Checkpoints {
    /// The newest that is there, or that is being written if the disk reports it as there.
    pub(super) newest: u64,
    /// Number of increments since the last full one.
    pub(super) increments: u16,
    /// True if the newest was made when the job was done.
    pub(super) is_last: bool,
}

/// Why a checkpoint is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Occasion {
    /// The controller or the log wants it, and pushes go on meanwhile.
    Request,
    /// The server is to end (rule L9).
    Drain,
    /// The job is done: nothing goes on from it (rule L7).
    End,
}

/// A checkpoint that is being written.
#[derive(Debug, Clone)]
pub(super) struct Snapshot {
    pub(super) number: u64,
    pub(super) covers: u64,
    began: Instant,
    pub(super) checkpoints: Checkpoints,
    /// The state to send after the rows; none when it was sent.
    state: Option<Box<State>>,
    /// Blocks of rows that the disk has not taken.
    on_the_way: usize,
    /// Pushes need the memory and the cores, too.
    is_paced: bool,
    /// When the next rows are due, if it is paced.
    next_at: Instant,
}

impl Shard {
    /// Tracks changes from now on: the checkpoint before has all rows until now.
    pub(super) fn track_changes(&mut self) {
        if self.cluster.durability.increments > 0 {
            self.store.track_changes();
        }
    }

    /// Begins a checkpoint of this moment (rule L2). `false` if one is being written.
    pub(super) fn begin_checkpoint(&mut self, now: Instant, number: u64, occasion: Occasion) -> bool {
        if self.snapshot.is_some() {
            return false;
        }
        self.highest_checkpoint = self.highest_checkpoint.max(number);
        let durability = &self.cluster.durability;
        let full = self.checkpoints.newest == 0
            || self.checkpoints.increments >= durability.increments
            || self.forgot_changes;
        let checkpoints = Checkpoints {
            newest: number,
            increments: if full { 0 } else { self.checkpoints.increments + 1 },
            is_last: occasion == Occasion::End,
        };
        let is_complete_alone = self.cluster.shards() == 1 || is_enabled(Mutant::CheckpointRemovedAlone);
        let besides = if is_complete_alone {
            Some([number; 2])
        } else {
            self.complete_checkpoint.map(|complete| [complete, self.requested_checkpoint])
        };
        self.store.begin_snapshot(if full { Extent::Full } else { Extent::Changed });
        let tables = self.store.tables().iter().cloned();
        let head = CheckpointHead {
            number,
            base: (!full).then_some(self.checkpoints.newest),
            covers: self.journal.newest(),
            job: self.cluster.job,
            seed: self.cluster.seed,
            shard: self.number,
            shards: self.cluster.shards(),
            tables: tables.zip(steps(&self.store)).collect(),
            position: self.position(),
            keep: usize::from(durability.keep),
            besides,
        };
        let state = State {
            number: self.number,
            cluster: self.cluster.clone(),
            pushed: self.pushed.clone(),
            regions: self
                .regions
                .iter()
                .map(|(number, region)| (*number, (region.committed, region.contents.clone())))
                .collect(),
            steps: steps(&self.store).collect(),
            statistics: self.statistics(),
            checkpoints,
            admission: Vec::new(),
            work_done: self.work_done.clone(),
        };
        self.snapshot = Some(Snapshot {
            number,
            covers: head.covers,
            began: now,
            checkpoints,
            state: Some(Box::new(state)),
            on_the_way: 0,
            // Before the first no push comes.
            is_paced: occasion == Occasion::Request && number > durability.first_checkpoint(),
            next_at: now,
        });
        self.journal.checkpoint_begins();
        self.journal.requests.push_back(StorageRequest::Begin(Box::new(head)));
        self.go_on_with_checkpoint(now);
        true
    }

    /// Adds what the admission of tables had counted at a shard of an earlier run (rule K8). A state of another version, or of tables that
    /// admitted otherwise, has none: counting then begins again.
    pub(super) fn add_admission(&mut self, state: &[u8]) {
        let Ok(State { cluster, admission, .. }) = State::of_bytes(state) else { return };
        for (table, counts) in admission {
            let Some(name) = cluster.tables.get(table).map(|table| &table.name) else { continue };
            if let Some(table) = self.store.tables().iter().position(|table| table.name == *name) {
                let _ = self.store.restore_admission(table, &counts.0);
            }
        }
    }

    /// The position of the job that checkpoints have (rule K7).
    fn position(&self) -> Option<Position> {
        let Cluster { task, work, view, .. } = &*self.cluster;
        let Work { phases, chunks, is_open, done: _ } = work.as_ref()?;
        let (phases, chunks, is_open) = (*phases, chunks.clone(), *is_open);
        let work = Work { phases, chunks, is_open, done: self.work_done.clone() };
        Some(Position { task: task.clone(), work, added: view.added.clone() })
    }

    /// A number that no checkpoint on the disk has.
    pub(super) fn next_checkpoint(&self) -> u64 {
        self.checkpoints.newest.max(self.highest_checkpoint) + 1
    }

    /// Hands over the next rows, as many as the disk can be expected to take, and no faster than at the rate of the job.
    pub(super) fn go_on_with_checkpoint(&mut self, now: Instant) {
        let rate = self.cluster.durability.checkpoint_bytes_per_second.max(1);
        let Some(snapshot) = &mut self.snapshot else { return };
        while snapshot.state.is_some()
            && !(snapshot.is_paced && snapshot.next_at > now)
            && (snapshot.on_the_way < BLOCKS || self.store.rows_copied() > COPIED_ROWS_MAX)
        {
            match self.store.read_snapshot(ROWS) {
                Some(RowBlock { table, admission, .. }) if !admission.is_empty() => {
                    let state = snapshot.state.as_mut().expect("it was there a moment ago");
                    state.admission.push((table, Bulk(admission)));
                }
                Some(rows) => {
                    let words = 2 * rows.keys.len() + rows.values.len() + rows.state.len();
                    let takes = Duration::from_secs_f64((words * size_of::<f32>()) as f64 / rate as f64);
                    // A delay is caught up, but not all at once.
                    let late = now.since(snapshot.next_at.min(now)).saturating_sub(CATCH_UP);
                    snapshot.next_at = snapshot.next_at + late + takes;
                    snapshot.on_the_way += 1;
                    self.journal.requests.push_back(StorageRequest::Rows(rows));
                }
                None => {
                    let state = snapshot.state.take().expect("it was there a moment ago");
                    self.journal.requests.push_back(StorageRequest::Finish { state: state.to_bytes() });
                }
            }
        }
    }

    /// The disk has taken some rows.
    pub(super) fn rows_written(&mut self, now: Instant) {
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.on_the_way = snapshot.on_the_way.saturating_sub(1);
        }
        self.go_on_with_checkpoint(now);
    }

    /// When the next rows of a checkpoint are due, if the disk would take them.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let waits = |snapshot: &&Snapshot| snapshot.state.is_some() && snapshot.on_the_way < BLOCKS;
        self.snapshot.as_ref().filter(waits).map(|snapshot| snapshot.next_at)
    }

    /// A checkpoint is there. Returns whether it is the one that was being written.
    pub(super) fn checkpointed(&mut self, now: Instant, number: u64, log_from: u64) -> bool {
        let Some(snapshot) = self.snapshot.take_if(|snapshot| snapshot.number == number) else {
            return false;
        };
        self.disk_times.checkpointed(now, now.since(snapshot.began));
        self.checkpoints = snapshot.checkpoints;
        self.forgot_changes &= self.checkpoints.increments > 0;
        self.statistics.checkpoint = number;
        self.journal.checkpoint_ended(Some(snapshot.covers));
        self.journal.requests.push_back(StorageRequest::TrimLog { before: log_from });
        true
    }

    /// A checkpoint failed. Returns whether it was being written.
    pub(super) fn checkpoint_failed(&mut self, number: u64) -> bool {
        let Some(snapshot) = self.snapshot.take_if(|snapshot| snapshot.number == number) else {
            return false;
        };
        // Of a snapshot that was read to its end the store has no marks left.
        self.forgot_changes |= snapshot.state.is_none();
        self.store.cancel_snapshot();
        self.journal.requests.push_back(StorageRequest::Abandon);
        self.journal.checkpoint_ended(None);
        self.statistics.checkpoints_failed += 1;
        true
    }
}

fn steps(store: &Store) -> impl Iterator<Item = u64> {
    (0..store.tables().len()).map(|table| store.steps(table))
}
