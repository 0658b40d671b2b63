//! A worker on a thread of its own, and the blocking handle that a training loop holds.

mod client;
mod leases;
mod ledger;
mod meter;
mod network;
mod parameters;
mod stalls;

pub use self::client::WorkerClient;

use core::ops::ControlFlow;
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc as std_mpsc};
use std::time::Instant;

use libra_proto::{
    AssignedRows, ClientError, Cluster, EndCause, Level, PathChange, PullId, REPORT_BYTES_MAX, TablePage,
    WorkerCommand, WorkerEvent,
};
use tokio::sync::mpsc;

use self::leases::Leases;
use self::ledger::{Ledger, Open};
use self::meter::{Meter, Part};
use self::network::{Network, start_network};
use self::stalls::Stalls;
use crate::node::{NodeError, NodeOptions};

/// Pushes that may be under way before the next one waits: enough to hide a round trip, few enough that values stay fresh.
const PUSHES_OPEN_MAX: usize = 2;

/// A worker of a cluster.
pub struct WorkerNode {
    number: u16,
    share: u16,
    cluster: Box<Cluster>,
    commands: mpsc::UnboundedSender<WorkerCommand>,
    notices: std_mpsc::Receiver<Notice>,
    operations: u64,
    barriers: u64,
    leases: Leases,
    /// The clock that all workers that train have reached since the last barrier.
    clocks: u64,
    ledger: Ledger,
    /// Pushes whose end the caller asks for, once they have come to it.
    accepted: VecDeque<Accepted>,
    stalls: Stalls,
    meter: Meter,
    stream_bytes: Arc<AtomicU64>,
    /// It was asked to leave after its step.
    drains: bool,
    /// Called with each new length of packets to a switch.
    on_path_change: Option<Box<dyn FnMut(PathChange) + Send>>,
    ended: Option<ClientError>,
}

/// From the thread of the network.
enum Notice {
    /// An event, and its time.
    Event(Instant, WorkerEvent),
    DrainAsked,
}

/// A push that is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepted {
    /// The number that [`WorkerNode::start_push`] has returned.
    pub push: u64,
    /// When the last answer came.
    pub at: Instant,
}

impl WorkerNode {
    /// Joins the cluster of a controller, and waits until the cluster is complete.
    ///
    /// # Errors
    /// There is no place in the cluster, no cluster, or its job is [done](NodeError::Done).
    pub fn join(options: NodeOptions) -> Result<Self, NodeError> {
        Self::start(options, None)
    }

    /// The same, where the controller may be one that takes the tables, the plan, the mode and the seed of the job from its workers.
    ///
    /// # Errors
    /// As above, or another worker has described another job.
    pub fn join_with_job(options: NodeOptions, job: Cluster) -> Result<Self, NodeError> {
        Self::start(options, Some(Box::new(job)))
    }

    fn start(options: NodeOptions, job: Option<Box<Cluster>>) -> Result<Self, NodeError> {
        let (outbox, notices) = std_mpsc::channel();
        let asked = outbox.clone();
        // A handle that was dropped has no use for the event, and the job none for this worker.
        let on_event = move |event| match outbox.send(Notice::Event(Instant::now(), event)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        };
        let network = start_network(options, job, on_event, move || drop(asked.send(Notice::DrainAsked)))?;
        let Network { commands, stream_bytes } = network;
        let mut drains = false;
        let first = loop {
            match notices.recv() {
                Ok(Notice::DrainAsked) => drains = true,
                Ok(Notice::Event(_, event)) => break Some(event),
                Err(_) => break None,
            }
        };
        match first {
            Some(WorkerEvent::Started { worker, share, barrier, cluster }) => Ok(Self {
                number: worker,
                share,
                cluster,
                commands,
                notices,
                operations: 0,
                barriers: barrier,
                leases: Leases::begin(barrier),
                clocks: 0,
                ledger: Ledger::default(),
                accepted: VecDeque::new(),
                stalls: Stalls::default(),
                meter: Meter::new(Instant::now()),
                stream_bytes,
                drains,
                on_path_change: None,
                ended: None,
            }),
            Some(WorkerEvent::Finished) => Err(NodeError::Done),
            Some(WorkerEvent::Ended { reason, cause }) => Err(NodeError::Ended { reason, cause }),
            Some(_) | None => Err(NodeError::failed("the worker's network ended at once")),
        }
    }

    /// The number of this worker, which no other worker of the cluster ever has.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Its share of the task, counted from zero up to [`Cluster::shares`].
    pub fn share(&self) -> u16 {
        self.share
    }

