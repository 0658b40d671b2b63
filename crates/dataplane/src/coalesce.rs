//! One acknowledgement for many packets.

use core::ops::Range;

use crate::packet::{PacketWriter, SeqRange};
use crate::wire::{Answer, ENTRY_BYTES, HEADER_BYTES, Header};

/// The most ranges that one acknowledgement lists.
const RANGES_MAX: usize = 64;
/// Of so many of the highest numbers of a flow it says once more which are taken, as an earlier acknowledgement may be lost. That was one of
/// a burst, and the kernel hands over bursts of as many.
const REPEATED: u32 = 128;
/// They are so many ranges, if every second one is taken.
const REPEATED_RANGES_MAX: usize = 64;

/// Acknowledgements of one worker's pushes that are not yet sent.
pub(crate) struct Coalesced {
    /// The newest push of them, and what all of them say.
    newest: Option<(Header, Answer)>,
    ranges: [SeqRange; RANGES_MAX],
    count: usize,
    /// How many packets they are of. A packet may be there twice.
    packets: u32,
}

impl Coalesced {
    pub(crate) const fn new() -> Self {
        Self { newest: None, ranges: [SeqRange { first: 0, count: 0 }; RANGES_MAX], count: 0, packets: 0 }
    }

    /// The newest push that is acknowledged, and what all acknowledgements say.
    pub(crate) const fn newest(&self) -> Option<&(Header, Answer)> {
        self.newest.as_ref()
    }

    /// Takes up the acknowledgement of a push. `false` if it cannot go with those that are there (rule W8): send them first.
    #[inline]
    pub(crate) fn add(&mut self, push: &Header, ack: Answer) -> bool {
        let fits = self.goes_with(push, ack) && self.extend(push.seq);
        if fits {
            self.newest.get_or_insert((*push, ack)).0.seq = push.seq;
            self.packets = self.packets.saturating_add(1);
        }
        fits
    }

    /// Whether nothing but `seq` tells this acknowledgement from those before it.
    #[inline]
    fn goes_with(&self, push: &Header, ack: Answer) -> bool {
        self.newest
            .as_ref()
            .is_none_or(|(newest, same)| (newest.plan, newest.region, *same) == (push.plan, push.region, ack))
    }

    /// Adds a sequence number to the ranges; `false` if it does not fit. What the newest range has already needs no place: a packet that is
    /// sent again may be sent twice (rule T16).
    fn extend(&mut self, seq: u32) -> bool {
        let (listed, free) = self.ranges.split_at_mut(self.count.min(RANGES_MAX));
        if let Some(SeqRange { first, count }) = listed.last_mut()
            && let Some(place) = seq.checked_sub(*first)
            && let Some(longer) = count.checked_add(1)
        {
            if place < u32::from(*count) {
                return true;
            }
            if place == u32::from(*count) {
                *count = longer;
                return true;
            }
        }
        let Some(range) = free.first_mut() else { return false };
        *range = SeqRange { first: seq, count: 1 };
        self.count = self.count.saturating_add(1);
        true
    }

    /// Sends what is there. Several packets are acknowledged together with others that were taken before: of the highest numbers of
    /// the flow, all below `next`, those that `is_taken` knows (rule W8).
    pub(crate) fn flush(&mut self, next: u32, is_taken: impl Fn(u32) -> bool, emit: &mut impl FnMut(&[u8])) {
        let Some((newest, ack)) = self.newest.take() else { return };
        let header = newest.answered(ack);
        let mut buffer = [0; HEADER_BYTES + (REPEATED_RANGES_MAX + RANGES_MAX) * ENTRY_BYTES];
        let mut writer = PacketWriter::new(header, &mut buffer);
        if self.packets > 1 {
            let ranges = self.ranges.split_at(self.count.min(RANGES_MAX)).0;
            let is_repeated = |seq| is_taken(seq) && !ranges.iter().any(|range| range.contains(seq));
            let repeated = ranges_of(next.saturating_sub(REPEATED)..next, is_repeated);
            // In the order in which they were sent, or nearly so: the worker takes others for overtaken.
            for range in repeated.chain(ranges.iter().copied()) {
                let fits = writer.push(range.count, range.first);
                debug_assert!(fits, "the buffer was made for as many ranges");
            }
        }
        let bytes = writer.finish();
        (self.count, self.packets) = (0, 0);
        emit(buffer.get(..bytes).unwrap_or_default());
    }
}

/// Those of fewer than 2^16 numbers that are wanted, as ascending ranges.
fn ranges_of(
    Range { mut start, end }: Range<u32>,
    is_wanted: impl Fn(u32) -> bool,
) -> impl Iterator<Item = SeqRange> {
    core::iter::from_fn(move || {
        let first = (start..end).find(|seq| is_wanted(*seq))?;
        start = (first..end).find(|seq| !is_wanted(*seq)).unwrap_or(end);
        let count = u16::try_from(start.saturating_sub(first)).unwrap_or(u16::MAX);
        Some(SeqRange { first, count })
    })
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;
    use crate::packet::Packet;
    use crate::wire::{Flags, Kind};

    #[test]
    fn acknowledgements_that_differ_in_more_than_seq_stay_apart() {
        let push =
            Header { entries: 9, job: 1, worker: 2, plan: 3, region: 5, ..Header::of_kind(Kind::Push) };
        let ack = Answer { kind: Kind::Ack, flags: Flags::NONE, view: 4, epoch: 6, durable: 7 };
        let others = [
            (Header { plan: 9, ..push }, ack),
            (Header { region: 9, ..push }, ack),
            (push, Answer { view: 9, ..ack }),
            (push, Answer { epoch: 9, ..ack }),
            (push, Answer { durable: 9, ..ack }),
        ];
        for other in others {
            let mut sent = Vec::new();
            let mut emit = |bytes: &[u8]| {
                let packet = Packet::parse(bytes).unwrap();
                let seqs: Vec<_> = packet.acknowledged().flat_map(SeqRange::iter).collect();
                sent.push((Header { entries: 0, seq: 0, ..packet.header }, seqs));
            };
            let mut acknowledged = Coalesced::new();
            let this = (push, ack);
            for ((push, ack), seq) in [(this, 0), (this, 1), (other, 2), (other, 3), (this, 4)] {
                let push = Header { seq, ..push };
                if !acknowledged.add(&push, ack) {
                    acknowledged.flush(0, |_| false, &mut emit);
                    assert!(acknowledged.add(&push, ack));
                }
            }
            acknowledged.flush(0, |_| false, &mut emit);
            let pairs = [(this, [0, 1].as_slice()), (other, &[2, 3]), (this, &[4])];
            assert_eq!(sent, pairs.map(|((push, ack), seqs)| (push.answered(ack), seqs.to_vec())));
        }
    }
}
