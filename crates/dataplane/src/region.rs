//! A region: the slots of one shard, their two banks and values, and the flows into them.

use core::fmt;
use core::ops::Range;

use crate::config::{ConfigError, Memory, RegionConfig, RegionMemory};
use crate::counters::Counters;
use crate::dirty;
use crate::entries;
use crate::mutants::{Mutant, is_enabled};
use crate::packet::EntryBytes;
use crate::window::{Bank, DedupWindow, Seen, WINDOW_U32, WINDOW_WORDS, accept};
use crate::wire::round_newer;

/// Reason why a bank could not be flipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FlipError {
    /// The idle bank still holds sums: drain it first.
    IdleBankNotDrained,
}

impl fmt::Display for FlipError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::IdleBankNotDrained => formatter.write_str("the idle bank is not drained"),
        }
    }
}

impl core::error::Error for FlipError {}

/// Number of packets that a bank took in its round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct BankPackets {
    /// All of them.
    pub pushes: u32,
    /// Those that were the last of a push in this region: how many pushes have closed.
    pub last: u32,
}

/// The slots of one shard in this switch.
///
/// Workers add into the active bank; the agent drains the idle one; a [flip](Self::flip) swaps them. What packets do
/// is with [`Pipeline`](crate::Pipeline); what is here is for the agent, which runs beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region<M> {
    pub(crate) config: RegionConfig,
    pub(crate) memory: RegionMemory<M>,
    pub(crate) counters: Counters,
    packets: [BankPackets; 2],
    round: u16,
    durable: u16,
    readable: bool,
    active: bool,
}

/// The packets of a flow that an acknowledgement naming some round may report as taken.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken<'a> {
    window: DedupWindow<'a>,
    /// Of which banks.
    by: [bool; 2],
}

impl Taken<'_> {
    pub(crate) fn contains(self, seq: u32) -> bool {
        matches!(self.window.seen(seq), Seen::Duplicate { bank } if *bank.of(&self.by))
    }

    /// One past the highest sequence number of the flow.
    pub(crate) const fn next(self) -> u32 {
        self.window.next_seq()
    }
}

impl<M: Memory> Region<M> {
    /// A region in this memory, which it clears. Its round is 1, none is durable; it takes pushes, and is not readable.
    ///
    /// # Errors
    /// When the numbers of `config` make no region, or an array has not the length that they ask for.
    pub fn new(config: RegionConfig, mut memory: RegionMemory<M>) -> Result<Self, ConfigError> {
        config.check()?;
        let words = config.memory_words();
        let [sums_even, sums_odd] = &mut memory.sums;
        let [dirty_even, dirty_odd] = &mut memory.dirty;
        for (array, name, expected) in [
            (&mut memory.values, "values", words.values),
            (sums_even, "sums", words.sums),
            (sums_odd, "sums", words.sums),
            (dirty_even, "dirty", words.dirty),
            (dirty_odd, "dirty", words.dirty),
            (&mut memory.windows, "windows", words.windows),
            (&mut memory.changed, "changed", words.changed),
        ] {
            let found = array.as_ref().len();
            if found != expected {
                return Err(ConfigError::Memory { array: name, expected, found });
            }
            array.as_mut().fill(0);
        }
        Ok(Self {
            config,
            memory,
            counters: Counters::default(),
            packets: [BankPackets::default(); 2],
            round: 1,
            durable: 0,
            readable: false,
            active: true,
        })
    }

    /// Returns the configuration of the region.
    #[must_use]
    pub const fn config(&self) -> &RegionConfig {
        &self.config
    }

    /// The round that takes packets now.
    #[must_use]
    pub const fn round(&self) -> u16 {
        self.round
    }

    /// The newest round that is committed and installed, as in every answer.
    #[must_use]
    pub const fn durable(&self) -> u16 {
        self.durable
    }

    /// Sets the newest round that is committed and installed.
    pub const fn set_durable(&mut self, round: u16) {
        self.durable = round;
    }

    /// Returns true if values may be read.
    #[must_use]
    pub const fn is_readable(&self) -> bool {
        self.readable
    }

    /// Says whether values may be read: not before the shard has installed all of them.
    pub const fn set_readable(&mut self, readable: bool) {
        self.readable = readable;
    }

    /// Returns true if pushes are taken.
    #[must_use]
    pub const fn is_active(&self) -> bool {
        self.active
    }

    /// Says whether pushes are taken. Reading, installing and draining do not depend on it (rule D7).
    pub const fn set_active(&mut self, active: bool) {
        self.active = active;
    }

    /// Goes on after the last committed round of a switch that is gone: the round becomes `durable + 1` (rule D6).
    ///
    /// For a standby, before its first packet; with [`mark_seen`](Self::mark_seen) for what the shard has of each flow.
    ///
    /// # Panics
    /// If the region has taken packets or was flipped.
    pub fn resume_after(&mut self, durable: u16) {
        let fresh = self.round == 1 && self.packets == [BankPackets::default(); 2];
        assert!(fresh, "a region resumes before its first packet");
        self.durable = durable;
        self.round = durable.wrapping_add(1);
    }

