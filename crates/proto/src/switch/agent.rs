//! The agent of a pipeline: it takes regions over, flips and drains their banks, keeps what it drained until the shard has
//! committed it, and installs the new values.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use libra_dataplane::planted::{PlantedBug, is_planted};
use libra_dataplane::{Flags, Header, Kind, PacketWriter, Pipeline, Verdict, packet_bytes};
use libra_plan::{Placement, RegionLayout};

use crate::bulk::Bulk;
use crate::cluster::{Cluster, Tenure, View};
use crate::message::{Adopted, Changed, Committed, Cut, Drained, Message, SlotValues};
use crate::region::{self, Epoch, SoftRegion};
use crate::role::Outgoing;
use crate::statistics::SwitchStatistics;
use crate::time::Instant;

/// How long a shard may take to commit an epoch before the switch gives its regions up: another may reach the shard.
const COMMIT_MAX: Duration = Duration::from_secs(2);

/// No epoch is shorter. Packets carry 16 bits of an epoch's number, and 2^15 epochs must take longer than anything that
/// carries one can be on its way: a worker that sleeps for as long as it may without being taken for dead finds answers of
/// that age in its socket.
const EPOCH_TIME_MIN: Duration = Duration::from_micros(400);

type SoftPipeline = Pipeline<Vec<SoftRegion>, Vec<u32>>;

/// What an agent keeps beside the pipeline for one of its regions.
#[derive(Debug, Clone)]
struct Held {
    shard: u16,
    tenure: Tenure,
    /// Whether the shard has told what is in it: before that the pipeline does not have the region.
    adopted: bool,
    /// The epoch that takes packets now, counted without wrapping.
    epoch: u64,
    /// When the active bank took its first packet.
    opened_at: Option<Instant>,
    /// Whether the active bank is to be closed as soon as it may be.
    is_due: bool,
    /// When the newest epoch was drained.
    drained_at: Instant,
    /// The epoch that was drained and that the shard has not committed yet (rule E3).
    uncommitted: Option<Drained>,
    /// The newest epoch that the shard has committed, and what was in it and all before.
    committed: (u64, Cut),
}

#[derive(Debug, Clone)]
pub(super) struct Agent {
    number: u16,
    cluster: Box<Cluster>,
    plan: u16,
    layouts: Vec<RegionLayout>,
    pipeline: SoftPipeline,
    held: BTreeMap<u8, Held>,
    /// Whether it must take no more pushes.
    retiring: bool,
    workers: HashMap<SocketAddr, u16, FixedState>,
    answers: Outgoing,
    /// Messages for shards, by their number.
    pub(super) outbox: VecDeque<(u16, Message)>,
    packet: Vec<u8>,
    /// Counts of what the pipeline does not count, and of regions that it has no more.
    statistics: SwitchStatistics,
}

impl Held {
    /// Asks the shard for the region, and tells it what it might not know any more (rule L4).
    fn adopt(&self, region: u8) -> Message {
        let (epoch, cut) = self.committed.clone();
        Message::Adopt { region, since: self.tenure.since, epoch, cut }
    }
}

impl Agent {
    pub(super) fn new(number: u16, cluster: Cluster) -> Result<Self, String> {
        let plan =
            cluster.plan.as_ref().ok_or("there is no plan of hot rows, so there is nothing to aggregate")?;
        cluster.check_plan()?;
        let placement = Placement::new(plan, cluster.shards()).map_err(|error| error.to_string())?;
        let view = cluster.view.clone();
        let mut agent = Self {
            number,
            plan: plan.number,
            layouts: placement.regions().to_vec(),
            pipeline: Pipeline::new(Vec::new()).expect("there is no region yet"),
            held: BTreeMap::new(),
            retiring: false,
            workers: HashMap::default(),
            answers: Outgoing::default(),
            outbox: VecDeque::new(),
            packet: vec![0; packet_bytes(u8::MAX)],
            statistics: SwitchStatistics::default(),
            cluster: Box::new(Cluster { view: View::default(), ..cluster }),
        };
        agent.enter(view);
        Ok(agent)
    }

    pub(super) fn job(&self) -> u16 {
        self.cluster.job
    }

    /// The newest view, if the agent has the values of all regions that are its own in it.
    pub(super) fn viewed(&self) -> Option<u64> {
        self.held.values().all(|held| held.adopted).then_some(self.cluster.view.number)
    }

    /// Lets go the regions that another holds now, and asks the shards for those that are its own (rule V4).
    pub(super) fn enter(&mut self, view: View) {
        if view.number <= self.cluster.view.number {
            return;
        }
        self.workers = view.workers.iter().map(|(worker, address)| (*address, *worker)).collect();
        for index in 0..self.layouts.len() {
            let (region, shard) = (self.layouts[index].region, self.layouts[index].shard);
            let tenure = view.tenure(region);
            if self.held.get(&region).is_some_and(|held| held.tenure.since == tenure.since) {
                continue;
            }
            if self.held.remove(&region).is_some() {
                self.forget(region);
            }
            if tenure.holder == Some(self.number) {
                self.resume();
                let held = Held {
                    shard,
                    tenure,
                    adopted: false,
                    epoch: 0,
                    opened_at: None,
                    is_due: false,
                    drained_at: Instant::ZERO,
                    uncommitted: None,
                    committed: (0, Cut::default()),
                };
                self.outbox.push_back((shard, held.adopt(region)));
                self.held.insert(region, held);
            }
        }
        self.cluster.view = view;
    }

