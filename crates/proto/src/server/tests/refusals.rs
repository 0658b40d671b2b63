//! Gradients that are not finite, from workers that do not check.

use super::durability::with_log_in;
use super::harness::{CONTROLLER, NOW, ServerHarness, contents, push, pushed};
use crate::authentication::Pass;
use crate::bulk::Bulk;
use crate::cluster::{ArithmeticMode, Cluster, HotPath, Peer};
use crate::membership::HEARTBEAT_INTERVAL;
use crate::message::{Answered, ColdPush, Drained, Hello, Message};
use crate::region::ROUNDS_BEGIN_AFTER;
use crate::role::Role;
use crate::server::REFUSALS_MAX;
use crate::storage::StorageRequest;
use crate::testing::{self, HOT_ROWS, JOB, WIDTH};

use Peer::{Switch, Worker};

/// Not in any region.
const COLD: u64 = HOT_ROWS + 1;

fn refused(number: u64, key: u64, lane: u32, value: f32) -> Message {
    Message::PushRefused { number, key, lane, bits: value.to_bits() }
}

/// A push to two cold rows, with one value for the second one that is not finite.
fn bad(number: u64, value: f32) -> Message {
    let gradients = vec![1.0, 1.0, 1.0, value].into();
    Message::Push(ColdPush { number, keys: [COLD, COLD + 1].as_slice().into(), gradients, answer: false })
}

/// The refusals that were reported to the controller since the last look.
fn reported(harness: &mut ServerHarness) -> Vec<(Option<u16>, u64, u64)> {
    let sent = harness.answers(CONTROLLER).into_iter();
    sent.filter_map(|message| match message {
        Message::GradientsRefused { worker, table: 0, key, count } => Some((worker, key, count)),
        _ => None,
    })
    .collect()
}

// rule C11
#[test]
fn a_push_that_is_not_finite_is_refused_whole_and_answered() {
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut harness = ServerHarness::new();
        let worker = harness.call(Worker(1));
        assert_eq!(harness.request(worker, bad(1, value)), [refused(1, COLD + 1, 1, value)]);
        assert_eq!((harness.value(COLD), harness.value(COLD + 1)), (0.0, 0.0));
        assert_eq!(harness.statistics().rows, 0);
        // Again it is refused again, also behind a later one; and the stream goes on.
        assert_eq!(harness.request(worker, bad(1, value)), [refused(1, COLD + 1, 1, value)]);
        assert_eq!(harness.request(worker, push(2, &[COLD], 1.0)), [pushed(2, &[-1.0; 2])]);
        assert_eq!(harness.request(worker, bad(1, value)), [refused(1, COLD + 1, 1, value)]);
        assert_eq!(harness.closed, []);
        let counts = harness.statistics();
        assert_eq!((counts.pushes_refused, counts.duplicates, counts.dropped), (3, 0, 0));
    }
}

// rules C11, L1, L4
#[test]
fn refusals_are_not_logged_and_are_refused_again_after_a_crash() {
    let (mut harness, mut disk) = with_log_in(testing::cluster(4));
    let worker = harness.call(Worker(1));
    harness.send(worker, push(1, &[COLD], 1.0));
    disk.serve(&mut harness, 1);
    assert_eq!(harness.answers(worker).len(), 1);
    // It rests on nothing that must be durable.
    assert_eq!(harness.request(worker, bad(2, f32::NAN)), [refused(2, COLD + 1, 1, f32::NAN)]);
    assert!(harness.requests.iter().all(|request| !matches!(request, StorageRequest::Append { .. })));
    harness.send(worker, push(3, &[COLD], 1.0));
    disk.serve(&mut harness, 1);
    assert_eq!(harness.answers(worker).len(), 1);

    let mut harness = disk.restart(harness.view());
    // The worker counts the refused pushes as little as the shard does: nothing is reported as lost.
    let answered = Answered { newest: 3, count: 2 };
    let worker = harness.call_with(Hello {
        pass: Pass::default(),
        instance: JOB.into(),
        from: Worker(1),
        to: 0,
        answered,
    });
    assert_eq!(harness.request(worker, bad(2, f32::NAN)), [refused(2, COLD + 1, 1, f32::NAN)]);
    assert_eq!((harness.value(COLD), harness.value(COLD + 1)), (-2.0, 0.0));
    assert_eq!(harness.statistics().lost_pushes, 0);
}

