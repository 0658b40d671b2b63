//! The rows of every rule after 1,000 random steps are those of other implementations.
//!
//! `reference.py` names them, and makes `reference.txt`: PyTorch, Keras for FTRL-proximal, torchrec for row-wise
//! Adagrad, all in float64.

mod steps;

use libra_plan::{SplitMix64, finalizer};
use libra_store::{Clip, Decay, Optimizer, Schedule, Update, UpdateRule};

const WIDTH: usize = 8;
const REFERENCE: &str = include_str!("reference.txt");

/// Maximum distance of a row from the reference, as a part of the largest value of the row. (A part of each value would
/// ask more of one near 0 than its f32 steps from larger values can hold.)
///
/// If the reference keeps its row in f32 as a store does, only the arithmetic of a step differs. If it keeps
/// it in f64, the difference is also what 1,000 roundings of a row to f32 add up to.
const OF_STORED: f64 = 1e-6;
const OF_EXACT: f64 = 2e-6;

struct Case {
    rule: UpdateRule,
    scale: f32,
    starts_at_0: bool,
    lazy: bool,
}

fn case(name: &str) -> Case {
    let sgd: UpdateRule = Optimizer::Sgd { rate: 0.1 }.into();
    let adagrad = |epsilon| Optimizer::Adagrad { rate: 0.1, epsilon };
    let momentum = |nesterov| Optimizer::Momentum { rate: 0.01, momentum: 0.9, nesterov };
    let adam = |epsilon| Optimizer::Adam { rate: 0.01, beta1: 0.9, beta2: 0.999, epsilon };
    let scheduled = |warmup, decay| UpdateRule { schedule: Schedule { warmup, decay }, ..sgd };
    let rule = match name {
        "sgd" => sgd,
        "sgd_decay" => UpdateRule { weight_decay: 0.01, ..sgd },
        "momentum" => momentum(false).into(),
        "nesterov" => momentum(true).into(),
        "adagrad" => adagrad(1e-8).into(),
        "adagrad_epsilon" => adagrad(1e-2).into(),
        "adagrad_decay" => UpdateRule { weight_decay: 0.1, ..adagrad(1e-2).into() },
        "row_adagrad" => Optimizer::RowAdagrad { rate: 0.1, epsilon: 1e-2 }.into(),
        "adam" => adam(1e-8).into(),
        "adam_epsilon" => adam(1e-2).into(),
        "adam_decay" => UpdateRule { weight_decay: 0.1, ..adam(1e-2).into() },
        "adamw" => {
            let adamw = Optimizer::AdamW { rate: 0.01, beta1: 0.9, beta2: 0.999, epsilon: 1e-2 };
            UpdateRule { weight_decay: 0.1, ..adamw.into() }
        }
        "rms_prop" => Optimizer::RmsProp { rate: 0.01, decay: 0.9, epsilon: 1e-2 }.into(),
        "ftrl" => Optimizer::Ftrl { alpha: 0.1, beta: 1.0, l1: 0.0, l2: 0.0 }.into(),
        "ftrl_l1_l2" => Optimizer::Ftrl { alpha: 0.1, beta: 0.5, l1: 2.0, l2: 0.5 }.into(),
        "clip_value" => UpdateRule { clip: Clip::Value { limit: 700.0 }, ..sgd },
        "clip_norm" => UpdateRule { clip: Clip::Norm { limit: 1500.0 }, ..sgd },
        "step_decay" => scheduled(0, Decay::Step { every: 150, factor: 0.5 }),
        "exponential" => scheduled(0, Decay::Exponential { every: 400, factor: 0.3 }),
        "warm_constant" => scheduled(300, Decay::None),
        "warm_linear" => scheduled(50, Decay::Linear { steps: 800, floor: 0.1 }),
        "warm_cosine" => scheduled(100, Decay::Cosine { steps: 900, floor: 0.01 }),
        "warm_inverse_root" => scheduled(64, Decay::InverseRoot),
        "adam_lazy" => {
            let schedule = Schedule { warmup: 0, decay: Decay::Step { every: 100, factor: 0.75 } };
            UpdateRule { schedule, ..adam(1e-2).into() }
        }
        _ => panic!("the reference has a case that the test has not: {name}"),
    };
    Case {
        rule,
        scale: if name.starts_with("clip") { 1024.0 } else { 1.0 },
        starts_at_0: name.starts_with("ftrl"),
        lazy: name.ends_with("lazy"),
    }
}

/// The same numbers as in `reference.py`, where they are explained.
struct Numbers(SplitMix64);

impl Numbers {
    fn of(name: &str) -> Self {
        Self(SplitMix64::new(name.bytes().fold(0, |state, byte| finalizer(state ^ u64::from(byte)))))
    }

    fn even(&mut self) -> (f32, u64) {
        let bits = self.0.bits();
        ((bits >> 42) as f32 / (1 << 21) as f32 - 1.0, bits & 255)
    }

    fn gradient(&mut self, scale: f32) -> [f32; WIDTH] {
        std::array::from_fn(|lane| {
            let (value, other) = self.even();
            let size = if lane >= 4 { scale / 64.0 } else { scale };
            if other.is_multiple_of(8) { 0.0 } else { (value + (lane % 4) as f32 / 4.0) * size }
        })
    }
}

/// The row after so many steps.
fn row_after(name: &str, steps: u64) -> [f32; WIDTH] {
    let Case { rule, scale, starts_at_0, lazy } = case(name);
    let mut numbers = Numbers::of(name);
    let mut row = std::array::from_fn(|_| numbers.even().0);
    if starts_at_0 {
        row = [0.0; WIDTH];
    }
    let mut state = vec![0.0; rule.state_len(WIDTH)];
    for step in 0..steps {
        let touched = numbers.0.bits().is_multiple_of(3) || !lazy;
        let gradient = numbers.gradient(scale);
        if touched {
            let update: Update = rule.prepare(step);
            update.apply(&mut row, &mut state, &gradient);
        }
    }
    row
}

/// The largest difference as a part of the largest value.
fn difference(row: &[f32], reference: &[f64]) -> f64 {
    let largest = reference.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
    let differences = row.iter().zip(reference).map(|(ours, theirs)| (f64::from(*ours) - theirs).abs());
    let worst = differences.fold(0.0, f64::max);
    if worst == 0.0 { 0.0 } else { worst / largest }
}

#[test]
fn rows_are_those_of_other_implementations() {
    let mut failures = Vec::new();
    let mut compared = 0;
    for line in REFERENCE.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, kept, steps, reference @ ..] = &words[..] else { panic!("{line}") };
        let reference: Vec<f64> = reference.iter().map(|value| value.parse().unwrap()).collect();
        assert_eq!(reference.len(), WIDTH, "{line}");
        let allowed = match *kept {
            "stored" => OF_STORED,
            "exact" => OF_EXACT,
            _ => panic!("{line}"),
        };
        let found = difference(&row_after(name, steps.parse().unwrap()), &reference);
        println!("{name:20} {kept} {steps:>5} {found:.1e}");
        compared += 1;
        if found > allowed || found.is_nan() {
            failures.push(format!("{name}, {kept}, {steps} steps: {found:.1e} > {allowed:.0e}"));
        }
    }
    assert_eq!(compared, 24 * 2 * 4);
    assert!(failures.is_empty(), "{failures:#?}");
}