    /// Remembers that packets were accepted in a round before this one, so that they are not added again. `false`,
    /// and nothing done, if there is no such flow.
    ///
    /// To restore what [`DedupWindow::accepted`] listed, call it for each range, ascending.
    pub fn mark_seen(&mut self, flow: u16, seqs: Range<u32>) -> bool {
        if is_enabled(Mutant::MarkSeenForgotten) {
            return self.window(flow).is_some();
        }
        let bank = self.idle_bank();
        let Some(words) = self.window_words_mut(flow) else { return false };
        // Older ones would be overwritten anyway.
        let first = seqs.start.max(seqs.end.saturating_sub(WINDOW_U32));
        for seq in first..seqs.end {
            if !DedupWindow::new(words).contains(seq) {
                accept(words, seq, bank);
            }
        }
        true
    }

    /// Forgets everything of a flow, so that another worker can have it; nothing if there is no such flow.
    pub fn forget_flow(&mut self, flow: u16) {
        if let Some(words) = self.window_words_mut(flow) {
            words.fill(0);
        }
        if let Some(mark) = self.memory.changed.as_mut().get_mut(usize::from(flow)) {
            *mark = 0;
        }
    }

    /// Gives the region windows and marks for another number of flows, in this memory. The state of each flow that it had is kept.
    ///
    /// # Errors
    /// When there is to be no flow, or an array has not the length for so many; nothing was changed.
    pub fn set_flows(&mut self, flows: u16, mut windows: M, mut changed: M) -> Result<(), ConfigError> {
        let config = RegionConfig { flows, ..self.config };
        config.check()?;
        let words = config.memory_words();
        let arrays = [
            (&self.memory.windows, &mut windows, "windows", words.windows),
            (&self.memory.changed, &mut changed, "changed", words.changed),
        ];
        for (_, array, name, expected) in &arrays {
            let found = (**array).as_ref().len();
            if found != *expected {
                return Err(ConfigError::Memory { array: name, expected: *expected, found });
            }
        }
        for (before, array, _, _) in arrays {
            array.as_mut().fill(0);
            array.as_mut().iter_mut().zip(before.as_ref()).for_each(|(word, before)| *word = *before);
        }
        (self.config, self.memory.windows, self.memory.changed) = (config, windows, changed);
        Ok(())
    }

    /// Swaps the banks, and returns the round that this closed (rule D5).
    ///
    /// # Errors
    /// If the idle bank still holds sums; nothing was changed.
    pub fn flip(&mut self) -> Result<u16, FlipError> {
        if !self.is_idle_clean() {
            return Err(FlipError::IdleBankNotDrained);
        }
        let closed = self.round;
        self.round = closed.wrapping_add(1);
        *self.active_bank().of_mut(&mut self.packets) = BankPackets::default();
        Ok(closed)
    }

    /// Returns true if nothing is left to drain.
    #[must_use]
    pub fn is_idle_clean(&self) -> bool {
        dirty::is_clean(self.idle_bank().of(&self.memory.dirty).as_ref())
    }

    /// The blocks of the idle bank that hold sums, ascending. Block b is the slots from `b * DIRTY_BLOCK` on.
    pub fn dirty_blocks(&self) -> impl Iterator<Item = u32> {
        dirty::blocks(self.idle_bank().of(&self.memory.dirty).as_ref())
    }

    /// Clears the idle bank, and hands over what was in it: for each dirty block its first slot and its sums, of
    /// [`DIRTY_BLOCK`](crate::DIRTY_BLOCK) slots or fewer at the end of the region.
    ///
    /// The same as `DRAIN` packets for all [`dirty_blocks`](Self::dirty_blocks), without the packets.
    pub fn drain(&mut self, mut take: impl FnMut(u32, &[u32])) {
        let idle = self.idle_bank();
        let sums = idle.of_mut(&mut self.memory.sums).as_mut();
        let dirty = idle.of_mut(&mut self.memory.dirty).as_mut();
        for block in dirty::blocks(dirty) {
            let first_slot = dirty::first_slot(block);
            if let Some(sums) = dirty::block_mut(sums, first_slot as usize) {
                take(first_slot, sums);
                sums.fill(0);
            }
        }
        dirty.fill(0);
    }

    /// Writes the values of neighbouring slots, from `first_slot` on, for workers to read. `false`, and nothing written, if there are not
    /// so many slots before those of the padding.
    ///
    /// The same as `INSTALL` packets for these slots, without the packets.
    pub fn install(&mut self, first_slot: u32, values: &[u32]) -> bool {
        let slots = self.config.slots().saturating_sub(usize::from(self.config.lanes));
        let slots = self.memory.values.as_mut().get_mut(..slots);
        let behind = slots.and_then(|slots| slots.get_mut(first_slot as usize..));
        let Some(slots) = behind.and_then(|slots| slots.get_mut(..values.len())) else { return false };
        slots.copy_from_slice(values);
        true
    }

