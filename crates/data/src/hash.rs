//! Hashes of values and names, the same on every machine and in every version: keys of rows depend on them.

/// The finalizer of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
pub(crate) fn splitmix64(bits: u64) -> u64 {
    let bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Returns the id of a text: its words of eight bytes, chained.
pub(crate) fn text_id(text: &[u8]) -> u64 {
    let mut words = text.chunks_exact(8);
    let mut hash = splitmix64(text.len() as u64);
    for word in &mut words {
        hash = splitmix64(hash ^ u64::from_le_bytes(word.try_into().expect("a chunk has eight bytes")));
    }
    let mut last = [0; 8];
    last[..words.remainder().len()].copy_from_slice(words.remainder());
    splitmix64(hash ^ u64::from_le_bytes(last))
}

/// Returns the key of a value of a field: fields of one value have different keys.
pub(crate) fn field_key(field: u64, value: u64) -> u64 {
    splitmix64(field ^ splitmix64(value))
}

/// The field of a column, by its name: it makes keys of values, as ids are with [`Keys::Hashed`](crate::Keys::Hashed).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field(u64);

impl Field {
    /// The field of the column of this name.
    pub fn of(column: &str) -> Self {
        Self(text_id(column.as_bytes()))
    }

    /// Returns the key of a value.
    pub fn key(self, value: u64) -> u64 {
        field_key(self.0, value)
    }
}

/// A sequence of pseudorandom numbers that follows from a seed.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(splitmix64(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        splitmix64(self.0)
    }

    /// A number below `end`, by multiplication (Lemire 2019), whose bias is below 2^-32 for the ends used here.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// A number from 0 to 1, without 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Two independent numbers of the standard normal distribution (Box, Muller 1958) make one here.
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (core::f64::consts::TAU * self.unit()).cos()
    }

    /// Brings the items into a random order (Fisher, Yates).
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            let other = usize::try_from(self.below(end as u64 + 1)).expect("below a length");
            items.swap(end, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys of stored models depend on these values.
    #[test]
    fn hashes_never_change() {
        assert_eq!(splitmix64(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(text_id(b""), text_id(b""));
        assert_ne!(text_id(b"a"), text_id(b"a\0"));
        assert_ne!(text_id(b"12345678"), text_id(b"12345678\0"));
        assert_ne!(field_key(1, 7), field_key(2, 7));
        assert_eq!(text_id(b"68fd1e64"), 0x88fc_0cbb_8daf_f016);
        assert_eq!(field_key(text_id(b"C1"), 0x68fd_1e64), 0x17d6_07ad_1240_f35d);
        assert_eq!(Field::of("C1").key(0x68fd_1e64), 0x17d6_07ad_1240_f35d);
    }

    #[test]
    fn a_shuffle_has_every_order() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let mut items = [0, 1, 2, 3];
            Random::new(seed).shuffle(&mut items);
            seen.insert(items);
        }
        assert_eq!(seen.len(), 24);
    }
}
