//! Rows that are made late, and rows that go.

use libra_store::{Admission, Eviction, RowLifecycle};

use super::durability::{Disk, LOG};
use super::harness::{CONTROLLER, ServerHarness, address, drained, push};
use crate::cluster::{Durability, Peer};
use crate::message::Message;
use crate::server::Server;
use crate::storage::StorageRequest;
use crate::testing::{HOT_ROWS, ROWS, WIDTH};

/// A row that no switch holds.
const COLD: u64 = HOT_ROWS;
const EVICTIONS: [Eviction; 3] = [
    Eviction::Idle { steps: 3 },
    Eviction::LeastUsed { rows_max: 4, half_life: 5 },
    Eviction::LowestNorm { rows_max: 4 },
];

fn evicting(eviction: Eviction) -> RowLifecycle {
    RowLifecycle { eviction: Some(eviction), ..RowLifecycle::default() }
}

fn third_gradient() -> RowLifecycle {
    RowLifecycle {
        admission: Some(Admission::Occurrences { updates: 3, keys: 1000 }),
        ..RowLifecycle::default()
    }
}

fn with_disk(durability: Durability, growth: RowLifecycle) -> (ServerHarness, Disk) {
    let mut harness = ServerHarness::growing(Server::new(address(1)).with_disk(), durability, growth);
    let mut disk = Disk::default();
    disk.serve(&mut harness, 0);
    assert!(matches!(harness.answers(CONTROLLER).last(), Some(Message::Viewed { number: 1 })));
    (harness, disk)
}

/// The bits of all rows, as a worker reads them.
fn rows(harness: &mut ServerHarness) -> Vec<u32> {
    (0..ROWS).map(|key| harness.value(key).to_bits()).collect()
}

/// Cold pushes and a round now and then, whose answers are not awaited.
fn work(harness: &mut ServerHarness, disk: &mut Disk, rounds: core::ops::Range<u64>) {
    let worker = harness.call(Peer::Worker(1));
    let switch = harness.call(Peer::Switch(0));
    harness.adopt(switch, 1);
    for round in rounds {
        for number in 3 * round + 1..3 * round + 4 {
            let key = COLD + number * 7 % (ROWS - COLD);
            #[expect(clippy::cast_precision_loss, reason = "small numbers")]
            harness.send(worker, push(number, &[key, COLD + 1], number as f32));
        }
        harness.send(switch, drained(1, round + 1, 5));
        disk.serve(harness, usize::MAX);
    }
}

// rules G2, L3
#[test]
fn a_server_that_is_started_again_has_let_the_same_rows_go() {
    for eviction in EVICTIONS {
        let (mut harness, mut disk) = with_disk(LOG, evicting(eviction));
        work(&mut harness, &mut disk, 0..12);
        let gone = harness.statistics().rows_evicted;
        assert!(gone > 10, "{eviction:?}: {gone}");
        let mut again = disk.restart(harness.view());
        assert_eq!(rows(&mut again), rows(&mut harness), "{eviction:?}");
        let (now, then) = (again.statistics(), harness.statistics());
        assert_eq!((now.rows, now.rows_evicted), (then.rows, then.rows_evicted), "{eviction:?}");

        // Of a checkpoint and what comes after it, too.
        harness.send(CONTROLLER, Message::Checkpoint { number: 2 });
        disk.serve(&mut harness, usize::MAX);
        assert_eq!(disk.records, []);
        work(&mut harness, &mut disk, 12..20);
        assert!(harness.statistics().rows_evicted > gone);
        let mut again = disk.restart(harness.view());
        assert_eq!(rows(&mut again), rows(&mut harness), "{eviction:?}");
        assert_eq!(again.statistics().rows_evicted, harness.statistics().rows_evicted, "{eviction:?}");
    }
}

// rules G2, L1
#[test]
fn evicted_rows_are_logged_right_behind_their_cause() {
    let (mut harness, mut disk) = with_disk(LOG, evicting(Eviction::Idle { steps: 2 }));
    let worker = harness.call(Peer::Worker(1));
    let appended = |harness: &ServerHarness| {
        harness.requests.iter().filter(|requests| matches!(requests, StorageRequest::Append { .. })).count()
    };
    for (number, key, records) in [(1, COLD, 1), (2, COLD + 1, 1), (3, COLD + 1, 2), (4, COLD + 1, 1)] {
        assert_eq!(harness.request(worker, push(number, &[key], 1.0)), []);
        assert_eq!(appended(&harness), records, "push {number}");
        if number == 3 {
            // The answer rests on both.
            disk.serve(&mut harness, 1);
            assert_eq!(harness.answers(worker), []);
            harness.send(worker, push(3, &[key], 1.0));
            break;
        }
        disk.serve(&mut harness, records);
        assert_eq!(harness.answers(worker).len(), 1);
    }
    assert_eq!((harness.value(COLD), harness.value(COLD + 1)), (0.0, -2.0));
}

