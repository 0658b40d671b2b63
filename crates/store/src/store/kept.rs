//! The rows of one table that are kept: where keys are close together by key, elsewhere by hash.

use std::hint::black_box;
use std::ops::Range;

use libra_plan::Shard;

use super::rows::{BLOCK, Rows};
use crate::dense::{Dense, DensePlace, Found};
use crate::slab::Place;

/// The rows of one table.
///
/// A chunk of neighbouring keys is dense once rows are so close that empty places cost less than an index. Then a row is
/// found without one, which takes a third of the time.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    dense: Dense,
    sparse: Rows,
}

/// Where a row is, until the next one is made or removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowPlace {
    Dense(DensePlace),
    Sparse(Place),
    Nowhere,
}

impl Kept {
    /// No rows yet of a table of these keys, as far as they are of the shard, each of which will have so many words of values
    /// and state.
    pub(super) fn new(keys: &Range<u64>, words: usize, shard: Shard) -> Self {
        Self { dense: Dense::new(keys, words, shard), sparse: Rows::new(words) }
    }

    pub(super) fn len(&self) -> usize {
        self.dense.len() + self.sparse.len()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.dense.memory_bytes() + self.sparse.memory_bytes()
    }

    /// Where a row is.
    pub(super) fn find(&self, key: u64) -> RowPlace {
        match self.dense.find(key) {
            Found::Row(place) => RowPlace::Dense(place),
            Found::Nothing => RowPlace::Nowhere,
            Found::Elsewhere => self.sparse.find(key).map_or(RowPlace::Nowhere, RowPlace::Sparse),
        }
    }

    /// Where up to [`BLOCK`] rows are. Their memory is asked for before any of them is needed.
    #[inline]
    pub(super) fn find_block(&self, keys: &[u64]) -> [RowPlace; BLOCK] {
        let mut places = [RowPlace::Nowhere; BLOCK];
        let mut rows: [&[u32]; BLOCK] = [&[]; BLOCK];
        let (mut others, mut count) = ([0; BLOCK], 0);
        for (at, key) in keys.iter().enumerate() {
            match self.dense.find(*key) {
                Found::Row(place) => {
                    places[at] = RowPlace::Dense(place);
                    rows[at] = self.dense.row(place);
                }
                Found::Nothing => {}
                Found::Elsewhere => {
                    others[count] = at;
                    count += 1;
                }
            }
        }
        black_box(touch(&rows[..keys.len()]));
        if count > 0 {
            let mut keys_of_others = [0; BLOCK];
            for (key, at) in keys_of_others.iter_mut().zip(&others[..count]) {
                *key = keys[*at];
            }
            let found = self.sparse.find_block(&keys_of_others[..count]);
            for (place, at) in found.into_iter().zip(&others[..count]) {
                if place != Place::NONE {
                    places[*at] = RowPlace::Sparse(place);
                }
            }
        }
        places
    }

    /// Where a row is, which is made if it is not there; `fill` gets its words, all zero. Whether it was made: then rows may
    /// have moved.
    pub(super) fn find_or_insert(&mut self, key: u64, fill: impl FnOnce(&mut [u32])) -> (RowPlace, bool) {
        match self.dense.find(key) {
            Found::Row(place) => return (RowPlace::Dense(place), false),
            Found::Nothing => {
                let place = self.dense.insert(key);
                fill(self.dense.row_mut(place));
                return (RowPlace::Dense(place), true);
            }
            Found::Elsewhere => {}
        }
        let (place, is_new) = self.sparse.find_or_insert(key, fill);
        match is_new.then(|| self.dense.made_elsewhere(key)).flatten() {
            None => (RowPlace::Sparse(place), is_new),
            Some(chunk) => {
                self.make_dense(key, &chunk);
                (self.find(key), true)
            }
        }
    }

    /// Moves the rows of a chunk, of which `key` is one, to where they are found by key.
    fn make_dense(&mut self, key: u64, chunk: &[u64]) {
        self.dense.open(key);
        for keys in chunk.chunks(BLOCK) {
            let places = self.sparse.find_block(keys);
            for (key, place) in keys.iter().zip(places).filter(|(_, place)| *place != Place::NONE) {
                let to = self.dense.insert(*key);
                self.dense.row_mut(to).copy_from_slice(self.sparse.words(place));
            }
            for (key, _) in keys.iter().zip(places).filter(|(_, place)| *place != Place::NONE) {
                self.sparse.remove(*key);
            }
        }
    }

    /// Removes a row, if it is there.
    pub(super) fn remove(&mut self, key: u64) -> bool {
        if self.dense.remove(key) {
            return true;
        }
        let removed = self.sparse.remove(key);
        if removed {
            self.dense.removed_elsewhere(key);
        }
        removed
    }

    /// The words of a row, which is somewhere.
    #[inline]
    pub(super) fn words(&self, place: RowPlace) -> &[u32] {
        match place {
            RowPlace::Dense(place) => self.dense.row(place),
            RowPlace::Sparse(place) => self.sparse.words(place),
            RowPlace::Nowhere => unreachable!("a row that is nowhere has no words"),
        }
    }

    /// The words of a row, which is somewhere.
    #[inline]
    pub(super) fn words_mut(&mut self, place: RowPlace) -> &mut [u32] {
        match place {
            RowPlace::Dense(place) => self.dense.row_mut(place),
            RowPlace::Sparse(place) => self.sparse.words_mut(place),
            RowPlace::Nowhere => unreachable!("a row that is nowhere has no words"),
        }
    }

    /// Keys and words of all rows, in the order in which they lie in memory.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &[u32])> {
        self.dense.iter().chain(self.sparse.iter())
    }
}

/// Reads a word of each cache line of rows, and no more, so that many are on their way from memory at once: the fewer
/// instructions lie between two of them, the more. The result means nothing.
#[inline]
fn touch(rows: &[&[u32]]) -> u32 {
    const LINE_WORDS: usize = 16;
    let mut sum = 0;
    for row in rows {
        sum ^= row.first().copied().unwrap_or(0);
    }
    for row in rows.iter().filter(|row| row.len() > 1) {
        sum ^= row[row.len() - 1];
        for word in row.iter().step_by(LINE_WORDS).skip(1) {
            sum ^= word;
        }
    }
    sum
}

#[cfg(test)]
mod tests;
