//! The packets of one flow, from the moment they are built until no answer or replay can need them.

use core::ops::Range;
use std::collections::VecDeque;

use libra_dataplane::mutants::{Mutant, is_enabled};
use libra_dataplane::{BodyHash, Direction, Header, Tags, WINDOW, round_newer, set_tag};

use super::probes::PROBES_BEGIN;
use super::sent_packets::Transmission;

/// Packets of a flow of pushes at most: those of pulls have the numbers from here on. An answer to one kind can thus not be taken for an
/// answer to another.
pub const FLOW_PACKETS_MAX: u32 = 1 << 30;
/// No window remembers pulls, so a flow of pulls numbers from the start again, long before numbers run out and long after
/// the last packet that had the first of them is gone from any network.
const RENUMBER_AFTER: u32 = 1 << 29;

/// The rows that a packet carries: `rows.start..rows.end` of the operation's list of hot rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PacketRows {
    pub(crate) operation: u64,
    pub(crate) first: u32,
    pub(crate) end: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Waits to be sent, for the first time or again.
    Queued,
    /// Sent, and not answered.
    InFlight,
    /// Taken by this round.
    Accepted { round: u16 },
    /// No answer or replay needs it any more.
    Done,
}

impl State {
    const fn is_answered(self) -> bool {
        matches!(self, Self::Accepted { .. } | Self::Done)
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Packet {
    pub(crate) bytes: Vec<u8>,
    pub(crate) packet_rows: PacketRows,
    /// The hash of its entries under the key of the switch that has the region now, once it was sent: tags of the same packet differ in its
    /// header alone.
    pub(crate) body_hash: Option<BodyHash>,
    pub(crate) state: State,
    /// The newest time that it was sent to the switch that has the region now; its order is 0 before that.
    pub(crate) sent: Transmission,
    pub(crate) transmissions: u32,
    /// True if it was sent again because what was sent later had been answered.
    pub(crate) is_fast_retransmit: bool,
    /// True if it was sent again without a sign of a loss other than a timeout.
    pub(crate) is_probe: bool,
    /// True if the switch has refused it: another answer may be a copy of that.
    pub(crate) is_refused: bool,
    /// True if its operation has been notified of its acceptance: a replay accepts it once more, without a notification.
    delivered: bool,
}

impl Packet {
    /// Gives it the tag of its present header, in a region that its switch holds since this view.
    pub(super) fn sign(&mut self, tags: Tags<'_>, since: u64) {
        let (header, body) = self.bytes.split_first_chunk_mut().expect("the worker built this packet itself");
        let hash = *self.body_hash.get_or_insert_with(|| tags.body_hash(body));
        set_tag(header, tags.tag(Direction::Up, header, since, hash));
    }

    /// Returns true if it waits to be sent, or for an answer.
    pub(super) const fn is_open(&self) -> bool {
        matches!(self.state, State::Queued | State::InFlight)
    }

    /// Returns true if an answer to it could be no copy of an earlier one (rule T17).
    pub(super) const fn is_sole(&self) -> bool {
        self.transmissions == 1 && !self.is_refused
    }
}

/// The sender's end of one flow: packets `first .. next` by sequence number.
#[derive(Debug, Clone)]
pub(crate) struct Flow {
    numbers: Range<u32>,
    /// Number of packets that it had before its restart.
    before: u64,
    first: u32,
    packets: VecDeque<Packet>,
    /// Every packet below it is accepted or done.
    unacknowledged: u32,
    /// Number of packets that wait for each round to become durable.
    awaited: Vec<(u16, u32)>,
}

impl Flow {
    /// A flow of pushes, of so many packets before it must restart.
    pub(super) fn of_pushes(packets_max: u32) -> Self {
        Self::with_numbers(0..packets_max)
    }

    /// A flow of pulls.
    pub(super) fn of_pulls() -> Self {
        Self::with_numbers(FLOW_PACKETS_MAX..PROBES_BEGIN)
    }

    fn with_numbers(numbers: Range<u32>) -> Self {
        let first = numbers.start;
        Self {
            numbers,
            before: 0,
            first,
            packets: VecDeque::new(),
            unacknowledged: first,
            awaited: Vec::new(),
        }
    }

    /// A flow of pushes that has used all numbers but so many.
    #[cfg(test)]
    pub(crate) fn near_its_end(left: u32) -> Self {
        let first = FLOW_PACKETS_MAX - left;
        Self { first, unacknowledged: first, ..Self::of_pushes(FLOW_PACKETS_MAX) }
    }

    /// The sequence number of the next packet.
    pub(crate) fn next(&self) -> u32 {
        self.first
            + u32::try_from(self.packets.len())
                .expect("a flow holds fewer packets than there are sequence numbers")
    }

    /// The oldest packet that is still needed.
    #[cfg(test)]
    pub(super) fn first(&self) -> u32 {
        self.first
    }

    /// The place of the next packet among all that the flow ever had.
    pub(crate) fn next_place(&self) -> u64 {
        self.before + u64::from(self.next() - self.numbers.start)
    }

    /// The place of the oldest packet that is still needed.
    pub(crate) fn first_place(&self) -> u64 {
        self.before + u64::from(self.first - self.numbers.start)
    }

    /// The first packet that may still wait for its first answer: all below it are answered.
    pub(crate) fn first_open(&self) -> u32 {
        self.unacknowledged.max(self.first)
    }

    /// Returns true if packets are accepted and wait for their round to become durable.
    pub(crate) fn awaits_durability(&self) -> bool {
        !self.awaited.is_empty()
    }

    pub(crate) fn append(&mut self, bytes: Vec<u8>, packet_rows: PacketRows) {
        assert!(!self.is_exhausted(), "the caller asks is_exhausted before it builds packets");
        let packet = Packet {
            body_hash: None,
            bytes,
            packet_rows,
            state: State::Queued,
            sent: Transmission::default(),
            transmissions: 0,
            is_fast_retransmit: false,
            is_probe: false,
            is_refused: false,
            delivered: false,
        };
        self.packets.push_back(packet);
    }

    /// Returns true if the flow cannot take one more packet.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.next() >= self.numbers.end
    }

    /// Returns true if it cannot take one more packet, and none of its packets is needed.
    pub(crate) fn is_over(&self) -> bool {
        self.is_exhausted() && self.packets.is_empty()
    }

    /// Numbers from the start again.
    pub(crate) fn restart(&mut self) {
        assert!(self.packets.is_empty(), "no packet that is needed changes its number");
        self.before = self.first_place();
        (self.first, self.unacknowledged) = (self.numbers.start, self.numbers.start);
    }

    pub(crate) fn packet(&mut self, seq: u32) -> Option<&mut Packet> {
        self.packets.get_mut(seq.checked_sub(self.first)? as usize)
    }

    /// Returns true if the dedup window of the switch can distinguish this packet from the one it overwrites: everything a window
    /// before it must be acknowledged. And if fewer than `undurable_max` packets are kept for a replay (rule T2): that bounds the memory
    /// of a worker while rounds are slow.
    pub(crate) fn may_send(&mut self, seq: u32, undurable_max: u32) -> bool {
        self.unacknowledged = self.first_open();
        while self.packet(self.unacknowledged).is_some_and(|packet| packet.state.is_answered()) {
            self.unacknowledged += 1;
        }
        ((seq - self.unacknowledged) as usize) < WINDOW && seq - self.first < undurable_max
    }

    /// The packet of this number, if it was sent and is not answered (rule T11). A switch that goes on from the contents of a round may name what it was not
    /// sent.
    fn unanswered(&mut self, seq: u32) -> Option<&mut Packet> {
        self.packet(seq).filter(|packet| packet.is_open()).filter(|packet| packet.sent.order > 0)
    }

    /// Marks a packet as taken by a round. Returns what it carried, if this is news.
    pub(crate) fn accept(&mut self, seq: u32, round: u16) -> Option<Accepted> {
        let packet = self.unanswered(seq)?;
        let news = Accepted::of(packet);
        packet.delivered = true;
        packet.state = State::Accepted { round };
        match self.awaited.iter_mut().find(|(awaited, _)| *awaited == round) {
            Some((_, packets)) => *packets += 1,
            None => self.awaited.push((round, 1)),
        }
        Some(news)
    }

    /// Takes back that packets were sent or accepted: the present owner of the region may not have them (rule V5). Returns the number
    /// of those that were on their way, and the sequence numbers to send, in order.
    pub(crate) fn reopen(&mut self) -> (usize, Vec<u32>) {
        let (mut in_flight, mut seqs) = (0, Vec::new());
        if is_enabled(Mutant::ReplayWithNewNumbers) {
            self.first = self.next();
        }
        for (seq, packet) in (self.first..).zip(&mut self.packets) {
            if packet.state == State::Done {
                continue;
            }
            in_flight += usize::from(packet.state == State::InFlight);
            (packet.state, packet.sent) = (State::Queued, Transmission::default());
            seqs.push(seq);
        }
        self.awaited.clear();
        self.unacknowledged = self.first;
        (in_flight, seqs)
    }

    /// The packets that are needed, with their sequence numbers.
    pub(crate) fn needed(&mut self) -> impl Iterator<Item = (u32, &mut Packet)> {
        (self.first..).zip(&mut self.packets).filter(|(_, packet)| packet.state != State::Done)
    }

    /// Ends the packets below a sequence number: the shard has applied them. Returns the contents of those that were not reported as
    /// accepted.
    pub(crate) fn finish_below(&mut self, below: u32, spare: &mut Vec<Vec<u8>>) -> Vec<PacketRows> {
        let mut news = Vec::new();
        for (_, packet) in self.needed().take_while(|(seq, _)| *seq < below) {
            packet.state = State::Done;
            spare.push(core::mem::take(&mut packet.bytes));
            if !packet.delivered {
                news.push(packet.packet_rows);
            }
        }
        self.pop_done();
        news
    }

    /// Gives up the packets that rounds up to `durable` took, and their memory to `spare` (rule T7).
    pub(crate) fn release(&mut self, durable: u16, spare: &mut Vec<Vec<u8>>) {
        let is_due = |round| !round_newer(round, durable) || is_enabled(Mutant::FreeOnAck);
        let due: u32 =
            self.awaited.iter().filter(|(round, _)| is_due(*round)).map(|(_, packets)| packets).sum();
        if due == 0 {
            return;
        }
        let accepted =
            |packet: &&mut Packet| matches!(packet.state, State::Accepted { round } if is_due(round));
        for packet in self.packets.iter_mut().filter(accepted).take(due as usize) {
            packet.state = State::Done;
            spare.push(core::mem::take(&mut packet.bytes));
        }
        self.awaited.retain(|(round, _)| !is_due(*round));
        self.pop_done();
    }

    /// Gives up one packet that was answered and needs no replay, and its memory to `spare` (rule T10).
    /// Returns its contents, if they were not reported before.
    pub(crate) fn finish(&mut self, seq: u32, spare: &mut Vec<Vec<u8>>) -> Option<Accepted> {
        let packet = self.unanswered(seq)?;
        let news = Accepted::of(packet);
        packet.state = State::Done;
        spare.push(core::mem::take(&mut packet.bytes));
        self.pop_done();
        Some(news)
    }

    /// Numbers from the start again, if half of the numbers are used and none of them is on its way.
    pub(crate) fn renumber(&mut self) {
        if self.packets.is_empty() && self.first - self.numbers.start >= RENUMBER_AFTER {
            self.restart();
        }
    }

    fn pop_done(&mut self) {
        while self.packets.front().is_some_and(|packet| packet.state == State::Done) {
            self.packets.pop_front();
            self.first += 1;
        }
    }
}

/// News of a packet that was accepted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Accepted {
    pub(crate) packet_rows: PacketRows,
    /// True if its operation was not notified before.
    pub(crate) is_first: bool,
    pub(crate) was_in_flight: bool,
    pub(crate) sent: Transmission,
    pub(crate) transmissions: u32,
    pub(crate) is_fast_retransmit: bool,
    pub(crate) is_probe: bool,
    /// True if this can be no copy of another answer: the packet was sent once, and had none.
    pub(crate) is_sole: bool,
}

impl Accepted {
    fn of(packet: &Packet) -> Self {
        Self {
            packet_rows: packet.packet_rows,
            is_first: !packet.delivered,
            was_in_flight: packet.state == State::InFlight,
            sent: packet.sent,
            transmissions: packet.transmissions,
            is_fast_retransmit: packet.is_fast_retransmit,
            is_probe: packet.is_probe,
            is_sole: packet.is_sole(),
        }
    }
}

/// Changes the header of a packet that this worker has built.
pub(crate) fn edit_header(bytes: &mut [u8], edit: impl FnOnce(&mut Header)) {
    let mut header = Header::parse_without_entries(bytes).expect("the worker built this packet itself");
    edit(&mut header);
    header.emit(bytes);
}
