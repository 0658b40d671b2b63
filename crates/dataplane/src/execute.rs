//! Execution of each kind of packet on its region.

use crate::authentication::{Direction, Tags};
use crate::config::Memory;
use crate::counters::{Action, DropReason, Executed, Outcome};
use crate::entries;
use crate::mutants::{Mutant, is_enabled};
use crate::packet::{body, body_mut};
use crate::region::Region;
use crate::window::{DedupWindow, SEQ_MAX, Seen, accept};
use crate::wire::{Flags, Header, Kind, Malformed, NackReason};

/// Reason why a packet was not carried out. It changed nothing (rule W6).
pub(crate) enum Refusal {
    /// The sender learns it.
    Nack(NackReason),
    /// The sender does not.
    Drop(DropReason),
}

impl From<Refusal> for Outcome {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Nack(reason) => Self::Refused(reason),
            Refusal::Drop(reason) => Self::Dropped(reason),
        }
    }
}

impl From<NackReason> for Refusal {
    fn from(reason: NackReason) -> Self {
        Self::Nack(reason)
    }
}

impl From<Malformed> for Refusal {
    fn from(malformed: Malformed) -> Self {
        Self::Drop(DropReason::Malformed(malformed))
    }
}

impl<M: Memory> Region<M> {
    /// Carries out a packet for this region.
    #[inline]
    pub(crate) fn execute(
        &mut self,
        header: &Header,
        flow: u16,
        packet: &mut [u8],
    ) -> Result<Executed, Refusal> {
        match header.kind {
            Kind::Push => self.execute_push(header, flow, packet),
            Kind::Pull => self.execute_pull(header, flow, packet),
            Kind::Install => self.execute_install(header, packet),
            Kind::Drain => self.execute_drain(header, packet),
            Kind::Ack | Kind::Nack | Kind::Stream => Err(Refusal::Drop(DropReason::Unexpected)),
        }
    }

    #[inline]
    fn execute_push(&mut self, header: &Header, flow: u16, packet: &mut [u8]) -> Result<Executed, Refusal> {
        self.check_plan(header)?;
        self.check_view(header)?;
        self.check_flow(flow)?;
        if !self.is_active() {
            return Err(NackReason::Inactive.into());
        }
        if header.seq > SEQ_MAX {
            return Err(Malformed::Sequence.into());
        }
        let adding = entries::check_push(self.config.shape(), self.config.arithmetic, body(packet))?;

        let (active, full) = (self.active_bank(), self.is_bank_full());
        let words = self.window_words_mut(flow).ok_or(NackReason::UnknownFlow)?;
        let (action, round) = match DedupWindow::new(words).seen(header.seq) {
            Seen::Duplicate { bank } => (Action::Duplicate, self.round_of(bank)),
            // Not marked as seen: the packet will come again after the flip (rule D4).
            Seen::New if full => return Err(NackReason::BankFull.into()),
            Seen::New => {
                // Remembered and added in one step, whole (rule D3).
                accept(words, header.seq, active);
                self.mark_changed(flow);
                self.add(adding, header.flags.contains(Flags::LAST));
                (Action::Pushed, self.round())
            }
        };

        // Without values to give, the answer has none (rule W9).
        let flags = if header.flags.contains(Flags::VALUES) && self.is_readable() {
            entries::read(self.config.shape(), body_mut(packet), self.memory.values.as_ref())?;
            Flags::VALUES
        } else {
            Flags::NONE
        };
        self.counters.count_retransmit(header.flags);
        Ok(Executed { action, flags, round })
    }

    fn execute_pull(&self, header: &Header, flow: u16, packet: &mut [u8]) -> Result<Executed, Refusal> {
        self.check_plan(header)?;
        self.check_view(header)?;
        self.check_flow(flow)?;
        // Without entries it is a probe for round and durable, and those are always there (rule W10).
        if !self.is_readable() && header.entries > 0 {
            return Err(NackReason::NotInstalled.into());
        }
        entries::read(self.config.shape(), body_mut(packet), self.memory.values.as_ref())?;
        Ok(Executed { action: Action::Pulled, flags: Flags::VALUES, round: self.round() })
    }

    fn execute_install(&mut self, header: &Header, packet: &[u8]) -> Result<Executed, Refusal> {
        self.check_plan(header)?;
        self.check_view(header)?;
        entries::install(self.config.shape(), body(packet), self.memory.values.as_mut())?;
        Ok(Executed { action: Action::Installed, flags: Flags::NONE, round: self.round() })
    }

    fn execute_drain(&mut self, header: &Header, packet: &mut [u8]) -> Result<Executed, Refusal> {
        self.check_plan(header)?;
        self.check_view(header)?;
        let idle = self.idle_bank();
        let sums = idle.of_mut(&mut self.memory.sums).as_mut();
        let dirty = idle.of_mut(&mut self.memory.dirty).as_mut();
        entries::drain(self.config.shape(), body_mut(packet), sums, dirty)?;
        Ok(Executed { action: Action::Drained, flags: Flags::VALUES, round: self.round_of(idle) })
    }

    /// Checks that a packet is from who it says, and with a MAC that it is for this region as it is (rule A3).
    #[inline]
    pub(crate) fn authenticate(&self, header: &Header, packet: &[u8], tags: Tags<'_>) -> Result<(), Refusal> {
        let is_mac = matches!(tags, Tags::Mac { .. });
        if is_mac && self.check_plan(header).and_then(|()| self.check_view(header)).is_err() {
            if is_enabled(Mutant::StaleAnsweredBeforeTag) {
                return Ok(());
            }
            // A MAC is of one view: that of a packet from before a move cannot be checked.
            return Err(Refusal::Drop(DropReason::Stale));
        }
        if tags.is_authentic(Direction::Up, packet, self.config.view) || is_enabled(Mutant::TagIgnored) {
            Ok(())
        } else {
            Err(Refusal::Drop(DropReason::Forged))
        }
    }

    fn check_plan(&self, header: &Header) -> Result<(), NackReason> {
        let right = header.plan == self.config.plan || is_enabled(Mutant::StalePlanAccepted);
        if right { Ok(()) } else { Err(NackReason::StalePlan) }
    }

    fn check_view(&self, header: &Header) -> Result<(), NackReason> {
        let right = header.view == self.config.view_on_wire() || is_enabled(Mutant::StaleViewAccepted);
        if right { Ok(()) } else { Err(NackReason::StaleView) }
    }

    const fn check_flow(&self, flow: u16) -> Result<(), NackReason> {
        if flow < self.config.flows { Ok(()) } else { Err(NackReason::UnknownFlow) }
    }
}
