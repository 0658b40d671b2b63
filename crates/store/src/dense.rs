//! Runs of neighbouring keys most of which have rows: there the place of a row follows from its key.
//!
//! Of neighbouring keys a shard owns one in as many as there are shards, wherever a group of so many begins (`plan` deals them
//! so). A chunk is of keys of the shard, so it is as dense, and its rows are found as fast, with any number of shards.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::mem::size_of;
use std::ops::Range;

use libra_plan::Shard;

use crate::directory::hash_of;
use crate::prefetch::prefetch;
use crate::slab::Multiples;

/// Keys of the shard in a chunk. What one insertion may move depends on it.
const CHUNK: usize = 1 << 12;
const CHUNK_KEYS: u64 = CHUNK as u64;
/// A chunk of fewer keys is not dense: its index is small, too.
const KEYS_MIN: u64 = CHUNK_KEYS / 4;
/// Tables of more keys have no chunks: the directory would cost more than it is worth.
const KEYS_MAX: u64 = 1 << 32;
/// Blocks lie in slabs of this size, or of one block. Large pages of memory fit in, and what an allocator rounds up is little;
/// a block by itself is rounded up by a third.
const SLAB_BYTES: usize = 4 << 20;
/// A directory entry of a chunk that is dense: this bit and the number of its block. Of any other it is how many rows there
/// are in the chunk.
const DENSE: u32 = 1 << 31;
/// And this one if all its keys have rows.
const FULL: u32 = 1 << 30;
/// Words of the bits of the keys of a chunk that have rows.
const BITS_WORDS: usize = CHUNK / 32;

/// The dense chunks of one table.
#[derive(Debug, Clone)]
pub(crate) struct Dense {
    /// The shard of the keys.
    shard: Shard,
    keys: Range<u64>,
    /// The lowest key of the group of the first key of the table: from here on, groups are counted.
    first_key: u64,
    /// The quotient by the number of shards, as a factor of 1/2^63.
    per_shard: u64,
    /// Words of a row.
    words: usize,
    of_words: Multiples,
    whole: ChunkSize,
    /// The last chunk may be smaller.
    last: ChunkSize,
    /// An entry for each chunk of the table; none before there is a row.
    directory: Vec<u32>,
    chunks: usize,
    blocks: Vec<Block>,
    /// The rows of all keys of the blocks, in the order of these. One whose blocks are all free has no memory; the last one has
    /// room for more.
    slabs: Vec<Box<[u32]>>,
    /// Blocks of a slab, as a power of two.
    slab_log2: u32,
    /// Numbers of blocks that are of no chunk.
    free: BinaryHeap<Reverse<u32>>,
    rows: usize,
}

/// Size of a chunk.
#[derive(Debug, Clone, Copy)]
struct ChunkSize {
    /// Keys of the shard. In the last chunk of a table, one of them may be of another shard.
    keys: u32,
    /// So many rows, or some more, make it dense.
    rows_min: u32,
}

impl ChunkSize {
    /// Of a chunk of so many keys, whose rows have so many words.
    fn new(keys: u64, words: usize) -> Self {
        // Where rows are as wide as 4 words, 16 bytes a row are the price of a chunk that is half full.
        let rows_min = if keys < KEYS_MIN { keys } else { keys * words as u64 / (words as u64 + 4) };
        let few = |keys| u32::try_from(keys).expect("at most those of a chunk");
        Self { keys: few(keys), rows_min: few(rows_min) }
    }
}

/// A dense chunk.
#[derive(Debug, Clone)]
struct Block {
    chunk: u32,
    rows: u32,
    /// A bit for each key that has a row.
    bits: Box<[u32]>,
}

/// Location of a row of a dense chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DensePlace {
    slab: u32,
    /// First word.
    start: u32,
}

/// The state of a row according to the chunk of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// The row is here.
    Row(DensePlace),
    /// The chunk is dense, and the row is not there.
    Nothing,
    /// The chunk is not dense: if there is a row, it is elsewhere.
    Elsewhere,
}

/// A chunk that has enough rows to be dense, and is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Crowd {
    /// One less, and it had not enough.
    pub(crate) is_just: bool,
}

/// A chunk that is dense, and has too few rows for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Thin {
    /// One more, and it had not too few.
    pub(crate) is_just: bool,
}

