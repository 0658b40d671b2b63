//! The interface of an agent to the data plane beside it: a pipeline in this process, or one in the kernel.

use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use libra_dataplane::{BankPackets, Counters, Pipeline, RegionConfig, Sender};

use crate::authentication::{PathTags, TagKind};
use crate::message::{AckedSet, RoundContents, SlotValues};
use crate::region::{self, Round, SoftRegion, acked_set};
use crate::role::Outgoing;
use crate::switch::places::Places;

/// The regions of a switch, and the packet processing for them. The agent decides on the contents of each region; the end of a round is
/// its business, too.
///
/// Regions are named by their number; the agent names none that is not open but to [`open`](Self::open) and
/// [`forget`](Self::forget) it.
pub trait Plane {
    /// Forgets everything, and takes packets of this job from now on.
    fn begin(&mut self, job: u16);

    /// Sets the workers: packets from other addresses are not taken (rule W4), nor those without the right tag (rule A3).
    fn set_workers(&mut self, workers: &BTreeMap<u16, WorkerPath>);

    /// The best tags that it can check and make.
    fn tags(&self) -> TagKind {
        TagKind::Mac
    }

    /// Checks that it can hold a region like this. The agent asks for all regions of the job before it reports that it is there.
    ///
    /// # Errors
    /// The reason, and the remedy.
    fn check(&self, _config: &RegionConfig) -> Result<(), String> {
        Ok(())
    }

    /// Opens a region after the round `durable`, with everything in `contents` seen before (rule D6). The agent looks at it when it
    /// has taken its first packet after a flip, and when it has taken what is `due`.
    fn open(&mut self, config: RegionConfig, durable: u16, contents: &RoundContents, due: BankPackets);

    /// Lets a region go; nothing if it is not open.
    fn forget(&mut self, region: u8);

    /// Sets if a region takes pushes (rule D7).
    fn set_active(&mut self, region: u8, active: bool);

    /// Everything up to the round `durable` is installed: the answers of the region carry it, and the region may be read (rule E7).
    fn settle(&mut self, region: u8, durable: u16);

    /// Writes values for workers to read.
    fn install(&mut self, region: u8, values: &SlotValues);

    /// The agent is about to look at what regions have taken: wake-ups for that are done with.
    fn clear_wakeups(&mut self) {}

    /// Returns the number of packets that the active bank of a region has taken.
    fn taken(&self, region: u8) -> BankPackets;

    /// Closes the round that takes packets now, and takes out what it holds (rule E2): of a row that has a sum those of all its
    /// slots, as a shard applies whole rows. `None`: that takes its time, and
    /// [`drained`](Self::drained) will return it.
    fn close_round(&mut self, region: u8) -> Option<Round>;

    /// A round of a region that is open, which has been drained since it was closed.
    fn drained(&mut self) -> Option<(u8, Round)> {
        None
    }

    /// Returns true if it takes seconds for what others do at once.
    fn is_slow(&self) -> bool {
        false
    }

    /// Returns its progress with requests: a plane in this process does everything at once.
    fn progress(&self) -> Progress {
        Progress::default()
    }

    /// Carries out datagrams that came over the socket of the switch, and adds the answers.
    fn handle_datagrams(
        &mut self,
        from: SocketAddr,
        datagrams: &mut [u8],
        stride: usize,
        answers: &mut Outgoing,
    );

    /// Returns the counters of all packets since it began.
    fn counters(&self) -> Counters;

    /// Datagrams from addresses of no worker.
    fn unknown_senders(&self) -> u64;

    /// Bytes of memory that its regions take.
    fn memory_bytes(&self) -> u64;

    /// Returns the reason why it cannot go on, if it cannot.
    fn failure(&self) -> Option<String> {
        None
    }
}

/// A worker as a data plane needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerPath {
    /// The address from which it sends.
    pub address: SocketAddr,
    /// The tags of its packets and of their answers, in a job with keys.
    pub tags: Option<PathTags>,
}

impl From<SocketAddr> for WorkerPath {
    /// A worker of a job without keys.
    fn from(address: SocketAddr) -> Self {
        Self { address, tags: None }
    }
}

/// Number of requests of an agent to its plane, and the number of those, in their order, that are done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Number of requests so far.
    pub asked: u64,
    /// Number of those that are done, with effect on a packet that comes now.
    pub done: u64,
}

/// The pipeline of `libra-dataplane` in the memory of this process. All its packets come over the socket.
#[derive(Debug, Clone)]
pub struct SoftPlane {
    job: u16,
    pipeline: Pipeline<Vec<SoftRegion>, Vec<u32>>,
    /// Addresses from which workers send, their places, and their tags.
    senders: HashMap<SocketAddr, (Sender, Option<PathTags>), FixedState>,
    /// The window of each worker in each region.
    places: Places,
    /// Those that have one and are there no more.
    leaving: BTreeSet<u16>,
    /// Packets of workers that have no place, by region, in rounds that are closed: if they come back, their windows are made from these.
    resting: BTreeMap<u8, RoundContents>,
    /// Counters of regions that it has no more.
    gone: Counters,
    unknown_senders: u64,
}

impl Default for SoftPlane {
    fn default() -> Self {
        Self {
            job: 0,
            pipeline: Pipeline::new(Vec::new()).expect("there is no region yet"),
            senders: HashMap::default(),
            places: Places::default(),
            leaving: BTreeSet::new(),
            resting: BTreeMap::new(),
            gone: Counters::default(),
            unknown_senders: 0,
        }
    }
}

impl SoftPlane {
    fn region(&self, region: u8) -> &SoftRegion {
        self.pipeline.region(self.job, region).expect("the agent names regions that are open")
    }

