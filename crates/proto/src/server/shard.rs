//! The shard of a server: its rows, the regions of switches that cache them, and every change exactly once.

use std::collections::{BTreeMap, VecDeque};

use libra_dataplane::planted::{PlantedBug, is_planted};
use libra_dataplane::{Header, Kind, NackReason, Pipeline, Verdict};
use libra_plan::{Placement, RegionLayout, Scale, shard_of};
use libra_store::{Store, first_non_finite};

use crate::bulk::Bulk;
use crate::cluster::{ArithmeticMode, Cluster, Tenure, View};
use crate::message::{
    Adopted, Changed, ColdPush, Committed, Cut, Drained, Message, Replay, SlotRun, SlotValues,
};
use crate::region::{self, Epoch};
use crate::role::Link;
use crate::statistics::ServerStatistics;

/// A message that its sender should not have sent. It changed nothing (rule C4).
#[derive(Debug)]
pub(super) struct Nonsense;

#[derive(Debug, Clone)]
pub(super) struct Shard {
    number: u16,
    pub(super) cluster: Box<Cluster>,
    store: Store,
    placement: Option<Placement>,
    regions: BTreeMap<u8, Region>,
    /// For each worker the number of its last push that was applied. Streams keep the order.
    pushed: BTreeMap<u16, u64>,
    /// Pushes that are applied, and whose rows a switch does not have yet.
    waiting: Vec<Waiting>,
    /// What the store is given at once, in memory that is used again.
    keys: Vec<u64>,
    gradients: Vec<f32>,
    pub(super) statistics: ServerStatistics,
    pub(super) outbox: VecDeque<(Link, Message)>,
}

/// The shard's end of one region.
#[derive(Debug, Clone)]
struct Region {
    layout: RegionLayout,
    /// Who may commit.
    tenure: Tenure,
    /// Whether the holder has been told what is in the region: it then must hear of every change.
    adopted: bool,
    /// The stream to the holder, while it is open.
    holder: Option<Link>,
    /// The newest epoch that is applied, and what was in it and all before it.
    committed: u64,
    cut: Cut,
    /// Numbers what the holder is told, and how much of it the holder has confirmed.
    change: u64,
    installed: u64,
}

/// A push whose answer waits until switches have the new values of its rows.
#[derive(Debug, Clone)]
struct Waiting {
    link: Link,
    number: u64,
    /// Empty if no values were asked for.
    keys: Vec<u64>,
    changes: Vec<(u8, u64)>,
}

impl Shard {
    pub(super) fn new(number: u16, cluster: Box<Cluster>) -> Result<Self, String> {
        let of = libra_plan::Shard::new(number, cluster.shards());
        let store = Store::of_shard(cluster.tables.clone(), cluster.seed, of);
        let store = store.map_err(|error| error.to_string())?;
        cluster.check_plan()?;
        let placement = cluster.placement().map_err(|error| error.to_string())?;
        let layouts = placement.iter().flat_map(|placement| placement.regions_of(number));
        let region = |layout: &RegionLayout| Region {
            layout: layout.clone(),
            tenure: cluster.view.tenure(layout.region),
            adopted: false,
            holder: None,
            committed: region::EPOCHS_BEGIN_AFTER,
            cut: Cut::default(),
            change: 0,
            installed: 0,
        };
        Ok(Self {
            number,
            store,
            regions: layouts.map(|layout| (layout.region, region(layout))).collect(),
            placement,
            pushed: BTreeMap::new(),
            waiting: Vec::new(),
            keys: Vec::new(),
            gradients: Vec::new(),
            statistics: ServerStatistics::default(),
            outbox: VecDeque::new(),
            cluster,
        })
    }

    pub(super) fn statistics(&self) -> ServerStatistics {
        ServerStatistics { rows: self.store.rows() as u64, ..self.statistics }
    }

    /// From here on nothing is taken from whom this view does not name as holder (rule V3).
    pub(super) fn enter(&mut self, view: View) {
        if view.number <= self.cluster.view.number {
            return;
        }
        for (number, region) in &mut self.regions {
            let tenure = view.tenure(*number);
            if tenure.since > region.tenure.since {
                region.tenure = tenure;
                region.adopted = false;
                region.holder = None;
            }
        }
        self.cluster.view = view;
        self.answer_waiting();
    }

