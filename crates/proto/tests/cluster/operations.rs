//! Requests that a worker may make, and the guarantees that it has.

use core::time::Duration;

use libra_faultsim::{ClusterHarness, Event, HarnessConfig, Host, Random, Sums, draw_push, whole};
use libra_proto::{ClientError, Level, Message, PullId, WorkerCommand, WorkerEvent};

const EMBEDDING_WIDTH: usize = 3;
const DENSE_WIDTH: usize = 40;
const HOT_ROWS: u64 = 25;

fn bad(servers: u16, switches: u16, workers: u16) -> HarnessConfig {
    HarnessConfig::small(servers, switches, workers).bad()
}

fn push_pull(
    harness: &mut ClusterHarness,
    worker: Host,
    keys: &[u64],
    gradients: &[f32],
) -> (Vec<u64>, Vec<f32>) {
    let id = PullId(harness.number());
    let (keys, gradients) = (keys.to_vec(), gradients.to_vec());
    harness.command(worker, WorkerCommand::PushPull { id, keys, gradients });
    harness.wait_for_pull(worker, id)
}

// rules C2, E7
#[test]
fn a_visible_push_is_read_by_the_next_pull() {
    for switches in [0, 1, 2] {
        let mut harness = ClusterHarness::started(bad(2, switches, 2));
        let (mut random, mut sums) = (Random::new(3), Sums::zero(&harness.config.rows));
        for step in 0..30 {
            let worker = harness.workers().start + step % 2;
            let (keys, gradients) = draw_push(&harness.config.rows, &mut random, &mut whole);
            sums.add(&harness.config.rows, &keys, &gradients);
            let push = harness.push(worker, &keys, &gradients, Level::Visible);
            harness.wait_for_push(worker, push);
            harness.check_values(&sums).unwrap();
        }
    }
}

// rules C2, C5
#[test]
fn a_flush_makes_all_pushes_visible_even_those_too_large() {
    let mut config = bad(2, 1, 2);
    // Integers up to 2^7 - 1. No worker pushes to the switch after the large ones, which go past it.
    config.plan.as_mut().unwrap().headroom_bits = 24;
    for level in [Level::Accepted, Level::Visible] {
        let mut harness = ClusterHarness::started(config.clone());
        let worker = harness.workers().start;
        let mut sums = Sums::zero(&harness.config.rows);
        for keys in [[1, 2, 55], [2, 3, 55]] {
            let gradients = [1000.0; 3 * EMBEDDING_WIDTH];
            sums.add(&harness.config.rows, &keys, &gradients);
            let push = harness.push(worker, &keys, &gradients, level);
            if level == Level::Visible {
                harness.wait_for_push(worker, push);
            }
        }
        if level == Level::Accepted {
            harness.flush_all();
        }
        harness.check_values(&sums).unwrap();
    }
}

#[test]
fn a_flush_with_nothing_under_way_is_answered_at_once() {
    let mut harness = ClusterHarness::started(HarnessConfig::small(1, 1, 1));
    let before = harness.world.now();
    harness.flush_all();
    assert_eq!(harness.world.now(), before);
}

#[test]
fn a_push_with_pull_adds_and_reads_in_one_trip() {
    let mut harness = ClusterHarness::started(HarnessConfig::small(2, 2, 1));
    let worker = harness.workers().start;
    let (hot, cold) = (3, 50);
    let gradients = [2.0; 3 * EMBEDDING_WIDTH];
    // A key that is there twice is answered once.
    let (keys, values) = push_pull(&mut harness, worker, &[cold, hot, cold], &gradients);
    assert_eq!(keys, [cold, hot]);
    let (cold_row, hot_row) = values.split_at(EMBEDDING_WIDTH);
    assert_eq!(cold_row, [-4.0; EMBEDDING_WIDTH], "a shard applies before it answers");
    assert_eq!(hot_row, [0.0; EMBEDDING_WIDTH], "a switch answers with what it has while the round runs");
    harness.flush_all();
    let (_, values) = push_pull(&mut harness, worker, &[hot], &[0.0; EMBEDDING_WIDTH]);
    assert_eq!(values, [-2.0; EMBEDDING_WIDTH]);
}

#[test]
fn pushes_with_pull_lose_nothing_either() {
    let mut config = bad(2, 2, 3);
    config.plan.as_mut().unwrap().headroom_bits = 24;
    let mut harness = ClusterHarness::started(config);
    let (mut random, mut sums) = (Random::new(8), Sums::zero(&harness.config.rows));
    for step in 0..40 {
        let worker = harness.workers().start + step % 3;
        let large =
            &mut |random: &mut Random| whole(random) + if random.chance(1.0 / 60.0) { 1000.0 } else { 0.0 };
        let (keys, gradients) = draw_push(&harness.config.rows, &mut random, large);
        sums.add(&harness.config.rows, &keys, &gradients);
        push_pull(&mut harness, worker, &keys, &gradients);
    }
    harness.flush_all();
    harness.check_values(&sums).unwrap();
}

#[test]
fn operations_without_rows_are_complete() {
    let mut harness = ClusterHarness::started(HarnessConfig::small(1, 1, 1));
    let worker = harness.workers().start;
    assert_eq!(harness.pull(worker, &[]), Vec::<f32>::new());
    assert_eq!(push_pull(&mut harness, worker, &[], &[]), (vec![], vec![]));
    let push = harness.push(worker, &[], &[], Level::Visible);
    harness.wait_for_push(worker, push);
}

