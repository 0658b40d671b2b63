//! Functions that the platform's library computes differently from machine to machine, made of operations that
//! IEEE 754 defines to the bit: initial rows, schedules and corrections are the same everywhere.

use std::f64::consts::{LN_2, PI, SQRT_2};

/// The natural logarithm of a positive normal number, within 1e-15 of its size.
pub(crate) fn natural_logarithm(value: f64) -> f64 {
    const MANTISSA: u64 = (1 << 52) - 1;
    let bits = value.to_bits();
    let mut exponent = (bits >> 52) as f64 - 1023.0;
    let mut mantissa = f64::from_bits((bits & MANTISSA) | 1.0_f64.to_bits());
    if mantissa > SQRT_2 {
        mantissa /= 2.0;
        exponent += 1.0;
    }
    // ln m = 2 artanh z = 2 (z + z^3/3 + z^5/5 + ..) with z = (m - 1) / (m + 1), here at most 0.172.
    let z = (mantissa - 1.0) / (mantissa + 1.0);
    let square = z * z;
    let series = (0..11).rev().fold(0.0, |sum, term| sum * square + 1.0 / f64::from(2 * term + 1));
    exponent * LN_2 + 2.0 * z * series
}

/// e to an exponent between -700 and 0, within 1e-13 of its size.
pub(crate) fn exponential(exponent: f64) -> f64 {
    assert!((-700.0..=0.0).contains(&exponent), "exponents come from factors between 0 and 1");
    let halvings = (-exponent / LN_2).round();
    let rest = exponent + halvings * LN_2;
    // e^r = 1 + r (1 + r/2 (1 + r/3 (..))), with r at most 0.347.
    let series = (1..18).rev().fold(1.0, |sum, term| 1.0 + sum * rest / f64::from(term));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number up to 1010")]
    let biased = 1023 - halvings as u64;
    series * f64::from_bits(biased << 52)
}

/// The cosine of `turn` half turns, for `turn` between 0 and 1, within 1e-15.
pub(crate) fn half_turn_cosine(turn: f64) -> f64 {
    assert!((0.0..=1.0).contains(&turn), "the caller keeps to half a turn");
    if turn > 0.5 {
        return -half_turn_cosine(1.0 - turn);
    }
    let square = (PI * turn) * (PI * turn);
    // 1 - x^2/(1*2) (1 - x^2/(3*4) (..)), with x at most 1.571.
    (1..13).rev().fold(1.0, |sum, term| 1.0 - sum * square / f64::from((2 * term - 1) * (2 * term)))
}

/// `base` to a whole exponent, by squaring. (`f64::powi` leaves its last bits to the compiler.)
pub(crate) fn whole_power(base: f64, exponent: u64) -> f64 {
    let [power] = whole_powers([base], exponent);
    power
}

/// As [`whole_power`], of several bases at once: each product waits for the one before, and those of other bases do not.
#[inline]
pub(crate) fn whole_powers<const BASES: usize>(mut bases: [f64; BASES], mut exponent: u64) -> [f64; BASES] {
    let mut powers = [1.0; BASES];
    while exponent > 0 {
        // Without a branch, which would be guessed wrong every other time.
        let is_factor = exponent & 1 == 1;
        for (power, base) in powers.iter_mut().zip(&mut bases) {
            *power *= if is_factor { *base } else { 1.0 };
            *base *= *base;
        }
        exponent >>= 1;
    }
    powers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_agree_with_the_library() {
        for index in 0..=100_000 {
            let part = f64::from(index) / 100_000.0;
            let cosine = half_turn_cosine(part);
            assert!((cosine - (PI * part).cos()).abs() < 1e-15, "{part}: {cosine}");
            let exponent = -700.0 * part * part;
            let (ours, library) = (exponential(exponent), exponent.exp());
            assert!((ours - library).abs() <= 1e-13 * library, "{exponent}: {ours} {library}");
            let value = part + 1e-9;
            let (ours, library) = (natural_logarithm(value), value.ln());
            assert!((ours - library).abs() <= 1e-15 * library.abs().max(1.0), "{value}: {ours} {library}");
        }
        assert_eq!((natural_logarithm(1.0), exponential(0.0)), (0.0, 1.0));
        assert_eq!(
            [0.0, 0.5, 1.0].map(half_turn_cosine).map(|cosine| (cosine * 1e15).round()),
            [1e15, 0.0, -1e15]
        );
        assert_eq!(
            (whole_power(0.5, 10), whole_power(0.0, 0), whole_power(0.0, 3)),
            (0.5_f64.powi(10), 1.0, 0.0)
        );
    }
}
