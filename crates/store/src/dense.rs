//! Runs of neighbouring keys most of which have rows: there the place of a row follows from its key.

use std::mem::size_of;
use std::ops::Range;

use crate::index::hash_of;
use crate::slab::Multiples;

/// Keys of a chunk. What one insertion may move depends on it.
const CHUNK: usize = 1 << 12;
const CHUNK_KEYS: u64 = CHUNK as u64;
/// Tables of more keys have no chunks: the directory would cost more than it is worth.
const KEYS_MAX: u64 = 1 << 32;
/// A directory entry of a chunk that is dense: this bit and the number of its block. Of any other it is how many rows there
/// are in the chunk.
const DENSE: u32 = 1 << 31;
/// And this one if all its keys have rows.
const FULL: u32 = 1 << 30;
/// Words of the bits that say which keys of a chunk have rows.
const BITS_WORDS: usize = CHUNK / 32;

/// The dense chunks of one table.
#[derive(Debug, Clone)]
pub(crate) struct Dense {
    first_key: u64,
    /// Words of a row.
    words: usize,
    of_words: Multiples,
    /// So many rows, or some more, make a chunk dense.
    rows_min: u32,
    /// An entry for each chunk of the table; none before there is a row.
    directory: Vec<u32>,
    chunks: usize,
    blocks: Vec<Block>,
    /// Numbers of blocks that are of no chunk.
    free: Vec<u32>,
    rows: usize,
}

/// A dense chunk.
#[derive(Debug, Clone)]
struct Block {
    chunk: u32,
    rows: u32,
    /// The rows of all keys. Nothing else, so that its size is one that allocators have.
    words: Box<[u32]>,
    /// A bit for each key that has a row.
    bits: Box<[u32]>,
}

/// Where a row of a dense chunk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DensePlace {
    block: u32,
    /// First word.
    start: u32,
}

/// What the chunk of a key says of its row.
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Crowd {
    pub(crate) keys: Range<u64>,
    /// How many rows it has beyond what it may have, at least 1.
    pub(crate) beyond: u32,
}

/// A chunk that is dense, and has too few rows for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Thin {
    /// One more, and it had not too few.
    pub(crate) is_just: bool,
}

impl Dense {
    /// No dense chunk yet in a table of these keys, whose rows have so many words.
    pub(crate) fn new(keys: &Range<u64>, words: usize) -> Self {
        let count = keys.end - keys.start;
        let chunks = if count > KEYS_MAX { 0 } else { count.div_ceil(CHUNK_KEYS) };
        let chunks = usize::try_from(chunks).expect("at most 2^20 chunks");
        // Where rows are as wide as 4 words, 16 bytes a row are the price of a chunk that is half full.
        let rows_min = CHUNK_KEYS * words as u64 / (words as u64 + 4);
        Self {
            first_key: keys.start,
            words,
            of_words: Multiples::new(u32::try_from(words).expect("a row has less than 2^32 words")),
            rows_min: u32::try_from(rows_min).expect("at most as many as keys"),
            directory: Vec::new(),
            chunks,
            blocks: Vec::new(),
            free: Vec::new(),
            rows: 0,
        }
    }

    /// Rows in dense chunks.
    pub(crate) fn len(&self) -> usize {
        self.rows
    }

    /// Chunk of a key of the table, and its place in there.
    #[inline]
    fn split(&self, key: u64) -> (usize, usize) {
        let offset = key - self.first_key;
        let chunk = usize::try_from(offset / CHUNK_KEYS).unwrap_or(usize::MAX);
        (chunk, usize::try_from(offset % CHUNK_KEYS).expect("it is below the keys of a chunk"))
    }

    /// The row of a key of the table.
    #[inline]
    pub(crate) fn find(&self, key: u64) -> Found {
        let (chunk, at) = self.split(key);
        let entry = self.directory.get(chunk).copied().unwrap_or(0);
        if entry & DENSE == 0 {
            return Found::Elsewhere;
        }
        let place = self.place(entry, at);
        if entry & FULL == 0 && !self.blocks[place.block as usize].has(at) {
            return Found::Nothing;
        }
        Found::Row(place)
    }

