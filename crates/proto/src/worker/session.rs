//! A worker that has its place in a cluster: its operations, and the clients that carry them out.

use std::collections::{BTreeSet, VecDeque};

use core::net::SocketAddr;

use libra_dataplane::Packet;
use libra_plan::{Placement, PlacementError};

use super::WorkerEvent;
use super::cold::ColdClient;
use super::hot::HotClient;
use super::operations::{Level, Operation, Operations};
use super::rows::{ColdRow, Directory, HotRow};
use crate::client::{PullId, Pulled};
use crate::cluster::Cluster;
use crate::message::Message;
use crate::role::{Link, Outgoing};
use crate::statistics::WorkerStatistics;
use crate::time::Instant;
use crate::transport::flow::Cargo;
use crate::transport::path::{Delivery, Path};

/// Waits until pushes are visible.
#[derive(Debug)]
struct VisibilityWait {
    /// What to say then.
    event: WorkerEvent,
    /// Pushes that must be acknowledged.
    pushes: BTreeSet<u64>,
    /// For each path the points before which every push must be durable.
    frontiers: Vec<Vec<(u8, u32)>>,
}

#[derive(Debug)]
pub(super) struct Session {
    pub(super) cluster: Box<Cluster>,
    directory: Directory,
    hot: Option<HotClient>,
    cold: ColdClient,
    operations: Operations,
    /// Pushes that are not acknowledged in full.
    open_pushes: BTreeSet<u64>,
    visibility_waits: Vec<VisibilityWait>,
    deliveries: Vec<Taken>,
    statistics: WorkerStatistics,
    pub(super) events: VecDeque<WorkerEvent>,
    pub(super) messages: VecDeque<(Link, Message)>,
}

/// What is left to do with a delivery once the path that made it is free again.
#[derive(Debug)]
enum Taken {
    Answered(u64),
    Unreadable(Cargo),
}

/// What a push asks for beside being applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PushAnswer {
    Level(Level),
    Values,
}

impl Session {
    /// `links` are the streams to the shards, in their order.
    pub(super) fn new(cluster: Box<Cluster>, number: u16, links: &[Link]) -> Result<Self, PlacementError> {
        let plan = cluster.plan_in_use();
        let placement = plan.map(|plan| Placement::new(plan, cluster.shards())).transpose()?;
        let hot = plan
            .zip(placement.as_ref())
            .map(|(plan, placement)| HotClient::new(&cluster, number, plan, placement));
        Ok(Self {
            directory: Directory::new(cluster.tables.clone(), placement, cluster.shards()),
            hot,
            cold: ColdClient::new(links.iter().copied()),
            operations: Operations::default(),
            open_pushes: BTreeSet::new(),
            visibility_waits: Vec::new(),
            deliveries: Vec::new(),
            statistics: WorkerStatistics::default(),
            events: VecDeque::new(),
            messages: VecDeque::new(),
            cluster,
        })
    }

