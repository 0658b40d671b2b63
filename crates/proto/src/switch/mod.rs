//! The switch: a pipeline that takes packets, and its agent, which closes rounds and brings them to the shards.

mod agent;
mod deferred;
mod places;
mod plane;

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::VecDeque;

use self::agent::Agent;
pub use self::deferred::{DeferredPlane, Device, Executor, Order, Report};
pub use self::plane::{Plane, Progress, SoftPlane, WorkerPath};
use crate::cluster::Peer;
use crate::dial::Dial;
use crate::membership::{EndCause, Membership, MembershipEvent};
use crate::message::{Answered, Hello, Kind, Message, Start};
use crate::role::{Action, Link, LinkEvent, Outgoing, Role};
use crate::server::MemberEvent;
use crate::statistics::{Statistics, SwitchStatistics};
use crate::status::{Details, MemberStatus, SwitchDetails};
use crate::time::Instant;
use crate::work::WorkDone;

/// Time for which a switch does without a server before it gives its regions up.
const SERVER_LOST_MAX: Duration = Duration::from_secs(2);

/// Commands of a user to a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SwitchCommand {
    /// End in order: [`MemberEvent::Drained`] comes when the shards have everything that it holds (rule V12).
    Drain,
}

/// A switch as a state machine without I/O.
#[derive(Debug, Clone)]
pub struct Switch<P = SoftPlane> {
    membership: Membership,
    number: u16,
    servers: Vec<Dial>,
    /// The data plane, until an agent has it.
    plane: Option<P>,
    agent: Option<Agent<P>>,
    /// The newest view that this switch has reported to the controller as acted on.
    viewed: u64,
    retired: bool,
    /// Since when it has a view of the controller at the other end of its stream.
    directed_since: Option<Instant>,
    /// It has asked the controller to go, or will when there is one.
    drains: bool,
    /// Datagrams that came before there was a cluster, and so from none of its workers.
    strangers: u64,
    actions: VecDeque<Action>,
    events: VecDeque<MemberEvent>,
}

impl Switch {
    /// A switch that will join a cluster, and that takes datagrams at `datagrams`, where up to
    /// `receive_bytes` of them wait until it has time.
    pub fn new(datagrams: SocketAddr, receive_bytes: u32) -> Self {
        Self::with_plane(datagrams, receive_bytes, SoftPlane::default())
    }
}

