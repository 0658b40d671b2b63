//! What a worker may ask for, and what it may rely on.

use core::time::Duration;

use libra_proto::{ClientError, Level, PullId, WorkerCommand, WorkerEvent};

use crate::link::{Network, Random};
use crate::traffic::{
    DENSE_WIDTH, EMBEDDING_WIDTH, HOT_ROWS, Model, all_keys, check_values, draw_push, setup, whole,
};
use crate::world::{Event, Place, Setup, World};

fn bad(servers: u16, switches: u16, workers: u16) -> Setup {
    Setup { network: Network::BAD, ..setup(servers, switches, workers) }
}

fn push_pull(world: &mut World, worker: Place, keys: &[u64], gradients: &[f32]) -> (Vec<u64>, Vec<f32>) {
    let id = PullId(world.number());
    let (keys, gradients) = (keys.to_vec(), gradients.to_vec());
    world.command(worker, WorkerCommand::PushPull { id, keys, gradients });
    world.wait_for_pull(worker, id)
}

#[test]
fn a_visible_push_is_read_by_the_next_pull() {
    for switches in [0, 1, 2] {
        let mut world = World::started(bad(2, switches, 2));
        let (mut random, mut model) = (Random::new(3), Model::default());
        for round in 0..30 {
            let worker = world.workers().start + round % 2;
            let (keys, gradients) = draw_push(&mut random, &mut whole);
            model.add(&keys, &gradients);
            let push = world.push(worker, &keys, &gradients, Level::Visible);
            world.wait_for_push(worker, push);
            check_values(&mut world, &model).unwrap();
        }
    }
}

#[test]
fn a_flush_makes_all_pushes_so_far_visible_also_those_too_large_for_the_plan() {
    let mut setup = bad(2, 1, 2);
    // Integers up to 2^7 - 1. Nobody pushes to the switch after the large ones, which go past it.
    setup.plan.as_mut().unwrap().headroom_bits = 24;
    for level in [Level::Accepted, Level::Visible] {
        let mut world = World::started(setup.clone());
        let worker = world.workers().start;
        let mut model = Model::default();
        for keys in [[1, 2, 55], [2, 3, 55]] {
            let gradients = [1000.0; 3 * EMBEDDING_WIDTH];
            model.add(&keys, &gradients);
            let push = world.push(worker, &keys, &gradients, level);
            if level == Level::Visible {
                world.wait_for_push(worker, push);
            }
        }
        if level == Level::Accepted {
            world.flush_all();
        }
        check_values(&mut world, &model).unwrap();
    }
}

#[test]
fn a_flush_with_nothing_under_way_is_answered_at_once() {
    let mut world = World::started(setup(1, 1, 1));
    let before = world.now;
    world.flush_all();
    assert_eq!(world.now, before);
}

#[test]
fn a_push_with_pull_adds_and_reads_in_one_trip() {
    let mut world = World::started(bad(2, 2, 1));
    let worker = world.workers().start;
    let (hot, cold) = (3, 50);
    let gradients = [2.0; 3 * EMBEDDING_WIDTH];
    // A key that is there twice is answered once.
    let (keys, values) = push_pull(&mut world, worker, &[cold, hot, cold], &gradients);
    assert_eq!(keys, [cold, hot]);
    let (cold_row, hot_row) = values.split_at(EMBEDDING_WIDTH);
    assert_eq!(cold_row, [-4.0; EMBEDDING_WIDTH], "a shard applies before it answers");
    assert_eq!(hot_row, [0.0; EMBEDDING_WIDTH], "a switch answers with what it has while the epoch runs");
    world.flush_all();
    let (_, values) = push_pull(&mut world, worker, &[hot], &[0.0; EMBEDDING_WIDTH]);
    assert_eq!(values, [-2.0; EMBEDDING_WIDTH]);
}

#[test]
fn pushes_with_pull_lose_nothing_either() {
    let mut setup = bad(2, 2, 3);
    setup.plan.as_mut().unwrap().headroom_bits = 24;
    let mut world = World::started(setup);
    let (mut random, mut model) = (Random::new(8), Model::default());
    for round in 0..40 {
        let worker = world.workers().start + round % 3;
        let large =
            &mut |random: &mut Random| whole(random) + if random.below(60) == 0 { 1000.0 } else { 0.0 };
        let (keys, gradients) = draw_push(&mut random, large);
        model.add(&keys, &gradients);
        push_pull(&mut world, worker, &keys, &gradients);
    }
    world.flush_all();
    check_values(&mut world, &model).unwrap();
}

