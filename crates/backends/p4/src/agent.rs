//! Agent of a P4 switch: everything but the tables, by packets that come by its own port.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::SocketAddrV4;
use std::ops::Range;

use libra_dataplane::{BankPackets, Entry, Header, Kind, Packet, PacketWriter, RegionConfig, WINDOW};
use thiserror::Error;

use crate::packet::{Flip, bank_packets, halves, remembered};
use crate::sizes::{Sizes, WINDOW_U32};
use crate::tables::{DoesNotFit, Rooms, TableChange};

/// Words of the acked set of a flow.
const WORDS: usize = WINDOW / 32;

/// The way from an agent to its switch.
pub trait Link {
    /// Failure of the link.
    type Error: Display;

    /// Sends packets by the port of the agent, and returns their answers, in order. Each packet is carried out once: a link that cannot
    /// tell must return an error.
    fn exchange(&mut self, packets: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, Self::Error>;

    /// Hands a packet of a worker to the switch, and returns the answer: none come this way to a switch elsewhere.
    fn receive(&mut self, _from: SocketAddrV4, _packet: &[u8]) -> Option<Vec<u8>> {
        None
    }

    /// Changes tables.
    fn change(&mut self, changes: &[TableChange]) -> Result<(), Self::Error>;
}

impl<L: Link> Link for &mut L {
    type Error = L::Error;

    fn exchange(&mut self, packets: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, Self::Error> {
        (**self).exchange(packets)
    }

    fn receive(&mut self, from: SocketAddrV4, packet: &[u8]) -> Option<Vec<u8>> {
        (**self).receive(from, packet)
    }

    fn change(&mut self, changes: &[TableChange]) -> Result<(), Self::Error> {
        (**self).change(changes)
    }
}

/// Reason why something could not be done.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AgentError<E: Display> {
    /// The way to the switch is at fault.
    #[error("{0}")]
    Link(E),
    /// A region cannot be in this switch.
    #[error(transparent)]
    DoesNotFit(#[from] DoesNotFit),
    /// The switch has answered something else than was asked. What it holds is not known any more.
    #[error("the switch has answered a {asked:?} by {answer}")]
    Answer {
        /// Kind of the request.
        asked: Kind,
        /// Answer of the switch.
        answer: String,
    },
}

/// A job and the number of a region in it.
pub type Name = (u16, u8);

/// Packets of a flow that were taken up to the last round that was drained.
#[derive(Debug, Clone)]
struct AckedSet {
    next: u32,
    /// For each entry of the window whether it has taken an odd number of packets.
    odd: [u32; WORDS],
}

impl AckedSet {
    const NOTHING: Self = Self { next: 0, odd: [0; WORDS] };

    fn add(&mut self, seqs: Range<u32>) {
        self.next = self.next.max(seqs.end);
        // Of each entry only the last number counts; before it the entry has taken all that are its.
        for seq in seqs.start.max(seqs.end.saturating_sub(WINDOW_U32))..seqs.end {
            let (word, bit) = place(seq);
            self.odd[word] &= !bit;
            if is_odd(seq) {
                self.odd[word] |= bit;
            }
        }
    }

    fn contains(&self, seq: u32) -> bool {
        let (word, bit) = place(seq);
        seq < self.next.saturating_sub(WINDOW_U32) || (self.odd[word] & bit != 0) == is_odd(seq)
    }

    /// By the sender rule an entry is at most one packet behind the highest number.
    fn accepted(&self) -> Vec<Range<u32>> {
        let mut ranges: Vec<Range<u32>> = Vec::new();
        let floor = self.next.saturating_sub(WINDOW_U32);
        if floor > 0 {
            ranges.push(0..floor);
        }
        for seq in (floor..self.next).filter(|&seq| self.contains(seq)) {
            match ranges.last_mut() {
                Some(range) if range.end == seq => range.end += 1,
                _ => ranges.push(seq..seq + 1),
            }
        }
        ranges
    }
}

/// The word of a number in the acked set of its flow, and its bit there.
const fn place(seq: u32) -> (usize, u32) {
    let entry = seq as usize % WINDOW;
    (entry / 32, 1 << (entry % 32))
}

/// Returns true if an entry that has taken the packet of this number, and all before it, has taken an odd number of packets.
const fn is_odd(seq: u32) -> bool {
    (seq / WINDOW_U32).is_multiple_of(2)
}

/// The agent's state of a region.
#[derive(Debug, Clone)]
struct Held {
    config: RegionConfig,
    round: u16,
    durable: u16,
    is_active: bool,
    is_readable: bool,
    is_drained: bool,
    acked: Vec<AckedSet>,
}

impl Held {
    fn header(&self, kind: Kind) -> Header {
        let RegionConfig { job, region, plan, .. } = self.config;
        Header { job, region, plan, view: self.config.view_on_wire(), ..Header::of_kind(kind) }
    }

