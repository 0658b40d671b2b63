//! A worker and two switches between which regions move, as views would have it, over a bad link in virtual time.

use core::net::SocketAddr;
use core::ops::Range;
use core::time::Duration;
use std::collections::BTreeMap;

use libra_dataplane::{Flags, HEADER_BYTES, Header, Kind, Pipeline, Region, Verdict};

use super::harness::{CELLS, IDENTITY, Link, REGIONS, Random, WORKER, bounds, ms, new_region, submit};
use crate::role::Outgoing;
use crate::time::Instant;
use crate::transport::flow::{FLOW_PACKETS_MAX, PacketRows};
use crate::transport::path::{Delivery, Path};
use crate::transport::region::RegionFlows;

type SoftPipeline = Pipeline<Vec<Region<Vec<u32>>>, Vec<u32>>;

/// The switch: 0 or 1.
pub(super) type Place = usize;

const JOB: u16 = super::harness::JOB;
const BANK_PACKETS_MAX: u32 = 64;

pub(super) fn place_address(place: Place) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 4000 + u16::try_from(place).unwrap()))
}

/// Contents that were drained from a region.
#[derive(Debug)]
pub(super) struct Drained {
    place: Place,
    region: u8,
    view: u64,
    round: u16,
    acked: Vec<Range<u32>>,
    sums: Vec<(u32, u32)>,
}

#[derive(Debug)]
pub(super) enum Arrival {
    AtSwitch(Place, Vec<u8>),
    AtWorker(Vec<u8>),
    AtShard(Drained),
    /// The shard has committed this round of a region held under this view.
    Committed(Place, u8, u64, u16),
    /// The worker receives the owner of a region, and its view.
    AtWorkerView(u8, Place, u64),
    Flip,
}

/// The shard's end of a region.
#[derive(Debug, Default)]
pub(super) struct Shard {
    pub(super) owner: Place,
    view: u64,
    pub(super) round: u16,
    pub(super) acked: Vec<Range<u32>>,
}

#[derive(Debug)]
struct Sent {
    first: Vec<u8>,
    times: u32,
}

pub(super) struct MovingHarness {
    pub(super) now: Instant,
    pub(super) paths: [Path; 2],
    pub(super) pipelines: [SoftPipeline; 2],
    pub(super) shards: BTreeMap<u8, Shard>,
    /// The owner of each region and its view, as the worker has them.
    pub(super) known: BTreeMap<u8, (Place, u64)>,
    pub(super) link: Link,
    pub(super) random: Random,
    pub(super) arrivals: BTreeMap<(Instant, u64), Arrival>,
    number: u64,
    views: u64,
    sent: BTreeMap<(u8, u8, u32), Sent>,
    /// Everything sent, in order: to whom, and its header.
    pub(super) log: Vec<(Place, Header)>,
    committed: BTreeMap<(u8, u32), i64>,
    pushed: BTreeMap<(u8, u32), i64>,
    /// Number of answers to each operation.
    pub(super) answered: BTreeMap<u64, u32>,
    pub(super) operations: u64,
}

impl MovingHarness {
    /// Both regions are at switch 0 under view 1.
    pub(super) fn new(link: Link, in_flight_max: u32, seed: u64) -> Self {
        let path = |place| Path::new(place_address(place), IDENTITY, bounds(in_flight_max));
        let mut moving = Self {
            now: Instant::ZERO + ms(1),
            paths: [path(0), path(1)],
            pipelines: [(); 2].map(|()| Pipeline::new(Vec::new()).unwrap()),
            shards: REGIONS.map(|region| (region, Shard::default())).into(),
            known: BTreeMap::new(),
            link,
            random: Random::new(seed),
            arrivals: BTreeMap::new(),
            number: 0,
            views: 0,
            sent: BTreeMap::new(),
            log: Vec::new(),
            committed: BTreeMap::new(),
            pushed: BTreeMap::new(),
            answered: BTreeMap::new(),
            operations: 0,
        };
        for region in REGIONS {
            let view = moving.open(region, 0);
            moving.paths[0].put(region, RegionFlows::new(FLOW_PACKETS_MAX), view);
            moving.known.insert(region, (0, view));
        }
        moving.schedule(ms(1), Arrival::Flip);
        moving
    }

