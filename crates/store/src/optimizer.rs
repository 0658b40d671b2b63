//! Optimizers and their parameters.

use serde::{Deserialize, Serialize};

use crate::table::OutOfRange;

/// Change of a row by a gradient: the formula, of which [`UpdateRule`](crate::UpdateRule) decides what goes in.
///
/// Rows are updated lazily: one without a gradient does not change, and its state does not age. `w` is the row,
/// `g` its gradient, each operation on every value by itself where not stated otherwise; all state begins at 0.
/// The memory of a row beside its own `w` words is given for a row of `w` values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Optimizer {
    /// Stochastic gradient descent: the same result for a sum of gradients as for its parts. No state.
    ///
    /// `w -= rate g`
    Sgd {
        /// Learning rate, above 0.
        rate: f32,
    },
    /// Gradient descent with momentum (Polyak 1964; Nesterov's as Sutskever et al. 2013 write it, in the form of
    /// PyTorch). `w` words of state.
    ///
    /// `m = momentum m + g`, `w -= rate m`; with Nesterov's, `w -= rate (g + momentum m)`
    Momentum {
        /// Learning rate, above 0.
        rate: f32,
        /// Share of the past that remains, at least 0 and below 1.
        momentum: f32,
        /// True if the gradient is taken as if it were one step ahead.
        nesterov: bool,
    },
    /// Adagrad (Duchi, Hazan, Singer 2011): each value has its own rate, falling with the squares of its
    /// gradients. `w` words of state.
    ///
    /// `s += g²`, `w -= rate g / (√s + epsilon)`
    Adagrad {
        /// Learning rate, above 0.
        rate: f32,
        /// Added to the root of the squares, above 0.
        epsilon: f32,
    },
    /// Adagrad with one rate for all values of a row (`EXACT_ROWWISE_ADAGRAD` of FBGEMM, `RowWiseAdagrad` of
    /// torchrec). 1 word of state.
    ///
    /// `s += mean(g²)`, `w -= rate g / (√s + epsilon)`
    RowAdagrad {
        /// Learning rate, above 0.
        rate: f32,
        /// Added to the root of the mean squares, above 0.
        epsilon: f32,
    },
    /// Adam (Kingma, Ba 2015), with both bias corrections. Each row counts its own steps `t`, so that a row seen
    /// for the first time late in training is corrected as one seen for the first time. `2 w + 1` words of state.
    ///
    /// `m = beta1 m + (1 - beta1) g`, `v = beta2 v + (1 - beta2) g²`,
    /// `w -= rate m / (1 - beta1ᵗ) / (√(v / (1 - beta2ᵗ)) + epsilon)`
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
    /// Adam with decoupled weight decay (Loshchilov, Hutter 2019): the decay of the rule makes the row smaller by
    /// itself, and is not part of the gradient. `2 w + 1` words of state.
    ///
    /// as Adam, and `w -= rate weight_decay w`, with `w` from before
    AdamW {
        /// Learning rate, above 0.
        rate: f32,
        /// Decay of the mean of gradients, at least 0 and below 1.
        beta1: f32,
        /// Decay of the mean of their squares, at least 0 and below 1.
        beta2: f32,
        /// Added to the root of the mean square, above 0.
        epsilon: f32,
    },
    /// FTRL-proximal (McMahan et al. 2013, algorithm 1): as Adagrad, and `l1` makes values exactly 0. `2 w` words
    /// of state.
    ///
    /// `z += g - (√(n + g²) - √n) / alpha w`, `n += g²`,
    /// `w = -(z - sign(z) l1) / ((beta + √n) / alpha + l2)`, or 0 where `|z| ≤ l1`
    ///
    /// The row follows from its state alone, so its first gradient draws a row that did not begin at 0 towards it.
    /// The formula holds for a rate that falls by itself: no schedule may be set beside it.
    Ftrl {
        /// Learning rate of the first steps, above 0.
        alpha: f32,
        /// Added to the root of the squares, at least 0; 1 is usual.
        beta: f32,
        /// Weight of the sum of absolute values, at least 0.
        l1: f32,
        /// Weight of half the sum of squares, at least 0.
        l2: f32,
    },
    /// RMSprop (Tieleman, Hinton 2012, lecture 6.5), not centred. `w` words of state.
    ///
    /// `v = decay v + (1 - decay) g²`, `w -= rate g / (√v + epsilon)`
    RmsProp {
        /// Learning rate, above 0.
        rate: f32,
        /// Decay of the mean of squares, at least 0 and below 1; 0.9 to 0.99 is usual.
        decay: f32,
        /// Added to the root of the mean square, above 0.
        epsilon: f32,
    },
}

