//! How a gradient changes a row.

use serde::{Deserialize, Serialize};

use crate::table::OutOfRange;

/// How a gradient changes a row.
///
/// Rows are updated lazily: one without a gradient does not change, and its state does not age.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Optimizer {
    /// Stochastic gradient descent, without state: the same result for a sum of gradients as for its parts.
    Sgd {
        /// Learning rate, above 0.
        rate: f32,
    },
    /// Adagrad (Duchi, Hazan, Singer 2011): each value has its own rate, falling with the squares of its
    /// gradients.
    Adagrad {
        /// Learning rate, above 0.
        rate: f32,
        /// Added to the root of the squares, above 0.
        epsilon: f32,
    },
    /// Adam (Kingma, Ba 2015), with both bias corrections. Each row counts its own steps, so that a row seen
    /// for the first time late in training is corrected as one seen for the first time.
    Adam {
        /// Learning rate, above 0.
        rate: f32,
        /// Decay of the mean of gradients, at least 0 and below 1.
        beta1: f32,
        /// Decay of the mean of their squares, at least 0 and below 1.
        beta2: f32,
        /// Added to the root of the mean square, above 0.
        epsilon: f32,
    },
}

impl Optimizer {
    /// How many f32 of state a row of `width` values needs.
    #[must_use]
    pub fn state_len(&self, width: usize) -> usize {
        match self {
            Self::Sgd { .. } => 0,
            Self::Adagrad { .. } => width,
            // Mean, mean square, and the number of steps.
            Self::Adam { .. } => 2 * width + 1,
        }
    }

    pub(crate) fn check(&self) -> Result<(), OutOfRange> {
        let positive = |field, value: f32| {
            if value > 0.0 && value.is_finite() {
                return Ok(());
            }
            Err(OutOfRange { field, value, wanted: "finite and above 0" })
        };
        let decay = |field, value: f32| {
            if (0.0..1.0).contains(&value) {
                return Ok(());
            }
            Err(OutOfRange { field, value, wanted: "at least 0 and below 1" })
        };
        match *self {
            Self::Sgd { rate } => positive("rate", rate),
            Self::Adagrad { rate, epsilon } => {
                positive("rate", rate)?;
                positive("epsilon", epsilon)
            }
            Self::Adam { rate, beta1, beta2, epsilon } => {
                positive("rate", rate)?;
                decay("beta1", beta1)?;
                decay("beta2", beta2)?;
                positive("epsilon", epsilon)
            }
        }
    }

    /// Changes `values` by `gradient`; `state` has [`Optimizer::state_len`] words and was zero before the
    /// first update.
    pub(crate) fn apply(&self, values: &mut [f32], state: &mut [f32], gradient: &[f32]) {
        let width = values.len();
        assert_eq!(gradient.len(), width, "a row and its gradient are of one width");
        assert_eq!(state.len(), self.state_len(width), "the arena has room for the state");
        match *self {
            Self::Sgd { rate } => {
                for (value, gradient) in values.iter_mut().zip(gradient) {
                    *value -= rate * gradient;
                }
            }
            Self::Adagrad { rate, epsilon } => {
                for ((value, squares), gradient) in values.iter_mut().zip(state).zip(gradient) {
                    *squares += gradient * gradient;
                    *value -= rate * gradient / (squares.sqrt() + epsilon);
                }
            }
            Self::Adam { rate, beta1, beta2, epsilon } => {
                let (means, rest) = state.split_at_mut(width);
                let (squares, steps) = rest.split_at_mut(width);
                // An f32 counts exactly up to 2^24 and then stands still, where both corrections are 1 for
                // any decay that training uses.
                steps[0] += 1.0;
                let correction1 = one_minus_power(beta1, steps[0]);
                let correction2 = one_minus_power(beta2, steps[0]);
                for (((value, mean), square), gradient) in
                    values.iter_mut().zip(means).zip(squares).zip(gradient)
                {
                    *mean = beta1 * *mean + (1.0 - beta1) * gradient;
                    *square = beta2 * *square + (1.0 - beta2) * gradient * gradient;
                    *value -= rate * (*mean / correction1) / ((*square / correction2).sqrt() + epsilon);
                }
            }
        }
    }
}

/// `1 - base^exponent` for a whole exponent, by squaring; in f64, because for a decay near 1 little is left
/// of it at first. (`f64::powi` leaves its last bits to the compiler.)
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "steps are whole numbers up to 2^24; the correction is used as f32"
)]
fn one_minus_power(base: f32, exponent: f32) -> f32 {
    let (mut base, mut exponent, mut power) = (f64::from(base), exponent as u32, 1.0);
    while exponent > 0 {
        if exponent & 1 == 1 {
            power *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    (1.0 - power) as f32
}

#[cfg(test)]
mod tests;
