//! Streams with an unidentified peer, and their limits.

use core::net::SocketAddr;

use super::{Caller, Controller, ControllerEvent, Phase};
use crate::admission::{PROPOSAL_BYTES_MAX, TO_CONTROLLER_BYTES_MAX};
use crate::cluster::Peer;
use crate::role::{Action, Link, Strangers};

impl Controller {
    /// Closes a stream. Its driver reports nothing more of it.
    pub(super) fn hang_up(&mut self, link: Link) {
        self.callers.remove(&link);
        self.actions.push_back(Action::Close { link });
    }

    /// The other end of a stream is this member (rule S2).
    pub(super) fn admit(&mut self, link: Link, remote: SocketAddr, peer: Peer) {
        self.callers.insert(link, Caller { remote, peer: Some(peer) });
        // A proposal has a plan in it, and a worker that comes back has the accounts of all phases.
        let may_propose = self.phase == Phase::Gathering || self.takes_tables();
        let is_long = matches!(peer, Peer::Worker(_)) && (may_propose || self.cluster.work.is_some());
        let message_bytes_max = if is_long { PROPOSAL_BYTES_MAX } else { TO_CONTROLLER_BYTES_MAX };
        self.actions.push_back(Action::Admit { link, message_bytes_max });
    }

    pub(super) fn note_strangers(&mut self, strangers: Strangers) {
        self.events.extend(self.strangers.add(strangers).map(ControllerEvent::Strangers));
    }

    /// Closes the stream of a peer that sent another message before it identified itself (rule S3).
    pub(super) fn close_stranger(&mut self, link: Link) {
        if let Some(Caller { remote, .. }) = self.callers.get(&link).copied() {
            let reason = "it did not identify itself".to_owned();
            self.note_strangers(Strangers { count: 1, remote, reason });
        }
        self.hang_up(link);
    }

    /// A member ends the job. While the members of another controller come back, some may be none (rule S3).
    pub(super) fn fail_by(&mut self, peer: Peer, reason: String) {
        if self.phase != Phase::Recovering || self.cluster.contains(peer) {
            return self.fail(reason);
        }
        if let Some(member) = self.members.get(&peer) {
            let reason = format!("{peer}, which is in no view, gave up: {reason}");
            let remote = member.address;
            self.note_strangers(Strangers { count: 1, remote, reason });
        }
        self.forget_member(peer);
    }
}
