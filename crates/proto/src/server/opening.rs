//! Phases of a server until it serves, the state that it keeps, and its end.

use libra_dataplane::mutants::{Mutant, is_enabled};
use libra_store::RowBlock;

use super::journal::Journal;
use super::shard::Shard;
use super::snapshot::Occasion;
use super::{MemberEvent, RESUME_PAUSE, SAVE_PAUSE, Server, ServerEvent};
use crate::cluster::{Durability, Load, Peer};
use crate::membership::EndCause;
use crate::message::{Message, Start};
use crate::storage::{StorageEvent, StorageRequest};
use crate::time::Instant;

/// Phase of a server.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Phase {
    /// It has no place yet.
    Joining,
    /// It reads the rows that the job begins with.
    Loading,
    /// It writes its first checkpoint.
    Storing,
    /// It has all that the one before it had, or nearly, and must receive the present view from the controller (rule L5).
    Returning,
    /// It answers workers and switches.
    Serving,
    /// It takes nothing more, and ends when what it has answered is saved (rule L9).
    Draining(Saving),
    /// The job is over; it writes its last checkpoint, or that before it, and then sends this.
    Finishing {
        event: MemberEvent,
        /// True if it is the last one that is being written.
        is_last: bool,
    },
}

/// The step of a server that ends towards having everything on its disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Saving {
    /// The log takes its last records.
    Log,
    /// Another checkpoint is being written, and the one that has everything follows.
    CheckpointBefore,
    /// The checkpoint that has everything is being written.
    Checkpoint,
    /// It has everything, or keeps nothing.
    Done,
}

impl Server {
    pub(super) fn start(&mut self, now: Instant, start: Start) {
        let Peer::Server(number) = start.you else { return self.dropped += 1 };
        if self.shard.is_some() {
            return self.dropped += 1;
        }
        let durability = start.cluster.durability.clone();
        if let Some(reason) = self.lacks_place(&durability) {
            return self.membership.abort(&format!("server {number}: {reason}"));
        }
        let journal = Journal::new(durability.log, 0);
        let job = start.cluster.job;
        let memory_limit = self.memory_limit.take();
        match Shard::new(number, Box::new(start.cluster.into_inner()), journal, memory_limit) {
            Ok(mut shard) => {
                shard.track_changes();
                self.shard = Some(shard);
            }
            Err(reason) => return self.membership.abort(&format!("server {number}: {reason}")),
        }
        if !durability.needs_disk() {
            return self.serve();
        }
        let resumes = durability.resumed().is_some();
        self.request(StorageRequest::Create { job, shard: number, log: durability.log, resumes });
        match durability.load {
            Some(load) => {
                self.phase = Phase::Loading;
                let shard = self.shard.as_ref().expect("it was made above");
                let (seed, tables) = (shard.cluster.seed, shard.cluster.tables.clone());
                let shard = (shard.number, shard.cluster.shards());
                let Load { directory, number, .. } = load;
                let states = resumes;
                self.request(StorageRequest::Load { directory, number, seed, tables, shard, states });
            }
            None => self.store_first(now),
        }
    }

    /// Returns which parts of what the job keeps this server has no place for, in words.
    fn lacks_place(&self, durability: &Durability) -> Option<String> {
        // Checkpoints that are uploaded may go with the process.
        let is_uploaded = durability.upload.is_some() && !durability.log;
        let suffices = self.membership.is_restartable() || self.membership.has_disk() && is_uploaded;
        if suffices || !durability.needs_disk() {
            return None;
        }
        let parts = [
            ("a log", durability.log),
            ("checkpoints", durability.checkpoint_every.is_some()),
            ("rows to restore", durability.load.is_some()),
        ];
        let kept: Vec<&str> =
            parts.into_iter().filter(|(_, is_kept)| *is_kept).map(|(part, _)| part).collect();
        Some(format!(
            "the job has {}, and this server has no place for that: start it with --state-dir DIR",
            kept.join(" and ")
        ))
    }

    fn request(&mut self, request: StorageRequest) {
        let shard = self.shard.as_mut().expect("only a server with a shard uses its disk");
        shard.journal.requests.push_back(request);
    }

    fn store_first(&mut self, now: Instant) {
        self.phase = Phase::Storing;
        let shard = self.shard.as_mut().expect("only a server with a shard uses its disk");
        let number = shard.cluster.durability.first_checkpoint();
        let begun = shard.begin_checkpoint(now, number, Occasion::Request);
        debug_assert!(begun, "nothing else is being written");
        shard.requested_checkpoint = number;
    }

