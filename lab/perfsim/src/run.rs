//! A cluster with a load on simulated machines, and what came of it.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use libra_plan::{
    Budget, DEFAULT_HEADROOM_BITS, Frequencies, HEADROOM_BITS_MAX, HotRow, Plan, Provenance, SLOT_BYTES,
    Scale, TableShape, bound,
};
use libra_proto::{Cluster, Controller, HotPath, Instant, Link, Server, Sizes, Switch, Worker};
use libra_store::{Init, Optimizer, TableSpec};
use serde::Serialize;

use crate::acking_peer::AckingPeer;
use crate::cores::Host;
use crate::costs::{CostKind, Costs, Work};
use crate::engine::{Engine, Program};
use crate::fabric::{LinkCounts, LinkSpec, Place};
use crate::member::Pid;
use crate::recording::Recording;
use crate::report::{LinkUsage, Report, Usage};
use crate::trace::{Model, Pushes, cached};
use crate::user::{Done, User};
use libra_faultsim::AnyRole;
use libra_faultsim::address_of;

/// No gradient is larger.
const GRADIENT_MAX: f32 = 1.0;
/// Bytes that wait for the socket of a switch at most.
const RECEIVE_BYTES: u32 = 32 << 20;
/// Virtual time in which a cluster must have started, or the next push be done.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(2);
/// After so much of it is looked whether something has happened.
const STEP: Duration = Duration::from_micros(200);
/// The same where it limits the precision of a duration.
const SHORT_STEP: Duration = Duration::from_micros(20);

/// Location of the members.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Topology {
    /// All on one machine: what they send costs their kernels, and nothing else.
    OneMachine(Host),
    /// Machines around a switch. Workers are dealt to them from the first on, servers from the last on.
    Rack {
        /// Number of machines.
        machines: usize,
        /// Each of them.
        host: Host,
        /// Their links.
        link: LinkSpec,
        /// Time of a packet from port to port.
        forwarding: Duration,
        /// True if the switch in the middle adds at the rate of links, and a processor beside it drains and installs. Otherwise the switch is a
        /// process on a machine of its own.
        hardware: bool,
    },
}

impl Topology {
    /// The paper's: 8 machines with 64 cores and two ports of 100 Gbit/s around a Tofino, which takes a microsecond. There is a core for each
    /// process, so they poll, as the paper's do (DPDK, section 4).
    pub const PAPER: Self = Self::paper_with(LinkSpec::DUAL_100G);

    /// The same with other links.
    #[must_use]
    pub const fn paper_with(link: LinkSpec) -> Self {
        Self::Rack {
            machines: 8,
            host: Host { cores: 64, speed: 1.0, polls: true },
            link,
            forwarding: Duration::from_micros(1),
            hardware: true,
        }
    }
}

/// Method of aggregation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum System {
    /// Hot rows in the switch, the others at the servers.
    Libra,
    /// All rows at the servers.
    PsSparse,
    /// The same, but each worker keeps hot rows to itself and pushes their sums in every so many pushes.
    Het(u32),
}

/// Parameters of a simulation.
#[derive(Debug, Clone)]
pub struct Setting {
    /// Method of aggregation.
    pub system: System,
    /// Workers.
    pub workers: u16,
    /// Servers.
    pub servers: u16,
    /// Location of the members.
    pub topology: Topology,
    /// The rows, and what a push is.
    pub model: Model,
    /// Number of hot rows: those of the first ranks.
    pub hot: u64,
    /// Pushes of a worker that are under way at once.
    pub open: usize,
    /// Pushes of a round.
    pub pushes_per_round: u32,
    /// Entries of a packet at most.
    pub entries_max: u8,
    /// Costs of the roles and their kernels.
    pub costs: Costs,
    /// Time of the load before it is measured, and the time that is measured.
    pub warm_up: Duration,
    /// See above.
    pub measured: Duration,
    /// Pushes that are drawn for each worker, and then repeated.
    pub drawn: usize,
    /// Decides what is pushed.
    pub seed: u64,
}

/// Pushes of a training, in place of what a setting makes up.
#[derive(Debug)]
pub struct Replay {
    /// The tables, and which rows were pushed how often: the first [`hot`](Setting::hot) are hot.
    pub frequencies: Frequencies,
    /// The pushes of each worker, which end.
    pub pushes: Vec<Pushes>,
}

/// Role whose inputs are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    /// The first server.
    Server,
    /// The switch.
    Switch,
}

