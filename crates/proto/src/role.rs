//! The contract between a role and what drives it.
//!
//! A role is a state machine without I/O. Its driver (`libra-net` over sockets, the simulator over virtual links) hands in
//! what happened and the time, then drains what the role wants done, then hands in the next thing:
//!
//! ```text
//!  handle_datagrams ─┐                ┌─ poll_transmit   datagrams to send
//!  handle_message   ─┤                ├─ poll_action     streams to open, messages to send
//!  handle_link      ─┼──▶   role   ──▶┤
//!  handle_command   ─┤                ├─ poll_event      events for its user
//!  handle_timeout   ─┘                └─ poll_timeout    when to call handle_timeout
//! ```
//!
//! Beside that, [`status`](Role::status) is a copy of what it knows of itself, for those who watch: to ask changes nothing.

use core::net::SocketAddr;
use core::ops::Range;

use crate::message::Message;
use crate::time::Instant;
use crate::turn::RUN_BYTES_MAX;

/// Names an ordered reliable stream to a peer, for as long as it is open.
///
/// Streams that a role opens are numbered by the role, below [`Link::ACCEPTED`]; those that a peer opened are numbered by
/// the driver, from there on. A number is never used twice: of 2^63, a peer that opens a million streams a second needs 290,000 years.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Link(pub u64);

impl Link {
    /// The first number of the streams that peers opened.
    pub const ACCEPTED: u64 = 1 << 63;
}

/// An event of a stream other than the arrival of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkEvent {
    /// It is open: messages flow both ways.
    Opened {
        /// The address of the other end.
        remote: SocketAddr,
    },
    /// It is gone: closed by the other end, or never opened.
    Closed {
        /// The reason, in words for a person.
        reason: String,
    },
    /// It is gone, or never was: the other end, which this one has called, is none of the cluster. To call again changes nothing (rule S6).
    Refused {
        /// The reason, in words for a person.
        reason: String,
    },
}

/// A process that a role opens a stream to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Callee {
    /// The controller, at the place that only the driver knows: names may mean another address each time.
    Controller,
    /// A server at this address.
    Server(SocketAddr),
}

/// A request of a role to its driver about streams.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Open a stream.
    Connect {
        /// Number by which the role will name it.
        link: Link,
        /// The process to connect to.
        to: Callee,
    },
    /// Send a message on an open stream.
    Send {
        /// On which.
        link: Link,
        /// The message.
        message: Message,
    },
    /// Read more than the first message of a stream that a peer opened: the peer is the one that it claims to be, as far as that can be
    /// verified (rules S1, S2). Until then its driver reads nothing behind that message.
    Admit {
        /// The stream.
        link: Link,
        /// No message of it has more bytes.
        message_bytes_max: usize,
    },
    /// Close a stream once what was sent on it is on its way.
    Close {
        /// The stream.
        link: Link,
    },
}

/// Streams that a driver has closed itself (rules S1, S2, S4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Strangers {
    /// Number of streams.
    pub count: u64,
    /// The other end of the last one.
    pub remote: SocketAddr,
    /// Reason why that one was closed, in words for a person.
    pub reason: String,
}

/// Counts strangers, and decides when to report them: each time the count has doubled.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StrangerCount(u64);

impl StrangerCount {
    pub(crate) fn add(&mut self, strangers: Strangers) -> Option<Strangers> {
        let before = self.0;
        self.0 = before.saturating_add(strangers.count);
        (self.0.leading_zeros() < before.leading_zeros()).then_some(Strangers { count: self.0, ..strangers })
    }
}

/// Datagrams of an [`Outgoing`] that a kernel takes in one piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatagramRun<'a> {
    /// The destination.
    pub to: SocketAddr,
    /// The datagrams, one after the other.
    pub bytes: &'a [u8],
    /// Bytes of each datagram but the last.
    pub stride: usize,
    /// Index of the first datagram behind the run.
    pub end: usize,
}

/// Datagrams on their way out, one after the other in one buffer, so that a driver can hand runs of them to the kernel.
#[derive(Debug, Clone, Default)]
pub struct Outgoing {
    bytes: Vec<u8>,
    datagrams: Vec<(SocketAddr, Range<usize>)>,
}

impl Outgoing {
    /// Number of datagrams that a role adds before it lets its driver send them.
    pub const BURST: usize = 256;

    /// Adds one datagram.
    pub fn push(&mut self, to: SocketAddr, datagram: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(datagram);
        self.datagrams.push((to, start..self.bytes.len()));
    }

    /// Returns true if a burst is complete.
    pub fn is_full(&self) -> bool {
        self.datagrams.len() >= Self::BURST
    }