    fn serve(&mut self) {
        self.phase = Phase::Serving;
        let number = self.shard.as_ref().expect("a server that serves has a shard").number;
        self.events.push_back(ServerEvent::Member(MemberEvent::Started { you: Peer::Server(number) }));
        self.report_viewed();
    }

    /// Reports to the controller that it acts on the newest view, once the log has it (rules V3, L1).
    pub(super) fn report_viewed(&mut self) {
        if let Some(shard) = self.shard.as_ref().filter(|_| self.phase == Phase::Serving) {
            self.viewing = Some(shard.journal.newest());
            self.report_to_controller();
        }
    }

    fn report_to_controller(&mut self) {
        let Some(shard) = &self.shard else { return };
        if self.viewing.take_if(|record| shard.journal.has(*record)).is_some() {
            self.membership.viewed(shard.cluster.view.number);
        }
    }

    /// The controller wants a checkpoint. One at a time is written; while one is, the controller is sent that another cannot be.
    pub(super) fn begin_checkpoint(&mut self, now: Instant, number: u64) {
        let Some(shard) = &mut self.shard else { return self.dropped += 1 };
        let newest = shard.next_checkpoint() - 1;
        let failure = if number <= newest {
            Some(format!("there is checkpoint {newest} already"))
        } else {
            (!shard.begin_checkpoint(now, number, Occasion::Request))
                .then(|| "another one is being written".to_owned())
        };
        if failure.is_some() {
            return self.membership.send(Message::Checkpointed { number, is_on_disk: false, failure });
        }
        shard.requested_checkpoint = number;
        self.asked_checkpoint = Some(number);
        self.membership.send(Message::CheckpointBegun { number });
    }

    /// Handles the result of a request to the disk.
    pub(super) fn handle_storage(&mut self, now: Instant, event: StorageEvent) {
        let Some(shard) = &mut self.shard else { return self.dropped += 1 };
        match event {
            StorageEvent::Failed { reason } => {
                let number = shard.number;
                self.membership.abort(&format!("server {number}: {reason}"));
            }
            StorageEvent::Durable { record } => {
                let was_suspended = shard.journal.is_suspended();
                shard.journal.synced(record);
                shard.disk_times.synced(now, record);
                if was_suspended && !shard.journal.is_suspended() {
                    self.resume_at = None;
                    self.events.push_back(ServerEvent::LogResumed);
                }
                shard.answer();
                self.report_to_controller();
                self.end_if_logged(now);
            }
            StorageEvent::LogFailed { reason } => {
                if !shard.journal.is_suspended() {
                    self.events.push_back(ServerEvent::LogSuspended { reason });
                }
                shard.journal.suspend();
                shard.disk_times.synced(now, u64::MAX);
                self.resume_at = Some(now + RESUME_PAUSE);
                shard.answer();
                self.report_to_controller();
                self.end_if_logged(now);
            }
            StorageEvent::RowsWritten => shard.rows_written(now),
            StorageEvent::Checkpointed { number, log_from } => {
                if shard.checkpointed(now, number, log_from) {
                    self.checkpoint_ended(now, number, None);
                }
            }
            StorageEvent::CheckpointFailed { number, reason } => {
                if shard.checkpoint_failed(number) {
                    self.checkpoint_ended(now, number, Some(reason));
                }
            }
            StorageEvent::Uploaded { number, bytes, failure } => {
                shard.disk_times.uploaded(now, number, bytes, failure.is_none());
                self.uploaded(number, failure);
            }
            StorageEvent::Loaded(rows) => self.load(rows),
            StorageEvent::LoadEnded { steps, states } => {
                for (table, steps) in steps.into_iter().enumerate().take(shard.store.tables().len()) {
                    shard.store.set_steps(table, steps);
                }
                states.iter().for_each(|state| shard.add_admission(state));
                self.store_first(now);
            }
        }
    }

    /// Takes the rows of a checkpoint that are of this shard.
    fn load(&mut self, rows: RowBlock) {
        let shard = self.shard.as_mut().expect("the caller has looked");
        let rows = own_rows(shard, rows);
        if let Err(error) = shard.put(&rows) {
            let number = shard.number;
            let reason = format!("rows of the checkpoint do not fit the tables of this job: {error}");
            return self.membership.abort(&format!("server {number}: {reason}"));
        }
        self.request(StorageRequest::LoadNext);
    }

