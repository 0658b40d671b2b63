//! The invariant: what was pushed is what was applied, to the bit, whatever the network does.

use core::time::Duration;
use std::collections::BTreeSet;

use libra_faultsim::{ClusterHarness, HarnessConfig, Quality, Random, Rows, Sums, whole};
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
        pushes_per_round in 1u32..6,
        packets_in_flight_max in prop_oneof![1u32..4, Just(64)],
        headroom_bits in prop_oneof![Just(2u8), Just(12)],
        (lanes, cells_max) in prop_oneof![Just((1u8, 32_768u16)), Just((3, 20)), Just((16, 3)), Just((16, 2048))],
        seed: u64,
    ) {
        let mut config = HarnessConfig::small(servers, switches, workers);
        config.seed = seed;
        config.quality =
            Quality { loss, duplicate, reorder, delay: Duration::from_micros(delay_us), ..Quality::GOOD };
        config.hot_path = HotPath { pushes_per_round, packets_in_flight_max, cells_max, ..config.hot_path };
        config.hot_path = config.hot_path.with_lanes(lanes);
        if let Some(plan) = &mut config.plan {
            // With two bits a bank is full after four packets.
            plan.headroom_bits = headroom_bits;
        }
        let mut harness = ClusterHarness::started(config);
        let sums = harness.work(12, whole);
        prop_assert_eq!(harness.check_values(&sums), Ok(()));
        harness.finish();
        prop_assert_eq!(harness.check(), Ok(()));
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
    let rows =
        Rows { embedding: (500, 240), dense: (1, 1), hot: 500, scale: 0, headroom_bits: 12, set: None };
    let mut config = HarnessConfig::of(rows, Sizes { servers: 2, switches: 3, workers: 2 }).bad();
    config.hot_path.entries_max = 240;
    config.hot_path.round_time_max = Duration::from_millis(3);
    config.hot_path = config.hot_path.with_lanes(lanes);
    let mut harness = ClusterHarness::started(config);
    let keys: Vec<u64> = (0..500).collect();
    let gradients: Vec<f32> =
        (0..500 * 240).map(|value| f32::from(u16::try_from(value % 1000).unwrap())).collect();
    for _ in 0..3 {
        for worker in harness.workers() {
            harness.push(worker, &keys, &gradients, Level::Accepted);
        }
    }
    harness.flush_all();
    let expected: Vec<f32> = gradients.iter().map(|value| 0.0 - 6.0 * value).collect();
    for worker in harness.workers() {
        assert!(harness.pull(worker, &keys) == expected);
    }
    let datagrams = &harness.world.observer.recorder.datagrams;
    let regions: BTreeSet<u8> = datagrams.iter().map(|sent| sent.bytes[12]).collect();
    assert!(regions.len() > 3, "{regions:?}");
    harness.check().unwrap();
}

// rules V6, W13
#[test]
fn sums_of_a_switch_without_successor_are_replayed_to_the_bit() {
    for lanes in [1, 3, 16] {
        let mut config = HarnessConfig::small(2, 1, 2);
        // Nothing of what is pushed is in a round that has ended.
        let round_time_max = Duration::from_secs(60);
        config.hot_path =
            HotPath { pushes_per_round: 1000, round_time_max, ..config.hot_path }.with_lanes(lanes);
        let mut harness = ClusterHarness::started(config);
        let keys: Vec<u64> = (0..HOT_ROWS).step_by(2).collect();
        let gradients: Vec<f32> = (1_u8..).map(f32::from).take(keys.len() * EMBEDDING_WIDTH).collect();
        let mut sums = Sums::zero(&harness.config.rows);
        for _ in 0..3 {
            for worker in harness.workers() {
                sums.add(&harness.config.rows, &keys, &gradients);
                let push = harness.push(worker, &keys, &gradients, Level::Accepted);
                harness.wait_for_push(worker, push);
            }
        }
        harness.mute(harness.switches().start);
        harness.flush_all();
        harness.check_values(&sums).unwrap();
        let messages = &harness.world.observer.recorder.messages;
        assert!(
            messages.iter().any(|sent| matches!(sent.message, Message::Replayed { .. })),
            "{lanes} lanes"
        );
        harness.check().unwrap();
    }
}

/// Returns the number of rounds, and the number of rows that each of them changed, summed up.
fn rounds(harness: &ClusterHarness) -> (u64, u64) {
    let HarnessConfig { plan, sizes, hot_path, .. } = &harness.config;
    let placement = Placement::new(plan.as_ref().unwrap(), sizes.servers, hot_path.region_slots()).unwrap();
    let (mut rounds, mut rows) = (0, 0);
    for sent in &harness.world.observer.recorder.messages {
        let Message::Drained(drained) = &sent.message else { continue };
        let slots = drained.slots.iter().flat_map(|&(first, count)| first..first + count);
        let touched = slots.zip(&drained.sums.0).filter(|(_, sum)| **sum != 0);
        let keys: BTreeSet<u64> =
            touched.map(|(slot, _)| placement.row_at(drained.region, slot).unwrap().key).collect();
        rounds += 1;
        rows += keys.len() as u64;
    }
    (rounds, rows)
}

