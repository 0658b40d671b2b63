//! A small cluster for tests that ask it for one thing after another.

use core::net::SocketAddr;
use core::ops::Range;
use core::time::Duration;
use std::collections::VecDeque;

use libra_plan::{Placement, Plan};
use libra_proto::{
    Cluster, Controller, ControllerEvent, Durability, HotPath, Instant, Level, MemberEvent, Message, Outcome,
    PullId, Role, Server, Sizes, Switch, Worker, WorkerCommand, WorkerEvent,
};
use libra_store::TableSpec;

use crate::check::Checkers;
use crate::network::{Host, Network, Quality};
use crate::observer::{Observer, Recorder};
use crate::process::{Actor, AnyRole, Event};
use crate::random::Random;
use crate::rows::{Rows, Sums};
use crate::world::{CONTROLLER, World, address_of};

/// Virtual time that anything may take, at most.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// Parameters of a harness.
#[derive(Debug, Clone)]
pub struct HarnessConfig {
    /// Number of members at first.
    pub sizes: Sizes,
    /// The rows that users push and pull.
    pub rows: Rows,
    /// The tables of the cluster: those of the rows, unless a test wants others.
    pub tables: Vec<TableSpec>,
    /// The plan, likewise.
    pub plan: Option<Plan>,
    /// Settings of the hot path.
    pub hot_path: HotPath,
    /// State that servers keep on their disks.
    pub durability: Durability,
    /// Quality of the network.
    pub quality: Quality,
    /// Instance of its job.
    pub instance: u64,
    /// Decides everything else.
    pub seed: u64,
}

impl HarnessConfig {
    /// A small model on a good network: 60 rows of three values, of which 25 are hot, and three rows of forty.
    pub fn small(servers: u16, switches: u16, workers: u16) -> Self {
        let rows =
            Rows { embedding: (60, 3), dense: (3, 40), hot: 25, scale: 0, headroom_bits: 12, set: None };
        let hot_path = HotPath {
            entries_max: 9,
            round_time_max: Duration::from_millis(3),
            ..HotPath::for_workers(workers)
        };
        let sizes = Sizes { servers, switches, workers };
        Self { sizes, hot_path, quality: Quality::GOOD, seed: 1, ..Self::of(rows, sizes) }
    }

    /// A model of these rows.
    pub fn of(rows: Rows, sizes: Sizes) -> Self {
        Self {
            sizes,
            tables: rows.tables(),
            plan: Some(rows.plan()),
            rows,
            hot_path: HotPath::for_workers(sizes.workers),
            durability: Durability::NONE,
            quality: Quality::GOOD,
            instance: 9,
            seed: 1,
        }
    }

    /// The same on a network that loses, doubles and reorders.
    #[must_use]
    pub fn bad(self) -> Self {
        Self { quality: Quality::BAD, ..self }
    }

    fn cluster(&self) -> Cluster {
        let mut cluster = Cluster::new(9, self.tables.clone(), self.plan.clone(), self.hot_path.clone());
        cluster.seed = self.seed;
        cluster.durability = self.durability.clone();
        cluster.task = "test".to_owned();
        cluster.with_instance(self.instance)
    }
}

/// Records and checks.
#[derive(Debug)]
pub struct HarnessObserver {
    /// Everything that was sent.
    pub recorder: Recorder,
    /// The checkers; without them where the plan cannot be placed.
    pub checkers: Option<Checkers>,
}

impl Observer for HarnessObserver {
    fn datagram_sent(&mut self, at: Instant, from: Actor, to: Option<Host>, datagram: &[u8]) {
        self.recorder.datagram_sent(at, from, to, datagram);
        if let Some(checkers) = &mut self.checkers {
            checkers.datagram_sent(at, from, to, datagram);
        }
    }

    fn message_sent(&mut self, at: Instant, from: Actor, to: Option<Actor>, message: &Message) {
        self.recorder.message_sent(at, from, to, message);
        if let Some(checkers) = &mut self.checkers {
            checkers.message_sent(at, from, to, message);
        }
    }