    /// The number of its next barrier. For a worker that takes the place of one that is gone the first is not zero.
    pub fn next_barrier(&self) -> u64 {
        self.barriers
    }

    /// The phase of the work that it is in, or [`Cluster::phases`] behind the last: where it joined, then where
    /// [`next_chunk`](libra_proto::Parameters::next_chunk) has brought it.
    pub fn phase(&self) -> u64 {
        self.leases.phase
    }

    /// The cluster as it was when this worker joined it.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Calls a function with each new length of packets to a switch, on the thread that holds this handle.
    pub fn on_path_change(&mut self, call: impl FnMut(PathChange) + Send + 'static) {
        self.on_path_change = Some(Box::new(call));
    }

    /// Adds gradients to rows and reads the same rows in one trip; completes like a pull. Waits first when too much is under way.
    pub fn start_push_pull(&mut self, keys: Vec<u64>, gradients: Vec<f32>) -> Result<PullId, ClientError> {
        let bytes = bytes_of(&keys, 2 * gradients.len());
        let command = |number| WorkerCommand::PushPull { id: PullId(number), keys, gradients };
        self.begin(Open::Pull, bytes, command).map(PullId)
    }

    /// Adds gradients to rows and waits until they are applied and the new values can be read.
    pub fn push_visibly(&mut self, keys: Vec<u64>, gradients: Vec<f32>) -> Result<(), ClientError> {
        let number = self.push_at(Level::Visible, Open::Push, keys, gradients)?;
        self.wait_for(number)
    }

    /// Sets rows of a table to values, and waits until the new values can be read. What is under way for these rows comes before or after.
    ///
    /// # Errors
    /// Rows of another shape or table, values that are not finite, or the job ended.
    pub fn assign(&mut self, rows: AssignedRows) -> Result<(), ClientError> {
        let bytes = bytes_of(&rows.keys, rows.values.len() + rows.states.len());
        let number = self.begin(Open::Exchange, bytes, |number| WorkerCommand::Assign { number, rows })?;
        self.wait_for(number)
    }

    /// Makes all rows of a table those that never had a gradient, and waits until that can be read. `steps` is what the schedule of its
    /// rate goes on from.
    ///
    /// # Errors
    /// There is no such table, or the job ended.
    pub fn reset(&mut self, table: u16, steps: u64) -> Result<(), ClientError> {
        let number = self.begin(Open::Exchange, 0, |number| WorkerCommand::Reset { number, table, steps })?;
        self.wait_for(number)
    }

    /// Reads rows that a shard keeps of a table, by rising key: those of a page, which begins behind [`TablePage::next`] of the page
    /// before.
    ///
    /// # Errors
    /// There is no such table, or the job ended.
    ///
    /// # Panics
    /// There is no such shard.
    pub fn scan(&mut self, shard: u16, table: u16, after: Option<u64>) -> Result<TablePage, ClientError> {
        assert!(shard < self.cluster.shards(), "shard {shard} of {}", self.cluster.shards());
        let command = |number| WorkerCommand::Scan { number, shard, table, after };
        let number = self.begin(Open::Exchange, 0, command)?;
        loop {
            if let WorkerNote::Scanned(of, page) = self.wait()?
                && of == number
            {
                return Ok(*page);
            }
        }
    }

    fn wait_for(&mut self, number: u64) -> Result<(), ClientError> {
        while self.ledger.is_open(number) {
            self.wait()?;
        }
        Ok(())
    }

    /// Adds gradients to rows, and waits only while too many bytes are under way. Returns the number of the push, for
    /// [`finish_push`](Self::finish_push); how many are under way at once is the caller's business.
    pub fn start_push(&mut self, keys: Vec<u64>, gradients: Vec<f32>) -> Result<u64, ClientError> {
        self.push_at(Level::Accepted, Open::FollowedPush, keys, gradients)
    }

    /// A push of [`start_push`](Self::start_push) that is accepted and was not returned yet, if there is one.
    pub fn try_finish_push(&mut self) -> Result<Option<Accepted>, ClientError> {
        self.take_events()?;
        Ok(self.accepted.pop_front())
    }

    /// Waits for the next of them. `None` if none is under way.
    pub fn finish_push(&mut self) -> Result<Option<Accepted>, ClientError> {
        while self.accepted.is_empty() && self.ledger.followed_pushes() > 0 {
            self.wait()?;
        }
        Ok(self.accepted.pop_front())
    }