    fn flip(&self, swaps: bool) -> Vec<u8> {
        let Self { round, durable, is_active, is_readable, .. } = *self;
        Flip { round, durable, is_active, is_readable, swaps }.to_packet(&self.header(Kind::Pull))
    }

    /// A packet with an entry for each lane: of this cell, with value 0.
    fn of_cell(&self, header: Header, cell: u16) -> Vec<u8> {
        let lanes = self.config.lanes;
        let mut packet = vec![0; libra_dataplane::packet_bytes(lanes)];
        let mut writer = PacketWriter::new(header, &mut packet);
        (0..lanes).for_each(|_| _ = writer.push(cell, 0));
        assert_eq!(writer.finish(), packet.len(), "the packet was made for as many lanes");
        packet
    }

    fn cells(&self) -> Range<u16> {
        0..self.config.cells
    }
}

/// The agent of a P4 switch.
#[derive(Debug)]
pub struct Agent<L> {
    link: L,
    rooms: Rooms,
    held: BTreeMap<Name, Held>,
}

impl<L: Link> Agent<L> {
    /// The agent of a switch that has no region.
    pub const fn new(link: L, sizes: Sizes) -> Self {
        Self { link, rooms: Rooms::new(sizes), held: BTreeMap::new() }
    }

    /// The way to the switch.
    pub const fn link(&mut self) -> &mut L {
        &mut self.link
    }

    /// Changes who sends from where.
    ///
    /// # Errors
    /// The way to the switch is at fault.
    pub fn change(&mut self, changes: &[TableChange]) -> Result<(), AgentError<L::Error>> {
        self.link.change(changes).map_err(AgentError::Link)
    }

    /// Opens a region that is active and not readable, with all values zero. The round `durable` is, the next one takes packets;
    /// numbers in `seen` were taken before.
    ///
    /// # Errors
    /// There is no room for it, or the way to the switch is at fault.
    pub fn open(
        &mut self,
        config: RegionConfig,
        durable: u16,
        seen: impl IntoIterator<Item = (u16, Range<u32>)>,
    ) -> Result<(), AgentError<L::Error>> {
        let is_fresh = self.rooms.is_fresh_for(&config)?;
        let entry = self.rooms.take(&config)?;
        let mut acked = vec![AckedSet::NOTHING; config.flows.into()];
        for (flow, seqs) in seen {
            acked[usize::from(flow)].add(seqs);
        }
        let held = Held {
            config,
            round: durable.wrapping_add(1),
            durable,
            is_active: false,
            is_readable: false,
            is_drained: true,
            acked,
        };
        let name = (config.job, config.region);
        self.change(&[TableChange::AddRegion(entry)])?;
        self.held.insert(name, held);
        self.set(name, |_| ())?;
        if !is_fresh {
            self.clear(name)?;
        }
        self.remember(name, is_fresh)?;
        self.set(name, |held| held.is_active = true)
    }

    /// Clears what another region has left in the registers.
    fn clear(&mut self, name: Name) -> Result<(), AgentError<L::Error>> {
        let acked = self.held[&name].acked.clone();
        for _ in 0..2 {
            // The banks are swapped twice, so the round is what it was.
            self.set_round(name, |round| round ^ 1)?;
            self.drain(name)?;
        }
        let held = self.held.get_mut(&name).expect("it was just put there");
        // What an earlier region has left is no part of this one's acked set.
        held.acked = acked;
        let held = &self.held[&name];
        let zeros = held.cells().map(|cell| held.of_cell(held.header(Kind::Install), cell));
        let packets = zeros.collect();
        self.exchange(packets, Kind::Ack).map(drop)
    }

    /// Lets the windows remember what was taken before. Those that are fresh remember nothing.
    fn remember(&mut self, name: Name, is_fresh: bool) -> Result<(), AgentError<L::Error>> {
        let held = &self.held[&name];
        let mut packets = Vec::new();
        for (flow, acked) in (0..=u16::MAX).zip(&held.acked).filter(|(_, acked)| acked.next > 0 || !is_fresh)
        {
            let last = acked.next.max(WINDOW_U32);
            for seq in last - WINDOW_U32..last {
                let is_taken = seq < acked.next && acked.contains(seq);
                let newest = if is_taken { Some(seq) } else { seq.checked_sub(WINDOW_U32) };
                let tag = newest.map_or(0, remembered).into();
                let header = Header { worker: flow, seq, tag, ..held.header(Kind::Push) };
                packets.push(header.to_bytes().to_vec());
            }
        }
        self.exchange(packets, Kind::Ack).map(drop)
    }

