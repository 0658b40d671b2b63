//! The pipeline against a naive model: maps and sets in place of windows, banks and marks, floats in place of bits.

use std::collections::{BTreeMap, BTreeSet};

use libra_dataplane::{
    Arithmetic, DIRTY_BLOCK, Entry, F32_NAN, FLOAT_TABLES, Flags, FlipError, Header, Kind, NackReason,
    RegionConfig, Verdict, WINDOW,
};
use proptest::prelude::*;

use crate::scene::{JOB, PLAN, TestPipeline, VIEW, any_entries, header, mend, read, write};

pub(crate) struct Model {
    config: RegionConfig,
    pub(crate) round: u16,
    pub(crate) durable: u16,
    readable: bool,
    active: bool,
    values: BTreeMap<usize, u32>,
    /// Sums of the rounds that are not drained: that of a round's slots.
    sums: BTreeMap<u16, BTreeMap<usize, u32>>,
    /// Blocks that may hold sums, by round.
    dirty: BTreeMap<u16, BTreeSet<usize>>,
    /// Packets that the current round took, and those of them that were the last of a push.
    packets: (u32, u32),
    /// Pushes with [`Flags::RETRANSMIT`] that were acknowledged.
    retransmits: u64,
    /// Every packet that was ever accepted.
    accepted: BTreeSet<(u16, u32)>,
    /// The round of the last packet accepted, by flow and place in the window.
    last_round: BTreeMap<(u16, u32), u16>,
}

/// `None` if there is no answer.
type Answer = Option<(Header, Vec<Entry>)>;

impl Model {
    pub(crate) fn new(config: RegionConfig) -> Self {
        Self {
            config,
            round: 1,
            durable: 0,
            readable: false,
            active: true,
            values: BTreeMap::new(),
            sums: BTreeMap::new(),
            dirty: BTreeMap::new(),
            packets: (0, 0),
            retransmits: 0,
            accepted: BTreeSet::new(),
            last_round: BTreeMap::new(),
        }
    }

    fn slots(&self, entries: &[Entry]) -> Vec<usize> {
        let lanes = usize::from(self.config.lanes);
        entries.iter().enumerate().map(|(p, entry)| usize::from(entry.cell) * lanes + p % lanes).collect()
    }

    fn is_padding(&self, entry: Entry) -> bool {
        entry.cell == self.config.cells - 1
    }

    /// The rule of a push, lane by lane.
    fn is_sound(&self, entries: &[Entry]) -> bool {
        let in_bounds = |entry: &Entry| {
            let finite = f32::from_bits(entry.value).is_finite();
            entry.cell < self.config.cells
                && if self.is_padding(*entry) {
                    entry.value == 0
                } else {
                    match self.config.arithmetic {
                        Arithmetic::Fixed { bound } => {
                            i64::from(entry.value.cast_signed()).abs() <= i64::from(bound)
                        }
                        Arithmetic::F32 | Arithmetic::Table => finite,
                    }
                }
        };
        let lanes = usize::from(self.config.lanes);
        let increasing = (0..lanes).all(|lane| {
            let cells: Vec<Entry> = entries.iter().copied().skip(lane).step_by(lanes).collect();
            cells.windows(2).all(|pair| self.is_padding(pair[1]) || pair[0].cell < pair[1].cell)
        });
        entries.iter().all(in_bounds) && increasing
    }

    fn add(&self, sum: u32, value: u32) -> u32 {
        match self.config.arithmetic {
            // No wrapping: that a slot cannot overflow is what is tested.
            Arithmetic::Fixed { .. } => (sum.cast_signed() + value.cast_signed()).cast_unsigned(),
            Arithmetic::F32 => {
                let sum = f32::from_bits(sum) + f32::from_bits(value);
                if sum.is_nan() { F32_NAN } else { sum.to_bits() }
            }
            Arithmetic::Table => FLOAT_TABLES.add(sum, value),
        }
    }

    fn with_values(&self, entries: &[Entry]) -> Vec<Entry> {
        let value = |slot| self.values.get(&slot).copied().unwrap_or_default();
        let slots = self.slots(entries);
        entries.iter().zip(slots).map(|(entry, slot)| Entry { value: value(slot), ..*entry }).collect()
    }

