//! Faults between the hosts of a [`World`]: streams break, networks fall apart, and strangers send datagrams
//! and messages.

use core::net::SocketAddr;
use core::time::Duration;

use libra_proto::{Link, Message};

use crate::network::Host;
use crate::observer::Observer;
use crate::process::{Actor, AnyRole, Item};
use crate::world::{Happening, World};

impl<O: Observer> World<O> {
    /// Separates two sets of hosts: nothing that the first sends reaches the second, and the other way round if `both`.
    pub fn partition(&mut self, ones: &[Host], others: &[Host], both: bool) {
        self.note(&format!("partition {ones:?} from {others:?}, both ways: {both}"));
        self.each_pair(ones, others, both, |world, from, to| world.network.block(from, to));
    }

    /// Takes back a [`partition`](Self::partition) of the same sets.
    pub fn heal(&mut self, ones: &[Host], others: &[Host], both: bool) {
        self.note(&format!("heal {ones:?} from {others:?}"));
        self.each_pair(ones, others, both, |world, from, to| world.network.heal(from, to));
        self.release_held();
        self.retry_attempts();
    }

    fn each_pair(
        &mut self,
        ones: &[Host],
        others: &[Host],
        both: bool,
        mut change: impl FnMut(&mut Self, Host, Host),
    ) {
        for &one in ones {
            for &other in others {
                change(self, one, other);
                if both {
                    change(self, other, one);
                }
            }
        }
    }

    /// Breaks every stream between two hosts. Both ends notice by themselves, and what is on its way is lost; or one does,
    /// and the other goes on until it is notified, behind all that was sent before.
    pub fn reset_streams(&mut self, one: Host, other: Host) {
        let between = self.streams.find(|end, far| end.actor.host == one && far.actor.host == other);
        for (stream, end) in between {
            self.break_stream(stream, end);
        }
    }

    /// Breaks every stream between two hosts, and both ends notice: neither goes on with the other.
    pub(crate) fn part(&mut self, one: Host, other: Host) {
        for (stream, end) in self.streams.find(|end, far| end.actor.host == one && far.actor.host == other) {
            for end in [end, 1 - end] {
                self.fail_end_soon(stream, end);
            }
        }
    }

    fn fail_end_soon(&mut self, stream: usize, end: usize) {
        let at = self.now + self.random.up_to(Duration::from_millis(5));
        self.fail_end(stream, end, at, "connection reset");
    }

    pub(crate) fn break_stream(&mut self, stream: usize, end: usize) {
        let ends = if self.random.chance(0.5) { vec![end, 1 - end] } else { vec![self.random.index(2)] };
        for end in ends {
            self.fail_end_soon(stream, end);
        }
    }

    /// Breaks this many streams, each a while after a message that matters was sent on it: before or after it arrives, or
    /// when the answer is on its way.
    pub fn break_under_way(&mut self, count: u64) {
        self.armed = (self.armed.0 + count, self.random.below(20));
    }

    /// Every stream between two hosts that nothing passes on is given up by the kernels of both, each in its own time.
    pub fn time_out_streams(&mut self, one: Host, other: Host) {
        if self.network.streams_flow(one, other) {
            return;
        }
        for (stream, end) in self.streams.find(|end, far| end.actor.host == one && far.actor.host == other) {
            for end in [end, 1 - end] {
                let at = self.now + self.random.up_to(Duration::from_secs(2));
                self.fail_end(stream, end, at, "connection timed out");
            }
        }
    }

    /// Delays what one host has sent to another on their streams, and then the sender loses them. It may open another, and
    /// its messages on that may arrive before the last of the old one.
    pub fn strand_streams(&mut self, from: Host, to: Host, late: Duration) {
        for (stream, end) in self.streams.find(|end, far| end.actor.host == from && far.actor.host == to) {
            let receiver = self.streams.end(stream, 1 - end);
            receiver.clear_at = receiver.clear_at.max(self.now + late);
            let at = self.now + self.random.up_to(late / 4);
            self.fail_end(stream, end, at, "connection reset");
        }
    }

    /// Redirects calls to the address of one host to another from now on; streams that are open stay.
    pub fn redirect(&mut self, address_of: Host, to: Host) {
        self.note(&format!("calls to {address_of} reach {to}"));
        self.redirected.insert(address_of, to);
        self.retry_attempts();
    }

    pub(crate) fn fire_break(&mut self, stream: usize, from: Host) {
        match &mut self.armed {
            (0, _) => {}
            (_, pass) if *pass > 0 => *pass -= 1,
            (count, pass) => {
                *count -= 1;
                *pass = self.random.below(20);
                let round_trip = self.network.stream_delay(from, from, 0) * 3;
                let at = self.now + self.random.up_to(round_trip);
                self.schedule(at, Happening::Break { stream });
            }
        }
    }

    /// Breaks a stream, unless that ends the job.
    pub(crate) fn break_when_due(&mut self, stream: usize) {
        let (one, other) = self.streams.hosts(stream, 0);
        if !self.must_keep_streams(one, other) {
            self.break_stream(stream, 0);
        }
    }

    /// True if streams between two hosts must not break: a server that keeps nothing is given up 2 s after its stream broke (rule M5), whether it
    /// sleeps or is cut off meanwhile.
    pub(crate) fn must_keep_streams(&self, one: Host, other: Host) -> bool {
        let is_cut_off = !self.network.streams_flow(one, other);
        [one, other].into_iter().filter_map(|host| self.machines[host].process.as_ref()).any(|process| {
            let keeps_nothing = process.storage.is_none() && matches!(process.role, AnyRole::Server(_));
            keeps_nothing && (is_cut_off || process.is_paused())
        })
    }

    /// Delivers a datagram with any sender's address.
    pub fn inject(&mut self, from: SocketAddr, to: Host, bytes: Vec<u8>) {
        self.datagram_arrives(self.now, to, from, bytes);
    }

    /// As if a process had sent this message on a stream that it has open to another; nothing if it has none.
    pub fn forge(&mut self, from: Host, to: Host, message: &Message) {
        self.forges = true;
        let Some(process) = &self.machines[from].process else { return };
        let open = process.links.iter();
        let link = open
            .filter(|(_, (stream, end))| self.streams.hosts(*stream, *end).1 == to)
            .map(|(link, _)| *link);
        if let Some(link) = link.min() {
            self.send_message(from, link, message);
        }
    }

    /// A process that is no member calls another from this machine, and sends these messages.
    pub(crate) fn call_as_stranger(&mut self, from: Host, to: Host, messages: &[Message]) {
        self.forges = true;
        let Some(process) = self.machines[to].process.as_mut().filter(|process| process.listens()) else {
            return;
        };
        let accepted = Link(Link::ACCEPTED + process.accepted);
        process.accepted += 1;
        let (stranger, callee) = (Actor { host: from, before: u32::MAX }, process.actor);
        let stream = self.streams.open(self.now, [(stranger, accepted), (callee, accepted)]);
        process.links.insert(accepted, (stream, 1));
        // Answers reach nothing.
        self.streams.end(stream, 0).open = false;
        let remote = self.machines[from].address;
        self.put(stream, 1, 0, Item::Opened { remote });
        for message in messages {
            let bytes = message.encode();
            self.put(stream, 1, bytes.len(), Item::Message(bytes));
        }
    }
}
