//! Keys inside messages: as differences where they ascend, as they are where they do not.
//!
//! Callers mostly sort their keys, and then neighbours are close: a batch of 10,000 rows of a table of ten million has gaps
//! that fit two bytes. Differences are kept in blocks of 128 with a width of their own, one, two, four or eight bytes, so one
//! large gap (between two tables, say) costs its block and no other. No bits are packed: whole bytes are decoded as fast as
//! memory is written, and a message is to be taken apart faster than its rows are found.
//!
//! ```text
//!  count u32 │ first key u64 │ width u8 │ 128 differences │ width u8 │ 128 differences │ ...     all little-endian
//! ```

use core::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::bulk::Bulk;

/// Differences that share a width.
const BLOCK: usize = 128;
const COUNT_BYTES: usize = 4;
const KEY_BYTES: usize = 8;

/// Keys of rows, in the order in which their rows follow (rule C6).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keys(Encoding);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Encoding {
    Raw(Bulk<u64>),
    Ascending(Ascending),
}

/// The bytes of keys that ascend, with a structure that was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Ascending(Vec<u8>);

impl Keys {
    /// Takes whichever encoding is shorter.
    pub fn new(keys: impl ExactSizeIterator<Item = u64> + Clone) -> Self {
        match Ascending::new(keys.clone()) {
            Some(ascending) => Self(Encoding::Ascending(ascending)),
            None => Self(Encoding::Raw(Bulk(keys.collect()))),
        }
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        match &self.0 {
            Encoding::Raw(Bulk(keys)) => keys.len(),
            Encoding::Ascending(ascending) => ascending.len(),
        }
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns their size in a message.
    pub fn bytes(&self) -> usize {
        match &self.0 {
            Encoding::Raw(Bulk(keys)) => keys.len() * KEY_BYTES,
            Encoding::Ascending(Ascending(bytes)) => bytes.len(),
        }
    }

    /// Puts the keys into a vector, in place of what is there.
    pub fn decode_into(&self, keys: &mut Vec<u64>) {
        keys.clear();
        match &self.0 {
            Encoding::Raw(Bulk(raw)) => keys.extend_from_slice(raw),
            Encoding::Ascending(ascending) => ascending.decode_onto(keys),
        }
    }

    /// The keys.
    pub fn to_vec(&self) -> Vec<u64> {
        let mut keys = Vec::new();
        self.decode_into(&mut keys);
        keys
    }
}

impl From<&[u64]> for Keys {
    fn from(keys: &[u64]) -> Self {
        Self::new(keys.iter().copied())
    }
}

impl Ascending {
    /// `None` if the keys do not ascend, or take no less as they are.
    fn new(mut keys: impl ExactSizeIterator<Item = u64>) -> Option<Self> {
        let raw_bytes = keys.len() * KEY_BYTES;
        let count = u32::try_from(keys.len()).ok()?;
        let mut last = keys.next()?;
        // Two bytes a difference, which is what most take.
        let mut bytes = Vec::with_capacity(COUNT_BYTES + KEY_BYTES + raw_bytes / 4 + raw_bytes / BLOCK);
        bytes.extend_from_slice(&count.to_le_bytes());
        bytes.extend_from_slice(&last.to_le_bytes());
        let mut differences = [0; BLOCK];
        while keys.len() > 0 {
            let (mut length, mut all, mut ascending) = (0, 0, true);
            for (difference, key) in differences.iter_mut().zip(keys.by_ref().take(BLOCK)) {
                ascending &= key >= last;
                *difference = key.wrapping_sub(last);
                all |= *difference;
                last = key;
                length += 1;
            }
            if !ascending {
                return None;
            }
            put_block(&mut bytes, &differences[..length], all);
        }
        (bytes.len() < raw_bytes).then_some(Self(bytes))
    }

    fn len(&self) -> usize {
        self.0.first_chunk().map_or(0, |count| u32::from_le_bytes(*count) as usize)
    }

