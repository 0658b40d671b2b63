//! The driver of the roles in virtual time: one queue of all that will happen, and the processes it happens to.
//!
//! Each time it hands one role one thing, then carries out all that the role wants done, as `libra-net` does over sockets.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use libra_proto::turn::{Drain, Output, RUN_DATAGRAMS_MAX};
use libra_proto::{Action, Callee, Instant, Link, Message, Outgoing, Role, ServerEvent, StorageEvent};
use libra_storage::disk::SimulatedDisk;

use crate::checksum::checksum;
use crate::disks::Slowness;
use crate::flips::Flips;
use crate::network::{Arrival, Host, Network};
use crate::observer::Observer;
use crate::process::{Actor, AnyRole, Event, Input, Item, Process, with_role};
use crate::random::Random;
use crate::streams::Streams;
use crate::trace::{TraceHash, TraceWriter, describe_datagram, describe_message};

/// The port of every process.
const PORT: u16 = 4000;
/// No timer.
pub(crate) const NEVER: Instant = Instant::from_nanos(u64::MAX);

/// Something that will happen.
#[derive(Debug)]
pub(crate) enum Happening {
    Datagram {
        to: Host,
        from: SocketAddr,
        bytes: Vec<u8>,
        /// The checksum that the sender's kernel put in, if a bit was flipped since. All others are right, and not computed.
        checksum: Option<u16>,
    },
    Stream {
        stream: usize,
        end: usize,
        item: Item,
    },
    Connect {
        number: u64,
    },
    GiveUp {
        number: u64,
    },
    /// A stream breaks.
    Break {
        stream: usize,
    },
    Alarm(u64),
    /// A sync of what was written to a log is due.
    Sync {
        actor: Actor,
    },
    /// A disk has done something.
    Stored {
        actor: Actor,
        event: Box<StorageEvent>,
    },
}

/// A machine and the process on it, if there is one.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) address: SocketAddr,
    pub(crate) label: String,
    pub(crate) process: Option<Process>,
    /// Number of processes that were started on it.
    pub(crate) started: u32,
    /// True if the machine has power; without, not even its kernel answers.
    pub(crate) powered: bool,
    pub(crate) disk: Option<SimulatedDisk>,
    pub(crate) slowness: Option<Slowness>,
}

/// Counters of a world beside [`NetworkCounts`](crate::NetworkCounts).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorldCounts {
    /// Things that happened.
    pub steps: u64,
    /// Datagrams that processes were given.
    pub delivered: u64,
    /// Datagrams that kernels dropped for a wrong checksum.
    pub bad_checksums: u64,
    /// Messages that processes sent.
    pub messages: u64,
    /// The most messages that were under way in one direction of one stream.
    pub stream_queue_max: usize,
}

/// Outcome of the next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Something happened to a process, or would have.
    Happened,
    /// An alarm that was set by [`World::set_alarm`].
    Alarm(u64),
    /// Nothing will ever happen again.
    Still,
}

/// Host of the address at which members call the controller.
pub(crate) const CONTROLLER: Host = 0;

/// A role wants a stream, and its first packet has not arrived yet.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) from: Host,
    pub(crate) link: Link,
    pub(crate) to: Callee,
}

/// Hosts, the network between them, and virtual time.
#[derive(Debug)]
pub struct World<O> {
    pub(crate) now: Instant,
    /// The links between the hosts.
    pub network: Network,
    /// The observer.
    pub observer: O,
    pub(crate) machines: Vec<Machine>,
    /// For each host when its process wants to be woken.
    pub(crate) wakes: Vec<Instant>,
    pub(crate) streams: Streams,
    pub(crate) attempts: BTreeMap<u64, Attempt>,
    /// Number of streams that will break with a message on its way, and of messages that pass before that.
    pub(crate) armed: (u64, u64),
    queue: BTreeMap<(Instant, u64), Happening>,
    pub(crate) numbered: u64,
    events: VecDeque<(Host, Event)>,
    outgoing: Outgoing,
    /// Hosts whose address has moved to another: who calls there from now on reaches that one.
    pub(crate) redirected: BTreeMap<Host, Host>,
    /// The hosts of the shards that have been started, by their numbers.
    pub(crate) shards: BTreeMap<u16, Host>,
    /// True if a checkpoint was written, until the runner has looked.
    pub(crate) checkpointed: bool,
    /// Flips bits of datagrams without a wrong checksum.
    pub(crate) flips: Option<Flips>,
    /// True once a message was [forged](Self::forge).
    pub(crate) forges: bool,
    pub(crate) random: Random,
    pub(crate) hash: TraceHash,
    pub(crate) trace: Option<TraceWriter>,
    pub(crate) counts: WorldCounts,
    spare: Vec<Vec<u8>>,
}

