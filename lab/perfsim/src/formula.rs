//! Throughput limit of a cluster, by a formula: for each resource the time that a push takes of it, and the longest of those.
//!
//! X = min over resources of (how many there are) / (what a push takes of one). The asymptote of a closed network (Denning and Buzen 1978), with
//! the same [`Costs`](crate::Costs) as the simulation, and with the work of a push counted from pushes that are drawn, not from a simulation. It
//! models no queues: close to a limit it overestimates.

use std::collections::{BTreeMap, BTreeSet};

use libra_paper::switchml::Profile;
use serde::Serialize;

use crate::costs::{CostKind, Work};
use crate::fabric::{DATAGRAM_OVERHEAD, LinkSpec, Train};
use crate::member::LINE;
use crate::run::{Setting, System, Topology};
use libra_faultsim::Random;

/// Header of a packet of the hot path, and bytes of an entry, which has one value.
const HEADER_BYTES: f64 = 30.0;
const ENTRY_BYTES: f64 = 6.0;
/// Packets that end a round (rule E1), and slots of a block: a block is drained whole.
const ROUND_PACKETS_MAX: f64 = 4096.0;
const BLOCK: u64 = 8;
/// Packets that leave in one piece.
const RUN_PACKETS: f64 = 43.0;
/// Bytes of an acknowledgement on the wire, and of the answer to a message.
const ACK_BYTES: f64 = 40.0 + DATAGRAM_OVERHEAD as f64;
const ANSWER_BYTES: usize = 16;
/// Pushes that are drawn to count.
const DRAWN: usize = 24;

/// The resource that limits, and its limit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Estimate {
    /// Updates of rows, each second.
    #[serde(rename = "rows_per_second")]
    pub pairs_per_second: f64,
    /// The resource that has most to do.
    pub limit: &'static str,
    /// For each resource how many pairs a second it could do, if nothing else limited.
    pub limits: BTreeMap<&'static str, f64>,
}

/// Contents of one push, on average.
#[derive(Debug, Clone, Copy, Default)]
struct Shape {
    hot: f64,
    /// Of sixteen slots, of hot rows.
    lines: f64,
    cold: f64,
    packets: f64,
    /// Of a round.
    pushes: f64,
    slots: f64,
}

/// Estimates the limit of a setting. Racks beyond the first are as large as it, with workers, servers and switches dealt over all of them; each rack's links to the
/// others carry what all its machines could send, divided by `oversubscription`.
#[must_use]
pub fn estimate(setting: &Setting, racks: usize, oversubscription: f64) -> Estimate {
    let few = f64::from(setting.pushes_per_round);
    let estimated = with_rounds_of(setting, few, racks, oversubscription);
    // The sums of a round wait at a busy server behind all cold pushes that are under way, and the next round takes what comes meanwhile.
    let under_way = f64::from(setting.workers) * setting.open as f64;
    if estimated.limit == "servers" && under_way > few {
        return with_rounds_of(setting, under_way, racks, oversubscription);
    }
    estimated
}

