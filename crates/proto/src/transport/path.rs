//! One worker's path to one switch: what is sent, when it is sent again, and what an answer means.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::VecDeque;

use libra_dataplane::{Direction, Flags, Header, Kind, WINDOW, packet_bytes};

mod answers;

pub(crate) use answers::Delivery;

use super::bounds::Bounds;
use super::congestion_window::CongestionWindow;
use super::flow::{self, Flow, PacketRows, State};
use super::outage::Outage;
use super::path_length::{PathLength, SHORT};
use super::probe_backoff::PROBE_INTERVAL;
use super::region::{FlowKind, PacketRef, RegionFlows};
use super::rtt::Rtt;
use super::sent_packets::{SentPackets, Transmission};
use crate::authentication::PathTags;
use crate::role::Outgoing;
use crate::statistics::WorkerStatistics;
use crate::time::Instant;

/// An answer to what was sent longer ago is no evidence of `durable`: 2^15 rounds take 13 s, and serial numbers that are further apart
/// compare wrongly (rules E1, T17).
const FRESH_FOR: Duration = Duration::from_secs(10);
/// Transmissions of a packet after which its length is suspected: at least half a second.
const SUSPECT_AFTER: u32 = 8;

/// The header fields that all packets of a worker share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Identity {
    pub(crate) job: u16,
    pub(crate) worker: u16,
    pub(crate) plan: u16,
}

/// A worker's path to one switch.
#[derive(Debug, Clone)]
pub(crate) struct Path {
    address: SocketAddr,
    identity: Identity,
    /// The tags of packets and answers, in a job with keys.
    tags: Option<PathTags>,
    undurable_max: u32,
    rtt: Rtt,
    in_flight: usize,
    window: CongestionWindow,
    /// Flows by region number; `None` where the region belongs to another switch.
    regions: Vec<Option<RegionFlows>>,
    pulls: VecDeque<PacketRef>,
    pushes: VecDeque<PacketRef>,
    refused: VecDeque<(Instant, PacketRef)>,
    /// When a round trip was last learnt.
    sampled_at: Instant,
    /// When the newest packet that was sent once and answered had been sent.
    answered_sent_at: Instant,
    /// Time for which the switch has owed an answer that is fresh.
    outage: Outage,
    /// When something was last answered, fresh or not.
    answered_at: Instant,
    /// Time at which a timer last fired without an answer.
    backed_off_at: Instant,
    /// True if an operation waits for rounds to be durable.
    pub(crate) expedited: bool,
    /// Regions that are to be sent a probe.
    probes: Vec<u8>,
    pub(crate) length: PathLength,
    /// Time for which a packet has been longer than what comes through.
    overlong: Outage,
    spare: Vec<Vec<u8>>,
    /// Counters of this path: `packets`, `retransmits`, `refused` and `dropped`.
    pub(crate) statistics: WorkerStatistics,
}

impl Path {
    pub(crate) fn new(address: SocketAddr, identity: Identity, bounds: Bounds) -> Self {
        Self {
            address,
            identity,
            tags: None,
            undurable_max: bounds.undurable,
            rtt: Rtt::new(),
            in_flight: 0,
            window: CongestionWindow::new(bounds.in_flight),
            regions: Vec::new(),
            pulls: VecDeque::new(),
            pushes: VecDeque::new(),
            refused: VecDeque::new(),
            sampled_at: Instant::ZERO,
            answered_sent_at: Instant::ZERO,
            outage: Outage::default(),
            answered_at: Instant::ZERO,
            backed_off_at: Instant::ZERO,
            expedited: false,
            probes: Vec::new(),
            length: PathLength::given(),
            overlong: Outage::default(),
            spare: Vec::new(),
            statistics: WorkerStatistics::default(),
        }
    }

    /// The same with tags.
    pub(crate) fn with_tags(self, tags: Option<PathTags>) -> Self {
        Self { tags, ..self }
    }

