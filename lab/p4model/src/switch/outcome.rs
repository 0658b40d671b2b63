//! Outcome of a packet by everything that is known of it, and its answer: `decision.p4`, `again.p4` and `reply.p4`.

use libra_dataplane::{Flags, Header, Kind, NackReason, PacketWriter};

use super::{Form, Outcome, Passing, SumAction, ValueAction};

/// Decides the outcome of a packet, in the order of rule W6.
pub(super) fn decision(passing: &mut Passing) {
    (passing.outcome, passing.sum_action, passing.value_action) = decided(passing);
}

/// After so many passes a push is dropped.
const PASSES_MAX: u8 = 254;

/// A push whose turn it is not has no room, and is not refused for that: it reads the sums, and passes once more.
pub(super) fn go_again(passing: &mut Passing) {
    if !passing.is_turn && passing.outcome == Outcome::Refused(NackReason::BankFull) {
        if passing.again.passes == PASSES_MAX {
            passing.outcome = Outcome::Dropped;
            return;
        }
        passing.again.passes += 1;
        passing.again.clock = (passing.round, passing.durable);
        passing.again.sums.clear();
        passing.outcome = Outcome::Again;
        passing.sum_action = SumAction::Read;
    }
}

fn decided(passing: &Passing) -> (Outcome, SumAction, ValueAction) {
    let only = |outcome| (outcome, SumAction::None, ValueAction::None);
    let refused = |reason| only(Outcome::Refused(reason));
    let may_ask = match passing.form {
        Form::Push => passing.is_worker,
        Form::Pull | Form::Probe => passing.is_worker || passing.is_agent,
        Form::Install | Form::Drain | Form::Flip | Form::Remember => passing.is_agent,
    };
    if !may_ask {
        return only(Outcome::Dropped);
    }
    if passing.region.is_none() {
        return refused(NackReason::UnknownFlow);
    }
    if !passing.is_fit {
        return refused(if passing.plan_is_right { NackReason::StaleView } else { NackReason::StalePlan });
    }
    let asks_for_values = passing.header.flags.contains(Flags::VALUES);
    let values = if asks_for_values && passing.is_readable() { ValueAction::Read } else { ValueAction::None };
    match passing.form {
        Form::Push if !passing.is_active() => refused(NackReason::Inactive),
        Form::Pull if !passing.is_readable() => refused(NackReason::NotInstalled),
        _ if !passing.is_sound => only(Outcome::Dropped),
        Form::Push if passing.is_new => (Outcome::Pushed, SumAction::Add, values),
        Form::Push if !passing.has_room && !passing.is_seen => refused(NackReason::BankFull),
        Form::Push => (Outcome::Duplicate, SumAction::None, values),
        Form::Pull => (Outcome::Pulled, SumAction::None, ValueAction::Read),
        Form::Probe => only(Outcome::Pulled),
        Form::Install => (Outcome::Installed, SumAction::None, ValueAction::Write),
        Form::Drain => (Outcome::Drained, SumAction::Take, ValueAction::None),
        Form::Flip => only(Outcome::Flipped),
        Form::Remember => only(Outcome::Remembered),
    }
}

/// The answer: kind, flags, clock and tag (rules W7, W9).
pub(super) fn answer(passing: &Passing) -> Option<Vec<u8>> {
    let before = passing.round.wrapping_sub(1);
    let has_values = passing.value_action == ValueAction::Read;
    let (kind, flags, round) = match passing.outcome {
        Outcome::Dropped | Outcome::Again => return None,
        Outcome::Refused(reason) => (Kind::Nack, Flags::NONE, reason as u16),
        Outcome::Pulled => (Kind::Pull, Flags::VALUES, passing.round),
        Outcome::Drained => (Kind::Drain, Flags::VALUES, before),
        Outcome::Duplicate => {
            // The active bank only if it has a packet (rule D2).
            let is_open = passing.seen_bank == passing.bank_bit() && passing.taken > 0;
            let flags = if has_values { Flags::VALUES } else { Flags::NONE };
            (Kind::Ack, flags, if is_open { passing.round } else { before })
        }
        Outcome::Pushed | Outcome::Installed | Outcome::Flipped | Outcome::Remembered => {
            (Kind::Ack, if has_values { Flags::VALUES } else { Flags::NONE }, passing.round)
        }
    };
    let tag = match (passing.is_agent, passing.outcome) {
        // The cookie that the worker expects.
        (false, _) => passing.header.tag,
        (true, Outcome::Drained) => u64::from(passing.acked_bits) << 32 | u64::from(passing.acked_next),
        (true, _) => passing.taken.into(),
    };
    let (view, durable) =
        passing.region.map_or((passing.header.view, 0), |region| (region.view, passing.durable));
    let header = Header { kind, flags, round, durable, view, tag, ..passing.header };
    let mut bytes = vec![0; libra_dataplane::packet_bytes(u8::MAX)];
    let mut writer = PacketWriter::new(header, &mut bytes);
    if flags.contains(Flags::VALUES) {
        let fits = passing.entries.iter().all(|entry| writer.push(entry.cell, entry.value));
        assert!(fits, "as many entries as there were");
    }
    let length = writer.finish();
    bytes.truncate(length);
    Some(bytes)
}
