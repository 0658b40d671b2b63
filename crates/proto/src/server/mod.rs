//! The server: it owns one shard of the rows, and applies what workers and switches send.

mod shard;

use core::net::SocketAddr;
use std::collections::{BTreeMap, VecDeque};

use self::shard::{Nonsense, Shard};
use crate::cluster::Peer;
use crate::membership::{Membership, MembershipEvent};
use crate::message::{Kind, Message};
use crate::role::{Action, Link, LinkEvent, Outgoing, Role};
use crate::statistics::{ServerStatistics, Statistics};
use crate::time::Instant;

/// What a server or switch tells its user.
#[derive(Debug, Clone, PartialEq)]
pub enum MemberEvent {
    /// The cluster is complete, this is the member's place in it. A switch that was taken for dead starts again.
    Started {
        /// The place.
        you: Peer,
    },
    /// The job is done.
    Finished(Statistics),
    /// The job ended before it was done.
    Ended {
        /// Who ended it and why.
        reason: String,
    },
}

/// A server as a state machine without I/O.
#[derive(Debug, Clone)]
pub struct Server {
    membership: Membership,
    shard: Option<Shard>,
    callers: BTreeMap<Link, Peer>,
    actions: VecDeque<Action>,
    events: VecDeque<MemberEvent>,
    /// Messages that made no sense.
    dropped: u64,
}

impl Server {
    /// A server that will join the cluster of a controller, and that accepts streams at `stream`.
    pub fn new(controller: SocketAddr, stream: SocketAddr) -> Self {
        Self {
            membership: Membership::new(controller, Kind::Server, Some(stream), None, 0),
            shard: None,
            callers: BTreeMap::new(),
            actions: VecDeque::new(),
            events: VecDeque::new(),
            dropped: 0,
        }
    }

    fn handle_membership(&mut self, now: Instant, event: MembershipEvent) {
        match event {
            MembershipEvent::Started(start) => {
                let Peer::Server(number) = start.you else { return self.dropped += 1 };
                if self.shard.is_some() {
                    return self.dropped += 1;
                }
                match Shard::new(number, Box::new(start.cluster)) {
                    Ok(shard) => {
                        self.membership.viewed(shard.cluster.view.number);
                        self.shard = Some(shard);
                        self.events.push_back(MemberEvent::Started { you: start.you });
                    }
                    Err(reason) => self.membership.abort(&format!("server {number}: {reason}")),
                }
            }
            MembershipEvent::Changed(view) => {
                let Some(shard) = &mut self.shard else { return self.dropped += 1 };
                shard.enter(*view);
                self.membership.viewed(shard.cluster.view.number);
            }
            MembershipEvent::Connected => {
                let cluster = self.shard.as_ref().map(|shard| shard.cluster.clone());
                self.membership.introduce(0, cluster);
            }
            MembershipEvent::Retire | MembershipEvent::Released { .. } => self.dropped += 1,
            MembershipEvent::Finish => {
                let statistics = Statistics::Server(self.statistics());
                self.membership.heartbeat(now, statistics);
                self.events.push_back(MemberEvent::Finished(statistics));
            }
            MembershipEvent::Ended { reason } => self.events.push_back(MemberEvent::Ended { reason }),
        }
    }

    fn statistics(&self) -> ServerStatistics {
        let mut statistics = self.shard.as_ref().map(Shard::statistics).unwrap_or_default();
        statistics.dropped += self.dropped;
        statistics
    }

    fn handle_hello(&mut self, link: Link, job: u16, from: Peer) -> Result<(), Nonsense> {
        self.shard.as_ref().filter(|shard| shard.cluster.job == job).ok_or(Nonsense)?;
        self.callers.insert(link, from);
        Ok(())
    }

    fn handle_call(&mut self, link: Link, message: Message) -> Result<(), Nonsense> {
        if let Message::Hello { job, from } = message {
            return self.handle_hello(link, job, from);
        }
        let shard = self.shard.as_mut().ok_or(Nonsense)?;
        match (self.callers.get(&link), message) {
            (Some(Peer::Worker(worker)), Message::Push(push)) => shard.push(link, *worker, push),
            (Some(Peer::Worker(_)), Message::Pull { number, keys }) => shard.pull(link, number, &keys),
            (Some(Peer::Worker(worker)), Message::Replay(replay)) => shard.replay(link, *worker, replay),
            (Some(Peer::Switch(switch)), Message::Adopt { region, since }) => {
                shard.adopt(link, *switch, region, since)
            }
            (Some(Peer::Switch(_)), Message::Drained(drained)) => shard.commit(link, drained),
            (Some(Peer::Switch(_)), Message::Installed { region, since, change }) => {
                shard.installed(link, region, since, change)
            }
            _ => Err(Nonsense),
        }
    }
}

impl Role for Server {
    type Command = core::convert::Infallible;
    type Event = MemberEvent;

    fn handle_start(&mut self, now: Instant) {
        self.membership.handle_start(now);
    }

    fn handle_datagrams(&mut self, _now: Instant, _from: SocketAddr, _datagrams: &mut [u8], _stride: usize) {
        self.dropped += 1;
    }

    fn handle_link(&mut self, now: Instant, link: Link, event: LinkEvent) {
        if self.membership.is_controller(link) {
            if let Some(event) = self.membership.handle_link(now, event) {
                self.handle_membership(now, event);
            }
        } else if let LinkEvent::Closed { .. } = event {
            // Whose end it was is for the controller to judge: it has a stream to the same process.
            self.callers.remove(&link);
            if let Some(shard) = &mut self.shard {
                shard.close(link);
            }
        }
    }

    fn handle_message(&mut self, now: Instant, link: Link, message: Message) {
        if self.membership.is_controller(link) {
            if let Some(event) = self.membership.handle_message(now, message) {
                self.handle_membership(now, event);
            }
        } else if let Err(Nonsense) = self.handle_call(link, message) {
            self.dropped += 1;
            self.callers.remove(&link);
            self.actions.push_back(Action::Close { link });
        }
    }

    fn handle_socket_failure(&mut self, _now: Instant, _reason: &str) {}

    fn handle_command(&mut self, _now: Instant, command: Self::Command) {
        match command {}
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.membership.handle_timeout(now);
        if self.membership.is_heartbeat_due(now) {
            self.membership.heartbeat(now, Statistics::Server(self.statistics()));
        }
    }

    fn poll_transmit(&mut self, _now: Instant, _outgoing: &mut Outgoing) {}

    fn poll_action(&mut self) -> Option<Action> {
        if let Some(action) = self.membership.poll_action().or_else(|| self.actions.pop_front()) {
            return Some(action);
        }
        let (link, message) = self.shard.as_mut()?.outbox.pop_front()?;
        Some(Action::Send { link, message })
    }

    fn poll_event(&mut self) -> Option<MemberEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.membership.poll_timeout()
    }
}

#[cfg(test)]
mod tests;
