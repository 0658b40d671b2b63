//! The shard of a server: its rows, the regions of switches that cache them, and every change exactly once.

mod replay;

use std::collections::{BTreeMap, VecDeque};

use libra_dataplane::mutants::{Mutant, is_enabled};
use libra_plan::{Placement, RegionLayout, shard_of};
use libra_store::{RowBlock, RowError, Store, first_non_finite};
use serde::{Deserialize, Serialize};

use super::journal::{Journal, RecordOf};
use super::refusals::Refusals;
use super::snapshot::{Checkpoints, Snapshot};
use crate::bulk::{Bulk, BulkOf};
use crate::cluster::{Cluster, Ownership, View};
use crate::keys::Keys;
use crate::message::{
    Adopted, Answered, Changed, ColdPush, Committed, Drained, MESSAGE_BYTES_MAX, Message, RoundContents,
    SlotRun, SlotValues,
};
use crate::region;
use crate::role::Link;
use crate::statistics::ServerStatistics;
use crate::values::Values;

/// Values of an answer at most.
const ANSWER_VALUES_MAX: usize = MESSAGE_BYTES_MAX / size_of::<f32>() - 1024;

/// A message that its sender should not have sent. It changed nothing (rule C4).
#[derive(Debug)]
pub(super) struct ProtocolViolation;

#[derive(Debug, Clone)]
pub(super) struct Shard {
    pub(super) number: u16,
    pub(super) cluster: Box<Cluster>,
    pub(super) store: Store,
    pub(super) placement: Option<Placement>,
    pub(super) regions: BTreeMap<u8, Region>,
    /// For each worker its last push that was applied. Streams keep the order.
    pub(super) pushed: BTreeMap<u16, Pushed>,
    /// Records that must be on the disk before they count.
    pub(super) journal: Journal,
    /// True if it goes on from a disk, and others may have more of its state than it has.
    pub(super) has_returned: bool,
    pub(super) checkpoints: Checkpoints,
    /// The highest number of a checkpoint that may be on the disk, sound or not: one that failed may be there all the same.
    pub(super) highest_checkpoint: u64,
    /// The checkpoint that is being written.
    pub(super) snapshot: Option<Snapshot>,
    /// True if the next checkpoint must have all rows: what a failed one had been given counts as changed no more.
    pub(super) forgot_changes: bool,
    /// Pushes that are applied, and that are not on the disk, or whose rows a switch does not have yet.
    waiting: Vec<Waiting>,
    /// The other replies that are sent once the log has a record.
    deferred: VecDeque<(u64, DeferredReply)>,
    /// Keys that the store is given at once, in memory that is used again.
    pub(super) keys: Vec<u64>,
    pub(super) gradients: Vec<f32>,
    pub(super) statistics: ServerStatistics,
    pub(super) refusals: Refusals,
    pub(super) outbox: VecDeque<(Link, Message)>,
}

/// The last push of a worker that was applied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Pushed {
    /// Its number.
    pub(super) number: u64,
    /// Number of pushes of this worker that were applied up to it.
    pub(super) count: u64,
}

/// The shard's end of one region.
#[derive(Debug, Clone)]
pub(super) struct Region {
    layout: RegionLayout,
    /// The owner, which may commit.
    ownership: Ownership,
    /// True once the owner has been sent the contents of the region: it then must receive every change.
    adopted: bool,
    /// The stream to the owner, while it is open.
    owner: Option<Link>,
    /// The newest round that is applied, and what was in it and all before it.
    pub(super) committed: u64,
    pub(super) contents: RoundContents,
    /// Numbers the changes that the owner is sent; the number up to which it has confirmed them.
    change: u64,
    installed: u64,
}

/// A push whose answer waits until the log has it, and switches have the new values of its rows.
#[derive(Debug, Clone)]
struct Waiting {
    link: Link,
    number: u64,
    /// The record that the log must have.
    record: u64,
    /// Empty if no values were asked for.
    keys: Vec<u64>,
    changes: Vec<(u8, u64)>,
}

/// A reply or action that waits until the log has all that it rests on. Values are read then: what a switch was sent meanwhile is newer than
/// those of now.
#[derive(Debug, Clone)]
enum DeferredReply {
    /// A round, with the positions of its rows in the region.
    Committed {
        link: Link,
        region: u8,
        view_id: u64,
        positions: Vec<usize>,
    },
    Replayed {
        link: Link,
        region: u8,
        view_id: u64,
        below: u32,
    },
    Adopt {
        link: Link,
        switch: u16,
        region: u8,
        view_id: u64,
    },
}