    /// The shard fences the owner, and the switch at `place` goes on from what the shard has. Returns the view.
    pub(super) fn open(&mut self, region: u8, place: Place) -> u64 {
        self.views += 1;
        let shard = self.shards.get_mut(&region).unwrap();
        (shard.owner, shard.view) = (place, self.views);
        let mut opened = new_region(region, self.views, BANK_PACKETS_MAX);
        opened.resume_after(shard.round);
        for seqs in &shard.acked {
            assert!(opened.mark_seen(WORKER, seqs.clone()));
        }
        opened.set_readable(true);
        let change = |regions: &mut Vec<Region<Vec<u32>>>| {
            regions.retain(|old| old.config().region != region);
            regions.push(opened);
        };
        self.pipelines[place].change(change).unwrap();
        self.views
    }

    /// The worker receives it.
    pub(super) fn notify_worker(&mut self, region: u8, place: Place, view: u64) {
        let (before, known) = self.known.insert(region, (place, view)).unwrap();
        if known > view {
            self.known.insert(region, (before, known));
            return;
        }
        let flows = self.paths[before].take(region);
        self.paths[place].put(region, flows, view);
        self.transmit();
    }

    /// Both at once.
    pub(super) fn move_region(&mut self, region: u8, place: Place) {
        let view = self.open(region, place);
        self.notify_worker(region, place, view);
    }

    pub(super) fn schedule(&mut self, after: Duration, arrival: Arrival) {
        self.number += 1;
        self.arrivals.insert((self.now + after, self.number), arrival);
    }

    fn send(&mut self, bytes: &[u8], arrival: impl Fn(Vec<u8>) -> Arrival) {
        for after in self.link.carry(&mut self.random) {
            self.schedule(after, arrival(bytes.to_vec()));
        }
    }

    /// Pushes 1 + cell to a cell and the next one.
    pub(super) fn push(&mut self, region: u8, cell: u16) -> u64 {
        assert!(cell + 2 < CELLS);
        let entries = [cell, cell + 1].map(|cell| (cell, 1 + u32::from(cell)));
        for (cell, value) in entries {
            *self.pushed.entry((region, cell.into())).or_default() += i64::from(value);
        }
        self.submit(Kind::Push, Flags::LAST, region, &entries)
    }

    pub(super) fn pull(&mut self, region: u8, cell: u16) -> u64 {
        self.submit(Kind::Pull, Flags::NONE, region, &[(cell, 0)])
    }

    fn submit(&mut self, kind: Kind, flags: Flags, region: u8, entries: &[(u16, u32)]) -> u64 {
        self.operations += 1;
        let packet_rows = PacketRows { operation: self.operations, first: 0, end: 1 };
        let path = &mut self.paths[self.known[&region].0];
        submit(path, kind, flags, region, entries, packet_rows);
        self.transmit();
        self.operations
    }

    pub(super) fn transmit(&mut self) {
        for place in 0..2 {
            loop {
                let mut outgoing = Outgoing::default();
                self.paths[place].poll_transmit(self.now, &mut outgoing);
                if outgoing.is_empty() {
                    break;
                }
                for (to, datagram) in outgoing.iter() {
                    assert_eq!(to, place_address(place));
                    self.check_sent(place, datagram);
                    self.send(datagram, |bytes| Arrival::AtSwitch(place, bytes));
                }
            }
            let path = &self.paths[place];
            assert!(path.in_flight() == 0 || path.poll_timeout().is_some(), "a loss would not be noticed");
        }
    }

    fn check_sent(&mut self, place: Place, datagram: &[u8]) {
        let header = Header::parse(datagram).unwrap();
        assert_eq!(
            self.known[&header.region],
            (place, header.view.into()),
            "it goes to the owner that the worker has"
        );
        if header.entries == 0 {
            return assert_eq!(header.kind, Kind::Pull, "only probes are empty");
        }
        let key = (header.region, header.kind as u8, header.seq);
        let sent = self.sent.entry(key).or_insert_with(|| Sent { first: datagram.to_vec(), times: 0 });
        sent.times += 1;
        assert_eq!(header.flags.contains(Flags::RETRANSMIT), sent.times > 1);
        let first = Header::parse(&sent.first).unwrap();
        let expected = Header { flags: header.flags, view: header.view, ..first };
        assert_eq!(header, expected, "nothing changes but the mark and the view");
        assert_eq!(datagram[HEADER_BYTES..], sent.first[HEADER_BYTES..]);
        self.log.push((place, header));
    }

