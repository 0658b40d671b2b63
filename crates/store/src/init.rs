//! Initial values of rows.

use libra_plan::{SplitMix64, finalizer, splitmix64};
use serde::{Deserialize, Serialize};

use crate::exact::natural_logarithm;
use crate::table::OutOfRange;

/// Initial values of a row, before its first gradient.
///
/// They follow from the seed and the key alone, by operations that IEEE 754 defines to the bit: the same on
/// any machine and in any order.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Init {
    /// All zero.
    Zero,
    /// Evenly spread over `-bound..=bound`.
    Uniform {
        /// Finite and not negative.
        bound: f32,
    },
    /// Normal with mean 0.
    Normal {
        /// Standard deviation, finite and not negative.
        deviation: f32,
    },
}

impl Init {
    pub(crate) fn check(&self) -> Result<(), OutOfRange> {
        let (field, value) = match *self {
            Self::Zero => return Ok(()),
            Self::Uniform { bound } => ("bound", bound),
            Self::Normal { deviation } => ("deviation", deviation),
        };
        OutOfRange::unless_not_negative(field, value)
    }

    /// Writes the first values of the row `key`.
    pub(crate) fn fill(&self, seed: u64, key: u64, row: &mut [f32]) {
        match *self {
            Self::Zero => row.fill(0.0),
            Self::Uniform { bound } => {
                let mut numbers = Numbers::of_row(seed, key);
                row.fill_with(|| narrow(numbers.symmetric() * f64::from(bound)));
            }
            Self::Normal { deviation } => {
                let mut numbers = Numbers::of_row(seed, key);
                for pair in row.chunks_mut(2) {
                    let normal = numbers.normal_pair();
                    for (value, normal) in pair.iter_mut().zip(normal) {
                        *value = narrow(normal * f64::from(deviation));
                    }
                }
            }
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "rows are f32, their numbers are drawn more finely")]
fn narrow(value: f64) -> f32 {
    value as f32
}

/// The pseudo-random numbers of one row, from a state mixed of seed and key.
struct Numbers(SplitMix64);

impl Numbers {
    fn of_row(seed: u64, key: u64) -> Self {
        Self(SplitMix64::new(mix_with(seed, key)))
    }

    /// Evenly spread over -1..1, in steps of 2^-52 that lie symmetrically around 0.
    fn symmetric(&mut self) -> f64 {
        let odd = (self.0.bits() >> 11) | 1;
        odd as f64 / (1_u64 << 52) as f64 - 1.0
    }

    /// Two independent numbers, normal with mean 0 and deviation 1 (Marsaglia's polar method).
    fn normal_pair(&mut self) -> [f64; 2] {
        loop {
            let (x, y) = (self.symmetric(), self.symmetric());
            let square = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                let factor = (-2.0 * natural_logarithm(square) / square).sqrt();
                return [x * factor, y * factor];
            }
        }
    }
}

/// A number for each key, another one for each seed.
pub(crate) fn mix_with(seed: u64, key: u64) -> u64 {
    // The seed is mixed before the key joins it: otherwise (seed + 1, key) and (seed, key + 1) would be
    // one row.
    finalizer(splitmix64(seed) ^ key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(init: Init, seed: u64, key: u64, width: usize) -> Vec<f32> {
        let mut row = vec![f32::NAN; width];
        init.fill(seed, key, &mut row);
        row
    }

    /// Mean, variance and kurtosis (3 for a normal, 1.8 for a uniform distribution) of many rows.
    fn moments(init: Init) -> (f64, f64, f64) {
        let values: Vec<f64> = (0..20_000).flat_map(|key| row(init, 9, key, 5)).map(f64::from).collect();
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let central = |power| values.iter().map(|value| (value - mean).powi(power)).sum::<f64>() / count;
        (mean, central(2), central(4) / central(2).powi(2))
    }

    #[test]
    fn uniform_values_have_the_moments_of_their_distribution() {
        let (mean, variance, kurtosis) = moments(Init::Uniform { bound: 3.0 });
        assert!(mean.abs() < 0.02, "{mean}");
        assert!((variance - 3.0).abs() < 0.03, "{variance}");
        assert!((kurtosis - 1.8).abs() < 0.02, "{kurtosis}");
        let largest = (0..20_000)
            .flat_map(|key| row(Init::Uniform { bound: 3.0 }, 1, key, 5))
            .fold(0.0, |largest: f32, value| largest.max(value.abs()));
        assert!(largest > 2.99 && largest <= 3.0, "{largest}");
    }

    #[test]
    fn normal_values_have_the_moments_of_their_distribution() {
        let (mean, variance, kurtosis) = moments(Init::Normal { deviation: 2.0 });
        assert!(mean.abs() < 0.03, "{mean}");
        assert!((variance - 4.0).abs() < 0.08, "{variance}");
        assert!((kurtosis - 3.0).abs() < 0.08, "{kurtosis}");
    }

    #[test]
    fn rows_differ_by_seed_and_by_key_and_lanes_differ() {
        let init = Init::Normal { deviation: 1.0 };
        let base = row(init, 1, 1, 4);
        assert_eq!(base, row(init, 1, 1, 4));
        assert_ne!(base, row(init, 2, 1, 4));
        assert_ne!(base, row(init, 1, 2, 4));
        assert_ne!(row(init, 2, 1, 4), row(init, 1, 2, 4));
        assert_ne!(base[0], base[2]);
    }

    /// Computed by another program (splitmix64 and the polar method in Python, with its own logarithm): any
    /// machine and any later version must make the same rows, or a checkpoint would lose those it does not
    /// hold.
    #[test]
    fn first_values_never_change() {
        let bits = |init, key| row(init, 42, key, 3).into_iter().map(f32::to_bits).collect::<Vec<_>>();
        assert_eq!(bits(Init::Uniform { bound: 0.5 }, 7), [0x3e48_b671, 0x3ef8_f8c3, 0xbe67_dee8]);
        assert_eq!(bits(Init::Normal { deviation: 0.01 }, 1 << 40), [0x3b1c_f319, 0xbc41_d324, 0xba60_a941]);
        assert_eq!(bits(Init::Zero, 7), [0, 0, 0]);
    }
}
