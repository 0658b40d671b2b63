//! The agent beside a data plane: it takes regions over, flips and drains their banks, keeps what it drained until the shard has
//! committed it, and installs the new values.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use libra_dataplane::BankPackets;
use libra_dataplane::planted::{PlantedBug, is_planted};
use libra_plan::RegionLayout;

use crate::bulk::Bulk;
use crate::cluster::{Cluster, Tenure, View};
use crate::message::{Adopted, Changed, Committed, Cut, Drained, Message, SlotValues};
use crate::region::{self, Epoch};
use crate::role::Outgoing;
use crate::statistics::SwitchStatistics;
use crate::switch::plane::Plane;
use crate::time::Instant;

/// Time in which a shard may commit a round before the switch gives its regions up: another may reach the shard.
const COMMIT_MAX: Duration = Duration::from_secs(2);

/// No epoch is shorter. Packets carry 16 bits of an epoch's number, and 2^15 epochs must take longer than anything that
/// carries one can be on its way: a worker that sleeps for as long as it may without being taken for dead finds answers of
/// that age in its socket.
const EPOCH_TIME_MIN: Duration = Duration::from_micros(400);

/// State of an agent beside the plane for one of its regions.
#[derive(Debug, Clone)]
struct Held {
    shard: u16,
    tenure: Tenure,
    /// True once the shard has sent its contents: before that the plane does not have the region.
    adopted: bool,
    /// The epoch that takes packets now, counted without wrapping.
    epoch: u64,
    /// When the active bank took its first packet.
    opened_at: Option<Instant>,
    /// True if the active bank is to be closed as soon as it may be.
    is_due: bool,
    /// True if a round is closed and is still being drained.
    is_draining: bool,
    /// When the newest epoch was drained.
    drained_at: Instant,
    /// The epoch that was drained and that the shard has not committed yet (rule E3).
    uncommitted: Option<Drained>,
    /// The newest epoch that the shard has committed, and what was in it and all before.
    committed: (u64, Cut),
}

#[derive(Debug, Clone)]
pub(super) struct Agent<P> {
    number: u16,
    cluster: Box<Cluster>,
    layouts: Vec<RegionLayout>,
    pub(super) plane: P,
    held: BTreeMap<u8, Held>,
    /// True if it must take no more pushes.
    retiring: bool,
    /// Number of the order that the plane must have done before it takes none indeed.
    retired_after: u64,
    /// Number of the order that it must have done before this switch acts on the newest view.
    viewed_after: u64,
    answers: Outgoing,
    outbox: VecDeque<Letter>,
    /// Counts of what the plane does not count.
    statistics: SwitchStatistics,
}

/// A message for a shard.
#[derive(Debug, Clone)]
struct Letter {
    to: u16,
    message: Message,
    /// Number of the order that the plane must have done before it is true.
    after: u64,
}

impl Held {
    /// Returns the message that asks the shard for the region, with the state that the shard may have lost (rule L4).
    fn adopt(&self, region: u8) -> Message {
        let (epoch, cut) = self.committed.clone();
        Message::Adopt { region, since: self.tenure.since, epoch, cut }
    }
}

impl<P: Plane> Agent<P> {
    pub(super) fn new(number: u16, cluster: Cluster, mut plane: P) -> Result<Self, String> {
        let plan =
            cluster.plan.as_ref().ok_or("there is no plan of hot rows, so there is nothing to aggregate")?;
        cluster.check_plan()?;
        let placement = cluster.place(plan).map_err(|error| error.to_string())?;
        for layout in placement.regions() {
            plane.check(&region::config(&cluster, plan, layout, Tenure::default()))?;
        }
        let view = cluster.view.clone();
        plane.begin(cluster.job);
        let mut agent = Self {
            number,
            layouts: placement.regions().to_vec(),
            plane,
            held: BTreeMap::new(),
            retiring: false,
            retired_after: 0,
            viewed_after: 0,
            answers: Outgoing::default(),
            outbox: VecDeque::new(),
            statistics: SwitchStatistics::default(),
            cluster: Box::new(Cluster { view: View::default(), ..cluster }),
        };
        agent.enter(view);
        Ok(agent)
    }

    pub(super) fn instance(&self) -> u64 {
        self.cluster.instance
    }

    /// The newest view, if the agent has the values of all regions that are its own in it.
    pub(super) fn viewed(&self) -> Option<u64> {
        let is_viewed = self.has_done(self.viewed_after) && self.held.values().all(|held| held.adopted);
        is_viewed.then_some(self.cluster.view.number)
    }

    fn has_done(&self, asked: u64) -> bool {
        self.plane.progress().done >= asked || is_planted(PlantedBug::DoneBeforeDone)
    }

