//! The roles of the smallest cluster, and a network that does one thing at a time: what it does next is the caller's choice.

use core::net::SocketAddr;
use std::collections::{BTreeMap, VecDeque};

use libra_faultsim::Rows;
use libra_proto::{
    Action, Callee, Controller, Instant, Level, Link, LinkEvent, Message, Outgoing, PullId, Role, Server,
    Sizes, Switch, Worker, WorkerCommand, WorkerEvent,
};

/// Rows of one value, both hot.
pub(crate) const KEYS: [u64; 2] = [0, 1];
/// Gradients that each worker pushes to each row.
const GRADIENTS: [[f32; 2]; 2] = [[1.0, 10.0], [100.0, 1000.0]];
/// Expected rows in the end: SGD at rate 1 subtracts every gradient once.
const EXPECTED: [f32; 2] = [-101.0, -1010.0];
/// A run that takes more steps than this will never end.
const STEPS_MAX: u32 = 4000;

/// Places of the processes.
const CONTROLLER: usize = 0;
const SERVER: usize = 1;
/// Holds the region at first. The one after it stands by.
pub(crate) const SWITCH: usize = 2;
const WORKERS: [usize; 2] = [4, 5];

#[derive(Clone)]
enum AnyRole {
    Controller(Box<Controller>),
    Server(Box<Server>),
    Switch(Box<Switch>),
    Worker(Box<Worker>),
    Dead,
}

macro_rules! with_role {
    ($any:expr, $role:ident => $body:expr, $dead:expr) => {
        match $any {
            AnyRole::Controller($role) => $body,
            AnyRole::Server($role) => $body,
            AnyRole::Switch($role) => $body,
            AnyRole::Worker($role) => $body,
            AnyRole::Dead => $dead,
        }
    };
}

#[derive(Clone)]
enum Pending {
    Datagram { from: usize, bytes: Vec<u8> },
    Link { link: Link, event: LinkEvent },
    Message { link: Link, bytes: Vec<u8> },
}

/// Something other than the next thing in line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deviation {
    /// The datagram in this place of the line is lost.
    Drop(usize),
    /// It arrives, and a copy of it joins the end of the line.
    Duplicate(usize),
    /// It goes to the end of the line.
    Delay(usize),
    /// It arrives before all others.
    Expedite(usize),
    /// The earliest timer fires before anything arrives.
    Timer,
    /// The switch that holds the region dies.
    Crash,
}

/// Progress of the users.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Starting,
    Pushing,
    Reading,
    Done,
}

#[derive(Clone)]
pub(crate) struct SmallScopeHarness {
    now: Instant,
    roles: Vec<AnyRole>,
    line: VecDeque<(usize, Pending)>,
    streams: BTreeMap<(usize, Link), (usize, Link)>,
    accepted: u64,
    phase: Phase,
    /// Users that have completed the phase.
    ready: [bool; 2],
    pub(crate) steps: u32,
}

fn address(place: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 4000 + u16::try_from(place).expect("a small place")))
}

impl SmallScopeHarness {
    /// A cluster that is complete, in which each worker has just asked for a push to both rows.
    pub(crate) fn new() -> Self {
        let rows = Rows { embedding: (2, 1), dense: (1, 1), hot: 2, scale: 0, headroom_bits: 12, set: None };
        let mut hot_path = libra_proto::HotPath::for_workers(2);
        // A packet for each slot.
        hot_path.entries_max = 1;
        let cluster = libra_proto::Cluster::new(1, rows.tables(), Some(rows.plan()), hot_path);
        let sizes = Sizes { servers: 1, switches: 1, workers: 2 };
        let switch = |place| AnyRole::Switch(Box::new(Switch::new(address(place), 8 << 20)));
        let worker = |place| AnyRole::Worker(Box::new(Worker::new(address(place))));
        let roles = vec![
            AnyRole::Controller(Box::new(Controller::new(sizes, cluster))),
            AnyRole::Server(Box::new(Server::new(address(SERVER)))),
            switch(SWITCH),
            switch(SWITCH + 1),
            worker(WORKERS[0]),
            worker(WORKERS[1]),
        ];
        let mut harness = Self {
            now: Instant::from_nanos(1),
            roles,
            line: VecDeque::new(),
            streams: BTreeMap::new(),
            accepted: 0,
            phase: Phase::Starting,
            ready: [false; 2],
            steps: 0,
        };
        for place in 0..harness.roles.len() {
            harness.act(place, |role, now| with_role!(role, role => role.handle_start(now), ()));
        }
        while harness.phase == Phase::Starting {
            harness.step();
        }
        harness
    }

