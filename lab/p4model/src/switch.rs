//! The program, in Rust: each control of `program` as a function of the same name, over registers that a packet accesses once.
//!
//! It is what can be tested of the program where there is no compiler for it; and it shows which of its steps is wrong where there
//! is one, and the switch does something else than `libra-dataplane`.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::SocketAddrV4;

use libra_dataplane::mutants::{Mutant, is_enabled};
use libra_dataplane::{Entry, Flags, Header, Kind, NackReason, SEQ_MAX, WINDOW};

mod outcome;

use self::outcome::{answer, decision, go_again};
use crate::register::Register;
use libra_p4::adder::Adder;
use libra_p4::packet::{CONDITION_ACTIVE, CONDITION_READABLE, KIND_FLIP, halves, remembered};
use libra_p4::{Cookie, Link, RegionEntry, Sizes, Sums, TableChange};

/// By which port a packet comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// That of the agent.
    Agent,
    /// Any other, from this address.
    Worker(SocketAddrV4),
}

/// A push of floats between two passes: the header `again`, computed sums and all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Again {
    /// The round that took packets and the durable one, in the last pass.
    clock: (u16, u16),
    /// After an odd number of passes sums have been read.
    passes: u8,
    turns: Vec<u32>,
    sums: Vec<u32>,
}

/// Result of a pass of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Passed {
    /// It is dropped, without an answer.
    Dropped,
    /// It is the answer now: the payload of a datagram.
    Answered(Vec<u8>),
    /// It has to pass once more, with this.
    Again(Again),
}

/// Form of a packet, by its bytes alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Push,
    Pull,
    Probe,
    Install,
    Drain,
    Flip,
    Remember,
}

