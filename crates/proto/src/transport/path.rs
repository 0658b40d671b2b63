//! One worker's path to one switch: what is sent, when it is sent again, and what an answer means.

use core::net::SocketAddr;
use core::ops::Range;
use core::time::Duration;
use std::collections::VecDeque;

use libra_dataplane::planted::{PlantedBug, is_planted};
use libra_dataplane::{Flags, HEADER_BYTES, Header, Kind, NackReason, Packet, SeqRange, WINDOW, epoch_newer};

use super::bounds::Bounds;
use super::flow::{self, Accepted, Cargo, Flow, State};
use super::patience::PROBE_INTERVAL;
use super::probes::PROBES_BEGIN;
use super::region::{FlowKind, PacketRef, RegionFlows};
use super::rtt::Rtt;
use super::timeline::{Timeline, Transmission};
use super::window::Window;
use crate::role::Outgoing;
use crate::statistics::WorkerStatistics;
use crate::time::Instant;

/// How long a packet that was refused for a while waits before it is sent again.
const REFUSAL_PAUSE: Duration = Duration::from_millis(1);
/// After how long without any answer the controller is told.
const UNREACHABLE_AFTER: Duration = Duration::from_secs(2);
/// And after how many timers that fired in that time.
const SILENCES_MIN: u32 = 5;
/// An answer to what was sent longer ago says nothing of `durable`: 2^15 epochs take 13 s, and serial numbers that are further apart
/// compare wrongly (rules E1, T17).
const FRESH_FOR: Duration = Duration::from_secs(10);

/// What an answer from the switch means for the operations of the worker.
#[derive(Debug)]
pub(crate) enum Delivery<'p> {
    /// The rows of this cargo are in an epoch; with the values that the switch had for them, if they were asked for and it
    /// had any.
    Accepted(Cargo, Option<Packet<'p>>),
    /// The values of the rows of this cargo, in order.
    Values(Cargo, Packet<'p>),
    /// The switch has no values for the rows of this cargo: read them from the shard.
    Unreadable(Cargo),
}

/// What an answer is, beside what it means for operations.
#[derive(Debug, Clone, Copy, Default)]
struct Standing {
    /// It is the answer to something that had none.
    is_news: bool,
    /// It shows that the switch has said it just now: no copy of an earlier answer could be taken for it (rule T17).
    is_fresh: bool,
}

impl Standing {
    /// A packet was answered that had no answer.
    fn answers(&mut self, now: Instant, sent: Transmission, is_sole: bool) {
        self.is_news = true;
        self.is_fresh |= is_sole && now.since(sent.at) < FRESH_FOR;
    }
}

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
    undurable_max: u32,
    rtt: Rtt,
    in_flight: usize,
    window: Window,
    /// Flows by region number; `None` where the region belongs to another switch.
    regions: Vec<Option<RegionFlows>>,
    pulls: VecDeque<PacketRef>,
    pushes: VecDeque<PacketRef>,
    refused: VecDeque<(Instant, PacketRef)>,
    /// When a round trip was last learnt.
    sampled_at: Instant,
    /// When the newest packet that was sent once and answered had been sent.
    answered_sent_at: Instant,
    /// Since when the switch owes an answer that is fresh: when the first packet was sent after the last one.
    asked_at: Option<Instant>,
    /// How many timers have fired since then. One that slept finds one, however long it was.
    silences: u32,
    /// When something was last answered, fresh or not.
    heard_at: Instant,
    /// When a timer last fired with nothing heard.
    silent_at: Instant,
    /// Whether somebody waits for epochs to be durable.
    pub(crate) hurried: bool,
    /// Regions that are to be sent a probe.
    probes: Vec<u8>,
    spare: Vec<Vec<u8>>,
    /// What this path has counted: `packets`, `retransmits`, `refused` and `dropped`.
    pub(crate) statistics: WorkerStatistics,
}

