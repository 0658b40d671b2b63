//! One acknowledgement for many packets.

use core::ops::Range;

use crate::counters::Executed;
use crate::packet::PacketWriter;
use crate::wire::{ENTRY_BYTES, HEADER_BYTES, Header};

/// The most ranges that one acknowledgement lists.
const RANGES_MAX: usize = 64;
/// The most sequence numbers of a range: their count is 16 bits.
const RANGE_MAX: u32 = 0xFFFF;
/// Of so many of the highest numbers of a flow it lists again which are taken, as an earlier acknowledgement may be lost. That was one of
/// a burst, and the kernel hands over bursts of as many.
const REPEATED: u32 = 128;
/// They are so many ranges, if every second one is taken.
const REPEATED_RANGES_MAX: usize = 64;

/// Acknowledgements of one worker's pushes that are not yet sent.
pub(crate) struct Coalesced {
    newest: Option<Newest>,
    ranges: [Range<u32>; RANGES_MAX],
    count: usize,
    /// Number of packets in the ranges. A packet may be there twice.
    packets: u32,
}

/// The newest push that is acknowledged.
#[derive(Clone, Copy)]
pub(crate) struct Newest {
    pub(crate) push: Header,
    /// Its outcome. The round that took it is that of all others, too.
    pub(crate) executed: Executed,
}

impl Coalesced {
    pub(crate) const fn new() -> Self {
        Self { newest: None, ranges: [const { 0..0 }; RANGES_MAX], count: 0, packets: 0 }
    }

    pub(crate) const fn newest(&self) -> Option<Newest> {
        self.newest
    }

    /// Takes up what became of a push that was taken. `false` if it cannot be acknowledged with those that are there (rule W8): send them first.
    #[inline]
    pub(crate) fn add(&mut self, push: &Header, executed: Executed) -> bool {
        // The rest of an acknowledgement is the same for all that a region takes while it is not changed.
        let goes_with = |newest: &Newest| {
            let Newest { push: other, executed: Executed { round, .. } } = newest;
            (other.plan, other.region, *round) == (push.plan, push.region, executed.round)
        };
        let fits = self.newest.as_ref().is_none_or(goes_with) && self.extend(push.seq);
        if fits {
            self.newest.get_or_insert(Newest { push: *push, executed }).push.seq = push.seq;
            self.packets = self.packets.saturating_add(1);
        }
        fits
    }

    /// Adds a sequence number to the ranges; `false` if it does not fit. What the newest range has already needs no place: a packet that is
    /// sent again may be sent twice (rule T16).
    #[inline]
    fn extend(&mut self, seq: u32) -> bool {
        let (listed, free) = self.ranges.split_at_mut(self.count.min(RANGES_MAX));
        if let Some(range) = listed.last_mut()
            && let Some(place) = seq.checked_sub(range.start)
        {
            if seq < range.end {
                return true;
            }
            if seq == range.end && place < RANGE_MAX {
                range.end = seq.saturating_add(1);
                return true;
            }
        }
        let Some(range) = free.first_mut() else { return false };
        *range = seq..seq.saturating_add(1);
        self.count = self.count.saturating_add(1);
        true
    }

    /// Sends all with the header `ack`. Several packets are acknowledged together with others that were taken before: of the highest
    /// numbers of the flow, all below `next`, those for which `is_taken` is true (rule W8).
    pub(crate) fn flush(
        &mut self,
        ack: Header,
        next: u32,
        is_taken: impl Fn(u32) -> bool,
        emit: &mut impl FnMut(&mut [u8]),
    ) {
        let mut buffer = [0; HEADER_BYTES + (REPEATED_RANGES_MAX + RANGES_MAX) * ENTRY_BYTES];
        let mut writer = PacketWriter::new(ack, &mut buffer);
        if self.packets > 1 {
            let ranges = self.ranges.split_at(self.count.min(RANGES_MAX)).0;
            let repeated = taken_beside(ranges, next.saturating_sub(REPEATED)..next, is_taken);
            // In the order in which they were sent, or nearly so: the worker takes others for overtaken.
            for Range { start, end } in joined(repeated.chain(ranges.iter().cloned())) {
                let count = u16::try_from(end.saturating_sub(start)).unwrap_or(u16::MAX);
                let fits = writer.push(count, start);
                debug_assert!(fits, "the buffer was made for as many ranges");
            }
        }
        let bytes = writer.finish();
        (self.newest, self.count, self.packets) = (None, 0, 0);
        emit(buffer.get_mut(..bytes).unwrap_or_default());
    }
}

