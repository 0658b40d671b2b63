//! A real cluster on loopback sockets, under faults: the sum of known gradients must come out equal to the bit.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use libra_net::{ControllerNode, FaultRates, NodeOptions, ServerNode, SwitchNode, WorkerNode};
use libra_plan::{Budget, DEFAULT_HEADROOM_BITS, Frequencies, Plan, Provenance, SplitMix64, TableShape};
use libra_proto::{ArithmeticMode, Cluster, HotPath, Outcome, Parameters, Sizes, Statistics};
use libra_store::{Init, Optimizer, TableSpec};

const ROWS: u64 = 3_000;
const HOT_ROWS: u64 = 2_000;
const WIDTH: usize = 24;
const LAYERS: u64 = 1 << 40;
const LAYER_WIDTH: usize = 600;
const WORKERS: u16 = 3;
const PUSHES: u64 = 60;
const ROWS_OF_A_PUSH: u64 = 300;

/// Gradients are multiples of this, so that sums of them are exact in f32 as well as under the plan's scale.
const UNIT: f32 = 1.0 / 1024.0;

fn tables() -> Vec<TableSpec> {
    let table = |name: &str, keys, width| TableSpec {
        name: name.to_owned(),
        keys,
        width,
        rule: Optimizer::Sgd { rate: 1.0 }.into(),
        init: Init::Zero,
    };
    vec![table("rows", 0..ROWS, WIDTH), table("layers", LAYERS..LAYERS + 2, LAYER_WIDTH)]
}

/// A plan in which the first rows are hot, and gradients up to 64 times 1/8 fit.
fn plan() -> Plan {
    let shapes = tables().into_iter().map(|table| TableShape {
        hot: table.name == "rows",
        width: u32::try_from(table.width).unwrap(),
        name: table.name,
        keys: table.keys,
    });
    let mut frequencies = Frequencies::new(shapes.collect()).unwrap();
    frequencies.record_push(0..HOT_ROWS);
    (0..HOT_ROWS).for_each(|key| frequencies.record_gradient(key, 0.125));
    let budget = Budget { p: 1.0, c: 0.5, ..Budget::default() };
    Plan::new(7, Provenance::default(), &frequencies, budget, DEFAULT_HEADROOM_BITS).unwrap()
}

fn width_of(key: u64) -> usize {
    if key >= LAYERS { LAYER_WIDTH } else { WIDTH }
}

/// Returns the pushes of one worker: keys, and gradients in units. Now and then a gradient is too large for the plan.
fn pushes_of(worker: u16) -> Vec<(Vec<u64>, Vec<i32>)> {
    let mut draws = SplitMix64::new(worker.into());
    let push = |_| {
        // Skewed towards the first rows, with repetitions.
        let row =
            |draws: &mut SplitMix64| if draws.below(2) == 0 { draws.below(50) } else { draws.below(ROWS) };
        let mut keys: Vec<u64> = (0..ROWS_OF_A_PUSH).map(|_| row(&mut draws)).collect();
        keys.push(LAYERS + draws.below(2));
        let mut units = Vec::new();
        for key in &keys {
            let large = draws.below(40) == 0;
            for _ in 0..width_of(*key) {
                let unit = i32::try_from(draws.below(2_001)).unwrap() - 1_000;
                units.push(if large { unit * 20 } else { unit });
            }
        }
        (keys, units)
    };
    (0..PUSHES).map(push).collect()
}

/// The sum of all gradients, in units, row by row.
fn expected(key: u64, pushes: &[(Vec<u64>, Vec<i32>)]) -> Vec<i64> {
    let mut sum = vec![0; width_of(key)];
    for (keys, units) in pushes {
        let mut start = 0;
        for pushed in keys {
            let width = width_of(*pushed);
            if *pushed == key {
                sum.iter_mut()
                    .zip(&units[start..start + width])
                    .for_each(|(sum, unit)| *sum += i64::from(*unit));
            }
            start += width;
        }
    }
    sum
}

