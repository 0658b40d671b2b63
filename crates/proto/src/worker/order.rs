//! Sorts the hot rows of an operation by their slots: each is marked where it belongs, and the marks are read in order. That
//! takes the same time for each row however many there are, a fifth of what comparing them does.

const BITS: usize = u64::BITS as usize;

/// Where each hot row of an operation lies in the caller's arrays.
#[derive(Debug, Clone)]
pub(super) struct Order {
    /// By the number of the row, if it is marked.
    offsets: Vec<u32>,
    /// A bit for each row.
    marks: Vec<u64>,
    /// A bit for each word of marks: an operation of a few rows among many hot ones looks at few words.
    marked: Vec<u64>,
}

impl Order {
    /// For so many hot rows.
    pub(super) fn new(rows: usize) -> Self {
        let marks = rows.div_ceil(BITS);
        Self { offsets: vec![0; rows], marks: vec![0; marks], marked: vec![0; marks.div_ceil(BITS)] }
    }

    /// To mark the rows of an operation.
    #[inline]
    pub(super) fn marker(&mut self) -> Marker<'_> {
        Marker { word: 0, bits: 0, order: self }
    }

    /// Hands over the rows that are marked by rising number, with their offsets, and takes the marks away.
    #[inline]
    pub(super) fn drain(&mut self, mut take: impl FnMut(u32, u32)) {
        for (block, marked) in self.marked.iter_mut().enumerate() {
            for word in bits(core::mem::take(marked)) {
                let word = block * BITS + word;
                for bit in bits(core::mem::take(&mut self.marks[word])) {
                    let number = word * BITS + bit;
                    take(index(number), self.offsets[number]);
                }
            }
        }
    }
}

/// Marks rows.
#[derive(Debug)]
pub(super) struct Marker<'o> {
    order: &'o mut Order,
    /// The word of the last mark, which is written when another one is marked: neighbours would wait for each other.
    word: usize,
    bits: u64,
}

impl Marker<'_> {
    /// Marks the row of this number; `false`, and nothing done, if it is marked already.
    #[inline]
    pub(super) fn mark(&mut self, number: u32, offset: u32) -> bool {
        let number = number as usize;
        let (word, bit) = (number / BITS, 1 << (number % BITS));
        if word != self.word {
            self.write();
            (self.word, self.bits) = (word, self.order.marks[word]);
        }
        let is_new = self.bits & bit == 0;
        if is_new {
            self.order.offsets[number] = offset;
            self.bits |= bit;
        }
        is_new
    }

    #[inline]
    fn write(&mut self) {
        if let Some(marks) = self.order.marks.get_mut(self.word) {
            *marks |= self.bits;
            self.order.marked[self.word / BITS] |= u64::from(self.bits != 0) << (self.word % BITS);
        }
    }
}

impl Drop for Marker<'_> {
    fn drop(&mut self) {
        self.write();
    }
}

/// The positions of the bits that are set, ascending.
#[inline]
fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let bit = word.trailing_zeros() as usize;
        (word != 0).then(|| {
            word &= word - 1;
            bit
        })
    })
}

fn index(number: usize) -> u32 {
    u32::try_from(number).expect("a plan has fewer than 2^32 rows")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn rows_come_out_by_rising_number_and_once(
            rows in 1usize..20_000,
            operations in prop::collection::vec(prop::collection::btree_map(0u32..20_000, any::<u32>(), 0..300), 1..4),
        ) {
            let mut order = Order::new(rows);
            for operation in operations {
                let expected: BTreeMap<u32, u32> =
                    operation.into_iter().filter(|(number, _)| (*number as usize) < rows).collect();
                // In no order.
                let mut marker = order.marker();
                for (number, offset) in expected.iter().rev() {
                    prop_assert!(marker.mark(*number, *offset));
                    prop_assert!(!marker.mark(*number, 7));
                }
                drop(marker);
                let mut found = Vec::new();
                order.drain(|number, offset| found.push((number, offset)));
                prop_assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
            }
        }
    }
}