    fn decode_onto(&self, keys: &mut Vec<u64>) {
        let head = self.0.split_at_checked(COUNT_BYTES).and_then(|(_, rest)| rest.split_first_chunk());
        let (first, mut rest) = head.expect("the structure was checked");
        let mut last = u64::from_le_bytes(*first);
        keys.reserve(self.len());
        keys.push(last);
        let mut left = self.len() - 1;
        while left > 0 {
            let length = left.min(BLOCK);
            left -= length;
            let (width, after) = rest.split_first().expect("the structure was checked");
            let (block, after) = after.split_at(length * usize::from(*width));
            rest = after;
            // A key that is too large wraps around: it is refused like any other that is in no table.
            let mut add = |difference: u64| {
                last = last.wrapping_add(difference);
                last
            };
            match width {
                1 => keys.extend(block.iter().map(|byte| add(u64::from(*byte)))),
                2 => keys
                    .extend(block.as_chunks().0.iter().map(|bytes| add(u16::from_le_bytes(*bytes).into()))),
                4 => keys
                    .extend(block.as_chunks().0.iter().map(|bytes| add(u32::from_le_bytes(*bytes).into()))),
                _ => keys.extend(block.as_chunks().0.iter().map(|bytes| add(u64::from_le_bytes(*bytes)))),
            }
        }
    }