    /// Lets a region go; nothing if it is not here.
    ///
    /// # Errors
    /// The way to the switch is at fault.
    pub fn close(&mut self, name: Name) -> Result<(), AgentError<L::Error>> {
        self.held.remove(&name);
        self.rooms.give_back(name.0, name.1).map_or(Ok(()), |change| self.change(&[change]))
    }

    fn held(&self, name: Name) -> &Held {
        self.held.get(&name).expect("the caller names regions that are open")
    }

    fn held_mut(&mut self, name: Name) -> &mut Held {
        self.held.get_mut(&name).expect("the caller names regions that are open")
    }

    fn exchange(
        &mut self,
        packets: Vec<Vec<u8>>,
        expected: Kind,
    ) -> Result<Vec<Vec<u8>>, AgentError<L::Error>> {
        let answers = self.link.exchange(packets).map_err(AgentError::Link)?;
        for answer in &answers {
            let kind = Header::parse_without_entries(answer).map(|header| header.kind);
            if kind != Ok(expected) {
                return Err(AgentError::Answer { asked: expected, answer: format!("{kind:?}") });
            }
        }
        Ok(answers)
    }

    /// Says something of a region by a FLIP that swaps no banks.
    fn set(&mut self, name: Name, change: impl FnOnce(&mut Held)) -> Result<(), AgentError<L::Error>> {
        let held = self.held_mut(name);
        change(held);
        let packet = held.flip(false);
        self.exchange(vec![packet], Kind::Ack).map(drop)
    }

    fn set_round(
        &mut self,
        name: Name,
        change: impl FnOnce(u16) -> u16,
    ) -> Result<BankPackets, AgentError<L::Error>> {
        let held = self.held_mut(name);
        held.round = change(held.round);
        held.is_drained = false;
        let packet = held.flip(true);
        let answers = self.exchange(vec![packet], Kind::Ack)?;
        let taken = taken(&answers[0]);
        // A bank that has taken nothing holds nothing.
        self.held_mut(name).is_drained = taken.pushes == 0;
        Ok(taken)
    }

    /// Says which round is committed and installed.
    ///
    /// # Errors
    /// The way to the switch is at fault.
    pub fn set_durable(&mut self, name: Name, durable: u16) -> Result<(), AgentError<L::Error>> {
        self.set(name, |held| held.durable = durable)
    }

    /// Says whether values may be read.
    ///
    /// # Errors
    /// The way to the switch is at fault.
    pub fn set_readable(&mut self, name: Name, is_readable: bool) -> Result<(), AgentError<L::Error>> {
        self.set(name, |held| held.is_readable = is_readable)
    }

    /// Says that everything up to a round is committed and installed, and so may be read.
    ///
    /// # Errors
    /// The way to the switch is at fault.
    pub fn settle(&mut self, name: Name, durable: u16) -> Result<(), AgentError<L::Error>> {
        self.set(name, |held| (held.durable, held.is_readable) = (durable, true))
    }

    /// Says whether pushes are taken.
    ///
    /// # Errors
    /// The way to the switch is at fault.
    pub fn set_active(&mut self, name: Name, is_active: bool) -> Result<(), AgentError<L::Error>> {
        self.set(name, |held| held.is_active = is_active)
    }

    /// Asks for the packets that the active bank has taken.
    ///
    /// # Errors
    /// The way to the switch is at fault.
    pub fn taken(&mut self, name: Name) -> Result<BankPackets, AgentError<L::Error>> {
        let packet = self.held(name).header(Kind::Pull).to_bytes().to_vec();
        let answers = self.exchange(vec![packet], Kind::Pull)?;
        Ok(taken(&answers[0]))
    }

    /// Swaps the banks, and returns the round that this closed and what it had taken: `None`, with nothing done, if the idle bank is not drained
    /// (rule D5).
    ///
    /// # Errors
    /// The way to the switch is at fault.
    pub fn flip(&mut self, name: Name) -> Result<Option<(u16, BankPackets)>, AgentError<L::Error>> {
        let closed = self.held(name).round;
        if !self.held(name).is_drained {
            return Ok(None);
        }
        let taken = self.set_round(name, |round| round.wrapping_add(1))?;
        Ok(Some((closed, taken)))
    }

