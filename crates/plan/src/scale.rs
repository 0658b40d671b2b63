//! Planned fixed point: gradients of hot rows become integers, so that a switch can add them.

use serde::{Deserialize, Serialize};

/// Bound of a gradient, as a multiple of the largest one seen in profiling; beyond it the gradient takes the
/// cold way. A power of two.
pub const MARGIN: f32 = 64.0;

/// Default headroom: a bank takes 4096 pushes, and a gradient has 19 bits and a sign.
pub const DEFAULT_HEADROOM_BITS: u8 = 12;

/// More headroom than this would leave a gradient less than 7 bits.
pub const HEADROOM_BITS_MAX: u8 = 24;

/// The largest magnitude of one quantized value: `2^(31 - headroom_bits) - 1`.
///
/// A bank takes at most `2^headroom_bits` pushes and each adds to a slot at most once, so a slot stays below
/// 2^31.
///
/// # Panics
/// If `headroom_bits` is above 31.
#[must_use]
pub const fn bound(headroom_bits: u8) -> u32 {
    assert!(headroom_bits <= 31, "a slot has 31 bits and a sign");
    (1 << (31 - headroom_bits)) - 1
}

/// The scale of a hot row: its gradients are multiplied by two to this power.
///
/// A power of two, so that scaling and unscaling round nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Scale(pub i8);

/// Adding and subtracting 1.5 x 2^52 rounds an f64 below 2^51 to the nearest integer, ties to even: the sum
/// has no bits left for the fraction. Unlike `f64::round` it is two instructions on every processor.
const ROUNDER: f64 = 6_755_399_441_055_744.0;

impl Scale {
    /// The largest scale for which `max_abs * MARGIN` is within `bound` as an integer. `max_abs` is finite;
    /// for 0 it is the largest scale there is.
    #[must_use]
    pub fn fit(max_abs: f32, bound: u32) -> Self {
        let largest = f64::from(max_abs.abs()) * f64::from(MARGIN);
        // A binary search over 256 scales is exact, where a logarithm would have to be corrected at powers of
        // two.
        let (mut fits, mut too_large) = (i16::from(i8::MIN), i16::from(i8::MAX) + 1);
        while too_large - fits > 1 {
            let middle = (fits + too_large) / 2;
            if largest * power_of_two(middle) <= f64::from(bound) {
                fits = middle;
            } else {
                too_large = middle;
            }
        }
        Self(i8::try_from(fits).expect("the search stays within i8"))
    }

    /// The integer nearest to `gradient * 2^scale + residue`; what rounding leaves over becomes the new
    /// `residue`, to be added to the next push of this value (error feedback).
    ///
    /// `None` if the gradient is not finite or the integer would be larger than `bound` (see [`bound`]): then
    /// the gradient takes the cold way, and the residue stays as it was. A residue starts at 0 and stays
    /// within 0.5.
    #[must_use]
    #[inline]
    pub fn quantize(self, gradient: f32, residue: &mut f32, bound: u32) -> Option<i32> {
        let (integer, left) = self.nearest(gradient, *residue, bound)?;
        *residue = left;
        Some(integer)
    }

    /// The gradient that an integer or a sum of integers stands for: `sum / 2^scale`, exact whenever an f32
    /// can hold it, else the nearest f32.
    #[must_use]
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the one rounding there is: the f64 is exact")]
    pub fn dequantize(self, sum: i32) -> f32 {
        (f64::from(sum) * power_of_two(-i16::from(self.0))) as f32
    }

    /// Two to the power of the scale, exact.
    #[must_use]
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "an f32 holds each power of two from 2^-128 to 2^127"
    )]
    pub fn factor(self) -> f32 {
        power_of_two(i16::from(self.0)) as f32
    }

    #[inline]
    fn nearest(self, gradient: f32, residue: f32, bound: u32) -> Option<(i32, f32)> {
        let (nearest, left, is_within) = Quantizer::new(bound).quantize(gradient, self.factor(), residue);
        is_within.then_some((nearest, left))
    }
}

/// Does the same as [`Scale::quantize`], for many values and without a branch.
#[derive(Debug, Clone, Copy)]
pub struct Quantizer {
    bound: f64,
}

impl Quantizer {
    /// Integers of up to `bound`.
    #[must_use]
    pub fn new(bound: u32) -> Self {
        Self { bound: f64::from(bound) }
    }

    /// The integer nearest to the scaled gradient and its residue, what rounding leaves over, and whether the integer is
    /// within the bound. If it is not, the other two mean nothing. `factor` is that of a [`Scale`].
    #[must_use]
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "an integer within bound, and a residue that may round"
    )]
    pub fn quantize(self, gradient: f32, factor: f32, residue: f32) -> (i32, f32, bool) {
        let scaled = f64::from(gradient) * f64::from(factor) + f64::from(residue);
        let rounded = scaled + ROUNDER;
        let nearest = rounded - ROUNDER;
        // What is too large for the rounding to be exact is too large for any bound. NaN is within none.
        let is_within = nearest.abs() <= self.bound;
        // The lowest bits of the sum are those of the integer: that saves a conversion.
        ((rounded.to_bits() as u32).cast_signed(), (scaled - nearest) as f32, is_within)
    }
}

/// 2^exponent, exact; the exponent is one of a normal f64.
#[inline]
fn power_of_two(exponent: i16) -> f64 {
    debug_assert!((-1022..=1023).contains(&exponent));
    let biased = u64::from((1023 + exponent).unsigned_abs());
    f64::from_bits(biased << 52)
}

#[cfg(test)]
mod tests;
