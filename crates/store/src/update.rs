//! The loops that change a row.

use std::slice::{from_mut, from_ref};

use crate::exact::whole_powers;
use crate::{Clip, Optimizer, UpdateRule};

/// Effect of one batch on each of its rows: a [`UpdateRule`] with the rate of one step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Update {
    /// With the rate of this step.
    optimizer: Optimizer,
    clip: Clip,
    /// True if gradients are clipped, or rows decay with them.
    shapes: bool,
    /// Times the row is added to the gradient.
    decay: f32,
    /// Times the row is taken from it, beside the gradient.
    shrink: f32,
}

impl Update {
    pub(crate) fn new(rule: &UpdateRule, step: u64) -> Self {
        let mut optimizer = rule.optimizer;
        let rate = optimizer.rate_mut();
        *rate = narrow(f64::from(*rate) * rule.schedule.factor(step));
        let (decay, shrink) = match optimizer {
            Optimizer::AdamW { rate, .. } => (0.0, rate * rule.weight_decay),
            _ => (rule.weight_decay, 0.0),
        };
        Self { optimizer, clip: rule.clip, shapes: rule.clip != Clip::None || decay != 0.0, decay, shrink }
    }

    /// Changes `values` by `gradient`; `state` has [`Optimizer::state_len`] words and was zero before the first update.
    ///
    /// The gradient is taken as it is: one that is not finite makes the row so too.
    ///
    /// # Panics
    /// The gradient is not as wide as the row, or the state is not of the optimizer and width.
    // A call for each row would take a tenth of a batch's time.
    #[inline(always)]
    pub fn apply(&self, values: &mut [f32], state: &mut [f32], gradient: &[f32]) {
        assert_eq!(gradient.len(), values.len(), "a row and its gradient are of one width");
        if self.shapes {
            self.apply_shaped(values, state, gradient);
        } else if let ([value], [gradient]) = (&mut *values, gradient) {
            // Where the compiler sees that there is one value, the loops are none: a quarter less time for a row.
            self.step(from_mut(value), state, from_ref(gradient), |_, gradient| gradient);
        } else {
            self.step(values, state, gradient, |_, gradient| gradient);
        }
    }

    /// Apart, so that a rule that leaves gradients alone does not pay for it.
    #[inline(never)]
    fn apply_shaped(&self, values: &mut [f32], state: &mut [f32], gradient: &[f32]) {
        let decay = self.decay;
        match self.clip {
            Clip::None => self.step(values, state, gradient, |value, gradient| gradient + decay * value),
            Clip::Value { limit } => self.step(values, state, gradient, |value, gradient| {
                gradient.clamp(-limit, limit) + decay * value
            }),
            Clip::Norm { limit } => {
                let norm = sum_of_squares(gradient.len(), |lane| gradient[lane]).sqrt();
                let limit = f64::from(limit);
                let scale = if norm > limit { narrow(limit / norm) } else { 1.0 };
                self.step(values, state, gradient, |value, gradient| gradient * scale + decay * value);
            }
        }
    }

    /// One step of the optimizer; `shape` makes of a value and its gradient what the formula sees.
    #[inline(always)]
    fn step(
        &self,
        values: &mut [f32],
        state: &mut [f32],
        gradient: &[f32],
        shape: impl Fn(f32, f32) -> f32 + Copy,
    ) {
        match self.optimizer {
            Optimizer::Sgd { rate } => {
                check_state(state, 0);
                sgd(values, gradient, shape, rate);
            }
            Optimizer::Momentum { rate, momentum, nesterov } => {
                // What the sum of the past and the gradient count for.
                let weights = if nesterov { [momentum, 1.0] } else { [1.0, 0.0] };
                descend_with_momentum(values, state, gradient, shape, rate, momentum, weights);
            }
            Optimizer::Adagrad { rate, epsilon } => adagrad(values, state, gradient, shape, rate, epsilon),
            Optimizer::RowAdagrad { rate, epsilon } => {
                check_state(state, 1);
                row_adagrad(values, &mut state[0], gradient, shape, rate, epsilon);
            }
            Optimizer::Adam { rate, beta1, beta2, epsilon }
            | Optimizer::AdamW { rate, beta1, beta2, epsilon } => {
                adam(
                    values,
                    state,
                    gradient,
                    shape,
                    Adam { rate, beta1, beta2, epsilon, shrink: self.shrink },
                );
            }
            Optimizer::Ftrl { alpha, beta, l1, l2 } => {
                ftrl(values, state, gradient, shape, Ftrl { alpha, beta, l1, l2 });
            }
            Optimizer::RmsProp { rate, decay, epsilon } => {
                rms_prop(values, state, gradient, shape, rate, decay, epsilon);
            }
        }
    }
}

/// Checks that there is as much state as [`Optimizer::state_len`] requires: in each loop and not before, because to
/// find out twice which loop it is would be felt where a row is one value.
#[inline]
fn check_state(state: &[f32], words: usize) {
    assert_eq!(state.len(), words, "the state is that of the optimizer and the width");
}

#[inline]
fn sgd(values: &mut [f32], gradient: &[f32], shape: impl Fn(f32, f32) -> f32, rate: f32) {
    for (value, gradient) in values.iter_mut().zip(gradient) {
        *value -= rate * shape(*value, *gradient);
    }
}

#[inline]
fn descend_with_momentum(
    values: &mut [f32],
    sums: &mut [f32],
    gradient: &[f32],
    shape: impl Fn(f32, f32) -> f32,
    rate: f32,
    momentum: f32,
    [of_sum, of_gradient]: [f32; 2],
) {
    check_state(sums, values.len());
    for ((value, sum), gradient) in values.iter_mut().zip(sums).zip(gradient) {
        let gradient = shape(*value, *gradient);
        *sum = momentum * *sum + gradient;
        *value -= rate * (of_sum * *sum + of_gradient * gradient);
    }
}

