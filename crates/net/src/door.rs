//! The listening end of incoming streams: a peer gets past after it has identified itself (rule S1).
//!
//! A stream without a first message costs a descriptor and an entry in a list: no task, no buffer, and no turn of the loop that
//! drives the role. The list is short; when it is full, the oldest goes. A member sends its first message as soon as its stream is
//! open, so a flood of silent streams cannot push it out before that message is read.

use core::future::poll_fn;
use core::net::IpAddr;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use libra_proto::{FIRST_BYTES_MAX, Message, REJOIN_BYTES_MAX, Strangers, may_be_long};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::{Instant as Deadline, Sleep};
use tokio_rustls::{Accept, TlsStream};
use tracing::debug;

use crate::frames::{self, LENGTH_BYTES, SPEAKS_TLS, speaks_tls};
use crate::security::Security;
use crate::security::roles::{Role, Roles};
use crate::stream::{Buffered, DetachedStream, Stream, buffered};

/// So many streams may be open without a first message.
pub(crate) const WAITING_MAX: usize = 64;
/// Time in which its first message must be complete.
pub(crate) const FIRST_MESSAGE_MAX: Duration = Duration::from_secs(5);
/// Members whose first message is read and that the role has not taken yet. Beyond, the door waits until it has.
const IDENTIFIED_MAX: usize = 64;
/// Reads of one stream before the others have their turn.
const READS_MAX: usize = 16;
/// Bytes that long first messages may take together, for each is read into memory that grows as it comes.
const MEMORY_MAX: usize = REJOIN_BYTES_MAX + (8 << 20);
/// Bytes that are read at once.
const READ_BYTES: usize = 64 << 10;
/// Time to accept nothing when there are no descriptors.
const PAUSE: Duration = Duration::from_millis(10);

/// Messages that a stream may begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Callers {
    /// Members of a cluster: this is its controller.
    Members,
    /// Workers and switches: this is a server.
    Clients,
    /// Any peer: this is a measurement, and there is no first message.
    Unidentified,
}

impl Callers {
    fn begin_with(self, message: &Message) -> bool {
        match message {
            Message::Join(_) | Message::Rejoin(_) | Message::Restoring(_) | Message::Enquire { .. } => {
                self == Self::Members
            }
            Message::Hello(_) => self == Self::Clients,
            _ => false,
        }
    }

    /// Returns the most bytes of a first message whose first byte is this.
    fn bytes_max(self, first_byte: u8) -> usize {
        if self == Self::Members && may_be_long(first_byte) { REJOIN_BYTES_MAX } else { FIRST_BYTES_MAX }
    }
}

/// A stream whose other end has identified itself.
pub(crate) struct Caller<S = Stream> {
    pub(crate) stream: S,
    pub(crate) remote: SocketAddr,
    /// Its first message, and how many bytes of the stream that took; none if any peer may call.
    pub(crate) first: Option<(Message, usize)>,
}

/// The way by which streams come in.
pub(crate) enum Entrance {
    /// A port of the role's own, who may call there, and how they are identified.
    Listener(TcpListener, Callers, Security),
    /// The port is that of several roles ([`Front`](crate::front::Front)).
    Behind(mpsc::Receiver<HandedOver>),
}

/// A caller on its way to the thread of another runtime.
pub(crate) type HandedOver = Caller<DetachedStream>;

impl Caller {
    /// Takes the stream from its runtime.
    pub(crate) fn hand_over(self) -> Result<HandedOver, (SocketAddr, io::Error)> {
        let Self { stream, remote, first } = self;
        let stream = stream.detach().map_err(|error| (remote, error))?;
        Ok(HandedOver { stream, remote, first })
    }
}

impl HandedOver {
    /// Gives the stream to the runtime of this thread.
    fn into_caller(self) -> Result<Caller, (SocketAddr, io::Error)> {
        let Self { stream, remote, first } = self;
        let stream = stream.attach().map_err(|error| (remote, error))?;
        Ok(Caller { stream, remote, first })
    }
}

