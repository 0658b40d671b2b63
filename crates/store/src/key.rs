//! Keys and other numbers of 64 bits among the words of rows.

/// Words of a key.
pub(crate) const KEY_WORDS: usize = 2;
/// The key of a place without a row. It cannot be that of a row: ranges of keys end before it.
pub(crate) const FREE: u64 = u64::MAX;

/// The words of a number, the lower half first.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "a word has half of the number")]
pub(crate) const fn words_of(number: u64) -> [u32; KEY_WORDS] {
    [number as u32, (number >> 32) as u32]
}

/// The number whose words are at a position.
#[inline(always)]
pub(crate) fn number_at(words: &[u32], at: usize) -> u64 {
    u64::from(words[at]) | u64::from(words[at + 1]) << 32
}
