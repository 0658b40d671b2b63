//! The worker: it turns pushes and pulls of rows into packets for switches and messages for shards.

mod clock;
mod cold;
mod hot;
mod interface;
mod lanes;
mod leases;
mod operations;
mod order;
mod quantize;
mod renewals;
mod rows;
mod session;
mod tables;

use core::net::SocketAddr;
use std::collections::VecDeque;

pub(crate) use self::cold::REQUEST_BYTES_MAX;
pub use self::hot::PathChange;
pub(crate) use self::hot::REPLAY_PACKETS_MAX;
pub use self::interface::{AssignedRows, WorkerCommand, WorkerEvent};
pub use self::operations::Level;

use self::clock::Clock;
use self::leases::Leases;
use self::operations::PushAnswer;
use self::session::Session;
use crate::client::Tick;
use crate::cluster::{Cluster, Peer};
use crate::dial::Dial;
use crate::membership::{Membership, MembershipEvent};
use crate::message::{Hello, Kind, Message, Start};
use crate::role::{Action, Link, LinkEvent, Outgoing, Role};
use crate::statistics::{Statistics, WorkerStatistics};
use crate::status::{Details, MemberStatus, WorkerDetails};
use crate::time::Instant;
use crate::work::WorkDone;

/// A worker as a state machine without I/O.
#[derive(Debug, Clone)]
pub struct Worker {
    membership: Membership,
    number: u16,
    servers: Vec<Dial>,
    /// The event for the user once there is a stream to every server.
    starting: Option<WorkerEvent>,
    session: Option<Session>,
    clock: Clock,
    leases: Leases,
    /// The message that a controller must receive, and again if it is another one: a barrier that the worker waits at, its report.
    unsettled: Option<Message>,
    /// Its last status, once the job is over for it.
    last: Option<Box<MemberStatus>>,
    events: VecDeque<WorkerEvent>,
    actions: VecDeque<Action>,
}

impl Worker {
    /// A worker that will join a cluster, and that sends datagrams from `datagrams`.
    pub fn new(datagrams: SocketAddr) -> Self {
        Self {
            membership: Membership::new(Kind::Worker, None, Some(datagrams), 0),
            number: 0,
            servers: Vec::new(),
            starting: None,
            session: None,
            clock: Clock::default(),
            leases: Leases::default(),
            unsettled: None,
            last: None,
            events: VecDeque::new(),
            actions: VecDeque::new(),
        }
    }

    /// The same, which answers requests over HTTP at this address.
    #[must_use]
    pub fn with_http(mut self, http: Option<SocketAddr>) -> Self {
        self.membership.set_http(http);
        self
    }

    /// The same; `is_restarted` says that another comes in its place if its process ends, for which a job without a worker waits (rule M7).
    #[must_use]
    pub fn with_restarts(mut self, is_restarted: bool) -> Self {
        self.membership.set_restarted(is_restarted);
        self
    }

    /// The same, with a description of the job for a controller that takes its tables from workers (rule M19).
    #[must_use]
    pub fn with_proposal(mut self, job: Box<Cluster>) -> Self {
        self.membership.set_proposal(job);
        self
    }