/// The role's side of a door.
pub(crate) struct Door {
    callers: mpsc::Receiver<Caller>,
    keeper: AbortHandle,
}

impl Door {
    /// Accepts streams from now on, and counts those that are turned away. Must be called inside a runtime.
    pub(crate) fn open(entrance: Entrance, tally: Arc<Tally>) -> Self {
        let (identified, inbox) = mpsc::channel(IDENTIFIED_MAX);
        // The task ends with the role that it works for.
        let task = match entrance {
            Entrance::Listener(listener, callers, security) => {
                let mut keeper = Keeper::new(listener, callers, security, tally);
                tokio::spawn(async move {
                    while let Ok(place) = identified.reserve().await {
                        place.send(keeper.next().await);
                    }
                })
            }
            Entrance::Behind(mut front) => tokio::spawn(async move {
                while let Some(handed) = front.recv().await {
                    let caller = match handed.into_caller() {
                        Ok(caller) => caller,
                        Err((remote, error)) => {
                            tally.add(remote, error.to_string());
                            continue;
                        }
                    };
                    if identified.send(caller).await.is_err() {
                        return;
                    }
                }
            }),
        };
        Self { callers: inbox, keeper: task.abort_handle() }
    }

    /// Returns the next stream whose other end has identified itself.
    pub(crate) async fn next(&mut self) -> Caller {
        match self.callers.recv().await {
            Some(caller) => caller,
            // The keeper is gone: so is the runtime.
            None => core::future::pending().await,
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

/// Streams that were closed because their other end is unknown, or breaks a bound.
#[derive(Debug, Default)]
pub(crate) struct Tally(Mutex<Option<Strangers>>);

impl Tally {
    pub(crate) fn add(&self, remote: SocketAddr, reason: impl Into<String>) {
        let reason = reason.into();
        debug!(%remote, reason, "a stream is turned away");
        let mut strangers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = strangers.as_ref().map_or(0, |strangers| strangers.count) + 1;
        *strangers = Some(Strangers { count, remote, reason });
    }

    /// Those since this was asked last.
    pub(crate) fn take(&self) -> Option<Strangers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A stream whose first message is not complete yet.
struct Waiting {
    stream: Opening,
    remote: SocketAddr,
    until: Deadline,
    /// The first frame, as far as it has come.
    frame: Vec<u8>,
}

/// A stream as far as its other end has shown what it may be.
enum Opening {
    /// Nothing is to be shown.
    Plain(TcpStream),
    Handshake(Box<Accept<Buffered>>),
    Secure(Box<TlsStream<Buffered>>),
}

/// The result of a look at a stream.
enum Look {
    /// Nothing more is there yet.
    Nothing,
    /// There is more, and others have a turn first.
    More,
    Identified(Message),
    /// It is not one of ours.
    Stranger(String),
}

impl Waiting {
    /// Returns true if there may be something to look at.
    fn is_ready(&mut self, context: &mut Context<'_>) -> bool {
        match &self.stream {
            Opening::Plain(stream) => stream.poll_read_ready(context).is_ready(),
            // A look polls it.
            Opening::Handshake(_) | Opening::Secure(_) => true,
        }
    }

    /// Takes what is there. `ready` is true if the runtime has reported data.
    fn look(
        &mut self,
        callers: Callers,
        security: &Security,
        ready: bool,
        context: &mut Context<'_>,
    ) -> Look {
        if callers == Callers::Unidentified {
            return Look::Nothing;
        }
        if let Opening::Handshake(handshake) = &mut self.stream {
            match Pin::new(handshake).poll(context) {
                Poll::Pending => return Look::Nothing,
                Poll::Ready(Ok(stream)) => self.stream = Opening::Secure(Box::new(stream.into())),
                Poll::Ready(Err(error)) => return Look::Stranger(security.refusal(&error).to_string()),
            }
        }
        for _ in 0..READS_MAX {
            let wanted = match self.wanted(callers) {
                Ok(wanted) => wanted,
                Err(reason) => return Look::Stranger(reason),
            };
            if let Some(frame) = self.frame.get(LENGTH_BYTES..).filter(|_| self.frame.len() == wanted) {
                return match Message::decode(frame) {
                    Ok(message) if callers.begin_with(&message) => {
                        self.identify(message, callers, security, context)
                    }
                    Ok(_) => Look::Stranger("its first message does not identify it".to_owned()),
                    Err(error) => Look::Stranger(error.to_string()),
                };
            }
            match self.read(wanted, ready, context) {
                Ok(0) => return Look::Stranger("it was closed before it identified itself".to_owned()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Look::Nothing,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Look::Stranger(error.to_string()),
            }
        }
        Look::More
    }

    /// Compares what a caller says it is with what it has shown.
    fn identify(
        &mut self,
        message: Message,
        callers: Callers,
        security: &Security,
        context: &mut Context<'_>,
    ) -> Look {
        let may_be = match &self.stream {
            Opening::Secure(stream) => security.roles_of(stream),
            Opening::Plain(_) | Opening::Handshake(_) => Roles::ALL,
        };
        let Some(role) = Role::claimed(&message).filter(|role| !may_be.has(*role)) else {
            return Look::Identified(message);
        };
        // Servers are called by members, whose controller has compared theirs.
        if callers == Callers::Members {
            let reason = format!("the certificate of this {role} is that of {may_be}");
            self.send_last(&Message::Abort { reason }, context);
        }
        Look::Stranger(format!("its certificate is that of {may_be}, and it says that it is a {role}"))
    }

    /// Sends a message before the stream is closed, as far as there is room for it at once.
    fn send_last(&mut self, message: &Message, context: &mut Context<'_>) {
        let Opening::Secure(stream) = &mut self.stream else { return };
        let mut frame = message.encode_behind(&frames::NO_LENGTH);
        frames::seal(&mut frame);
        let _ = Pin::new(&mut *stream).poll_write(context, &frame);
        let _ = Pin::new(stream).poll_flush(context);
    }

    /// Returns the length of the frame with its length field, as far as that is received: nothing behind it is read.
    fn wanted(&self, callers: Callers) -> Result<usize, String> {
        let Some(length) = self.frame.first_chunk::<LENGTH_BYTES>() else { return Ok(LENGTH_BYTES + 1) };
        let length = u32::from_be_bytes(*length) as usize;
        let Some(first_byte) = self.frame.get(LENGTH_BYTES) else {
            return if length == 0 { Err("an empty message".to_owned()) } else { Ok(LENGTH_BYTES + 1) };
        };
        let bytes_max = callers.bytes_max(*first_byte);
        if speaks_tls(&self.frame) && matches!(self.stream, Opening::Plain(_)) {
            return Err(SPEAKS_TLS.to_owned());
        }
        if length == 0 || length > bytes_max {
            return Err(format!("a first message of {length} bytes, where {bytes_max} may be"));
        }
        Ok(LENGTH_BYTES + length)
    }

    /// Memory follows the bytes received, not what a length promises.
    fn read(&mut self, wanted: usize, ready: bool, context: &mut Context<'_>) -> io::Result<usize> {
        let filled = self.frame.len();
        let end = wanted.min(filled + READ_BYTES);
        if end > self.frame.capacity() {
            self.frame.reserve_exact(wanted.min(2 * end) - filled);
        }
        self.frame.resize(end, 0);
        let read = self.stream.read(&mut self.frame[filled..], ready, context);
        self.frame.truncate(filled + *read.as_ref().unwrap_or(&0));
        read
    }

    /// True if more of it is here than most first messages have.
    fn is_long(&self) -> bool {
        self.frame.len() > FIRST_BYTES_MAX
    }
}

impl Opening {
    fn read(&mut self, into: &mut [u8], ready: bool, context: &mut Context<'_>) -> io::Result<usize> {
        match self {
            Self::Plain(stream) if ready => stream.try_read(into),
            // The runtime reports no data before it has looked once; a stream that is about to be closed is read directly.
            Self::Plain(stream) => rustix::net::recv(stream, into, rustix::net::RecvFlags::DONTWAIT)
                .map(|(read, _)| read)
                .map_err(io::Error::from),
            Self::Handshake(_) => Err(io::ErrorKind::WouldBlock.into()),
            Self::Secure(stream) => {
                let mut into = ReadBuf::new(into);
                match Pin::new(stream).poll_read(context, &mut into) {
                    Poll::Ready(read) => read.map(|()| into.filled().len()),
                    Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
                }
            }
        }
    }
}

/// Accepts streams and reads their first messages.
pub(crate) struct Keeper {
    listener: TcpListener,
    callers: Callers,
    security: Security,
    tally: Arc<Tally>,
    /// The oldest first, so that its time is over first.
    waiting: VecDeque<Waiting>,
    identified: VecDeque<Caller>,
    timer: Pin<Box<Sleep>>,
    /// Until when nothing is accepted.
    pause: Option<Pin<Box<Sleep>>>,
}

impl Keeper {
    pub(crate) fn new(
        listener: TcpListener,
        callers: Callers,
        security: Security,
        tally: Arc<Tally>,
    ) -> Self {
        let timer = Box::pin(tokio::time::sleep(Duration::ZERO));
        Self {
            listener,
            callers,
            security,
            tally,
            waiting: VecDeque::new(),
            identified: VecDeque::new(),
            timer,
            pause: None,
        }
    }

    pub(crate) async fn next(&mut self) -> Caller {
        poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Caller> {
        self.accept(context);
        self.look_at_all(context);
        self.end_waits(context);
        match self.identified.pop_front() {
            Some(caller) => Poll::Ready(caller),
            None => Poll::Pending,
        }
    }

    /// Reads what has come. Bounded: a peer that never stops sending does not keep others from being accepted.
    fn look_at_all(&mut self, context: &mut Context<'_>) {
        let mut place = 0;
        while let Some(waiting) = self.waiting.get_mut(place) {
            if !waiting.is_ready(context) {
                place += 1;
                continue;
            }
            let look = waiting.look(self.callers, &self.security, true, context);
            let again = match look {
                // It may have taken the readiness back; the next look registers again.
                Look::Nothing => matches!(waiting.stream, Opening::Plain(_)) && waiting.is_ready(context),
                Look::More => true,
                Look::Identified(_) | Look::Stranger(_) => false,
            };
            if again {
                context.waker().wake_by_ref();
            }
            if self.settle(place, look) {
                place += 1;
            }
        }
        self.keep_within_memory();
    }

    /// Acts on the result of a look. Returns true if the stream still waits.
    fn settle(&mut self, place: usize, look: Look) -> bool {
        match look {
            Look::Nothing | Look::More => return true,
            Look::Identified(message) => {
                if let Some(Waiting { stream, remote, frame, .. }) = self.waiting.remove(place) {
                    debug!(%remote, bytes = frame.len(), "a caller has identified itself");
                    let stream = match stream {
                        Opening::Plain(stream) => Stream::Plain(stream),
                        Opening::Secure(stream) => Stream::Secure(stream),
                        Opening::Handshake(_) => unreachable!("it has spoken"),
                    };
                    self.identified.push_back(Caller { stream, remote, first: Some((message, frame.len())) });
                }
            }
            Look::Stranger(reason) => self.turn_away(place, &reason),
        }
        false
    }

    fn turn_away(&mut self, place: usize, reason: &str) {
        if let Some(waiting) = self.waiting.remove(place) {
            self.tally.add(waiting.remote, reason);
        }
    }

    /// All that has come of first messages takes no more memory than one may. The shortest of the long ones goes: were it another, many
    /// servers that return at once could keep each other from ever being read.
    fn keep_within_memory(&mut self) {
        loop {
            let long = || self.waiting.iter().enumerate().filter(|(_, waiting)| waiting.is_long());
            let bytes: usize = self.waiting.iter().map(|waiting| waiting.frame.capacity()).sum();
            if long().count() <= WAITING_MAX && bytes <= MEMORY_MAX {
                return;
            }
            let shortest = long().min_by_key(|(_, waiting)| waiting.frame.len()).map(|(place, _)| place);
            let Some(shortest) = shortest else { return };
            self.turn_away(shortest, "others were further with long first messages");
        }
    }

    fn accept(&mut self, context: &mut Context<'_>) {
        if let Some(pause) = &mut self.pause {
            if pause.as_mut().poll(context).is_pending() {
                return;
            }
            self.pause = None;
        }
        for _ in 0..WAITING_MAX {
            match self.listener.poll_accept(context) {
                Poll::Ready(Ok((stream, remote))) if self.callers == Callers::Unidentified => {
                    self.identified.push_back(Caller { stream: Stream::Plain(stream), remote, first: None });
                }
                Poll::Ready(Ok((stream, remote))) => self.receive(stream, remote, context),
                Poll::Ready(Err(error)) if is_of_the_peer(&error) => {}
                // Out of descriptors, as a rule. An unused one is given back, and the caller waits in the kernel.
                Poll::Ready(Err(error)) => {
                    debug!(%error, "nothing can be accepted");
                    self.turn_away(0, "there are no more file descriptors");
                    let mut pause = Box::pin(tokio::time::sleep(PAUSE));
                    // Not over yet: it wakes this task.
                    let _ = pause.as_mut().poll(context);
                    self.pause = Some(pause);
                    return;
                }
                Poll::Pending => return,
            }
            if self.identified.len() >= IDENTIFIED_MAX {
                return;
            }
        }
        context.waker().wake_by_ref();
    }

    fn receive(&mut self, stream: TcpStream, remote: SocketAddr, context: &mut Context<'_>) {
        let until = Deadline::now() + FIRST_MESSAGE_MAX;
        let stream = match self.security.acceptor() {
            Some(acceptor) => Opening::Handshake(Box::new(acceptor.accept(buffered(stream)))),
            None => Opening::Plain(stream),
        };
        self.waiting.push_back(Waiting { stream, remote, until, frame: Vec::new() });
        // The first message of a member is often here already.
        let place = self.waiting.len() - 1;
        let look = self.waiting[place].look(self.callers, &self.security, false, context);
        if self.settle(place, look) {
            self.make_room(context);
        }
    }

    fn short(&self) -> impl Iterator<Item = &Waiting> {
        self.waiting.iter().filter(|waiting| !waiting.is_long())
    }

    /// If more wait than may, the oldest goes of the address that has the most: so a peer that opens many displaces its own.
    fn make_room(&mut self, context: &mut Context<'_>) {
        while self.short().count() > WAITING_MAX {
            let mut of_address = BTreeMap::<IpAddr, usize>::new();
            for waiting in self.short() {
                *of_address.entry(waiting.remote.ip()).or_default() += 1;
            }
            let most = of_address.values().copied().max().unwrap_or(0);
            let has_most = |waiting: &Waiting| !waiting.is_long() && of_address[&waiting.remote.ip()] == most;
            let Some(place) = self.waiting.iter().position(has_most) else { return };
            // It may have spoken since the last look.
            let look = match self.waiting[place].look(self.callers, &self.security, false, context) {
                Look::Nothing | Look::More if self.waiting[place].is_long() => continue,
                Look::Nothing | Look::More => Look::Stranger("it was silent while others came".to_owned()),
                look => look,
            };
            self.settle(place, look);
        }
    }

    /// Closes those whose time is over.
    fn end_waits(&mut self, context: &mut Context<'_>) {
        loop {
            let Some(oldest) = self.waiting.front() else { return };
            if self.timer.deadline() != oldest.until {
                self.timer.as_mut().reset(oldest.until);
            }
            if self.timer.as_mut().poll(context).is_pending() {
                return;
            }
            let reason = format!("it did not identify itself within {} s", FIRST_MESSAGE_MAX.as_secs());
            self.turn_away(0, &reason);
        }
    }
}

/// True if the stream that could not be accepted is gone, and nothing else is wrong.
fn is_of_the_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}

#[cfg(test)]
pub(crate) mod tests;
