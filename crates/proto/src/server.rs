//! The server: it owns one shard of the rows, and applies what workers and switches send.

use core::net::SocketAddr;
use std::collections::{BTreeMap, VecDeque};

use libra_plan::{Placement, RegionLayout, Scale, shard_of};
use libra_store::Store;

use crate::bulk::Bulk;
use crate::cluster::{ArithmeticMode, Cluster, Peer};
use crate::membership::{Membership, MembershipEvent};
use crate::message::{ColdPush, Committed, Cut, Drained, Kind, Message, SlotRun};
use crate::role::{Action, Link, LinkEvent, Outgoing, Role};
use crate::statistics::{ServerStatistics, Statistics};
use crate::time::Instant;

/// What a server or switch tells its user.
#[derive(Debug, Clone, PartialEq)]
pub enum MemberEvent {
    /// The cluster is complete, this is the member's place in it.
    Started {
        /// The place.
        you: Peer,
    },
    /// The job is done.
    Finished(Statistics),
    /// The job ended before it was done.
    Ended {
        /// Who ended it and why.
        reason: String,
    },
}

/// A server as a state machine without I/O.
#[derive(Debug)]
pub struct Server {
    membership: Membership,
    shard: Option<Shard>,
    callers: BTreeMap<Link, Peer>,
    actions: VecDeque<Action>,
    events: VecDeque<MemberEvent>,
    /// Messages that made no sense.
    dropped: u64,
}

#[derive(Debug)]
struct Shard {
    number: u16,
    cluster: Box<Cluster>,
    store: Store,
    placement: Option<Placement>,
    regions: BTreeMap<u8, Region>,
    /// For each worker the number of its last push that was applied. Streams keep the order.
    pushed: BTreeMap<u16, u64>,
    row: Vec<f32>,
    statistics: ServerStatistics,
}

/// The shard's end of one region of a switch.
#[derive(Debug)]
struct Region {
    layout: RegionLayout,
    /// The newest epoch that is applied, and what was in it and all before it.
    committed: u64,
    cut: Cut,
    /// Rows (by position in the layout) that the cold path has changed since the last commit: the switch must hear of them.
    stale: Vec<usize>,
}

impl Server {
    /// A server that will join the cluster of a controller, and that accepts streams at `stream`.
    pub fn new(controller: SocketAddr, stream: SocketAddr) -> Self {
        Self {
            membership: Membership::new(controller, Kind::Server, Some(stream), None, 0),
            shard: None,
            callers: BTreeMap::new(),
            actions: VecDeque::new(),
            events: VecDeque::new(),
            dropped: 0,
        }
    }

    fn handle_membership(&mut self, now: Instant, event: MembershipEvent) {
        match event {
            MembershipEvent::Started { you: Peer::Server(number), cluster } if self.shard.is_none() => {
                match Shard::new(number, cluster) {
                    Ok(shard) => {
                        self.shard = Some(shard);
                        self.membership.send(Message::Ready);
                        self.events.push_back(MemberEvent::Started { you: Peer::Server(number) });
                    }
                    Err(reason) => self.membership.abort(&format!("server {number}: {reason}")),
                }
            }
            MembershipEvent::Started { .. } | MembershipEvent::Released { .. } => self.dropped += 1,
            MembershipEvent::Finish => {
                let statistics = Statistics::Server(self.statistics());
                self.membership.heartbeat(now, statistics);
                self.events.push_back(MemberEvent::Finished(statistics));
            }
            MembershipEvent::Ended { reason } => self.events.push_back(MemberEvent::Ended { reason }),
        }
    }

    fn statistics(&self) -> ServerStatistics {
        let mut statistics = ServerStatistics::default();
        if let Some(shard) = &self.shard {
            statistics = shard.statistics;
            statistics.rows = shard.store.rows() as u64;
        }
        statistics.dropped += self.dropped;
        statistics
    }

    fn handle_hello(&mut self, link: Link, job: u16, from: Peer) {
        let Some(shard) = self.shard.as_ref().filter(|shard| shard.cluster.job == job) else {
            self.dropped += 1;
            self.actions.push_back(Action::Close { link });
            return;
        };
        self.callers.insert(link, from);
        if let Peer::Switch(switch) = from {
            let actions = &mut self.actions;
            let own = shard
                .regions
                .values()
                .filter(|region| shard.cluster.switch_of(region.layout.region) == switch);
            actions.extend(
                own.map(|region| Action::Send {
                    link,
                    message: Message::Committed(shard.install_all(region)),
                }),
            );
        }
    }
}

