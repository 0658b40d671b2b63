//! The program and its maps: what the pipeline of `libra-dataplane` is in software.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use aya::maps::{Array, ArrayOfMaps, MapData, MapError, PerCpuArray, ProgramArray, RingBuf};
use aya::programs::{TestRun, TestRunOptions, Xdp};
use aya::{Ebpf, EbpfLoader};
use libra_dataplane::{
    BankPackets, Counters, DedupWindow, FLOAT_TABLES, Region, RegionConfig, Tags, WINDOW_WORDS, packet_bytes,
};
use libra_proto::{AckedSet, RoundContents, acked_set};

use crate::error::{Attached, Mode, XdpError};
use crate::frame::{self, FRAME_BYTES_MAX, HEAD_BYTES};
use crate::layout::{COUNTS, JOBS_MAX, REGION_WORDS, REGIONS_OF_JOB};
use crate::memory::RegionMemory;
use crate::program::{self, MEASURE, SWITCH};
use crate::terms::Terms;
use crate::workers::{self, Workers};

/// One byte more than a packet can have.
const DATAGRAM_BYTES_MAX: usize = packet_bytes(u8::MAX) + 1;
const NAME: &str = "libra_switch";
const MEASURE_NAME: &str = "libra_measure";
/// The part of a measurement that is not the switch.
const RESTORE_NAME: &str = "libra_restore";
/// Under the lock of the element: `BPF_F_LOCK`.
const LOCKED: u64 = 4;
/// Verdicts of a program on a frame.
const DROPPED: u32 = 1;
const PASSED: u32 = 2;
const SENT: u32 = 3;

/// Of a region: its job and its number.
pub type Name = (u16, u8);

/// The program, and the regions that it takes packets for.
pub struct XdpPipeline {
    loaded: Ebpf,
    name: &'static str,
    address: SocketAddrV4,
    terms: Array<MapData, [u32; REGION_WORDS]>,
    memory: ArrayOfMaps<MapData>,
    workers: Workers,
    counts: PerCpuArray<MapData, [u64; COUNTS.len()]>,
    /// The kernel empties it when no process has it open.
    _parts: ProgramArray<MapData>,
    wakes: RingBuf<MapData>,
    regions: BTreeMap<Name, Open>,
    /// By their places.
    jobs: Vec<u16>,
    /// Counters as of the last reset.
    before: [u64; COUNTS.len()],
    /// Datagrams that were handed over and that the program would not look at.
    malformed: u64,
    frame: Vec<u8>,
    answer: Vec<u8>,
    /// Bytes of it.
    answered: usize,
}

/// A region that is open.
struct Open {
    terms: Terms,
    memory: RegionMemory,
    flows: Vec<Flow>,
}

/// Packets of one flow in the closed rounds of a region.
struct Flow {
    words: [u32; WINDOW_WORDS],
    acked: AckedSet,
    /// True if the newest of them has taken a packet.
    is_changed: bool,
}

impl Flow {
    fn new(words: [u32; WINDOW_WORDS]) -> Self {
        Self { words, acked: acked_set(DedupWindow::new(&words)), is_changed: false }
    }
}

/// Merges the words of two banks into those of one shared memory: each word is the newest of its bank, so the newest of both.
fn merge(words: &mut [u32; WINDOW_WORDS], others: &[u32; WINDOW_WORDS]) {
    for (word, other) in words.iter_mut().zip(others) {
        *word = (*word).max(*other);
    }
}

/// Verdict of the program on a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// It goes to the stack.
    Pass,
    /// It is gone.
    Drop,
    /// This frame goes back.
    Send(&'a [u8]),
}

impl XdpPipeline {
    /// Loads the program for datagrams to `address`. It is on no interface yet, and sees only what it is handed.
    pub fn load(address: SocketAddr) -> Result<Self, XdpError> {
        Self::load_object(address, SWITCH, NAME)
    }

    /// Loads the program so that it can be run again and again on one push; see [`measure`](Self::measure).
    pub fn load_to_measure(address: SocketAddr) -> Result<Self, XdpError> {
        Self::load_object(address, MEASURE, MEASURE_NAME)
    }

