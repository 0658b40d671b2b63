//! Barriers, reports, and how a job ends.

use libra_dataplane::mutants::{Mutant, is_enabled};

use super::leases::Recorded;
use super::members::Member;
use super::{Controller, ControllerEvent, Outcome, Phase, Step};
use crate::cluster::Peer;
use crate::message::{Kind, Message};
use crate::role::{Action, Link};
use crate::time::Instant;

impl Controller {
    /// Those that are left may have waited for just the one that went.
    pub(super) fn go_on_without_workers(&mut self) {
        self.deal();
        self.release_if_complete();
        self.send_clocks();
        self.finish_if_complete();
    }

    /// Returns true if only the members that are there count. While members come back, one that has not come yet may be behind. And one
    /// that was given up counts until the servers have rejoined: perhaps it follows another controller, and so do they (rule M17).
    pub(super) fn may_pass_without_the_lost(&self) -> bool {
        let servers_know = self.step > Step::Servers || is_enabled(Mutant::LeftBehindDecides);
        self.phase == Phase::Running && servers_know
    }

    /// Returns true if the job cannot come to an end any more: no worker is there, and none has reported.
    pub(super) fn has_no_worker(&self) -> bool {
        self.reports.is_empty() && self.of_kind(Kind::Worker).next().is_none()
    }

    /// Ends the job for a caller.
    pub(super) fn finish(&mut self, link: Link) {
        self.actions.push_back(Action::Send { link, message: Message::Finish });
        self.hang_up(link);
    }

    /// Tells a caller that comes after the end how the job ended (rule M12).
    pub(super) fn turn_away(&mut self, link: Link) {
        match self.failure.clone() {
            Some(reason) => self.refuse(link, &reason),
            None => self.finish(link),
        }
    }

    pub(super) fn handle_barrier(&mut self, peer: Peer, number: u64) {
        if self.cluster.work.is_some() {
            let reason = format!("{peer} came to a barrier in a job whose work is dealt in chunks");
            return self.fail_by(peer, reason);
        }
        if number > self.barrier {
            let reason = format!("{peer} came to barrier {number}, the others are at {}", self.barrier);
            return self.fail_by(peer, reason);
        }
        if let Some(member) = self.members.get_mut(&peer) {
            member.at_barrier = Some(number);
        }
        self.release_if_complete();
        self.send_clocks();
    }

    /// Releases the workers that wait at a barrier that all have come to; or at one that was passed before: then the release was lost (rule M10).
    pub(super) fn release_if_complete(&mut self) {
        if !self.may_pass_without_the_lost() {
            return;
        }
        // A worker that has its place and was not sent it yet begins at a barrier that must not pass without it.
        let training = || self.of_kind(Kind::Worker).filter(|(_, member)| !member.has_reported);
        let is_complete = training().next().is_some()
            && training().all(|(_, member)| member.at_barrier == Some(self.barrier));
        self.barrier += u64::from(is_complete);
        let passed = self.barrier;
        let waiting: Vec<(Peer, u64)> = self
            .of_kind(Kind::Worker)
            .filter_map(|(peer, member)| Some((peer, member.at_barrier.filter(|number| *number < passed)?)))
            .collect();
        for (peer, number) in waiting {
            self.send(peer, Message::Release { number });
            if let Some(member) = self.members.get_mut(&peer) {
                member.at_barrier = None;
            }
        }
    }

    pub(super) fn finish_if_complete(&mut self) {
        // All but the workers send their last counts, and then it is over (rule M12).
        let have_reported = self.of_kind(Kind::Worker).all(|(_, member)| member.has_reported);
        if self.may_pass_without_the_lost() && have_reported && !self.reports.is_empty() {
            self.phase = Phase::Finishing;
            for (peer, member) in &mut self.members {
                member.settled = matches!(peer, Peer::Worker(_)) || member.link.is_none();
            }
            self.prepare_checkpoint();
            self.send_to_all(&Message::Finish);
        }
        if self.phase == Phase::Finishing && self.members.values().all(|member| member.settled) {
            self.phase = Phase::Over;
            let reports = self.reports.values().cloned().collect();
            let present = self.members.iter().filter_map(|(peer, member)| Some((*peer, member.statistics?)));
            let mut statistics: Vec<_> = present.chain(self.departed.iter().copied()).collect();
            statistics.sort_unstable_by_key(|(peer, _)| *peer);
            let refusals = self.refusals.values().cloned().collect();
            let work = self.records();
            let (tags, plan) = (self.cluster.hot_path.tags, self.cluster.plan.clone().map(Box::new));
            self.events.push_back(ControllerEvent::Finished(Outcome {
                reports,
                work,
                repeated_chunks: self.repeated_chunks(),
                statistics,
                refusals,
                tags,
                plan,
            }));
        }
    }

    pub(super) fn fail(&mut self, reason: String) {
        if self.phase == Phase::Over {
            return;
        }
        self.phase = Phase::Over;
        self.recovery = None;
        self.failure = Some(reason.clone());
        self.refuse_held(&reason);
        self.send_to_all(&Message::Abort { reason: reason.clone() });
        self.events.push_back(ControllerEvent::Failed { reason });
    }

    /// Workers that have asked to go do so, and their shares are free (rule M11).
    pub(super) fn let_go(&mut self, now: Instant) {
        // While members come back it is not yet certain which workers would be left.
        if self.phase != Phase::Running {
            return;
        }
        let leaving: Vec<Peer> =
            self.of_kind(Kind::Worker).filter(|(_, member)| member.leaves).map(|(peer, _)| peer).collect();
        for peer in leaving {
            match self.record_leaver(peer) {
                Recorded::Yes => {}
                Recorded::OnItsWay => continue,
                Recorded::WithNextView => {
                    self.raise(now);
                    continue;
                }
            }
            let Some(member) = self.release_member(peer) else { continue };
            if self.has_no_worker() {
                if !member.returns {
                    return self.fail(format!("{peer} has left, and there is no other worker"));
                }
                self.wait_for_worker(now);
            }
            self.raise(now);
        }
        self.let_switches_go(now);
        self.go_on_without_workers();
    }

    /// The last worker has gone, and another is to come in its place.
    pub(super) fn wait_for_worker(&mut self, now: Instant) {
        if self.has_given_all_numbers() {
            let reason = self.describe_numbers();
            return self.fail(reason);
        }
        self.vacant_until = Some(now + self.cluster.return_max);
    }

    /// Asks workers to end that are too many, those that came last.
    pub(super) fn scale(&mut self, workers: u16) {
        self.events.push_back(ControllerEvent::ScaleAsked { workers });
        let present = self.of_kind(Kind::Worker).filter(|(_, member)| !member.leaves && !member.has_reported);
        let surplus: Vec<Peer> = present.map(|(peer, _)| peer).skip(workers.into()).collect();
        for peer in surplus {
            self.send(peer, Message::Drain);
        }
    }

    /// Lets a member end.
    pub(super) fn release_member(&mut self, peer: Peer) -> Option<Member> {
        self.send(peer, Message::Finish);
        let member = self.members.remove(&peer)?;
        self.callers.retain(|link, _| Some(*link) != member.link);
        self.departed.extend(member.statistics.map(|statistics| (peer, statistics)));
        self.left.insert(peer);
        Some(member)
    }
}
