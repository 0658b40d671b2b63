//! A path, a pipeline, and a bad link between them, in virtual time.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use libra_dataplane::{
    Arithmetic, Flags, HEADER_BYTES, Header, Kind, NackReason, Packet, PacketWriter, Pipeline, Region,
    RegionConfig, RegionMemory, Verdict, WINDOW, packet_bytes,
};

use crate::role::Outgoing;
use crate::time::Instant;
use crate::transport::bounds::Bounds;
use crate::transport::flow::{FLOW_PACKETS_MAX, PacketRows, edit_header};
use crate::transport::path::{Delivery, Identity, Path};
use crate::transport::region::RegionFlows;

pub(super) const JOB: u16 = 7;
pub(super) const WORKER: u16 = 1;
pub(super) const PLAN: u16 = 3;
pub(super) const VIEW: u64 = (3 << 16) + 11;
pub(super) const VIEW_ON_WIRE: u16 = 11;
pub(super) const CELLS: u16 = 16;
/// Its values are installed.
pub(super) const READABLE: u8 = 0;
/// Its values never are.
pub(super) const UNREADABLE: u8 = 5;
pub(super) const REGIONS: [u8; 2] = [READABLE, UNREADABLE];

/// Number of packets that a worker keeps of a flow whose packets are large.
pub(super) const UNDURABLE_MAX: u32 = 8192;
pub(super) const IDENTITY: Identity = Identity { job: JOB, worker: WORKER, plan: PLAN };

/// A region of a switch, held under this view.
pub(super) fn new_region(region: u8, view: u64, bank_packets_max: u32) -> Region<Vec<u32>> {
    let config = RegionConfig {
        job: JOB,
        region,
        plan: PLAN,
        view,
        lanes: 1,
        cells: CELLS,
        flows: 2,
        bank_packets_max,
        arithmetic: Arithmetic::Fixed { bound: 1000 },
    };
    Region::new(config, RegionMemory::allocate(&config, |words| vec![0; words])).unwrap()
}

pub(super) fn address() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 4000))
}

pub(super) fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// SplitMix64: enough for faults, and the same everywhere.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(super) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// Faults of datagrams, in percent, and their delays.
#[derive(Debug, Clone, Copy)]
pub(super) struct Link {
    pub(super) loss: u64,
    pub(super) duplicate: u64,
    pub(super) reorder: u64,
    pub(super) delay: Duration,
}

/// A link that loses everything.
pub(super) const LOST: Link = Link { loss: 100, ..Link::GOOD };

impl Link {
    pub(super) const GOOD: Self =
        Self { loss: 0, duplicate: 0, reorder: 0, delay: Duration::from_micros(50) };
    pub(super) const BAD: Self = Self { loss: 20, duplicate: 20, reorder: 20, ..Self::GOOD };

    /// After how long each copy of a datagram arrives; none if it is lost.
    pub(super) fn carry(&self, random: &mut Random) -> Vec<Duration> {
        if random.percent(self.loss) {
            return Vec::new();
        }
        let copies = if random.percent(self.duplicate) { 2 } else { 1 };
        let mut late = || if random.percent(self.reorder) { random.below(3000) } else { 0 };
        (0..copies).map(|_| self.delay + Duration::from_micros(late())).collect()
    }
}

#[derive(Debug)]
pub(super) enum Arrival {
    AtSwitch(Vec<u8>),
    AtWorker(Vec<u8>),
    /// The agent closes the rounds that are drained.
    Flip,
    /// The shard has committed the round of a region.
    Commit(u8, u16),
}

/// Contents of a packet, the first time it was sent, and the number of its transmissions.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) first: Vec<u8>,
    times: u32,
    answered: bool,
}

/// A path, a pipeline, and what lies between them.
pub(super) struct PathHarness {
    pub(super) now: Instant,
    pub(super) path: Path,
    pub(super) pipeline: Pipeline<Vec<Region<Vec<u32>>>, Vec<u32>>,
    pub(super) link: Link,
    pub(super) in_flight_max: usize,
    pub(super) commit_time: Duration,
    pub(super) random: Random,
    pub(super) arrivals: BTreeMap<(Instant, u64), Arrival>,
    pub(super) arrival_number: u64,
    pub(super) sent: BTreeMap<(u8, u8, u32), Sent>,
    /// Sums that the shard was given, by region and slot.
    pub(super) committed: BTreeMap<(u8, u32), i64>,
    /// Sums that the worker has pushed.
    pub(super) pushed: BTreeMap<(u8, u32), i64>,
    /// Number of times that each operation was accepted, answered with values, unreadable.
    pub(super) accepted: BTreeMap<u64, u32>,
    pub(super) values: BTreeMap<u64, Vec<u32>>,
    pub(super) unreadable: BTreeMap<u64, u32>,
    pub(super) operations: u64,
    pub(super) most_unanswered: usize,
}

