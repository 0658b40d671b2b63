//! Changes of the rows of one table, noted for snapshots.

use super::copy_on_write::{Burst, CopiedRows, Keys, KeysRead};
use super::marks::{GROUP, Marks, Snapshots};
use super::rows::Rows;
use super::table_rows::RowPlace;
use crate::buckets::Moves;
use crate::dense::Dense;

/// Number of groups of rows that one call looks at, if there are none any more: about a million rows.
const GROUPS_LOOKED_MAX: usize = 1 << 14;

/// Notes which rows of one table change, and copies those that the active snapshot has yet to give.
///
/// Rows are known by position. While a snapshot is active none moves into a dense chunk or out of one; those in buckets do.
#[derive(Debug, Clone)]
pub(super) struct Watch {
    pub(super) snapshots: Snapshots,
    dense: Marks,
    hashed: Marks,
    copied: CopiedRows,
    /// Since the last snapshot began.
    removed: Keys,
    /// From the last snapshot that was not cancelled to the active one.
    removed_before: Keys,
    removed_read: KeysRead,
    /// Positions below these are looked through by the active snapshot.
    dense_end: usize,
    hashed_end: usize,
    /// The group to be looked at next: first those of dense chunks, then those found by hash.
    next: Next,
    /// True if updates must mark rows: changes are remembered, or the active snapshot has yet to look at some.
    marks: bool,
}

#[derive(Debug, Clone, Copy)]
enum Next {
    Dense(usize),
    Hashed(usize),
}

impl Watch {
    /// Nothing has happened yet to rows of so many words.
    pub(super) fn new(words: usize) -> Self {
        Self {
            snapshots: Snapshots::default(),
            dense: Marks::default(),
            hashed: Marks::default(),
            copied: CopiedRows::new(words),
            removed: Keys::default(),
            removed_before: Keys::default(),
            removed_read: KeysRead::default(),
            dense_end: 0,
            hashed_end: 0,
            next: Next::Dense(0),
            marks: true,
        }
    }

    /// Begins the snapshot that `snapshots` describes.
    pub(super) fn begin(&mut self, snapshots: Snapshots, dense: &Dense, hashed: &Rows) {
        self.snapshots = snapshots;
        self.removed_before = std::mem::take(&mut self.removed);
        self.removed_read = KeysRead::default();
        (self.dense_end, self.hashed_end) = (dense.positions(), hashed.positions());
        self.next = Next::Dense(0);
        self.marks = true;
    }

    /// The snapshot was read to its end.
    pub(super) fn finish(&mut self, snapshots: Snapshots) {
        self.snapshots = snapshots;
        self.removed_before = Keys::default();
    }

    /// The snapshot is given up: what it had covered counts as changed again.
    pub(super) fn cancel(&mut self, snapshots: Snapshots) {
        self.snapshots = snapshots;
        self.copied.clear();
        let since = std::mem::replace(&mut self.removed, std::mem::take(&mut self.removed_before));
        self.removed.append(since);
    }

    /// Rows, some of which are nowhere, will change or be removed.
    #[inline(never)]
    pub(super) fn touch_block(&mut self, keys: &[u64], places: &[RowPlace], dense: &Dense, hashed: &Rows) {
        if !self.marks {
            return;
        }
        for (key, place) in keys.iter().zip(places) {
            match *place {
                RowPlace::Dense(place) => {
                    if self.dense.touch(dense.position(place), &self.snapshots) {
                        self.copied.push(*key, dense.row(place));
                    }
                }
                RowPlace::Hashed(place) => {
                    if self.hashed.touch(hashed.position(place), &self.snapshots) {
                        self.copied.push(*key, hashed.words(place));
                    }
                }
                RowPlace::Nowhere => {}
            }
        }
    }

    /// A row was made.
    pub(super) fn made(&mut self, place: RowPlace, dense: &Dense, hashed: &Rows) {
        match place {
            RowPlace::Dense(place) => self.dense.touch(dense.position(place), &self.snapshots),
            RowPlace::Hashed(place) => self.hashed.touch(hashed.position(place), &self.snapshots),
            RowPlace::Nowhere => unreachable!("a row that was made is somewhere"),
        };
    }