    /// A stream is gone. Whoever it led to comes again, and repeats what was not answered.
    pub(super) fn close(&mut self, link: Link) {
        self.waiting.retain(|waiting| waiting.link != link);
        for region in self.regions.values_mut().filter(|region| region.holder == Some(link)) {
            region.holder = None;
        }
    }

    /// How many values rows have that this shard must own.
    fn own_values(&self, keys: &[u64]) -> Result<usize, Nonsense> {
        let shards = self.cluster.shards();
        if shards > 1 && keys.iter().any(|&key| shard_of(key, shards) != self.number) {
            return Err(Nonsense);
        }
        self.store.values_of(keys).map_err(|_| Nonsense)
    }

    /// Applies a push once (rule C1), and answers when every switch that holds some of its rows has their new values (rule C2).
    pub(super) fn push(&mut self, link: Link, worker: u16, push: ColdPush) -> Result<(), Nonsense> {
        let values = self.own_values(&push.keys.0)?;
        if values != push.gradients.0.len() || first_non_finite(&push.gradients.0).is_some() {
            return Err(Nonsense);
        }
        let last = self.pushed.entry(worker).or_default();
        if push.number > *last || is_planted(PlantedBug::ColdPushAppliedTwice) {
            *last = push.number;
            self.apply(&push);
        } else {
            self.statistics.duplicates += 1;
        }
        let changes = self.tell_holders(&push.keys.0);
        let keys = if push.answer { push.keys.0 } else { Vec::new() };
        self.waiting.push(Waiting { link, number: push.number, keys, changes });
        self.answer_waiting();
        Ok(())
    }

    fn apply(&mut self, push: &ColdPush) {
        let ColdPush { keys: Bulk(keys), gradients: Bulk(gradients), .. } = push;
        self.store.update_many(keys, gradients).expect("push has checked the keys and the length");
        self.statistics.row_updates += keys.len() as u64;
    }

    /// Sends the new values of rows to the switches that hold them. Returns which changes must be installed.
    fn tell_holders(&mut self, keys: &[u64]) -> Vec<(u8, u64)> {
        let Some(placement) = &self.placement else { return Vec::new() };
        let mut positions: BTreeMap<u8, Vec<usize>> = BTreeMap::new();
        for place in keys.iter().filter_map(|&key| placement.find(key)) {
            let region = &self.regions[&place.region];
            if region.adopted {
                let position =
                    region.layout.row_index_at(place.slot).expect("a placed row lies in its region");
                positions.entry(place.region).or_default().push(position);
            }
        }
        let mut changes = Vec::new();
        for (number, mut positions) in positions {
            positions.sort_unstable();
            positions.dedup();
            let values = self.values(number, positions);
            let region = self.region_mut(number);
            region.change += 1;
            changes.push((number, region.change));
            if let Some(link) = region.holder {
                let changed =
                    Changed { region: number, since: region.tenure.since, change: region.change, values };
                self.outbox.push_back((link, Message::Changed(changed)));
            }
        }
        changes
    }

    /// A holder has installed all changes up to this one.
    pub(super) fn installed(
        &mut self,
        link: Link,
        number: u8,
        since: u64,
        change: u64,
    ) -> Result<(), Nonsense> {
        let region = self.regions.get_mut(&number).ok_or(Nonsense)?;
        if region.tenure.since == since && region.holder == Some(link) {
            region.installed = region.installed.max(change.min(region.change));
            self.answer_waiting();
        }
        Ok(())
    }

    /// Answers the pushes that wait for no switch any more (rule C3).
    fn answer_waiting(&mut self) {
        for mut waiting in core::mem::take(&mut self.waiting) {
            waiting.changes.retain(|(number, change)| {
                let region = &self.regions[number];
                region.adopted && region.installed < *change
            });
            if waiting.changes.is_empty() {
                let values = self.read(&waiting.keys).expect("the push was checked when it came");
                let view = self.cluster.view.number;
                let message = Message::Pushed { number: waiting.number, view, values: Bulk(values) };
                self.outbox.push_back((waiting.link, message));
            } else {
                self.waiting.push(waiting);
            }
        }
    }

    pub(super) fn pull(&mut self, link: Link, number: u64, keys: &[u64]) -> Result<(), Nonsense> {
        let values = self.read(keys)?;
        self.statistics.row_reads += keys.len() as u64;
        self.outbox.push_back((link, Message::Pulled { number, values: Bulk(values) }));
        Ok(())
    }

