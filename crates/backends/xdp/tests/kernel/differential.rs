//! Long random lives of regions.

use std::collections::BTreeSet;

use libra_dataplane::{Arithmetic, Counters, Direction, Entry, Flags, Header, Kind, RegionConfig, WINDOW};
use libra_proto::{AckedSet, Plane, RoundContents, TagKind};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::scene::{Both, PLAN, VIEW, address, config, header, values, write};

const WORKERS: u16 = 36;

struct Life {
    both: Both,
    random: SmallRng,
    arithmetic: Arithmetic,
    /// Since which the region is held.
    view: u64,
    /// Accepted numbers of each flow.
    accepted: Vec<BTreeSet<u32>>,
    round: u16,
    contents: RoundContents,
}

impl Life {
    fn step(&mut self) {
        match self.random.random_range(0..1000) {
            0..700 => self.push(),
            700..800 => self.other(),
            800..840 => self.garbage(),
            840..850 => self.stranger(),
            850..900 => self.close(),
            900..930 => {
                let durable = self.round.wrapping_sub(1);
                self.both.each(|plane| plane.settle(0, durable));
            }
            930..945 => {
                let active = self.random.random_bool(0.8);
                self.both.each(|plane| plane.set_active(0, active));
            }
            945..995 => self.install(),
            _ => self.reopen(),
        }
        self.both.compare(&[0]);
    }

    fn value(&mut self) -> u32 {
        match (self.arithmetic, self.random.random_range(0..40)) {
            (_, 0) => 0,
            (_, 1) => self.random.random(),
            (Arithmetic::Fixed { bound }, 2) => bound,
            (Arithmetic::Fixed { bound }, 3) => bound.wrapping_neg(),
            (Arithmetic::Fixed { bound }, _) => {
                let bound = i64::from(bound);
                let value = self.random.random_range(-bound..=bound);
                (value & 0xffff_ffff).try_into().unwrap()
            }
            (Arithmetic::F32 | Arithmetic::Table, 2) => self.random.random::<u32>() & 0x80FF_FFFF,
            (Arithmetic::F32 | Arithmetic::Table, 3) => 0x8000_0000,
            (Arithmetic::F32 | Arithmetic::Table, 4) => {
                0x7F7F_FFFF | self.random.random::<u32>() & 0x8000_0000
            }
            (Arithmetic::F32 | Arithmetic::Table, _) => self.random.random_range(-8.0..8.0_f32).to_bits(),
        }
    }

    /// Mostly sound ones: ascending cells, then perhaps padding.
    fn entries(&mut self) -> Vec<Entry> {
        let cells = config(0, self.arithmetic).cells;
        let most = if self.random.random_bool(0.1) { 255 } else { 20 };
        let count = self.random.random_range(0..=most);
        let mut cell = self.random.random_range(0..cells - 1);
        let mut entries = Vec::new();
        for _ in 0..count {
            entries.push(Entry { cell, value: self.value() });
            cell += match self.random.random_range(0..200) {
                0 => 0,
                1 => self.random.random_range(0..40_000),
                2..40 => 3,
                _ => 1,
            };
            cell &= 0x7fff;
            if cell >= cells - 1 {
                break;
            }
        }
        if self.random.random_bool(0.2) {
            let room = 255 - entries.len();
            let pads = self.random.random_range(0..=room.min(6));
            entries.extend((0..pads).map(|_| Entry { cell: cells - 1, value: 0 }));
        }
        if !entries.is_empty() && self.random.random_bool(0.03) {
            let place = self.random.random_range(0..entries.len());
            entries[place] = Entry { cell: self.random.random_range(0..=cells), value: self.value() };
        }
        entries
    }

    fn named(&mut self, header: Header) -> Header {
        Header {
            plan: if self.random.random_bool(0.03) { self.random.random() } else { PLAN },
            view: if self.random.random_bool(0.03) { VIEW - 1 } else { VIEW },
            region: u8::from(self.random.random_bool(0.02)),
            flags: Flags::from_bits(self.random.random_range(0..8)).unwrap(),
            ..header
        }
    }

