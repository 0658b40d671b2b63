//! A P4 switch, as the agent of `libra switch` sees it.

use std::collections::BTreeMap;
use std::net::{SocketAddr, SocketAddrV4};

use libra_dataplane::{BankPackets, Counters, RegionConfig};
use libra_proto::{
    AckedSet, Outgoing, PathTags, Plane, Round, RoundContents, SlotValues, TagKind, WorkerPath,
};

use crate::agent::{Agent, AgentError, Link, Name};
use crate::sizes::Sizes;
use crate::tables::{Cookie, TableChange};

/// So often an active bank is found empty before it is closed all the same. It may have no room left: duplicates use it up, and only what is
/// new is counted (rule D4). Each time that was for nothing it is twice as often, up to the most. Looks are a millisecond apart, or more, while
/// nothing is asked of the switch.
const EMPTY_LOOKS_MIN: u32 = 32;
const EMPTY_LOOKS_MAX: u32 = 1024;

/// Packets of an active bank as of the last time that it was asked.
#[derive(Debug, Clone, Copy)]
struct Active {
    taken: BankPackets,
    /// Number of answers in a row that there was none.
    empty_looks: u32,
    /// Number of such answers until a packet is assumed.
    empty_looks_limit: u32,
}

impl Active {
    const fn new(empty_looks_limit: u32) -> Self {
        Self { taken: BankPackets { pushes: 0, last: 0 }, empty_looks: 0, empty_looks_limit }
    }

    fn look(&mut self, taken: BankPackets) {
        self.taken = taken;
        if taken.pushes > 0 {
            (self.empty_looks, self.empty_looks_limit) = (0, EMPTY_LOOKS_MIN);
        } else {
            self.empty_looks = self.empty_looks.saturating_add(1);
        }
    }

    /// The bank is closed, which had taken this.
    fn close(&mut self, taken: BankPackets) {
        let empty_looks_limit =
            if taken.pushes > 0 { EMPTY_LOOKS_MIN } else { self.empty_looks_limit.saturating_mul(2) };
        *self = Self::new(empty_looks_limit.min(EMPTY_LOOKS_MAX));
    }

    /// Returns what it has taken; or a packet, if it has been empty for too long.
    fn taken(&self) -> BankPackets {
        if self.empty_looks < self.empty_looks_limit {
            self.taken
        } else {
            BankPackets { pushes: 1, last: 0 }
        }
    }
}

/// The regions of one job in a P4 switch.
#[derive(Debug)]
pub struct P4Plane<L> {
    agent: Agent<L>,
    sizes: Sizes,
    job: u16,
    workers: BTreeMap<u16, (SocketAddrV4, Cookie)>,
    /// The regions that are open.
    open: BTreeMap<u8, Active>,
    /// True for those that take pushes.
    active: BTreeMap<u8, bool>,
    /// Pushes of rounds that are closed: the switch counts nothing else.
    pushes: u64,
    /// The first thing that went wrong: from then on nothing is taken for granted, and the switch gives up.
    failure: Option<String>,
}

impl<L: Link> P4Plane<L> {
    /// A switch that runs a program of these sizes and has no region.
    pub const fn new(link: L, sizes: Sizes) -> Self {
        Self {
            agent: Agent::new(link, sizes),
            sizes,
            job: 0,
            workers: BTreeMap::new(),
            open: BTreeMap::new(),
            active: BTreeMap::new(),
            pushes: 0,
            failure: None,
        }
    }

    const fn name(&self, region: u8) -> Name {
        (self.job, region)
    }

    /// Does something, unless something has gone wrong before.
    fn attempt<T: Default>(
        &mut self,
        what: impl FnOnce(&mut Agent<L>) -> Result<T, AgentError<L::Error>>,
    ) -> T {
        if self.failure.is_some() {
            return T::default();
        }
        what(&mut self.agent).unwrap_or_else(|error| {
            self.failure = Some(error.to_string());
            T::default()
        })
    }
}

impl<L: Link> Plane for P4Plane<L> {
    fn begin(&mut self, job: u16) {
        for region in core::mem::take(&mut self.open).into_keys() {
            let name = self.name(region);
            self.attempt(|agent| agent.close(name));
        }
        self.active.clear();
        self.set_workers(&BTreeMap::new());
        self.job = job;
        self.pushes = 0;
    }

