use proptest::prelude::*;

use super::*;
use crate::{Decay, Schedule};

const SGD: Optimizer = Optimizer::Sgd { rate: 0.1 };
const ADAGRAD: Optimizer = Optimizer::Adagrad { rate: 0.1, epsilon: 1e-6 };
const ALL: [Optimizer; 8] = [
    SGD,
    Optimizer::Momentum { rate: 0.1, momentum: 0.9, nesterov: true },
    ADAGRAD,
    Optimizer::RowAdagrad { rate: 0.1, epsilon: 1e-6 },
    ADAM,
    Optimizer::AdamW { rate: 0.01, beta1: 0.9, beta2: 0.999, epsilon: 1e-8 },
    Optimizer::Ftrl { alpha: 0.1, beta: 1.0, l1: 0.25, l2: 0.5 },
    Optimizer::RmsProp { rate: 0.01, decay: 0.9, epsilon: 1e-8 },
];
const ADAM: Optimizer = Optimizer::Adam { rate: 0.01, beta1: 0.9, beta2: 0.999, epsilon: 1e-8 };

fn apply(optimizer: Optimizer, values: &mut [f32], state: &mut [f32], gradient: &[f32]) {
    UpdateRule::from(optimizer).prepare(0).apply(values, state, gradient);
}

/// One value after these gradients, by the formulas of the papers in f64, each written out over the whole
/// history.
fn textbook(optimizer: Optimizer, start: f64, gradients: &[f64]) -> f64 {
    let wide = f64::from;
    let mut value = start;
    for step in 1..=gradients.len() {
        let (history, gradient) = (&gradients[..step], gradients[step - 1]);
        value -= match optimizer {
            Optimizer::Sgd { rate } => wide(rate) * gradient,
            Optimizer::Adagrad { rate, epsilon } => {
                let squares: f64 = history.iter().map(|gradient| gradient * gradient).sum();
                wide(rate) * gradient / (squares.sqrt() + wide(epsilon))
            }
            Optimizer::Adam { rate, beta1, beta2, epsilon } => {
                let decayed = |beta: f64, power: i32| -> f64 {
                    let age = |index: usize| i32::try_from(step - 1 - index).unwrap();
                    let weighted = history.iter().enumerate();
                    let sum: f64 = weighted.map(|(index, g)| beta.powi(age(index)) * g.powi(power)).sum();
                    (1.0 - beta) * sum / (1.0 - beta.powi(i32::try_from(step).unwrap()))
                };
                let (mean, square) = (decayed(wide(beta1), 1), decayed(wide(beta2), 2));
                wide(rate) * mean / (square.sqrt() + wide(epsilon))
            }
            other => panic!("{other:?} is compared with another implementation only"),
        };
    }
    value
}

proptest! {
    #[test]
    fn optimizers_follow_the_textbook(
        which in prop::sample::select(vec![SGD, ADAGRAD, ADAM]),
        start in prop::array::uniform3(-1.0_f32..1.0),
        gradients in prop::collection::vec(prop::array::uniform3(-2.0_f32..2.0), 1..60),
    ) {
        let mut values = start;
        let mut state = vec![0.0; which.state_len(3)];
        for gradient in &gradients {
            apply(which, &mut values, &mut state, gradient);
        }
        for lane in 0..3 {
            let history: Vec<f64> = gradients.iter().map(|gradient| f64::from(gradient[lane])).collect();
            let expected = textbook(which, f64::from(start[lane]), &history);
            prop_assert!((f64::from(values[lane]) - expected).abs() < 5e-5, "{} {expected}", values[lane]);
        }
    }
}

#[test]
fn the_first_step_of_adam_is_the_rate_whatever_the_gradient() {
    for gradient in [1e-3, 1.0, 1e3] {
        let (mut values, mut state) = ([0.0], [0.0; 3]);
        apply(ADAM, &mut values, &mut state, &[gradient]);
        assert!((values[0] + 0.01).abs() < 1e-6, "{}", values[0]);
    }
}

#[test]
fn a_gradient_of_zero_changes_no_fresh_row() {
    let start = |optimizer: &Optimizer| match optimizer {
        // The row follows from its state, which begins at 0.
        Optimizer::Ftrl { .. } => [0.0; 2],
        _ => [0.5, -0.5],
    };
    for optimizer in ALL {
        let (mut values, mut state) = (start(&optimizer), vec![0.0; optimizer.state_len(2)]);
        apply(optimizer, &mut values, &mut state, &[0.0, 0.0]);
        assert_eq!(values, start(&optimizer), "{optimizer:?}");
    }
}

/// Each value by itself, whatever its neighbours are: where the compiler does several at once, the rest of a row
/// is computed by other instructions.
#[test]
fn a_wide_row_is_made_of_narrow_ones() {
    let number = |index: usize| ((index * 37 % 101) as f32 - 50.0) / 32.0;
    for optimizer in ALL.into_iter().filter(|optimizer| !matches!(optimizer, Optimizer::RowAdagrad { .. })) {
        for clip in [Clip::None, Clip::Value { limit: 0.5 }] {
            let rule = UpdateRule { clip, weight_decay: 0.01, ..optimizer.into() };
            for width in [1, 2, 3, 4, 7, 8, 15, 16, 17, 64, 255] {
                let mut wide: Vec<f32> = (0..width).map(number).collect();
                let mut state = vec![0.0; rule.state_len(width)];
                let mut narrow: Vec<_> =
                    wide.iter().map(|value| (*value, vec![0.0; rule.state_len(1)])).collect();
                for step in 0..5_u8 {
                    let update = rule.prepare(u64::from(step));
                    let gradient: Vec<f32> =
                        (0..width).map(|lane| number(lane + 100 * usize::from(step))).collect();
                    update.apply(&mut wide, &mut state, &gradient);
                    for ((value, state), gradient) in narrow.iter_mut().zip(gradient) {
                        update.apply(from_mut(value), state, &[gradient]);
                    }
                }
                assert!(narrow.iter().map(|(value, _)| value).eq(&wide), "{rule:?} {width}");
            }
        }
    }
}

