//! The loops that change a row.

use std::slice::{from_mut, from_ref};

use crate::exact::whole_powers;
use crate::{Clip, Optimizer, UpdateRule};

/// Values of a row that change at once.
const LANES: usize = 8;

/// Corrections that are kept: 32 KiB.
const CORRECTIONS: usize = 4096;

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
    #[inline]
    pub fn apply(&self, values: &mut [f32], state: &mut [f32], gradient: &[f32]) {
        self.apply_with(&[], values, state, gradient);
    }

    /// The same, with corrections that were computed before, where the formula has some.
    // A call for each row would take a tenth of a batch's time.
    #[inline(always)]
    pub(crate) fn apply_with(
        &self,
        corrections: &[[f32; 2]],
        values: &mut [f32],
        state: &mut [f32],
        gradient: &[f32],
    ) {
        assert_eq!(gradient.len(), values.len(), "a row and its gradient are of one width");
        if self.shapes {
            self.apply_shaped(corrections, values, state, gradient);
        } else if let ([value], [gradient]) = (&mut *values, gradient) {
            // Where the compiler sees that there is one value, the loops are none: a quarter less time for a row.
            self.step(corrections, from_mut(value), state, from_ref(gradient), |_, gradient| gradient);
        } else {
            self.step(corrections, values, state, gradient, |_, gradient| gradient);
        }
    }

    /// Apart, so that a rule that leaves gradients alone does not pay for it.
    #[inline(never)]
    fn apply_shaped(
        &self,
        corrections: &[[f32; 2]],
        values: &mut [f32],
        state: &mut [f32],
        gradient: &[f32],
    ) {
        let decay = self.decay;
        match self.clip {
            Clip::None => {
                self.step(corrections, values, state, gradient, |value, gradient| gradient + decay * value);
            }
            Clip::Value { limit } => self.step(corrections, values, state, gradient, |value, gradient| {
                gradient.clamp(-limit, limit) + decay * value
            }),
            Clip::Norm { limit } => {
                let norm = sum_of_squares(gradient.len(), |lane| gradient[lane]).sqrt();
                let limit = f64::from(limit);
                let scale = if norm > limit { narrow(limit / norm) } else { 1.0 };
                let shape = |value, gradient| gradient * scale + decay * value;
                self.step(corrections, values, state, gradient, shape);
            }
        }
    }

    /// One step of the optimizer; `shape` makes of a value and its gradient what the formula sees.
    // The loops are inlined, too: a function of its own would have the instructions of all processors, and would read the numbers
    // of the rule from memory for each row, behind the stores of the row before.
    #[inline(always)]
    fn step(
        &self,
        corrections: &[[f32; 2]],
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
                let numbers = Adam { rate, beta1, beta2, epsilon, shrink: self.shrink };
                adam(values, state, gradient, shape, numbers, corrections);
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

#[inline(always)]
fn sgd(values: &mut [f32], gradient: &[f32], shape: impl Fn(f32, f32) -> f32, rate: f32) {
    for (value, gradient) in values.iter_mut().zip(gradient) {
        *value -= rate * shape(*value, *gradient);
    }
}

#[inline(always)]
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

#[inline(always)]
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

#[inline(always)]
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

#[derive(Clone, Copy)]
struct Adam {
    rate: f32,
    beta1: f32,
    beta2: f32,
    epsilon: f32,
    shrink: f32,
}

#[inline(always)]
fn adam(
    values: &mut [f32],
    state: &mut [f32],
    gradient: &[f32],
    shape: impl Fn(f32, f32) -> f32,
    numbers: Adam,
    corrections: &[[f32; 2]],
) {
    check_state(state, 2 * values.len() + 1);
    let (means, rest) = state.split_at_mut(values.len());
    let (squares, steps) = rest.split_at_mut(values.len());
    // An f32 counts exactly up to 2^24 and then stands still, where both corrections are 1 for any decay that
    // training uses.
    steps[0] += 1.0;
    let betas = [numbers.beta1, numbers.beta2];
    let correction = match corrections.get(whole(steps[0])) {
        Some(correction) => *correction,
        None => one_minus_powers(betas, steps[0]),
    };
    // As many at once as the widest instructions take: a loop of unknown length has none of them for a row of 8 or 16.
    let (of_values, values) = values.as_chunks_mut::<LANES>();
    let (of_means, means) = means.as_chunks_mut::<LANES>();
    let (of_squares, squares) = squares.as_chunks_mut::<LANES>();
    let (of_gradient, gradient) = gradient.as_chunks::<LANES>();
    for (((values, means), squares), gradient) in
        of_values.iter_mut().zip(of_means).zip(of_squares).zip(of_gradient)
    {
        // Copies, of which the compiler knows that they are apart.
        let [mut new_values, mut new_means, mut new_squares] = [*values, *means, *squares];
        for lane in 0..LANES {
            let gradient = shape(new_values[lane], gradient[lane]);
            let row = [new_values[lane], new_means[lane], new_squares[lane]];
            [new_values[lane], new_means[lane], new_squares[lane]] = numbers.step(row, gradient, correction);
        }
        (*values, *means, *squares) = (new_values, new_means, new_squares);
    }
    for (((value, mean), square), gradient) in values.iter_mut().zip(means).zip(squares).zip(gradient) {
        let gradient = shape(*value, *gradient);
        [*value, *mean, *square] = numbers.step([*value, *mean, *square], gradient, correction);
    }
}

impl Adam {
    #[inline(always)]
    fn step(
        self,
        [value, mean, square]: [f32; 3],
        gradient: f32,
        [correction1, correction2]: [f32; 2],
    ) -> [f32; 3] {
        let Self { rate, beta1, beta2, epsilon, shrink } = self;
        let mean = beta1 * mean + (1.0 - beta1) * gradient;
        let square = beta2 * square + (1.0 - beta2) * gradient * gradient;
        let change = rate * (mean / correction1) / ((square / correction2).sqrt() + epsilon);
        // One sum, rounded once: a factor of 1 - shrink would be rounded the same way in every step, and drift.
        [value - (shrink * value + change), mean, square]
    }
}

/// The corrections of Adam by the steps of a row. To compute them takes as long as to change a row of 16 values.
#[derive(Debug, Clone, Default)]
pub(crate) struct Corrections {
    betas: [f32; 2],
    by_steps: Vec<[f32; 2]>,
}

impl Corrections {
    /// Prepares those of rows of at most so many steps. Of rows of more than [`CORRECTIONS`] they are computed each time.
    pub(crate) fn prepare(&mut self, update: &Update, steps: u64) {
        let (Optimizer::Adam { beta1, beta2, .. } | Optimizer::AdamW { beta1, beta2, .. }) = update.optimizer
        else {
            return;
        };
        let betas = [beta1, beta2];
        if self.betas.map(f32::to_bits) != betas.map(f32::to_bits) {
            self.by_steps.clear();
            self.betas = betas;
        }
        if self.by_steps.capacity() == 0 {
            // All of it, so that no later batch allocates.
            self.by_steps.reserve_exact(CORRECTIONS);
        }
        let entries = usize::try_from(steps).map_or(CORRECTIONS, |steps| CORRECTIONS.min(steps + 1));
        for steps in self.by_steps.len()..entries {
            self.by_steps.push(one_minus_powers(betas, steps as f32));
        }
    }

    /// Returns those that are prepared.
    pub(crate) fn by_steps(&self) -> &[[f32; 2]] {
        &self.by_steps
    }
}

struct Ftrl {
    alpha: f32,
    beta: f32,
    l1: f32,
    l2: f32,
}

#[inline(always)]
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

#[inline(always)]
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
#[inline(always)]
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

/// The steps of a row as a position.
#[inline]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "steps are whole, up to 2^24")]
fn whole(steps: f32) -> usize {
    steps as usize
}

#[expect(clippy::cast_possible_truncation, reason = "rows are f32, what is computed once for many is f64")]
fn narrow(value: f64) -> f32 {
    value as f32
}

#[cfg(test)]
mod tests;