impl<O: Observer> World<O> {
    /// A world without hosts.
    pub fn new(network: Network, random: Random, observer: O) -> Self {
        Self {
            now: Instant::ZERO + Duration::from_millis(1),
            network,
            observer,
            machines: Vec::new(),
            wakes: Vec::new(),
            streams: Streams::default(),
            attempts: BTreeMap::new(),
            armed: (0, 0),
            queue: BTreeMap::new(),
            numbered: 0,
            events: VecDeque::new(),
            outgoing: Outgoing::default(),
            redirected: BTreeMap::new(),
            shards: BTreeMap::new(),
            checkpointed: false,
            flips: None,
            forges: false,
            random,
            hash: TraceHash::default(),
            trace: None,
            counts: WorldCounts::default(),
            spare: Vec::new(),
        }
    }

    /// Writes a line for everything that happens from now on.
    pub fn set_trace(&mut self, trace: TraceWriter) {
        self.trace = Some(trace);
    }

    /// The time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The hash of all that has happened.
    pub fn trace_hash(&self) -> u64 {
        self.hash.value()
    }

    /// Counters so far.
    pub fn counts(&self) -> WorldCounts {
        self.counts
    }

    /// Adds a machine without a process. `label` is its name in traces.
    pub fn add_host(&mut self, label: impl Into<String>) -> Host {
        let host = self.machines.len();
        let machine = Machine {
            address: address_of(host),
            label: label.into(),
            process: None,
            started: 0,
            powered: true,
            disk: None,
            slowness: None,
        };
        self.machines.push(machine);
        self.wakes.push(NEVER);
        self.network.add_host();
        host
    }

    /// Number of hosts.
    pub fn hosts(&self) -> usize {
        self.machines.len()
    }

    /// The process on a host, if there is one.
    pub fn actor(&self, host: Host) -> Option<Actor> {
        self.machines[host].process.as_ref().map(|process| process.actor)
    }

    /// The role of the process on a host, if there is one.
    pub fn role(&self, host: Host) -> Option<&AnyRole> {
        self.machines[host].process.as_ref().map(|process| &process.role)
    }

    /// Returns the next event that a process has reported to its user.
    pub fn next_event(&mut self) -> Option<(Host, Event)> {
        self.events.pop_front()
    }

    /// Makes [`step`](Self::step) return this token when the time has come.
    pub fn set_alarm(&mut self, at: Instant, token: u64) {
        self.schedule(at, Happening::Alarm(token));
    }

    /// Writes a line into the trace.
    pub fn note(&mut self, text: &str) {
        self.hash.bytes(text.as_bytes());
        if let Some(trace) = &mut self.trace {
            trace.line(self.now, text);
        }
    }

    pub(crate) fn schedule(&mut self, at: Instant, happening: Happening) {
        self.numbered += 1;
        self.queue.insert((at, self.numbered), happening);
    }

    /// Does what comes next: something arrives, or a timer fires.
    ///
    /// # Panics
    /// When a role does: that is a bug of the role.
    pub fn step(&mut self) -> Step {
        self.counts.steps += 1;
        let timer = self.wakes.iter().copied().enumerate().min_by_key(|(_, due)| *due);
        let arrival = self.queue.first_key_value().map_or(NEVER, |((at, _), _)| *at);
        match timer {
            Some((host, due)) if due < arrival => {
                self.now = self.now.max(due);
                self.fire(host);
                Step::Happened
            }
            _ => match self.queue.pop_first() {
                Some(((at, _), happening)) => {
                    self.now = self.now.max(at);
                    self.happen(at, happening)
                }
                None => Step::Still,
            },
        }
    }

    /// Steps until a time has come; alarms before it are lost.
    pub fn run_until(&mut self, end: Instant) {
        while self.next_at() < end && self.step() != Step::Still {}
        self.now = self.now.max(end);
    }

    /// When the next thing happens.
    fn next_at(&self) -> Instant {
        let timer = self.wakes.iter().copied().min().unwrap_or(NEVER);
        self.queue.first_key_value().map_or(NEVER, |((at, _), _)| *at).min(timer)
    }

    fn fire(&mut self, host: Host) {
        self.hash.event(self.now, host, 1);
        self.act(host, |role, now| role.handle_timeout(now));
        let late = self.wakes[host] <= self.now;
        assert!(!late, "{}: a timer that was handled is over", self.machines[host].label);
    }