    fn read(&self, keys: &[u64]) -> Result<Vec<f32>, Nonsense> {
        let mut values = vec![0.0; self.own_values(keys)?];
        self.store.read_many(keys, &mut values).expect("the keys and the length were just checked");
        Ok(values)
    }

    /// A switch takes a region over: it learns what the shard has of it (rule V4).
    pub(super) fn adopt(&mut self, link: Link, switch: u16, number: u8, since: u64) -> Result<(), Nonsense> {
        let region = self.regions.get_mut(&number).ok_or(Nonsense)?;
        if region.tenure != (Tenure { holder: Some(switch), since }) {
            // It believes in an old view, and will hear of a newer one.
            self.statistics.fenced += 1;
            return Ok(());
        }
        // What was said on a stream that broke may be read after what was said on the next one.
        if region.holder.is_some_and(|newer| newer > link) {
            self.statistics.fenced += 1;
            return Ok(());
        }
        region.adopted = true;
        region.holder = Some(link);
        let (epoch, cut, change) = (region.committed, region.cut.clone(), region.change);
        let cut = if is_planted(PlantedBug::ReplayWithoutCut) { Cut::default() } else { cut };
        let values = self.values(number, 0..self.regions[&number].layout.rows.len());
        let adopted = Adopted { region: number, since, epoch, cut, change, values };
        self.outbox.push_back((link, Message::Adopted(adopted)));
        Ok(())
    }

    /// Applies an epoch of a switch once (rules E4, E5).
    pub(super) fn commit(&mut self, link: Link, drained: Drained) -> Result<(), Nonsense> {
        let region = self.regions.get(&drained.region).ok_or(Nonsense)?;
        let of_the_holder = region.tenure.since == drained.since && region.holder == Some(link);
        if !of_the_holder && !is_planted(PlantedBug::FencingIgnored) {
            self.statistics.fenced += 1;
            return Ok(());
        }
        let number = drained.region;
        let touched = region.touched_rows(&drained.slots, drained.sums.0.len()).ok_or(Nonsense)?;
        if drained.epoch <= region.committed {
            self.statistics.duplicates += 1;
            if is_planted(PlantedBug::CommitAppliedTwice) {
                self.apply_sums(number, &touched, &drained.sums.0);
            }
        } else if drained.epoch == region.committed + 1 {
            self.apply_sums(number, &touched, &drained.sums.0);
            let region = self.region_mut(number);
            region.committed = drained.epoch;
            region.cut = drained.cut;
            self.statistics.epochs += 1;
        } else {
            return Err(Nonsense);
        }
        let values = self.values(number, touched.iter().map(|&(position, _)| position));
        let epoch = self.regions[&number].committed;
        let committed = Committed { region: number, since: drained.since, epoch, values };
        self.outbox.push_back((link, Message::Committed(committed)));
        Ok(())
    }

    fn apply_sums(&mut self, number: u8, touched: &[(usize, usize)], sums: &[u32]) {
        let arithmetic = self.cluster.hot_path.arithmetic;
        let region = &self.regions[&number];
        self.keys.clear();
        self.gradients.clear();
        for &(position, start) in touched {
            let row = region.layout.rows[position];
            let sums = &sums[start..start + row.width as usize];
            if sums.iter().all(|&sum| sum == 0) {
                continue;
            }
            self.keys.push(row.key);
            self.gradients.extend(sums.iter().map(|&sum| gradient_of(sum, row.scale, arithmetic)));
        }
        let updated = self.store.update_many(&self.keys, &self.gradients);
        updated.expect("placed rows belong to tables, with these widths");
        self.statistics.row_updates += self.keys.len() as u64;
        self.statistics.row_updates_hot += self.keys.len() as u64;
    }