impl Dense {
    /// No dense chunk yet in a table of these keys, as far as they are of the shard, whose rows have so many words.
    pub(crate) fn new(keys: &Range<u64>, words: usize, shard: Shard) -> Self {
        let shards = u64::from(shard.shards());
        let first_key = shard.group_of(keys.start) * shards;
        let count = keys.end - first_key;
        let groups = count.div_ceil(shards);
        let chunks = if count > KEYS_MAX { 0 } else { groups.div_ceil(CHUNK_KEYS) };
        let chunks = usize::try_from(chunks).expect("at most 2^20 chunks");
        let before_last = groups.saturating_sub(1) / CHUNK_KEYS * CHUNK_KEYS;
        Self {
            shard,
            keys: keys.clone(),
            first_key,
            per_shard: (1_u64 << 63).div_ceil(shards),
            words,
            of_words: Multiples::new(u32::try_from(words).expect("a row has less than 2^32 words")),
            whole: ChunkSize::new(CHUNK_KEYS, words),
            last: ChunkSize::new(groups - before_last, words),
            directory: Vec::new(),
            chunks,
            blocks: Vec::new(),
            slabs: Vec::new(),
            slab_log2: (SLAB_BYTES / (CHUNK * words * size_of::<u32>())).max(1).ilog2(),
            free: BinaryHeap::new(),
            rows: 0,
        }
    }

    /// Forbids dense chunks, of which there is none yet.
    pub(crate) fn set_sparse(&mut self) {
        self.chunks = 0;
    }

    /// Rows in dense chunks.
    pub(crate) fn len(&self) -> usize {
        self.rows
    }

    #[inline]
    fn size_of(&self, chunk: usize) -> ChunkSize {
        if chunk + 1 == self.chunks { self.last } else { self.whole }
    }

    /// Chunk of a key of the table, and its place in there. Of a table without chunks, one that there is not.
    #[inline]
    fn split(&self, key: u64) -> (usize, usize) {
        // A division takes as long as the rest of a look-up. This is exact: the error of the factor is below 1/2^63, that
        // of the product for a table that has chunks below 2^(33-63), and a quotient is at least 2^-16 from the next one.
        let product = u128::from(key - self.first_key) * u128::from(self.per_shard);
        let group = u64::try_from(product >> 63).unwrap_or(u64::MAX);
        let chunk = usize::try_from(group / CHUNK_KEYS).unwrap_or(usize::MAX);
        (chunk, usize::try_from(group % CHUNK_KEYS).expect("it is below the keys of a chunk"))
    }

    /// The key of the shard at a place of a chunk, if there is such a key in the table.
    fn key_at(&self, chunk: usize, at: usize) -> Option<u64> {
        let group = self.shard.group_of(self.first_key) + (chunk * CHUNK + at) as u64;
        self.shard.key_in(group).filter(|key| self.keys.contains(key))
    }

    /// The row of a key of the table.
    #[inline(always)]
    pub(crate) fn find(&self, key: u64) -> Found {
        let (chunk, at) = self.split(key);
        debug_assert!(self.chunks == 0 || self.key_at(chunk, at) == Some(key), "{key} is of another shard");
        let entry = self.directory.get(chunk).copied().unwrap_or(0);
        if entry & DENSE == 0 {
            return Found::Elsewhere;
        }
        let block = block_of(entry);
        if entry & FULL == 0 && !self.blocks[block as usize].has(at) {
            return Found::Nothing;
        }
        Found::Row(self.place(block, at))
    }

    /// Returns the location of the row of a block.
    #[inline]
    fn place(&self, block: u32, at: usize) -> DensePlace {
        let before = (block & ((1 << self.slab_log2) - 1)) as usize * CHUNK;
        let start = u32::try_from((before + at) * self.words).expect("a slab has less than 2^32 words");
        DensePlace { slab: block >> self.slab_log2, start }
    }

    #[inline]
    fn words_at(&self, place: DensePlace) -> Range<usize> {
        place.start as usize..place.start as usize + self.words
    }

    #[inline]
    pub(crate) fn row(&self, place: DensePlace) -> &[u32] {
        &self.slabs[place.slab as usize][self.words_at(place)]
    }

    /// Asks for the memory of a row.
    #[inline]
    pub(crate) fn prefetch(&self, place: DensePlace) {
        prefetch(&self.slabs[place.slab as usize], self.words_at(place));
    }

    #[inline]
    pub(crate) fn row_mut(&mut self, place: DensePlace) -> &mut [u32] {
        let words = self.words_at(place);
        &mut self.slabs[place.slab as usize][words]
    }

    /// Makes the row of a key that has none, all zero, in a chunk that is dense.
    pub(crate) fn insert(&mut self, key: u64) -> DensePlace {
        let (chunk, at) = self.split(key);
        let number = block_of(self.directory[chunk]);
        let keys = self.size_of(chunk).keys;
        let block = &mut self.blocks[number as usize];
        block.bits[at / 32] |= 1 << (at % 32);
        block.rows += 1;
        if block.rows == keys {
            self.directory[chunk] |= FULL;
        }
        self.rows += 1;
        self.place(number, at)
    }

