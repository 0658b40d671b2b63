//! Rows drawn from several pieces at once.

use std::borrow::Borrow;
use std::collections::VecDeque;

use crate::columns::Columns;
use crate::dataset::{Chunk, ChunkReader, DataSet, Readers};
use crate::error::DataError;
use crate::hash::Random;

/// Extent of a [`Shuffle`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShuffleSettings {
    /// Pieces that are open at once: at least 1.
    pub open: usize,
    /// Rows of each of them that are in memory, at least 1.
    pub rows: usize,
}

impl Default for ShuffleSettings {
    fn default() -> Self {
        Self { open: 16, rows: 1 << 12 }
    }
}

/// Draws the rows of pieces, each once, in an order that follows from the order of the pieces and the seed. A piece is rows that follow one another, of one chunk or of
/// several; the order is the same wherever chunks end.
///
/// Each open piece has a block of rows in memory, in a random order. The next row is the next one of a block that is drawn by how many
/// rows its piece has left, in memory or not: pieces that are open at once end at about the same time, and all batches have the same
/// mixture. An empty block is filled from its piece, and from the next pieces if that ends: so short pieces are mixed as well as long
/// ones.
pub struct Shuffle<S, I> {
    set: S,
    pieces: I,
    settings: ShuffleSettings,
    random: Random,
    blocks: Vec<Block>,
    readers: Readers,
    /// Rows in the order of the file, on their way to a block.
    read: Columns,
    /// Rows of each block for the batch, in the order of the batch.
    drawn: Vec<(u32, u32)>,
}

/// The rows of an open piece that are in memory.
#[derive(Default)]
struct Block {
    /// Chunks of the piece that are not open yet.
    chunks: VecDeque<Chunk>,
    reader: Option<ChunkReader>,
    /// Rows in the order in which they are drawn. They are brought into it column by column: rows from all over a block would each miss the cache in every column.
    columns: Columns,
    /// The next of them.
    next: usize,
    /// Rows of the piece that are not in memory yet.
    unread: u64,
}

impl<S: Borrow<DataSet>, I: Iterator<Item = Vec<Chunk>>> Shuffle<S, I> {
    /// Draws from pieces of a set, which may come while others are read.
    pub fn new(set: S, pieces: I, seed: u64) -> Self {
        Self::with_settings(set, pieces, seed, ShuffleSettings::default())
    }

    /// The same with another extent.
    pub fn with_settings(set: S, pieces: I, seed: u64, settings: ShuffleSettings) -> Self {
        let settings = ShuffleSettings { open: settings.open.max(1), rows: settings.rows.max(1) };
        let (random, readers) = (Random::new(seed), Readers::default());
        let (blocks, read, drawn) = (Vec::new(), Columns::default(), Vec::new());
        Self { set, pieces, settings, random, blocks, readers, read, drawn }
    }

    /// Draws from other pieces, as one that is new would. Of those that begin where a piece ended, the row group is not read again.
    pub fn go_on(&mut self, pieces: I, seed: u64) {
        self.pieces = pieces;
        self.random = Random::new(seed);
        self.blocks.drain(..).filter_map(|block| block.reader).for_each(|reader| self.readers.keep(reader));
    }

    /// Replaces `batch` by the next rows: `rows` of them, or fewer at the end; `false` if there are none.
    ///
    /// # Errors
    /// A chunk cannot be read.
    pub fn next_batch(&mut self, rows: usize, batch: &mut Columns) -> Result<bool, DataError> {
        let schema = self.set.borrow().schema();
        if batch.categories.len() != schema.categories.len() || batch.numbers.len() != schema.numbers.len() {
            *batch = schema.columns();
        }
        batch.clear();
        while batch.rows() < rows {
            self.fill()?;
            let left: u64 = self.blocks.iter().map(Block::left_of_piece).sum();
            if left == 0 {
                break;
            }
            // Rows are drawn until a block is empty: then it is filled again.
            self.drawn.clear();
            for left in (1..=left).rev().take(rows - batch.rows()) {
                let (place, row) = self.draw(left);
                self.drawn.push((place, row));
                if self.blocks[place as usize].left() == 0 {
                    break;
                }
            }
            batch.push_drawn(|place| &self.blocks[place as usize].columns, &self.drawn);
        }
        Ok(batch.rows() > 0)
    }

    /// Fills empty blocks; those for which there are no rows are closed.
    fn fill(&mut self) -> Result<(), DataError> {
        let Self { set, pieces, settings, random, blocks, readers, read, .. } = self;
        let (set, rows) = ((*set).borrow(), settings.rows);
        let mut read = (readers, read);
        while blocks.len() < settings.open {
            let mut block = Block { columns: set.schema().columns(), ..Block::default() };
            if !block.fill(set, &mut read, pieces, rows, random)? {
                break;
            }
            blocks.push(block);
        }
        let mut place = 0;
        while place < blocks.len() {
            if blocks[place].left() == 0 && !blocks[place].fill(set, &mut read, pieces, rows, random)? {
                blocks.remove(place);
            } else {
                place += 1;
            }
        }
        Ok(())
    }

    fn draw(&mut self, left: u64) -> (u32, u32) {
        let mut drawn = self.random.below(left);
        for (place, block) in self.blocks.iter_mut().enumerate() {
            let rows = block.left_of_piece();
            if drawn < rows {
                let row = block.next;
                block.next += 1;
                let short = |number: usize| u32::try_from(number).expect("few blocks, and few rows");
                return (short(place), short(row));
            }
            drawn -= rows;
        }
        unreachable!("the number is below the sum of all rows")
    }
}

impl Block {
    /// Reads rows of the piece, and of those that follow, until the block is full; `false` if there are none.
    fn fill(
        &mut self,
        set: &DataSet,
        (readers, read): &mut (&mut Readers, &mut Columns),
        pieces: &mut impl Iterator<Item = Vec<Chunk>>,
        rows: usize,
        random: &mut Random,
    ) -> Result<bool, DataError> {
        if read.categories.is_empty() && read.numbers.is_empty() {
            **read = set.schema().columns();
        }
        read.clear();
        self.columns.clear();
        self.next = 0;
        while read.rows() < rows {
            if let Some(reader) = &mut self.reader {
                match reader.read(rows - read.rows(), read)? {
                    0 => readers.keep(self.reader.take().expect("it is open")),
                    more => self.unread -= more as u64,
                }
            } else if let Some(chunk) = self.chunks.pop_front() {
                self.reader = Some(readers.open(set, &chunk)?);
            } else if let Some(piece) = pieces.next() {
                self.unread += piece.iter().map(|chunk| chunk.rows).sum::<u64>();
                self.chunks = piece.into();
            } else {
                break;
            }
        }
        let rows = u32::try_from(read.rows()).expect("a block has fewer than 2^32 rows");
        let mut order: Vec<u32> = (0..rows).collect();
        random.shuffle(&mut order);
        self.columns.push_rows(read, &order);
        Ok(rows > 0)
    }

    /// Rows in memory that were not drawn.
    fn left(&self) -> usize {
        self.columns.rows() - self.next
    }

    /// Rows of the piece that were not drawn.
    fn left_of_piece(&self) -> u64 {
        self.left() as u64 + self.unread
    }
}

impl<S, I> std::fmt::Debug for Shuffle<S, I> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Shuffle").field("settings", &self.settings).finish_non_exhaustive()
    }
}
