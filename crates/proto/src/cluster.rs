//! State that every member of a cluster must agree on: the members, the rows that exist, the rows that are hot.

use core::fmt;
use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeMap;

mod durability;

pub use self::durability::{CheckpointAt, Durability, Load, Upload};

use libra_dataplane::CELLS_MAX;
use libra_dataplane::mutants::{Mutant, is_enabled};
use libra_plan::{Placement, PlacementError, Plan, RegionSlots, SLOTS_PER_REGION, TableShape};
use libra_store::TableSpec;
use serde::{Deserialize, Serialize};

use crate::authentication::{Pass, PathSecrets, Secret, TagKind};
use crate::message::{Kind, MESSAGE_BYTES_MAX};
use crate::mode::Mode;
use crate::region;
use crate::transport::flow::FLOW_PACKETS_MAX;
use crate::values::ValueFormat;
use crate::work::{AddedPhases, Work, WorkRecord};

/// A member of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Peer {
    /// The controller.
    Controller,
    /// The server of this shard.
    Server(u16),
    /// A switch.
    Switch(u16),
    /// A worker.
    Worker(u16),
}

impl fmt::Display for Peer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Controller => write!(formatter, "the controller"),
            Self::Server(number) => write!(formatter, "server {number}"),
            Self::Switch(number) => write!(formatter, "switch {number}"),
            Self::Worker(number) => write!(formatter, "worker {number}"),
        }
    }
}

/// Arithmetic of the slots of a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ArithmeticMode {
    /// Planned fixed point: integers under a power-of-two scale for each row. Sums are exact in any order.
    Fixed,
    /// IEEE 754 single precision: the sum depends on the order of arrival.
    F32,
    /// Single precision, added by looking tables up, as in the paper: each addition is wrong by up to 0.8% of the larger summand.
    Table,
}

impl fmt::Display for ArithmeticMode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Fixed => "fixed",
            Self::F32 => "f32",
            Self::Table => "table",
        })
    }
}

/// Parameters of the hot path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HotPath {
    /// Arithmetic of the slots.
    pub arithmetic: ArithmeticMode,
    /// A bank is closed once it has taken this many pushes (each counted in the region where its last packet went) ...
    pub pushes_per_round: u32,
    /// ... or this long after its first packet, whichever is first.
    pub round_time_max: Duration,
    /// Entries in a packet, at most. 240 fill an Ethernet frame: 20 IP + 8 UDP + 30 header + 240 x 6 bytes = 1,498.
    pub entries_max: u8,
    /// True if a worker puts fewer in its packets on a path that lets no longer ones through; else such a path ends the job (rule T20).
    pub adapts_to_paths: bool,
    /// Lanes of regions: 1, unless a switch wires each place of a packet to a register of its own. Then a packet has an entry for each
    /// lane, so that `entries_max` is the same (rule W13).
    pub lanes: u8,
    /// Cells of a region, at most: as many as such a register has.
    pub cells_max: u16,
    /// Packets that a worker may have on their way to one switch. The controller sees to it that those of all workers fit the switch's
    /// receive buffer.
    pub packets_in_flight_max: u32,
    /// Packets of a flow of pushes before it restarts (rule T18): 2^30, or fewer in tests.
    pub flow_packets_max: u32,
    /// Tags of packets. Not without a [`Cluster::secret`].
    pub tags: TagKind,
}

/// Half of what a flow may be ahead of a packet that is lost: with more it would stand still each time (rule T2).
pub const PACKETS_IN_FLIGHT_MAX: u32 = 512;
/// Bytes that a full packet takes of a receive buffer, with the overhead of the kernel.
const RECEIVE_BYTES_OF_A_PACKET: u32 = 2304;

/// Returns the packets that each worker may have on their way to a switch whose receive buffer has so many bytes.
#[must_use]
pub fn packets_in_flight(receive_bytes: u32, workers: u16) -> u32 {
    let room = receive_bytes / RECEIVE_BYTES_OF_A_PACKET / u32::from(workers.max(1));
    room.clamp(1, PACKETS_IN_FLIGHT_MAX)
}

