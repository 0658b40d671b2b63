//! Answers of a switch, and their effects.

use core::ops::Range;
use core::time::Duration;

use libra_dataplane::mutants::{Mutant, is_enabled};
use libra_dataplane::{Direction, Flags, Header, Kind, NackReason, Packet, SeqRange, round_newer};

use super::{FRESH_FOR, Path};
use crate::time::Instant;
use crate::transport::flow::{Accepted, PacketRows, State};
use crate::transport::probes::PROBES_BEGIN;
use crate::transport::region::{FlowKind, PacketRef};
use crate::transport::sent_packets::Transmission;

/// Pause before a packet that was refused for a while is sent again.
const REFUSAL_PAUSE: Duration = Duration::from_millis(1);

/// Effect of an answer from the switch on the operations of the worker.
#[derive(Debug)]
pub(crate) enum Delivery<'p> {
    /// These rows are in a round; with the values that the switch had for them, if they were asked for and it
    /// had any.
    Accepted(PacketRows, Option<Packet<'p>>),
    /// The values of these rows, in order.
    Values(PacketRows, Packet<'p>),
    /// The switch has no values for these rows: read them from the shard.
    Unreadable(PacketRows),
}

/// Properties of an answer, beside its effect on operations.
#[derive(Debug, Clone, Copy, Default)]
struct Standing {
    /// It is the answer to something that had none.
    is_news: bool,
    /// It shows that the switch has sent it just now: no copy of an earlier answer could be taken for it (rule T17).
    is_fresh: bool,
}

impl Standing {
    /// A packet was answered that had no answer.
    fn answers(&mut self, now: Instant, sent: Transmission, is_sole: bool) {
        self.is_news = true;
        self.is_fresh |= is_sole && now.since(sent.at) < FRESH_FOR;
    }
}

impl Path {
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
        let (view, since) = {
            let flows = self.flows(header.region);
            (flows.view_on_wire(), flows.view)
        };
        // By rule A4; an answer of an earlier ownership has no right tag either, and is counted as what it is.
        let is_authentic =
            self.tags.as_ref().is_none_or(|tags| tags.tags().is_authentic(Direction::Down, datagram, since))
                || is_enabled(Mutant::AnswerTagIgnored);
        // An answer from before the region moved is no evidence of its present owner (rule V2).
        if header.view != view {
            self.statistics.dropped += 1;
            // The region has an owner now (rule M14).
            if is_authentic && header.kind == Kind::Nack && self.answers_probe(now, &header) {
                self.outage.end();
            }
            return;
        }
        if !is_authentic {
            self.statistics.forged += 1;
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
                if let Some(packet_rows) =
                    self.accepted(now, header.region, header.seq, header.round, &mut standing)
                {
                    deliver(Delivery::Accepted(packet_rows, Some(packet)));
                }
            }
            Kind::Ack if !values => {
                let flow = &self.flows(header.region).push;
                // Ranges may reach over what was given up long ago, and those of invalid answers anywhere.
                let open = flow.first_open()..flow.next();
                for seq in packet.acknowledged().flat_map(|range| within(range, &open)) {
                    if let Some(packet_rows) =
                        self.accepted(now, header.region, seq, header.round, &mut standing)
                    {
                        deliver(Delivery::Accepted(packet_rows, None));
                    }
                }
            }
            Kind::Pull if values && header.seq >= PROBES_BEGIN => {
                self.length.answered(header.region, header.seq, header.entries);
                let is_fresh = self.answers_probe(now, &header);
                standing = Standing { is_news: is_fresh, is_fresh };
            }
            Kind::Pull if values && self.fits_request(FlowKind::Pull, &header) => {
                if let Some(packet_rows) = self.answered(now, header.region, header.seq, &mut standing) {
                    deliver(Delivery::Values(packet_rows, packet));
                }
            }
            Kind::Nack => self.refused(now, &header, &mut standing, deliver),
            _ => self.statistics.dropped += 1,
        }
        self.learn(now, &header, standing);
    }

    /// Takes over the state of the region in an answer, beside the packets that it answers. A third party that has seen one answer can forge another;
    /// so one that is not fresh does not set `durable`, and does not end a timeout (rule T17).
    fn learn(&mut self, now: Instant, header: &Header, standing: Standing) {
        if standing.is_fresh {
            self.outage.end();
        }
        // A switch that does not have the region has no state of its rounds (rule W7).
        let has_region = header.nack_reason() != Some(NackReason::UnknownFlow);
        let is_trusted = has_region && (standing.is_fresh || is_enabled(Mutant::DurableOfAnyAnswer))
            || is_enabled(Mutant::StrangerBelieved);
        if is_trusted {
            self.learn_durable(header.region, header.durable);
        }
        let flows =
            self.regions[usize::from(header.region)].as_mut().expect("its region was looked up above");
        if let Some(durable) = flows.durable {
            flows.push.release(durable, &mut self.spare);
        }
        if standing.is_news {
            self.answered_at = now;
            flows.postpone_probe(now, &self.rtt, self.expedited);
        }
    }

    /// Returns true if this is the first and a fresh answer to a probe.
    fn answers_probe(&mut self, now: Instant, answer: &Header) -> bool {
        self.flows(answer.region).probes.answered(now, answer.seq, FRESH_FOR)
    }

    /// Returns true if an answer with values is one to the request that it names: values were asked for, and as many as there are.
    fn fits_request(&mut self, kind: FlowKind, answer: &Header) -> bool {
        let Some(packet) = self.flows(answer.region).flow(kind).packet(answer.seq) else { return true };
        // Of a packet that is not needed any more the bytes are gone; its answers are old, and not wrong.
        let Ok(request) = Header::parse_without_entries(&packet.bytes) else { return true };
        request.entries == answer.entries && (kind == FlowKind::Pull || request.flags.contains(Flags::VALUES))
    }

    fn accepted(
        &mut self,
        now: Instant,
        region: u8,
        seq: u32,
        round: u16,
        standing: &mut Standing,
    ) -> Option<PacketRows> {
        let news = self.flows(region).push.accept(seq, round)?;
        standing.answers(now, news.sent, news.is_sole);
        self.learn_round_trip(now, region, &news);
        news.is_first.then_some(news.packet_rows)
    }

    fn answered(
        &mut self,
        now: Instant,
        region: u8,
        seq: u32,
        standing: &mut Standing,
    ) -> Option<PacketRows> {
        let flows = self.regions[usize::from(region)].as_mut().expect("the caller has looked the region up");
        let news = flows.pull.finish(seq, &mut self.spare)?;
        // Where packets have tags an answer could be kept back until its number means other rows (rule A5).
        if self.tags.is_none() {
            flows.pull.renumber();
        }
        standing.answers(now, news.sent, news.is_sole);
        self.learn_round_trip(now, region, &news);
        Some(news.packet_rows)
    }

    fn learn_round_trip(&mut self, now: Instant, region: u8, news: &Accepted) {
        if news.was_in_flight {
            self.in_flight -= 1;
        }
        self.window.on_answer(now, news.sent.at, news.transmissions == 1);
        // Of a packet that was sent twice the transmission that was answered is not certain.
        if news.transmissions == 1 {
            // Those that come together measure the same: many of them would hide how round trips vary.
            if now > self.sampled_at {
                self.sampled_at = now;
                self.rtt.sample(now.since(news.sent.at));
            }
            self.answered_sent_at = self.answered_sent_at.max(news.sent.at);
            self.flows(region).sent_packets.answer(news.sent);
        } else if !news.is_probe && self.rtt.is_late_enough(now.since(news.sent.at)) {
            // It overtakes others all the same (RFC 8985, section 6.2): else what is lost among packets that were all sent twice
            // would be left to the timer.
            self.flows(region).sent_packets.answer_again(news.sent);
        } else if news.is_fast_retransmit && self.rtt.is_too_soon(now.since(news.sent.at)) {
            self.flows(region).sent_packets.note_reordering();
        }
    }

    fn learn_durable(&mut self, region: u8, durable: u16) {
        let flows = self.flows(region);
        if flows.durable.is_none_or(|known| round_newer(durable, known)) {
            flows.durable = Some(durable);
            flows.probe_backoff.reset();
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
            // A switch that has the region answers every probe. This one has no state of rounds, but it shows that the switch is there.
            if self.answers_probe(now, header) {
                self.outage.end();
            }
            return;
        }
        // A PULL is refused for want of values, a PUSH for want of room.
        let reference =
            PacketRef { region: header.region, kind: FlowKind::of_seq(header.seq), seq: header.seq };
        match header.nack_reason() {
            Some(NackReason::NotInstalled) => {
                if let Some(packet_rows) = self.answered(now, header.region, header.seq, standing) {
                    deliver(Delivery::Unreadable(packet_rows));
                }
                return;
            }
            Some(NackReason::BankFull | NackReason::Inactive | NackReason::Throttled) => {}
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
}

/// The sequence numbers of a range that are in `open`.
fn within(range: SeqRange, open: &Range<u32>) -> Range<u32> {
    let end = range.first.saturating_add(u32::from(range.count));
    range.first.max(open.start)..end.min(open.end)
}
