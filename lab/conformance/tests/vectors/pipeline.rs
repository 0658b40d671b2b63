//! The reference as a target: `Pipeline`, with the table of addresses that a switch keeps beside it.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::ops::Range;

use libra_conformance::{FlowSeqs, IpVerdict, Key, Need, RegionName, Sender, Slots, Target, WorkerName};
use libra_dataplane::{
    BankPackets, Counters, Header, Kind, PacketWriter, Pipeline, Region, RegionConfig, RegionMemory, Verdict,
    packet_bytes,
};

/// A region whose memory is on the heap.
type SoftRegion = Region<Vec<u32>>;

pub(crate) struct PipelineTarget {
    pipeline: Pipeline<Vec<SoftRegion>, Vec<u32>>,
    workers: BTreeMap<SocketAddrV4, WorkerName>,
    addresses: BTreeMap<WorkerName, SocketAddrV4>,
    keys: BTreeMap<WorkerName, Key>,
    /// Packets in which the agent itself has installed values: no vector says how many that takes.
    own_installs: u64,
}

impl PipelineTarget {
    pub(crate) fn new() -> Self {
        let pipeline = Pipeline::new(vec![]).expect("no region is there twice");
        let (workers, addresses, keys) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { pipeline, workers, addresses, keys, own_installs: 0 }
    }

    fn region(&mut self, RegionName { job, region }: RegionName) -> Result<&mut SoftRegion, String> {
        self.pipeline.region_mut(job, region).ok_or_else(|| format!("there is no region r{job}.{region}"))
    }

    /// The address that a datagram of this worker comes from.
    fn address(&self, worker: WorkerName) -> Result<SocketAddrV4, String> {
        self.addresses.get(&worker).copied().ok_or_else(|| format!("{worker} has no address"))
    }

    /// A value goes where its place in the packet is that of its lane; padding fills the places before.
    fn install_slot(&mut self, config: RegionConfig, slot: u32, value: u32) -> Result<(), String> {
        let header = Header {
            job: config.job,
            plan: config.plan,
            view: config.view_on_wire(),
            region: config.region,
            ..Header::of_kind(Kind::Install)
        };
        let mut packet = vec![0; packet_bytes(config.lanes)];
        let mut writer = PacketWriter::new(header, &mut packet);
        let lanes = u32::from(config.lanes);
        let mut fits = (0..slot % lanes).all(|_| writer.push(config.cells - 1, 0));
        fits &= u16::try_from(slot / lanes).is_ok_and(|cell| writer.push(cell, value));
        let bytes = writer.finish();
        self.own_installs += 1;
        match self.pipeline.process(&mut packet[..bytes]) {
            Verdict::Reply(_) if fits => Ok(()),
            verdict => Err(format!("slot {slot} cannot be installed: {verdict:?}")),
        }
    }
}

impl Target for PipelineTarget {
    type Error = String;

    fn offers(&self, need: Need) -> bool {
        // The pipeline is handed payloads; the kernel has done what is below.
        need != Need::Ip
    }

    fn set_switch(&mut self, _: SocketAddrV4) -> Result<(), String> {
        Ok(())
    }

    fn set_worker(&mut self, worker: WorkerName, address: SocketAddrV4) -> Result<(), String> {
        self.workers.insert(address, worker);
        self.addresses.insert(worker, address);
        Ok(())
    }

    fn set_key(&mut self, worker: WorkerName, key: &Key) -> Result<(), String> {
        self.keys.insert(worker, key.clone());
        Ok(())
    }

    fn open(&mut self, config: &RegionConfig, after: u16, seen: &[FlowSeqs]) -> Result<(), String> {
        let memory = RegionMemory::allocate(config, |words| vec![0; words]);
        let mut region = Region::new(*config, memory).map_err(|error| error.to_string())?;
        region.resume_after(after);
        for FlowSeqs { flow, seqs } in seen {
            if !region.mark_seen(*flow, seqs.clone()) {
                return Err(format!("there is no flow {flow}"));
            }
        }
        self.pipeline.change(|regions| regions.push(region)).map_err(|error| error.to_string())
    }

