//! Clocks: how far each worker is since the last barrier, and what all of them have reached.

use libra_dataplane::mutants::{Mutant, is_enabled};

use super::Controller;
use crate::cluster::Peer;
use crate::message::{Kind, Message};

/// The clock of a worker that came while the others train: it begins with the next barrier, and blocks no other before.
pub(super) const NOT_STARTED: u64 = u64::MAX;

impl Controller {
    pub(super) fn handle_clock(&mut self, peer: Peer, barrier: u64, clock: u64) {
        if barrier > self.barrier {
            let at = self.barrier;
            return self
                .fail(format!("{peer} has a clock before barrier {barrier}, the others are before {at}"));
        }
        if let Some(member) = self.members.get_mut(&peer) {
            // One that was passed counts no more, and none goes back: on a new stream it is sent again.
            member.clock = member.clock.max((barrier, clock));
        }
        self.send_clocks();
    }

    /// Sends the workers the least clock of all that train, if it has changed (rule M16).
    pub(super) fn send_clocks(&mut self) {
        if !self.may_pass_without_the_lost() {
            return;
        }
        let barrier = self.barrier;
        let has_work = self.cluster.work.is_some();
        // A worker that has come to the barrier makes nothing visible before it any more, nor does one without a lease.
        let clocks = self.of_kind(Kind::Worker).filter_map(|(_, member)| {
            let is_idle = has_work && member.leases.held.is_empty();
            let trains = !member.has_reported && member.at_barrier != Some(barrier) && !is_idle;
            let unreported = if is_enabled(Mutant::UnheardClockIgnored) { NOT_STARTED } else { 0 };
            let clock = if member.clock.0 == barrier { member.clock.1 } else { unreported };
            (trains && clock != NOT_STARTED).then_some(clock)
        });
        let Some(least) = clocks.min().filter(|least| *least > 0) else { return };
        if (barrier, least) <= self.clocks_sent {
            return;
        }
        self.clocks_sent = (barrier, least);
        let workers: Vec<Peer> =
            self.of_kind(Kind::Worker).filter(|(_, member)| member.started).map(|(peer, _)| peer).collect();
        for peer in workers {
            self.resend_clocks(peer);
        }
    }

    /// Sends a worker the clocks that it may have missed.
    pub(super) fn resend_clocks(&mut self, peer: Peer) {
        let (barrier, least) = self.clocks_sent;
        if matches!(peer, Peer::Worker(_)) && barrier == self.barrier && least > 0 {
            let view = self.cluster.view.number;
            self.send(peer, Message::Clocks { barrier, least, view });
        }
    }
}
