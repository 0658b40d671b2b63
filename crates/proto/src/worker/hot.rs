//! The hot path of a worker: rows become packets for the switches, answers become values.

use core::net::SocketAddr;
use std::collections::BTreeMap;

use libra_dataplane::{Flags, Header, Kind, PacketWriter, packet_bytes};
use libra_plan::{Placement, Plan};

use super::rows::{HotRow, by_region};
use crate::bulk::Bulk;
use crate::cluster::{ArithmeticMode, Cluster, Tenure, View};
use crate::message::Replay;
use crate::statistics::WorkerStatistics;
use crate::time::Instant;
use crate::transport::flow::{self, Cargo, Flow};
use crate::transport::path::{Identity, Path, RegionFlows};

/// Packets in one replay, at most: about a megabyte.
const REPLAY_PACKETS_MAX: usize = 512;

/// Everything a worker keeps for the rows that switches hold.
#[derive(Debug, Clone)]
pub(crate) struct HotClient {
    identity: Identity,
    in_flight_max: u32,
    /// One for each switch that holds a region.
    paths: BTreeMap<u16, Path>,
    /// Who holds each region.
    tenures: Vec<Tenure>,
    /// The flows of regions that nobody holds.
    parked: BTreeMap<u8, RegionFlows>,
    /// For each region what rounding has left over of each slot (error feedback).
    residues: Vec<Vec<f32>>,
    arithmetic: ArithmeticMode,
    bound: u32,
    entries_max: u8,
    /// The residues that a push has changed, as they were.
    residues_before: Vec<f32>,
    integers: Vec<i32>,
    words: Vec<u32>,
    spare: Vec<Vec<u8>>,
    /// Counts of paths that are gone.
    statistics: WorkerStatistics,
}

/// Points of flows of pushes: for each region the sequence number before which everything counts.
pub(crate) type Frontiers = Vec<(u8, u32)>;

impl HotClient {
    pub(crate) fn new(cluster: &Cluster, worker: u16, plan: &Plan, placement: &Placement) -> Self {
        let regions = placement.regions();
        Self {
            identity: Identity { job: cluster.job, worker, plan: plan.number },
            in_flight_max: cluster.hot_path.packets_in_flight_max,
            paths: BTreeMap::new(),
            tenures: vec![Tenure::default(); regions.len()],
            parked: regions.iter().map(|region| (region.region, RegionFlows::default())).collect(),
            residues: regions.iter().map(|region| vec![0.0; usize::from(region.slots)]).collect(),
            arithmetic: cluster.hot_path.arithmetic,
            bound: plan.bound(),
            entries_max: cluster.hot_path.entries_max,
            residues_before: Vec::new(),
            integers: Vec::new(),
            words: Vec::new(),
            spare: Vec::new(),
            statistics: WorkerStatistics::default(),
        }
    }

    /// Moves the flows of regions to those who hold them now (rule V5). What nobody holds is left to the shards: returns the cargoes of
    /// the pulls, and the regions whose packets must be replayed there.
    pub(crate) fn enter(&mut self, view: &View) -> (Vec<Cargo>, Vec<u8>) {
        let (mut pulls, mut replays) = (Vec::new(), Vec::new());
        for (region, known) in (0u8..).zip(&mut self.tenures) {
            let tenure = view.tenure(region);
            if tenure.since <= known.since {
                continue;
            }
            let path = known.holder.and_then(|holder| self.paths.get_mut(&holder));
            let parked = || self.parked.remove(&region).expect("flows are on a path or parked");
            let mut flows = path.map_or_else(parked, |path| path.take(region));
            *known = tenure;
            let place = tenure.holder.and_then(|holder| Some((holder, *view.switches.get(&holder)?)));
            if let Some((holder, address)) = place {
                let path = self.paths.entry(holder);
                let path = path.or_insert_with(|| Path::new(address, self.identity, self.in_flight_max));
                path.put(region, flows, tenure.view_on_wire());
            } else {
                known.holder = None;
                pulls.extend(flows.pull.finish_below(u32::MAX, &mut self.spare));
                flows.push.reopen();
                if flows.push.needed().next().is_some() {
                    replays.push(region);
                }
                self.parked.insert(region, flows);
            }
        }
        let statistics = &mut self.statistics;
        self.paths.retain(|_, path| {
            if path.is_idle() {
                *statistics += path.statistics;
            }
            !path.is_idle()
        });
        (pulls, replays)
    }

    /// The packets of a region that nobody holds, for its shard, in messages of moderate size (rule V6).
    pub(crate) fn replays(&mut self, region: u8) -> Vec<Replay> {
        let tenure = self.tenures[usize::from(region)];
        let Some(flows) = self.parked.get_mut(&region) else { return Vec::new() };
        let mut replays: Vec<Replay> = Vec::new();
        for (seq, packet) in flows.push.needed() {
            flow::edit_header(&mut packet.bytes, |header| {
                (header.view, header.seq) = (tenure.view_on_wire(), seq);
            });
            if replays.last().is_none_or(|replay| replay.packets.len() >= REPLAY_PACKETS_MAX) {
                replays.push(Replay { region, since: tenure.since, below: seq, packets: Vec::new() });
            }
            let replay = replays.last_mut().expect("one was just added");
            replay.packets.push(Bulk(packet.bytes.clone()));
            replay.below = seq + 1;
        }
        replays
    }

