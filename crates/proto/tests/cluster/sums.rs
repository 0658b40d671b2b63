//! The invariant: what was pushed is what was applied, to the bit, whatever the network does.

use core::time::Duration;
use std::collections::BTreeSet;

use libra_faultsim::{Quality, Random, Rows, Setup, Stage, Sums, whole};
use libra_plan::{Placement, Scale};
use libra_proto::{ArithmeticMode, HotPath, Level, Message, Peer, Sizes, Statistics};
use proptest::prelude::*;

const EMBEDDING_WIDTH: usize = 3;
const HOT_ROWS: u64 = 25;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    // rules W13, W14
    #[test]
    fn sums_of_given_gradients_are_equal_to_the_bit(
        (servers, switches, workers) in (1u16..=3, 0u16..=3, 1u16..=4),
        (loss, duplicate, reorder) in (0.0..0.25, 0.0..0.25, 0.0..0.25),
        delay_us in 20u64..3000,
        pushes_per_epoch in 1u32..6,
        packets_in_flight_max in prop_oneof![1u32..4, Just(64)],
        headroom_bits in prop_oneof![Just(2u8), Just(12)],
        (lanes, cells_max) in prop_oneof![Just((1u8, 32_768u16)), Just((3, 20)), Just((16, 3)), Just((16, 2048))],
        seed: u64,
    ) {
        let mut setup = Setup::small(servers, switches, workers);
        setup.seed = seed;
        setup.quality =
            Quality { loss, duplicate, reorder, delay: Duration::from_micros(delay_us), ..Quality::GOOD };
        setup.hot_path = HotPath { pushes_per_epoch, packets_in_flight_max, cells_max, ..setup.hot_path };
        setup.hot_path = setup.hot_path.with_lanes(lanes);
        if let Some(plan) = &mut setup.plan {
            // With two bits a bank is full after four packets.
            plan.headroom_bits = headroom_bits;
        }
        let mut stage = Stage::started(setup);
        let sums = stage.work(12, whole);
        prop_assert_eq!(stage.check_values(&sums), Ok(()));
        stage.finish();
        prop_assert_eq!(stage.check(), Ok(()));
    }
}

#[test]
fn rows_over_many_regions_and_switches_are_equal_to_the_bit() {
    rows_over_many_regions_come_out_equal(1);
}

// rules W13, W14
#[test]
fn so_do_rows_that_begin_at_any_lane() {
    rows_over_many_regions_come_out_equal(255);
}

fn rows_over_many_regions_come_out_equal(lanes: u8) {
    // A region has room for 136 rows of 240 values.
    let rows = Rows { embedding: (500, 240), dense: (1, 1), hot: 500, scale: 0, headroom_bits: 12 };
    let mut setup = Setup::of(rows, Sizes { servers: 2, switches: 3, workers: 2 }).bad();
    setup.hot_path.entries_max = 240;
    setup.hot_path.epoch_time_max = Duration::from_millis(3);
    setup.hot_path = setup.hot_path.with_lanes(lanes);
    let mut stage = Stage::started(setup);
    let keys: Vec<u64> = (0..500).collect();
    let gradients: Vec<f32> =
        (0..500 * 240).map(|value| f32::from(u16::try_from(value % 1000).unwrap())).collect();
    for _ in 0..3 {
        for worker in stage.workers() {
            stage.push(worker, &keys, &gradients, Level::Accepted);
        }
    }
    stage.flush_all();
    let expected: Vec<f32> = gradients.iter().map(|value| 0.0 - 6.0 * value).collect();
    for worker in stage.workers() {
        assert!(stage.pull(worker, &keys) == expected);
    }
    let datagrams = &stage.world.observer.recorder.datagrams;
    let regions: BTreeSet<u8> = datagrams.iter().map(|sent| sent.bytes[12]).collect();
    assert!(regions.len() > 3, "{regions:?}");
    stage.check().unwrap();
}

// rules V6, W13
#[test]
fn sums_of_a_switch_without_successor_are_replayed_to_the_bit() {
    for lanes in [1, 3, 16] {
        let mut setup = Setup::small(2, 1, 2);
        // Nothing of what is pushed is in an epoch that has ended.
        let epoch_time_max = Duration::from_secs(60);
        setup.hot_path =
            HotPath { pushes_per_epoch: 1000, epoch_time_max, ..setup.hot_path }.with_lanes(lanes);
        let mut stage = Stage::started(setup);
        let keys: Vec<u64> = (0..HOT_ROWS).step_by(2).collect();
        let gradients: Vec<f32> = (1_u8..).map(f32::from).take(keys.len() * EMBEDDING_WIDTH).collect();
        let mut sums = Sums::zero(&stage.setup.rows);
        for _ in 0..3 {
            for worker in stage.workers() {
                sums.add(&stage.setup.rows, &keys, &gradients);
                let push = stage.push(worker, &keys, &gradients, Level::Accepted);
                stage.wait_for_push(worker, push);
            }
        }
        stage.mute(stage.switches().start);
        stage.flush_all();
        stage.check_values(&sums).unwrap();
        let messages = &stage.world.observer.recorder.messages;
        assert!(
            messages.iter().any(|sent| matches!(sent.message, Message::Replayed { .. })),
            "{lanes} lanes"
        );
        stage.check().unwrap();
    }
}

