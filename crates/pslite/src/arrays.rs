//! Keys and floats as messages carry them.

use crate::mesh::{Bytes, OutgoingMessage};

/// The type that ps-lite calls `FLOAT`.
pub(crate) const FLOAT: u32 = 9;

/// Keys that are sent from where they were made.
pub(crate) struct Keys(pub(crate) Vec<u64>);

impl AsRef<[u8]> for Keys {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

/// Values that are sent from where they were made.
pub(crate) struct Floats(pub(crate) Vec<f32>);

impl AsRef<[u8]> for Floats {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

/// Returns true if a request is one for the default handler of floats: its values are one for each key.
pub(crate) fn is_for_sums(outgoing: &OutgoingMessage) -> bool {
    let meta = &outgoing.meta;
    let brought = if meta.push { keys_of(outgoing).len() } else { 0 };
    meta.request
        && !meta.simple
        && (meta.push || meta.pull)
        && meta.value_type == FLOAT
        && values_of(outgoing).len() == brought
}

/// The keys of a message on its way out. Bytes of applications need not begin where a number may.
pub(crate) fn keys_of(outgoing: &OutgoingMessage) -> impl ExactSizeIterator<Item = u64> {
    chunks(&outgoing.keys).map(|bytes| u64::from_ne_bytes(*bytes))
}

/// Its values, if they are floats.
pub(crate) fn values_of(outgoing: &OutgoingMessage) -> impl ExactSizeIterator<Item = f32> {
    chunks(&outgoing.values).map(|bytes| f32::from_ne_bytes(*bytes))
}

fn chunks<const N: usize>(bytes: &Bytes) -> core::slice::Iter<'_, [u8; N]> {
    bytes.as_slice().as_chunks().0.iter()
}