    fn checkpoint_ended(&mut self, now: Instant, number: u64, failure: Option<String>) {
        match (core::mem::replace(&mut self.phase, Phase::Serving), failure) {
            (Phase::Storing, None) => return self.serve(),
            (Phase::Storing, Some(reason)) => {
                self.phase = Phase::Storing;
                let server = self.shard.as_ref().map_or(0, |shard| shard.number);
                let reason = format!("server {server}: the first checkpoint cannot be written: {reason}");
                return self.membership.abort(&reason);
            }
            (Phase::Finishing { event, is_last: true }, failure) => {
                if failure.is_none() && self.upload(now, number) {
                    self.last_upload = Some(number);
                    self.phase = Phase::Finishing { event, is_last: true };
                    return;
                }
                return self.finish_with(event, failure);
            }
            // The result of the one before does not matter: the last one has everything.
            (Phase::Finishing { event, is_last: false }, _) => {
                let shard = self.shard.as_mut().expect("a checkpoint was written");
                let is_last = shard.begin_checkpoint(now, shard.next_checkpoint(), Occasion::End);
                self.phase = Phase::Finishing { event, is_last };
                return;
            }
            (Phase::Draining(Saving::CheckpointBefore), _) => return self.save_by_checkpoint(now),
            (Phase::Draining(Saving::Checkpoint), None) => return self.drained(None),
            (Phase::Draining(Saving::Checkpoint), Some(reason)) => {
                self.phase = Phase::Draining(Saving::Checkpoint);
                self.events.push_back(ServerEvent::SaveFailed { reason });
                self.resume_at = Some(now + SAVE_PAUSE);
                return;
            }
            (phase, failure) => {
                self.phase = phase;
                let is_asked = core::mem::take(&mut self.asked_checkpoint) == Some(number);
                // The controller is told when all has been done that it asked for (rule L10).
                if !(is_asked && failure.is_none() && self.upload(now, number)) {
                    let is_on_disk = failure.is_none();
                    self.membership.send(Message::Checkpointed { number, is_on_disk, failure });
                }
            }
        }
        let is_suspended = self.shard.as_ref().is_some_and(|shard| shard.journal.is_suspended());
        self.resume_at = is_suspended.then_some(now + RESUME_PAUSE);
    }

    /// Asks for the upload of a checkpoint that is on the disk. Returns false if the job has no place for it.
    fn upload(&mut self, now: Instant, number: u64) -> bool {
        let Some(shard) = &mut self.shard else { return false };
        let durability = &shard.cluster.durability;
        let (to, bytes_per_second) = (durability.upload.clone(), durability.checkpoint_bytes_per_second);
        let Some(to) = to else { return false };
        shard.disk_times.uploading(now, number);
        self.request(StorageRequest::Upload { number, to, bytes_per_second });
        true
    }

    /// A checkpoint was uploaded, or was not: it is on the disk, and the job goes on (rule L10).
    fn uploaded(&mut self, number: u64, failure: Option<String>) {
        match core::mem::replace(&mut self.phase, Phase::Serving) {
            Phase::Finishing { event, is_last: true } if self.last_upload == Some(number) => {
                let failure =
                    failure.map(|reason| format!("it is on the disk, and was not uploaded: {reason}"));
                self.finish_with(event, failure);
            }
            phase => {
                self.phase = phase;
                self.membership.send(Message::Checkpointed { number, is_on_disk: true, failure });
            }
        }
    }

    /// Tries to restart the log, after a checkpoint (rule L6).
    pub(super) fn resume(&mut self, now: Instant) {
        self.resume_at = None;
        let is_saving = matches!(self.phase, Phase::Draining(Saving::Checkpoint | Saving::CheckpointBefore));
        if is_saving {
            return self.save_by_checkpoint(now);
        }
        let Some(shard) = self.shard.as_mut().filter(|shard| shard.journal.is_suspended()) else { return };
        if shard.journal.is_restarting() {
            // Its result comes as an event.
            return;
        }
        let number = shard.next_checkpoint();
        if !shard.begin_checkpoint(now, number, Occasion::Request) {
            self.resume_at = Some(now + RESUME_PAUSE);
        }
    }

