//! Requests of a worker whose hot keys go to switches.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::mesh::{Bytes, MeshError, Meta, Node, OutgoingMessage, Payload, Received, SERVER_GROUP};
use libra_client::{NodeOptions, WorkerClient};
use libra_plan::Placement;
use libra_proto::{Cluster, Level, PullId, WorkerCommand, WorkerEvent};

use super::APPLICATION;
use super::split::{Parts, Split, merge, split};
use super::turns::Turns;
use crate::arrays::Floats;
use crate::customer::Customer;
use crate::error::CallError;

/// Looks up how a mesh is that may have failed so often.
const LOOK: Duration = Duration::from_millis(100);

/// Sends the requests of a worker process, and brings the answers together.
pub(crate) struct HotRequests {
    node: Node,
    client: OnceLock<WorkerClient>,
    /// Places of hot keys, once the job has begun.
    placement: OnceLock<Placement>,
    /// True if all servers have the handler that sums, once they have reported it and nothing is held any more. If not, switches are no use.
    are_sums: OnceLock<bool>,
    inquiry: Mutex<Inquiry>,
    state: Mutex<State>,
    changed: Condvar,
}

/// The reports of servers about their handlers.
#[derive(Default)]
struct Inquiry {
    /// Servers that have the handler that sums.
    agreed: usize,
    /// Requests that wait for all of them.
    held: Vec<Held>,
}

#[derive(Default)]
struct State {
    turns: Turns,
    /// Requests with hot keys, by number.
    open: HashMap<u64, Open>,
    /// The number of a request whose cold part a server is to answer.
    awaited: HashMap<Asked, u64>,
    next: u64,
    /// The reason for which the job is over, if it ended before its time.
    ended: Option<String>,
    is_finished: bool,
}

/// Customer, timestamp and server: no two requests under way have the same.
type Asked = (i32, i32, i32);

struct Held {
    customer: Arc<Customer>,
    server: i32,
    outgoing: OutgoingMessage,
}

/// A request with hot keys that is under way.
struct Open {
    customer: Arc<Customer>,
    server: i32,
    meta: Meta,
    key_count: usize,
    places: Vec<usize>,
    /// Operations of the job that are not done.
    hot_missing: u8,
    cold_missing: bool,
    hot_values: Vec<f32>,
    cold: Option<Received>,
    /// The reason for which it failed.
    refused: Option<String>,
}

/// A request is a push and then a pull at most, and the numbers of both give its own.
const OPERATIONS: u64 = 2;