    fn happen(&mut self, at: Instant, happening: Happening) -> Step {
        match happening {
            Happening::Datagram { to, from, bytes, checksum } => {
                if self.is_whole(to, from, &bytes, checksum) {
                    self.datagram_arrives(at, to, from, bytes);
                }
            }
            Happening::Stream { stream, end, item } => self.item_arrives(stream, end, item),
            Happening::Connect { number } => self.connect_again(number),
            Happening::GiveUp { number } => self.give_up(number),
            Happening::Break { stream } => self.break_when_due(stream),
            Happening::Sync { actor } => self.sync(actor),
            Happening::Stored { actor, event } => self.stored(actor, *event),
            Happening::Alarm(token) => {
                self.hash.event(self.now, 0, 2);
                return Step::Alarm(token);
            }
        }
        Step::Happened
    }

    /// True if the checksum is right, which the kernel of the receiver checks.
    fn is_whole(&mut self, to: Host, from: SocketAddr, bytes: &[u8], sent: Option<u16>) -> bool {
        let whole = sent.is_none_or(|sent| sent == checksum(from, self.machines[to].address, bytes));
        self.counts.bad_checksums += u64::from(!whole);
        whole
    }

    pub(crate) fn datagram_arrives(&mut self, at: Instant, to: Host, from: SocketAddr, mut burst: Vec<u8>) {
        let Some(process) = &mut self.machines[to].process else { return self.spare.push(burst) };
        if process.is_paused() {
            process.keep(Input::Datagram { from, bytes: burst });
            return;
        }
        let stride = burst.len();
        let mut last = stride;
        while let Some(entry) = self.queue.first_entry() {
            let fits = burst.len() < RUN_DATAGRAMS_MAX * stride;
            let together = fits && entry.key().0 == at && last == stride;
            match entry.get() {
                Happening::Datagram { to: other, from: sender, bytes, checksum: None }
                    if together && *other == to && *sender == from && bytes.len() <= stride =>
                {
                    last = bytes.len();
                    burst.extend_from_slice(bytes);
                }
                _ => break,
            }
            if let Happening::Datagram { mut bytes, .. } = entry.remove() {
                bytes.clear();
                self.spare.push(bytes);
            }
        }
        self.hand_in_datagrams(to, from, burst, stride);
    }

    pub(crate) fn hand_in_datagrams(
        &mut self,
        to: Host,
        from: SocketAddr,
        mut burst: Vec<u8>,
        stride: usize,
    ) {
        self.hash.event(self.now, to, 3);
        let Some(actor) = self.actor(to) else { return };
        for datagram in burst.chunks(stride.max(1)) {
            self.counts.delivered += 1;
            self.observer.datagram_arrives(self.now, from, actor, datagram);
            if let Some(trace) = &mut self.trace {
                let what = describe_datagram(datagram);
                trace.line(self.now, &format!("{:>12} <- {from} {what}", self.machines[to].label));
            }
        }
        self.act(
            to,
            |role, now| with_role!(role, role => role.handle_datagrams(now, from, &mut burst, stride)),
        );
        burst.clear();
        self.spare.push(burst);
    }

    /// Hands one thing to a role, then carries out what it wants done. Nothing happens on a host without a process, or
    /// with one that sleeps.
    pub fn act(&mut self, host: Host, input: impl FnOnce(&mut AnyRole, Instant)) {
        let Some(process) = self.machines[host].process.as_mut().filter(|process| !process.is_paused())
        else {
            return;
        };
        let now = process.time(self.now);
        input(&mut process.role, now);
        let mut outgoing = core::mem::take(&mut self.outgoing);
        let mut drain = Drain::new();
        while let Some(output) = self.machines[host].process.as_mut().and_then(|process| {
            with_role!(&mut process.role, role => {
                drain.next(&mut **role, now, &mut outgoing).map(|output| output.map_event(Event::from))
            })
        }) {
            match output {
                Output::Datagrams => {
                    for (to, datagram) in outgoing.iter() {
                        self.send_datagram(host, to, datagram);
                    }
                    outgoing.clear();
                }
                Output::Action(Action::Connect { link, to }) => self.connect(host, link, to),
                Output::Action(Action::Send { link, message }) => self.send_message(host, link, &message),
                Output::Action(Action::Admit { link, message_bytes_max }) => {
                    self.admit(host, link, message_bytes_max);
                }
                Output::Action(Action::Close { link }) => self.close(host, link),
                Output::Event(Event::Server(ServerEvent::Storage(request))) => self.store(host, request),
                Output::Event(event) => self.tell_user(host, event),
            }
        }
        self.outgoing = outgoing;
        let wake = self.machines[host].process.as_ref().and_then(Process::wakes_at);
        self.wakes[host] = wake.unwrap_or(NEVER);
    }

    fn tell_user(&mut self, host: Host, event: Event) {
        if let Some(actor) = self.actor(host) {
            self.observer.event(self.now, actor, &event);
        }
        self.note_shard(host, &event);
        if self.trace.is_some() {
            let text = format!("{:?}", event);
            let short: String = text.chars().take(160).collect();
            self.note_of(host, &format!("says {short}"));
        }
        self.events.push_back((host, event));
    }

