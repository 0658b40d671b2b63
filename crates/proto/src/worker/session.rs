//! A worker that has its place in a cluster: its operations, and the clients that carry them out.

mod times;

use std::collections::VecDeque;

use core::net::SocketAddr;

use libra_dataplane::Packet;
use libra_dataplane::mutants::{Mutant, is_enabled};
use libra_plan::PlacementError;

use self::times::{OperationTimes, PullPath};
use super::WorkerEvent;
use super::clock::TickNumber;
use super::cold::ColdClient;
use super::hot::{Frontiers, HotClient, HotPush, Packed, PathChange};
use super::lanes::lanes_of;
use super::operations::{Level, Operation, Operations, PushAnswer};
use super::renewals::Renewal;
use super::rows::{ColdRow, Directory, Found, HotRow, by_shard, rise};
use crate::client::{ClientError, PullId};
use crate::cluster::{CheckpointAt, Cluster, View};
use crate::message::{Answered, Message};
use crate::role::Outgoing;
use crate::statistics::WorkerStatistics;
use crate::status::WorkerDetails;
use crate::time::Instant;
use crate::transport::flow::PacketRows;
use crate::transport::path::Delivery;

/// Waits until pushes are visible.
#[derive(Debug, Clone)]
struct VisibilityWait {
    on_visible: OnVisible,
    /// Pushes that must be acknowledged.
    pushes: Vec<u64>,
    /// The points before which every push must be durable.
    frontiers: Frontiers,
}

/// Action when pushes are visible.
#[derive(Debug, Clone)]
enum OnVisible {
    /// Report it to the user.
    Tell(WorkerEvent),
    /// The tick counts.
    Count(TickNumber),
    /// The chunk is done.
    Chunk(u32),
    /// It is a push that is followed, from this moment on.
    Time(Instant),
}

#[derive(Debug, Clone)]
pub(super) struct Session {
    pub(super) cluster: Box<Cluster>,
    pub(super) directory: Directory,
    hot: Option<HotClient>,
    pub(super) cold: ColdClient,
    pub(super) operations: Operations,
    visibility_waits: Vec<VisibilityWait>,
    /// The newest view that a shard has reported to act on.
    newest_view: u64,
    deliveries: Vec<PendingDelivery>,
    pub(super) statistics: WorkerStatistics,
    pub(super) events: VecDeque<WorkerEvent>,
    /// Ticks that count from now on.
    pub(super) ticks: VecDeque<TickNumber>,
    /// Finished chunks whose pushes are all visible.
    pub(super) chunks: VecDeque<u32>,
    /// When the worker was last called.
    pub(super) now: Instant,
    times: OperationTimes,
}

/// The rest of the work of a delivery, for when the path that made it is free again.
#[derive(Debug, Clone)]
enum PendingDelivery {
    Answered(u64),
    Unreadable(PacketRows),
}

impl Session {
    pub(super) fn new(cluster: Cluster, number: u16) -> Result<Self, PlacementError> {
        let placement = cluster.placement()?;
        let hot = cluster
            .plan
            .as_ref()
            .zip(placement.as_ref())
            .map(|(plan, placement)| HotClient::new(&cluster, number, plan, placement));
        let view = cluster.view.clone();
        let mut session = Self {
            directory: Directory::new(cluster.tables.clone(), placement, cluster.shards()),
            hot,
            cold: ColdClient::new(cluster.shards(), cluster.cold_path.values),
            operations: Operations::default(),
            visibility_waits: Vec::new(),
            newest_view: 0,
            deliveries: Vec::new(),
            statistics: WorkerStatistics::default(),
            events: VecDeque::new(),
            ticks: VecDeque::new(),
            chunks: VecDeque::new(),
            now: Instant::ZERO,
            times: OperationTimes::default(),
            cluster: Box::new(Cluster { view: View::default(), ..cluster }),
        };
        session.enter(view);
        Ok(session)
    }

    /// Regions may have moved: what is not durable goes to their present owners.
    pub(super) fn enter(&mut self, view: View) {
        if view.number <= self.cluster.view.number {
            return;
        }
        if let Some(hot) = &mut self.hot {
            let (pulls, replays) = hot.enter(&view);
            for region in replays {
                self.replay(region);
            }
            for packet_rows in pulls {
                self.read_from_shards(packet_rows);
            }
        }
        self.cluster.view = view;
        self.end_visibility_waits();
    }