    /// Returns true if there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.datagrams.is_empty()
    }

    /// Returns the number of datagrams to send.
    pub fn len(&self) -> usize {
        self.datagrams.len()
    }

    /// The datagrams, in the order they were added, which is also their order in memory.
    pub fn iter(&self) -> impl Iterator<Item = (SocketAddr, &[u8])> {
        self.datagrams.iter().map(|(to, range)| (*to, &self.bytes[range.clone()]))
    }

    /// One of the datagrams, and where it goes.
    pub fn get(&self, place: usize) -> Option<(SocketAddr, &[u8])> {
        self.datagrams.get(place).map(|(to, range)| (*to, &self.bytes[range.clone()]))
    }

    /// The bytes of the datagrams `range`: they lie one behind the other.
    pub fn contents(&self, range: Range<usize>) -> &[u8] {
        match (
            self.datagrams.get(range.start),
            range.end.checked_sub(1).and_then(|last| self.datagrams.get(last)),
        ) {
            (Some(first), Some(last)) => &self.bytes[first.1.start..last.1.end],
            _ => &[],
        }
    }

    /// Returns the run that begins with datagram `start`, which a kernel takes in one piece: datagrams to one destination, of one length
    /// but for the last, which may be shorter; at most `datagrams_max` of them and [`RUN_BYTES_MAX`](crate::turn::RUN_BYTES_MAX) bytes.
    pub fn run_at(&self, start: usize, datagrams_max: usize) -> Option<DatagramRun<'_>> {
        let length = |place: usize| self.get(place).map(|(to, datagram)| (to, datagram.len()));
        let (to, stride) = length(start)?;
        let most = datagrams_max.min(RUN_BYTES_MAX / stride.max(1)).max(1);
        let next = |end: usize| length(end).filter(|(other, _)| end - start < most && *other == to);
        let mut end = start + 1;
        while next(end).is_some_and(|(_, length)| length == stride) {
            end += 1;
        }
        if next(end).is_some_and(|(_, length)| length < stride) {
            end += 1;
        }
        Some(DatagramRun { to, bytes: self.contents(start..end), stride, end })
    }

    /// Keeps the datagrams that `keep` wants; those behind the others move up.
    pub fn retain(&mut self, mut keep: impl FnMut(&[u8]) -> bool) {
        let Self { bytes, datagrams } = self;
        let mut end = 0;
        datagrams.retain_mut(|(_, range)| {
            if !keep(&bytes[range.clone()]) {
                return false;
            }
            let moved = end..end + range.len();
            if moved.start < range.start {
                bytes.copy_within(range.clone(), moved.start);
            }
            end = moved.end;
            *range = moved;
            true
        });
        bytes.truncate(end);
    }

    /// Takes over the datagrams of another, which is empty then.
    pub fn append(&mut self, other: &mut Self) {
        if self.is_empty() {
            core::mem::swap(self, other);
            other.clear();
            return;
        }
        for (to, datagram) in other.iter() {
            self.push(to, datagram);
        }
        other.clear();
    }

    /// Forgets everything, keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.datagrams.clear();
    }
}

/// A worker, server, switch or controller as a state machine without I/O.
pub trait Role {
    /// Commands of the user of the role.
    type Command;
    /// Events for its user.
    type Event;
    /// A copy of what it knows of itself.
    type Status;

    /// The role begins: it may open its first streams.
    fn handle_start(&mut self, now: Instant);

    /// Datagrams arrived from one sender: `datagrams` holds them one after the other, each `stride` bytes long but for the
    /// last, which may be shorter. The role may overwrite them.
    fn handle_datagrams(&mut self, now: Instant, from: SocketAddr, datagrams: &mut [u8], stride: usize);

    /// Something happened to a stream.
    fn handle_link(&mut self, now: Instant, link: Link, event: LinkEvent);

    /// A message arrived on a stream.
    fn handle_message(&mut self, now: Instant, link: Link, message: Message);

    /// The driver has closed streams that peers opened: no peer identified itself, or they broke a bound. Those that the role has accepted
    /// are closed to it by [`handle_link`](Self::handle_link), too.
    fn handle_strangers(&mut self, _now: Instant, _strangers: Strangers) {}

    /// The machine will not send the role's datagrams, now or ever.
    fn handle_socket_failure(&mut self, now: Instant, reason: &str);

    /// The user asks for something.
    fn handle_command(&mut self, now: Instant, command: Self::Command);

    /// The instant of [`poll_timeout`](Self::poll_timeout) has come.
    fn handle_timeout(&mut self, now: Instant);

    /// Adds datagrams to `outgoing` until it is full or nothing is left to send.
    fn poll_transmit(&mut self, now: Instant, outgoing: &mut Outgoing);

    /// The next thing to do with a stream.
    fn poll_action(&mut self) -> Option<Action>;

    /// Returns the next event for the user.
    fn poll_event(&mut self) -> Option<Self::Event>;

    /// When to call [`handle_timeout`](Self::handle_timeout), if nothing else happens before.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Returns its status.
    fn status(&self, now: Instant) -> Self::Status;
}
