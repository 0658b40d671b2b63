//! A stream to one process: a thread that reads, and one that writes what others leave to it.
//!
//! A thread that sends writes by itself if no other does, and only what the socket takes at once: to wake a thread costs more than a small
//! message. What is sent meanwhile goes with its next batch. A thread that reads first answers all messages that have come.
//!
//! A small request that follows others without an answer is held (RFC 896, Nagle's algorithm): it goes with those that follow it, as soon as an answer
//! comes, a thread [waits](Link::flush) for one, or the thread that writes looks.

use core::time::Duration;
use std::collections::BTreeMap;
use std::io::{self, BufReader, Read};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use libra_net::BlockingStream;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::batch::{Batch, Content};
use super::control::Control;
use super::flow::{Receiving, Sending, Verdict};
use super::frame::{HEAD_BYTES, Head, Kind};
use super::message::{OutgoingMessage, Payload, Received, WORD};
use super::threads::thread_number;

/// After so many messages or bytes without an answer on which it could ride along, an acknowledgement goes by itself.
const UNTOLD_MESSAGES: u64 = 64;
const UNTOLD_BYTES: usize = 1 << 20;
/// Written at once, unless one frame alone is more.
const BATCH_BYTES: usize = 1 << 20;
const BATCH_FRAMES: usize = 64;
/// Batches that a thread writes on behalf of others before it goes on.
const BATCHES_MAX: u32 = 4;
/// The thread that writes looks so long after the last message whether it has to ask for an acknowledgement: no later than it would ask.
const LOOK: Duration = Duration::from_millis(10);
/// Bytes of requests that are held, at most.
const HELD_BYTES: usize = 128 << 10;
/// Small messages are read together; of a large one, all but the begin goes straight to where it stays.
const BUFFER_BYTES: usize = 64 << 10;
/// Memory that is taken because a head promises so many bytes; more of it, as they come.
const PROMISED_BYTES_MAX: usize = 1 << 20;

/// Settings of a stream that do not depend on its peer.
#[derive(Debug, Clone, Copy)]
pub(super) struct LinkSettings {
    /// Percentage of frames that the reader drops.
    pub(super) drop_percent: u8,
    /// Seed that decides which.
    pub(super) drop_seed: u64,
    /// The other end gets a frame at least so often.
    pub(super) heartbeat: Duration,
}

/// Receives what comes on a stream.
pub(super) trait LinkEvents: Send + Sync + 'static {
    fn control(&self, link: &Arc<Link>, control: Control);
    /// May give back the memory of the message.
    fn application(&self, received: Received) -> Option<Payload>;
    /// There will be nothing more, and why: `PermissionDenied` if the other end is none of this program.
    fn ended(&self, link: &Arc<Link>, reason: &io::Error);
}

/// The end of a stream that belongs to this process.
pub(super) struct Link {
    pub(super) number: u64,
    stream: Arc<BlockingStream>,
    settings: LinkSettings,
    state: Mutex<State>,
    /// For the thread that writes.
    changed: Condvar,
    /// Everything that was sent is acknowledged, or the stream has ended.
    settled: Condvar,
    /// All messages up to this one were taken.
    taken: AtomicU64,
    /// The other end has been told so.
    told: AtomicU64,
    /// That which writes, and then that which reads.
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The number of the thread that reads, and passes on what has come.
    reader: AtomicU64,
    /// That thread has another message at hand, and what it sends waits until it has none.
    reads_more: AtomicBool,
    /// So something waits.
    holds: AtomicBool,
}

struct State {
    sending: Sending<Content>,
    /// Some thread writes, and looks for more when it has written.
    is_writing: bool,
    /// Bytes of requests that are held.
    held_bytes: usize,
    /// Bytes of the socket, begun by another thread, for the one that writes what others leave.
    rest: Vec<u8>,
    /// Memory for the next batch.
    spare: Batch,
    /// Nothing can be written any more.
    is_broken: bool,
    /// Time at which the thread that writes looks again by itself.
    looks_at: Instant,
    /// To be sent as soon as possible.
    answer: Option<Kind>,
    /// The node at this end, as it will be named in frames.
    sender: i32,
    /// The node at the other end.
    peer: Option<i32>,
    /// The other end has sent its last message.
    is_bye_taken: bool,
    has_ended: bool,
    last_received: Instant,
    spoke: Instant,
}

