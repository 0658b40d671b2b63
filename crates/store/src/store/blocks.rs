//! A batch of keys, a block after the other.

use std::slice::Chunks;

use super::kept::{Kept, RowPlace};
use super::rows::BLOCK;

/// The keys of a batch, and where their rows are. It looks a block ahead: while the rows of one are worked on, those of the next
/// come from memory.
pub(super) struct Blocks<'k> {
    rest: Chunks<'k, u64>,
    ahead: &'k [u64],
    /// Of the keys ahead, and of those that were given out.
    places: [[RowPlace; BLOCK]; 2],
    turn: usize,
}

impl<'k> Blocks<'k> {
    pub(super) fn new(keys: &'k [u64], rows: &Kept) -> Self {
        let mut rest = keys.chunks(BLOCK);
        let ahead = rest.next().unwrap_or_default();
        let mut blocks = Self { rest, ahead, places: [[RowPlace::Nowhere; BLOCK]; 2], turn: 0 };
        blocks.find_again(rows);
        blocks
    }

    /// The next keys, and where their rows are; none when there are no more.
    #[inline]
    pub(super) fn next(&mut self, rows: &Kept) -> (&'k [u64], &[RowPlace; BLOCK]) {
        let keys = self.ahead;
        self.ahead = self.rest.next().unwrap_or_default();
        self.turn ^= 1;
        self.find_again(rows);
        (keys, &self.places[self.turn ^ 1])
    }

    /// Looks for those ahead: rows may have moved since.
    #[inline]
    pub(super) fn find_again(&mut self, rows: &Kept) {
        rows.find_block(self.ahead, &mut self.places[self.turn]);
    }
}