pub(super) const fn bounds(in_flight: u32) -> Bounds {
    Bounds { in_flight, undurable: UNDURABLE_MAX }
}

impl PathHarness {
    pub(super) fn new(link: Link, in_flight_max: u32, bank_packets_max: u32, seed: u64) -> Self {
        let regions = REGIONS.map(|region| new_region(region, VIEW, bank_packets_max));
        let mut pipeline = Pipeline::new(regions.to_vec()).unwrap();
        pipeline.region_mut(JOB, READABLE).unwrap().set_readable(true);
        let mut path = Path::new(address(), IDENTITY, bounds(in_flight_max));
        for region in REGIONS {
            path.put(region, RegionFlows::new(FLOW_PACKETS_MAX), VIEW);
        }
        let mut harness = Self {
            now: Instant::ZERO + ms(1),
            path,
            pipeline,
            link,
            in_flight_max: in_flight_max as usize,
            commit_time: Duration::from_micros(300),
            random: Random(seed),
            arrivals: BTreeMap::new(),
            arrival_number: 0,
            sent: BTreeMap::new(),
            committed: BTreeMap::new(),
            pushed: BTreeMap::new(),
            accepted: BTreeMap::new(),
            values: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            operations: 0,
            most_unanswered: 0,
        };
        for cell in 0..CELLS - 1 {
            let mut packet = write(Kind::Install, Flags::NONE, READABLE, 0, &[(cell, 100 + u32::from(cell))]);
            assert!(matches!(harness.pipeline.process(&mut packet), Verdict::Reply(_)));
        }
        harness.schedule(ms(2), Arrival::Flip);
        harness
    }

    pub(super) fn schedule(&mut self, after: Duration, arrival: Arrival) {
        self.arrival_number += 1;
        self.arrivals.insert((self.now + after, self.arrival_number), arrival);
    }

    /// Sends a datagram over the link.
    pub(super) fn send(&mut self, bytes: &[u8], arrival: fn(Vec<u8>) -> Arrival) {
        for after in self.link.carry(&mut self.random) {
            self.schedule(after, arrival(bytes.to_vec()));
        }
    }

    /// Submits a push of value 1 + cell to each of `cells`; returns its operation.
    pub(super) fn push(&mut self, region: u8, cells: &[u16], flags: Flags) -> u64 {
        let entries: Vec<_> = cells.iter().map(|&cell| (cell, 1 + u32::from(cell))).collect();
        for (cell, value) in &entries {
            *self.pushed.entry((region, u32::from(*cell))).or_default() += i64::from(*value);
        }
        self.submit(Kind::Push, flags, region, &entries)
    }

    pub(super) fn pull(&mut self, region: u8, cells: &[u16]) -> u64 {
        let entries: Vec<_> = cells.iter().map(|&cell| (cell, 0)).collect();
        self.submit(Kind::Pull, Flags::NONE, region, &entries)
    }

    pub(super) fn submit(&mut self, kind: Kind, flags: Flags, region: u8, entries: &[(u16, u32)]) -> u64 {
        self.operations += 1;
        let end = u32::try_from(entries.len()).unwrap();
        let packet_rows = PacketRows { operation: self.operations, first: 0, end };
        submit(&mut self.path, kind, flags, region, entries, packet_rows);
        self.transmit();
        self.operations
    }

    /// Takes all that the path wants to send, and checks what may be checked of each packet.
    pub(super) fn transmit(&mut self) {
        loop {
            let mut outgoing = Outgoing::default();
            self.path.poll_transmit(self.now, &mut outgoing);
            if outgoing.is_empty() {
                break;
            }
            for (to, datagram) in outgoing.iter() {
                assert_eq!(to, address());
                self.check_sent(datagram);
                self.send(datagram, Arrival::AtSwitch);
            }
        }
        assert!(self.path.in_flight() <= self.in_flight_max);
        assert!(
            self.path.in_flight() == 0 || self.path.poll_timeout().is_some(),
            "a loss would not be noticed"
        );
        let unanswered = self.sent.values().filter(|sent| !sent.answered).count();
        self.most_unanswered = self.most_unanswered.max(unanswered);
    }