    /// Removes the row of a key, if its chunk is dense and has it.
    pub(crate) fn remove(&mut self, key: u64) -> bool {
        let Found::Row(place) = self.find(key) else { return false };
        self.row_mut(place).fill(0);
        let (chunk, at) = self.split(key);
        let block = &mut self.blocks[block_of(self.directory[chunk]) as usize];
        block.bits[at / 32] &= !(1 << (at % 32));
        block.rows -= 1;
        self.directory[chunk] &= !FULL;
        self.rows -= 1;
        true
    }

    /// Counts a row that was made elsewhere, and returns true if its chunk should now be dense.
    pub(crate) fn made_elsewhere(&mut self, key: u64) -> Option<Crowd> {
        let (chunk, _) = self.split(key);
        self.make_directory();
        *self.directory.get_mut(chunk)? += 1;
        self.crowded(key)
    }

    /// The chunk of a key, if it is not dense and should be.
    pub(crate) fn crowded(&self, key: u64) -> Option<Crowd> {
        let (chunk, _) = self.split(key);
        let entry = *self.directory.get(chunk)?;
        let ChunkSize { keys, rows_min } = self.size_of(chunk);
        // Chunks do not all become dense at the same number of rows, for one batch would then have to move very many.
        let spread = u32::try_from(hash_of(chunk as u64) % u64::from((keys - rows_min) / 2 + 1));
        let limit = rows_min + spread.expect("less than the keys of a chunk");
        (entry & DENSE == 0 && entry > limit).then(|| Crowd { is_just: entry == limit + 1 })
    }

    /// Returns true if the chunk of the first of these keys is not dense, and the next ones, in rising order, are enough to make it so.
    pub(crate) fn is_half_of_chunk(&self, keys: &[u64]) -> bool {
        let Some(first) = keys.first() else { return false };
        let (chunk, _) = self.split(*first);
        let Some(many @ [.., last]) = keys.get(..=self.size_of(chunk).rows_min as usize) else {
            return false;
        };
        let is_open = self.directory.get(chunk).is_some_and(|entry| entry & DENSE != 0);
        chunk < self.chunks
            && !is_open
            && self.split(*last).0 == chunk
            && many.is_sorted_by(|one, next| one < next)
    }

    fn make_directory(&mut self) {
        if self.directory.is_empty() {
            self.directory = vec![0; self.chunks];
        }
    }

    /// All keys of the shard in the chunk of a key, in rising order.
    pub(crate) fn keys_of_chunk(&self, key: u64) -> Vec<u64> {
        let (chunk, _) = self.split(key);
        (0..CHUNK).filter_map(|at| self.key_at(chunk, at)).collect()
    }

    /// Returns the position of a row among all rows that dense chunks have room for. It never changes.
    #[inline]
    pub(crate) fn position(&self, place: DensePlace) -> usize {
        ((place.slab as usize) << self.slab_log2) * CHUNK + self.of_words.quotient(place.start) as usize
    }

    /// Returns the number of rows that they have room for.
    pub(crate) fn positions(&self) -> usize {
        self.blocks.len() * CHUNK
    }

    /// Returns which of the 64 positions from one on, a multiple of 64, have rows: a bit each.
    pub(crate) fn rows_from(&self, position: usize) -> u64 {
        let (block, at) = (&self.blocks[position / CHUNK], position % CHUNK / 32);
        let bits = |at| u64::from(block.bits.get(at).copied().unwrap_or(0));
        bits(at) | bits(at + 1) << 32
    }

    /// Key and words of the row at a position, which is there.
    pub(crate) fn row_at(&self, position: usize) -> (u64, &[u32]) {
        let (block, at) = (position / CHUNK, position % CHUNK);
        let key = self.key_at(self.blocks[block].chunk as usize, at).expect("a row has a key");
        let number = u32::try_from(block).expect("at most 2^20 blocks");
        (key, self.row(self.place(number, at)))
    }

    /// Counts a row that was removed elsewhere.
    pub(crate) fn removed_elsewhere(&mut self, key: u64) {
        let (chunk, _) = self.split(key);
        if let Some(entry) = self.directory.get_mut(chunk) {
            *entry -= 1;
        }
    }