/// Returns the number of rounds, and the number of rows that each of them changed, summed up.
fn epochs(stage: &Stage) -> (u64, u64) {
    let Setup { plan, sizes, hot_path, .. } = &stage.setup;
    let placement = Placement::new(plan.as_ref().unwrap(), sizes.servers, hot_path.region_slots()).unwrap();
    let (mut epochs, mut rows) = (0, 0);
    for sent in &stage.world.observer.recorder.messages {
        let Message::Drained(drained) = &sent.message else { continue };
        let slots = drained.slots.iter().flat_map(|&(first, count)| first..first + count);
        let touched = slots.zip(&drained.sums.0).filter(|(_, sum)| **sum != 0);
        let keys: BTreeSet<u64> =
            touched.map(|(slot, _)| placement.row_at(drained.region, slot).unwrap().key).collect();
        epochs += 1;
        rows += keys.len() as u64;
    }
    (epochs, rows)
}

// rules E1, E6
#[test]
fn servers_apply_a_hot_row_once_an_epoch() {
    let mut setup = Setup::small(2, 1, 4).bad();
    setup.hot_path =
        HotPath { pushes_per_epoch: 16, epoch_time_max: Duration::from_millis(20), ..setup.hot_path };
    let mut stage = Stage::started(setup);
    // Sums of positive gradients are not zero, so every touched row is applied.
    let sums = stage.work(40, |random| 1.0 + whole(random).abs());
    stage.check_values(&sums).unwrap();
    let outcome = stage.finish();
    stage.check().unwrap();
    let (mut applied, mut epochs_applied, mut rows_hot) = (0, 0, 0);
    for (_, statistics) in &outcome.statistics {
        match statistics {
            Statistics::Server(server) => {
                applied += server.row_updates_hot;
                epochs_applied += server.epochs;
            }
            Statistics::Worker(worker) => rows_hot += worker.rows_hot,
            Statistics::Switch(_) => {}
        }
    }
    assert_eq!((epochs_applied, applied), epochs(&stage));
    assert!(applied * 2 < rows_hot, "{rows_hot} rows were pushed hot, and {applied} applied");
}

// rules E1, T2
#[test]
fn a_round_ends_before_a_worker_has_too_many_packets_to_keep() {
    // A row fills a packet. Neither its pushes nor half of a bank close an epoch, and it lasts longer than all the pushes take.
    const PUSHES: u64 = 400;
    const PACKETS_KEPT_MAX: u64 = 8192;
    const _: () = assert!(PUSHES * HOT_ROWS > PACKETS_KEPT_MAX);
    let mut setup = Setup::small(1, 1, 1);
    setup.plan.as_mut().unwrap().headroom_bits = 20;
    let epoch_time_max = Duration::from_secs(1);
    setup.hot_path = HotPath { pushes_per_epoch: 1000, epoch_time_max, entries_max: 3, ..setup.hot_path };
    let mut stage = Stage::started(setup);
    let worker = stage.workers().start;
    let keys: Vec<u64> = (0..HOT_ROWS).collect();
    let gradients: Vec<f32> = keys.iter().flat_map(|_| [1.0; EMBEDDING_WIDTH]).collect();
    let mut sums = Sums::zero(&stage.setup.rows);
    let began = stage.world.now();
    let mut last = 0;
    for _ in 0..PUSHES {
        sums.add(&stage.setup.rows, &keys, &gradients);
        last = stage.push(worker, &keys, &gradients, Level::Accepted);
    }
    stage.wait_for_push(worker, last);
    assert!(stage.world.now() < began + epoch_time_max, "it waited until {}", stage.world.now());
    stage.flush_all();
    stage.check_values(&sums).unwrap();
    stage.check().unwrap();
}

#[test]
fn gradients_too_large_for_the_plan_go_cold_and_none_is_lost() {
    let mut setup = Setup::small(2, 2, 3).bad();
    // Integers up to 2^7 - 1: every fifth gradient is larger.
    setup.plan.as_mut().unwrap().headroom_bits = 24;
    let mut stage = Stage::started(setup);
    let large = |random: &mut Random| whole(random) + if random.chance(1.0 / 60.0) { 1000.0 } else { 0.0 };
    let sums = stage.work(30, large);
    stage.check_values(&sums).unwrap();
    let outcome = stage.finish();
    stage.check().unwrap();
    let large = outcome.statistics.iter().map(|(_, statistics)| match statistics {
        Statistics::Worker(worker) => worker.rows_too_large,
        _ => 0,
    });
    assert!(large.sum::<u64>() > 10);
}

