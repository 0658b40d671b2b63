//! The hot path of a worker: rows become packets for the switches, answers become values.

use libra_dataplane::{Flags, Kind, PacketWriter, packet_bytes};
use libra_plan::{Placement, Plan};

use super::rows::HotRow;
use crate::cluster::{ArithmeticMode, Cluster};
use crate::transport::flow::Cargo;
use crate::transport::path::{Identity, Path};

/// Everything a worker keeps for the rows that switches hold.
#[derive(Debug)]
pub(crate) struct HotClient {
    /// One for each switch.
    pub(crate) paths: Vec<Path>,
    /// For each region the path to its switch.
    path_of: Vec<usize>,
    /// For each region what rounding has left over of each slot (error feedback).
    residues: Vec<Vec<f32>>,
    arithmetic: ArithmeticMode,
    bound: u32,
    entries_max: u8,
    integers: Vec<i32>,
    words: Vec<u32>,
}

impl HotClient {
    pub(crate) fn new(cluster: &Cluster, worker: u16, plan: &Plan, placement: &Placement) -> Self {
        let identity = Identity { job: cluster.job, worker, plan: plan.number };
        let path_of: Vec<usize> =
            placement.regions().iter().map(|region| usize::from(cluster.switch_of(region.region))).collect();
        let paths = cluster.switches.iter().enumerate().map(|(switch, address)| {
            let regions = placement.regions().iter().map(|region| region.region);
            let own = regions.filter(|region| path_of[usize::from(*region)] == switch);
            Path::new(*address, identity, own, cluster.hot_path.packets_in_flight_max)
        });
        Self {
            paths: paths.collect(),
            residues: placement.regions().iter().map(|region| vec![0.0; usize::from(region.slots)]).collect(),
            path_of,
            arithmetic: cluster.hot_path.arithmetic,
            bound: plan.bound(),
            entries_max: cluster.hot_path.entries_max,
            integers: Vec::new(),
            words: Vec::new(),
        }
    }

    fn path(&mut self, region: u8) -> &mut Path {
        &mut self.paths[self.path_of[usize::from(region)]]
    }

    /// Sends requests for the values of `rows`, which are sorted by region. Returns how many answers there will be.
    pub(crate) fn pull(&mut self, operation: u64, rows: &[HotRow]) -> u32 {
        let mut packets = 0;
        let mut first = 0;
        for region in rows.chunk_by(|a, b| a.region == b.region) {
            packets += self.pack(operation, Kind::Pull, Flags::NONE, first, region, None);
            first += region.len();
        }
        packets
    }

    /// Turns gradients into integers under the plan's scales. Of `rows` only those stay whose integers are within the bound
    /// and whose region can take them; the others are handed to `too_large`. What stays waits to be sent by [`push`](Self::push).
    pub(crate) fn quantize(
        &mut self,
        rows: &mut Vec<HotRow>,
        gradients: &[f32],
        mut too_large: impl FnMut(HotRow),
    ) {
        self.words.clear();
        let most = u32::try_from(rows.len()).expect("an operation has fewer than 2^32 rows");
        rows.retain(|row| {
            let gradient = &gradients[row.range()];
            let region = usize::from(row.region);
            if self.paths[self.path_of[region]].is_exhausted(row.region, most) {
                too_large(*row);
                return false;
            }
            match self.arithmetic {
                ArithmeticMode::F32 => self.words.extend(gradient.iter().map(|value| value.to_bits())),
                ArithmeticMode::Fixed => {
                    let slots = usize::from(row.slot)..usize::from(row.slot) + gradient.len();
                    let residues = &mut self.residues[region][slots];
                    self.integers.resize(gradient.len(), 0);
                    if !row.scale.quantize_row(gradient, residues, self.bound, &mut self.integers) {
                        too_large(*row);
                        return false;
                    }
                    self.words.extend(self.integers.iter().map(|integer| integer.cast_unsigned()));
                }
            }
            true
        });
    }

    /// Sends the rows that the last [`quantize`](Self::quantize) left. Returns how many answers there will be.
    pub(crate) fn push(&mut self, operation: u64, rows: &[HotRow], answer_with_values: bool) -> u32 {
        let flags = if answer_with_values { Flags::VALUES } else { Flags::NONE };
        let words = core::mem::take(&mut self.words);
        let (mut packets, mut first, mut start) = (0, 0, 0);
        for region in rows.chunk_by(|a, b| a.region == b.region) {
            packets += self.pack(operation, Kind::Push, flags, first, region, Some(&words[start..]));
            first += region.len();
            start += region.iter().map(|row| row.width as usize).sum::<usize>();
        }
        self.words = words;
        packets
    }

    /// Adds nothing to `rows`, which are sorted by region: the epoch that takes it ends with a commit of their values.
    /// Returns how many answers there will be.
    pub(crate) fn touch(&mut self, operation: u64, rows: &[HotRow]) -> u32 {
        let (mut packets, mut first) = (0, 0);
        for region in rows.chunk_by(|a, b| a.region == b.region) {
            let most = u32::try_from(region.len()).expect("an operation has fewer than 2^32 rows");
            if !self.path(region[0].region).is_exhausted(region[0].region, most) {
                packets += self.pack(operation, Kind::Push, Flags::NONE, first, region, None);
            }
            first += region.len();
        }
        packets
    }

    /// Packs rows of one region, whole, as many as fit a packet. `first` is the place of the first of them in the
    /// operation's list. The last packet of a push is marked.
    fn pack(
        &mut self,
        operation: u64,
        kind: Kind,
        flags: Flags,
        mut first: usize,
        rows: &[HotRow],
        words: Option<&[u32]>,
    ) -> u32 {
        let entries_max = self.entries_max;
        let region = rows[0].region;
        let path = self.path(region);
        let mut words = words.into_iter().flatten();
        let mut packets = 0;
        let mut rest = rows;
        while !rest.is_empty() {
            let fits = rows_that_fit(rest, entries_max);
            let (now, later) = rest.split_at(fits);
            rest = later;
            let last = kind == Kind::Push && rest.is_empty();
            let mut header = path.header(kind, region, 0);
            header.flags = if last { flags.with(Flags::LAST) } else { flags };
            let mut bytes = path.buffer();
            bytes.resize(packet_bytes(entries_max), 0);
            let mut writer = PacketWriter::new(header, &mut bytes);
            for row in now {
                let width = u16::try_from(row.width).expect("a hot row fits a packet");
                for cell in row.slot..row.slot + width {
                    let fitted = writer.push(cell, words.next().copied().unwrap_or(0));
                    debug_assert!(fitted, "rows_that_fit has counted");
                }
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
        packets
    }
}

fn index(position: usize) -> u32 {
    u32::try_from(position).expect("an operation has fewer than 2^32 rows")
}

/// How many of the first rows a packet of `entries_max` entries holds.
fn rows_that_fit(rows: &[HotRow], entries_max: u8) -> usize {
    let mut entries = 0;
    let full = rows.iter().position(|row| {
        entries += row.width;
        entries > u32::from(entries_max)
    });
    let fits = full.unwrap_or(rows.len());
    assert!(fits > 0, "a row of a hot table is no wider than a packet");
    fits
}