/// A cluster under load.
#[derive(Debug)]
pub(crate) struct Simulation {
    pub(crate) engine: Engine,
    setting: Setting,
    kinds: BTreeMap<Pid, &'static str>,
}

impl Setting {
    /// Simulates it. The same setting always has the same report.
    ///
    /// # Errors
    /// The reason why the cluster does not start, or a push is refused.
    pub fn run(&self) -> Result<Report, String> {
        let mut simulation = Simulation::start(self, None);
        let begin = simulation.warm_up()?;
        simulation.measure(&begin)
    }

    /// Simulates it with pushes of the caller's, one iterator for each worker.
    ///
    /// # Errors
    /// See [`run`](Self::run).
    pub fn run_with(&self, pushes: Vec<Pushes>) -> Result<Report, String> {
        let mut simulation = Simulation::with(self, None, pushes);
        let begin = simulation.warm_up()?;
        simulation.measure(&begin)
    }

    /// Simulates what a training has pushed, once and to its last push. Model, warm-up and time of the setting are not looked at. The report is of all
    /// the time, so what a cluster takes to get under way and to come to an end is in it.
    ///
    /// # Errors
    /// See [`run`](Self::run); or rows that are to be hot do not fit into a packet.
    pub fn replay(&self, replay: Replay) -> Result<Report, String> {
        let cluster = self.cluster_of(&replay.frequencies)?;
        Simulation::of(self, cluster, None, replay.pushes).through()
    }

    /// Simulates pushes of the caller's that end, once and to the last one: see [`replay`](Self::replay).
    ///
    /// # Errors
    /// See [`run`](Self::run).
    pub fn run_through(&self, pushes: Vec<Pushes>) -> Result<Report, String> {
        Simulation::with(self, None, pushes).through()
    }

    /// Simulates it, and keeps what one role was handed.
    ///
    /// # Errors
    /// See [`run`](Self::run).
    pub fn record(&self, recorded: Recorded) -> Result<Recording, String> {
        let mut simulation = Simulation::start(self, Some(recorded));
        let begin = simulation.warm_up()?;
        let recorded =
            simulation.engine.programs.iter().enumerate().find_map(|(pid, program)| match program {
                Program::Member(member) => member.recorded.as_ref().map(|steps| (pid, steps.len())),
                Program::User(_) => None,
            });
        let (pid, measured_from) = recorded.ok_or("there is no such role")?;
        simulation.measure(&begin)?;
        let Program::Member(member) = &mut simulation.engine.programs[pid] else {
            return Err("it is no role".to_owned());
        };
        let steps = member.recorded.take().unwrap_or_default();
        let fresh: fn(Pid) -> AnyRole = match member.role {
            AnyRole::Server(_) => server,
            _ => switch,
        };
        Ok(Recording { steps, measured_from, fresh, number: pid })
    }

    fn table(&self) -> TableSpec {
        TableSpec {
            name: "rows".to_owned(),
            keys: 0..self.model.rows,
            width: self.model.width,
            rule: Optimizer::Sgd { rate: 0.5 }.into(),
            init: Init::Zero,
        }
    }

    fn has_switch(&self) -> bool {
        self.system == System::Libra && self.hot > 0
    }

    /// The rows of the first ranks, in their order. A round must not fill a bank before its pushes are there.
    fn plan(&self) -> Plan {
        let table = self.table();
        let width = u32::try_from(table.width).unwrap_or(u32::MAX);
        let shape = TableShape { name: table.name, keys: table.keys, width, hot: true };
        let headroom_bits = self.headroom_bits((self.model.batch * self.model.width) as u64);
        let scale = Scale::fit(GRADIENT_MAX, bound(headroom_bits));
        let row = |rank| HotRow { key: self.model.key(rank), count: self.hot - rank, scale };
        Plan {
            number: 1,
            provenance: provenance(),
            tables: vec![shape],
            budget: Budget { p: 1.0, c: 1.0, on_chip_bytes: self.hot * self.model.width as u64 * SLOT_BYTES },
            headroom_bits,
            predicted_share: 1.0,
            rows: (0..self.hot).map(row).collect(),
        }
    }

    /// For a round of pushes with so many values each.
    fn headroom_bits(&self, values: u64) -> u8 {
        let packets = values.div_ceil(self.entries_max.into());
        let round = (packets * u64::from(self.pushes_per_round)).next_power_of_two();
        let bits = u8::try_from(round.ilog2() + 2).unwrap_or(HEADROOM_BITS_MAX);
        bits.clamp(DEFAULT_HEADROOM_BITS, 20.min(HEADROOM_BITS_MAX))
    }

