//! The values of exported rows, and the files that they are in.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Form of the values of exported rows. A layer is one row, and always [`Format::F32`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// As they were trained.
    F32,
    /// The upper half of an f32, rounded to the nearest, and to even between two.
    Bf16,
    /// Whole numbers from -127 to 127 and a scale for each row: its largest value divided by 127.
    I8,
}

impl Format {
    /// Bytes of a row.
    pub(super) fn stride(self, width: usize) -> usize {
        match self {
            Self::F32 => 4 * width,
            Self::Bf16 => 2 * width,
            Self::I8 => 4 + width,
        }
    }

    /// Bytes of the scale, in front of the values of a row.
    fn scale_bytes(self) -> usize {
        if self == Self::I8 { 4 } else { 0 }
    }

    /// The name of the type in a file.
    fn dtype(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::Bf16 => "BF16",
            Self::I8 => "I8",
        }
    }

    /// Appends the bytes of a row.
    pub(super) fn encode(self, values: &[f32], row: &mut Vec<u8>) {
        match self {
            Self::F32 => row.extend_from_slice(bytemuck::cast_slice(values)),
            Self::Bf16 => row.extend(values.iter().flat_map(|value| bf16(*value).to_le_bytes())),
            Self::I8 => {
                // A row that is not finite has a scale that is not, and reads as such.
                let largest = values.iter().fold(0.0_f32, |largest, value| {
                    if value.is_nan() { f32::NAN } else { largest.max(value.abs()) + 0.0 * largest }
                });
                let scale = largest / 127.0;
                row.extend_from_slice(&scale.to_le_bytes());
                let divided = |value: &f32| if scale > 0.0 { value / scale } else { 0.0 };
                row.extend(values.iter().map(divided).map(|value| whole(value).cast_unsigned()));
            }
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "it is clamped, and 0 if it is no number")]
fn whole(value: f32) -> i8 {
    value.round_ties_even().clamp(-127.0, 127.0) as i8
}

fn bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        // Rounded up, its fraction might become 0: that is infinity.
        return (bits >> 16) as u16 | 0x40;
    }
    let to_even = (bits >> 16) & 1;
    ((bits + 0x7fff + to_even) >> 16) as u16
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "f32" => Ok(Self::F32),
            "bf16" => Ok(Self::Bf16),
            "i8" => Ok(Self::I8),
            _ => Err("the formats are f32, bf16 and i8".to_owned()),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::I8 => "i8",
        })
    }
}

/// Rows of a table, each with its key. Rows are bytes in a [`Format`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Rows {
    pub(super) keys: Vec<u64>,
    pub(super) rows: Vec<u8>,
}

impl Rows {
    pub(super) fn row(&self, at: usize, stride: usize) -> &[u8] {
        &self.rows[at * stride..][..stride]
    }

    pub(super) fn push(&mut self, key: u64, row: &[u8]) {
        self.keys.push(key);
        self.rows.extend_from_slice(row);
    }
}

