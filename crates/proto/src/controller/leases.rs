//! Leases: the work of a job is dealt in chunks to the workers that ask, and comes back when they are gone (rules K1 to K9).

use std::collections::BTreeSet;

use libra_dataplane::mutants::{Mutant, is_enabled};

use super::members::Member;
use super::{Controller, ControllerEvent, Phase};
use crate::cluster::Peer;
use crate::message::{Kind, Message};
use crate::status::WorkStatus;
use crate::time::Instant;
use crate::work::{AddedPhase, LeaseRequest, WorkDone, WorkRecord};

/// Leases that a worker may have at a time.
const LEASES_MAX: u16 = 64;

/// The chunks of the present phase, as far as no worker has a lease of them.
#[derive(Debug, Clone, Default)]
pub(super) struct Leases {
    /// The phase; none: the job has no work, or has not begun.
    phase: Option<u64>,
    /// Number of its chunks: 0 before it is added to open work.
    chunks: u32,
    /// Chunks to deal.
    free: BTreeSet<u32>,
    /// Number of chunks that are not done.
    left: usize,
    /// Chunks that were dealt again after a worker was lost that may have done a part.
    repeated: u64,
}

/// Work of a worker, as the controller knows it.
#[derive(Debug, Clone, Default)]
pub(super) struct WorkerLeases {
    /// Chunks of the present phase that are its own to do.
    pub(super) held: BTreeSet<u32>,
    wanted: u16,
    /// The chunk behind the last one of the present phase that it got.
    next: Option<u32>,
    pub(super) record: WorkRecord,
    /// It has not told this controller yet what it holds (one that has taken over).
    pub(super) is_unknown: bool,
}

impl Controller {
    /// Goes on where the controller before was. Of workers that are not there any more the servers know it: of those that ended before
    /// from the view, of the others what was done at the last checkpoint (rule K5).
    pub(super) fn take_over_work(&mut self) {
        let Some(work) = &mut self.cluster.work else { return };
        let told = self.members.values_mut().map(|member| core::mem::take(&mut member.work_done));
        let progress = |told: &WorkDone| {
            let done = told.records.iter().map(|(_, record)| record.done_in(told.phase).count());
            (told.phase, done.sum::<usize>())
        };
        let told = told.max_by_key(progress).unwrap_or_default();
        let view = &mut self.cluster.view;
        // Behind the records of runs before this one.
        for (worker, record) in told.records.into_iter().skip(work.done.records.len()) {
            if !self.members.contains_key(&Peer::Worker(worker)) && !view.finished.contains_key(&worker) {
                view.finished.insert(worker, record);
                work.done.repeated = work.done.repeated.max(told.repeated);
            }
        }
        let phases = view.finished.values().map(|record| record.phase);
        let known = [self.barrier, work.done.phase, told.phase, view.added.done];
        self.barrier = phases.chain(known).fold(0, u64::max);
    }

    /// Takes note of what a worker has done, and deals (rules K2, K3).
    pub(super) fn handle_lease(&mut self, peer: Peer, request: &LeaseRequest) {
        let LeaseRequest { record, held, wanted } = request;
        if self.cluster.work.is_none() {
            return;
        }
        let (chunks, phase) = (self.cluster.chunks(record.phase), record.phase);
        if phase > self.barrier {
            let reason = format!("{peer} is in phase {phase}, the others are in {}", self.barrier);
            return self.fail_by(peer, reason);
        }
        let known = record.accounts.keys().all(|of| *of <= phase);
        if !known || record.done.iter().chain(held).any(|chunk| *chunk >= chunks) {
            return self.fail_by(peer, format!("{peer} tells of chunks that phase {phase} does not have"));
        }
        let Some(member) = self.members.get_mut(&peer) else { return };
        let leases = &mut member.leases;
        (leases.is_unknown, leases.wanted) = (false, (*wanted).min(LEASES_MAX));
        leases.record.add(record);
        if self.leases.phase.is_none() {
            leases.held.extend(held);
            leases.held.retain(|chunk| !record.done.contains(chunk));
        } else if self.leases.phase == Some(phase) {
            leases.held.extend(held.iter().filter(|chunk| self.leases.free.remove(chunk)));
            for chunk in &record.done {
                // Of two workers that had leases of it one after the other, the first counts.
                let was_open = leases.held.remove(chunk) || self.leases.free.remove(chunk);
                self.leases.left -= usize::from(was_open);
            }
        }
        self.go_on_without_workers();
    }

