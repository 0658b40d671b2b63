//! Ordered reliable streams: TCP, one frame a message.

use core::time::Duration;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use libra_proto::{Callee, Link, LinkEvent, MESSAGE_BYTES_MAX, Message, Strangers};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant as Deadline;
use tracing::{debug, trace};

use crate::door::{Caller, FIRST_MESSAGE_MAX, Tally};
use crate::endpoint::Endpoint;
use crate::frames::{self, FrameReader, LENGTH_BYTES, write_frames};
use crate::security::{Calls, is_broken_off, refusal_of_peer};
use crate::stream::Stream as Transport;

/// Messages of all streams that wait for the role before the kernel holds the senders back.
const QUEUE: usize = 1024;
/// Of one stream so many messages wait for the role, and then those of others go first.
const UNHANDLED_MAX: usize = 16;
/// When so many bytes wait to be written to a caller, nothing more is read of it (rule C10). Workers keep fewer unanswered (rule C9): none
/// that reads its answers ever gets here.
const UNWRITTEN_BYTES_MAX: usize = 16 << 20;
/// With so many, a stream is closed: its other end has not read for long. It comes again (rule S4).
const UNWRITTEN_BYTES_END: usize = 256 << 20;
/// Time for data that was written before a stream was closed to leave.
const CLOSING_MAX: Duration = Duration::from_secs(30);
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Pause when all addresses of a name have others than the peer.
const STRANGE_PAUSE: Duration = Duration::from_secs(1);
/// So often a peer may close a stream before it has identified itself, and is called again: one that was killed does not answer then, and
/// the next one in its place does.
const BROKEN_OFF_MAX: usize = 3;
/// Time for which sent data may be unacknowledged, or unread while the peer has no room, before its stream counts as broken. As long as
/// keepalives take to notice that a peer is gone to which nothing is sent.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(11);
/// The longest time for which an address is called without an answer, before a name is looked up again.
const ATTEMPT_MAX: Duration = Duration::from_secs(5);
/// The longest time for which a call is repeated that its role repeats in turn.
const CALL_MAX: Duration = Duration::from_secs(10);
/// Time for written messages to leave at the end.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// An event or a message of a stream.
pub(crate) enum Input {
    Event(LinkEvent),
    Message(Message),
}

/// All streams of one role.
pub(crate) struct Links {
    streams: HashMap<Link, Stream>,
    inputs: mpsc::Receiver<(Link, Input)>,
    report: mpsc::Sender<(Link, Input)>,
    /// Streams whose messages the role was given since its outputs were last drained.
    handed: Vec<Arc<Backpressure>>,
    /// Streams that were closed here, which the role has not been told yet.
    ended: VecDeque<(Link, Input)>,
    tally: Arc<Tally>,
    tasks: JoinSet<()>,
    accepted: u64,
    /// Time to try to reach the controller at first.
    patience: Duration,
    has_called: bool,
    calls: Calls,
    bytes: Arc<AtomicU64>,
}

/// The role's end of a stream.
struct Stream {
    frames: mpsc::UnboundedSender<Vec<u8>>,
    backpressure: Arc<Backpressure>,
    /// The address of a caller.
    remote: Option<SocketAddr>,
    task: Option<AbortHandle>,
}

impl Stream {
    /// Nothing was sent to a peer that is still called.
    fn give_up_call(&self) {
        if !self.backpressure.open.load(Ordering::Relaxed) {
            self.task.iter().for_each(AbortHandle::abort);
        }
    }
}

/// Flow control between a role and one of its streams.
#[derive(Debug, Default)]
struct Backpressure {
    /// Messages that the role was not given yet, or has not answered.
    unhandled: AtomicUsize,
    /// Bytes that the kernel has not taken yet.
    unwritten: AtomicUsize,
    /// The other end has been reached.
    open: AtomicBool,
    /// Nothing more will be written: there is no reason to wait for it.
    broken: AtomicBool,
    less: Notify,
    /// The most bytes of a message; none is read while this is 0.
    message_bytes_max: AtomicUsize,
    admitted: Notify,
    closed: Notify,
}

