//! Sorts hot rows by their numbers. Most operations name their rows in that order, and then they are only listed. Of the others each row is
//! marked where it belongs, and the marks are read in order: that takes the same time for each row however many there are, a fifth of what
//! comparing them does.

use std::vec::Drain;

const BITS: usize = u64::BITS as usize;

/// Place of each hot row of an operation.
#[derive(Debug, Clone)]
pub(super) struct Order {
    /// Numbers and offsets of the rows, while numbers rise; once one did not, all of them are marked.
    listed: Vec<(u32, u32)>,
    /// The least number that the list can go on with; beyond all numbers if rows are marked.
    next: u32,
    marks: Marks,
}

/// Beyond the numbers of all rows.
const MARKED: u32 = u32::MAX;

impl Order {
    /// For so many hot rows.
    pub(super) fn new(rows: usize) -> Self {
        Self { listed: Vec::new(), next: 0, marks: Marks::new(rows) }
    }

    /// Adds the row of a number, whose values begin at `offset`; `false`, and nothing done, if it is there already.
    #[inline]
    pub(super) fn add(&mut self, number: u32, offset: u32) -> bool {
        if number >= self.next {
            self.listed.push((number, offset));
            self.next = number + 1;
            return true;
        }
        self.add_out_of_order(number, offset)
    }

    #[inline]
    fn add_out_of_order(&mut self, number: u32, offset: u32) -> bool {
        if self.next != MARKED {
            self.next = MARKED;
            for (number, offset) in self.listed.drain(..) {
                self.marks.set(number, offset);
            }
        }
        self.marks.set(number, offset)
    }

    /// Adds rows of consecutive keys, of which the first has the number `first`: the keys of some rows of them, which rise, and the
    /// values of the rows lie one behind the other from `offset` on.
    #[inline(always)]
    pub(super) fn add_run(&mut self, first: u32, keys: &[u64], offset: u32, width: u32) {
        let (Some(&first_key), Some(&last_key)) = (keys.first(), keys.last()) else { return };
        let number = |key: u64| first + low_bits(key - first_key);
        let rows = keys
            .iter()
            .enumerate()
            .map(|(index, &key)| (number(key), offset + low_bits(index as u64) * width));
        if first >= self.next {
            self.next = number(last_key) + 1;
            self.listed.extend(rows);
        } else {
            for (number, offset) in rows {
                self.add_out_of_order(number, offset);
            }
        }
    }

    /// Takes number and offset of each row, by rising number.
    #[inline]
    pub(super) fn take(&mut self) -> Drain<'_, (u32, u32)> {
        self.next = 0;
        self.listed.extend(self.marks.take());
        self.listed.drain(..)
    }
}

/// Place of each row, by its number.
#[derive(Debug, Clone)]
struct Marks {
    /// By the number of the row, if it is marked.
    offsets: Vec<u32>,
    /// A bit for each row.
    marks: Vec<u64>,
    /// A bit for each word of marks: an operation of a few rows among many hot ones looks at few words.
    marked: Vec<u64>,
}

impl Marks {
    fn new(rows: usize) -> Self {
        let marks = rows.div_ceil(BITS);
        Self { offsets: vec![0; rows], marks: vec![0; marks], marked: vec![0; marks.div_ceil(BITS)] }
    }

    /// Marks a row; `false`, and nothing done, if it is marked already.
    #[inline]
    fn set(&mut self, number: u32, offset: u32) -> bool {
        let number = number as usize;
        let (word, bit) = (number / BITS, 1 << (number % BITS));
        let marks = &mut self.marks[word];
        let before = *marks;
        if before & bit != 0 {
            return false;
        }
        if before == 0 {
            self.marked[word / BITS] |= 1 << (word % BITS);
        }
        *marks = before | bit;
        self.offsets[number] = offset;
        true
    }

    #[inline]
    fn take(&mut self) -> Marked<'_> {
        Marked { marks: self, next_block: 0, words: 0, next_word: 0, bits: 0, first: 0 }
    }
}

/// Takes the marks away, in order.
#[derive(Debug)]
struct Marked<'o> {
    marks: &'o mut Marks,
    next_block: usize,
    /// Words of the block that are still to be looked at, the first of which is `next_word`.
    words: u64,
    next_word: usize,
    /// Rows of the word that are still to be handed over, the first of which is `first`.
    bits: u64,
    first: usize,
}

impl Marked<'_> {
    /// Goes to the next word with marks.
    #[inline]
    fn advance(&mut self) -> Option<()> {
        while self.words == 0 {
            self.words = core::mem::take(self.marks.marked.get_mut(self.next_block)?);
            self.next_word = self.next_block * BITS;
            self.next_block += 1;
        }
        let word = self.next_word + self.words.trailing_zeros() as usize;
        self.words &= self.words - 1;
        self.bits = core::mem::take(&mut self.marks.marks[word]);
        self.first = word * BITS;
        Some(())
    }
}

impl Iterator for Marked<'_> {
    type Item = (u32, u32);

    #[inline]
    fn next(&mut self) -> Option<(u32, u32)> {
        if self.bits == 0 {
            self.advance()?;
        }
        let number = self.first + self.bits.trailing_zeros() as usize;
        self.bits &= self.bits - 1;
        Some((u32::try_from(number).expect("a plan has fewer than 2^32 rows"), self.marks.offsets[number]))
    }
}

/// Of what is known to be below 2^32.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "an operation and a plan have fewer than 2^32 rows")]
fn low_bits(number: u64) -> u32 {
    debug_assert!(u32::try_from(number).is_ok());
    number as u32
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::collections::btree_map::Entry;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn rows_come_out_by_rising_number_and_once(
            operations in prop::collection::vec(prop::collection::vec((0u32..20_000, any::<u32>()), 0..300), 1..4),
        ) {
            let mut order = Order::new(20_000);
            for rows in operations {
                let mut first = BTreeMap::new();
                for &(number, offset) in &rows {
                    let is_new = match first.entry(number) {
                        Entry::Occupied(_) => false,
                        Entry::Vacant(place) => {
                            place.insert(offset);
                            true
                        }
                    };
                    prop_assert_eq!(order.add(number, offset), is_new);
                }
                prop_assert_eq!(order.take().collect::<Vec<_>>(), first.into_iter().collect::<Vec<_>>());
            }
        }

        #[test]
        fn rows_of_runs_are_added_like_single_ones(
            runs in prop::collection::vec((0u32..200, prop::collection::btree_set(0u64..40, 1..20)), 0..8),
            width in 1u32..4,
        ) {
            let (mut by_runs, mut one_by_one) = (Order::new(20_000), Order::new(20_000));
            let mut offset = 0;
            for (place, (gap, keys)) in (0u32..).zip(runs) {
                // Runs do not overlap, and come in any order.
                let start = (place * 7919 % 80) * 240 + gap;
                let keys: Vec<u64> = keys.into_iter().collect();
                let first = start + u32::try_from(keys[0]).unwrap();
                by_runs.add_run(first, &keys, offset, width);
                for key in keys {
                    prop_assert!(one_by_one.add(start + u32::try_from(key).unwrap(), offset));
                    offset += width;
                }
            }
            prop_assert!(by_runs.take().eq(one_by_one.take()));
        }
    }
}