    /// Begins a phase: done is what workers have done of it that are known, held what they tell a controller that takes over.
    fn begin_phase(&mut self) {
        let phase = self.barrier;
        let chunks = self.cluster.chunks(phase);
        let Some(work) = &mut self.cluster.work else { return };
        let mut free: BTreeSet<u32> = (0..chunks).collect();
        let before = work.done.records.iter_mut().map(|(_, record)| record);
        let gone = before.chain(self.cluster.view.finished.values_mut());
        let gone = gone.map(|record| {
            record.enter(phase);
            &*record
        });
        let present = self.members.values().map(|member| &member.leases.record);
        for chunk in gone.chain(present).flat_map(|record| record.done_in(phase)) {
            free.remove(&chunk);
        }
        let left = free.len();
        for leases in self.members.values_mut().map(|member| &mut member.leases) {
            let WorkerLeases { held, record, next, .. } = leases;
            held.retain(|chunk| record.phase == phase && free.remove(chunk));
            *next = held.last().map(|last| last + 1);
        }
        let repeated = self.repeated_chunks();
        self.leases = Leases { phase: Some(phase), chunks, free, left, repeated };
    }

    /// Goes on to the next phase if all chunks of one are done, and deals what is free to the workers that want it (rules K2, K4).
    pub(super) fn deal(&mut self) {
        if self.cluster.work.is_none() || !self.may_pass_without_the_lost() {
            return;
        }
        let phases = self.cluster.phases();
        if (self.leases.phase, self.leases.chunks) != (Some(self.barrier), self.cluster.chunks(self.barrier))
        {
            self.begin_phase();
        }
        // Until a worker has told what it holds, the same could be dealt to another.
        let is_unknown = |member: &Member| member.leases.is_unknown && !member.has_reported;
        if self.of_kind(Kind::Worker).any(|(_, member)| is_unknown(member))
            && !is_enabled(Mutant::HeldChunkDealt)
        {
            return;
        }
        let mut told: BTreeSet<Peer> = BTreeSet::new();
        while self.leases.left == 0 && self.barrier < phases {
            self.barrier += 1;
            self.begin_phase();
            told.extend(self.of_kind(Kind::Worker).map(|(peer, _)| peer));
        }
        // One for each before the second for any.
        let most = self.of_kind(Kind::Worker).map(|(_, member)| member.leases.wanted).max().unwrap_or(0);
        let most = if self.are_leases_closed() { 0 } else { most };
        for round in 1..=most {
            let wants = |member: &Member| {
                let WorkerLeases { held, wanted, .. } = &member.leases;
                let has_place = member.started && member.link.is_some() && !member.leaves;
                has_place && held.len() < usize::from(round.min(*wanted))
            };
            let asking: Vec<Peer> =
                self.of_kind(Kind::Worker).filter(|(_, it)| wants(it)).map(|(peer, _)| peer).collect();
            for peer in asking {
                if self.lease_to(peer) {
                    told.insert(peer);
                }
            }
        }
        for peer in told {
            self.send_leases(peer);
        }
    }

    /// Returns the free chunk that a worker gets: the one behind the last that it got. Otherwise it begins with the longest run of free chunks, in its middle if
    /// another worker is going to have its first one (rule K2).
    fn chunk_for(&self, peer: Peer) -> Option<u32> {
        let free = &self.leases.free;
        let next = self.members[&peer].leases.next;
        if let Some(next) = next.filter(|next| free.contains(next)) {
            return Some(next);
        }
        let mut longest = 0..0;
        let mut run = 0..0;
        for &chunk in free {
            run = if run.end == chunk && !run.is_empty() { run.start..chunk + 1 } else { chunk..chunk + 1 };
            if run.len() > longest.len() {
                longest = run.clone();
            }
        }
        let is_next = |(_, member): (Peer, &Member)| member.leases.next == Some(longest.start);
        let middle = longest.start + (longest.end - longest.start) / 2;
        let chunk = if self.of_kind(Kind::Worker).any(is_next) { middle } else { longest.start };
        (!longest.is_empty()).then_some(chunk)
    }

    /// Gives a worker a lease of another chunk. The clock of one that had none goes on from the slowest of the others (rule K6).
    fn lease_to(&mut self, peer: Peer) -> bool {
        let Some(chunk) = self.chunk_for(peer) else { return false };
        self.leases.free.remove(&chunk);
        let slowest = (self.barrier, self.least_clock());
        let member = self.members.get_mut(&peer).expect("it was listed a moment ago");
        if member.leases.held.is_empty() {
            member.clock = member.clock.max(slowest);
        }
        member.leases.next = Some(chunk + 1);
        member.leases.held.insert(chunk)
    }

    /// The least clock that the workers were sent since the barrier, at the start of a step.
    fn least_clock(&self) -> u64 {
        let (barrier, least) = self.clocks_sent;
        let least = if barrier == self.barrier { least } else { 0 };
        least.next_multiple_of(self.cluster.mode.ticks_of_a_step())
    }

    /// Adds phases to open work, behind so many that there are. Servers have them before they are dealt (rule K9).
    pub(super) fn add_phases(
        &mut self,
        now: Instant,
        behind: u64,
        phases: Vec<AddedPhase>,
        is_complete: bool,
    ) {
        // A controller before this one may have added some that the front end of this one has not heard of yet.
        if self.phase != Phase::Running || !self.cluster.takes_phases() || self.cluster.phases() != behind {
            return;
        }
        let added = &mut self.cluster.view.added;
        added.enter(self.barrier);
        added.phases.extend(phases);
        added.is_complete = is_complete;
        self.report_added();
        self.raise(now);
    }