    /// Brings the packets of a region without an owner to its shard.
    fn replay(&mut self, region: u8) {
        let replays = self.hot.as_mut().map(|hot| hot.replays(region)).unwrap_or_default();
        let shard = self.directory.shard_of_region(region);
        self.cold.outbox.extend(replays.into_iter().map(|replay| (shard, Message::Replay(replay))));
    }

    /// There is a new stream to a shard: what it has not answered is sent again.
    pub(super) fn reconnected(&mut self, shard: u16) {
        self.cold.reconnected(shard);
        for region in self.directory.regions_of(shard) {
            self.replay(region);
        }
    }

    /// The pushes that a shard has answered.
    pub(super) fn answered_by(&self, shard: u16) -> Answered {
        self.cold.answered_by(shard)
    }

    /// The next message for a shard.
    pub(super) fn poll_message(&mut self) -> Option<(u16, Message)> {
        self.cold.outbox.pop_front()
    }

    /// Returns the next report to the controller of a flow that can restart.
    pub(super) fn poll_renewal(&mut self) -> Option<Message> {
        let Renewal { region, view_id } = self.hot.as_mut()?.poll_renewal()?;
        Some(Message::Renew { region, view_id })
    }

    /// Returns the reports of such flows for another controller.
    pub(super) fn renewals_asked(&self) -> impl Iterator<Item = Message> {
        let renewals = self.hot.iter().flat_map(HotClient::renewals_asked);
        renewals.map(|Renewal { region, view_id }| Message::Renew { region, view_id })
    }

    /// The counts so far.
    pub(super) fn statistics(&self) -> WorkerStatistics {
        let mut total = self.statistics;
        if let Some(hot) = &self.hot {
            hot.add_statistics(&mut total);
        }
        total
    }

    /// What was measured so far.
    pub(super) fn details(&self) -> WorkerDetails {
        let paths = self.hot.iter().flat_map(HotClient::path_status).collect();
        WorkerDetails { paths, ..self.times.details() }
    }

    pub(super) fn pull(&mut self, id: PullId, keys: Vec<u64>) {
        let Found { mut cold, values } = match self.directory.find(&keys, rise(&keys)) {
            Ok(found) => found,
            Err(error) => return self.events.push_back(WorkerEvent::Refused { number: id.0, error }),
        };
        // Between a shard's view and this worker's a region may have moved, and what this worker pushed past the old owner is
        // not read there (rule C2).
        let is_readable = self.newest_view <= self.cluster.view.number;
        let mut hot_rows = self.directory.hot_list();
        let mut packets = 0;
        if let Some((rows, demotion)) = self.directory.hot_rows() {
            let mut demote = |row: &HotRow| cold.push(demotion.to_cold(row));
            match self.hot.as_mut().filter(|_| is_readable) {
                Some(hot) => packets = hot.pull(id.0, rows, &mut hot_rows, &mut demote).packets,
                None => rows.for_each(|row| demote(&row)),
            }
        }
        self.statistics.rows_pulled += keys.len() as u64;
        self.statistics.rows_pulled_hot += hot_rows.len() as u64;
        self.operations.insert(id.0, Operation::new(keys, values, hot_rows, None).begun(self.now));
        let requests = self.cold.pull(id.0, by_shard(cold, self.cluster.shards()));
        self.operations.operation(id.0).missing = packets + requests;
        self.complete_if_empty(id.0);
    }