impl HotPath {
    /// The settings for a number of workers.
    pub fn for_workers(workers: u16) -> Self {
        Self {
            arithmetic: ArithmeticMode::Fixed,
            pushes_per_round: u32::from(workers),
            round_time_max: Duration::from_millis(20),
            entries_max: 240,
            adapts_to_paths: false,
            lanes: 1,
            cells_max: CELLS_MAX,
            packets_in_flight_max: PACKETS_IN_FLIGHT_MAX,
            flow_packets_max: FLOW_PACKETS_MAX,
            tags: TagKind::Off,
        }
    }

    /// The same with so many lanes.
    #[must_use]
    pub fn with_lanes(self, lanes: u8) -> Self {
        let entries_max = if lanes == 1 { self.entries_max } else { lanes };
        Self { lanes, entries_max, ..self }
    }

    /// Packets of a flow that a worker keeps for a replay, at most (rule T2): as many as have two million entries, so that
    /// small packets do not make small rounds.
    pub fn undurable_max(&self) -> u32 {
        (1 << 21_u32 >> u32::from(self.entries_max.max(1)).next_power_of_two().ilog2()).clamp(8192, 1 << 16)
    }

    /// Slots that rows of one region can have, and in which order they take them (rule W14).
    pub fn region_slots(&self) -> RegionSlots {
        let slots = u32::from(self.cells_max.saturating_sub(1)) * u32::from(self.lanes);
        let most = u16::try_from(slots).unwrap_or(u16::MAX).min(SLOTS_PER_REGION);
        if self.lanes > 1 { RegionSlots::by_rank(most) } else { RegionSlots::by_key(most) }
    }

    fn check(&self) -> Result<(), String> {
        let Self { lanes, entries_max, adapts_to_paths, flow_packets_max, .. } = *self;
        if !(1..=FLOW_PACKETS_MAX).contains(&flow_packets_max) {
            return Err(format!(
                "flows have {flow_packets_max} packets, and must have 1 to {FLOW_PACKETS_MAX}"
            ));
        }
        if lanes == 0 {
            return Err("regions have no lanes, and need at least one".to_owned());
        }
        if lanes > 1 && entries_max != lanes {
            return Err(format!(
                "packets hold up to {entries_max} entries, and regions have {lanes} lanes: beyond one lane both must be the same"
            ));
        }
        if lanes > 1 && adapts_to_paths {
            return Err(format!(
                "packets with an entry for each of {lanes} lanes cannot be shorter where a path needs it"
            ));
        }
        Ok(())
    }
}

/// Parameters of the cold path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColdPath {
    /// Format of gradients in pushes, and of values in answers.
    pub values: ValueFormat,
}

/// The members, and the owner of each region: the part of a cluster that changes.
///
/// The controller numbers views; a higher one replaces a lower one. The upper half of a number identifies the controller that made
/// it: each that starts begins a new half, above all that any member has (rule V1).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// Its number; none is 0.
    pub number: u64,
    /// Addresses at which the shards accept streams, by their number. Those of a process are the same, and change when it returns elsewhere.
    pub servers: Vec<SocketAddr>,
    /// Addresses at which the switches take datagrams. A number is never given twice.
    pub switches: BTreeMap<u16, SocketAddr>,
    /// Addresses from which the workers send their datagrams. A number is never given twice.
    pub workers: BTreeMap<u16, SocketAddr>,
    /// The owner of each region.
    pub ownerships: Vec<Ownership>,
    /// The flows of pushes that have restarted, by region and worker, and the number of the view in which they did (rule T18).
    pub flows: BTreeMap<(u8, u16), u64>,
    /// The number that the next switch gets.
    pub next_switch: u16,
    /// The number that the next worker gets.
    pub next_worker: u16,
    /// The records of workers that are gone, by their number (rule K5).
    pub finished: BTreeMap<u16, WorkRecord>,
    /// The phases of open work (rule K9).
    pub added: AddedPhases,
    /// The secrets of the paths to the owners, by switch: at a worker, in a job with keys.
    pub paths: BTreeMap<u16, PathSecrets>,
}

/// The owner of a region, and the view since which it holds it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ownership {
    /// The switch; none means that its rows are cold for the time being.
    pub owner: Option<u16>,
    /// The number of the view in which that began. Its lower 16 bits are in every packet of the region.
    pub view_id: u64,
}

impl Ownership {
    /// The view as packets carry it.
    pub fn view_on_wire(&self) -> u16 {
        (self.view_id & 0xffff) as u16
    }
}