    /// A cluster with the tables of a training, and the rows hot that it has updated most.
    fn cluster_of(&self, frequencies: &Frequencies) -> Result<Cluster, String> {
        let ranked = frequencies.ranked();
        let hot = if self.has_switch() { usize::try_from(self.hot).unwrap_or(usize::MAX) } else { 0 };
        let hot = &ranked[..hot.min(ranked.len())];
        if let Some(row) = hot.iter().find(|row| row.width > self.entries_max.into()) {
            return Err(format!(
                "a row of {} values does not fit a packet of {}",
                row.width, self.entries_max
            ));
        }
        let values: u64 = ranked.iter().map(|row| row.count * u64::from(row.width)).sum();
        let headroom_bits = self.headroom_bits(values.div_ceil(frequencies.pushes().max(1)));
        let slots: u64 = hot.iter().map(|row| u64::from(row.width)).sum();
        let budget = Budget { p: 1.0, c: 1.0, on_chip_bytes: slots * SLOT_BYTES };
        let plan = (!hot.is_empty())
            .then(|| Plan::new(1, provenance(), frequencies, budget, headroom_bits))
            .transpose()
            .map_err(|error| error.to_string())?;
        let table = |shape: &TableShape| TableSpec {
            name: shape.name.clone(),
            keys: shape.keys.clone(),
            width: shape.width as usize,
            ..self.table()
        };
        let tables = frequencies.tables().iter().map(table).collect();
        Ok(Cluster::new(1, tables, plan, self.hot_path()))
    }

    fn cluster(&self) -> Cluster {
        let plan = self.has_switch().then(|| self.plan());
        Cluster::new(1, vec![self.table()], plan, self.hot_path())
    }

    fn hot_path(&self) -> HotPath {
        HotPath {
            entries_max: self.entries_max,
            pushes_per_round: self.pushes_per_round,
            ..HotPath::for_workers(self.workers)
        }
    }

    /// All others to one worker, at these addresses of theirs: for a worker on sockets, alone.
    #[must_use]
    pub fn acking_peer(&self, streams: SocketAddr, datagrams: SocketAddr) -> AckingPeer {
        AckingPeer::new(self.cluster(), streams, datagrams)
    }

    /// Returns the pushes of a worker, without end.
    #[must_use]
    pub fn pushes(&self, worker: u16) -> Pushes {
        let pushes = self.model.pushes(worker, self.seed, self.drawn);
        let System::Het(bound) = self.system else { return pushes };
        let hot: BTreeSet<u64> = (0..self.hot).map(|rank| self.model.key(rank)).collect();
        cached(pushes, self.model.width, move |key| hot.contains(&key), bound)
    }
}

fn provenance() -> Provenance {
    // All that there is was counted.
    Provenance { tool: "libra sim performance".to_owned(), sample: 1.0, ..Provenance::default() }
}

fn worker(pid: Pid) -> AnyRole {
    AnyRole::Worker(Box::new(Worker::new(address_of(pid))))
}

fn server(pid: Pid) -> AnyRole {
    AnyRole::Server(Box::new(Server::new(address_of(pid))))
}

fn switch(pid: Pid) -> AnyRole {
    AnyRole::Switch(Box::new(Switch::new(address_of(pid), RECEIVE_BYTES)))
}

/// Counters at the beginning of a measurement.
pub(crate) struct Begin {
    at: Instant,
    work: Vec<Work>,
    busy_ns: Vec<f64>,
    links: Vec<Option<[LinkCounts; 2]>>,
}

impl Simulation {
    fn start(setting: &Setting, recorded: Option<Recorded>) -> Self {
        let pushes = (0..setting.workers).map(|worker| setting.pushes(worker)).collect();
        Self::with(setting, recorded, pushes)
    }

    /// Members, and their users with a load.
    pub(crate) fn with(setting: &Setting, recorded: Option<Recorded>, pushes: Vec<Pushes>) -> Self {
        Self::of(setting, setting.cluster(), recorded, pushes)
    }