    fn process(&mut self, request: Header, entries: &[Entry]) -> Answer {
        let answer = |kind, flags, round, entries: Vec<Entry>| {
            let count = u8::try_from(entries.len()).unwrap();
            let durable = self.durable;
            let view = self.config.view_on_wire();
            Some((Header { kind, flags, view, round, durable, entries: count, tag: 0, ..request }, entries))
        };
        let nack = |reason| answer(Kind::Nack, Flags::NONE, reason as u16, vec![]);
        if matches!(request.kind, Kind::Ack | Kind::Nack | Kind::Stream) {
            return None;
        }
        if request.plan != self.config.plan {
            return nack(NackReason::StalePlan);
        }
        if request.view != self.config.view_on_wire() {
            return nack(NackReason::StaleView);
        }
        if matches!(request.kind, Kind::Push | Kind::Pull) && request.worker >= self.config.flows {
            return nack(NackReason::UnknownFlow);
        }
        let cells_exist = entries.iter().all(|entry| entry.cell < self.config.cells);
        match request.kind {
            Kind::Push => {
                if !self.active {
                    return nack(NackReason::Inactive);
                }
                if !self.is_sound(entries) {
                    return None;
                }
                let place = (request.worker, request.seq % u32::try_from(WINDOW).unwrap());
                let new = !self.accepted.contains(&(request.worker, request.seq));
                let round = if new {
                    if self.packets.0 == self.config.bank_packets_max {
                        return nack(NackReason::BankFull);
                    }
                    self.round
                } else if self.last_round[&place] % 2 == self.round % 2 && self.packets.0 > 0 {
                    self.round
                } else {
                    self.round.wrapping_sub(1)
                };
                let flags = request.flags.contains(Flags::VALUES) && self.readable;
                let answer = if flags {
                    answer(Kind::Ack, Flags::VALUES, round, self.with_values(entries))
                } else {
                    answer(Kind::Ack, Flags::NONE, round, vec![])
                };
                self.retransmits += u64::from(request.flags.contains(Flags::RETRANSMIT));
                if new {
                    self.accepted.insert((request.worker, request.seq));
                    self.last_round.insert(place, self.round);
                    self.packets.0 += 1;
                    self.packets.1 += u32::from(request.flags.contains(Flags::LAST));
                    for (entry, slot) in entries.iter().zip(self.slots(entries)) {
                        if !self.is_padding(*entry) {
                            let before = self.sums.entry(self.round).or_default().get(&slot).copied();
                            let sum = self.add(before.unwrap_or_default(), entry.value);
                            self.sums.entry(self.round).or_default().insert(slot, sum);
                            self.dirty.entry(self.round).or_default().insert(slot / DIRTY_BLOCK);
                        }
                    }
                }
                answer
            }
            Kind::Pull => {
                if !self.readable && !entries.is_empty() {
                    return nack(NackReason::NotInstalled);
                }
                if !cells_exist {
                    return None;
                }
                answer(Kind::Pull, Flags::VALUES, self.round, self.with_values(entries))
            }
            Kind::Install => {
                if !cells_exist || entries.iter().any(|entry| self.is_padding(*entry) && entry.value != 0) {
                    return None;
                }
                let answer = answer(Kind::Ack, Flags::NONE, self.round, vec![]);
                let slots = self.slots(entries);
                self.values.extend(slots.into_iter().zip(entries.iter().map(|entry| entry.value)));
                answer
            }
            Kind::Drain => {
                if !cells_exist {
                    return None;
                }
                let closed = self.round.wrapping_sub(1);
                let slots = self.slots(entries);
                let sums = self.sums.entry(closed).or_default();
                let taken: Vec<u32> =
                    slots.iter().map(|slot| sums.remove(slot).unwrap_or_default()).collect();
                let dirty = self.dirty.entry(closed).or_default();
                for block in slots.iter().map(|slot| slot / DIRTY_BLOCK) {
                    let mut left = sums.range(block * DIRTY_BLOCK..(block + 1) * DIRTY_BLOCK);
                    if left.all(|(_, &sum)| sum == 0) {
                        dirty.remove(&block);
                    }
                }
                let filled =
                    entries.iter().zip(taken).map(|(entry, value)| Entry { value, ..*entry }).collect();
                let (view, durable) = (self.config.view_on_wire(), self.durable);
                let header = Header {
                    kind: Kind::Drain,
                    flags: Flags::VALUES,
                    view,
                    round: closed,
                    durable,
                    tag: 0,
                    ..request
                };
                Some((header, filled))
            }
            Kind::Ack | Kind::Nack | Kind::Stream => None,
        }
    }