    /// The longest time so far in which pushes were under way and none got done.
    pub fn longest_stall(&self) -> Duration {
        self.stalls.longest
    }

    /// Bytes of messages to and from all members so far, without those of the hot path.
    pub fn stream_bytes(&self) -> u64 {
        self.stream_bytes.load(Ordering::Relaxed)
    }

    /// Sends the result of the task to the controller, and waits until all workers have done so.
    ///
    /// # Errors
    /// The job ended before, or the text is too long.
    pub fn report(mut self, text: String) -> Result<(), ClientError> {
        if text.len() > REPORT_BYTES_MAX {
            return Err(ClientError::LongReport { bytes: text.len(), bytes_max: REPORT_BYTES_MAX });
        }
        self.report_training()?;
        self.command(WorkerCommand::Report { text })?;
        self.wait_for_end()
    }

    fn wait_for_end(&mut self) -> Result<(), ClientError> {
        loop {
            match self.notices.recv() {
                Ok(Notice::Event(_, WorkerEvent::Finished)) => return Ok(()),
                Ok(Notice::Event(_, WorkerEvent::Ended { reason, cause })) => {
                    return Err(ClientError::Ended { reason, cause });
                }
                Ok(_) => {}
                Err(_) => return Err(vanished()),
            }
        }
    }

    /// Leaves, while the others go on. What it pushed stays; its share of the task is free for another worker. A job whose last worker
    /// leaves has failed.
    pub fn leave(self) -> Result<(), ClientError> {
        self.go(false)
    }

    /// The same, where another worker is to come in its place: a job without a worker waits for it. So ends a worker that was
    /// [asked to](NodeOptions::drain): its operations have failed with [`ClientError::Drained`] since its step was done.
    pub fn drain(self) -> Result<(), ClientError> {
        self.go(true)
    }

    fn flush_pushes(&mut self) -> Result<(), ClientError> {
        let number = self.number_operation();
        self.command(WorkerCommand::Flush { number })?;
        while self.wait()? != WorkerNote::Flushed(number) {}
        Ok(())
    }

    fn go(mut self, returns: bool) -> Result<(), ClientError> {
        self.flush_pushes()?;
        self.report_training()?;
        self.command(WorkerCommand::Leave { returns })?;
        self.wait_for_end()
    }

    /// The role learns of the progress of the training up to now.
    fn report_training(&mut self) -> Result<(), ClientError> {
        let counts = self.meter.counts(Instant::now());
        self.command(WorkerCommand::Training(counts))
    }

    /// Counts the time of an operation of the training loop as that of a part of its step.
    fn metered<T>(
        &mut self,
        part: Part,
        operation: impl FnOnce(&mut Self) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let before = self.meter.enter(Instant::now(), part);
        let result = operation(self);
        let now = Instant::now();
        self.meter.enter(now, before);
        if let Some(counts) = self.meter.poll(now) {
            // The end of the job is the result of the next operation.
            let _ = self.commands.send(WorkerCommand::Training(counts));
        }
        result
    }

    /// Ends the job for all members, because this worker cannot do its part.
    pub fn abort(mut self, reason: String) {
        if self.command(WorkerCommand::Abort { reason }).is_ok() {
            // The controller ends the job, or is gone: either way the last event comes.
            while self.wait().is_ok() {}
        }
    }

    /// Numbers an operation and sends its command, and waits before that until it fits beside those under way.
    fn begin(
        &mut self,
        operation: Open,
        bytes: usize,
        command: impl FnOnce(u64) -> WorkerCommand,
    ) -> Result<u64, ClientError> {
        self.take_events()?;
        while !self.ledger.has_room(bytes) {
            self.wait()?;
        }
        let number = self.number_operation();
        self.command(command(number))?;
        // An operation that was not sent has no answer that would take it off.
        self.ledger.begin(number, operation, bytes);
        Ok(number)
    }

    /// Returns the number of values in the rows of these keys.
    fn values_of(&self, keys: &[u64]) -> usize {
        let tables = &self.cluster.tables;
        if let [table] = tables.as_slice() {
            return keys.len() * table.width;
        }
        // Most rows are of the table of the row before.
        let Some(mut table) = tables.first() else { return 0 };
        let width = |key: &u64| {
            if !table.keys.contains(key) {
                let Some(of) = tables.iter().find(|table| table.keys.contains(key)) else { return 0 };
                table = of;
            }
            table.width
        };
        keys.iter().map(width).sum()
    }

