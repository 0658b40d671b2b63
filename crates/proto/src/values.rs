//! Values of rows and gradients inside messages, in as many bytes as the job gives them.
//!
//! | format | bytes | largest | a value is off by at most |
//! |---|---|---|---|
//! | `f32` | 4 | 3.4e38 | nothing |
//! | `bf16` | 2 | 3.39e38 | 1/256 of itself, or 2^-134 below 2^-126 |
//! | `f16` | 2 | 65,504 | 1/2,048 of itself, or 2^-25 below 2^-14 |
//!
//! Both halves round to the nearest, ties to even, with subnormal values; so what is smaller than half of the least of them
//! (2^-134, 2^-25) becomes zero. Infinities stay, and what is not a number stays so, quiet, with its sign and the upper bits
//! of its payload. A finite value never becomes infinite: a message with one that would goes as f32 (rule C7).

use core::fmt;
use core::str::FromStr;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::bulk::Bulk;

/// Format of values of rows and gradients in messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ValueFormat {
    /// IEEE 754 single precision: what rows are made of.
    #[default]
    F32,
    /// The upper half of it.
    Bf16,
    /// IEEE 754 half precision.
    F16,
}

impl fmt::Display for ValueFormat {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        })
    }
}

/// Text that names no format.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("expected f32, bf16 or f16")]
pub struct UnknownFormat;

impl FromStr for ValueFormat {
    type Err = UnknownFormat;

    fn from_str(text: &str) -> Result<Self, UnknownFormat> {
        match text {
            "f32" => Ok(Self::F32),
            "bf16" => Ok(Self::Bf16),
            "f16" => Ok(Self::F16),
            _ => Err(UnknownFormat),
        }
    }
}

impl ValueFormat {
    /// Bits of the least finite f32, without its sign, that this format rounds to infinity.
    fn overflow(self) -> u32 {
        match self {
            Self::F32 => f32::INFINITY.to_bits(),
            // Half a step above the largest: the tie goes to the even one, which is infinity.
            Self::Bf16 => 0x7f7f_8000,
            Self::F16 => 65_520f32.to_bits(),
        }
    }

    /// Returns true if all finite values stay finite.
    fn holds(self, values: &[f32]) -> bool {
        let overflow = self.overflow()..f32::INFINITY.to_bits();
        // Without a way out in the middle, which would be slower than to look at all.
        !values.iter().fold(false, |found, value| found | overflow.contains(&value.abs().to_bits()))
    }
}

/// Values in a message, in one of the formats.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Values {
    /// As they are.
    F32(Bulk<f32>),
    /// Bits of bf16.
    Bf16(Bulk<u16>),
    /// Bits of f16.
    F16(Bulk<u16>),
}

impl Default for Values {
    fn default() -> Self {
        Self::F32(Bulk(Vec::new()))
    }
}

impl From<Vec<f32>> for Values {
    fn from(values: Vec<f32>) -> Self {
        Self::F32(Bulk(values))
    }
}

impl Values {
    /// Values in a format, or as f32 if one of them is too large for it (rule C7).
    pub fn new(format: ValueFormat, values: Vec<f32>) -> Self {
        match format {
            ValueFormat::Bf16 if format.holds(&values) => {
                let mut bits = vec![0; values.len()];
                let places: &mut [bf16] =
                    half::slice::HalfBitsSliceExt::reinterpret_cast_mut(bits.as_mut_slice());
                places.convert_from_f32_slice(&values);
                Self::Bf16(Bulk(bits))
            }
            ValueFormat::F16 if format.holds(&values) => {
                let mut bits = vec![0; values.len()];
                let places: &mut [f16] =
                    half::slice::HalfBitsSliceExt::reinterpret_cast_mut(bits.as_mut_slice());
                places.convert_from_f32_slice(&values);
                Self::F16(Bulk(bits))
            }
            _ => Self::F32(Bulk(values)),
        }
    }