/// The bytes of a file: a safetensors file of `keys` (U64), `removed` (U64), `scales` (F32, of whole numbers) and `values`.
pub(super) fn file(table: &str, format: Format, width: usize, rows: &Rows, removed: &[u64]) -> Vec<u8> {
    let count = rows.keys.len();
    let mut tensors = Vec::new();
    let mut end = 0;
    let mut tensor = |name: &str, dtype: &str, shape: &str, bytes: usize| {
        let start = end;
        end += bytes;
        tensors.push(format!(
            r#""{name}":{{"dtype":"{dtype}","shape":[{shape}],"data_offsets":[{start},{end}]}}"#
        ));
    };
    tensor("keys", "U64", &count.to_string(), 8 * count);
    tensor("removed", "U64", &removed.len().to_string(), 8 * removed.len());
    let scale_bytes = format.scale_bytes();
    if scale_bytes > 0 {
        tensor("scales", "F32", &count.to_string(), scale_bytes * count);
    }
    let stride = format.stride(width);
    tensor("values", format.dtype(), &format!("{count},{width}"), (stride - scale_bytes) * count);
    let table = serde_json::Value::from(table);
    let mut json =
        format!(r#"{{"__metadata__":{{"format":"libra-export-1","table":{table}}},{}}}"#, tensors.join(","));
    json.extend(std::iter::repeat_n(' ', json.len().next_multiple_of(8) - json.len()));
    let mut bytes = Vec::with_capacity(8 + json.len() + end);
    bytes.extend_from_slice(&(json.len() as u64).to_le_bytes());
    bytes.extend_from_slice(json.as_bytes());
    bytes.extend_from_slice(bytemuck::cast_slice(&rows.keys));
    bytes.extend_from_slice(bytemuck::cast_slice(removed));
    if scale_bytes > 0 {
        for row in rows.rows.chunks_exact(stride) {
            bytes.extend_from_slice(&row[..scale_bytes]);
        }
        for row in rows.rows.chunks_exact(stride) {
            bytes.extend_from_slice(&row[scale_bytes..]);
        }
    } else {
        bytes.extend_from_slice(&rows.rows);
    }
    bytes
}

/// Reads the bytes of [`file`]; `None` if they are not those of a file with so many rows.
pub(super) fn parse(
    bytes: &[u8],
    format: Format,
    width: usize,
    (count, gone): (usize, usize),
) -> Option<(Rows, Vec<u64>)> {
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    let tensors = rest.get(usize::try_from(u64::from_le_bytes(*length)).ok()?..)?;
    let (stride, scale_bytes) = (format.stride(width), format.scale_bytes());
    let (keys, rest) = tensors.split_at_checked(8 * count)?;
    let (removed, rest) = rest.split_at_checked(8 * gone)?;
    let (scales, values) = rest.split_at_checked(scale_bytes * count)?;
    if values.len() != (stride - scale_bytes) * count {
        return None;
    }
    let numbers = |bytes: &[u8]| bytemuck::pod_collect_to_vec::<u8, u64>(bytes);
    let mut rows = Rows { keys: numbers(keys), rows: Vec::with_capacity(stride * count) };
    if scale_bytes == 0 {
        rows.rows.extend_from_slice(values);
    } else {
        let pairs = scales.chunks_exact(scale_bytes).zip(values.chunks_exact((stride - scale_bytes).max(1)));
        pairs.for_each(|(scale, values)| rows.rows.extend([scale, values].concat()));
    }
    Some((rows, numbers(removed)))
}

#[cfg(test)]
mod tests {
    use safetensors::{Dtype, SafeTensors};

    use super::*;

    fn encoded(format: Format, values: &[f32]) -> Vec<u8> {
        let mut row = Vec::new();
        format.encode(values, &mut row);
        assert_eq!(row.len(), format.stride(values.len()));
        row
    }

    #[test]
    fn halves_are_rounded_to_the_nearest() {
        let of = |value: f32| u16::from_le_bytes(encoded(Format::Bf16, &[value]).try_into().unwrap());
        assert_eq!(of(1.0), 0x3f80);
        assert_eq!(of(-0.0), 0x8000);
        // Between two: to even; a bit more: up.
        assert_eq!(of(f32::from_bits(0x3f80_8000)), 0x3f80);
        assert_eq!(of(f32::from_bits(0x3f81_8000)), 0x3f82);
        assert_eq!(of(f32::from_bits(0x3f80_8001)), 0x3f81);
        assert_eq!(of(f32::MAX), 0x7f80);
        for nan in [f32::NAN, f32::from_bits(0x7f80_0001), f32::from_bits(0xffff_ffff)] {
            assert!(f32::from_bits(u32::from(of(nan)) << 16).is_nan());
        }
    }

    #[test]
    fn whole_numbers_are_within_half_a_step() {
        let values = [0.5, -1.27, 0.0, 1.0, 0.013];
        let row = encoded(Format::I8, &values);
        let scale = f32::from_le_bytes(row[..4].try_into().unwrap());
        for (value, byte) in values.iter().zip(&row[4..]) {
            let read = f32::from(byte.cast_signed()) * scale;
            assert!((read - value).abs() <= scale * 0.501, "{value} {read}");
        }
        assert_eq!(row[5].cast_signed(), -127);
        assert_eq!(encoded(Format::I8, &[0.0; 3]), [0; 7]);
        for bad in [[1.0, f32::NAN], [f32::NAN, 1.0], [f32::INFINITY, 1.0]] {
            let row = encoded(Format::I8, &bad);
            let scale = f32::from_le_bytes(row[..4].try_into().unwrap());
            assert!(!scale.is_finite(), "{bad:?} {scale}");
        }
    }

    #[test]
    fn the_reference_reads_files() {
        for (format, dtype) in
            [(Format::F32, Dtype::F32), (Format::Bf16, Dtype::BF16), (Format::I8, Dtype::I8)]
        {
            for (count, removed) in [(0, vec![]), (3, vec![9, 4]), (1, vec![7])] {
                let mut rows = Rows::default();
                for key in 0..count {
                    let mut row = Vec::new();
                    format.encode(&[key as f32, -1.5, 0.25, 3.0, 8.0], &mut row);
                    rows.push(100 + key, &row);
                }
                let bytes = file("a \"quoted\" näme", format, 5, &rows, &removed);
                let tensors = SafeTensors::deserialize(&bytes).unwrap();
                let values = tensors.tensor("values").unwrap();
                let count = rows.keys.len();
                assert_eq!((values.dtype(), values.shape()), (dtype, &[count, 5][..]));
                assert_eq!(tensors.tensor("removed").unwrap().shape(), [removed.len()]);
                assert_eq!(tensors.tensor("scales").is_ok(), format == Format::I8);
                let read = parse(&bytes, format, 5, (count, removed.len()));
                assert_eq!(read, Some((rows.clone(), removed.clone())));
                assert_eq!(parse(&bytes, format, 5, (count + 1, removed.len())), None);
                assert_eq!(parse(&bytes[..bytes.len() - 1], format, 5, (count, removed.len())), None);
            }
        }
    }
}