    fn region_mut(&mut self, region: u8) -> &mut SoftRegion {
        self.pipeline.region_mut(self.job, region).expect("the agent names regions that are open")
    }

    /// Gives a worker a window in each region, which contains the packets that the region has taken of it before.
    fn give_place(&mut self, worker: u16) {
        let place = self.places.give(worker);
        let windows = self.places.windows();
        for region in self.pipeline.regions_mut() {
            if windows > region.config().flows {
                let words = RegionConfig { flows: windows, ..*region.config() }.memory_words();
                let grown = region.set_flows(windows, vec![0; words.windows], vec![0; words.changed]);
                grown.expect("the arrays were made for as many flows");
            }
            let resting = self.resting.get_mut(&region.config().region);
            if let Some(seen) = resting.and_then(|contents| contents.flows.remove(&worker)) {
                region::restore_flow(region, place, &seen);
            }
        }
    }

    /// Takes the windows of workers that are there no more: a window becomes its contents, which are a few bytes (rule D8). Not while a round is
    /// open that has packets of the worker, for that must name them in its contents, and acknowledge them as its own (rules E2, D2).
    fn free_places(&mut self) {
        let (places, resting) = (&mut self.places, &mut self.resting);
        let regions = &mut self.pipeline;
        self.leaving.retain(|&worker| {
            let Some(place) = places.of(worker) else { return false };
            if regions.regions().iter().any(|region| region.is_changed(place)) {
                return true;
            }
            for region in regions.regions_mut() {
                let seen = acked_set(region.window(place).expect("each place has a window"));
                if seen != AckedSet::default() {
                    resting.entry(region.config().region).or_default().flows.insert(worker, seen);
                }
                region.forget_flow(place);
            }
            places.free(worker);
            false
        });
    }
}

impl Plane for SoftPlane {
    fn begin(&mut self, job: u16) {
        *self = Self { job, ..Self::default() };
    }

    fn set_workers(&mut self, workers: &BTreeMap<u16, WorkerPath>) {
        self.leaving = self.places.workers().filter(|worker| !workers.contains_key(worker)).collect();
        self.free_places();
        for &worker in workers.keys() {
            if self.places.of(worker).is_none() {
                self.give_place(worker);
            }
        }
        let sender = |(&worker, path): (&u16, &WorkerPath)| {
            let flow = self.places.of(worker).expect("it was given one");
            (path.address, (Sender { job: self.job, worker, flow }, path.tags.clone()))
        };
        self.senders = workers.iter().map(sender).collect();
    }

    fn open(&mut self, config: RegionConfig, durable: u16, contents: &RoundContents, _due: BankPackets) {
        let (mut placed, mut resting) = (RoundContents::default(), RoundContents::default());
        for (&worker, seen) in &contents.flows {
            match self.places.of(worker) {
                Some(place) => placed.flows.insert(place, seen.clone()),
                None => resting.flows.insert(worker, seen.clone()),
            };
        }
        self.resting.insert(config.region, resting);
        let config = RegionConfig { flows: self.places.windows(), ..config };
        let opened = region::open(config, durable, &placed);
        let changed = self.pipeline.change(|regions| regions.push(opened));
        changed.expect("the agent opens a region once");
    }

    fn forget(&mut self, region: u8) {
        if let Some(gone) = self.pipeline.region(self.job, region) {
            self.gone = self.gone.plus(gone.counters());
        }
        let changed = self.pipeline.change(|regions| regions.retain(|open| open.config().region != region));
        changed.expect("one region fewer is no region twice");
        self.resting.remove(&region);
        self.free_places();
    }

    fn set_active(&mut self, region: u8, active: bool) {
        self.region_mut(region).set_active(active);
    }

    fn settle(&mut self, region: u8, durable: u16) {
        let region = self.region_mut(region);
        region.set_readable(true);
        region.set_durable(durable);
    }

    fn install(&mut self, region: u8, values: &SlotValues) {
        let region = self.region_mut(region);
        for (first_slot, values) in values.by_run() {
            let written = region.install(first_slot.into(), values);
            debug_assert!(
                written,
                "the shard has the same layout: {} slots from {first_slot} on",
                values.len()
            );
        }
    }

    fn taken(&self, region: u8) -> BankPackets {
        self.region(region).active_packets()
    }

    fn close_round(&mut self, region: u8) -> Option<Round> {
        let mut round = region::close_round(self.region_mut(region));
        let of_places = core::mem::take(&mut round.contents.flows);
        let worker = |place| self.places.worker(place).expect("a place with packets has a worker");
        round.contents.flows = of_places.into_iter().map(|(place, seen)| (worker(place), seen)).collect();
        self.free_places();
        Some(round)
    }

    fn handle_datagrams(
        &mut self,
        from: SocketAddr,
        datagrams: &mut [u8],
        stride: usize,
        answers: &mut Outgoing,
    ) {
        // The address alone identifies the worker (rule W4).
        let Some((sender, tags)) = self.senders.get(&from) else {
            self.unknown_senders += 1;
            return;
        };
        let tags = tags.as_ref().map(PathTags::tags);
        self.pipeline.process_tagged_burst(*sender, tags, datagrams.chunks_mut(stride.max(1)), |answer| {
            answers.push(from, answer);
        });
    }

    fn counters(&self) -> Counters {
        self.pipeline.counters().plus(&self.gone)
    }

    fn unknown_senders(&self) -> u64 {
        self.unknown_senders
    }

    fn memory_bytes(&self) -> u64 {
        let bytes = |region: &SoftRegion| {
            let words = region.config().memory_words();
            4 * (words.values + 2 * (words.sums + words.dirty) + words.windows + words.changed) as u64
        };
        self.pipeline.regions().iter().map(bytes).sum()
    }
}

#[cfg(test)]
mod tests;
