//! Rows drawn from several chunks at once.

use crate::columns::Columns;
use crate::dataset::{Chunk, ChunkReader, DataSet};
use crate::error::DataError;
use crate::hash::Random;

/// Extent of a [`Shuffle`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShuffleSettings {
    /// Chunks that are open at once: at least 1.
    pub open: usize,
    /// Rows of each of them that are in memory, at least 1.
    pub rows: usize,
}

impl Default for ShuffleSettings {
    fn default() -> Self {
        Self { open: 8, rows: 1 << 13 }
    }
}

/// Draws the rows of chunks, each once, in an order that follows from the order of the chunks and the seed.
///
/// Each open chunk has a block of rows in memory, in a random order. The next row is the next one of a block that is drawn by how many
/// rows it has left. An empty block is filled from its chunk, and from the next chunks if that ends: so small row groups are mixed as
/// well as large ones.
pub struct Shuffle<'a, I> {
    set: &'a DataSet,
    chunks: I,
    settings: ShuffleSettings,
    random: Random,
    blocks: Vec<Block>,
    /// Rows of each block for the batch, in the order of the batch.
    drawn: Vec<(u32, u32)>,
}

/// The rows of an open chunk that are in memory.
struct Block {
    reader: Option<ChunkReader>,
    columns: Columns,
    /// Rows that are left, the next one last.
    rows: Vec<u32>,
}

impl<'a, I: Iterator<Item = Chunk>> Shuffle<'a, I> {
    /// Draws from chunks of a set, which may come while others are read.
    pub fn new(set: &'a DataSet, chunks: I, seed: u64) -> Self {
        Self::with_settings(set, chunks, seed, ShuffleSettings::default())
    }

    /// The same with another extent.
    pub fn with_settings(set: &'a DataSet, chunks: I, seed: u64, settings: ShuffleSettings) -> Self {
        let settings = ShuffleSettings { open: settings.open.max(1), rows: settings.rows.max(1) };
        Self { set, chunks, settings, random: Random::new(seed), blocks: Vec::new(), drawn: Vec::new() }
    }

    /// Replaces `batch` by the next rows: `rows` of them, or fewer at the end; `false` if there are none.
    ///
    /// # Errors
    /// A chunk cannot be read.
    pub fn next_batch(&mut self, rows: usize, batch: &mut Columns) -> Result<bool, DataError> {
        if batch.categories.len() != self.set.schema().categories.len()
            || batch.numbers.len() != self.set.schema().numbers.len()
        {
            *batch = self.set.schema().columns();
        }
        batch.clear();
        while batch.rows() < rows {
            self.fill()?;
            let left: u64 = self.blocks.iter().map(|block| block.rows.len() as u64).sum();
            if left == 0 {
                break;
            }
            // Rows are drawn until a block is empty: then it is filled again.
            self.drawn.clear();
            for left in (1..=left).rev().take(rows - batch.rows()) {
                let (place, row) = self.draw(left);
                self.drawn.push((place, row));
                if self.blocks[place as usize].rows.is_empty() {
                    break;
                }
            }
            self.move_to(batch);
        }
        Ok(batch.rows() > 0)
    }

    /// Fills empty blocks; those for which there are no rows are closed.
    fn fill(&mut self) -> Result<(), DataError> {
        while self.blocks.len() < self.settings.open {
            let mut block = Block { reader: None, columns: self.set.schema().columns(), rows: Vec::new() };
            if !block.fill(self.set, &mut self.chunks, self.settings.rows, &mut self.random)? {
                break;
            }
            self.blocks.push(block);
        }
        let mut place = 0;
        while place < self.blocks.len() {
            let block = &mut self.blocks[place];
            let (set, rows) = (self.set, self.settings.rows);
            if block.rows.is_empty() && !block.fill(set, &mut self.chunks, rows, &mut self.random)? {
                self.blocks.remove(place);
            } else {
                place += 1;
            }
        }
        Ok(())
    }

    fn draw(&mut self, left: u64) -> (u32, u32) {
        let mut drawn = self.random.below(left);
        for (place, block) in self.blocks.iter_mut().enumerate() {
            let rows = block.rows.len() as u64;
            if drawn < rows {
                let row = block.rows.pop().expect("a block that is drawn has rows");
                return (u32::try_from(place).expect("few blocks"), row);
            }
            drawn -= rows;
        }
        unreachable!("the number is below the sum of all rows")
    }

    fn move_to(&self, batch: &mut Columns) {
        let mut rows = Vec::new();
        let mut drawn = &self.drawn[..];
        // Neighbours of one block are moved together.
        while let Some(&(place, _)) = drawn.first() {
            let length = drawn.iter().take_while(|(other, _)| *other == place).count();
            rows.clear();
            rows.extend(drawn[..length].iter().map(|(_, row)| *row));
            batch.push_rows(&self.blocks[place as usize].columns, &rows);
            drawn = &drawn[length..];
        }
    }
}

impl Block {
    /// Reads rows of the chunk, and of those that follow, until the block is full; `false` if there are none.
    fn fill(
        &mut self,
        set: &DataSet,
        chunks: &mut impl Iterator<Item = Chunk>,
        rows: usize,
        random: &mut Random,
    ) -> Result<bool, DataError> {
        self.columns.clear();
        while self.columns.rows() < rows {
            if self.reader.is_none() {
                let Some(chunk) = chunks.next() else { break };
                self.reader = Some(set.read(&chunk)?);
            }
            let reader = self.reader.as_mut().expect("opened above");
            if reader.read(rows - self.columns.rows(), &mut self.columns)? == 0 {
                self.reader = None;
            }
        }
        self.rows.extend(0..u32::try_from(self.columns.rows()).expect("a block has fewer than 2^32 rows"));
        random.shuffle(&mut self.rows);
        Ok(!self.rows.is_empty())
    }
}

impl<I> std::fmt::Debug for Shuffle<'_, I> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Shuffle").field("settings", &self.settings).finish_non_exhaustive()
    }
}