    fn send(&mut self, to: u16, message: Message) {
        self.outbox.push_back(Letter { to, message, after: 0 });
    }

    /// Sends a shard what is true when the plane has done what it was asked until now.
    fn send_when_done(&mut self, to: u16, message: Message) {
        let after = self.plane.progress().asked;
        self.outbox.push_back(Letter { to, message, after });
    }

    /// The next message for a shard, by its number.
    pub(super) fn poll_message(&mut self) -> Option<(u16, Message)> {
        let next = self.outbox.front()?.after;
        if !self.has_done(next) {
            return None;
        }
        self.outbox.pop_front().map(|letter| (letter.to, letter.message))
    }

    /// Lets go the regions that another holds now, and asks the shards for those that are its own (rule V4).
    pub(super) fn enter(&mut self, view: View) {
        if view.number <= self.cluster.view.number {
            return;
        }
        self.plane.set_workers(&view.workers);
        for index in 0..self.layouts.len() {
            let (region, shard) = (self.layouts[index].region, self.layouts[index].shard);
            let tenure = view.tenure(region);
            if self.held.get(&region).is_some_and(|held| held.tenure.since == tenure.since) {
                continue;
            }
            if self.held.remove(&region).is_some() {
                self.plane.forget(region);
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
                    is_draining: false,
                    drained_at: Instant::ZERO,
                    uncommitted: None,
                    committed: (0, Cut::default()),
                };
                self.send(shard, held.adopt(region));
                self.held.insert(region, held);
            }
        }
        self.cluster.view = view;
        self.viewed_after = self.plane.progress().asked;
    }

    /// A stream to a shard is open, for the first time or again: what was sent on the one before may be lost.
    pub(super) fn reconnected(&mut self, shard: u16) {
        self.outbox.retain(|letter| letter.to != shard);
        let held = self.held.iter().filter(|(_, held)| held.shard == shard);
        let asked: Vec<Message> = held.map(|(&region, held)| held.adopt(region)).collect();
        asked.into_iter().for_each(|message| self.send(shard, message));
    }

    /// Takes no more pushes, and brings everything to the shards (rule V9).
    pub(super) fn retire(&mut self, now: Instant) {
        self.retiring = true;
        self.set_active();
        self.close_epochs(now);
    }

    /// The controller wants it again.
    fn resume(&mut self) {
        self.retiring = false;
        self.set_active();
    }

    fn set_active(&mut self) {
        for (&region, _) in self.held.iter().filter(|(_, held)| held.adopted) {
            self.plane.set_active(region, !self.retiring);
        }
        self.retired_after = self.plane.progress().asked;
    }

    /// Returns true if the shard of a region has not answered for so long that this switch has to give up.
    pub(super) fn is_stuck(&self, now: Instant) -> bool {
        self.held.values().any(|held| held.uncommitted.is_some() && held.drained_at + COMMIT_MAX <= now)
    }

    /// Returns true if it retires, and the shards have everything.
    pub(super) fn is_retired(&self) -> bool {
        let is_empty = |(&region, held): (&u8, &Held)| {
            let is_brought = held.uncommitted.is_none() && !held.is_draining;
            is_brought && (!held.adopted || self.plane.taken(region).pushes == 0)
        };
        self.retiring && self.has_done(self.retired_after) && self.held.iter().all(is_empty)
    }

    pub(super) fn statistics(&self) -> SwitchStatistics {
        let mut statistics = self.statistics;
        statistics += counts(&self.plane.counters());
        statistics.unknown_senders += self.plane.unknown_senders();
        statistics.memory_bytes = self.plane.memory_bytes();
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
        self.plane.handle_datagrams(from, datagrams, stride, &mut self.answers);
        self.close_epochs(now);
    }

    /// Closes the epochs that are full or old enough, of regions whose last epoch is committed (rule E1).
    pub(super) fn close_epochs(&mut self, now: Instant) {
        self.plane.awake();
        while let Some((region, epoch)) = self.plane.drained() {
            self.bring(now, region, epoch);
        }
        let due = self.due();
        let mut closed = Vec::new();
        for (&number, held) in self.held.iter_mut().filter(|(_, held)| held.adopted && !held.is_draining) {
            let taken = self.plane.taken(number);
            if taken.pushes == 0 {
                continue;
            }
            let opened_at = *held.opened_at.get_or_insert(now);
            held.is_due = self.retiring
                || taken.last >= due.last
                || taken.pushes >= due.pushes
                || opened_at + self.cluster.hot_path.epoch_time_max <= now;
            if !held.is_due || held.uncommitted.is_some() || now < held.drained_at + EPOCH_TIME_MIN {
                continue;
            }
            held.is_draining = true;
            closed.extend(self.plane.close_epoch(number).map(|epoch| (number, epoch)));
        }
        if self.plane.failure().is_some() {
            // Its round is worth nothing: this switch gives up, and others replay.
            return;
        }
        for (region, epoch) in closed {
            self.bring(now, region, epoch);
        }
    }

    /// Brings an epoch that was drained to its shard, and keeps it until that has committed it (rule E3).
    fn bring(&mut self, now: Instant, region: u8, epoch: Epoch) {
        let held = self.held.get_mut(&region).expect("a plane hands out epochs of regions that are open");
        let Epoch { cut, slots, sums } = epoch;
        self.statistics.epochs += 1;
        self.statistics.slots_drained += sums.len() as u64;
        let since = held.tenure.since;
        let drained = Drained { region, since, epoch: held.epoch, cut, slots, sums: Bulk(sums) };
        held.epoch += 1;
        held.opened_at = None;
        held.is_due = false;
        held.is_draining = false;
        held.drained_at = now;
        held.uncommitted = Some(drained.clone());
        let shard = held.shard;
        self.send(shard, Message::Drained(drained));
    }

    /// Returns the bound of a bank after which its round is closed (rule E1).
    fn due(&self) -> BankPackets {
        let plan = self.cluster.plan.as_ref().expect("an agent is made for a plan");
        // A worker stands still when a flow keeps all that it may (rule T2), and it keeps packets of two epochs: the one that is
        // being committed, and this one. All packets of a bank may be of one flow. What many workers push is closed earlier
        // than it must be, but in plans of the usual headroom half of a bank is less, and to count flows is not needed.
        let hot_path = &self.cluster.hot_path;
        let packets = plan.pushes_per_bank_max().min(hot_path.undurable_max()) / 2;
        BankPackets { pushes: packets, last: hot_path.pushes_per_epoch }
    }

    /// The shard sends the contents of a region: the first time it is opened, later (the stream broke) it is brought up to date.
    pub(super) fn handle_adopted(&mut self, now: Instant, adopted: &Adopted) {
        if !self.is_expected(adopted.region, adopted.since, &adopted.values) {
            return;
        }
        let Adopted { region: number, since, epoch, change, .. } = *adopted;
        if epoch >> 63 != 0 {
            self.statistics.malformed += 1;
            return;
        }
        let due = self.due();
        let held = self.held.get_mut(&number).expect("is_expected has looked it up");
        let shard = held.shard;
        if held.adopted {
            let again = held.uncommitted.clone().filter(|drained| drained.epoch > epoch);
            if let Some(drained) = again {
                self.send(shard, Message::Drained(drained));
            }
        } else {
            held.adopted = true;
            held.epoch = epoch + 1;
            held.committed = (epoch, adopted.cut.clone());
            let plan = self.cluster.plan.as_ref().expect("an agent is made for a plan");
            let layout = &self.layouts[usize::from(number)];
            let config = region::config(&self.cluster, plan, layout, held.tenure);
            self.plane.open(config, region::on_wire(epoch), &adopted.cut, due);
        }
        self.install(number, &adopted.values);
        self.settle(now, number, epoch);
        self.send_when_done(shard, Message::Installed { region: number, since, change });
        self.viewed_after = self.plane.progress().asked;
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
            self.send_when_done(shard, Message::Installed { region, since, change });
        }
    }

    /// Returns true if a message of a shard fits the present state: a region as it is held, values for slots that exist.
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
        if !held.adopted {
            return;
        }
        if epoch >= held.epoch {
            self.statistics.malformed += 1;
            return;
        }
        if let Some(drained) = held.uncommitted.take_if(|drained| drained.epoch <= epoch) {
            held.committed.0 = drained.epoch;
            held.committed.1.advance(drained.cut);
        }
        self.plane.settle(number, region::on_wire(epoch));
        self.plane.set_active(number, !self.retiring);
        self.close_epochs(now);
    }

    fn install(&mut self, region: u8, values: &SlotValues) {
        let is_open = self.held.get(&region).is_some_and(|held| held.adopted);
        if is_open && !is_planted(PlantedBug::StandbyStartsEmpty) {
            self.plane.install(region, values);
        }
    }

    pub(super) fn take_answers(&mut self, outgoing: &mut Outgoing) {
        outgoing.append(&mut self.answers);
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let closing = |held: &Held| {
            let opened_at = held.opened_at.filter(|_| held.uncommitted.is_none() && !held.is_draining)?;
            let longest = opened_at + self.cluster.hot_path.epoch_time_max;
            let shortest = held.drained_at + EPOCH_TIME_MIN;
            Some(if held.is_due { shortest } else { longest.max(shortest) })
        };
        self.held.values().filter_map(closing).min()
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
        malformed: counters.dropped(),
        ..SwitchStatistics::default()
    }
}

#[cfg(test)]
mod tests;
