//! The hot path of a worker: rows become packets for the switches, answers become values.

use core::net::SocketAddr;
use std::collections::BTreeMap;

use libra_dataplane::{Flags, Header, Kind, PacketWriter, packet_bytes};
use libra_plan::{Placement, Plan, RegionLayout};

use super::lanes::{LaneEntries, Lanes, OpenPackets};
use super::quantize::{Entries, Quantization};
use super::renewals::{Renewal, Renewals};
use super::rows::{HotRow, HotRows, PacketContents};
use crate::authentication::TagKind;
use crate::bulk::Bulk;
use crate::cluster::{Cluster, Ownership, View};
use crate::message::Replay;
use crate::statistics::WorkerStatistics;
use crate::status::PathStatus;
use crate::time::Instant;
use crate::transport::bounds::Bounds;
use crate::transport::flow::{self, Flow, PacketRows};
use crate::transport::path::{Identity, Path};
use crate::transport::path_length::PathLength;
use crate::transport::probes::packet_header_bytes;
use crate::transport::region::RegionFlows;

/// Packets in one replay, at most: about a megabyte.
pub(crate) const REPLAY_PACKETS_MAX: usize = 512;

/// Reports of switches to which packets are too long after which the job ends. Three give one switch up.
const OVERLONG_REPORTS_MAX: u32 = 30;

/// A new length of the packets of a worker to a switch, in a job that adapts to paths (rule T20).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathChange {
    /// The switch.
    pub switch: u16,
    /// Its address.
    pub address: SocketAddr,
    /// Bytes of IP packets before, at most.
    pub before: usize,
    /// Bytes that they have now.
    pub after: usize,
}

/// Everything a worker keeps for the rows that switches hold.
#[derive(Debug, Clone)]
pub(crate) struct HotClient {
    identity: Identity,
    bounds: Bounds,
    /// The kind of tags of packets.
    tags: TagKind,
    /// One for each switch that holds a region.
    paths: BTreeMap<u16, Path>,
    /// The owner of each region.
    ownerships: Vec<Ownership>,
    /// The flows of regions without an owner.
    parked: BTreeMap<u8, RegionFlows>,
    quantization: Quantization,
    entries_max: u8,
    /// Entries of the longest packet that there can be.
    longest: u8,
    /// True if packets are as long as their paths allow.
    adapts_to_paths: bool,
    /// Reports of switches to which packets are too long that were numbered before that was known.
    overlong_reports: u32,
    /// Packing of rows if there is more than one lane.
    lanes: Option<Lanes>,
    /// The rows of the packet at hand.
    packet_rows: Vec<HotRow>,
    /// True if an operation waits for pushes to be visible.
    expedited: bool,
    /// The flows of pushes that have no numbers left, and have not restarted.
    renewals: Renewals,
    spare: Vec<Vec<u8>>,
    /// Counts of paths that are gone.
    statistics: WorkerStatistics,
}

/// Points of flows of pushes: for each region the place before which everything counts.
pub(crate) type Frontiers = Vec<(u8, u64)>;

impl HotClient {
    pub(crate) fn new(cluster: &Cluster, worker: u16, plan: &Plan, placement: &Placement) -> Self {
        let regions = placement.regions();
        Self {
            renewals: Renewals::new(worker),
            identity: Identity { job: cluster.job, worker, plan: plan.number },
            bounds: Bounds::of(&cluster.hot_path),
            tags: cluster.hot_path.tags,
            paths: BTreeMap::new(),
            ownerships: vec![Ownership::default(); regions.len()],
            parked: regions
                .iter()
                .map(|region| (region.region, RegionFlows::new(cluster.hot_path.flow_packets_max)))
                .collect(),
            quantization: Quantization::new(cluster.hot_path.arithmetic, plan.bound(), placement),
            entries_max: cluster.hot_path.entries_max,
            longest: longest_packet(regions, cluster.hot_path.entries_max),
            adapts_to_paths: cluster.hot_path.adapts_to_paths,
            overlong_reports: 0,
            lanes: (cluster.hot_path.lanes > 1).then(|| Lanes::new(cluster.hot_path.lanes, placement)),
            packet_rows: Vec::new(),
            expedited: false,
            spare: Vec::new(),
            statistics: WorkerStatistics::default(),
        }
    }

