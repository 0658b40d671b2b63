//! The rows of one table that lie in the file of a store with a memory limit: where, and nothing of their values.
//!
//! A page of the file has as many records as fit. A row that is used comes back to memory and leaves a hole; a page that is half holes is
//! filled again, and until then rows go to new pages. So the file is at most about twice as large as its rows, and one read and one
//! write of a page move half of its records at least.

use super::file::Page;
use super::rows::BLOCK;
use crate::block_file::BLOCK_WORDS;
use crate::directory::hash_of;
use crate::index::{Index, NO_ROW};
use crate::key::{FREE, KEY_WORDS};

/// A page has this share of waste at most, if it can.
const WASTE_SHARE: usize = 8;
/// Most blocks of a page that are for less waste.
const BLOCKS_MAX: usize = 8;
/// Pages of an extent, which lie one after the other in the file.
const EXTENT_PAGES: usize = if cfg!(test) { 4 } else { 64 };
/// Blocks of keys that memory is asked for ahead.
const AHEAD: usize = 4;

/// The rows of one table.
#[derive(Debug, Clone)]
pub(super) struct FiledRows {
    /// Words of a record.
    record_words: usize,
    page_blocks: u32,
    page_records: u32,
    /// Records of an extent.
    extent_records: usize,
    /// Words that decide the eviction of a row; see [`FiledRows::summary_at`].
    summary_words: usize,
    index: Index,
    extents: Vec<Extent>,
    /// Pages that were never filled begin here.
    fresh: u32,
    /// Pages half of whose records are free.
    sparse: Vec<u32>,
    rows: usize,
}

#[derive(Debug, Clone)]
struct Extent {
    first_block: u32,
    /// Of each record.
    keys: Box<[u64]>,
    /// Of each record, one after the other.
    summaries: Box<[u32]>,
    /// Records of each page that have rows.
    filled: Box<[u32]>,
}

/// A number of which there are less than 2^32, for records are numbered so and rows have fewer words.
fn small(number: usize) -> u32 {
    u32::try_from(number).expect("there are less than 2^32")
}

/// The extent of a page, and its place there.
fn split(page: u32) -> (usize, usize) {
    (page as usize / EXTENT_PAGES, page as usize % EXTENT_PAGES)
}

