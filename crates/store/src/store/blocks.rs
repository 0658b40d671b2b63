//! A batch of keys, a block after the other.

use std::slice::Chunks;

use super::rows::BLOCK;
use super::table_rows::{RowPlace, TableRows};
use crate::buckets::BucketPlace;

/// The positions of all keys.
const ALL: [u8; BLOCK] = {
    let mut all = [0; BLOCK];
    let mut at = 0;
    while at < BLOCK {
        #[expect(clippy::cast_possible_truncation, reason = "a block has fewer")]
        let position = at as u8;
        all[at] = position;
        at += 1;
    }
    all
};

/// Keys that are looked for together.
///
/// Rows are spread over memory, and one search after the other would wait for it most of the time. So it goes in three steps, each of
/// which asks for the memory that the next one needs: [`TableRows::begin_search`] for that of narrow rows and the index,
/// [`TableRows::continue_search`] finds narrow rows and asks for wide ones, and [`TableRows::end_search`] finds what is left.
pub(super) struct Search<'k> {
    pub(super) keys: &'k [u64],
    /// Place of the row of each key, after the last step.
    pub(super) places: [RowPlace; BLOCK],
    /// Keys that are found by hash, of which there are `count`, and their positions.
    pub(super) wanted: [u64; BLOCK],
    pub(super) hashed: [u8; BLOCK],
    pub(super) count: usize,
    /// Hash of each of these, where rows are wide.
    pub(super) hashes: [u64; BLOCK],
    /// Bucket of each of these, where rows are narrow.
    pub(super) homes: [BucketPlace; BLOCK],
    /// Which of these are not in their bucket; there are `left`.
    pub(super) others: [u8; BLOCK],
    pub(super) left: usize,
    /// [`TableRows::moves`] at the first step.
    pub(super) moves: u64,
}

impl<'k> Search<'k> {
    /// All keys are found by hash.
    #[inline]
    pub(super) fn want_all(&mut self) {
        self.count = self.keys.len();
        self.wanted[..self.count].copy_from_slice(self.keys);
        self.hashed = ALL;
    }

    /// The key at a position is found by hash.
    #[inline]
    pub(super) fn want(&mut self, at: u8, key: u64) {
        self.wanted[self.count] = key;
        self.hashed[self.count] = at;
        self.count += 1;
    }

    pub(super) const fn of(keys: &'k [u64]) -> Self {
        Self {
            keys,
            places: [RowPlace::Nowhere; BLOCK],
            wanted: [0; BLOCK],
            hashed: [0; BLOCK],
            count: 0,
            hashes: [0; BLOCK],
            homes: [BucketPlace::FIRST; BLOCK],
            others: [0; BLOCK],
            left: 0,
            moves: 0,
        }
    }
}

/// Blocks that a search begins ahead.
const AHEAD: usize = 4;

/// The keys of a batch, and where their rows are. It looks ahead: while the rows of one block are worked on, those of the next and the
/// index of the one after it come from memory.
pub(super) struct Blocks<'k> {
    rest: Chunks<'k, u64>,
    /// Each at another step; they take turns.
    searches: [Search<'k>; AHEAD + 1],
    /// The one that is to be ended next.
    turn: usize,
}

impl<'k> Blocks<'k> {
    pub(super) fn new(keys: &'k [u64], rows: &TableRows) -> Self {
        let mut rest = keys.chunks(BLOCK);
        let mut searches = [(); AHEAD + 1].map(|()| Search::of(&[]));
        for search in &mut searches[..AHEAD] {
            search.keys = rest.next().unwrap_or_default();
            rows.begin_search(search);
        }
        rows.continue_search(&mut searches[0]);
        Self { rest, searches, turn: 0 }
    }

    /// The next keys, and where their rows are until some are moved; none when there are no more.
    ///
    /// A place that was looked up ahead may be stale by now, for rows may have been made and moved. The last step finds that out: it looks again, or
    /// the row is nowhere then.
    #[inline]
    pub(super) fn next(&mut self, rows: &TableRows) -> (&'k [u64], &[RowPlace; BLOCK]) {
        let this = self.turn;
        let [next, last] = [(this + 1) % (AHEAD + 1), (this + AHEAD) % (AHEAD + 1)];
        self.searches[last].keys = self.rest.next().unwrap_or_default();
        rows.begin_search(&mut self.searches[last]);
        rows.continue_search(&mut self.searches[next]);
        let search = &mut self.searches[this];
        rows.end_search(search);
        self.turn = next;
        (search.keys, &search.places)
    }
}
