extern crate std;

use std::boxed::Box;
use std::sync::LazyLock;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

static TABLES: &FloatTables = &FLOAT_TABLES;

static SPLIT: LazyLock<Box<SplitTables<4096>>> = LazyLock::new(split);

/// A logarithm as tables hold it.
fn logarithm(entry: u16) -> f64 {
    f64::from(entry.cast_signed()) / 256.0
}

#[test]
fn entries_are_what_their_formulas_say() {
    let tables = TABLES;
    assert_eq!(logarithm(tables.epo[127 + 5]), 5.0);
    assert_eq!(logarithm(tables.epo[1]), -126.0);
    let close = |found: f64, right: f64, places: f64| {
        assert!((found - right).abs() <= 0.5001 / places, "{found} {right}")
    };
    for m in 2048_u16..4096 {
        let mantissa = f64::from(m) / 2048.0;
        close(f64::from(tables.log_m[usize::from(m)]) / 32_768.0, mantissa.log2(), 32_768.0);
        close(logarithm(tables.log_m_ln2[usize::from(m)]), (mantissa * std::f64::consts::LN_2).log2(), 256.0);
    }
    for d in 1_u16..4096 {
        close(logarithm(tables.log_d[usize::from(d)]), (f64::from(d) / 8_388_608.0).log2(), 256.0);
    }
    for key in 0..=u16::MAX {
        let power = logarithm(key).exp2();
        close(f64::from(tables.exp[usize::from(key)]) / 32_768.0, power.min(65_535.0 / 32_768.0), 32_768.0);
        let float = f32::from_bits(u32::from(tables.float[usize::from(key)]) << 15);
        if logarithm(key) >= -126.0 {
            let exponent = logarithm(key).floor();
            close(f64::from(float) / exponent.exp2(), power / exponent.exp2(), 256.0);
        } else {
            assert_eq!(float, 0.0);
        }
        let small = (-f64::from(key & THETA_MAX) / 256.0).exp2();
        match (key & SIGNS_DIFFER != 0, key & THETA_MAX) {
            (false, _) => close(logarithm(tables.mi[usize::from(key)]), (1.0 + small).log2(), 256.0),
            (true, 0) => assert_eq!(tables.mi[usize::from(key)].cast_signed(), CANCELLED),
            (true, _) => close(logarithm(tables.mi[usize::from(key)]), (1.0 - small).log2(), 256.0),
        }
    }
}

/// Median and mean of the precision, in percent, as the paper has them: 1 less the relative error of a sum.
fn precision(add: impl Fn(u32, u32) -> u32, pairs: &[(f32, f32)]) -> (f64, f64) {
    let precision = |&(x, y): &(f32, f32)| {
        let right = f64::from(x) + f64::from(y);
        let found = f32::from_bits(add(x.to_bits(), y.to_bits()));
        100.0 * (1.0 - (f64::from(found) - right).abs() / right.abs()).max(0.0)
    };
    let mut all: Vec<f64> = pairs.iter().map(precision).filter(|precision| precision.is_finite()).collect();
    all.sort_by(f64::total_cmp);
    (all[all.len() / 2], all.iter().sum::<f64>() / all.len() as f64)
}

/// Numbers below 1 of either sign, the same in each run.
fn numbers() -> impl Iterator<Item = f32> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    core::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
    })
}

/// 100,000 pairs of random floats between -1 and 1, and the same without signs.
fn random_pairs() -> [Vec<(f32, f32)>; 2] {
    let numbers: Vec<f32> = numbers().take(200_000).collect();
    let pairs: Vec<(f32, f32)> = numbers.chunks(2).map(|pair| (pair[0], pair[1])).collect();
    let of_one_sign = pairs.iter().map(|(x, y)| (x.abs(), y.abs())).collect();
    [pairs, of_one_sign]
}

/// The paper's second data set, of which it reports a median of 100% and a mean of 99.84%.
#[test]
fn sums_of_random_floats_are_nearly_as_precise_as_in_the_paper() {
    let [(median, mean), (median_of_one_sign, mean_of_one_sign)] =
        random_pairs().map(|pairs| precision(|x, y| TABLES.add(x, y), &pairs));
    assert!(median > 99.87 && mean > 99.58, "{median:.3}% {mean:.3}%");
    assert!(
        median_of_one_sign > 99.90 && mean_of_one_sign > 99.89,
        "{median_of_one_sign:.3}% {mean_of_one_sign:.3}%"
    );
}

fn split<const N: usize>() -> Box<SplitTables<N>> {
    let mut tables = Box::new(SplitTables::EMPTY);
    tables.fill();
    tables
}

