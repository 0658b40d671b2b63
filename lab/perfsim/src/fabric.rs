//! Machines, their links, and the switch between them.
//!
//! ```text
//!  machine ── up ──►  ┌────────┐ ── down ──► machine
//!                     │ switch │
//!  machine ── up ──►  └────────┘ ── down ──► machine
//! ```
//!
//! Each machine has a link to the switch and one from it. Packets are stored and forwarded; what is sent in one piece follows itself packet by
//! packet, so its head may leave the switch while its tail still comes. Each link serves in the order in which heads come.

use core::time::Duration;

use libra_proto::Instant;

use crate::loss::Losses;

/// Bytes of a datagram on the wire that are not its own: preamble 8, Ethernet 14, IPv4 20, UDP 8, checksum 4, gap 12.
pub const DATAGRAM_OVERHEAD: usize = 66;
/// Bytes of a segment of a stream, and what is around them: preamble 8, Ethernet 14, IPv4 20, TCP 32 with time stamps, checksum 4, gap 12.
const SEGMENT: usize = 1448;
const SEGMENT_OVERHEAD: usize = 90;

/// A machine, or the place of a programmable switch, by its number.
pub(crate) type Place = usize;

/// Properties of the links of a machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkSpec {
    /// Bits a second, each way, of all its ports together.
    pub bits_per_second: f64,
    /// From a machine to the switch, or back.
    pub propagation: Duration,
    /// Bytes of datagrams that wait for a link at most; what comes then is dropped. Streams do not lose: they would slow down.
    pub queue_bytes: f64,
    /// Probability, from 0 up to, not including, 1, that a packet is lost on it. A datagram is gone.
    pub loss: f64,
    /// Delay of a message on a stream that lost packets, once for each time that some of them are sent again: from
    /// a round trip, where packets behind the lost one reveal it, to the timer that asks for the end of a message. What else a
    /// stream does, such as to halve its window, is not modelled.
    pub recovery: Duration,
}

impl LinkSpec {
    /// Two ports of 100 Gbit/s, as the machines of the paper have, 100 m of cable, and a queue of 4 MiB. Nothing is lost on it.
    pub const DUAL_100G: Self = Self {
        bits_per_second: 200e9,
        propagation: Duration::from_nanos(500),
        queue_bytes: 4_194_304.0,
        loss: 0.0,
        recovery: Duration::from_millis(1),
    };
}

/// Packets that are sent in one piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Train {
    /// On the wire.
    pub(crate) bytes: usize,
    /// Of its first packet, and of its last one.
    pub(crate) first: usize,
    pub(crate) last: usize,
    pub(crate) packets: usize,
    /// True if it is dropped when a queue is full, and lost at the loss rate.
    pub(crate) droppable: bool,
    /// Delay of its arrival after that of its packets, as some of them were sent again.
    pub(crate) late: Duration,
}

impl Train {
    /// Datagrams of one length, but for the last.
    pub(crate) fn of_datagrams(bytes: usize, stride: usize) -> Self {
        let packets = bytes.div_ceil(stride.max(1));
        let last = bytes - stride * packets.saturating_sub(1) + DATAGRAM_OVERHEAD;
        let first = if packets > 1 { stride + DATAGRAM_OVERHEAD } else { last };
        Self {
            bytes: bytes + packets * DATAGRAM_OVERHEAD,
            first,
            last,
            packets,
            droppable: true,
            late: Duration::ZERO,
        }
    }

    /// A message on a stream.
    pub(crate) fn of_message(bytes: usize) -> Self {
        let packets = bytes.div_ceil(SEGMENT).max(1);
        let last = bytes - SEGMENT * (packets - 1) + SEGMENT_OVERHEAD;
        let first = if packets > 1 { SEGMENT + SEGMENT_OVERHEAD } else { last };
        Self {
            bytes: bytes + packets * SEGMENT_OVERHEAD,
            first,
            last,
            packets,
            droppable: false,
            late: Duration::ZERO,
        }
    }
}

/// One direction of the link of a machine.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LinkCounts {
    /// Bytes on the wire that came to the link, and were dropped because its queue was full.
    pub bytes_offered: u64,
    /// See above.
    pub bytes_dropped: u64,
    /// Bytes on the wire that have left it, or will.
    pub bytes_carried: u64,
    /// Packets, likewise.
    pub packets: u64,
    /// Of those the ones that were lost behind it.
    pub packets_lost: u64,
    /// Time for which it was busy, in nanoseconds.
    pub busy_ns: f64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Link {
    /// When everything has left that waits.
    free_at: f64,
    counts: LinkCounts,
}