    /// Takes packets for a region that no switch holds, as a switch would, and commits what it took at once (rule V6).
    pub(super) fn replay(&mut self, link: Link, worker: u16, replay: Replay) -> Result<(), Nonsense> {
        let number = replay.region;
        let region = self.regions.get(&number).ok_or(Nonsense)?;
        if region.tenure != (Tenure { holder: None, since: replay.since }) {
            self.statistics.fenced += 1;
            return Ok(());
        }
        let plan = self.cluster.plan.as_ref().expect("there are no regions without a plan");
        let nothing = Cut::default();
        let seen = if is_planted(PlantedBug::ColdReplayWithoutDedup) { &nothing } else { &region.cut };
        let opened = region::open(&self.cluster, plan, &region.layout, region.tenure, region.committed, seen);
        let mut pipeline = Pipeline::new(vec![opened]).expect("it is one region");
        for Bulk(mut packet) in replay.packets {
            let header = Header::parse_without_entries(&packet).map_err(|_| Nonsense)?;
            if header.kind != Kind::Push || header.worker != worker || header.region != number {
                return Err(Nonsense);
            }
            let request = packet.clone();
            let mut answer = execute(&mut pipeline, &mut packet)?;
            if answer.nack_reason() == Some(NackReason::BankFull) {
                self.commit_own(number, &mut pipeline);
                packet = request;
                answer = execute(&mut pipeline, &mut packet)?;
            }
            if answer.kind != Kind::Ack {
                return Err(Nonsense);
            }
        }
        self.commit_own(number, &mut pipeline);
        self.statistics.replays += 1;
        let (since, below) = (replay.since, replay.below);
        self.outbox.push_back((link, Message::Replayed { region: number, since, below }));
        Ok(())
    }

    fn commit_own(&mut self, number: u8, pipeline: &mut Pipeline<Vec<region::SoftRegion>, Vec<u32>>) {
        let opened = pipeline.region_mut(self.cluster.job, number).expect("it was opened with this number");
        if opened.active_packets().pushes == 0 {
            return;
        }
        let Epoch { cut, slots, sums } = region::close_epoch(opened);
        let touched = self.regions[&number].touched_rows(&slots, sums.len());
        self.apply_sums(number, &touched.expect("the region has the layout's slots"), &sums);
        let region = self.region_mut(number);
        region.committed += 1;
        region.cut = cut;
        self.statistics.epochs += 1;
    }

    /// The present values of rows of a region, by their position in its layout, ascending.
    fn values(&self, number: u8, positions: impl IntoIterator<Item = usize>) -> SlotValues {
        let layout = &self.regions[&number].layout;
        let mut slots: Vec<SlotRun> = Vec::new();
        let (mut keys, mut count) = (Vec::new(), 0);
        for position in positions {
            let row = layout.rows[position];
            let width = u16::try_from(row.width).expect("a hot row fits a region");
            keys.push(row.key);
            count += usize::from(width);
            match slots.last_mut() {
                Some((first, count)) if *first + *count == row.slot => *count += width,
                _ => slots.push((row.slot, width)),
            }
        }
        let mut values = vec![0.0; count];
        self.store.read_many(&keys, &mut values).expect("placed rows belong to tables, with these widths");
        SlotValues { slots, values: Bulk(values.into_iter().map(f32::to_bits).collect()) }
    }

    fn region_mut(&mut self, number: u8) -> &mut Region {
        self.regions.get_mut(&number).expect("the caller has looked the region up")
    }
}

/// What a pipeline answers to a packet.
fn execute(
    pipeline: &mut Pipeline<Vec<region::SoftRegion>, Vec<u32>>,
    packet: &mut [u8],
) -> Result<Header, Nonsense> {
    match pipeline.process(packet) {
        Verdict::Reply(length) => Header::parse_without_entries(&packet[..length]).map_err(|_| Nonsense),
        Verdict::Drop(_) => Err(Nonsense),
    }
}

impl Region {
    /// The rows that lie whole in runs of slots: their position in the layout, and where their sums begin.
    /// `None` if the runs are not what a switch sends.
    fn touched_rows(&self, runs: &[SlotRun], sums: usize) -> Option<Vec<(usize, usize)>> {
        let mut rows = Vec::new();
        let (mut start, mut free) = (0usize, 0u32);
        for &(first, count) in runs {
            let (run, end) = (u32::from(first), u32::from(first) + u32::from(count));
            if run < free || end > u32::from(self.layout.cells()) {
                return None;
            }
            free = end;
            let from = self.layout.rows.partition_point(|row| row.slot < first);
            for (position, row) in self.layout.rows.iter().enumerate().skip(from) {
                if u32::from(row.slot) + row.width > end {
                    break;
                }
                rows.push((position, start + usize::from(row.slot - first)));
            }
            start += usize::from(count);
        }
        (start == sums).then_some(rows)
    }
}

/// The gradient that the slots of a row hold (rule E6).
fn gradient_of(sum: u32, scale: Scale, arithmetic: ArithmeticMode) -> f32 {
    match arithmetic {
        ArithmeticMode::Fixed => scale.dequantize(sum.cast_signed()),
        ArithmeticMode::F32 => f32::from_bits(sum),
    }
}
