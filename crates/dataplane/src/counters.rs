//! Packet outcomes and their counters.

use crate::wire::{Flags, Header, Kind, Malformed, NackReason};

/// Outcome of one packet, for its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use = "an answer must be sent"]
pub enum Verdict {
    /// The first so many bytes of the buffer are the answer, to be sent to where the packet came from.
    Reply(usize),
    /// There is no answer. The bytes of the buffer have no meaning any more.
    Drop(DropReason),
}

/// Reason why a packet got no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// It is not a packet, or breaks a rule of its region.
    Malformed(Malformed),
    /// Its kind does not belong here: an answer, a stream, or an `INSTALL` or `DRAIN` from a worker.
    Unexpected,
    /// It came from one worker and names another.
    Foreign,
    /// Its tag is not the one of its bytes, in a job with keys.
    Forged,
    /// It is for another region, plan or view than there is, in a job with keys: what is not authentic is not answered.
    Stale,
}

/// Packets by outcome, since the start.
///
/// Invariant: `packets` is the sum of all others but `retransmits`, which are among the pushes and the duplicates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Counters {
    /// All packets.
    pub packets: u64,
    /// Pushes added.
    pub pushes: u64,
    /// Pushes that had been added before: acknowledged, not added.
    pub duplicates: u64,
    /// Of these two, those that the worker had sent before, by their [`Flags::RETRANSMIT`]. Those that were added now
    /// are losses on the way here, the duplicates are mostly losses on the way back.
    pub retransmits: u64,
    /// Pulls answered with values.
    pub pulls: u64,
    /// Installs carried out.
    pub installs: u64,
    /// Drains carried out.
    pub drains: u64,
    /// Refused with [`NackReason::BankFull`].
    pub bank_full: u64,
    /// Refused with [`NackReason::StalePlan`].
    pub stale_plan: u64,
    /// Refused with [`NackReason::NotInstalled`].
    pub not_installed: u64,
    /// Refused with [`NackReason::UnknownFlow`].
    pub unknown_flow: u64,
    /// Refused with [`NackReason::Inactive`].
    pub inactive: u64,
    /// Refused with [`NackReason::StaleView`].
    pub stale_view: u64,
    /// Refused with [`NackReason::Throttled`].
    pub throttled: u64,
    /// Dropped as [`DropReason::Malformed`].
    pub malformed: u64,
    /// Dropped as [`DropReason::Unexpected`].
    pub unexpected: u64,
    /// Dropped as [`DropReason::Foreign`].
    pub foreign: u64,
    /// Dropped as [`DropReason::Forged`].
    pub forged: u64,
    /// Dropped as [`DropReason::Stale`].
    pub stale: u64,
}

/// Outcome of one packet: it selects the counter and the answer.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Outcome {
    Executed(Executed),
    Refused(NackReason),
    Dropped(DropReason),
}

impl Outcome {
    /// The header of the answer to this request, of a region with this view and this durable round (rule W7). Who asked under an older
    /// view learns which it is.
    pub(crate) const fn answer(
        self,
        request: &Header,
        view: u16,
        durable: u16,
    ) -> Result<Header, DropReason> {
        let (kind, flags, round) = match self {
            Self::Executed(Executed { action, flags, round }) => (action.answer(), flags, round),
            Self::Refused(reason) => (Kind::Nack, Flags::NONE, reason as u16),
            Self::Dropped(reason) => return Err(reason),
        };
        let entries = if flags.contains(Flags::VALUES) { request.entries } else { 0 };
        Ok(Header { kind, flags, entries, view, round, durable, tag: 0, ..*request })
    }
}

/// A packet that was carried out. The entries that its answer counts are in place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Executed {
    pub(crate) action: Action,
    /// Of the answer.
    pub(crate) flags: Flags,
    /// Of the answer: the round that took the packet.
    pub(crate) round: u16,
}

/// Effect of a packet that was carried out.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Action {
    Pushed,
    Duplicate,
    Pulled,
    Installed,
    Drained,
}

