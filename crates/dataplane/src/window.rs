//! Deduplication of the packets of a flow: the memory that makes a retransmission harmless.
//!
//! A flow remembers its last [`WINDOW`] sequence numbers. Entry `seq % WINDOW` holds the generation `seq / WINDOW + 1`
//! of the last packet accepted there, and the bank that took it; an equal or newer generation means that the packet is
//! a duplicate (rule D1). That is one access per packet, exact as long as the sender keeps the **sender rule**: it sends
//! `seq + WINDOW` only after `seq` was acknowledged.

use core::ops::Range;

use crate::mutants::{Mutant, is_enabled};

/// Sequence numbers that a flow remembers one by one. A power of two.
pub const WINDOW: usize = 1024;
/// Words of memory per flow: one for each entry, and one past the highest sequence number accepted.
pub const WINDOW_WORDS: usize = WINDOW + 1;
/// The highest sequence number that a flow may use.
pub const SEQ_MAX: u32 = u32::MAX - 1;

#[expect(clippy::cast_possible_truncation, reason = "the assertion below")]
pub(crate) const WINDOW_U32: u32 = WINDOW as u32;
const _: () = assert!(WINDOW.is_power_of_two() && WINDOW <= 1 << 16);

/// One of the two accumulators of a slot. A round adds into the bank of its parity, so neighbours never share one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bank {
    /// The bank of even rounds.
    Even,
    /// The bank of odd rounds.
    Odd,
}

impl Bank {
    /// The bank that takes the packets of `round`.
    #[must_use]
    pub const fn of_round(round: u16) -> Self {
        if round & 1 == 0 { Self::Even } else { Self::Odd }
    }

    /// The other one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Even => Self::Odd,
            Self::Odd => Self::Even,
        }
    }

    const fn bit(self) -> u32 {
        match self {
            Self::Even => 0,
            Self::Odd => 1,
        }
    }

    const fn from_bit(word: u32) -> Self {
        if word & 1 == 0 { Self::Even } else { Self::Odd }
    }

    /// Its half of a pair.
    pub(crate) const fn of<T>(self, [even, odd]: &[T; 2]) -> &T {
        match self {
            Self::Even => even,
            Self::Odd => odd,
        }
    }

    /// Its half of a pair, to change.
    pub(crate) const fn of_mut<T>(self, [even, odd]: &mut [T; 2]) -> &mut T {
        match self {
            Self::Even => even,
            Self::Odd => odd,
        }
    }
}

/// State of a packet in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Seen {
    /// It was not accepted before.
    New,
    /// It was accepted before.
    Duplicate {
        /// The bank of the last packet accepted in its entry, which is this one or a later one of the flow.
        bank: Bank,
    },
}

/// The memory of one flow, to read. Zeroed memory has seen nothing.
#[derive(Debug, Clone, Copy)]
pub struct DedupWindow<'a> {
    words: &'a [u32; WINDOW_WORDS],
}

impl<'a> DedupWindow<'a> {
    /// The window in this memory.
    #[must_use]
    pub const fn new(words: &'a [u32; WINDOW_WORDS]) -> Self {
        Self { words }
    }

    /// Its memory: for each number modulo [`WINDOW`] the generation of the last packet and, in the lowest bit, its bank; then
    /// [`next_seq`](Self::next_seq).
    #[must_use]
    pub const fn words(self) -> &'a [u32; WINDOW_WORDS] {
        self.words
    }

    /// Returns the state of the packet of this number, judged by its entry alone, as hardware does.
    #[inline]
    #[must_use]
    pub fn seen(self, seq: u32) -> Seen {
        let word = self.entry(seq);
        if is_enabled(Mutant::NoDedup) {
            return Seen::New;
        }
        if is_enabled(Mutant::GenerationNotChecked) && word >> 1 > 0 {
            return Seen::Duplicate { bank: Bank::from_bit(word) };
        }
        if word >> 1 >= generation(seq) { Seen::Duplicate { bank: Bank::from_bit(word) } } else { Seen::New }
    }

    /// One past the highest sequence number accepted; zero if there is none.
    #[must_use]
    pub const fn next_seq(self) -> u32 {
        let [.., next] = self.words;
        *next
    }

    /// Everything below it was accepted: this follows from the sender rule, for entries that were overwritten since.
    #[must_use]
    pub const fn floor(self) -> u32 {
        self.next_seq().saturating_sub(WINDOW_U32)
    }

    /// Returns true if the packet of this number was accepted. Exact for any number, given the sender rule.
    #[must_use]
    pub fn contains(self, seq: u32) -> bool {
        seq < self.floor() || self.entry(seq) >> 1 == generation(seq)
    }

    /// Everything accepted so far, as ascending ranges with gaps between them: the part of this flow in the contents of a round.
    pub fn accepted(self) -> impl Iterator<Item = Range<u32>> + use<'a> {
        let mut next = self.next_seq();
        if is_enabled(Mutant::AckedOffByOne) {
            next = next.saturating_sub(1);
        }
        let mut at = 0;
        core::iter::from_fn(move || {
            let first = (at..next).find(|&seq| self.contains(seq))?;
            at = (first.max(self.floor())..next).find(|&seq| !self.contains(seq)).unwrap_or(next);
            Some(first..at)
        })
    }

    fn entry(self, seq: u32) -> u32 {
        let [entries @ .., _] = self.words;
        entries.get(entry_index(seq)).copied().unwrap_or_default()
    }
}