    /// Takes the sums out of the idle bank: those that are not zero, by their slots, ascending. The [acked set](Self::acked) is then that of its round.
    ///
    /// # Errors
    /// The way to the switch is at fault: what it held is lost, so the region must be opened again, elsewhere or here.
    pub fn drain(&mut self, name: Name) -> Result<Vec<(u32, u32)>, AgentError<L::Error>> {
        let held = self.held(name);
        let padding = held.config.cells - 1;
        let words = held.acked.len() * WORDS;
        let packets = words.max(held.config.cells.into());
        let drain = |at: usize| {
            let cell = u16::try_from(at).map_or(padding, |cell| cell.min(padding));
            let flow = u16::try_from(at / WORDS).expect("a region has fewer than 2^16 flows");
            let header = held.header(Kind::Drain);
            let seq = u32::try_from(at % WORDS * 32).expect("a number in the first window");
            let header = if at < words { Header { worker: flow, seq, ..header } } else { header };
            held.of_cell(header, cell)
        };
        let answers = self.exchange((0..packets).map(drain).collect(), Kind::Drain)?;
        let held = self.held_mut(name);
        let mut sums = Vec::new();
        for (at, answer) in answers.iter().enumerate() {
            let packet = Packet::parse(answer)
                .map_err(|error| AgentError::Answer { asked: Kind::Drain, answer: error.to_string() })?;
            let tag = packet.header.tag;
            if at < words {
                let acked = &mut held.acked[at / WORDS];
                let (word, next) = halves(tag);
                acked.odd[at % WORDS] ^= word;
                acked.next = acked.next.max(next);
            } else {
                // Of flow 0 again, of which everything was read.
                debug_assert_eq!(tag, 0);
            }
            if at < usize::from(padding) {
                let lanes = u32::from(held.config.lanes);
                for (lane, Entry { cell, value }) in (0..).zip(packet.entries()) {
                    if value != 0 {
                        sums.push((u32::from(cell) * lanes + lane, value));
                    }
                }
            }
        }
        held.is_drained = true;
        Ok(sums)
    }

    /// Writes values, which are in the order of their slots.
    ///
    /// # Errors
    /// The way to the switch is at fault.
    pub fn install(
        &mut self,
        name: Name,
        values: impl IntoIterator<Item = (u32, u32)>,
    ) -> Result<(), AgentError<L::Error>> {
        let held = self.held(name);
        let lanes = u32::from(held.config.lanes);
        let mut packets = Vec::new();
        let mut cells: Vec<Option<(u16, u32)>> = vec![None; lanes as usize];
        // One value for each lane: as values ascend, those of a row of cells go in one packet.
        let mut flush = |cells: &mut Vec<Option<(u16, u32)>>| {
            if cells.iter().all(Option::is_none) {
                return;
            }
            let mut packet = vec![0; libra_dataplane::packet_bytes(held.config.lanes)];
            let mut writer = PacketWriter::new(held.header(Kind::Install), &mut packet);
            let nothing = (held.config.cells - 1, 0);
            for cell in &mut *cells {
                let (cell, value) = cell.take().unwrap_or(nothing);
                let _ = writer.push(cell, value);
            }
            assert_eq!(writer.finish(), packet.len(), "the packet was made for as many lanes");
            packets.push(packet);
        };
        for (slot, value) in values {
            let lane = (slot % lanes) as usize;
            if cells[lane].is_some() {
                flush(&mut cells);
            }
            let cell = u16::try_from(slot / lanes).expect("a slot is in a cell of its region");
            cells[lane] = Some((cell, value));
        }
        flush(&mut cells);
        self.exchange(packets, Kind::Ack).map(drop)
    }

    /// The values of all slots, padding left out.
    ///
    /// # Errors
    /// The way to the switch is at fault, or the region is not readable.
    pub fn values(&mut self, name: Name) -> Result<Vec<u32>, AgentError<L::Error>> {
        let held = self.held(name);
        let padding = held.config.cells - 1;
        let packets = (0..padding).map(|cell| held.of_cell(held.header(Kind::Pull), cell)).collect();
        let answers = self.exchange(packets, Kind::Pull)?;
        let values = |answer: &Vec<u8>| {
            let packet = Packet::parse(answer).ok();
            packet
                .into_iter()
                .flat_map(|packet| packet.entries())
                .map(|entry| entry.value)
                .collect::<Vec<_>>()
        };
        Ok(answers.iter().flat_map(values).collect())
    }

    /// Returns the configuration of a region.
    pub(crate) fn config(&self, name: Name) -> &RegionConfig {
        &self.held(name).config
    }

    /// The numbers of a flow that were taken up to the last round that was drained, as ascending ranges with gaps between them.
    #[must_use]
    pub fn acked(&self, name: Name, flow: u16) -> Vec<Range<u32>> {
        self.held(name).acked[usize::from(flow)].accepted()
    }
}

/// Reads the packets that a bank has taken from the answer to a FLIP or a probe.
fn taken(answer: &[u8]) -> BankPackets {
    let header = Header::parse_without_entries(answer).expect("its kind was looked at");
    bank_packets(halves(header.tag).1)
}
