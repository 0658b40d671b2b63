//! The rows of one table that are kept: where keys are close together by key, elsewhere by hash.

mod limited;

use std::ops::Range;

use libra_plan::Shard;

use super::blocks::Search;
use super::file::RowFile;
use super::marks::{GROUP, Snapshots};
use super::rows::{BLOCK, HashedPlace, Rows};
use super::watch::Watch;
use crate::buckets::Moves;
use crate::dense::{Dense, DensePlace, Found};
use limited::Limited;
pub(super) use limited::Traced;

/// The rows of one table.
///
/// A chunk of neighbouring keys is dense once rows are so close that empty places cost less than an index. Then a row is
/// found without one, which takes a third of the time.
#[derive(Debug, Clone)]
pub(super) struct TableRows {
    dense: Dense,
    hashed: Rows,
    /// Words of a row.
    words: usize,
    /// There if rows may lie in a file.
    limited: Option<Box<Limited>>,
    /// There if changes matter to anyone.
    watch: Option<Box<Watch>>,
    /// Keys of chunks that would be dense, or not dense any more, if rows could have moved.
    deferred: Vec<u64>,
    moves: u64,
}

/// Place of a row, until some are moved, or it is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowPlace {
    Dense(DensePlace),
    Hashed(HashedPlace),
    Nowhere,
}

