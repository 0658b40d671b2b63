//! Contents of messages that are sent to many: kept once, and encoded once.

use core::fmt;
use core::ops::Deref;
use std::sync::{Arc, OnceLock};

use serde::de::{DeserializeOwned, Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A value that several messages carry. A copy of it costs nothing, and neither does encoding it again: on the wire it is a byte string,
/// which is made for the first message.
pub struct Shared<T>(Arc<Content<T>>);

struct Content<T> {
    value: T,
    bytes: OnceLock<Vec<u8>>,
}

impl<T: Clone> Shared<T> {
    /// The value, copied if others have it, too.
    pub fn into_inner(self) -> T {
        Arc::try_unwrap(self.0).map_or_else(|shared| shared.value.clone(), |content| content.value)
    }
}

impl<T> From<T> for Shared<T> {
    fn from(value: T) -> Self {
        Self(Arc::new(Content { value, bytes: OnceLock::new() }))
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}

impl<T: fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.value.fmt(formatter)
    }
}

impl<T: PartialEq> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0.value == other.0.value
    }
}

impl<T: Serialize> Serialize for Shared<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Content { value, bytes } = &*self.0;
        serializer.serialize_bytes(
            bytes.get_or_init(|| postcard::to_stdvec(value).expect("a vector takes any value")),
        )
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Shared<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(SharedVisitor(core::marker::PhantomData))
    }
}

/// Encodes what is in an [`Arc`] as if it were there itself.
pub(crate) mod as_value {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<T: Serialize, S: Serializer>(
        value: &Arc<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        T::serialize(value, serializer)
    }

    pub(crate) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Arc<T>, D::Error> {
        T::deserialize(deserializer).map(Arc::new)
    }
}

struct SharedVisitor<T>(core::marker::PhantomData<T>);

impl<T: DeserializeOwned> Visitor<'_> for SharedVisitor<T> {
    type Value = Shared<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a byte string that holds a value")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Self::Value, E> {
        match postcard::take_from_bytes::<T>(bytes) {
            Ok((value, [])) => Ok(Shared::from(value)),
            Ok((_, rest)) => Err(E::custom(format!("{} bytes are left behind a value", rest.len()))),
            Err(error) => Err(E::custom(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_value_survives_the_wire() {
        let value = Shared::from(vec![1u32, 500, 7]);
        let bytes = postcard::to_stdvec(&value.clone()).unwrap();
        assert_eq!(bytes, postcard::to_stdvec(&value).unwrap(), "encoded once");
        let back: Shared<Vec<u32>> = postcard::from_bytes(&bytes).unwrap();
        assert_eq!((&back, back.clone().into_inner()), (&value, vec![1, 500, 7]));
    }

    #[test]
    fn bytes_of_no_value_or_of_more_than_one_are_refused() {
        for bytes in [&[0u8][..], &[1, 3], &[3, 1, 0x80, 0x80], &[3, 1, 4, 5], &[9, 1, 4]] {
            assert!(postcard::from_bytes::<Shared<Vec<u32>>>(bytes).is_err(), "{bytes:?}");
        }
    }
}
