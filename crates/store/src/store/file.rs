//! The file of a store with a memory limit, and the way of rows from it to memory.

use super::memory_limit::{DiskCounts, StoreFault};
use super::table_rows::TableRows;
use crate::block_file::{BLOCK_WORDS, Block, BlockFile, BlockFileError};
use crate::key::{KEY_WORDS, number_at};

/// Blocks that are read at once, unless one page has more: more than a disk works on at a time, and little memory.
const BLOCKS_READ_MAX: usize = 256;

/// Neighbouring blocks that are read and written together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Page {
    pub(super) first: u32,
    pub(super) blocks: u32,
}

/// The file, which all tables share.
#[derive(Debug)]
pub(super) struct RowFile {
    file: Box<dyn BlockFile>,
    /// Blocks that there is room for.
    reserved: u32,
    /// Bytes of memory that the store may use.
    pub(super) limit: usize,
    /// Table and position that are looked at next for a row that was not used for long.
    pub(super) hand: (usize, usize),
    /// The first failure: what the store has in memory is not what it was from then on.
    pub(super) fault: Option<StoreFault>,
    pub(super) counts: DiskCounts,
    buffer: Vec<Block>,
    numbers: Vec<u32>,
    /// Rows that are read next: table and record.
    pub(super) wanted: Vec<(usize, u32)>,
}

/// A record, and where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Placed {
    page: Page,
    /// First word in the page.
    start: usize,
    table: usize,
    record: u32,
    key: u64,
    /// Words with the key.
    words: usize,
}

impl Placed {
    fn new(rows: &TableRows, table: usize, record: u32) -> Self {
        let (page, start) = rows.filed().page_of(record);
        let key = rows.filed().key(record);
        Self { page, start, table, record, key, words: KEY_WORDS + rows.row_words() }
    }
}

impl Clone for RowFile {
    fn clone(&self) -> Self {
        panic!("a store with a memory limit has no copy: its file is of one store")
    }
}

impl RowFile {
    pub(super) fn new(file: Box<dyn BlockFile>, limit: usize) -> Self {
        Self {
            file,
            reserved: 0,
            limit,
            hand: (0, 0),
            fault: None,
            counts: DiskCounts::default(),
            buffer: Vec::new(),
            numbers: Vec::new(),
            wanted: Vec::new(),
        }
    }

    /// Bytes of memory for what is read and written.
    pub(super) fn memory_bytes(&self) -> usize {
        self.buffer.capacity() * size_of::<Block>()
    }

    /// Makes room for so many blocks more, and returns the first of them; none if the disk is full, or refused.
    pub(super) fn extend(&mut self, blocks: u32) -> Option<u32> {
        let first = self.reserved;
        match self.file.reserve(first + blocks) {
            Ok(()) => {
                self.reserved = first + blocks;
                self.counts.is_full = false;
                return Some(first);
            }
            Err(error) if error.is_full => self.counts.is_full = true,
            Err(error) => self.fail(error),
        }
        None
    }

    fn fail(&mut self, error: BlockFileError) {
        self.fault.get_or_insert(StoreFault::Disk(error));
    }

    fn number(&mut self, pages: &[Page]) {
        self.numbers.clear();
        self.numbers.extend(pages.iter().flat_map(|page| page.first..page.first + page.blocks));
        if self.buffer.len() < self.numbers.len() {
            self.buffer.resize(self.numbers.len(), Block::ZERO);
        }
    }

    /// Reads pages, which rise, into the buffer. Returns whether it could.
    fn read(&mut self, pages: &[Page]) -> bool {
        self.number(pages);
        match self.file.read(&self.numbers, &mut self.buffer[..self.numbers.len()]) {
            Ok(()) => true,
            Err(error) => {
                self.fail(error);
                false
            }
        }
    }

    /// Reads those of these rising pages that have rows, and writes all with what `fill` puts there. Returns whether they are written.
    pub(super) fn rewrite(&mut self, pages: &[(Page, bool)], fill: impl FnOnce(&mut [Block])) -> bool {
        let with_rows: Vec<Page> =
            pages.iter().filter(|(_, has_rows)| *has_rows).map(|(page, _)| *page).collect();
        let all: Vec<Page> = pages.iter().map(|(page, _)| *page).collect();
        if with_rows.is_empty() {
            self.number(&all);
        } else {
            if !self.read(&with_rows) {
                return false;
            }
            // They go where they are among all, the last first.
            let mut from = self.numbers.len();
            self.number(&all);
            let mut to = self.numbers.len();
            for (page, has_rows) in pages.iter().rev() {
                let blocks = page.blocks as usize;
                to -= blocks;
                if *has_rows {
                    from -= blocks;
                    for block in (0..blocks).rev().filter(|_| from != to) {
                        self.buffer.swap(from + block, to + block);
                    }
                }
            }
        }
        let blocks = &mut self.buffer[..self.numbers.len()];
        fill(blocks);
        match self.file.write(&self.numbers, blocks) {
            Ok(()) => return true,
            // Nothing that was there is in doubt.
            Err(error) if error.is_full && with_rows.is_empty() => self.counts.is_full = true,
            Err(error) => self.fail(error),
        }
        false
    }

