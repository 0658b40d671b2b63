//! Changes of the rows of one table, noted for snapshots.

use super::copy_on_write::{Burst, CopiedRows, Keys, KeysRead};
use super::filed_rows::FiledRows;
use super::marks::{GROUP, Marks, Snapshots};
use super::mutants::{Mutant, is_enabled};
use super::rows::Rows;
use super::table_rows::RowPlace;
use crate::buckets::Moves;
use crate::dense::Dense;

/// Number of groups of rows that one call looks at, if there are none any more: about a million rows.
const GROUPS_LOOKED_MAX: usize = 1 << 14;

/// Notes which rows of one table change, and copies those that the active snapshot has yet to give.
///
/// Rows are known by position. While a snapshot is active none moves into a dense chunk or out of one; those in buckets do, and those
/// of a table with a memory limit.
#[derive(Debug, Clone)]
pub(super) struct Watch {
    pub(super) snapshots: Snapshots,
    dense: Marks,
    hashed: Marks,
    /// By record, of rows in the file.
    filed: Marks,
    copied: CopiedRows,
    /// Since the last snapshot began.
    removed: Keys,
    /// From the last snapshot that was not cancelled to the active one.
    removed_before: Keys,
    removed_read: KeysRead,
    /// Positions below these are looked through by the active snapshot.
    dense_end: usize,
    hashed_end: usize,
    /// The group to be looked at next: first those of dense chunks, then those found by hash, then those in the file. Rows move to the
    /// file before the reader comes there: it never misses one.
    next: Next,
    /// True if updates must mark rows: changes are remembered, or the active snapshot has yet to look at some.
    marks: bool,
}

#[derive(Debug, Clone, Copy)]
enum Next {
    Dense(usize),
    Hashed(usize),
    Filed(usize),
}

impl Watch {
    /// Nothing has happened yet to rows of so many words.
    pub(super) fn new(words: usize) -> Self {
        Self {
            snapshots: Snapshots::default(),
            dense: Marks::default(),
            hashed: Marks::default(),
            filed: Marks::default(),
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

    /// A row moves from a position among those found by hash to a record of the file.
    pub(super) fn moved_to_file(&mut self, from: usize, record: usize) {
        if self.marks {
            let (is_pending, changed) = self.hashed.leave(from, &self.snapshots);
            let changed = changed && !is_enabled(Mutant::ChangeForgottenOnDisk);
            self.filed.arrive(record, changed, &self.snapshots);
            if is_pending && !is_enabled(Mutant::PendingForgotten) {
                self.filed.set_pending(record, &self.snapshots);
            }
        }
    }

    /// A row moves from a record of the file to a position among those found by hash.
    pub(super) fn moved_from_file(&mut self, record: usize, to: usize, key: u64, words: &[u32]) {
        if self.marks {
            let (was_pending, changed) = self.filed.leave(record, &self.snapshots);
            // The reader may have passed where the row arrives.
            if was_pending && !is_enabled(Mutant::CopyForgotten) {
                self.copied.push(key, words);
            }
            let changed = changed && !is_enabled(Mutant::ChangeForgottenInMemory);
            self.hashed.arrive(to, changed, &self.snapshots);
        }
    }

    /// A row in the file is about to be removed, while no snapshot is active.
    pub(super) fn left_file(&mut self, record: usize) {
        assert!(self.snapshots.active.is_none(), "a snapshot may have to give the row");
        self.filed.leave(record, &self.snapshots);
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
    /// memory; of those in the file, the records. Whether there are none left.
    pub(super) fn walk(
        &mut self,
        rows_max: usize,
        dense: &Dense,
        hashed: &Rows,
        filed: Option<&FiledRows>,
        records: &mut Vec<u32>,
        mut give: impl FnMut(u64, &[u32]),
    ) -> bool {
        let filed_end = filed.map_or(0, FiledRows::positions);
        let extent = self.snapshots.active.expect("only an active snapshot is read");
        let mut left = rows_max;
        for _ in 0..GROUPS_LOOKED_MAX {
            let (marks, group, end) = match self.next {
                Next::Dense(group) => (&mut self.dense, group, self.dense_end),
                Next::Hashed(group) => (&mut self.hashed, group, self.hashed_end),
                Next::Filed(group) => (&mut self.filed, group, filed_end),
            };
            let found = marks.next_pending(group, end.div_ceil(GROUP), extent, self.snapshots);
            let Some((group, pending)) = found else {
                match self.next {
                    Next::Dense(_) => self.next = Next::Hashed(0),
                    Next::Hashed(_) => self.next = Next::Filed(0),
                    Next::Filed(_) => {
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
                    Next::Filed(_) => {
                        if let Some(record) = filed.and_then(|filed| filed.record_at(position)) {
                            records.push(record);
                            left -= 1;
                        }
                        None
                    }
                };
                if let Some((key, words)) = row {
                    give(key, words);
                    left -= 1;
                }
            }
            self.next = match self.next {
                Next::Dense(_) => Next::Dense(group),
                Next::Hashed(_) => Next::Hashed(group),
                Next::Filed(_) => Next::Filed(group),
            };
            if left == 0 {
                return false;
            }
        }
        false
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes_without_copies() + self.copied.memory_bytes()
    }

    pub(super) fn bytes_without_copies(&self) -> usize {
        let marks = self.dense.memory_bytes() + self.hashed.memory_bytes() + self.filed.memory_bytes();
        marks + self.removed.memory_bytes() + self.removed_before.memory_bytes()
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
