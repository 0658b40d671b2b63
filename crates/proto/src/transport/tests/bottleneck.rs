//! Many paths that share one switch: a real pipeline behind a queue, with a time for each packet and a buffer that overflows.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use libra_dataplane::{
    Arithmetic, Flags, Header, Kind, PacketWriter, Pipeline, Region, RegionConfig, RegionMemory, Verdict,
    packet_bytes,
};

use super::harness::{CELLS, IDENTITY, JOB, PLAN, Random, VIEW, address, bounds};
use crate::role::Outgoing;
use crate::time::Instant;
use crate::transport::flow::{FLOW_PACKETS_MAX, PacketRows};
use crate::transport::path::{Delivery, Identity, Path};
use crate::transport::region::RegionFlows;

const REGION: u8 = 0;
const FLIP_INTERVAL: Duration = Duration::from_millis(1);
const COMMIT_TIME: Duration = Duration::from_micros(300);

/// Parameters of the bottleneck between the workers and their sums.
#[derive(Debug, Clone, Copy)]
pub(super) struct BottleneckConfig {
    pub(super) workers: u16,
    pub(super) in_flight_max: u32,
    /// One way, without a queue.
    pub(super) delay: Duration,
    /// Datagrams of ten thousand that are lost, in each direction.
    pub(super) loss: u64,
    /// Time of the switch that a packet takes, and the time that one takes that finds the buffer full: even those are received.
    pub(super) service: Duration,
    pub(super) drop_cost: Duration,
    /// Packets that wait for the switch at most.
    pub(super) buffer: usize,
    pub(super) seed: u64,
}

impl BottleneckConfig {
    /// 500,000 packets a second through a buffer of 2,048, over links that lose nothing.
    pub(super) const GOOD: Self = Self {
        workers: 1,
        in_flight_max: 256,
        delay: Duration::from_micros(50),
        loss: 0,
        service: Duration::from_micros(2),
        drop_cost: Duration::from_nanos(500),
        buffer: 2048,
        seed: 1,
    };
}

/// A worker that always has something to push.
struct Sender {
    path: Path,
    submitted: u64,
    accepted: u64,
    wake: Option<Instant>,
    /// Links keep the order: nothing arrives before what was sent earlier.
    last_arrival: Instant,
}

enum Event {
    AtSwitch(usize, Vec<u8>),
    Served,
    AtWorker(usize, Vec<u8>),
    Flip,
    Commit(u16),
}

pub(super) struct BottleneckHarness {
    pub(super) now: Instant,
    pub(super) bottleneck_config: BottleneckConfig,
    random: Random,
    pipeline: Pipeline<Vec<Region<Vec<u32>>>, Vec<u32>>,
    senders: Vec<Sender>,
    /// Packets that wait for the switch.
    pub(super) queue: VecDeque<(usize, Vec<u8>)>,
    /// Time that drops have cost since the last packet was served.
    owed: Duration,
    events: BTreeMap<(Instant, u64), Event>,
    scheduled: u64,
    pub(super) arrived: u64,
    pub(super) overflowed: u64,
}

impl BottleneckHarness {
    pub(super) fn new(bottleneck_config: BottleneckConfig) -> Self {
        let config = RegionConfig {
            job: JOB,
            region: REGION,
            plan: PLAN,
            view: VIEW,
            lanes: 1,
            cells: CELLS,
            flows: bottleneck_config.workers,
            bank_packets_max: 1 << 20,
            arithmetic: Arithmetic::Fixed { bound: 1000 },
        };
        let region = Region::new(config, RegionMemory::allocate(&config, |words| vec![0; words])).unwrap();
        let sender = |worker| {
            let mut path = Path::new(
                address(),
                Identity { worker, ..IDENTITY },
                bounds(bottleneck_config.in_flight_max),
            );
            path.put(REGION, RegionFlows::new(FLOW_PACKETS_MAX), VIEW);
            Sender { path, submitted: 0, accepted: 0, wake: None, last_arrival: Instant::ZERO }
        };
        let mut bottleneck = Self {
            now: Instant::ZERO + Duration::from_millis(1),
            bottleneck_config,
            random: Random::new(bottleneck_config.seed),
            pipeline: Pipeline::new(vec![region]).unwrap(),
            senders: (0..bottleneck_config.workers).map(sender).collect(),
            queue: VecDeque::new(),
            owed: Duration::ZERO,
            events: BTreeMap::new(),
            scheduled: 0,
            arrived: 0,
            overflowed: 0,
        };
        bottleneck.schedule(FLIP_INTERVAL, Event::Flip);
        for worker in 0..bottleneck.senders.len() {
            bottleneck.transmit(worker);
        }
        bottleneck
    }

    fn schedule(&mut self, after: Duration, event: Event) {
        self.scheduled += 1;
        self.events.insert((self.now + after, self.scheduled), event);
    }