    fn of(setting: &Setting, cluster: Cluster, recorded: Option<Recorded>, pushes: Vec<Pushes>) -> Self {
        let costs = &setting.costs;
        let (machines, host, link, forwarding, hardware) = match setting.topology {
            Topology::OneMachine(host) => (1, host, LinkSpec::DUAL_100G, Duration::ZERO, false),
            Topology::Rack { machines, host, link, forwarding, hardware } => {
                (machines, host, link, forwarding, hardware)
            }
        };
        let mut engine = Engine::new(costs, link, forwarding, setting.seed);
        let rack: Vec<Place> = (0..machines.max(1)).map(|_| engine.add_place(host, true)).collect();
        // The controller does nothing that is measured; on a rack it is where it delays no other member.
        let switches = u16::from(cluster.plan.is_some());
        let sizes = Sizes { servers: setting.servers, switches, workers: setting.workers };
        let is_rack = matches!(setting.topology, Topology::Rack { .. });
        let centre = if is_rack { engine.add_place(Host { cores: 2, ..host }, !hardware) } else { rack[0] };
        let mut kinds = BTreeMap::new();
        let role = Controller::new(sizes, cluster);
        engine.start(centre, AnyRole::Controller(Box::new(role)), costs.kernel.clone(), false, false);
        let last = rack.len() - 1;
        for number in 0..usize::from(setting.servers) {
            let keeps = recorded == Some(Recorded::Server) && number == 0;
            let (pid, prices) = (engine.processes.len(), costs.server.and(&costs.kernel));
            engine.start(rack[last - number % rack.len()], server(pid), prices, false, keeps);
            kinds.insert(pid, "server");
        }
        if switches > 0 {
            let (pid, prices) = (engine.processes.len(), costs.switch.and(&costs.kernel));
            // A processor beside a pipeline of hardware pays for rounds, not packets.
            let prices = if hardware { prices.only(&[CostKind::Round, CostKind::RoundByte]) } else { prices };
            engine.start(centre, switch(pid), prices, hardware, recorded == Some(Recorded::Switch));
            kinds.insert(pid, "switch");
        }
        let wake = costs.kernel.only(&[CostKind::Wake, CostKind::IdleWake]);
        let first = engine.processes.len();
        for number in 0..usize::from(setting.workers) {
            let (pid, prices) = (engine.processes.len(), costs.worker.and(&wake));
            engine.start(rack[number % rack.len()], worker(pid), prices, false, false);
            kinds.insert(pid, "worker");
        }
        for (number, pushes) in pushes.into_iter().enumerate() {
            let user = User::new(first + number, pushes, setting.open);
            let pid = engine.start_user(user, costs.user.and(&wake));
            kinds.insert(pid, "user");
        }
        Self { engine, setting: setting.clone(), kinds }
    }

    fn users(&self) -> impl Iterator<Item = &User> {
        self.engine.programs.iter().filter_map(|program| match program {
            Program::User(user) => Some(user),
            Program::Member(_) => None,
        })
    }

    /// Runs until all workers push, and then for the warm-up time of the setting.
    pub(crate) fn warm_up(&mut self) -> Result<Begin, String> {
        let deadline = self.engine.now + PROGRESS_TIMEOUT;
        while self.users().any(|user| user.done.is_empty()) {
            self.go_on(STEP, deadline)?;
        }
        self.engine.run_until(self.engine.now + self.setting.warm_up);
        self.engine.messages_in.clear();
        Ok(self.begin())
    }

    fn begin(&self) -> Begin {
        let processes = &self.engine.processes;
        Begin {
            at: self.engine.now,
            work: processes.iter().map(|process| process.work).collect(),
            busy_ns: (0..processes.len()).map(|pid| self.engine.busy_ns(pid)).collect(),
            links: (0..self.engine.places()).map(|place| self.engine.link_counts(place)).collect(),
        }
    }

    /// A step further, unless a member has failed or the deadline has passed.
    fn go_on(&mut self, step: Duration, deadline: Instant) -> Result<(), String> {
        if let Some(reason) = self.users().find_map(|user| user.failed.clone()) {
            return Err(reason);
        }
        if self.engine.now >= deadline {
            return Err(format!("nothing was pushed in {PROGRESS_TIMEOUT:?}"));
        }
        self.engine.run_until(self.engine.now + step);
        Ok(())
    }