    /// The same, whose length is to be found.
    pub(crate) fn with_length(self, length: PathLength) -> Self {
        Self { length, ..self }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.rtt.smoothed()
    }

    /// Packets that it may have in flight.
    pub(crate) fn window_packets(&self) -> u32 {
        u32::try_from(self.window.packets()).unwrap_or(u32::MAX)
    }

    /// Packets sent and neither answered nor taken for lost.
    #[cfg(test)]
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// The region is held by this path's switch from now on, under this view: everything that is not durable is sent to it.
    pub(crate) fn put(&mut self, region: u8, mut flows: RegionFlows, view: u64) {
        flows.view = view;
        let view = flows.view_on_wire();
        // No answer of before has the tag of one in this view.
        flows.pull.renumber();
        (flows.sent_packets, flows.probe_at) = (SentPackets::default(), None);
        flows.probes.forget();
        flows.durable = None;
        // What was queued when the switch held the region before is queued again: packets beyond the window must not come first.
        for queue in [&mut self.pulls, &mut self.pushes] {
            queue.retain(|reference| reference.region != region);
        }
        self.refused.retain(|(_, reference)| reference.region != region);
        for kind in [FlowKind::Pull, FlowKind::Push] {
            let flow = flows.flow(kind);
            let (in_flight, seqs) = flow.reopen();
            debug_assert_eq!(in_flight, 0, "take has taken them back");
            for (seq, packet) in flow.needed() {
                flow::edit_header(&mut packet.bytes, |header| (header.view, header.seq) = (view, seq));
                packet.body_hash = None;
            }
            let references = seqs.into_iter().map(|seq| PacketRef { region, kind, seq });
            self.queue(kind).extend(references);
        }
        let index = usize::from(region);
        if self.regions.len() <= index {
            self.regions.resize_with(index + 1, || None);
        }
        self.regions[index] = Some(flows);
    }

    /// The region is held by this path's switch no more. Its entries in queues and timers are skipped.
    pub(crate) fn take(&mut self, region: u8) -> RegionFlows {
        let taken = self.regions[usize::from(region)].take();
        let mut flows = taken.expect("the caller names a region of this switch");
        for kind in [FlowKind::Pull, FlowKind::Push] {
            self.in_flight -= flows.flow(kind).reopen().0;
        }
        flows
    }

    /// Returns true if the switch holds no region.
    pub(crate) fn is_idle(&self) -> bool {
        self.regions.iter().all(Option::is_none)
    }

    #[cfg(test)]
    pub(crate) fn regions_mut(&mut self) -> impl Iterator<Item = &mut RegionFlows> {
        self.regions.iter_mut().flatten()
    }

    fn flows(&mut self, region: u8) -> &mut RegionFlows {
        self.regions[usize::from(region)].as_mut().expect("the caller names a region of this switch")
    }

    /// The packet that a queue or timer names, unless its region has moved away.
    fn packet(&mut self, reference: PacketRef) -> Option<&mut flow::Packet> {
        let flows = self.regions.get_mut(usize::from(reference.region))?.as_mut()?;
        flows.flow(reference.kind).packet(reference.seq)
    }

    /// The header of the next packet of kind PUSH or PULL into a region, for its owner to fill in flags and entries, and memory for it.
    pub(crate) fn begin(&mut self, region: u8, kind: Kind) -> (Header, Vec<u8>) {
        let flows = self.flows(region);
        let (view, seq) = (flows.view_on_wire(), flows.flow(FlowKind::of(kind)).next());
        (Header { view, ..self.header(kind, region, seq) }, self.spare.pop().unwrap_or_default())
    }

    /// A region's flow of pushes.
    pub(crate) fn push_flow(&self, region: u8) -> &Flow {
        let flows = self.regions.get(usize::from(region)).and_then(Option::as_ref);
        &flows.expect("the caller names a region of this switch").push
    }

