//! The distinct rows of a batch.

use std::collections::HashMap;

use foldhash::fast::FixedState;

/// Finds distinct rows with an array that is as long as there are rows, so that nothing is hashed.
///
/// An entry is valid while its stamp is the current one: moving to the next batch is one addition, not a pass over the array.
#[derive(Debug)]
pub(crate) struct DistinctRows {
    entries: Vec<Entry>,
    stamp: u32,
}

#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    stamp: u32,
    index: u32,
}

impl DistinctRows {
    /// For keys `0..rows`.
    pub(crate) fn new(rows: usize) -> Self {
        Self { entries: vec![Entry::default(); rows], stamp: 0 }
    }

    /// Forgets all rows.
    pub(crate) fn start(&mut self) {
        self.stamp = self.stamp.wrapping_add(1);
        if self.stamp == 0 {
            self.entries.fill(Entry::default());
            self.stamp = 1;
        }
    }

    /// The index of `key` in `keys`, to which it is added when it is not there yet.
    pub(crate) fn index(&mut self, key: u64, keys: &mut Vec<u64>) -> u32 {
        let place = usize::try_from(key).expect("keys of users and items are indices of an array");
        let entry = &mut self.entries[place];
        if entry.stamp != self.stamp {
            let index = u32::try_from(keys.len()).expect("fewer than 2^32 rows");
            *entry = Entry { stamp: self.stamp, index };
            keys.push(key);
        }
        entry.index
    }
}

/// Finds distinct rows by hash: for keys of which there may be any number.
#[derive(Debug, Default)]
pub(crate) struct DistinctKeys(HashMap<u64, u32, FixedState>);

impl DistinctKeys {
    /// Forgets all rows.
    pub(crate) fn start(&mut self) {
        self.0.clear();
    }

    /// The index of `key` in `keys`, to which it is added when it is not there yet.
    pub(crate) fn index(&mut self, key: u64, keys: &mut Vec<u64>) -> u32 {
        *self.0.entry(key).or_insert_with(|| {
            keys.push(key);
            u32::try_from(keys.len() - 1).expect("fewer than 2^32 rows")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_is_there_once() {
        let mut distinct = DistinctRows::new(30);
        // The stamp is about to wrap: what is left of earlier batches must not be taken for this one's.
        distinct.stamp = u32::MAX - 1;
        for _ in 0..3 {
            distinct.start();
            let mut keys = Vec::new();
            let indices = [3, 10, 3, 29, 9, 10].map(|key| distinct.index(key, &mut keys));
            assert_eq!((keys, indices), (vec![3, 10, 29, 9], [0, 1, 0, 2, 3, 1]));
        }
        let (mut distinct, mut keys) = (DistinctKeys::default(), Vec::new());
        let indices = [u64::MAX, 10, u64::MAX].map(|key| distinct.index(key, &mut keys));
        assert_eq!((&keys[..], indices), (&[u64::MAX, 10][..], [0, 1, 0]));
        distinct.start();
        assert_eq!(distinct.index(10, &mut Vec::new()), 0);
    }
}