impl Backpressure {
    /// Waits until there is little enough of both. A stream that this end has opened is always read: were both ends to wait until the
    /// other reads, neither would.
    async fn room(&self, accepted: bool) {
        let is_full = || {
            let unwritten = accepted && !self.broken.load(Ordering::Relaxed);
            self.unhandled.load(Ordering::Relaxed) >= UNHANDLED_MAX
                || (unwritten && self.unwritten.load(Ordering::Relaxed) >= UNWRITTEN_BYTES_MAX)
        };
        while is_full() {
            self.less.notified().await;
        }
    }

    fn admit(&self, message_bytes_max: usize) {
        self.message_bytes_max.store(message_bytes_max, Ordering::Relaxed);
        self.admitted.notify_one();
    }

    /// Waits until the role has identified the other end.
    async fn admission(&self) -> usize {
        loop {
            match self.message_bytes_max.load(Ordering::Relaxed) {
                0 => self.admitted.notified().await,
                bytes_max => return bytes_max,
            }
        }
    }

    /// Waits until the stream has been closed for as long as anything may take to leave.
    async fn overdue(&self) {
        self.closed.notified().await;
        tokio::time::sleep(CLOSING_MAX).await;
    }

    fn handled(&self) {
        self.unhandled.fetch_sub(1, Ordering::Relaxed);
        self.less.notify_one();
    }

    fn written(&self, bytes: usize) {
        self.unwritten.fetch_sub(bytes, Ordering::Relaxed);
        self.less.notify_one();
    }

    fn break_off(&self) {
        self.broken.store(true, Ordering::Relaxed);
        self.less.notify_one();
    }
}

impl Links {
    pub(crate) fn new(patience: Duration) -> Self {
        let (report, inputs) = mpsc::channel(QUEUE);
        Self {
            streams: HashMap::new(),
            inputs,
            report,
            handed: Vec::new(),
            ended: VecDeque::new(),
            tally: Arc::default(),
            tasks: JoinSet::new(),
            accepted: Link::ACCEPTED,
            patience,
            has_called: false,
            calls: Calls::default(),
            bytes: Arc::default(),
        }
    }

    /// The same, which identifies those that it calls.
    pub(crate) fn with_calls(self, calls: Calls) -> Self {
        Self { calls, ..self }
    }

    /// The same, which counts the streams that are closed in a counter of several.
    pub(crate) fn with_tally(self, tally: Arc<Tally>) -> Self {
        Self { tally, ..self }
    }