impl Link {
    /// Takes a stream over.
    pub(super) fn start<E: LinkEvents>(
        number: u64,
        stream: BlockingStream,
        sender: i32,
        settings: LinkSettings,
        events: Arc<E>,
    ) -> io::Result<Arc<Self>> {
        stream.socket().set_nodelay(true)?;
        // A machine that vanishes sends no FIN: without this its peers would wait for it forever.
        let keepalive = socket2::TcpKeepalive::new()
            .with_time(Duration::from_secs(5))
            .with_interval(Duration::from_secs(2))
            .with_retries(3);
        socket2::SockRef::from(stream.socket()).set_tcp_keepalive(&keepalive)?;
        let now = Instant::now();
        let state = State {
            sending: Sending::new(now),
            is_writing: false,
            held_bytes: 0,
            rest: Vec::new(),
            spare: Batch::default(),
            is_broken: false,
            looks_at: now,
            answer: None,
            sender,
            peer: None,
            is_bye_taken: false,
            has_ended: false,
            last_received: now,
            spoke: now,
        };
        let link = Arc::new(Self {
            number,
            stream: Arc::new(stream),
            settings,
            state: Mutex::new(state),
            changed: Condvar::new(),
            settled: Condvar::new(),
            taken: AtomicU64::new(0),
            told: AtomicU64::new(0),
            threads: Mutex::default(),
            reader: AtomicU64::new(0),
            reads_more: AtomicBool::new(false),
            holds: AtomicBool::new(false),
        });
        let (for_writer, for_reader) = (Arc::clone(&link), Arc::clone(&link));
        let write = thread::Builder::new().name("mesh-write".to_owned()).spawn(move || for_writer.write())?;
        link.threads.lock().push(write);
        let read = thread::Builder::new().name("mesh-read".to_owned()).spawn(move || {
            for_reader.reader.store(thread_number(), Ordering::Relaxed);
            let ended = for_reader.read(&*events).err();
            let reason = ended.unwrap_or_else(closed);
            for_reader.end();
            events.ended(&for_reader, &reason);
        })?;
        link.threads.lock().push(read);
        Ok(link)
    }

    /// Sends a message. Returns true if it is held.
    pub(super) fn send(&self, outgoing: OutgoingMessage) -> bool {
        self.push(Content::Application(Arc::new(outgoing)))
    }

    pub(super) fn send_control(&self, control: &Control) {
        self.push(Content::Control(Arc::new(control.encode())));
    }

    /// Sends what follows. Returns true if it is held.
    fn push(&self, content: Content) -> bool {
        let held_bytes = content.held_bytes();
        let mut state = self.state.lock();
        let now = Instant::now();
        // In the midst of requests, when the thread that writes will look soon, too.
        let may_be_held = !state.sending.is_done() && state.looks_at <= now + LOOK;
        state.sending.push(now, content);
        let is_reader = self.reader.load(Ordering::Relaxed) == thread_number();
        if is_reader && self.reads_more.load(Ordering::Relaxed) {
            self.holds.store(true, Ordering::Relaxed);
            return false;
        }
        match held_bytes.filter(|bytes| may_be_held && state.held_bytes + bytes <= HELD_BYTES) {
            Some(bytes) => {
                state.held_bytes += bytes;
                self.holds.store(true, Ordering::Relaxed);
                true
            }
            None => {
                self.write_now(state);
                false
            }
        }
    }

    /// Writes what is held.
    pub(super) fn flush(&self) {
        let state = self.state.lock();
        if state.held_bytes > 0 {
            self.write_now(state);
        }
    }