    /// Returns true if a flow of a region takes no more packets for now.
    pub(crate) fn is_exhausted(&self, region: u8, kind: Kind) -> bool {
        let flows = self.regions.get(usize::from(region)).and_then(Option::as_ref);
        let flows = flows.expect("the caller names a region of this switch");
        match FlowKind::of(kind) {
            FlowKind::Push => flows.push.is_exhausted(),
            FlowKind::Pull => flows.pull.is_exhausted(),
        }
    }

    /// Takes over the packet that was [begun](Self::begin) last, complete (rule T1).
    pub(crate) fn submit(&mut self, region: u8, kind: Kind, bytes: Vec<u8>, packet_rows: PacketRows) {
        let kind = FlowKind::of(kind);
        let flow = self.flows(region).flow(kind);
        let seq = flow.next();
        flow.append(bytes, packet_rows);
        self.queue(kind).push_back(PacketRef { region, kind, seq });
    }

    /// Takes back memory that [`begin`](Self::begin) gave, and of which no packet was made.
    pub(crate) fn give_back(&mut self, bytes: Vec<u8>) {
        self.spare.push(bytes);
    }

    /// Sets a flag of the push that was submitted last to a region, and has not been sent yet.
    pub(crate) fn flag_newest_push(&mut self, region: u8, flag: Flags) {
        let flow = &mut self.flows(region).push;
        let newest = flow.next().checked_sub(1).and_then(|seq| flow.packet(seq));
        let packet = newest.filter(|packet| packet.transmissions == 0).expect("it was submitted just now");
        flow::edit_header(&mut packet.bytes, |header| header.flags = header.flags.with(flag));
    }

    fn queue(&mut self, kind: FlowKind) -> &mut VecDeque<PacketRef> {
        match kind {
            FlowKind::Push => &mut self.pushes,
            FlowKind::Pull => &mut self.pulls,
        }
    }

    /// Returns true if the switch has owed an answer for too long, once for each time that it has been so long (rule M14).
    pub(crate) fn take_unreachable(&mut self, now: Instant) -> bool {
        if !self.is_owed_an_answer() {
            self.outage.end();
        }
        self.outage.is_too_long(now)
    }

    /// Returns true if packets have been too long for it for too long, likewise (rule T20). They had their numbers before its length was known.
    pub(crate) fn take_overlong(&mut self, now: Instant) -> bool {
        if self.length.is_reduced() && self.has_overlong() {
            self.overlong.begin(now);
        } else {
            self.overlong.end();
        }
        self.overlong.is_too_long(now)
    }

    fn has_overlong(&mut self) -> bool {
        let bytes_max = packet_bytes(self.length.usable());
        let mut flows =
            self.regions.iter_mut().flatten().flat_map(|flows| [&mut flows.push, &mut flows.pull]);
        flows.any(|flow| {
            let mut open = flow.needed().filter(|(_, packet)| packet.is_open());
            open.any(|(_, packet)| packet.bytes.len() > bytes_max)
        })
    }

    /// Returns true if anything is open that an answer would end. An answer that is not fresh may have ended the last of it.
    fn is_owed_an_answer(&self) -> bool {
        let mut flows = self.regions.iter().flatten();
        self.in_flight > 0
            || !(self.pulls.is_empty() && self.pushes.is_empty())
            || flows.any(|flows| flows.push.awaits_durability())
    }