impl<P: Plane> Switch<P> {
    /// A switch with another data plane than the one in software.
    pub fn with_plane(datagrams: SocketAddr, receive_bytes: u32, plane: P) -> Self {
        let mut membership = Membership::new(Kind::Switch, None, Some(datagrams), receive_bytes);
        if plane.is_slow() {
            membership.set_slow_device();
        }
        membership.set_tags(plane.tags());
        Self {
            membership,
            number: 0,
            servers: Vec::new(),
            plane: Some(plane),
            agent: None,
            viewed: 0,
            retired: false,
            directed_since: None,
            drains: false,
            strangers: 0,
            actions: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// The same, which answers requests over HTTP at this address.
    #[must_use]
    pub fn with_http(mut self, http: Option<SocketAddr>) -> Self {
        self.membership.set_http(http);
        self
    }

    fn handle_membership(&mut self, now: Instant, event: MembershipEvent) {
        match event {
            MembershipEvent::Started(start) => self.start(now, *start),
            // The number of servers never changes.
            MembershipEvent::Changed(view) if view.servers.len() != self.servers.len() => {}
            MembershipEvent::Changed(view) => {
                self.directed_since.get_or_insert(now);
                if let Some(agent) = &mut self.agent {
                    self.membership.follow(now, &mut self.servers, &view.servers);
                    agent.enter(view.into_inner());
                    self.retired = false;
                    // The controller expects the report also of a view that this switch acts on already.
                    self.viewed = 0;
                }
            }
            MembershipEvent::Connected => {
                self.viewed = 0;
                self.retired = false;
                self.directed_since = None;
                self.membership.identify(0, None, WorkDone::default());
                self.ask_to_go();
            }
            MembershipEvent::Retire => {
                if let Some(agent) = &mut self.agent {
                    self.retired = false;
                    agent.retire(now);
                }
            }
            MembershipEvent::DrainAsked => self.events.push_back(MemberEvent::DrainAsked),
            MembershipEvent::Released { .. }
            | MembershipEvent::Clocks { .. }
            | MembershipEvent::Leased { .. }
            | MembershipEvent::WorkDone(_)
            | MembershipEvent::CheckpointComplete { .. }
            | MembershipEvent::Checkpoint { .. }
            | MembershipEvent::Restoring { .. } => {}
            MembershipEvent::Finish => {
                let statistics = Statistics::Switch(self.statistics());
                self.membership.heartbeat(now, statistics);
                self.close();
                self.events.push_back(match self.drains {
                    true => MemberEvent::Drained { unsaved: None },
                    false => MemberEvent::Finished(statistics),
                });
            }
            MembershipEvent::Ended { reason, cause } => {
                self.close();
                self.events.push_back(MemberEvent::Ended { reason, cause });
            }
        }
        self.report_to_controller();
    }

    /// Takes a place in the cluster. What it had of an earlier one is worth nothing: others have replayed it (rule V10).
    fn start(&mut self, now: Instant, start: Start) {
        let Peer::Switch(number) = start.you else { return };
        self.close();
        self.directed_since = Some(now);
        self.number = number;
        self.viewed = 0;
        self.retired = false;
        self.servers = self.membership.dial_servers(now, &start.cluster);
        let Some(plane) = self.agent.take().map(|agent| agent.plane).or_else(|| self.plane.take()) else {
            return;
        };
        match Agent::new(number, start.cluster.into_inner(), plane) {
            Ok(agent) => {
                self.agent = Some(agent);
                self.events.push_back(MemberEvent::Started { you: start.you });
            }
            Err(reason) => self.membership.abort(&format!("switch {number}: {reason}")),
        }
    }

    /// Goes at once if it holds nothing, and otherwise when the controller lets it (rule V12).
    fn drain(&mut self) {
        if core::mem::replace(&mut self.drains, true) {
            return;
        }
        if self.agent.is_none() {
            return self.events.push_back(MemberEvent::Drained { unsaved: None });
        }
        self.ask_to_go();
    }

    /// A switch that is to end repeats it on each stream.
    fn ask_to_go(&mut self) {
        if self.drains {
            self.send_counts();
            self.membership.send(Message::Leave { returns: true });
        }
    }

    /// Its last counts must be with the controller before that lets it go.
    fn send_counts(&mut self) {
        let statistics = Statistics::Switch(self.statistics());
        self.membership.send(Message::Heartbeat { statistics, probe: 0 });
    }

    fn close(&mut self) {
        self.actions.extend(self.servers.drain(..).filter_map(|mut dial| dial.hang_up()));
    }

    fn statistics(&self) -> SwitchStatistics {
        let mut statistics = self.agent.as_ref().map(Agent::statistics).unwrap_or_default();
        statistics.unknown_senders += self.strangers;
        statistics
    }

    /// Sends the reports that the controller waits for, once they are true.
    fn report_to_controller(&mut self) {
        let Some(agent) = &self.agent else { return };
        if let Some(number) = agent.viewed().filter(|number| *number > self.viewed) {
            self.viewed = number;
            self.membership.viewed(number);
        }
        if agent.is_retired() && !self.retired {
            self.retired = true;
            if self.drains {
                self.send_counts();
            }
            self.membership.send(Message::Retired);
        }
    }
}

impl<P: Plane> Role for Switch<P> {
    type Command = SwitchCommand;
    type Event = MemberEvent;
    type Status = MemberStatus;

    fn handle_start(&mut self, now: Instant) {
        self.membership.handle_start(now);
    }

    fn handle_datagrams(&mut self, now: Instant, from: SocketAddr, datagrams: &mut [u8], stride: usize) {
        match &mut self.agent {
            Some(agent) => agent.handle_datagrams(now, from, datagrams, stride),
            None => self.strangers += 1,
        }
    }

    fn handle_link(&mut self, now: Instant, link: Link, event: LinkEvent) {
        if self.membership.is_controller(link) {
            if let Some(event) = self.membership.handle_link(now, event) {
                self.handle_membership(now, event);
            }
            return;
        }
        let Some((server, dial)) = self.servers.iter_mut().enumerate().find(|(_, dial)| dial.is(link)) else {
            return;
        };
        let Some(agent) = &mut self.agent else { return };
        match event {
            LinkEvent::Opened { .. } => {
                dial.opened();
                let from = Peer::Switch(self.number);
                let to = u16::try_from(server).expect("servers are numbered by u16");
                let (instance, pass) = (agent.instance(), agent.pass(from, to));
                let hello = Hello { instance, from, pass, to, answered: Answered::default() };
                self.actions.push_back(Action::Send { link, message: Message::Hello(hello) });
                agent.reconnected(to);
            }
            LinkEvent::Closed { reason } | LinkEvent::Refused { reason } => {
                dial.closed(now);
                if dial.lost_for(now) >= SERVER_LOST_MAX {
                    let number = self.number;
                    self.membership
                        .abort(&format!("switch {number}: no connection to server {server}: {reason}"));
                }
            }
        }
    }

    fn handle_message(&mut self, now: Instant, link: Link, message: Message) {
        if self.membership.is_controller(link) {
            if let Some(event) = self.membership.handle_message(now, message) {
                self.handle_membership(now, event);
            }
            // A probe is answered at once: the controller measures how long that takes.
            self.handle_timeout(now);
            return;
        }
        let Some(agent) = self.agent.as_mut().filter(|_| self.servers.iter().any(|dial| dial.is(link)))
        else {
            return;
        };
        match message {
            Message::Adopted(adopted) => agent.handle_adopted(now, &adopted),
            Message::Committed(committed) => agent.handle_committed(now, &committed),
            Message::Changed(changed) => agent.handle_changed(&changed),
            _ => {}
        }
        self.report_to_controller();
    }

    fn handle_socket_failure(&mut self, _now: Instant, reason: &str) {
        self.membership.abort(&format!("{}: {reason}", Peer::Switch(self.number)));
    }

    fn handle_command(&mut self, _now: Instant, command: SwitchCommand) {
        match command {
            SwitchCommand::Drain => self.drain(),
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.membership.handle_timeout(now);
        for dial in &mut self.servers {
            self.membership.reconnect(now, dial);
        }
        if let Some(agent) = &mut self.agent {
            agent.close_rounds(now);
            if self.directed_since.is_some_and(|since| agent.is_stuck(since, now)) {
                let number = self.number;
                self.membership.abort(&format!("switch {number}: a shard does not commit what it is sent"));
            }
            if let Some(reason) = agent.plane.failure() {
                // With this plane it could not take another place either.
                let reason = format!("switch {}: {reason}", self.number);
                self.membership.abort(&reason);
                self.events.push_back(MemberEvent::Ended { reason, cause: EndCause::Failed });
            }
        }
        self.report_to_controller();
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
        loop {
            let (shard, message) = self.agent.as_mut()?.poll_message()?;
            // For a stream that is not open nothing is kept: what matters is sent again when it is.
            if let Some(link) = self.servers.get(usize::from(shard)).and_then(Dial::open_link) {
                return Some(Action::Send { link, message });
            }
        }
    }

    fn poll_event(&mut self) -> Option<MemberEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let agent = self.agent.as_ref().and_then(Agent::poll_timeout);
        let dials = self.servers.iter().filter_map(Dial::poll_timeout);
        dials.chain(agent).chain(self.membership.poll_timeout()).min()
    }

    fn status(&self, _now: Instant) -> MemberStatus {
        let agent = self.agent.as_ref();
        let details = agent.map_or_else(SwitchDetails::default, Agent::details);
        MemberStatus {
            member: agent.map(|_| Peer::Switch(self.number)),
            job: agent.map_or(0, Agent::job),
            view: self.viewed,
            is_ready: agent.and_then(Agent::viewed).is_some(),
            counts: Statistics::Switch(self.statistics()),
            details: Details::Switch(Box::new(details)),
        }
    }
}