impl Link {
    /// Sends a train whose head and tail come at these times. Returns when its head and tail have left; `None` if it is dropped.
    fn serve(&mut self, spec: &LinkSpec, train: Train, head: f64, tail: f64) -> Option<(f64, f64)> {
        let nanos = |bytes: usize| bytes as f64 * 8e9 / spec.bits_per_second;
        let counts = &mut self.counts;
        counts.bytes_offered += train.bytes as u64;
        let waiting = (self.free_at - head).max(0.0);
        if train.droppable && waiting * spec.bits_per_second / 8e9 > spec.queue_bytes {
            counts.bytes_dropped += train.bytes as u64;
            return None;
        }
        let start = self.free_at.max(head);
        let end = (start + nanos(train.bytes)).max(tail + nanos(train.last));
        self.free_at = end;
        counts.bytes_carried += train.bytes as u64;
        counts.packets += train.packets as u64;
        counts.busy_ns += nanos(train.bytes);
        Some((start + nanos(train.first), end))
    }

    /// The same, on a link that loses packets. Also returns the places of the datagrams that are lost; what a stream loses makes it late.
    fn cross(
        &mut self,
        spec: &LinkSpec,
        losses: &mut Losses,
        train: &mut Train,
        head: f64,
        tail: f64,
    ) -> Option<(f64, f64, Vec<usize>)> {
        let (head, tail) = self.serve(spec, *train, head, tail)?;
        let mut lost = losses.of(train.packets);
        self.counts.packets_lost += lost.len() as u64;
        while !train.droppable && !lost.is_empty() {
            train.late += spec.recovery;
            let again = Train { packets: lost.len(), bytes: lost.len() * train.first, ..*train };
            self.serve(spec, again, tail, tail);
            lost = losses.of(again.packets);
            self.counts.packets_lost += lost.len() as u64;
        }
        Some((head, tail, lost))
    }
}

/// Next step of a train.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Hop {
    /// Its head comes to the switch at the first time, its tail at the second.
    AtSwitch(Instant, Instant),
    /// It is there at this time.
    Arrives(Instant),
    /// It never is.
    Dropped,
}

/// All links.
#[derive(Debug)]
pub(crate) struct Fabric {
    spec: LinkSpec,
    /// From when the head of a packet is in the switch until it is at its port.
    forwarding: Duration,
    /// For each place its links up and down; none for the place of the switch itself.
    links: Vec<Option<[Link; 2]>>,
    losses: Losses,
}

impl Fabric {
    pub(crate) fn new(spec: LinkSpec, forwarding: Duration, seed: u64) -> Self {
        Self { spec, forwarding, links: Vec::new(), losses: Losses::new(spec.loss, seed) }
    }

    /// One more place: a machine, or the switch itself.
    pub(crate) fn add(&mut self, is_machine: bool) {
        self.links.push(is_machine.then(Default::default));
    }

    /// A train leaves a place. Also returns the places of its datagrams that are lost on the link, which has carried them.
    pub(crate) fn leave(
        &mut self,
        now: Instant,
        from: Place,
        to: Place,
        train: &mut Train,
    ) -> (Hop, Vec<usize>) {
        if from == to {
            return (Hop::Arrives(now), Vec::new());
        }
        let at = now.as_nanos() as f64;
        let Some([up, _]) = &mut self.links[from] else { return (Hop::AtSwitch(now, now), Vec::new()) };
        match up.cross(&self.spec, &mut self.losses, train, at, at) {
            Some((head, tail, lost)) => {
                let propagation = self.spec.propagation + self.forwarding;
                (Hop::AtSwitch(instant(head) + propagation, instant(tail) + propagation), lost)
            }
            None => (Hop::Dropped, Vec::new()),
        }
    }

    /// The head of a train is in the switch. Returns what [`leave`](Self::leave) does.
    pub(crate) fn forward(
        &mut self,
        to: Place,
        train: &mut Train,
        head: Instant,
        tail: Instant,
    ) -> (Hop, Vec<usize>) {
        // For the switch itself a packet is there when all of it is.
        let Some([_, down]) = &mut self.links[to] else { return (Hop::Arrives(tail), Vec::new()) };
        let (head, tail) = (head.as_nanos() as f64, tail.as_nanos() as f64);
        match down.cross(&self.spec, &mut self.losses, train, head, tail) {
            Some((_, tail, lost)) => (Hop::Arrives(instant(tail) + self.spec.propagation), lost),
            None => (Hop::Dropped, Vec::new()),
        }
    }

    /// The links up and down of a place, as they are at a time: what they will still be busy with is not counted as time.
    pub(crate) fn counts(&self, place: Place, now: Instant) -> Option<[LinkCounts; 2]> {
        let now = now.as_nanos() as f64;
        let until_now = |link: Link| {
            let ahead = (link.free_at - now).max(0.0);
            LinkCounts { busy_ns: (link.counts.busy_ns - ahead).max(0.0), ..link.counts }
        };
        self.links[place].map(|links| links.map(until_now))
    }
}