    /// The counts so far.
    pub(super) fn statistics(&self) -> WorkerStatistics {
        let mut total = self.statistics;
        for path in self.hot.iter().flat_map(|hot| &hot.paths) {
            total.packets += path.statistics.packets;
            total.retransmits += path.statistics.retransmits;
            total.refused += path.statistics.refused;
            total.dropped += path.statistics.dropped;
            let round_trip =
                path.round_trip().map_or(0, |time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
            total.round_trip_us = total.round_trip_us.max(round_trip);
        }
        total
    }

    pub(super) fn pull(&mut self, id: PullId, keys: Vec<u64>) {
        let sorted = match self.directory.sort(&keys) {
            Ok(sorted) => sorted,
            Err(error) => return self.events.push_back(WorkerEvent::Refused { number: id.0, error }),
        };
        self.statistics.rows_pulled += keys.len() as u64;
        self.statistics.rows_pulled_hot += sorted.hot.len() as u64;
        self.operations.insert(id.0, Operation::new(keys, vec![0.0; sorted.values], sorted.hot, None));
        let operation = self.operations.operation(id.0);
        let messages = &mut self.messages;
        let packets = self.hot.as_mut().map_or(0, |hot| hot.pull(id.0, &operation.hot));
        let requests =
            self.cold.pull(id.0, &sorted.cold, &mut |link, message| messages.push_back((link, message)));
        operation.missing = packets + requests;
        self.complete_if_empty(id.0);
    }

    pub(super) fn push(
        &mut self,
        number: u64,
        mut keys: Vec<u64>,
        mut gradients: Vec<f32>,
        answer: PushAnswer,
    ) {
        let merged = self.directory.merge_duplicates(&mut keys, &mut gradients);
        let mut sorted = match merged.and_then(|()| self.directory.sort(&keys)) {
            Ok(sorted) => sorted,
            Err(error) => return self.events.push_back(WorkerEvent::Refused { number, error }),
        };
        let mut past_switch = Vec::new();
        if let Some(hot) = &mut self.hot {
            let (cold, directory) = (&mut sorted.cold, &self.directory);
            hot.quantize(&mut sorted.hot, &gradients, |row| {
                cold.push(directory.cold(row.key, row.offset, row.width));
                past_switch.push(row);
            });
            sorted.cold.sort_by_key(|row| row.shard);
        }
        self.statistics.pushes += 1;
        self.statistics.rows += keys.len() as u64;
        self.statistics.rows_hot += sorted.hot.len() as u64;
        self.statistics.rows_cold += sorted.cold.len() as u64;
        self.statistics.rows_too_large += past_switch.len() as u64;

        let wants_values = answer == PushAnswer::Values;
        let (values, level) = match answer {
            PushAnswer::Values => (vec![0.0; sorted.values], None),
            PushAnswer::Level(level) => (Vec::new(), Some(level)),
        };
        self.operations
            .insert(number, Operation { past_switch, ..Operation::new(keys, values, sorted.hot, level) });
        self.open_pushes.insert(number);
        let operation = self.operations.operation(number);
        let messages = &mut self.messages;
        let packets = self.hot.as_mut().map_or(0, |hot| hot.push(number, &operation.hot, wants_values));
        let mut send = |link, message| messages.push_back((link, message));
        let requests = self.cold.push(number, &sorted.cold, &gradients, wants_values, &mut send);
        operation.missing = packets + requests;
        self.complete_if_empty(number);
    }

    /// Says `Flushed` when every push so far is visible.
    pub(super) fn flush(&mut self, number: u64) {
        self.wait_for_visibility(WorkerEvent::Flushed { number }, self.open_pushes.clone());
    }

    /// For each path where it stands now.
    fn frontiers(&self) -> Vec<Vec<(u8, u32)>> {
        self.hot.iter().flat_map(|hot| &hot.paths).map(Path::push_frontiers).collect()
    }

    fn wait_for_visibility(&mut self, event: WorkerEvent, pushes: BTreeSet<u64>) {
        let frontiers = self.frontiers();
        self.visibility_waits.push(VisibilityWait { event, pushes, frontiers });
        self.end_visibility_waits();
    }

    fn end_visibility_waits(&mut self) {
        let paths = self.hot.as_ref().map_or(&[][..], |hot| &hot.paths);
        let events = &mut self.events;
        self.visibility_waits.retain_mut(|wait| {
            wait.pushes.retain(|push| self.open_pushes.contains(push));
            let durable = || paths.iter().zip(&wait.frontiers).all(|(path, points)| path.is_durable(points));
            let visible = wait.pushes.is_empty() && durable();
            if visible {
                events.push_back(wait.event.clone());
            }
            !visible
        });
    }

    /// An operation without any row has nothing to wait for.
    fn complete_if_empty(&mut self, number: u64) {
        let operation = self.operations.operation(number);
        if operation.missing == 0 {
            operation.missing = 1;
            self.answered(number);
        }
    }

    fn answered(&mut self, number: u64) {
        self.refresh_switch(number);
        let Some(operation) = self.operations.answered(number) else { return };
        self.open_pushes.remove(&number);
        match operation.level {
            None => {
                let pulled = Pulled { keys: operation.keys, values: operation.values };
                self.events.push_back(WorkerEvent::Pulled(PullId(number), pulled));
            }
            Some(Level::Accepted) => self.events.push_back(WorkerEvent::Pushed { number }),
            Some(Level::Visible) => self.wait_for_visibility(WorkerEvent::Pushed { number }, BTreeSet::new()),
        }
    }

    /// Tells the switch of rows that went past it, once the last other answer has come: their shards have applied the
    /// gradients then, and the next commit of their regions holds their values. Without a push no epoch would end there.
    fn refresh_switch(&mut self, number: u64) {
        let operation = self.operations.operation(number);
        let Some(hot) = &mut self.hot else { return };
        if operation.missing > 1 || operation.past_switch.is_empty() {
            return;
        }
        operation.refreshing = true;
        operation.hot = core::mem::take(&mut operation.past_switch);
        operation.missing += hot.touch(number, &operation.hot);
        let frontiers = self.frontiers();
        for wait in self.visibility_waits.iter_mut().filter(|wait| wait.pushes.contains(&number)) {
            wait.frontiers.clone_from(&frontiers);
        }
    }

    /// An answer of a shard. An error if it is not the answer to its request: then no answer will come.
    pub(super) fn handle_message(&mut self, link: Link, message: Message) -> Result<(), String> {
        let (number, values) = match message {
            Message::Pushed { number, values } | Message::Pulled { number, values } => (number, values.0),
            _ => {
                self.statistics.dropped += 1;
                return Ok(());
            }
        };
        let Some(request) = self.cold.answered(link, number) else {
            self.statistics.dropped += 1;
            return Ok(());
        };
        let expected: usize = request.rows.iter().map(|row| row.width as usize).sum();
        if values.len() != expected {
            let found = values.len();
            return Err(format!(
                "a server answered request {number} with {found} values instead of {expected}"
            ));
        }
        let operation = self.operations.operation(request.operation);
        let mut rest = values.as_slice();
        for row in &request.rows {
            let (row_values, later) = rest.split_at(row.width as usize);
            operation.values[row.range()].copy_from_slice(row_values);
            rest = later;
        }
        self.answered(request.operation);
        self.end_visibility_waits();
        Ok(())
    }

    /// Datagrams from a switch.
    pub(super) fn handle_datagrams(
        &mut self,
        now: Instant,
        from: SocketAddr,
        datagrams: &[u8],
        stride: usize,
    ) {
        let path = self.hot.iter_mut().flat_map(|hot| &mut hot.paths).find(|path| path.address() == from);
        let Some(path) = path else {
            self.statistics.dropped += 1;
            return;
        };
        let (operations, deliveries) = (&mut self.operations, &mut self.deliveries);
        let mut deliver = |delivery: Delivery<'_>| match delivery {
            Delivery::Values(cargo, packet) | Delivery::Accepted(cargo, Some(packet)) => {
                copy_values(operations.operation(cargo.operation), cargo, &packet);
                deliveries.push(Taken::Answered(cargo.operation));
            }
            // A push that asked for values, and the switch has none to give.
            Delivery::Accepted(cargo, None) if operations.operation(cargo.operation).wants_values() => {
                deliveries.push(Taken::Unreadable(cargo));
            }
            Delivery::Accepted(cargo, None) => deliveries.push(Taken::Answered(cargo.operation)),
            Delivery::Unreadable(cargo) => deliveries.push(Taken::Unreadable(cargo)),
        };
        for datagram in datagrams.chunks(stride.max(1)) {
            path.handle_datagram(now, datagram, &mut deliver);
        }
        for taken in core::mem::take(&mut self.deliveries) {
            match taken {
                Taken::Answered(operation) => self.answered(operation),
                Taken::Unreadable(cargo) => self.read_from_shards(cargo),
            }
        }
        self.end_visibility_waits();
    }

