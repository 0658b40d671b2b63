//! The agent beside a data plane: it takes regions over, flips and drains their banks, keeps what it drained until the shard has
//! committed it, and installs the new values.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use libra_dataplane::mutants::{Mutant, is_enabled};
use libra_dataplane::{BankPackets, BodyKey};
use libra_plan::RegionLayout;

use crate::authentication::{Pass, Secret};
use crate::bulk::Bulk;
use crate::cluster::{Cluster, Ownership, Peer, View};
use crate::message::{Adopted, Changed, Committed, Drained, Message, RoundContents, SlotValues};
use crate::region::{self, Round};
use crate::role::Outgoing;
use crate::statistics::SwitchStatistics;
use crate::status::SwitchDetails;
use crate::switch::plane::{Plane, WorkerPath};
use crate::time::Instant;

/// Time in which a shard may commit a round before the switch gives its regions up: another may reach the shard.
const COMMIT_MAX: Duration = Duration::from_secs(2);

/// No round is shorter. Packets carry 16 bits of a round's number, and 2^15 rounds must take longer than anything that
/// carries one can be on its way: a worker that sleeps for as long as it may without being taken for dead finds answers of
/// that age in its socket.
const ROUND_TIME_MIN: Duration = Duration::from_micros(400);

/// State of an agent beside the plane for one of its regions.
#[derive(Debug, Clone)]
struct OwnedRegion {
    shard: u16,
    ownership: Ownership,
    /// True once the shard has sent its contents: before that the plane does not have the region.
    adopted: bool,
    /// The round that takes packets now, counted without wrapping.
    round: u64,
    /// When the active bank took its first packet.
    opened_at: Option<Instant>,
    /// True if the active bank is to be closed as soon as it may be.
    is_due: bool,
    /// True if a round is closed and is still being drained.
    is_draining: bool,
    /// When the newest round was drained.
    drained_at: Instant,
    /// The round that was drained and that the shard has not committed yet (rule E3).
    uncommitted: Option<Arc<Drained>>,
    /// The newest round that the shard has committed, and what was in it and all before.
    committed: (u64, RoundContents),
}

#[derive(Debug, Clone)]
pub(super) struct Agent<P> {
    number: u16,
    cluster: Box<Cluster>,
    layouts: Vec<RegionLayout>,
    pub(super) plane: P,
    owned: BTreeMap<u8, OwnedRegion>,
    /// True if it must take no more pushes.
    retiring: bool,
    /// Number of the order that the plane must have done before it takes none indeed.
    retired_after: u64,
    /// Number of the order that it must have done before this switch acts on the newest view.
    viewed_after: u64,
    /// The workers of the view, as the plane has them.
    workers: BTreeMap<u16, WorkerPath>,
    /// The key of the tags of all of them, in a job with a secret.
    body_key: Option<Arc<BodyKey>>,
    answers: Outgoing,
    outbox: VecDeque<PendingMessage>,
    /// Counts of what the plane does not count.
    statistics: SwitchStatistics,
    /// What its rounds took; its regions are counted when it is asked for.
    details: SwitchDetails,
}

/// A message for a shard.
#[derive(Debug, Clone)]
struct PendingMessage {
    to: u16,
    message: Message,
    /// Number of the order that the plane must have done before it is true.
    after: u64,
}

impl OwnedRegion {
    /// Returns the message that asks the shard for the region, with the state that the shard may have lost (rule L4).
    fn adopt(&self, region: u8) -> Message {
        let (round, contents) = self.committed.clone();
        Message::Adopt { region, view_id: self.ownership.view_id, round, contents }
    }
}