    pub(super) fn push(
        &mut self,
        number: u64,
        mut keys: Vec<u64>,
        mut gradients: Vec<f32>,
        answer: PushAnswer,
    ) {
        let rise = rise(&keys);
        let merged = self.directory.merge_duplicates(&mut keys, &mut gradients, rise);
        let Found { mut cold, values } = match merged.and_then(|()| self.directory.find(&keys, rise)) {
            Ok(found) => found,
            Err(error) => return self.events.push_back(WorkerEvent::Refused { number, error }),
        };
        let wants_values = answer == PushAnswer::Values;
        // Only an operation that waits for values needs the rows that a packet carried.
        let mut hot_rows = if wants_values { self.directory.hot_list() } else { Vec::new() };
        let mut packed = Packed::default();
        if let Some(((rows, demotion), hot)) = self.directory.hot_rows().zip(self.hot.as_mut()) {
            let answered = wants_values.then_some(&mut hot_rows);
            let mut push = HotPush { operation: number, gradients: &gradients, answered };
            packed = hot.push(&mut push, rows, &mut |row| cold.push(demotion.to_cold(row)));
        }
        self.statistics.pushes += 1;
        self.statistics.rows += keys.len() as u64;
        self.statistics.rows_hot += u64::from(packed.rows);
        self.statistics.rows_cold += cold.len() as u64;
        self.statistics.rows_too_large += packed.too_large;

        let keys = if wants_values { keys } else { Vec::new() };
        let operation = Operation::new(keys, values, hot_rows, Some(answer)).begun(self.now);
        self.operations.insert(number, operation);
        let cold = by_shard(cold, self.cluster.shards());
        let requests = self.cold.push(number, cold, gradients, wants_values);
        self.operations.operation(number).missing = packed.packets + requests;
        if self.times.follow(self.now) {
            self.wait_for_visibility(OnVisible::Time(self.now), vec![number]);
        }
        self.complete_if_empty(number);
    }

    /// Reports `Flushed` when every push so far is visible.
    pub(super) fn flush(&mut self, number: u64) {
        let pushes = self.operations.pushes().collect();
        self.wait_for_visibility(OnVisible::Tell(WorkerEvent::Flushed { number }), pushes);
    }

    /// Lets a tick count: at once, or when every push so far is visible. Then those before it count, too (rule M15).
    pub(super) fn tick(&mut self, tick: TickNumber, at_once: bool) {
        if at_once || is_enabled(Mutant::TickBeforeVisible) {
            self.ticks.push_back(tick);
        } else {
            let pushes = self.operations.pushes().collect();
            self.wait_for_visibility(OnVisible::Count(tick), pushes);
        }
    }

    /// All pushes of a chunk have begun: it is done when they are visible (rule K3).
    pub(super) fn finish_chunk(&mut self, chunk: u32) {
        if is_enabled(Mutant::ChunkDoneBeforeVisible) {
            return self.chunks.push_back(chunk);
        }
        let pushes = self.operations.pushes().collect();
        self.wait_for_visibility(OnVisible::Chunk(chunk), pushes);
    }

    /// Shards may act on this view: until this worker does, it reads from them what switches hold (rule M16).
    pub(super) fn observe_view(&mut self, view: u64) {
        self.newest_view = self.newest_view.max(view);
    }

    fn wait_for_visibility(&mut self, on_visible: OnVisible, pushes: Vec<u64>) {
        let frontiers = self.hot.as_ref().map(HotClient::frontiers).unwrap_or_default();
        self.visibility_waits.push(VisibilityWait { on_visible, pushes, frontiers });
        self.end_visibility_waits();
    }

    pub(super) fn end_visibility_waits(&mut self) {
        let (hot, operations) = (self.hot.as_ref(), &self.operations);
        let (events, ticks, times, now) = (&mut self.events, &mut self.ticks, &mut self.times, self.now);
        let (chunks, is_idle) = (&mut self.chunks, operations.is_empty());
        let chunks_before = chunks.len();
        let mut is_awaited = false;
        self.visibility_waits.retain_mut(|wait| {
            wait.pushes.retain(|push| operations.is_open(*push));
            let visible = wait.pushes.is_empty() && hot.is_none_or(|hot| hot.is_durable(&wait.frontiers));
            if visible {
                match &wait.on_visible {
                    OnVisible::Tell(event) => events.push_back(event.clone()),
                    OnVisible::Count(tick) => ticks.push_back(*tick),
                    OnVisible::Chunk(chunk) => chunks.push_back(*chunk),
                    OnVisible::Time(since) => times.visible(now.since(*since)),
                }
            }
            is_awaited |= !visible
                && match wait.on_visible {
                    OnVisible::Tell(_) | OnVisible::Count(_) => true,
                    // Others wait for the chunk only when there is nothing else to do.
                    OnVisible::Chunk(_) => is_idle,
                    // To measure must not change what is measured.
                    OnVisible::Time(_) => false,
                };
            !visible
        });
        let ends_chunk = chunks.len() > chunks_before;
        if let Some(hot) = &mut self.hot {
            hot.expedite(is_awaited);
            // A worker that resumes behind the chunk has none (rule K7).
            if ends_chunk && self.cluster.durability.checkpoint_at == CheckpointAt::Chunks {
                hot.forget_residues();
            }
        }
    }

