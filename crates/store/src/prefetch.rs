//! Memory that is asked for before it is needed.

use std::ops::Range;

use prefetch_index::prefetch_index;

/// Words of a cache line.
const LINE_WORDS: usize = 16;

/// Asks for the cache lines of these words, and does not wait for them: so many can be on their way at once.
#[inline]
pub(crate) fn prefetch(memory: &[u32], words: Range<usize>) {
    prefetch_index(memory, words.start);
    for at in words.clone().step_by(LINE_WORDS).skip(1) {
        prefetch_index(memory, at);
    }
    if words.len() > 1 {
        prefetch_index(memory, words.end - 1);
    }
}