fn f32_cluster() -> Cluster {
    let cluster = testing::cluster(4);
    let hot_path = HotPath { arithmetic: ArithmeticMode::F32, ..cluster.hot_path.clone() };
    Cluster { hot_path, ..cluster }
}

/// A round of the first three rows, of which the second has a sum that is not finite.
fn overflown() -> Message {
    let sums = [1.0f32, 2.0, f32::INFINITY, 1.0, 3.0, 4.0];
    let drained = Drained {
        region: 0,
        view_id: 1,
        round: ROUNDS_BEGIN_AFTER + 1,
        contents: contents(1),
        slots: vec![(0, u16::try_from(3 * WIDTH).unwrap())],
        sums: Bulk(sums.map(f32::to_bits).to_vec()),
    };
    Message::Drained(drained.into())
}

// rules C11, L3
#[test]
fn rows_of_a_round_are_refused_alone_and_again_on_replay() {
    let (mut harness, mut disk) = with_log_in(f32_cluster());
    let switch = harness.call(Switch(0));
    harness.adopt(switch, 1).unwrap();
    harness.answers(CONTROLLER);
    harness.send(switch, overflown());
    disk.serve(&mut harness, 1);
    let answers = harness.answers(switch);
    let [Message::Committed(committed)] = answers.as_slice() else { panic!("{answers:?}") };
    let values = [-1.0f32, -2.0, 0.0, 0.0, -3.0, -4.0];
    assert_eq!(committed.values.values.0, values.map(f32::to_bits));
    assert_eq!((harness.statistics().sums_refused, harness.statistics().row_updates_hot), (1, 2));
    assert_eq!(reported(&mut harness), [(None, 1, 1)]);

    let mut again = disk.restart(harness.view());
    for row in 0..3 {
        assert_eq!(again.value(row).to_bits(), harness.value(row).to_bits());
    }
    assert_eq!(again.statistics().sums_refused, 1);
    let switch = again.call(Switch(0));
    let adopted = again.adopt(switch, 1).unwrap();
    assert_eq!((adopted.round, adopted.contents), (1, contents(1)));
}

// rule C11
#[test]
fn the_controller_gets_the_first_and_then_with_heartbeats() {
    let mut harness = ServerHarness::new();
    let worker = harness.call(Worker(1));
    for number in 1..=5 {
        harness.send(worker, bad(number, f32::NAN));
    }
    assert_eq!(reported(&mut harness), [(Some(1), COLD + 1, 1)]);
    let other = harness.call(Worker(2));
    harness.send(other, bad(1, f32::NAN));
    assert_eq!(reported(&mut harness), [(Some(2), COLD + 1, 1)]);
    let mut now = NOW;
    let mut heartbeat = |harness: &mut ServerHarness| {
        now = now + HEARTBEAT_INTERVAL;
        harness.server.handle_timeout(now);
        harness.collect();
        reported(harness)
    };
    assert_eq!(heartbeat(&mut harness), [(Some(1), COLD + 1, 5)]);
    assert_eq!(heartbeat(&mut harness), []);
}

// rule C11
#[test]
fn a_worker_that_never_checks_does_not_fill_memory_of_others() {
    let mut harness = ServerHarness::new();
    let workers = u16::try_from(REFUSALS_MAX).unwrap() + 10;
    harness.answers(CONTROLLER);
    harness.add_workers(0..workers);
    for worker in 0..workers {
        let link = harness.call(Worker(worker));
        harness.send(link, bad(1, f32::NAN));
    }
    assert_eq!(reported(&mut harness).len(), REFUSALS_MAX);
    assert_eq!(harness.statistics().pushes_refused, u64::from(workers));
}
