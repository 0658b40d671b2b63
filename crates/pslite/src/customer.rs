//! A customer: requests of its own, and a queue of messages for it, which one thread serves in order.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::mesh::{Bytes, Node, OutgoingMessage, Payload, Received, thread_number};

use crate::error::CallError;
use crate::shard::Shard;
use crate::tracker::Tracker;

/// Called with every message.
pub(crate) type Handler = Box<dyn Fn(&Arc<Received>) + Send + Sync>;

/// One customer of an application in this process.
pub(crate) struct Customer {
    pub(crate) app: i32,
    pub(crate) number: i32,
    pub(crate) node: Node,
    pub(crate) tracker: Tracker,
    handler: Handler,
    /// Serves requests with keys in place of the handler.
    shard: OnceLock<Shard>,
    queue: Mutex<Queue>,
    changed: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Queue {
    /// Higher priorities first, equal ones as they came.
    messages: VecDeque<Received>,
    /// There is no handler of requests yet.
    is_held: bool,
    is_busy: bool,
    is_closed: bool,
    /// The number of the thread that handles messages.
    serving: Option<u64>,
}

impl Queue {
    fn push(&mut self, received: Received) {
        let priority = received.meta.priority;
        let before = self.messages.iter().rev().take_while(|other| other.meta.priority < priority).count();
        self.messages.insert(self.messages.len() - before, received);
    }
}

impl Customer {
    /// One that begins with these messages. If it is held, it serves nothing before [`release`](Self::release).
    pub(crate) fn start(
        app: i32,
        number: i32,
        node: Node,
        is_held: bool,
        waiting: Vec<Received>,
        handler: Handler,
    ) -> Result<Arc<Self>, CallError> {
        let mut queue = Queue { is_held, ..Queue::default() };
        waiting.into_iter().for_each(|received| queue.push(received));
        let customer = Arc::new(Self {
            app,
            number,
            node,
            tracker: Tracker::default(),
            handler,
            shard: OnceLock::new(),
            queue: Mutex::new(queue),
            changed: Condvar::new(),
            thread: Mutex::default(),
        });
        let of_thread = Arc::clone(&customer);
        let thread = thread::Builder::new().name(format!("customer-{app}-{number}"));
        let thread = thread.spawn(move || of_thread.run());
        let thread = thread.map_err(|error| CallError::Thread { os_error: error.to_string() })?;
        *customer.thread.lock() = Some(thread);
        Ok(customer)
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock()
    }

    /// From now on requests with keys are served by a shard of sums, which begins with these. Returns whether that is new.
    pub(crate) fn serve_sums(&self, keys: &[u64], values: &[f32]) -> bool {
        let ranges = u64::from(self.node.servers().max(1));
        let rank = u64::try_from(crate::mesh::rank_of(self.node.id())).unwrap_or(0);
        let shard = Shard::new(u64::MAX / ranges * rank.min(ranges - 1), ranges, keys, values);
        let is_new = self.shard.set(shard).is_ok();
        self.release();
        is_new
    }

    /// Everything that came is served now.
    pub(crate) fn release(&self) {
        self.lock().is_held = false;
        self.changed.notify_all();
    }

    /// Takes a message that has come. A shard serves it at once, if nothing that came before waits: it then costs no other thread.
    pub(crate) fn deliver(&self, received: Received) -> Option<Payload> {
        let mut queue = self.lock();
        if self.is_for_shard(&received) && queue.messages.is_empty() && !queue.is_busy && !queue.is_held {
            drop(queue);
            self.serve(&received);
            return Some(received.payload);
        }
        let was_empty = queue.messages.is_empty();
        queue.push(received);
        drop(queue);
        if was_empty {
            self.changed.notify_all();
        }
        None
    }

    fn is_for_shard(&self, received: &Received) -> bool {
        self.shard.get().is_some() && received.meta.request && !received.meta.simple
    }

    fn serve(&self, received: &Received) {
        let request = &received.meta;
        let answer = match self.shard.get() {
            // A worker asks whether some of the sums may be kept elsewhere.
            shard if request.internal && shard.is_some_and(Shard::began_empty) => {
                Ok(OutgoingMessage::default())
            }
            Some(shard) if !request.internal => shard.serve(request, &received.payload),
            _ => Err("this server does not sum floats that begin with zero".to_owned()),
        };
        let mut answer = answer.unwrap_or_else(|reason| {
            let mut outgoing = OutgoingMessage { text: Bytes::new(reason), ..OutgoingMessage::default() };
            outgoing.meta.refused = true;
            outgoing
        });
        let refused = answer.meta.refused;
        answer.meta = crate::mesh::Meta { request: false, refused, ..*request };
        // The sender may be gone; then no request waits for the answer.
        let _ = self.node.send(received.sender, answer);
    }

    fn run(&self) {
        self.lock().serving = Some(thread_number());
        while let Some(received) = self.next() {
            if received.meta.internal || self.is_for_shard(&received) {
                self.serve(&received);
            } else {
                let received = Arc::new(received);
                (self.handler)(&received);
                self.account(&received);
            }
        }
    }

    fn next(&self) -> Option<Received> {
        let mut queue = self.lock();
        queue.is_busy = false;
        loop {
            if !queue.is_held
                && let Some(received) = queue.messages.pop_front()
            {
                queue.is_busy = true;
                return Some(received);
            }
            self.changed.notify_all();
            if queue.is_closed {
                return None;
            }
            self.changed.wait(&mut queue);
        }
    }

    /// An answer counts once it was handled.
    fn account(&self, received: &Received) {
        let Received { sender, meta, payload } = received;
        if !meta.request {
            let refused = meta.refused.then(|| CallError::Refused {
                reason: format!("node {sender}: {}", String::from_utf8_lossy(payload.text())),
            });
            self.tracker.answered(meta.timestamp, Some(*sender), 1, refused);
        }
    }

    /// Waits until a request has all its answers.
    pub(crate) fn wait(&self, timestamp: i32) -> Result<(), CallError> {
        if self.tracker.is_open(timestamp) {
            self.node.flush();
        }
        self.tracker.wait(timestamp)
    }

    /// Returns the number of answers that have come.
    pub(crate) fn answers(&self, timestamp: i32) -> usize {
        // Who counts may wait for more.
        self.node.flush();
        self.tracker.answers(timestamp)
    }

    /// Waits until everything that came was handled, or a while.
    pub(crate) fn settle(&self, timeout: Duration) {
        let until = Instant::now() + timeout;
        let mut queue = self.lock();
        let is_own = queue.serving == Some(thread_number());
        while !is_own && !queue.is_held && (queue.is_busy || !queue.messages.is_empty()) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            self.changed.wait_for(&mut queue, left);
        }
    }

    /// Serves the messages that have come, and then nothing more.
    pub(crate) fn close(&self) {
        let mut queue = self.lock();
        queue.is_closed = true;
        if queue.is_held {
            // No handler was ever set.
            queue.messages.clear();
            queue.is_held = false;
        }
        let is_own = queue.serving == Some(thread_number());
        drop(queue);
        self.changed.notify_all();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread.filter(|_| !is_own) {
            // A thread that panicked has reported it.
            let _ = thread.join();
        }
    }
}
