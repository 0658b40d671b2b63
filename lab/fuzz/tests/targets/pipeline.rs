//! The pipeline against its model, over steps that the bytes of an input choose.

use libra_fuzz::{Outcome, Target};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::model::{Model, any_step, check_end, step};
use crate::scene::{any_config, pipeline};

/// Bytes that choose one step: so inputs can lose steps, repeat them and exchange them.
const CHOICE: usize = 16;
const SEEDS: u8 = 8;
const STEPS: usize = 120;
/// The windows of a region, copies of it, and what the model keeps.
const MEMORY_BYTES: u64 = 16 << 20;

fn choices() -> Vec<Vec<u8>> {
    let random = |seed| TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
    let chosen = |seed| {
        let mut bytes = vec![0; CHOICE * (1 + STEPS)];
        random(seed).fill_bytes(&mut bytes);
        bytes
    };
    (0..SEEDS).map(chosen).collect()
}

/// Draws a value by these bytes.
fn drawn<S: Strategy>(strategy: &S, config: &Config, bytes: &[u8; CHOICE]) -> S::Value {
    let random = TestRng::from_seed(RngAlgorithm::XorShift, bytes);
    let mut runner = TestRunner::new_with_rng(config.clone(), random);
    strategy.new_tree(&mut runner).expect("nothing is rejected").current()
}

/// The first choice is that of a region.
pub(crate) fn read(bytes: &[u8]) -> Outcome {
    let (choices, _) = bytes.as_chunks::<CHOICE>();
    let Some((first, choices)) = choices.split_first() else { return Outcome::refused("no region") };
    let by = Config::default();
    let config = drawn(&any_config(0), &by, first);
    let (mut pipeline, mut model) = (pipeline(&[config]), Model::new(config));
    let steps = any_step();
    for choice in choices {
        step(&mut pipeline, &mut model, drawn(&steps, &by, choice));
    }
    check_end(&pipeline, &model);
    let counters = pipeline.counters();
    let happened = [
        ("pushes", counters.pushes),
        ("duplicates", counters.duplicates),
        ("pulls", counters.pulls),
        ("drains", counters.drains),
        ("refused", counters.refused()),
    ];
    let happened: Vec<_> = happened.iter().filter(|(_, count)| *count > 0).map(|(name, _)| *name).collect();
    if counters.pushes == 0 {
        println!("{config:?} {:?}", counters);
    }
    if happened.iter().any(|name| *name != "refused") {
        Outcome::beyond(happened.join(" "))
    } else {
        Outcome::refused("all refused")
    }
}

pub(crate) fn target() -> Target {
    Target::new("pipeline", choices()).with_memory(MEMORY_BYTES)
}