impl<P: Plane> Agent<P> {
    pub(super) fn new(number: u16, cluster: Cluster, mut plane: P) -> Result<Self, String> {
        let plan =
            cluster.plan.as_ref().ok_or("there is no plan of hot rows, so there is nothing to aggregate")?;
        cluster.check_plan()?;
        let placement = cluster.place(plan).map_err(|error| error.to_string())?;
        for layout in placement.regions() {
            plane.check(&region::config(&cluster, plan, layout, Ownership::default()))?;
        }
        let view = cluster.view.clone();
        plane.begin(cluster.job);
        let mut agent = Self {
            number,
            layouts: placement.regions().to_vec(),
            plane,
            owned: BTreeMap::new(),
            retiring: false,
            retired_after: 0,
            viewed_after: 0,
            workers: BTreeMap::new(),
            body_key: cluster.secret.as_ref().map(Secret::body_key),
            answers: Outgoing::default(),
            outbox: VecDeque::new(),
            statistics: SwitchStatistics::default(),
            details: SwitchDetails::default(),
            cluster: Box::new(Cluster { view: View::default(), ..cluster }),
        };
        agent.enter(view);
        Ok(agent)
    }

    /// The evidence for a server that this switch calls.
    pub(super) fn pass(&self, from: Peer, to: u16) -> Pass {
        self.cluster.pass(from, Peer::Server(to))
    }

    /// Tells the plane the workers of a view, and the tags of their packets.
    fn set_workers(&mut self, workers: &BTreeMap<u16, SocketAddr>) {
        let kind = self.cluster.hot_path.tags;
        let secret = self.cluster.secret.as_ref();
        let path = |(&worker, &address): (&u16, &SocketAddr)| {
            // A number is never given twice, so tags stay.
            let known = self.workers.get(&worker).and_then(|known| known.tags.clone());
            let derive = || {
                let body_key = self.body_key.as_ref()?;
                secret?.path_tags(kind, worker, body_key)
            };
            (worker, WorkerPath { address, tags: known.or_else(derive) })
        };
        self.workers = workers.iter().map(path).collect();
        self.plane.set_workers(&self.workers);
    }

    pub(super) fn instance(&self) -> u64 {
        self.cluster.instance
    }

    /// The newest view, if the agent has the values of all regions that are its own in it.
    pub(super) fn viewed(&self) -> Option<u64> {
        let is_viewed = self.has_done(self.viewed_after) && self.owned.values().all(|owned| owned.adopted);
        is_viewed.then_some(self.cluster.view.number)
    }

    fn has_done(&self, asked: u64) -> bool {
        self.plane.progress().done >= asked || is_enabled(Mutant::DoneBeforeDone)
    }

    fn send(&mut self, to: u16, message: Message) {
        self.outbox.push_back(PendingMessage { to, message, after: 0 });
    }

    /// Sends a shard what is true when the plane has done what it was asked until now.
    fn send_when_done(&mut self, to: u16, message: Message) {
        let after = self.plane.progress().asked;
        self.outbox.push_back(PendingMessage { to, message, after });
    }

    /// The next message for a shard, by its number.
    pub(super) fn poll_message(&mut self) -> Option<(u16, Message)> {
        let next = self.outbox.front()?.after;
        if !self.has_done(next) {
            return None;
        }
        self.outbox.pop_front().map(|pending| (pending.to, pending.message))
    }

    /// Lets go the regions that another holds now, and asks the shards for those that are its own (rule V4).
    pub(super) fn enter(&mut self, view: View) {
        if view.number <= self.cluster.view.number {
            return;
        }
        self.set_workers(&view.workers);
        for index in 0..self.layouts.len() {
            let (region, shard) = (self.layouts[index].region, self.layouts[index].shard);
            let ownership = view.ownership(region);
            if self.owned.get(&region).is_some_and(|owned| owned.ownership.view_id == ownership.view_id) {
                continue;
            }
            if self.owned.remove(&region).is_some() {
                self.plane.forget(region);
            }
            if ownership.owner == Some(self.number) {
                self.resume();
                let owned = OwnedRegion {
                    shard,
                    ownership,
                    adopted: false,
                    round: 0,
                    opened_at: None,
                    is_due: false,
                    is_draining: false,
                    drained_at: Instant::ZERO,
                    uncommitted: None,
                    committed: (0, RoundContents::default()),
                };
                self.send(shard, owned.adopt(region));
                self.owned.insert(region, owned);
            }
        }
        self.cluster.view = view;
        self.viewed_after = self.plane.progress().asked;
    }

