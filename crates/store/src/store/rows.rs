//! The rows of one table that are found by hash: narrow ones in buckets, wide ones in slabs by an index.

use super::blocks::Search;
use super::table_rows::RowPlace;
use crate::buckets::{BucketPlace, Buckets, Moves};
use crate::directory::hash_of;
use crate::index::{Index, NO_ROW};
use crate::slab::{Place, Slabs};

/// Number of keys that are looked up together: fewer than the lines that a core can wait for at once, or it would wait for them and
/// do nothing else meanwhile.
pub(super) const BLOCK: usize = 16;

/// The rows of one table.
#[derive(Debug, Clone)]
pub(super) struct Rows {
    is_narrow: bool,
    /// All rows, if they are narrow.
    buckets: Buckets,
    /// All rows, if they are wide.
    slabs: Slabs,
    index: Index,
    /// Rows in slabs.
    count: usize,
}

/// Location of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HashedPlace {
    /// Until rows move.
    Bucket(BucketPlace),
    /// Until it is removed.
    Slab(Place),
}

impl Rows {
    /// No rows yet, each of which will have so many words of values and state. Those that are evicted lie in slabs, however narrow: which
    /// of them are compared follows from where they lie, and there it is the order in which they were made.
    pub(super) fn new(words: usize, in_slabs: bool) -> Self {
        Self {
            is_narrow: Buckets::suit(words) && !in_slabs,
            buckets: Buckets::new(words),
            slabs: Slabs::new(words),
            index: Index::default(),
            count: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        if self.is_narrow { self.buckets.len() } else { self.count }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.buckets.memory_bytes() + self.index.memory_bytes() + self.slabs.memory_bytes()
    }

    /// Returns the number of times that rows were moved.
    #[inline]
    pub(super) fn moves(&self) -> u64 {
        self.buckets.moves()
    }

    /// Finds a row.
    #[inline]
    pub(super) fn find(&self, key: u64) -> Option<HashedPlace> {
        if self.is_narrow {
            return self.buckets.find(key).map(HashedPlace::Bucket);
        }
        self.in_slabs(hash_of(key), key)
    }

    #[inline]
    fn in_slabs(&self, hash: u64, key: u64) -> Option<HashedPlace> {
        let row = self.row_of(hash, key);
        (row != NO_ROW).then(|| HashedPlace::Slab(self.slabs.place(row)))
    }

    #[inline]
    fn row_of(&self, hash: u64, key: u64) -> u32 {
        self.index.find(hash, |row| self.slabs.key(self.slabs.place(row)) == key)
    }

    /// Begins to look for the wanted keys of a search: asks for the memory where their rows or their entries in the index are.
    #[inline]
    pub(super) fn begin(&self, search: &mut Search<'_>) {
        let wanted = &search.wanted[..search.count];
        if !self.is_narrow {
            for (key, hash) in wanted.iter().zip(&mut search.hashes) {
                *hash = hash_of(*key);
                self.index.prefetch(*hash);
            }
        } else if !self.buckets.homes(wanted, &mut search.homes) {
            for at in &search.hashed[..search.count] {
                search.places[usize::from(*at)] = RowPlace::Nowhere;
            }
            search.count = 0;
        }
    }

    /// Finds most narrow rows, and asks for the memory of all others.
    #[inline]
    pub(super) fn go_on(&self, search: &mut Search<'_>) {
        search.left = 0;
        if self.is_narrow {
            self.go_on_in_buckets(search);
            return;
        }
        let hashes = &search.hashes[..search.count];
        let mut rows = [NO_ROW; BLOCK];
        self.index.candidates(hashes, &mut rows);
        for (at, row) in search.hashed.iter().zip(&rows[..search.count]) {
            search.places[usize::from(*at)] = if *row == NO_ROW {
                RowPlace::Nowhere
            } else {
                let place = self.slabs.place(*row);
                self.slabs.prefetch(place);
                RowPlace::Hashed(HashedPlace::Slab(place))
            };
        }
    }

    #[inline]
    fn go_on_in_buckets(&self, search: &mut Search<'_>) {
        let Search { wanted, places, hashed, homes, others, left, count, .. } = search;
        let asked = wanted[..*count].iter().copied().zip(homes.iter().copied());
        // Which rows are elsewhere no processor can predict.
        let mut missing = 0;
        self.buckets.in_homes(asked, |number, place, is_there| {
            places[usize::from(hashed[number])] = RowPlace::Hashed(HashedPlace::Bucket(place));
            others[missing] = u8::try_from(number).expect("a block has fewer");
            missing += usize::from(!is_there);
        });
        for number in &others[..missing] {
            self.buckets.prefetch_displaced(wanted[usize::from(*number)], homes[usize::from(*number)]);
        }
        *left = missing;
    }

    /// Finds the rows that are left; all of them, if rows have moved since the search began.
    #[inline]
    pub(super) fn end(&self, search: &mut Search<'_>, is_stale: bool) {
        let Search { wanted, places, hashed, hashes, homes, others, left, count, .. } = search;
        let found = |place: Option<HashedPlace>| place.map_or(RowPlace::Nowhere, RowPlace::Hashed);
        if self.is_narrow && is_stale {
            for (at, key) in hashed[..*count].iter().zip(wanted) {
                places[usize::from(*at)] = found(self.find(*key));
            }
        } else if self.is_narrow {
            for number in &others[..*left] {
                let number = usize::from(*number);
                let place = self.buckets.find_displaced(wanted[number], homes[number]);
                places[usize::from(hashed[number])] = found(place.map(HashedPlace::Bucket));
            }
        } else {
            for ((at, key), hash) in hashed[..*count].iter().zip(wanted).zip(hashes) {
                let place = &mut places[usize::from(*at)];
                let RowPlace::Hashed(HashedPlace::Slab(candidate)) = *place else { continue };
                if self.slabs.key(candidate) != *key {
                    // One in about 100 is another row with the same mark.
                    *place = found(self.in_slabs(*hash, *key));
                }
            }
        }
    }

    /// Makes a row that is not there; `fill` gets its words, all zero. `moved` is told of rows that move for it.
    pub(super) fn insert(
        &mut self,
        key: u64,
        fill: impl FnOnce(&mut [u32]),
        moved: Option<&mut dyn Moves>,
    ) -> HashedPlace {
        if self.is_narrow {
            return HashedPlace::Bucket(self.buckets.insert(key, fill, moved));
        }
        let row = self.slabs.take(key);
        let place = self.slabs.place(row);
        fill(self.slabs.payload_mut(place));
        self.index.insert(hash_of(key), row, |row| hash_of(self.slabs.key(self.slabs.place(row))));
        self.count += 1;
        HashedPlace::Slab(place)
    }

    /// Removes a row, if it is there.
    pub(super) fn remove(&mut self, key: u64) -> bool {
        if self.is_narrow {
            return self.buckets.remove(key);
        }
        let hash = hash_of(key);
        let row = self.row_of(hash, key);
        if row == NO_ROW {
            return false;
        }
        self.index.remove(hash, row);
        self.slabs.free(row);
        self.count -= 1;
        true
    }

    /// Removes the row at a position of slabs, to which the last one moves. Rows that are removed so are never [removed](Self::remove)
    /// otherwise.
    pub(super) fn swap_remove(&mut self, key: u64, position: usize) {
        let number = |position| u32::try_from(position).expect("rows have numbers below 2^32");
        let (row, last) = (number(position), number(self.slabs.positions() - 1));
        self.index.remove(hash_of(key), row);
        if row != last {
            self.index.renumber(hash_of(self.slabs.key(self.slabs.place(last))), last, row);
        }
        self.slabs.swap_remove(row);
        self.count -= 1;
    }

    /// Bytes of the rows in slabs and their index, without what was allocated in advance.
    pub(super) fn used_bytes(&self) -> usize {
        self.slabs.used_bytes() + self.index.memory_bytes()
    }

    /// The words of a row.
    #[inline]
    pub(super) fn words(&self, place: HashedPlace) -> &[u32] {
        match place {
            HashedPlace::Bucket(place) => self.buckets.payload(place),
            HashedPlace::Slab(place) => self.slabs.payload(place),
        }
    }

    /// The words of a row.
    #[inline]
    pub(super) fn words_mut(&mut self, place: HashedPlace) -> &mut [u32] {
        match place {
            HashedPlace::Bucket(place) => self.buckets.payload_mut(place),
            HashedPlace::Slab(place) => self.slabs.payload_mut(place),
        }
    }

    /// Returns the position of a row among all places that memory has for one.
    #[inline]
    pub(super) fn position(&self, place: HashedPlace) -> usize {
        match place {
            HashedPlace::Bucket(place) => self.buckets.position(place),
            HashedPlace::Slab(place) => self.slabs.position(place),
        }
    }

    /// Returns the number of places that memory has for a row.
    pub(super) fn positions(&self) -> usize {
        if self.is_narrow { self.buckets.positions() } else { self.slabs.positions() }
    }

    /// Key and words of the row at a position, if there is one.
    pub(super) fn row_at(&self, position: usize) -> Option<(u64, &[u32])> {
        if self.is_narrow { self.buckets.row_at(position) } else { self.slabs.row_at(position) }
    }

    /// Keys and words of all rows, in the order in which they lie in memory.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &[u32])> {
        self.buckets.iter().chain(self.slabs.iter())
    }
}
