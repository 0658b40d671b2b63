//! The invariant: what was pushed is what was applied, to the bit, whatever the network does.

use core::time::Duration;

use libra_proto::{ArithmeticMode, HotPath, Level, Peer, Statistics};
use proptest::prelude::*;

use crate::link::{Network, Random};
use crate::traffic::{
    EMBEDDING_WIDTH, HOT_ROWS, Model, check_epochs, check_values, plan, run, setup, table, whole,
};
use crate::world::{Setup, World};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn the_sum_of_known_gradients_comes_out_equal_to_the_bit(
        (servers, switches, workers) in (1u16..=3, 0u16..=3, 1u16..=4),
        (loss, duplicate, reorder) in (0u64..25, 0u64..25, 0u64..25),
        delay_us in 20u64..3000,
        pushes_per_epoch in 1u32..6,
        packets_in_flight_max in prop_oneof![1u32..4, Just(64)],
        headroom_bits in prop_oneof![Just(2u8), Just(12)],
        seed: u64,
    ) {
        let mut setup = setup(servers, switches, workers);
        setup.seed = seed;
        setup.network =
            Network { loss, duplicate, reorder, delay: Duration::from_micros(delay_us), ..Network::GOOD };
        setup.hot_path = HotPath { pushes_per_epoch, packets_in_flight_max, ..setup.hot_path };
        if let Some(plan) = &mut setup.plan {
            // With two bits a bank is full after four packets.
            plan.headroom_bits = headroom_bits;
        }
        let mut world = World::started(setup);
        let model = run(&mut world, 12, whole);
        prop_assert_eq!(check_values(&mut world, &model), Ok(()));
        if switches > 0 {
            prop_assert_eq!(check_epochs(&world).map(drop), Ok(()));
        }
        world.finish();
    }
}

/// A canary: were a duplicate added, the checkers would have to say so.
#[test]
fn a_duplicate_that_passes_for_another_packet_is_caught() {
    let mut setup = setup(2, 1, 2);
    setup.network = Network {
        duplicate: 20,
        sabotage: Some(|bytes| {
            // Bit 9 of the sequence number of a PUSH: the second copy becomes a packet of its own.
            if bytes[1] == libra_dataplane::Kind::Push as u8 {
                bytes[18] ^= 2;
            }
        }),
        ..Network::GOOD
    };
    let mut world = World::started(setup);
    let model = run(&mut world, 12, whole);
    assert!(check_values(&mut world, &model).unwrap_err().contains("values differ"));
    assert!(check_epochs(&world).is_err());
}

fn bad(setup: Setup) -> Setup {
    Setup { network: Network::BAD, ..setup }
}

#[test]
fn rows_over_many_regions_and_switches_come_out_equal_to_the_bit() {
    // A region has room for 136 rows of 240 values.
    let (rows, width) = (500u64, 240);
    let mut setup = bad(setup(2, 3, 2));
    setup.tables = vec![table("embedding", 0..rows, width)];
    setup.plan = Some(plan(&setup.tables, 0..rows, 0));
    setup.hot_path.entries_max = 240;
    let mut world = World::started(setup);
    let keys: Vec<u64> = (0..rows).collect();
    let gradients: Vec<f32> =
        (0..rows * 240).map(|value| f32::from(u16::try_from(value % 1000).unwrap())).collect();
    for _ in 0..3 {
        for worker in world.workers() {
            world.push(worker, &keys, &gradients, Level::Accepted);
        }
    }
    world.flush_all();
    let expected: Vec<f32> = gradients.iter().map(|value| 0.0 - 6.0 * value).collect();
    for worker in world.workers() {
        assert!(world.pull(worker, &keys) == expected);
    }
    let regions = world.datagrams.iter().map(|sent| sent.bytes[10]).max();
    assert!(regions >= Some(3), "{regions:?}");
    check_epochs(&world).unwrap();
}

#[test]
fn servers_apply_a_hot_row_once_an_epoch() {
    let mut setup = bad(setup(2, 1, 4));
    setup.hot_path =
        HotPath { pushes_per_epoch: 16, epoch_time_max: Duration::from_millis(20), ..setup.hot_path };
    let mut world = World::started(setup);
    // Sums of positive gradients are not zero, so every touched row is applied.
    let model = run(&mut world, 40, |random| 1.0 + whole(random).abs());
    check_values(&mut world, &model).unwrap();
    let seen = check_epochs(&world).unwrap();
    let outcome = world.finish();
    let (mut applied, mut epochs, mut rows_hot) = (0, 0, 0);
    for (_, statistics) in &outcome.statistics {
        match statistics {
            Statistics::Server(server) => {
                applied += server.row_updates_hot;
                epochs += server.epochs;
            }
            Statistics::Worker(worker) => rows_hot += worker.rows_hot,
            Statistics::Switch(_) => {}
        }
    }
    assert_eq!(applied, seen.rows_touched);
    assert_eq!(epochs, seen.epochs);
    assert!(applied * 2 < rows_hot, "{rows_hot} rows were pushed hot, and {applied} applied");
}

