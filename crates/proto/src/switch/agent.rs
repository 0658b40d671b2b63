//! The agent of a pipeline: it flips banks, drains them, keeps what it drained until the shard has committed it, and
//! installs the new values.

use core::net::SocketAddr;
use std::collections::VecDeque;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use libra_dataplane::{
    Arithmetic, Flags, Header, Kind, PacketWriter, Pipeline, Region, RegionConfig, RegionMemory, Verdict,
    packet_bytes,
};
use libra_plan::{Placement, RegionLayout};

use crate::bulk::Bulk;
use crate::cluster::{ArithmeticMode, Cluster};
use crate::message::{Committed, Cut, Drained, FlowCut, SlotRun};
use crate::role::Outgoing;
use crate::statistics::SwitchStatistics;
use crate::time::Instant;

type SoftPipeline = Pipeline<Vec<Region<Vec<u32>>>, Vec<u32>>;

/// What an agent keeps beside the pipeline for one of its regions.
#[derive(Debug)]
struct RegionState {
    region: u8,
    shard: u16,
    /// The epoch that takes packets now, counted without wrapping.
    epoch: u64,
    /// When the active bank took its first packet.
    opened_at: Option<Instant>,
    /// The epoch that was drained and that the shard has not committed yet.
    uncommitted: Option<Drained>,
    installed: bool,
}

#[derive(Debug)]
pub(super) struct Agent {
    cluster: Box<Cluster>,
    plan: u16,
    pipeline: SoftPipeline,
    states: Vec<RegionState>,
    workers: HashMap<SocketAddr, u16, FixedState>,
    answers: Outgoing,
    drained: VecDeque<(u16, Drained)>,
    packet: Vec<u8>,
    statistics: SwitchStatistics,
}

impl Agent {
    pub(super) fn new(number: u16, cluster: Box<Cluster>) -> Result<Self, String> {
        let plan =
            cluster.plan.as_ref().ok_or("there is no plan of hot rows, so there is nothing to aggregate")?;
        let placement = Placement::new(plan, cluster.shards()).map_err(|error| error.to_string())?;
        let own = || placement.regions().iter().filter(|layout| cluster.switch_of(layout.region) == number);
        let mut regions = Vec::new();
        for layout in own() {
            let config =
                region_config(&cluster, layout, plan.number, plan.bound(), plan.pushes_per_bank_max());
            let memory = RegionMemory::allocate(&config, |words| vec![0; words]);
            regions.push(Region::new(config, memory).map_err(|error| error.to_string())?);
        }
        let states = own().map(|layout| RegionState {
            region: layout.region,
            shard: layout.shard,
            epoch: 1,
            opened_at: None,
            uncommitted: None,
            installed: false,
        });
        Ok(Self {
            states: states.collect(),
            plan: plan.number,
            pipeline: Pipeline::new(regions).expect("a placement numbers its regions"),
            workers: (0..).zip(&cluster.workers).map(|(worker, address)| (*address, worker)).collect(),
            answers: Outgoing::default(),
            drained: VecDeque::new(),
            packet: vec![0; packet_bytes(u8::MAX)],
            statistics: SwitchStatistics::default(),
            cluster,
        })
    }

    pub(super) fn job(&self) -> u16 {
        self.cluster.job
    }

    pub(super) fn is_installed(&self) -> bool {
        self.states.iter().all(|state| state.installed)
    }

    pub(super) fn statistics(&self) -> SwitchStatistics {
        let counters = self.pipeline.counters();
        SwitchStatistics {
            packets: counters.packets - counters.installs,
            pushes: counters.pushes,
            pulls: counters.pulls,
            duplicates: counters.duplicates,
            refused: counters.refused(),
            malformed: self.statistics.malformed + counters.dropped(),
            ..self.statistics
        }
    }

    pub(super) fn handle_datagrams(
        &mut self,
        now: Instant,
        from: SocketAddr,
        datagrams: &mut [u8],
        stride: usize,
    ) {
        let Some(&worker) = self.workers.get(&from) else {
            self.statistics.unknown_senders += 1;
            return;
        };
        let answers = &mut self.answers;
        self.pipeline.process_burst(
            (self.cluster.job, worker),
            datagrams.chunks_mut(stride.max(1)),
            |answer| {
                answers.push(from, answer);
            },
        );
        self.close_epochs(now);
    }

    /// Closes the epochs that are full or old enough, of regions whose last epoch is committed.
    pub(super) fn close_epochs(&mut self, now: Instant) {
        for index in 0..self.states.len() {
            let region = &self.pipeline.regions()[index];
            let taken = region.active_packets();
            let state = &mut self.states[index];
            if taken.pushes == 0 {
                continue;
            }
            let opened_at = *state.opened_at.get_or_insert(now);
            let hot_path = &self.cluster.hot_path;
            let due = taken.last >= hot_path.pushes_per_epoch
                || taken.pushes >= region.config().bank_packets_max / 2
                || opened_at + hot_path.epoch_time_max <= now;
            if due && state.uncommitted.is_none() {
                self.close_epoch(index);
            }
        }
    }

