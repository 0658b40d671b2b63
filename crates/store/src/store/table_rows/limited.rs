//! The rows of a table with a memory limit: those that were used lately in slabs, without holes, the others in a file.

use super::super::blocks::Blocks;
use super::super::eviction::Summary;
use super::super::file::{Page, RowFile, copy_in};
use super::super::filed_rows::FiledRows;
use super::super::mutants::{Mutant, is_enabled};
use super::super::rows::{BLOCK, Rows};
use super::{RowPlace, TableRows};
use crate::buckets::{Buckets, Moves};
use crate::key::{KEY_WORDS, words_of};

/// What a table with a memory limit has beside its rows in memory.
#[derive(Debug, Clone)]
pub(in crate::store) struct Limited {
    pub(super) filed: FiledRows,
    summary: Summary,
    /// A bit for each row in memory, by position: used since the hand came by (CLOCK; Corbató 1968).
    used: Vec<u64>,
}

/// What decides the eviction of a row.
#[derive(Debug, Clone, Copy)]
pub(in crate::store) enum Traced<'r> {
    /// All its words.
    Words(&'r [u32]),
    /// What is in memory of a row in the file: see [`Summary`].
    Summary(&'r [u32]),
}

impl<'r> Traced<'r> {
    /// Its last words, which a summary has.
    pub(in crate::store) fn last(self, count: usize) -> &'r [u32] {
        let (Self::Words(words) | Self::Summary(words)) = self;
        &words[words.len() - count..]
    }
}

impl Limited {
    pub(super) fn memory_bytes(&self) -> usize {
        self.filed.memory_bytes() + self.used.capacity() * size_of::<u64>()
    }

    fn set_used(&mut self, position: usize) {
        let group = position / 64;
        if group >= self.used.len() {
            self.used.resize(group + 1, 0);
        }
        self.used[group] |= 1 << (position % 64);
    }

    /// Returns whether a row was used, and forgets it.
    fn take_used(&mut self, position: usize) -> bool {
        let Some(group) = self.used.get_mut(position / 64) else { return false };
        let was = *group >> (position % 64) & 1 == 1;
        *group &= !(1 << (position % 64));
        was && !is_enabled(Mutant::UseForgotten)
    }
}

impl TableRows {
    /// Returns true if a row takes clearly less memory in the file.
    pub(in crate::store) fn can_be_limited(&self) -> bool {
        !Buckets::suit(self.words)
    }

    /// Lets rows lie in a file. None may be there yet.
    ///
    /// Then no chunk is dense, for a row of one has memory whether it is in the file or not.
    pub(in crate::store) fn limit(&mut self, summary: Summary) {
        assert_eq!(self.len(), 0, "rows are where they are");
        self.dense.set_sparse();
        self.hashed = Rows::new(self.words, true);
        let filed = FiledRows::new(self.words, summary.words());
        self.limited = Some(Box::new(Limited { filed, summary, used: Vec::new() }));
    }

    /// Words of a row.
    pub(in crate::store) fn row_words(&self) -> usize {
        self.words
    }

    /// The rows in the file of a table with a memory limit.
    pub(in crate::store) fn filed(&self) -> &FiledRows {
        &self.limited.as_ref().expect("the table has a memory limit").filed
    }

    /// Calls a function with the record of each of these rows that is in the file.
    pub(in crate::store) fn find_filed(&self, keys: &[u64], found: impl FnMut(u32)) {
        let Some(limited) = self.limited.as_ref().filter(|limited| limited.filed.len() > 0) else { return };
        // Most are in memory, and to find these costs less than to find that they are not in the file: memory has them for what comes next.
        let (mut blocks, mut others) = (Blocks::new(keys, self), Vec::new());
        for _ in 0..keys.len().div_ceil(BLOCK) {
            let (keys, places) = blocks.next(self);
            let nowhere = keys.iter().zip(places).filter(|(_, place)| **place == RowPlace::Nowhere);
            others.extend(nowhere.map(|(key, _)| *key));
        }
        limited.filed.find_many(&others, found);
    }

    /// Rows in the file.
    pub(in crate::store) fn rows_filed(&self) -> usize {
        self.limited.as_ref().map_or(0, |limited| limited.filed.len())
    }