    /// Returns the counter of bytes of messages, in both directions.
    pub(crate) fn bytes(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.bytes)
    }

    /// Returns the counter of streams that are closed here.
    pub(crate) fn tally(&self) -> Arc<Tally> {
        Arc::clone(&self.tally)
    }

    /// Streams that were closed here since this was asked last.
    pub(crate) fn take_strangers(&self) -> Option<Strangers> {
        self.tally.take()
    }

    /// Returns the next thing that happened on any stream. The caller has sent the answers to earlier ones.
    pub(crate) async fn next(&mut self) -> (Link, Input) {
        for backpressure in self.handed.drain(..) {
            backpressure.handled();
        }
        if let Some(ended) = self.ended.pop_front() {
            return ended;
        }
        let input = self.inputs.recv().await.expect("self holds a sender");
        self.hand_out(input)
    }

    /// The next thing that has happened already.
    pub(crate) fn try_next(&mut self) -> Option<(Link, Input)> {
        let ended = self.ended.pop_front();
        ended.or_else(|| self.inputs.try_recv().ok().map(|input| self.hand_out(input)))
    }

    fn hand_out(&mut self, (link, input): (Link, Input)) -> (Link, Input) {
        if let (Input::Message(_), Some(stream)) = (&input, self.streams.get(&link)) {
            self.handed.push(Arc::clone(&stream.backpressure));
        }
        (link, input)
    }

    pub(crate) fn connect(&mut self, link: Link, to: Callee) {
        let (endpoint, role) = self.calls.find(to);
        // Only the first call waits for a peer that may take long to come. Later ones are for the role to repeat.
        let is_first = to == Callee::Controller && !core::mem::replace(&mut self.has_called, true);
        let patience = if is_first { self.patience } else { self.patience.min(CALL_MAX) };
        debug!(link = link.0, %endpoint, ?patience, "calls");
        let mut stream_task = self.register(link, None);
        stream_task.backpressure.admit(MESSAGE_BYTES_MAX);
        let security = self.calls.security.clone();
        let task = self.tasks.spawn(async move {
            let stream = async {
                let (called, mut broken_off, mut strange) = (Deadline::now(), 0, BTreeSet::new());
                loop {
                    let left = patience.saturating_sub(called.elapsed());
                    let socket = connect(&endpoint, &strange, left).await?;
                    let remote = socket.peer_addr()?;
                    let identified = security.call(socket, role);
                    match tokio::time::timeout(FIRST_MESSAGE_MAX, identified).await {
                        Ok(Err(error)) if is_broken_off(&error) && broken_off < BROKEN_OFF_MAX => {
                            broken_off += 1;
                            tokio::time::sleep(RETRY_PAUSE).await;
                        }
                        // Something else may have the address of a controller that is gone, until its name has another.
                        Ok(Err(_)) if endpoint.is_name() && called.elapsed() + STRANGE_PAUSE < patience => {
                            if !strange.insert(remote) {
                                strange.clear();
                                tokio::time::sleep(STRANGE_PAUSE).await;
                            }
                        }
                        Ok(identified) => return identified.map(|stream| (stream, remote)),
                        Err(_) if called.elapsed() >= patience => return Err(io::ErrorKind::TimedOut.into()),
                        // It listens, and is too busy to look yet.
                        Err(_) => {}
                    }
                }
            };
            match stream.await {
                Ok((stream, remote)) => {
                    debug!(link = link.0, %remote, "a call was answered");
                    stream_task.backpressure.open.store(true, Ordering::Relaxed);
                    stream_task.remote = Some(remote);
                    stream_task.run(stream, None).await;
                }
                Err(error) => {
                    debug!(link = link.0, %endpoint, %error, "a call has failed");
                    let event = match end_of(&error) {
                        LinkEvent::Refused { reason } => {
                            LinkEvent::Refused { reason: format!("{endpoint}: {reason}") }
                        }
                        LinkEvent::Closed { reason } => {
                            LinkEvent::Closed { reason: format!("{endpoint}: {reason}") }
                        }
                        event @ LinkEvent::Opened { .. } => event,
                    };
                    drop(stream_task.report.send((link, Input::Event(event))).await);
                }
            }
        });
        self.has_task(link, task);
    }

    /// Takes a stream that a peer has opened. If it has identified itself, the role must [admit](Self::admit) it before more is read.
    pub(crate) fn accept(&mut self, caller: Caller) {
        let Caller { stream, remote, first } = caller;
        let link = Link(self.accepted);
        let Some(next) = self.accepted.checked_add(1) else {
            // A number is never used twice.
            return self.tally.add(remote, "2^31 streams were accepted, and no more can be");
        };
        self.accepted = next;
        debug!(link = link.0, %remote, "a caller is accepted");
        let stream_task = self.register(link, Some(remote));
        stream_task.backpressure.open.store(true, Ordering::Relaxed);
        if first.is_none() {
            stream_task.backpressure.admit(MESSAGE_BYTES_MAX);
        }
        let task = self.tasks.spawn(stream_task.run(stream, first));
        self.has_task(link, task);
    }

    /// Takes messages of a stream, none with more bytes than this.
    pub(crate) fn admit(&mut self, link: Link, message_bytes_max: usize) {
        if let Some(stream) = self.streams.get(&link) {
            stream.backpressure.admit(message_bytes_max);
        }
    }

    fn register(&mut self, link: Link, remote: Option<SocketAddr>) -> StreamTask {
        // Reaps the tasks of streams that have ended: a set keeps their memory until they are joined.
        while self.tasks.try_join_next().is_some() {}
        let (frames, outbox) = mpsc::unbounded_channel();
        let backpressure = Arc::<Backpressure>::default();
        self.streams
            .insert(link, Stream { frames, backpressure: Arc::clone(&backpressure), remote, task: None });
        let (report, bytes, tally) = (self.report.clone(), Arc::clone(&self.bytes), self.tally());
        StreamTask { link, remote, outbox, backpressure, report, bytes, tally }
    }

    fn has_task(&mut self, link: Link, task: AbortHandle) {
        if let Some(stream) = self.streams.get_mut(&link) {
            stream.task = Some(task);
        }
    }

    pub(crate) fn send(&mut self, link: Link, message: &Message) {
        // A stream that has just closed: the role will receive that event, and what it sends meanwhile is lost.
        let Some(stream) = self.streams.get(&link) else { return };
        let mut frame = message.encode_behind(&frames::NO_LENGTH);
        frames::seal(&mut frame);
        trace!(link = link.0, bytes = frame.len(), "a message is sent");
        self.bytes.fetch_add(frame.len() as u64, Ordering::Relaxed);
        stream.backpressure.unwritten.fetch_add(frame.len(), Ordering::Relaxed);
        let unwritten = stream.backpressure.unwritten.load(Ordering::Relaxed);
        let is_first = unwritten == frame.len();
        let _ = stream.frames.send(frame);
        if unwritten > UNWRITTEN_BYTES_END && !is_first {
            self.end(link, format!("{} MiB wait to be written, and it does not read", unwritten >> 20));
        }
    }

    /// Closes a stream at once, with all that waits for it, and reports it to the role.
    fn end(&mut self, link: Link, reason: String) {
        let Some(stream) = self.streams.remove(&link) else { return };
        stream.task.inspect(AbortHandle::abort);
        if let Some(remote) = stream.remote {
            self.tally.add(remote, reason.as_str());
        }
        self.ended.push_back((link, Input::Event(LinkEvent::Closed { reason })));
    }

    pub(crate) fn close(&mut self, link: Link) {
        if let Some(stream) = self.streams.remove(&link) {
            stream.backpressure.closed.notify_one();
            stream.give_up_call();
        }
    }

    /// Waits until written messages have left, then closes everything.
    pub(crate) async fn finish(mut self) {
        self.streams.drain().for_each(|(_, stream)| stream.give_up_call());
        self.inputs.close();
        let _ =
            tokio::time::timeout(DRAIN_TIMEOUT, async { while self.tasks.join_next().await.is_some() {} })
                .await;
    }
}