    /// Drops the remainders of rounding.
    pub(crate) fn forget_residues(&mut self) {
        self.quantization.forget_residues();
    }

    /// Moves the flows of regions to their present owners (rule V5). Regions without an owner are left to the shards: returns the packet rows of
    /// the pulls, and the regions whose packets must be replayed there.
    pub(crate) fn enter(&mut self, view: &View) -> (Vec<PacketRows>, Vec<u8>) {
        let (mut pulls, mut replays) = (Vec::new(), Vec::new());
        for (region, known) in (0..=u8::MAX).zip(&mut self.ownerships) {
            let ownership = view.ownership(region);
            if ownership.view_id <= known.view_id {
                continue;
            }
            let path = known.owner.and_then(|owner| self.paths.get_mut(&owner));
            let parked = || self.parked.remove(&region).expect("flows are on a path or parked");
            let mut flows = path.map_or_else(parked, |path| path.take(region));
            *known = ownership;
            if self.renewals.restarts(region, view) {
                flows.push.restart();
            }
            let place = ownership.owner.and_then(|owner| Some((owner, *view.switches.get(&owner)?)));
            if let Some((owner, address)) = place {
                let length = match self.lanes {
                    // A packet of another length is none there.
                    Some(_) => PathLength::given(),
                    None => PathLength::new(self.longest, self.adapts_to_paths),
                };
                let path = self.paths.entry(owner);
                let tags = || view.paths.get(&owner).and_then(|secrets| secrets.tags(self.tags));
                let path = path.or_insert_with(|| {
                    Path::new(address, self.identity, self.bounds).with_tags(tags()).with_length(length)
                });
                path.expedited = self.expedited;
                path.put(region, flows, ownership.view_id);
            } else {
                known.owner = None;
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

    /// The packets of a region without an owner, for its shard, in messages of moderate size (rule V6).
    pub(crate) fn replays(&mut self, region: u8) -> Vec<Replay> {
        let ownership = self.ownerships[usize::from(region)];
        let Some(flows) = self.parked.get_mut(&region) else { return Vec::new() };
        let mut replays: Vec<Replay> = Vec::new();
        for (seq, packet) in flows.push.needed() {
            flow::edit_header(&mut packet.bytes, |header| {
                (header.view, header.seq) = (ownership.view_on_wire(), seq);
            });
            if replays.last().is_none_or(|replay| replay.packets.len() >= REPLAY_PACKETS_MAX) {
                replays.push(Replay { region, view_id: ownership.view_id, below: seq, packets: Vec::new() });
            }
            let replay = replays.last_mut().expect("one was just added");
            replay.packets.push(Bulk(packet.bytes.clone()));
            replay.below = seq + 1;
        }
        replays
    }

    /// The shard has applied the packets of a region below a sequence number. Returns the contents of those that were not reported as
    /// accepted.
    pub(crate) fn replayed(&mut self, region: u8, view_id: u64, below: u32) -> Vec<PacketRows> {
        let current =
            self.ownerships.get(usize::from(region)).is_some_and(|ownership| ownership.view_id == view_id);
        match self.parked.get_mut(&region).filter(|_| current) {
            Some(flows) => flows.push.finish_below(below, &mut self.spare),
            None => Vec::new(),
        }
    }

    pub(crate) fn path_from(&mut self, address: SocketAddr) -> Option<&mut Path> {
        self.paths.values_mut().find(|path| path.address() == address)
    }

    /// The switches that have owed an answer for too long, or have not been sent what is too long for the path to them (rule T20).
    pub(crate) fn take_unreachable(&mut self, now: Instant) -> Vec<u16> {
        let mut unreachable = Vec::new();
        for (switch, path) in &mut self.paths {
            let (is_silent, is_overlong) = (path.take_unreachable(now), path.take_overlong(now));
            self.overlong_reports += u32::from(is_overlong);
            if is_silent || is_overlong {
                unreachable.push(*switch);
            }
        }
        unreachable
    }

    /// Returns the reason, for a person, why the job cannot go on, if a path does not let its packets through (rule T20).
    pub(crate) fn narrow_path(&self) -> Option<String> {
        if self.adapts_to_paths && self.overlong_reports < OVERLONG_REPORTS_MAX {
            return None;
        }
        self.paths.values().find_map(|path| {
            let (to, (passes, fails)) = (path.address(), path.length.too_short()?);
            let (passes, fails) = (ip_bytes(to, passes), ip_bytes(to, fails));
            Some(format!(
                "packets of {passes} bytes come through to {} and back, those of {fails} bytes do not: \
                 give the controller (or `libra train`) --mtu {passes} or --mtu auto",
                to.ip()
            ))
        })
    }

    /// Returns a path whose packets have another length since the last time that it was returned, if there is one (rule T20).
    pub(crate) fn take_path_change(&mut self) -> Option<PathChange> {
        self.paths.iter_mut().find_map(|(switch, path)| {
            let (to, (from, now)) = (path.address(), path.length.take_change()?);
            let (before, after) = (ip_bytes(to, from), ip_bytes(to, now));
            Some(PathChange { switch: *switch, address: to, before, after })
        })
    }

    pub(crate) fn paths(&mut self) -> impl Iterator<Item = &mut Path> {
        self.paths.values_mut()
    }

    /// Sets if an operation waits for pushes to be visible: then switches are asked sooner (rule T8).
    pub(crate) fn expedite(&mut self, expedited: bool) {
        if core::mem::replace(&mut self.expedited, expedited) != expedited {
            self.paths().for_each(|path| path.expedited = expedited);
        }
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

    /// The paths to switches that hold regions.
    pub(crate) fn path_status(&self) -> impl Iterator<Item = PathStatus> {
        self.paths.iter().map(|(switch, path)| PathStatus {
            switch: *switch,
            window_packets: path.window_packets(),
            round_trip: path.round_trip(),
        })
    }

    fn push_flow(&self, region: u8) -> &Flow {
        let path = self.ownerships[usize::from(region)].owner.and_then(|owner| self.paths.get(&owner));
        let parked = || &self.parked[&region].push;
        path.map_or_else(parked, |path| path.push_flow(region))
    }

    /// Returns the present end of each flow of pushes: everything submitted so far lies before it.
    pub(crate) fn frontiers(&self) -> Frontiers {
        (0..=u8::MAX)
            .zip(&self.ownerships)
            .map(|(region, _)| (region, self.push_flow(region).next_place()))
            .collect()
    }

    /// Returns true if every push before these points is durable.
    pub(crate) fn is_durable(&self, frontiers: &Frontiers) -> bool {
        frontiers.iter().all(|&(region, place)| self.push_flow(region).first_place() >= place)
    }

    /// Returns the next flow that can restart once the controller permits it (rule T18).
    pub(crate) fn poll_renewal(&mut self) -> Option<Renewal> {
        let region = self.renewals.ended().find(|region| self.push_flow(*region).is_over())?;
        Some(self.renewals.ask(region))
    }

    /// The flows that were reported to the controller as ready.
    pub(crate) fn renewals_asked(&self) -> impl Iterator<Item = Renewal> {
        self.renewals.asked()
    }

    /// Sets all flows of pushes, which must be new, to where so many numbers are left.
    #[cfg(test)]
    pub(crate) fn use_up_numbers(&mut self, left: u32) {
        let paths = self.paths.values_mut().flat_map(Path::regions_mut);
        for flows in self.parked.values_mut().chain(paths) {
            flows.push = Flow::near_its_end(left);
        }
    }

    /// Packs a push: the gradients of the rows that switches take. The others are handed to `demote`.
    pub(crate) fn push(
        &mut self,
        push: &mut HotPush<'_>,
        rows: HotRows<'_>,
        demote: &mut dyn FnMut(&HotRow),
    ) -> Packed {
        let flags = if push.answered.is_some() { Flags::VALUES } else { Flags::NONE };
        let mut too_large = 0;
        let (packer, quantization, mut lanes) = self.packer(push.operation, Kind::Push, flags);
        let packed = packer.pack(rows, demote, |region, rows, packet, demote| {
            let Entries { rows, slots, words } = quantization.entries(region, rows, push.gradients, |row| {
                too_large += 1;
                demote(row);
            });
            match &mut lanes {
                _ if rows.len() == 0 => {}
                Some(lanes) => lanes.write(region, slots.iter().copied().zip(words.iter().copied()), packet),
                None => packet.extend_from_slices(slots, words),
            }
            if let Some(answered) = &mut push.answered {
                rows.append_to(answered);
            }
            rows.len()
        });
        Packed { too_large, ..packed }
    }

    /// Packs requests for the values of the rows that switches hold, and lists those rows. The others are handed to `demote`.
    pub(crate) fn pull(
        &mut self,
        operation: u64,
        rows: HotRows<'_>,
        answered: &mut Vec<HotRow>,
        demote: &mut dyn FnMut(&HotRow),
    ) -> Packed {
        let (packer, _, mut lanes) = self.packer(operation, Kind::Pull, Flags::NONE);
        packer.pack(rows, demote, |region, rows, packet, _| {
            let entries = rows.append_to(answered).iter().flat_map(HotRow::slots).map(|slot| (slot, 0));
            match &mut lanes {
                Some(lanes) => lanes.write(region, entries, packet),
                None => packet.extend(entries),
            }
            rows.len()
        })
    }

    fn packer(
        &mut self,
        operation: u64,
        kind: Kind,
        flags: Flags,
    ) -> (Packer<'_>, &mut Quantization, Option<&mut LaneEntries>) {
        let Self { paths, ownerships, entries_max, lanes, packet_rows, quantization, renewals, .. } = self;
        let entries_max = *entries_max;
        let (open, entries) = lanes.as_mut().map(|Lanes { open, entries }| (open, entries)).unzip();
        let rows = packet_rows;
        let packer = Packer { paths, ownerships, entries_max, open, rows, renewals, operation, kind, flags };
        (packer, quantization, entries)
    }
}

/// Bytes of an IP packet with so many entries.
fn ip_bytes(to: SocketAddr, entries: u8) -> usize {
    usize::from(packet_header_bytes(to)) + packet_bytes(entries)
}

/// Entries of the longest packet of rows of these regions: rows are whole.
fn longest_packet(regions: &[RegionLayout], entries_max: u8) -> u8 {
    let of_region = |layout: &RegionLayout| {
        let most = u32::from(entries_max).min(layout.slots.into());
        layout.width.map_or(most, |width| most - most % width.max(1))
    };
    let longest = regions.iter().map(of_region).max().unwrap_or(0);
    u8::try_from(longest).expect("it is no more than a packet holds")
}

/// A push as switches see it.
#[derive(Debug)]
pub(crate) struct HotPush<'p> {
    pub(crate) operation: u64,
    /// Of all rows of the operation.
    pub(crate) gradients: &'p [f32],
    /// List of the rows that are packed, if answers are to hold their values.
    pub(crate) answered: Option<&'p mut Vec<HotRow>>,
}

/// Result of packing the hot rows of an operation.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Packed {
    /// Packets that will be answered.
    pub(crate) packets: u32,
    /// Rows in them.
    pub(crate) rows: u32,
    /// Rows that are in none, as their gradients are too large.
    pub(crate) too_large: u64,
}

/// Packs rows, whole, as many of one region as fit a packet.
struct Packer<'h> {
    paths: &'h mut BTreeMap<u16, Path>,
    ownerships: &'h [Ownership],
    entries_max: u8,
    /// Beyond one lane, the packets that are filled at the same time.
    open: Option<&'h mut OpenPackets>,
    /// Those of the packet at hand.
    rows: &'h mut Vec<HotRow>,
    renewals: &'h mut Renewals,
    operation: u64,
    kind: Kind,
    flags: Flags,
}

impl Packer<'_> {
    /// Packs what `write` writes of the rows of a packet, of which it returns the number; rows that it does not write it hands to `demote`.
    /// So are those whose region no switch holds (rule V8). The last packet of a push in a region is marked.
    fn pack(
        self,
        mut hot_rows: HotRows<'_>,
        demote: &mut dyn FnMut(&HotRow),
        mut write: impl FnMut(u8, PacketContents<'_>, &mut PacketWriter<'_>, &mut dyn FnMut(&HotRow)) -> usize,
    ) -> Packed {
        let Self { paths, ownerships, entries_max, mut open, rows, renewals, operation, kind, flags } = self;
        let mut packed = Packed::default();
        let mut next = None;
        // The region of the packet before, if that was not the last of its region.
        let mut unfinished = None;
        while let Some((region, listed, is_too_wide)) = match &mut open {
            Some(open) => {
                let region = open.next_packet(&mut hot_rows, &mut next, rows);
                region.map(|region| (region, None, false))
            }
            None => hot_rows.peek().and_then(|HotRow { place, .. }| {
                let path = ownerships[usize::from(place.region)].owner.and_then(|owner| paths.get(&owner));
                let room = path.map_or(entries_max, |path| path.length.usable().min(entries_max));
                let width =
                    u8::try_from(place.width).expect("a row of a hot table is no wider than a packet");
                // A row that is too wide for its path comes alone, and goes to its shard (rule T20).
                let (region, listed) = hot_rows.next_packet(room.max(width))?;
                Some((region, Some(listed), width > room))
            }),
        } {
            let contents = match listed {
                Some(positions) => hot_rows.at(positions),
                None => PacketContents::Placed(rows),
            };
            let others_are_open = open.as_ref().is_some_and(|open| !open.is_empty());
            let path = ownerships[usize::from(region)].owner.and_then(|owner| paths.get_mut(&owner));
            let is_exhausted = path.as_ref().is_some_and(|path| path.is_exhausted(region, kind));
            if is_exhausted && kind == Kind::Push {
                renewals.note_end(region);
            }
            let Some(path) = path.filter(|_| !is_exhausted) else {
                contents.for_each(&mut *demote);
                continue;
            };
            let (header, mut bytes) = path.begin(region, kind);
            bytes.resize(packet_bytes(entries_max), 0);
            let mut packet = PacketWriter::new(Header { flags, ..header }, &mut bytes);
            let written = if is_too_wide {
                contents.for_each(&mut *demote);
                0
            } else {
                write(region, contents, &mut packet, demote)
            };
            let is_of_region = |row: &HotRow| row.place.region == region;
            let more_come =
                others_are_open || next.or_else(|| hot_rows.peek()).as_ref().is_some_and(is_of_region);
            let is_last = kind == Kind::Push && !more_come;
            if written == 0 {
                path.give_back(bytes);
                // All the others were too large or too wide, and the packet before is the last after all.
                if is_last && unfinished == Some(region) {
                    path.flag_newest_push(region, Flags::LAST);
                }
                continue;
            }
            if is_last {
                packet.flag(Flags::LAST);
            }
            let length = packet.finish();
            bytes.truncate(length);
            let first = packed.rows;
            packed.rows += u32::try_from(written).expect("a packet has at most 255 entries");
            path.submit(region, kind, bytes, PacketRows { operation, first, end: packed.rows });
            packed.packets += 1;
            unfinished = (!is_last).then_some(region);
        }
        packed
    }
}

#[cfg(test)]
mod tests;