#[test]
fn rounding_is_carried_over_not_lost() {
    // Integers are quarters: a gradient of 0.1 rounds to nothing, yet two hundred of them are 20.
    let rows = Rows { scale: 2, ..Setup::small(2, 1, 2).rows };
    let mut stage = Stage::started(Setup::of(rows, Sizes { servers: 2, switches: 1, workers: 2 }).bad());
    let workers = stage.workers();
    for _ in 0..200 {
        for worker in workers.clone() {
            stage.push(worker, &[3, 7], &[0.1; 2 * EMBEDDING_WIDTH], Level::Accepted);
        }
        stage.run_for(Duration::from_micros(300));
    }
    stage.flush_all();
    // Each worker keeps back at most half a quarter.
    let kept_max = 0.125 * workers.len() as f32;
    for value in stage.pull(workers.start, &[3, 7]) {
        assert!((value + 0.1 * 200.0 * workers.len() as f32).abs() <= kept_max + 1e-3, "{value}");
    }
    stage.check().unwrap();
}

#[test]
fn floats_are_added_in_some_order() {
    let mut setup = Setup::small(2, 2, 3).bad();
    setup.hot_path.arithmetic = ArithmeticMode::F32;
    setup.plan.as_mut().unwrap().rows.iter_mut().for_each(|row| row.scale = Scale(100));
    let mut stage = Stage::started(setup.clone());
    // Sums of whole numbers round nothing, in any order: still equal to the bit.
    let sums = stage.work(30, whole);
    stage.check_values(&sums).unwrap();
    stage.check().unwrap();
    // Others do, but only that.
    let mut stage = Stage::started(setup);
    let sums = stage.work(30, |random| whole(random) / 7.0);
    let worker = stage.workers().start;
    for key in 0..HOT_ROWS {
        let exact: Vec<f32> = sums.row(&stage.setup.rows, key).collect();
        for (read, exact) in stage.pull(worker, &[key]).iter().zip(exact) {
            assert!((read - exact).abs() < 1e-2, "{read} is not {exact}");
        }
    }
}

#[test]
fn floats_are_added_by_tables() {
    let mut setup = Setup::small(2, 2, 3).bad();
    setup.hot_path.arithmetic = ArithmeticMode::Table;
    // Scales are of integers alone.
    setup.plan.as_mut().unwrap().rows.iter_mut().for_each(|row| row.scale = Scale(100));
    let mut stage = Stage::started(setup);
    let sums = stage.work(30, |random| whole(random).abs());
    stage.check().unwrap();
    let worker = stage.workers().start;
    let mut inexact = 0;
    for key in 0..HOT_ROWS {
        let exact: Vec<f32> = sums.row(&stage.setup.rows, key).collect();
        for (read, exact) in stage.pull(worker, &[key]).iter().zip(exact) {
            assert!((read - exact).abs() <= 0.01 * exact.abs(), "{read} is not {exact}");
            inexact += u32::from(*read != exact);
        }
    }
    assert!(inexact > 0);
}

#[test]
fn keys_that_occur_twice_in_a_push_are_summed() {
    for switches in [0, 1] {
        let mut stage = Stage::started(Setup::small(2, switches, 1));
        let worker = stage.workers().start;
        let keys = [5, 50, 5, 1001, 50, 5];
        let mut gradients = vec![1.0; 3 * EMBEDDING_WIDTH];
        gradients.extend([2.0; 40]);
        gradients.extend([4.0; 2 * EMBEDDING_WIDTH]);
        let mut sums = Sums::zero(&stage.setup.rows);
        sums.add(&stage.setup.rows, &keys, &gradients);
        let push = stage.push(worker, &keys, &gradients, Level::Visible);
        stage.wait_for_push(worker, push);
        stage.check_values(&sums).unwrap();
        assert_eq!(stage.pull(worker, &[5, 50, 1001])[..6], [-6.0, -6.0, -6.0, -5.0, -5.0, -5.0]);
        let outcome = stage.finish();
        let Some((Peer::Worker(0), Statistics::Worker(counts))) = outcome.statistics.last() else {
            panic!("{outcome:?}")
        };
        assert_eq!(counts.rows, 3, "a row counts once a push");
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let trace = |seed| {
        let mut stage = Stage::started(Setup { seed, ..Setup::small(2, 2, 3).bad() });
        stage.work(20, whole);
        stage.finish();
        stage.world.trace_hash()
    };
    assert!(trace(5) == trace(5));
    assert!(trace(5) != trace(6));
}

#[test]
fn a_lost_acknowledgement_does_not_keep_a_flush_waiting() {
    // Rounds are short and the network is very bad: packets come again rounds after they were taken, when no worker pushes
    // any more, and are acknowledged with an epoch that may still be open.
    for seed in 0..20 {
        let mut setup = Setup::small(1, 1, 2);
        setup.seed = seed;
        setup.quality = Quality { loss: 0.4, ..Quality::GOOD };
        setup.hot_path.pushes_per_epoch = 1;
        let mut stage = Stage::started(setup);
        let mut random = Random::new(seed);
        for _ in 0..4 {
            for worker in stage.workers() {
                stage.push(worker, &[random.below(HOT_ROWS)], &[1.0; EMBEDDING_WIDTH], Level::Accepted);
                stage.run_for(Duration::from_micros(500));
            }
        }
        stage.flush_all();
    }
}