    fn forget(&mut self, region: u8) {
        if let Some(gone) = self.pipeline.region(self.cluster.job, region) {
            self.statistics += counts(gone.counters());
        }
        let changed = self.pipeline.change(|regions| regions.retain(|open| open.config().region != region));
        changed.expect("one region fewer is no region twice");
    }

    /// A stream to a shard is open, for the first time or again: what was said on the one before may be lost.
    pub(super) fn reconnected(&mut self, shard: u16) {
        self.outbox.retain(|(to, _)| *to != shard);
        for (&region, held) in self.held.iter().filter(|(_, held)| held.shard == shard) {
            self.outbox.push_back((shard, held.adopt(region)));
        }
    }

    /// Takes no more pushes, and brings everything to the shards (rule V9).
    pub(super) fn retire(&mut self, now: Instant) {
        self.retiring = true;
        for region in self.pipeline.regions_mut() {
            region.set_active(false);
        }
        self.close_epochs(now);
    }

    /// The controller wants it again.
    fn resume(&mut self) {
        self.retiring = false;
        for region in self.pipeline.regions_mut() {
            region.set_active(true);
        }
    }

    /// Whether the shard of a region has not answered for so long that this switch had better give up.
    pub(super) fn is_stuck(&self, now: Instant) -> bool {
        self.held.values().any(|held| held.uncommitted.is_some() && held.drained_at + COMMIT_MAX <= now)
    }

    /// Whether it retires, and the shards have everything.
    pub(super) fn is_retired(&self) -> bool {
        let empty = self.pipeline.regions().iter().all(|region| region.active_packets().pushes == 0);
        self.retiring && empty && self.held.values().all(|held| held.uncommitted.is_none())
    }

    pub(super) fn statistics(&self) -> SwitchStatistics {
        let mut statistics = self.statistics;
        statistics += counts(&self.pipeline.counters());
        let bytes = |region: &SoftRegion| {
            let words = region.config().memory_words();
            4 * (words.values + 2 * (words.sums + words.touched) + words.windows) as u64
        };
        statistics.memory_bytes = self.pipeline.regions().iter().map(bytes).sum();
        let uncommitted = self.held.values().filter_map(|held| held.uncommitted.as_ref());
        statistics.queue_bytes = uncommitted.map(|drained| 4 * drained.sums.0.len() as u64).sum();
        statistics
    }