    /// Reads records of one table, and gives key and words of each. Returns whether it could.
    pub(super) fn give(
        &mut self,
        rows: &TableRows,
        records: &[u32],
        mut give: impl FnMut(u64, &[u32]),
    ) -> bool {
        let placed = records.iter().map(|record| Placed::new(rows, 0, *record)).collect();
        self.read_records(placed, |placed, words| give(placed.key, words))
    }

    /// Brings the wanted rows to memory. Returns whether it could.
    pub(super) fn bring_wanted(&mut self, tables: &mut [TableRows]) -> bool {
        let placed: Vec<Placed> =
            self.wanted.drain(..).map(|(table, record)| Placed::new(&tables[table], table, record)).collect();
        placed.is_empty()
            || self.read_records(placed, |Placed { table, record, key, .. }, words| {
                tables[*table].bring(*record, *key, words);
            })
    }

    /// Reads records. One that comes twice is given once.
    fn read_records(&mut self, mut placed: Vec<Placed>, mut give: impl FnMut(&Placed, &[u32])) -> bool {
        placed.sort_unstable();
        placed.dedup();
        let mut words = Vec::new();
        let mut rest = placed.as_slice();
        while !rest.is_empty() {
            let pages = pages_read_at_once(rest);
            let last = pages[pages.len() - 1];
            let (chunk, after) = rest.split_at(rest.partition_point(|placed| placed.page <= last));
            rest = after;
            if !self.read(&pages) {
                return false;
            }
            let (mut at, mut page) = (0, pages[0]);
            for placed in chunk {
                if placed.page != page {
                    at += page.blocks as usize;
                    page = placed.page;
                }
                words.resize(placed.words, 0);
                copy_out(&self.buffer[at..at + page.blocks as usize], placed.start, &mut words);
                let found = number_at(&words, 0);
                if found != placed.key {
                    let Placed { record, key, .. } = *placed;
                    self.fault.get_or_insert(StoreFault::WrongRow { record, key, found });
                    return false;
                }
                give(placed, &words[KEY_WORDS..]);
            }
        }
        self.counts.records_read += placed.len() as u64;
        true
    }

    /// The same for these keys of one table.
    pub(super) fn bring(&mut self, rows: &mut TableRows, keys: &[u64]) -> bool {
        let wanted = &mut self.wanted;
        rows.find_filed(keys, |record| wanted.push((0, record)));
        self.bring_wanted(std::slice::from_mut(rows))
    }
}

/// The pages of the first of these rising records.
fn pages_read_at_once(placed: &[Placed]) -> Vec<Page> {
    let (mut pages, mut blocks) = (Vec::new(), 0);
    for of_page in placed.chunk_by(|one, next| one.page == next.page) {
        let page = of_page[0].page;
        blocks += page.blocks as usize;
        if blocks > BLOCKS_READ_MAX && !pages.is_empty() {
            break;
        }
        pages.push(page);
    }
    pages
}

/// Copies words of a page, which go on in the next block where one ends.
fn copy_out(blocks: &[Block], start: usize, mut words: &mut [u32]) {
    let (mut block, mut at) = (start / BLOCK_WORDS, start % BLOCK_WORDS);
    while !words.is_empty() {
        let count = words.len().min(BLOCK_WORDS - at);
        let rest;
        (words, rest) = words.split_at_mut(count);
        words.copy_from_slice(&blocks[block].0[at..at + count]);
        (words, block, at) = (rest, block + 1, 0);
    }
}

/// Puts words into a page.
pub(super) fn copy_in(blocks: &mut [Block], start: usize, mut words: &[u32]) {
    let (mut block, mut at) = (start / BLOCK_WORDS, start % BLOCK_WORDS);
    while !words.is_empty() {
        let (piece, rest) = words.split_at(words.len().min(BLOCK_WORDS - at));
        blocks[block].0[at..at + piece.len()].copy_from_slice(piece);
        (words, block, at) = (rest, block + 1, 0);
    }
}
