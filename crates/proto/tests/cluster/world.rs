//! A whole cluster on one thread: the production roles, and a network between them in virtual time.
//!
//! Streams are ordered and reliable, datagrams are what [`Network`] makes of them. Everything follows from the setup and its
//! seed. The world is the driver of the roles: each time it hands one of them one thing, then carries out all that the role
//! wants done.

use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use libra_plan::Plan;
use libra_proto::{
    Action, Cluster, Controller, ControllerEvent, HotPath, Instant, Link, LinkEvent, MemberEvent, Message,
    Outgoing, Role, Server, Sizes, Switch, Worker, WorkerEvent,
};
use libra_store::TableSpec;

use crate::link::{Network, Random};

/// Where the controller accepts streams.
pub(crate) const CONTROLLER: SocketAddr =
    SocketAddr::new(core::net::IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 4000);

/// What to build.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) sizes: Sizes,
    pub(crate) tables: Vec<TableSpec>,
    pub(crate) plan: Option<Plan>,
    pub(crate) hot_path: HotPath,
    pub(crate) network: Network,
    pub(crate) seed: u64,
}

#[derive(Debug)]
pub(crate) enum AnyRole {
    Controller(Controller),
    Server(Server),
    Switch(Switch),
    Worker(Worker),
}

macro_rules! with_role {
    ($any:expr, $role:ident => $body:expr) => {
        match $any {
            AnyRole::Controller($role) => $body,
            AnyRole::Server($role) => $body,
            AnyRole::Switch($role) => $body,
            AnyRole::Worker($role) => $body,
        }
    };
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    Controller(ControllerEvent),
    Member(MemberEvent),
    Worker(WorkerEvent),
}

impl From<ControllerEvent> for Event {
    fn from(event: ControllerEvent) -> Self {
        Self::Controller(event)
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

/// A place in the world: the controller is 0, then come the servers, the switches and the workers.
pub(crate) type Place = usize;

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) role: AnyRole,
    address: SocketAddr,
    accepted: u32,
    alive: bool,
    muted: bool,
    pub(crate) events: VecDeque<Event>,
}

#[derive(Debug)]
enum Arrival {
    Datagram { from: SocketAddr, bytes: Vec<u8> },
    Link { link: Link, event: LinkEvent },
    Message { link: Link, bytes: Vec<u8> },
}

/// A datagram as it was handed to the network.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SentDatagram {
    pub(crate) at: Instant,
    pub(crate) from: Place,
    pub(crate) to: SocketAddr,
    pub(crate) bytes: Vec<u8>,
}

/// A message as it was handed to the network.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SentMessage {
    pub(crate) at: Instant,
    pub(crate) from: Place,
    pub(crate) to: Place,
    pub(crate) message: Message,
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) setup: Setup,
    pub(crate) nodes: Vec<Node>,
    /// For each end of each stream that is open there the other end.
    streams: BTreeMap<(Place, Link), (Place, Link)>,
    arrivals: BTreeMap<(Instant, u64), (Place, Arrival)>,
    arrival_number: u64,
    random: Random,
    pub(crate) operations: u64,
    pub(crate) datagrams: Vec<SentDatagram>,
    pub(crate) messages: Vec<SentMessage>,
}

impl World {
    /// A cluster whose members have just started.
    pub(crate) fn new(setup: Setup) -> Self {
        let cluster = Cluster {
            job: 9,
            seed: setup.seed,
            tables: setup.tables.clone(),
            plan: setup.plan.clone(),
            hot_path: setup.hot_path.clone(),
            task: "test".into(),
            servers: Vec::new(),
            switches: Vec::new(),
            workers: Vec::new(),
        };
        let random = Random::new(setup.seed);
        let sizes = setup.sizes;
        let mut world = Self {
            now: Instant::ZERO + Duration::from_millis(1),
            setup,
            nodes: Vec::new(),
            streams: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            arrival_number: 0,
            random,
            operations: 0,
            datagrams: Vec::new(),
            messages: Vec::new(),
        };
        world.add(|_| AnyRole::Controller(Controller::new(sizes, cluster)));
        for _ in 0..sizes.servers {
            world.add(|address| AnyRole::Server(Server::new(CONTROLLER, address)));
        }
        for _ in 0..sizes.switches {
            world.add(|address| AnyRole::Switch(Switch::new(CONTROLLER, address, 8 << 20)));
        }
        for _ in 0..sizes.workers {
            world.add(|address| AnyRole::Worker(Worker::new(CONTROLLER, address)));
        }
        world
    }

