//! Gradients that are not finite, from workers that do not check.

use super::counter::{CONTROLLER, Counter, NOW, cut, push, pushed};
use super::durability::with_log_in;
use crate::bulk::Bulk;
use crate::cluster::{ArithmeticMode, Cluster, HotPath, Peer};
use crate::membership::HEARTBEAT_INTERVAL;
use crate::message::{Answered, ColdPush, Drained, Hello, Message};
use crate::region::EPOCHS_BEGIN_AFTER;
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
fn told(counter: &mut Counter) -> Vec<(Option<u16>, u64, u64)> {
    let said = counter.answers(CONTROLLER).into_iter();
    said.filter_map(|message| match message {
        Message::GradientsRefused { worker, table: 0, key, count } => Some((worker, key, count)),
        _ => None,
    })
    .collect()
}

// rule C11
#[test]
fn a_push_that_is_not_finite_is_refused_whole_and_answered() {
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut counter = Counter::new();
        let worker = counter.call(Worker(1));
        assert_eq!(counter.ask(worker, bad(1, value)), [refused(1, COLD + 1, 1, value)]);
        assert_eq!((counter.value(COLD), counter.value(COLD + 1)), (0.0, 0.0));
        assert_eq!(counter.statistics().rows, 0);
        // Again it is refused again, also behind a later one; and the stream goes on.
        assert_eq!(counter.ask(worker, bad(1, value)), [refused(1, COLD + 1, 1, value)]);
        assert_eq!(counter.ask(worker, push(2, &[COLD], 1.0)), [pushed(2, &[-1.0; 2])]);
        assert_eq!(counter.ask(worker, bad(1, value)), [refused(1, COLD + 1, 1, value)]);
        assert_eq!(counter.closed, []);
        let counts = counter.statistics();
        assert_eq!((counts.pushes_refused, counts.duplicates, counts.dropped), (3, 0, 0));
    }
}

// rules C11, L1, L4
#[test]
fn refusals_are_not_logged_and_are_refused_again_after_a_crash() {
    let (mut counter, mut disk) = with_log_in(testing::cluster(4));
    let worker = counter.call(Worker(1));
    counter.say(worker, push(1, &[COLD], 1.0));
    disk.serve(&mut counter, 1);
    assert_eq!(counter.answers(worker).len(), 1);
    // It rests on nothing that must be durable.
    assert_eq!(counter.ask(worker, bad(2, f32::NAN)), [refused(2, COLD + 1, 1, f32::NAN)]);
    assert!(counter.asked.iter().all(|request| !matches!(request, StorageRequest::Append { .. })));
    counter.say(worker, push(3, &[COLD], 1.0));
    disk.serve(&mut counter, 1);
    assert_eq!(counter.answers(worker).len(), 1);

    let mut counter = disk.restart(counter.view());
    // The worker counts the refused pushes as little as the shard does: nothing is reported as lost.
    let answered = Answered { newest: 3, count: 2 };
    let worker = counter.call_with(Hello { instance: JOB.into(), from: Worker(1), answered });
    assert_eq!(counter.ask(worker, bad(2, f32::NAN)), [refused(2, COLD + 1, 1, f32::NAN)]);
    assert_eq!((counter.value(COLD), counter.value(COLD + 1)), (-2.0, 0.0));
    assert_eq!(counter.statistics().lost_pushes, 0);
}

fn f32_cluster() -> Cluster {
    let cluster = testing::cluster(4);
    let hot_path = HotPath { arithmetic: ArithmeticMode::F32, ..cluster.hot_path.clone() };
    Cluster { hot_path, ..cluster }
}

/// An epoch of the first three rows, of which the second has a sum that is not finite.
fn overflown() -> Message {
    let sums = [1.0f32, 2.0, f32::INFINITY, 1.0, 3.0, 4.0];
    Message::Drained(Drained {
        region: 0,
        since: 1,
        epoch: EPOCHS_BEGIN_AFTER + 1,
        cut: cut(1),
        slots: vec![(0, u16::try_from(3 * WIDTH).unwrap())],
        sums: Bulk(sums.map(f32::to_bits).to_vec()),
    })
}

// rules C11, L3
#[test]
fn rows_of_a_round_are_refused_alone_and_again_on_replay() {
    let (mut counter, mut disk) = with_log_in(f32_cluster());
    let switch = counter.call(Switch(0));
    counter.adopt(switch, 1).unwrap();
    counter.answers(CONTROLLER);
    counter.say(switch, overflown());
    disk.serve(&mut counter, 1);
    let answers = counter.answers(switch);
    let [Message::Committed(committed)] = answers.as_slice() else { panic!("{answers:?}") };
    let values = [-1.0f32, -2.0, 0.0, 0.0, -3.0, -4.0];
    assert_eq!(committed.values.values.0, values.map(f32::to_bits));
    assert_eq!((counter.statistics().sums_refused, counter.statistics().row_updates_hot), (1, 2));
    assert_eq!(told(&mut counter), [(None, 1, 1)]);

    let mut again = disk.restart(counter.view());
    for row in 0..3 {
        assert_eq!(again.value(row).to_bits(), counter.value(row).to_bits());
    }
    assert_eq!(again.statistics().sums_refused, 1);
    let switch = again.call(Switch(0));
    let adopted = again.adopt(switch, 1).unwrap();
    assert_eq!((adopted.epoch, adopted.cut), (1, cut(1)));
}

// rule C11
#[test]
fn the_controller_gets_the_first_and_then_with_heartbeats() {
    let mut counter = Counter::new();
    let worker = counter.call(Worker(1));
    for number in 1..=5 {
        counter.say(worker, bad(number, f32::NAN));
    }
    assert_eq!(told(&mut counter), [(Some(1), COLD + 1, 1)]);
    let other = counter.call(Worker(2));
    counter.say(other, bad(1, f32::NAN));
    assert_eq!(told(&mut counter), [(Some(2), COLD + 1, 1)]);
    let mut now = NOW;
    let mut heartbeat = |counter: &mut Counter| {
        now = now + HEARTBEAT_INTERVAL;
        counter.server.handle_timeout(now);
        counter.collect();
        told(counter)
    };
    assert_eq!(heartbeat(&mut counter), [(Some(1), COLD + 1, 5)]);
    assert_eq!(heartbeat(&mut counter), []);
}

// rule C11
#[test]
fn a_worker_that_never_checks_does_not_fill_memory_of_others() {
    let mut counter = Counter::new();
    let workers = u16::try_from(REFUSALS_MAX).unwrap() + 10;
    counter.answers(CONTROLLER);
    counter.seat(0..workers);
    for worker in 0..workers {
        let link = counter.call(Worker(worker));
        counter.say(link, bad(1, f32::NAN));
    }
    assert_eq!(told(&mut counter).len(), REFUSALS_MAX);
    assert_eq!(counter.statistics().pushes_refused, u64::from(workers));
}
