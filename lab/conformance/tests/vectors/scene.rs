//! Writing of vectors: each step is carried out on the reference, and recorded with its answer.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddrV4;

use libra_conformance::{
    Exchange, FlowSeqs, IpVerdict, Key, Need, RegionName, Sender, Slots, Step, Target, VERSION, WorkerName,
};
use libra_dataplane::{
    Arithmetic, BankPackets, Counters, Direction, Entry, Header, Kind, NackReason, Packet, PacketWriter,
    RegionConfig, packet_bytes,
};

use crate::pipeline::PipelineTarget;

pub(crate) const JOB: u16 = 7;
pub(crate) const PLAN: u16 = 3;
pub(crate) const VIEW: u16 = 9;
/// The region of most vectors.
pub(crate) const REGION: RegionName = RegionName { job: JOB, region: 0 };
/// The round that most regions go on after: soon their numbers on the wire begin again.
pub(crate) const AFTER: u16 = 0xFFFD;
/// The round that then takes packets.
pub(crate) const OPEN: u16 = AFTER + 1;

/// A small region of fixed point.
pub(crate) const FIXED: RegionConfig = RegionConfig {
    job: JOB,
    region: 0,
    plan: PLAN,
    view: VIEW as u64,
    lanes: 1,
    cells: 10,
    flows: 2,
    bank_packets_max: 4096,
    arithmetic: Arithmetic::Fixed { bound: (1 << 19) - 1 },
};

/// The same for single precision numbers.
pub(crate) const F32: RegionConfig = RegionConfig { arithmetic: Arithmetic::F32, ..FIXED };

/// The same for those that are added by tables.
pub(crate) const TABLE: RegionConfig = RegionConfig { arithmetic: Arithmetic::Table, ..FIXED };

/// Entries that no data plane takes, whatever its lanes: a cell beyond all regions.
pub(crate) const UNSOUND: [(u16, i32); 1] = [(0x7000, 1)];

/// For whom a vector is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    /// Packets of any number of entries, in as many lanes as the vector says.
    Software,
    /// A switch that wires each place of a packet to a register: every packet has an entry for each of its lanes, padding where the vector
    /// gives fewer. It keeps no counters, and gives the acked set where it stands still.
    Wired,
}

impl Profile {
    pub(crate) const BOTH: [Self; 2] = [Self::Software, Self::Wired];
    /// Lanes of a switch that wires them.
    pub(crate) const LANES: u8 = 16;

    pub(crate) fn is_wired(self) -> bool {
        self == Self::Wired
    }
}

/// A worker of the job of most vectors.
pub(crate) const fn worker(worker: u16) -> Sender {
    Sender::Worker(WorkerName { job: JOB, worker })
}

/// A request of this worker, for the region of most vectors.
pub(crate) const fn header(kind: Kind, worker: u16, seq: u32) -> Header {
    Header { job: JOB, worker, plan: PLAN, view: VIEW, seq, ..Header::of_kind(kind) }
}

/// A packet.
pub(crate) fn packet(header: Header, entries: &[(u16, u32)]) -> Vec<u8> {
    let mut packet = vec![0; packet_bytes(u8::try_from(entries.len()).unwrap())];
    let mut writer = PacketWriter::new(header, &mut packet);
    assert!(entries.iter().all(|&(cell, value)| writer.push(cell, value)));
    assert_eq!(writer.finish(), packet.len());
    packet
}

/// A push of fixed point numbers.
pub(crate) fn push(worker: u16, seq: u32, entries: &[(u16, i32)]) -> Vec<u8> {
    let entries: Vec<_> = entries.iter().map(|&(cell, value)| (cell, value.cast_unsigned())).collect();
    packet(header(Kind::Push, worker, seq), &entries)
}

/// A vector that is being made.
pub(crate) struct Scene {
    profile: Profile,
    file: &'static str,
    about: String,
    target: PipelineTarget,
    steps: Vec<Step>,
    /// Needs that its lines do not show.
    needs: Vec<Need>,
    lines: String,
    /// The cell of each region that is for padding.
    padding: BTreeMap<RegionName, u16>,
    keys: BTreeMap<WorkerName, Key>,
    views: BTreeMap<RegionName, u64>,
    /// A region was closed, so counters mean nothing from there on.
    closed: bool,
}

/// An answer, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) header: Header,
    pub(crate) entries: Vec<Entry>,
}

impl Scene {
    /// A vector without a region. `about` is the comment at its beginning.
    pub(crate) fn new(file: &'static str, about: &str) -> Self {
        Self::of(Profile::Software, file, about)
    }