    /// A stream to a shard is open, for the first time or again: what was sent on the one before may be lost.
    pub(super) fn reconnected(&mut self, shard: u16) {
        self.outbox.retain(|pending| pending.to != shard);
        let owned = self.owned.iter().filter(|(_, owned)| owned.shard == shard);
        let asked: Vec<Message> = owned.map(|(&region, owned)| owned.adopt(region)).collect();
        asked.into_iter().for_each(|message| self.send(shard, message));
    }

    /// Takes no more pushes, and brings everything to the shards (rule V9).
    pub(super) fn retire(&mut self, now: Instant) {
        self.retiring = true;
        self.set_active();
        self.close_rounds(now);
    }

    /// The controller wants it again.
    fn resume(&mut self) {
        self.retiring = false;
        self.set_active();
    }

    fn set_active(&mut self) {
        for (&region, _) in self.owned.iter().filter(|(_, owned)| owned.adopted) {
            self.plane.set_active(region, !self.retiring);
        }
        self.retired_after = self.plane.progress().asked;
    }

    /// Returns true if the shard of a region has not answered for so long, since this switch has a controller, that it has to give up
    /// (rule E8).
    pub(super) fn is_stuck(&self, directed_since: Instant, now: Instant) -> bool {
        let is_late = |owned: &OwnedRegion| owned.drained_at.max(directed_since) + COMMIT_MAX <= now;
        self.owned.values().any(|owned| owned.uncommitted.is_some() && is_late(owned))
    }

    /// Returns true if it retires, and the shards have everything.
    pub(super) fn is_retired(&self) -> bool {
        let is_empty = |(&region, owned): (&u8, &OwnedRegion)| {
            let is_brought = owned.uncommitted.is_none() && !owned.is_draining;
            is_brought && (!owned.adopted || self.plane.taken(region).pushes == 0)
        };
        self.retiring && self.has_done(self.retired_after) && self.owned.iter().all(is_empty)
    }

    pub(super) fn statistics(&self) -> SwitchStatistics {
        let mut statistics = self.statistics;
        statistics += counts(&self.plane.counters());
        statistics.unknown_senders += self.plane.unknown_senders();
        statistics.memory_bytes = self.plane.memory_bytes();
        let uncommitted = self.owned.values().filter_map(|owned| owned.uncommitted.as_ref());
        statistics.queue_bytes = uncommitted.map(|drained| 4 * drained.sums.0.len() as u64).sum();
        statistics
    }

    pub(super) fn details(&self) -> SwitchDetails {
        SwitchDetails { regions: self.owned.len() as u64, ..self.details.clone() }
    }

    pub(super) fn job(&self) -> u16 {
        self.cluster.job
    }

    pub(super) fn handle_datagrams(
        &mut self,
        now: Instant,
        from: SocketAddr,
        datagrams: &mut [u8],
        stride: usize,
    ) {
        self.plane.handle_datagrams(from, datagrams, stride, &mut self.answers);
        self.close_rounds(now);
    }