/// Runs a cluster in which every worker makes its pushes; returns what the first one reads at the end of all rows.
fn run(switches: u16, arithmetic: ArithmeticMode, faults: FaultRates) -> (Vec<f32>, Outcome) {
    let sizes = Sizes { servers: 2, switches, workers: WORKERS };
    let hot_path =
        HotPath { arithmetic, round_time_max: Duration::from_millis(5), ..HotPath::for_workers(WORKERS) };
    let cluster = Cluster::new(9, tables(), (switches > 0).then(plan), hot_path);

    let controller = ControllerNode::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let address = controller.address();
    let options = move |stream: u64| NodeOptions { faults, fault_seed: stream, ..NodeOptions::new(address) };
    let mut members = Vec::new();
    for _ in 0..sizes.servers {
        let server = ServerNode::bind(options(0), None).unwrap();
        members.push(thread::spawn(move || server.run(|_| ()).map(drop).unwrap()));
    }
    for number in 0..sizes.switches {
        let switch = SwitchNode::bind(options(100 + u64::from(number)), None).unwrap();
        members.push(thread::spawn(move || switch.run(|_| ()).map(drop).unwrap()));
    }
    let workers: Vec<_> =
        (0..WORKERS).map(|worker| thread::spawn(move || work(options(200 + u64::from(worker))))).collect();
    let (_commands, commands) = tokio::sync::mpsc::unbounded_channel();
    let outcome = controller.run(sizes, cluster, commands, |_| ()).unwrap();
    members.into_iter().for_each(|member| member.join().unwrap());
    let read = workers.into_iter().filter_map(|worker| worker.join().unwrap()).next().unwrap();
    (read, outcome)
}

fn all_keys() -> Vec<u64> {
    (0..ROWS).chain(LAYERS..LAYERS + 2).collect()
}

#[expect(clippy::cast_precision_loss, reason = "a unit is far below 2^24")]
fn work(options: NodeOptions) -> Option<Vec<f32>> {
    let mut worker = WorkerNode::join(options).unwrap();
    let number = worker.share();
    let mut pulls = Vec::new();
    for (keys, units) in pushes_of(number) {
        // Reads run beside the pushes, as in training.
        let mut distinct = keys.clone();
        distinct.sort_unstable();
        distinct.dedup();
        pulls.push(worker.start_pull(distinct).unwrap());
        worker.push(keys, units.iter().map(|unit| *unit as f32 * UNIT).collect()).unwrap();
    }
    for pull in pulls {
        assert!(worker.finish_pull(pull).unwrap().values.iter().all(|value| value.is_finite()));
    }
    worker.flush().unwrap();
    worker.barrier().unwrap();
    let read = (number == 0).then(|| {
        let pull = worker.start_pull(all_keys()).unwrap();
        worker.finish_pull(pull).unwrap().values
    });
    worker.report(String::new()).unwrap();
    read
}

/// Compares to the bit: the rows started at zero and SGD with rate 1 subtracted every gradient.
#[expect(clippy::cast_precision_loss, reason = "sums stay below 2^24 units, and the test asserts it")]
fn assert_equal_to_the_bit(read: &[f32]) {
    let pushes: Vec<_> = (0..WORKERS).flat_map(pushes_of).collect();
    let mut rest = read;
    for key in all_keys() {
        let (values, later) = rest.split_at(width_of(key));
        rest = later;
        for (value, sum) in values.iter().zip(expected(key, &pushes)) {
            assert!(sum.abs() < 1 << 24, "the test itself would round");
            let wanted = 0.0 - sum as f32 * UNIT;
            assert_eq!(value.to_bits(), wanted.to_bits(), "row {key}: {value} instead of {wanted}");
        }
    }
    assert!(rest.is_empty());
}