    /// A row was removed, of which [`Watch::touch_block`] was called.
    pub(super) fn removed(&mut self, key: u64) {
        if self.snapshots.tracks {
            self.removed.push(key);
        }
    }

    /// A row was moved to a dense chunk, while no snapshot is active.
    pub(super) fn moved_to_dense(&mut self, from: usize, to: usize) {
        assert!(self.snapshots.active.is_none(), "no row moves while a snapshot is active");
        if self.hashed.has_changed(from, self.snapshots) {
            self.dense.touch(to, &self.snapshots);
        }
    }

    /// A row was moved out of a dense chunk, while no snapshot is active.
    pub(super) fn moved_to_hashed(&mut self, from: usize, to: usize) {
        assert!(self.snapshots.active.is_none(), "no row moves while a snapshot is active");
        if self.dense.has_changed(from, self.snapshots) {
            self.hashed.touch(to, &self.snapshots);
        }
    }

    /// Rows that were copied and not read.
    pub(super) fn copied(&self) -> &CopiedRows {
        &self.copied
    }

    pub(super) fn take_copied(&mut self, rows_max: usize) -> Option<Burst> {
        self.copied.take(rows_max)
    }

    /// The next keys that the active snapshot reports as removed.
    pub(super) fn read_removed(&mut self, keys_max: usize) -> &[u64] {
        self.removed_before.read(&mut self.removed_read, keys_max)
    }

    /// Hands out rows that the active snapshot has yet to give, at most so many, in the order in which they lie in
    /// memory. Whether there are none left.
    pub(super) fn walk(
        &mut self,
        rows_max: usize,
        dense: &Dense,
        hashed: &Rows,
        mut give: impl FnMut(u64, &[u32]),
    ) -> bool {
        let extent = self.snapshots.active.expect("only an active snapshot is read");
        let mut left = rows_max;
        for _ in 0..GROUPS_LOOKED_MAX {
            let (marks, group, end) = match self.next {
                Next::Dense(group) => (&mut self.dense, group, self.dense_end),
                Next::Hashed(group) => (&mut self.hashed, group, self.hashed_end),
            };
            let found = marks.next_pending(group, end.div_ceil(GROUP), extent, self.snapshots);
            let Some((group, pending)) = found else {
                match self.next {
                    Next::Dense(_) => self.next = Next::Hashed(0),
                    Next::Hashed(_) => {
                        self.marks = self.snapshots.tracks;
                        return true;
                    }
                }
                continue;
            };
            if matches!(self.next, Next::Dense(_)) {
                *pending &= dense.rows_from(group * GROUP);
            }
            while *pending != 0 && left > 0 {
                let position = group * GROUP + pending.trailing_zeros() as usize;
                // Its lowest bit is done.
                *pending &= *pending - 1;
                let row = match self.next {
                    Next::Dense(_) => Some(dense.row_at(position)),
                    Next::Hashed(_) if position < end => hashed.row_at(position),
                    Next::Hashed(_) => None,
                };
                if let Some((key, words)) = row {
                    give(key, words);
                    left -= 1;
                }
            }
            self.next = match self.next {
                Next::Dense(_) => Next::Dense(group),
                Next::Hashed(_) => Next::Hashed(group),
            };
            if left == 0 {
                return false;
            }
        }
        false
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let marks = self.dense.memory_bytes() + self.hashed.memory_bytes();
        let keys = self.removed.memory_bytes() + self.removed_before.memory_bytes();
        marks + self.copied.memory_bytes() + keys
    }
}

impl Moves for Watch {
    fn leave(&mut self, position: usize, key: u64, payload: &[u32]) -> bool {
        if !self.marks {
            return false;
        }
        let (was_pending, changed) = self.hashed.leave(position, &self.snapshots);
        // The reader may have passed where the row arrives.
        if was_pending {
            self.copied.push(key, payload);
        }
        changed
    }

    fn arrive(&mut self, position: usize, noted: bool) {
        if self.marks {
            self.hashed.arrive(position, noted, &self.snapshots);
        }
    }
}
