//! What a push costs a worker, against a pipeline beside it, without sockets.

#![expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "a benchmark looks at the clock")]

use core::net::SocketAddr;
use std::time::{Duration, Instant as WallClock};

use libra_dataplane::{Pipeline, RegionConfig};
use libra_plan::{Budget, HotRow, Plan, Provenance, Scale, TableShape};
use libra_store::{Init, Optimizer, TableSpec};

use super::*;
use crate::cluster::{HotPath, Tenure};
use crate::region::{self, SoftRegion};
use crate::worker::WorkerEvent;

const SLOTS: u64 = 30_000;
const ROWS_OF_A_PUSH: u64 = 10_000;
const KEYS: u64 = 1 << 32;

/// A worker and the switch of its one region.
struct Pair {
    session: Session,
    pipeline: Pipeline<Vec<SoftRegion>, Vec<u32>>,
    now: Instant,
    outgoing: Outgoing,
    answers: Outgoing,
    packets: Vec<u8>,
    pushes: u64,
}

fn switch() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 4000))
}

impl Pair {
    fn new(entries_max: u8, keys: Keys) -> Self {
        let rule = Optimizer::Sgd { rate: 1.0 }.into();
        let table = TableSpec { name: "rows".into(), keys: 0..KEYS, width: 1, rule, init: Init::Zero };
        let shape = TableShape { name: table.name.clone(), keys: table.keys.clone(), width: 1, hot: true };
        let plan = Plan {
            number: 1,
            provenance: Provenance::default(),
            tables: vec![shape],
            budget: Budget::default(),
            headroom_bits: 12,
            predicted_share: 1.0,
            rows: (0..SLOTS)
                .map(|row| HotRow { key: (keys.key)(row), count: SLOTS - row, scale: Scale(10) })
                .collect(),
        };
        let hot_path = HotPath { entries_max, ..HotPath::for_workers(1) };
        let mut cluster = Cluster::new(1, vec![table], Some(plan), hot_path);
        cluster.servers = vec![SocketAddr::from(([127, 0, 0, 1], 5000))];
        cluster.shares = 1;
        let tenure = Tenure { holder: Some(0), since: 1 };
        let view = View { number: 1, tenures: vec![tenure], ..View::default() };
        cluster.view = View { switches: [(0, switch())].into(), ..view };
        let (plan, placement) = (cluster.plan.clone().unwrap(), cluster.placement().unwrap().unwrap());
        let config = region::config(&cluster, &plan, &placement.regions()[0], tenure);
        let region = region::open(config, 0xff80, &crate::message::Cut::default());
        Self {
            session: Session::new(cluster, 0).unwrap(),
            pipeline: Pipeline::new(vec![region]).unwrap(),
            now: Instant::ZERO,
            outgoing: Outgoing::default(),
            answers: Outgoing::default(),
            packets: Vec::new(),
            pushes: 0,
        }
    }

    fn push(&mut self, keys: Vec<u64>, gradients: Vec<f32>) {
        self.pushes += 1;
        self.session.push(self.pushes, keys, gradients, PushAnswer::Level(Level::Accepted));
    }

    /// Sends and acknowledges until the push is done. Returns how long the worker was busy.
    fn finish(&mut self) -> Duration {
        let mut busy = Duration::ZERO;
        loop {
            self.now = self.now + Duration::from_micros(10);
            let begin = WallClock::now();
            self.session.poll_transmit(self.now, &mut self.outgoing);
            busy += begin.elapsed();
            for (_, datagram) in self.outgoing.iter() {
                self.packets.clear();
                self.packets.extend_from_slice(datagram);
                let answers = &mut self.answers;
                let one = core::iter::once(self.packets.as_mut_slice());
                self.pipeline.process_burst((1, 0), one, |answer| answers.push(switch(), answer));
            }
            self.outgoing.clear();
            let begin = WallClock::now();
            for (_, answer) in self.answers.iter() {
                self.session.handle_datagrams(self.now, switch(), answer, answer.len());
            }
            busy += begin.elapsed();
            self.answers.clear();
            match self.session.events.pop_front() {
                Some(WorkerEvent::Pushed { number }) if number == self.pushes => return busy,
                Some(event) => panic!("{event:?}"),
                None => {}
            }
        }
    }