impl View {
    /// The part of this view that members of a kind need (rule V11). Servers get everything, as a controller that is restarted has nothing but what
    /// they send (rule M9); a switch gets the addresses of servers and workers (rule W4); a worker those of servers, the owners and the flows that have restarted, and of
    /// other workers nothing else.
    #[must_use]
    pub fn of(&self, kind: Kind) -> Self {
        let Self { number, servers, switches, workers, ownerships, flows, added, .. } = self;
        let (number, servers, ownerships) = (*number, servers.clone(), ownerships.clone());
        match kind {
            Kind::Server if is_enabled(Mutant::AddedPhasesLost) => {
                Self { added: AddedPhases::default(), ..self.clone() }
            }
            Kind::Server => self.clone(),
            Kind::Switch => Self { number, servers, workers: workers.clone(), ownerships, ..Self::default() },
            Kind::Worker => {
                let owners = ownerships.iter().filter_map(|ownership| ownership.owner);
                let switches = owners.filter_map(|owner| Some((owner, *switches.get(&owner)?))).collect();
                let (flows, added) = (flows.clone(), added.clone());
                Self { number, servers, switches, ownerships, flows, added, ..Self::default() }
            }
        }
    }

    /// Returns the ownership of a region.
    pub fn ownership(&self, region: u8) -> Ownership {
        self.ownerships.get(usize::from(region)).copied().unwrap_or_default()
    }

    /// Number of regions that a switch owns.
    pub fn regions_of(&self, switch: u16) -> usize {
        self.ownerships.iter().filter(|ownership| ownership.owner == Some(switch)).count()
    }

    /// The number of the view in which a worker's flow of pushes into a region began; 0 if that was with the worker.
    pub fn flow(&self, region: u8, worker: u16) -> u64 {
        self.flows.get(&(region, worker)).copied().unwrap_or_default()
    }
}

/// The job and the members of its cluster, as the controller hands it to each of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cluster {
    /// The job as packets carry it: it separates the slots and flows of tenants of one switch.
    pub job: u16,
    /// A number that distinguishes this job from every other that ever ran, or will run, at the same addresses (rule M18).
    pub instance: u64,
    /// The secret that passes and tags follow from: of the job, at the controller and servers; of one switch or worker, at that one. None:
    /// members are believed, and packets have no tags.
    pub secret: Option<Secret>,
    /// The seed of initial row values, and of everything else that is drawn.
    pub seed: u64,
    /// The tables of the model.
    pub tables: Vec<TableSpec>,
    /// The rows that are hot; none when there is never a switch.
    pub plan: Option<Plan>,
    /// Parameters of the hot path.
    pub hot_path: HotPath,
    /// Durability of the job.
    pub durability: Durability,
    /// Parameters of the cold path.
    pub cold_path: ColdPath,
    /// Synchronization mode: how far workers may be apart.
    pub mode: Mode,
    /// The front end's own part: a text that the roles carry and do not read.
    pub task: String,
    /// The work that workers are dealt in chunks; none: they share it out themselves.
    pub work: Option<Work>,
    /// Time in which a server that is gone may come back, or another controller, and for which members call them (rules M7, M9).
    pub return_max: Duration,
    /// Number of shares of the task, or of places for workers: one for each worker that the job begins with, or more.
    pub shares: u16,
    /// The members, and the owners of regions.
    pub view: View,
}

/// Number of workers that a share may have in turn: a worker that comes after another died has a number of its own, for the
/// windows of all switches remember what the dead one has sent (rule M2).
const WORKERS_OF_A_SHARE: u16 = 16;
/// The same for switches that wire lanes to registers: those have windows for few flows, 64 for 32 workers.
const WORKERS_OF_A_SHARE_WIRED: u16 = 2;

/// Values of a row at most: as many as a message holds, with room for what goes with them.
const ROW_VALUES_MAX: usize = MESSAGE_BYTES_MAX / 4 - 1024;

/// The usual [`Cluster::return_max`].
pub const RETURN_MAX: Duration = Duration::from_secs(30);

impl Cluster {
    /// A cluster for a job, with no member yet.
    pub fn new(job: u16, tables: Vec<TableSpec>, plan: Option<Plan>, hot_path: HotPath) -> Self {
        Self {
            job,
            instance: job.into(),
            secret: None,
            seed: 1,
            tables,
            plan,
            hot_path,
            durability: Durability::NONE,
            cold_path: ColdPath::default(),
            mode: Mode::Async,
            task: String::new(),
            work: None,
            return_max: RETURN_MAX,
            shares: 0,
            view: View::default(),
        }
    }