    /// Returns true if each block has a width, and the bytes are exactly those of all blocks.
    fn is_sound(bytes: &[u8]) -> bool {
        let Some((count, rest)) = bytes.split_first_chunk() else { return false };
        let Some((count, mut rest)) =
            (u32::from_le_bytes(*count) as usize).checked_sub(1).zip(rest.get(KEY_BYTES..))
        else {
            return false;
        };
        let mut left = count;
        while left > 0 {
            let length = left.min(BLOCK);
            left -= length;
            let Some((width @ (1 | 2 | 4 | 8), after)) = rest.split_first() else { return false };
            let Some(after) = after.get(length * usize::from(*width)..) else { return false };
            rest = after;
        }
        rest.is_empty()
    }
}

/// Writes differences as narrow as the largest of them allows; `all` is their disjunction.
fn put_block(bytes: &mut Vec<u8>, differences: &[u64], all: u64) {
    let width = match all {
        0..=0xff => 1,
        0x100..=0xffff => 2,
        0x1_0000..=0xffff_ffff => 4,
        _ => KEY_BYTES,
    };
    bytes.push(u8::try_from(width).expect("it is one of four"));
    match width {
        1 => bytes.extend(differences.iter().map(|difference| difference.to_le_bytes()[0])),
        2 => put::<2>(bytes, differences),
        4 => put::<4>(bytes, differences),
        _ => put::<KEY_BYTES>(bytes, differences),
    }
}

fn put<const WIDTH: usize>(bytes: &mut Vec<u8>, differences: &[u64]) {
    let start = bytes.len();
    bytes.resize(start + WIDTH * differences.len(), 0);
    for (place, difference) in bytes[start..].as_chunks_mut::<WIDTH>().0.iter_mut().zip(differences) {
        *place = *difference.to_le_bytes().first_chunk().expect("no width is above eight");
    }
}

impl Serialize for Ascending {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Ascending {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(AscendingVisitor)
    }
}

struct AscendingVisitor;

impl Visitor<'_> for AscendingVisitor {
    type Value = Ascending;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("blocks of differences of keys")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Self::Value, E> {
        if !Ascending::is_sound(bytes) {
            return Err(E::invalid_length(bytes.len(), &self));
        }
        Ok(Ascending(bytes.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Keys that mostly ascend, by gaps of every width, and sometimes do not.
    fn keys() -> impl Strategy<Value = Vec<u64>> {
        let gap = prop_oneof![
            8 => 0u64..300,
            4 => 0u64..100_000,
            1 => 0u64..1 << 40,
        ];
        let sorted = (any::<u32>(), prop::collection::vec(gap, 0..700)).prop_map(|(first, gaps)| {
            let mut last = u64::from(first);
            gaps.into_iter()
                .map(|gap| {
                    last += gap;
                    last
                })
                .collect()
        });
        prop_oneof![4 => sorted, 1 => prop::collection::vec(any::<u64>(), 0..300)]
    }

    proptest! {
        // rule C6
        #[test]
        fn keys_survive_the_wire(keys in keys()) {
            let bytes = postcard::to_stdvec(&Keys::from(keys.as_slice())).unwrap();
            let back: Keys = postcard::from_bytes(&bytes).unwrap();
            prop_assert_eq!(back.len(), keys.len());
            prop_assert_eq!(back.is_empty(), keys.is_empty());
            // As they are they take eight bytes each, and never more; a tag and a length come before.
            prop_assert!(back.bytes() <= 8 * keys.len() && bytes.len() <= back.bytes() + 6);
            prop_assert_eq!(back.to_vec(), keys);
        }

        #[test]
        fn bytes_are_keys_or_they_are_not(tag in 0u8..3, bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let mut frame = vec![tag];
            frame.extend(postcard::to_stdvec(&Bulk(bytes)).unwrap());
            if let Ok(keys) = postcard::from_bytes::<Keys>(&frame) {
                prop_assert_eq!(keys.to_vec().len(), keys.len());
            }
        }

        #[test]
        fn changed_bytes_are_keys_or_they_are_not(
            keys in keys(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        ) {
            let mut frame = postcard::to_stdvec(&Keys::from(keys.as_slice())).unwrap();
            for (index, byte) in changes {
                let length = frame.len();
                frame[index.index(length)] = byte;
            }
            if let Ok(keys) = postcard::from_bytes::<Keys>(&frame) {
                // No small message makes many keys.
                prop_assert!(keys.len() <= frame.len());
                prop_assert_eq!(keys.to_vec().len(), keys.len());
            }
        }
    }

    #[test]
    fn neighbours_take_a_byte_and_strangers_what_they_are() {
        let bytes = |keys: &[u64]| Keys::from(keys).bytes();
        let run: Vec<u64> = (1000..2000).collect();
        assert_eq!(bytes(&run), 4 + 8 + 8 + 999);
        let apart: Vec<u64> = (0..1000).map(|key| key * 1000).collect();
        assert_eq!(bytes(&apart), 4 + 8 + 8 + 2 * 999);
        let descending: Vec<u64> = run.iter().rev().copied().collect();
        assert_eq!(bytes(&descending), 8000);
        assert_eq!(bytes(&[7]), 8, "one key is its own first");
        assert_eq!(bytes(&[]), 0);
    }

    #[test]
    fn a_large_gap_costs_its_block_alone() {
        let tables: Vec<u64> = (0..500).chain((1 << 40)..(1 << 40) + 500).collect();
        let keys = Keys::from(tables.as_slice());
        assert_eq!(keys.bytes(), 4 + 8 + 8 + (999 - BLOCK) + 8 * BLOCK);
        assert_eq!(keys.to_vec(), tables);
    }

    #[test]
    fn a_count_that_the_bytes_do_not_make_is_refused() {
        let sound = Ascending::new((0..1000u32).map(u64::from)).unwrap().0;
        assert!(Ascending::is_sound(&sound));
        for count in [0, 1, 999, 1001, u32::MAX] {
            let mut bytes = sound.clone();
            bytes[..4].copy_from_slice(&count.to_le_bytes());
            assert!(!Ascending::is_sound(&bytes), "{count}");
        }
        for width in [0, 3, 5, 16, 255] {
            let mut bytes = sound.clone();
            bytes[12] = width;
            assert!(!Ascending::is_sound(&bytes), "{width}");
        }
        for length in 0..sound.len() {
            assert!(!Ascending::is_sound(&sound[..length]), "{length}");
        }
    }
}