    /// Mostly with the right tag.
    fn sign(&mut self, worker: u16, packet: &mut [u8]) {
        let (up, view) = (Direction::Up, self.view);
        match self.random.random_range(0..100) {
            0..4 => {
                self.both.sign(worker, up, packet, view);
                let place = self.random.random_range(0..packet.len());
                packet[place] ^= 1 << self.random.random_range(0..8);
            }
            4..6 => self.both.sign(worker, up, packet, view - (1 << 16)),
            6..8 => self.both.sign((worker + 1) % WORKERS, up, packet, view),
            8 => self.both.sign(worker, Direction::Down, packet, view),
            // As it came: any number.
            9 => {}
            _ => self.both.sign(worker, up, packet, view),
        }
    }

    fn push(&mut self) {
        let worker = [0, 1, 33, WORKERS - 1][self.random.random_range(0..4)];
        let accepted = &self.accepted[usize::from(worker)];
        let open = (0..).find(|seq| !accepted.contains(seq)).unwrap();
        let seq = match self.random.random_range(0..20) {
            0..8 => open,
            8..15 => open + self.random.random_range(0..4),
            15 => open + u32::try_from(WINDOW).unwrap() - 1,
            16 => u32::MAX,
            17 => open.saturating_sub(self.random.random_range(0..3000)),
            _ => open.saturating_sub(self.random.random_range(1..6)),
        };
        let entries = self.entries();
        let header = self.named(header(Kind::Push, worker, seq));
        let mut packet = write(header, &entries);
        self.sign(worker, &mut packet);
        let answer = self.both.send(address(worker), &packet);
        let kind = answer.map(|answer| Header::parse(&answer).unwrap().kind);
        if kind == Some(Kind::Ack) {
            self.accepted[usize::from(worker)].insert(seq);
        }
    }

    fn other(&mut self) {
        let kind = if self.random.random_bool(0.8) { 2 } else { self.random.random_range(1..8) };
        let worker = self.random.random_range(0..WORKERS);
        let mut entries = self.entries();
        entries.truncate(self.random.random_range(0..=entries.len()));
        let header = self.named(header(Kind::from_code(kind).unwrap(), worker, 77));
        // Now and then one names another worker.
        let from = if self.random.random_bool(0.1) { 0 } else { worker };
        let mut packet = write(header, &entries);
        self.sign(from, &mut packet);
        self.both.send(address(from), &packet);
    }

    fn garbage(&mut self) {
        let entries = self.entries();
        let header = self.named(header(Kind::Push, 0, 0));
        let mut packet = write(header, &entries);
        match self.random.random_range(0..4) {
            0 => packet.truncate(self.random.random_range(1..=packet.len())),
            1 => packet.resize(packet.len() + self.random.random_range(1..400), 7),
            2 => {
                for byte in &mut packet {
                    *byte = self.random.random();
                }
            }
            _ => {
                let place = self.random.random_range(0..packet.len().min(14));
                packet[place] = self.random.random();
            }
        }
        // What became a sound push by chance would break the sender's rule.
        if !Header::parse_without_entries(&packet).is_ok_and(|header| header.kind == Kind::Push) {
            self.both.send(address(0), &packet);
        }
    }

    fn stranger(&mut self) {
        let from = address(WORKERS + self.random.random_range(0..2));
        assert_eq!(self.both.send(from, &write(header(Kind::Push, 0, 0), &[])), None);
    }

    fn close(&mut self) {
        let round = self.both.close_round(0);
        self.round = self.round.wrapping_add(1);
        self.contents.advance(round.contents);
    }

