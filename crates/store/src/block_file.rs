//! The file in which a store with a memory limit keeps rows that were not used for long.

use std::fmt::Debug;

use thiserror::Error;

/// Words of a block that the store uses. The others are for what a file adds, such as a checksum.
pub const BLOCK_WORDS: usize = Block::WORDS - 2;

/// The unit of reads and writes, aligned as direct I/O wants it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[repr(C, align(4096))]
pub struct Block(pub [u32; Self::WORDS]);

impl Block {
    /// Words of a block.
    pub const WORDS: usize = 1024;
    /// One of zeros.
    pub const ZERO: Self = Self([0; Self::WORDS]);
}

/// Blocks with numbers. The file extends memory: nothing in it is needed after its process, and nothing has to be durable.
pub trait BlockFile: Debug + Send {
    /// Makes room for the blocks below a number, so that writes to them do not find the disk full.
    ///
    /// # Errors
    /// The disk refused or is full. Blocks that had room are as they were.
    fn reserve(&mut self, blocks: u32) -> Result<(), BlockFileError>;

    /// Reads blocks that were written, in this order; numbers rise, and each comes once.
    ///
    /// # Errors
    /// The disk refused, or what it returned is not what was written.
    fn read(&mut self, numbers: &[u32], blocks: &mut [Block]) -> Result<(), BlockFileError>;

    /// Writes blocks below the reserved number; numbers rise, and each comes once. Only the first [`BLOCK_WORDS`] words of each are read again.
    ///
    /// # Errors
    /// The disk refused or is full. Any of the blocks may have been written.
    fn write(&mut self, numbers: &[u32], blocks: &mut [Block]) -> Result<(), BlockFileError>;
}

/// A file did not do what it was asked.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[error("{reason}")]
pub struct BlockFileError {
    /// True if there was no room.
    pub is_full: bool,
    /// The attempt, with file and block, and the error of the system.
    pub reason: String,
}

/// A file in memory that fails when it is told to, for tests.
#[derive(Debug, Clone, Default)]
pub struct SimulatedBlockFile {
    blocks: Vec<Block>,
    /// It is full with so many blocks.
    pub blocks_max: Option<u32>,
    /// So many reads go well, then all fail.
    pub reads_left: Option<u32>,
    /// So many writes go well, then all fail.
    pub writes_left: Option<u32>,
}

impl SimulatedBlockFile {
    fn count(left: &mut Option<u32>, what: &str) -> Result<(), BlockFileError> {
        match left {
            Some(0) => {
                Err(BlockFileError { is_full: false, reason: format!("cannot {what} the simulated file") })
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl BlockFile for SimulatedBlockFile {
    fn reserve(&mut self, blocks: u32) -> Result<(), BlockFileError> {
        if self.blocks_max.is_some_and(|most| blocks > most) {
            return Err(BlockFileError { is_full: true, reason: "the simulated file is full".to_owned() });
        }
        self.blocks.resize(blocks as usize, Block::ZERO);
        Ok(())
    }

    fn read(&mut self, numbers: &[u32], blocks: &mut [Block]) -> Result<(), BlockFileError> {
        Self::count(&mut self.reads_left, "read")?;
        assert!(numbers.is_sorted_by(|one, next| one < next), "numbers rise");
        for (number, block) in numbers.iter().zip(blocks) {
            block.clone_from(&self.blocks[*number as usize]);
        }
        Ok(())
    }

    fn write(&mut self, numbers: &[u32], blocks: &mut [Block]) -> Result<(), BlockFileError> {
        Self::count(&mut self.writes_left, "write")?;
        assert!(numbers.is_sorted_by(|one, next| one < next), "numbers rise");
        for (number, block) in numbers.iter().zip(blocks) {
            self.blocks[*number as usize].clone_from(block);
        }
        Ok(())
    }
}
