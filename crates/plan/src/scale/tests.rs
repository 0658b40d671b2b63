use proptest::prelude::*;

use super::*;

/// The definition, one scale after the other.
fn naive_fit(max_abs: f32, bound: u32) -> i8 {
    (i8::MIN..=i8::MAX)
        .rev()
        .find(|scale| {
            f64::from(max_abs) * f64::from(MARGIN) * 2.0_f64.powi(i32::from(*scale)) <= f64::from(bound)
        })
        .unwrap_or(i8::MIN)
}

fn gradient() -> impl Strategy<Value = f32> {
    prop_oneof![-1.0_f32..1.0, -1e-3_f32..1e-3, any::<f32>()]
}

proptest! {
    #[test]
    fn fit_is_the_largest_scale_that_holds(bits in 0_u32..0x7f80_0000, headroom in 0..=HEADROOM_BITS_MAX) {
        let max_abs = f32::from_bits(bits);
        prop_assert_eq!(Scale::fit(max_abs, bound(headroom)).0, naive_fit(max_abs, bound(headroom)));
    }

    #[test]
    fn quantized_values_are_within_bound_and_lose_only_the_residue(
        gradient in gradient(),
        scale in any::<i8>(),
        residue in -0.5_f32..=0.5,
        headroom in 0..=HEADROOM_BITS_MAX,
    ) {
        let (scale, bound) = (Scale(scale), bound(headroom));
        let exact = f64::from(gradient) * 2.0_f64.powi(i32::from(scale.0)) + f64::from(residue);
        let mut left = residue;
        match scale.quantize(gradient, &mut left, bound) {
            Some(integer) => {
                prop_assert!(integer.unsigned_abs() <= bound);
                prop_assert!(left.abs() <= 0.5);
                prop_assert!((f64::from(integer) + f64::from(left) - exact).abs() < 1e-7);
            }
            None => {
                prop_assert_eq!(left, residue);
                prop_assert!(exact.is_nan() || exact.abs() >= f64::from(bound) + 0.5);
            }
        }
    }

    #[test]
    fn error_feedback_keeps_the_sum(gradients in prop::collection::vec(-1.0_f32..1.0, 1..200)) {
        let bound = bound(DEFAULT_HEADROOM_BITS);
        let scale = Scale::fit(1.0, bound);
        let mut residue = 0.0;
        let sum: i32 = gradients
            .iter()
            .map(|gradient| scale.quantize(*gradient, &mut residue, bound).expect("within the margin"))
            .sum();
        let exact: f64 = gradients.iter().copied().map(f64::from).sum();
        let step = 1.0 / 2.0_f64.powi(i32::from(scale.0));
        // Half a step is still in the residue, however many gradients there were; the rest is rounding of
        // residues.
        prop_assert!((f64::from(scale.dequantize(sum)) - exact).abs() <= 0.51 * step);
    }

    #[test]
    fn small_integers_come_back_exactly(integer in -(1_i32 << 24)..=1 << 24, scale in -100_i8..=100) {
        let scale = Scale(scale);
        let scaled_again = f64::from(scale.dequantize(integer)) * 2.0_f64.powi(i32::from(scale.0));
        prop_assert_eq!(scaled_again, f64::from(integer));
    }
}

#[test]
fn a_full_bank_of_largest_values_does_not_overflow() {
    for headroom in 0..=31 {
        assert!(u64::from(bound(headroom)) << headroom < 1 << 31);
    }
    assert_eq!(bound(DEFAULT_HEADROOM_BITS), 524_287);
}

#[test]
fn the_margin_is_used_and_not_more() {
    let bound = bound(DEFAULT_HEADROOM_BITS);
    let scale = Scale::fit(0.25, bound);
    let mut residue = 0.0;
    assert_eq!(scale, Scale(14));
    assert_eq!(scale.quantize(0.25 * MARGIN, &mut residue, bound), Some(262_144));
    assert_eq!(scale.quantize(0.25 * 2.0 * MARGIN, &mut residue, bound), None);
}

#[test]
fn special_gradients_take_the_cold_way() {
    let mut residue = 0.25;
    for gradient in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN] {
        assert_eq!(Scale(0).quantize(gradient, &mut residue, bound(0)), None);
        assert_eq!(Scale(127).quantize(gradient, &mut residue, bound(0)), None);
    }
    assert_eq!(residue, 0.25);
    assert_eq!(Scale(10).quantize(-0.0, &mut residue, 100), Some(0));
    assert_eq!(Scale(10).quantize(f32::MIN_POSITIVE, &mut residue, 100), Some(0));
}

#[test]
fn the_largest_gradient_fits_at_the_extremes() {
    assert_eq!(Scale::fit(0.0, 127), Scale(127));
    assert_eq!(Scale::fit(f32::from_bits(1), 127), Scale(127));
    assert_eq!(Scale::fit(f32::MAX, bound(DEFAULT_HEADROOM_BITS)), Scale(-116));
    let mut residue = 0.0;
    let bound = bound(HEADROOM_BITS_MAX);
    assert!(Scale::fit(f32::MAX, bound).quantize(f32::MAX, &mut residue, bound).is_some());
}