    /// The same for others than [`Profile::Software`], whose files are named so.
    pub(crate) fn of(profile: Profile, file: &'static str, about: &str) -> Self {
        let mut scene = Self {
            profile,
            file,
            about: about.to_owned(),
            target: PipelineTarget::new(),
            steps: vec![],
            needs: vec![],
            lines: String::new(),
            padding: BTreeMap::new(),
            keys: BTreeMap::new(),
            views: BTreeMap::new(),
            closed: false,
        };
        scene.write(Step::Switch("10.7.0.1:4700".parse().unwrap()));
        scene
    }

    /// A vector with one region, and workers for its flows.
    pub(crate) fn with(file: &'static str, about: &str, config: RegionConfig) -> Self {
        Self::with_of(Profile::Software, file, about, config)
    }

    /// The same for others than [`Profile::Software`].
    pub(crate) fn with_of(profile: Profile, file: &'static str, about: &str, config: RegionConfig) -> Self {
        let mut scene = Self::of(profile, file, about);
        for worker in 0..config.flows {
            scene.worker(WorkerName { job: config.job, worker });
        }
        scene.open(config, AFTER, &[]);
        scene
    }

    /// Says what a target must be able to do that the lines do not show.
    pub(crate) fn needs(&mut self, need: Need) {
        assert!(!need.is_shown());
        self.needs.push(need);
    }

    /// The name of the file and its text, which ends with the counters.
    pub(crate) fn finish(mut self) -> (String, String) {
        if !self.closed {
            self.counters();
        }
        let mut text = String::new();
        self.about.lines().for_each(|line| writeln!(text, "# {line}").unwrap());
        let wired = if self.profile.is_wired() { "wired-" } else { "" };
        if self.profile.is_wired() {
            let lanes = Profile::LANES;
            writeln!(
                text,
                "# A packet has an entry for each of {lanes} lanes, padding where there is no other."
            )
            .unwrap();
        }
        writeln!(text, "conformance {VERSION}").unwrap();
        let needs = Need::shown_by(&self.steps).into_iter().chain(self.needs);
        needs.for_each(|need| writeln!(text, "needs {need}").unwrap());
        (format!("{wired}{}.txt", self.file), text + &self.lines)
    }

    /// The slot of a cell, by the place that its entry has in a packet.
    pub(crate) fn slot(&self, place: u32, cell: u32) -> u32 {
        let lanes = u32::from(Profile::LANES);
        if self.profile.is_wired() { cell * lanes + place % lanes } else { cell }
    }

    /// A packet as this profile has it.
    fn widened(&self, datagram: &[u8]) -> Vec<u8> {
        let Ok(parsed) = Packet::parse(datagram) else { return datagram.to_vec() };
        let header = parsed.header;
        // Without entries a PULL is a probe, and all but a PUSH nothing that a switch takes.
        if !self.profile.is_wired() || header.entries == 0 && header.kind != Kind::Push {
            return datagram.to_vec();
        }
        let lanes = usize::from(Profile::LANES);
        assert!(usize::from(header.entries) <= lanes, "{}: more entries than lanes", self.file);
        let region = RegionName { job: header.job, region: header.region };
        let padding = self.padding.get(&region).copied().unwrap_or(FIXED.cells - 1);
        let entries = parsed.entries().map(|entry| (entry.cell, entry.value));
        let entries = entries.chain(std::iter::repeat((padding, 0))).take(lanes);
        packet(header, &entries.collect::<Vec<_>>())
    }

    /// Says why, before the lines that follow.
    pub(crate) fn note(&mut self, why: &str) {
        self.lines += "\n";
        why.lines().for_each(|line| writeln!(self.lines, "# {line}").unwrap());
    }

    fn write(&mut self, step: Step) {
        writeln!(self.lines, "{step}").unwrap();
        self.steps.push(step);
    }

    /// A worker at an address that follows from its name.
    pub(crate) fn worker(&mut self, name: WorkerName) {
        let [high, low] = (name.worker + 2).to_be_bytes();
        let job = u8::try_from(name.job).unwrap();
        self.worker_at(name, SocketAddrV4::new([10, job, high, low].into(), 5000 + name.worker));
    }

    pub(crate) fn worker_at(&mut self, name: WorkerName, address: SocketAddrV4) {
        self.target.set_worker(name, address).unwrap();
        self.write(Step::Worker(name, address));
    }

    pub(crate) fn key(&mut self, name: WorkerName, key: &Key) {
        self.target.set_key(name, key).unwrap();
        self.keys.insert(name, key.clone());
        self.write(Step::Key(name, key.clone()));
    }

    /// Returns true if packets have tags.
    pub(crate) fn has_keys(&self) -> bool {
        !self.keys.is_empty()
    }