    fn handle_membership(&mut self, now: Instant, event: MembershipEvent) {
        match event {
            MembershipEvent::Started(start) if self.session.is_none() => self.start(now, *start),
            MembershipEvent::DrainAsked => self.events.push_back(WorkerEvent::DrainAsked),
            MembershipEvent::Started(_)
            | MembershipEvent::Retire
            | MembershipEvent::WorkDone(_)
            | MembershipEvent::CheckpointComplete { .. }
            | MembershipEvent::Checkpoint { .. } => {}
            // The number of servers never changes.
            MembershipEvent::Changed(view) if view.servers.len() != self.servers.len() => {}
            MembershipEvent::Changed(view) => {
                let number = view.number;
                if let Some(session) = &mut self.session {
                    self.membership.follow(now, &mut self.servers, &view.servers);
                    if view.added != session.cluster.view.added {
                        self.events.push_back(WorkerEvent::PhasesAdded(Box::new(view.added.clone())));
                    }
                    session.enter(view.into_inner());
                    self.membership.viewed(number);
                }
            }
            MembershipEvent::Connected => {
                self.membership.identify(self.clock.barriers(), None, WorkDone::default());
                if let Some(message) = self.clock.message() {
                    self.membership.send(message);
                }
                if self.has_work() {
                    self.membership.send(self.leases.message());
                }
                for message in self.session.iter().flat_map(Session::renewals_asked) {
                    self.membership.send(message);
                }
                if let Some(message) = &self.unsettled {
                    self.membership.send(message.clone());
                }
            }
            MembershipEvent::Released { number } => {
                // It may come twice: from the controller before, and from the one that took over.
                if number == self.clock.barriers() && matches!(self.unsettled, Some(Message::Barrier { .. }))
                {
                    self.clock = Clock::behind(number + 1);
                    self.unsettled = None;
                    self.events.push_back(WorkerEvent::Released { number });
                }
            }
            MembershipEvent::Leased { phase, chunks, clock } => self.take_leases(phase, &chunks, clock),
            MembershipEvent::Clocks { barrier, least, view } => {
                if let Some(session) = self.session.as_mut().filter(|_| self.clock.learn(barrier, least)) {
                    session.observe_view(view);
                    self.events.push_back(WorkerEvent::Clocks { least });
                }
            }
            MembershipEvent::Restoring { server } => self.wait_longer_for(server),
            MembershipEvent::Finish => {
                self.end();
                self.events.push_back(WorkerEvent::Finished);
            }
            MembershipEvent::Ended { reason, cause } => {
                self.end();
                self.events.push_back(WorkerEvent::Ended { reason, cause });
            }
        }
    }

    fn start(&mut self, now: Instant, start: Start) {
        let Peer::Worker(number) = start.you else { return };
        self.number = number;
        self.clock = Clock::behind(start.barrier);
        self.leases.enter(start.barrier);
        self.servers = self.membership.dial_servers(now, &start.cluster);
        self.membership.viewed(start.cluster.view.number);
        let Start { share, barrier, cluster, .. } = start;
        let known = Box::new(Cluster::clone(&cluster));
        match Session::new(cluster.into_inner(), number) {
            Ok(session) => {
                self.session = Some(session);
                self.starting = Some(WorkerEvent::Started { worker: number, share, barrier, cluster: known });
            }
            Err(error) => self.abort(&format!("the plan cannot be placed: {error}")),
        }
    }

    fn has_work(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.cluster.work.is_some())
    }

    /// The controller names all leases of this worker. It may do so late, after a phase or more.
    fn take_leases(&mut self, phase: u64, chunks: &[u32], clock: u64) {
        if !self.has_work() || phase < self.clock.barriers() {
            return;
        }
        if phase > self.clock.barriers() {
            self.clock = Clock::behind(phase);
            self.leases.enter(phase);
            self.events.push_back(WorkerEvent::Released { number: phase - 1 });
        }
        let skipped = self.clock.go_on_from(clock);
        let chunks = self.leases.learn(chunks);
        if !chunks.is_empty() || skipped > 0 {
            self.events.push_back(WorkerEvent::Leased { chunks, skipped });
        }
    }

    fn end(&mut self) {
        if self.starting.take().is_some() {
            self.events.clear();
        }
        self.last = Some(Box::new(self.present_status()));
        self.session = None;
        self.actions.extend(self.servers.drain(..).filter_map(|mut dial| dial.hang_up()));
    }

    /// The process of a server reads its disk, and can be reached only then (rule L8).
    fn wait_longer_for(&mut self, server: u16) {
        let Some(callee) = self.servers.get(usize::from(server)).map(Dial::callee) else { return };
        let shards = self.servers.iter_mut().filter(|dial| dial.callee() == callee);
        shards.for_each(Dial::wait_longer);
    }

    fn abort(&mut self, reason: &str) {
        self.membership.abort(&format!("{}: {reason}", Peer::Worker(self.number)));
    }

    /// It is called at this moment.
    fn at(&mut self, now: Instant) {
        if let Some(session) = &mut self.session {
            session.now = now;
        }
    }

    fn statistics(&self) -> WorkerStatistics {
        self.session.as_ref().map(Session::statistics).unwrap_or_default()
    }

    /// Sends the controller a message that it must not miss.
    fn send_reliably(&mut self, message: Message) {
        self.membership.send(message.clone());
        self.unsettled = Some(message);
    }
}

