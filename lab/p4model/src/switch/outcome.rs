//! Outcome of a packet by everything that is known of it, and its answer: `decision.p4`, `again.p4` and `reply.p4`.

use libra_dataplane::{Flags, Header, Kind, NackReason, PacketWriter};

use super::{Fate, Form, Passing, SumDeed, ValueDeed};

/// Decides the outcome of a packet, in the order of rule W6.
pub(super) fn decision(passing: &mut Passing) {
    (passing.fate, passing.sum_deed, passing.value_deed) = decided(passing);
}

/// After so many passes a push is dropped.
const PASSES_MAX: u8 = 254;

/// A push whose turn it is not has no room, and is not refused for that: it reads the sums, and passes once more.
pub(super) fn go_again(passing: &mut Passing) {
    if !passing.is_turn && passing.fate == Fate::Refused(NackReason::BankFull) {
        if passing.again.passes == PASSES_MAX {
            passing.fate = Fate::Dropped;
            return;
        }
        passing.again.passes += 1;
        passing.again.clock = (passing.epoch, passing.durable);
        passing.again.sums.clear();
        passing.fate = Fate::Again;
        passing.sum_deed = SumDeed::Read;
    }
}

fn decided(passing: &Passing) -> (Fate, SumDeed, ValueDeed) {
    let only = |fate| (fate, SumDeed::None, ValueDeed::None);
    let refused = |reason| only(Fate::Refused(reason));
    let may_ask = match passing.form {
        Form::Push => passing.is_worker,
        Form::Pull | Form::Probe => passing.is_worker || passing.is_agent,
        Form::Install | Form::Drain | Form::Flip | Form::Remember => passing.is_agent,
    };
    if !may_ask {
        return only(Fate::Dropped);
    }
    if passing.region.is_none() {
        return refused(NackReason::UnknownFlow);
    }
    if !passing.is_fit {
        return refused(if passing.plan_is_right { NackReason::StaleView } else { NackReason::StalePlan });
    }
    let asks_for_values = passing.header.flags.contains(Flags::VALUES);
    let values = if asks_for_values && passing.is_readable() { ValueDeed::Read } else { ValueDeed::None };
    match passing.form {
        Form::Push if !passing.is_active() => refused(NackReason::Inactive),
        Form::Pull if !passing.is_readable() => refused(NackReason::NotInstalled),
        _ if !passing.is_sound => only(Fate::Dropped),
        Form::Push if passing.is_new => (Fate::Pushed, SumDeed::Add, values),
        Form::Push if !passing.has_room && !passing.is_seen => refused(NackReason::BankFull),
        Form::Push => (Fate::Duplicate, SumDeed::None, values),
        Form::Pull => (Fate::Pulled, SumDeed::None, ValueDeed::Read),
        Form::Probe => only(Fate::Pulled),
        Form::Install => (Fate::Installed, SumDeed::None, ValueDeed::Write),
        Form::Drain => (Fate::Drained, SumDeed::Take, ValueDeed::None),
        Form::Flip => only(Fate::Flipped),
        Form::Remember => only(Fate::Remembered),
    }
}

/// The answer: kind, flags, clock and tag (rules W7, W9).
pub(super) fn answer(passing: &Passing) -> Option<Vec<u8>> {
    let before = passing.epoch.wrapping_sub(1);
    let has_values = passing.value_deed == ValueDeed::Read;
    let (kind, flags, epoch) = match passing.fate {
        Fate::Dropped | Fate::Again => return None,
        Fate::Refused(reason) => (Kind::Nack, Flags::NONE, reason as u16),
        Fate::Pulled => (Kind::Pull, Flags::VALUES, passing.epoch),
        Fate::Drained => (Kind::Drain, Flags::VALUES, before),
        Fate::Duplicate => {
            // The active bank only if it has a packet (rule D2).
            let is_open = passing.seen_bank == passing.bank_bit() && passing.taken > 0;
            let flags = if has_values { Flags::VALUES } else { Flags::NONE };
            (Kind::Ack, flags, if is_open { passing.epoch } else { before })
        }
        Fate::Pushed | Fate::Installed | Fate::Flipped | Fate::Remembered => {
            (Kind::Ack, if has_values { Flags::VALUES } else { Flags::NONE }, passing.epoch)
        }
    };
    let tag = match (passing.is_agent, passing.fate) {
        (false, _) => 0,
        (true, Fate::Drained) => u64::from(passing.cut_bits) << 32 | u64::from(passing.cut_next),
        (true, _) => passing.taken.into(),
    };
    let (view, durable) =
        passing.region.map_or((passing.header.view, 0), |region| (region.view, passing.durable));
    let header = Header { kind, flags, epoch, durable, view, tag, ..passing.header };
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
