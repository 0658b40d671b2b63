//! Packets of a region on their way, in the order they were sent, and the rule that declares them lost.

use std::collections::VecDeque;

use super::region::PacketRef;
use super::rtt::Rtt;
use crate::time::Instant;

/// So many packets overtake one that is not lost where packets overtake each other (RFC 9002, section 6.1.1). Before any has, a
/// single one is evidence of a loss (as in RFC 8985, section 6.2): a packet too many is added once all the same.
const PACKET_THRESHOLD: u64 = 3;
/// For how many transmissions it is remembered that packets have overtaken each other.
const REORDERING_MEMORY: u64 = 1024;

/// One sending of one packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Transmission {
    pub(crate) at: Instant,
    /// Number of transmissions of the region up to it: 1 is the first.
    pub(crate) order: u64,
}

/// The transmissions of a region, oldest first. Those that were answered, or whose packet was sent again since, may still be
/// among them.
#[derive(Debug, Clone, Default)]
pub(crate) struct SentPackets {
    entries: VecDeque<(Transmission, PacketRef)>,
    sent: u64,
    /// The newest that was answered.
    answered: Transmission,
    /// Up to here packets may overtake each other, as some have lately.
    reordered_until: u64,
}

impl SentPackets {
    pub(crate) fn send(&mut self, now: Instant, reference: PacketRef) -> Transmission {
        self.sent += 1;
        let transmission = Transmission { at: now, order: self.sent };
        self.entries.push_back((transmission, reference));
        transmission
    }

    pub(crate) fn answer(&mut self, transmission: Transmission) {
        if transmission.order > self.answered.order {
            self.answered = transmission;
        } else {
            self.note_reordering();
        }
    }

    /// Like [`answer`](Self::answer), of a packet that was sent before. It is no evidence of reordering, as it may be older than it seems.
    pub(crate) fn answer_again(&mut self, transmission: Transmission) {
        if transmission.order > self.answered.order {
            self.answered = transmission;
        }
    }

    /// Something was overtaken and is answered all the same.
    pub(crate) fn note_reordering(&mut self) {
        self.reordered_until = self.sent + REORDERING_MEMORY;
    }

    pub(crate) fn front(&self) -> Option<(Transmission, PacketRef)> {
        self.entries.front().copied()
    }

    pub(crate) fn pop_front(&mut self) {
        self.entries.pop_front();
    }

    /// Returns true if a later transmission was answered.
    pub(crate) fn has_later_ack(&self, transmission: Transmission) -> bool {
        transmission.order < self.answered.order
    }

    /// Returns true if so many later ones were answered that it is taken for lost, however little time has passed (rule T5).
    pub(crate) fn is_lost(&self, transmission: Transmission) -> bool {
        let needed = if self.answered.order > self.reordered_until { 1 } else { PACKET_THRESHOLD };
        self.answered.order.saturating_sub(transmission.order) >= needed
    }

    /// When a transmission is taken for lost (rules T4, T5).
    pub(crate) fn deadline(&self, transmission: Transmission, rtt: &Rtt) -> Instant {
        let at = transmission.at;
        if self.is_lost(transmission) {
            at
        } else if self.has_later_ack(transmission) {
            at + rtt.reorder_allowance()
        } else {
            at + rtt.timeout()
        }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::transport::region::FlowKind;

    const NOW: Instant = Instant::from_nanos(5_000_000);

    fn reference(seq: u32) -> PacketRef {
        PacketRef { region: 0, kind: FlowKind::Push, seq }
    }

    fn five() -> (SentPackets, Vec<Transmission>) {
        let mut sent_packets = SentPackets::default();
        let sent = (0..5).map(|seq| sent_packets.send(NOW, reference(seq))).collect();
        (sent_packets, sent)
    }

    #[test]
    fn packets_overtaken_by_one_are_lost_without_reordering() {
        let (rtt, (mut sent_packets, sent)) = (Rtt::new(), five());
        sent_packets.answer(sent[3]);
        let waits = [0, 2, 4].map(|seq| sent_packets.deadline(sent[seq], &rtt).since(NOW));
        assert_eq!(waits, [Duration::ZERO, Duration::ZERO, rtt.timeout()]);
        assert_eq!(sent_packets.front(), Some((sent[0], reference(0))));
    }

    #[test]
    fn packets_overtaken_by_many_are_lost_and_by_few_a_bit_later() {
        let (rtt, (mut sent_packets, sent)) = (Rtt::new(), five());
        sent_packets.answer(sent[3]);
        sent_packets.answer(sent[1]);
        let waits = [0, 2, 4].map(|seq| sent_packets.deadline(sent[seq], &rtt).since(NOW));
        assert_eq!(waits, [Duration::ZERO, rtt.reorder_allowance(), rtt.timeout()]);
        let (mut sent_packets, sent) = five();
        sent_packets.answer(sent[4]);
        sent_packets.note_reordering();
        assert_eq!(sent_packets.deadline(sent[2], &rtt).since(NOW), rtt.reorder_allowance());
        // It is forgotten again.
        let mut last = sent[4];
        for seq in 5..5000 {
            last = sent_packets.send(NOW, reference(seq));
        }
        assert_ne!(sent_packets.deadline(sent[2], &rtt), NOW, "to send something changes no deadline");
        sent_packets.answer(last);
        assert_eq!(sent_packets.deadline(sent[2], &rtt), NOW);
    }
}