    fn load_object(address: SocketAddr, object: &[u8], name: &'static str) -> Result<Self, XdpError> {
        let SocketAddr::V4(address) = address else { return Err(XdpError::Address { address }) };
        if address.ip().is_unspecified() {
            return Err(XdpError::Address { address: address.into() });
        }
        let mut loader = EbpfLoader::new();
        let (ip, port) = (address.ip().octets(), address.port().to_be_bytes());
        loader.override_global("switch_address", &ip, true);
        loader.override_global("switch_port", &port, true);
        let tables: Vec<u16> =
            FLOAT_TABLES.tables().into_iter().flat_map(|(_, table)| table).copied().collect();
        loader.override_global("float_tables", tables.as_slice(), true);
        let mut loaded = program::load(&mut loader, object)?;
        let parts = program::connect(&mut loaded)?;
        let workers = Workers::of(&mut loaded)?;
        let mut take = |name| loaded.take_map(name).expect("the object has this map");
        Ok(Self {
            address,
            terms: take("regions").try_into()?,
            memory: take("memory").try_into()?,
            workers,
            counts: take("counters").try_into()?,
            _parts: parts,
            wakes: take("wakes").try_into()?,
            loaded,
            name,
            regions: BTreeMap::new(),
            jobs: Vec::new(),
            before: [0; COUNTS.len()],
            malformed: 0,
            frame: Vec::with_capacity(FRAME_BYTES_MAX),
            answer: Vec::new(),
            answered: 0,
        })
    }

    /// Puts the program onto an interface of this network namespace, until this is dropped. Sockets do not see what workers
    /// send to the switch from then on.
    pub fn attach(&mut self, interface: &str, mode: Mode) -> Result<Attached, XdpError> {
        program::attach(&mut self.loaded, self.name, interface, mode)
    }

    /// Becomes readable when a round has begun or is due.
    pub fn wakes(&self) -> io::Result<OwnedFd> {
        self.wakes.as_fd().try_clone_to_owned()
    }

    /// Takes note of all wake-ups so far: there is another one only for what happens after that.
    pub fn clear_wakeups(&mut self) {
        while self.wakes.next().is_some() {}
    }

    /// Says that datagrams from an address are those of a worker, and what tags they have. The key of entries is one for all workers
    /// of a job.
    pub fn set_worker(
        &mut self,
        address: SocketAddrV4,
        job: u16,
        worker: u16,
        tags: Option<Tags<'_>>,
    ) -> Result<(), XdpError> {
        let place = self.place(job)?;
        self.workers.set(address, workers::Name { job, worker, place }, tags)
    }

    /// Forgets all workers but those at these addresses.
    pub fn retain_workers(&mut self, addresses: &[SocketAddrV4]) -> Result<(), XdpError> {
        self.workers.retain(addresses)
    }

    /// Opens a region that goes on where `like`, which has taken no packet yet, begins: in its round, with what it has seen.
    /// There is a wake-up when it has taken its first packet of a round, and when it has taken what is `due`.
    pub fn open(&mut self, like: &Region<Vec<u32>>, due: BankPackets) -> Result<(), XdpError> {
        let config = *like.config();
        check(&config)?;
        let index = self.index((config.job, config.region))?;
        let memory = RegionMemory::new(config.flows)?;
        let terms = Terms::new(like, due);
        let idle = 1 - terms.active_bank();
        let mut flows = Vec::new();
        for flow in 0..config.flows {
            let words = *like.window(flow).expect("the region has this flow").words();
            memory.restore(flow, idle, &words);
            flows.push(Flow::new(words));
        }
        // When this returns no packet has the memory any more that was there before.
        self.memory.set(index, &memory.map, 0)?;
        self.regions.insert((config.job, config.region), Open { terms, memory, flows });
        self.write((config.job, config.region))
    }

    /// Closes a region, with all it holds.
    pub fn close(&mut self, name: Name) -> Result<(), XdpError> {
        self.change(name, |terms| terms.is_open = false)?;
        self.regions.remove(&name);
        Ok(())
    }

    /// The regions that are open.
    pub fn names(&self) -> impl Iterator<Item = Name> {
        self.regions.keys().copied()
    }

    /// Returns the configuration of a region.
    pub fn config(&self, name: Name) -> Result<&RegionConfig, XdpError> {
        Ok(&self.region(name)?.terms.config)
    }

    /// Says whether a region takes pushes.
    pub fn set_active(&mut self, name: Name, active: bool) -> Result<(), XdpError> {
        self.change(name, |terms| terms.is_active = active)
    }

    /// Says whether the values of a region may be read.
    pub fn set_readable(&mut self, name: Name, readable: bool) -> Result<(), XdpError> {
        self.change(name, |terms| terms.is_readable = readable)
    }

    /// Says which round of a region is committed and installed.
    pub fn set_durable(&mut self, name: Name, round: u16) -> Result<(), XdpError> {
        self.change(name, |terms| terms.durable = round)
    }

    /// Both: everything up to this round is installed.
    pub fn settle(&mut self, name: Name, durable: u16) -> Result<(), XdpError> {
        self.change(name, |terms| (terms.durable, terms.is_readable) = (durable, true))
    }