    pub(super) fn handle_datagrams(
        &mut self,
        now: Instant,
        from: SocketAddr,
        datagrams: &mut [u8],
        stride: usize,
    ) {
        // The address says who it is, and nothing else does (rule W4).
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

    /// Closes the epochs that are full or old enough, of regions whose last epoch is committed (rule E1).
    pub(super) fn close_epochs(&mut self, now: Instant) {
        let hot_path = &self.cluster.hot_path;
        for region in self.pipeline.regions_mut() {
            let taken = region.active_packets();
            if taken.pushes == 0 {
                continue;
            }
            let number = region.config().region;
            let held = self.held.get_mut(&number).expect("the pipeline has only regions that are held");
            let opened_at = *held.opened_at.get_or_insert(now);
            let due = self.retiring
                || taken.last >= hot_path.pushes_per_epoch
                || taken.pushes >= region.config().bank_packets_max / 2
                || opened_at + hot_path.epoch_time_max <= now;
            held.is_due = due;
            if !due || held.uncommitted.is_some() || now < held.drained_at + EPOCH_TIME_MIN {
                continue;
            }
            let Epoch { cut, slots, sums } = region::close_epoch(region);
            self.statistics.epochs += 1;
            self.statistics.slots_drained += sums.len() as u64;
            let (since, epoch) = (held.tenure.since, held.epoch);
            let drained = Drained { region: number, since, epoch, cut, slots, sums: Bulk(sums) };
            held.epoch += 1;
            held.opened_at = None;
            held.is_due = false;
            held.drained_at = now;
            held.uncommitted = Some(drained.clone());
            self.outbox.push_back((held.shard, Message::Drained(drained)));
        }
    }

    /// The shard says what is in a region: the first time it is opened, later (the stream broke) it is brought up to date.
    pub(super) fn handle_adopted(&mut self, now: Instant, adopted: &Adopted) {
        if !self.is_expected(adopted.region, adopted.since, &adopted.values) {
            return;
        }
        let Adopted { region: number, since, epoch, change, .. } = *adopted;
        if epoch >> 63 != 0 {
            self.statistics.malformed += 1;
            return;
        }
        let held = self.held.get_mut(&number).expect("is_expected has looked it up");
        let shard = held.shard;
        if held.adopted {
            if let Some(drained) = held.uncommitted.take_if(|drained| drained.epoch > epoch) {
                self.outbox.push_back((shard, Message::Drained(drained.clone())));
                held.uncommitted = Some(drained);
            }
        } else {
            held.adopted = true;
            held.epoch = epoch + 1;
            held.committed = (epoch, adopted.cut.clone());
            let plan = self.cluster.plan.as_ref().expect("an agent is made for a plan");
            let layout = &self.layouts[usize::from(number)];
            let opened = region::open(&self.cluster, plan, layout, held.tenure, epoch, &adopted.cut);
            let changed = self.pipeline.change(|regions| regions.push(opened));
            changed.expect("a region that was not adopted was not in the pipeline");
        }
        self.install(number, &adopted.values);
        self.settle(now, number, epoch);
        self.outbox.push_back((shard, Message::Installed { region: number, since, change }));
    }

    /// The shard has applied an epoch.
    pub(super) fn handle_committed(&mut self, now: Instant, committed: &Committed) {
        if self.is_expected(committed.region, committed.since, &committed.values) {
            self.install(committed.region, &committed.values);
            self.settle(now, committed.region, committed.epoch);
        }
    }

    /// Rows have changed by the cold path.
    pub(super) fn handle_changed(&mut self, changed: &Changed) {
        if self.is_expected(changed.region, changed.since, &changed.values) {
            let Changed { region, since, change, .. } = *changed;
            self.install(region, &changed.values);
            let shard = self.held[&region].shard;
            self.outbox.push_back((shard, Message::Installed { region, since, change }));
        }
    }

    /// Whether a shard may say this now: about a region as it is held, in values for slots that there are.
    fn is_expected(&mut self, region: u8, since: u64, values: &SlotValues) -> bool {
        let Some(layout) = self.layouts.get(usize::from(region)) else {
            self.statistics.malformed += 1;
            return false;
        };
        let ends = values.slots.iter().map(|&(first, count)| u32::from(first) + u32::from(count));
        let count: usize = values.slots.iter().map(|&(_, count)| usize::from(count)).sum();
        let sound =
            ends.max().is_none_or(|end| end <= u32::from(layout.slots)) && count == values.values.0.len();
        self.statistics.malformed += u64::from(!sound);
        sound && self.held.get(&region).is_some_and(|held| held.tenure.since == since)
    }

    /// Epochs up to this one are committed and their values installed (rule E7).
    fn settle(&mut self, now: Instant, number: u8, epoch: u64) {
        let held = self.held.get_mut(&number).expect("the caller has looked it up");
        let Some(region) = self.pipeline.region_mut(self.cluster.job, number) else { return };
        if epoch >= held.epoch {
            self.statistics.malformed += 1;
            return;
        }
        if let Some(drained) = held.uncommitted.take_if(|drained| drained.epoch <= epoch) {
            held.committed = (drained.epoch, drained.cut);
        }
        region.set_readable(true);
        region.set_durable(region::on_wire(epoch));
        region.set_active(!self.retiring);
        self.close_epochs(now);
    }

    /// Writes values through the pipeline, as an agent beside a hardware pipeline would.
    fn install(&mut self, region: u8, values: &SlotValues) {
        if is_planted(PlantedBug::StandbyStartsEmpty) {
            return;
        }
        let header = Header {
            kind: Kind::Install,
            flags: Flags::NONE,
            entries: 0,
            job: self.cluster.job,
            worker: 0,
            plan: self.plan,
            view: self.held[&region].tenure.view_on_wire(),
            region,
            epoch: 0,
            durable: 0,
            seq: 0,
            tag: 0,
        };
        let slots = values.slots.iter().flat_map(|&(first, count)| (0..count).map(move |slot| first + slot));
        let mut entries = slots.zip(&values.values.0).peekable();
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

    pub(super) fn take_answers(&mut self, outgoing: &mut Outgoing) {
        outgoing.append(&mut self.answers);
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let closing = |held: &Held| {
            let opened_at = held.opened_at.filter(|_| held.uncommitted.is_none())?;
            let longest = opened_at + self.cluster.hot_path.epoch_time_max;
            let shortest = held.drained_at + EPOCH_TIME_MIN;
            Some(if held.is_due { shortest } else { longest.max(shortest) })
        };
        self.held.values().filter_map(closing).min()
    }
}

/// What a pipeline or region counts, in the words of a switch.
fn counts(counters: &libra_dataplane::Counters) -> SwitchStatistics {
    SwitchStatistics {
        packets: counters.packets - counters.installs,
        pushes: counters.pushes,
        pulls: counters.pulls,
        duplicates: counters.duplicates,
        retransmits: counters.retransmits,
        refused: counters.refused(),
        malformed: counters.dropped(),
        ..SwitchStatistics::default()
    }
}