    fn idle_dirty(&self) -> Vec<usize> {
        self.dirty.get(&self.round.wrapping_sub(1)).into_iter().flatten().copied().collect()
    }

    fn flip(&mut self) -> Result<u16, FlipError> {
        if !self.idle_dirty().is_empty() {
            return Err(FlipError::IdleBankNotDrained);
        }
        let closed = self.round;
        self.sums.remove(&closed.wrapping_sub(1));
        self.round = closed.wrapping_add(1);
        self.packets = (0, 0);
        Ok(closed)
    }

    /// Returns the idle bank, slots that are zero left out; it is empty afterwards.
    fn drain(&mut self) -> BTreeMap<usize, u32> {
        let closed = self.round.wrapping_sub(1);
        self.dirty.remove(&closed);
        let mut sums = self.sums.remove(&closed).unwrap_or_default();
        sums.retain(|_, sum| *sum != 0);
        sums
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Step {
    Push { flow: u16, seq: SeqChoice, named: Named, flags: u8, entries: Vec<Entry>, mended: bool },
    Other { kind: u8, worker: u16, named: Named, entries: Vec<Entry>, mended: bool },
    Flip,
    Drain,
    Install { first_slot: u32, values: Vec<u32> },
    Durable,
    Readable(bool),
    Active(bool),
}

/// The plan and the view that a packet names.
pub(crate) type Named = (u16, u16);

/// Sequence numbers, relative to the lowest that was not accepted yet.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SeqChoice {
    Ahead(u32),
    Behind(u32),
    /// As far ahead as the sender rule allows.
    Farthest,
}

pub(crate) fn any_step() -> impl Strategy<Value = Step> {
    let seq = prop_oneof![
        6 => (0..4_u32).prop_map(SeqChoice::Ahead),
        1 => (0..40_u32).prop_map(SeqChoice::Ahead),
        2 => (1..6_u32).prop_map(SeqChoice::Behind),
        1 => (1..3000_u32).prop_map(SeqChoice::Behind),
        1 => Just(SeqChoice::Farthest),
    ];
    let named = (
        prop_oneof![20 => Just(PLAN), 1 => any::<u16>()],
        prop_oneof![20 => Just(VIEW), 1 => VIEW - 1..VIEW + 2, 1 => any::<u16>()],
    );
    let worker = 0..4_u16;
    let mended = prop_oneof![5 => Just(true), 1 => Just(false)];
    prop_oneof![
        20 => (worker.clone(), seq, named.clone(), 0..8_u8, any_entries(), mended.clone())
            .prop_map(|(flow, seq, named, flags, entries, mended)| Step::Push { flow, seq, named, flags, entries, mended }),
        10 => (2..8_u8, worker, named, any_entries(), mended)
            .prop_map(|(kind, worker, named, entries, mended)| Step::Other { kind, worker, named, entries, mended }),
        4 => Just(Step::Flip),
        3 => Just(Step::Drain),
        3 => (0..40_u32, prop::collection::vec(any::<u32>(), 0..12))
            .prop_map(|(first_slot, values)| Step::Install { first_slot, values }),
        1 => Just(Step::Durable),
        1 => prop::bool::weighted(0.8).prop_map(Step::Readable),
        1 => prop::bool::weighted(0.8).prop_map(Step::Active),
    ]
}

pub(crate) fn step(pipeline: &mut TestPipeline, model: &mut Model, step: Step) {
    let config = model.config;
    let region = pipeline.region_mut(JOB, 0).unwrap();
    match step {
        Step::Push { flow, seq, named: (plan, view), flags, mut entries, mended } => {
            if mended {
                mend(&config, &mut entries);
            }
            let lowest_open = (0..).find(|&seq| !model.accepted.contains(&(flow, seq))).unwrap();
            let seq = match seq {
                SeqChoice::Ahead(distance) => lowest_open + distance,
                SeqChoice::Behind(distance) => lowest_open.saturating_sub(distance),
                SeqChoice::Farthest => lowest_open + u32::try_from(WINDOW).unwrap() - 1,
            };
            let flags = Flags::from_bits(flags).unwrap();
            send(pipeline, model, Header { flags, plan, view, ..header(Kind::Push, flow, seq) }, &entries);
        }
        Step::Other { kind, worker, named: (plan, view), mut entries, mended } => {
            if mended {
                mend(&config, &mut entries);
            }
            let kind = Kind::from_code(kind).unwrap();
            send(pipeline, model, Header { plan, view, ..header(kind, worker, 77) }, &entries);
        }
        Step::Flip => assert_eq!(region.flip(), model.flip()),
        Step::Drain => {
            let (mut drained, mut blocks) = (BTreeMap::new(), Vec::new());
            region.drain(|first_slot, sums| {
                let first_slot = usize::try_from(first_slot).unwrap();
                blocks.push(first_slot / DIRTY_BLOCK);
                drained.extend((first_slot..).zip(sums.iter().copied()).filter(|&(_, sum)| sum != 0));
            });
            assert_eq!(
                blocks,
                model.idle_dirty(),
                "those that hold nothing, too: they may have the rest of a row"
            );
            assert_eq!(drained, model.drain());
        }
        Step::Install { first_slot, values } => {
            let first = usize::try_from(first_slot).unwrap();
            let slots = usize::from(config.cells - 1) * usize::from(config.lanes);
            let before = region.values().to_vec();
            let fits = first + values.len() <= slots;
            assert_eq!(region.install(first_slot, &values), fits, "{} from {first} of {slots}", values.len());
            if fits {
                model.values.extend((first..).zip(values));
            } else {
                assert_eq!(region.values(), before);
            }
        }
        Step::Durable => {
            model.durable = model.round.wrapping_sub(1);
            region.set_durable(model.durable);
        }
        Step::Readable(readable) => {
            model.readable = readable;
            region.set_readable(readable);
        }
        Step::Active(active) => {
            model.active = active;
            region.set_active(active);
        }
    }

    let region = pipeline.region(JOB, 0).unwrap();
    assert_eq!(region.round(), model.round);
    assert_eq!((region.pushes_in_bank(), region.last_in_bank()), model.packets);
    let dirty: Vec<usize> = region.dirty_blocks().map(|block| usize::try_from(block).unwrap()).collect();
    assert_eq!(dirty, model.idle_dirty());
    assert_eq!(region.is_idle_clean(), dirty.is_empty());
}

pub(crate) fn send(pipeline: &mut TestPipeline, model: &mut Model, request: Header, entries: &[Entry]) {
    let mut packet = write(request, entries);
    let before = pipeline.clone();
    let request = Header { entries: u8::try_from(entries.len()).unwrap(), ..request };
    let answer = match pipeline.process(&mut packet) {
        Verdict::Reply(bytes) => Some(read(&packet[..bytes])),
        Verdict::Drop(_) => None,
    };
    let refused = answer.as_ref().is_none_or(|(header, _)| header.kind == Kind::Nack);
    assert_eq!(answer, model.process(request, entries), "{request:?} {entries:?}");
    if refused {
        let (before, after) = (before.region(JOB, 0).unwrap(), pipeline.region(JOB, 0).unwrap());
        assert_eq!(before.values(), after.values());
        assert_eq!(before.active_packets(), after.active_packets());
        for flow in 0..model.config.flows {
            assert!(before.window(flow).unwrap().accepted().eq(after.window(flow).unwrap().accepted()));
        }
    }
}

/// Compares what the steps have left.
pub(crate) fn check_end(pipeline: &TestPipeline, model: &Model) {
    for flow in 0..model.config.flows {
        let accepted = model.accepted.iter().filter(|accepted| accepted.0 == flow).map(|accepted| accepted.1);
        let region = pipeline.region(JOB, 0).unwrap();
        assert!(region.window(flow).unwrap().accepted().flatten().eq(accepted));
    }
    let counters = pipeline.counters();
    assert_eq!(counters.pushes, u64::try_from(model.accepted.len()).unwrap());
    assert_eq!(counters.retransmits, model.retransmits);
}