    /// Writes what the socket takes at once, unless another thread writes.
    fn write_now<'a>(&'a self, mut state: MutexGuard<'a, State>) {
        if state.is_writing || !state.rest.is_empty() || state.is_broken || state.has_ended {
            return;
        }
        state.is_writing = true;
        let mut batch = core::mem::take(&mut state.spare);
        let mut left = BATCHES_MAX;
        while left > 0 && !state.has_ended && self.fill(&mut state, &mut batch) {
            left -= 1;
            drop(state);
            let written = self.stream.write_some(&mut batch.slices());
            state = self.state.lock();
            match written {
                Ok(rest) if rest.is_empty() => {}
                Ok(rest) => {
                    state.rest = rest;
                    left = 0;
                }
                Err(_) => {
                    self.break_off(&mut state);
                    left = 0;
                }
            }
        }
        batch.clear();
        state.spare = batch;
        state.is_writing = false;
        // The other thread has something to write, or has to ask for an acknowledgement sooner than it would look.
        let is_needed = left == 0 || state.sending.ask_at().is_some_and(|at| at < state.looks_at);
        drop(state);
        if is_needed {
            self.changed.notify_all();
        }
    }

    /// Nothing can be written. The reader gets the reason, and the last messages of the other end.
    fn break_off(&self, state: &mut State) {
        state.is_broken = true;
        self.stream.shutdown(Shutdown::Write);
    }

    /// From now on frames name this node as their sender.
    pub(super) fn set_sender(&self, sender: i32) {
        self.state.lock().sender = sender;
    }

    pub(super) fn set_peer(&self, peer: i32) {
        self.state.lock().peer = Some(peer);
    }

    pub(super) fn peer(&self) -> Option<i32> {
        self.state.lock().peer
    }

    /// Returns true if the other end has announced its end.
    pub(super) fn is_bye_taken(&self) -> bool {
        self.state.lock().is_bye_taken
    }

    pub(super) fn has_ended(&self) -> bool {
        self.state.lock().has_ended
    }

    /// Time since anything came.
    pub(super) fn silence(&self) -> Duration {
        self.state.lock().last_received.elapsed()
    }

    pub(super) fn remote_host(&self) -> Option<String> {
        self.stream.socket().peer_addr().ok().map(|address| address.ip().to_string())
    }

    pub(super) fn local_host(&self) -> Option<String> {
        self.stream.socket().local_addr().ok().map(|address| address.ip().to_string())
    }

    /// Waits until everything that was sent is acknowledged, or the stream has ended, or it is `until`.
    pub(super) fn settle(&self, until: Instant) {
        let mut state = self.state.lock();
        while !state.sending.is_done() && !state.has_ended {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            self.settled.wait_for(&mut state, left);
        }
    }

    fn end(&self) {
        self.state.lock().has_ended = true;
        self.changed.notify_all();
        self.settled.notify_all();
    }

    /// Ends the stream.
    pub(super) fn shut(&self) {
        self.end();
        self.stream.shutdown(Shutdown::Both);
    }

    /// Waits for its threads, but for the one that reads if that asks.
    pub(super) fn join(&self) {
        let mut threads = core::mem::take(&mut *self.threads.lock());
        if self.reader.load(Ordering::Relaxed) == thread_number() {
            threads.pop();
        }
        for handle in threads {
            // A thread that panicked has reported it.
            let _ = handle.join();
        }
    }

    /// Writes what other threads leave, until nothing can be written.
    fn write(&self) {
        let mut batch = Batch::default();
        while let Some(rest) = self.next_batch(&mut batch) {
            let rest = self.stream.write_rest(&rest);
            let written = rest.and_then(|()| self.stream.write_all(&mut batch.slices()));
            batch.clear();
            let mut state = self.state.lock();
            state.is_writing = false;
            if written.is_err() {
                self.break_off(&mut state);
            }
        }
    }

    /// Waits until there is something to write, and returns the rest that goes before the batch. None: there never will be.
    fn next_batch(&self, batch: &mut Batch) -> Option<Vec<u8>> {
        let mut state = self.state.lock();
        loop {
            if state.has_ended || state.is_broken {
                return None;
            }
            let now = Instant::now();
            if !state.is_writing {
                let rest = core::mem::take(&mut state.rest);
                if self.fill(&mut state, batch) || !rest.is_empty() {
                    state.is_writing = true;
                    return Some(rest);
                }
            }
            let heartbeat_at = state.spoke + self.settings.heartbeat;
            // In the midst of traffic it looks again soon: it would have to be woken for each message that follows a pause.
            let look_at = if now < state.spoke + LOOK { now + LOOK } else { heartbeat_at };
            let wake = state.sending.ask_at().unwrap_or(look_at).min(heartbeat_at);
            let left = wake.saturating_duration_since(now).max(Duration::from_micros(100));
            state.looks_at = now + left;
            self.changed.wait_for(&mut state, left);
        }
    }

    /// Fills an empty batch. Returns false if there is nothing to write.
    fn fill(&self, state: &mut State, batch: &mut Batch) -> bool {
        batch.clear();
        let Batch { heads, contents } = batch;
        let now = Instant::now();
        let asks = state.sending.ask_at().is_some_and(|at| at <= now);
        let is_silent = now >= state.spoke + self.settings.heartbeat;
        let taken = self.taken.load(Ordering::Acquire);
        if let Some(kind) = state.answer.take() {
            heads.push(Head::bare(kind, 0, taken, state.sender).encode());
            contents.push(None);
        }
        if asks || (is_silent && !state.sending.has_next() && heads.is_empty()) {
            state.sending.asked(now);
            let newest = state.sending.newest();
            heads.push(Head::bare(Kind::Probe, newest, taken, state.sender).encode());
            contents.push(None);
        }
        let mut bytes = 0;
        while bytes < BATCH_BYTES && heads.len() < BATCH_FRAMES {
            let Some((sequence, content)) = state.sending.next() else { break };
            let (kind, meta) = content.kind();
            let lengths = content.sections().map(<[u8]>::len);
            bytes += lengths.iter().sum::<usize>();
            let lengths = lengths.map(|length| length as u64);
            heads.push(Head { kind, sequence, taken, sender: state.sender, meta, lengths }.encode());
            contents.push(Some(content));
        }
        if heads.is_empty() {
            return false;
        }
        self.told.store(taken, Ordering::Relaxed);
        state.held_bytes = 0;
        state.spoke = now;
        true
    }

    fn read(self: &Arc<Self>, events: &impl LinkEvents) -> io::Result<()> {
        let mut stream = BufReader::with_capacity(BUFFER_BYTES, self.stream.reader());
        let mut receiving = Receiving::default();
        let mut random = SmallRng::seed_from_u64(self.settings.drop_seed);
        let (mut spare, mut untold_bytes) = (Vec::new(), 0);
        // Messages that came too early.
        let mut held: BTreeMap<u64, (Head, Payload)> = BTreeMap::new();
        let mut head = [0; HEAD_BYTES];
        loop {
            if !self.reads_more.load(Ordering::Relaxed) && self.holds.swap(false, Ordering::Relaxed) {
                self.write_now(self.state.lock());
            }
            match stream.read_exact(&mut head) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                other => other?,
            }
            let malformed =
                || io::Error::new(io::ErrorKind::InvalidData, "what came is no message of this version");
            let head = Head::decode(&head).ok_or_else(malformed)?;
            let payload = read_payload(&mut stream, core::mem::take(&mut spare), &head).transpose();
            let payload = payload.ok_or_else(malformed)??;
            self.reads_more.store(has_message(stream.buffer()), Ordering::Relaxed);
            let now = Instant::now();
            let is_lost = self.settings.drop_percent > 0
                && random.random_range(0..100) < u32::from(self.settings.drop_percent);
            let mut state = self.state.lock();
            state.last_received = now;
            if is_lost {
                drop(state);
                spare = payload.into_words();
                continue;
            }
            let done = if head.kind == Kind::Missing {
                state.sending.missing(now, head.taken)
            } else {
                state.sending.acknowledged(now, head.taken)
            };
            if state.sending.is_done() {
                self.settled.notify_all();
            }
            let wake = head.kind == Kind::Missing;
            let answer = match head.kind {
                Kind::Acknowledge | Kind::Missing => None,
                Kind::Probe if head.sequence > receiving.taken() => Some(Kind::Missing),
                Kind::Probe => Some(Kind::Acknowledge),
                Kind::Application | Kind::Control => match receiving.offer(head.sequence) {
                    Verdict::Take => {
                        drop(state);
                        drop(done);
                        let mut next = Some((head, payload));
                        while let Some((head, mut payload)) = next {
                            untold_bytes += payload.stream_bytes_mut().len();
                            self.taken.store(head.sequence, Ordering::Release);
                            if let Some(given_back) = self.take(&head, payload, events)? {
                                spare = given_back.into_words();
                            }
                            next = receiving.follow().and_then(|number| held.remove(&number));
                        }
                        let taken = receiving.taken();
                        let untold = taken - self.told.load(Ordering::Relaxed).min(taken);
                        let is_much =
                            untold >= UNTOLD_MESSAGES || (untold > 0 && untold_bytes >= UNTOLD_BYTES);
                        if is_much || untold <= 1 {
                            untold_bytes = 0;
                        }
                        let answer = if receiving.has_gap() {
                            Some(Kind::Missing)
                        } else {
                            is_much.then_some(Kind::Acknowledge)
                        };
                        self.answer(answer, wake);
                        continue;
                    }
                    Verdict::Again => Some(Kind::Acknowledge),
                    Verdict::Hold { tell } => {
                        drop(state);
                        drop(done);
                        held.insert(head.sequence, (head, payload));
                        self.answer(tell.then_some(Kind::Missing), wake);
                        continue;
                    }
                },
            };
            drop(state);
            drop(done);
            spare = payload.into_words();
            self.answer(answer, wake);
        }
    }

    /// Has the writer send something, or look what there is to send.
    fn answer(&self, answer: Option<Kind>, wake: bool) {
        if answer.is_some() {
            let mut state = self.state.lock();
            // A report of a missing message acknowledges, too.
            if state.answer != Some(Kind::Missing) {
                state.answer = answer;
            }
        }
        if wake || answer.is_some() {
            self.changed.notify_all();
        }
    }

    /// Hands a message on in its turn.
    fn take(
        self: &Arc<Self>,
        head: &Head,
        payload: Payload,
        events: &impl LinkEvents,
    ) -> io::Result<Option<Payload>> {
        if head.kind == Kind::Application {
            // A server may answer before it knows its own number; who called it does.
            let sender = if head.sender == 0 { self.peer().unwrap_or(0) } else { head.sender };
            return Ok(events.application(Received { sender, meta: head.meta, payload }));
        }
        let control = Control::decode(payload.text());
        let malformed = || io::Error::new(io::ErrorKind::InvalidData, "a control message makes no sense");
        let control = control.ok_or_else(malformed)?;
        if control == Control::Bye {
            self.state.lock().is_bye_taken = true;
        }
        events.control(self, control);
        Ok(Some(payload))
    }
}

/// The reason of a stream that has ended between two messages.
pub(super) fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was closed")
}

/// Reads the sections behind a head into memory that is there or is taken as bytes come; `None` if no memory has that much.
fn read_payload(stream: &mut impl Read, mut words: Vec<u64>, head: &Head) -> io::Result<Option<Payload>> {
    let Some(total) = Payload::stream_length(head.lengths) else { return Ok(None) };
    let mut read = 0;
    while read < total {
        let end = total.min((2 * read).max(PROMISED_BYTES_MAX).max(words.len() * WORD));
        if words.len() * WORD < end {
            words.resize(end / WORD, 0);
        }
        stream.read_exact(&mut bytemuck::cast_slice_mut(&mut words)[read..end])?;
        read = end;
    }
    Ok(Payload::prepare(words, head.lengths))
}

/// Returns true if there is a whole message at the begin of what was read in advance.
fn has_message(buffer: &[u8]) -> bool {
    let Some((head, rest)) = buffer.split_first_chunk::<HEAD_BYTES>() else { return false };
    let length = Head::decode(head).and_then(|head| Payload::stream_length(head.lengths));
    length.is_some_and(|length| rest.len() >= length)
}

#[cfg(test)]
mod fuzz;