    /// An operation without any row has nothing to wait for.
    pub(super) fn complete_if_empty(&mut self, number: u64) {
        let operation = self.operations.operation(number);
        if operation.missing == 0 {
            operation.missing = 1;
            self.answered(number);
        }
    }

    fn answered(&mut self, number: u64) {
        let Some(mut operation) = self.operations.answered(number) else { return };
        if let Some(began) = operation.began.filter(|_| operation.refused.is_none()) {
            let took = self.now.since(began);
            match operation.push {
                Some(_) => self.times.pushed(took),
                None => self.times.pulled(PullPath::of(operation.hot.len(), operation.keys.len()), took),
            }
        }
        self.directory.recycle(core::mem::take(&mut operation.hot));
        if let Some(error) = operation.refused {
            return self.events.push_back(WorkerEvent::Refused { number, error });
        }
        match operation.push {
            None | Some(PushAnswer::Values) => {
                self.events.push_back(WorkerEvent::Pulled(PullId(number), operation.into_pulled()));
            }
            Some(PushAnswer::Level(Level::Accepted)) => self.events.push_back(WorkerEvent::Pushed { number }),
            Some(PushAnswer::Level(Level::Visible)) => {
                let on_visible = OnVisible::Tell(WorkerEvent::Pushed { number });
                self.wait_for_visibility(on_visible, Vec::new());
            }
        }
    }

    /// An answer of a shard. An error if it is not the answer to its request: then no answer will come.
    pub(super) fn handle_message(&mut self, shard: u16, message: Message) -> Result<(), String> {
        let (number, values) = match message {
            Message::Replayed { region, view_id, below } => {
                self.replayed(region, view_id, below);
                return Ok(());
            }
            Message::Pushed { number, view, values } => {
                self.observe_view(view);
                (number, values)
            }
            Message::Pulled { number, values } => (number, values),
            Message::Scanned { number, page } => return self.scanned(shard, number, page),
            Message::PushRefused { number, key, lane, bits } => {
                self.refused(shard, number, (key, lane, bits));
                return Ok(());
            }
            _ => {
                self.statistics.dropped += 1;
                return Ok(());
            }
        };
        let Some(request) = self.cold.answered(shard, number) else {
            self.statistics.dropped += 1;
            return Ok(());
        };
        let expected = request.answered_values();
        if request.is_scan() {
            return Err(format!("a server answered scan {number} with values"));
        }
        if values.len() != expected {
            let found = values.len();
            return Err(format!(
                "a server answered request {number} with {found} values instead of {expected}"
            ));
        }
        let operation = self.operations.operation(request.operation);
        operation.take_values(values.into_vec(), request.answered_spans());
        self.answered(request.operation);
        self.end_visibility_waits();
        Ok(())
    }

    /// A shard has taken nothing of a push (rule C11). The operation ends when the answers to its other parts have come.
    fn refused(&mut self, server: u16, number: u64, (key, lane, bits): (u64, u32, u32)) {
        let Some(request) = self.cold.refused(server, number, key) else {
            self.statistics.dropped += 1;
            return;
        };
        let table = self.directory.table_name(key);
        let error = ClientError::Refused { server, table, key, lane: lane as usize, bits };
        self.operations.operation(request.operation).refused.get_or_insert(error);
        self.answered(request.operation);
        self.end_visibility_waits();
    }

    /// A shard has applied packets of a region without an owner.
    fn replayed(&mut self, region: u8, view_id: u64, below: u32) {
        for packet_rows in
            self.hot.as_mut().map(|hot| hot.replayed(region, view_id, below)).unwrap_or_default()
        {
            if self.operations.operation(packet_rows.operation).wants_values() {
                self.read_from_shards(packet_rows);
            } else {
                self.answered(packet_rows.operation);
            }
        }
        self.end_visibility_waits();
    }