/// Asserts the precision that the documentation of the tables gives, to be written there when it changes.
fn is_precise<const N: usize>(mixed: (f64, f64), one_sign: (f64, f64)) {
    let tables = split::<N>();
    let round =
        |(median, mean): (f64, f64)| ((median * 1000.0).round() / 1000.0, (mean * 1000.0).round() / 1000.0);
    let found = random_pairs().map(|pairs| round(precision(|x, y| tables.add(x, y), &pairs)));
    assert_eq!(found, [mixed, one_sign], "{N} entries");
}

#[test]
fn split_tables_are_as_precise_as_they_say() {
    is_precise::<256>((99.581, 97.499), (99.714, 99.655));
    is_precise::<1024>((99.895, 99.174), (99.929, 99.914));
    is_precise::<4096>((99.974, 99.756), (99.982, 99.978));
    is_precise::<16_384>((99.993, 99.931), (99.995, 99.995));
    is_precise::<65_536>((99.998, 99.98), (99.999, 99.999));
}

#[test]
fn zeros_subnormals_infinities_and_nan() {
    let least = f32::from_bits(1);
    for (x, y, sum) in [
        (0.0, 0.0, 0.0_f32),
        (-0.0, 0.0, 0.0),
        (-0.0, -0.0, -0.0),
        (0.0, 0.1, 0.1),
        (-0.1, 0.0, -0.1),
        (least, 0.1, 0.1),
        (least, least, 0.0),
        (-least, -least, -0.0),
        (1.25, -1.25, 0.0),
        (f32::MIN_POSITIVE * 1.5, -f32::MIN_POSITIVE, 0.0),
        (-f32::MIN_POSITIVE * 1.5, f32::MIN_POSITIVE, -0.0),
        (f32::MAX, f32::MAX, f32::INFINITY),
        (-f32::MAX, -f32::MAX, -f32::INFINITY),
        (f32::INFINITY, -f32::MAX, f32::INFINITY),
        (-f32::INFINITY, 1.0, -f32::INFINITY),
        (f32::INFINITY, f32::INFINITY, f32::INFINITY),
    ] {
        for (x, y) in [(x.to_bits(), y.to_bits()), (y.to_bits(), x.to_bits())] {
            assert_eq!(TABLES.add(x, y), sum.to_bits(), "{x} + {y}");
            assert_eq!(SPLIT.add(x, y), sum.to_bits(), "{x} + {y}");
        }
    }
    for (x, y) in [(f32::NAN, 1.0), (-f32::NAN, f32::INFINITY), (f32::INFINITY, -f32::INFINITY)] {
        for (x, y) in [(x.to_bits(), y.to_bits()), (y.to_bits(), x.to_bits())] {
            assert_eq!((TABLES.add(x, y), SPLIT.add(x, y)), (F32_NAN, F32_NAN));
        }
    }
}

/// Checks a sum of any two floats, which may be wrong by this share of the larger one.
fn check_sum(add: impl Fn(u32, u32) -> u32, (x, y): (u32, u32), wrong: f64) -> Result<(), TestCaseError> {
    let sum = f32::from_bits(add(x, y));
    prop_assert_eq!(add(y, x), sum.to_bits(), "in either order");
    let negated = f32::from_bits(add(x ^ SIGN, y ^ SIGN));
    prop_assert!(negated.to_bits() == (-sum).to_bits() || sum == 0.0 || sum.is_nan());
    let (x, y) = (f32::from_bits(x), f32::from_bits(y));
    if x.is_nan() || y.is_nan() {
        prop_assert!(sum.is_nan());
        return Ok(());
    }
    let right = f64::from(x) + f64::from(y);
    let larger = f64::from(x.abs().max(y.abs()));
    if sum.is_infinite() {
        prop_assert!(right.abs() > f64::from(f32::MAX) * (1.0 - wrong));
    } else if !sum.is_nan() {
        // What is flushed to zero is less than two of the least normal number.
        let allowed = wrong * larger + 2.0 * f64::from(f32::MIN_POSITIVE);
        prop_assert!((f64::from(sum) - right).abs() <= allowed, "{x} + {y} = {sum}");
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_two_floats_have_the_sum_that_is_promised(x: u32, y: u32) {
        check_sum(|x, y| TABLES.add(x, y), (x, y), 0.008)?;
        check_sum(|x, y| SPLIT.add(x, y), (x, y), 0.002)?;
    }

    #[test]
    fn numbers_of_a_like_size_have_the_sum_that_is_promised(
        x in -1.0_f32..1.0, y in -1.0_f32..1.0, scale in -20_i32..20,
    ) {
        let (x, y) = (x.to_bits(), (y * 2.0_f32.powi(scale)).to_bits());
        check_sum(|x, y| TABLES.add(x, y), (x, y), 0.008)?;
        check_sum(|x, y| SPLIT.add(x, y), (x, y), 0.002)?;
    }
}
