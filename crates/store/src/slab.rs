//! Rows of one size in memory, which never move but into the place of one that is taken out.

use std::mem::size_of;
use std::ops::Range;

use crate::index::NO_ROW;
use crate::key::{FREE, KEY_WORDS, number_at, words_of};
use crate::prefetch::prefetch;

/// Slabs grow up to this, or to one row.
const SLAB_BYTES_MAX: usize = 1 << 20;
/// The first slabs have about this.
const SLAB_BYTES_MIN: usize = 1 << 14;
/// So many slabs are of one size before the next ones are twice as large: so at most about 1/64 of all is
/// allocated in advance. A power of two.
const SLABS_OF_A_SIZE_LOG2: u32 = 6;
const _: () = assert!(SLAB_BYTES_MAX / SLAB_BYTES_MIN <= 1 << SLABS_OF_A_SIZE_LOG2);

/// The rows of one table: each the key, and a payload of words, side by side.
///
/// They lie in slabs that are allocated as the rows come, so growth copies nothing. A row keeps its number
/// until it is freed.
#[derive(Debug, Clone)]
pub(crate) struct Slabs {
    slabs: Vec<Box<[u32]>>,
    /// Words of a row.
    stride: u32,
    of_stride: Multiples,
    /// Rows of the smallest slab, as a power of two.
    rows_log2: u32,
    /// Number of times that the size of slabs doubles.
    doublings: u32,
    /// Rows that were ever used; those from here on are free and zero.
    used: u32,
    /// The first of the freed ones. Each has the number of the next one in its payload, for a list of its own
    /// would have to be copied when it grows.
    freed: u32,
}

/// Location of a row, as long as it is not freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    slab: u32,
    /// First word.
    start: u32,
}

/// The multiples of a number, by which they are divided without a division.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Multiples {
    zeros: u32,
    /// Of what is left of the number without its factors of 2, modulo 2^32.
    inverse: u32,
}

impl Multiples {
    /// Of a number above 0.
    pub(crate) fn new(of: u32) -> Self {
        let zeros = of.trailing_zeros();
        let odd = of >> zeros;
        // Newton's iteration: an odd number is its own inverse modulo 8, and each step doubles the bits.
        let mut inverse = odd;
        for _ in 0..4 {
            inverse = inverse.wrapping_mul(2_u32.wrapping_sub(odd.wrapping_mul(inverse)));
        }
        Self { zeros, inverse }
    }

    /// Divides a multiple of the number by it.
    #[inline]
    pub(crate) fn quotient(self, multiple: u32) -> u32 {
        (multiple >> self.zeros).wrapping_mul(self.inverse)
    }
}

impl Slabs {
    /// No rows yet, each of which will have a payload of so many words, at least one.
    pub(crate) fn new(payload_words: usize) -> Self {
        assert!(payload_words > 0, "a freed row keeps the number of the next one");
        let stride = KEY_WORDS + payload_words;
        let row_bytes = stride * size_of::<u32>();
        let stride = u32::try_from(stride).expect("a row has less than 2^32 words");
        let rows_log2 = (SLAB_BYTES_MIN / row_bytes).max(1).ilog2();
        let doublings = (SLAB_BYTES_MAX / (row_bytes << rows_log2)).max(1).ilog2();
        let of_stride = Multiples::new(stride);
        Self { slabs: Vec::new(), stride, of_stride, rows_log2, doublings, used: 0, freed: NO_ROW }
    }

    /// Returns the location of the row of a number.
    #[inline]
    pub(crate) fn place(&self, row: u32) -> Place {
        // In units of the smallest slab and counted from 64 on, the slabs of size 2^n are those from 64 * 2^n
        // to 128 * 2^n: the highest bit determines the size.
        let unit = (row >> self.rows_log2) + (1 << SLABS_OF_A_SIZE_LOG2);
        let size = (unit.ilog2() - SLABS_OF_A_SIZE_LOG2).min(self.doublings);
        let slab = (size << SLABS_OF_A_SIZE_LOG2) + (unit >> size) - (1 << SLABS_OF_A_SIZE_LOG2);
        let shift = size + self.rows_log2;
        // Slabs begin at multiples of their size, for 64 is a multiple of any size.
        let within = row & ((1 << shift) - 1);
        Place { slab, start: within * self.stride }
    }

    /// The number of the row at a place.
    #[inline]
    pub(crate) fn position(&self, place: Place) -> usize {
        let size = (place.slab >> SLABS_OF_A_SIZE_LOG2).min(self.doublings);
        let of_size = place.slab - (size << SLABS_OF_A_SIZE_LOG2);
        let unit = (of_size + (1 << SLABS_OF_A_SIZE_LOG2)) << size;
        let first = (unit - (1 << SLABS_OF_A_SIZE_LOG2)) << self.rows_log2;
        (first + self.of_stride.quotient(place.start)) as usize
    }

    /// Returns the number of rows that were ever used.
    pub(crate) fn positions(&self) -> usize {
        self.used as usize
    }

