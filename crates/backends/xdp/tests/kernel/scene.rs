//! Two data planes side by side, and packets for them.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use libra_dataplane::{
    Arithmetic, BankPackets, BodyKey, Counters, Direction, Entry, Header, Kind, PacketWriter, PathKeys,
    RegionConfig, TagKey, packet_bytes,
};
use libra_proto::{
    Outgoing, PathTags, Plane, Round, RoundContents, SlotValues, SoftPlane, TagKind, WorkerPath,
};
use libra_xdp::{XdpError, XdpPipeline, XdpPlane};

pub(crate) const JOB: u16 = 5;
pub(crate) const PLAN: u16 = 3;
pub(crate) const VIEW: u16 = 9;

/// Loads the program. `None` if this machine does not run programs, and the environment does not require that it must.
pub(crate) fn load(here: SocketAddr) -> Option<XdpPipeline> {
    match XdpPipeline::load(here) {
        Ok(pipeline) => Some(pipeline),
        // A program that the verifier refuses is our fault, everything else the machine's.
        Err(error)
            if !matches!(error, XdpError::Rejected { .. })
                && std::env::var_os("LIBRA_XDP_REQUIRED").is_none() =>
        {
            eprintln!("SKIPPED: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The software and the kernel. Whatever is done is done to both, and must give the same.
pub(crate) struct Both {
    pub(crate) soft: SoftPlane,
    pub(crate) xdp: XdpPlane,
    workers: BTreeMap<u16, WorkerPath>,
}

/// Returns the address that a worker sends from.
pub(crate) fn address(worker: u16) -> SocketAddr {
    (Ipv4Addr::new(10, 0, 0, 2), 7000 + worker).into()
}

/// The tags of a worker: another key for each and for each direction, and one for the entries of all.
fn tags(kind: TagKind, worker: u16) -> Option<PathTags> {
    let byte = |number: usize| u8::try_from(number % 256).unwrap();
    let key = |salt: usize| {
        TagKey::from_bytes(core::array::from_fn(|at| byte(salt + 4 * usize::from(worker) + 37 * at)))
    };
    match kind {
        TagKind::Off => None,
        TagKind::Cookie => Some(PathTags::Cookie(u64::MAX / 3 - u64::from(worker))),
        TagKind::Mac => {
            let body = BodyKey::from_bytes(&core::array::from_fn(|at| byte(at * 167 + at / 256 * 13)));
            Some(PathTags::Mac { body: Arc::new(body), keys: PathKeys { up: key(1), down: key(2) } })
        }
    }
}

impl Both {
    /// None if the kernel does not run programs here.
    pub(crate) fn load(workers: u16) -> Option<Self> {
        Self::load_with_tags(workers, TagKind::Off)
    }

    /// The same with a job whose packets have tags.
    pub(crate) fn load_with_tags(workers: u16, kind: TagKind) -> Option<Self> {
        let here = (Ipv4Addr::new(10, 0, 0, 1), 7700).into();
        let (soft, xdp) = (SoftPlane::default(), XdpPlane::new(load(here)?));
        let mut both = Self { soft, xdp, workers: BTreeMap::new() };
        both.each(|plane| plane.begin(JOB));
        both.set_workers(workers, kind);
        Some(both)
    }

    pub(crate) fn set_workers(&mut self, workers: u16, kind: TagKind) {
        let path = |worker| (worker, WorkerPath { address: address(worker), tags: tags(kind, worker) });
        let workers = (0..workers).map(path).collect();
        self.each(|plane| plane.set_workers(&workers));
        self.workers = workers;
    }

    /// Gives a packet the tag of a worker for a region that is held since this view; none in a job without keys.
    pub(crate) fn sign(&self, worker: u16, direction: Direction, packet: &mut [u8], view: u64) {
        if let Some(tags) = &self.workers[&worker].tags {
            tags.tags().sign(direction, packet, view);
        }
    }

    pub(crate) fn each(&mut self, act: impl Fn(&mut dyn Plane)) {
        act(&mut self.soft);
        act(&mut self.xdp);
    }

    pub(crate) fn open(&mut self, config: RegionConfig, durable: u16, contents: &RoundContents) {
        let due = BankPackets { pushes: 10, last: 3 };
        self.each(|plane| plane.open(config, durable, contents, due));
    }

    /// The answer to a datagram.
    pub(crate) fn send(&mut self, from: SocketAddr, datagram: &[u8]) -> Option<Vec<u8>> {
        let answer = |plane: &mut dyn Plane| {
            let mut answers = Outgoing::default();
            plane.handle_datagrams(from, &mut datagram.to_vec(), datagram.len(), &mut answers);
            assert!(answers.iter().all(|(to, _)| to == from));
            assert!(answers.len() < 2);
            answers.iter().next().map(|(_, answer)| answer.to_vec())
        };
        let expected = answer(&mut self.soft);
        assert_eq!(answer(&mut self.xdp), expected, "answer to {datagram:?}");
        expected
    }

    pub(crate) fn close_round(&mut self, region: u8) -> Round {
        let expected = self.soft.close_round(region);
        assert_eq!(self.xdp.close_round(region), expected);
        expected.expect("both drain at once")
    }

    /// Pushes that the kernel has added.
    pub(crate) fn xdp_pushes(&self) -> u64 {
        self.xdp.counters().pushes
    }

    /// Compares the counters of both, and what their open regions have taken.
    pub(crate) fn compare(&self, regions: &[u8]) {
        assert_eq!(self.xdp.failure(), None);
        // The agent writes values by itself: there are no packets of it.
        let soft = self.soft.counters();
        let soft = Counters { packets: soft.packets - soft.installs, installs: 0, ..soft };
        assert_eq!(self.xdp.counters(), soft);
        assert_eq!(self.xdp.unknown_senders(), self.soft.unknown_senders());
        for &region in regions {
            assert_eq!(self.xdp.taken(region), self.soft.taken(region));
        }
    }
}

pub(crate) fn config(region: u8, arithmetic: Arithmetic) -> RegionConfig {
    RegionConfig {
        job: JOB,
        region,
        plan: PLAN,
        view: (4 << 16) + u64::from(VIEW),
        lanes: 1,
        cells: 400,
        flows: 40,
        bank_packets_max: 50,
        arithmetic,
    }
}

pub(crate) fn header(kind: Kind, worker: u16, seq: u32) -> Header {
    Header { job: JOB, worker, plan: PLAN, view: VIEW, seq, tag: 0xABCD, ..Header::of_kind(kind) }
}

pub(crate) fn write(header: Header, entries: &[Entry]) -> Vec<u8> {
    let mut buffer = vec![0; packet_bytes(u8::try_from(entries.len()).unwrap())];
    let mut writer = PacketWriter::new(header, &mut buffer);
    for entry in entries {
        assert!(writer.push(entry.cell, entry.value));
    }
    assert_eq!(writer.finish(), buffer.len());
    buffer
}

pub(crate) fn values(slots: &[(u16, u32)]) -> SlotValues {
    SlotValues {
        slots: slots.iter().map(|&(slot, _)| (slot, 1)).collect(),
        values: libra_proto::Bulk(slots.iter().map(|&(_, value)| value).collect()),
    }
}