    fn number_operation(&mut self) -> u64 {
        self.operations += 1;
        self.operations
    }

    fn push_at(
        &mut self,
        level: Level,
        push: Open,
        keys: Vec<u64>,
        gradients: Vec<f32>,
    ) -> Result<u64, ClientError> {
        let bytes = bytes_of(&keys, gradients.len());
        let command = |number| WorkerCommand::Push { number, keys, gradients, level };
        let number = self.begin(push, bytes, command)?;
        self.stalls.pushed(Instant::now());
        Ok(number)
    }

    /// Takes an operation off the ledger that is done, or cannot be.
    fn end(&mut self, number: u64, at: Instant) -> Option<Open> {
        let ended = self.ledger.end(number);
        if matches!(ended, Some(Open::Push | Open::FollowedPush)) {
            self.stalls.answered(at, self.ledger.pushes());
        }
        ended
    }

    fn command(&mut self, command: WorkerCommand) -> Result<(), ClientError> {
        self.take_events()?;
        self.commands.send(command).map_err(|_| self.ended.clone().unwrap_or_else(vanished))
    }

    /// Takes note of everything that has happened.
    fn take_events(&mut self) -> Result<(), ClientError> {
        while let Ok(notice) = self.notices.try_recv() {
            self.take(notice)?;
        }
        self.ended.clone().map_or(Ok(()), Err)
    }

    /// Waits until something happens.
    fn wait(&mut self) -> Result<WorkerNote, ClientError> {
        if let Some(error) = &self.ended {
            return Err(error.clone());
        }
        match self.notices.recv() {
            Ok(notice) => self.take(notice),
            Err(_) => Err(vanished()),
        }
    }

    /// Fails once this worker was asked to end: where a step is done, and where it would wait for others. It finishes a chunk first.
    fn go_on(&self) -> Result<(), ClientError> {
        if self.drains && self.leases.begun == 0 { Err(ClientError::Drained) } else { Ok(()) }
    }

    fn take(&mut self, notice: Notice) -> Result<WorkerNote, ClientError> {
        let Notice::Event(at, event) = notice else {
            self.drains = true;
            return Ok(WorkerNote::Other);
        };
        match event {
            WorkerEvent::Pulled(id, pulled) => {
                self.ledger.pulled(id, pulled);
            }
            WorkerEvent::Pushed { number } => {
                if self.end(number, at) == Some(Open::FollowedPush) {
                    self.accepted.push_back(Accepted { push: number, at });
                }
            }
            WorkerEvent::Scanned { number, page } => {
                self.end(number, at);
                return Ok(WorkerNote::Scanned(number, Box::new(page)));
            }
            WorkerEvent::Refused { number, error } => {
                self.end(number, at);
                return Err(error);
            }
            WorkerEvent::Flushed { number } => return Ok(WorkerNote::Flushed(number)),
            WorkerEvent::Released { number } => {
                self.clocks = 0;
                if self.cluster.work.is_some() {
                    self.barriers = number + 1;
                    self.leases.waiting.clear();
                    self.leases.skipped = 0;
                }
                return Ok(WorkerNote::Released(number));
            }
            WorkerEvent::Leased { chunks, skipped } => {
                self.leases.waiting.extend(chunks);
                self.leases.skipped += skipped;
            }
            WorkerEvent::PhasesAdded(added) => self.cluster.view.added = *added,
            WorkerEvent::Clocks { least } => self.clocks = least,
            WorkerEvent::PathChanged(change) => {
                if let Some(on_path_change) = &mut self.on_path_change {
                    on_path_change(change);
                }
            }
            WorkerEvent::Ended { reason, cause } => {
                let error = ClientError::Ended { reason, cause };
                self.ended = Some(error.clone());
                return Err(error);
            }
            WorkerEvent::Started { .. } | WorkerEvent::DrainAsked | WorkerEvent::Finished => {}
        }
        Ok(WorkerNote::Other)
    }
}

/// Events for which a wait may be.
#[derive(Debug, PartialEq)]
enum WorkerNote {
    Flushed(u64),
    Released(u64),
    Scanned(u64, Box<TablePage>),
    Other,
}

/// Returns the bytes of the keys and values of an operation.
fn bytes_of(keys: &[u64], values: usize) -> usize {
    size_of_val(keys) + values * size_of::<f32>()
}

fn vanished() -> ClientError {
    ClientError::Ended { reason: "the worker's network is gone".to_owned(), cause: EndCause::Failed }
}

#[cfg(test)]
mod tests;