    /// Closes the rounds that are full or old enough, of regions whose last round is committed (rule E1).
    pub(super) fn close_rounds(&mut self, now: Instant) {
        self.plane.clear_wakeups();
        while let Some((region, round)) = self.plane.drained() {
            self.bring(now, region, round);
        }
        let due = self.due();
        let mut closed = Vec::new();
        for (&number, owned) in self.owned.iter_mut().filter(|(_, owned)| owned.adopted && !owned.is_draining)
        {
            let taken = self.plane.taken(number);
            if taken.pushes == 0 {
                continue;
            }
            let opened_at = *owned.opened_at.get_or_insert(now);
            let is_old = opened_at + self.cluster.hot_path.round_time_max <= now;
            let (is_complete, is_full) = (taken.last >= due.last, taken.pushes >= due.pushes);
            owned.is_due = self.retiring || is_complete || is_full || is_old;
            if !owned.is_due || owned.uncommitted.is_some() || now < owned.drained_at + ROUND_TIME_MIN {
                continue;
            }
            owned.is_draining = true;
            let details = &mut self.details;
            details.round.record(now.since(opened_at));
            *if self.retiring {
                &mut details.rounds_retiring
            } else if is_complete {
                &mut details.rounds_pushes
            } else if is_full {
                &mut details.rounds_full
            } else {
                &mut details.rounds_time
            } += 1;
            closed.extend(self.plane.close_round(number).map(|round| (number, round)));
        }
        if self.plane.failure().is_some() {
            // Its round is worth nothing: this switch gives up, and others replay.
            return;
        }
        for (region, round) in closed {
            self.bring(now, region, round);
        }
    }

    /// Brings a round that was drained to its shard, and keeps it until that has committed it (rule E3).
    fn bring(&mut self, now: Instant, region: u8, round: Round) {
        let owned = self.owned.get_mut(&region).expect("a plane hands out rounds of regions that are open");
        let Round { contents, slots, sums } = round;
        self.statistics.rounds += 1;
        self.statistics.slots_drained += sums.len() as u64;
        let view_id = owned.ownership.view_id;
        let drained =
            Arc::new(Drained { region, view_id, round: owned.round, contents, slots, sums: Bulk(sums) });
        owned.round += 1;
        owned.opened_at = None;
        owned.is_due = false;
        owned.is_draining = false;
        owned.drained_at = now;
        owned.uncommitted = Some(Arc::clone(&drained));
        let shard = owned.shard;
        self.send(shard, Message::Drained(drained));
    }

    /// Returns the bound of a bank after which its round is closed (rule E1).
    fn due(&self) -> BankPackets {
        let plan = self.cluster.plan.as_ref().expect("an agent is made for a plan");
        // A worker stands still when a flow keeps all that it may (rule T2), and it keeps packets of two rounds: the one that is
        // being committed, and this one. All packets of a bank may be of one flow. What many workers push is closed earlier
        // than it must be, but in plans of the usual headroom half of a bank is less, and to count flows is not needed.
        let hot_path = &self.cluster.hot_path;
        let packets = plan.pushes_per_bank_max().min(hot_path.undurable_max()) / 2;
        BankPackets { pushes: packets, last: hot_path.pushes_per_round }
    }

    /// The shard sends the contents of a region: the first time it is opened, later (the stream broke) it is brought up to date.
    pub(super) fn handle_adopted(&mut self, now: Instant, adopted: &Adopted) {
        if !self.is_expected(adopted.region, adopted.view_id, &adopted.values) {
            return;
        }
        let Adopted { region: number, view_id, round, change, .. } = *adopted;
        if round >> 63 != 0 {
            self.statistics.malformed += 1;
            return;
        }
        let due = self.due();
        let owned = self.owned.get_mut(&number).expect("is_expected has looked it up");
        let shard = owned.shard;
        if owned.adopted {
            let again = owned.uncommitted.clone().filter(|drained| drained.round > round);
            if let Some(drained) = again {
                self.send(shard, Message::Drained(drained));
            }
        } else {
            owned.adopted = true;
            owned.round = round + 1;
            owned.committed = (round, adopted.contents.clone());
            let plan = self.cluster.plan.as_ref().expect("an agent is made for a plan");
            let layout = &self.layouts[usize::from(number)];
            let config = region::config(&self.cluster, plan, layout, owned.ownership);
            self.plane.open(config, region::on_wire(round), &adopted.contents, due);
        }
        self.install(number, &adopted.values);
        self.settle(now, number, round);
        self.send_when_done(shard, Message::Installed { region: number, view_id, change });
        self.viewed_after = self.plane.progress().asked;
    }

