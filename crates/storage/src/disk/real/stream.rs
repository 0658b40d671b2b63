//! A file that is written past the cache of the kernel.
//!
//! Data that goes through the cache is copied, and its memory may be new to the kernel or, in a virtual machine, to the host. It was measured
//! to take a quarter of the throughput of all other threads at 64 MB/s; past the cache it took nothing (`docs/benchmarks`).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

/// Offsets, lengths and memory of direct writes are multiples of this: no disk has larger sectors.
const ALIGNMENT: usize = 4096;
/// Bytes of one write.
const WRITE_BYTES: usize = 1 << 20;

/// A file that grows. Appended bytes may be in memory only until it is synced.
#[derive(Debug)]
pub(super) struct Stream {
    file: File,
    /// Bytes that are not written, or not as a whole block, in aligned memory of this.
    memory: Vec<u8>,
    /// Start of aligned memory.
    start: usize,
    filled: usize,
    /// Bytes of the file before those in memory.
    written: u64,
}

impl Stream {
    /// A new file. Where the file system has no direct writes, they go through the cache.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let flags = OFlags::DIRECT.bits().cast_signed();
        let create = |flags| {
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(super::FILE_MODE).custom_flags(flags).open(path)
        };
        let file = match create(flags) {
            // Some systems make the file before they refuse.
            Err(error) if is_refused(&error) => {
                std::fs::remove_file(path).or_else(|error| match error.kind() {
                    io::ErrorKind::NotFound => Ok(()),
                    _ => Err(error),
                })?;
                create(0)?
            }
            result => result?,
        };
        let memory = vec![0; WRITE_BYTES + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        Ok(Self { file, memory, start, filled: 0, written: 0 })
    }

    /// Adds bytes to the end.
    pub(super) fn append(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(WRITE_BYTES - self.filled));
            let at = self.start + self.filled;
            self.memory[at..at + now.len()].copy_from_slice(now);
            self.filled += now.len();
            bytes = later;
            if self.filled == WRITE_BYTES {
                self.write(WRITE_BYTES)?;
                self.written += WRITE_BYTES as u64;
                self.filled = 0;
            }
        }
        Ok(())
    }

    /// Writes all, and makes it durable.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if self.filled > 0 {
            // Beyond the end comes old memory, which is cut off.
            self.write(self.filled.next_multiple_of(ALIGNMENT))?;
            self.file.set_len(self.written + self.filled as u64)?;
        }
        self.file.sync_data()
    }

    /// Writes memory from its beginning.
    fn write(&self, bytes: usize) -> io::Result<()> {
        let memory = &self.memory[self.start..self.start + bytes];
        match self.file.write_all_at(memory, self.written) {
            // The file system wants it aligned in another way.
            Err(error) if is_refused(&error) => {
                let flags = fcntl_getfl(&self.file)?;
                fcntl_setfl(&self.file, flags.difference(OFlags::DIRECT))?;
                self.file.write_all_at(memory, self.written)
            }
            result => result,
        }
    }
}

/// Returns true if a file system refuses reads and writes past the cache.
pub(crate) fn is_refused(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported)
}