    fn message_arrives(&mut self, at: Instant, from: Actor, to: Actor, message: &Message) {
        self.recorder.message_arrives(at, from, to, message);
        if let Some(checkers) = &mut self.checkers {
            checkers.message_arrives(at, from, to, message);
        }
    }

    fn process_starts(&mut self, at: Instant, actor: Actor, role: &AnyRole) {
        if let Some(checkers) = &mut self.checkers {
            checkers.process_starts(at, actor, role);
        }
    }
}

/// A cluster, and the events that its members have reported to their users so far. The controller is host 0, then come the servers, the
/// switches and the workers.
///
/// Its methods panic when something takes longer than a minute of virtual time, or a member ends that should not: they
/// are for tests.
#[derive(Debug)]
pub struct ClusterHarness {
    /// The world.
    pub world: World<HarnessObserver>,
    /// The parameters.
    pub config: HarnessConfig,
    events: Vec<VecDeque<Event>>,
    numbered: u64,
}

impl ClusterHarness {
    /// A cluster whose members have just started.
    pub fn new(config: HarnessConfig) -> Self {
        let random = Random::new(config.seed);
        let network = Network::new(config.quality, random.fork(1));
        let slots = config.hot_path.region_slots();
        let is_placed = |plan| Placement::new(plan, config.sizes.servers, slots).is_ok();
        let sound = config.plan.as_ref().is_none_or(is_placed);
        let checkers = sound.then(|| Checkers::new(&config.rows, &config.cluster(), config.sizes.servers));
        let observer = HarnessObserver { recorder: Recorder::default(), checkers };
        let world = World::new(network, random.fork(2), observer);
        let (sizes, cluster) = (config.sizes, config.cluster());
        let mut harness = Self { world, config, events: Vec::new(), numbered: 0 };
        harness.add("controller", |_| AnyRole::Controller(Box::new(Controller::new(sizes, cluster))));
        for _ in 0..sizes.servers {
            harness.add_server();
        }
        for _ in 0..sizes.switches {
            harness.add_switch();
        }
        for _ in 0..sizes.workers {
            harness.add_worker();
        }
        harness
    }

    /// A cluster that is complete and runs.
    pub fn started(config: HarnessConfig) -> Self {
        let mut harness = Self::new(config);
        for worker in harness.workers() {
            harness.wait_for(worker, |event| matches!(event, Event::Worker(WorkerEvent::Started { .. })));
        }
        harness
    }

    /// A small cluster that runs, with operations under way and without checkers: for forged input, which means nothing to them.
    pub fn busy() -> Self {
        let mut harness = Self::started(HarnessConfig::small(2, 1, 2));
        harness.work(2, whole);
        harness.world.observer.checkers = None;
        for worker in harness.workers() {
            for key in [1, 2, 50, 51] {
                harness.push(worker, &[key], &[1.0; 3], Level::Accepted);
            }
        }
        harness
    }

    /// Adds one more process, wanted or not.
    pub fn add(&mut self, label: &str, role: impl FnOnce(SocketAddr) -> AnyRole) -> Host {
        let host = self.add_host(label);
        self.world.start(host, role(address_of(host)));
        self.gather();
        host
    }

    fn add_host(&mut self, label: &str) -> Host {
        self.events.push(VecDeque::new());
        self.world.add_host(format!("{label}-{}", self.events.len() - 1))
    }

    /// Adds one more server.
    pub fn add_server(&mut self) -> Host {
        let host = self.add_host("server");
        self.start_server(host);
        host
    }

    /// Starts a server on a machine that has none, or where it was killed: it goes on with what is on its disk.
    pub fn start_server(&mut self, host: Host) {
        if self.config.durability.needs_disk() {
            self.world.start_server_with_disk(host, 1);
        } else {
            let server = Server::new(address_of(host));
            self.world.start(host, AnyRole::Server(Box::new(server)));
        }
        self.gather();
    }

    /// Adds one more switch.
    pub fn add_switch(&mut self) -> Host {
        self.add("switch", |own| AnyRole::Switch(Box::new(Switch::new(own, 8 << 20))))
    }