impl Role for Worker {
    type Command = WorkerCommand;
    type Event = WorkerEvent;
    type Status = MemberStatus;

    fn handle_start(&mut self, now: Instant) {
        self.membership.handle_start(now);
    }

    fn handle_datagrams(&mut self, now: Instant, from: SocketAddr, datagrams: &mut [u8], stride: usize) {
        self.at(now);
        if let Some(session) = &mut self.session {
            session.handle_datagrams(now, from, datagrams, stride);
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
        let Some(session) = &mut self.session else { return };
        match event {
            LinkEvent::Opened { .. } => {
                dial.opened();
                let shard = u16::try_from(server).expect("servers are numbered by u16");
                let (instance, from) = (session.cluster.instance, Peer::Worker(self.number));
                let pass = session.cluster.pass(from, Peer::Server(shard));
                let hello = Hello { instance, from, pass, to: shard, answered: session.answered_by(shard) };
                self.actions.push_back(Action::Send { link, message: Message::Hello(hello) });
                session.reconnected(shard);
                if self.servers.iter().all(|dial| dial.open_link().is_some())
                    && let Some(started) = self.starting.take()
                {
                    self.events.push_front(started);
                }
            }
            LinkEvent::Closed { reason } | LinkEvent::Refused { reason } => {
                if !dial.closed(now) {
                    self.abort(&format!("no connection to server {server}: {reason}"));
                }
            }
        }
    }

    fn handle_message(&mut self, now: Instant, link: Link, message: Message) {
        self.at(now);
        if self.membership.is_controller(link) {
            if let Some(event) = self.membership.handle_message(now, message) {
                self.handle_membership(now, event);
            }
            return;
        }
        let server = self.servers.iter().position(|dial| dial.is(link));
        if let (Some(session), Some(server)) = (&mut self.session, server) {
            let server = u16::try_from(server).expect("servers are numbered by u16");
            if let Err(reason) = session.handle_message(server, message) {
                self.abort(&reason);
            }
        }
    }

    fn handle_socket_failure(&mut self, _now: Instant, reason: &str) {
        self.abort(reason);
    }

    fn handle_command(&mut self, now: Instant, command: WorkerCommand) {
        self.at(now);
        match command {
            WorkerCommand::Barrier { number } => return self.send_reliably(Message::Barrier { number }),
            WorkerCommand::Report { text } => {
                let statistics = Statistics::Worker(self.statistics());
                return self.send_reliably(Message::Report { text, statistics });
            }
            WorkerCommand::Leave { returns } => {
                // Its last counts go with it.
                let statistics = Statistics::Worker(self.statistics());
                self.membership.send(Message::Heartbeat { statistics, probe: 0 });
                return self.send_reliably(Message::Leave { returns });
            }
            WorkerCommand::Abort { reason } => return self.abort(&reason),
            WorkerCommand::Lease { wanted } => {
                let message = self.leases.want(wanted);
                return self.membership.send(message);
            }
            _ => {}
        }
        // Before the job and after it there is no member to ask; the user learns of the end by its own event.
        let Some(session) = &mut self.session else { return };
        match command {
            WorkerCommand::Pull { id, keys } => session.pull(id, keys),
            WorkerCommand::Push { number, keys, gradients, level } => {
                session.push(number, keys, gradients, PushAnswer::Level(level));
            }
            WorkerCommand::PushPull { id, keys, gradients } => {
                session.push(id.0, keys, gradients, PushAnswer::Values);
            }
            WorkerCommand::Assign { number, rows } => session.assign(number, rows),
            WorkerCommand::Reset { number, table, steps } => session.reset(number, table, steps),
            WorkerCommand::Scan { number, shard, table, after } => session.scan(number, shard, table, after),
            WorkerCommand::Flush { number } => session.flush(number),
            WorkerCommand::Training(counts) => session.statistics.training = counts,
            WorkerCommand::Tick(when) => {
                let tick = self.clock.tick();
                session.tick(tick, when == Tick::Now && self.clock.is_next(tick));
            }
            WorkerCommand::FinishChunk { chunk, account } => {
                self.leases.finish(chunk, account);
                session.finish_chunk(chunk);
            }
            WorkerCommand::Barrier { .. }
            | WorkerCommand::Lease { .. }
            | WorkerCommand::Report { .. }
            | WorkerCommand::Leave { .. }
            | WorkerCommand::Abort { .. } => {}
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.at(now);
        self.membership.handle_timeout(now);
        for dial in &mut self.servers {
            self.membership.reconnect(now, dial);
        }
        if let Some(session) = &mut self.session {
            session.handle_timeout(now);
            for switch in session.take_unreachable(now) {
                self.membership.send(Message::Unreachable { switch });
            }
            self.events.extend(session.take_path_change().map(WorkerEvent::PathChanged));
        }
        if self.membership.is_heartbeat_due(now) {
            if let Some(reason) = self.session.as_ref().and_then(Session::narrow_path) {
                self.abort(&reason);
            }
            self.membership.heartbeat(now, Statistics::Worker(self.statistics()));
        }
    }

    fn poll_transmit(&mut self, now: Instant, outgoing: &mut Outgoing) {
        if let Some(session) = &mut self.session {
            session.poll_transmit(now, outgoing);
        }
    }

    fn poll_action(&mut self) -> Option<Action> {
        while let Some(tick) = self.session.as_mut().and_then(|session| session.ticks.pop_front()) {
            if let Some(message) = self.clock.done(tick) {
                self.membership.send(message);
            }
        }
        while let Some(chunk) = self.session.as_mut().and_then(|session| session.chunks.pop_front()) {
            if let Some(message) = self.leases.visible(chunk) {
                self.membership.send(message);
            }
        }
        while let Some(message) = self.session.as_mut().and_then(Session::poll_renewal) {
            self.membership.send(message);
        }
        if let Some(action) = self.membership.poll_action().or_else(|| self.actions.pop_front()) {
            return Some(action);
        }
        loop {
            let (shard, message) = self.session.as_mut()?.poll_message()?;
            // For a stream that is not open nothing is kept: it is sent again when it is.
            if let Some(link) = self.servers.get(usize::from(shard)).and_then(Dial::open_link) {
                return Some(Action::Send { link, message });
            }
        }
    }

    fn poll_event(&mut self) -> Option<WorkerEvent> {
        // What has happened before it has begun comes behind that.
        if self.starting.is_some() {
            return None;
        }
        let session = self.session.as_mut().and_then(|session| session.events.pop_front());
        session.or_else(|| self.events.pop_front())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let session = self.session.as_ref().and_then(Session::poll_timeout);
        let dials = self.servers.iter().filter_map(Dial::poll_timeout);
        dials.chain(session).chain(self.membership.poll_timeout()).min()
    }

    fn status(&self, _now: Instant) -> MemberStatus {
        self.last.as_deref().cloned().unwrap_or_else(|| self.present_status())
    }
}

impl Worker {
    fn present_status(&self) -> MemberStatus {
        let session = self.session.as_ref();
        let details = session.map_or_else(WorkerDetails::default, Session::details);
        let details = WorkerDetails { chunks: self.leases.counts(), ..details };
        MemberStatus {
            member: session.map(|_| Peer::Worker(self.number)),
            job: session.map_or(0, |session| session.cluster.job),
            view: session.map_or(0, |session| session.cluster.view.number),
            is_ready: session.is_some() && self.starting.is_none(),
            counts: Statistics::Worker(self.statistics()),
            details: Details::Worker(Box::new(details)),
        }
    }
}