    /// Returns the packets that the active bank took in this round.
    #[must_use]
    pub const fn active_packets(&self) -> BankPackets {
        *self.active_bank().of(&self.packets)
    }

    /// Returns the packets that the idle bank took in the round before this one.
    #[must_use]
    pub const fn idle_packets(&self) -> BankPackets {
        *self.idle_bank().of(&self.packets)
    }

    /// Packets accepted in the active bank.
    #[must_use]
    pub const fn pushes_in_bank(&self) -> u32 {
        self.active_packets().pushes
    }

    /// Packets with [`Flags::LAST`](crate::Flags::LAST) accepted in the active bank.
    #[must_use]
    pub const fn last_in_bank(&self) -> u32 {
        self.active_packets().last
    }

    /// Returns the window of a flow: all it had accepted so far; right after a flip, its part of the contents of the round. `None` if there is no such
    /// flow.
    #[must_use]
    pub fn window(&self, flow: u16) -> Option<DedupWindow<'_>> {
        self.memory.windows.as_ref().as_chunks().0.get(usize::from(flow)).map(DedupWindow::new)
    }

    /// The flows that have taken a packet since that was last [forgotten](Self::forget_changes), ascending: right after a flip those of
    /// the closed round, if it was forgotten after the flip before.
    pub fn changed_flows(&self) -> impl Iterator<Item = u16> {
        (0u16..).zip(self.memory.changed.as_ref()).filter(|(_, mark)| **mark != 0).map(|(flow, _)| flow)
    }

    /// Returns true if a flow has taken a packet since then.
    #[must_use]
    pub fn is_changed(&self, flow: u16) -> bool {
        self.memory.changed.as_ref().get(usize::from(flow)).is_some_and(|mark| *mark != 0)
    }

    /// Forgets the flows that have taken packets, and starts to note them again.
    pub fn forget_changes(&mut self) {
        self.memory.changed.as_mut().fill(0);
    }

    /// The values that workers read, slot by slot.
    #[must_use]
    pub fn values(&self) -> &[u32] {
        self.memory.values.as_ref()
    }

    /// Returns the packet counters of this region.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(crate) const fn active_bank(&self) -> Bank {
        Bank::of_round(self.round)
    }

    pub(crate) const fn idle_bank(&self) -> Bank {
        self.active_bank().other()
    }

    /// Returns true if the active bank may take no more packets.
    pub(crate) const fn is_bank_full(&self) -> bool {
        self.pushes_in_bank() >= self.config.bank_packets_max
    }

    /// The round that took the packet which a window remembers for this bank, or a newer one that is sure to close (rule D2).
    ///
    /// An active bank that is empty has not taken the packet: it was an older round of the same bank. To name the present
    /// one would leave the worker waiting for the end of a round that may never have a packet, and so never end.
    pub(crate) const fn round_of(&self, bank: Bank) -> u16 {
        match (bank, self.active_bank()) {
            (Bank::Even, Bank::Even) | (Bank::Odd, Bank::Odd) if self.pushes_in_bank() > 0 => self.round,
            _ => self.round.wrapping_sub(1),
        }
    }

    /// Returns the packets of a flow that were taken by this round or one before it, the idle one or the active one.
    pub(crate) fn taken_by(&self, flow: u16, round: u16) -> Option<Taken<'_>> {
        let by = |bank| !round_newer(self.round_of(bank), round);
        let (even, odd) = (by(Bank::Even), by(Bank::Odd));
        self.window(flow).map(|window| Taken { window, by: [even, odd] })
    }

    pub(crate) fn window_words_mut(&mut self, flow: u16) -> Option<&mut [u32; WINDOW_WORDS]> {
        self.memory.windows.as_mut().as_chunks_mut().0.get_mut(usize::from(flow))
    }

    /// Notes that a flow has taken a packet.
    #[inline]
    pub(crate) fn mark_changed(&mut self, flow: u16) {
        if let Some(mark) = self.memory.changed.as_mut().get_mut(usize::from(flow)) {
            *mark = 1;
        }
    }

    /// Adds the entries of a checked packet to the active bank.
    #[inline]
    pub(crate) fn add(&mut self, body: &[EntryBytes], last: bool) {
        let bank = self.active_bank();
        let packets = bank.of_mut(&mut self.packets);
        packets.pushes = packets.pushes.wrapping_add(1);
        packets.last = packets.last.wrapping_add(u32::from(last));
        if is_enabled(Mutant::FlipInTheMiddle) && self.counters.pushes % 7 == 6 {
            let (before, after) = entries::halves(self.config.shape(), body);
            self.add_to(bank, before);
            self.add_to(bank.other(), after);
            return;
        }
        self.add_to(bank, body);
    }

    #[inline]
    fn add_to(&mut self, bank: Bank, body: &[EntryBytes]) {
        let sums = bank.of_mut(&mut self.memory.sums).as_mut();
        let dirty = bank.of_mut(&mut self.memory.dirty).as_mut();
        entries::add(self.config.shape(), self.config.arithmetic, body, sums, dirty);
    }
}
