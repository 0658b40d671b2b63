//! Cost of a push for a worker, against a pipeline beside it, without sockets.

use core::net::SocketAddr;
use core::time::Duration;

use libra_dataplane::Pipeline;
use libra_plan::{Budget, HotRow, Plan, Provenance, Scale, TableShape};
use libra_store::{Init, Optimizer, TableSpec};

use super::*;
use crate::cluster::{HotPath, Ownership};
use crate::region::{self, SoftRegion};
use crate::transport::flow::FLOW_PACKETS_MAX;
use crate::values::Values;
use crate::worker::WorkerEvent;

const SLOTS: u64 = 30_000;
const ROWS_OF_A_PUSH: u64 = 10_000;

/// A worker and the switch of its one region.
struct SessionHarness {
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

impl SessionHarness {
    fn new(hot_path: HotPath) -> Self {
        let rule = Optimizer::Sgd { rate: 1.0 }.into();
        let table = TableSpec { name: "rows".into(), keys: 0..SLOTS, width: 1, rule, init: Init::Zero };
        let shape = TableShape { name: table.name.clone(), keys: table.keys.clone(), width: 1, hot: true };
        let plan = Plan {
            number: 1,
            provenance: Provenance::default(),
            tables: vec![shape],
            budget: Budget::default(),
            headroom_bits: 12,
            predicted_share: 1.0,
            rows: (0..SLOTS)
                .map(|row| HotRow { key: key(row), count: SLOTS - row, scale: Scale(10) })
                .collect(),
        };
        let mut cluster = Cluster::new(1, vec![table], Some(plan), hot_path);
        let servers = vec![SocketAddr::from(([127, 0, 0, 1], 5000))];
        cluster.shares = 1;
        let ownership = Ownership { owner: Some(0), view_id: 1 };
        let view = View { number: 1, servers, ownerships: vec![ownership], ..View::default() };
        cluster.view = View { switches: [(0, switch())].into(), ..view };
        let (plan, placement) = (cluster.plan.clone().unwrap(), cluster.placement().unwrap().unwrap());
        let config = region::config(&cluster, &plan, &placement.regions()[0], ownership);
        let region = region::open(config, 0xff80, &crate::message::RoundContents::default());
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

    /// The region is held under another view, in which the flow of its worker restarts or not.
    fn enter(&mut self, number: u64, flow: Option<u64>) {
        let mut cluster = (*self.session.cluster).clone();
        let servers = cluster.view.servers.clone();
        let ownership = Ownership { owner: Some(0), view_id: number };
        let flows = flow.map(|view_id| ((0, 0), view_id)).into_iter().collect();
        let switches = [(0, switch())].into();
        let ownerships = vec![ownership];
        cluster.view = View { number, servers, switches, ownerships, flows, ..View::default() };
        let (plan, placement) = (cluster.plan.clone().unwrap(), cluster.placement().unwrap().unwrap());
        let config = region::config(&cluster, &plan, &placement.regions()[0], ownership);
        let region = region::open(config, 0xff80, &crate::message::RoundContents::default());
        self.pipeline = Pipeline::new(vec![region]).unwrap();
        self.session.enter(cluster.view);
    }

    fn push(&mut self, keys: Vec<u64>, gradients: Vec<f32>) {
        self.pushes += 1;
        self.session.push(self.pushes, keys, gradients, PushAnswer::Level(Level::Accepted));
    }

    /// The switch gets what the worker sends now.
    fn send(&mut self) {
        self.now = self.now + Duration::from_micros(10);
        self.session.poll_transmit(self.now, &mut self.outgoing);
        for (_, datagram) in self.outgoing.iter() {
            self.packets.clear();
            self.packets.extend_from_slice(datagram);
            let answers = &mut self.answers;
            let one = core::iter::once(self.packets.as_mut_slice());
            self.pipeline.process_burst((1, 0), one, |answer| answers.push(switch(), answer));
        }
        self.outgoing.clear();
    }

    /// Sends and acknowledges until the push is done.
    fn finish(&mut self) {
        loop {
            self.send();
            self.receive();
            match self.session.events.pop_front() {
                Some(WorkerEvent::Pushed { number }) if number == self.pushes => return,
                Some(event) => panic!("{event:?}"),
                None => {}
            }
        }
    }

    fn receive(&mut self) {
        for (_, answer) in self.answers.iter() {
            self.session.handle_datagrams(self.now, switch(), answer, answer.len());
        }
        self.answers.clear();
    }

    /// Ends the round, and makes it durable.
    fn flip(&mut self) {
        let region = self.pipeline.region_mut(1, 0).unwrap();
        let slots = region.config().slots() as u64;
        assert!((SLOTS + 1..SLOTS + 32).contains(&slots));
        let round = region.round();
        let _ = region::close_round(region);
        region.set_durable(round);
    }
}

/// Keys are in another order than ranks, as in most jobs.
fn key(row: u64) -> u64 {
    row * 7919 % SLOTS
}

fn packets_of(entries_max: u8) -> HotPath {
    HotPath { entries_max, ..HotPath::for_workers(1) }
}

/// Distinct rows, their keys ascending.
fn rows(push: u64) -> (Vec<u64>, Vec<f32>) {
    let row = |row| key(row * 3 + (row + push) % 3);
    let mut keys: Vec<u64> = (0..ROWS_OF_A_PUSH).map(row).collect();
    keys.sort_unstable();
    let gradients = keys.iter().map(|key| ((key * 7 + push) % 1000) as f32 * 0.001 - 0.5).collect();
    (keys, gradients)
}

#[test]
fn a_push_allocates_nothing_once_its_memory_is_there() {
    for hot_path in [packets_of(16), packets_of(240), packets_of(240).with_lanes(16)] {
        let mut harness = SessionHarness::new(hot_path);
        // What the caller hands over, as many times as it is pushed.
        let pushes: Vec<_> = (0..60).map(rows).collect();
        for (push, (keys, gradients)) in pushes.into_iter().enumerate() {
            let allocated = allocation_counter::measure(|| {
                harness.push(keys, gradients);
                harness.finish();
            });
            assert!(push > 0 || allocated.count_total > 0, "the first one needs memory, and is counted");
            // Two rounds, until when packets are kept for a replay.
            assert!(push < 20 || allocated.count_total == 0, "push {push}: {allocated:?}");
            if push % 4 == 3 {
                harness.flip();
            }
        }
    }
}

// rules C5, T18
#[test]
fn a_flow_without_numbers_is_renewed_once_all_it_had_is_durable() {
    let mut harness = SessionHarness::new(packets_of(16));
    harness.session.hot.as_mut().unwrap().use_up_numbers(2);
    harness.enter(2, None);
    let mut keys: Vec<u64> = (0..40).map(key).collect();
    keys.sort_unstable();
    harness.push(keys.clone(), vec![1.0; 40]);
    let counts = harness.session.statistics();
    assert_eq!((counts.rows_hot, counts.rows_cold), (32, 8), "two packets had numbers");
    assert_eq!(harness.session.poll_renewal(), None, "they are not durable");
    harness.session.flush(100);
    let Some((0, Message::Push(cold))) = harness.session.poll_message() else {
        panic!("the rest goes to its shard")
    };
    let pushed = Message::Pushed { number: cold.number, view: 2, values: Values::default() };
    harness.session.handle_message(0, pushed).unwrap();
    harness.finish();
    let region = harness.pipeline.region(1, 0).unwrap();
    let taken: Vec<_> = region.window(0).unwrap().accepted().collect();
    assert_eq!(taken.last(), Some(&(FLOW_PACKETS_MAX - 2..FLOW_PACKETS_MAX)));
    harness.flip();
    while !matches!(harness.session.events.front(), Some(WorkerEvent::Flushed { number: 100 })) {
        harness.now = harness.session.poll_timeout().expect("a packet waits to be durable");
        harness.session.handle_timeout(harness.now);
        harness.send();
        harness.receive();
    }
    harness.session.events.clear();
    assert_eq!(harness.session.poll_renewal(), Some(Message::Renew { region: 0, view_id: 0 }));
    assert_eq!(harness.session.poll_renewal(), None, "that is reported once");
    assert!(
        harness.session.renewals_asked().eq([Message::Renew { region: 0, view_id: 0 }]),
        "and to another controller"
    );
    // A region that only moves changes nothing.
    harness.enter(3, None);
    harness.push(keys.clone(), vec![1.0; 40]);
    assert_eq!(harness.session.statistics().rows_hot, 32);
    harness
        .session
        .handle_message(0, Message::Pushed { number: 2, view: 3, values: Values::default() })
        .unwrap();
    harness.finish();
    harness.enter(4, Some(4));
    assert_eq!(harness.session.renewals_asked().count(), 0);
    harness.push(keys, vec![1.0; 40]);
    assert_eq!(harness.session.statistics().rows_hot, 72);
    harness.finish();
    let mut taken = harness.pipeline.region(1, 0).unwrap().window(0).unwrap().accepted();
    assert_eq!((taken.next(), taken.next()), (Some(0..3), None));
}

// rules C5, E1
#[test]
fn the_last_packet_is_marked_if_later_rows_are_too_large() {
    for (too_large, lanes) in (0..=40).flat_map(|too_large| [(too_large, 1), (too_large, 16)]) {
        let mut harness = SessionHarness::new(packets_of(16).with_lanes(lanes));
        let mut keys: Vec<u64> = (0..40).map(key).collect();
        if lanes == 1 {
            // Then slots are in the order of keys, and not of ranks.
            keys.sort_unstable();
        }
        let gradients = (0..40).map(|row| if row < 40 - too_large { 1.0 } else { 1e9 }).collect();
        harness.push(keys, gradients);
        harness.send();
        let region = harness.pipeline.region(1, 0).unwrap();
        let sent = 40_u32 - too_large;
        assert_eq!(region.pushes_in_bank(), sent.div_ceil(16), "{too_large} too large");
        assert_eq!(region.last_in_bank(), u32::from(sent > 0), "{too_large} too large");
        assert_eq!(harness.session.statistics().rows_too_large, u64::from(too_large));
    }
}
