//! A map of row numbers to slots that is emptied at no cost.

use std::hint::select_unpredictable;

/// Factor of multiplicative hashing: 2^64 divided by the golden ratio (Knuth, section 6.4).
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
const ENTRIES_MIN: usize = 64;

#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    row: u64,
    slot: u32,
    /// The entry is in use if this is the round of the index.
    round: u32,
}

/// Slots of rows, by open addressing with at most half of the entries in use.
#[derive(Debug, Clone)]
pub(crate) struct Index {
    entries: Vec<Entry>,
    /// Bits of a hash that are not part of the position.
    shift: u32,
    round: u32,
    used: usize,
}

impl Index {
    pub(crate) fn new() -> Self {
        Self { entries: vec![Entry::default(); ENTRIES_MIN], shift: shift_of(ENTRIES_MIN), round: 1, used: 0 }
    }

    pub(crate) fn clear(&mut self) {
        self.used = 0;
        self.round = self.round.wrapping_add(1);
        if self.round == 0 {
            self.entries.fill(Entry::default());
            self.round = 1;
        }
    }

    /// Returns the slot of a row, which is `next` if the row had none.
    #[inline]
    pub(crate) fn find_or_insert(&mut self, row: u64, next: u32) -> u32 {
        if 2 * self.used >= self.entries.len() {
            self.grow();
        }
        let position = position_of(&self.entries, self.shift, self.round, row);
        let entry = &mut self.entries[position];
        if entry.round != self.round {
            *entry = Entry { row, slot: next, round: self.round };
            self.used += 1;
        }
        entry.slot
    }

    fn grow(&mut self) {
        let old = std::mem::take(&mut self.entries);
        self.entries = vec![Entry::default(); 2 * old.len()];
        self.shift = shift_of(self.entries.len());
        for entry in old.into_iter().filter(|entry| entry.round == self.round) {
            let position = position_of(&self.entries, self.shift, self.round, entry.row);
            self.entries[position] = entry;
        }
    }
}

/// Slots of the rows of a small table, by row number.
#[derive(Debug, Clone)]
pub(crate) struct DirectIndex {
    /// Slot and round of each row.
    entries: Vec<(u32, u32)>,
    round: u32,
}

impl DirectIndex {
    pub(crate) fn new(rows: usize) -> Self {
        Self { entries: vec![(0, 0); rows], round: 1 }
    }

    pub(crate) fn clear(&mut self) {
        self.round = self.round.wrapping_add(1);
        if self.round == 0 {
            self.entries.fill((0, 0));
            self.round = 1;
        }
    }

    /// As [`Index::find_or_insert`], without a branch: which rows of a batch are new cannot be predicted.
    #[inline]
    pub(crate) fn find_or_insert(&mut self, row: usize, next: u32) -> u32 {
        let (slot, round) = &mut self.entries[row];
        *slot = select_unpredictable(*round == self.round, *slot, next);
        *round = self.round;
        *slot
    }
}

fn shift_of(entries: usize) -> u32 {
    u64::BITS - entries.ilog2()
}

/// The position of a row, or of the free entry where it belongs. Half of the entries are free, so there is one.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "a position is below the number of entries")]
fn position_of(entries: &[Entry], shift: u32, round: u32, row: u64) -> usize {
    let mask = entries.len() - 1;
    let mut position = (row.wrapping_mul(FACTOR) >> shift) as usize & mask;
    loop {
        let entry = &entries[position];
        if entry.round != round || entry.row == row {
            return position;
        }
        position = (position + 1) & mask;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_keep_their_slots_until_the_index_is_cleared() {
        let mut index = Index::new();
        for slot in 0..1000_u32 {
            assert_eq!(index.find_or_insert(u64::from(slot) * 64, slot), slot);
        }
        assert_eq!(index.find_or_insert(640, 1000), 10);
        index.clear();
        assert_eq!(index.find_or_insert(640, 0), 0);
        index.round = u32::MAX;
        index.clear();
        assert_eq!(index.find_or_insert(7, 3), 3);
        assert_eq!(index.find_or_insert(640, 4), 4);
    }

    #[test]
    fn direct_slots_are_kept_until_the_index_is_cleared() {
        let mut index = DirectIndex::new(10);
        assert_eq!([7, 9, 7].map(|row| index.find_or_insert(row, 3)), [3, 3, 3]);
        assert_eq!([7, 8].map(|row| index.find_or_insert(row, 5)), [3, 5]);
        index.clear();
        assert_eq!(index.find_or_insert(7, 0), 0);
        index.round = u32::MAX;
        index.clear();
        assert_eq!([7, 8].map(|row| index.find_or_insert(row, 2)), [2, 2]);
    }
}