impl Shard {
    pub(super) fn new(number: u16, cluster: Box<Cluster>, journal: Journal) -> Result<Self, String> {
        let shards = cluster.shards();
        if number >= shards {
            return Err(format!("there are only {shards} servers"));
        }
        let of = libra_plan::Shard::new(number, shards);
        let store = Store::of_shard(cluster.tables.clone(), cluster.seed, of);
        let store = store.map_err(|error| error.to_string())?;
        cluster.check()?;
        let placement = cluster.placement().map_err(|error| error.to_string())?;
        let layouts = placement.iter().flat_map(|placement| placement.regions_of(number));
        let region = |layout: &RegionLayout| Region {
            layout: layout.clone(),
            ownership: cluster.view.ownership(layout.region),
            adopted: false,
            owner: None,
            committed: region::ROUNDS_BEGIN_AFTER,
            contents: RoundContents::default(),
            change: 0,
            installed: 0,
        };
        Ok(Self {
            number,
            store,
            regions: layouts.map(|layout| (layout.region, region(layout))).collect(),
            placement,
            pushed: BTreeMap::new(),
            journal,
            has_returned: false,
            checkpoints: Checkpoints::default(),
            highest_checkpoint: 0,
            snapshot: None,
            forgot_changes: false,
            waiting: Vec::new(),
            deferred: VecDeque::new(),
            keys: Vec::new(),
            gradients: Vec::new(),
            statistics: ServerStatistics::default(),
            refusals: Refusals::default(),
            outbox: VecDeque::new(),
            cluster,
        })
    }

    /// From here on nothing is taken from a switch that this view does not name as owner (rule V3).
    pub(super) fn enter(&mut self, view: View) {
        if view.number > self.cluster.view.number {
            self.journal.write(&RecordOf::View(&view));
            self.apply_view(view);
            self.answer();
        }
    }

    pub(super) fn apply_view(&mut self, view: View) {
        // All that such a flow had is committed, and what is still on its way comes under a view that is over (rule T18).
        for (&(region, worker), _) in
            view.flows.iter().filter(|(_, view_id)| **view_id > self.cluster.view.number)
        {
            let region = self.regions.get_mut(&region);
            if let Some(region) = region.filter(|_| !is_enabled(Mutant::RenewalKeepsAcked)) {
                region.contents.begin_flow(worker);
            }
        }
        for (number, region) in &mut self.regions {
            let ownership = view.ownership(*number);
            if ownership.view_id > region.ownership.view_id {
                region.ownership = ownership;
                region.adopted = false;
                region.owner = None;
            }
        }
        self.cluster.view = view;
    }

    /// A switch that held a region before this server stopped may still answer pulls from it, and must receive every change (rule L5).
    pub(super) fn expect_owners(&mut self) {
        for region in self.regions.values_mut() {
            region.adopted = region.ownership.owner.is_some();
        }
    }

    /// A stream is gone. Its peer comes again, and repeats what was not answered.
    pub(super) fn close(&mut self, link: Link) {
        self.waiting.retain(|waiting| waiting.link != link);
        self.deferred.retain(|(_, deferred)| deferred.link() != link);
        for region in self.regions.values_mut().filter(|region| region.owner == Some(link)) {
            region.owner = None;
        }
    }

    /// Sets rows to what they were. They must be of this shard.
    pub(super) fn put(&mut self, rows: &RowBlock) -> Result<(), RowError> {
        for key in &rows.removed {
            self.store.remove(*key)?;
        }
        self.store.restore(rows.table, &rows.keys, &rows.values, &rows.state)
    }

    /// Returns true if these keys are all of this shard. If not, the store must not get them.
    pub(super) fn owns(&self, keys: &[u64]) -> bool {
        self.cluster.shards() == 1 || keys.iter().all(|key| self.owns_key(*key))
    }

    /// Returns true if a key is of this shard.
    pub(super) fn owns_key(&self, key: u64) -> bool {
        shard_of(key, self.cluster.shards()) == self.number
    }

    /// Returns the number of values of rows that this shard must own.
    pub(super) fn own_values(&self, keys: &[u64]) -> Result<usize, ProtocolViolation> {
        if !self.owns(keys) {
            return Err(ProtocolViolation);
        }
        self.store.values_of(keys).map_err(|_| ProtocolViolation)
    }