    /// Bytes that the limit is for: without copies for a snapshot, and without what was allocated in advance.
    pub(in crate::store) fn limited_bytes(&self) -> usize {
        let watch = self.watch.as_ref().map_or(0, |watch| watch.bytes_without_copies());
        let limited = self.limited.as_ref().map_or(0, |limited| limited.memory_bytes());
        let rows = match self.limited {
            Some(_) => self.hashed.used_bytes(),
            None => self.dense.memory_bytes() + self.hashed.memory_bytes(),
        };
        rows + limited + watch
    }

    /// Rows in memory that can go to the file.
    pub(in crate::store) fn rows_movable(&self) -> usize {
        if self.limited.is_some() { self.hashed.len() } else { 0 }
    }

    /// Bytes of these.
    pub(in crate::store) fn movable_bytes(&self) -> usize {
        self.rows_movable() * self.row_bytes()
    }

    /// Bytes of a row in slabs.
    pub(in crate::store) fn row_bytes(&self) -> usize {
        size_of::<u64>() + self.words * size_of::<u32>()
    }

    /// Rows of a search are used.
    #[inline]
    pub(in crate::store) fn mark_used(&mut self, places: &[RowPlace]) {
        if let Some(limited) = &mut self.limited {
            for place in places {
                if let RowPlace::Hashed(place) = place {
                    limited.set_used(self.hashed.position(*place));
                }
            }
        }
    }

    /// Takes a row from its record, with the words that were read there, to memory.
    pub(in crate::store) fn bring(&mut self, record: u32, key: u64, words: &[u32]) {
        let limited = self.limited.as_mut().expect("the table has a memory limit");
        if !is_enabled(Mutant::RecordKept) {
            limited.filed.remove(record);
        }
        let place = self.hashed.insert(key, |row| row.copy_from_slice(words), None);
        let position = self.hashed.position(place);
        limited.set_used(position);
        if let Some(watch) = &mut self.watch {
            watch.moved_from_file(record as usize, position, key, words);
        }
    }

    /// Rows are to be removed: an active snapshot may have to give those that are in the file. Returns false if the file has failed.
    pub(in crate::store) fn bring_for_snapshot(
        &mut self,
        file: &mut Option<Box<RowFile>>,
        keys: &[u64],
    ) -> bool {
        match file {
            Some(file) if file.fault.is_some() => false,
            Some(file) if self.is_read() && self.limited.is_some() => file.bring(self, keys),
            _ => true,
        }
    }

    /// Looks from a position on for rows in memory that were not used since the last time, at most so many. Returns whether the
    /// end was reached; then the position is the beginning.
    pub(in crate::store) fn choose_unused(
        &mut self,
        from: &mut usize,
        rows_max: usize,
        keys: &mut Vec<u64>,
    ) -> bool {
        let Some(limited) = &mut self.limited else { return true };
        while *from < self.hashed.positions() {
            if keys.len() == rows_max {
                return false;
            }
            if !limited.take_used(*from) {
                let (key, _) = self.hashed.row_at(*from).expect("rows lie without holes");
                keys.push(key);
            }
            *from += 1;
        }
        *from = 0;
        true
    }

    /// Moves rows to the file: as many as there is room for. Returns how many; none is moved if the file fails.
    pub(in crate::store) fn demote(&mut self, keys: &[u64], file: &mut RowFile) -> usize {
        let mut pages = self.pages_for(keys.len(), file);
        pages.sort_unstable();
        let filed = self.filed();
        let moves: Vec<(u64, u32)> =
            keys.iter().copied().zip(pages.iter().flat_map(|(page, _)| filed.free_records(*page))).collect();
        let places: Vec<(Page, bool)> =
            pages.iter().map(|(page, filled)| (filed.page_at(*page), *filled > 0)).collect();
        let is_written = !moves.is_empty()
            && file.rewrite(&places, |blocks| {
                let (mut places, mut at) = (places.iter(), 0);
                let mut current = places.next().map(|(page, _)| *page);
                for (key, record) in &moves {
                    let (page, start) = filed.page_of(*record);
                    while let Some(before) = current.filter(|current| *current != page) {
                        at += before.blocks as usize;
                        current = places.next().map(|(page, _)| *page);
                    }
                    let RowPlace::Hashed(row) = self.find(*key) else { unreachable!("it was just chosen") };
                    let of_page = &mut blocks[at..at + page.blocks as usize];
                    copy_in(of_page, start, &words_of(*key));
                    copy_in(of_page, start + KEY_WORDS, self.hashed.words(row));
                }
            });
        if is_written {
            for (key, record) in &moves {
                self.move_to_file(*key, *record);
            }
            file.counts.records_written += moves.len() as u64;
        }
        let limited = self.limited.as_mut().expect("the table has a memory limit");
        for (page, _) in pages {
            limited.filed.return_page(page);
        }
        if is_written { moves.len() } else { 0 }
    }

