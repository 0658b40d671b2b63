//! Streams between hosts of a [`World`]: they open, carry messages, wait for partitions to end, and break.

use core::time::Duration;

use libra_proto::{Callee, Instant, Link, LinkEvent, Message};

use crate::network::Host;
use crate::observer::Observer;
use crate::process::{Actor, Input, Item};
use crate::streams::Takes;
use crate::trace::describe_message;
use crate::world::{Attempt, CONTROLLER, Happening, World};

/// Timeout of a process that connects to a machine that does not answer at all.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// A kernel that was cut off tries again at most this long after it could.
const RETRY_AFTER: Duration = Duration::from_millis(400);
/// So many messages still arrive of a sender that receives no acknowledgement of them any more: what a congestion window holds.
const UNACKNOWLEDGED_MAX: usize = 10;

impl<O: Observer> World<O> {
    pub(crate) fn connect(&mut self, from: Host, link: Link, to: Callee) {
        self.hash.event(self.now, from, 6);
        self.numbered += 1;
        let number = self.numbered;
        self.attempts.insert(number, Attempt { from, link, to });
        self.schedule(self.now + CONNECT_TIMEOUT, Happening::GiveUp { number });
        self.connect_again(number);
    }

    /// A first packet is sent. What it meets is decided now, and known after a round trip.
    pub(crate) fn connect_again(&mut self, number: u64) {
        let Some(Attempt { from, link, to }) = self.attempts.get(&number) else { return };
        let (from, link, to) = (*from, *link, *to);
        let Some(host) = self.callee(to) else { return self.refuse(number, "no such host") };
        if !self.machines[host].powered || !self.network.streams_flow(from, host) {
            return; // It is sent again when that has changed.
        }
        let round_trip = self.network.stream_delay(from, host, 0) + self.network.stream_delay(host, from, 0);
        let Some(process) = self.machines[host].process.as_mut().filter(|process| process.listens()) else {
            return self.refuse(number, "connection refused");
        };
        let accepted = Link(Link::ACCEPTED + process.accepted);
        process.accepted += 1;
        let callee = process.actor;
        let Some(caller) = self.machines[from].process.as_ref().map(|process| process.actor) else { return };
        let stream = self.streams.open(self.now, [(caller, link), (callee, accepted)]);
        if let Some(process) = &mut self.machines[host].process {
            process.links.insert(accepted, (stream, 1));
        }
        self.attempts.remove(&number);
        if let Some(process) = &mut self.machines[from].process {
            process.links.insert(link, (stream, 0));
        }
        let remote = self.machines[from].address;
        self.put(stream, 1, 0, Item::Opened { remote });
        let opened_at = self.now + round_trip;
        self.streams.end(stream, 0).clear_at = opened_at;
        let remote = match to {
            Callee::Controller => self.address(CONTROLLER),
            Callee::Server(address) => address,
        };
        self.schedule(opened_at, Happening::Stream { stream, end: 0, item: Item::Opened { remote } });
    }

    /// Returns the host that answers calls to a process now.
    fn callee(&self, to: Callee) -> Option<Host> {
        let host = match to {
            Callee::Controller => CONTROLLER,
            Callee::Server(address) => self.host_of(address)?,
        };
        Some(self.redirected.get(&host).copied().unwrap_or(host))
    }

    /// Notifies a process that there will be no stream.
    fn refuse(&mut self, number: u64, reason: &'static str) {
        let Some(Attempt { from, link, to }) = self.attempts.remove(&number) else { return };
        let there = self.callee(to).unwrap_or(from);
        let delay = self.network.stream_delay(from, there, 0) * 2;
        // A stream without a peer, so that the refusal arrives as any other event.
        let Some(caller) = self.machines[from].process.as_ref().map(|process| process.actor) else { return };
        let no_peer = Actor { host: there, before: u32::MAX };
        let stream = self.streams.open(self.now, [(caller, link), (no_peer, link)]);
        self.streams.end(stream, 1).open = false;
        self.streams.end(stream, 0).closing = true;
        if let Some(process) = &mut self.machines[from].process {
            process.links.insert(link, (stream, 0));
        }
        let item = Item::Closed { reason };
        self.schedule(self.now + delay, Happening::Stream { stream, end: 0, item });
    }

    pub(crate) fn give_up(&mut self, number: u64) {
        self.refuse(number, "connection timed out");
    }

    /// Attempts that may succeed now are made again.
    pub(crate) fn retry_attempts(&mut self) {
        let numbers: Vec<u64> = self.attempts.keys().copied().collect();
        for number in numbers {
            let at = self.now + self.random.up_to(RETRY_AFTER);
            self.schedule(at, Happening::Connect { number });
        }
    }

    /// Puts something on its way to one end of a stream.
    pub(crate) fn put(&mut self, stream: usize, end: usize, bytes: usize, item: Item) {
        let (to, from) = self.streams.hosts(stream, end);
        let (arrives, is_acknowledged) = (self.network.reaches(from, to), self.network.reaches(to, from));
        let receiver = self.streams.end(stream, end);
        receiver.unacknowledged = if is_acknowledged { 0 } else { receiver.unacknowledged + 1 };
        if !arrives || receiver.unacknowledged > UNACKNOWLEDGED_MAX || !receiver.held.is_empty() {
            return receiver.held.push_back(item);
        }
        let at = self.now + self.network.stream_delay(from, to, bytes);
        let receiver = self.streams.end(stream, end);
        receiver.clear_at = receiver.clear_at.max(at);
        let at = receiver.clear_at;
        self.schedule(at, Happening::Stream { stream, end, item });
    }