fn totals(outcome: &Outcome) -> (u64, u64, u64, u64) {
    let (mut retransmits, mut duplicates, mut too_large, mut rounds) = (0, 0, 0, 0);
    for (_, statistics) in &outcome.statistics {
        match statistics {
            Statistics::Worker(worker) => {
                retransmits += worker.retransmits;
                too_large += worker.rows_too_large;
            }
            Statistics::Switch(switch) => {
                duplicates += switch.duplicates;
                rounds += switch.rounds;
            }
            Statistics::Server(_) => {}
        }
    }
    (retransmits, duplicates, too_large, rounds)
}

#[test]
fn sums_are_equal_to_the_bit_on_a_faulty_network() {
    let (read, outcome) = run(1, ArithmeticMode::Fixed, FaultRates::new(0.05, 0.05, 0.1).unwrap());
    assert_equal_to_the_bit(&read);
    let (retransmits, duplicates, too_large, rounds) = totals(&outcome);
    assert!(retransmits > 0 && duplicates > 0, "the faults were injected: {retransmits} and {duplicates}");
    assert!(too_large > 0, "some gradients took the cold way");
    assert!(rounds > 10, "and there were several rounds: {rounds}");
}

#[test]
fn two_switches_share_the_regions() {
    let (read, outcome) = run(2, ArithmeticMode::Fixed, FaultRates::new(0.01, 0.01, 0.01).unwrap());
    assert_equal_to_the_bit(&read);
    let switches = outcome.statistics.iter().filter_map(|(_, statistics)| match statistics {
        Statistics::Switch(switch) => Some(switch.pushes),
        _ => None,
    });
    assert_eq!(switches.filter(|pushes| *pushes > 0).count(), 2);
}

#[test]
fn floating_point_slots_add_exact_numbers_exactly() {
    let (read, _) = run(1, ArithmeticMode::F32, FaultRates::new(0.02, 0.02, 0.05).unwrap());
    assert_equal_to_the_bit(&read);
}

/// The error of tables stays far below the change by one packet too many or too few, in nearly all rows.
#[expect(clippy::cast_precision_loss, reason = "sums stay below 2^24 units")]
#[test]
fn slots_that_add_by_tables_have_the_error_of_tables() {
    let (read, outcome) = run(1, ArithmeticMode::Table, FaultRates::new(0.05, 0.05, 0.1).unwrap());
    let (retransmits, duplicates, too_large, _) = totals(&outcome);
    assert!(retransmits > 0 && duplicates > 0, "the faults were injected: {retransmits} and {duplicates}");
    assert_eq!(too_large, 0, "every float fits");

    let pushes: Vec<_> = (0..WORKERS).flat_map(pushes_of).collect();
    let mut rest = read.as_slice();
    let mut inexact = 0;
    for key in all_keys() {
        let (values, later) = rest.split_at(width_of(key));
        rest = later;
        // Of each push that has the row, without signs: an addition is wrong by a share of that.
        let mut magnitudes = vec![0; width_of(key)];
        for push in &pushes {
            let added = expected(key, core::slice::from_ref(push));
            magnitudes.iter_mut().zip(added).for_each(|(magnitude, added)| *magnitude += added.abs());
        }
        for ((value, sum), magnitude) in values.iter().zip(expected(key, &pushes)).zip(magnitudes) {
            let wanted = 0.0 - sum as f32 * UNIT;
            let off = (value - wanted).abs();
            let allowed = if key < HOT_ROWS { 0.02 * magnitude as f32 * UNIT } else { 0.0 };
            assert!(off <= allowed, "row {key}: {value} instead of {wanted}, {allowed} off at most");
            inexact += u32::from(off > 0.0);
        }
    }
    assert!(inexact > 10_000, "tables were used: {inexact}");
}

#[test]
fn without_a_switch_every_row_goes_to_its_shard() {
    let (read, outcome) = run(0, ArithmeticMode::Fixed, FaultRates::default());
    assert_equal_to_the_bit(&read);
    assert_eq!(totals(&outcome), (0, 0, 0, 0));
}