    fn set_workers(&mut self, workers: &BTreeMap<u16, WorkerPath>) {
        let job = self.job;
        let mut wanted = BTreeMap::new();
        for (&worker, path) in workers {
            match entry_of(path) {
                Ok(entry) => _ = wanted.insert(worker, entry),
                Err(refusal) => _ = self.failure.get_or_insert(refusal),
            }
        }
        let known = core::mem::replace(&mut self.workers, wanted.clone());
        let gone = known.iter().filter(|(worker, entry)| wanted.get(worker) != Some(entry));
        let new = wanted.iter().filter(|(worker, entry)| known.get(worker) != Some(entry));
        let remove =
            |(&worker, &(address, cookie))| TableChange::RemoveWorker { address, job, worker, cookie };
        let add = |(&worker, &(address, cookie))| TableChange::AddWorker { address, job, worker, cookie };
        let changes: Vec<_> = gone.map(remove).chain(new.map(add)).collect();
        if !changes.is_empty() {
            self.attempt(|agent| agent.change(&changes));
        }
    }

    fn tags(&self) -> TagKind {
        TagKind::Cookie
    }

    fn open(&mut self, config: RegionConfig, durable: u16, contents: &RoundContents, _: BankPackets) {
        let seen = contents.flows.range(..config.flows).flat_map(|(&flow, seen)| {
            let above = seen.above.iter().map(|&(first, count)| first..first.saturating_add(count));
            core::iter::once(0..seen.below).chain(above).map(move |seqs| (flow, seqs))
        });
        let seen: Vec<_> = seen.filter(|(_, seqs)| !seqs.is_empty()).collect();
        self.open.insert(config.region, Active::new(EMPTY_LOOKS_MIN));
        self.active.insert(config.region, true);
        self.attempt(|agent| agent.open(config, durable, seen));
    }

    fn forget(&mut self, region: u8) {
        self.active.remove(&region);
        if self.open.remove(&region).is_some() {
            let name = self.name(region);
            self.attempt(|agent| agent.close(name));
        }
    }

    fn set_active(&mut self, region: u8, active: bool) {
        // It is sent after each round, and is a packet.
        if self.active.insert(region, active) != Some(active) {
            let name = self.name(region);
            self.attempt(|agent| agent.set_active(name, active));
        }
    }

    fn settle(&mut self, region: u8, durable: u16) {
        let name = self.name(region);
        self.attempt(|agent| agent.settle(name, durable));
    }

    fn install(&mut self, region: u8, values: &SlotValues) {
        let name = self.name(region);
        let values = values.by_slot().map(|(slot, value)| (slot.into(), value));
        self.attempt(|agent| agent.install(name, values));
    }

    /// Nothing in a switch of hardware wakes its agent, so it asks.
    fn clear_wakeups(&mut self) {
        let mut open = core::mem::take(&mut self.open);
        for (&region, active) in &mut open {
            let name = self.name(region);
            active.look(self.attempt(|agent| agent.taken(name)));
        }
        self.open = open;
    }

    fn taken(&self, region: u8) -> BankPackets {
        self.open.get(&region).map(Active::taken).unwrap_or_default()
    }

    fn close_round(&mut self, region: u8) -> Option<Round> {
        let name = self.name(region);
        let taken = self.attempt(|agent| agent.flip(name)).map(|(_, taken)| taken).unwrap_or_default();
        self.pushes += u64::from(taken.pushes);
        self.open.entry(region).and_modify(|active| active.close(taken));
        if self.failure.is_some() {
            return Some(Round::default());
        }
        let before = self.agent.round_contents(name);
        let sums = self.attempt(|agent| agent.drain(name));
        if self.failure.is_some() {
            return Some(Round::default());
        }
        let mut contents = self.agent.round_contents(name);
        contents.flows.retain(|flow, seen| before.flows.get(flow) != Some(seen));
        let mut round = Round { contents, ..Round::default() };
        whole_rows(self.agent.config(name), &sums, |first, sums| round.add(first, sums));
        Some(round)
    }

    fn handle_datagrams(
        &mut self,
        from: SocketAddr,
        datagrams: &mut [u8],
        stride: usize,
        answers: &mut Outgoing,
    ) {
        let SocketAddr::V4(worker) = from else { return };
        for datagram in datagrams.chunks(stride.max(1)) {
            if let Some(answer) = self.agent.link().receive(worker, datagram) {
                answers.push(from, &answer);
            }
        }
    }