    /// The shard has applied a round.
    pub(super) fn handle_committed(&mut self, now: Instant, committed: &Committed) {
        if self.is_expected(committed.region, committed.view_id, &committed.values) {
            self.install(committed.region, &committed.values);
            self.settle(now, committed.region, committed.round);
        }
    }

    /// Rows have changed by the cold path.
    pub(super) fn handle_changed(&mut self, changed: &Changed) {
        if self.is_expected(changed.region, changed.view_id, &changed.values) {
            let Changed { region, view_id, change, .. } = *changed;
            self.install(region, &changed.values);
            let shard = self.owned[&region].shard;
            self.send_when_done(shard, Message::Installed { region, view_id, change });
        }
    }

    /// Returns true if a message of a shard fits the present state: a region as it is held, values for slots that exist.
    fn is_expected(&mut self, region: u8, view_id: u64, values: &SlotValues) -> bool {
        let Some(layout) = self.layouts.get(usize::from(region)) else {
            self.statistics.malformed += 1;
            return false;
        };
        let ends = values.slots.iter().map(|&(first, count)| u32::from(first) + u32::from(count));
        let count: usize = values.slots.iter().map(|&(_, count)| usize::from(count)).sum();
        let sound =
            ends.max().is_none_or(|end| end <= u32::from(layout.slots)) && count == values.values.0.len();
        self.statistics.malformed += u64::from(!sound);
        sound && self.owned.get(&region).is_some_and(|owned| owned.ownership.view_id == view_id)
    }

    /// Rounds up to this one are committed and their values installed (rule E7).
    fn settle(&mut self, now: Instant, number: u8, round: u64) {
        let owned = self.owned.get_mut(&number).expect("the caller has looked it up");
        if !owned.adopted {
            return;
        }
        if round >= owned.round {
            self.statistics.malformed += 1;
            return;
        }
        if let Some(drained) = owned.uncommitted.take_if(|drained| drained.round <= round) {
            self.details.commit.record(now.since(owned.drained_at));
            owned.committed.0 = drained.round;
            owned.committed.1.advance(Arc::unwrap_or_clone(drained).contents);
        }
        self.plane.settle(number, region::on_wire(round));
        self.plane.set_active(number, !self.retiring);
        self.close_rounds(now);
    }

    fn install(&mut self, region: u8, values: &SlotValues) {
        let is_open = self.owned.get(&region).is_some_and(|owned| owned.adopted);
        if is_open && !is_enabled(Mutant::StandbyStartsEmpty) {
            self.plane.install(region, values);
        }
    }

    pub(super) fn take_answers(&mut self, outgoing: &mut Outgoing) {
        outgoing.append(&mut self.answers);
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let closing = |owned: &OwnedRegion| {
            let opened_at = owned.opened_at.filter(|_| owned.uncommitted.is_none() && !owned.is_draining)?;
            let longest = opened_at + self.cluster.hot_path.round_time_max;
            let shortest = owned.drained_at + ROUND_TIME_MIN;
            Some(if owned.is_due { shortest } else { longest.max(shortest) })
        };
        self.owned.values().filter_map(closing).min()
    }
}

/// Converts the counters of a plane to those of a switch.
fn counts(counters: &libra_dataplane::Counters) -> SwitchStatistics {
    SwitchStatistics {
        packets: counters.packets - counters.installs,
        pushes: counters.pushes,
        pulls: counters.pulls,
        duplicates: counters.duplicates,
        retransmits: counters.retransmits,
        refused: counters.refused(),
        malformed: counters.dropped() - counters.forged - counters.stale,
        forged: counters.forged,
        stale: counters.stale,
        ..SwitchStatistics::default()
    }
}

#[cfg(test)]
mod tests;
