//! A stream to one process: a thread that writes, and one that reads.

use core::time::Duration;
use std::collections::BTreeMap;
use std::io::{self, BufReader, IoSlice, Read};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::control::Control;
use super::flow::{Receiving, Sending, Verdict};
use super::frame::{HEAD_BYTES, Head, Kind, filling};
use super::message::{Meta, OutgoingMessage, Payload, Received};
use super::threads::thread_number;

/// After so many messages or bytes without an answer on which it could ride along, an acknowledgement goes by itself.
const UNTOLD_MESSAGES: u64 = 64;
const UNTOLD_BYTES: usize = 1 << 20;
/// Written at once, unless one frame alone is more.
const BATCH_BYTES: usize = 1 << 20;
const BATCH_FRAMES: usize = 64;
/// Heads of small messages are read together; arrays go straight to where they stay.
const BUFFER_BYTES: usize = 16 << 10;
/// Memory is taken as bytes come, not as a head promises.
const PROMISED_BYTES_MAX: usize = 256 << 20;

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
    /// There will be nothing more, and why.
    fn ended(&self, link: &Arc<Link>, reason: String);
}

/// The end of a stream that belongs to this process.
pub(super) struct Link {
    pub(super) number: u64,
    stream: TcpStream,
    settings: LinkSettings,
    state: Mutex<State>,
    changed: Condvar,
    /// All messages up to this one were taken.
    taken: AtomicU64,
    /// The other end has been told so.
    told: AtomicU64,
    /// That which writes, and then that which reads.
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The number of the thread that reads, and passes on what has come.
    reader: AtomicU64,
}

#[derive(Clone)]
enum Content {
    Application(Arc<OutgoingMessage>),
    Control(Arc<Vec<u8>>),
}