    /// The shard has applied the packets of a region below a sequence number. Returns what they carried that was not known to be
    /// accepted.
    pub(crate) fn replayed(&mut self, region: u8, since: u64, below: u32) -> Vec<Cargo> {
        let current = self.tenures.get(usize::from(region)).is_some_and(|tenure| tenure.since == since);
        match self.parked.get_mut(&region).filter(|_| current) {
            Some(flows) => flows.push.finish_below(below, &mut self.spare),
            None => Vec::new(),
        }
    }

    /// Whether a switch holds the region.
    pub(crate) fn is_held(&self, region: u8) -> bool {
        self.tenures[usize::from(region)].holder.is_some()
    }

    pub(crate) fn path_from(&mut self, address: SocketAddr) -> Option<&mut Path> {
        self.paths.values_mut().find(|path| path.address() == address)
    }

    /// The switches that have owed an answer for too long.
    pub(crate) fn take_unreachable(&mut self, now: Instant) -> Vec<u16> {
        let silent =
            self.paths.iter_mut().filter_map(|(switch, path)| path.take_unreachable(now).then_some(*switch));
        silent.collect()
    }

    pub(crate) fn paths(&mut self) -> impl Iterator<Item = &mut Path> {
        self.paths.values_mut()
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.paths.values().filter_map(Path::poll_timeout).min()
    }