    pub(crate) fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }

    /// Does the next thing in line: something arrives or, with nothing on its way, a timer fires.
    pub(crate) fn step(&mut self) {
        self.steps += 1;
        assert!(self.steps < STEPS_MAX, "it does not come to an end");
        match self.line.pop_front() {
            Some((to, pending)) => self.arrive(to, pending),
            None => self.fire(),
        }
    }

    /// Deviations that could happen now instead of the next thing in line.
    pub(crate) fn deviations(&self) -> Vec<Deviation> {
        let mut all = Vec::new();
        for (place, (_, pending)) in self.line.iter().enumerate() {
            if let Pending::Datagram { .. } = pending {
                all.extend([Deviation::Drop(place), Deviation::Duplicate(place)]);
                all.extend((place + 1 < self.line.len()).then_some(Deviation::Delay(place)));
                all.extend((place > 0).then_some(Deviation::Expedite(place)));
            }
        }
        if !self.line.is_empty() {
            all.push(Deviation::Timer);
        }
        if !matches!(self.roles[SWITCH], AnyRole::Dead) {
            all.push(Deviation::Crash);
        }
        all
    }

    pub(crate) fn deviate(&mut self, deviation: Deviation) {
        match deviation {
            Deviation::Drop(place) => drop(self.line.remove(place)),
            Deviation::Duplicate(place) => {
                let copy = self.line[place].clone();
                self.line.push_back(copy);
                self.deviate(Deviation::Expedite(place));
            }
            Deviation::Delay(place) => {
                let late = self.line.remove(place).expect("it was listed");
                self.line.push_back(late);
            }
            Deviation::Expedite(place) => {
                let (to, pending) = self.line.remove(place).expect("it was listed");
                self.arrive(to, pending);
            }
            Deviation::Timer => self.fire(),
            Deviation::Crash => self.crash(SWITCH),
        }
    }

    fn fire(&mut self) {
        let due = |role: &AnyRole| with_role!(role, role => role.poll_timeout(), None);
        let timers = self.roles.iter().enumerate().filter_map(|(place, role)| Some((due(role)?, place)));
        let (due, place) = timers.min().expect("there is always a heartbeat to come");
        self.now = self.now.max(due);
        self.act(place, |role, now| with_role!(role, role => role.handle_timeout(now), ()));
    }

    fn arrive(&mut self, to: usize, pending: Pending) {
        // Whatever arrives takes a while, so that no two things happen at once.
        self.now = self.now + core::time::Duration::from_micros(20);
        match pending {
            Pending::Datagram { from, mut bytes } => {
                let (from, stride) = (address(from), bytes.len());
                self.act(to, |role, now| {
                    with_role!(role, role => role.handle_datagrams(now, from, &mut bytes, stride), ());
                });
            }
            Pending::Link { link, event } => {
                self.act(to, |role, now| with_role!(role, role => role.handle_link(now, link, event), ()));
            }
            Pending::Message { link, bytes } => {
                let message = Message::decode(&bytes).expect("it was encoded by the same code");
                if self.streams.contains_key(&(to, link)) {
                    self.act(
                        to,
                        |role, now| with_role!(role, role => role.handle_message(now, link, message), ()),
                    );
                }
            }
        }
    }

    fn crash(&mut self, place: usize) {
        self.roles[place] = AnyRole::Dead;
        self.line.retain(|(to, _)| *to != place);
        let own: Vec<Link> = self.streams.keys().filter(|end| end.0 == place).map(|end| end.1).collect();
        for link in own {
            self.close(place, link);
        }
    }

    fn close(&mut self, place: usize, link: Link) {
        if let Some((to, link)) = self.streams.remove(&(place, link)) {
            self.streams.remove(&(to, link));
            let event = LinkEvent::Closed { reason: "connection reset".into() };
            self.line.push_back((to, Pending::Link { link, event }));
        }
    }

    fn act(&mut self, place: usize, input: impl FnOnce(&mut AnyRole, Instant)) {
        let now = self.now;
        input(&mut self.roles[place], now);
        let mut outgoing = Outgoing::default();
        with_role!(&mut self.roles[place], role => role.poll_transmit(now, &mut outgoing), ());
        for (to, datagram) in outgoing.iter() {
            let to = usize::from(to.port() - 4000);
            if !matches!(self.roles[to], AnyRole::Dead) {
                self.line.push_back((to, Pending::Datagram { from: place, bytes: datagram.to_vec() }));
            }
        }
        while let Some(action) = with_role!(&mut self.roles[place], role => role.poll_action(), None) {
            match action {
                Action::Connect { link, to: Callee::Controller } => self.connect(place, link, CONTROLLER),
                Action::Connect { link, to: Callee::Server(to) } => {
                    self.connect(place, link, usize::from(to.port() - 4000))
                }
                Action::Send { link, message } => {
                    if let Some((to, link)) = self.streams.get(&(place, link)).copied() {
                        self.line.push_back((to, Pending::Message { link, bytes: message.encode() }));
                    }
                }
                Action::Close { link } => self.close(place, link),
                Action::Admit { .. } => {}
            }
        }
        match &mut self.roles[place] {
            AnyRole::Controller(role) => while role.poll_event().is_some() {},
            AnyRole::Server(role) => while role.poll_event().is_some() {},
            AnyRole::Switch(role) => while role.poll_event().is_some() {},
            AnyRole::Worker(role) => {
                let events: Vec<WorkerEvent> = core::iter::from_fn(|| role.poll_event()).collect();
                events.into_iter().for_each(|event| self.on_event(place, event));
            }
            AnyRole::Dead => {}
        }
    }

    fn connect(&mut self, from: usize, link: Link, to: usize) {
        if matches!(self.roles[to], AnyRole::Dead) {
            let event = LinkEvent::Closed { reason: "connection refused".into() };
            return self.line.push_back((from, Pending::Link { link, event }));
        }
        let accepted = Link(Link::ACCEPTED + self.accepted);
        self.accepted += 1;
        self.streams.insert((from, link), (to, accepted));
        self.streams.insert((to, accepted), (from, link));
        let remote = address(from);
        self.line.push_back((to, Pending::Link { link: accepted, event: LinkEvent::Opened { remote } }));
        self.line.push_back((from, Pending::Link { link, event: LinkEvent::Opened { remote: address(to) } }));
    }

    /// A worker reports an event to its user; when both users have what the phase asks for, the next phase begins.
    fn on_event(&mut self, place: usize, event: WorkerEvent) {
        let worker = WORKERS.iter().position(|other| *other == place).expect("only workers have users");
        match (self.phase, event) {
            (_, WorkerEvent::Ended { reason, .. }) => panic!("worker {worker}: {reason}"),
            (Phase::Starting, WorkerEvent::Started { .. })
            | (Phase::Pushing, WorkerEvent::Flushed { .. }) => self.ready[worker] = true,
            (Phase::Reading, WorkerEvent::Pulled(_, pulled)) => {
                assert_eq!(pulled.values, EXPECTED, "worker {worker} reads other sums");
                self.ready[worker] = true;
            }
            _ => {}
        }
        if self.ready != [true; 2] {
            return;
        }
        self.ready = [false; 2];
        match self.phase {
            Phase::Starting => {
                self.phase = Phase::Pushing;
                for (worker, place) in WORKERS.into_iter().enumerate() {
                    let (keys, gradients) = (KEYS.to_vec(), GRADIENTS[worker].to_vec());
                    let level = Level::Accepted;
                    self.command(place, WorkerCommand::Push { number: 1, keys, gradients, level });
                    self.command(place, WorkerCommand::Flush { number: 2 });
                }
            }
            Phase::Pushing => {
                self.phase = Phase::Reading;
                for place in WORKERS {
                    self.command(place, WorkerCommand::Pull { id: PullId(3), keys: KEYS.to_vec() });
                }
            }
            Phase::Reading | Phase::Done => self.phase = Phase::Done,
        }
    }

    fn command(&mut self, place: usize, command: WorkerCommand) {
        self.act(place, |role, now| match role {
            AnyRole::Worker(role) => role.handle_command(now, command),
            _ => unreachable!("commands are for workers"),
        });
    }
}
