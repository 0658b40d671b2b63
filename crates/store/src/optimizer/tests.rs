use proptest::prelude::*;

use super::*;

const SGD: Optimizer = Optimizer::Sgd { rate: 0.1 };
const ADAGRAD: Optimizer = Optimizer::Adagrad { rate: 0.1, epsilon: 1e-6 };
const ADAM: Optimizer = Optimizer::Adam { rate: 0.01, beta1: 0.9, beta2: 0.999, epsilon: 1e-8 };

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
            which.apply(&mut values, &mut state, gradient);
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
        ADAM.apply(&mut values, &mut state, &[gradient]);
        assert!((values[0] + 0.01).abs() < 1e-6, "{}", values[0]);
    }
}

#[test]
fn a_gradient_of_zero_changes_no_fresh_row() {
    for optimizer in [SGD, ADAGRAD, ADAM] {
        let (mut values, mut state) = ([0.5, -0.5], vec![0.0; optimizer.state_len(2)]);
        optimizer.apply(&mut values, &mut state, &[0.0, 0.0]);
        assert_eq!(values, [0.5, -0.5]);
    }
}

#[test]
fn steps_stand_still_where_they_no_longer_matter() {
    let most = 16_777_216.0;
    let (mut values, mut state) = ([0.0], [0.0, 0.0, most]);
    ADAM.apply(&mut values, &mut state, &[1.0]);
    assert_eq!(state[2], most);
    assert_eq!(one_minus_power(0.999, most), 1.0);
    assert_eq!(one_minus_power(0.0, 1.0), 1.0);
    assert_eq!(one_minus_power(0.999, 1.0), 1.0 - 0.999_f32);
}