    /// Tells the front end which phases open work has.
    pub(super) fn report_added(&mut self) {
        if self.cluster.work.as_ref().is_some_and(|work| work.is_open) {
            self.events.push_back(ControllerEvent::PhasesAdded(self.cluster.view.added.clone()));
        }
    }

    /// Sends a worker its leases, all of them: what it has received before may be lost.
    pub(super) fn send_leases(&mut self, peer: Peer) {
        let Some(member) = self.members.get(&peer).filter(|member| member.started) else { return };
        if self.cluster.work.is_none() || !matches!(peer, Peer::Worker(_)) {
            return;
        }
        let (barrier, clock) = member.clock;
        let clock = if barrier == self.barrier { clock } else { 0 };
        let chunks = member.leases.held.iter().copied().collect();
        self.send(peer, Message::Leased { phase: self.barrier, chunks, clock });
    }

    /// A worker is gone: its leases are free, and the servers will have its record with the next view (rule K5).
    pub(super) fn take_back(&mut self, peer: Peer, leases: &WorkerLeases) {
        let Peer::Worker(worker) = peer else { return };
        if self.cluster.work.is_none() {
            return;
        }
        self.leases.repeated += leases.held.len() as u64;
        self.leases.free.extend(&leases.held);
        self.cluster.view.finished.insert(worker, leases.record.clone());
    }

    /// Frees the leases of a worker that leaves. It goes once the servers have its record, which stays whatever becomes of this controller (rule K5).
    pub(super) fn record_leaver(&mut self, peer: Peer) -> Recorded {
        let (Peer::Worker(worker), Some(member)) = (peer, self.members.get_mut(&peer)) else {
            return Recorded::Yes;
        };
        let leases = &mut member.leases;
        self.leases.free.append(&mut leases.held);
        if leases.record == WorkRecord::default() || is_enabled(Mutant::RecordOfLeaverLost) {
            return Recorded::Yes;
        }
        let finished = &mut self.cluster.view.finished;
        if finished.get(&worker) != Some(&leases.record) {
            finished.insert(worker, leases.record.clone());
            return Recorded::WithNextView;
        }
        if self.step > super::Step::Servers { Recorded::Yes } else { Recorded::OnItsWay }
    }

    /// Returns the number of chunks that were dealt again, though rows may have a part of them.
    pub(super) fn repeated_chunks(&self) -> u64 {
        match (&self.cluster.work, self.leases.phase) {
            (Some(work), None) => work.done.repeated,
            _ => self.leases.repeated,
        }
    }

    /// Returns true if a worker has a lease.
    pub(super) fn has_leases(&self) -> bool {
        self.members.values().any(|member| !member.leases.held.is_empty())
    }

    /// Returns what is done of the work, for a checkpoint: what is held now is done again by a job that resumes there (rule K7).
    pub(super) fn work_done(&self) -> Option<WorkDone> {
        self.cluster.work.as_ref()?;
        let held: usize = self.members.values().map(|member| member.leases.held.len()).sum();
        let repeated = self.repeated_chunks() + held as u64;
        Some(WorkDone { phase: self.barrier, records: self.records(), repeated })
    }

    /// Returns the progress of the work.
    pub(super) fn work_status(&self) -> Option<WorkStatus> {
        self.cluster.work.as_ref()?;
        let (phase, chunks) = (self.barrier, self.cluster.chunks(self.barrier));
        let count = |count| u32::try_from(count).expect("chunks are numbered by u32");
        let (mut left, mut leased) = (chunks, 0);
        if self.leases.phase == Some(phase) {
            left = count(self.leases.left);
            leased = left - count(self.leases.free.len());
        }
        Some(WorkStatus {
            phase,
            phases: self.cluster.phases(),
            chunks,
            done: chunks - left,
            leased,
            workers_max: self.cluster.shares,
            repeated: self.repeated_chunks(),
        })
    }

    /// Returns the records of all workers, those of earlier runs first.
    pub(super) fn records(&self) -> Vec<(u16, WorkRecord)> {
        let present = self.of_kind(Kind::Worker).map(|(peer, member)| (peer, member.leases.record.clone()));
        let number =
            |(peer, record)| if let Peer::Worker(worker) = peer { Some((worker, record)) } else { None };
        let mut records = self.cluster.view.finished.clone();
        records.extend(present.filter_map(number));
        let before = self.cluster.work.iter().flat_map(|work| work.done.records.iter().cloned());
        before.chain(records).collect()
    }
}

/// State of the record of a worker at the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recorded {
    Yes,
    /// They were sent it.
    OnItsWay,
    /// They are to be sent the next view.
    WithNextView,
}
