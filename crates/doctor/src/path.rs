//! The path to another machine, on which another doctor listens.
//!
//! Questions go over a stream, of which a frame is answered by one of the same length. Probes are datagrams; the listener returns those
//! that ask for it, at their length, and counts all.
//!
//! ```text
//!  caller ── Hello ─────────────▶ listener        a session; versions, and the caller's address as it is seen there
//!         ◀── Welcome ───────────
//!         ══ probes (UDP) ══════▶                 round trips, loss, order, path MTU
//!         ◀═ the same bytes ═════
//!         ══ a run, unanswered ═▶                 rate
//!         ── Counts ────────────▶
//!         ◀── what came ─────────
//! ```

mod caller;
mod judge;
mod listener;
mod sessions;
mod wire;

use core::net::SocketAddr;
use core::time::Duration;

use libra_net::Enquiry;

pub(crate) use self::caller::call;
pub(crate) use self::judge::judge;
pub use self::listener::{Listener, ListenerEvent};

/// Facts of a path.
#[derive(Debug, Clone)]
pub(crate) struct Path {
    /// The other end, as it was typed.
    pub(crate) to: String,
    /// Extent to which it was found.
    pub(crate) outcome: Outcome,
}

/// Extent to which the other end was found.
#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    /// The name has no address.
    NoHost(String),
    /// No stream; the reason.
    NoStream(String),
    /// Something else listens there, and did this, and that when it was called as a controller.
    Stranger(String, String),
    /// A controller.
    Controller(SocketAddr, Enquiry),
    /// A doctor that has no time.
    Busy,
    /// A doctor with another format of probes, and its version of the messages.
    OtherFormat(u16),
    /// A doctor.
    Met(Box<Meeting>),
}

/// An exchange with another doctor.
#[derive(Debug, Clone)]
pub(crate) struct Meeting {
    /// Address of the other end.
    pub(crate) peer: SocketAddr,
    /// Version of the messages there.
    pub(crate) messages: u16,
    /// It runs on this machine.
    pub(crate) is_here: bool,
    /// The two ends of the stream here, as this end and the other see this one.
    pub(crate) stream: Seen,
    /// Fate of the datagrams.
    pub(crate) datagrams: Datagrams,
}

/// An address of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Of its own socket.
    pub(crate) here: SocketAddr,
    /// As the other end sees it.
    pub(crate) there: SocketAddr,
}

/// Fate of the datagrams.
#[derive(Debug, Clone)]
pub(crate) enum Datagrams {
    /// None came there.
    NoneArrived,
    /// They came there, and no answer came here.
    NoAnswer,
    /// They went both ways.
    Exchanged(Exchange),
    /// The stream, or a socket, ended in between; the reason.
    Ended(String),
}

/// An exchange of datagrams.
#[derive(Debug, Clone)]
pub(crate) struct Exchange {
    /// Of the socket for datagrams.
    pub(crate) addresses: Seen,
    /// Probes that left.
    pub(crate) sent: u32,
    /// Probes that came there.
    pub(crate) arrived: u32,
    /// Answers that came here.
    pub(crate) answered: u32,
    /// Probes and answers that came twice.
    pub(crate) duplicates: u32,
    /// Probes and answers that came behind a later one.
    pub(crate) reordered: u32,
    /// Datagrams whose bytes were others, or whose checksum a kernel refused.
    pub(crate) corrupted: u64,
    /// From a probe to its answer, in order of length.
    pub(crate) round_trips: Vec<Duration>,
    /// Bytes of the largest packet that went there and came back, with its IP header, up to what was asked for.
    pub(crate) mtu: u16,
    /// Bytes of the largest packet that went there.
    pub(crate) mtu_there: u16,
    /// Bits a second that went there.
    pub(crate) rate: Option<f64>,
}

#[cfg(test)]
mod tests;