#[inline]
fn adagrad(
    values: &mut [f32],
    squares: &mut [f32],
    gradient: &[f32],
    shape: impl Fn(f32, f32) -> f32,
    rate: f32,
    epsilon: f32,
) {
    check_state(squares, values.len());
    for ((value, squares), gradient) in values.iter_mut().zip(squares).zip(gradient) {
        let gradient = shape(*value, *gradient);
        *squares += gradient * gradient;
        *value -= rate * gradient / (squares.sqrt() + epsilon);
    }
}

#[inline]
fn row_adagrad(
    values: &mut [f32],
    squares: &mut f32,
    gradient: &[f32],
    shape: impl Fn(f32, f32) -> f32,
    rate: f32,
    epsilon: f32,
) {
    let sum = sum_of_squares(values.len(), |lane| shape(values[lane], gradient[lane]));
    *squares += narrow(sum / values.len() as f64);
    let rate = rate / (squares.sqrt() + epsilon);
    sgd(values, gradient, shape, rate);
}

struct Adam {
    rate: f32,
    beta1: f32,
    beta2: f32,
    epsilon: f32,
    shrink: f32,
}

#[inline]
fn adam(
    values: &mut [f32],
    state: &mut [f32],
    gradient: &[f32],
    shape: impl Fn(f32, f32) -> f32,
    Adam { rate, beta1, beta2, epsilon, shrink }: Adam,
) {
    check_state(state, 2 * values.len() + 1);
    let (means, rest) = state.split_at_mut(values.len());
    let (squares, steps) = rest.split_at_mut(values.len());
    // An f32 counts exactly up to 2^24 and then stands still, where both corrections are 1 for any decay that
    // training uses.
    steps[0] += 1.0;
    let [correction1, correction2] = one_minus_powers([beta1, beta2], steps[0]);
    for (((value, mean), square), gradient) in values.iter_mut().zip(means).zip(squares).zip(gradient) {
        let gradient = shape(*value, *gradient);
        *mean = beta1 * *mean + (1.0 - beta1) * gradient;
        *square = beta2 * *square + (1.0 - beta2) * gradient * gradient;
        let change = rate * (*mean / correction1) / ((*square / correction2).sqrt() + epsilon);
        // One sum, rounded once: a factor of 1 - shrink would be rounded the same way in every step, and drift.
        *value -= shrink * *value + change;
    }
}

struct Ftrl {
    alpha: f32,
    beta: f32,
    l1: f32,
    l2: f32,
}

#[inline]
fn ftrl(
    values: &mut [f32],
    state: &mut [f32],
    gradient: &[f32],
    shape: impl Fn(f32, f32) -> f32,
    Ftrl { alpha, beta, l1, l2 }: Ftrl,
) {
    check_state(state, 2 * values.len());
    let (sums, squares) = state.split_at_mut(values.len());
    for (((value, sum), squares), gradient) in values.iter_mut().zip(sums).zip(squares).zip(gradient) {
        let gradient = shape(*value, *gradient);
        let root_before = squares.sqrt();
        *squares += gradient * gradient;
        let root = squares.sqrt();
        *sum += gradient - (root - root_before) / alpha * *value;
        // Towards 0 by l1, and no further.
        let beyond = *sum - sum.clamp(-l1, l1);
        *value = -beyond / ((beta + root) / alpha + l2);
    }
}

#[inline]
fn rms_prop(
    values: &mut [f32],
    squares: &mut [f32],
    gradient: &[f32],
    shape: impl Fn(f32, f32) -> f32,
    rate: f32,
    decay: f32,
    epsilon: f32,
) {
    check_state(squares, values.len());
    for ((value, square), gradient) in values.iter_mut().zip(squares).zip(gradient) {
        let gradient = shape(*value, *gradient);
        *square = decay * *square + (1.0 - decay) * gradient * gradient;
        *value -= rate * gradient / (square.sqrt() + epsilon);
    }
}

/// The sum of the squares of `lanes` numbers: in f64, where no square of an f32 is too large, and in several sums
/// side by side, as the order of one sum would forbid the compiler to add two at once.
#[inline]
pub(crate) fn sum_of_squares(lanes: usize, lane: impl Fn(usize) -> f32) -> f64 {
    const SIDE_BY_SIDE: usize = 4;
    let mut sums = [0.0; SIDE_BY_SIDE];
    let whole = lanes - lanes % SIDE_BY_SIDE;
    for start in (0..whole).step_by(SIDE_BY_SIDE) {
        for (offset, sum) in sums.iter_mut().enumerate() {
            let value = f64::from(lane(start + offset));
            *sum += value * value;
        }
    }
    let rest: f64 = (whole..lanes).map(|index| f64::from(lane(index))).map(|value| value * value).sum();
    (sums[0] + sums[1]) + (sums[2] + sums[3]) + rest
}

/// `1 - base^exponent` for a whole exponent; in f64, because for a decay near 1 little is left of it at first.
#[inline]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "steps are whole, up to 2^24")]
fn one_minus_powers(bases: [f32; 2], exponent: f32) -> [f32; 2] {
    whole_powers(bases.map(f64::from), exponent as u64).map(|power| narrow(1.0 - power))
}

#[expect(clippy::cast_possible_truncation, reason = "rows are f32, what is computed once for many is f64")]
fn narrow(value: f64) -> f32 {
    value as f32
}

#[cfg(test)]
mod tests;