    /// Takes what the path sends to a switch that is not in the harness. Returns the sequence numbers.
    pub(super) fn transmit_elsewhere(&mut self) -> Vec<u32> {
        let mut outgoing = Outgoing::default();
        self.path.poll_transmit(self.now, &mut outgoing);
        outgoing.iter().map(|(_, datagram)| Header::parse(datagram).unwrap().seq).collect()
    }

    pub(super) fn check_sent(&mut self, datagram: &[u8]) {
        let header = Header::parse(datagram).unwrap();
        assert_eq!((header.job, header.worker, header.plan), (JOB, WORKER, PLAN));
        if header.entries == 0 {
            // rule T8
            return assert_eq!(header.kind, Kind::Pull, "only probes are empty");
        }
        if header.kind == Kind::Push
            && let Some(overwritten) = header.seq.checked_sub(u32::try_from(WINDOW).unwrap())
        {
            let window = self.pipeline.region(JOB, header.region).unwrap().window(WORKER).unwrap();
            assert!(window.contains(overwritten), "the sender rule: seq {overwritten} was not taken yet");
        }
        let key = (header.region, header.kind as u8, header.seq);
        let sent = self.sent.entry(key).or_insert_with(|| Sent {
            first: datagram.to_vec(),
            times: 0,
            answered: false,
        });
        sent.times += 1;
        assert_eq!(header.flags.contains(Flags::RETRANSMIT), sent.times > 1);
        let mut expected = Header::parse(&sent.first).unwrap();
        expected.flags = header.flags;
        // rules T1, T4
        assert_eq!(header, expected, "a retransmission differs in its mark alone");
        assert_eq!(datagram[HEADER_BYTES..], sent.first[HEADER_BYTES..]);
    }

    /// Lets the path probe a region without a recent answer. Returns the number of the probe, which goes nowhere.
    pub(super) fn ask(&mut self, region: u8) -> u32 {
        for _ in 0..100 {
            self.now = self.path.poll_timeout().expect("a packet waits to be durable").max(self.now);
            self.path.handle_timeout(self.now);
            let mut outgoing = Outgoing::default();
            self.path.poll_transmit(self.now, &mut outgoing);
            let headers = outgoing.iter().map(|(_, datagram)| Header::parse(datagram).unwrap());
            let probes = headers.filter(|header| header.entries == 0 && header.region == region);
            if let Some(probe) = probes.last() {
                return probe.seq;
            }
        }
        panic!("no probe was sent")
    }

    pub(super) fn deliver(&mut self, bytes: &[u8]) {
        if let Ok(answer) = Packet::parse(bytes) {
            let kind = if answer.header.kind == Kind::Ack { Kind::Push } else { answer.header.kind };
            let acknowledged = answer.acknowledged().flat_map(|range| range.iter());
            for seq in acknowledged.chain([answer.header.seq]) {
                if let Some(sent) = self.sent.get_mut(&(answer.header.region, kind as u8, seq)) {
                    sent.answered = true;
                }
            }
        }
        let Self { path, accepted, values, unreadable, .. } = self;
        path.handle_datagram(self.now, bytes, &mut |delivery| match delivery {
            Delivery::Accepted(packet_rows, packet) => {
                *accepted.entry(packet_rows.operation).or_default() += 1;
                if let Some(packet) = packet {
                    values.insert(packet_rows.operation, packet.entries().map(|entry| entry.value).collect());
                }
            }
            Delivery::Values(packet_rows, packet) => {
                let before =
                    values.insert(packet_rows.operation, packet.entries().map(|entry| entry.value).collect());
                assert!(before.is_none(), "a pull is answered once");
            }
            Delivery::Unreadable(packet_rows) => *unreadable.entry(packet_rows.operation).or_default() += 1,
        });
    }

    pub(super) fn flip(&mut self) {
        for region in REGIONS {
            let end = self.pipeline.region_mut(JOB, region).unwrap();
            let previous = end.round().wrapping_sub(1);
            if end.durable() == previous {
                let closed = end.flip().unwrap();
                let committed = &mut self.committed;
                end.drain(|first, block| {
                    for (slot, &sum) in (first..).zip(block) {
                        *committed.entry((region, slot)).or_default() += i64::from(sum.cast_signed());
                    }
                });
                self.schedule(self.commit_time, Arrival::Commit(region, closed));
            }
        }
        self.schedule(ms(2), Arrival::Flip);
    }