    /// Adds one more worker.
    pub fn add_worker(&mut self) -> Host {
        self.add("worker", |own| AnyRole::Worker(Box::new(Worker::new(own))))
    }

    /// The servers that there were at first.
    pub fn servers(&self) -> Range<Host> {
        1..1 + usize::from(self.config.sizes.servers)
    }

    /// The switches that there were at first.
    pub fn switches(&self) -> Range<Host> {
        self.servers().end..self.servers().end + usize::from(self.config.sizes.switches)
    }

    /// The workers that there were at first.
    pub fn workers(&self) -> Range<Host> {
        self.switches().end..self.switches().end + usize::from(self.config.sizes.workers)
    }

    fn gather(&mut self) {
        while let Some((host, event)) = self.world.next_event() {
            self.events[host].push_back(event);
        }
    }

    /// Does what comes next.
    pub fn step(&mut self) {
        self.world.step();
        self.gather();
    }

    /// Lets time pass.
    pub fn run_for(&mut self, time: Duration) {
        let end = self.world.now() + time;
        self.world.run_until(end);
        self.gather();
    }

    /// Returns the next event that a process reports to its user, if there is one yet.
    pub fn next_event(&mut self, host: Host) -> Option<Event> {
        self.events[host].pop_front()
    }

    /// Hands something to a role.
    pub fn act(&mut self, host: Host, input: impl FnOnce(&mut AnyRole, Instant)) {
        self.world.act(host, input);
        self.gather();
    }

    /// Nothing that a process sends arrives any more, though its streams stay open.
    pub fn mute(&mut self, host: Host) {
        let others: Vec<Host> = (0..self.world.hosts()).filter(|other| *other != host).collect();
        self.world.partition(&[host], &others, false);
    }

    /// Runs until a process reports a wanted event; events before it are dropped.
    pub fn wait_for(&mut self, host: Host, mut wanted: impl FnMut(&Event) -> bool) -> Event {
        let deadline = self.world.now() + WAIT_TIMEOUT;
        loop {
            while let Some(event) = self.events[host].pop_front() {
                if wanted(&event) {
                    return event;
                }
                let over = matches!(
                    event,
                    Event::Worker(WorkerEvent::Ended { .. }) | Event::Member(MemberEvent::Ended { .. })
                );
                assert!(!over, "host {host} ended: {event:?}");
            }
            let now = self.world.now();
            assert!(now < deadline, "host {host} waited until {now}: {:#?}", self.world.role(host));
            self.step();
        }
    }

    /// Asks something of a worker.
    pub fn command(&mut self, worker: Host, command: WorkerCommand) {
        self.act(worker, |role, now| match role {
            AnyRole::Worker(role) => role.handle_command(now, command),
            other => panic!("{other:?} is no worker"),
        });
    }

    /// A number for the next operation.
    pub fn number(&mut self) -> u64 {
        self.numbered += 1;
        self.numbered
    }

    /// Starts a push and does not wait.
    pub fn push(&mut self, worker: Host, keys: &[u64], gradients: &[f32], level: Level) -> u64 {
        let number = self.number();
        let (keys, gradients) = (keys.to_vec(), gradients.to_vec());
        self.command(worker, WorkerCommand::Push { number, keys, gradients, level });
        number
    }

    /// Waits until a push has reached its level.
    pub fn wait_for_push(&mut self, worker: Host, push: u64) {
        self.wait_for(worker, |event| *event == Event::Worker(WorkerEvent::Pushed { number: push }));
    }

    /// Waits for the answer to a pull: its keys and values.
    pub fn wait_for_pull(&mut self, worker: Host, id: PullId) -> (Vec<u64>, Vec<f32>) {
        let pulled =
            |event: &Event| matches!(event, Event::Worker(WorkerEvent::Pulled(answer, _)) if *answer == id);
        match self.wait_for(worker, pulled) {
            Event::Worker(WorkerEvent::Pulled(_, pulled)) => (pulled.keys, pulled.values),
            other => unreachable!("{other:?}"),
        }
    }

