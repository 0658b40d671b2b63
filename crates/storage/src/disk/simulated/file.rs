//! One file: its contents now, and after a crash.

use std::ops::Range;

#[derive(Debug, Clone, Default)]
pub(super) struct SimulatedFile {
    data: Vec<u8>,
    /// This much of `data` is durable.
    synced: usize,
    /// The durable contents before a cut that is not durable.
    uncut: Option<Vec<u8>>,
    /// Parts of `data` that a failed sync forgot to write.
    forgotten: Vec<Range<usize>>,
}

impl SimulatedFile {
    pub(super) fn durable(bytes: &[u8]) -> Self {
        Self { data: bytes.to_vec(), synced: bytes.len(), ..Self::default() }
    }

    pub(super) fn data(&self) -> &[u8] {
        &self.data
    }

    pub(super) fn append(&mut self, bytes: &[u8]) {
        self.data.extend_from_slice(bytes);
    }

    pub(super) fn truncate(&mut self, bytes: usize) {
        if bytes < self.synced {
            self.uncut.get_or_insert_with(|| self.data[..self.synced].to_vec());
            self.synced = bytes;
        }
        self.data.truncate(bytes);
        for range in &mut self.forgotten {
            range.end = range.end.min(bytes);
        }
        self.forgotten.retain(|range| !range.is_empty());
    }

    pub(super) fn sync(&mut self) {
        self.synced = self.data.len();
        self.uncut = None;
    }

    /// Bytes that are not durable will not be written, though they are read as before.
    pub(super) fn forget_unsynced(&mut self) {
        self.forgotten.push(self.synced..self.data.len());
    }

    pub(super) fn flip_bit(&mut self, offset: usize, bit: u32) {
        self.data[offset] ^= 1 << (bit % 8);
    }

    /// Loses bytes that may be lost: see `SimulatedDisk`.
    pub(super) fn crash(&mut self, sector_bytes: usize, choose: &mut dyn FnMut(usize) -> usize) {
        for range in std::mem::take(&mut self.forgotten) {
            self.data[range].fill(0);
        }
        if let Some(uncut) = self.uncut.take()
            && choose(2) == 0
        {
            let mut data = uncut;
            // Bytes that came after the cut may be there, and behind them those that were cut off.
            let over = (self.data.len() - self.synced).min(data.len() - self.synced);
            if over > 0 && choose(2) == 1 {
                data[self.synced..][..over].copy_from_slice(&self.data[self.synced..][..over]);
            }
            *self = Self::durable(&data);
            return;
        }
        let tail = self.data.len() - self.synced;
        if tail > 0 {
            self.data.truncate(self.synced + choose(tail + 1));
            let mut start = self.synced;
            while start < self.data.len() {
                let end = ((start / sector_bytes + 1) * sector_bytes).min(self.data.len());
                match choose(3) {
                    0 => {}
                    1 => self.data[start..end].fill(0),
                    _ => noise(&mut self.data[start..end], start),
                }
                start = end;
            }
        }
        self.synced = self.data.len();
    }
}

/// Fills a place with bytes that were written to it for something else, once. They differ from those before.
fn noise(bytes: &mut [u8], offset: usize) {
    let mut state = u32::try_from(offset % (1 << 31)).expect("31 bits").wrapping_mul(0x9e37_79b9) | 1;
    for byte in bytes {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        *byte ^= state.to_le_bytes()[1] | 1;
    }
}