    /// The same for one instance of it, a number that was drawn: packets of another differ in `job` and in `view`, of 16 bits each,
    /// and streams carry the whole number (rule M18).
    #[must_use]
    pub fn with_instance(self, instance: u64) -> Self {
        Self { instance, job: (instance & 0xffff) as u16, ..self }
    }

    /// The same with a secret, which was drawn for this instance. Packets have MACs if all switches can compute them, else cookies.
    #[must_use]
    pub fn with_secret(self, secret: Secret) -> Self {
        let hot_path = HotPath { tags: TagKind::Mac, ..self.hot_path };
        Self { secret: Some(secret), hot_path, ..self }
    }

    /// The part of this cluster that a member needs: its view, and its secrets.
    pub(crate) fn of(&self, member: Peer) -> Self {
        let secret = match member {
            Peer::Controller | Peer::Server(_) => self.secret.clone(),
            Peer::Switch(_) | Peer::Worker(_) => self.secret.as_ref().map(|secret| secret.of_member(member)),
        };
        Self { secret, view: self.view_of(member), ..self.clone() }
    }

    /// The part of the view that a member needs (rule V11).
    pub(crate) fn view_of(&self, member: Peer) -> View {
        match member {
            Peer::Controller | Peer::Server(_) => self.view.of(Kind::Server),
            Peer::Switch(_) => self.view.of(Kind::Switch),
            Peer::Worker(worker) => {
                let view = self.view.of(Kind::Worker);
                let Some(secret) = self.secret.as_ref().filter(|_| self.hot_path.tags != TagKind::Off) else {
                    return view;
                };
                let path = |switch: &u16| (*switch, secret.of_member(Peer::Switch(*switch)).path(worker));
                View { paths: view.switches.keys().map(path).collect(), ..view }
            }
        }
    }

    /// The pass that a member shows to another; of no use in a job without a secret.
    pub(crate) fn pass(&self, caller: Peer, callee: Peer) -> Pass {
        let secret = match caller {
            Peer::Controller | Peer::Server(_) => self.secret.as_ref().map(|secret| secret.of_member(caller)),
            Peer::Switch(_) | Peer::Worker(_) => self.secret.clone(),
        };
        secret.map_or_else(Pass::default, |secret| secret.pass(callee))
    }

    /// Returns true if this is the pass of a caller, at a controller or server (rule S7).
    pub(crate) fn admits(&self, caller: Peer, callee: Peer, pass: Pass) -> bool {
        let expected = self.secret.as_ref().map(|secret| secret.of_member(caller).pass(callee));
        expected.is_none_or(|expected| expected == pass) || is_enabled(Mutant::PassIgnored)
    }

    /// The phase of the work that the job begins with; 0 without work.
    pub(crate) fn first_phase(&self) -> u64 {
        self.work.as_ref().map_or(0, |work| work.done.phase)
    }

    /// Returns the number of phases of the work, with those that were added so far; 0 without work.
    pub fn phases(&self) -> u64 {
        self.work.as_ref().map_or(0, |work| work.phases_with(&self.view.added))
    }

    /// Returns the number of chunks of a phase of the work; 0 behind the last.
    pub fn chunks(&self, phase: u64) -> u32 {
        self.work.as_ref().map_or(0, |work| work.chunks(&self.view.added, phase))
    }

    /// Returns true if phases may be added to the work.
    pub fn takes_phases(&self) -> bool {
        self.work.as_ref().is_some_and(|work| work.is_open) && !self.view.added.is_complete
    }

    /// The number before that of the first view, whose lower 16 bits are in packets.
    pub(crate) fn views_begin_after(&self) -> u64 {
        self.instance >> 16 & 0xffff
    }

    /// The number of shards.
    pub fn shards(&self) -> u16 {
        u16::try_from(self.view.servers.len()).expect("the controller numbers servers by u16")
    }

    /// Returns true if the peer is in its view. The number of servers never changes.
    pub(crate) fn contains(&self, peer: Peer) -> bool {
        match peer {
            Peer::Controller => false,
            Peer::Server(server) => server < self.shards(),
            Peer::Switch(switch) => self.view.switches.contains_key(&switch),
            Peer::Worker(worker) => self.view.workers.contains_key(&worker),
        }
    }