#[test]
fn row_wise_adagrad_of_width_1_is_adagrad() {
    let (mut by_row, mut by_value) = ([[0.25], [0.0]], [[0.25], [0.0]]);
    for gradient in [1.0, -0.5, 0.3, 7.0] {
        let [values, state] = &mut by_row;
        apply(Optimizer::RowAdagrad { rate: 0.1, epsilon: 1e-6 }, values, state, &[gradient]);
        let [values, state] = &mut by_value;
        apply(ADAGRAD, values, state, &[gradient]);
    }
    assert_eq!(by_row[1], by_value[1]);
    assert!((by_row[0][0] - by_value[0][0]).abs() < 1e-7);
}

#[test]
fn l1_of_ftrl_makes_values_exactly_0() {
    let ftrl = Optimizer::Ftrl { alpha: 0.1, beta: 1.0, l1: 1.5, l2: 0.0 };
    let (mut values, mut state) = ([0.0; 2], [0.0; 4]);
    for _ in 0..3 {
        apply(ftrl, &mut values, &mut state, &[0.5, 0.75]);
    }
    assert_eq!(values[0], 0.0);
    assert!(values[1] < 0.0);
}

#[test]
fn gradients_are_clipped_before_the_weight_decays() {
    let after = |clip, weight_decay| {
        let rule = UpdateRule { clip, weight_decay, ..Optimizer::Sgd { rate: 1.0 }.into() };
        let mut values = [1.0, 1.0];
        rule.prepare(0).apply(&mut values, &mut [], &[3.0, -4.0]);
        values
    };
    assert_eq!(after(Clip::None, 0.0), [-2.0, 5.0]);
    assert_eq!(after(Clip::None, 0.5), [-2.5, 4.5]);
    assert_eq!(after(Clip::Value { limit: 2.0 }, 0.5), [-1.5, 2.5]);
    assert_eq!(after(Clip::Norm { limit: 2.5 }, 0.5), [-1.0, 2.5]);
    assert_eq!(after(Clip::Norm { limit: 5.0 }, 0.0), [-2.0, 5.0]);
}

#[test]
fn the_norm_of_the_largest_gradients_is_no_infinity() {
    let rule = UpdateRule { clip: Clip::Norm { limit: 1.0 }, ..SGD.into() };
    let mut values = [0.0; 4];
    rule.prepare(0).apply(&mut values, &mut [], &[f32::MAX; 4]);
    assert!(values.iter().all(|value| (value + 0.05).abs() < 1e-6), "{values:?}");
}

#[test]
fn the_rate_is_the_schedule_s() {
    let rule = UpdateRule {
        schedule: Schedule { warmup: 0, decay: Decay::Step { every: 3, factor: 0.5 } },
        ..SGD.into()
    };
    let mut values = [0.0];
    for step in [2, 3, 6] {
        rule.prepare(step).apply(&mut values, &mut [], &[-10.0]);
    }
    assert_eq!(values, [1.75]);
    assert_eq!(UpdateRule::from(ADAM).prepare(0), UpdateRule::from(ADAM).prepare(u64::MAX));
}

#[test]
fn steps_stand_still_where_they_no_longer_matter() {
    let most = 16_777_216.0;
    let (mut values, mut state) = ([0.0], [0.0, 0.0, most]);
    apply(ADAM, &mut values, &mut state, &[1.0]);
    assert_eq!(state[2], most);
    assert_eq!(one_minus_powers([0.999; 2], most)[0], 1.0);
    assert_eq!(one_minus_powers([0.0; 2], 1.0)[0], 1.0);
    assert_eq!(one_minus_powers([0.999; 2], 1.0)[0], 1.0 - 0.999_f32);
}

#[test]
fn prepared_corrections_change_no_bit() {
    for width in [1, 7, 8, 16, 21] {
        let rule = UpdateRule::from(Optimizer::Adam { rate: 0.01, beta1: 0.9, beta2: 0.999, epsilon: 1e-8 });
        let update = rule.prepare(0);
        let mut corrections = Corrections::default();
        let mut rows = [(); 2].map(|()| (vec![0.5; width], vec![0.0; 2 * width + 1]));
        for step in 1..40_u16 {
            // Some of the rows have more steps than were prepared.
            corrections.prepare(&update, u64::from(step.min(30)));
            let gradient: Vec<f32> = (0..width).map(|lane| 0.1 * f32::from(step) - lane as f32).collect();
            let [(values, state), (others, of_others)] = &mut rows;
            update.apply(values, state, &gradient);
            update.apply_with(corrections.by_steps(), others, of_others, &gradient);
        }
        let bits = |(values, state): &(Vec<f32>, Vec<f32>)| {
            values.iter().chain(state).map(|value| value.to_bits()).collect::<Vec<_>>()
        };
        assert_eq!(bits(&rows[0]), bits(&rows[1]), "width {width}");
    }
}