impl Role for Server {
    type Command = core::convert::Infallible;
    type Event = MemberEvent;

    fn handle_start(&mut self, _now: Instant) {
        self.membership.handle_start();
    }

    fn handle_datagrams(&mut self, _now: Instant, _from: SocketAddr, _datagrams: &mut [u8], _stride: usize) {
        self.dropped += 1;
    }

    fn handle_link(&mut self, now: Instant, link: Link, event: LinkEvent) {
        if Membership::is_controller(link) {
            if let Some(event) = self.membership.handle_link(now, event) {
                self.handle_membership(now, event);
            }
        } else if let LinkEvent::Closed { .. } = event {
            // Whose end it was is for the controller to judge: it has a stream to the same process.
            self.callers.remove(&link);
        }
    }

    fn handle_message(&mut self, now: Instant, link: Link, message: Message) {
        if Membership::is_controller(link) {
            if let Some(event) = self.membership.handle_message(message) {
                self.handle_membership(now, event);
            }
            return;
        }
        if let Message::Hello { job, from } = message {
            return self.handle_hello(link, job, from);
        }
        let answer = match (&mut self.shard, self.callers.get(&link), message) {
            (Some(shard), Some(Peer::Worker(worker)), Message::Push(push)) => shard.push(*worker, &push),
            (Some(shard), Some(Peer::Worker(_)), Message::Pull { number, keys }) => {
                shard.pull(number, &keys.0)
            }
            (Some(shard), Some(Peer::Switch(switch)), Message::Drained(drained))
                if shard.cluster.switch_of(drained.region) == *switch =>
            {
                shard.commit(drained)
            }
            _ => None,
        };
        match answer {
            Some(message) => self.actions.push_back(Action::Send { link, message }),
            None => {
                self.dropped += 1;
                self.actions.push_back(Action::Close { link });
            }
        }
    }

    fn handle_socket_failure(&mut self, _now: Instant, _reason: &str) {}

    fn handle_command(&mut self, _now: Instant, command: Self::Command) {
        match command {}
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.membership.is_heartbeat_due(now) {
            self.membership.heartbeat(now, Statistics::Server(self.statistics()));
        }
    }

    fn poll_transmit(&mut self, _now: Instant, _outgoing: &mut Outgoing) {}

    fn poll_action(&mut self) -> Option<Action> {
        self.membership.poll_action().or_else(|| self.actions.pop_front())
    }

    fn poll_event(&mut self) -> Option<MemberEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.membership.poll_timeout()
    }
}

impl Shard {
    fn new(number: u16, cluster: Box<Cluster>) -> Result<Self, String> {
        let store = Store::new(cluster.tables.clone(), cluster.seed).map_err(|error| error.to_string())?;
        cluster.check_plan()?;
        let placed = cluster.plan_in_use().map(|plan| Placement::new(plan, cluster.shards())).transpose();
        let placement = placed.map_err(|error| error.to_string())?;
        let layouts = placement.iter().flat_map(|placement| placement.regions_of(number));
        let region = |layout: &RegionLayout| Region {
            layout: layout.clone(),
            committed: 0,
            cut: Cut::default(),
            stale: Vec::new(),
        };
        let regions = layouts.map(|layout| (layout.region, region(layout))).collect();
        let row = vec![0.0; cluster.tables.iter().map(|table| table.width).max().unwrap_or(0)];
        let (pushed, statistics) = (BTreeMap::new(), ServerStatistics::default());
        Ok(Self { number, cluster, store, placement, regions, pushed, row, statistics })
    }

    /// The width of a row that this shard owns.
    fn own_width(&self, key: u64) -> Option<usize> {
        let own = shard_of(key, self.cluster.shards()) == self.number;
        self.store.width(key).filter(|_| own)
    }

    /// Applies a push once. `None` if it makes no sense; then nothing of it is applied.
    fn push(&mut self, worker: u16, push: &ColdPush) -> Option<Message> {
        let mut values = 0;
        for &key in &push.keys.0 {
            values += self.own_width(key)?;
        }
        if values != push.gradients.0.len() || !push.gradients.0.iter().all(|value| value.is_finite()) {
            return None;
        }
        let last = self.pushed.entry(worker).or_default();
        if push.number > *last {
            *last = push.number;
            self.apply(push);
        } else {
            self.statistics.duplicates += 1;
        }
        let values = if push.answer { self.read(&push.keys.0)? } else { Vec::new() };
        Some(Message::Pushed { number: push.number, values: Bulk(values) })
    }