/// A time of so many nanoseconds.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times are neither negative nor centuries"
)]
pub(crate) fn instant(nanos: f64) -> Instant {
    Instant::from_nanos(nanos.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: LinkSpec = LinkSpec {
        bits_per_second: 8e9,
        propagation: Duration::from_nanos(100),
        queue_bytes: 10_000.0,
        ..LinkSpec::DUAL_100G
    };

    fn fabric() -> Fabric {
        fabric_that_loses(0.0)
    }

    fn fabric_that_loses(loss: f64) -> Fabric {
        let mut fabric = Fabric::new(LinkSpec { loss, ..SPEC }, Duration::from_nanos(1000), 1);
        (0..3).for_each(|_| fabric.add(true));
        fabric
    }

    fn send(fabric: &mut Fabric, at: u64, from: Place, to: Place, mut train: Train) -> Option<u64> {
        match fabric.leave(Instant::from_nanos(at), from, to, &mut train).0 {
            Hop::AtSwitch(head, tail) => match fabric.forward(to, &mut train, head, tail).0 {
                Hop::Arrives(at) => Some((at + train.late).as_nanos()),
                _ => None,
            },
            Hop::Arrives(at) => Some(at.as_nanos()),
            Hop::Dropped => None,
        }
    }

    /// One byte takes one nanosecond on each link.
    #[test]
    fn a_packet_is_stored_and_forwarded_and_a_train_follows_itself() {
        let mut fabric = fabric();
        let packet = Train::of_datagrams(934, 934);
        assert_eq!((packet.bytes, packet.packets), (1000, 1));
        assert_eq!(send(&mut fabric, 0, 0, 1, packet), Some(2 * 1000 + 2 * 100 + 1000));
        // Ten such packets: the last one leaves after ten, and goes one more time alone.
        let train = Train::of_datagrams(9340, 934);
        assert_eq!(send(&mut fabric, 100_000, 0, 1, train), Some(100_000 + 11 * 1000 + 2 * 100 + 1000));
        assert_eq!(
            send(&mut fabric, 0, 2, 2, train),
            Some(0),
            "nothing lies between two processes of a machine"
        );
    }

    #[test]
    fn packets_to_one_machine_queue_and_then_are_dropped() {
        let mut fabric = fabric();
        let train = Train::of_datagrams(9340, 934);
        let first = send(&mut fabric, 0, 0, 2, train).unwrap();
        let second = send(&mut fabric, 0, 1, 2, train).unwrap();
        assert_eq!(second - first, 10_000, "the link down is shared");
        // Of 22 trains at once the first leaves, one fills the queue, and one more may come while something of it is left.
        let there = (0..22).filter(|_| send(&mut fabric, 1_000_000, 0, 2, train).is_some()).count();
        assert_eq!(there, 2);
        let [up, _] = fabric.counts(0, Instant::from_nanos(1 << 40)).unwrap();
        assert_eq!(up.bytes_offered, up.bytes_carried + up.bytes_dropped);
        assert!(up.bytes_dropped == 20 * 10_000 && up.busy_ns == 30_000.0, "{up:?}");
    }
    #[test]
    fn a_datagram_is_lost_alone_and_a_message_comes_late() {
        let mut fabric = fabric_that_loses(0.05);
        let (mut datagrams, mut messages) = (0, 0);
        for number in 0..1000 {
            let at = number * 1_000_000;
            let mut train = Train::of_datagrams(9340, 934);
            let (hop, lost) = fabric.leave(Instant::from_nanos(at), 0, 1, &mut train);
            assert!(
                matches!(hop, Hop::AtSwitch(..)) && lost.is_sorted() && lost.iter().all(|place| *place < 10)
            );
            assert_eq!(train.late, Duration::ZERO);
            datagrams += lost.len();
            let mut train = Train::of_message(10 * SEGMENT);
            let (hop, lost) = fabric.leave(Instant::from_nanos(at + 500_000), 1, 0, &mut train);
            assert!(matches!(hop, Hop::AtSwitch(..)) && lost.is_empty());
            messages += u64::from(train.late > Duration::ZERO);
        }
        // Of ten packets at 5%: 0.5 are lost, and 40% of messages lose one or more.
        assert!((400..600).contains(&datagrams) && (340..470).contains(&messages), "{datagrams} {messages}");
        let [up, _] = fabric.counts(1, Instant::from_nanos(1 << 40)).unwrap();
        assert_eq!(up.bytes_carried, up.packets * (SEGMENT + SEGMENT_OVERHEAD) as u64);
        assert_eq!(up.packets, 10_000 + up.packets_lost, "all that is lost is sent again");
        let [up, _] = fabric.counts(0, Instant::from_nanos(1 << 40)).unwrap();
        assert_eq!((up.packets, up.packets_lost), (10_000, datagrams as u64));
    }
}
