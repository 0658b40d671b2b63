//! Arrays of numbers inside messages, as one run of bytes rather than value by value.

use core::fmt;
use core::marker::PhantomData;

use bytemuck::{NoUninit, Pod};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

// The bytes are those of the memory. A big-endian host would have to swap them here.
const _: () = assert!(cfg!(target_endian = "little"), "bulk arrays travel in little-endian order");

/// A vector that is serialized as a byte string: its values in little-endian order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Bulk<T>(pub Vec<T>);

impl<T: NoUninit> Serialize for Bulk<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(bytemuck::cast_slice(&self.0))
    }
}

impl<'de, T: Pod> Deserialize<'de> for Bulk<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(BulkVisitor(PhantomData))
    }
}

/// Values that are elsewhere, serialized as [`Bulk`] is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BulkOf<'a, T>(pub(crate) &'a [T]);

impl<T: NoUninit> Serialize for BulkOf<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(bytemuck::cast_slice(self.0))
    }
}

/// Appends a value to bytes, which have room for most of it.
pub(crate) fn encode_onto(bytes: Vec<u8>, value: &impl Serialize) -> Vec<u8> {
    postcard::serialize_with_flavor(value, Bytes(bytes)).expect("a vector takes any value")
}

/// Bytes that grow by whole slices: the flavour of the library goes byte by byte.
struct Bytes(Vec<u8>);

impl postcard::ser_flavors::Flavor for Bytes {
    type Output = Vec<u8>;

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<Vec<u8>> {
        Ok(self.0)
    }
}

struct BulkVisitor<T>(PhantomData<T>);

impl<T: Pod> Visitor<'_> for BulkVisitor<T> {
    type Value = Bulk<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a byte string of {}-byte values", size_of::<T>())
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Self::Value, E> {
        if !bytes.len().is_multiple_of(size_of::<T>()) {
            return Err(E::invalid_length(bytes.len(), &self));
        }
        Ok(Bulk(bytemuck::pod_collect_to_vec(bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive_the_wire_to_the_bit() {
        let values = Bulk(vec![1.5f32, -0.0, f32::MIN_POSITIVE, f32::MAX]);
        let bytes = postcard::to_stdvec(&values).unwrap();
        let back: Bulk<f32> = postcard::from_bytes(&bytes).unwrap();
        assert_eq!(
            values.0.iter().map(|v| v.to_bits()).collect::<Vec<_>>(),
            back.0.iter().map(|v| v.to_bits()).collect::<Vec<_>>()
        );
    }

    #[test]
    fn a_length_that_is_no_multiple_of_the_value_is_refused() {
        let bytes = postcard::to_stdvec(&Bulk(vec![1u8, 2, 3])).unwrap();
        assert!(postcard::from_bytes::<Bulk<u32>>(&bytes).is_err());
    }
}