impl TableRows {
    /// No rows yet of a table of these keys, as far as they are of the shard, each of which will have so many words of values
    /// and state, and may be evicted or not.
    pub(super) fn new(keys: &Range<u64>, words: usize, shard: Shard, are_evicted: bool) -> Self {
        Self {
            dense: Dense::new(keys, words, shard),
            hashed: Rows::new(words, are_evicted),
            words,
            limited: None,
            watch: None,
            deferred: Vec::new(),
            moves: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.dense.len() + self.hashed.len() + self.rows_filed()
    }

    #[cfg(test)]
    pub(super) fn dense_rows(&self) -> usize {
        self.dense.len()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let watch = self.watch.as_ref().map_or(0, |watch| watch.memory_bytes());
        let filed = self.limited.as_ref().map_or(0, |limited| limited.memory_bytes());
        self.dense.memory_bytes() + self.hashed.memory_bytes() + filed + watch
    }

    /// Finds a row that is in memory.
    pub(super) fn find(&self, key: u64) -> RowPlace {
        match self.dense.find(key) {
            Found::Row(place) => RowPlace::Dense(place),
            Found::Nothing => RowPlace::Nowhere,
            Found::Elsewhere => self.hashed.find(key).map_or(RowPlace::Nowhere, RowPlace::Hashed),
        }
    }

    /// Begins a search. Its keys are there.
    #[inline]
    pub(super) fn begin_search(&self, search: &mut Search<'_>) {
        search.count = 0;
        search.moves = self.moves();
        if self.dense.len() == 0 {
            search.want_all();
            self.hashed.begin(search);
            return;
        }
        for (at, key) in (0..).zip(search.keys) {
            match self.dense.find(*key) {
                Found::Row(found) => {
                    search.places[usize::from(at)] = RowPlace::Dense(found);
                    self.dense.prefetch(found);
                }
                Found::Nothing => search.places[usize::from(at)] = RowPlace::Nowhere,
                Found::Elsewhere => search.want(at, *key),
            }
        }
        if search.count > 0 {
            self.hashed.begin(search);
        }
    }

    /// Goes on with a search.
    #[inline]
    pub(super) fn continue_search(&self, search: &mut Search<'_>) {
        if search.count > 0 {
            self.hashed.go_on(search);
        }
    }

    /// Ends a search.
    #[inline]
    pub(super) fn end_search(&self, search: &mut Search<'_>) {
        if search.count > 0 {
            self.hashed.end(search, search.moves != self.moves());
        }
    }

    /// Returns the number of times that rows were moved: places from before a move are stale.
    #[inline]
    pub(super) fn moves(&self) -> u64 {
        self.moves + self.hashed.moves()
    }

    /// Finds a row that will change, or makes it if it is not there; `fill` gets its words, all zero. Returns true if the row
    /// was made.
    #[inline]
    pub(super) fn find_or_insert(&mut self, key: u64, fill: impl FnOnce(&mut [u32])) -> (RowPlace, bool) {
        // Without a watch no place is passed through memory: that would wait for the store of the row before.
        match self.dense.find(key) {
            Found::Row(place) => {
                if self.watch.is_some() {
                    self.touch_block(&[key], &[RowPlace::Dense(place)]);
                }
                return (RowPlace::Dense(place), false);
            }
            Found::Nothing => {}
            Found::Elsewhere => {
                if let Some(place) = self.hashed.find(key) {
                    if self.watch.is_some() {
                        self.touch_block(&[key], &[RowPlace::Hashed(place)]);
                    }
                    if self.limited.is_some() {
                        self.mark_used(&[RowPlace::Hashed(place)]);
                    }
                    return (RowPlace::Hashed(place), false);
                }
            }
        }
        (self.insert(key, fill), true)
    }

    /// Makes a row that is not there.
    #[inline(never)]
    fn insert(&mut self, key: u64, fill: impl FnOnce(&mut [u32])) -> RowPlace {
        let place = if self.dense.find(key) == Found::Nothing {
            let place = self.dense.insert(key);
            fill(self.dense.row_mut(place));
            RowPlace::Dense(place)
        } else {
            let moved = self.watch.as_deref_mut().map(|watch| watch as &mut dyn Moves);
            RowPlace::Hashed(self.hashed.insert(key, fill, moved))
        };
        if let Some(watch) = &mut self.watch {
            watch.made(place, &self.dense, &self.hashed);
        }
        if matches!(place, RowPlace::Dense(_)) {
            return place;
        }
        match self.dense.made_elsewhere(key) {
            None => place,
            Some(crowd) if self.is_read() => {
                // Later ones find it mentioned.
                if crowd.is_just {
                    self.deferred.push(key);
                }
                place
            }
            Some(_) => {
                self.make_dense(key);
                self.find(key)
            }
        }
    }

    /// Moves the rows of a chunk, of which `key` is one, to where they are found by key.
    fn make_dense(&mut self, key: u64) {
        self.moves += 1;
        self.dense.open(key);
        let keys = self.dense.keys_of_chunk(key);
        let mut search = Search::of(&[]);
        for keys in keys.chunks(BLOCK) {
            search.keys = keys;
            search.count = 0;
            for (at, key) in (0..).zip(keys) {
                search.want(at, *key);
            }
            self.hashed.begin(&mut search);
            self.continue_search(&mut search);
            // Rows that are removed take no others away from where they are.
            self.hashed.end(&mut search, false);
            for (key, place) in keys.iter().zip(&search.places) {
                let RowPlace::Hashed(from) = *place else { continue };
                let to = self.dense.insert(*key);
                self.dense.row_mut(to).copy_from_slice(self.hashed.words(from));
                if let Some(watch) = &mut self.watch {
                    watch.moved_to_dense(self.hashed.position(from), self.dense.position(to));
                }
                self.hashed.remove(*key);
            }
        }
    }

    /// Moves the rows of a dense chunk, of which `key` is one, to where they are found by hash.
    fn make_sparse(&mut self, key: u64) {
        self.moves += 1;
        for (key, from, words) in self.dense.rows_of_chunk(key) {
            let moved = self.watch.as_deref_mut().map(|watch| watch as &mut dyn Moves);
            let to = self.hashed.insert(key, |row| row.copy_from_slice(words), moved);
            if let Some(watch) = &mut self.watch {
                watch.moved_to_hashed(from, self.hashed.position(to));
            }
        }
        self.dense.close(key);
    }

    /// Removes a row, if it is there.
    pub(super) fn remove(&mut self, key: u64) -> bool {
        if self.watch.is_some() {
            self.touch_block(&[key], &[self.find(key)]);
        }
        let removed = if self.dense.remove(key) {
            match self.dense.thin(key) {
                Some(thin) if thin.is_just && self.is_read() => self.deferred.push(key),
                Some(_) if !self.is_read() => self.make_sparse(key),
                _ => {}
            }
            true
        } else if self.remove_hashed(key) {
            self.dense.removed_elsewhere(key);
            true
        } else {
            false
        };
        if let Some(watch) = self.watch.as_mut().filter(|_| removed) {
            watch.removed(key);
        }
        removed
    }

    fn remove_hashed(&mut self, key: u64) -> bool {
        if self.limited.is_some() { self.remove_limited(key) } else { self.hashed.remove(key) }
    }

    /// Rows, some of which are nowhere, will change.
    #[inline]
    pub(super) fn touch_block(&mut self, keys: &[u64], places: &[RowPlace]) {
        if let Some(watch) = &mut self.watch {
            watch.touch_block(keys, places, &self.dense, &self.hashed);
        }
    }

    /// Moves the rows of a chunk that should have been moved while a snapshot forbade it; of one only, for a batch should not
    /// take long.
    #[inline]
    pub(super) fn settle(&mut self) {
        if !self.deferred.is_empty() && !self.is_read() {
            self.settle_one();
        }
    }

    #[cold]
    fn settle_one(&mut self) {
        let Some(key) = self.deferred.pop() else { return };
        if self.dense.crowded(key).is_some() {
            self.make_dense(key);
        } else if self.dense.thin(key).is_some() {
            self.make_sparse(key);
        }
    }

    /// Makes room for the first of these keys and its neighbours by key, if enough of them follow.
    pub(super) fn expect(&mut self, keys: &[u64]) {
        if !self.is_read() && self.dense.is_half_of_chunk(keys) {
            self.make_dense(keys[0]);
        }
    }

    /// Returns true if a snapshot is active.
    pub(super) fn is_read(&self) -> bool {
        self.watch.as_ref().is_some_and(|watch| watch.snapshots.active.is_some())
    }

    /// Looks at rows from a place on, in the order in which they lie in memory; where there are none, it looks at nothing. How
    /// often it looked, at most so often, and whether the end was reached: then the place is the beginning.
    pub(super) fn look(
        &self,
        from: &mut usize,
        looks_max: usize,
        mut see: impl FnMut(u64, Traced<'_>),
    ) -> (usize, bool) {
        let dense_end = self.dense.positions();
        for looks in 0..looks_max {
            let at = *from;
            let row = if at >= self.positions() {
                *from = 0;
                return (looks, true);
            } else if at >= dense_end {
                *from += 1;
                self.traced_at(at)
            } else {
                let left = self.dense.rows_from(at - at % GROUP) >> (at % GROUP);
                let skipped = left.trailing_zeros() as usize;
                *from = if left == 0 { at - at % GROUP + GROUP } else { at + skipped + 1 };
                (left != 0)
                    .then(|| self.dense.row_at(at + skipped))
                    .map(|(key, words)| (key, Traced::Words(words)))
            };
            if let Some((key, traced)) = row {
                see(key, traced);
            }
        }
        (looks_max, false)
    }

    /// Returns the number of rows that there is room for in memory that was used, and in the file.
    pub(super) fn positions(&self) -> usize {
        let filed = self.limited.as_ref().map_or(0, |limited| limited.filed.positions());
        self.dense.positions() + self.hashed.positions() + filed
    }

    /// The row at a position in memory, if there is one. First come dense chunks, then the others.
    pub(super) fn row_at(&self, position: usize) -> Option<(u64, &[u32])> {
        match position.checked_sub(self.dense.positions()) {
            None => {
                let has = self.dense.rows_from(position - position % GROUP) >> (position % GROUP) & 1 == 1;
                has.then(|| self.dense.row_at(position))
            }
            Some(at) if at < self.hashed.positions() => self.hashed.row_at(at),
            Some(_) => None,
        }
    }

    /// Watches changes from now on.
    pub(super) fn watch(&mut self, snapshots: Snapshots) {
        self.watch.get_or_insert_with(|| Box::new(Watch::new(self.words))).snapshots = snapshots;
    }

    /// Watches changes no more.
    pub(super) fn forget(&mut self) {
        self.watch = None;
    }

    pub(super) fn begin(&mut self, snapshots: Snapshots) {
        self.watch(snapshots);
        let watch = self.watch.as_mut().expect("it was just made");
        watch.begin(snapshots, &self.dense, &self.hashed);
    }

    pub(super) fn watched(&self) -> Option<&Watch> {
        self.watch.as_deref()
    }

    pub(super) fn watched_mut(&mut self) -> Option<&mut Watch> {
        self.watch.as_deref_mut()
    }

    /// Hands out rows of the active snapshot, those in a file, too: see [`Watch::walk`].
    pub(super) fn walk(
        &mut self,
        rows_max: usize,
        file: Option<&mut RowFile>,
        mut give: impl FnMut(u64, &[u32]),
    ) -> bool {
        let watch = self.watch.as_mut().expect("a snapshot is active");
        let filed = self.limited.as_ref().map(|limited| &limited.filed);
        let mut records = Vec::new();
        let is_last = watch.walk(rows_max, &self.dense, &self.hashed, filed, &mut records, &mut give);
        if let Some(file) = file.filter(|_| !records.is_empty()) {
            file.give(self, &records, give);
        }
        is_last
    }

    /// The words of a row, which is somewhere.
    #[inline(always)]
    pub(super) fn words(&self, place: RowPlace) -> &[u32] {
        match place {
            RowPlace::Dense(place) => self.dense.row(place),
            RowPlace::Hashed(place) => self.hashed.words(place),
            RowPlace::Nowhere => unreachable!("a row that is nowhere has no words"),
        }
    }

    /// The words of a row, which is somewhere.
    #[inline(always)]
    pub(super) fn words_mut(&mut self, place: RowPlace) -> &mut [u32] {
        match place {
            RowPlace::Dense(place) => self.dense.row_mut(place),
            RowPlace::Hashed(place) => self.hashed.words_mut(place),
            RowPlace::Nowhere => unreachable!("a row that is nowhere has no words"),
        }
    }

    /// Keys and words of all rows in memory, in the order in which they lie there.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &[u32])> {
        self.dense.iter().chain(self.hashed.iter())
    }
}

#[cfg(test)]
mod tests;