    /// The packet as the worker that it names sends it: with its tag, if the worker has a key.
    pub(crate) fn signed(&self, packet: Vec<u8>) -> Vec<u8> {
        let Header { job, worker, .. } = Header::parse(&packet).unwrap();
        match self.keys.get(&WorkerName { job, worker }) {
            Some(key) => self.signed_with(key, packet),
            None => packet,
        }
    }

    /// The same with a tag of this key, in the view of the region that it names.
    pub(crate) fn signed_with(&self, key: &Key, mut packet: Vec<u8>) -> Vec<u8> {
        let Header { job, region, view, .. } = Header::parse(&packet).unwrap();
        let view = self.views.get(&RegionName { job, region }).copied().unwrap_or_else(|| view.into());
        key.tags().sign(Direction::Up, &mut packet, view);
        packet
    }

    pub(crate) fn open(&mut self, config: RegionConfig, after: u16, seen: &[(u16, std::ops::Range<u32>)]) {
        let lanes = if self.profile.is_wired() { Profile::LANES } else { config.lanes };
        let config = RegionConfig { lanes, ..config };
        self.padding.insert(RegionName::of(&config), config.cells - 1);
        self.views.insert(RegionName::of(&config), config.view);
        let seen: Vec<_> =
            seen.iter().map(|(flow, seqs)| FlowSeqs { flow: *flow, seqs: seqs.clone() }).collect();
        self.target.open(&config, after, &seen).unwrap();
        self.write(Step::Open { config, after, seen });
    }

    pub(crate) fn close(&mut self, region: RegionName) {
        self.target.close(region).unwrap();
        self.closed = true;
        self.write(Step::Close(region));
    }

    /// A datagram, and what comes back.
    pub(crate) fn send(&mut self, from: Sender, datagram: &[u8]) -> Option<Answer> {
        self.send_times(1, from, datagram)
    }

    /// The same datagram several times, with numbers that go up. All answers are alike but for their number.
    pub(crate) fn send_times(&mut self, times: u32, from: Sender, datagram: &[u8]) -> Option<Answer> {
        let mut exchange = Exchange { from, times, datagram: self.widened(datagram), answer: None };
        exchange.answer = self.target.receive(from, &exchange.datagram(0)).unwrap();
        for n in 1..times {
            let answer = self.target.receive(from, &exchange.datagram(n)).unwrap();
            assert_eq!(answer, exchange.answer(n), "the answers to repeated datagrams differ");
        }
        let answer = exchange.answer.as_deref().map(|bytes| {
            let packet = Packet::parse(bytes).unwrap();
            Answer { header: packet.header, entries: packet.entries().collect() }
        });
        self.write(Step::Exchange(exchange));
        answer
    }

    /// A packet of a worker that is carried out, and the header of the answer.
    pub(crate) fn taken(&mut self, from: Sender, datagram: &[u8]) -> Answer {
        let answer = self.send(from, datagram).expect("an answer");
        assert_ne!(answer.header.kind, Kind::Nack, "{answer:?}");
        answer
    }

    /// A packet that is refused for this reason.
    pub(crate) fn refused(&mut self, from: Sender, datagram: &[u8], reason: NackReason) -> Header {
        let answer = self.send(from, datagram).expect("a refusal");
        assert_eq!(answer.header.nack_reason(), Some(reason), "{answer:?}");
        answer.header
    }

    /// A datagram without an answer, counted under the name of `counter` or, for `None`, not at all.
    pub(crate) fn dropped(
        &mut self,
        from: Sender,
        datagram: &[u8],
        counter: Option<fn(&mut Counters) -> &mut u64>,
    ) {
        let mut expected = self.target.counters().unwrap();
        if let Some(counter) = counter {
            *counter(&mut expected) += 1;
            expected.packets += 1;
        }
        assert_eq!(self.send(from, datagram), None);
        assert_eq!(self.target.counters().unwrap(), expected);
    }

    /// A push that was taken before, by this round.
    pub(crate) fn duplicate(&mut self, from: Sender, datagram: &[u8], round: u16) {
        self.duplicate_times(1, from, datagram, round);
    }

    /// Several of them, with numbers that go up.
    pub(crate) fn duplicate_times(&mut self, times: u32, from: Sender, datagram: &[u8], round: u16) {
        let before = self.target.counters().unwrap().duplicates;
        let answer = self.send_times(times, from, datagram).expect("an answer");
        assert_eq!((answer.header.kind, answer.header.round), (Kind::Ack, round));
        assert_eq!(self.target.counters().unwrap().duplicates, before + u64::from(times));
    }

    /// Pushes of a worker that each add 1 to slot 1 and are taken.
    pub(crate) fn push_times(&mut self, times: u32, of: u16, first: u32) {
        let before = self.target.counters().unwrap().pushes;
        self.send_times(times, worker(of), &push(of, first, &[(1, 1)]));
        assert_eq!(self.target.counters().unwrap().pushes, before + u64::from(times));
    }