    fn close(&mut self, name: RegionName) -> Result<(), String> {
        self.region(name)?;
        let change = |regions: &mut Vec<SoftRegion>| {
            regions.retain(|region| RegionName::of(region.config()) != name);
        };
        self.pipeline.change(change).map_err(|error| error.to_string())
    }

    fn receive(&mut self, from: Sender, datagram: &[u8]) -> Result<Option<Vec<u8>>, String> {
        if from == Sender::Agent {
            let mut buffer = datagram.to_vec();
            return Ok(match self.pipeline.process(&mut buffer) {
                Verdict::Reply(bytes) => Some(buffer[..bytes].to_vec()),
                Verdict::Drop(_) => None,
            });
        }
        let answers = self.receive_burst(from, &[datagram.to_vec()])?;
        match <[_; 1]>::try_from(answers) {
            Ok([answer]) => Ok(Some(answer)),
            Err(answers) if answers.is_empty() => Ok(None),
            Err(answers) => Err(format!("{} answers to one datagram", answers.len())),
        }
    }

    fn receive_burst(&mut self, from: Sender, datagrams: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, String> {
        let address = match from {
            Sender::Worker(worker) => self.address(worker)?,
            Sender::Stranger(address) => address,
            Sender::Agent => {
                let answers = datagrams.iter().map(|datagram| self.receive(from, datagram));
                return answers.filter_map(Result::transpose).collect();
            }
        };
        // Who sends is known by the address alone.
        let Some(name @ &WorkerName { job, worker }) = self.workers.get(&address) else { return Ok(vec![]) };
        let tags = self.keys.get(name).map(Key::tags);
        let mut packets = datagrams.to_vec();
        let mut answers = Vec::new();
        let packets = packets.iter_mut().map(Vec::as_mut_slice);
        let emit = |answer: &[u8]| answers.push(answer.to_vec());
        self.pipeline.process_tagged_burst((job, worker), tags, packets, emit);
        Ok(answers)
    }

    fn receive_ip(&mut self, _: &[u8]) -> Result<IpVerdict, String> {
        Err("the pipeline is handed no IP packets".to_owned())
    }

    fn flip(&mut self, region: RegionName) -> Result<Option<u16>, String> {
        Ok(self.region(region)?.flip().ok())
    }

    fn drain(&mut self, region: RegionName) -> Result<Slots, String> {
        let mut sums = Vec::new();
        self.region(region)?.drain(|first, block| sums.extend((first..).zip(block.iter().copied())));
        Ok(Slots::of(sums))
    }

    fn install(&mut self, region: RegionName, values: &Slots) -> Result<(), String> {
        let config = *self.region(region)?.config();
        values.0.iter().try_for_each(|(&slot, &value)| self.install_slot(config, slot, value))
    }

    fn values(&mut self, region: RegionName) -> Result<Slots, String> {
        Ok(Slots::of((0..).zip(self.region(region)?.values().iter().copied())))
    }

    fn set_durable(&mut self, region: RegionName, round: u16) -> Result<(), String> {
        self.region(region)?.set_durable(round);
        Ok(())
    }

    fn set_readable(&mut self, region: RegionName, readable: bool) -> Result<(), String> {
        self.region(region)?.set_readable(readable);
        Ok(())
    }

    fn set_active(&mut self, region: RegionName, active: bool) -> Result<(), String> {
        self.region(region)?.set_active(active);
        Ok(())
    }

    fn acked(&mut self, region: RegionName, flow: u16) -> Result<Vec<Range<u32>>, String> {
        let window = self.region(region)?.window(flow).ok_or_else(|| format!("there is no flow {flow}"))?;
        Ok(window.accepted().collect())
    }

    fn bank(&mut self, region: RegionName) -> Result<BankPackets, String> {
        Ok(self.region(region)?.active_packets())
    }

    fn counters(&mut self) -> Result<Counters, String> {
        let all = self.pipeline.counters();
        let packets = all.packets - self.own_installs;
        Ok(Counters { packets, installs: all.installs - self.own_installs, ..all })
    }
}