    fn counters(&self) -> Counters {
        let open: u64 = self.open.values().map(|active| u64::from(active.taken.pushes)).sum();
        let pushes = self.pushes + open;
        Counters { packets: pushes, pushes, ..Counters::default() }
    }

    fn unknown_senders(&self) -> u64 {
        0
    }

    fn memory_bytes(&self) -> u64 {
        self.sizes.register_bytes()
    }

    fn failure(&self) -> Option<String> {
        self.failure.clone()
    }
}

/// Returns what a packet must have to be one of this worker.
fn entry_of(path: &WorkerPath) -> Result<(SocketAddrV4, Cookie), String> {
    let SocketAddr::V4(address) = path.address else {
        return Err(format!("a worker sends from {}: a P4 switch takes IPv4 alone", path.address));
    };
    match path.tags {
        None => Ok((address, Cookie::default())),
        Some(PathTags::Cookie(cookie)) => Ok((address, Cookie(cookie))),
        Some(PathTags::Mac { .. }) => {
            Err(format!("packets of the worker at {address} have MACs: a P4 switch knows cookies alone"))
        }
    }
}

/// Adds to the sums that are not zero the zeros beside them, in blocks of a cell of each lane: a shard applies rows that it is given
/// whole. A row has at most a value for each lane, so it is in two blocks at most, and they are neighbours.
fn whole_rows(config: &RegionConfig, sums: &[(u32, u32)], mut add: impl FnMut(u32, &[u32])) {
    let lanes = usize::from(config.lanes);
    let blocks = usize::from(config.cells) - 1;
    let mut all = vec![0; blocks * lanes];
    let mut is_wanted = vec![false; blocks];
    for &(slot, sum) in sums {
        let slot = slot as usize;
        all[slot] = sum;
        let block = slot / lanes;
        is_wanted[block.saturating_sub(1)..blocks.min(block + 2)].fill(true);
    }
    for (block, sums) in all.chunks(lanes).enumerate().filter(|(block, _)| is_wanted[*block]) {
        add(u32::try_from(block * lanes).expect("a slot has 16 bits"), sums);
    }
}

impl<L: Link> Agent<L> {
    /// The contents of a region after the last round that was drained.
    fn round_contents(&self, name: Name) -> RoundContents {
        let acked_set = |flow| {
            let mut acked = AckedSet::default();
            for seqs in self.acked(name, flow) {
                if seqs.start == 0 {
                    acked.below = seqs.end;
                } else {
                    acked.above.push((seqs.start, seqs.end - seqs.start));
                }
            }
            acked
        };
        let flows = (0..self.config(name).flows).map(|flow| (flow, acked_set(flow)));
        RoundContents { flows: flows.filter(|(_, taken)| *taken != AckedSet::default()).collect() }
    }
}

#[cfg(test)]
mod tests {
    use libra_dataplane::Arithmetic;

    use super::*;

    #[test]
    fn a_bank_that_stays_empty_is_closed_less_and_less_often() {
        let mut active = Active::new(EMPTY_LOOKS_MIN);
        let nothing = BankPackets::default();
        let mut looks = || {
            let looks = (1..).find(|_| {
                active.look(nothing);
                active.taken() != nothing
            });
            active.close(nothing);
            looks.expect("it is closed some time")
        };
        let pauses: Vec<u32> = (0..8).map(|_| looks()).collect();
        assert_eq!(pauses, [32, 64, 128, 256, 512, 1024, 1024, 1024]);
        active.look(BankPackets { pushes: 1, last: 1 });
        assert_eq!(active.empty_looks_limit, EMPTY_LOOKS_MIN);
    }

    #[test]
    fn a_row_is_handed_out_whole_where_it_crosses_cells() {
        let config = RegionConfig {
            job: 1,
            region: 0,
            plan: 1,
            view: 1,
            lanes: 4,
            cells: 6,
            flows: 1,
            bank_packets_max: 8,
            arithmetic: Arithmetic::Fixed { bound: 1 },
        };
        let runs = |sums: &[(u32, u32)]| {
            let mut round = Round::default();
            whole_rows(&config, sums, |first, sums| round.add(first, sums));
            (round.slots, round.sums)
        };
        // A row of slots 7 to 9 may have no sum but that of slot 8.
        assert_eq!(runs(&[(8, 5)]), (vec![(4, 12)], vec![0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]));
        assert_eq!(runs(&[(0, 1), (19, 2)]).0, [(0, 8), (12, 8)]);
        assert_eq!(runs(&[]), (vec![], vec![]));
    }
}
