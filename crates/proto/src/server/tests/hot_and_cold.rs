//! The value of a row whose gradients a switch sums, and the value from the same gradients one by one: the table in
//! docs/concepts/arithmetic.md, *What the optimizer sees*.

use libra_store::{Clip, Decay, Optimizer, Rule, Schedule};

use super::counter::{Counter, address, push};
use crate::cluster::{Cluster, Peer};
use crate::server::Server;
use crate::testing;

/// Gradients of row 0, by epoch. One sum is zero.
const EPOCHS: [&[i32]; 5] = [&[1, 3, -2], &[4, 4], &[3, -3], &[2], &[-1, -1, -1]];

fn counter(rule: Rule) -> Counter {
    let mut cluster: Cluster = testing::cluster(4);
    cluster.tables[0].rule = rule;
    Counter::starting_in(Server::new(address(0), address(1)), cluster)
}

/// The row as the optimizer makes it of sums of epochs.
fn hot(rule: Rule) -> f32 {
    let mut counter = counter(rule);
    let switch = counter.call(Peer::Switch(0));
    counter.adopt(switch, 1);
    for (epoch, gradients) in (1..).zip(EPOCHS) {
        let sum = gradients.iter().sum::<i32>().cast_unsigned();
        assert!(counter.commit(switch, 1, epoch, sum).is_some());
    }
    counter.value(0)
}

/// The row as it makes it of these pushes.
#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn cold(rule: Rule, gradients: impl IntoIterator<Item = i32>) -> f32 {
    let mut counter = counter(rule);
    let worker = counter.call(Peer::Worker(1));
    for (number, gradient) in (1..).zip(gradients) {
        counter.ask(worker, push(number, &[0], gradient as f32));
    }
    counter.value(0)
}

/// The same gradients one by one.
fn one_by_one(rule: Rule) -> f32 {
    cold(rule, EPOCHS.concat())
}

/// Those of each epoch in one push.
fn summed(rule: Rule) -> f32 {
    cold(rule, EPOCHS.iter().map(|gradients| gradients.iter().sum()).filter(|sum| *sum != 0))
}

// rule E6
#[test]
fn a_hot_row_gets_one_gradient_for_each_epoch() {
    let sgd: Rule = Optimizer::Sgd { rate: 0.5 }.into();
    let momentum = |nesterov| Optimizer::Momentum { rate: 0.5, momentum: 0.75, nesterov };
    let (rate, beta1, beta2, epsilon) = (0.25, 0.75, 0.875, 1e-6);
    let adamw: Rule = Optimizer::AdamW { rate, beta1, beta2, epsilon }.into();
    let scheduled = |warmup, decay| Rule { schedule: Schedule { warmup, decay }, ..sgd };
    // Whether it is the same as all gradients one by one.
    let table: [(&str, Rule, bool); 15] = [
        ("sgd", sgd, true),
        ("sgd, a limit that no sum reaches", Rule { clip: Clip::Value { limit: 8.0 }, ..sgd }, true),
        ("sgd, a limit of values", Rule { clip: Clip::Value { limit: 4.0 }, ..sgd }, false),
        ("sgd, a limit of norms", Rule { clip: Clip::Norm { limit: 6.0 }, ..sgd }, false),
        ("sgd, weight decay", Rule { weight_decay: 0.125, ..sgd }, false),
        ("sgd, warm-up", scheduled(16, Decay::None), false),
        ("sgd, decay of the rate", scheduled(0, Decay::Step { every: 4, factor: 0.5 }), false),
        ("momentum", momentum(false).into(), false),
        ("nesterov", momentum(true).into(), false),
        ("adagrad", Optimizer::Adagrad { rate, epsilon }.into(), false),
        ("row-wise adagrad", Optimizer::RowAdagrad { rate, epsilon }.into(), false),
        ("adam", Optimizer::Adam { rate, beta1, beta2, epsilon }.into(), false),
        ("adamw", Rule { weight_decay: 0.125, ..adamw }, false),
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
    let momentum: Rule = Optimizer::Momentum { rate: 1.0, momentum: 0.5, nesterov: false }.into();
    assert_eq!(cold(momentum, [8]), -8.0);
    assert_eq!(cold(momentum, [8, 0]), -12.0);
    let mut counter = counter(momentum);
    let switch = counter.call(Peer::Switch(0));
    counter.adopt(switch, 1);
    for (epoch, sum) in [(1, 8), (2, 0)] {
        assert!(counter.commit(switch, 1, epoch, sum).is_some());
    }
    assert_eq!(counter.value(0), -8.0);
}