// rules E1, E6
#[test]
fn servers_apply_a_hot_row_once_a_round() {
    let mut config = HarnessConfig::small(2, 1, 4).bad();
    config.hot_path =
        HotPath { pushes_per_round: 16, round_time_max: Duration::from_millis(20), ..config.hot_path };
    let mut harness = ClusterHarness::started(config);
    // Sums of positive gradients are not zero, so every touched row is applied.
    let sums = harness.work(40, |random| 1.0 + whole(random).abs());
    harness.check_values(&sums).unwrap();
    let outcome = harness.finish();
    harness.check().unwrap();
    let (mut applied, mut rounds_applied, mut rows_hot) = (0, 0, 0);
    for (_, statistics) in &outcome.statistics {
        match statistics {
            Statistics::Server(server) => {
                applied += server.row_updates_hot;
                rounds_applied += server.rounds;
            }
            Statistics::Worker(worker) => rows_hot += worker.rows_hot,
            Statistics::Switch(_) => {}
        }
    }
    assert_eq!((rounds_applied, applied), rounds(&harness));
    assert!(applied * 2 < rows_hot, "{rows_hot} rows were pushed hot, and {applied} applied");
}

// rules E1, T2
#[test]
fn a_round_ends_before_a_worker_has_too_many_packets_to_keep() {
    // A row fills a packet. Neither its pushes nor half of a bank close a round, and it lasts longer than all the pushes take.
    const PUSHES: u64 = 400;
    const PACKETS_KEPT_MAX: u64 = 8192;
    const _: () = assert!(PUSHES * HOT_ROWS > PACKETS_KEPT_MAX);
    let mut config = HarnessConfig::small(1, 1, 1);
    config.plan.as_mut().unwrap().headroom_bits = 20;
    let round_time_max = Duration::from_secs(1);
    config.hot_path = HotPath { pushes_per_round: 1000, round_time_max, entries_max: 3, ..config.hot_path };
    let mut harness = ClusterHarness::started(config);
    let worker = harness.workers().start;
    let keys: Vec<u64> = (0..HOT_ROWS).collect();
    let gradients: Vec<f32> = keys.iter().flat_map(|_| [1.0; EMBEDDING_WIDTH]).collect();
    let mut sums = Sums::zero(&harness.config.rows);
    let began = harness.world.now();
    let mut last = 0;
    for _ in 0..PUSHES {
        sums.add(&harness.config.rows, &keys, &gradients);
        last = harness.push(worker, &keys, &gradients, Level::Accepted);
    }
    harness.wait_for_push(worker, last);
    assert!(harness.world.now() < began + round_time_max, "it waited until {}", harness.world.now());
    harness.flush_all();
    harness.check_values(&sums).unwrap();
    harness.check().unwrap();
}

#[test]
fn gradients_too_large_for_the_plan_go_cold_and_none_is_lost() {
    let mut config = HarnessConfig::small(2, 2, 3).bad();
    // Integers up to 2^7 - 1: every fifth gradient is larger.
    config.plan.as_mut().unwrap().headroom_bits = 24;
    let mut harness = ClusterHarness::started(config);
    let large = |random: &mut Random| whole(random) + if random.chance(1.0 / 60.0) { 1000.0 } else { 0.0 };
    let sums = harness.work(30, large);
    harness.check_values(&sums).unwrap();
    let outcome = harness.finish();
    harness.check().unwrap();
    let large = outcome.statistics.iter().map(|(_, statistics)| match statistics {
        Statistics::Worker(worker) => worker.rows_too_large,
        _ => 0,
    });
    assert!(large.sum::<u64>() > 10);
}

#[test]
fn rounding_is_carried_over_not_lost() {
    // Integers are quarters: a gradient of 0.1 rounds to nothing, yet two hundred of them are 20.
    let rows = Rows { scale: 2, ..HarnessConfig::small(2, 1, 2).rows };
    let mut harness =
        ClusterHarness::started(HarnessConfig::of(rows, Sizes { servers: 2, switches: 1, workers: 2 }).bad());
    let workers = harness.workers();
    for _ in 0..200 {
        for worker in workers.clone() {
            harness.push(worker, &[3, 7], &[0.1; 2 * EMBEDDING_WIDTH], Level::Accepted);
        }
        harness.run_for(Duration::from_micros(300));
    }
    harness.flush_all();
    // Each worker keeps back at most half a quarter.
    let kept_max = 0.125 * workers.len() as f32;
    for value in harness.pull(workers.start, &[3, 7]) {
        assert!((value + 0.1 * 200.0 * workers.len() as f32).abs() <= kept_max + 1e-3, "{value}");
    }
    harness.check().unwrap();
}