    /// A switch has no values for these rows: their shards have.
    fn read_from_shards(&mut self, cargo: Cargo) {
        let operation = self.operations.operation(cargo.operation);
        let hot: &[HotRow] = &operation.hot[cargo.first as usize..cargo.end as usize];
        let mut cold: Vec<ColdRow> =
            hot.iter().map(|row| self.directory.cold(row.key, row.offset, row.width)).collect();
        cold.sort_by_key(|row| row.shard);
        let messages = &mut self.messages;
        let mut send = |link, message| messages.push_back((link, message));
        operation.missing += self.cold.pull(cargo.operation, &cold, &mut send);
        self.answered(cargo.operation);
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        for path in self.hot.iter_mut().flat_map(|hot| &mut hot.paths) {
            path.handle_timeout(now);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.hot.iter().flat_map(|hot| &hot.paths).filter_map(|path| path.poll_timeout()).min()
    }

    pub(super) fn poll_transmit(&mut self, now: Instant, outgoing: &mut Outgoing) {
        for path in self.hot.iter_mut().flat_map(|hot| &mut hot.paths) {
            path.poll_transmit(now, outgoing);
        }
    }
}

fn copy_values(operation: &mut Operation, cargo: Cargo, packet: &Packet<'_>) {
    let mut entries = packet.entries();
    for row in &operation.hot[cargo.first as usize..cargo.end as usize] {
        for (value, entry) in operation.values[row.range()].iter_mut().zip(&mut entries) {
            *value = f32::from_bits(entry.value);
        }
    }
}
