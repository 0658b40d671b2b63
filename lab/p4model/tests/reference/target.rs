//! A P4 switch and its agent as a target of the vectors in `conformance/`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddrV4;
use std::ops::Range;

use libra_conformance::{FlowSeqs, IpVerdict, Key, Need, RegionName, Sender, Slots, Target, WorkerName};
use libra_dataplane::{BankPackets, Counters, RegionConfig};
use libra_p4::{Agent, AgentError, Cookie, Name, Sizes, TableChange};
use libra_p4model::Port;

use crate::device::Device;

/// The bytes of `tag` in a packet.
const TAG: Range<usize> = 22..30;

pub(crate) struct P4Target<D> {
    agent: Agent<D>,
    /// It claims all abilities.
    pub(crate) claims_all: bool,
    workers: BTreeMap<SocketAddrV4, WorkerName>,
    addresses: BTreeMap<WorkerName, SocketAddrV4>,
    cookies: BTreeMap<WorkerName, Cookie>,
    readable: BTreeSet<RegionName>,
}

impl<D: Device> P4Target<D> {
    /// Makes a switch without regions and workers.
    pub(crate) fn new(device: D, sizes: Sizes) -> Self {
        Self {
            agent: Agent::new(device, sizes),
            claims_all: false,
            workers: BTreeMap::new(),
            addresses: BTreeMap::new(),
            cookies: BTreeMap::new(),
            readable: BTreeSet::new(),
        }
    }

    fn port(&self, from: Sender) -> Result<Port, String> {
        Ok(match from {
            Sender::Agent => Port::Agent,
            Sender::Stranger(address) => Port::Worker(address),
            Sender::Worker(worker) => {
                let address = self.addresses.get(&worker);
                Port::Worker(*address.ok_or_else(|| format!("{worker} has no address"))?)
            }
        })
    }

    fn add(&self, name: WorkerName, address: SocketAddrV4) -> TableChange {
        let WorkerName { job, worker } = name;
        let cookie = self.cookies.get(&name).copied().unwrap_or_default();
        TableChange::AddWorker { address, job, worker, cookie }
    }

    fn remove(&self, name: WorkerName, address: SocketAddrV4) -> TableChange {
        let WorkerName { job, worker } = name;
        let cookie = self.cookies.get(&name).copied().unwrap_or_default();
        TableChange::RemoveWorker { address, job, worker, cookie }
    }

    fn change(&mut self, changes: &[TableChange]) -> Result<(), String> {
        said(self.agent.change(changes))
    }
}

const fn name(region: RegionName) -> Name {
    (region.job, region.region)
}

fn said<T, E: std::fmt::Display>(result: Result<T, AgentError<E>>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}

impl<D: Device> Target for P4Target<D> {
    type Error = String;

    /// See "Where it differs from the data plane in software" in docs/operating/p4.md.
    fn offers(&self, need: Need) -> bool {
        self.claims_all || matches!(need, Need::Lanes | Need::AgentPackets | Need::Cookie)
    }

    fn set_switch(&mut self, _: SocketAddrV4) -> Result<(), String> {
        Ok(())
    }

    fn set_worker(&mut self, worker: WorkerName, address: SocketAddrV4) -> Result<(), String> {
        self.addresses.insert(worker, address);
        let before = self.workers.insert(address, worker);
        let remove = before.map(|before| self.remove(before, address));
        let add = self.add(worker, address);
        self.change(&remove.into_iter().chain([add]).collect::<Vec<_>>())
    }

    fn set_key(&mut self, worker: WorkerName, key: &Key) -> Result<(), String> {
        let &Key::Cookie(cookie) = key else { return Err("a P4 switch computes no MAC".to_owned()) };
        let of_worker = self.workers.iter().filter(|(_, name)| **name == worker);
        let addresses: Vec<_> = of_worker.map(|(address, _)| *address).collect();
        let remove = addresses.iter().map(|&address| self.remove(worker, address)).collect::<Vec<_>>();
        self.cookies.insert(worker, Cookie(cookie));
        let add = addresses.iter().map(|&address| self.add(worker, address));
        self.change(&remove.into_iter().chain(add).collect::<Vec<_>>())
    }

    fn open(&mut self, config: &RegionConfig, after: u16, seen: &[FlowSeqs]) -> Result<(), String> {
        let seen = seen.iter().map(|FlowSeqs { flow, seqs }| (*flow, seqs.clone()));
        said(self.agent.open(*config, after, seen))
    }

    fn close(&mut self, region: RegionName) -> Result<(), String> {
        self.readable.remove(&region);
        said(self.agent.close(name(region)))
    }

    fn receive(&mut self, from: Sender, datagram: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let mut answers = self.receive_burst(from, &[datagram.to_vec()])?;
        let answer = answers.pop();
        if answers.is_empty() { Ok(answer) } else { Err("two answers to one datagram".to_owned()) }
    }

    fn receive_burst(&mut self, from: Sender, datagrams: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, String> {
        let port = self.port(from)?;
        let mut answers = self.agent.link().hand_over(port, datagrams, None);
        if port == Port::Agent {
            // There it has the packets of a bank, or the parts of an acked set.
            answers.iter_mut().filter_map(|answer| answer.get_mut(TAG)).for_each(|tag| tag.fill(0));
        }
        Ok(answers)
    }

    fn receive_ip(&mut self, _: &[u8]) -> Result<IpVerdict, String> {
        Err("datagrams are sent to it, and no IP packets that are made by hand".to_owned())
    }

    fn flip(&mut self, region: RegionName) -> Result<Option<u16>, String> {
        let closed = said(self.agent.flip(name(region)))?;
        Ok(closed.map(|(round, _)| round))
    }

    fn drain(&mut self, region: RegionName) -> Result<Slots, String> {
        Ok(Slots::of(said(self.agent.drain(name(region)))?))
    }

    fn install(&mut self, region: RegionName, values: &Slots) -> Result<(), String> {
        said(self.agent.install(name(region), values.0.iter().map(|(&slot, &value)| (slot, value))))
    }

    fn values(&mut self, region: RegionName) -> Result<Slots, String> {
        let is_readable = self.readable.contains(&region);
        said(self.agent.set_readable(name(region), true))?;
        let values = said(self.agent.values(name(region)))?;
        said(self.agent.set_readable(name(region), is_readable))?;
        Ok(Slots::of((0..).zip(values)))
    }

    fn set_durable(&mut self, region: RegionName, round: u16) -> Result<(), String> {
        said(self.agent.set_durable(name(region), round))
    }

    fn set_readable(&mut self, region: RegionName, readable: bool) -> Result<(), String> {
        if readable {
            self.readable.insert(region);
        } else {
            self.readable.remove(&region);
        }
        said(self.agent.set_readable(name(region), readable))
    }

    fn set_active(&mut self, region: RegionName, active: bool) -> Result<(), String> {
        said(self.agent.set_active(name(region), active))
    }

    fn acked(&mut self, region: RegionName, flow: u16) -> Result<Vec<Range<u32>>, String> {
        Ok(self.agent.acked(name(region), flow))
    }

    fn bank(&mut self, region: RegionName) -> Result<BankPackets, String> {
        said(self.agent.taken(name(region)))
    }

    fn counters(&mut self) -> Result<Counters, String> {
        Err("a P4 switch counts nothing but what banks have taken".to_owned())
    }
}