    /// A worker comes, and reports which of its pushes were answered. Those that this shard does not have, it has lost (rule L4).
    pub(super) fn on_hello(&mut self, worker: u16, answered: Answered) {
        let last = self.pushed.entry(worker).or_default();
        if answered.newest > last.number {
            let lost = answered.count.saturating_sub(last.count);
            self.statistics.lost_pushes = self.statistics.lost_pushes.saturating_add(lost);
            last.count = last.count.max(answered.count);
        }
    }

    /// Applies a push once (rule C1), and answers when every switch that holds some of its rows has their new values (rule C2). One
    /// with a gradient that is not finite is refused, whatever its number (rule C11).
    pub(super) fn push(&mut self, link: Link, worker: u16, push: ColdPush) -> Result<(), ProtocolViolation> {
        let (keys, gradients) = (push.keys.to_vec(), push.gradients.into_vec());
        let values = self.own_values(&keys)?;
        let fits = !push.answer || values <= ANSWER_VALUES_MAX;
        if !fits || values != gradients.len() {
            return Err(ProtocolViolation);
        }
        if let Some(bad) = first_non_finite(&gradients) {
            self.refuse_push(link, worker, push.number, &keys, (bad, gradients[bad]));
            return Ok(());
        }
        let last = self.pushed.get(&worker).map_or(0, |last| last.number);
        if push.number > last || is_enabled(Mutant::ColdPushAppliedTwice) {
            let (number, keys_sent) = (push.number, &push.keys);
            let record = RecordOf::Push { worker, number, keys: keys_sent, gradients: BulkOf(&gradients) };
            self.journal.write(&record);
            self.apply(worker, number, &keys, &gradients);
            self.sweep(keys.len());
        } else {
            self.statistics.duplicates += 1;
        }
        let changes = self.notify_owners(&keys);
        let keys = if push.answer { keys } else { Vec::new() };
        let record = self.journal.newest();
        self.waiting.push(Waiting { link, number: push.number, record, keys, changes });
        self.answer_waiting();
        Ok(())
    }

    pub(super) fn apply(&mut self, worker: u16, number: u64, keys: &[u64], gradients: &[f32]) {
        let last = self.pushed.entry(worker).or_default();
        *last = Pushed { number, count: last.count + 1 };
        self.store.update_many(keys, gradients).expect("push has checked the keys and the length");
        self.statistics.row_updates += keys.len() as u64;
    }