    /// Closes a round as the agent does: flip, drain, acked sets of so many flows.
    pub(crate) fn close_round(&mut self, region: RegionName, flows: u16) -> Slots {
        self.flip(region).expect("the idle bank was drained");
        let sums = self.drain(region);
        (0..flows).for_each(|flow| {
            self.acked(region, flow);
        });
        sums
    }

    /// A packet that names another worker than its address.
    pub(crate) fn foreign(&mut self, from: Sender, datagram: &[u8]) {
        self.dropped(from, datagram, Some(|counters| &mut counters.foreign));
    }

    /// A packet without the tag that it must have.
    pub(crate) fn forged(&mut self, from: Sender, datagram: &[u8]) {
        self.dropped(from, datagram, Some(|counters| &mut counters.forged));
    }

    /// A packet with a MAC for another plan or view than that of its region, or for a region that is not here.
    pub(crate) fn stale(&mut self, from: Sender, datagram: &[u8]) {
        self.dropped(from, datagram, Some(|counters| &mut counters.stale));
    }

    /// A packet of a kind that its sender may not send.
    pub(crate) fn unexpected(&mut self, from: Sender, datagram: &[u8]) {
        self.dropped(from, datagram, Some(|counters| &mut counters.unexpected));
    }

    /// A packet that its region cannot take.
    pub(crate) fn malformed(&mut self, from: Sender, datagram: &[u8]) {
        self.dropped(from, datagram, Some(|counters| &mut counters.malformed));
    }

    /// A whole IPv4 packet, of which becomes what would of its payload.
    pub(crate) fn ip_taken(&mut self, from: Sender, payload: &[u8], packet: Vec<u8>) -> IpVerdict {
        let answer = self.target.receive(from, payload).unwrap();
        let verdict = answer.map_or(IpVerdict::Drop, IpVerdict::Answer);
        self.write(Step::Ip { packet, verdict: verdict.clone() });
        verdict
    }

    /// A whole packet that the data plane leaves to others.
    pub(crate) fn ip_left(&mut self, packet: Vec<u8>) {
        self.write(Step::Ip { packet, verdict: IpVerdict::Pass });
    }

    pub(crate) fn flip(&mut self, region: RegionName) -> Option<u16> {
        let closed = self.target.flip(region).unwrap();
        self.write(Step::Flip(region, closed));
        closed
    }

    pub(crate) fn drain(&mut self, region: RegionName) -> Slots {
        let sums = self.target.drain(region).unwrap();
        self.write(Step::Drain(region, sums.clone()));
        sums
    }

    pub(crate) fn install(&mut self, region: RegionName, values: &[(u32, u32)]) {
        let values = Slots(values.iter().copied().collect());
        self.target.install(region, &values).unwrap();
        self.write(Step::Install(region, values));
    }

    pub(crate) fn values(&mut self, region: RegionName) -> Slots {
        let values = self.target.values(region).unwrap();
        self.write(Step::Values(region, values.clone()));
        values
    }

    pub(crate) fn durable(&mut self, region: RegionName, round: u16) {
        self.target.set_durable(region, round).unwrap();
        self.write(Step::Durable(region, round));
    }

    pub(crate) fn readable(&mut self, region: RegionName, is: bool) {
        self.target.set_readable(region, is).unwrap();
        self.write(Step::Readable(region, is));
    }

    pub(crate) fn active(&mut self, region: RegionName, is: bool) {
        self.target.set_active(region, is).unwrap();
        self.write(Step::Active(region, is));
    }

    pub(crate) fn acked(&mut self, region: RegionName, flow: u16) -> Vec<std::ops::Range<u32>> {
        let ranges = self.target.acked(region, flow).unwrap();
        self.write(Step::Acked(region, flow, ranges.clone()));
        ranges
    }

    /// The acked set while packets come, which is asked only of those who know it.
    pub(crate) fn live_acked(&mut self, region: RegionName, flow: u16) -> Vec<std::ops::Range<u32>> {
        if self.profile.is_wired() {
            self.target.acked(region, flow).unwrap()
        } else {
            self.acked(region, flow)
        }
    }

    pub(crate) fn bank(&mut self, region: RegionName) -> BankPackets {
        let packets = self.target.bank(region).unwrap();
        self.write(Step::Bank(region, packets));
        packets
    }

    pub(crate) fn counters(&mut self) -> Counters {
        let counters = self.target.counters().unwrap();
        if !self.profile.is_wired() {
            self.write(Step::Counters(counters));
        }
        counters
    }
}