    /// A cluster that is complete and runs.
    pub(crate) fn started(setup: Setup) -> Self {
        let mut world = Self::new(setup);
        for worker in world.workers() {
            world.wait_for(worker, |event| matches!(event, Event::Worker(WorkerEvent::Started { .. })));
        }
        world
    }

    /// Adds one more process, wanted or not.
    pub(crate) fn add(&mut self, role: impl FnOnce(SocketAddr) -> AnyRole) -> Place {
        let place = self.nodes.len();
        let address = address(place);
        let role = role(address);
        self.nodes.push(Node {
            role,
            address,
            accepted: 0,
            alive: true,
            muted: false,
            events: VecDeque::new(),
        });
        self.act(place, |role, now| with_role!(role, role => role.handle_start(now)));
        place
    }

    pub(crate) fn servers(&self) -> core::ops::Range<Place> {
        1..1 + usize::from(self.setup.sizes.servers)
    }

    pub(crate) fn switches(&self) -> core::ops::Range<Place> {
        self.servers().end..self.servers().end + usize::from(self.setup.sizes.switches)
    }

    pub(crate) fn workers(&self) -> core::ops::Range<Place> {
        self.switches().end..self.switches().end + usize::from(self.setup.sizes.workers)
    }

    /// A process is gone, without a word.
    pub(crate) fn crash(&mut self, place: Place) {
        self.nodes[place].alive = false;
        let own: Vec<Link> =
            self.streams.range((place, Link(0))..(place + 1, Link(0))).map(|(end, _)| end.1).collect();
        for link in own {
            self.close(place, link, "connection reset");
        }
    }

    /// Nothing that a process says arrives any more, though its streams stay open.
    pub(crate) fn mute(&mut self, place: Place) {
        self.nodes[place].muted = true;
    }

    /// The next thing that a process says to its user, if there is one yet.
    pub(crate) fn next_event(&mut self, place: Place) -> Option<Event> {
        self.nodes[place].events.pop_front()
    }

    /// Hands one thing to a role, then carries out what it wants done.
    pub(crate) fn act(&mut self, place: Place, input: impl FnOnce(&mut AnyRole, Instant)) {
        let now = self.now;
        input(&mut self.nodes[place].role, now);
        loop {
            let mut outgoing = Outgoing::default();
            with_role!(&mut self.nodes[place].role, role => role.poll_transmit(now, &mut outgoing));
            if outgoing.is_empty() {
                break;
            }
            for (to, datagram) in outgoing.iter() {
                self.send_datagram(place, to, datagram);
            }
        }
        while let Some(action) = with_role!(&mut self.nodes[place].role, role => role.poll_action()) {
            match action {
                Action::Connect { link, address } => self.connect(place, link, address),
                Action::Send { link, message } => self.send_message(place, link, message),
                Action::Close { link } => self.close(place, link, "closed by the other end"),
            }
        }
        while let Some(event) =
            with_role!(&mut self.nodes[place].role, role => role.poll_event().map(Event::from))
        {
            self.nodes[place].events.push_back(event);
        }
    }

    fn schedule(&mut self, after: Duration, to: Place, arrival: Arrival) {
        self.arrival_number += 1;
        self.arrivals.insert((self.now + after, self.arrival_number), (to, arrival));
    }

    fn send_datagram(&mut self, from: Place, to: SocketAddr, datagram: &[u8]) {
        self.datagrams.push(SentDatagram { at: self.now, from, to, bytes: datagram.to_vec() });
        let Some(place) = self.nodes.iter().position(|node| node.address == to) else { return };
        let from = self.nodes[from].address;
        for (after, bytes) in self.setup.network.carry(&mut self.random, datagram) {
            self.schedule(after, place, Arrival::Datagram { from, bytes });
        }
    }

    fn connect(&mut self, from: Place, link: Link, to: SocketAddr) {
        let delay = self.setup.network.delay;
        let Some(place) = self.nodes.iter().position(|node| node.address == to && node.alive) else {
            let event = LinkEvent::Closed { reason: "connection refused".into() };
            return self.schedule(delay, from, Arrival::Link { link, event });
        };
        let accepted = Link(Link::ACCEPTED + self.nodes[place].accepted);
        self.nodes[place].accepted += 1;
        self.streams.insert((from, link), (place, accepted));
        self.streams.insert((place, accepted), (from, link));
        let remote = self.nodes[from].address;
        self.schedule(delay, place, Arrival::Link { link: accepted, event: LinkEvent::Opened { remote } });
        self.schedule(delay * 2, from, Arrival::Link { link, event: LinkEvent::Opened { remote: to } });
    }

