//! One mark per block of slots: whether something was added to it since the last drain.
//!
//! Invariant: a slot of a block without its mark is zero.
//!
//! A mark is a whole word. As bits of shared words they would take an eighth of a bank less memory, but neighbouring
//! entries of a packet would each wait for the word that the one before has just written: half the speed of a push.

use crate::config::DIRTY_BLOCK;

/// Words for the marks of so many slots.
pub(crate) const fn words(slots: usize) -> usize {
    slots.div_ceil(DIRTY_BLOCK)
}

/// The blocks that are marked, ascending.
pub(crate) fn blocks(dirty: &[u32]) -> impl Iterator<Item = u32> {
    (0..).zip(dirty).filter_map(|(block, &mark)| (mark != 0).then_some(block))
}

/// Returns true if no block is marked.
pub(crate) fn is_clean(dirty: &[u32]) -> bool {
    dirty.iter().fold(0, |marks, mark| marks | mark) == 0
}

/// The first slot of a block.
pub(crate) const fn first_slot(block: u32) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "it is 8")]
    const SLOTS: u32 = DIRTY_BLOCK as u32;
    block.wrapping_mul(SLOTS)
}

/// The sums of the block that begins with this slot.
pub(crate) fn block_mut(sums: &mut [u32], first_slot: usize) -> Option<&mut [u32]> {
    let (_, sums) = sums.split_at_mut_checked(first_slot)?;
    let (sums, _) = sums.split_at_mut(DIRTY_BLOCK.min(sums.len()));
    Some(sums)
}

/// Marks the block of a slot.
#[inline]
pub(crate) fn mark(dirty: &mut [u32], slot: usize) {
    if let Some(mark) = dirty.get_mut(slot / DIRTY_BLOCK) {
        *mark = 1;
    }
}

/// Takes the mark from the block of a slot if nothing is left in it.
pub(crate) fn unmark_if_clear(dirty: &mut [u32], sums: &mut [u32], slot: usize) {
    let first_slot = slot.wrapping_sub(slot % DIRTY_BLOCK);
    let clear = block_mut(sums, first_slot).is_some_and(|sums| sums.iter().all(|&sum| sum == 0));
    if clear && let Some(mark) = dirty.get_mut(slot / DIRTY_BLOCK) {
        *mark = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dirty_blocks_come_back_in_order() {
        let mut dirty = [0; 75];
        assert_eq!(words(600), 75);
        assert!(is_clean(&dirty));
        for slot in [599, 0, 7, 8, 255, 256, 511] {
            mark(&mut dirty, slot);
        }
        assert!(!is_clean(&dirty));
        assert!(blocks(&dirty).eq([0, 1, 31, 32, 63, 74]));
    }

    #[test]
    fn a_mark_stays_while_its_block_holds_anything() {
        let mut dirty = [0; 2];
        let mut sums = [0; 11];
        sums[9] = 4;
        mark(&mut dirty, 10);
        unmark_if_clear(&mut dirty, &mut sums, 10);
        assert!(blocks(&dirty).eq([1]));
        sums[9] = 0;
        unmark_if_clear(&mut dirty, &mut sums, 10);
        assert!(is_clean(&dirty));
    }

    #[test]
    fn the_last_block_may_be_short() {
        let mut sums = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
        assert_eq!(block_mut(&mut sums, 8), Some([9, 10].as_mut_slice()));
        assert_eq!(block_mut(&mut sums, 16), None);
    }
}
