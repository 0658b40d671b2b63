//! Directory of extendible hashing (Fagin and others 1979): from the first bits of a hash to a partition.
//!
//! A partition that is full splits in two, and the directory doubles when it has no bit left to tell them apart. So
//! what one insertion moves does not depend on how many rows there are, but for a doubled directory of 4 bytes for about a
//! thousand rows and more.

use std::mem::size_of;

/// Partitions of one allocation. They are not in one array, which would have to be copied when it grows.
const CHUNK: usize = 64;
/// Entries for each partition, at most. Where hashes are even there are at most 3.
const SHARE_MAX: usize = 16;

/// Murmur3's finaliser over a 64-bit key: a key is known by it.
///
/// It is a bijection: two keys never share all bits, so a partition that splits often enough becomes smaller.
/// It has no seed, for a store must be the same in each process. And it is not what deals keys to shards, which depends on
/// splitmix64's.
#[inline]
pub(crate) fn hash_of(key: u64) -> u64 {
    let mut hash = key;
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

/// The partitions of one table.
#[derive(Debug, Clone)]
pub(crate) struct Directory<P> {
    /// Partition of the hashes of each prefix; empty without rows, else of 2^`depth` entries.
    entries: Vec<u32>,
    depth: u32,
    /// All partitions, [`CHUNK`] in each but the last.
    chunks: Vec<Vec<P>>,
}

impl<P> Default for Directory<P> {
    fn default() -> Self {
        Self { entries: Vec::new(), depth: 0, chunks: Vec::new() }
    }
}

impl<P> Directory<P> {
    /// Returns the number of the partition of a hash; [`u32::MAX`] without rows.
    #[inline]
    pub(crate) fn number_of(&self, hash: u64) -> u32 {
        // In two steps, for a depth of 0.
        let prefix = (hash >> 1) >> (63 - self.depth);
        self.entries.get(usize::try_from(prefix).expect("at most 2^depth")).copied().unwrap_or(u32::MAX)
    }

    /// The partition of a hash; none without rows.
    #[inline]
    pub(crate) fn find(&self, hash: u64) -> Option<&P> {
        let number = self.number_of(hash) as usize;
        self.chunks.get(number / CHUNK)?.get(number % CHUNK)
    }

    /// The partition of a number.
    #[inline]
    pub(crate) fn partition_mut(&mut self, number: u32) -> &mut P {
        &mut self.chunks[number as usize / CHUNK][number as usize % CHUNK]
    }

    /// All partitions.
    pub(crate) fn partitions(&self) -> impl Iterator<Item = &P> + Clone {
        self.chunks.iter().flatten()
    }

    /// Makes the partition of all hashes, if there is none.
    #[inline]
    pub(crate) fn begin(&mut self, first: impl FnOnce() -> P) {
        if self.entries.is_empty() {
            self.entries.push(0);
            self.add(first());
        }
    }

    /// Makes sure that there is a bit that tells the halves of a partition of this depth apart. It does not where that would need
    /// a directory out of proportion: this only happens to keys that were chosen to collide.
    pub(crate) fn can_split(&mut self, depth: u32) -> bool {
        if depth == self.depth {
            if depth == 63 || self.entries.len() > SHARE_MAX * self.chunks.len() * CHUNK {
                return false;
            }
            self.entries = self.entries.iter().flat_map(|number| [*number; 2]).collect();
            self.depth += 1;
        }
        true
    }

    /// Adds the upper half of a partition of this depth, which has this prefix of one bit more.
    pub(crate) fn add_half(&mut self, depth: u32, prefix: u64, upper: P) -> u32 {
        let new = self.add(upper);
        // Those of the whole partition were adjacent, and this is their upper half.
        let width = 1_usize << (self.depth - depth - 1);
        let first = usize::try_from(prefix).expect("less than 2^depth") * width;
        self.entries[first..first + width].fill(new);
        new
    }

    fn add(&mut self, partition: P) -> u32 {
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let full = (self.chunks.len() - 1) * CHUNK;
        let last = self.chunks.last_mut().expect("pushed above");
        last.push(partition);
        u32::try_from(full + last.len() - 1).expect("fewer partitions than rows")
    }

    /// Number of entries.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Bytes that it takes, without what partitions own.
    pub(crate) fn memory_bytes(&self) -> usize {
        let partitions: usize = self.chunks.iter().map(Vec::capacity).sum();
        partitions * size_of::<P>()
            + self.chunks.capacity() * size_of::<Vec<P>>()
            + self.entries.capacity() * size_of::<u32>()
    }
}

/// The prefix of the lower half of the partition of this depth that has the hash.
pub(crate) fn lower_half(hash: u64, depth: u32) -> u64 {
    ((hash >> 1) >> (63 - depth)) << 1
}

/// The bit of a hash that tells the halves of a partition of this depth apart.
#[inline]
pub(crate) fn half_of(hash: u64, depth: u32) -> usize {
    usize::from(hash >> (63 - depth) & 1 == 1)
}
