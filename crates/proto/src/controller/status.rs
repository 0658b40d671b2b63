//! Status of the controller and of the members as it sees them, and answers to processes that ask where to read it.

use super::members::{Member, kind_of};
use super::{Controller, ControllerEvent, Phase, Sizes, Step};
use crate::cluster::Peer;
use crate::histogram::Histogram;
use crate::message::{Kind, Message, VERSION};
use crate::role::{Action, Link};
use crate::status::{
    CheckpointStatus, ControllerStatus, Gathering, JobPhase, KnownMember, Lost, MemberState,
};
use crate::time::Instant;

/// Counts of events since this controller began.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    lost: Lost,
    view_changes: Histogram,
    regions_moved: u64,
    checkpoint: u64,
    checkpoint_at: Option<Instant>,
    checkpoints_written: u64,
    checkpoints_failed: u64,
    strangers: u64,
}

impl Tally {
    /// Counts an event that is reported.
    pub(super) fn note(&mut self, now: Instant, event: &ControllerEvent) {
        match event {
            ControllerEvent::Lost { peer, .. } => match peer {
                Peer::Server(_) => self.lost.servers += 1,
                Peer::Switch(_) => self.lost.switches += 1,
                Peer::Worker(_) | Peer::Controller => self.lost.workers += 1,
            },
            ControllerEvent::Settled { moved, took, .. } => {
                self.view_changes.record(*took);
                self.regions_moved += *moved as u64;
            }
            ControllerEvent::Checkpointed { number, .. } => {
                (self.checkpoint, self.checkpoint_at) = (*number, Some(now));
                self.checkpoints_written += 1;
            }
            ControllerEvent::CheckpointFailed { .. } => self.checkpoints_failed += 1,
            ControllerEvent::Strangers(strangers) => self.strangers = strangers.count,
            _ => {}
        }
    }
}

impl Controller {
    /// A process that does not join asks where to read the status (rule M21).
    pub(super) fn handle_enquiry(&mut self, link: Link) {
        let message = Message::Described { version: VERSION, http: self.http };
        self.actions.push_back(Action::Send { link, message });
        self.hang_up(link);
    }

    pub(super) fn status_at(&self, now: Instant) -> ControllerStatus {
        let Tally { lost, view_changes, regions_moved, .. } = self.tally;
        let known = |(peer, member): (&Peer, &Member)| self.known(now, *peer, member);
        ControllerStatus {
            job: self.cluster.job,
            phase: match self.phase {
                Phase::Gathering => JobPhase::Gathering,
                Phase::Recovering => JobPhase::Recovering,
                Phase::Running => JobPhase::Running,
                Phase::Finishing => JobPhase::Finishing,
                Phase::Over => JobPhase::Over,
            },
            view: self.cluster.view.number,
            is_settled: self.step == Step::Settled,
            gathering: self.gathering(),
            members: self.members.iter().map(known).collect(),
            departed: self.departed.clone(),
            lost,
            view_changes,
            regions_moved,
            work: self.work_status(),
            checkpoints: self.checkpoint_status(now),
            tags: self.cluster.hot_path.tags,
            strangers: self.tally.strangers,
            failure: self.failure.clone(),
        }
    }

    fn gathering(&self) -> Option<Gathering> {
        let Self { sizes: expected, ref held, .. } = *self;
        if self.phase != Phase::Gathering || held.is_some() {
            return None;
        }
        let missing = self.missing();
        let there = Sizes {
            servers: expected.servers - missing.servers,
            switches: expected.switches - missing.switches,
            workers: expected.workers - missing.workers,
        };
        Some(Gathering { there, expected })
    }

    fn checkpoint_status(&self, now: Instant) -> CheckpointStatus {
        let Tally { checkpoint, checkpoint_at, checkpoints_written, checkpoints_failed, .. } = self.tally;
        CheckpointStatus {
            are_possible: self.cluster.durability.needs_disk(),
            newest: checkpoint,
            age: checkpoint_at.map(|at| now.since(at)),
            every: self.cluster.durability.checkpoint_every,
            written: checkpoints_written,
            failed: checkpoints_failed,
        }
    }

    fn known(&self, now: Instant, peer: Peer, member: &Member) -> KnownMember {
        let regions = match peer {
            Peer::Switch(switch) => self.cluster.view.regions_of(switch) as u64,
            _ => 0,
        };
        let (barrier, clock) = member.clock;
        KnownMember {
            peer,
            state: self.state_of(peer, member, regions),
            address: member.address,
            http: member.http,
            view: member.viewed,
            regions,
            share: member.share,
            clock: if barrier == self.barrier && clock != u64::MAX { clock } else { 0 },
            silent: now.since(member.received_at.min(now)),
            counts: member.statistics,
        }
    }

    fn state_of(&self, peer: Peer, member: &Member, regions: u64) -> MemberState {
        let is_switch = kind_of(peer) == Kind::Switch;
        match member {
            Member { has_reported: true, .. } => MemberState::Done,
            Member { settled: true, .. } if self.phase >= Phase::Finishing => MemberState::Done,
            Member { link: None, .. } => MemberState::Away,
            Member { leaves: true, .. } => MemberState::Leaving,
            Member { started: false, .. } => MemberState::Joining,
            Member { retired: true, .. } => MemberState::Retired,
            Member { viewed, .. } if *viewed < self.cluster.view.number => MemberState::Entering,
            _ if is_switch && regions == 0 => MemberState::Standby,
            _ => MemberState::Active,
        }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    #[test]
    fn events_are_tallied_by_their_kind() {
        let mut tally = Tally::default();
        let at = Instant::ZERO + Duration::from_secs(3);
        let lost = |peer| ControllerEvent::Lost { peer, reason: String::new() };
        for event in [
            lost(Peer::Switch(1)),
            lost(Peer::Worker(0)),
            lost(Peer::Switch(2)),
            ControllerEvent::Settled { view: 3, moved: 2, took: Duration::from_millis(20) },
            ControllerEvent::Settled { view: 4, moved: 3, took: Duration::from_millis(40) },
            ControllerEvent::Checkpointed { number: 7, took: Duration::ZERO },
            ControllerEvent::CheckpointFailed { number: 8, reason: String::new() },
        ] {
            tally.note(at, &event);
        }
        assert_eq!(tally.lost, Lost { servers: 0, switches: 2, workers: 1 });
        assert_eq!((tally.view_changes.count(), tally.view_changes.sum()), (2, Duration::from_millis(60)));
        assert_eq!((tally.regions_moved, tally.checkpoint, tally.checkpoint_at), (5, 7, Some(at)));
        assert_eq!((tally.checkpoints_written, tally.checkpoints_failed), (1, 1));
    }
}