    /// Queues again what must be taken for lost, and what was refused long enough ago (rules T4, T6).
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        while self.refused.front().is_some_and(|(due, _)| *due <= now) {
            let Some((_, reference)) = self.refused.pop_front() else { break };
            self.queue(reference.kind).push_front(reference);
        }
        let (mut is_timeout, mut is_unanswered) = (false, false);
        for region in 0..self.regions.len() {
            let is_due = |flows: &RegionFlows, rtt: &Rtt, sent| flows.sent_packets.deadline(sent, rtt) <= now;
            while let Some(sent) = self.take_lost(region, is_due) {
                is_unanswered |= self.answered_at <= sent.at;
                // What was sent together is lost together: that is one timeout.
                is_timeout |= sent.at >= self.answered_sent_at.max(self.backed_off_at);
            }
        }
        if is_timeout {
            self.backed_off_at = now;
            self.rtt.back_off();
        }
        if is_unanswered {
            self.window.on_timeout(now);
        }
        self.probe(now);
        self.length.handle_timeout(now);
    }

    /// Queues again what answers have shown to be lost. They make room for other packets, too, and all leave in one run.
    fn take_fast_losses(&mut self) {
        for region in 0..self.regions.len() {
            while self.take_lost(region, |flows, _, sent| flows.sent_packets.is_lost(sent)).is_some() {}
        }
    }

    /// Queues again the oldest transmission of a region, if it must be taken for lost.
    fn take_lost(
        &mut self,
        region: usize,
        is_lost: impl FnOnce(&RegionFlows, &Rtt, Transmission) -> bool,
    ) -> Option<Transmission> {
        let flows = self.regions[region].as_mut()?;
        let (transmission, reference) = flows.oldest_in_flight()?;
        if !is_lost(flows, &self.rtt, transmission) {
            return None;
        }
        self.window.on_loss();
        let is_fast_retransmit = flows.sent_packets.has_later_ack(transmission);
        let packet = flows.in_flight(transmission, reference)?;
        (packet.is_fast_retransmit, packet.is_probe) = (is_fast_retransmit, false);
        if packet.transmissions >= SUSPECT_AFTER && packet.bytes.len() <= packet_bytes(self.length.usable()) {
            self.length.suspect();
        }
        self.send_again(reference);
        Some(transmission)
    }

    /// Queues again what is on its way.
    fn send_again(&mut self, reference: PacketRef) {
        self.packet(reference).expect("it is in flight").state = State::Queued;
        self.in_flight -= 1;
        self.queue(reference.kind).push_front(reference);
    }

    /// Sends probes for the regions without a recent answer (rules T5, T8).
    fn probe(&mut self, now: Instant) {
        for (index, region) in (0..=u8::MAX).zip(0..self.regions.len()) {
            let Some(flows) = &mut self.regions[region] else { continue };
            if flows.probe_at.is_none_or(|due| due > now) {
                continue;
            }
            flows.probe_at = None;
            if let Some((transmission, reference)) = flows.oldest_in_flight() {
                flows.in_flight(transmission, reference).expect("it is the oldest").is_probe = true;
                // Once in a timeout: what goes on without an answer is left to the timer.
                self.send_again(reference);
            } else if flows.push.awaits_durability() {
                flows.probe_at = Some(now + PROBE_INTERVAL);
                flows.probe_backoff.on_probe();
                self.outage.begin(now);
                self.probes.push(index);
            }
        }
        // Packets that were sent twice have no fresh answer: refused again and again, they would look unanswered.
        if self.outage.is_due(now)
            && let Some(region) = self.first_region()
            && !self.probes.contains(&region)
        {
            self.probes.push(region);
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let refused = self.refused.front().map(|(due, _)| *due);
        let regions = self.regions.iter().flatten().flat_map(|flows| {
            let oldest = flows.sent_packets.front();
            [oldest.map(|(sent, _)| flows.sent_packets.deadline(sent, &self.rtt)), flows.probe_at]
        });
        regions.chain([refused, self.length.poll_timeout()]).flatten().min()
    }

    /// Sends what the window allows; pulls first, as operations wait for them (rules T3, T12).
    pub(crate) fn poll_transmit(&mut self, now: Instant, outgoing: &mut Outgoing) {
        while let Some(region) = self.probes.pop() {
            self.send_probe(now, region, 0, outgoing);
        }
        self.take_fast_losses();
        for kind in [FlowKind::Pull, FlowKind::Push] {
            while self.in_flight < self.window.packets() && !outgoing.is_full() {
                let Some(&reference) = self.queue(kind).front() else { break };
                if !self.transmit(now, reference, outgoing) {
                    break;
                }
                self.queue(kind).pop_front();
            }
        }
        if self.in_flight >= self.window.packets() {
            self.window.on_full();
        }
        if !outgoing.is_full() {
            self.probe_length(now, outgoing);
        }
    }

    /// Sends a short probe and a long one, if they are due (rule T19). The long one comes last: it is in no run with packets that fit.
    fn probe_length(&mut self, now: Instant, outgoing: &mut Outgoing) {
        if let Some(region) = self.first_region()
            && let Some(entries) = self.length.take_due()
            && let Some(short) = self.send_probe(now, region, SHORT, outgoing)
        {
            self.length.asked(region, short);
            self.send_probe(now, region, entries, outgoing);
        }
    }

    fn first_region(&self) -> Option<u8> {
        (0..=u8::MAX).zip(&self.regions).find(|(_, flows)| flows.is_some()).map(|(region, _)| region)
    }

    /// Sends a request that changes nothing, for cell 0 as often as it has entries. Returns its number.
    fn send_probe(&mut self, now: Instant, region: u8, entries: u8, outgoing: &mut Outgoing) -> Option<u32> {
        let flows = self.regions.get_mut(usize::from(region))?.as_mut()?;
        let (view, since, seq) = (flows.view_on_wire(), flows.view, flows.probes.send(now, FRESH_FOR));
        let mut bytes = [0; packet_bytes(u8::MAX)];
        let bytes = &mut bytes[..packet_bytes(entries)];
        Header { view, entries, ..self.header(Kind::Pull, region, seq) }.emit(bytes);
        if let Some(tags) = &self.tags {
            tags.tags().sign(Direction::Up, bytes, since);
        }
        outgoing.push(self.address, bytes);
        Some(seq)
    }

    /// Sends one packet, if it still waits for that. `false` means that its flow may not send it yet.
    fn transmit(&mut self, now: Instant, reference: PacketRef, outgoing: &mut Outgoing) -> bool {
        let (address, undurable_max) = (self.address, self.undurable_max);
        if self.packet(reference).is_none() {
            return true;
        }
        let probe_timeout = self.rtt.probe_timeout();
        // Were it lost once more, the flow would stand still by rule T2 until that is noticed (rule T16).
        let is_large = self.window.packets() > WINDOW / 4;
        let flows = self.regions[usize::from(reference.region)].as_mut().expect("it has the packet");
        let flow = flows.flow(reference.kind);
        if flow.packet(reference.seq).is_none_or(|packet| packet.state != State::Queued) {
            return true;
        }
        if !flow.may_send(reference.seq, undurable_max) {
            return false;
        }
        let (sent, since) = (flows.sent_packets.send(now, reference), flows.view);
        let packet = flows.flow(reference.kind).packet(reference.seq).expect("it was there a moment ago");
        let again = packet.transmissions > 0;
        if again {
            flow::edit_header(&mut packet.bytes, |header| {
                header.flags = header.flags.with(Flags::RETRANSMIT)
            });
        }
        if let Some(tags) = &self.tags {
            packet.sign(tags.tags(), since);
        }
        packet.transmissions += 1;
        packet.sent = sent;
        packet.state = State::InFlight;
        outgoing.push(address, &packet.bytes);
        if again && packet.is_fast_retransmit && is_large {
            outgoing.push(address, &packet.bytes);
        }
        if !again {
            flows.probe_at = Some(now + probe_timeout);
        }
        self.in_flight += 1;
        self.outage.begin(now);
        self.statistics.packets += 1;
        self.statistics.retransmits += u64::from(again);
        true
    }

    /// A header for this path with everything but view, flags and entries.
    pub(crate) fn header(&self, kind: Kind, region: u8, seq: u32) -> Header {
        let Identity { job, worker, plan } = self.identity;
        Header { job, worker, plan, region, seq, ..Header::of_kind(kind) }
    }
}
