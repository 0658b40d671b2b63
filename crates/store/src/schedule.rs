//! Change of the learning rate of a table with its steps.

use serde::{Deserialize, Serialize};

use crate::exact::{exponential, half_turn_cosine, natural_logarithm, whole_power};
use crate::table::OutOfRange;

/// By how much the rate of a table's optimizer is multiplied, as a function of the table's steps.
///
/// One step is one batch (a push, or the sums of a round) that touched the table: its rows share the count, so
/// a row seen for the first time late is changed at the late rate. The default multiplies by 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Schedule {
    /// Over so many steps the factor rises evenly from `1 / warmup` to 1; 0 begins at 1.
    pub warmup: u64,
    /// Decay of the factor from then on.
    pub decay: Decay,
}

/// Decay of the factor of a [`Schedule`] from 1 once it is warm; `n` below counts the steps since then, from 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub enum Decay {
    /// It stays 1.
    #[default]
    None,
    /// `factor^⌊n / every⌋` (`StepLR` of PyTorch).
    Step {
        /// Steps between two falls, at least 1.
        every: u64,
        /// Share that remains after each, above 0 and at most 1.
        factor: f32,
    },
    /// `factor^(n / every)` (`ExponentialDecay` of Keras).
    Exponential {
        /// Steps over which it falls by `factor`, at least 1.
        every: u64,
        /// Share that remains after so many, above 0 and at most 1.
        factor: f32,
    },
    /// Evenly from 1 to `floor`, and no further.
    Linear {
        /// Steps until it is at the floor, at least 1.
        steps: u64,
        /// Final factor, from 0 to 1.
        floor: f32,
    },
    /// `floor + (1 - floor) (1 + cos(π n / steps)) / 2`, and no further than `floor` (Loshchilov, Hutter 2017,
    /// without restarts).
    Cosine {
        /// Steps until it is at the floor, at least 1.
        steps: u64,
        /// Final factor, from 0 to 1.
        floor: f32,
    },
    /// `√(warmup / (warmup + n))`, a warm-up of 0 counting as 1 (Vaswani et al. 2017).
    InverseRoot,
}

impl Schedule {
    /// The factor of the rate for a batch before which the table had `step` steps.
    #[must_use]
    pub fn factor(&self, step: u64) -> f64 {
        if step < self.warmup {
            return (step + 1) as f64 / self.warmup as f64;
        }
        let warm = step - self.warmup;
        let part_of = |steps: u64| warm.min(steps) as f64 / steps as f64;
        let between = |floor: f32, part: f64| f64::from(floor) + (1.0 - f64::from(floor)) * part;
        match self.decay {
            Decay::None => 1.0,
            Decay::Step { every, factor } => whole_power(f64::from(factor), warm / every),
            Decay::Exponential { every, factor } => {
                let factor = f64::from(factor);
                let part = (warm % every) as f64 / every as f64;
                whole_power(factor, warm / every) * exponential(part * natural_logarithm(factor))
            }
            Decay::Linear { steps, floor } => between(floor, 1.0 - part_of(steps)),
            Decay::Cosine { steps, floor } => between(floor, (1.0 + half_turn_cosine(part_of(steps))) / 2.0),
            Decay::InverseRoot => {
                let root_at = self.warmup.max(1) as f64;
                (root_at / (root_at + warm as f64)).sqrt()
            }
        }
    }

    pub(crate) fn check(&self) -> Result<(), OutOfRange> {
        let (steps, number) = match self.decay {
            Decay::None | Decay::InverseRoot => return Ok(()),
            Decay::Step { every, factor } | Decay::Exponential { every, factor } => {
                let good = factor > 0.0 && factor <= 1.0;
                let bad = OutOfRange { field: "factor", value: factor, wanted: "above 0 and at most 1" };
                (("every", every), (good, bad))
            }
            Decay::Linear { steps, floor } | Decay::Cosine { steps, floor } => {
                let good = (0.0..=1.0).contains(&floor);
                (("steps", steps), (good, OutOfRange { field: "floor", value: floor, wanted: "from 0 to 1" }))
            }
        };
        if let (field, 0) = steps {
            return Err(OutOfRange { field, value: 0.0, wanted: "at least 1" });
        }
        let (good, bad) = number;
        if good { Ok(()) } else { Err(bad) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn factors<const N: usize>(schedule: Schedule, steps: [u64; N]) -> [f64; N] {
        steps.map(|step| (schedule.factor(step) * 1e12).round() / 1e12)
    }

    #[test]
    fn a_warm_up_is_never_0_and_ends_at_1() {
        let schedule = Schedule { warmup: 4, decay: Decay::None };
        assert_eq!(factors(schedule, [0, 1, 2, 3, 4, u64::MAX]), [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]);
        assert_eq!(Schedule::default().factor(0), 1.0);
    }

    #[test]
    fn decay_begins_where_the_warm_up_ends() {
        let from = |warmup, decay| Schedule { warmup, decay };
        let step = Decay::Step { every: 10, factor: 0.5 };
        assert_eq!(factors(from(2, step), [0, 1, 2, 11, 12, 22]), [0.5, 1.0, 1.0, 1.0, 0.5, 0.25]);
        let exponential = Decay::Exponential { every: 2, factor: 0.25 };
        assert_eq!(factors(from(0, exponential), [0, 1, 2, 3, 4]), [1.0, 0.5, 0.25, 0.125, 0.0625]);
        let linear = Decay::Linear { steps: 4, floor: 0.5 };
        assert_eq!(factors(from(1, linear), [0, 1, 2, 3, 5, 6, 99]), [1.0, 1.0, 0.875, 0.75, 0.5, 0.5, 0.5]);
        let cosine = Decay::Cosine { steps: 6, floor: 0.0 };
        assert_eq!(factors(from(0, cosine), [0, 2, 3, 4, 6, 99]), [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]);
        assert_eq!(
            factors(from(4, Decay::InverseRoot), [3, 4, 12, 16, 40]),
            [1.0, 1.0, 0.577_350_269_19, 0.5, 0.316_227_766_017]
        );
        assert_eq!(factors(from(0, Decay::InverseRoot), [0, 3, 99]), [1.0, 0.5, 0.1]);
    }

    #[test]
    fn factors_stay_between_0_and_1_however_long_it_trains() {
        for decay in [
            Decay::Step { every: 1, factor: f32::MIN_POSITIVE },
            Decay::Exponential { every: u64::MAX, factor: f32::MIN_POSITIVE },
            Decay::Exponential { every: 1, factor: 1.0 },
            Decay::Linear { steps: u64::MAX, floor: 0.0 },
            Decay::Cosine { steps: 3, floor: 1.0 },
            Decay::InverseRoot,
        ] {
            for warmup in [0, 1, u64::MAX] {
                for step in [0, 1, 2, 1 << 40, u64::MAX - 1, u64::MAX] {
                    let factor = Schedule { warmup, decay }.factor(step);
                    assert!((0.0..=1.0).contains(&factor), "{decay:?} {warmup} {step}: {factor}");
                }
            }
        }
    }
}
