//! Packets of a worker on their way into one region, by any path.

use libra_dataplane::Kind;

use super::flow::{self, FLOW_PACKETS_MAX, Flow, State};
use super::probe_backoff::ProbeBackoff;
use super::probes::Probes;
use super::rtt::Rtt;
use super::sent_packets::{SentPackets, Transmission};
use crate::time::Instant;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FlowKind {
    Push,
    Pull,
}

impl FlowKind {
    pub(super) fn of(kind: Kind) -> Self {
        if kind == Kind::Push { Self::Push } else { Self::Pull }
    }

    /// The flow whose packets have such numbers (rule T1).
    pub(super) fn of_seq(seq: u32) -> Self {
        if seq < FLOW_PACKETS_MAX { Self::Push } else { Self::Pull }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PacketRef {
    pub(super) region: u8,
    pub(super) kind: FlowKind,
    pub(super) seq: u32,
}

/// A worker's two flows into one region. They outlive the path: the region may move to another switch.
#[derive(Debug, Clone)]
pub(crate) struct RegionFlows {
    pub(crate) push: Flow,
    pub(crate) pull: Flow,
    /// The number of the view since which the switch holds the region: packets have its lower 16 bits, and tags cover all of it.
    pub(super) view: u64,
    /// The newest round that was reported as durable, while a packet waits for one. Serial numbers compare rightly while they are close, and a
    /// flow that waits for none may be away for longer than they last (rule T9).
    pub(super) durable: Option<u16>,
    pub(super) sent_packets: SentPackets,
    /// Time of the next probe, if nothing is received until then.
    pub(super) probe_at: Option<Instant>,
    pub(super) probe_backoff: ProbeBackoff,
    pub(super) probes: Probes,
}

impl RegionFlows {
    /// Flows without a packet; the one of pushes has so many before it must restart.
    pub(crate) fn new(flow_packets_max: u32) -> Self {
        Self {
            push: Flow::of_pushes(flow_packets_max),
            pull: Flow::of_pulls(),
            view: 0,
            durable: None,
            sent_packets: SentPackets::default(),
            probe_at: None,
            probe_backoff: ProbeBackoff::default(),
            probes: Probes::default(),
        }
    }

    /// The view as packets carry it.
    pub(super) fn view_on_wire(&self) -> u16 {
        (self.view & 0xffff) as u16
    }

    pub(super) fn flow(&mut self, kind: FlowKind) -> &mut Flow {
        match kind {
            FlowKind::Push => &mut self.push,
            FlowKind::Pull => &mut self.pull,
        }
    }

    /// The packet that this transmission was the last of, while it is on its way.
    pub(super) fn in_flight(
        &mut self,
        transmission: Transmission,
        reference: PacketRef,
    ) -> Option<&mut flow::Packet> {
        self.flow(reference.kind)
            .packet(reference.seq)
            .filter(|packet| packet.state == State::InFlight && packet.sent == transmission)
    }

    /// The oldest transmission that is still on its way.
    pub(super) fn oldest_in_flight(&mut self) -> Option<(Transmission, PacketRef)> {
        while let Some((transmission, reference)) = self.sent_packets.front() {
            if self.in_flight(transmission, reference).is_some() {
                return Some((transmission, reference));
            }
            self.sent_packets.pop_front();
        }
        None
    }

    /// An answer for the region was received: the time without one begins again (rule T8).
    pub(super) fn postpone_probe(&mut self, now: Instant, rtt: &Rtt, expedited: bool) {
        self.probe_at = if self.oldest_in_flight().is_some() {
            Some(now + rtt.probe_timeout())
        } else {
            self.push.awaits_durability().then(|| now + self.probe_backoff.interval(expedited))
        };
    }
}
