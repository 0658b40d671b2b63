//! Reads a file from front to back without holding all of it.

use crate::disk::{Disk, DiskError, read_exact};

/// Read at once, if what is asked for is not longer.
const BLOCK: u64 = 1 << 20;

pub(super) struct Window<'a, D> {
    disk: &'a D,
    name: &'a str,
    /// Length of the file.
    bytes: u64,
    /// Place in the file at which `buffer` begins.
    start: u64,
    buffer: Vec<u8>,
}

impl<'a, D: Disk> Window<'a, D> {
    pub(super) fn new(disk: &'a D, name: &'a str) -> Result<Self, DiskError> {
        Ok(Self { disk, name, bytes: disk.bytes(name)?, start: 0, buffer: Vec::new() })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of the file; `None` if it ends before. So nothing is allocated that the file does not have.
    pub(super) fn at(&mut self, offset: u64, length: usize) -> Result<Option<&[u8]>, DiskError> {
        let Some(end) = offset.checked_add(length as u64).filter(|end| *end <= self.bytes) else {
            return Ok(None);
        };
        if offset < self.start || end > self.start + self.buffer.len() as u64 {
            let count = (self.bytes - offset).min(BLOCK.max(length as u64));
            self.buffer.resize(usize::try_from(count).expect("a block, or a record in memory"), 0);
            self.start = offset;
            read_exact(self.disk, self.name, offset, &mut self.buffer)?;
        }
        let from = usize::try_from(offset - self.start).expect("inside the buffer");
        Ok(Some(&self.buffer[from..from + length]))
    }
}
