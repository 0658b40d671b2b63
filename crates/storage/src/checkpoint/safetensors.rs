//! The files of rows: safetensors, so that others can read them without us.
//!
//! A file is the length of its header in 8 bytes, little-endian; the header, JSON padded with spaces; and the
//! tensors: `keys` (U64 `[rows]`), `values` (F32 `[rows, width]`) and `state` (F32 `[rows, state]`), in this order and
//! without gaps. A file of removed rows has only `keys`.
//!
//! The `safetensors` crate writes tensors that are all in memory, so the format is written here; the tests read it
//! with that crate and with Python's package. A header is never parsed: its contents follow from the manifest,
//! so it is compared.

use std::ops::Range;

// The bytes of the tensors are those of the memory. A big-endian host would have to swap them.
const _: () = assert!(cfg!(target_endian = "little"), "safetensors are little-endian");

const F32: u64 = size_of::<f32>() as u64;
const U64: u64 = size_of::<u64>() as u64;
/// Tensors begin at a multiple of this.
const ALIGNMENT: usize = 8;

/// Places of the parts of a file of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    /// All bytes before the tensors.
    pub(super) header: Vec<u8>,
    pub(super) keys: Range<u64>,
    pub(super) values: Range<u64>,
    pub(super) state: Range<u64>,
}

impl Layout {
    /// Of `rows` rows, each with so many values and so much state; `None` if no file is that long.
    pub(super) fn of_rows(table: &str, rows: u64, width: u32, state: u32) -> Option<Self> {
        let keys = rows.checked_mul(U64)?;
        let values = keys.checked_add(rows.checked_mul(F32)?.checked_mul(width.into())?)?;
        let end = values.checked_add(rows.checked_mul(F32)?.checked_mul(state.into())?)?;
        let tensors = format!(
            r#""keys":{{"dtype":"U64","shape":[{rows}],"data_offsets":[0,{keys}]}},"values":{{"dtype":"F32","shape":[{rows},{width}],"data_offsets":[{keys},{values}]}},"state":{{"dtype":"F32","shape":[{rows},{state}],"data_offsets":[{values},{end}]}}"#
        );
        Self::with(header(table, "rows", &tensors), [keys, values, end])
    }

    /// Of the keys of `rows` rows that are no more.
    pub(super) fn of_removed(table: &str, rows: u64) -> Option<Self> {
        let keys = rows.checked_mul(U64)?;
        let tensors = format!(r#""keys":{{"dtype":"U64","shape":[{rows}],"data_offsets":[0,{keys}]}}"#);
        Self::with(header(table, "removed", &tensors), [keys, keys, keys])
    }

    fn with(header: Vec<u8>, [keys, values, end]: [u64; 3]) -> Option<Self> {
        let start = header.len() as u64;
        start.checked_add(end)?;
        Some(Self {
            header,
            keys: start..start + keys,
            values: start + keys..start + values,
            state: start + values..start + end,
        })
    }

    /// Length of the file.
    pub(super) fn bytes(&self) -> u64 {
        self.state.end
    }
}

fn header(table: &str, content: &str, tensors: &str) -> Vec<u8> {
    let table = serde_json::Value::from(table);
    let mut json = format!(
        r#"{{"__metadata__":{{"format":"libra-1","table":{table},"content":"{content}"}},{tensors}}}"#
    );
    json.extend(std::iter::repeat_n(' ', json.len().next_multiple_of(ALIGNMENT) - json.len()));
    let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(json.as_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use safetensors::{Dtype, SafeTensors};

    use super::*;

    fn file(layout: &Layout) -> Vec<u8> {
        let mut bytes = layout.header.clone();
        bytes.resize(usize::try_from(layout.bytes()).unwrap(), 0);
        bytes
    }

    #[test]
    fn the_reference_reads_what_is_written() {
        for (rows, width, state) in [(0u32, 1, 0), (3, 2, 0), (5, 7, 3)] {
            let layout = Layout::of_rows("a \"quoted\" näme", rows.into(), width, state).unwrap();
            let bytes = file(&layout);
            let tensors = SafeTensors::deserialize(&bytes).unwrap();
            let [keys, values, states] =
                ["keys", "values", "state"].map(|name| tensors.tensor(name).unwrap());
            let (rows, width, state) = (rows as usize, width as usize, state as usize);
            assert_eq!((keys.dtype(), keys.shape()), (Dtype::U64, &[rows][..]));
            assert_eq!((values.dtype(), values.shape()), (Dtype::F32, &[rows, width][..]));
            assert_eq!(states.shape(), [rows, state]);
            assert_eq!(layout.keys.start % 8, 0);
        }
        let bytes = file(&Layout::of_removed("a", 4).unwrap());
        assert_eq!(SafeTensors::deserialize(&bytes).unwrap().tensor("keys").unwrap().shape(), [4]);
    }

    #[test]
    fn no_file_is_longer_than_can_be_counted() {
        assert_eq!(Layout::of_rows("a", u64::MAX / 8, 1, 0), None);
        assert_eq!(Layout::of_rows("a", u64::MAX, 0, 0), None);
        assert_eq!(Layout::of_removed("a", u64::MAX / 8), None);
    }
}
