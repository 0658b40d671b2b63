//! Servers that were started again and read their disks: they are waited for as long as that goes on (rule L8).

use core::net::SocketAddr;
use core::time::Duration;

use libra_dataplane::mutants::{Mutant, is_enabled};

use super::{Controller, ControllerEvent, Phase};
use crate::admission::FIRST_BYTES_MAX;
use crate::cluster::Peer;
use crate::message::{Kind, Message, Restoring};
use crate::role::{Action, Link};
use crate::time::Instant;

/// A user is told the progress of a server this often.
const NOTICE_INTERVAL: Duration = Duration::from_secs(10);

/// The process of a server that reads its disk.
#[derive(Debug, Clone, Copy)]
pub(super) struct Restarted {
    progress: Restoring,
    noticed_at: Instant,
}

impl Controller {
    /// A server tells how much of its disk it has read. Only more than before counts.
    pub(super) fn handle_restoring(&mut self, now: Instant, link: Link, progress: Restoring) {
        let server = Peer::Server(progress.server);
        match self.phase {
            // Only a server that has read its disk can tell if there is a cluster to take over.
            Phase::Gathering => return self.hang_up(link),
            Phase::Finishing | Phase::Over => return self.turn_away(link),
            Phase::Recovering | Phase::Running => {}
        }
        if progress.instance != self.cluster.instance {
            let reason = format!("the job of {server} is over: another one runs at this controller");
            return self.refuse(link, &reason);
        }
        let Some(address) = self.cluster.view.servers.get(usize::from(progress.server)).copied() else {
            return self.refuse(link, &format!("the cluster has no {server}"));
        };
        self.actions.push_back(Action::Admit { link, message_bytes_max: FIRST_BYTES_MAX });
        let before = self.restarted.get(&address).copied();
        let place = |of: Restoring| (of.server, of.read);
        let has_progressed = before.is_none_or(|before| place(before.progress) != place(progress));
        if !has_progressed || !self.wait_longer_for(now, address, progress.server) {
            return;
        }
        let noticed_at = before.map(|before| before.noticed_at).filter(|at| now < *at + NOTICE_INTERVAL);
        if noticed_at.is_none() {
            self.events.push_back(ControllerEvent::Restoring(progress));
        }
        self.restarted.insert(address, Restarted { progress, noticed_at: noticed_at.unwrap_or(now) });
        // They call it for as long as this controller waits.
        let workers: Vec<Peer> = self.of_kind(Kind::Worker).map(|(peer, _)| peer).collect();
        workers.into_iter().for_each(|worker| self.send(worker, Message::Restoring(progress)));
    }

    /// Moves the time at which the shards of a process are given up. Returns false if none of them is away.
    fn wait_longer_for(&mut self, now: Instant, address: SocketAddr, read: u16) -> bool {
        let mut is_away = false;
        for (number, _) in (0..).zip(&self.cluster.view.servers).filter(|(_, other)| **other == address) {
            match self.members.get_mut(&Peer::Server(number)) {
                Some(member) if member.link.is_some() => {}
                Some(member) => {
                    is_away = true;
                    let is_forgotten = is_enabled(Mutant::RestoringNotAwaited)
                        || is_enabled(Mutant::OtherShardsNotAwaited) && number != read;
                    if !is_forgotten {
                        member.progress_at = Some(now);
                    }
                }
                None => is_away = true,
            }
        }
        if let Some(recovery) = self.recovery.as_mut().filter(|_| is_away) {
            recovery.servers_until = now + self.cluster.return_max;
        }
        is_away
    }

    /// A server is back: its process has read everything.
    pub(super) fn end_restoring(&mut self, server: Peer) {
        if let Peer::Server(number) = server
            && let Some(address) = self.cluster.view.servers.get(usize::from(number))
        {
            self.restarted.remove(address);
        }
    }

    /// Describes how far a server came that did not come back in time; nothing of another member.
    pub(super) fn failed_return_of(&self, peer: Peer) -> String {
        let is_restartable = self.members.get(&peer).is_some_and(|member| member.is_restartable);
        let Peer::Server(number) = peer else { return String::new() };
        let seconds = self.cluster.return_max.as_secs();
        let address = self.cluster.view.servers.get(usize::from(number));
        match address.and_then(|address| self.restarted.get(address)) {
            Some(Restarted { progress, .. }) => {
                format!(
                    "; started again, it has read {progress} of its disk, and nothing more in {seconds} s"
                )
            }
            None if is_restartable => format!("; it did not come back in {seconds} s"),
            None => String::new(),
        }
    }
}
