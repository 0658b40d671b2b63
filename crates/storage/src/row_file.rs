//! The file of the rows for which a server has no memory: blocks past the cache of the kernel, many at a time.
//!
//! It has a name only while it is made, so nothing of it is left when its process ends, in whichever way.

mod requests;

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use libra_proto::MemoryLimit;
use libra_store::{BLOCK_WORDS, Block, BlockFile, BlockFileError};
use rustix::fs::{FallocateFlags, OFlags, fallocate, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, retry_on_intr};

use self::requests::{RUN_BLOCKS, Run};
use crate::disk::{DIRECTORY_MODE, DiskError, FILE_MODE, Operation, is_full, is_refused};

const BLOCK_BYTES: u64 = size_of::<Block>() as u64;
/// Place of the checksum; the number of the block is before it.
const CHECKSUM: usize = Block::WORDS - 1;

const _: () = assert!(BLOCK_WORDS + 2 == Block::WORDS, "number and checksum");

/// The memory limit of a process, and the directory of the files for its other rows.
#[derive(Debug, Clone)]
pub struct RowFiles {
    directory: PathBuf,
    memory_limit: u64,
    is_direct: bool,
}

impl RowFiles {
    /// Files in this directory, which is made if there is none, for a process whose rows may take so many bytes of memory.
    ///
    /// # Errors
    /// There can be no such files.
    pub fn new(directory: &Path, memory_limit: u64) -> Result<Self, DiskError> {
        let made = DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(directory);
        let path = || directory.display().to_string();
        made.map_err(|cause| DiskError { operation: Operation::CreateDirectory, path: path(), cause })?;
        let files = Self { directory: directory.to_owned(), memory_limit, is_direct: false };
        let is_direct = files.create()?.is_direct()?;
        Ok(Self { is_direct, ..files })
    }

    /// Describes what the file system does not do, for a person; none if rows are read and written past the cache of the kernel.
    pub fn lacks(&self) -> Option<String> {
        let directory = self.directory.display();
        (!self.is_direct).then(|| {
            format!("the file system of {directory} has no direct I/O: the cache of the kernel has the rows on disk, too")
        })
    }

    /// The limit of one of so many shards of the process.
    ///
    /// # Errors
    /// Its file cannot be made.
    pub fn limit_of_shard(&self, process_shards: u16) -> Result<MemoryLimit, DiskError> {
        let bytes = self.memory_limit / u64::from(process_shards);
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        Ok(MemoryLimit { bytes, process_shards, file: Box::new(self.create()?) })
    }

    fn create(&self) -> Result<RealBlockFile, DiskError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = self.directory.join(format!("rows-{}-{count}", std::process::id()));
        match create_unnamed(&path) {
            Ok(file) => Ok(RealBlockFile { file: Arc::new(file), path, reserved: 0 }),
            Err(cause) => {
                Err(DiskError { operation: Operation::Create, path: path.display().to_string(), cause })
            }
        }
    }
}

/// Makes a file that is read and written past the cache, if the file system can, and takes its name away.
fn create_unnamed(path: &Path) -> io::Result<File> {
    let create = |flags: OFlags| {
        // Of a process with the same number that ended in this function.
        let _ = std::fs::remove_file(path);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(FILE_MODE);
        options.custom_flags(flags.bits().cast_signed()).open(path)
    };
    let file = match create(OFlags::DIRECT) {
        Err(error) if is_refused(&error) => create(OFlags::empty())?,
        file => file?,
    };
    std::fs::remove_file(path)?;
    // Some file systems refuse only here. A full disk is for later.
    let flags = fcntl_getfl(&file)?;
    let written = file.write_all_at(bytemuck::cast_slice(&Block::ZERO.0), 0);
    if flags.contains(OFlags::DIRECT) && written.is_err_and(|error| is_refused(&error)) {
        fcntl_setfl(&file, flags.difference(OFlags::DIRECT))?;
    }
    Ok(file)
}

/// A file of rows. Of each block the last two words are its number and its checksum.
#[derive(Debug)]
struct RealBlockFile {
    file: Arc<File>,
    path: PathBuf,
    reserved: u32,
}