    /// Datagrams from a switch.
    pub(super) fn handle_datagrams(
        &mut self,
        now: Instant,
        from: SocketAddr,
        datagrams: &[u8],
        stride: usize,
    ) {
        let Some(path) = self.hot.as_mut().and_then(|hot| hot.path_from(from)) else {
            self.statistics.dropped += 1;
            return;
        };
        let (operations, deliveries) = (&mut self.operations, &mut self.deliveries);
        let lanes = self.cluster.hot_path.lanes;
        let mut deliver = |delivery: Delivery<'_>| match delivery {
            Delivery::Values(packet_rows, packet) | Delivery::Accepted(packet_rows, Some(packet)) => {
                copy_values(operations.operation(packet_rows.operation), packet_rows, &packet, lanes);
                deliveries.push(PendingDelivery::Answered(packet_rows.operation));
            }
            // A push that asked for values, and the switch has none to give.
            Delivery::Accepted(packet_rows, None)
                if operations.operation(packet_rows.operation).wants_values() =>
            {
                deliveries.push(PendingDelivery::Unreadable(packet_rows));
            }
            Delivery::Accepted(packet_rows, None) => {
                deliveries.push(PendingDelivery::Answered(packet_rows.operation))
            }
            Delivery::Unreadable(packet_rows) => deliveries.push(PendingDelivery::Unreadable(packet_rows)),
        };
        for datagram in datagrams.chunks(stride.max(1)) {
            path.handle_datagram(now, datagram, &mut deliver);
        }
        let mut deliveries = core::mem::take(&mut self.deliveries);
        for taken in deliveries.drain(..) {
            match taken {
                PendingDelivery::Answered(operation) => self.answered(operation),
                PendingDelivery::Unreadable(packet_rows) => self.read_from_shards(packet_rows),
            }
        }
        self.deliveries = deliveries;
        self.end_visibility_waits();
    }

    /// A switch has no values for these rows: their shards have.
    fn read_from_shards(&mut self, packet_rows: PacketRows) {
        let operation = self.operations.operation(packet_rows.operation);
        let hot: &[HotRow] = &operation.hot[packet_rows.first as usize..packet_rows.end as usize];
        let cold: Vec<ColdRow> = hot.iter().map(|row| self.directory.to_cold(row)).collect();
        let cold = by_shard(cold, self.cluster.shards());
        operation.missing += self.cold.pull(packet_rows.operation, cold);
        self.answered(packet_rows.operation);
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        for path in self.hot.iter_mut().flat_map(HotClient::paths) {
            path.handle_timeout(now);
        }
    }

    /// The switches that should be reported to the controller.
    pub(super) fn take_unreachable(&mut self, now: Instant) -> Vec<u16> {
        self.hot.as_mut().map(|hot| hot.take_unreachable(now)).unwrap_or_default()
    }

    /// Returns a path whose packets have another length than before, if there is one that was not returned yet.
    pub(super) fn take_path_change(&mut self) -> Option<PathChange> {
        self.hot.as_mut().and_then(HotClient::take_path_change)
    }

    /// Returns the reason why a path ends the job, if one does.
    pub(super) fn narrow_path(&self) -> Option<String> {
        self.hot.as_ref().and_then(HotClient::narrow_path)
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.hot.as_ref().and_then(HotClient::poll_timeout)
    }

    pub(super) fn poll_transmit(&mut self, now: Instant, outgoing: &mut Outgoing) {
        for path in self.hot.iter_mut().flat_map(HotClient::paths) {
            path.poll_transmit(now, outgoing);
        }
    }
}

fn copy_values(operation: &mut Operation, packet_rows: PacketRows, packet: &Packet<'_>, lanes: u8) {
    let (rows, values) = operation.hot_and_values();
    let rows = &rows[packet_rows.first as usize..packet_rows.end as usize];
    if lanes > 1 {
        for row in rows {
            for (value, lane) in values[row.range()].iter_mut().zip(lanes_of(row, lanes)) {
                if let Some(entry) = packet.entry(lane) {
                    *value = f32::from_bits(entry.value);
                }
            }
        }
        return;
    }
    let mut entries = packet.entries();
    for row in rows {
        for (value, entry) in values[row.range()].iter_mut().zip(&mut entries) {
            *value = f32::from_bits(entry.value);
        }
    }
}

#[cfg(test)]
mod tests;