    fn close_epoch(&mut self, index: usize) {
        let region = region_mut(&mut self.pipeline, &self.cluster, &self.states[index]);
        region.flip().expect("the idle bank was cleared when it was drained");
        let cut = Cut { flows: (0..region.config().flows).map(|flow| flow_cut(region, flow)).collect() };
        let mut slots: Vec<SlotRun> = Vec::new();
        let mut sums = Vec::new();
        region.drain(|first, block| {
            let first = u16::try_from(first).expect("a region has fewer than 2^15 slots");
            let count = u16::try_from(block.len()).expect("a block has eight slots");
            match slots.last_mut() {
                Some((start, length)) if *start + *length == first => *length += count,
                _ => slots.push((first, count)),
            }
            sums.extend_from_slice(block);
        });
        self.statistics.epochs += 1;
        self.statistics.slots_drained += sums.len() as u64;
        let state = &mut self.states[index];
        let drained = Drained { region: state.region, epoch: state.epoch, cut, slots, sums: Bulk(sums) };
        state.epoch += 1;
        state.opened_at = None;
        state.uncommitted = Some(drained.clone());
        self.drained.push_back((state.shard, drained));
    }

    /// The shard has applied an epoch, or says at the start what its rows are.
    pub(super) fn handle_committed(&mut self, now: Instant, committed: &Committed) {
        let Some(index) = self.states.iter().position(|state| state.region == committed.region) else {
            return;
        };
        let slots = self.pipeline.regions()[index].config().cells - 1;
        if !is_sound(committed, slots) {
            self.statistics.malformed += 1;
            return;
        }
        let expected = self.states[index].uncommitted.as_ref().map(|drained| drained.epoch);
        let first = committed.epoch == 0 && !self.states[index].installed;
        if !first && expected != Some(committed.epoch) {
            return;
        }
        self.install(committed);
        let state = &mut self.states[index];
        state.installed = true;
        state.uncommitted = None;
        let region = region_mut(&mut self.pipeline, &self.cluster, &self.states[index]);
        region.set_readable(true);
        // The wire has the lower 16 bits; workers compare them as serial numbers.
        region.set_durable((committed.epoch & 0xffff) as u16);
        self.close_epochs(now);
    }

    /// Writes values through the pipeline, as an agent beside a hardware pipeline would.
    fn install(&mut self, committed: &Committed) {
        let header = Header {
            kind: Kind::Install,
            flags: Flags::NONE,
            entries: 0,
            job: self.cluster.job,
            worker: 0,
            plan: self.plan,
            region: committed.region,
            epoch: 0,
            durable: 0,
            seq: 0,
            tag: 0,
        };
        let slots =
            committed.slots.iter().flat_map(|&(first, count)| (0..count).map(move |slot| first + slot));
        let mut entries = slots.zip(&committed.values.0).peekable();
        while entries.peek().is_some() {
            let mut writer = PacketWriter::new(header, &mut self.packet);
            while writer.room() > 0
                && let Some((slot, value)) = entries.next()
            {
                let fitted = writer.push(slot, *value);
                debug_assert!(fitted, "there was room");
            }
            let length = writer.finish();
            let verdict = self.pipeline.process(&mut self.packet[..length]);
            debug_assert!(matches!(verdict, Verdict::Reply(_)), "the shard has the same layout: {verdict:?}");
        }
    }

    pub(super) fn poll_drained(&mut self) -> Option<(u16, Drained)> {
        self.drained.pop_front()
    }

    pub(super) fn take_answers(&mut self, outgoing: &mut Outgoing) {
        outgoing.append(&mut self.answers);
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let waiting = self.states.iter().filter(|state| state.uncommitted.is_none());
        let opened = waiting.filter_map(|state| state.opened_at).min()?;
        Some(opened + self.cluster.hot_path.epoch_time_max)
    }
}

fn region_mut<'a>(
    pipeline: &'a mut SoftPipeline,
    cluster: &Cluster,
    state: &RegionState,
) -> &'a mut Region<Vec<u32>> {
    pipeline.region_mut(cluster.job, state.region).expect("the pipeline has a region for each state")
}

/// Whether new values are for slots that the region has, one for each.
fn is_sound(committed: &Committed, slots: u16) -> bool {
    let ends = committed.slots.iter().map(|&(first, count)| u32::from(first) + u32::from(count));
    let values: usize = committed.slots.iter().map(|&(_, count)| usize::from(count)).sum();
    ends.max().is_none_or(|end| end <= u32::from(slots)) && values == committed.values.0.len()
}

fn region_config(
    cluster: &Cluster,
    layout: &RegionLayout,
    plan: u16,
    bound: u32,
    bank_packets_max: u32,
) -> RegionConfig {
    RegionConfig {
        job: cluster.job,
        region: layout.region,
        plan,
        lanes: 1,
        cells: layout.cells(),
        flows: cluster.worker_count(),
        bank_packets_max,
        arithmetic: match cluster.hot_path.arithmetic {
            ArithmeticMode::Fixed => Arithmetic::Fixed { bound },
            ArithmeticMode::F32 => Arithmetic::F32,
        },
    }
}

/// Everything the region has taken of a flow so far. Right after a flip that is the closed epoch and all before it.
fn flow_cut(region: &Region<Vec<u32>>, flow: u16) -> FlowCut {
    let window = region.window(flow).expect("the region has a window for each of its flows");
    let mut cut = FlowCut::default();
    for range in window.accepted() {
        if range.start == 0 {
            cut.below = range.end;
        } else {
            cut.above.push((range.start, range.end - range.start));
        }
    }
    cut
}
