//! Observers of a world: checkers, counters, recorders.

use core::net::SocketAddr;

use libra_proto::{Instant, Message};

use crate::network::Host;
use crate::process::{Actor, AnyRole, Event};

/// Sees everything that passes between processes, as it is sent and as it arrives, in the order in which it happens.
///
/// Output of a process because of something that arrives is seen right after that, before anything else happens: all
/// datagrams first, then all messages. Each method does nothing unless it is given something to do.
pub trait Observer {
    /// A process hands a datagram to the network.
    fn datagram_sent(&mut self, at: Instant, from: Actor, to: Option<Host>, datagram: &[u8]) {
        let _ = (at, from, to, datagram);
    }

    /// A datagram reaches a process, whole. It may be a copy, or not be meant for it.
    fn datagram_arrives(&mut self, at: Instant, from: SocketAddr, to: Actor, datagram: &[u8]) {
        let _ = (at, from, to, datagram);
    }

    /// A process sends a message; `to` is `None` if the stream is gone and the process has not been notified yet.
    fn message_sent(&mut self, at: Instant, from: Actor, to: Option<Actor>, message: &Message) {
        let _ = (at, from, to, message);
    }

    /// A message reaches a process.
    fn message_arrives(&mut self, at: Instant, from: Actor, to: Actor, message: &Message) {
        let _ = (at, from, to, message);
    }

    /// A process begins.
    fn process_starts(&mut self, at: Instant, actor: Actor, role: &AnyRole) {
        let _ = (at, actor, role);
    }

    /// A process is gone, without a word.
    fn process_ends(&mut self, at: Instant, actor: Actor) {
        let _ = (at, actor);
    }

    /// A process reports an event to its user.
    fn event(&mut self, at: Instant, actor: Actor, event: &Event) {
        let _ = (at, actor, event);
    }
}

/// Watches nothing.
impl Observer for () {}

/// A datagram as it was handed to the network.
#[derive(Debug, Clone, PartialEq)]
pub struct SentDatagram {
    /// When.
    pub at: Instant,
    /// By whom.
    pub from: Host,
    /// For whom, if there is such a host.
    pub to: Option<Host>,
    /// The datagram.
    pub bytes: Vec<u8>,
}

/// A message as it was sent.
#[derive(Debug, Clone, PartialEq)]
pub struct SentMessage {
    /// When.
    pub at: Instant,
    /// By whom.
    pub from: Host,
    /// The receiver; `None` if the stream was gone.
    pub to: Option<Host>,
    /// The message.
    pub message: Message,
}

/// Keeps everything that was sent: for small tests.
#[derive(Debug, Default)]
pub struct Recorder {
    /// The datagrams.
    pub datagrams: Vec<SentDatagram>,
    /// The messages.
    pub messages: Vec<SentMessage>,
    /// The messages that came to a process, in the order and at the times at which they did.
    pub arrived: Vec<SentMessage>,
}

impl Observer for Recorder {
    fn datagram_sent(&mut self, at: Instant, from: Actor, to: Option<Host>, datagram: &[u8]) {
        self.datagrams.push(SentDatagram { at, from: from.host, to, bytes: datagram.to_vec() });
    }

    fn message_sent(&mut self, at: Instant, from: Actor, to: Option<Actor>, message: &Message) {
        self.messages.push(SentMessage {
            at,
            from: from.host,
            to: to.map(|to| to.host),
            message: message.clone(),
        });
    }
    fn message_arrives(&mut self, at: Instant, from: Actor, to: Actor, message: &Message) {
        let (from, to) = (from.host, Some(to.host));
        self.arrived.push(SentMessage { at, from, to, message: message.clone() });
    }
}
