//! The value of a row whose gradients a switch sums, and the value from the same gradients one by one: the table in
//! docs/concepts/arithmetic.md, *What the optimizer sees*.

use libra_store::{Clip, Decay, Optimizer, Schedule, UpdateRule};

use super::harness::{ServerHarness, address, push};
use crate::cluster::{Cluster, Peer};
use crate::server::Server;
use crate::testing;

/// Gradients of row 0, by round. One sum is zero.
const ROUNDS: [&[i32]; 5] = [&[1, 3, -2], &[4, 4], &[3, -3], &[2], &[-1, -1, -1]];

fn harness(rule: UpdateRule) -> ServerHarness {
    let mut cluster: Cluster = testing::cluster(4);
    cluster.tables[0].rule = rule;
    ServerHarness::starting_in(Server::new(address(1)), cluster)
}

/// The row as the optimizer makes it of sums of rounds.
fn hot(rule: UpdateRule) -> f32 {
    let mut harness = harness(rule);
    let switch = harness.call(Peer::Switch(0));
    harness.adopt(switch, 1);
    for (round, gradients) in (1..).zip(ROUNDS) {
        let sum = gradients.iter().sum::<i32>().cast_unsigned();
        assert!(harness.commit(switch, 1, round, sum).is_some());
    }
    harness.value(0)
}

/// The row as it makes it of these pushes.
#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn cold(rule: UpdateRule, gradients: impl IntoIterator<Item = i32>) -> f32 {
    let mut harness = harness(rule);
    let worker = harness.call(Peer::Worker(1));
    for (number, gradient) in (1..).zip(gradients) {
        harness.request(worker, push(number, &[0], gradient as f32));
    }
    harness.value(0)
}

/// The same gradients one by one.
fn one_by_one(rule: UpdateRule) -> f32 {
    cold(rule, ROUNDS.concat())
}

/// Those of each round in one push.
fn summed(rule: UpdateRule) -> f32 {
    cold(rule, ROUNDS.iter().map(|gradients| gradients.iter().sum()).filter(|sum| *sum != 0))
}

// rule E6
#[test]
fn a_hot_row_gets_one_gradient_for_each_round() {
    let sgd: UpdateRule = Optimizer::Sgd { rate: 0.5 }.into();
    let momentum = |nesterov| Optimizer::Momentum { rate: 0.5, momentum: 0.75, nesterov };
    let (rate, beta1, beta2, epsilon) = (0.25, 0.75, 0.875, 1e-6);
    let adamw: UpdateRule = Optimizer::AdamW { rate, beta1, beta2, epsilon }.into();
    let scheduled = |warmup, decay| UpdateRule { schedule: Schedule { warmup, decay }, ..sgd };
    // Whether it is the same as all gradients one by one.
    let table: [(&str, UpdateRule, bool); 15] = [
        ("sgd", sgd, true),
        ("sgd, a limit that no sum reaches", UpdateRule { clip: Clip::Value { limit: 8.0 }, ..sgd }, true),
        ("sgd, a limit of values", UpdateRule { clip: Clip::Value { limit: 4.0 }, ..sgd }, false),
        ("sgd, a limit of norms", UpdateRule { clip: Clip::Norm { limit: 6.0 }, ..sgd }, false),
        ("sgd, weight decay", UpdateRule { weight_decay: 0.125, ..sgd }, false),
        ("sgd, warm-up", scheduled(16, Decay::None), false),
        ("sgd, decay of the rate", scheduled(0, Decay::Step { every: 4, factor: 0.5 }), false),
        ("momentum", momentum(false).into(), false),
        ("nesterov", momentum(true).into(), false),
        ("adagrad", Optimizer::Adagrad { rate, epsilon }.into(), false),
        ("row-wise adagrad", Optimizer::RowAdagrad { rate, epsilon }.into(), false),
        ("adam", Optimizer::Adam { rate, beta1, beta2, epsilon }.into(), false),
        ("adamw", UpdateRule { weight_decay: 0.125, ..adamw }, false),
        ("ftrl", Optimizer::Ftrl { alpha: 0.25, beta: 1.0, l1: 0.5, l2: 0.5 }.into(), false),
        ("rmsprop", Optimizer::RmsProp { rate, decay: 0.75, epsilon }.into(), false),
    ];
    for (name, rule, is_same) in table {
        let (hot, summed, one_by_one) = (hot(rule), summed(rule), one_by_one(rule));
        println!("{name:35} hot {hot:>10} one by one {one_by_one:>10}");
        assert_eq!(hot.to_bits(), summed.to_bits(), "{name}: {hot} is not what sums make, {summed}");
        assert_eq!(hot == one_by_one, is_same, "{name}: hot {hot}, one by one {one_by_one}");
    }
}

// rule E6
#[test]
fn sums_of_zero_are_no_gradient_and_pushes_of_zero_are_one() {
    let momentum: UpdateRule = Optimizer::Momentum { rate: 1.0, momentum: 0.5, nesterov: false }.into();
    assert_eq!(cold(momentum, [8]), -8.0);
    assert_eq!(cold(momentum, [8, 0]), -12.0);
    let mut harness = harness(momentum);
    let switch = harness.call(Peer::Switch(0));
    harness.adopt(switch, 1);
    for (round, sum) in [(1, 8), (2, 0)] {
        assert!(harness.commit(switch, 1, round, sum).is_some());
    }
    assert_eq!(harness.value(0), -8.0);
}