impl RealBlockFile {
    fn is_direct(&self) -> Result<bool, DiskError> {
        let flags = fcntl_getfl(&self.file).map_err(|error| DiskError {
            operation: Operation::Open,
            path: self.path.display().to_string(),
            cause: error.into(),
        })?;
        Ok(flags.contains(OFlags::DIRECT))
    }

    fn error(&self, operation: &str, first: u32, error: io::Error) -> BlockFileError {
        failed(format!("cannot {operation} block {first} of {}", self.path.display()), error)
    }

    /// Finds what is wrong with a block that was read.
    fn check(&self, number: u32, block: &Block) -> Result<(), BlockFileError> {
        let found = block.0[BLOCK_WORDS];
        let wrong = if checksum(block) != block.0[CHECKSUM] {
            "its checksum is wrong".to_owned()
        } else if found != number {
            format!("block {found} is there instead")
        } else {
            return Ok(());
        };
        Err(self.error("read", number, io::Error::new(io::ErrorKind::InvalidData, wrong)))
    }
}

/// Neighbours among blocks of these numbers.
fn runs<'b>(numbers: &[u32], mut blocks: &'b mut [Block]) -> Vec<Run<'b>> {
    let neighbours = numbers.chunk_by(|one, next| one + 1 == *next).flat_map(|run| run.chunks(RUN_BLOCKS));
    let run = |numbers: &[u32]| {
        let (run, rest) = std::mem::take(&mut blocks).split_at_mut(numbers.len());
        blocks = rest;
        Run { first: numbers[0], blocks: run, result: Ok(()) }
    };
    neighbours.map(run).collect()
}

impl BlockFile for RealBlockFile {
    fn reserve(&mut self, blocks: u32) -> Result<(), BlockFileError> {
        let (begin, end) = (u64::from(self.reserved) * BLOCK_BYTES, u64::from(blocks) * BLOCK_BYTES);
        if end <= begin {
            return Ok(());
        }
        match retry_on_intr(|| fallocate(&self.file, FallocateFlags::empty(), begin, end - begin)) {
            Ok(()) => {}
            // The file system has no such request: blocks that are written have room.
            Err(Errno::OPNOTSUPP) => {
                let numbers: Vec<u32> = (self.reserved..blocks).collect();
                self.write(&numbers, &mut vec![Block::ZERO; numbers.len()])?;
            }
            Err(error) => {
                let attempted =
                    format!("cannot make room for block {} of {}", blocks - 1, self.path.display());
                return Err(failed(attempted, error.into()));
            }
        }
        self.reserved = blocks;
        Ok(())
    }

    fn read(&mut self, numbers: &[u32], blocks: &mut [Block]) -> Result<(), BlockFileError> {
        let mut runs = runs(numbers, blocks);
        let read = requests::read(&self.file, &mut runs);
        read.map_err(|error| self.error("read", numbers[0], error))?;
        for Run { first, blocks, result } in runs {
            result.map_err(|error| self.error("read", first, error))?;
            (first..).zip(&*blocks).try_for_each(|(number, block)| self.check(number, block))?;
        }
        Ok(())
    }

    fn write(&mut self, numbers: &[u32], blocks: &mut [Block]) -> Result<(), BlockFileError> {
        for (number, block) in numbers.iter().zip(&mut *blocks) {
            block.0[BLOCK_WORDS] = *number;
            block.0[CHECKSUM] = checksum(block);
        }
        let mut runs = runs(numbers, blocks);
        let written = requests::write(&self.file, &mut runs);
        written.map_err(|error| self.error("write", numbers[0], error))?;
        runs.into_iter().try_for_each(|Run { first, result, .. }| {
            result.map_err(|error| self.error("write", first, error))
        })
    }
}

/// Of all words before it.
fn checksum(block: &Block) -> u32 {
    crc32c::crc32c(bytemuck::cast_slice(&block.0[..CHECKSUM]))
}

fn failed(attempted: String, error: io::Error) -> BlockFileError {
    BlockFileError { is_full: is_full(&error), reason: format!("{attempted}: {error}") }
}

#[cfg(test)]
mod tests;