    fn apply(&mut self, push: &ColdPush) {
        let mut rest = push.gradients.0.as_slice();
        for &key in &push.keys.0 {
            let width = self.store.width(key).expect("push has looked the key up");
            let (gradient, later) = rest.split_at(width);
            rest = later;
            self.store.update(key, gradient).expect("push has checked the key and the width");
            self.note_stale(key);
        }
        self.statistics.row_updates += push.keys.0.len() as u64;
    }

    /// A hot row that came the cold way has a new value that its switch does not know.
    fn note_stale(&mut self, key: u64) {
        let Some(place) = self.placement.as_ref().and_then(|placement| placement.find(key)) else { return };
        let region =
            self.regions.get_mut(&place.region).expect("own_width has seen that the row is this shard's");
        let position = region.layout.row_index_at(place.slot).expect("a placed row lies in its region");
        region.stale.push(position);
    }

    fn pull(&mut self, number: u64, keys: &[u64]) -> Option<Message> {
        let values = self.read(keys)?;
        self.statistics.row_reads += keys.len() as u64;
        Some(Message::Pulled { number, values: Bulk(values) })
    }

    fn read(&self, keys: &[u64]) -> Option<Vec<f32>> {
        let mut values = Vec::new();
        for &key in keys {
            let start = values.len();
            values.resize(start + self.own_width(key)?, 0.0);
            self.store.read(key, &mut values[start..]).expect("the key and the width were just looked up");
        }
        Some(values)
    }

    /// Applies an epoch once. `None` if it makes no sense; then nothing of it is applied.
    fn commit(&mut self, drained: Drained) -> Option<Message> {
        let arithmetic = self.cluster.hot_path.arithmetic;
        let region = self.regions.get_mut(&drained.region)?;
        let touched = region.touched_rows(&drained.slots, drained.sums.0.len())?;
        if drained.epoch <= region.committed {
            self.statistics.duplicates += 1;
        } else if drained.epoch == region.committed + 1 {
            for &(position, start) in &touched {
                let row = region.layout.rows[position];
                let width = row.width as usize;
                let sums = &drained.sums.0[start..start + width];
                if sums.iter().all(|&sum| sum == 0) {
                    continue;
                }
                let gradient = &mut self.row[..width];
                gradient_of(sums, row.scale, arithmetic, gradient);
                self.store
                    .update(row.key, gradient)
                    .expect("a placed row belongs to a table, with this width");
                self.statistics.row_updates += 1;
                self.statistics.row_updates_hot += 1;
            }
            region.committed = drained.epoch;
            region.cut = drained.cut;
            self.statistics.epochs += 1;
        } else {
            return None;
        }
        let mut positions: Vec<usize> = touched.iter().map(|&(position, _)| position).collect();
        positions.append(&mut region.stale);
        positions.sort_unstable();
        positions.dedup();
        let region = &self.regions[&drained.region];
        Some(Message::Committed(self.install(region, positions)))
    }

    fn install_all(&self, region: &Region) -> Committed {
        self.install(region, 0..region.layout.rows.len())
    }

    /// The present values of rows of a region, by their position in its layout, ascending.
    fn install(&self, region: &Region, positions: impl IntoIterator<Item = usize>) -> Committed {
        let mut slots: Vec<SlotRun> = Vec::new();
        let mut values = Vec::new();
        let mut row_values = self.row.clone();
        for position in positions {
            let row = region.layout.rows[position];
            let width = u16::try_from(row.width).expect("a hot row fits a region");
            let row_values = &mut row_values[..usize::from(width)];
            self.store.read(row.key, row_values).expect("a placed row belongs to a table, with this width");
            values.extend(row_values.iter().map(|value| value.to_bits()));
            match slots.last_mut() {
                Some((first, count)) if *first + *count == row.slot => *count += width,
                _ => slots.push((row.slot, width)),
            }
        }
        Committed { region: region.layout.region, epoch: region.committed, slots, values: Bulk(values) }
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

/// The gradient that the slots of a row hold.
fn gradient_of(sums: &[u32], scale: Scale, arithmetic: ArithmeticMode, gradient: &mut [f32]) {
    for (value, &sum) in gradient.iter_mut().zip(sums) {
        *value = match arithmetic {
            ArithmeticMode::Fixed => scale.dequantize(sum.cast_signed()),
            ArithmeticMode::F32 => f32::from_bits(sum),
        };
    }
}