    fn is_lost(&mut self) -> bool {
        self.random.below(10_000) < self.bottleneck_config.loss
    }

    /// Keeps the path supplied, and takes what it wants to send.
    fn transmit(&mut self, worker: usize) {
        let sender = &mut self.senders[worker];
        while sender.submitted - sender.accepted < 2 * u64::from(self.bottleneck_config.in_flight_max) {
            sender.submitted += 1;
            let (header, mut bytes) = sender.path.begin(REGION, Kind::Push);
            bytes.resize(packet_bytes(1), 0);
            let mut writer = PacketWriter::new(Header { flags: Flags::LAST, ..header }, &mut bytes);
            assert!(writer.push(1, 1));
            let _ = writer.finish();
            let packet_rows = PacketRows { operation: sender.submitted, first: 0, end: 1 };
            sender.path.submit(REGION, Kind::Push, bytes, packet_rows);
        }
        loop {
            let mut outgoing = Outgoing::default();
            self.senders[worker].path.poll_transmit(self.now, &mut outgoing);
            if outgoing.is_empty() {
                break;
            }
            for (_, datagram) in outgoing.iter() {
                // Workers are never quite in step.
                let late = Duration::from_nanos(self.random.below(10_000));
                let sender = &mut self.senders[worker];
                let at = sender.last_arrival.max(self.now + self.bottleneck_config.delay + late);
                sender.last_arrival = at;
                if !self.is_lost() {
                    self.schedule(at.since(self.now), Event::AtSwitch(worker, datagram.to_vec()));
                }
            }
        }
        let sender = &mut self.senders[worker];
        assert!(sender.path.in_flight() <= self.bottleneck_config.in_flight_max as usize);
        sender.wake = sender.path.poll_timeout();
    }

    fn step(&mut self) {
        let (due, _) = *self.events.first_key_value().expect("the agent always flips again").0;
        let timers =
            self.senders.iter().enumerate().filter_map(|(worker, sender)| Some((sender.wake?, worker)));
        if let Some((at, worker)) = timers.min().filter(|(at, _)| *at < due) {
            self.now = self.now.max(at);
            self.senders[worker].path.handle_timeout(self.now);
            return self.transmit(worker);
        }
        let ((at, _), event) = self.events.pop_first().expect("it was there a moment ago");
        self.now = at;
        match event {
            Event::AtSwitch(worker, bytes) => self.arrive(worker, bytes),
            Event::Served => self.serve(),
            Event::AtWorker(worker, bytes) => {
                let Sender { path, accepted, .. } = &mut self.senders[worker];
                path.handle_datagram(at, &bytes, &mut |delivery| {
                    *accepted += u64::from(matches!(delivery, Delivery::Accepted(..)));
                });
                // What was overtaken is due at once, as drivers find when they ask for the timer.
                path.handle_timeout(at);
                self.transmit(worker);
            }
            Event::Flip => {
                let region = self.pipeline.region_mut(JOB, REGION).unwrap();
                if region.durable() == region.round().wrapping_sub(1) {
                    let closed = region.flip().unwrap();
                    region.drain(|_, _| ());
                    self.schedule(COMMIT_TIME, Event::Commit(closed));
                }
                self.schedule(FLIP_INTERVAL, Event::Flip);
            }
            Event::Commit(round) => self.pipeline.region_mut(JOB, REGION).unwrap().set_durable(round),
        }
    }

    fn arrive(&mut self, worker: usize, bytes: Vec<u8>) {
        self.arrived += 1;
        if self.queue.len() >= self.bottleneck_config.buffer {
            self.overflowed += 1;
            self.owed += self.bottleneck_config.drop_cost;
            return;
        }
        self.queue.push_back((worker, bytes));
        if self.queue.len() == 1 {
            self.schedule(self.bottleneck_config.service, Event::Served);
        }
    }

    fn serve(&mut self) {
        let (worker, mut bytes) = self.queue.pop_front().expect("one is being served");
        if let Verdict::Reply(length) = self.pipeline.process(&mut bytes)
            && !self.is_lost()
        {
            bytes.truncate(length);
            self.schedule(self.bottleneck_config.delay, Event::AtWorker(worker, bytes));
        }
        if !self.queue.is_empty() {
            let next = self.bottleneck_config.service + core::mem::take(&mut self.owed);
            self.schedule(next, Event::Served);
        }
    }

    /// Returns the number of pushes of each worker that are accepted in this time.
    pub(super) fn run_for(&mut self, time: Duration) -> Vec<u64> {
        let before: Vec<u64> = self.senders.iter().map(|sender| sender.accepted).collect();
        let end = self.now + time;
        while self.now < end {
            self.step();
        }
        self.senders.iter().zip(before).map(|(sender, before)| sender.accepted - before).collect()
    }
}
