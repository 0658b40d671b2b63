//! Detection of members that have failed, and its consequences for the others.

use core::time::Duration;

use libra_dataplane::planted::{PlantedBug, is_planted};

use super::members::{Member, kind_of};
use super::{Controller, ControllerEvent, Phase};
use crate::cluster::Peer;
use crate::role::Action;
use crate::time::Instant;

/// A timer that comes later than this was not late because of a busy machine: this process slept.
const LATE_MAX: Duration = Duration::from_millis(100);
/// A controller looks at the clock at least so often, so that a sleep shorter than any timeout is noticed, too.
pub(super) const NAP_MAX: Duration = Duration::from_millis(250);

impl Controller {
    /// A member is gone for good (rule M7).
    pub(super) fn lose(&mut self, now: Instant, peer: Peer, reason: String) {
        let Some(member) = self.members.remove(&peer) else { return };
        if let Some(link) = member.link {
            self.callers.remove(&link);
            self.actions.push_back(Action::Close { link });
        }
        self.departed.extend(member.statistics.map(|statistics| (peer, statistics)));
        if matches!(peer, Peer::Server(_)) {
            return self.fail(format!("{peer} ({}) {reason}", member.address));
        }
        self.events.push_back(ControllerEvent::Lost { peer, reason: reason.clone() });
        if self.has_nobody_to_train() {
            return self.fail(format!("{peer} ({}) {reason}, and there is no other worker", member.address));
        }
        self.raise(now);
        self.go_on_without_workers();
    }

    /// Forgets a member whose place is free again. It calls again, and receives the reason.
    pub(super) fn send_away(&mut self, peer: Peer) {
        let link = self.members.remove(&peer).and_then(|member| member.link);
        self.callers.retain(|other, _| Some(*other) != link);
        self.actions.extend(link.map(|link| Action::Close { link }));
    }

    /// A process that slept must not blame others for messages that it could not receive meanwhile (rule M13).
    pub(super) fn wake(&mut self, now: Instant) {
        self.looked_at = now;
        let Some(due) = self.due.filter(|due| *due + LATE_MAX < now) else { return };
        // What came meanwhile is still to be read.
        let slept = now.since(due) + LATE_MAX;
        for member in self.members.values_mut() {
            member.heard_at = member.heard_at + slept;
            member.lost_at = member.lost_at.map(|lost_at| lost_at + slept);
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
            awaited.then(|| (member.deadline(kind_of(*peer)), *peer))
        });
        overdue.min()
    }

    pub(super) fn give_up(&mut self, now: Instant, peer: Peer) {
        let Some(member) = self.members.get_mut(&peer) else { return };
        if self.phase == Phase::Finishing {
            member.settled = true;
            return self.finish_if_complete();
        }
        let is_silent = member.returns && self.phase == Phase::Running && member.link.is_some();
        if is_silent && !is_planted(PlantedBug::SilentServerGivenUp) {
            return self.end_stream_of(now, peer);
        }
        let reason = match &member.closed_because {
            Some(reason) if member.lost_at.is_some() => format!("disappeared: {reason}"),
            _ => format!("sent nothing for {:?}", Member::silence_max(kind_of(peer))),
        };
        if self.phase == Phase::Recovering {
            self.send_away(peer);
        } else if self.phase == Phase::Gathering {
            self.send_away(peer);
            self.events.push_back(ControllerEvent::Lost { peer, reason });
        } else {
            self.lose(now, peer, reason);
        }
    }
}