    pub(super) fn deliver(&mut self, bytes: &[u8]) {
        let Ok(header) = Header::parse_without_entries(bytes) else { panic!("a switch sends packets") };
        let Self { paths, answered, known, now, .. } = self;
        // The sender does not matter: answers of the former owner come from another address, and those of the same one under an
        // earlier view come from the same. Both must do no harm.
        let path = &mut paths[known[&header.region].0];
        path.handle_datagram(*now, bytes, &mut |delivery| match delivery {
            Delivery::Accepted(packet_rows, _)
            | Delivery::Values(packet_rows, _)
            | Delivery::Unreadable(packet_rows) => {
                *answered.entry(packet_rows.operation).or_default() += 1;
            }
        });
    }

    /// Every switch closes what it may: also one that holds a region no more and has not received that.
    pub(super) fn flip(&mut self) {
        for place in 0..2 {
            let mut drains = Vec::new();
            for region in self.pipelines[place].regions_mut() {
                if region.durable() != region.round().wrapping_sub(1) || region.active_packets().pushes == 0 {
                    continue;
                }
                let round = region.flip().unwrap();
                let acked = region.window(WORKER).unwrap().accepted().collect();
                let mut sums = Vec::new();
                region.drain(|first, block| {
                    sums.extend((first..).zip(block.iter().copied()).filter(|(_, sum)| *sum != 0));
                });
                let (number, view) = (region.config().region, region.config().view);
                drains.push(Drained { place, region: number, view, round, acked, sums });
            }
            for drained in drains {
                let time = Duration::from_micros(self.random.below(1500));
                self.schedule(time, Arrival::AtShard(drained));
            }
        }
    }

    fn commit(&mut self, drained: Drained) {
        let Drained { place, region, view, round, acked, sums } = drained;
        let shard = self.shards.get_mut(&region).unwrap();
        if view != shard.view {
            return;
        }
        assert_eq!(round, shard.round.wrapping_add(1), "a round is committed once, and none is skipped");
        (shard.round, shard.acked) = (round, acked);
        for (slot, sum) in sums {
            *self.committed.entry((region, slot)).or_default() += i64::from(sum.cast_signed());
        }
        self.schedule(Duration::from_micros(200), Arrival::Committed(place, region, view, round));
    }

    pub(super) fn step(&mut self) {
        let at = self.arrivals.first_key_value().expect("the agents always flip again").0.0;
        let timeout = self.paths.iter().filter_map(Path::poll_timeout).min();
        if let Some(timeout) = timeout.filter(|timeout| *timeout < at) {
            self.now = self.now.max(timeout);
            for path in &mut self.paths {
                path.handle_timeout(self.now);
            }
            return self.transmit();
        }
        let ((at, _), arrival) = self.arrivals.pop_first().unwrap();
        self.now = at;
        match arrival {
            Arrival::AtSwitch(place, mut bytes) => {
                if let Verdict::Reply(length) = self.pipelines[place].process(&mut bytes) {
                    self.send(&bytes[..length], Arrival::AtWorker);
                }
            }
            Arrival::AtWorker(bytes) => self.deliver(&bytes),
            Arrival::AtShard(drained) => self.commit(drained),
            Arrival::Committed(place, region, view, round) => {
                let region = self.pipelines[place].region_mut(JOB, region);
                if let Some(region) = region.filter(|region| region.config().view == view) {
                    region.set_durable(round);
                }
            }
            Arrival::AtWorkerView(region, place, view) => self.notify_worker(region, place, view),
            Arrival::Flip => {
                self.flip();
                self.schedule(ms(1), Arrival::Flip);
            }
        }
        self.transmit();
    }

    pub(super) fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.step();
        }
    }

    fn is_at_rest(&self) -> bool {
        let durable = |(&region, &(place, _)): (&u8, &(Place, u64))| {
            let flow = self.paths[place].push_flow(region);
            flow.first() == flow.next()
        };
        self.known.iter().all(durable)
            && self.paths.iter().all(|path| path.in_flight() == 0)
            && (1..=self.operations).all(|operation| self.answered.contains_key(&operation))
    }

    /// Runs until every push is durable and every pull answered, and checks what came of it.
    pub(super) fn finish(&mut self) {
        let deadline = self.now + Duration::from_secs(60);
        while !self.is_at_rest() {
            assert!(self.now < deadline, "something is never sent");
            self.step();
        }
        assert_eq!(self.committed, self.pushed, "every push is in the committed sums once");
        assert!(self.answered.values().all(|&times| times == 1), "each operation is answered once");
    }
}