impl Optimizer {
    /// Returns the number of f32 values of state that a row of `width` values needs.
    #[must_use]
    pub fn state_len(&self, width: usize) -> usize {
        match self {
            Self::Sgd { .. } => 0,
            Self::Momentum { .. } | Self::Adagrad { .. } | Self::RmsProp { .. } => width,
            Self::RowAdagrad { .. } => 1,
            // Mean, mean square, and the number of steps.
            Self::Adam { .. } | Self::AdamW { .. } => 2 * width + 1,
            Self::Ftrl { .. } => 2 * width,
        }
    }

    /// Checks every number.
    ///
    /// # Errors
    /// The first one that training cannot use.
    pub fn check(&self) -> Result<(), OutOfRange> {
        let positive = OutOfRange::unless_positive;
        let decay = |field, value: f32| {
            let good = (0.0..1.0).contains(&value);
            if good { Ok(()) } else { Err(OutOfRange { field, value, wanted: "at least 0 and below 1" }) }
        };
        match *self {
            Self::Sgd { rate } => positive("rate", rate),
            Self::Momentum { rate, momentum, nesterov: _ } => {
                positive("rate", rate)?;
                decay("momentum", momentum)
            }
            Self::Adagrad { rate, epsilon } | Self::RowAdagrad { rate, epsilon } => {
                positive("rate", rate)?;
                positive("epsilon", epsilon)
            }
            Self::Adam { rate, beta1, beta2, epsilon } | Self::AdamW { rate, beta1, beta2, epsilon } => {
                positive("rate", rate)?;
                decay("beta1", beta1)?;
                decay("beta2", beta2)?;
                positive("epsilon", epsilon)
            }
            Self::Ftrl { alpha, beta, l1, l2 } => {
                positive("alpha", alpha)?;
                OutOfRange::unless_not_negative("beta", beta)?;
                OutOfRange::unless_not_negative("l1", l1)?;
                OutOfRange::unless_not_negative("l2", l2)?;
                // The first row whose gradient is 0 would divide 0 by it.
                if beta == 0.0 && l2 == 0.0 {
                    return Err(OutOfRange { field: "beta", value: beta, wanted: "above 0 where l2 is 0" });
                }
                Ok(())
            }
            Self::RmsProp { rate, decay: remaining, epsilon } => {
                positive("rate", rate)?;
                decay("decay", remaining)?;
                positive("epsilon", epsilon)
            }
        }
    }

    /// Its learning rate, before any schedule.
    pub(crate) fn rate_mut(&mut self) -> &mut f32 {
        match self {
            Self::Sgd { rate }
            | Self::Momentum { rate, .. }
            | Self::Adagrad { rate, .. }
            | Self::RowAdagrad { rate, .. }
            | Self::Adam { rate, .. }
            | Self::AdamW { rate, .. }
            | Self::Ftrl { alpha: rate, .. }
            | Self::RmsProp { rate, .. } => rate,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Clip, Decay, Schedule, UpdateRule};

    #[test]
    fn a_rule_is_written_as_short_as_it_is() {
        let short = r#"{"optimizer": {"Sgd": {"rate": 0.5}}}"#;
        let plain: UpdateRule = serde_json::from_str(short).unwrap();
        assert_eq!(plain, Optimizer::Sgd { rate: 0.5 }.into());
        let long = r#"{
            "optimizer": {"RowAdagrad": {"rate": 0.5, "epsilon": 0.25}},
            "schedule": {"warmup": 9, "decay": {"Cosine": {"steps": 90, "floor": 0.125}}},
            "weight_decay": 0.0625,
            "clip": {"Norm": {"limit": 2}}
        }"#;
        let rule = UpdateRule {
            optimizer: Optimizer::RowAdagrad { rate: 0.5, epsilon: 0.25 },
            schedule: Schedule { warmup: 9, decay: Decay::Cosine { steps: 90, floor: 0.125 } },
            weight_decay: 0.0625,
            clip: Clip::Norm { limit: 2.0 },
            growth: crate::RowLifecycle::default(),
        };
        assert_eq!(serde_json::from_str::<UpdateRule>(long).unwrap(), rule);
        assert_eq!(serde_json::from_str::<UpdateRule>(&serde_json::to_string(&rule).unwrap()).unwrap(), rule);
        assert!(serde_json::from_str::<UpdateRule>(&short.replace("0.5}}", "0.5}}, \"clipp\": 1")).is_err());
    }
}