    /// The job is over: its result is checkpointed once more (rule L7).
    pub(super) fn finish(&mut self, now: Instant, event: MemberEvent) {
        let is_done = matches!(event, MemberEvent::Finished(_));
        // One that is to end while the job does ends with it.
        let takes_part = matches!(self.phase, Phase::Serving | Phase::Draining(_));
        let keeps = |shard: &&mut Shard| shard.cluster.durability.needs_disk();
        let Some(shard) = self.shard.as_mut().filter(keeps).filter(|_| is_done && takes_part) else {
            return self.events.push_back(ServerEvent::Member(event));
        };
        let number = shard.next_checkpoint();
        // If one is being written, the last one follows.
        let is_last = shard.begin_checkpoint(now, number, Occasion::End);
        self.phase = Phase::Finishing { event, is_last };
    }

    /// Ends in order (rule L9).
    pub(super) fn drain(&mut self, now: Instant) {
        match (&self.phase, &self.shard) {
            // It ends by itself.
            (Phase::Draining(_) | Phase::Finishing { .. }, _) => {}
            (Phase::Serving, Some(shard)) if shard.cluster.durability.log => {
                self.phase = Phase::Draining(Saving::Log);
                self.end_if_logged(now);
            }
            (Phase::Serving, Some(shard)) if shard.cluster.durability.needs_disk() => {
                if self.membership.is_restartable() {
                    return self.save_by_checkpoint(now);
                }
                let reason =
                    "it has no --state-dir, and updates since its last checkpoint at the URL go with it";
                self.drained(Some(reason.to_owned()));
            }
            (Phase::Serving, Some(shard)) => {
                let rows = shard.store.rows();
                let reason = format!("the job has no log and no checkpoints, and its {rows} rows go with it");
                self.drained(Some(reason));
            }
            // It has answered nothing, or has nothing that its disk has not.
            _ => self.drained(None),
        }
    }

    /// Ends a server whose log has everything, or lets a checkpoint do it if the disk takes no log.
    fn end_if_logged(&mut self, now: Instant) {
        let Some(shard) = self.shard.as_ref().filter(|_| self.phase == Phase::Draining(Saving::Log)) else {
            return;
        };
        if shard.journal.is_suspended() {
            self.save_by_checkpoint(now);
        } else if shard.journal.has(shard.journal.newest()) || is_enabled(Mutant::DrainedBeforeSaved) {
            self.drained(None);
        }
    }

    /// Writes the checkpoint that has everything, after the one that is being written, if there is one.
    fn save_by_checkpoint(&mut self, now: Instant) {
        if is_enabled(Mutant::DrainedBeforeSaved) {
            return self.drained(None);
        }
        let shard = self.shard.as_mut().expect("only a server with a shard saves one");
        let begun = shard.begin_checkpoint(now, shard.next_checkpoint(), Occasion::Drain);
        self.phase = Phase::Draining(if begun { Saving::Checkpoint } else { Saving::CheckpointBefore });
    }

    fn drained(&mut self, unsaved: Option<String>) {
        self.phase = Phase::Draining(Saving::Done);
        self.events.push_back(ServerEvent::Member(MemberEvent::Drained { unsaved }));
    }

    fn finish_with(&mut self, event: MemberEvent, failure: Option<String>) {
        let number = self.shard.as_ref().map_or(0, |shard| shard.number);
        let event = match failure {
            Some(reason) => MemberEvent::Ended {
                reason: format!(
                    "the job is done, but the last checkpoint of server {number} cannot be written: {reason}",
                ),
                cause: EndCause::Failed,
            },
            None => event,
        };
        self.events.push_back(ServerEvent::Member(event));
    }
}

/// Those rows that belong to a shard.
fn own_rows(shard: &Shard, rows: RowBlock) -> RowBlock {
    if shard.owns(&rows.keys) && shard.owns(&rows.removed) {
        return rows;
    }
    let is_own = |key: &u64| shard.owns_key(*key);
    let mut own = RowBlock { table: rows.table, ..RowBlock::default() };
    let count = rows.keys.len().max(1);
    let (width, state) = (rows.values.len() / count, rows.state.len() / count);
    for (row, key) in rows.keys.iter().enumerate().filter(|(_, key)| is_own(key)) {
        own.keys.push(*key);
        own.values.extend_from_slice(&rows.values[row * width..(row + 1) * width]);
        own.state.extend_from_slice(&rows.state[row * state..(row + 1) * state]);
    }
    own.removed = rows.removed.into_iter().filter(|key| is_own(key)).collect();
    own
}
