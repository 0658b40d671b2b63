use libra_dataplane::{FloatTables, SplitTables};
use proptest::prelude::*;

use super::*;
use crate::sums::{Measure, PAIRS, precision_of_sums, random_bits_pairs, uniform_pairs};

/// Median and mean in %, to three places.
fn percent(pairs: &[(f32, f32)], adder: &dyn Adder, measure: Measure) -> (f64, f64) {
    let precision = precision_of_sums(pairs, adder, measure);
    let round = |share: f64| (share * 100_000.0).round() / 1000.0;
    (round(precision.median), round(precision.mean))
}

#[test]
fn the_table_of_the_documentation_is_reproduced() {
    let (uniform, bits) = (uniform_pairs(PAIRS, 1), random_bits_pairs(PAIRS, 1));
    let mut tables = Box::new(FloatTables::EMPTY);
    tables.fill();
    let mut split = Box::new(SplitTables::<4096>::EMPTY);
    split.fill();
    let row = |adder: &dyn Adder| {
        [
            percent(&uniform, adder, Measure::Linear),
            percent(&bits, adder, Measure::Linear),
            percent(&bits, adder, Measure::Exponential),
        ]
    };
    let negotiated = |workers, block| row(&Negotiated { workers, block });
    let exact = (100.0, 100.0);
    assert_eq!(negotiated(2, None), [exact, (0.0, 42.034), (36.788, 63.170)]);
    assert_eq!(negotiated(4, None), [exact, (0.0, 40.776), (36.788, 62.377)]);
    assert_eq!(negotiated(8, None), [exact, (0.0, 39.593), (36.788, 61.626)]);
    assert_eq!(negotiated(8, Some(32)), [exact, (0.0, 41.440), (36.788, 62.794)]);
    assert_eq!(row(&*tables), [(99.882, 99.612), (99.919, 99.882), (99.919, 99.889)]);
    assert_eq!(row(&*split), [(99.974, 99.769), (100.0, 99.974), (100.0, 99.981)]);
}

/// Explains the median of random bits: both numbers are lost.
#[test]
fn most_sums_of_random_bits_become_zero() {
    let pairs = random_bits_pairs(PAIRS, 1);
    let sums = Negotiated { workers: 4, block: None }.sums(&pairs);
    let lost = sums.iter().filter(|sum| **sum == 0.0).count();
    assert!((56_000..59_000).contains(&lost), "{lost}");
}

#[test]
fn an_exponent_bounds_its_block() {
    for (block, bound) in
        [(vec![0.5_f32], 0), (vec![0.499, -0.3], -1), (vec![-1.0], 1), (vec![0.0], -126), (vec![], -126)]
    {
        assert_eq!(exponent(&block), bound, "{block:?}");
    }
    assert_eq!(exponent(&[f32::MAX, f32::MIN_POSITIVE]), 128);
    assert_eq!(exponent(&[f32::MIN_POSITIVE / 2.0]), -126);
}

#[test]
fn a_factor_that_is_too_large_wraps_sums() {
    let factor = Factor::profiled(1, 1.0);
    assert!(factor.sums(&[(0.9, 0.9)])[0] < 0.0, "it is for one worker");
    assert!((Factor::profiled(2, 1.0).sums(&[(0.9, 0.9)])[0] - 1.8).abs() < 1e-6);
}

#[test]
fn the_largest_magnitudes_of_the_most_workers_do_not_overflow() {
    let largest = 1.0 - f32::EPSILON / 2.0;
    for workers in 1..=WORKERS_MAX {
        for (factor, number) in
            [(Factor::negotiated(workers, 0), largest), (Factor::profiled(workers, 1.0), 1.0)]
        {
            let sum = i64::from(workers) * i64::from(factor.integer(number));
            assert!(i32::try_from(sum).is_ok() && i32::try_from(-sum).is_ok(), "{workers} {factor:?}");
        }
    }
}

proptest! {
    #[test]
    fn no_sum_overflows_and_each_is_within_the_resolution(
        numbers in prop::collection::vec(-1e30_f32..1e30, 1..20), scale in -60_i32..20,
    ) {
        let numbers: Vec<f32> = numbers.iter().map(|number| number * 2.0_f32.powi(scale)).collect();
        let workers = u32::try_from(numbers.len()).unwrap();
        let factor = Factor::negotiated(workers, exponent(&numbers));
        let sum: i64 = numbers.iter().map(|number| i64::from(factor.integer(*number))).sum();
        let sum = i32::try_from(sum);
        prop_assert!(sum.is_ok());
        // Each summand is rounded by half of the resolution, and the sum to an f32.
        let right: f64 = numbers.iter().map(|number| f64::from(*number)).sum();
        let allowed = 0.5 * f64::from(workers) * factor.resolution() + right.abs() * f64::from(f32::EPSILON);
        prop_assert!((f64::from(factor.float(sum.unwrap())) - right).abs() <= allowed);
    }

    #[test]
    fn blocks_negotiate_for_themselves(seed: u64, block in 1_usize..40, workers in 2_u32..40) {
        let pairs = random_bits_pairs(100, seed);
        let sums = Negotiated { workers, block: Some(block) }.sums(&pairs);
        for (of_block, found) in pairs.chunks(block).zip(sums.chunks(block)) {
            let alone = Negotiated { workers, block: None }.sums(of_block);
            prop_assert_eq!(alone, found);
        }
    }
}

/// Many at once are what one by one is, but for ties.
#[test]
fn many_numbers_are_converted_like_one() {
    let factor = Factor::negotiated(8, 0);
    let numbers: Vec<f32> = (-5000_i16..5000).map(|number| f32::from(number) / 5003.0).collect();
    let mut integers = vec![0; numbers.len()];
    factor.integers(&numbers, &mut integers);
    let mut floats = vec![0.0; numbers.len()];
    factor.floats(&integers, &mut floats);
    for ((number, integer), float) in numbers.iter().zip(integers).zip(floats) {
        assert_eq!(integer, factor.integer(*number), "{number}");
        assert!((float - factor.float(integer)).abs() <= f32::EPSILON * float.abs(), "{float}");
    }
}