    fn install(&mut self) {
        let cells = config(0, self.arithmetic).cells;
        let first = self.random.random_range(0..cells - 1);
        let last = (first + self.random.random_range(0..300)).min(cells - 1);
        let slots: Vec<_> = (first..last).map(|slot| (slot, self.random.random())).collect();
        let values = values(&slots);
        self.both.each(|plane| plane.install(0, &values));
    }

    /// Another owner goes on: what the open round had is not in its contents, and will come again.
    fn reopen(&mut self) {
        self.both.each(|plane| plane.forget(0));
        let durable = self.round.wrapping_sub(1);
        // The same in packets.
        self.view += 1 << 16;
        self.both.open(
            RegionConfig { view: self.view, ..config(0, self.arithmetic) },
            durable,
            &self.contents,
        );
        let nothing = AckedSet::default();
        for (number, flow) in (0u16..).zip(&mut self.accepted) {
            let seen = self.contents.flows.get(&number).unwrap_or(&nothing);
            let above =
                |seq: u32| seen.above.iter().any(|&(first, count)| (first..first + count).contains(&seq));
            flow.retain(|&seq| seq < seen.below || above(seq));
        }
    }
}

fn live(seed: u64, arithmetic: Arithmetic, steps: u32) {
    live_with_tags(TagKind::Off, seed, arithmetic, steps);
}

fn live_with_tags(tags: TagKind, seed: u64, arithmetic: Arithmetic, steps: u32) {
    let Some(mut both) = Both::load_with_tags(WORKERS, tags) else { return };
    // Soon rounds begin again with 0, as numbers in packets do.
    let round = u16::MAX - 3;
    let config = config(0, arithmetic);
    both.open(config, round.wrapping_sub(1), &RoundContents::default());
    let accepted = vec![BTreeSet::new(); usize::from(config.flows)];
    let random = SmallRng::seed_from_u64(seed);
    let contents = RoundContents::default();
    let mut life = Life { both, random, arithmetic, view: config.view, accepted, round, contents };
    for _ in 0..steps {
        life.step();
    }
    assert!(
        life.accepted.iter().map(BTreeSet::len).sum::<usize>() > 100,
        "seed {seed}: hardly anything was taken"
    );
    let Counters { forged, stale, .. } = life.both.soft.counters();
    assert_eq!(forged > 20, tags != TagKind::Off, "seed {seed}: {forged} were forged");
    assert_eq!(stale > 20, tags == TagKind::Mac, "seed {seed}: {stale} were stale");
}

// rules W5, W6, W7, W9, W10, W12, D1, D2, D3, D4, D5, D6, D7, E2
#[test]
fn fixed_point_is_the_same_to_the_bit() {
    for seed in 0..6 {
        live(seed, Arithmetic::Fixed { bound: 1 << 20 }, 4000);
        live(seed, Arithmetic::Fixed { bound: i32::MAX.unsigned_abs() / 50 }, 1000);
    }
}

#[test]
fn floats_are_the_same_to_the_bit() {
    for seed in 10..16 {
        live(seed, Arithmetic::F32, 4000);
    }
}

#[test]
fn sums_by_tables_are_the_same_to_the_bit() {
    for seed in 20..26 {
        live(seed, Arithmetic::Table, 4000);
    }
}

// rules A3, A4
#[test]
fn with_macs_the_same_is_believed_and_answered() {
    for (seed, arithmetic) in (30..).zip([Arithmetic::Fixed { bound: 1 << 20 }; 4]) {
        live_with_tags(TagKind::Mac, seed, arithmetic, 4000);
    }
    live_with_tags(TagKind::Mac, 40, Arithmetic::F32, 4000);
    live_with_tags(TagKind::Mac, 50, Arithmetic::Table, 4000);
}

// rule A5
#[test]
fn with_cookies_the_same_is_believed_and_answered() {
    for seed in 60..63 {
        live_with_tags(TagKind::Cookie, seed, Arithmetic::Fixed { bound: 1 << 20 }, 4000);
    }
}