    /// Pulls and waits.
    pub fn pull(&mut self, worker: Host, keys: &[u64]) -> Vec<f32> {
        let id = PullId(self.number());
        self.command(worker, WorkerCommand::Pull { id, keys: keys.to_vec() });
        let (answered, values) = self.wait_for_pull(worker, id);
        assert_eq!(answered, keys);
        values
    }

    /// Waits until every push of every worker is visible.
    pub fn flush_all(&mut self) {
        let flushes: Vec<_> = self.workers().map(|worker| (worker, self.number())).collect();
        for (worker, number) in &flushes {
            self.command(*worker, WorkerCommand::Flush { number: *number });
        }
        for (worker, number) in flushes {
            self.wait_for(worker, |event| *event == Event::Worker(WorkerEvent::Flushed { number }));
        }
    }

    /// All workers report, and the job ends.
    pub fn finish(&mut self) -> Outcome {
        for worker in self.workers() {
            self.command(worker, WorkerCommand::Report { text: format!("worker at {worker}") });
        }
        let finished = |event: &Event| matches!(event, Event::Controller(ControllerEvent::Finished(_)));
        match self.wait_for(CONTROLLER, finished) {
            Event::Controller(ControllerEvent::Finished(outcome)) => outcome,
            other => unreachable!("{other:?}"),
        }
    }

    /// Every worker makes `pushes` pushes of gradients that are drawn, at its own pace; then all is made visible. Returns
    /// what must come of it.
    pub fn work(&mut self, pushes: usize, mut gradient: impl FnMut(&mut Random) -> f32) -> Sums {
        let mut random = Random::new(self.config.seed).fork(3);
        let mut sums = Sums::zero(&self.config.rows);
        for _ in 0..pushes {
            for worker in self.workers() {
                let (keys, gradients) = draw_push(&self.config.rows, &mut random, &mut gradient);
                sums.add(&self.config.rows, &keys, &gradients);
                self.push(worker, &keys, &gradients, Level::Accepted);
                self.run_for(random.up_to(Duration::from_micros(400)));
            }
        }
        self.flush_all();
        sums
    }

    /// Checks that every worker reads minus these sums, to the bit.
    ///
    /// # Errors
    /// The worker that reads other values.
    pub fn check_values(&mut self, sums: &Sums) -> Result<(), String> {
        let keys = self.config.rows.keys();
        let expected: Vec<f32> = keys.iter().flat_map(|key| sums.row(&self.config.rows, *key)).collect();
        for worker in self.workers() {
            let read = self.pull(worker, &keys);
            let differing = read.iter().zip(&expected).filter(|(read, expected)| read != expected).count();
            if differing > 0 {
                return Err(format!("worker at {worker}: {differing} of {} values differ", expected.len()));
            }
        }
        Ok(())
    }

    /// Checks everything so far with the checkers.
    ///
    /// # Errors
    /// The first violation.
    pub fn check(&self) -> Result<(), String> {
        let violation = self.world.observer.checkers.as_ref().and_then(Checkers::violation);
        violation.map_or(Ok(()), |violation| Err(violation.to_string()))
    }
}

/// Some rows, some of them twice, hot ones more often than others, with gradients that are drawn.
pub fn draw_push(
    rows: &Rows,
    random: &mut Random,
    gradient: &mut impl FnMut(&mut Random) -> f32,
) -> (Vec<u64>, Vec<f32>) {
    let count = random.within(1..=20);
    let draw = |_| {
        let end = if random.chance(0.25) || rows.hot == 0 { rows.len() } else { rows.hot };
        rows.key(random.below(end))
    };
    let keys: Vec<u64> = (0..count).map(draw).collect();
    let values: usize = keys.iter().map(|key| rows.width(*key)).sum();
    let gradients = (0..values).map(|_| gradient(random)).collect();
    (keys, gradients)
}

/// A whole number from -100 to 100.
pub fn whole(random: &mut Random) -> f32 {
    f32::from(random.small(0..=200)) - 100.0
}