    /// Does whatever comes next. The path is woken only when it asked to be.
    pub(super) fn step(&mut self) {
        let arrival = *self.arrivals.first_key_value().expect("the agent always flips again").0;
        if let Some(timeout) = self.path.poll_timeout().filter(|timeout| *timeout < arrival.0) {
            self.now = self.now.max(timeout);
            self.path.handle_timeout(self.now);
            self.transmit();
            let next = self.path.poll_timeout();
            assert!(next.is_none_or(|next| next > self.now), "a timer that was handled is over");
            return;
        }
        let arrival = self.arrivals.remove_entry(&arrival).unwrap();
        self.now = arrival.0.0;
        match arrival.1 {
            Arrival::AtSwitch(mut bytes) => {
                if let Verdict::Reply(length) = self.pipeline.process(&mut bytes) {
                    self.send(&bytes[..length], Arrival::AtWorker);
                }
            }
            Arrival::AtWorker(bytes) => self.deliver(&bytes),
            Arrival::Flip => self.flip(),
            Arrival::Commit(region, round) => {
                self.pipeline.region_mut(JOB, region).unwrap().set_durable(round)
            }
        }
        self.transmit();
    }

    pub(super) fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.step();
        }
    }

    /// For each region the number of the next push.
    pub(super) fn frontiers(&self) -> Vec<(u8, u32)> {
        REGIONS.iter().map(|&region| (region, self.path.push_flow(region).next())).collect()
    }

    /// Returns true if every push before these numbers is durable.
    pub(super) fn is_durable(&self, frontiers: &[(u8, u32)]) -> bool {
        frontiers.iter().all(|&(region, seq)| self.path.push_flow(region).first() >= seq)
    }

    /// Runs until every push is durable and every pull answered.
    pub(super) fn run_to_rest(&mut self) {
        let deadline = self.now + Duration::from_secs(120);
        let frontiers = self.frontiers();
        while !self.is_durable(&frontiers) || self.path.in_flight() > 0 || self.open() > 0 {
            assert!(self.now < deadline, "{} operations are still open", self.open());
            self.step();
        }
    }

    pub(super) fn open(&self) -> usize {
        let answered = |number: &u64| {
            self.accepted.contains_key(number)
                || self.values.contains_key(number)
                || self.unreadable.contains_key(number)
        };
        (1..=self.operations).filter(|number| !answered(number)).count()
    }

    pub(super) fn check_sums(&self) {
        let nonzero = |sums: &BTreeMap<(u8, u32), i64>| -> Vec<_> {
            sums.iter().filter(|(_, sum)| **sum != 0).map(|(slot, sum)| (*slot, *sum)).collect()
        };
        assert_eq!(nonzero(&self.committed), nonzero(&self.pushed), "every push is in the sums once");
        assert!(self.accepted.values().all(|&times| times == 1), "every push is acknowledged once");
    }
}

/// Hands a packet to a path, as a worker does.
pub(super) fn submit(
    path: &mut Path,
    kind: Kind,
    flags: Flags,
    region: u8,
    entries: &[(u16, u32)],
    packet_rows: PacketRows,
) {
    let (header, _) = path.begin(region, kind);
    let mut bytes = write(kind, flags, region, header.seq, entries);
    edit_header(&mut bytes, |written| written.view = header.view);
    path.submit(region, kind, bytes, packet_rows);
}

pub(super) fn write(kind: Kind, flags: Flags, region: u8, seq: u32, entries: &[(u16, u32)]) -> Vec<u8> {
    let mut bytes = vec![0; packet_bytes(u8::try_from(entries.len()).unwrap())];
    let mut writer = PacketWriter::new(header(kind, flags, region, seq), &mut bytes);
    assert!(entries.iter().all(|&(cell, value)| writer.push(cell, value)));
    let length = writer.finish();
    assert_eq!(length, bytes.len());
    bytes
}

pub(super) fn header(kind: Kind, flags: Flags, region: u8, seq: u32) -> Header {
    let (job, worker, plan, view, round, durable) = (JOB, WORKER, PLAN, VIEW_ON_WIRE, 0, 0);
    Header { kind, flags, entries: 0, job, worker, plan, view, region, round, durable, seq, tag: 0 }
}

/// The answer to a probe.
pub(super) fn probe_answer(region: u8, seq: u32, durable: u16) -> Vec<u8> {
    Header { durable, ..header(Kind::Pull, Flags::VALUES, region, seq) }.to_bytes().to_vec()
}

/// An acknowledgement of one packet.
pub(super) fn ack(region: u8, seq: u32, round: u16, durable: u16) -> Vec<u8> {
    Header { round, durable, ..header(Kind::Ack, Flags::NONE, region, seq) }.to_bytes().to_vec()
}

pub(super) fn nack(region: u8, seq: u32, reason: NackReason) -> Vec<u8> {
    Header { round: reason as u16, ..header(Kind::Nack, Flags::NONE, region, seq) }.to_bytes().to_vec()
}