    pub(crate) fn note_of(&mut self, host: Host, text: &str) {
        if let Some(trace) = &mut self.trace {
            trace.line(self.now, &format!("{:>12} {text}", self.machines[host].label));
        }
    }

    pub(crate) fn host_of(&self, address: SocketAddr) -> Option<Host> {
        let IpAddr::V4(ip) = address.ip() else { return None };
        let [ten, high, middle, low] = ip.octets();
        let host = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        let machine = self.machines.get(host.checked_sub(1)?)?;
        // One that has moved is no more where it was.
        (ten == 10 && machine.address == address).then(|| host - 1)
    }

    /// What starts next on this host, and on those of the other shards of its process, has another address.
    pub(crate) fn change_address(&mut self, host: Host) {
        for shard in self.shards_of(host) {
            let address = &mut self.machines[shard].address;
            address.set_port(address.port() + 1);
        }
    }

    fn send_datagram(&mut self, from: Host, to: SocketAddr, datagram: &[u8]) {
        self.hash.event(self.now, from, 4);
        self.hash.bytes(datagram);
        let receiver = self.host_of(to);
        if let Some(actor) = self.actor(from) {
            self.observer.datagram_sent(self.now, actor, receiver, datagram);
        }
        if self.trace.is_some() {
            self.note_of(from, &format!("-> {to} {}", describe_datagram(datagram)));
        }
        let Some(receiver) = receiver else { return };
        let from_address = self.machines[from].address;
        let (queue, spare, numbered) = (&mut self.queue, &mut self.spare, &mut self.numbered);
        let flips = &mut self.flips;
        self.network.carry(self.now, from, receiver, datagram.len(), |arrival: Arrival| {
            let mut bytes = spare.pop().unwrap_or_default();
            bytes.clear();
            bytes.extend_from_slice(datagram);
            let checksum = arrival.flipped.map(|bit| {
                let sent = checksum(from_address, to, &bytes);
                bytes[bit / 8] ^= 1 << (bit % 8);
                sent
            });
            let mut insert = |bytes, checksum| {
                *numbered += 1;
                let happening = Happening::Datagram { to: arrival.to, from: from_address, bytes, checksum };
                queue.insert((arrival.at, *numbered), happening);
            };
            if checksum.is_none()
                && let Some(flipped) = flips.as_mut().and_then(|flips| flips.flip(&bytes))
            {
                // Its checksum is right for what it has become.
                insert(flipped.bytes, None);
                if flipped.is_instead {
                    return;
                }
            }
            insert(bytes, checksum);
        });
    }

    pub(crate) fn send_message(&mut self, from: Host, link: Link, message: &Message) {
        let stream =
            self.machines[from].process.as_ref().and_then(|process| process.links.get(&link).copied());
        if let (Some((stream, end)), Message::Hello(hello)) = (stream, message) {
            self.hand_over(stream, 1 - end, hello);
        }
        let named = stream.filter(|(stream, end)| !self.streams.end(*stream, 1 - end).is_missed);
        let to = named.map(|(stream, end)| self.streams.actors(stream, end).1);
        if let Some(actor) = self.actor(from) {
            self.observer.message_sent(self.now, actor, to, message);
        }
        if self.trace.is_some() {
            let whom = to.map_or("no peer", |to| self.machines[to.host].label.as_str()).to_owned();
            self.note_of(from, &format!("-> {whom} {}", describe_message(message)));
        }
        let Some((stream, end)) = stream else { return };
        let bytes = message.encode();
        self.hash.event(self.now, from, 5);
        self.hash.bytes(&bytes);
        self.counts.messages += 1;
        self.put(stream, 1 - end, bytes.len(), Item::Message(bytes));
        let waiting = &mut self.streams.end(stream, 1 - end).waiting;
        *waiting += 1;
        self.counts.stream_queue_max = self.counts.stream_queue_max.max(*waiting);
        if !is_repeated(message) {
            self.fire_break(stream, from);
        }
    }

    /// The address of a host.
    pub fn address(&self, host: Host) -> SocketAddr {
        self.machines[host].address
    }
}

/// True if a message changes nothing, and is soon sent again: a stream that breaks with it does no harm.
fn is_repeated(message: &Message) -> bool {
    let report = matches!(message, Message::Heartbeat { .. } | Message::Probe { .. });
    report || matches!(message, Message::Pull { .. } | Message::Pulled { .. })
}

/// Address that the process of a host sends from and listens at.
pub fn address_of(host: Host) -> SocketAddr {
    let [_, high, middle, low] = u32::try_from(host + 1).expect("a small world").to_be_bytes();
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, high, middle, low)), PORT)
}