struct State {
    sending: Sending<Content>,
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

/// A lock is never held while something may panic; if it happens all the same, the state is whole.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    /// Takes a stream over.
    pub(super) fn start<E: LinkEvents>(
        number: u64,
        stream: TcpStream,
        sender: i32,
        settings: LinkSettings,
        events: Arc<E>,
    ) -> io::Result<Arc<Self>> {
        stream.set_nodelay(true)?;
        // A machine that vanishes sends no FIN: without this its peers would wait for it forever.
        let keepalive = socket2::TcpKeepalive::new()
            .with_time(Duration::from_secs(5))
            .with_interval(Duration::from_secs(2))
            .with_retries(3);
        socket2::SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
        let (reader, writer) = (stream.try_clone()?, stream.try_clone()?);
        let now = Instant::now();
        let state = State {
            sending: Sending::new(now),
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
            stream,
            settings,
            state: Mutex::new(state),
            changed: Condvar::new(),
            taken: AtomicU64::new(0),
            told: AtomicU64::new(0),
            threads: Mutex::default(),
            reader: AtomicU64::new(0),
        });
        let (for_writer, for_reader) = (Arc::clone(&link), Arc::clone(&link));
        let write =
            thread::Builder::new().name("mesh-write".to_owned()).spawn(move || for_writer.write(&writer))?;
        lock(&link.threads).push(write);
        let read = thread::Builder::new().name("mesh-read".to_owned()).spawn(move || {
            for_reader.reader.store(thread_number(), Ordering::Relaxed);
            let reason = for_reader.read(reader, &*events).err();
            let reason =
                reason.map_or_else(|| "the connection was closed".to_owned(), |error| error.to_string());
            lock(&for_reader.state).has_ended = true;
            for_reader.changed.notify_all();
            events.ended(&for_reader, reason);
        })?;
        lock(&link.threads).push(read);
        Ok(link)
    }

    pub(super) fn send(&self, outgoing: OutgoingMessage) {
        self.push(Content::Application(Arc::new(outgoing)));
    }

    pub(super) fn send_control(&self, control: &Control) {
        self.push(Content::Control(Arc::new(control.encode())));
    }

    fn push(&self, content: Content) {
        let mut state = lock(&self.state);
        let was_idle = !state.sending.has_next();
        state.sending.push(Instant::now(), content);
        drop(state);
        if was_idle {
            self.changed.notify_all();
        }
    }

    /// From now on frames name this node as their sender.
    pub(super) fn set_sender(&self, sender: i32) {
        lock(&self.state).sender = sender;
    }

    pub(super) fn set_peer(&self, peer: i32) {
        lock(&self.state).peer = Some(peer);
    }

    pub(super) fn peer(&self) -> Option<i32> {
        lock(&self.state).peer
    }

    /// Returns true if the other end has announced its end.
    pub(super) fn is_bye_taken(&self) -> bool {
        lock(&self.state).is_bye_taken
    }

    pub(super) fn has_ended(&self) -> bool {
        lock(&self.state).has_ended
    }

    /// Time since anything came.
    pub(super) fn silence(&self) -> Duration {
        lock(&self.state).last_received.elapsed()
    }

    pub(super) fn remote_host(&self) -> Option<String> {
        self.stream.peer_addr().ok().map(|address| address.ip().to_string())
    }

    pub(super) fn local_host(&self) -> Option<String> {
        self.stream.local_addr().ok().map(|address| address.ip().to_string())
    }

    /// Waits until everything that was sent is acknowledged, or the stream has ended, or it is `until`.
    pub(super) fn settle(&self, until: Instant) {
        let mut state = lock(&self.state);
        while !state.sending.is_done() && !state.has_ended {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Ends the stream.
    pub(super) fn shut(&self) {
        lock(&self.state).has_ended = true;
        self.changed.notify_all();
        // One that is closed already is as closed as it will be.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Waits for its threads, but for the one that reads if that asks.
    pub(super) fn join(&self) {
        let mut threads = core::mem::take(&mut *lock(&self.threads));
        if self.reader.load(Ordering::Relaxed) == thread_number() {
            threads.pop();
        }
        for handle in threads {
            // A thread that panicked has reported it.
            let _ = handle.join();
        }
    }

    fn write(&self, stream: &TcpStream) {
        let (mut heads, mut contents) = (Vec::new(), Vec::new());
        while self.next_batch(&mut heads, &mut contents) {
            let mut slices = Vec::with_capacity(contents.len() * 9);
            for (head, content) in heads.iter().zip(&contents) {
                slices.push(IoSlice::new(head));
                if let Some(content) = content {
                    for section in content.sections() {
                        slices.push(IoSlice::new(section));
                        slices.push(IoSlice::new(filling(section.len())));
                    }
                }
            }
            slices.retain(|slice| !slice.is_empty());
            if write_all(stream, &mut slices).is_err() {
                // The reader gets the reason, and the last messages of the other end.
                let _ = stream.shutdown(Shutdown::Write);
                return;
            }
            contents.clear();
        }
    }

    /// Waits until there is something to write. Returns false if there never will be.
    fn next_batch(&self, heads: &mut Vec<[u8; HEAD_BYTES]>, contents: &mut Vec<Option<Content>>) -> bool {
        heads.clear();
        contents.clear();
        let mut state = lock(&self.state);
        loop {
            if state.has_ended {
                return false;
            }
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
            if !heads.is_empty() {
                self.told.store(taken, Ordering::Relaxed);
                state.spoke = now;
                return true;
            }
            let heartbeat_at = state.spoke + self.settings.heartbeat;
            let wake = state.sending.ask_at().map_or(heartbeat_at, |at| at.min(heartbeat_at));
            let left = wake.saturating_duration_since(now).max(Duration::from_micros(100));
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn read(self: &Arc<Self>, stream: TcpStream, events: &impl LinkEvents) -> io::Result<()> {
        let mut stream = BufReader::with_capacity(BUFFER_BYTES, stream);
        let mut receiving = Receiving::default();
        let mut random = SmallRng::seed_from_u64(self.settings.drop_seed);
        let (mut spare, mut untold_bytes) = (Vec::new(), 0);
        // Messages that came too early.
        let mut held: BTreeMap<u64, (Head, Payload)> = BTreeMap::new();
        let mut head = [0; HEAD_BYTES];
        loop {
            match stream.read_exact(&mut head) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                other => other?,
            }
            let malformed =
                || io::Error::new(io::ErrorKind::InvalidData, "what came is no message of this version");
            let head = Head::decode(&head).ok_or_else(malformed)?;
            let payload = read_payload(&mut stream, core::mem::take(&mut spare), &head).transpose();
            let payload = payload.ok_or_else(malformed)??;
            let now = Instant::now();
            let is_lost = self.settings.drop_percent > 0
                && random.random_range(0..100) < u32::from(self.settings.drop_percent);
            let mut state = lock(&self.state);
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
            let wake = head.kind == Kind::Missing || state.sending.is_done();
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

    /// Has the writer send something, and wakes all others that wait.
    fn answer(&self, answer: Option<Kind>, wake: bool) {
        if answer.is_some() {
            let mut state = lock(&self.state);
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
            return Ok(events.application(Received { sender: head.sender, meta: head.meta, payload }));
        }
        let control = Control::decode(payload.text());
        let malformed = || io::Error::new(io::ErrorKind::InvalidData, "a control message makes no sense");
        let control = control.ok_or_else(malformed)?;
        if control == Control::Bye {
            lock(&self.state).is_bye_taken = true;
        }
        events.control(self, control);
        Ok(Some(payload))
    }
}

impl Content {
    fn kind(&self) -> (Kind, Meta) {
        match self {
            Self::Application(outgoing) => (Kind::Application, outgoing.meta),
            Self::Control(_) => (Kind::Control, Meta::default()),
        }
    }

    fn sections(&self) -> [&[u8]; super::message::SECTIONS] {
        match self {
            Self::Application(outgoing) => outgoing.sections(),
            Self::Control(bytes) => [bytes.as_slice(), &[], &[], &[]],
        }
    }
}

/// Reads the sections behind a head; `None` if no memory has that much.
fn read_payload(stream: &mut impl Read, words: Vec<u64>, head: &Head) -> io::Result<Option<Payload>> {
    let total = head.lengths.iter().fold(0_u64, |sum, length| sum.saturating_add(*length));
    if total > PROMISED_BYTES_MAX as u64 {
        return read_much(stream, head);
    }
    let Some(mut payload) = Payload::prepare(words, head.lengths) else { return Ok(None) };
    stream.read_exact(payload.stream_bytes_mut())?;
    Ok(Some(payload))
}

/// The same for so much that a wrong length could exhaust the memory: it is only taken when the bytes are there.
fn read_much(stream: &mut impl Read, head: &Head) -> io::Result<Option<Payload>> {
    let Some(total) = Payload::stream_length(head.lengths) else { return Ok(None) };
    let mut words: Vec<u64> = Vec::new();
    let mut read = 0;
    while read < total {
        let end = total.min((2 * read).max(PROMISED_BYTES_MAX));
        words.resize(end / size_of::<u64>(), 0);
        stream.read_exact(&mut bytemuck::cast_slice_mut(&mut words)[read..end])?;
        read = end;
    }
    Ok(Payload::prepare(words, head.lengths))
}

fn write_all(stream: &TcpStream, slices: &mut Vec<IoSlice<'_>>) -> io::Result<()> {
    let mut rest = slices.as_mut_slice();
    while !rest.is_empty() {
        let some = rest.len().min(512);
        // Not `write_vectored`: in a program that is not of Rust a signal would end the process if the other end is gone.
        match socket2::SockRef::from(stream).send_vectored_with_flags(&rest[..some], libc::MSG_NOSIGNAL) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(bytes) => IoSlice::advance_slices(&mut rest, bytes),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