/// Those of `numbers` that are taken and in none of `ranges`, as ascending ranges.
fn taken_beside(
    ranges: &[Range<u32>],
    numbers: Range<u32>,
    is_taken: impl Fn(u32) -> bool,
) -> impl Iterator<Item = Range<u32>> {
    let Range { start: mut at, end } = numbers;
    core::iter::from_fn(move || {
        let first = loop {
            if at >= end {
                return None;
            }
            // Mostly the ranges have all of these numbers, and none need be looked at.
            match ranges.iter().find(|range| range.contains(&at)) {
                Some(range) => at = range.end,
                None if is_taken(at) => break at,
                None => at = at.saturating_add(1),
            }
        };
        let next_range = ranges.iter().map(|range| range.start).filter(|next| *next > first).min();
        let until = next_range.map_or(end, |next| next.min(end));
        at = (first..until).find(|seq| !is_taken(*seq)).unwrap_or(until);
        Some(first..at)
    })
}

/// The same numbers in the same order, in fewer ranges where one begins with the end of the one before it: acknowledgements of what comes in order
/// are equally long, then, and leave in one call.
fn joined(ranges: impl Iterator<Item = Range<u32>>) -> impl Iterator<Item = Range<u32>> {
    let mut ranges = ranges.peekable();
    core::iter::from_fn(move || {
        let Range { start, mut end } = ranges.next()?;
        let follows =
            |next: &Range<u32>, end| next.start == end && next.end.saturating_sub(start) <= RANGE_MAX;
        while let Some(next) = ranges.next_if(|next| follows(next, end)) {
            end = next.end;
        }
        Some(start..end)
    })
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;
    use crate::counters::{Action, Outcome};
    use crate::packet::{Packet, SeqRange};
    use crate::wire::{Flags, Kind};

    #[test]
    fn ranges_are_joined_where_one_begins_with_the_end_of_another() {
        let join = |ranges: &[Range<u32>]| joined(ranges.iter().cloned()).collect::<Vec<_>>();
        assert_eq!(join(&[]), []);
        assert_eq!(join(&[3..5, 5..6, 6..9, 10..11, 2..3]), [3..9, 10..11, 2..3]);
        assert_eq!(join(&[0..0xFFFE, 0xFFFE..0xFFFF, 7..8]), [0..0xFFFF, 7..8]);
        assert_eq!(join(&[0..0xFFFE, 0xFFFE..0x1_0000]), [0..0xFFFE, 0xFFFE..0x1_0000], "a count is 16 bits");
    }

    #[test]
    fn numbers_in_ranges_are_not_searched_again() {
        let beside = |ranges: &[Range<u32>], numbers: Range<u32>| {
            let is_taken = |seq: u32| {
                assert!(!ranges.iter().any(|range| range.contains(&seq)), "{seq}");
                seq % 10 != 7
            };
            taken_beside(ranges, numbers, is_taken).collect::<Vec<_>>()
        };
        assert_eq!(beside(&[], 0..20), [0..7, 8..17, 18..20]);
        assert_eq!(beside(&[12..20, 3..5], 0..20), [0..3, 5..7, 8..12]);
        assert_eq!(beside(&[0..9, 9..30], 0..20), []);
    }

    #[test]
    fn acknowledgements_that_differ_in_more_than_seq_stay_apart() {
        let push =
            Header { entries: 9, job: 1, worker: 2, plan: 3, region: 5, ..Header::of_kind(Kind::Push) };
        let others = [(Header { plan: 9, ..push }, 6), (Header { region: 9, ..push }, 6), (push, 9)];
        for other in others {
            let mut sent = Vec::new();
            let mut emit = |bytes: &mut [u8]| {
                let packet = Packet::parse(bytes).unwrap();
                let seqs: Vec<_> = packet.acknowledged().flat_map(SeqRange::iter).collect();
                sent.push((Header { entries: 0, seq: 0, ..packet.header }, seqs));
            };
            let mut acknowledged = Coalesced::new();
            let this = (push, 6);
            let executed = |round| Executed { action: Action::Pushed, flags: Flags::NONE, round };
            let ack = |Newest { push, executed }| Outcome::Executed(executed).answer(&push, 4, 7).unwrap();
            for ((push, round), seq) in [(this, 0), (this, 1), (other, 2), (other, 3), (this, 4)] {
                let push = Header { seq, ..push };
                if !acknowledged.add(&push, executed(round)) {
                    acknowledged.flush(ack(acknowledged.newest().unwrap()), 0, |_| false, &mut emit);
                    assert!(acknowledged.add(&push, executed(round)));
                }
            }
            acknowledged.flush(ack(acknowledged.newest().unwrap()), 0, |_| false, &mut emit);
            let pairs = [(this, [0, 1].as_slice()), (other, &[2, 3]), (this, &[4])];
            assert_eq!(
                sent,
                pairs.map(|((push, round), seqs)| (
                    ack(Newest { push, executed: executed(round) }),
                    seqs.to_vec()
                ))
            );
        }
    }
}