fn with_rounds_of(setting: &Setting, pushes: f64, racks: usize, oversubscription: f64) -> Estimate {
    let shape = shape(setting, pushes);
    let costs = &setting.costs;
    let (workers, servers) = (f64::from(setting.workers), f64::from(setting.servers));
    let width = setting.model.width as f64;
    let (pairs, values) = (setting.model.batch as f64, (shape.hot + shape.cold) * width);
    let runs = (shape.packets / RUN_PACKETS).ceil();
    let packet_bytes = shape.packets * HEADER_BYTES + shape.hot * width * ENTRY_BYTES;
    // A message for each server that has a cold row.
    let messages = if shape.cold > 0.0 { servers } else { 0.0 };
    let gap = setting.model.rows as f64 / shape.cold.max(1.0);
    // Of 128 neighbouring keys the widest gap decides: ln 128 times the mean.
    let cold_bytes = shape.cold * ((gap * 4.85).log2() / 8.0).ceil().max(1.0) + shape.cold * 4.0 * width;
    let rounds = if shape.hot > 0.0 { 1.0 / shape.pushes } else { 0.0 };
    let round_bytes = 2.0 * 4.0 * shape.slots * rounds;
    let worker = Work::of(CostKind::Turn, 1.0 + runs + messages)
        .with(CostKind::Command, 2.0)
        .with(CostKind::Pair, shape.hot + shape.cold)
        .with(CostKind::Value, values)
        .with(CostKind::Line, shape.lines)
        .with(CostKind::Mixed, shape.hot.min(shape.cold))
        .with(CostKind::RunOut, runs)
        .with(CostKind::PacketOut, shape.packets)
        .with(CostKind::PacketByteOut, packet_bytes)
        .with(CostKind::RunIn, runs)
        .with(CostKind::PacketIn, runs)
        .with(CostKind::PacketByteIn, runs * 40.0)
        .with(CostKind::MessageOut, messages)
        .with(CostKind::MessageByteOut, cold_bytes)
        .with(CostKind::MessageIn, messages)
        .with(CostKind::MessageByteIn, messages * ANSWER_BYTES as f64);
    let user = Work::of(CostKind::Command, 1.0)
        .with(CostKind::Pair, shape.hot + shape.cold)
        .with(CostKind::Value, values);
    // All servers together.
    let server = Work::of(CostKind::Turn, messages + rounds)
        .with(CostKind::MessageIn, messages)
        .with(CostKind::MessageByteIn, cold_bytes)
        .with(CostKind::Pair, shape.cold)
        .with(CostKind::MessageOut, messages)
        .with(CostKind::MessageByteOut, messages * ANSWER_BYTES as f64)
        .with(CostKind::Round, 2.0 * rounds)
        .with(CostKind::RoundByte, round_bytes);
    let round_work = Work::of(CostKind::Round, 2.0 * rounds).with(CostKind::RoundByte, round_bytes);
    let packet_work = Work::of(CostKind::Turn, runs / 4.0)
        .with(CostKind::RunIn, runs)
        .with(CostKind::PacketIn, shape.packets)
        .with(CostKind::PacketByteIn, packet_bytes)
        .with(CostKind::RunOut, runs)
        .with(CostKind::PacketOut, runs)
        .with(CostKind::PacketByteOut, runs * 40.0);
    let speed = match setting.topology {
        Topology::OneMachine(host) | Topology::Rack { host, .. } => host.speed,
    };
    let worker_ns = costs.worker.of(&worker) / speed;
    let user_ns = costs.user.of(&user) / speed;
    let server_ns = costs.server.and(&costs.kernel).of(&server) / speed;
    let switch = costs.switch.and(&costs.kernel);
    let mut limits = BTreeMap::new();
    let mut limit = |name, count: f64, nanos: f64| {
        if nanos > 0.0 {
            limits.insert(name, count * 1e9 / nanos * pairs);
        }
    };
    limit("workers", workers, worker_ns);
    limit("users of workers", workers, user_ns);
    limit("servers", servers, server_ns);
    match setting.topology {
        Topology::OneMachine(host) => {
            let switch_ns = switch.of(&(packet_work + round_work)) / speed;
            limit("switch", 1.0, switch_ns);
            limit("cores", host.cores as f64, worker_ns + user_ns + server_ns + switch_ns);
        }
        Topology::Rack { machines, host, link, hardware, .. } => {
            let switches = racks as f64;
            let agent_ns = switch.of(&round_work);
            if hardware {
                limit("agents of switches", switches, agent_ns);
            } else {
                limit("switches", switches, agent_ns + switch.of(&packet_work));
            }
            let machines = (machines * racks) as f64;
            limit("cores", machines * host.cores as f64, worker_ns + user_ns + server_ns);
            let hot_up = packet_bytes + shape.packets * DATAGRAM_OVERHEAD as f64;
            let cold_wire = if messages > 0.0 {
                messages * Train::of_message(whole(cold_bytes / messages)).bytes as f64
            } else {
                0.0
            };
            let answers = messages * Train::of_message(ANSWER_BYTES).bytes as f64;
            let drained = round_bytes / 2.0;
            // A machine with a server and as many workers as others is the busiest; others have workers alone.
            let per_machine = 1.0 / machines.min(workers);
            let per_server = 1.0 / machines.min(servers);
            let nanos = |bytes: f64, spec: &LinkSpec| bytes * 8e9 / spec.bits_per_second;
            limit(
                "links of machines, up",
                1.0,
                nanos((hot_up + cold_wire) * per_machine + (answers + drained) * per_server, &link),
            );
            let down = (runs * ACK_BYTES + answers) * per_machine + (cold_wire + drained) * per_server;
            limit("links of machines, down", 1.0, nanos(down, &link));
            if racks > 1 {
                let away = (racks - 1) as f64 / racks as f64;
                let spine = nanos((hot_up + cold_wire + answers + drained) * away, &link) * oversubscription;
                limit("links between racks", machines, spine);
            }
        }
    }
    let least = limits.iter().min_by(|one, other| one.1.total_cmp(other.1));
    let (limit, pairs_per_second) = least.map_or(("nothing", f64::INFINITY), |(name, rate)| (*name, *rate));
    Estimate { pairs_per_second, limit, limits: limits.clone() }
}

