//! One acknowledgement for many packets.

use crate::packet::{PacketWriter, SeqRange};
use crate::wire::{Answer, ENTRY_BYTES, HEADER_BYTES, Header};

/// The most ranges that one acknowledgement lists.
const RANGES_MAX: usize = 64;

/// Acknowledgements of one worker's pushes that are not yet sent.
pub(crate) struct Coalesced {
    /// The newest push of them, and what all of them say.
    newest: Option<(Header, Answer)>,
    ranges: [SeqRange; RANGES_MAX],
    count: usize,
}

impl Coalesced {
    pub(crate) const fn new() -> Self {
        Self { newest: None, ranges: [SeqRange { first: 0, count: 0 }; RANGES_MAX], count: 0 }
    }

    /// Takes up the acknowledgement of a push; sends those before it if they cannot go together (rule W8).
    #[inline]
    pub(crate) fn add(&mut self, push: &Header, ack: Answer, emit: &mut impl FnMut(&[u8])) {
        if self.goes_with(push, ack)
            && self.extend(push.seq)
            && let Some((newest, _)) = &mut self.newest
        {
            newest.seq = push.seq;
            return;
        }
        self.flush(emit);
        self.extend(push.seq);
        self.newest = Some((*push, ack));
    }

    /// Whether nothing but `seq` tells this acknowledgement from those before it.
    #[inline]
    fn goes_with(&self, push: &Header, ack: Answer) -> bool {
        self.newest.as_ref().is_some_and(|(newest, same)| {
            (newest.plan, newest.region, *same) == (push.plan, push.region, ack)
        })
    }

    /// Adds a sequence number to the ranges; `false` if it does not fit.
    fn extend(&mut self, seq: u32) -> bool {
        let (listed, free) = self.ranges.split_at_mut(self.count.min(RANGES_MAX));
        if let Some(SeqRange { first, count }) = listed.last_mut()
            && seq.checked_sub(*first) == Some(u32::from(*count))
            && let Some(longer) = count.checked_add(1)
        {
            *count = longer;
            return true;
        }
        let Some(range) = free.first_mut() else { return false };
        *range = SeqRange { first: seq, count: 1 };
        self.count = self.count.saturating_add(1);
        true
    }

    /// Sends what is there.
    pub(crate) fn flush(&mut self, emit: &mut impl FnMut(&[u8])) {
        let Some((newest, ack)) = self.newest.take() else { return };
        let header = newest.answered(ack);
        let mut buffer = [0; HEADER_BYTES + RANGES_MAX * ENTRY_BYTES];
        let mut writer = PacketWriter::new(header, &mut buffer);
        match self.ranges.split_at(self.count.min(RANGES_MAX)).0 {
            [SeqRange { count: 1, .. }] => {}
            ranges => {
                for range in ranges {
                    let fits = writer.push(range.count, range.first);
                    debug_assert!(fits, "the buffer was made for as many ranges");
                }
            }
        }
        let bytes = writer.finish();
        self.count = 0;
        emit(buffer.get(..bytes).unwrap_or_default());
    }
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
                acknowledged.add(&Header { seq, ..push }, ack, &mut emit);
            }
            acknowledged.flush(&mut emit);
            let pairs = [(this, [0, 1].as_slice()), (other, &[2, 3]), (this, &[4])];
            assert_eq!(sent, pairs.map(|((push, ack), seqs)| (push.answered(ack), seqs.to_vec())));
        }
    }
}