    /// Messages that waited for a partition to end go on, a while after they could: kernels back off.
    pub(crate) fn release_held(&mut self) {
        for (stream, end) in self.streams.find(|end, _| !end.held.is_empty()) {
            let (to, from) = self.streams.hosts(stream, end);
            if !self.network.streams_flow(from, to) {
                continue;
            }
            let delay = self.network.stream_delay(from, to, 0) + self.random.up_to(RETRY_AFTER);
            let receiver = self.streams.end(stream, end);
            receiver.clear_at = receiver.clear_at.max(self.now + delay);
            let at = receiver.clear_at;
            for item in core::mem::take(&mut receiver.held) {
                self.schedule(at, Happening::Stream { stream, end, item });
            }
        }
    }

    /// A role takes more of a stream than its first message.
    pub(crate) fn admit(&mut self, host: Host, link: Link, message_bytes_max: usize) {
        let Some(process) = &self.machines[host].process else { return };
        let Some((stream, end)) = process.links.get(&link).copied() else { return };
        self.streams.end(stream, end).takes = Takes::Bounded(message_bytes_max);
    }

    /// A role closes a stream: what it sent before still arrives.
    pub(crate) fn close(&mut self, host: Host, link: Link) {
        self.hash.event(self.now, host, 7);
        let Some(process) = &mut self.machines[host].process else { return };
        let Some((stream, end)) = process.links.remove(&link) else {
            // It may still be trying to open it.
            self.attempts.retain(|_, attempt| attempt.from != host || attempt.link != link);
            return;
        };
        self.streams.end(stream, end).open = false;
        self.say_closed(stream, 1 - end, "closed by the other end");
    }

    /// The news that a stream is over goes to one end of it, behind all that was sent before.
    pub(crate) fn say_closed(&mut self, stream: usize, end: usize, reason: &'static str) {
        let receiver = self.streams.end(stream, end);
        if !receiver.open || receiver.closing {
            return;
        }
        receiver.closing = true;
        self.put(stream, end, 0, Item::Closed { reason });
    }

    /// One end of a stream fails where it is: nothing of what is on its way there arrives any more.
    pub(crate) fn fail_end(&mut self, stream: usize, end: usize, at: Instant, reason: &'static str) {
        let receiver = self.streams.end(stream, end);
        if !receiver.open {
            return;
        }
        receiver.discards = true;
        receiver.closing = true;
        self.schedule(at, Happening::Stream { stream, end, item: Item::Closed { reason } });
    }

    pub(crate) fn item_arrives(&mut self, stream: usize, end: usize, item: Item) {
        let receiver = self.streams.end(stream, end);
        if matches!(item, Item::Message(_)) {
            receiver.waiting = receiver.waiting.saturating_sub(1);
        }
        let lost = receiver.discards && !matches!(item, Item::Closed { .. });
        if !receiver.open || lost {
            return;
        }
        let host = receiver.actor.host;
        let Some(process) = &mut self.machines[host].process else { return };
        if process.is_paused() {
            process.keep(Input::Stream { stream, end, item });
            return;
        }
        self.hand_in_item(stream, end, item);
    }

    pub(crate) fn hand_in_item(&mut self, stream: usize, end: usize, item: Item) {
        let (actor, sender) = self.streams.actors(stream, end);
        let (host, from) = (actor.host, sender.host);
        let receiver = self.streams.end(stream, end);
        if !receiver.open {
            return;
        }
        let link = receiver.link;
        if let Item::Message(bytes) = &item {
            let (takes, taken) = (receiver.takes, receiver.takes.take(bytes));
            let (to, from) = (&self.machines[host].label, &self.machines[from].label);
            if taken.is_none() {
                // Strangers come only by forged messages, which may make a member call one that does not expect it. Otherwise a
                // bound is too small, or a member was not let in.
                assert!(self.forges, "{to} takes {takes:?} of {from}, which sends {} bytes", bytes.len());
                self.close(host, link);
                return;
            }
        }
        self.hash.event(self.now, host, 8);
        match item {
            Item::Opened { remote } => {
                self.act(host, |role, now| role.handle_link(now, link, LinkEvent::Opened { remote }));
            }
            Item::Message(bytes) => {
                let message = Message::decode(&bytes).expect("it was encoded by the same code");
                self.observer.message_arrives(self.now, sender, actor, &message);
                if self.trace.is_some() {
                    let whom = self.machines[from].label.clone();
                    self.note_of(host, &format!("<- {whom} {}", describe_message(&message)));
                }
                self.act(host, |role, now| role.handle_message(now, link, message));
            }
            Item::Closed { reason } => {
                receiver.open = false;
                if let Some(process) = &mut self.machines[host].process {
                    process.links.remove(&link);
                }
                if self.trace.is_some() {
                    let whom = self.machines[from].label.clone();
                    self.note_of(host, &format!("loses its stream to {whom}: {reason}"));
                }
                let event = LinkEvent::Closed { reason: reason.into() };
                self.act(host, |role, now| role.handle_link(now, link, event));
                // The other end is notified too, if it has not closed the stream itself.
                self.say_closed(stream, 1 - end, "connection reset");
            }
        }
    }
}