async fn connect(
    endpoint: &Endpoint,
    strange: &BTreeSet<SocketAddr>,
    patience: Duration,
) -> io::Result<TcpStream> {
    let begun = Deadline::now();
    loop {
        let left = patience.saturating_sub(begun.elapsed());
        let attempt = tokio::time::timeout(left.clamp(RETRY_PAUSE, ATTEMPT_MAX), endpoint.call(strange));
        let error = match attempt.await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => error,
            Err(_) => io::Error::from(io::ErrorKind::TimedOut),
        };
        if begun.elapsed() + RETRY_PAUSE >= patience {
            let message = format!("{error} (tried for {:.1} s)", patience.as_secs_f64());
            return Err(io::Error::new(error.kind(), message));
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

fn invalid(error: impl Into<Box<dyn core::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// The event of a stream that has failed.
fn end_of(error: &io::Error) -> LinkEvent {
    if let Some(reason) = refusal_of_peer(error) {
        return LinkEvent::Refused { reason };
    }
    let reason = error.to_string();
    match error.kind() {
        io::ErrorKind::PermissionDenied => LinkEvent::Refused { reason },
        _ => LinkEvent::Closed { reason },
    }
}

/// State of the task of a stream.
struct StreamTask {
    link: Link,
    remote: Option<SocketAddr>,
    outbox: mpsc::UnboundedReceiver<Vec<u8>>,
    backpressure: Arc<Backpressure>,
    report: mpsc::Sender<(Link, Input)>,
    bytes: Arc<AtomicU64>,
    tally: Arc<Tally>,
}

impl StreamTask {
    /// Reads and writes one stream until either end closes it.
    async fn run(self, stream: Transport, first: Option<(Message, usize)>) {
        let backpressure = Arc::clone(&self.backpressure);
        tokio::select! {
            () = self.serve(stream, first) => {}
            () = backpressure.overdue() => {}
        }
    }

    async fn serve(self, stream: Transport, first: Option<(Message, usize)>) {
        let _ = stream.socket().set_nodelay(true);
        // A machine that vanishes sends no FIN: without this its peers would wait for it forever.
        let keepalive = socket2::TcpKeepalive::new()
            .with_time(Duration::from_secs(5))
            .with_interval(Duration::from_secs(2));
        let socket = socket2::SockRef::from(stream.socket());
        let _ = socket.set_tcp_keepalive(&keepalive.with_retries(3));
        // While something is unacknowledged no keepalive is sent: the kernel would send it again for a quarter of an hour.
        let _ = socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED_MAX));
        match stream {
            Transport::Plain(stream) => {
                let (reader, writer) = stream.into_split();
                self.converse(reader, writer, first).await;
            }
            Transport::Secure(stream) => {
                let (reader, writer) = tokio::io::split(stream);
                self.converse(reader, writer, first).await;
            }
        }
    }

    /// Reads and writes messages.
    async fn converse(
        self,
        reader: impl AsyncRead + Unpin,
        writer: impl AsyncWrite + Unpin,
        first: Option<(Message, usize)>,
    ) {
        let Self { link, remote, outbox, backpressure, report, bytes, tally } = self;
        let remote = remote.expect("an open stream has another end");
        if report.send((link, Input::Event(LinkEvent::Opened { remote }))).await.is_err() {
            return;
        }
        if let Some((message, length)) = first {
            bytes.fetch_add(length as u64, Ordering::Relaxed);
            backpressure.unhandled.fetch_add(1, Ordering::Relaxed);
            if report.send((link, Input::Message(message))).await.is_err() {
                return;
            }
        }
        let mut frames = FrameReader::new(reader);
        let ended = {
            let (read, write) = (
                read(link, &mut frames, &report, &backpressure, &bytes),
                write(writer, outbox, &backpressure),
            );
            tokio::pin!(read, write);
            tokio::select! {
                biased;
                error = &mut read => Some(error),
                written = &mut write => match written {
                    Ok(()) => None,
                    // Data that the other end sent before is there to be read: it may name the reason.
                    Err(error) => {
                        backpressure.break_off();
                        let read = tokio::time::timeout(DRAIN_TIMEOUT, read).await;
                        Some(read.unwrap_or(error))
                    }
                },
            }
        };
        match ended {
            Some(error) => {
                debug!(link = link.0, %remote, %error, "a stream has ended");
                if error.kind() == io::ErrorKind::InvalidData && link.0 >= Link::ACCEPTED {
                    tally.add(remote, error.to_string());
                }
                drop(report.send((link, Input::Event(end_of(&error)))).await);
            }
            // We closed it. Later data of the other end has no reader; but a stream that is dropped with something unread is
            // reset, and the other end may lose our last messages.
            None => {
                debug!(link = link.0, %remote, "a stream is closed");
                drop(tokio::time::timeout(DRAIN_TIMEOUT, frames.drain()).await);
            }
        }
    }
}

/// Hands messages over until the stream ends. Returns the reason: of the kind `InvalidData` if the other end sent something invalid.
async fn read(
    link: Link,
    frames: &mut FrameReader<impl AsyncRead + Unpin>,
    report: &mpsc::Sender<(Link, Input)>,
    backpressure: &Backpressure,
    bytes: &AtomicU64,
) -> io::Error {
    // The role admits the caller in the same turn or closes the stream.
    let Ok(bytes_max) = tokio::time::timeout(FIRST_MESSAGE_MAX, backpressure.admission()).await else {
        return invalid("the caller was not admitted");
    };
    loop {
        backpressure.room(link.0 >= Link::ACCEPTED).await;
        let message = match frames.next(bytes_max).await {
            Ok(Some(frame)) => {
                trace!(link = link.0, bytes = frame.len(), "a message is received");
                bytes.fetch_add((frame.len() + LENGTH_BYTES) as u64, Ordering::Relaxed);
                Message::decode(frame).map_err(invalid)
            }
            Ok(None) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was closed")),
            Err(error) => Err(error),
        };
        match message {
            Ok(message) => {
                backpressure.unhandled.fetch_add(1, Ordering::Relaxed);
                // The receiver is gone while a role drains, and its last messages must still leave.
                if report.send((link, Input::Message(message))).await.is_err() {
                    backpressure.handled();
                }
            }
            Err(error) => return error,
        }
    }
}

/// Writes messages until all senders are gone.
async fn write(
    mut writer: impl AsyncWrite + Unpin,
    mut outbox: mpsc::UnboundedReceiver<Vec<u8>>,
    backpressure: &Backpressure,
) -> io::Result<()> {
    let mut waiting = Vec::new();
    while outbox.recv_many(&mut waiting, 64).await > 0 {
        write_frames(&mut writer, &waiting, |bytes| backpressure.written(bytes)).await?;
        waiting.clear();
    }
    writer.shutdown().await
}

#[cfg(test)]
mod tests;
