//! The data plane in the kernel, as an agent sees it.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use aya::maps::{Array, ArrayOfMaps, HashMap, MapData, MapError, PerCpuArray, RingBuf};
use aya::programs::{TestRun, TestRunOptions, Xdp};
use aya::{Ebpf, EbpfLoader};
use libra_dataplane::{BankPackets, Counters, RegionConfig, WINDOW_WORDS, Window, packet_bytes};
use libra_proto::{Cut, Epoch, FlowCut, Outgoing, Plane, SlotValues, flow_cut, open_region};

use crate::error::{Attached, Mode, XdpError};
use crate::frame::{self, FRAME_BYTES_MAX, HEAD_BYTES};
use crate::layout::{COUNTS, REGION_WORDS};
use crate::memory::RegionMemory;
use crate::program::{self, MEASURE, SWITCH};
use crate::terms::Terms;

const NAME: &str = "libra_switch";
const MEASURE_NAME: &str = "libra_measure";
/// Under the lock of the element: `BPF_F_LOCK`.
const LOCKED: u64 = 4;
/// Verdicts of a program.
const PASSED: u32 = 2;
const SENT: u32 = 3;

/// A worker's address as it is on the wire, and zeros.
type Key = [u8; 8];

/// The regions of a switch in the kernel.
pub struct XdpPlane {
    loaded: Ebpf,
    name: &'static str,
    address: SocketAddrV4,
    terms: Array<MapData, [u32; REGION_WORDS]>,
    memory: ArrayOfMaps<MapData>,
    workers: HashMap<MapData, Key, [u16; 2]>,
    counts: PerCpuArray<MapData, [u64; COUNTS.len()]>,
    wakes: RingBuf<MapData>,
    job: u16,
    regions: BTreeMap<u8, Open>,
    /// What was counted before it began.
    before: [u64; COUNTS.len()],
    unknown_senders: u64,
    /// Datagrams that the program would not look at.
    malformed: u64,
    failure: Option<String>,
    frame: Vec<u8>,
    answer: Vec<u8>,
}

/// A region that is open.
struct Open {
    terms: Terms,
    memory: RegionMemory,
    flows: Vec<Flow>,
}

/// What is in the epochs of a region that are closed, of one flow.
struct Flow {
    words: [u32; WINDOW_WORDS],
    cut: FlowCut,
}

impl Flow {
    fn new(words: [u32; WINDOW_WORDS]) -> Self {
        Self { words, cut: flow_cut(Window::new(&words)) }
    }

    /// Adds what one more epoch has taken. Its bank also knows of older ones, and each word is the newest of its bank, so the
    /// newest of both is what one memory for both banks would have.
    fn add(&mut self, words: &[u32; WINDOW_WORDS]) {
        for (word, other) in self.words.iter_mut().zip(words) {
            *word = (*word).max(*other);
        }
        self.cut = flow_cut(Window::new(&self.words));
    }
}

impl XdpPlane {
    /// Loads the program for datagrams at `address`, which may be any of this machine (0.0.0.0), and puts it onto an
    /// interface of this network namespace. Packets of workers that come there are not seen by sockets from then on.
    pub fn attach(interface: &str, mode: Mode, address: SocketAddr) -> Result<(Self, Attached), XdpError> {
        let mut plane = Self::load(address)?;
        let attached = program::attach(&mut plane.loaded, NAME, interface, mode)?;
        Ok((plane, attached))
    }

    /// Loads the program and puts it nowhere: it sees what it is handed as datagrams.
    pub fn load(address: SocketAddr) -> Result<Self, XdpError> {
        Self::load_object(address, SWITCH, NAME)
    }

    /// Loads the program so that it can be run again and again on one push; see [`measure`](Self::measure).
    pub fn load_to_measure(address: SocketAddr) -> Result<Self, XdpError> {
        Self::load_object(address, MEASURE, MEASURE_NAME)
    }

    fn load_object(address: SocketAddr, object: &[u8], name: &'static str) -> Result<Self, XdpError> {
        let SocketAddr::V4(address) = address else { return Err(XdpError::NotIpv4) };
        let mut loader = EbpfLoader::new();
        let (ip, port) = (address.ip().octets(), address.port().to_be_bytes());
        loader.override_global("switch_address", &ip, true);
        loader.override_global("switch_port", &port, true);
        let mut loaded = program::load(&mut loader, object, name)?;
        let mut take = |name| loaded.take_map(name).expect("the object has this map");
        let failed = |error: MapError| program::cause("reading a map", &error);
        Ok(Self {
            address,
            terms: take("regions").try_into().map_err(failed)?,
            memory: take("memory").try_into().map_err(failed)?,
            workers: take("workers").try_into().map_err(failed)?,
            counts: take("counters").try_into().map_err(failed)?,
            wakes: take("wakes").try_into().map_err(failed)?,
            loaded,
            name,
            job: 0,
            regions: BTreeMap::new(),
            before: [0; COUNTS.len()],
            unknown_senders: 0,
            malformed: 0,
            failure: None,
            frame: Vec::with_capacity(FRAME_BYTES_MAX),
            answer: vec![0; FRAME_BYTES_MAX],
        })
    }

