//! Detection of members that have failed, and its consequences for the others.

use core::time::Duration;

use libra_dataplane::mutants::{Mutant, is_enabled};

use super::members::{Member, kind_of};
use super::{Controller, ControllerEvent, Phase};
use crate::cluster::Peer;
use crate::role::Action;
use crate::time::Instant;

/// A timer that comes later than this was not late because of a busy machine: this process slept.
const TIMER_DELAY_MAX: Duration = Duration::from_millis(100);
/// A controller looks at the clock at least so often, so that a sleep shorter than any timeout is noticed, too.
pub(super) const TICK_MAX: Duration = Duration::from_millis(250);

impl Controller {
    /// A member is gone for good (rule M7).
    pub(super) fn lose(&mut self, now: Instant, peer: Peer, reason: String) {
        let Some(member) = self.members.remove(&peer) else { return };
        if let Some(link) = member.link {
            self.callers.remove(&link);
            self.actions.push_back(Action::Close { link });
        }
        self.departed.extend(member.statistics.map(|statistics| (peer, statistics)));
        self.take_back(peer, &member.leases);
        if matches!(peer, Peer::Server(_)) {
            return self.fail(format!("{peer} ({}) {reason}", member.address));
        }
        self.events.push_back(ControllerEvent::Lost { peer, reason: reason.clone() });
        if matches!(peer, Peer::Worker(_)) && self.has_no_worker() {
            if !member.returns || is_enabled(Mutant::VacancyNotAwaited) {
                let address = member.address;
                return self.fail(format!("{peer} ({address}) {reason}, and there is no other worker"));
            }
            self.wait_for_worker(now);
        }
        self.raise(now);
        self.go_on_without_workers();
    }

    /// Forgets a member whose place is free again. It calls again, and receives the reason.
    pub(super) fn forget_member(&mut self, peer: Peer) {
        let link = self.members.remove(&peer).and_then(|member| member.link);
        self.callers.retain(|other, _| Some(*other) != link);
        self.actions.extend(link.map(|link| Action::Close { link }));
    }

    /// A process that slept must not blame others for messages that it could not receive meanwhile (rule M13).
    pub(super) fn account_for_sleep(&mut self, now: Instant) {
        self.looked_at = now;
        let Some(due) = self.due.filter(|due| *due + TIMER_DELAY_MAX < now) else { return };
        // What came meanwhile is still to be read.
        let slept = now.since(due) + TIMER_DELAY_MAX;
        for member in self.members.values_mut() {
            member.received_at = member.received_at + slept;
            member.lost_at = member.lost_at.map(|lost_at| lost_at + slept);
            member.progress_at = member.progress_at.map(|progress_at| progress_at + slept);
        }
        if let Some(retirement) = &mut self.retirement {
            retirement.until = retirement.until + slept;
        }
        self.probe_at = self.probe_at.map(|due| due + slept);
        self.view_until = self.view_until.map(|(until, view_max)| (until + slept, view_max));
        self.vacant_until = self.vacant_until.map(|until| until + slept);
        self.checkpoints.next_at = self.checkpoints.next_at.map(|due| due + slept);
        if let Some(recovery) = &mut self.recovery {
            recovery.switches_until = recovery.switches_until.map(|until| until + slept);
            recovery.workers_until = recovery.workers_until.map(|until| until + slept);
            recovery.servers_until = recovery.servers_until + slept;
        }
    }

    /// When the first member must be given up, and which.
    pub(super) fn first_overdue(&self) -> Option<(Instant, Peer)> {
        let overdue = self.members.iter().filter_map(|(peer, member)| {
            let awaited = match self.phase {
                Phase::Over => false,
                Phase::Finishing => !member.settled,
                _ => true,
            };
            awaited.then(|| (member.deadline(kind_of(*peer), self.cluster.return_max), *peer))
        });
        overdue.min()
    }

    pub(super) fn give_up(&mut self, now: Instant, peer: Peer) {
        let Some(member) = self.members.get_mut(&peer) else { return };
        if self.phase == Phase::Finishing {
            member.settled = true;
            return self.finish_if_complete();
        }
        let has_timed_out = member.is_restartable && self.phase == Phase::Running && member.link.is_some();
        if has_timed_out && !is_enabled(Mutant::SilentServerGivenUp) {
            return self.end_stream_of(now, peer);
        }
        let reason = match &member.closed_because {
            Some(reason) if member.lost_at.is_some() => {
                let reason = reason.clone();
                format!("disappeared: {reason}{}", self.failed_return_of(peer))
            }
            _ => format!("sent nothing for {:?}", Member::heartbeat_timeout(kind_of(peer))),
        };
        if self.phase == Phase::Recovering {
            self.forget_member(peer);
        } else if self.phase == Phase::Gathering {
            self.forget_member(peer);
            self.forget_proposal_of(peer);
            self.events.push_back(ControllerEvent::Lost { peer, reason });
        } else {
            self.lose(now, peer, reason);
        }
    }
}