impl Path {
    pub(crate) fn new(address: SocketAddr, identity: Identity, bounds: Bounds) -> Self {
        Self {
            address,
            identity,
            undurable_max: bounds.undurable,
            rtt: Rtt::new(),
            in_flight: 0,
            window: Window::new(bounds.in_flight),
            regions: Vec::new(),
            pulls: VecDeque::new(),
            pushes: VecDeque::new(),
            refused: VecDeque::new(),
            sampled_at: Instant::ZERO,
            answered_sent_at: Instant::ZERO,
            asked_at: None,
            silences: 0,
            heard_at: Instant::ZERO,
            silent_at: Instant::ZERO,
            hurried: false,
            probes: Vec::new(),
            spare: Vec::new(),
            statistics: WorkerStatistics::default(),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.rtt.smoothed()
    }

    /// Packets sent and neither answered nor taken for lost.
    #[cfg(test)]
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// The region is held by this path's switch from now on, under this view: everything that is not durable is sent to it.
    pub(crate) fn put(&mut self, region: u8, mut flows: RegionFlows, view: u16) {
        flows.view = view;
        (flows.timeline, flows.probe_at) = (Timeline::default(), None);
        flows.probes.forget();
        flows.durable = None;
        // What was queued when the switch held the region before is queued anew: packets beyond the window must not come first.
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

    /// The region is held by this path's switch no more. What queues and timers still say of it is skipped.
    pub(crate) fn take(&mut self, region: u8) -> RegionFlows {
        let taken = self.regions[usize::from(region)].take();
        let mut flows = taken.expect("the caller knows which regions this switch has");
        for kind in [FlowKind::Pull, FlowKind::Push] {
            self.in_flight -= flows.flow(kind).reopen().0;
        }
        flows
    }

    /// Whether the switch holds no region.
    pub(crate) fn is_idle(&self) -> bool {
        self.regions.iter().all(Option::is_none)
    }

    #[cfg(test)]
    pub(crate) fn regions_mut(&mut self) -> impl Iterator<Item = &mut RegionFlows> {
        self.regions.iter_mut().flatten()
    }

    fn flows(&mut self, region: u8) -> &mut RegionFlows {
        self.regions[usize::from(region)].as_mut().expect("the caller knows which regions this switch has")
    }

    /// The packet that a queue or timer names, unless its region has moved away.
    fn packet(&mut self, reference: PacketRef) -> Option<&mut flow::Packet> {
        let flows = self.regions.get_mut(usize::from(reference.region))?.as_mut()?;
        flows.flow(reference.kind).packet(reference.seq)
    }

    /// The header of the next packet of kind PUSH or PULL into a region, for its owner to fill in flags and entries, and memory for it.
    pub(crate) fn begin(&mut self, region: u8, kind: Kind) -> (Header, Vec<u8>) {
        let flows = self.flows(region);
        let (view, seq) = (flows.view, flows.flow(FlowKind::of(kind)).next());
        (Header { view, ..self.header(kind, region, seq) }, self.spare.pop().unwrap_or_default())
    }

    /// A region's flow of pushes.
    pub(crate) fn push_flow(&self, region: u8) -> &Flow {
        let flows = self.regions.get(usize::from(region)).and_then(Option::as_ref);
        &flows.expect("the caller knows which regions this switch has").push
    }

    /// Whether a flow of a region takes no more packets for now.
    pub(crate) fn is_exhausted(&self, region: u8, kind: Kind) -> bool {
        let flows = self.regions.get(usize::from(region)).and_then(Option::as_ref);
        let flows = flows.expect("the caller knows which regions this switch has");
        match FlowKind::of(kind) {
            FlowKind::Push => flows.push.is_exhausted(),
            FlowKind::Pull => flows.pull.is_exhausted(),
        }
    }

    /// Takes over the packet that was [begun](Self::begin) last, complete (rule T1).
    pub(crate) fn submit(&mut self, region: u8, kind: Kind, bytes: Vec<u8>, cargo: Cargo) {
        let kind = FlowKind::of(kind);
        let flow = self.flows(region).flow(kind);
        let seq = flow.next();
        flow.append(bytes, cargo);
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

    /// A datagram from the switch. Calls `deliver` with what it means.
    pub(crate) fn handle_datagram(
        &mut self,
        now: Instant,
        datagram: &[u8],
        deliver: &mut impl FnMut(Delivery<'_>),
    ) {
        let Ok(packet) = Packet::parse(datagram) else {
            self.statistics.dropped += 1;
            return;
        };
        let header = packet.header;
        let known = self.regions.get(usize::from(header.region)).is_some_and(Option::is_some);
        if !known || header.job != self.identity.job || header.worker != self.identity.worker {
            self.statistics.dropped += 1;
            return;
        }
        // An answer from before the region moved says nothing of where it is now (rule V2).
        if header.view != self.flows(header.region).view {
            self.statistics.dropped += 1;
            return;
        }
        let flows = self.flows(header.region);
        if !flows.push.awaits_durability() {
            flows.durable = None;
        }
        let mut standing = Standing::default();
        let values = header.flags.contains(Flags::VALUES);
        match header.kind {
            Kind::Ack if values && self.fits_request(FlowKind::Push, &header) => {
                if let Some(cargo) =
                    self.accepted(now, header.region, header.seq, header.epoch, &mut standing)
                {
                    deliver(Delivery::Accepted(cargo, Some(packet)));
                }
            }
            Kind::Ack if !values => {
                let flow = &self.flows(header.region).push;
                // Ranges may reach over what was given up long ago, and those of nonsense anywhere.
                let open = flow.first_open()..flow.next();
                for seq in packet.acknowledged().flat_map(|range| within(range, &open)) {
                    if let Some(cargo) = self.accepted(now, header.region, seq, header.epoch, &mut standing) {
                        deliver(Delivery::Accepted(cargo, None));
                    }
                }
            }
            Kind::Pull if values && header.seq >= PROBES_BEGIN => {
                let is_fresh = self.flows(header.region).probes.answered(now, header.seq, FRESH_FOR);
                standing = Standing { is_news: is_fresh, is_fresh };
            }
            Kind::Pull if values && self.fits_request(FlowKind::Pull, &header) => {
                if let Some(cargo) = self.answered(now, header.region, header.seq, &mut standing) {
                    deliver(Delivery::Values(cargo, packet));
                }
            }
            Kind::Nack => self.refused(now, &header, &mut standing, deliver),
            _ => self.statistics.dropped += 1,
        }
        self.learn(now, &header, standing);
    }

    /// What an answer says of the region beside the packets that it answers. Whoever has seen one answer can write another; so what
    /// is not fresh says nothing of `durable`, and does not end a silence (rule T17).
    fn learn(&mut self, now: Instant, header: &Header, standing: Standing) {
        if standing.is_fresh {
            self.asked_at = None;
            self.silences = 0;
        }
        // A switch that does not have the region knows nothing of its epochs (rule W7).
        let knows_region = header.nack_reason() != Some(NackReason::UnknownFlow);
        let is_believed = knows_region && (standing.is_fresh || is_planted(PlantedBug::DurableOfAnyAnswer))
            || is_planted(PlantedBug::StrangerBelieved);
        if is_believed {
            self.learn_durable(header.region, header.durable);
        }
        let flows = self.regions[usize::from(header.region)].as_mut().expect("its region was known above");
        if let Some(durable) = flows.durable {
            flows.push.release(durable, &mut self.spare);
        }
        if standing.is_news {
            self.heard_at = now;
            flows.postpone_probe(now, &self.rtt, self.hurried);
        }
    }

    /// Whether an answer with values is one to the request that it names: values were asked for, and as many as there are.
    fn fits_request(&mut self, kind: FlowKind, answer: &Header) -> bool {
        let Some(packet) = self.flows(answer.region).flow(kind).packet(answer.seq) else { return true };
        // Of a packet that nobody needs any more the bytes are gone; its answers are old, and not wrong.
        let Ok(request) = Header::parse_without_entries(&packet.bytes) else { return true };
        request.entries == answer.entries && (kind == FlowKind::Pull || request.flags.contains(Flags::VALUES))
    }

    fn accepted(
        &mut self,
        now: Instant,
        region: u8,
        seq: u32,
        epoch: u16,
        standing: &mut Standing,
    ) -> Option<Cargo> {
        let news = self.flows(region).push.accept(seq, epoch)?;
        standing.answers(now, news.sent, news.is_sole);
        self.learn_round_trip(now, region, &news);
        news.is_first.then_some(news.cargo)
    }

    fn answered(&mut self, now: Instant, region: u8, seq: u32, standing: &mut Standing) -> Option<Cargo> {
        let flows = self.regions[usize::from(region)].as_mut().expect("the caller has looked the region up");
        let news = flows.pull.finish(seq, &mut self.spare)?;
        standing.answers(now, news.sent, news.is_sole);
        self.learn_round_trip(now, region, &news);
        Some(news.cargo)
    }

    fn learn_round_trip(&mut self, now: Instant, region: u8, news: &Accepted) {
        if news.was_in_flight {
            self.in_flight -= 1;
        }
        self.window.on_answer(now, news.sent.at, news.transmissions == 1);
        // Of a packet that was sent twice nobody knows which one was answered.
        if news.transmissions == 1 {
            // Those that come together say the same: many of them would hide how round trips vary.
            if now > self.sampled_at {
                self.sampled_at = now;
                self.rtt.sample(now.since(news.sent.at));
            }
            self.answered_sent_at = self.answered_sent_at.max(news.sent.at);
            self.flows(region).timeline.answer(news.sent);
        } else if !news.is_probe && self.rtt.is_late_enough(now.since(news.sent.at)) {
            // It overtakes others all the same (RFC 8985, section 6.2): else what is lost among packets that were all sent twice
            // would be left to the timer.
            self.flows(region).timeline.answer_again(news.sent);
        } else if news.is_overtaken && self.rtt.is_too_soon(now.since(news.sent.at)) {
            self.flows(region).timeline.note_reordering();
        }
    }

    fn learn_durable(&mut self, region: u8, durable: u16) {
        let flows = self.flows(region);
        if flows.durable.is_none_or(|known| epoch_newer(durable, known)) {
            flows.durable = Some(durable);
            flows.patience.heard();
        }
    }

    fn refused(
        &mut self,
        now: Instant,
        header: &Header,
        standing: &mut Standing,
        deliver: &mut impl FnMut(Delivery<'_>),
    ) {
        self.statistics.refused += 1;
        if header.seq >= PROBES_BEGIN {
            // A switch that has the region answers every probe. This one has been answered now, though it says nothing.
            self.flows(header.region).probes.answered(now, header.seq, FRESH_FOR);
            return;
        }
        // A PULL is refused for want of values, a PUSH for want of room.
        let reference =
            PacketRef { region: header.region, kind: FlowKind::of_seq(header.seq), seq: header.seq };
        match header.nack_reason() {
            Some(NackReason::NotInstalled) => {
                if let Some(cargo) = self.answered(now, header.region, header.seq, standing) {
                    deliver(Delivery::Unreadable(cargo));
                }
                return;
            }
            Some(NackReason::BankFull | NackReason::Inactive) => {}
            // The switch and this worker do not agree on the job. To ask again soon would change nothing: the timer does.
            _ => {
                if let Some(packet) = self.packet(reference) {
                    packet.is_refused = true;
                }
                return;
            }
        }
        let Some(packet) = self.packet(reference).filter(|packet| packet.state == State::InFlight) else {
            return;
        };
        standing.answers(now, packet.sent, packet.is_sole());
        (packet.state, packet.is_refused) = (State::Queued, true);
        self.in_flight -= 1;
        self.refused.push_back((now + REFUSAL_PAUSE, reference));
    }

    /// Whether the switch has owed an answer for too long. It is said once each time that it has been so long (rule M14).
    pub(crate) fn take_unreachable(&mut self, now: Instant) -> bool {
        let long = self.silences >= SILENCES_MIN
            && self.asked_at.is_some_and(|asked_at| asked_at + UNREACHABLE_AFTER <= now);
        if long {
            self.asked_at = Some(now);
        }
        long
    }

    /// Queues again what must be taken for lost, and what was refused long enough ago (rules T4, T6).
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        while self.refused.front().is_some_and(|(due, _)| *due <= now) {
            let Some((_, reference)) = self.refused.pop_front() else { break };
            self.queue(reference.kind).push_front(reference);
        }
        let (mut silent, mut unheard) = (false, false);
        for region in 0..self.regions.len() {
            let is_due = |flows: &RegionFlows, rtt: &Rtt, sent| flows.timeline.deadline(sent, rtt) <= now;
            while let Some(sent) = self.take_lost(region, is_due) {
                unheard |= self.heard_at <= sent.at;
                // What was sent together is lost together: that is one silence.
                silent |= sent.at >= self.answered_sent_at.max(self.silent_at);
            }
        }
        if silent {
            self.silent_at = now;
            self.silences = self.silences.saturating_add(1);
            self.rtt.back_off();
        }
        if unheard {
            self.window.on_silence(now);
        }
        self.probe(now);
    }

    /// Queues again what answers have shown to be lost. They make room for other packets, too, and all leave in one run.
    fn take_overtaken(&mut self) {
        for region in 0..self.regions.len() {
            while self.take_lost(region, |flows, _, sent| flows.timeline.is_lost(sent)).is_some() {}
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
        let is_overtaken = flows.timeline.is_overtaken(transmission);
        let packet = flows.in_flight(transmission, reference)?;
        (packet.is_overtaken, packet.is_probe) = (is_overtaken, false);
        self.send_again(reference);
        Some(transmission)
    }

    /// Queues again what is on its way.
    fn send_again(&mut self, reference: PacketRef) {
        self.packet(reference).expect("it is in flight").state = State::Queued;
        self.in_flight -= 1;
        self.queue(reference.kind).push_front(reference);
    }

    /// Asks for the regions of which nothing was heard (rules T5, T8).
    fn probe(&mut self, now: Instant) {
        let mut silent = false;
        for (index, region) in (0..=u8::MAX).zip(0..self.regions.len()) {
            let Some(flows) = &mut self.regions[region] else { continue };
            if flows.probe_at.is_none_or(|due| due > now) {
                continue;
            }
            flows.probe_at = None;
            if let Some((transmission, reference)) = flows.oldest_in_flight() {
                flows.in_flight(transmission, reference).expect("it is the oldest").is_probe = true;
                // Once in a silence: what goes on without an answer is left to the timeout.
                self.send_again(reference);
            } else if flows.push.awaits_durability() {
                flows.probe_at = Some(now + PROBE_INTERVAL);
                flows.patience.asked();
                silent = true;
                self.probes.push(index);
            }
        }
        if silent {
            self.asked_at.get_or_insert(now);
            self.silences = self.silences.saturating_add(1);
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let refused = self.refused.front().map(|(due, _)| *due);
        let regions = self.regions.iter().flatten().flat_map(|flows| {
            let oldest = flows.timeline.front();
            [oldest.map(|(sent, _)| flows.timeline.deadline(sent, &self.rtt)), flows.probe_at]
        });
        regions.chain([refused]).flatten().min()
    }

    /// Sends what the window allows; pulls first, for somebody waits for them (rules T3, T12).
    pub(crate) fn poll_transmit(&mut self, now: Instant, outgoing: &mut Outgoing) {
        while let Some(region) = self.probes.pop() {
            let Some(Some(flows)) = self.regions.get_mut(usize::from(region)) else { continue };
            let (view, seq) = (flows.view, flows.probes.send(now, FRESH_FOR));
            let mut bytes = [0; HEADER_BYTES];
            Header { view, ..self.header(Kind::Pull, region, seq) }.emit(&mut bytes);
            outgoing.push(self.address, &bytes);
        }
        self.take_overtaken();
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
        let flows = self.flows(reference.region);
        let flow = flows.flow(reference.kind);
        if flow.packet(reference.seq).is_none_or(|packet| packet.state != State::Queued) {
            return true;
        }
        if !flow.may_send(reference.seq, undurable_max) {
            return false;
        }
        let sent = flows.timeline.send(now, reference);
        let packet = flows.flow(reference.kind).packet(reference.seq).expect("it was there a moment ago");
        let again = packet.transmissions > 0;
        if again {
            flow::edit_header(&mut packet.bytes, |header| {
                header.flags = header.flags.with(Flags::RETRANSMIT)
            });
        }
        packet.transmissions += 1;
        packet.sent = sent;
        packet.state = State::InFlight;
        outgoing.push(address, &packet.bytes);
        if again && packet.is_overtaken && is_large {
            outgoing.push(address, &packet.bytes);
        }
        if !again {
            flows.probe_at = Some(now + probe_timeout);
        }
        self.in_flight += 1;
        self.asked_at.get_or_insert(now);
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

/// The sequence numbers of a range that are in `open`.
fn within(range: SeqRange, open: &Range<u32>) -> Range<u32> {
    let end = range.first.saturating_add(u32::from(range.count));
    range.first.max(open.start)..end.min(open.end)
}