    /// Returns the packets that the active bank has taken.
    pub fn taken(&self, name: Name) -> Result<BankPackets, XdpError> {
        let Open { terms, memory, .. } = self.region(name)?;
        Ok(memory.taken(terms.active_bank()))
    }

    /// Swaps the banks, and returns the round that this closed; `None` if the idle bank is not drained.
    pub fn flip(&mut self, name: Name) -> Result<Option<u16>, XdpError> {
        let Open { terms, memory, .. } = self.region(name)?;
        let (round, closed, flows) = (terms.round, terms.active_bank(), terms.config.flows);
        if !memory.is_clean(1 - closed) {
            return Ok(None);
        }
        // No packet is in the idle bank before the flip.
        memory.begin_round(1 - closed, flows);
        self.change(name, |terms| terms.round = round.wrapping_add(1))?;

        // That took the lock, so the closed bank has all its packets, whole, and stands still. Its words of a flow, and the
        // rounds before, are the contents (rule E2).
        let Open { memory, flows, .. } = self.region_mut(name)?;
        for (number, flow) in (0..).zip(flows.iter_mut()) {
            flow.is_changed = memory.pushes_of(number, closed) > 0;
            if flow.is_changed {
                merge(&mut flow.words, &memory.window(number, closed));
                flow.acked = acked_set(DedupWindow::new(&flow.words));
            }
        }
        Ok(Some(round))
    }

    /// Returns all that was taken up to the newest closed round, of the flows that have a packet in it.
    pub fn contents(&self, name: Name) -> Result<RoundContents, XdpError> {
        let flows = (0u16..).zip(&self.region(name)?.flows).filter(|(_, flow)| flow.is_changed);
        Ok(RoundContents { flows: flows.map(|(number, flow)| (number, flow.acked.clone())).collect() })
    }

    /// Returns the window of a flow as of now, the open round included; `None` if there is no such flow.
    pub fn window(&self, name: Name, flow: u16) -> Result<Option<[u32; WINDOW_WORDS]>, XdpError> {
        let Open { terms, memory, flows } = self.region(name)?;
        Ok(flows.get(usize::from(flow)).map(|closed| {
            let mut words = closed.words;
            merge(&mut words, &memory.window(flow, terms.active_bank()));
            words
        }))
    }

    /// Clears the idle bank, and hands over its dirty blocks: the first slot of each, and its sums.
    pub fn drain(&mut self, name: Name, take: impl FnMut(u32, &[u32])) -> Result<(), XdpError> {
        let Open { terms, memory, .. } = self.region(name)?;
        memory.drain(1 - terms.active_bank(), terms.config.cells, take);
        Ok(())
    }

    /// Writes values.
    pub fn install(&mut self, name: Name, values: impl Iterator<Item = (u16, u32)>) -> Result<(), XdpError> {
        self.region(name)?.memory.install(values);
        Ok(())
    }

    /// The values of all slots.
    pub fn values(&self, name: Name) -> Result<Vec<u32>, XdpError> {
        let Open { terms, memory, .. } = self.region(name)?;
        Ok(memory.values(terms.config.cells))
    }

    /// Bytes of memory that the regions take.
    pub fn memory_bytes(&self) -> u64 {
        self.regions.values().map(|open| open.memory.bytes()).sum()
    }

    /// Starts counting at zero again.
    pub fn reset_counters(&mut self) -> Result<(), XdpError> {
        self.before = self.counted()?;
        self.malformed = 0;
        Ok(())
    }

    fn counted(&self) -> Result<[u64; COUNTS.len()], XdpError> {
        let mut sums = [0; COUNTS.len()];
        for counts in self.counts.get(&0, 0)?.iter() {
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        Ok(sums)
    }

    /// Returns the counters of all packets, and how many datagrams came from addresses of no worker.
    pub fn counters(&self) -> Result<(Counters, u64), XdpError> {
        let mut sums = self.counted()?;
        sums.iter_mut().zip(self.before).for_each(|(sum, before)| *sum -= before);
        let [
            unknown_senders,
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
            forged,
            stale,
        ] = sums;
        let counters = Counters {
            packets: sums.iter().sum::<u64>() - unknown_senders - retransmits + self.malformed,
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
            throttled: 0,
            malformed: malformed + self.malformed,
            unexpected,
            foreign,
            forged,
            stale,
        };
        Ok((counters, unknown_senders))
    }

    /// Hands the program a datagram as if it had come by an interface, and returns the answer if there is one.
    pub fn receive(&mut self, from: SocketAddrV4, datagram: &[u8]) -> Result<Option<&[u8]>, XdpError> {
        let mut frame = core::mem::take(&mut self.frame);
        // Of one that is too long for any frame its head is enough.
        let head = datagram.get(..DATAGRAM_BYTES_MAX).unwrap_or(datagram);
        frame::write(&mut frame, from, self.address, head);
        self.frame = frame;
        match self.run()? {
            // It is longer than its entries. From an interface it could have been a run of packets, but not as a datagram.
            Verdict::Pass => self.malformed += 1,
            Verdict::Drop => {}
            Verdict::Send(_) => return Ok(self.answer.get(HEAD_BYTES..self.answered)),
        }
        Ok(None)
    }

    /// Hands the program a frame, from Ethernet on.
    pub fn receive_frame(&mut self, frame: &[u8]) -> Result<Verdict<'_>, XdpError> {
        self.frame.clear();
        self.frame.extend_from_slice(frame);
        self.run()
    }