#[test]
fn operations_without_rows_are_complete() {
    let mut world = World::started(setup(1, 1, 1));
    let worker = world.workers().start;
    assert_eq!(world.pull(worker, &[]), []);
    assert_eq!(push_pull(&mut world, worker, &[], &[]), (vec![], vec![]));
    let push = world.push(worker, &[], &[], Level::Visible);
    world.wait_for_push(worker, push);
}

#[test]
fn operations_that_make_no_sense_are_refused_and_nothing_of_them_is_sent() {
    let mut world = World::started(setup(2, 1, 1));
    let worker = world.workers().start;
    let refused = |world: &mut World, keys: &[u64], gradients: &[f32]| {
        let number = world.push(worker, keys, gradients, Level::Accepted);
        let is_it = |event: &Event| matches!(event, Event::Worker(WorkerEvent::Refused { number: of, .. }) if *of == number);
        match world.wait_for(worker, is_it) {
            Event::Worker(WorkerEvent::Refused { error, .. }) => error,
            other => unreachable!("{other:?}"),
        }
    };
    let row = [1.0; EMBEDDING_WIDTH];
    assert_eq!(refused(&mut world, &[999], &row), ClientError::UnknownKey { key: 999 });
    let wrong =
        ClientError::WrongLength { keys: 2, expected: EMBEDDING_WIDTH + DENSE_WIDTH, found: EMBEDDING_WIDTH };
    assert_eq!(refused(&mut world, &[1, 1000], &row), wrong);
    for gradient in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        assert_eq!(refused(&mut world, &[50], &[1.0, gradient, 1.0]), ClientError::NotFinite { key: 50 });
    }
    // Each is finite, and their sum is not.
    let largest = [f32::MAX; 2 * EMBEDDING_WIDTH];
    for key in [3, 50] {
        assert_eq!(refused(&mut world, &[key, key], &largest), ClientError::NotFinite { key });
    }
    assert_eq!(check_values(&mut world, &Model::default()), Ok(()));
}

#[test]
fn a_barrier_holds_until_everybody_is_there() {
    let mut world = World::started(bad(1, 1, 3));
    let workers: Vec<_> = world.workers().collect();
    for number in 0..3 {
        let released = |event: &Event| *event == Event::Worker(WorkerEvent::Released { number });
        for worker in &workers[1..] {
            world.command(*worker, WorkerCommand::Barrier { number });
        }
        world.run_for(Duration::from_millis(50));
        let before = world.now;
        world.command(workers[0], WorkerCommand::Barrier { number });
        for worker in &workers {
            world.wait_for(*worker, released);
        }
        assert!(world.now > before, "the answers come after the last one has asked");
    }
}

#[test]
fn many_operations_may_be_under_way() {
    let mut world = World::started(bad(3, 2, 1));
    let worker = world.workers().start;
    let pulls: Vec<_> = (0..50).map(|_| PullId(world.number())).collect();
    for id in &pulls {
        world.command(worker, WorkerCommand::Pull { id: *id, keys: all_keys() });
    }
    let mut missing = pulls.clone();
    while !missing.is_empty() {
        let any = |event: &Event| matches!(event, Event::Worker(WorkerEvent::Pulled(..)));
        let Event::Worker(WorkerEvent::Pulled(id, pulled)) = world.wait_for(worker, any) else {
            unreachable!()
        };
        missing.retain(|other| *other != id);
        assert_eq!(pulled.keys, all_keys());
    }
}

#[test]
fn a_worker_that_was_away_for_many_epochs_still_sees_its_own_writes() {
    let mut setup = setup(1, 1, 2);
    setup.hot_path.pushes_per_epoch = 1;
    let mut world = World::started(setup);
    let (away, busy) = (world.workers().start, world.workers().start + 1);
    let mut total = 0.0;
    for round in 0..300u16 {
        let push = world.push(busy, &[HOT_ROWS - 1], &[1.0; EMBEDDING_WIDTH], Level::Visible);
        world.wait_for_push(busy, push);
        total += 1.0;
        if round % 100 == 99 {
            let push = world.push(away, &[HOT_ROWS - 1], &[1.0; EMBEDDING_WIDTH], Level::Visible);
            world.wait_for_push(away, push);
            total += 1.0;
            assert_eq!(world.pull(away, &[HOT_ROWS - 1]), [0.0 - total; EMBEDDING_WIDTH]);
        }
    }
}
