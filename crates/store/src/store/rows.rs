//! The rows of one table, found by key.

use crate::index::{Index, NO_ROW, hash_of};
use crate::slab::{Place, Slabs};

/// Number of keys that are looked up together: more than a core can wait for at once, and few enough that what was
/// read for the first is still in its cache when the last was read.
pub(super) const BLOCK: usize = 64;

/// The rows of one table.
#[derive(Debug, Clone)]
pub(super) struct Rows {
    index: Index,
    slabs: Slabs,
    count: usize,
}

/// Up to [`BLOCK`] keys that are looked up together.
#[derive(Debug, Clone)]
pub(super) struct Lookup {
    hashes: [u64; BLOCK],
    places: [Place; BLOCK],
    count: usize,
}

impl Lookup {
    /// No keys.
    pub(super) const EMPTY: Self = Self { hashes: [0; BLOCK], places: [Place::NONE; BLOCK], count: 0 };

    pub(super) fn clear(&mut self) {
        self.count = 0;
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }
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

    /// Finds a row.
    pub(super) fn find(&self, key: u64) -> Option<Place> {
        self.find_hashed(hash_of(key), key)
    }

    #[inline]
    fn find_hashed(&self, hash: u64, key: u64) -> Option<Place> {
        let row = self.index.find(hash, |row| self.slabs.key(self.slabs.place(row)) == key);
        (row != NO_ROW).then(|| self.slabs.place(row))
    }

    /// Adds a key to a look-up, and asks for the memory of the index that is about it.
    #[inline]
    pub(super) fn begin(&self, lookup: &mut Lookup, key: u64) {
        let hash = hash_of(key);
        self.index.prefetch(hash);
        lookup.hashes[lookup.count] = hash;
        lookup.count += 1;
    }

    /// Asks for the memory of the rows that the index cannot distinguish from those of a look-up.
    #[inline]
    pub(super) fn go_on(&self, lookup: &mut Lookup) {
        let hashes = &lookup.hashes[..lookup.count];
        let mut rows = [NO_ROW; BLOCK];
        self.index.candidates(hashes, &mut rows);
        for (place, row) in lookup.places.iter_mut().zip(&rows[..lookup.count]) {
            *place = Place::NONE;
            if *row != NO_ROW {
                *place = self.slabs.place(*row);
                self.slabs.prefetch(*place);
            }
        }
    }

    /// Returns the row of the key that was added to a look-up at this position.
    #[inline]
    pub(super) fn end(&self, lookup: &Lookup, at: usize, key: u64) -> Option<Place> {
        match lookup.places[at] {
            Place::NONE => None,
            place if self.slabs.key(place) == key => Some(place),
            // One in about 100 is another row with the same mark.
            _ => self.find_hashed(lookup.hashes[at], key),
        }
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
