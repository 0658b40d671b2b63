//! A role as a process: with a clock of its own, and what arrives while it sleeps.

use core::convert::Infallible;
use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use libra_proto::{
    Controller, ControllerEvent, DeferredPlane, Instant, Link, LinkEvent, MemberEvent, Message,
    RestoringServer, Role, Server, ServerEvent, Switch, Worker, WorkerEvent,
};

use crate::async_device::{DelayedP4, DelayedSoft};
use crate::disks::ServerStorage;
use crate::network::Host;

/// A process: the host that it runs on, and how many ran there before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Actor {
    /// The host.
    pub host: Host,
    /// The processes that ran there before.
    pub before: u32,
}

/// A role of any kind.
#[derive(Debug)]
pub enum AnyRole {
    /// The controller.
    Controller(Box<Controller>),
    /// A server.
    Server(Box<Server>),
    /// A server that reads its disk.
    Restoring(Box<RestoringServer>),
    /// A switch.
    Switch(Box<Switch>),
    /// A switch whose data plane takes its time.
    DelayedSwitch(Box<Switch<DeferredPlane<DelayedSoft>>>),
    /// A switch that runs the P4 program.
    P4Switch(Box<Switch<DeferredPlane<DelayedP4>>>),
    /// A worker.
    Worker(Box<Worker>),
}

/// Does the same with a role of any kind.
#[macro_export]
macro_rules! with_role {
    ($any:expr, $role:ident => $body:expr) => {
        match $any {
            $crate::AnyRole::Controller($role) => $body,
            $crate::AnyRole::Server($role) => $body,
            $crate::AnyRole::Restoring($role) => $body,
            $crate::AnyRole::Switch($role) => $body,
            $crate::AnyRole::DelayedSwitch($role) => $body,
            $crate::AnyRole::P4Switch($role) => $body,
            $crate::AnyRole::Worker($role) => $body,
        }
    };
}
pub(crate) use with_role;

/// An event that a role of any kind reports to its user.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Of the controller.
    Controller(ControllerEvent),
    /// Of a server or switch.
    Member(MemberEvent),
    /// Of servers alone.
    Server(ServerEvent),
    /// Of a worker.
    Worker(WorkerEvent),
}

impl From<ControllerEvent> for Event {
    fn from(event: ControllerEvent) -> Self {
        Self::Controller(event)
    }
}

impl From<ServerEvent> for Event {
    fn from(event: ServerEvent) -> Self {
        match event {
            ServerEvent::Member(event) => Self::Member(event),
            event => Self::Server(event),
        }
    }
}

impl From<Infallible> for Event {
    fn from(event: Infallible) -> Self {
        match event {}
    }
}

impl From<MemberEvent> for Event {
    fn from(event: MemberEvent) -> Self {
        Self::Member(event)
    }
}

impl From<WorkerEvent> for Event {
    fn from(event: WorkerEvent) -> Self {
        Self::Worker(event)
    }
}

impl AnyRole {
    /// Hands in what happened to a stream.
    pub fn handle_link(&mut self, now: Instant, link: Link, event: LinkEvent) {
        with_role!(self, role => role.handle_link(now, link, event));
    }

    /// Hands in a message.
    pub fn handle_message(&mut self, now: Instant, link: Link, message: Message) {
        with_role!(self, role => role.handle_message(now, link, message));
    }

    /// Hands in that its timer is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        with_role!(self, role => role.handle_timeout(now));
    }

    /// Returns when its timer is due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        with_role!(self, role => role.poll_timeout())
    }

    /// Returns the next event for its user.
    pub fn poll_event(&mut self) -> Option<Event> {
        with_role!(self, role => role.poll_event().map(Event::from))
    }
}

/// Something that waits for a process.
#[derive(Debug)]
pub(crate) enum Input {
    Datagram { from: SocketAddr, bytes: Vec<u8> },
    Stream { stream: usize, end: usize, item: Item },
}

/// Something that happens at one end of a stream.
#[derive(Debug)]
pub(crate) enum Item {
    Opened { remote: SocketAddr },
    Message(Vec<u8>),
    Closed { reason: &'static str },
}

/// Datagrams that wait in the kernel for a process that sleeps, in bytes; more are dropped.
const RECEIVE_BUFFER: usize = 4 << 20;

/// A running role.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) actor: Actor,
    pub(crate) role: AnyRole,
    /// Its clock begins here, as that of a process under `libra-net` does.
    started_at: Instant,
    /// Offset of its clock ahead of that of the world.
    ahead: Duration,
    pub(crate) accepted: u64,
    /// Its open streams: which, and which end of it.
    pub(crate) links: BTreeMap<Link, (usize, usize)>,
    /// Its storage (servers).
    pub(crate) storage: Option<ServerStorage>,
    paused: bool,
    inbox: VecDeque<Input>,
    waiting_bytes: usize,
}

impl Process {
    pub(crate) fn new(
        actor: Actor,
        role: AnyRole,
        started_at: Instant,
        storage: Option<ServerStorage>,
    ) -> Self {
        let (links, inbox) = (BTreeMap::new(), VecDeque::new());
        Self {
            actor,
            role,
            started_at,
            ahead: Duration::ZERO,
            accepted: 0,
            links,
            storage,
            paused: false,
            inbox,
            waiting_bytes: 0,
        }
    }

    /// The time by its own clock.
    pub(crate) fn time(&self, now: Instant) -> Instant {
        Instant::ZERO + now.since(self.started_at) + self.ahead
    }

    /// When it wants to be woken, by the clock of the world.
    pub(crate) fn wakes_at(&self) -> Option<Instant> {
        if self.paused {
            return None;
        }
        let due = self.role.poll_timeout()?;
        Some(self.started_at + due.since(Instant::ZERO).saturating_sub(self.ahead))
    }

    /// Its clock jumps ahead.
    pub(crate) fn jump(&mut self, by: Duration) {
        self.ahead += by;
    }

    /// False of a server that reads its disk.
    pub(crate) fn listens(&self) -> bool {
        !matches!(self.role, AnyRole::Restoring(_))
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.paused
    }

    pub(crate) fn pause(&mut self) {
        self.paused = true;
    }

    /// Ends the pause. What has arrived meanwhile must be handed in now.
    pub(crate) fn resume(&mut self) -> VecDeque<Input> {
        self.paused = false;
        self.waiting_bytes = 0;
        core::mem::take(&mut self.inbox)
    }

    /// Keeps something for a process that sleeps. `false` if its buffer is full.
    pub(crate) fn keep(&mut self, input: Input) -> bool {
        if let Input::Datagram { bytes, .. } = &input {
            if self.waiting_bytes + bytes.len() > RECEIVE_BUFFER {
                return false;
            }
            self.waiting_bytes += bytes.len();
        }
        self.inbox.push_back(input);
        true
    }
}