    /// Makes the chunk of a key dense. It has no rows then; those that are elsewhere are to be moved.
    pub(crate) fn open(&mut self, key: u64) {
        self.make_directory();
        let (chunk, _) = self.split(key);
        let number = match self.free.pop() {
            Some(Reverse(number)) => number as usize,
            None => self.blocks.len(),
        };
        let slab = number >> self.slab_log2;
        if slab == self.slabs.len() {
            self.slabs.push(Box::default());
        }
        if self.slabs[slab].is_empty() {
            let blocks = (self.chunks - (slab << self.slab_log2)).min(1 << self.slab_log2);
            let keys = if blocks == 1 { self.size_of(chunk).keys as usize } else { blocks * CHUNK };
            self.slabs[slab] = vec![0; keys * self.words].into();
        }
        let of = u32::try_from(chunk).expect("at most 2^20 chunks");
        let block = Block { chunk: of, rows: 0, bits: vec![0; BITS_WORDS].into() };
        match self.blocks.get_mut(number) {
            Some(free) => *free = block,
            None => self.blocks.push(block),
        }
        let number = u32::try_from(number).expect("at most 2^20 blocks");
        self.directory[chunk] = DENSE | number;
    }

    /// The chunk of a key, if it is dense and should not be: its rows are a quarter of those that would make it so.
    pub(crate) fn thin(&self, key: u64) -> Option<Thin> {
        let (chunk, _) = self.split(key);
        let entry = *self.directory.get(chunk)?;
        let rows_max = self.size_of(chunk).rows_min / 4;
        if entry & DENSE == 0 {
            return None;
        }
        let rows = self.blocks[block_of(entry) as usize].rows;
        (rows <= rows_max).then_some(Thin { is_just: rows == rows_max })
    }

    /// Keys, positions and words of the rows of a dense chunk, of which `key` is one.
    pub(crate) fn rows_of_chunk(&self, key: u64) -> impl Iterator<Item = (u64, usize, &[u32])> {
        let block = block_of(self.directory[self.split(key).0]) as usize;
        let rows = (0..CHUNK).filter(move |at| self.blocks[block].has(*at));
        rows.map(move |at| {
            let (key, words) = self.row_at(block * CHUNK + at);
            (key, block * CHUNK + at, words)
        })
    }

    /// Makes the chunk of a key one that is not dense. Its rows were copied to elsewhere.
    pub(crate) fn close(&mut self, key: u64) {
        let chunk = self.split(key).0;
        let number = block_of(self.directory[chunk]);
        let block = &mut self.blocks[number as usize];
        self.directory[chunk] = block.rows;
        self.rows -= block.rows as usize;
        *block = Block { chunk: 0, rows: 0, bits: Box::default() };
        self.free.push(Reverse(number));
        let DensePlace { slab, start } = self.place(number, 0);
        let (slab, start) = (slab as usize, start as usize);
        if self.blocks_of(slab).iter().all(|block| block.bits.is_empty()) {
            self.slabs[slab] = Box::default();
        } else {
            // It has more than one block.
            self.slabs[slab][start..start + CHUNK * self.words].fill(0);
        }
    }

    /// The blocks of a slab that there are, or were.
    fn blocks_of(&self, slab: usize) -> &[Block] {
        let first = slab << self.slab_log2;
        &self.blocks[first..self.blocks.len().min(first + (1 << self.slab_log2))]
    }

    /// Keys and rows of all dense chunks.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &[u32])> {
        let slabs = self.slabs.iter().enumerate().flat_map(|(slab, words)| {
            // There are none of a slab without memory.
            self.blocks_of(slab).iter().zip(words.chunks(CHUNK * self.words))
        });
        slabs.filter(|(block, _)| block.rows > 0).flat_map(move |(block, words)| {
            let rows = words.chunks_exact(self.words).enumerate().filter(|(at, _)| block.has(*at));
            let key = |at| self.key_at(block.chunk as usize, at).expect("a row has a key");
            rows.map(move |(at, row)| (key(at), row))
        })
    }

    /// Bytes that they take. Of the directory, memory of chunks that never had a row is not touched; it counts all the same.
    /// Memory that a slab has for blocks to come is not touched, either, and does not count.
    pub(crate) fn memory_bytes(&self) -> usize {
        let slabs = self.slabs.iter().enumerate();
        let of_blocks =
            slabs.map(|(slab, words)| words.len().min(self.blocks_of(slab).len() * CHUNK * self.words));
        let words: usize = of_blocks.sum();
        let bits: usize = self.blocks.iter().map(|block| block.bits.len()).sum();
        (words + bits + self.directory.capacity() + self.free.capacity()) * size_of::<u32>()
            + self.blocks.capacity() * size_of::<Block>()
            + self.slabs.capacity() * size_of::<Box<[u32]>>()
    }
}

/// The number of the block that a directory entry of a dense chunk names.
#[inline]
fn block_of(entry: u32) -> u32 {
    entry & !(DENSE | FULL)
}

impl Block {
    #[inline]
    fn has(&self, at: usize) -> bool {
        self.bits[at / 32] >> (at % 32) & 1 == 1
    }
}