// rule G2
#[test]
fn the_owner_of_a_row_that_went_is_told() {
    let (mut harness, _) = with_disk(
        Durability { checkpoint_every: Some(core::time::Duration::from_secs(1)), ..Durability::NONE },
        evicting(Eviction::LowestNorm { rows_max: 1 }),
    );
    let worker = harness.call(Peer::Worker(1));
    let switch = harness.call(Peer::Switch(0));
    harness.adopt(switch, 1);
    assert!(harness.commit(switch, 1, 1, 5).is_some());
    assert_eq!(harness.value(0), -5.0);
    assert_eq!(harness.answers(switch), []);
    harness.send(worker, push(1, &[COLD], 10.0));
    let sent = harness.answers(switch);
    let [Message::Changed(changed)] = sent.as_slice() else { panic!("{sent:?}") };
    let width = u16::try_from(WIDTH).unwrap();
    assert_eq!((&changed.values.slots, &changed.values.values.0), (&vec![(0, width)], &vec![0; WIDTH]));
    // What comes to it is new.
    assert!(harness.commit(switch, 1, 2, 30).is_some());
    assert_eq!(harness.value(0), -30.0);
}

// rule G2
#[test]
fn a_row_of_the_plan_does_not_go_by_age_or_use() {
    for eviction in [Eviction::Idle { steps: 2 }, Eviction::LeastUsed { rows_max: 2, half_life: 1000 }] {
        let mut harness =
            ServerHarness::growing(Server::new(address(1)), Durability::NONE, evicting(eviction));
        let worker = harness.call(Peer::Worker(1));
        let switch = harness.call(Peer::Switch(0));
        harness.adopt(switch, 1);
        // While the switch sums a hundred gradients of row 0 in a round, other rows get a few pushes each.
        for round in 0..10 {
            assert!(harness.commit(switch, 1, round + 1, 100).is_some());
            for number in 6 * round + 1..6 * round + 7 {
                harness.send(worker, push(number, &[COLD + number % 3], 1.0));
            }
            assert_eq!(harness.answers(switch), [], "{eviction:?}: no value has changed but by rounds");
        }
        assert_eq!(harness.value(0), -1000.0, "{eviction:?}");
        assert!(harness.statistics().rows_evicted > 10, "{eviction:?}: rows beside the plan go as before");
    }
}

// rule G1
#[test]
fn gradients_that_make_no_row_are_acknowledged_and_counted_once() {
    let mut harness = ServerHarness::growing(Server::new(address(1)), Durability::NONE, third_gradient());
    let worker = harness.call(Peer::Worker(1));
    let switch = harness.call(Peer::Switch(0));
    harness.adopt(switch, 1);
    for (number, value) in [(1, 0.0), (1, 0.0), (2, 0.0), (2, 0.0), (3, -4.0), (3, -4.0), (4, -8.0)] {
        let answers = harness.request(worker, push(number, &[COLD], 4.0));
        let [Message::Pushed { values, .. }] = answers.as_slice() else { panic!("{answers:?}") };
        assert_eq!(values.clone().into_vec(), [value; WIDTH], "push {number}");
    }
    // A round is one gradient (rule E6), and what comes again is none.
    for (round, value) in [(1, 0.0), (1, 0.0), (2, 0.0), (2, 0.0), (3, -4.0), (4, -8.0)] {
        assert!(harness.commit(switch, 1, round, 4).is_some());
        assert_eq!(harness.value(0), value, "round {round}");
    }
    assert_eq!(harness.statistics().gradients_not_admitted, 4);
}

// rules G1, L2
#[test]
fn a_checkpoint_has_what_admission_has_counted() {
    // Also one that builds on another, which had counts that did not change since.
    for increments in [0, 5] {
        for log in [true, false] {
            let every = Some(core::time::Duration::from_secs(1));
            let durability = Durability { log, checkpoint_every: every, increments, ..Durability::NONE };
            let (mut harness, mut disk) = with_disk(durability.clone(), third_gradient());
            let worker = harness.call(Peer::Worker(1));
            for key in COLD..COLD + 10 {
                harness.send(worker, push(key, &[key], 1.0));
            }
            disk.serve(&mut harness, usize::MAX);
            harness.send(CONTROLLER, Message::Checkpoint { number: 2 });
            disk.serve(&mut harness, usize::MAX);
            harness.send(worker, push(98, &[COLD], 1.0));
            disk.serve(&mut harness, usize::MAX);
            harness.send(CONTROLLER, Message::Checkpoint { number: 3 });
            disk.serve(&mut harness, usize::MAX);
            assert_eq!(disk.records, []);

            let mut again = disk.restart(harness.view());
            assert_eq!(again.statistics().gradients_not_admitted, 11);
            let keys = [COLD, COLD + 1];
            for (number, values) in [(99, [-1.0, 0.0]), (100, [-2.0, -1.0]), (101, [-3.0, -2.0])] {
                for harness in [&mut harness, &mut again] {
                    let worker = harness.call(Peer::Worker(1));
                    harness.send(worker, push(number, &keys, 1.0));
                    assert_eq!(keys.map(|key| harness.value(key)), values, "{number}, {durability:?}");
                }
            }
            let dropped = |harness: &ServerHarness| harness.statistics().gradients_not_admitted;
            assert_eq!((dropped(&harness), dropped(&again)), (12, 12));
        }
    }
}
