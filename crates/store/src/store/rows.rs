//! The rows of one table, found by key.

use std::hint::black_box;

use crate::index::{Index, NO_ROW, hash_of};
use crate::slab::{Place, Slabs};

/// How many keys are looked up together: more than a core can wait for at once, and few enough that what was
/// read for the first is still in its cache when the last was read.
pub(super) const BLOCK: usize = 64;

/// The rows of one table.
#[derive(Debug, Clone)]
pub(super) struct Rows {
    index: Index,
    slabs: Slabs,
    count: usize,
}

impl Rows {
    /// No rows yet, each of which will have so many words of values and state.
    pub(super) fn new(words: usize) -> Self {
        Self { index: Index::default(), slabs: Slabs::new(words), count: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.index.memory_bytes() + self.slabs.memory_bytes()
    }

    /// Where a row is.
    pub(super) fn find(&self, key: u64) -> Option<Place> {
        self.find_hashed(hash_of(key), key)
    }

    #[inline]
    fn find_hashed(&self, hash: u64, key: u64) -> Option<Place> {
        let row = self.index.find(hash, |row| self.slabs.key(self.slabs.place(row)) == key);
        (row != NO_ROW).then(|| self.slabs.place(row))
    }

    /// Where up to [`BLOCK`] rows are; [`Place::NONE`] for those that are not there.
    ///
    /// Rows are spread over memory, and one look-up after the other would wait for it most of the time. So
    /// it goes in stages, each of which asks for the memory of all keys before the next one needs it.
    #[inline]
    pub(super) fn find_block(&self, keys: &[u64]) -> [Place; BLOCK] {
        let mut hashes = [0; BLOCK];
        for (hash, key) in hashes.iter_mut().zip(keys) {
            *hash = hash_of(*key);
        }
        let mut rows = [NO_ROW; BLOCK];
        let mut touched = self.index.candidates(&hashes[..keys.len()], &mut rows);
        let mut places = [Place::NONE; BLOCK];
        for (place, row) in places.iter_mut().zip(rows) {
            if row != NO_ROW {
                *place = self.slabs.place(row);
            }
        }
        for place in &places {
            if *place != Place::NONE {
                touched ^= self.slabs.touch(*place);
            }
        }
        // Otherwise the compiler may see that nobody needs what was read, and not read it.
        black_box(touched);
        for ((place, hash), key) in places.iter_mut().zip(hashes).zip(keys) {
            // One in about 100 is another row with the same mark.
            if *place != Place::NONE && self.slabs.key(*place) != *key {
                *place = self.find_hashed(hash, *key).unwrap_or(Place::NONE);
            }
        }
        places
    }

    /// Makes a row that is not there; `fill` gets its words, all zero.
    pub(super) fn insert(&mut self, key: u64, fill: impl FnOnce(&mut [u32])) -> Place {
        let row = self.slabs.take(key);
        let place = self.slabs.place(row);
        fill(self.slabs.payload_mut(place));
        self.index.insert(hash_of(key), row, |row| hash_of(self.slabs.key(self.slabs.place(row))));
        self.count += 1;
        place
    }

    /// Removes a row, if it is there.
    pub(super) fn remove(&mut self, key: u64) -> bool {
        let hash = hash_of(key);
        let row = self.index.find(hash, |row| self.slabs.key(self.slabs.place(row)) == key);
        if row == NO_ROW {
            return false;
        }
        self.index.remove(hash, row);
        self.slabs.free(row);
        self.count -= 1;
        true
    }

    /// The words of a row.
    #[inline]
    pub(super) fn words(&self, place: Place) -> &[u32] {
        self.slabs.payload(place)
    }

    /// The words of a row.
    #[inline]
    pub(super) fn words_mut(&mut self, place: Place) -> &mut [u32] {
        self.slabs.payload_mut(place)
    }

    pub(super) fn slabs(&self) -> &Slabs {
        &self.slabs
    }

    /// Keys and words of all rows, in the order in which they lie in memory.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &[u32])> {
        self.slabs.iter()
    }
}