    /// Becomes readable when an epoch has begun or is due.
    pub fn wakes(&self) -> io::Result<OwnedFd> {
        self.wakes.as_fd().try_clone_to_owned()
    }

    /// Lets the program carry out one push and those that follow it, each with the next number and the same entries, and says
    /// how long one took. For a program that was loaded to be measured, with a worker at the address of the switch.
    pub fn measure(&mut self, push: &[u8], repeat: u32) -> Result<Duration, XdpError> {
        frame::write(&mut self.frame, self.address, self.address, push);
        let mut options = TestRunOptions::new();
        options.data_in = Some(&self.frame);
        options.repeat = repeat;
        let ran = self.xdp().test_run(options);
        Ok(ran.map_err(|error| program::cause("running the program", &error))?.duration)
    }

    fn xdp(&self) -> &Xdp {
        let program = self.loaded.program(self.name).expect("the object has this program");
        program.try_into().expect("it is one for XDP")
    }

    fn write(&mut self, region: u8) {
        let Some(open) = self.regions.get(&region) else { return };
        let written = self.terms.set(region.into(), open.terms.words(), LOCKED);
        self.check(written);
    }

    /// From a failure on nothing is taken for granted: the switch gives up.
    fn check<T>(&mut self, result: Result<T, impl Into<Failure>>) -> Option<T> {
        match result {
            Ok(done) => Some(done),
            Err(error) => {
                self.failure.get_or_insert_with(|| error.into().0);
                None
            }
        }
    }

    fn change(&mut self, region: u8, change: impl FnOnce(&mut Terms)) {
        if let Some(open) = self.regions.get_mut(&region) {
            change(&mut open.terms);
            self.write(region);
        }
    }

    fn counted(&self) -> [u64; COUNTS.len()] {
        let mut sums = [0; COUNTS.len()];
        if let Ok(by_cpu) = self.counts.get(&0, 0) {
            for counts in by_cpu.iter() {
                sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
            }
        }
        sums
    }

    fn try_open(&self, config: RegionConfig, durable: u16, cut: &Cut) -> Result<Open, XdpError> {
        let refused = |reason: String| XdpError::Kernel { attempted: "opening a region", reason };
        config.check().map_err(|error| refused(error.to_string()))?;
        if config.lanes != 1 {
            return Err(refused(format!("the XDP plane has one lane, not {}", config.lanes)));
        }
        let memory = RegionMemory::new(config.flows)?;
        // What the cut means for windows the reference knows.
        let opened = open_region(config, durable, cut);
        let terms = Terms {
            config,
            is_open: true,
            epoch: opened.epoch(),
            durable,
            is_active: true,
            is_readable: false,
            due: BankPackets::default(),
        };
        let idle = 1 - terms.active_bank();
        let mut flows = Vec::new();
        for flow in 0..config.flows {
            let words = *opened.window(flow).expect("the region has this flow").words();
            memory.restore(flow, idle, &words);
            flows.push(Flow::new(words));
        }
        Ok(Open { terms, memory, flows })
    }

    /// Carries out one datagram of a worker. Returns how many bytes of the answer there are.
    fn run(&mut self, from: SocketAddrV4, datagram: &[u8]) -> Option<usize> {
        if datagram.len() > packet_bytes(u8::MAX) {
            self.malformed += 1;
            return None;
        }
        frame::write(&mut self.frame, from, self.address, datagram);
        let mut answer = core::mem::take(&mut self.answer);
        let mut options = TestRunOptions::new();
        options.data_in = Some(&self.frame);
        options.data_out = Some(&mut answer);
        let ran = self.xdp().test_run(options);
        self.answer = answer;
        let ran = ran.map_err(|error| program::cause("running the program", &error));
        let ran = self.check(ran)?;
        match ran.return_value {
            SENT => usize::try_from(ran.data_size_out).ok(),
            // Longer than its entries say. From an interface it could have been a run of packets; from the socket it is not.
            PASSED => {
                self.malformed += 1;
                None
            }
            _ => None,
        }
    }
}

/// What went wrong, in words.
struct Failure(String);

impl From<MapError> for Failure {
    fn from(error: MapError) -> Self {
        Self(program::cause("writing a map", &error).to_string())
    }
}

impl From<XdpError> for Failure {
    fn from(error: XdpError) -> Self {
        Self(error.to_string())
    }
}

fn key(address: &SocketAddrV4) -> Key {
    let [a, b, c, d] = address.ip().octets();
    let [high, low] = address.port().to_be_bytes();
    [a, b, c, d, high, low, 0, 0]
}

impl Plane for XdpPlane {
    fn begin(&mut self, job: u16) {
        let open: Vec<u8> = self.regions.keys().copied().collect();
        open.into_iter().for_each(|region| self.forget(region));
        self.set_workers(&BTreeMap::new());
        self.job = job;
        self.before = self.counted();
        (self.unknown_senders, self.malformed) = (0, 0);
    }