impl Action {
    const fn answer(self) -> Kind {
        match self {
            Self::Pushed | Self::Duplicate | Self::Installed => Kind::Ack,
            Self::Pulled => Kind::Pull,
            Self::Drained => Kind::Drain,
        }
    }
}

impl Counters {
    /// Packets refused with a `NACK`, for any reason.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.bank_full
            .wrapping_add(self.stale_plan)
            .wrapping_add(self.not_installed)
            .wrapping_add(self.unknown_flow)
            .wrapping_add(self.inactive)
            .wrapping_add(self.stale_view)
            .wrapping_add(self.throttled)
    }

    /// Packets that got no answer, for any reason.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        self.malformed
            .wrapping_add(self.unexpected)
            .wrapping_add(self.foreign)
            .wrapping_add(self.forged)
            .wrapping_add(self.stale)
    }

    /// These and those together.
    #[must_use]
    pub const fn plus(&self, other: &Self) -> Self {
        Self {
            packets: self.packets.wrapping_add(other.packets),
            pushes: self.pushes.wrapping_add(other.pushes),
            duplicates: self.duplicates.wrapping_add(other.duplicates),
            retransmits: self.retransmits.wrapping_add(other.retransmits),
            pulls: self.pulls.wrapping_add(other.pulls),
            installs: self.installs.wrapping_add(other.installs),
            drains: self.drains.wrapping_add(other.drains),
            bank_full: self.bank_full.wrapping_add(other.bank_full),
            stale_plan: self.stale_plan.wrapping_add(other.stale_plan),
            not_installed: self.not_installed.wrapping_add(other.not_installed),
            unknown_flow: self.unknown_flow.wrapping_add(other.unknown_flow),
            inactive: self.inactive.wrapping_add(other.inactive),
            stale_view: self.stale_view.wrapping_add(other.stale_view),
            throttled: self.throttled.wrapping_add(other.throttled),
            malformed: self.malformed.wrapping_add(other.malformed),
            unexpected: self.unexpected.wrapping_add(other.unexpected),
            foreign: self.foreign.wrapping_add(other.foreign),
            forged: self.forged.wrapping_add(other.forged),
            stale: self.stale.wrapping_add(other.stale),
        }
    }

    pub(crate) const fn count(&mut self, outcome: Outcome) {
        let counter = match outcome {
            Outcome::Executed(Executed { action: Action::Pushed, .. }) => &mut self.pushes,
            Outcome::Executed(Executed { action: Action::Duplicate, .. }) => &mut self.duplicates,
            Outcome::Executed(Executed { action: Action::Pulled, .. }) => &mut self.pulls,
            Outcome::Executed(Executed { action: Action::Installed, .. }) => &mut self.installs,
            Outcome::Executed(Executed { action: Action::Drained, .. }) => &mut self.drains,
            Outcome::Refused(NackReason::BankFull) => &mut self.bank_full,
            Outcome::Refused(NackReason::StalePlan) => &mut self.stale_plan,
            Outcome::Refused(NackReason::NotInstalled) => &mut self.not_installed,
            Outcome::Refused(NackReason::UnknownFlow) => &mut self.unknown_flow,
            Outcome::Refused(NackReason::Inactive) => &mut self.inactive,
            Outcome::Refused(NackReason::StaleView) => &mut self.stale_view,
            Outcome::Refused(NackReason::Throttled) => &mut self.throttled,
            Outcome::Dropped(DropReason::Malformed(_)) => &mut self.malformed,
            Outcome::Dropped(DropReason::Unexpected) => &mut self.unexpected,
            Outcome::Dropped(DropReason::Foreign) => &mut self.foreign,
            Outcome::Dropped(DropReason::Forged) => &mut self.forged,
            Outcome::Dropped(DropReason::Stale) => &mut self.stale,
        };
        *counter = counter.wrapping_add(1);
        self.packets = self.packets.wrapping_add(1);
    }

    /// Counts, for a push that was carried out, whether it was sent before: an addition, as a branch would cost more.
    pub(crate) const fn count_retransmit(&mut self, flags: Flags) {
        self.retransmits = self.retransmits.wrapping_add(flags.contains(Flags::RETRANSMIT) as u64);
    }
}
