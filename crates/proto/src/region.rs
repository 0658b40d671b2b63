//! A region of the data plane as its owner opens it and closes its rounds: a switch, or the shard itself for packets that
//! no switch can take any more.

use libra_dataplane::{Arithmetic, DedupWindow, Region, RegionConfig, RegionMemory};
use libra_plan::{Plan, RegionLayout, Scale};

use crate::cluster::{ArithmeticMode, Cluster, Ownership};
use crate::message::{AckedSet, RoundContents, SlotRun};

/// A region whose memory is on the heap.
pub type SoftRegion = Region<Vec<u32>>;

/// Contents of one round of a region.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Round {
    /// Packets that the region has taken up to and including it, of the flows that have one in it.
    pub contents: RoundContents,
    /// The slots that were touched, ascending.
    pub slots: Vec<SlotRun>,
    /// Their sums.
    pub sums: Vec<u32>,
}

impl Round {
    /// Adds the sums of a block of slots, which comes after those that are there.
    pub fn add(&mut self, first: u32, block: &[u32]) {
        let first = u16::try_from(first).expect("a region has fewer than 2^16 slots");
        let count = u16::try_from(block.len()).expect("a block has eight slots");
        match self.slots.last_mut() {
            Some((start, length)) if *start + *length == first => *length += count,
            _ => self.slots.push((first, count)),
        }
        self.sums.extend_from_slice(block);
    }
}

/// Returns the configuration of a region under an ownership.
pub(crate) fn config(
    cluster: &Cluster,
    plan: &Plan,
    layout: &RegionLayout,
    ownership: Ownership,
) -> RegionConfig {
    RegionConfig {
        job: cluster.job,
        region: layout.region,
        plan: plan.number,
        view: ownership.view_id,
        lanes: cluster.hot_path.lanes,
        cells: layout.cells(cluster.hot_path.lanes),
        flows: cluster.worker_numbers(),
        bank_packets_max: plan.pushes_per_bank_max(),
        arithmetic: match cluster.hot_path.arithmetic {
            ArithmeticMode::Fixed => Arithmetic::Fixed { bound: plan.bound() },
            ArithmeticMode::F32 => Arithmetic::F32,
            ArithmeticMode::Table => Arithmetic::Table,
        },
    }
}

/// Opens a region that goes on after the round `durable`, with everything in `contents` seen before (rules V4, V6).
pub fn open(config: RegionConfig, durable: u16, contents: &RoundContents) -> SoftRegion {
    let memory = RegionMemory::allocate(&config, |words| vec![0; words]);
    let region = Region::new(config, memory);
    let mut region = region.expect("a plan whose regions cannot be is refused when a member starts");
    region.resume_after(durable);
    for (&flow, seen) in &contents.flows {
        restore_flow(&mut region, flow, seen);
    }
    region
}

/// Restores the packets of a flow that a region, or one before it, has taken in rounds that are closed; nothing if it has no such flow.
pub(crate) fn restore_flow(region: &mut SoftRegion, flow: u16, seen: &AckedSet) {
    let above = seen.above.iter().map(|&(first, count)| first..first.saturating_add(count));
    for seqs in core::iter::once(0..seen.below).chain(above) {
        region.mark_seen(flow, seqs);
    }
}

/// Every region counts its rounds on from here, so that soon after the start of each job, test and simulation their numbers in
/// packets wrap, and not after hours of a job that runs unattended (rule E4).
pub const ROUNDS_BEGIN_AFTER: u64 = 0xff80;

/// A round as packets carry it; workers compare such numbers as serial numbers.
pub(crate) fn on_wire(round: u64) -> u16 {
    (round & 0xffff) as u16
}

/// Closes the round that takes packets now, and takes out what it holds (rule E2).
pub(crate) fn close_round(region: &mut SoftRegion) -> Round {
    region.flip().expect("the idle bank was cleared when it was drained");
    let window = |flow| region.window(flow).expect("the region has a window for each of its flows");
    let flows = region.changed_flows().map(|flow| (flow, acked_set(window(flow)))).collect();
    region.forget_changes();
    let contents = RoundContents { flows };
    let mut round = Round { contents, ..Round::default() };
    region.drain(|first, block| round.add(first, block));
    round
}

/// Everything a window has accepted. Right after a flip that is the closed round and all before it.
pub fn acked_set(window: DedupWindow<'_>) -> AckedSet {
    let mut acked = AckedSet::default();
    for range in window.accepted() {
        if range.start == 0 {
            acked.below = range.end;
        } else {
            acked.above.push((range.start, range.end - range.start));
        }
    }
    acked
}

/// The gradient that the slots of a row hold (rule E6).
pub(crate) fn gradient_of(sum: u32, scale: Scale, arithmetic: ArithmeticMode) -> f32 {
    match arithmetic {
        ArithmeticMode::Fixed => scale.dequantize(sum.cast_signed()),
        ArithmeticMode::F32 | ArithmeticMode::Table => f32::from_bits(sum),
    }
}

#[cfg(test)]
mod tests {
    use core::net::SocketAddr;

    use super::*;
    use crate::testing;

    // rule C4
    #[test]
    fn flows_of_a_cut_beyond_all_numbers_are_left_out() {
        let mut cluster = testing::cluster(1);
        cluster.view.servers = vec![SocketAddr::from(([10, 0, 0, 1], 4000))];
        let plan = cluster.plan.clone().unwrap();
        let placement = cluster.place(&plan).unwrap();
        let config = config(&cluster, &plan, &placement.regions()[0], Ownership::default());
        let flow = AckedSet { below: 5, above: vec![(u32::MAX, u32::MAX)] };
        let region = open(
            config,
            7,
            &RoundContents { flows: (0..=u16::MAX).map(|worker| (worker, flow.clone())).collect() },
        );
        let last = region.config().flows - 1;
        assert!(region.window(last).is_some_and(|window| window.contains(4)));
    }
}