/// Remembers in the memory of a flow that the packet of this number, at most [`SEQ_MAX`], was taken by `bank`.
#[inline]
pub(crate) fn accept(words: &mut [u32; WINDOW_WORDS], seq: u32, bank: Bank) {
    let [entries @ .., next] = words;
    if let Some(entry) = entries.get_mut(entry_index(seq)) {
        *entry = generation(seq) << 1 | bank.bit();
    }
    *next = (*next).max(seq.saturating_add(1));
}

const fn entry_index(seq: u32) -> usize {
    (seq % WINDOW_U32) as usize
}

const fn generation(seq: u32) -> u32 {
    (seq / WINDOW_U32).wrapping_add(1)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn zeroed_memory_has_seen_nothing() {
        let words = [0; WINDOW_WORDS];
        let window = DedupWindow::new(&words);
        assert_eq!(window.next_seq(), 0);
        assert_eq!(window.accepted().count(), 0);
        for seq in [0, 1, 1023, 1024, SEQ_MAX] {
            assert_eq!(window.seen(seq), Seen::New);
            assert!(!window.contains(seq));
        }
    }

    #[test]
    fn the_last_sequence_number_is_like_any_other() {
        let mut words = [0; WINDOW_WORDS];
        accept(&mut words, SEQ_MAX, Bank::Odd);
        let window = DedupWindow::new(&words);
        assert_eq!(window.seen(SEQ_MAX), Seen::Duplicate { bank: Bank::Odd });
        assert!(window.contains(SEQ_MAX));
        assert_eq!(window.next_seq(), u32::MAX);
    }

    /// A sender that keeps its rule, over a path that reorders: `steps` pick which open packet arrives next.
    fn run(steps: &[u16]) {
        let mut words = [0; WINDOW_WORDS];
        let mut accepted = BTreeSet::new();
        let mut open = 0_u32;
        for (step, &pick) in steps.iter().enumerate() {
            let lowest_open = (open..).find(|seq| !accepted.contains(seq)).unwrap();
            open = lowest_open;
            // A path that stays mostly in order, with a packet now and then from anywhere in the window.
            let reach = if pick % 7 == 0 { WINDOW_U32 } else { 4 };
            let seq = lowest_open + u32::from(pick / 7) % reach;
            let bank = Bank::of_round(u16::try_from(step / 100).unwrap());
            let seen = DedupWindow::new(&words).seen(seq);
            assert_eq!(seen == Seen::New, !accepted.contains(&seq), "seq {seq}");
            if seen == Seen::New {
                accept(&mut words, seq, bank);
                assert_eq!(DedupWindow::new(&words).seen(seq), Seen::Duplicate { bank });
                accepted.insert(seq);
            }
        }
        let window = DedupWindow::new(&words);
        let enumerated: Vec<u32> = window.accepted().flatten().collect();
        assert!(enumerated.iter().copied().eq(accepted.iter().copied()));
        for seq in 0..window.next_seq() + 2 * WINDOW_U32 {
            assert_eq!(window.contains(seq), accepted.contains(&seq), "seq {seq}");
        }
        let ranges: Vec<_> = window.accepted().collect();
        assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        // rules D1, T2
        #[test]
        fn exact_under_the_sender_rule(steps in prop::collection::vec(any::<u16>(), 0..6000)) {
            run(&steps);
        }
    }
}