    fn run(&mut self) -> Result<Verdict<'_>, XdpError> {
        let mut answer = core::mem::take(&mut self.answer);
        answer.resize(self.frame.len().max(FRAME_BYTES_MAX), 0);
        let mut options = TestRunOptions::new();
        options.data_in = Some(&self.frame);
        options.data_out = Some(&mut answer);
        let ran = self.program(self.name).test_run(options);
        self.answer = answer;
        let ran = ran?;
        self.answered = ran.data_size_out as usize;
        match ran.return_value {
            SENT => Ok(Verdict::Send(self.answer.get(..self.answered).unwrap_or_default())),
            PASSED => Ok(Verdict::Pass),
            DROPPED => Ok(Verdict::Drop),
            other => Err(XdpError::Kernel {
                attempted: "running the program",
                reason: format!("it returned {other}"),
            }),
        }
    }

    /// Lets the program carry out one push and those that follow it, each with the next number and the same entries, and says
    /// how long one took. For a program that was loaded to be measured, with a worker at the address of the switch, and a region of
    /// view 1.
    pub fn measure(&mut self, push: &[u8], repeat: u32) -> Result<Duration, XdpError> {
        frame::write(&mut self.frame, self.address, self.address, push);
        let mut options = TestRunOptions::new();
        options.data_in = Some(&self.frame);
        options.repeat = repeat;
        let whole = self.program(self.name).test_run(options)?.duration;
        let mut options = TestRunOptions::new();
        options.data_in = Some(&self.frame);
        options.repeat = repeat;
        let restoring = self.program(RESTORE_NAME).test_run(options)?.duration;
        Ok(whole.saturating_sub(restoring))
    }

    fn program(&self, name: &str) -> &Xdp {
        let program = self.loaded.program(name).expect("the object has this program");
        program.try_into().expect("it is one for XDP")
    }

    fn region(&self, name: Name) -> Result<&Open, XdpError> {
        self.regions.get(&name).ok_or(XdpError::NoRegion { job: name.0, region: name.1 })
    }

    fn region_mut(&mut self, name: Name) -> Result<&mut Open, XdpError> {
        self.regions.get_mut(&name).ok_or(XdpError::NoRegion { job: name.0, region: name.1 })
    }

    fn change(&mut self, name: Name, change: impl FnOnce(&mut Terms)) -> Result<(), XdpError> {
        change(&mut self.region_mut(name)?.terms);
        self.write(name)
    }

    fn write(&mut self, name: Name) -> Result<(), XdpError> {
        let index = self.index(name)?;
        let words = self.region(name)?.terms.words();
        Ok(self.terms.set(index, words, LOCKED)?)
    }

    /// Returns the index of a region in the maps.
    fn index(&mut self, (job, region): Name) -> Result<u32, XdpError> {
        Ok(u32::from(self.place(job)?) * REGIONS_OF_JOB + u32::from(region))
    }

    fn place(&mut self, job: u16) -> Result<u16, XdpError> {
        let place = self.jobs.iter().position(|other| *other == job).unwrap_or_else(|| {
            self.jobs.push(job);
            self.jobs.len() - 1
        });
        u16::try_from(place).ok().filter(|place| *place < JOBS_MAX).ok_or(XdpError::Jobs)
    }
}

impl From<MapError> for XdpError {
    fn from(error: MapError) -> Self {
        program::cause("using a map", &error)
    }
}

/// Checks that the program supports regions of this shape.
pub(crate) fn check(config: &RegionConfig) -> Result<(), XdpError> {
    if config.lanes == 1 { Ok(()) } else { Err(XdpError::Lanes { lanes: config.lanes }) }
}

#[cfg(test)]
mod tests;