    /// Adds what the hot path has counted.
    pub(crate) fn add_statistics(&self, total: &mut WorkerStatistics) {
        *total += self.statistics;
        for path in self.paths.values() {
            *total += path.statistics;
            let round_trip =
                path.round_trip().map_or(0, |time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
            total.round_trip_us = total.round_trip_us.max(round_trip);
        }
    }

    fn push_flow(&self, region: u8) -> &Flow {
        let path = self.tenures[usize::from(region)].holder.and_then(|holder| self.paths.get(&holder));
        let parked = || &self.parked[&region].push;
        path.map_or_else(parked, |path| path.push_flow(region))
    }

    /// Where each flow of pushes stands now: everything submitted so far lies before it.
    pub(crate) fn frontiers(&self) -> Frontiers {
        (0u8..).zip(&self.tenures).map(|(region, _)| (region, self.push_flow(region).next())).collect()
    }

    /// Whether every push before these points is durable.
    pub(crate) fn is_durable(&self, frontiers: &Frontiers) -> bool {
        frontiers.iter().all(|&(region, seq)| self.push_flow(region).first() >= seq)
    }

    fn path(&mut self, region: u8) -> &mut Path {
        let holder = self.tenures[usize::from(region)].holder;
        let path = holder.and_then(|holder| self.paths.get_mut(&holder));
        path.expect("rows are sorted as hot while a switch holds their region")
    }

    /// Turns gradients into integers under the plan's scales. Of `rows` only those stay whose integers are within the bound
    /// and whose region can take them; the others are handed to `too_large` (rule C5). What stays waits to be sent by [`push`](Self::push).
    pub(crate) fn quantize(
        &mut self,
        rows: &mut Vec<HotRow>,
        gradients: &[f32],
        mut too_large: impl FnMut(&HotRow),
    ) {
        self.words.clear();
        let most = u32::try_from(rows.len()).expect("an operation has fewer than 2^32 rows");
        let exhausted: Vec<u8> = by_region(rows)
            .map(|(region, _)| region)
            .filter(|region| self.push_flow(*region).is_exhausted(most))
            .collect();
        if exhausted.is_empty() && self.quantize_all(rows, gradients) {
            return;
        }
        let Self { words, residues, bound, arithmetic, integers, .. } = self;
        rows.retain(|row| {
            let gradient = &gradients[row.range()];
            let is_sendable = !exhausted.contains(&row.place.region)
                && match arithmetic {
                    ArithmeticMode::F32 => {
                        words.extend(gradient.iter().map(|value| value.to_bits()));
                        true
                    }
                    ArithmeticMode::Fixed => {
                        integers.resize(gradient.len(), 0);
                        let residues = &mut residues[usize::from(row.place.region)][row.slots()];
                        let fits = row.place.scale.quantize_row(gradient, residues, *bound, integers);
                        words.extend(integers.iter().filter(|_| fits).map(|integer| integer.cast_unsigned()));
                        fits
                    }
                };
            if !is_sendable {
                too_large(row);
            }
            is_sendable
        });
    }

    /// The same if all rows can be sent; `false`, and nothing changed, if one of them is too large. Nearly always all can, and
    /// then there is no need to look at each twice.
    fn quantize_all(&mut self, rows: &[HotRow], gradients: &[f32]) -> bool {
        let Self { words, residues, residues_before, bound, .. } = self;
        if self.arithmetic == ArithmeticMode::F32 {
            words.extend(rows.iter().flat_map(|row| &gradients[row.range()]).map(|value| value.to_bits()));
            return true;
        }
        let (all_rows, values) = (rows.len(), rows.iter().map(HotRow::width).sum());
        words.resize(values, 0);
        residues_before.resize(values, 0.0);
        let (mut words_left, mut before_left) = (words.as_mut_slice(), residues_before.as_mut_slice());
        let mut fits = true;
        for (region, rows) in by_region(rows) {
            let residues = residues[usize::from(region)].as_mut_slice();
            // Rows of one value have a loop without another in it.
            let single = values == all_rows;
            let of_region = if single { rows.len() } else { rows.iter().map(HotRow::width).sum() };
            let (words, before);
            (words, words_left) = words_left.split_at_mut(of_region);
            (before, before_left) = before_left.split_at_mut(of_region);
            fits &= if single {
                quantize_values(rows, gradients, residues, *bound, words, before)
            } else {
                quantize_rows(rows, gradients, residues, *bound, words, before)
            };
        }
        if !fits {
            words.clear();
            let mut before = residues_before.iter();
            for row in rows {
                let residues = &mut residues[usize::from(row.place.region)][row.slots()];
                residues.iter_mut().zip(&mut before).for_each(|(residue, before)| *residue = *before);
            }
        }
        fits
    }

    /// Sends the rows that the last [`quantize`](Self::quantize) left. Returns how many answers there will be.
    pub(crate) fn push(&mut self, operation: u64, rows: &[HotRow], answer_with_values: bool) -> u32 {
        let flags = if answer_with_values { Flags::VALUES } else { Flags::NONE };
        let words = core::mem::take(&mut self.words);
        let packets = self.pack(operation, Kind::Push, flags, rows, words.iter().copied());
        self.words = words;
        packets
    }

    /// Sends requests for the values of `rows`, which are sorted by region. Returns how many answers there will be.
    pub(crate) fn pull(&mut self, operation: u64, rows: &[HotRow]) -> u32 {
        self.pack(operation, Kind::Pull, Flags::NONE, rows, core::iter::repeat(0))
    }

    /// Packs rows, whole, as many of one region as fit a packet, with a word for each of their values. The last packet of a push in a
    /// region is marked.
    fn pack(
        &mut self,
        operation: u64,
        kind: Kind,
        flags: Flags,
        rows: &[HotRow],
        mut words: impl Iterator<Item = u32>,
    ) -> u32 {
        let packet_bytes_max = packet_bytes(self.entries_max);
        let (mut packets, mut first) = (0, 0);
        for (region, mut rest) in by_region(rows) {
            let path = self.path(region);
            while !rest.is_empty() {
                let (header, mut bytes) = path.begin(region, kind);
                bytes.resize(packet_bytes_max, 0);
                let mut writer = PacketWriter::new(Header { flags, ..header }, &mut bytes);
                let mut fits = 0;
                for row in rest {
                    if row.width() > writer.room() {
                        break;
                    }
                    for (cell, word) in row.cells().zip(&mut words) {
                        let fitted = writer.push(cell, word);
                        debug_assert!(fitted, "there is room for the row");
                    }
                    fits += 1;
                }
                assert!(fits > 0, "a row of a hot table is no wider than a packet");
                rest = &rest[fits..];
                if kind == Kind::Push && rest.is_empty() {
                    writer.flag(Flags::LAST);
                }
                let length = writer.finish();
                bytes.truncate(length);
                path.submit(
                    region,
                    kind,
                    bytes,
                    Cargo { operation, first: index(first), end: index(first + fits) },
                );
                first += fits;
                packets += 1;
            }
        }
        packets
    }
}

fn index(position: usize) -> u32 {
    u32::try_from(position).expect("an operation has fewer than 2^32 rows")
}

/// Quantizes rows of one value each. Returns whether all are within the bound; where residues were changed is what was `before`.
fn quantize_values(
    rows: &[HotRow],
    gradients: &[f32],
    residues: &mut [f32],
    bound: u32,
    words: &mut [u32],
    before: &mut [f32],
) -> bool {
    let mut fits = true;
    for ((row, word), before) in rows.iter().zip(words).zip(before) {
        let residue = &mut residues[usize::from(row.place.slot)];
        let (integer, left, is_within) =
            row.place.scale.quantizer(bound).quantize(gradients[row.offset as usize], *residue);
        *word = integer.cast_unsigned();
        *before = core::mem::replace(residue, left);
        fits &= is_within;
    }
    fits
}

/// The same for rows of any width.
fn quantize_rows(
    rows: &[HotRow],
    gradients: &[f32],
    residues: &mut [f32],
    bound: u32,
    words: &mut [u32],
    before: &mut [f32],
) -> bool {
    let mut fits = true;
    let mut places = words.iter_mut().zip(before);
    for row in rows {
        let quantizer = row.place.scale.quantizer(bound);
        let values = gradients[row.range()].iter().zip(&mut residues[row.slots()]);
        for ((gradient, residue), (word, before)) in values.zip(&mut places) {
            let (integer, left, is_within) = quantizer.quantize(*gradient, *residue);
            *word = integer.cast_unsigned();
            *before = core::mem::replace(residue, left);
            fits &= is_within;
        }
    }
    fits
}