#[test]
fn invalid_operations_are_refused_and_nothing_of_them_is_sent() {
    let mut harness = ClusterHarness::started(HarnessConfig::small(2, 1, 1));
    let worker = harness.workers().start;
    let refused = |harness: &mut ClusterHarness, keys: &[u64], gradients: &[f32]| {
        let number = harness.push(worker, keys, gradients, Level::Accepted);
        let is_it = |event: &Event| matches!(event, Event::Worker(WorkerEvent::Refused { number: of, .. }) if *of == number);
        match harness.wait_for(worker, is_it) {
            Event::Worker(WorkerEvent::Refused { error, .. }) => error,
            other => unreachable!("{other:?}"),
        }
    };
    let row = [1.0; EMBEDDING_WIDTH];
    assert_eq!(refused(&mut harness, &[999], &row), ClientError::UnknownKey { key: 999 });
    let wrong =
        ClientError::WrongLength { keys: 2, expected: EMBEDDING_WIDTH + DENSE_WIDTH, found: EMBEDDING_WIDTH };
    assert_eq!(refused(&mut harness, &[1, 1000], &row), wrong);
    let tables = harness.config.rows.tables();
    let table = |key| tables.iter().find(|table| table.keys.contains(&key)).unwrap().name.clone();
    for gradient in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let wrong = ClientError::NotFinite { table: table(50), key: 50, lane: 1, bits: gradient.to_bits() };
        assert_eq!(refused(&mut harness, &[50], &[1.0, gradient, 1.0]), wrong);
    }
    // Each is finite, and their sum is not.
    let largest = [f32::MAX; 2 * EMBEDDING_WIDTH];
    for key in [3, 50] {
        let bits = f32::INFINITY.to_bits();
        let wrong = ClientError::NotFinite { table: table(key), key, lane: 0, bits };
        assert_eq!(refused(&mut harness, &[key, key], &largest), wrong);
    }
    let nothing = Sums::zero(&harness.config.rows);
    assert_eq!(harness.check_values(&nothing), Ok(()));
}

// rule C11
#[test]
fn a_refused_push_ends_with_table_and_row_after_its_other_parts() {
    let mut harness = ClusterHarness::started(HarnessConfig::small(1, 0, 1));
    harness.world.observer.checkers = None;
    let (server, worker) = (harness.servers().start, harness.workers().start);
    let table = harness.config.rows.tables().into_iter().find(|table| table.keys.contains(&50)).unwrap().name;
    let bits = f32::NAN.to_bits();
    let refuse = |harness: &mut ClusterHarness, number| {
        let message = Message::PushRefused { number, key: 50, lane: 2, bits };
        harness.world.forge(server, worker, &message);
    };
    let error = ClientError::Refused { server: 0, table, key: 50, lane: 2, bits };
    let first = harness.push(worker, &[50], &[1.0; EMBEDDING_WIDTH], Level::Visible);
    refuse(&mut harness, 1);
    let is_it = |event: &Event| matches!(event, Event::Worker(WorkerEvent::Refused { .. }));
    let refused = Event::Worker(WorkerEvent::Refused { number: first, error });
    assert_eq!(harness.wait_for(worker, is_it), refused);
    // What was refused once is not answered twice, and a refusal of nothing changes nothing.
    refuse(&mut harness, 1);
    refuse(&mut harness, 77);
    harness.flush_all();
    let second = harness.push(worker, &[50], &[1.0; EMBEDDING_WIDTH], Level::Visible);
    harness.wait_for_push(worker, second);
}

// rule M10
#[test]
fn a_barrier_holds_until_everybody_is_there() {
    let mut harness = ClusterHarness::started(bad(1, 1, 3));
    let workers: Vec<_> = harness.workers().collect();
    for number in 0..3 {
        let released = |event: &Event| *event == Event::Worker(WorkerEvent::Released { number });
        for worker in &workers[1..] {
            harness.command(*worker, WorkerCommand::Barrier { number });
        }
        harness.run_for(Duration::from_millis(50));
        let before = harness.world.now();
        harness.command(workers[0], WorkerCommand::Barrier { number });
        for worker in &workers {
            harness.wait_for(*worker, released);
        }
        assert!(harness.world.now() > before, "the answers come after the last one has asked");
    }
}

#[test]
fn many_operations_may_be_under_way() {
    let mut harness = ClusterHarness::started(bad(3, 2, 1));
    let worker = harness.workers().start;
    let pulls: Vec<_> = (0..50).map(|_| PullId(harness.number())).collect();
    for id in &pulls {
        harness.command(worker, WorkerCommand::Pull { id: *id, keys: harness.config.rows.keys() });
    }
    let mut missing = pulls.clone();
    while !missing.is_empty() {
        let any = |event: &Event| matches!(event, Event::Worker(WorkerEvent::Pulled(..)));
        let Event::Worker(WorkerEvent::Pulled(id, pulled)) = harness.wait_for(worker, any) else {
            unreachable!()
        };
        missing.retain(|other| *other != id);
        assert_eq!(pulled.keys, harness.config.rows.keys());
    }
}

#[test]
fn a_worker_away_for_many_rounds_still_sees_its_own_writes() {
    let mut config = HarnessConfig::small(1, 1, 2);
    config.hot_path.pushes_per_round = 1;
    let mut harness = ClusterHarness::started(config);
    let (away, busy) = (harness.workers().start, harness.workers().start + 1);
    let mut total = 0.0;
    for step in 0..300u16 {
        let push = harness.push(busy, &[HOT_ROWS - 1], &[1.0; EMBEDDING_WIDTH], Level::Visible);
        harness.wait_for_push(busy, push);
        total += 1.0;
        if step % 100 == 99 {
            let push = harness.push(away, &[HOT_ROWS - 1], &[1.0; EMBEDDING_WIDTH], Level::Visible);
            harness.wait_for_push(away, push);
            total += 1.0;
            assert_eq!(harness.pull(away, &[HOT_ROWS - 1]), [0.0 - total; EMBEDDING_WIDTH]);
        }
    }
}