    /// Sends the new values of rows to the switches that hold them. Returns which changes must be installed.
    pub(super) fn notify_owners(&mut self, keys: &[u64]) -> Vec<(u8, u64)> {
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
            if let Some(link) = region.owner {
                let changed = Changed {
                    region: number,
                    view_id: region.ownership.view_id,
                    change: region.change,
                    values,
                };
                self.outbox.push_back((link, Message::Changed(changed)));
            }
        }
        changes
    }

    /// An owner has installed all changes up to this one.
    pub(super) fn installed(
        &mut self,
        link: Link,
        number: u8,
        view_id: u64,
        change: u64,
    ) -> Result<(), ProtocolViolation> {
        let region = self.regions.get_mut(&number).ok_or(ProtocolViolation)?;
        if region.ownership.view_id == view_id && region.owner == Some(link) {
            region.installed = region.installed.max(change.min(region.change));
            self.answer_waiting();
        }
        Ok(())
    }

    /// Sends the replies that the log and switches no longer hold back.
    pub(super) fn answer(&mut self) {
        while let Some((_, deferred)) = self.deferred.pop_front_if(|(record, _)| self.journal.has(*record)) {
            self.reply(deferred);
        }
        self.answer_waiting();
    }

    /// Sends a reply now, or when the log has all that was written so far (rule L1).
    fn defer(&mut self, deferred: DeferredReply) {
        self.deferred.push_back((self.journal.newest(), deferred));
        self.answer();
    }

    fn reply(&mut self, deferred: DeferredReply) {
        match deferred {
            DeferredReply::Committed { link, region: number, view_id, positions } => {
                let region = &self.regions[&number];
                if region.ownership.view_id != view_id && !is_enabled(Mutant::FencingIgnored) {
                    return;
                }
                let round = region.committed;
                let values = self.values(number, positions);
                let committed = Committed { region: number, view_id, round, values };
                self.outbox.push_back((link, Message::Committed(committed)));
            }
            // As with rounds: a confirmation under an ownership that is over counts for no region, and is repeated to the next owner.
            DeferredReply::Replayed { link, region, view_id, below } => {
                if self.regions[&region].ownership.view_id != view_id {
                    return;
                }
                self.outbox.push_back((link, Message::Replayed { region, view_id, below }));
            }
            DeferredReply::Adopt { link, switch, region, view_id } => {
                self.adopt_now(link, switch, region, view_id)
            }
        }
    }

    /// Answers the pushes that the log has, and that wait for no switch any more (rules C3, L1).
    fn answer_waiting(&mut self) {
        for mut waiting in core::mem::take(&mut self.waiting) {
            waiting.changes.retain(|(number, change)| {
                let region = &self.regions[number];
                region.adopted && region.installed < *change
            });
            if waiting.changes.is_empty() && self.journal.has(waiting.record) {
                let values = self.read(&waiting.keys).expect("the push was checked when it came");
                let view = self.cluster.view.number;
                let message = Message::Pushed { number: waiting.number, view, values };
                self.outbox.push_back((waiting.link, message));
            } else {
                self.waiting.push(waiting);
            }
        }
    }

    pub(super) fn pull(&mut self, link: Link, number: u64, keys: &Keys) -> Result<(), ProtocolViolation> {
        let mut decoded = core::mem::take(&mut self.keys);
        keys.decode_into(&mut decoded);
        let values = self.read(&decoded);
        self.keys = decoded;
        let values = values?;
        self.statistics.row_reads += keys.len() as u64;
        self.outbox.push_back((link, Message::Pulled { number, values }));
        Ok(())
    }

    /// The values of rows as an answer holds them. A request for more than a message holds is refused (rule C8).
    fn read(&self, keys: &[u64]) -> Result<Values, ProtocolViolation> {
        let count = self.own_values(keys)?;
        if count > ANSWER_VALUES_MAX {
            return Err(ProtocolViolation);
        }
        let mut values = vec![0.0; count];
        self.store.read_many(keys, &mut values).expect("the keys and the length were just checked");
        Ok(Values::new(self.cluster.cold_path.values, values))
    }

    /// A switch takes a region over, or comes again: it learns what the shard has of it (rule V4). It names the newest round that it has seen
    /// committed, and the contents of it and all before.
    pub(super) fn adopt(
        &mut self,
        link: Link,
        switch: u16,
        number: u8,
        view_id: u64,
        known: (u64, RoundContents),
    ) -> Result<(), ProtocolViolation> {
        let region = self.regions.get(&number).ok_or(ProtocolViolation)?;
        let (round, contents) = known;
        if region.ownership == (Ownership { owner: Some(switch), view_id }) && round > region.committed {
            if !self.has_returned || round >> 63 != 0 {
                return Err(ProtocolViolation);
            }
            self.journal.write(&RecordOf::Forgotten { region: number, round, contents: &contents });
            self.forget(number, round, contents);
        }
        self.defer(DeferredReply::Adopt { link, switch, region: number, view_id });
        Ok(())
    }

    /// This shard had applied more rounds of a region before it stopped than it has now: their sums are lost. The packets that are in them must not
    /// be added again, as no member has all of them any more (rule L4).
    pub(super) fn forget(&mut self, number: u8, round: u64, contents: RoundContents) {
        let Some(region) = self.regions.get_mut(&number) else { return };
        self.statistics.lost_rounds = self.statistics.lost_rounds.saturating_add(round - region.committed);
        (region.committed, region.contents) = (round, contents);
    }

    fn adopt_now(&mut self, link: Link, switch: u16, number: u8, view_id: u64) {
        let region = self.region_mut(number);
        if region.ownership != (Ownership { owner: Some(switch), view_id }) {
            // It acts on an old view, and will receive a newer one.
            self.statistics.fenced += 1;
            return;
        }
        // What was sent on a stream that broke may be read after what was sent on the next one.
        if region.owner.is_some_and(|newer| newer > link) {
            self.statistics.fenced += 1;
            return;
        }
        region.adopted = true;
        region.owner = Some(link);
        let (round, contents, change) = (region.committed, region.contents.clone(), region.change);
        let contents =
            if is_enabled(Mutant::ReplayWithoutContents) { RoundContents::default() } else { contents };
        let values = self.values(number, 0..self.regions[&number].layout.rows.len());
        let adopted = Adopted { region: number, view_id, round, contents, change, values };
        self.outbox.push_back((link, Message::Adopted(adopted)));
    }

    /// Applies a round of a switch once (rules E4, E5).
    pub(super) fn commit(&mut self, link: Link, drained: Drained) -> Result<(), ProtocolViolation> {
        let region = self.regions.get(&drained.region).ok_or(ProtocolViolation)?;
        let of_the_owner = region.ownership.view_id == drained.view_id && region.owner == Some(link);
        if !of_the_owner && !is_enabled(Mutant::FencingIgnored) {
            self.statistics.fenced += 1;
            return Ok(());
        }
        let (number, view_id) = (drained.region, drained.view_id);
        let touched = region
            .touched_rows(self.cluster.hot_path.lanes, &drained.slots, drained.sums.0.len())
            .ok_or(ProtocolViolation)?;
        if drained.round <= region.committed {
            self.statistics.duplicates += 1;
            if is_enabled(Mutant::CommitAppliedTwice) {
                self.apply_sums(number, &touched, &drained.sums.0);
            }
        } else if drained.round == region.committed + 1 {
            self.journal.write(&RecordOf::Round(&drained));
            self.apply_round(&touched, drained);
            self.sweep(touched.len());
        } else {
            return Err(ProtocolViolation);
        }
        let positions = touched.into_iter().map(|(position, _)| position).collect();
        self.defer(DeferredReply::Committed { link, region: number, view_id, positions });
        Ok(())
    }

    fn apply_round(&mut self, touched: &[(usize, usize)], drained: Drained) {
        self.apply_sums(drained.region, touched, &drained.sums.0);
        let region = self.region_mut(drained.region);
        region.committed = drained.round;
        region.contents.advance(drained.contents);
        self.statistics.rounds += 1;
    }

    /// Applies a round that was written down.
    pub(super) fn apply_written_round(&mut self, drained: Drained) -> Result<(), ProtocolViolation> {
        let region = self.regions.get(&drained.region).ok_or(ProtocolViolation)?;
        let touched = region
            .touched_rows(self.cluster.hot_path.lanes, &drained.slots, drained.sums.0.len())
            .ok_or(ProtocolViolation)?;
        self.apply_round(&touched, drained);
        Ok(())
    }

    /// Finite gradients may have a sum that no f32 holds. Of such a row nothing is applied, of the others all; that follows from the sums
    /// alone, so it is the same when a round is read from the log (rule C11).
    fn apply_sums(&mut self, number: u8, touched: &[(usize, usize)], sums: &[u32]) {
        let arithmetic = self.cluster.hot_path.arithmetic;
        let layout = &self.regions[&number].layout;
        self.keys.clear();
        self.gradients.clear();
        for &(position, start) in touched {
            let row = layout.rows[position];
            let sums = &sums[start..start + row.width as usize];
            if sums.iter().all(|&sum| sum == 0) {
                continue;
            }
            self.keys.push(row.key);
            self.gradients.extend(sums.iter().map(|&sum| region::gradient_of(sum, row.scale, arithmetic)));
        }
        if first_non_finite(&self.gradients).is_some() {
            self.refuse_sums();
        }
        let updated = self.store.update_many(&self.keys, &self.gradients);
        updated.expect("placed rows belong to tables, with these widths");
        self.statistics.row_updates += self.keys.len() as u64;
        self.statistics.row_updates_hot += self.keys.len() as u64;
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

impl DeferredReply {
    fn link(&self) -> Link {
        match self {
            Self::Committed { link, .. } | Self::Replayed { link, .. } | Self::Adopt { link, .. } => *link,
        }
    }
}

impl Region {
    /// The rows that lie whole in runs of slots: their position in the layout, and where their sums begin.
    /// `None` if the runs are not what a switch sends.
    fn touched_rows(&self, lanes: u8, runs: &[SlotRun], sums: usize) -> Option<Vec<(usize, usize)>> {
        let slots = u32::from(self.layout.cells(lanes)) * u32::from(lanes);
        let mut rows = Vec::new();
        let (mut start, mut free) = (0usize, 0u32);
        for &(first, count) in runs {
            let (run, end) = (u32::from(first), u32::from(first) + u32::from(count));
            if run < free || end > slots {
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