impl HotRequests {
    /// Joins the job, and asks the servers which handler they have.
    pub(super) fn start(node: &Node, options: NodeOptions) -> Result<Arc<Self>, CallError> {
        let requests = Arc::new(Self {
            node: node.clone(),
            client: OnceLock::new(),
            placement: OnceLock::new(),
            are_sums: OnceLock::new(),
            inquiry: Mutex::default(),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let of_events = Arc::clone(&requests);
        let client = WorkerClient::start(options, move |event| of_events.take(event));
        let client = client.map_err(|error| CallError::Switching { reason: error.to_string() })?;
        requests.client.get_or_init(|| client);
        Ok(requests)
    }

    /// Waits until all members of the job are there.
    pub(super) fn wait_for_start(&self) -> Result<(), CallError> {
        let mut state = self.lock();
        while self.placement.get().is_none() {
            if let Some(reason) = &state.ended {
                return Err(CallError::Switching { reason: reason.clone() });
            }
            if state.is_finished {
                return Err(CallError::Switching { reason: "the job was over before it began".to_owned() });
            }
            if let Some(failure) = self.node.failure() {
                return Err(failure.into());
            }
            self.wait(&mut state);
        }
        Ok(())
    }

    /// Asks all servers whether they have the handler that sums: an answer comes when it is set.
    pub(super) fn ask_servers(&self) -> Result<(), MeshError> {
        let meta = Meta { app: APPLICATION, request: true, internal: true, ..Meta::default() };
        let servers = self.node.ids_of(SERVER_GROUP)?;
        servers.into_iter().try_for_each(|server| {
            self.node.send(server, OutgoingMessage { meta, ..OutgoingMessage::default() })
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn wait(&self, state: &mut MutexGuard<'_, State>) {
        self.changed.wait_for(state, LOOK);
    }

    /// Sends a request of a customer. Those of one thread reach a server in its order.
    pub(crate) fn send(
        &self,
        customer: &Arc<Customer>,
        server: i32,
        outgoing: OutgoingMessage,
    ) -> Result<(), MeshError> {
        let sums = match self.are_sums.get() {
            Some(sums) => *sums,
            None => {
                let mut inquiry = self.inquiry.lock();
                match self.are_sums.get() {
                    Some(sums) => *sums,
                    None => {
                        inquiry.held.push(Held { customer: Arc::clone(customer), server, outgoing });
                        return Ok(());
                    }
                }
            }
        };
        self.dispatch(sums, customer, server, outgoing)
    }

    fn dispatch(
        &self,
        sums: bool,
        customer: &Arc<Customer>,
        server: i32,
        outgoing: OutgoingMessage,
    ) -> Result<(), MeshError> {
        let placement = self.placement.get().filter(|_| sums);
        let Some(placement) = placement else { return self.node.send(server, outgoing) };
        let meta = outgoing.meta;
        match split(placement, &outgoing) {
            Parts::Whole => self.node.send(server, outgoing),
            Parts::Refused(reason) => {
                let refusal = OutgoingMessage {
                    meta: answer_to(meta, true),
                    text: Bytes::new(reason),
                    ..OutgoingMessage::default()
                };
                self.answer(customer, server, refusal);
                Ok(())
            }
            Parts::Split(split) => self.begin(customer, server, meta, split),
        }
    }

    fn begin(
        &self,
        customer: &Arc<Customer>,
        server: i32,
        meta: Meta,
        split: Split,
    ) -> Result<(), MeshError> {
        let Split { keys, gradients, places, key_count, cold } = split;
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        // Its answer waits for this lock.
        let cold_missing = cold.is_some();
        if let Some(cold) = cold {
            self.node.send(server, cold)?;
            state.awaited.insert((meta.customer, meta.timestamp, server), number);
        }
        let hot_missing = u8::from(meta.push) + u8::from(meta.pull);
        let refused = state.ended.clone();
        let is_over = refused.is_some();
        let open = Open {
            customer: Arc::clone(customer),
            server,
            meta,
            key_count,
            places,
            hot_missing: if is_over { 0 } else { hot_missing },
            cold_missing,
            hot_values: Vec::new(),
            cold: None,
            refused,
        };
        state.open.insert(number, open);
        if is_over {
            let done = state.take_if_done(number);
            drop(state);
            done.into_iter().for_each(|open| self.finish(open));
            return Ok(());
        }
        let first = number * OPERATIONS;
        let level = Level::Visible;
        match (meta.push, meta.pull) {
            (true, false) => {
                state.turns.submit(WorkerCommand::Push { number: first, keys, gradients, level })
            }
            (false, _) => state.turns.submit(WorkerCommand::Pull { id: PullId(first), keys }),
            (true, true) => {
                let pulled = keys.clone();
                state.turns.submit(WorkerCommand::Push { number: first, keys, gradients, level });
                state.turns.submit(WorkerCommand::Pull { id: PullId(first + 1), keys: pulled });
            }
        }
        self.go_on(&mut state);
        Ok(())
    }

    fn go_on(&self, state: &mut State) {
        if let Some(client) = self.client.get() {
            core::iter::from_fn(|| state.turns.next()).for_each(|command| client.command(command));
        }
    }

    /// Something has happened to the worker of the job.
    fn take(&self, event: WorkerEvent) {
        match event {
            WorkerEvent::Started { cluster, .. } => self.started(&cluster),
            WorkerEvent::Pushed { number } => self.operation_done(number, Ok(Vec::new())),
            WorkerEvent::Pulled(PullId(number), pulled) => self.operation_done(number, Ok(pulled.values)),
            WorkerEvent::Refused { number, error } => self.operation_done(number, Err(error.to_string())),
            WorkerEvent::Finished => {
                self.lock().is_finished = true;
                self.changed.notify_all();
            }
            WorkerEvent::Ended { reason, .. } => self.ended(&reason),
            // A program ends as a whole.
            WorkerEvent::DrainAsked
            | WorkerEvent::Flushed { .. }
            | WorkerEvent::Released { .. }
            | WorkerEvent::Clocks { .. }
            | WorkerEvent::Scanned { .. }
            | WorkerEvent::Leased { .. }
            | WorkerEvent::PhasesAdded(_)
            | WorkerEvent::PathChanged(_) => {}
        }
    }

    fn started(&self, cluster: &Cluster) {
        let slots = cluster.hot_path.region_slots();
        let placement = cluster.plan.as_ref().map(|plan| Placement::new(plan, cluster.shards(), slots));
        // The role has placed it, too, and the scheduler starts no job without a plan.
        if let Some(Ok(placement)) = placement {
            self.placement.get_or_init(|| placement);
        }
        self.changed.notify_all();
    }

    fn operation_done(&self, operation: u64, values: Result<Vec<f32>, String>) {
        let number = operation / OPERATIONS;
        let mut state = self.lock();
        state.turns.done();
        self.go_on(&mut state);
        if let Some(open) = state.open.get_mut(&number) {
            open.hot_missing = open.hot_missing.saturating_sub(1);
            match values {
                Ok(values) => open.hot_values = values,
                Err(reason) => drop(open.refused.get_or_insert(reason)),
            }
        }
        let done = state.take_if_done(number);
        drop(state);
        done.into_iter().for_each(|open| self.finish(open));
    }

    /// The job is over before its time: nothing hot is answered any more.
    fn ended(&self, reason: &str) {
        let reason = format!("hot keys cannot be served any more: {reason}");
        let mut state = self.lock();
        state.ended = Some(reason.clone());
        let numbers: Vec<u64> = state.open.keys().copied().collect();
        for open in state.open.values_mut().filter(|open| open.hot_missing > 0) {
            open.hot_missing = 0;
            open.refused.get_or_insert_with(|| reason.clone());
        }
        let done: Vec<Open> = numbers.into_iter().filter_map(|number| state.take_if_done(number)).collect();
        drop(state);
        done.into_iter().for_each(|open| self.finish(open));
        self.changed.notify_all();
    }

    /// A server has answered something of application 0. Returns answers that are for its customer as they are.
    pub(crate) fn receive(&self, received: Received) -> Option<Received> {
        if received.meta.internal {
            self.server_said(!received.meta.refused);
            return None;
        }
        let asked = (received.meta.customer, received.meta.timestamp, received.sender);
        let mut state = self.lock();
        let Some(number) = state.awaited.remove(&asked) else { return Some(received) };
        if let Some(open) = state.open.get_mut(&number) {
            open.cold_missing = false;
            if received.meta.refused {
                let reason = String::from_utf8_lossy(received.payload.text()).into_owned();
                open.refused.get_or_insert(reason);
            }
            open.cold = Some(received);
        }
        let done = state.take_if_done(number);
        drop(state);
        done.into_iter().for_each(|open| self.finish(open));
        None
    }

    /// A server has reported if it has the handler that sums. All must, or nothing goes to switches.
    fn server_said(&self, sums: bool) {
        let mut inquiry = self.inquiry.lock();
        inquiry.agreed += usize::from(sums);
        if self.are_sums.get().is_some() || (sums && inquiry.agreed < usize::from(self.node.servers())) {
            return;
        }
        // Other senders wait for the lock meanwhile: nothing overtakes the requests that were held.
        for Held { customer, server, outgoing } in core::mem::take(&mut inquiry.held) {
            let timestamp = outgoing.meta.timestamp;
            if let Err(error) = self.dispatch(sums, &customer, server, outgoing) {
                customer.tracker.refuse(timestamp, error.into());
            }
        }
        self.are_sums.get_or_init(|| sums);
    }

    /// Hands the answer to a request to its customer.
    fn finish(&self, open: Open) {
        let meta = answer_to(open.meta, open.refused.is_some());
        let mut outgoing = OutgoingMessage { meta, ..OutgoingMessage::default() };
        if let Some(reason) = open.refused {
            outgoing.text = Bytes::new(reason);
        } else if meta.pull {
            let cold = open
                .cold
                .as_ref()
                .map_or(&[][..], |received| bytemuck::cast_slice(received.payload.values()));
            match merge(open.key_count, &open.places, &open.hot_values, cold) {
                Some(values) => outgoing.values = Bytes::new(Floats(values)),
                None => {
                    outgoing.meta.refused = true;
                    outgoing.text = Bytes::new("a server has answered for other keys than it was asked");
                }
            }
        }
        self.answer(&open.customer, open.server, outgoing);
    }

    fn answer(&self, customer: &Customer, server: i32, outgoing: OutgoingMessage) {
        let Some(payload) = Payload::copied(&outgoing) else { return };
        drop(customer.deliver(Received { sender: server, meta: outgoing.meta, payload }));
    }

    /// Waits until everything is answered, reports that this worker is done, and waits until all are; so long at most for each of the two.
    pub(super) fn end(&self, timeout: Duration, drain_timeout: Duration) {
        let is_vain = |state: &State, until: Instant| {
            state.ended.is_some() || self.node.failure().is_some() || Instant::now() >= until
        };
        let mut state = self.lock();
        let until = Instant::now() + timeout;
        while !state.open.is_empty() && !is_vain(&state, until) {
            self.wait(&mut state);
        }
        if let Some(client) = self.client.get() {
            client.command(WorkerCommand::Report { text: String::new() });
        }
        let until = Instant::now() + drain_timeout;
        while !state.is_finished && !is_vain(&state, until) {
            self.wait(&mut state);
        }
    }
}

impl State {
    fn take_if_done(&mut self, number: u64) -> Option<Open> {
        let is_done = self.open.get(&number).is_some_and(|open| open.hot_missing == 0 && !open.cold_missing);
        if is_done { self.open.remove(&number) } else { None }
    }
}

fn answer_to(request: Meta, refused: bool) -> Meta {
    Meta { request: false, refused, ..request }
}