    #[inline]
    fn place(&self, entry: u32, at: usize) -> DensePlace {
        let start = u32::try_from(at * self.words).expect("a block has less than 2^32 words");
        DensePlace { block: entry & !(DENSE | FULL), start }
    }

    #[inline]
    pub(crate) fn row(&self, place: DensePlace) -> &[u32] {
        let start = place.start as usize;
        &self.blocks[place.block as usize].words[start..start + self.words]
    }

    #[inline]
    pub(crate) fn row_mut(&mut self, place: DensePlace) -> &mut [u32] {
        let start = place.start as usize;
        &mut self.blocks[place.block as usize].words[start..start + self.words]
    }

    /// Makes the row of a key that has none, all zero, in a chunk that is dense.
    pub(crate) fn insert(&mut self, key: u64) -> DensePlace {
        let (chunk, at) = self.split(key);
        let place = self.place(self.directory[chunk], at);
        let block = &mut self.blocks[place.block as usize];
        block.bits[at / 32] |= 1 << (at % 32);
        block.rows += 1;
        if u64::from(block.rows) == CHUNK_KEYS {
            self.directory[chunk] |= FULL;
        }
        self.rows += 1;
        place
    }

    /// Removes the row of a key, if its chunk is dense and has it.
    pub(crate) fn remove(&mut self, key: u64) -> bool {
        let Found::Row(place) = self.find(key) else { return false };
        self.row_mut(place).fill(0);
        let (chunk, at) = self.split(key);
        let block = &mut self.blocks[place.block as usize];
        block.bits[at / 32] &= !(1 << (at % 32));
        block.rows -= 1;
        self.directory[chunk] &= !FULL;
        self.rows -= 1;
        true
    }

