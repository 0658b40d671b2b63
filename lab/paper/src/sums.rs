//! Precision of sums of two floats: the paper's table "The precision of float summation".

use libra_dataplane::{FloatTables, SplitTables};
use serde::Serialize;

use crate::random::Random;

/// Pairs of floats in the table of the paper.
pub const PAIRS: usize = 100_000;

/// Something that adds pairs of floats.
pub trait Adder {
    /// The sum of each pair, in their order.
    fn sums(&self, pairs: &[(f32, f32)]) -> Vec<f32>;
}

impl Adder for FloatTables {
    fn sums(&self, pairs: &[(f32, f32)]) -> Vec<f32> {
        pairs.iter().map(|(x, y)| f32::from_bits(self.add(x.to_bits(), y.to_bits()))).collect()
    }
}

impl<const N: usize> Adder for SplitTables<N> {
    fn sums(&self, pairs: &[(f32, f32)]) -> Vec<f32> {
        pairs.iter().map(|(x, y)| f32::from_bits(self.add(x.to_bits(), y.to_bits()))).collect()
    }
}

/// Definition of the precision of a sum by its relative error. The paper defines neither.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// 1 less the relative error, or 0 if that is above 1: what one would expect, and what `dataplane` documents.
    Linear,
    /// e to the minus relative error. A sum that is lost altogether then has 36.79%, which is the median that the
    /// paper reports of float-to-integer and its second data set, to the last digit; see
    /// [`Negotiated`](crate::Negotiated).
    Exponential,
}

impl Measure {
    /// The precision, 0 to 1, of a sum with this relative error, which is not negative.
    #[must_use]
    pub fn precision(self, relative_error: f64) -> f64 {
        match self {
            Self::Linear => (1.0 - relative_error).max(0.0),
            Self::Exponential => (-relative_error).exp(),
        }
    }
}

/// The precision of many sums, 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Precision {
    /// Of the sum in the middle, the upper one of two.
    pub median: f64,
    /// On average.
    pub mean: f64,
    /// Sums that were counted.
    pub counted: usize,
    /// Pairs whose right sum is zero, or no finite number: they have no relative error, and are left out.
    pub left_out: usize,
}

/// The precision with which an adder adds the pairs, against their sums in f64. A sum that is found to be infinite or
/// NaN has precision 0. Both are 1 if nothing is counted.
///
/// ```
/// use libra_dataplane::FloatTables;
/// use libra_paper::{Measure, precision_of_sums, uniform_pairs};
///
/// let mut tables = Box::new(FloatTables::EMPTY);
/// tables.fill();
/// let precision = precision_of_sums(&uniform_pairs(10_000, 1), &*tables, Measure::Linear);
/// assert!(precision.median > 0.998 && precision.mean > 0.99, "{precision:?}");
/// ```
///
/// # Panics
/// If the adder has not a sum for each pair.
#[must_use]
pub fn precision_of_sums(pairs: &[(f32, f32)], adder: &dyn Adder, measure: Measure) -> Precision {
    let sums = adder.sums(pairs);
    assert_eq!(sums.len(), pairs.len(), "an adder has a sum for each pair");
    let mut precisions: Vec<f64> = Vec::with_capacity(pairs.len());
    for (&(x, y), found) in pairs.iter().zip(sums) {
        let right = f64::from(x) + f64::from(y);
        if right == 0.0 || !right.is_finite() {
            continue;
        }
        let error = (f64::from(found) - right).abs() / right.abs();
        precisions.push(if found.is_finite() { measure.precision(error) } else { 0.0 });
    }
    let (counted, left_out) = (precisions.len(), pairs.len() - precisions.len());
    if counted == 0 {
        return Precision { median: 1.0, mean: 1.0, counted, left_out };
    }
    let mean = precisions.iter().sum::<f64>() / counted as f64;
    let (_, median, _) = precisions.select_nth_unstable_by(counted / 2, f64::total_cmp);
    Precision { median: *median, mean, counted, left_out }
}

/// Pairs of floats that are uniform in (-1, 1): the paper's data set R2, as one would read "randomly generated
/// floating-point numbers between (-1, 1)".
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "rounds to the nearest f32")]
pub fn uniform_pairs(pairs: usize, seed: u64) -> Vec<(f32, f32)> {
    let mut random = Random::new(seed);
    // Odd multiples of 2^-24 below 1: zero and the ends are no numbers of an open interval.
    let mut number = || {
        ((random.unit() * f64::from(1 << 23)).floor() / f64::from(1 << 22) - 1.0 + 2.0_f64.powi(-23)) as f32
    };
    (0..pairs).map(|_| (number(), number())).collect()
}

/// Pairs of floats with random bits, as long as they are in (-1, 1) and normal or zero: the paper's data set R2, if
/// "the range becomes much larger" is taken at its word. Their exponents, not the numbers, are uniform: half of them
/// are below 2^-63.
#[must_use]
pub fn random_bits_pairs(pairs: usize, seed: u64) -> Vec<(f32, f32)> {
    let mut random = Random::new(seed);
    let mut number = || {
        loop {
            let found = f32::from_bits(random.word());
            if found.abs() < 1.0 && (found == 0.0 || found.is_normal()) {
                return found;
            }
        }
    };
    (0..pairs).map(|_| (number(), number())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns given sums.
    struct Told(Vec<f32>);

    impl Adder for Told {
        fn sums(&self, _: &[(f32, f32)]) -> Vec<f32> {
            self.0.clone()
        }
    }

    #[test]
    fn precision_follows_from_the_relative_error() {
        let pairs = [(1.0, 1.0), (2.0, 2.0), (-3.0, 1.0), (1.0, 0.0), (1.0, -1.0), (f32::MAX, f32::NAN)];
        let told = Told(vec![1.0, 4.0, -2.5, 9.0, 7.0, 0.0]);
        let precision = precision_of_sums(&pairs, &told, Measure::Linear);
        // 0.5, 1, 0.75 and 0.
        assert_eq!(precision, Precision { median: 0.75, mean: 2.25 / 4.0, counted: 4, left_out: 2 });
        let lost = Told(vec![0.0, f32::INFINITY]);
        let lost = precision_of_sums(&[(1.0, 1.0), (1.0, 1.0)], &lost, Measure::Exponential);
        assert!((lost.median - 0.367_88).abs() < 1e-5 && (lost.mean - 0.183_94).abs() < 1e-5);
        let nothing = precision_of_sums(&[], &Told(Vec::new()), Measure::Linear);
        assert_eq!((nothing.median, nothing.counted), (1.0, 0));
    }

    #[test]
    fn data_sets_are_what_they_say() {
        for pairs in [uniform_pairs(10_000, 3), random_bits_pairs(10_000, 3)] {
            let numbers: Vec<f32> = pairs.iter().flat_map(|(x, y)| [*x, *y]).collect();
            assert!(numbers.iter().all(|number| number.abs() < 1.0));
            let negative = numbers.iter().filter(|number| **number < 0.0).count();
            assert!((9_500..10_500).contains(&negative), "{negative}");
        }
        let small =
            |pairs: Vec<(f32, f32)>, below: f32| pairs.iter().filter(|(x, _)| x.abs() < below).count();
        assert!((4_800..5_200).contains(&small(uniform_pairs(10_000, 3), 0.5)));
        assert!((4_800..5_200).contains(&small(random_bits_pairs(10_000, 3), 2.0_f32.powi(-63))));
    }
}