impl FiledRows {
    /// No rows yet, of so many words.
    pub(super) fn new(words: usize, summary_words: usize) -> Self {
        let record_words = KEY_WORDS + words;
        let waste = |blocks: usize| (blocks * BLOCK_WORDS % record_words, blocks * BLOCK_WORDS);
        let least = record_words.div_ceil(BLOCK_WORDS);
        let is_good = |blocks: &usize| {
            let (wasted, all) = waste(*blocks);
            wasted * WASTE_SHARE <= all
        };
        let blocks = (least..=BLOCKS_MAX.max(least)).find(is_good).unwrap_or(least);
        let page_records = blocks * BLOCK_WORDS / record_words;
        Self {
            record_words,
            page_blocks: small(blocks),
            page_records: small(page_records),
            extent_records: EXTENT_PAGES * page_records,
            summary_words,
            index: Index::default(),
            extents: Vec::new(),
            fresh: 0,
            sparse: Vec::new(),
            rows: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.rows
    }

    /// Number of records that there is room for.
    pub(super) fn positions(&self) -> usize {
        self.fresh as usize * self.page_records as usize
    }

    fn place(&self, record: u32) -> (usize, usize) {
        (record as usize / self.extent_records, record as usize % self.extent_records)
    }

    pub(super) fn key(&self, record: u32) -> u64 {
        let (extent, at) = self.place(record);
        self.extents[extent].keys[at]
    }

    /// The record at a position, if it has a row.
    pub(super) fn record_at(&self, position: usize) -> Option<u32> {
        let record = u32::try_from(position).expect("records have numbers below 2^32");
        (position < self.positions() && self.key(record) != FREE).then_some(record)
    }

    /// Key and summary of the row at a position, if there is one.
    pub(super) fn summary_at(&self, position: usize) -> Option<(u64, &[u32])> {
        let record = self.record_at(position)?;
        let (extent, at) = self.place(record);
        let summary = &self.extents[extent].summaries[at * self.summary_words..][..self.summary_words];
        Some((self.key(record), summary))
    }

    /// Finds a row.
    pub(super) fn find(&self, key: u64) -> Option<u32> {
        self.find_hash(hash_of(key), key)
    }

    fn find_hash(&self, hash: u64, key: u64) -> Option<u32> {
        let record = self.index.find(hash, |record| self.key(record) == key);
        (record != NO_ROW).then_some(record)
    }

    /// Calls a function with the record of each of these rows that is in the file.
    pub(super) fn find_many(&self, keys: &[u64], mut found: impl FnMut(u32)) {
        // The memory that some blocks need comes while those before are looked for.
        let mut ahead = keys.chunks(BLOCK);
        let prefetch = |keys: &[u64]| keys.iter().for_each(|key| self.index.prefetch(hash_of(*key)));
        ahead.by_ref().take(AHEAD).for_each(prefetch);
        for keys in keys.chunks(BLOCK) {
            prefetch(ahead.next().unwrap_or_default());
            let mut hashes = [0; BLOCK];
            for (hash, key) in hashes.iter_mut().zip(keys) {
                *hash = hash_of(*key);
            }
            let mut records = [NO_ROW; BLOCK];
            self.index.candidates(&hashes[..keys.len()], &mut records);
            for ((key, hash), record) in keys.iter().zip(hashes).zip(records) {
                if record != NO_ROW {
                    let is_it = self.key(record) == *key;
                    if let Some(record) = if is_it { Some(record) } else { self.find_hash(hash, *key) } {
                        found(record);
                    }
                }
            }
        }
    }

    /// The page of a record, and the first word of the record there.
    pub(super) fn page_of(&self, record: u32) -> (Page, usize) {
        let at = (record % self.page_records) as usize;
        (self.page_at(record / self.page_records), at * self.record_words)
    }

    /// Location of a page in the file.
    pub(super) fn page_at(&self, page: u32) -> Page {
        let (extent, at) = split(page);
        Page {
            first: self.extents[extent].first_block + small(at) * self.page_blocks,
            blocks: self.page_blocks,
        }
    }

    /// Number of records of a page that have rows.
    fn filled(&self, page: u32) -> u32 {
        let (extent, at) = split(page);
        self.extents[extent].filled[at]
    }

    /// A row leaves its record.
    pub(super) fn remove(&mut self, record: u32) {
        let (extent, at) = self.place(record);
        let extent = &mut self.extents[extent];
        let key = std::mem::replace(&mut extent.keys[at], FREE);
        self.index.remove(hash_of(key), record);
        self.rows -= 1;
        let filled = &mut extent.filled[at / self.page_records as usize];
        *filled -= 1;
        if *filled == self.page_records / 2 {
            self.sparse.push(record / self.page_records);
        }
    }

    /// Takes a page that can be filled, if there is one, and returns its number and how many of its records have rows.
    pub(super) fn take_page(&mut self) -> Option<(u32, u32)> {
        if let Some(page) = self.sparse.pop() {
            return Some((page, self.filled(page)));
        }
        let page = self.fresh;
        (split(page).0 < self.extents.len()).then(|| {
            self.fresh += 1;
            (page, 0)
        })
    }

    /// Puts a page back that was taken.
    pub(super) fn return_page(&mut self, page: u32) {
        if self.filled(page) <= self.page_records / 2 {
            self.sparse.push(page);
        }
    }

    /// Blocks of an extent.
    pub(super) fn extent_blocks(&self) -> u32 {
        small(EXTENT_PAGES) * self.page_blocks
    }

    /// Adds an extent of new pages.
    pub(super) fn add_extent(&mut self, first_block: u32) {
        let records = self.extent_records;
        assert!(
            u32::try_from((self.extents.len() + 1) * records).is_ok_and(|end| end < NO_ROW),
            "a table has fewer than 2^32 - 1 records"
        );
        self.extents.push(Extent {
            first_block,
            keys: vec![FREE; records].into(),
            summaries: vec![0; records * self.summary_words].into(),
            filled: vec![0; EXTENT_PAGES].into(),
        });
    }

    pub(super) fn page_records(&self) -> u32 {
        self.page_records
    }

    /// The records of a page without a row.
    pub(super) fn free_records(&self, page: u32) -> impl Iterator<Item = u32> {
        let first = page * self.page_records;
        (first..first + self.page_records).filter(|record| self.key(*record) == FREE)
    }

    /// A row is in a record now.
    pub(super) fn insert(&mut self, record: u32, key: u64, summary: &[u32]) {
        let (extent, at) = self.place(record);
        let words = self.summary_words;
        let of = &mut self.extents[extent];
        of.keys[at] = key;
        of.summaries[at * words..][..words].copy_from_slice(summary);
        of.filled[at / self.page_records as usize] += 1;
        let Self { index, extents, extent_records, .. } = self;
        index.insert(hash_of(key), record, |other| {
            hash_of(extents[other as usize / *extent_records].keys[other as usize % *extent_records])
        });
        self.rows += 1;
    }

    /// Keys of all rows.
    pub(super) fn keys(&self) -> impl Iterator<Item = u64> {
        self.extents.iter().flat_map(|extent| &extent.keys).copied().filter(|key| *key != FREE)
    }

    /// Bytes of memory that they take.
    pub(super) fn memory_bytes(&self) -> usize {
        let of_extent = self.extent_records * (size_of::<u64>() + self.summary_words * size_of::<u32>())
            + EXTENT_PAGES * size_of::<u32>();
        self.index.memory_bytes()
            + self.extents.len() * of_extent
            + self.extents.capacity() * size_of::<Extent>()
            + self.sparse.capacity() * size_of::<u32>()
    }
}