    /// Counts a row that was made elsewhere, and says whether its chunk should now be dense.
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
        // Chunks do not all become dense at the same number of rows, for one batch would then have to move very many.
        let keys = u32::try_from(CHUNK_KEYS).expect("it is below 2^32");
        let spread = u32::try_from(hash_of(chunk as u64) % u64::from((keys - self.rows_min) / 2 + 1));
        let limit = self.rows_min + spread.expect("less than the keys of a chunk");
        (entry & DENSE == 0 && entry > limit)
            .then(|| Crowd { keys: self.chunk_of(key), beyond: entry - limit })
    }

    /// The keys of the chunk of the first of these keys, if it is not dense and the next ones, in rising order, are enough to
    /// make it so.
    pub(crate) fn half_of_chunk(&self, keys: &[u64]) -> Option<Range<u64>> {
        let key = *keys.first()?;
        let (chunk, _) = self.split(key);
        if chunk >= self.chunks || self.directory.get(chunk).is_some_and(|entry| entry & DENSE != 0) {
            return None;
        }
        let of_chunk = self.chunk_of(key);
        let half = keys.get(self.rows_min as usize)?;
        let rising = keys[..=self.rows_min as usize].is_sorted_by(|one, next| one < next);
        (rising && of_chunk.contains(half)).then_some(of_chunk)
    }

    fn make_directory(&mut self) {
        if self.directory.is_empty() {
            self.directory = vec![0; self.chunks];
        }
    }

    fn chunk_of(&self, key: u64) -> Range<u64> {
        let (chunk, _) = self.split(key);
        let first = self.first_key + chunk as u64 * CHUNK_KEYS;
        first..first.saturating_add(CHUNK_KEYS)
    }

    /// Where a row is among all rows that dense chunks have room for. It never changes.
    #[inline]
    pub(crate) fn position(&self, place: DensePlace) -> usize {
        place.block as usize * CHUNK + self.of_words.quotient(place.start) as usize
    }

    /// How many rows they have room for.
    pub(crate) fn positions(&self) -> usize {
        self.blocks.len() * CHUNK
    }

    /// Which of the 64 positions from one on, a multiple of 64, have rows: a bit each.
    pub(crate) fn rows_from(&self, position: usize) -> u64 {
        let (block, at) = (&self.blocks[position / CHUNK], position % CHUNK / 32);
        let bits = |at| u64::from(block.bits.get(at).copied().unwrap_or(0));
        bits(at) | bits(at + 1) << 32
    }

    /// Key and words of the row at a position, which is there.
    pub(crate) fn row_at(&self, position: usize) -> (u64, &[u32]) {
        let (block, at) = (&self.blocks[position / CHUNK], position % CHUNK);
        let first = self.first_key + u64::from(block.chunk) * CHUNK_KEYS;
        (first + at as u64, &block.words[at * self.words..(at + 1) * self.words])
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
        let (words, bits) = (vec![0; CHUNK * self.words].into(), vec![0; BITS_WORDS].into());
        let of = u32::try_from(chunk).expect("at most 2^20 chunks");
        let block = Block { chunk: of, rows: 0, words, bits };
        let number = match self.free.pop() {
            Some(number) => {
                self.blocks[number as usize] = block;
                number
            }
            None => {
                self.blocks.push(block);
                u32::try_from(self.blocks.len() - 1).expect("at most 2^20 blocks")
            }
        };
        self.directory[chunk] = DENSE | number;
    }

    /// The chunk of a key, if it is dense and should not be: its rows are a quarter of those that would make it so.
    pub(crate) fn thin(&self, key: u64) -> Option<Thin> {
        let entry = *self.directory.get(self.split(key).0)?;
        let rows_max = self.rows_min / 4;
        if entry & DENSE == 0 {
            return None;
        }
        let rows = self.blocks[self.place(entry, 0).block as usize].rows;
        (rows <= rows_max).then_some(Thin { is_just: rows == rows_max })
    }

    /// Keys, positions and words of the rows of a dense chunk, of which `key` is one.
    pub(crate) fn rows_of_chunk(&self, key: u64) -> impl Iterator<Item = (u64, usize, &[u32])> {
        let block = self.place(self.directory[self.split(key).0], 0).block as usize;
        let rows = (0..CHUNK).filter(move |at| self.blocks[block].has(*at));
        rows.map(move |at| {
            let (key, words) = self.row_at(block * CHUNK + at);
            (key, block * CHUNK + at, words)
        })
    }

    /// Makes the chunk of a key one that is not dense. Its rows were copied to elsewhere.
    pub(crate) fn close(&mut self, key: u64) {
        let chunk = self.split(key).0;
        let number = self.place(self.directory[chunk], 0).block;
        let block = &mut self.blocks[number as usize];
        self.directory[chunk] = block.rows;
        self.rows -= block.rows as usize;
        *block = Block { chunk: 0, rows: 0, words: Box::default(), bits: Box::default() };
        self.free.push(number);
    }

    /// Keys and rows of all dense chunks.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &[u32])> {
        self.blocks.iter().flat_map(move |block| {
            let first = self.first_key + u64::from(block.chunk) * CHUNK_KEYS;
            let rows = block.words.chunks_exact(self.words).enumerate();
            rows.filter(|(at, _)| block.has(*at)).map(move |(at, row)| (first + at as u64, row))
        })
    }

    /// Bytes that they take. Of the directory, memory of chunks that never had a row is not touched; it counts all the same.
    pub(crate) fn memory_bytes(&self) -> usize {
        let words: usize = self.blocks.iter().map(|block| block.words.len() + block.bits.len()).sum();
        (words + self.directory.capacity()) * size_of::<u32>() + self.blocks.capacity() * size_of::<Block>()
    }
}

impl Block {
    #[inline]
    fn has(&self, at: usize) -> bool {
        self.bits[at / 32] >> (at % 32) & 1 == 1
    }
}