    /// Workers are numbered below this, so a region has as many flows.
    pub fn worker_numbers(&self) -> u16 {
        let of_a_share = if self.hot_path.lanes > 1 { WORKERS_OF_A_SHARE_WIRED } else { WORKERS_OF_A_SHARE };
        self.shares.max(1).saturating_mul(of_a_share)
    }

    /// Returns the placement of the hot rows; none if there are none.
    pub(crate) fn placement(&self) -> Result<Option<Placement>, PlacementError> {
        self.plan.as_ref().map(|plan| self.place(plan)).transpose()
    }

    /// Returns the placement of the rows of its plan.
    pub(crate) fn place(&self, plan: &Plan) -> Result<Placement, PlacementError> {
        Placement::new(plan, self.shards(), self.hot_path.region_slots())
    }

    /// Checks that members can carry out what the cluster asks for.
    ///
    /// # Errors
    /// The first thing that they cannot do.
    pub fn check(&self) -> Result<(), String> {
        self.check_tables()?;
        self.work.as_ref().map_or(Ok(()), |work| work.check(&self.view.added))?;
        self.check_plan()
    }

    /// Checks that each row fits a message: it is never split (rule C8).
    pub(crate) fn check_tables(&self) -> Result<(), String> {
        match self.tables.iter().find(|table| table.width > ROW_VALUES_MAX) {
            Some(TableSpec { name, width, .. }) => {
                Err(format!("rows of table {name:?} have {width} values, a message holds {ROW_VALUES_MAX}"))
            }
            None => Ok(()),
        }
    }

    /// Checks that the plan can be carried out in this cluster: it is for these tables, and each hot row fits a packet.
    pub(crate) fn check_plan(&self) -> Result<(), String> {
        let Some(plan) = &self.plan else { return Ok(()) };
        let shape = |table: &TableSpec| TableShape {
            name: table.name.clone(),
            keys: table.keys.clone(),
            width: u32::try_from(table.width).unwrap_or(u32::MAX),
            // Only the plan has it.
            hot: plan.tables.iter().any(|planned| planned.name == table.name && planned.hot),
        };
        let tables: Vec<TableShape> = self.tables.iter().map(shape).collect();
        plan.fits(&tables).map_err(|misfit| misfit.to_string())?;
        self.hot_path.check()?;
        let placement = self.place(plan).map_err(|error| error.to_string())?;
        for layout in placement.regions() {
            let config = region::config(self, plan, layout, Ownership::default());
            config.check().map_err(|error| format!("region {}: {error}", layout.region))?;
        }
        let entries_max = self.hot_path.entries_max;
        let has_hot_rows = |table: &&TableShape| plan.rows.iter().any(|row| table.keys.contains(&row.key));
        match tables.iter().filter(|table| table.width > u32::from(entries_max)).find(has_hot_rows) {
            Some(TableShape { name, width, .. }) => {
                Err(format!("hot rows of table {name:?} have {width} values, a packet holds {entries_max}"))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use libra_store::{Init, Optimizer};

    use super::*;

    // rule T2
    #[test]
    fn a_worker_keeps_more_packets_if_they_are_small() {
        let kept = |entries_max| HotPath { entries_max, ..HotPath::for_workers(1) }.undurable_max();
        let of = [0, 1, 16, 32, 33, 64, 128, 129, 240, 255];
        let expected = [65_536, 65_536, 65_536, 65_536, 32_768, 32_768, 16_384, 8192, 8192, 8192];
        assert_eq!(of.map(kept), expected);
    }

    // rule C8
    #[test]
    fn a_row_that_no_message_holds_is_refused_before_the_job_begins() {
        let of_width = |width| {
            let rule = Optimizer::Sgd { rate: 1.0 }.into();
            let table = TableSpec { name: "layer".into(), keys: 0..1, width, rule, init: Init::Zero };
            Cluster::new(1, vec![table], None, HotPath::for_workers(1)).check_tables()
        };
        assert_eq!(of_width(ROW_VALUES_MAX), Ok(()));
        assert_eq!(
            of_width(ROW_VALUES_MAX + 1),
            Err("rows of table \"layer\" have 67107841 values, a message holds 67107840".to_owned())
        );
    }
}