#[test]
fn gradients_too_large_for_the_plan_go_the_cold_way_and_none_is_lost() {
    let mut setup = bad(setup(2, 2, 3));
    // Integers up to 2^7 - 1: every fifth gradient is larger.
    setup.plan.as_mut().unwrap().headroom_bits = 24;
    let mut world = World::started(setup);
    let model =
        run(&mut world, 30, |random| whole(random) + if random.below(60) == 0 { 1000.0 } else { 0.0 });
    check_values(&mut world, &model).unwrap();
    check_epochs(&world).unwrap();
    let outcome = world.finish();
    let large = outcome.statistics.iter().map(|(_, statistics)| match statistics {
        Statistics::Worker(worker) => worker.rows_too_large,
        _ => 0,
    });
    assert!(large.sum::<u64>() > 10);
}

#[test]
fn rounding_is_carried_over_not_lost() {
    let mut setup = bad(setup(2, 1, 2));
    let plan = setup.plan.as_mut().unwrap();
    // Integers are quarters: a gradient of 0.1 rounds to nothing, yet two hundred of them are 20.
    plan.rows.iter_mut().for_each(|row| row.scale = libra_plan::Scale(2));
    let mut world = World::started(setup);
    let workers = world.workers();
    for _ in 0..200 {
        for worker in workers.clone() {
            world.push(worker, &[3, 7], &[0.1; 2 * EMBEDDING_WIDTH], Level::Accepted);
        }
        world.run_for(Duration::from_micros(300));
    }
    world.flush_all();
    // Each worker keeps back at most half a quarter.
    let kept_max = 0.125 * workers.len() as f32;
    for value in world.pull(workers.start, &[3, 7]) {
        assert!((value + 0.1 * 200.0 * workers.len() as f32).abs() <= kept_max + 1e-3, "{value}");
    }
}

#[test]
fn floats_are_added_in_some_order() {
    let mut setup = bad(setup(2, 2, 3));
    setup.hot_path.arithmetic = ArithmeticMode::F32;
    setup.plan.as_mut().unwrap().rows.iter_mut().for_each(|row| row.scale = libra_plan::Scale(100));
    let mut world = World::started(setup.clone());
    // Sums of whole numbers round nothing, in any order: still equal to the bit.
    let model = run(&mut world, 30, whole);
    check_values(&mut world, &model).unwrap();
    check_epochs(&world).unwrap();
    // Others do, but only that.
    let mut world = World::started(setup);
    let model = run(&mut world, 30, |random| whole(random) / 7.0);
    let keys: Vec<u64> = (0..HOT_ROWS).collect();
    for (read, exact) in world.pull(world.workers().start, &keys).iter().zip(model.values(&keys)) {
        assert!((read - exact).abs() < 1e-2, "{read} is not {exact}");
    }
}

#[test]
fn keys_that_occur_twice_in_a_push_are_summed() {
    for switches in [0, 1] {
        let mut world = World::started(setup(2, switches, 1));
        let worker = world.workers().start;
        let keys = [5, 50, 5, 1001, 50, 5];
        let mut gradients = vec![1.0; 3 * EMBEDDING_WIDTH];
        gradients.extend([2.0; 40]);
        gradients.extend([4.0; 2 * EMBEDDING_WIDTH]);
        let mut model = Model::default();
        model.add(&keys, &gradients);
        let push = world.push(worker, &keys, &gradients, Level::Visible);
        world.wait_for_push(worker, push);
        check_values(&mut world, &model).unwrap();
        assert_eq!(world.pull(worker, &[5, 50, 1001])[..6], [-6.0, -6.0, -6.0, -5.0, -5.0, -5.0]);
        let outcome = world.finish();
        let Some((Peer::Worker(0), Statistics::Worker(counts))) = outcome.statistics.last() else {
            panic!("{outcome:?}")
        };
        assert_eq!(counts.rows, 3, "a row counts once a push");
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let trace = |seed| {
        let mut world = World::started(Setup { seed, ..bad(setup(2, 2, 3)) });
        run(&mut world, 20, whole);
        world.finish();
        let messages: Vec<_> =
            world.messages.iter().map(|sent| (sent.at, sent.from, sent.message.encode())).collect();
        (world.datagrams, messages)
    };
    assert!(trace(5) == trace(5));
    assert!(trace(5) != trace(6));
}

#[test]
fn a_lost_acknowledgement_does_not_keep_a_flush_waiting() {
    // Epochs are short and the network is very bad: packets come again epochs after they were taken, when nobody pushes
    // any more, and are acknowledged with an epoch that may still be open.
    for seed in 0..20 {
        let mut setup = setup(1, 1, 2);
        setup.seed = seed;
        setup.network = Network { loss: 40, ..Network::GOOD };
        setup.hot_path.pushes_per_epoch = 1;
        let mut world = World::started(setup);
        let mut random = Random::new(seed);
        for _ in 0..4 {
            for worker in world.workers() {
                world.push(worker, &[random.below(HOT_ROWS)], &[1.0; EMBEDDING_WIDTH], Level::Accepted);
                world.run_for(Duration::from_micros(500));
            }
        }
        world.flush_all();
    }
}