    /// Pages with room for so many rows, if the disk has it, and how many rows they have.
    fn pages_for(&mut self, rows: usize, file: &mut RowFile) -> Vec<(u32, u32)> {
        let filed = &mut self.limited.as_mut().expect("the table has a memory limit").filed;
        let (mut pages, mut room) = (Vec::new(), 0);
        while room < rows {
            if let Some((page, filled)) = filed.take_page() {
                pages.push((page, filled));
                room += (filed.page_records() - filled) as usize;
            } else if let Some(first) = file.extend(filed.extent_blocks()) {
                filed.add_extent(first);
            } else {
                break;
            }
        }
        pages
    }

    fn move_to_file(&mut self, key: u64, record: u32) {
        let Some(place) = self.hashed.find(key) else { unreachable!("it was just written") };
        let position = self.hashed.position(place);
        let limited = self.limited.as_mut().expect("the table has a memory limit");
        limited.filed.insert(
            record,
            key,
            &limited.summary.of(self.hashed.words(place))[..limited.summary.words()],
        );
        if let Some(watch) = &mut self.watch {
            watch.moved_to_file(position, record as usize);
        }
        self.swap_remove(key, position);
    }

    /// Removes a row of a table with a memory limit, if it is there. One in the file must have been brought if a snapshot is active.
    pub(super) fn remove_limited(&mut self, key: u64) -> bool {
        if let Some(place) = self.hashed.find(key) {
            self.swap_remove(key, self.hashed.position(place));
            return true;
        }
        let filed = &mut self.limited.as_mut().expect("the table has a memory limit").filed;
        let Some(record) = filed.find(key) else { return false };
        filed.remove(record);
        if let Some(watch) = &mut self.watch {
            watch.left_file(record as usize);
        }
        true
    }

    /// Removes a row from memory; the last one takes its place.
    fn swap_remove(&mut self, key: u64, position: usize) {
        let last = self.hashed.positions() - 1;
        let limited = self.limited.as_mut().expect("the table has a memory limit");
        let was_used = limited.take_used(last);
        if position != last {
            if let Some(watch) = self.watch.as_mut().filter(|_| !is_enabled(Mutant::SwapForgotten)) {
                let (key, words) = self.hashed.row_at(last).expect("rows lie without holes");
                let noted = watch.leave(last, key, words);
                watch.arrive(position, noted);
            }
            limited.take_used(position);
            if was_used {
                limited.set_used(position);
            }
        }
        self.hashed.swap_remove(key, position);
    }

    /// Key of the row at a position, and what decides its eviction, if there is one. Rows in the file come after those in memory.
    pub(in crate::store) fn traced_at(&self, position: usize) -> Option<(u64, Traced<'_>)> {
        match (position.checked_sub(self.dense.positions() + self.hashed.positions()), &self.limited) {
            (Some(record), Some(limited)) => {
                let (key, summary) = limited.filed.summary_at(record)?;
                Some((key, Traced::Summary(summary)))
            }
            _ => self.row_at(position).map(|(key, words)| (key, Traced::Words(words))),
        }
    }

    /// Keys of all rows.
    pub(in crate::store) fn keys(&self) -> impl Iterator<Item = u64> {
        let filed = self.limited.iter().flat_map(|limited| limited.filed.keys());
        self.iter().map(|(key, _)| key).chain(filed)
    }
}
