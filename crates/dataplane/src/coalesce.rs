//! One acknowledgement for many packets.

use crate::packet::{PacketWriter, SeqRange};
use crate::wire::{ENTRY_BYTES, HEADER_BYTES, Header};

/// The most ranges that one acknowledgement lists.
const RANGES_MAX: usize = 64;

/// Acknowledgements of one worker's pushes that are not yet sent.
pub(crate) struct Coalesced {
    /// What all of them say; `seq` is that of the newest.
    header: Option<Header>,
    ranges: [SeqRange; RANGES_MAX],
    count: usize,
}

impl Coalesced {
    pub(crate) const fn new() -> Self {
        Self { header: None, ranges: [SeqRange { first: 0, count: 0 }; RANGES_MAX], count: 0 }
    }

    /// Takes up an acknowledgement; sends those before it if they cannot go together (rule W8).
    pub(crate) fn add(&mut self, ack: Header, emit: &mut impl FnMut(&[u8])) {
        let fits = self.header.is_none_or(|header| header == Header { seq: header.seq, ..ack });
        if !fits || !self.extend(ack.seq) {
            self.flush(emit);
            self.extend(ack.seq);
        }
        self.header = Some(ack);
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
        let Some(header) = self.header.take() else { return };
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
        let ack = Header {
            kind: Kind::Ack,
            flags: Flags::NONE,
            entries: 0,
            job: 1,
            worker: 2,
            plan: 3,
            view: 4,
            region: 5,
            epoch: 6,
            durable: 7,
            seq: 0,
            tag: 0,
        };
        let others = [
            Header { plan: 9, ..ack },
            Header { view: 9, ..ack },
            Header { region: 9, ..ack },
            Header { epoch: 9, ..ack },
            Header { durable: 9, ..ack },
        ];
        for other in others {
            let mut sent = Vec::new();
            let mut emit = |bytes: &[u8]| {
                let packet = Packet::parse(bytes).unwrap();
                let seqs: Vec<_> = packet.acknowledged().flat_map(SeqRange::iter).collect();
                sent.push((Header { entries: 0, seq: 0, ..packet.header }, seqs));
            };
            let mut acknowledged = Coalesced::new();
            for (header, seq) in [(ack, 0), (ack, 1), (other, 2), (other, 3), (ack, 4)] {
                acknowledged.add(Header { seq, ..header }, &mut emit);
            }
            acknowledged.flush(&mut emit);
            let pairs = [(ack, [0, 1].as_slice()), (other, &[2, 3]), (ack, &[4])];
            assert_eq!(sent, pairs.map(|(header, seqs)| (header, seqs.to_vec())));
        }
    }
}