    /// Returns the number of values.
    pub fn len(&self) -> usize {
        match self {
            Self::F32(Bulk(values)) => values.len(),
            Self::Bf16(Bulk(bits)) | Self::F16(Bulk(bits)) => bits.len(),
        }
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns their size in a message.
    pub fn bytes(&self) -> usize {
        match self {
            Self::F32(_) => 4 * self.len(),
            Self::Bf16(_) | Self::F16(_) => 2 * self.len(),
        }
    }

    /// The values. Those that are f32 already are not copied.
    pub fn into_vec(self) -> Vec<f32> {
        match self {
            Self::F32(Bulk(values)) => values,
            Self::Bf16(Bulk(bits)) => {
                let halves: &[bf16] = half::slice::HalfBitsSliceExt::reinterpret_cast(bits.as_slice());
                halves.to_f32_vec()
            }
            Self::F16(Bulk(bits)) => {
                let halves: &[f16] = half::slice::HalfBitsSliceExt::reinterpret_cast(bits.as_slice());
                halves.to_f32_vec()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HALVES: [ValueFormat; 2] = [ValueFormat::Bf16, ValueFormat::F16];

    fn through(format: ValueFormat, values: &[f32]) -> Vec<f32> {
        let bytes = postcard::to_stdvec(&Values::new(format, values.to_vec())).unwrap();
        postcard::from_bytes::<Values>(&bytes).unwrap().into_vec()
    }

    fn one(format: ValueFormat, value: f32) -> f32 {
        through(format, &[value])[0]
    }

    #[test]
    fn values_that_a_format_has_survive_to_the_bit() {
        let small = [0.0, -0.0, 1.0, -1.5, 0.09375, 65280.0, f32::INFINITY, f32::NEG_INFINITY];
        for format in [ValueFormat::F32, ValueFormat::Bf16, ValueFormat::F16] {
            for value in small {
                assert_eq!(one(format, value).to_bits(), value.to_bits(), "{format} {value}");
            }
        }
        // The least subnormal values.
        for (format, least) in
            [(ValueFormat::Bf16, f32::from_bits(1 << 16)), (ValueFormat::F16, 2f32.powi(-24))]
        {
            assert_eq!(one(format, least), least);
            assert_eq!(one(format, -3.0 * least), -3.0 * least);
            // Half of it is a tie, and zero is even.
            assert_eq!(one(format, least / 2.0), 0.0);
            assert_eq!(one(format, least * 0.500_1), least);
            assert_eq!(one(format, least * 1.5), 2.0 * least);
        }
    }

    #[test]
    fn ties_go_to_the_even_value() {
        for (format, step) in [(ValueFormat::Bf16, 2f32.powi(-7)), (ValueFormat::F16, 2f32.powi(-10))] {
            assert_eq!(one(format, 1.0 + 0.5 * step), 1.0);
            assert_eq!(one(format, 1.0 + 1.5 * step), 1.0 + 2.0 * step);
            assert_eq!(one(format, -(1.0 + 0.5 * step)), -1.0);
            assert_eq!(one(format, 1.0 + 0.500_1 * step), 1.0 + step);
        }
    }

    #[test]
    fn nan_stays_nan_with_its_sign() {
        for format in HALVES {
            for bits in [0x7f80_0001, 0x7fc0_0000, 0xff80_0001, 0xffff_ffff] {
                let back = one(format, f32::from_bits(bits));
                assert!(back.is_nan() && back.is_sign_negative() == (bits >> 31 == 1), "{format} {bits:x}");
                assert_eq!(back.to_bits() & 0x0040_0000, 0x0040_0000, "it is quiet");
            }
        }
    }

    // rule C7
    #[test]
    fn a_finite_value_never_becomes_infinite() {
        let below = |value: f32| f32::from_bits(value.to_bits() - 1);
        for (format, largest, too_large) in [
            (ValueFormat::F16, 65_504.0, 65_520.0),
            (ValueFormat::Bf16, f32::from_bits(0x7f7f_0000), f32::from_bits(0x7f7f_8000)),
        ] {
            assert_eq!(one(format, below(too_large)), largest);
            assert_eq!(one(format, -below(too_large)), -largest);
            for value in [too_large, -too_large, f32::MAX] {
                // All values of the message are exact then.
                let values = [0.1, value, f32::INFINITY];
                assert!(matches!(Values::new(format, values.to_vec()), Values::F32(_)));
                assert_eq!(through(format, &values), values);
            }
        }
    }

    #[test]
    fn halves_take_half_the_bytes() {
        let bytes = |format| postcard::to_stdvec(&Values::new(format, vec![1.0; 100])).unwrap().len();
        assert_eq!(
            [bytes(ValueFormat::F32), bytes(ValueFormat::Bf16), bytes(ValueFormat::F16)],
            [403, 203, 203]
        );
        assert_eq!(Values::new(ValueFormat::F16, vec![1.0; 100]).bytes(), 200);
    }

    #[test]
    fn formats_have_names() {
        for format in [ValueFormat::F32, ValueFormat::Bf16, ValueFormat::F16] {
            assert_eq!(format.to_string().parse(), Ok(format));
        }
        assert_eq!("f64".parse::<ValueFormat>(), Err(UnknownFormat));
    }

    proptest! {
        #[test]
        fn a_value_is_off_by_no_more_than_the_table_says(bits in prop::collection::vec(any::<u32>(), 1..40)) {
            let values: Vec<f32> = bits.into_iter().map(f32::from_bits).filter(|value| value.is_finite()).collect();
            for (format, relative, normal, absolute) in
                [(ValueFormat::Bf16, -8, -126, -134), (ValueFormat::F16, -11, -14, -25)]
            {
                for (value, back) in values.iter().map(|value| (*value, one(format, *value))) {
                    let (value, back) = (f64::from(value), f64::from(back));
                    let bound = if value.abs() < 2f64.powi(normal) { 2f64.powi(absolute) } else { value.abs() * 2f64.powi(relative) };
                    prop_assert!((value - back).abs() <= bound, "{} {} {}", format, value, back);
                }
                // Many at once are as each alone, whatever instructions do it; unless one makes all f32.
                let fitting: Vec<f32> = values.iter().copied().filter(|value| format.holds(&[*value])).collect();
                let alone: Vec<u32> = fitting.iter().map(|value| one(format, *value).to_bits()).collect();
                let together: Vec<u32> = through(format, &fitting).into_iter().map(f32::to_bits).collect();
                prop_assert_eq!(alone, together);
            }
        }
    }
}
