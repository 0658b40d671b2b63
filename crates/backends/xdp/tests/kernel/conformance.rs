//! The vectors that every data plane must reproduce.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::Range;

use libra_conformance::{
    FlowSeqs, IpVerdict, Key, Need, Outcome, RegionName, Sender, Slots, Target, WorkerName, folder,
    read_folder, run, run_in_bursts,
};
use libra_dataplane::{BankPackets, Counters, DedupWindow, Region, RegionConfig, RegionMemory};
use libra_xdp::{Verdict, XdpError, XdpPipeline};

use crate::scene;

/// Ethernet from one machine to another, and IPv4 in it.
const ETHERNET: [u8; 14] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x00];

struct XdpTarget {
    pipeline: XdpPipeline,
    switch: SocketAddrV4,
    addresses: BTreeMap<WorkerName, SocketAddrV4>,
    keys: BTreeMap<WorkerName, Key>,
}

impl XdpTarget {
    fn load(switch: SocketAddrV4) -> Option<Self> {
        let pipeline = scene::load(switch.into())?;
        Some(Self { pipeline, switch, addresses: BTreeMap::new(), keys: BTreeMap::new() })
    }

    /// As if it was just loaded, which takes longer than a vector.
    fn reset(&mut self) {
        let open: Vec<_> = self.pipeline.names().collect();
        open.into_iter().for_each(|name| self.pipeline.close(name).unwrap());
        self.pipeline.retain_workers(&[]).unwrap();
        self.pipeline.reset_counters().unwrap();
        self.addresses.clear();
        self.keys.clear();
    }
}

fn name(region: RegionName) -> (u16, u8) {
    (region.job, region.region)
}

impl Target for XdpTarget {
    type Error = XdpError;

    fn offers(&self, need: Need) -> bool {
        // The agent writes and reads memory by itself.
        !matches!(need, Need::Lanes | Need::AgentPackets)
    }

    fn set_switch(&mut self, address: SocketAddrV4) -> Result<(), XdpError> {
        // A program is loaded for one address.
        if address != self.switch {
            (self.pipeline, self.switch) = (XdpPipeline::load(address.into())?, address);
        }
        Ok(())
    }

    fn set_worker(&mut self, name: WorkerName, address: SocketAddrV4) -> Result<(), XdpError> {
        self.addresses.insert(name, address);
        let tags = self.keys.get(&name).map(Key::tags);
        self.pipeline.set_worker(address, name.job, name.worker, tags)
    }

    fn set_key(&mut self, name: WorkerName, key: &Key) -> Result<(), XdpError> {
        self.keys.insert(name, key.clone());
        self.set_worker(name, self.addresses[&name])
    }

    fn open(&mut self, config: &RegionConfig, after: u16, seen: &[FlowSeqs]) -> Result<(), XdpError> {
        let memory = RegionMemory::allocate(config, |words| vec![0; words]);
        let mut like = Region::new(*config, memory).expect("vectors have sound regions");
        like.resume_after(after);
        for FlowSeqs { flow, seqs } in seen {
            assert!(like.mark_seen(*flow, seqs.clone()));
        }
        self.pipeline.open(&like, BankPackets { pushes: 3, last: 2 })
    }

    fn close(&mut self, region: RegionName) -> Result<(), XdpError> {
        self.pipeline.close(name(region))
    }

    fn receive(&mut self, from: Sender, datagram: &[u8]) -> Result<Option<Vec<u8>>, XdpError> {
        let from = match from {
            Sender::Worker(worker) => self.addresses[&worker],
            Sender::Stranger(address) => address,
            Sender::Agent => unreachable!("it is not offered"),
        };
        Ok(self.pipeline.receive(from, datagram)?.map(<[u8]>::to_vec))
    }

    fn receive_ip(&mut self, packet: &[u8]) -> Result<IpVerdict, XdpError> {
        let frame = [&ETHERNET[..], packet].concat();
        Ok(match self.pipeline.receive_frame(&frame)? {
            Verdict::Pass => IpVerdict::Pass,
            Verdict::Drop => IpVerdict::Drop,
            Verdict::Send(answer) => {
                let (ethernet, answer) = answer.split_at(ETHERNET.len());
                assert_eq!(ethernet, [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00], "it goes back");
                IpVerdict::Answer(answer.to_vec())
            }
        })
    }

    fn flip(&mut self, region: RegionName) -> Result<Option<u16>, XdpError> {
        self.pipeline.flip(name(region))
    }

    fn drain(&mut self, region: RegionName) -> Result<Slots, XdpError> {
        let mut sums = Vec::new();
        self.pipeline
            .drain(name(region), |first, block| sums.extend((first..).zip(block.iter().copied())))?;
        Ok(Slots::of(sums))
    }

    fn install(&mut self, region: RegionName, values: &Slots) -> Result<(), XdpError> {
        let slot = |(slot, value): (&u32, &u32)| (u16::try_from(*slot).expect("cells are 15 bits"), *value);
        self.pipeline.install(name(region), values.0.iter().map(slot))
    }

    fn values(&mut self, region: RegionName) -> Result<Slots, XdpError> {
        Ok(Slots::of((0..).zip(self.pipeline.values(name(region))?)))
    }

    fn set_durable(&mut self, region: RegionName, round: u16) -> Result<(), XdpError> {
        self.pipeline.set_durable(name(region), round)
    }

    fn set_readable(&mut self, region: RegionName, readable: bool) -> Result<(), XdpError> {
        self.pipeline.set_readable(name(region), readable)
    }

    fn set_active(&mut self, region: RegionName, active: bool) -> Result<(), XdpError> {
        self.pipeline.set_active(name(region), active)
    }

    fn acked(&mut self, region: RegionName, flow: u16) -> Result<Vec<Range<u32>>, XdpError> {
        let words = self.pipeline.window(name(region), flow)?.expect("vectors name flows that there are");
        Ok(DedupWindow::new(&words).accepted().collect())
    }

    fn bank(&mut self, region: RegionName) -> Result<BankPackets, XdpError> {
        self.pipeline.taken(name(region))
    }

    fn counters(&mut self) -> Result<Counters, XdpError> {
        Ok(self.pipeline.counters()?.0)
    }
}

#[test]
fn the_vectors_are_reproduced() {
    let switch = SocketAddrV4::new(Ipv4Addr::new(10, 7, 0, 1), 4700);
    let vectors = read_folder(&folder()).unwrap();
    assert!(vectors.len() > 30);
    let mut skipped = Vec::new();
    let Some(mut target) = XdpTarget::load(switch) else { return };
    for vector in &vectors {
        for run in [run::<XdpTarget>, run_in_bursts] {
            target.reset();
            match run(vector, &mut target) {
                Ok(Outcome::Passed) => {}
                Ok(Outcome::Skipped(need)) => skipped.push((&vector.file, need)),
                Err(failure) => panic!("{failure}"),
            }
        }
    }
    skipped.dedup();
    for (file, need) in &skipped {
        eprintln!("SKIPPED {file}: the XDP plane does not offer {need}");
        assert!(matches!(need, Need::Lanes | Need::AgentPackets));
    }
    assert!(vectors.len() - skipped.len() > 30, "{skipped:?}");
}
