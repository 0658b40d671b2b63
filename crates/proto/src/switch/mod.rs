//! The switch: a pipeline that takes packets, and its agent, which closes epochs and brings them to the shards.

mod agent;

use core::net::SocketAddr;
use std::collections::VecDeque;

use self::agent::Agent;
use crate::cluster::Peer;
use crate::membership::{Membership, MembershipEvent};
use crate::message::{Kind, Message};
use crate::role::{Action, Link, LinkEvent, Outgoing, Role};
use crate::server::MemberEvent;
use crate::statistics::{Statistics, SwitchStatistics};
use crate::time::Instant;

/// A switch as a state machine without I/O.
#[derive(Debug)]
pub struct Switch {
    membership: Membership,
    number: u16,
    servers: Vec<Link>,
    agent: Option<Agent>,
    ready: bool,
    /// Datagrams that came before there was a cluster, and so from none of its workers.
    strangers: u64,
    actions: VecDeque<Action>,
    events: VecDeque<MemberEvent>,
}

impl Switch {
    /// A switch that will join the cluster of a controller, and that takes datagrams at `datagrams`, where up to
    /// `receive_bytes` of them wait until it has time.
    pub fn new(controller: SocketAddr, datagrams: SocketAddr, receive_bytes: u32) -> Self {
        Self {
            membership: Membership::new(controller, Kind::Switch, None, Some(datagrams), receive_bytes),
            number: 0,
            servers: Vec::new(),
            agent: None,
            ready: false,
            strangers: 0,
            actions: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    fn handle_membership(&mut self, now: Instant, event: MembershipEvent) {
        match event {
            MembershipEvent::Started { you: Peer::Switch(number), cluster } if self.agent.is_none() => {
                self.number = number;
                self.servers =
                    cluster.servers.iter().map(|address| self.membership.connect(*address)).collect();
                match Agent::new(number, cluster) {
                    Ok(agent) => {
                        self.agent = Some(agent);
                        self.events.push_back(MemberEvent::Started { you: Peer::Switch(number) });
                        self.tell_if_ready();
                    }
                    Err(reason) => self.membership.abort(&format!("switch {number}: {reason}")),
                }
            }
            MembershipEvent::Started { .. } | MembershipEvent::Released { .. } => {}
            MembershipEvent::Finish => {
                let statistics = Statistics::Switch(self.statistics());
                self.membership.heartbeat(now, statistics);
                self.close();
                self.events.push_back(MemberEvent::Finished(statistics));
            }
            MembershipEvent::Ended { reason } => {
                self.close();
                self.events.push_back(MemberEvent::Ended { reason });
            }
        }
    }

    fn close(&mut self) {
        let links = self.servers.drain(..);
        self.actions.extend(links.map(|link| Action::Close { link }));
    }

    fn statistics(&self) -> SwitchStatistics {
        let mut statistics = self.agent.as_ref().map(Agent::statistics).unwrap_or_default();
        statistics.unknown_senders += self.strangers;
        statistics
    }

    /// A switch can serve once it holds the values of all its rows.
    fn tell_if_ready(&mut self) {
        if !self.ready && self.agent.as_ref().is_some_and(Agent::is_installed) {
            self.ready = true;
            self.membership.send(Message::Ready);
        }
    }
}

impl Role for Switch {
    type Command = core::convert::Infallible;
    type Event = MemberEvent;

    fn handle_start(&mut self, _now: Instant) {
        self.membership.handle_start();
    }

    fn handle_datagrams(&mut self, now: Instant, from: SocketAddr, datagrams: &mut [u8], stride: usize) {
        match &mut self.agent {
            Some(agent) => agent.handle_datagrams(now, from, datagrams, stride),
            None => self.strangers += 1,
        }
    }

    fn handle_link(&mut self, now: Instant, link: Link, event: LinkEvent) {
        if Membership::is_controller(link) {
            if let Some(event) = self.membership.handle_link(now, event) {
                self.handle_membership(now, event);
            }
            return;
        }
        let Some(server) = self.servers.iter().position(|open| *open == link) else { return };
        let Some(agent) = &self.agent else { return };
        match event {
            LinkEvent::Opened { .. } => {
                let message = Message::Hello { job: agent.job(), from: Peer::Switch(self.number) };
                self.actions.push_back(Action::Send { link, message });
            }
            LinkEvent::Closed { reason } => {
                let number = self.number;
                self.membership
                    .abort(&format!("switch {number}: no connection to server {server}: {reason}"));
            }
        }
    }

    fn handle_message(&mut self, now: Instant, link: Link, message: Message) {
        if Membership::is_controller(link) {
            if let Some(event) = self.membership.handle_message(message) {
                self.handle_membership(now, event);
            }
            return;
        }
        if let (Some(agent), Message::Committed(committed)) = (&mut self.agent, message)
            && self.servers.contains(&link)
        {
            agent.handle_committed(now, &committed);
            self.tell_if_ready();
        }
    }

    fn handle_socket_failure(&mut self, _now: Instant, reason: &str) {
        self.membership.abort(&format!("{}: {reason}", Peer::Switch(self.number)));
    }

    fn handle_command(&mut self, _now: Instant, command: Self::Command) {
        match command {}
    }

    fn handle_timeout(&mut self, now: Instant) {
        if let Some(agent) = &mut self.agent {
            agent.close_epochs(now);
        }
        if self.membership.is_heartbeat_due(now) {
            self.membership.heartbeat(now, Statistics::Switch(self.statistics()));
        }
    }

    fn poll_transmit(&mut self, _now: Instant, outgoing: &mut Outgoing) {
        if let Some(agent) = &mut self.agent {
            agent.take_answers(outgoing);
        }
    }

    fn poll_action(&mut self) -> Option<Action> {
        if let Some(action) = self.membership.poll_action().or_else(|| self.actions.pop_front()) {
            return Some(action);
        }
        let (shard, drained) = self.agent.as_mut()?.poll_drained()?;
        let link = *self.servers.get(usize::from(shard))?;
        Some(Action::Send { link, message: Message::Drained(drained) })
    }

    fn poll_event(&mut self) -> Option<MemberEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let agent = self.agent.as_ref().and_then(Agent::poll_timeout);
        [agent, self.membership.poll_timeout()].into_iter().flatten().min()
    }
}