/// Returns the throughput of SwitchML, from the least time that it takes: that of its links, for each machine's workers, or of its pool,
/// for each round trip. The number of racks changes neither, as
/// sums are streamed up a tree of switches.
#[must_use]
pub fn dense_pairs_per_second(setting: &Setting, profile: &Profile, racks: usize) -> f64 {
    let Topology::Rack { machines, link, forwarding, .. } = setting.topology else { return 0.0 };
    let cost = profile.cost(setting.model.rows * setting.model.width as u64);
    let packet = (profile.packet_bytes() + 24) as f64 * 8.0 / link.bits_per_second;
    let sharing = (f64::from(setting.workers) / (machines * racks) as f64).max(1.0);
    let hops = if racks > 1 { 3.0 } else { 1.0 };
    let round_trip = hops * (forwarding + link.propagation * 2).as_secs_f64() + 2.0 * packet;
    let iteration = (cost.packets as f64 * packet * sharing).max(cost.rounds as f64 * round_trip);
    f64::from(setting.workers) * setting.model.batch as f64 / iteration
}

/// Draws some pushes and counts.
fn shape(setting: &Setting, pushes_per_round: f64) -> Shape {
    let hot_rows = if setting.system == System::PsSparse { 0 } else { setting.hot };
    let mut random = Random::new(setting.seed).fork(0);
    let width = setting.model.width as f64;
    let entries = (f64::from(setting.entries_max) / width).floor().max(1.0);
    let (mut hot, mut lines) = (0.0, 0.0);
    let mut pushes = Vec::with_capacity(DRAWN);
    for _ in 0..DRAWN {
        let mut ranks = setting.model.draw_ranks(&mut random);
        ranks.retain(|rank| *rank < hot_rows);
        hot += ranks.len() as f64 / DRAWN as f64;
        lines += lines_of(&ranks, setting.model.width as u64) / DRAWN as f64;
        pushes.push(ranks);
    }
    let cold = setting.model.batch as f64 - hot;
    if let System::Het(bound) = setting.system {
        // All hot rows of so many pushes, each once.
        let bound = usize::try_from(bound.max(1)).unwrap_or(1);
        let kept: BTreeSet<u64> = pushes.iter().take(bound).flatten().copied().collect();
        return Shape { cold: cold + kept.len() as f64 / bound.min(DRAWN) as f64, ..Shape::default() };
    }
    let regions = (hot_rows as f64 * width / 32_767.0).ceil().max(1.0);
    let packets = if hot > 0.0 { (hot / regions / entries).ceil() * regions } else { 0.0 };
    let most = (ROUND_PACKETS_MAX * regions / packets.max(1.0)).floor();
    let waits = pushes_per_round > f64::from(setting.pushes_per_round);
    let of_round = if waits { pushes_per_round } else { pushes_per_round.min(most).max(1.0) };
    // Blocks of slots: slots are given in the order of ranks.
    let mut blocks = BTreeSet::new();
    let block_max = hot_rows * setting.model.width as u64 / BLOCK;
    for number in 0..whole(of_round) {
        // Another push of a full round touches nothing new.
        if blocks.len() as u64 >= block_max * 99 / 100 {
            break;
        }
        let more = pushes.get(number).is_none().then(|| setting.model.draw_ranks(&mut random));
        let ranks = more.as_ref().or_else(|| pushes.get(number)).into_iter().flatten();
        blocks.extend(
            ranks.filter(|rank| **rank < hot_rows).map(|rank| rank * setting.model.width as u64 / BLOCK),
        );
    }
    let slots = (blocks.len() as u64 * BLOCK).min(hot_rows * setting.model.width as u64) as f64;
    Shape { hot, lines, cold, packets, pushes: of_round, slots }
}

/// Returns the number of cache lines that the slots of hot rows are in. Rows are given in the order of ranks.
fn lines_of(ranks: &[u64], width: u64) -> f64 {
    let line = |slot: u64| slot / u64::from(LINE);
    let of_ranks: BTreeSet<u64> =
        ranks.iter().flat_map(|rank| line(rank * width)..=line(rank * width + width - 1)).collect();
    of_ranks.len() as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bytes and pushes, neither negative nor many"
)]
fn whole(number: f64) -> usize {
    number.round() as usize
}