#[test]
fn floats_are_added_in_some_order() {
    let mut config = HarnessConfig::small(2, 2, 3).bad();
    config.hot_path.arithmetic = ArithmeticMode::F32;
    config.plan.as_mut().unwrap().rows.iter_mut().for_each(|row| row.scale = Scale(100));
    let mut harness = ClusterHarness::started(config.clone());
    // Sums of whole numbers round nothing, in any order: still equal to the bit.
    let sums = harness.work(30, whole);
    harness.check_values(&sums).unwrap();
    harness.check().unwrap();
    // Others do, but only that.
    let mut harness = ClusterHarness::started(config);
    let sums = harness.work(30, |random| whole(random) / 7.0);
    let worker = harness.workers().start;
    for key in 0..HOT_ROWS {
        let exact: Vec<f32> = sums.row(&harness.config.rows, key).collect();
        for (read, exact) in harness.pull(worker, &[key]).iter().zip(exact) {
            assert!((read - exact).abs() < 1e-2, "{read} is not {exact}");
        }
    }
}

#[test]
fn floats_are_added_by_tables() {
    let mut config = HarnessConfig::small(2, 2, 3).bad();
    config.hot_path.arithmetic = ArithmeticMode::Table;
    // Scales are of integers alone.
    config.plan.as_mut().unwrap().rows.iter_mut().for_each(|row| row.scale = Scale(100));
    let mut harness = ClusterHarness::started(config);
    let sums = harness.work(30, |random| whole(random).abs());
    harness.check().unwrap();
    let worker = harness.workers().start;
    let mut inexact = 0;
    for key in 0..HOT_ROWS {
        let exact: Vec<f32> = sums.row(&harness.config.rows, key).collect();
        for (read, exact) in harness.pull(worker, &[key]).iter().zip(exact) {
            assert!((read - exact).abs() <= 0.01 * exact.abs(), "{read} is not {exact}");
            inexact += u32::from(*read != exact);
        }
    }
    assert!(inexact > 0);
}

#[test]
fn keys_that_occur_twice_in_a_push_are_summed() {
    for switches in [0, 1] {
        let mut harness = ClusterHarness::started(HarnessConfig::small(2, switches, 1));
        let worker = harness.workers().start;
        let keys = [5, 50, 5, 1001, 50, 5];
        let mut gradients = vec![1.0; 3 * EMBEDDING_WIDTH];
        gradients.extend([2.0; 40]);
        gradients.extend([4.0; 2 * EMBEDDING_WIDTH]);
        let mut sums = Sums::zero(&harness.config.rows);
        sums.add(&harness.config.rows, &keys, &gradients);
        let push = harness.push(worker, &keys, &gradients, Level::Visible);
        harness.wait_for_push(worker, push);
        harness.check_values(&sums).unwrap();
        assert_eq!(harness.pull(worker, &[5, 50, 1001])[..6], [-6.0, -6.0, -6.0, -5.0, -5.0, -5.0]);
        let outcome = harness.finish();
        let Some((Peer::Worker(0), Statistics::Worker(counts))) = outcome.statistics.last() else {
            panic!("{outcome:?}")
        };
        assert_eq!(counts.rows, 3, "a row counts once a push");
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let trace = |seed| {
        let mut harness =
            ClusterHarness::started(HarnessConfig { seed, ..HarnessConfig::small(2, 2, 3).bad() });
        harness.work(20, whole);
        harness.finish();
        harness.world.trace_hash()
    };
    assert!(trace(5) == trace(5));
    assert!(trace(5) != trace(6));
}

#[test]
fn a_lost_acknowledgement_does_not_keep_a_flush_waiting() {
    // Rounds are short and the network is very bad: packets come again rounds after they were taken, when no worker pushes
    // any more, and are acknowledged with a round that may still be open.
    for seed in 0..20 {
        let mut config = HarnessConfig::small(1, 1, 2);
        config.seed = seed;
        config.quality = Quality { loss: 0.4, ..Quality::GOOD };
        config.hot_path.pushes_per_round = 1;
        let mut harness = ClusterHarness::started(config);
        let mut random = Random::new(seed);
        for _ in 0..4 {
            for worker in harness.workers() {
                harness.push(worker, &[random.below(HOT_ROWS)], &[1.0; EMBEDDING_WIDTH], Level::Accepted);
                harness.run_for(Duration::from_micros(500));
            }
        }
        harness.flush_all();
    }
}