/// Outcome of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Dropped,
    Pushed,
    Duplicate,
    Pulled,
    Installed,
    Drained,
    Flipped,
    Remembered,
    Refused(NackReason),
    Again,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SumAction {
    None,
    Add,
    Take,
    Read,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValueAction {
    None,
    Read,
    Write,
}

/// A packet in the pipeline: its headers, and the metadata of the program.
#[derive(Debug, Clone)]
struct Passing {
    number: u64,
    header: Header,
    entries: Vec<Entry>,
    form: Form,
    is_sound: bool,
    is_worker: bool,
    is_agent: bool,
    region: Option<RegionEntry>,
    is_fit: bool,
    plan_is_right: bool,
    flow: usize,
    round: u16,
    durable: u16,
    conditions: u32,
    again: Again,
    is_turn: bool,
    has_room: bool,
    is_new: bool,
    is_seen: bool,
    seen_bank: u32,
    taken: u32,
    acked_bits: u32,
    acked_next: u32,
    sum_action: SumAction,
    value_action: ValueAction,
    outcome: Outcome,
}

impl Passing {
    fn index(&self) -> usize {
        self.region.map_or(0, |region| region.index.into())
    }

    fn bank(&self) -> usize {
        usize::from(self.round & 1)
    }

    fn bank_bit(&self) -> u32 {
        u32::from(self.round & 1)
    }

    /// A DRAIN is about the idle bank.
    fn bank_of_action(&self) -> usize {
        if self.form == Form::Drain { 1 - self.bank() } else { self.bank() }
    }

    fn is_of_agent(&self, form: Form) -> bool {
        self.form == form && self.is_agent && self.is_fit
    }

    fn swaps(&self) -> bool {
        self.is_of_agent(Form::Flip) && self.header.flags.contains(Flags::LAST)
    }

    fn window_entry(&self) -> usize {
        self.flow * WINDOW + self.header.seq as usize % WINDOW
    }

    fn is_active(&self) -> bool {
        self.conditions & u32::from(CONDITION_ACTIVE) != 0
    }

    fn is_readable(&self) -> bool {
        self.conditions & u32::from(CONDITION_READABLE) != 0
    }
}

/// Registers of one lane.
#[derive(Debug, Clone)]
struct Lane {
    turns: Register,
    sums: Register,
    values: Register,
}

/// The program and its state.
#[derive(Debug, Clone)]
pub struct Switch {
    sizes: Sizes,
    packets: u64,
    workers: BTreeSet<(SocketAddrV4, u16, u16, Cookie)>,
    regions: BTreeMap<(u16, u8), RegionEntry>,
    clocks: Register,
    conditions: Register,
    arrivals: Register,
    generations: Register,
    banks: Register,
    counts: Register,
    acked_words: Register,
    acked_next: Register,
    lanes: Vec<Lane>,
}

impl Switch {
    /// Makes a switch without workers and regions, of a program of these sizes.
    #[must_use]
    pub fn new(sizes: Sizes) -> Self {
        let regions = usize::from(sizes.regions);
        let lane = Lane {
            turns: Register::new("turns", sizes.cells()),
            sums: Register::new("sums", 2 * sizes.cells()),
            values: Register::new("values", sizes.cells()),
        };
        Self {
            sizes,
            packets: 0,
            workers: BTreeSet::new(),
            regions: BTreeMap::new(),
            clocks: Register::new("clocks", regions),
            conditions: Register::new("conditions", regions),
            arrivals: Register::new("arrivals", regions),
            generations: Register::new("generations", sizes.window_entries()),
            banks: Register::new("banks", sizes.window_entries()),
            counts: Register::new("counts", regions),
            acked_words: Register::new("acked_words", sizes.acked_words()),
            acked_next: Register::new("acked_next", 2 * sizes.flows()),
            lanes: vec![lane; sizes.lanes.into()],
        }
    }

    /// Changes a table, as the agent does.
    pub fn change(&mut self, change: &TableChange) {
        match *change {
            TableChange::AddWorker { address, job, worker, cookie } => {
                self.workers.insert((address, job, worker, cookie));
            }
            TableChange::RemoveWorker { address, job, worker, cookie } => {
                self.workers.remove(&(address, job, worker, cookie));
            }
            TableChange::AddRegion(region) => {
                self.regions.insert((region.job, region.region), region);
            }
            TableChange::RemoveRegion { job, region, .. } => {
                self.regions.remove(&(job, region));
            }
        }
    }

    /// Carries out the payload of a datagram, with no other between its passes, and returns that of the answer.
    pub fn process(&mut self, port: Port, datagram: &[u8]) -> Option<Vec<u8>> {
        let mut again = None;
        loop {
            match self.pass(port, datagram, again) {
                Passed::Dropped => return None,
                Passed::Answered(answer) => return Some(answer),
                Passed::Again(next) => again = Some(next),
            }
        }
    }

    /// Lets the payload of a datagram pass: for the first time, or with what its last pass has made.
    pub fn pass(&mut self, port: Port, datagram: &[u8], again: Option<Again>) -> Passed {
        self.packets += 1;
        let Some(mut passing) = self.parse(datagram) else { return Passed::Dropped };
        passing.again = again.unwrap_or_default();
        self.admission(&mut passing, port);
        self.clock(&mut passing);
        self.conditions(&mut passing);
        self.cells_inside(&mut passing);
        self.cells_of_region(&mut passing);
        if self.sizes.sums == Sums::Table {
            self.turns(&mut passing);
        }
        self.room(&mut passing);
        self.window(&mut passing);
        self.cells_of_bank(&mut passing);
        self.window_bank(&mut passing);
        self.taken(&mut passing);
        self.acked_bits(&mut passing);
        self.acked_next(&mut passing);
        decision(&mut passing);
        if self.sizes.sums == Sums::Table {
            go_again(&mut passing);
        }
        self.lanes(&mut passing);
        self.cells_inside(&mut passing);
        if passing.outcome != Outcome::Again {
            return answer(&passing).map_or(Passed::Dropped, Passed::Answered);
        }
        let mut again = passing.again;
        for (sum, entry) in again.sums.iter_mut().zip(&passing.entries) {
            *sum = Adder::of_program().add(*sum, entry.value);
        }
        Passed::Again(again)
    }

    fn parse(&self, datagram: &[u8]) -> Option<Passing> {
        let (bytes, is_flip) = without_flip(datagram);
        let header = Header::parse_without_entries(&bytes).ok()?;
        let lanes = usize::from(self.sizes.lanes);
        let is_bare = header.entries == 0;
        let form = match header.kind {
            Kind::Pull if is_flip && is_bare => Form::Flip,
            _ if is_flip => return None,
            Kind::Push if is_bare => Form::Remember,
            Kind::Pull if is_bare => Form::Probe,
            _ if usize::from(header.entries) != lanes => return None,
            Kind::Push => Form::Push,
            Kind::Pull => Form::Pull,
            Kind::Install => Form::Install,
            Kind::Drain => Form::Drain,
            Kind::Ack | Kind::Nack | Kind::Stream => return None,
        };
        let entries: Vec<_> = bytes[libra_dataplane::HEADER_BYTES..]
            .as_chunks()
            .0
            .iter()
            .map(|&entry| Entry::from_bytes(entry))
            .collect();
        let is_in_bounds = |value: u32| match self.sizes.sums {
            Sums::Fixed { bound_bits } => matches!(value.cast_signed() >> bound_bits, 0 | -1),
            Sums::Table => value >> 23 & 0xff != 0xff,
        };
        let is_sound = |entry: &Entry| {
            entry.cell >> self.sizes.cell_bits == 0 && (form != Form::Push || is_in_bounds(entry.value))
        };
        let is_sound = entries.iter().all(is_sound) && (form != Form::Push || header.seq <= SEQ_MAX);
        Some(Passing {
            number: self.packets,
            header,
            entries,
            form,
            is_sound,
            is_worker: false,
            is_agent: false,
            region: None,
            is_fit: false,
            plan_is_right: false,
            flow: 0,
            round: 0,
            durable: 0,
            conditions: 0,
            again: Again::default(),
            is_turn: false,
            has_room: false,
            is_new: false,
            is_seen: false,
            seen_bank: 0,
            taken: 0,
            acked_bits: 0,
            acked_next: 0,
            sum_action: SumAction::None,
            value_action: ValueAction::None,
            outcome: Outcome::Dropped,
        })
    }

    fn admission(&self, passing: &mut Passing, port: Port) {
        let header = &passing.header;
        match port {
            Port::Agent => passing.is_agent = true,
            Port::Worker(address) => {
                let entry = |cookie| (address, header.job, header.worker, Cookie(cookie));
                passing.is_worker = if is_enabled(Mutant::TagIgnored) {
                    self.workers.range(entry(0)..=entry(u64::MAX)).next().is_some()
                } else {
                    self.workers.contains(&entry(header.tag))
                };
            }
        }
        passing.region = self.regions.get(&(header.job, header.region)).copied();
        if let Some(region) = passing.region {
            passing.plan_is_right = header.plan == region.plan || is_enabled(Mutant::StalePlanAccepted);
            let view_is_right = header.view == region.view || is_enabled(Mutant::StaleViewAccepted);
            passing.is_fit = passing.plan_is_right && view_is_right;
            let numbers = self.sizes.flows() - 1;
            passing.flow = usize::from(region.flows) | usize::from(header.worker) & numbers;
        }
    }

    fn clock(&mut self, passing: &mut Passing) {
        let sets = passing.is_of_agent(Form::Flip);
        let new = u32::from(passing.header.round) << 16 | u32::from(passing.header.durable);
        let clock = self.clocks.access(passing.number, passing.index(), |clock| {
            if sets {
                *clock = new;
            }
            *clock
        });
        let [round_high, round_low, durable_high, durable_low] = clock.to_be_bytes();
        passing.round = u16::from_be_bytes([round_high, round_low]);
        passing.durable = u16::from_be_bytes([durable_high, durable_low]);
    }

    fn conditions(&mut self, passing: &mut Passing) {
        let sets = passing.is_of_agent(Form::Flip);
        let new = halves(passing.header.tag).0 & 0xff;
        let conditions = self.conditions.access(passing.number, passing.index(), |conditions| {
            if sets {
                *conditions = new;
            }
            *conditions
        });
        passing.conditions = conditions;
    }

    fn turns(&mut self, passing: &mut Passing) {
        if passing.form != Form::Push || !passing.is_worker || !passing.is_fit {
            return;
        }
        let has_read = passing.again.passes % 2 == 1;
        let mut turns = Vec::with_capacity(self.lanes.len());
        let mut is_turn = has_read && passing.again.clock == (passing.round, passing.durable);
        for (place, (lane, entry)) in self.lanes.iter_mut().zip(&passing.entries).enumerate() {
            let cell = usize::from(entry.cell) % self.sizes.cells();
            let read = passing.again.turns.get(place).filter(|_| has_read);
            let turn = lane.turns.access(passing.number, cell, |turn| {
                let before = *turn;
                // Nothing changes by a summand that is nothing, as padding is.
                if read == Some(&before) && entry.value != 0 {
                    *turn = before.wrapping_add(1);
                }
                before
            });
            is_turn &= read == Some(&turn);
            turns.push(turn);
        }
        passing.is_turn = is_turn;
        if !has_read {
            passing.again.turns = turns;
        }
    }

    fn room(&mut self, passing: &mut Passing) {
        let arrives = match self.sizes.sums {
            Sums::Fixed { .. } => passing.form == Form::Push && passing.is_worker && passing.is_fit,
            Sums::Table => passing.is_turn,
        };
        let swaps = passing.swaps();
        let room = passing.region.map_or(0, |region| region.room);
        passing.has_room = self.arrivals.access(passing.number, passing.index(), |count| {
            let has_room = arrives && *count < room;
            *count += u32::from(has_room);
            if swaps {
                *count = 0;
            }
            has_room
        });
    }

    fn window(&mut self, passing: &mut Passing) {
        let is_push = passing.form == Form::Push && passing.is_worker && passing.is_fit;
        let may = is_push && passing.is_sound && passing.is_active();
        let (takes, looks) = (may && passing.has_room, may && !passing.has_room);
        let remembers = passing.is_of_agent(Form::Remember);
        let number = remembered(passing.header.seq);
        let (_, given) = halves(passing.header.tag);
        let entry = passing.window_entry();
        (passing.is_new, passing.is_seen) = self.generations.access(passing.number, entry, |seen| {
            let oldest = if is_enabled(Mutant::GenerationNotChecked) { 1 } else { number };
            let was_seen = *seen >= oldest && !is_enabled(Mutant::NoDedup);
            let is_new = takes && !was_seen;
            let is_seen = looks && was_seen;
            if is_new {
                *seen = number;
            } else if remembers && !is_enabled(Mutant::MarkSeenForgotten) {
                *seen = given;
            }
            (is_new, is_seen)
        });
    }

    fn window_bank(&mut self, passing: &mut Passing) {
        let active = passing.bank_bit();
        let idle = 1 - active;
        let (is_new, remembers) = (passing.is_new, passing.is_of_agent(Form::Remember));
        let entry = passing.window_entry();
        passing.seen_bank = self.banks.access(passing.number, entry, |bank| {
            if is_new {
                *bank = active;
            } else if remembers {
                *bank = idle;
            }
            *bank
        });
    }

    fn taken(&mut self, passing: &mut Passing) {
        let more = if passing.header.flags.contains(Flags::LAST) { 0x1_0001 } else { 1 };
        let (is_new, swaps) = (passing.is_new, passing.swaps());
        passing.taken = self.counts.access(passing.number, passing.index(), |count| {
            *count += if is_new { more } else { 0 };
            if swaps { core::mem::take(count) } else { *count }
        });
    }

    fn acked_bits(&mut self, passing: &mut Passing) {
        let (is_new, drains) = (passing.is_new, passing.is_of_agent(Form::Drain));
        let bit = 1 << (passing.header.seq % 32);
        let word = (passing.bank_of_action() * self.sizes.window_entries() + passing.window_entry()) / 32;
        passing.acked_bits = self.acked_words.access(passing.number, word, |bits| {
            if is_new {
                *bits ^= bit;
            }
            if drains { core::mem::take(bits) } else { *bits }
        });
    }

    fn acked_next(&mut self, passing: &mut Passing) {
        let (is_new, drains) = (passing.is_new, passing.is_of_agent(Form::Drain));
        let after = passing.header.seq.wrapping_add(u32::from(!is_enabled(Mutant::AckedOffByOne)));
        let flow = passing.bank_of_action() * self.sizes.flows() + passing.flow;
        passing.acked_next = self.acked_next.access(passing.number, flow, |next| {
            if is_new {
                *next = (*next).max(after);
            }
            if drains { core::mem::take(next) } else { *next }
        });
    }

    fn cells_inside(&self, passing: &mut Passing) {
        let Some(region) = passing.region else { return };
        passing.entries.iter_mut().for_each(|entry| entry.cell &= region.cells - 1);
    }

    fn cells_of_region(&self, passing: &mut Passing) {
        let Some(region) = passing.region else { return };
        passing.entries.iter_mut().for_each(|entry| entry.cell |= region.base);
    }

    fn cells_of_bank(&self, passing: &mut Passing) {
        if passing.region.is_some() && passing.bank_of_action() == 1 {
            passing.entries.iter_mut().for_each(|entry| entry.cell |= 1 << self.sizes.cell_bits);
        }
    }

    fn lanes(&mut self, passing: &mut Passing) {
        let Passing { number, sum_action, value_action, taken, .. } = *passing;
        let cells = self.sizes.cells();
        let splits = is_enabled(Mutant::FlipInTheMiddle) && sum_action == SumAction::Add && taken % 7 == 6;
        let of_bank = if splits { self.lanes.len() / 2 } else { self.lanes.len() };
        for (place, (lane, entry)) in self.lanes.iter_mut().zip(&mut passing.entries).enumerate() {
            let cell = usize::from(entry.cell) ^ if place < of_bank { 0 } else { cells };
            match sum_action {
                SumAction::None => {}
                SumAction::Add => {
                    let computed = passing.again.sums.get(place).copied();
                    lane.sums.access(number, cell, |sum| {
                        *sum = computed.unwrap_or_else(|| sum.wrapping_add(entry.value));
                    });
                }
                SumAction::Read => {
                    let sum = lane.sums.access(number, cell, |sum| *sum);
                    passing.again.sums.push(sum);
                }
                SumAction::Take => entry.value = lane.sums.access(number, cell, core::mem::take),
            }
            match value_action {
                ValueAction::None => {}
                ValueAction::Read => {
                    entry.value = lane.values.access(number, cell % cells, |value| *value);
                }
                ValueAction::Write => {
                    lane.values.access(number, cell % cells, |value| *value = entry.value);
                }
            }
        }
    }
}

impl Link for Switch {
    type Error = Infallible;

    fn exchange(&mut self, packets: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, Infallible> {
        let answer = |packet: &Vec<u8>| self.process(Port::Agent, packet).expect("an agent is answered");
        Ok(packets.iter().map(answer).collect())
    }

    fn receive(&mut self, from: SocketAddrV4, packet: &[u8]) -> Option<Vec<u8>> {
        self.process(Port::Worker(from), packet)
    }

    fn change(&mut self, changes: &[TableChange]) -> Result<(), Infallible> {
        changes.iter().for_each(|change| Self::change(self, change));
        Ok(())
    }
}

const KIND_AT: usize = 1;

/// The `FLIP` in these bytes as a packet of a kind that is known, and whether it was one.
fn without_flip(packet: &[u8]) -> (Vec<u8>, bool) {
    let mut packet = packet.to_vec();
    let is_flip = packet.get(KIND_AT) == Some(&KIND_FLIP);
    if is_flip {
        packet[KIND_AT] = Kind::Pull as u8;
    }
    (packet, is_flip)
}
