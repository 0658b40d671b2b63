//! A batch of keys, a block after the other.

use std::slice::Chunks;

use super::rows::{BLOCK, Lookup};
use super::table_rows::{RowPlace, TableRows};

/// Keys that are looked for together.
///
/// Rows are spread over memory, and one search after the other would wait for it most of the time. So it goes in three steps, each of
/// which asks for the memory that the next one needs: [`TableRows::begin_search`] for that of the index, [`TableRows::continue_search`] for that of
/// the rows, and [`TableRows::end_search`] compares keys.
pub(super) struct Search<'k> {
    pub(super) keys: &'k [u64],
    /// Place of the row of each key, after the last step.
    pub(super) places: [RowPlace; BLOCK],
    /// Positions of keys that are found by hash.
    pub(super) hashed: [u8; BLOCK],
    pub(super) lookup: Lookup,
}

impl<'k> Search<'k> {
    pub(super) const fn of(keys: &'k [u64]) -> Self {
        Self { keys, places: [RowPlace::Nowhere; BLOCK], hashed: [0; BLOCK], lookup: Lookup::EMPTY }
    }
}

/// The keys of a batch, and where their rows are. It looks ahead: while the rows of one block are worked on, those of the next and the
/// index of the one after it come from memory.
pub(super) struct Blocks<'k> {
    rest: Chunks<'k, u64>,
    /// Each at another step; they take turns.
    searches: [Search<'k>; 3],
    /// The one that is to be ended next.
    turn: usize,
}

impl<'k> Blocks<'k> {
    pub(super) fn new(keys: &'k [u64], rows: &TableRows) -> Self {
        let mut rest = keys.chunks(BLOCK);
        let mut searches = [(); 3].map(|()| Search::of(&[]));
        for search in &mut searches[..2] {
            search.keys = rest.next().unwrap_or_default();
            rows.begin_search(search);
        }
        rows.continue_search(&mut searches[0]);
        Self { rest, searches, turn: 0 }
    }

    /// The next keys, and where their rows are until some are moved; none when there are no more.
    ///
    /// A place that was looked up ahead may be stale by now, for rows may have been made and moved to where they are found by key. The last step finds
    /// that out, as it compares keys: such a row is nowhere then.
    #[inline]
    pub(super) fn next(&mut self, rows: &TableRows) -> (&'k [u64], &[RowPlace; BLOCK]) {
        let this = self.turn;
        let [next, after_next] = [(this + 1) % 3, (this + 2) % 3];
        self.searches[after_next].keys = self.rest.next().unwrap_or_default();
        rows.begin_search(&mut self.searches[after_next]);
        rows.continue_search(&mut self.searches[next]);
        let search = &mut self.searches[this];
        rows.end_search(search);
        self.turn = next;
        (search.keys, &search.places)
    }
}