    /// From the first push to the last, of workers whose pushes end.
    fn through(mut self) -> Result<Report, String> {
        let mut deadline = self.engine.now + PROGRESS_TIMEOUT;
        let mut begin = self.begin();
        while !self.users().any(User::has_begun) {
            begin = self.begin();
            self.go_on(SHORT_STEP, deadline)?;
        }
        let mut done = 0;
        while !self.users().all(User::is_done) {
            self.go_on(SHORT_STEP, deadline)?;
            let now = self.users().map(|user| user.done.len()).sum();
            if now > done {
                (done, deadline) = (now, self.engine.now + PROGRESS_TIMEOUT);
            }
        }
        self.report(&begin)
    }

    pub(crate) fn measure(&mut self, begin: &Begin) -> Result<Report, String> {
        self.engine.run_until(begin.at + self.setting.measured);
        self.report(begin)
    }

    /// Returns the report of the time since `begin`.
    fn report(&self, begin: &Begin) -> Result<Report, String> {
        let end = self.engine.now;
        if let Some(reason) = self.users().find_map(|user| user.failed.clone()) {
            return Err(reason);
        }
        let within = |done: &&Done| done.at >= begin.at && done.at < end;
        let done: Vec<Done> =
            self.users().flat_map(|user| user.done.iter().filter(within).copied()).collect();
        let pairs: u64 = done.iter().map(|done| done.pairs).sum();
        if pairs == 0 {
            return Err("nothing was pushed while it was measured: it takes a longer time".to_owned());
        }
        let (all, pairs, seconds) = (pairs, pairs as f64, end.since(begin.at).as_secs_f64());
        let mut latencies: Vec<f64> =
            done.iter().map(|done| done.at.since(done.begun).as_secs_f64() * 1e6).collect();
        latencies.sort_by(f64::total_cmp);
        let quantile = |per_mille: usize| latencies[(latencies.len() - 1) * per_mille / 1000];
        let (mut roles, mut work_per_pair) = (BTreeMap::<_, Usage>::new(), BTreeMap::<_, Work>::new());
        let mut busy_of_places = vec![0.0; self.engine.places()];
        for (pid, process) in self.engine.processes.iter().enumerate() {
            let busy = self.engine.busy_ns(pid) - begin.busy_ns[pid];
            busy_of_places[process.place] += busy;
            let Some(kind) = self.kinds.get(&pid).copied() else { continue };
            let usage = roles.entry(kind).or_default();
            usage.most = usage.most.max(busy / 1e9 / seconds);
            usage.mean +=
                busy / 1e9 / seconds / self.kinds.values().filter(|other| **other == kind).count() as f64;
            usage.ns_per_pair += busy / pairs;
            let work = process.work + begin.work[pid].times(-1.0);
            *work_per_pair.entry(kind).or_default() += work.times(1.0 / pairs);
        }
        let cores = busy_of_places.iter().enumerate();
        let cores_most = cores
            .map(|(place, busy)| busy / 1e9 / seconds / self.engine.host(place).cores as f64)
            .fold(0.0, f64::max);
        let servers: f64 =
            work_per_pair.get("server").map_or(0.0, |work| work.count(CostKind::MessageByteIn));
        let link = |side: usize| {
            let mut usage = LinkUsage::default();
            for (place, before) in begin.links.iter().enumerate() {
                let (Some(before), Some(after)) = (before, self.engine.link_counts(place)) else { continue };
                let (before, after) = (&before[side], &after[side]);
                usage.bytes_per_second += (after.bytes_carried - before.bytes_carried) as f64 / seconds;
                usage.packets_per_second += (after.packets - before.packets) as f64 / seconds;
                usage.packets_lost += after.packets_lost - before.packets_lost;
                usage.most = usage.most.max((after.busy_ns - before.busy_ns) / 1e9 / seconds);
            }
            usage
        };
        Ok(Report {
            pairs: all,
            seconds,
            pairs_per_second: pairs / seconds,
            pushes_per_second: done.len() as f64 / seconds,
            latency_us: [quantile(500), quantile(990)],
            roles,
            cores_most,
            up: link(0),
            down: link(1),
            connections: self.connections(),
            bytes_to_servers_per_pair: servers,
            bytes_dropped: self.engine.bytes_dropped,
            steps: self.engine.steps,
            work_per_pair,
        })
    }

    /// Streams on which servers got something from others than the controller. Heartbeats are not counted: those go there.
    fn connections(&self) -> usize {
        let is_server = |pid: &Pid| self.kinds.get(pid) == Some(&"server");
        self.engine
            .messages_in
            .keys()
            .filter(|(pid, link)| is_server(pid) && link.0 >= Link::ACCEPTED)
            .count()
    }
}