    /// Ends the epoch, and makes it durable.
    fn flip(&mut self) {
        let region = self.pipeline.region_mut(1, 0).unwrap();
        let RegionConfig { cells, .. } = *region.config();
        assert_eq!(u64::from(cells), SLOTS + 1);
        let epoch = region.epoch();
        let _ = region::close_epoch(region);
        region.set_durable(epoch);
    }
}

/// Which key a row has.
#[derive(Clone, Copy)]
struct Keys {
    name: &'static str,
    key: fn(u64) -> u64,
}

const AS_SLOTS: Keys = Keys { name: "in the order of slots", key: |row| row };
const SHUFFLED: Keys = Keys { name: "in another order than slots", key: |row| row * 7919 % SLOTS };
const SCATTERED: Keys = Keys { name: "that are hashes", key: |row| row * 2_654_435_761 % KEYS };

/// Distinct rows, their keys ascending.
fn rows(push: u64, of: Keys) -> (Vec<u64>, Vec<f32>) {
    let row = |row| (of.key)(row * 3 + (row + push) % 3);
    let mut keys: Vec<u64> = (0..ROWS_OF_A_PUSH).map(row).collect();
    keys.sort_unstable();
    let gradients = keys.iter().map(|key| ((key * 7 + push) % 1000) as f32 * 0.001 - 0.5).collect();
    (keys, gradients)
}

#[test]
fn a_push_allocates_nothing_once_its_memory_is_there() {
    for entries_max in [16, 240] {
        let mut pair = Pair::new(entries_max, SHUFFLED);
        // What the caller hands over, as many times as it is pushed.
        let pushes: Vec<_> = (0..60).map(|push| rows(push, SHUFFLED)).collect();
        for (push, (keys, gradients)) in pushes.into_iter().enumerate() {
            let allocated = allocation_counter::measure(|| {
                pair.push(keys, gradients);
                pair.finish();
            });
            assert!(push > 0 || allocated.count_total > 0, "the first one needs memory, and is counted");
            // Two epochs, until when packets are kept for a replay.
            assert!(push < 20 || allocated.count_total == 0, "push {push}: {allocated:?}");
            if push % 4 == 3 {
                pair.flip();
            }
        }
    }
}

/// `cargo test --release -p libra-proto --lib speed_of_a_push -- --ignored --nocapture`
#[test]
#[ignore = "a benchmark, for a quiet machine and a release build"]
fn speed_of_a_push() {
    for (entries_max, keys) in [(16, AS_SLOTS), (240, AS_SLOTS), (240, SHUFFLED), (240, SCATTERED)] {
        println!("keys {}:", keys.name);
        let mut pair = Pair::new(entries_max, keys);
        let rows: Vec<_> = (0..8).map(|push| rows(push, keys)).collect();
        let (mut packing, mut sending) = (Vec::new(), Vec::new());
        for round in 0..3000_usize {
            let (keys, gradients) = rows[round % rows.len()].clone();
            let begin = WallClock::now();
            pair.push(keys, gradients);
            packing.push(begin.elapsed());
            sending.push(pair.finish());
            if round % 4 == 3 {
                pair.flip();
            }
        }
        let line = |times: &mut Vec<Duration>| {
            times.sort_unstable();
            let of_pair = |time: Duration| time.as_nanos() as f64 / ROWS_OF_A_PUSH as f64;
            format!(
                "{:.2} ns/pair, median {:.2}",
                of_pair(times[times.len() / 20]),
                of_pair(times[times.len() / 2])
            )
        };
        println!(
            "{entries_max} entries a packet: packing {}; to send {}",
            line(&mut packing),
            line(&mut sending)
        );
    }
}