    fn set_workers(&mut self, workers: &BTreeMap<u16, SocketAddr>) {
        let mut wanted = BTreeMap::new();
        for (&worker, address) in workers {
            match address {
                SocketAddr::V4(address) => drop(wanted.insert(key(address), [self.job, worker])),
                SocketAddr::V6(address) => {
                    let reason = format!("worker {worker} is at {address}, but the XDP plane takes IPv4 alone");
                    self.failure.get_or_insert(reason);
                }
            }
        }
        let there: Vec<Key> = self.workers.keys().filter_map(Result::ok).collect();
        for gone in there.iter().filter(|key| !wanted.contains_key(*key)) {
            let removed = self.workers.remove(gone);
            self.check(removed);
        }
        for (key, worker) in wanted {
            let inserted = self.workers.insert(key, worker, 0);
            self.check(inserted);
        }
    }

    fn open(&mut self, config: RegionConfig, durable: u16, cut: &Cut, due: BankPackets) {
        let opened = self.try_open(config, durable, cut);
        let Some(mut open) = self.check(opened) else { return };
        open.terms.due = due;
        // When this returns no packet has the memory any more that was there before.
        let given = self.memory.set(config.region.into(), &open.memory.map, 0);
        self.check(given);
        self.regions.insert(config.region, open);
        self.write(config.region);
    }

    fn forget(&mut self, region: u8) {
        self.change(region, |terms| terms.is_open = false);
        self.regions.remove(&region);
    }

    fn set_active(&mut self, region: u8, active: bool) {
        if self.regions.get(&region).is_some_and(|open| open.terms.is_active != active) {
            self.change(region, |terms| terms.is_active = active);
        }
    }

    fn settle(&mut self, region: u8, durable: u16) {
        self.change(region, |terms| (terms.durable, terms.is_readable) = (durable, true));
    }

    fn install(&mut self, region: u8, values: &SlotValues) {
        if let Some(open) = self.regions.get(&region) {
            open.memory.install(values.by_slot());
        }
    }

    fn awake(&mut self) {
        while self.wakes.next().is_some() {}
    }

    fn taken(&self, region: u8) -> BankPackets {
        let taken = |open: &Open| open.memory.taken(open.terms.active_bank());
        self.regions.get(&region).map(taken).unwrap_or_default()
    }

    fn close_epoch(&mut self, region: u8) -> Epoch {
        let Some(open) = self.regions.get_mut(&region) else { return Epoch::default() };
        let closed = open.terms.active_bank();
        // The other bank was drained, and no packet is in it before the flip.
        open.memory.begin_epoch(1 - closed, open.terms.config.flows);
        self.change(region, |terms| terms.epoch = terms.epoch.wrapping_add(1));

        // The flip took the lock, so the bank that is closed has all its packets, whole, and stands still.
        let Some(Open { terms, memory, flows }) = self.regions.get_mut(&region) else { return Epoch::default() };
        for (number, flow) in (0..).zip(flows.iter_mut()) {
            if memory.pushes_of(number, closed) > 0 {
                flow.add(&memory.window(number, closed));
            }
        }
        let cut = Cut { flows: flows.iter().map(|flow| flow.cut.clone()).collect() };
        let mut epoch = Epoch { cut, ..Epoch::default() };
        memory.drain(closed, terms.config.cells, |first, sums| epoch.add(first, sums));
        epoch
    }

    /// What the program left to the stack: packets in fragments or with options, runs of them in generic mode, and those that
    /// did not come by the interface. The program carries them out as it would have there.
    fn handle_datagrams(
        &mut self,
        from: SocketAddr,
        datagrams: &mut [u8],
        stride: usize,
        answers: &mut Outgoing,
    ) {
        let worker = match from {
            SocketAddr::V4(from) if self.workers.get(&key(&from), 0).is_ok() => from,
            _ => {
                self.unknown_senders += 1;
                return;
            }
        };
        for datagram in datagrams.chunks(stride.max(1)) {
            if let Some(bytes) = self.run(worker, datagram) {
                answers.push(from, self.answer.get(HEAD_BYTES..bytes).unwrap_or_default());
            }
        }
    }

    fn counters(&self) -> Counters {
        let mut counted = self.counted();
        counted.iter_mut().zip(self.before).for_each(|(count, before)| *count -= before);
        let [
            pushes,
            duplicates,
            retransmits,
            pulls,
            malformed,
            unexpected,
            foreign,
            bank_full,
            stale_plan,
            not_installed,
            unknown_flow,
            inactive,
            stale_view,
        ] = counted;
        let mut counters = Counters {
            packets: 0,
            pushes,
            duplicates,
            retransmits,
            pulls,
            installs: 0,
            drains: 0,
            bank_full,
            stale_plan,
            not_installed,
            unknown_flow,
            inactive,
            stale_view,
            malformed: malformed + self.malformed,
            unexpected,
            foreign,
        };
        counters.packets =
            pushes + duplicates + pulls + counters.refused() + counters.malformed + unexpected + foreign;
        counters
    }

    fn unknown_senders(&self) -> u64 {
        self.unknown_senders
    }

    fn memory_bytes(&self) -> u64 {
        self.regions.values().map(|open| open.memory.bytes()).sum()
    }

    fn failure(&self) -> Option<String> {
        self.failure.clone()
    }
}
