//! The data plane in the kernel, as an agent sees it.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use libra_dataplane::{BankPackets, Counters, RegionConfig};
use libra_proto::{
    Outgoing, PathTags, Plane, Round, RoundContents, SlotValues, TagKind, WorkerPath, open_region,
};

use crate::error::{Attached, Mode, XdpError};
use crate::pipeline::{self, Name, XdpPipeline};

/// The regions of one job in the kernel.
pub struct XdpPlane {
    pipeline: XdpPipeline,
    job: u16,
    active: BTreeMap<u8, bool>,
    /// Those that do not send from IPv4, which the program does not look at.
    unknown_senders: u64,
    /// The first thing that went wrong: from then on nothing is taken for granted, and the switch gives up.
    failure: Option<String>,
}

impl XdpPlane {
    /// Puts the program for datagrams at `address` onto an interface of this network namespace.
    pub fn attach(interface: &str, mode: Mode, address: SocketAddr) -> Result<(Self, Attached), XdpError> {
        let mut pipeline = XdpPipeline::load(address)?;
        let attached = pipeline.attach(interface, mode)?;
        Ok((Self::new(pipeline), attached))
    }

    /// A plane without an interface, which sees only what it is handed.
    pub fn new(pipeline: XdpPipeline) -> Self {
        Self { pipeline, job: 0, active: BTreeMap::new(), unknown_senders: 0, failure: None }
    }

    /// Becomes readable when there is something for the agent to look at.
    pub fn wakes(&self) -> io::Result<OwnedFd> {
        self.pipeline.wakes()
    }

    fn name(&self, region: u8) -> Name {
        (self.job, region)
    }

    fn note<T: Default>(&mut self, result: Result<T, XdpError>) -> T {
        result.unwrap_or_else(|error| {
            self.failure.get_or_insert_with(|| error.to_string());
            T::default()
        })
    }

    fn try_close_round(&mut self, name: Name) -> Result<Round, XdpError> {
        self.pipeline.flip(name)?.expect("the idle bank was cleared when it was drained");
        let mut round = Round { contents: self.pipeline.contents(name)?, ..Round::default() };
        self.pipeline.drain(name, |first, sums| round.add(first, sums))?;
        Ok(round)
    }

    fn try_set_workers(&mut self, workers: &BTreeMap<u16, WorkerPath>) -> Result<(), XdpError> {
        let mut addresses = Vec::new();
        for path in workers.values() {
            match path.address {
                SocketAddr::V4(address) => addresses.push(address),
                SocketAddr::V6(_) => return Err(XdpError::Address { address: path.address }),
            }
        }
        self.pipeline.retain_workers(&addresses)?;
        for ((&worker, path), &address) in workers.iter().zip(&addresses) {
            self.pipeline.set_worker(address, self.job, worker, path.tags.as_ref().map(PathTags::tags))?;
        }
        Ok(())
    }
}

impl Plane for XdpPlane {
    fn begin(&mut self, job: u16) {
        for region in core::mem::take(&mut self.active).into_keys() {
            let closed = self.pipeline.close(self.name(region));
            self.note(closed);
        }
        self.job = job;
        self.set_workers(&BTreeMap::new());
        let reset = self.pipeline.reset_counters();
        self.note(reset);
        self.unknown_senders = 0;
    }

    fn set_workers(&mut self, workers: &BTreeMap<u16, WorkerPath>) {
        let set = self.try_set_workers(workers);
        self.note(set);
    }

    fn tags(&self) -> TagKind {
        TagKind::Mac
    }

    fn check(&self, config: &RegionConfig) -> Result<(), String> {
        pipeline::check(config).map_err(|error| error.to_string())
    }

    fn open(&mut self, config: RegionConfig, durable: u16, contents: &RoundContents, due: BankPackets) {
        self.active.insert(config.region, true);
        let opened = self.pipeline.open(&open_region(config, durable, contents), due);
        self.note(opened);
    }

    fn forget(&mut self, region: u8) {
        if self.active.remove(&region).is_some() {
            let closed = self.pipeline.close(self.name(region));
            self.note(closed);
        }
    }

    fn set_active(&mut self, region: u8, active: bool) {
        // It is set after each round, by a call of the kernel.
        if self.active.insert(region, active) != Some(active) {
            let set = self.pipeline.set_active(self.name(region), active);
            self.note(set);
        }
    }

    fn settle(&mut self, region: u8, durable: u16) {
        let settled = self.pipeline.settle(self.name(region), durable);
        self.note(settled);
    }

    fn install(&mut self, region: u8, values: &SlotValues) {
        let installed = self.pipeline.install(self.name(region), values.by_slot());
        self.note(installed);
    }

    fn clear_wakeups(&mut self) {
        self.pipeline.clear_wakeups();
    }

    fn taken(&self, region: u8) -> BankPackets {
        self.pipeline.taken(self.name(region)).unwrap_or_default()
    }

    fn close_round(&mut self, region: u8) -> Option<Round> {
        let closed = self.try_close_round(self.name(region));
        Some(self.note(closed))
    }

    /// Handles the packets that the program left to the stack: packets in fragments or with options, runs of them in generic mode, and those that
    /// did not come by the interface. The program carries them out as it would have there.
    fn handle_datagrams(
        &mut self,
        from: SocketAddr,
        datagrams: &mut [u8],
        stride: usize,
        answers: &mut Outgoing,
    ) {
        let SocketAddr::V4(sender) = from else {
            self.unknown_senders += 1;
            return;
        };
        for datagram in datagrams.chunks(stride.max(1)) {
            match self.pipeline.receive(sender, datagram) {
                Ok(Some(answer)) => answers.push(from, answer),
                Ok(None) => {}
                Err(error) => {
                    self.failure.get_or_insert_with(|| error.to_string());
                }
            }
        }
    }

    fn counters(&self) -> Counters {
        self.pipeline.counters().map_or_else(|_| Counters::default(), |(counters, _)| counters)
    }

    fn unknown_senders(&self) -> u64 {
        self.pipeline.counters().map_or(0, |(_, unknown)| unknown) + self.unknown_senders
    }

    fn memory_bytes(&self) -> u64 {
        self.pipeline.memory_bytes()
    }

    fn failure(&self) -> Option<String> {
        self.failure.clone()
    }
}
