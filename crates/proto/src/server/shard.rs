//! The shard of a server: its rows, the regions of switches that cache them, and every change exactly once.

mod assignments;
mod pushes;
mod replay;
mod rounds;
mod scans;
mod waiting;

use std::collections::{BTreeMap, VecDeque};

use libra_dataplane::mutants::{Mutant, is_enabled};
use libra_plan::{Placement, RegionLayout, Shards, shard_of};
use libra_store::{KeyBatch, RowBlock, RowError, Store};
use serde::{Deserialize, Serialize};

use super::journal::{Journal, RecordOf};
use super::memory_limit::{MemoryLimit, describe};
use super::refusals::Refusals;
use super::snapshot::{Checkpoints, Snapshot};
use super::status::DiskTimes;
use crate::cluster::{Cluster, Ownership, View};
use crate::message::{Adopted, Answered, Message, RoundContents};
use crate::region;
use crate::role::Link;
use crate::statistics::ServerStatistics;
use crate::work::WorkDone;
pub(crate) use assignments::first_bad_state;
pub(crate) use scans::PAGE_BYTES_MAX;
use scans::ScannedKeys;
use waiting::WaitingPushes;

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
    /// The newest checkpoint that all shards have, as far as it is known here (rule L11).
    pub(super) complete_checkpoint: Option<u64>,
    /// The checkpoint that all servers were asked for last: it may be complete.
    pub(super) requested_checkpoint: u64,
    /// The part of the work that is done, as the controller has sent it.
    pub(super) work_done: WorkDone,
    /// The highest number of a checkpoint that may be on the disk, sound or not: one that failed may be there all the same.
    pub(super) highest_checkpoint: u64,
    /// The checkpoint that is being written.
    pub(super) snapshot: Option<Snapshot>,
    /// True if the next checkpoint must have all rows: what a failed one had been given counts as changed no more.
    pub(super) forgot_changes: bool,
    /// Pushes that are applied, and that are not on the disk, or whose rows a switch does not have yet.
    waiting: WaitingPushes,
    /// The other replies that are sent once the log has a record.
    deferred: VecDeque<(u64, DeferredReply)>,
    /// Keys of the table that is being scanned.
    scanning: Option<ScannedKeys>,
    /// Rows that the store works on at once, and their gradients, in memory that is used again.
    pub(super) rows: KeyBatch,
    pub(super) gradients: Vec<f32>,
    pub(super) statistics: ServerStatistics,
    pub(super) disk_times: DiskTimes,
    /// Shards among which the memory limit of the process is divided.
    pub(super) process_shards: u16,
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
    pub(super) fn new(
        number: u16,
        cluster: Box<Cluster>,
        journal: Journal,
        memory_limit: Option<MemoryLimit>,
    ) -> Result<Self, String> {
        let shards = cluster.shards();
        if number >= shards {
            return Err(format!("there are only {shards} servers"));
        }
        cluster.check()?;
        let work_done = cluster.work.as_ref().map(|work| work.done.clone()).unwrap_or_default();
        let complete_checkpoint = cluster.durability.resumed().map(|load| load.number);
        let of = libra_plan::Shard::new(number, shards);
        let store = Store::of_shard(cluster.tables.clone(), cluster.seed, of);
        let mut store = store.map_err(|error| error.to_string())?;
        let process_shards = memory_limit.as_ref().map_or(1, |limit| limit.process_shards);
        if let Some(MemoryLimit { bytes, file, .. }) = memory_limit {
            let limited = store.limit_memory(bytes, file);
            limited.map_err(|error| describe(&error.into(), process_shards))?;
        }
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
            complete_checkpoint,
            requested_checkpoint: 0,
            work_done,
            highest_checkpoint: 0,
            snapshot: None,
            forgot_changes: false,
            waiting: WaitingPushes::default(),
            deferred: VecDeque::new(),
            scanning: None,
            rows: KeyBatch::default(),
            gradients: Vec::new(),
            statistics: ServerStatistics::default(),
            disk_times: DiskTimes::default(),
            process_shards,
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
            self.waiting.forget_changes(|change| is_installed(&self.regions, change));
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
        self.waiting.close(link);
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
        let shards = Shards::new(self.cluster.shards());
        self.cluster.shards() == 1 || keys.iter().all(|key| shards.of(*key) == self.number)
    }

    /// Returns true if a key is of this shard.
    pub(super) fn owns_key(&self, key: u64) -> bool {
        shard_of(key, self.cluster.shards()) == self.number
    }

    /// A worker comes, and says which of its pushes were answered. Of those that this shard does not know, it had to forget (rule L4).
    pub(super) fn on_hello(&mut self, worker: u16, answered: Answered) {
        let last = self.pushed.entry(worker).or_default();
        if answered.newest > last.number {
            let lost = answered.count.saturating_sub(last.count);
            self.statistics.lost_pushes = self.statistics.lost_pushes.saturating_add(lost);
            last.count = last.count.max(answered.count);
        }
    }

    /// Says what the log and switches no longer hold up.
    pub(super) fn answer(&mut self) {
        self.say_held();
        self.answer_waiting();
    }

    /// Sends a reply now, or when the log has all that was written so far (rule L1).
    fn defer(&mut self, deferred: DeferredReply) {
        self.deferred.push_back((self.journal.newest(), deferred));
        self.say_held();
    }

    fn say_held(&mut self) {
        while let Some((_, deferred)) = self.deferred.pop_front_if(|(record, _)| self.journal.has(*record)) {
            self.reply(deferred);
        }
    }

    fn reply(&mut self, deferred: DeferredReply) {
        match deferred {
            DeferredReply::Committed { link, region: number, view_id, positions } => {
                let region = &self.regions[&number];
                if region.ownership.view_id != view_id && !is_enabled(Mutant::FencingIgnored) {
                    return;
                }
                let values = self.values(number, positions);
                self.send_committed(link, number, view_id, values);
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

    /// A switch takes a region over, or comes again: it learns what the shard has of it (rule V4). It says which round it knows to be
    /// committed, and what was in it and all before.
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
            self.forget(number, round, contents)?;
        }
        self.defer(DeferredReply::Adopt { link, switch, region: number, view_id });
        Ok(())
    }

    /// This shard had applied more rounds of a region before it stopped than it has now: their sums are lost. The packets that are in them must not
    /// be added again, as no member has all of them any more (rule L4).
    pub(super) fn forget(
        &mut self,
        number: u8,
        round: u64,
        contents: RoundContents,
    ) -> Result<(), ProtocolViolation> {
        let region = self.regions.get_mut(&number).filter(|region| round > region.committed);
        let region = region.ok_or(ProtocolViolation)?;
        self.statistics.lost_rounds = self.statistics.lost_rounds.saturating_add(round - region.committed);
        (region.committed, region.contents) = (round, contents);
        Ok(())
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

/// Returns true if no owner of a region has to install a change of it any more.
fn is_installed(regions: &BTreeMap<u8, Region>, (number, change): (u8, u64)) -> bool {
    let region = &regions[&number];
    !region.adopted || region.installed >= change
}