    fn send_message(&mut self, from: Place, link: Link, message: Message) {
        let Some((to, link)) = self.streams.get(&(from, link)).copied() else { return };
        if self.nodes[from].muted {
            return;
        }
        let bytes = message.encode();
        self.messages.push(SentMessage { at: self.now, from, to, message });
        self.schedule(self.setup.network.delay, to, Arrival::Message { link, bytes });
    }

    /// Ends a stream; what was sent on it before still arrives.
    fn close(&mut self, place: Place, link: Link, reason: &str) {
        let Some((to, link)) = self.streams.remove(&(place, link)) else { return };
        let event = LinkEvent::Closed { reason: reason.into() };
        self.schedule(self.setup.network.delay, to, Arrival::Link { link, event });
    }

    /// Does what comes next: something arrives, or a timer fires.
    pub(crate) fn step(&mut self) {
        let timers = self.nodes.iter().enumerate().filter(|(_, node)| node.alive);
        let timers = timers
            .filter_map(|(place, node)| Some((with_role!(&node.role, role => role.poll_timeout())?, place)));
        let timer = timers.min();
        let arrival = self.arrivals.first_key_value().map(|(key, _)| key.0);
        match (timer, arrival) {
            (Some((due, place)), arrival) if arrival.is_none_or(|arrival| due < arrival) => {
                self.now = self.now.max(due);
                self.act(place, |role, now| with_role!(role, role => role.handle_timeout(now)));
                let next = with_role!(&self.nodes[place].role, role => role.poll_timeout());
                assert!(next.is_none_or(|next| next > self.now), "{place}: a timer that was handled is over");
            }
            (_, Some(_)) => self.arrive(),
            (_, None) => panic!("the world stands still"),
        }
    }

    fn arrive(&mut self) {
        let ((at, _), (place, arrival)) = self.arrivals.pop_first().expect("the caller has seen one");
        self.now = self.now.max(at);
        match arrival {
            Arrival::Datagram { from, bytes } => {
                let mut burst = bytes;
                let stride = self.gather(at, place, from, &mut burst);
                self.deliver(place, |role, now| {
                    with_role!(role, role => role.handle_datagrams(now, from, &mut burst, stride));
                });
            }
            Arrival::Link { link, event } => {
                if matches!(event, LinkEvent::Closed { .. }) {
                    self.streams.remove(&(place, link));
                }
                self.deliver(place, |role, now| with_role!(role, role => role.handle_link(now, link, event)));
            }
            Arrival::Message { link, bytes } if self.streams.contains_key(&(place, link)) => {
                let message = Message::decode(&bytes).expect("it was encoded by the same code");
                self.deliver(
                    place,
                    |role, now| with_role!(role, role => role.handle_message(now, link, message)),
                );
            }
            Arrival::Message { .. } => {}
        }
    }

    /// Takes the datagrams that arrive at the same time from the same sender into one burst. Returns its stride.
    fn gather(&mut self, at: Instant, place: Place, from: SocketAddr, burst: &mut Vec<u8>) -> usize {
        let stride = burst.len();
        let mut last = stride;
        while let Some(entry) = self.arrivals.first_entry() {
            let together = entry.key().0 == at && entry.get().0 == place && last == stride;
            match &entry.get().1 {
                Arrival::Datagram { from: other, bytes }
                    if together && *other == from && bytes.len() <= stride =>
                {
                    last = bytes.len();
                    burst.extend_from_slice(bytes);
                }
                _ => break,
            }
            entry.remove();
        }
        stride
    }

    /// Whatever arrives at a process that is gone is gone too.
    pub(crate) fn deliver(&mut self, place: Place, input: impl FnOnce(&mut AnyRole, Instant)) {
        if self.nodes[place].alive {
            self.act(place, input);
        }
    }

    /// As if a process had sent this message on a stream it has open to another; nothing if it has none.
    pub(crate) fn forge(&mut self, from: Place, to: Place, message: Message) {
        let ends = self.streams.range((from, Link(0))..(from + 1, Link(0)));
        if let Some(link) = ends.filter(|(_, other)| other.0 == to).map(|(end, _)| end.1).next() {
            self.send_message(from, link, message);
        }
    }

    /// As if a datagram had arrived.
    pub(crate) fn inject(&mut self, from: Place, to: Place, mut bytes: Vec<u8>) {
        let from = self.nodes[from].address;
        let stride = bytes.len();
        self.deliver(
            to,
            |role, now| with_role!(role, role => role.handle_datagrams(now, from, &mut bytes, stride)),
        );
    }

    pub(crate) fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.step();
        }
    }
}

fn address(place: Place) -> SocketAddr {
    let last = u8::try_from(place + 1).expect("a small world");
    SocketAddr::from(([10, 0, 0, last], 4000))
}
