//! Sizes of rows and buckets, and places in a bucket.

use crate::key::number_at;
use crate::slab::Multiples;

/// Words of the widest row, key and payload. Of wider ones a few free places would cost more than an index.
pub(super) const ROW_WORDS_MAX: usize = 6;
/// Distances of rows from their bucket that have a bit each, but for the last one, which is for all from there on.
pub(super) const FAR: usize = 32;
/// Words of a page.
pub(super) const PAGE_WORDS: usize = 1 << 11;

/// Sizes that follow from that of a row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    /// Words of a row with its key.
    pub(super) row: usize,
    pub(super) of_row: Multiples,
    /// Words of a bucket, as a power of two.
    pub(super) bucket_log2: u32,
    /// Rows of a bucket.
    pub(super) lanes: usize,
}

/// Location of a row, until rows move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BucketPlace {
    pub(super) page: u32,
    /// First word.
    pub(super) start: u32,
}

impl BucketPlace {
    /// The first one of all.
    pub(crate) const FIRST: Self = Self { page: 0, start: 0 };
}

impl Shape {
    pub(super) fn new(row: usize) -> Self {
        // A bucket has at least 4 rows: with fewer, many would not have room where they belong. And a word for their distances.
        let bucket_log2: u32 = if row <= 3 { 4 } else { 5 };
        let of_row = Multiples::new(u32::try_from(row).expect("at most ROW_WORDS_MAX"));
        Self { row, of_row, bucket_log2, lanes: ((1 << bucket_log2) - 1) / row }
    }

    /// Buckets of a page.
    pub(super) fn buckets(&self) -> usize {
        PAGE_WORDS >> self.bucket_log2
    }

    /// Places of a page.
    pub(super) fn places(&self) -> usize {
        self.buckets() * self.lanes
    }

    /// Rows that so many pages may have: with more, many would lie far from their buckets.
    pub(super) fn room(&self, pages: usize) -> usize {
        pages * self.places() * 7 / 8
    }

    /// Rows that so many pages have at most.
    pub(super) fn room_max(&self, pages: usize) -> usize {
        pages * self.places() * 15 / 16
    }

    /// Page of a partition and first word in there of the bucket where the probe for a hash begins.
    #[inline]
    pub(super) fn home(&self, hash: u64, pages: usize) -> (usize, usize) {
        // The low half of the hash as a fraction of all buckets of the partition.
        let word = ((hash & 0xffff_ffff) * (pages * PAGE_WORDS) as u64) >> 32;
        self.split(usize::try_from(word).expect("less than the words of a partition") >> self.bucket_log2)
    }

    /// The bucket at a distance from one in a partition of so many pages, around the end.
    #[inline]
    pub(super) fn after(
        &self,
        (page, start): (usize, usize),
        distance: usize,
        pages: usize,
    ) -> (usize, usize) {
        let word = page * PAGE_WORDS + start + (distance << self.bucket_log2);
        let page = word / PAGE_WORDS;
        (if page < pages { page } else { page % pages }, word % PAGE_WORDS)
    }

    /// Page of a partition and first word in there of its bucket of a number.
    #[inline]
    pub(super) fn split(&self, bucket: usize) -> (usize, usize) {
        let word = bucket << self.bucket_log2;
        (word / PAGE_WORDS, word % PAGE_WORDS)
    }

    #[inline]
    pub(super) fn position(&self, place: BucketPlace) -> usize {
        let lane = self.of_row.quotient(place.start & ((1 << self.bucket_log2) - 1));
        let bucket = (place.start >> self.bucket_log2) as usize;
        (place.page as usize * self.buckets() + bucket) * self.lanes + lane as usize
    }
}

/// The first word of the row of a key in a bucket; that of [`FREE`](crate::key::FREE) is a place without a row. `BUCKET` if there is none.
///
/// Without a branch, as no processor can predict the lane.
#[inline(always)]
pub(super) fn word_of<const BUCKET: usize, const ROW: usize>(bucket: &[u32], key: u64) -> usize {
    let bucket: &[u32; BUCKET] = bucket.first_chunk().expect("a bucket ends in its page");
    let mut word = BUCKET;
    // The last word is not of a row.
    for lane in (0..(BUCKET - 1) / ROW).rev() {
        let at = lane * ROW;
        if number_at(bucket, at) == key {
            word = at;
        }
    }
    word
}

/// The bit of a distance above 0, in the last word of a bucket: not set if rows of this bucket are there.
#[inline]
pub(super) fn bit_of(distance: usize) -> u32 {
    1 << (distance.min(FAR) - 1)
}

/// The distances at which rows of a bucket are that has this last word; [`FAR`] for those from there on.
#[inline]
pub(super) fn distances(last: u32) -> impl Iterator<Item = usize> {
    let mut bits = !last;
    std::iter::from_fn(move || {
        let distance = bits.trailing_zeros() as usize + 1;
        let is_any = bits != 0;
        bits &= bits.wrapping_sub(1);
        is_any.then_some(distance)
    })
}

#[inline]
pub(super) fn place(page: u32, start: usize) -> BucketPlace {
    BucketPlace { page, start: u32::try_from(start).expect("it is in a page") }
}