    /// Key and payload of the row of a number, if it is used and not free.
    pub(crate) fn row_at(&self, position: usize) -> Option<(u64, &[u32])> {
        if position >= self.positions() {
            return None;
        }
        let place = self.place(u32::try_from(position).expect("rows have numbers below 2^32"));
        let key = self.key(place);
        (key != FREE).then(|| (key, self.payload(place)))
    }

    #[inline]
    fn words(&self, place: Place, words: Range<usize>) -> &[u32] {
        let start = place.start as usize;
        &self.slabs[place.slab as usize][start + words.start..start + words.end]
    }

    #[inline]
    fn words_mut(&mut self, place: Place, words: Range<usize>) -> &mut [u32] {
        let start = place.start as usize;
        &mut self.slabs[place.slab as usize][start + words.start..start + words.end]
    }

    /// The key of a row.
    #[inline]
    pub(crate) fn key(&self, place: Place) -> u64 {
        number_at(self.words(place, 0..KEY_WORDS), 0)
    }

    /// The payload of a row.
    #[inline]
    pub(crate) fn payload(&self, place: Place) -> &[u32] {
        self.words(place, KEY_WORDS..self.stride as usize)
    }

    /// The payload of a row.
    #[inline]
    pub(crate) fn payload_mut(&mut self, place: Place) -> &mut [u32] {
        self.words_mut(place, KEY_WORDS..self.stride as usize)
    }

    /// Asks for the memory of a row.
    #[inline]
    pub(crate) fn prefetch(&self, place: Place) {
        let start = place.start as usize;
        prefetch(&self.slabs[place.slab as usize], start..start + self.stride as usize);
    }

    /// Makes a row with a payload of zeros, and returns its number.
    pub(crate) fn take(&mut self, key: u64) -> u32 {
        let row = if self.freed == NO_ROW { self.used } else { self.freed };
        assert_ne!(row, NO_ROW, "a table has fewer than 2^32 - 1 rows");
        let place = self.place(row);
        if self.freed == NO_ROW {
            if place.slab as usize == self.slabs.len() {
                let size = (place.slab >> SLABS_OF_A_SIZE_LOG2).min(self.doublings);
                let words = (self.stride as usize) << (size + self.rows_log2);
                self.slabs.push(vec![0; words].into());
            }
            self.used += 1;
        } else {
            self.freed = self.payload(place)[0];
            self.payload_mut(place).fill(0);
        }
        self.set_key(place, key);
        row
    }

    /// Frees a row.
    pub(crate) fn free(&mut self, row: u32) {
        let place = self.place(row);
        self.set_key(place, FREE);
        let next = self.freed;
        self.payload_mut(place)[0] = next;
        self.freed = row;
    }

    /// Removes a row, to whose place the last one moves, and returns memory that this leaves unused. Of rows that are removed so none
    /// is ever [freed](Self::free), or the last one might be no row.
    pub(crate) fn swap_remove(&mut self, row: u32) {
        let (to, last) = (self.place(row), self.place(self.used - 1));
        let range = |place: Place| place.start as usize..(place.start + self.stride) as usize;
        let (before, from) = self.slabs.split_at_mut(last.slab as usize);
        match before.get_mut(to.slab as usize) {
            Some(slab) => slab[range(to)].copy_from_slice(&from[0][range(last)]),
            None => from[0].copy_within(range(last), to.start as usize),
        }
        from[0][range(last)].fill(0);
        self.used -= 1;
        // One slab that is empty stays while the one before is more than half full, so that few rows do not make and free it in turns.
        while let [.., before, _] = self.slabs.as_slice() {
            let slab = u32::try_from(self.slabs.len() - 2).expect("fewer slabs than rows");
            let rows = before.len() / self.stride as usize;
            if self.positions() > self.position(Place { slab, start: 0 }) + rows / 2 {
                break;
            }
            self.slabs.pop();
        }
    }

    /// Bytes of the rows that are used, without what was allocated in advance.
    pub(crate) fn used_bytes(&self) -> usize {
        self.positions() * self.stride as usize * size_of::<u32>()
    }

    fn set_key(&mut self, place: Place, key: u64) {
        self.words_mut(place, 0..KEY_WORDS).copy_from_slice(&words_of(key));
    }

    /// Keys and payloads of all rows, in the order in which they lie.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &[u32])> {
        let rows = self.slabs.iter().flat_map(|slab| slab.chunks_exact(self.stride as usize));
        rows.take(self.used as usize).filter_map(|row| {
            let (key, payload) = row.split_at(KEY_WORDS);
            let key = number_at(key, 0);
            (key != FREE).then_some((key, payload))
        })
    }

    /// Bytes that they take, with what was allocated in advance.
    pub(crate) fn memory_bytes(&self) -> usize {
        let words: usize = self.slabs.iter().map(|slab| slab.len()).sum();
        words * size_of::<u32>() + self.slabs.capacity() * size_of::<Box<[u32]>>()
    }
}

#[cfg(test)]
mod tests;
