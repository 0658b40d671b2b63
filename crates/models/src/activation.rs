//! Functions that squash, without branches, so that a compiler makes vectors of loops over them.

/// Added to a small number, it leaves that number rounded in the lowest bits.
const ROUND: f32 = 12_582_912.0;

/// The exponential, to within 2 units in the last place. What is below -87 counts as -87, and what is above 88 as 88; what is not a number stays none.
#[inline]
pub(crate) fn exp(x: f32) -> f32 {
    /// The natural logarithm of 2 in two parts, of which the first has zeros at the end.
    const LN_2: (f32, f32) = (0.693_359_4, -2.121_944_4e-4);
    let x = if x < -87.0 { -87.0 } else { x };
    let x = if x > 88.0 { 88.0 } else { x };
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let whole = shifted - ROUND;
    let rest = (x - whole * LN_2.0) - whole * LN_2.1;
    // The polynomial of Cephes, expf.
    let mut series = 1.987_569_1e-4;
    for coefficient in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        series = series * rest + coefficient;
    }
    let part = series * (rest * rest) + rest + 1.0;
    part * f32::from_bits((shifted.to_bits() << 23).wrapping_add(1.0f32.to_bits()))
}

/// 1 / (1 + e^-x).
#[inline]
pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// The hyperbolic tangent, to within 2e-7.
#[inline]
pub(crate) fn tanh(x: f32) -> f32 {
    2.0 / (1.0 + exp(-2.0 * x)) - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_those_of_the_library() {
        for step in -8700i16..=8700 {
            let x = f32::from(step) * 0.01;
            let exact = f64::from(x).exp();
            assert!((f64::from(exp(x)) - exact).abs() <= 2.5e-7 * exact, "{x}: {} {exact}", exp(x));
            assert!((f64::from(tanh(x)) - f64::from(x).tanh()).abs() < 2e-7, "{x}");
            assert!((f64::from(sigmoid(x)) - 1.0 / (1.0 + (-f64::from(x)).exp())).abs() < 2e-7, "{x}");
        }
        assert!(exp(f32::NAN).is_nan() && sigmoid(f32::NAN).is_nan() && tanh(f32::NAN).is_nan());
        assert_eq!((exp(0.0), tanh(1e9), sigmoid(-1e9) < 1e-37), (1.0, 1.0, true));
        assert!(exp(f32::NEG_INFINITY) < 1e-37 && exp(f32::INFINITY) > 1e38);
    }
}
