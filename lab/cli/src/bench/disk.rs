//! The limit of a disk: reads at random places, with nothing of them in memory.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rustix::fs::OFlags;

/// Reads under way at once.
pub(super) const DEPTH: u16 = 32;
const BLOCK_BYTES: usize = 4096;
const WRITTEN_BLOCKS: usize = 256;
/// Of a file, at most: a gigabyte.
const BLOCKS_MAX: u64 = 1 << 18;

/// A file that is read past the cache of the kernel.
pub(super) struct RandomReads {
    file: File,
    blocks: u64,
}

impl RandomReads {
    /// Of a new file without a name in this directory, of about so many bytes if that is not too much.
    pub(super) fn new(directory: &Path, bytes: u64) -> Result<Self> {
        let written = WRITTEN_BLOCKS as u64;
        let blocks = (bytes / BLOCK_BYTES as u64).clamp(1, BLOCKS_MAX).next_multiple_of(written);
        let path = directory.join("random-reads");
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).custom_flags(OFlags::DIRECT.bits().cast_signed());
        let file = options.open(&path).with_context(|| format!("cannot create {}", path.display()))?;
        std::fs::remove_file(&path)?;
        let (memory, start) = aligned(WRITTEN_BLOCKS * BLOCK_BYTES);
        for block in (0..blocks).step_by(WRITTEN_BLOCKS) {
            let bytes = &memory[start..start + WRITTEN_BLOCKS * BLOCK_BYTES];
            let written = file.write_all_at(bytes, block * BLOCK_BYTES as u64);
            written.with_context(|| format!("cannot write {}", path.display()))?;
        }
        file.sync_all()?;
        Ok(Self { file, blocks })
    }

    /// Reads blocks for a time, so many at once, and returns how many a second.
    pub(super) fn per_second(&self, time: Duration) -> Result<f64> {
        let began = Instant::now();
        let read = |seed: u64| -> Result<u32> {
            let mut random = SmallRng::seed_from_u64(seed);
            let (mut memory, start) = aligned(BLOCK_BYTES);
            let mut count = 0;
            while began.elapsed() < time {
                let block = random.random_range(0..self.blocks);
                self.file
                    .read_exact_at(&mut memory[start..start + BLOCK_BYTES], block * BLOCK_BYTES as u64)?;
                count += 1;
            }
            Ok(count)
        };
        let count: Result<f64> = thread::scope(|scope| {
            let readers: Vec<_> = (0..DEPTH).map(|seed| scope.spawn(move || read(seed.into()))).collect();
            let counts = readers.into_iter().map(|reader| reader.join().expect("it does not panic"));
            counts.map(|count| count.map(f64::from)).sum()
        });
        Ok(count.context("cannot read the file")? / began.elapsed().as_secs_f64())
    }
}

/// Memory for so many bytes as direct reads want them, and where they begin.
fn aligned(bytes: usize) -> (Vec<u8>, usize) {
    let memory = vec![1; bytes + BLOCK_BYTES];
    let start = memory.as_ptr().align_offset(BLOCK_BYTES);
    (memory, start)
}
