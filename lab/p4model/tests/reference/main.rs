//! The program against the reference: the same packets, to the bit the same answers, sums, values and acked sets. As this crate has the
//! program; and, where its compiler and bmv2 are at hand, in that switch.
#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

mod bmv2;
mod console;
mod device;
mod frames;
mod frames_bmv2;
mod pair;
mod source;
mod target;
mod turns;
mod vectors;

use libra_dataplane::{Arithmetic, FLOAT_TABLES, Header, Kind, NackReason, RegionConfig, WINDOW};
use libra_p4::{Sizes, Sums};
use libra_p4model::{Port, Switch};
use proptest::prelude::*;

use device::{Device, Here};
use pair::{CONFIG, Pair, SMALL, Step, address, carry_out, entries_of, header, packet, step};

fn here() -> (Here, Sizes) {
    (Here(Switch::new(SMALL)), SMALL)
}

/// All steps, in a region that goes on after `durable`. Of flow 0 all below `seen` was taken before, and three numbers behind a gap.
fn run<D: Device>(
    device: (D, Sizes),
    config: RegionConfig,
    durable: u16,
    (seen, gap): (u32, u32),
    steps: Vec<Step>,
    has_cookies: bool,
) {
    let above = if seen > 0 && gap > 0 { seen + gap..seen + gap + 3 } else { 0..0 };
    let ranges = [(0, 0..seen), (0, above), (2, 0..seen / 2)];
    let ranges: Vec<_> = ranges.into_iter().filter(|(_, range)| !range.is_empty()).collect();
    let mut pair = Pair::new(device, config, durable, &ranges, has_cookies);
    pair.compare_acked();
    let mut next = [seen, 0, seen / 2];
    for step in steps {
        carry_out(&mut pair, &mut next, step);
    }
    pair.close_round();
    pair.close_round();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    // rules A5, W5, W6, W7, W9, W10, D1, D2, D3, D5, D6, D7, E2
    #[test]
    fn the_program_does_what_the_reference_does(
        durable in prop_oneof![Just(0_u16), Just(65_533), any::<u16>()],
        seen in prop_oneof![Just(0_u32), 1..3000_u32],
        gap in 0..30_u32,
        steps in prop::collection::vec(step(CONFIG), 0..400),
        has_cookies in any::<bool>(),
    ) {
        run(here(), CONFIG, durable, (seen, gap), steps, has_cookies);
    }
}

fn floats_here() -> (Here, Sizes) {
    let sizes = Sizes { sums: Sums::Table, ..SMALL };
    (Here(Switch::new(sizes)), sizes)
}

/// The same region, of floats that are added by tables.
fn of_floats() -> RegionConfig {
    RegionConfig { arithmetic: Arithmetic::Table, ..CONFIG }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn the_program_adds_floats_as_the_reference_does(
        seen in prop_oneof![Just(0_u32), 1..3000_u32],
        gap in 0..30_u32,
        steps in prop::collection::vec(step(of_floats()), 0..400),
        has_cookies in any::<bool>(),
    ) {
        run(floats_here(), of_floats(), 65_533, (seen, gap), steps, has_cookies);
    }
}

/// Pushes of the same value, so that their order makes no difference, that come faster than they pass: a sum that misses one is smaller.
fn add_in_a_burst<D: Device>(device: (D, Sizes), config: RegionConfig) {
    const PUSHES: u32 = 60;
    let mut pair = Pair::new(device, config, 0, &[], false);
    let value = 1.1_f32.to_bits();
    let push =
        |seq| packet(header(Kind::Push, 0, seq), &entries_of(config.lanes, |_| (3, value.cast_signed())));
    let pushes: Vec<_> = (0..PUSHES).map(push).collect();
    let answers = pair.agent.link().hand_over(Port::Worker(address(0)), &pushes, Some(pushes.len()));
    let kinds = answers.iter().map(|answer| Header::parse(answer).unwrap().kind);
    assert_eq!(kinds.filter(|kind| *kind == Kind::Ack).count(), pushes.len());
    let sum = (0..PUSHES).fold(0, |sum, _| FLOAT_TABLES.add(sum, value));
    let (_, taken) = pair.agent.flip(pair::NAME).unwrap().unwrap();
    assert_eq!(taken.pushes, PUSHES);
    let lanes = u32::from(config.lanes);
    let expected: Vec<_> = (3 * lanes..4 * lanes).map(|slot| (slot, sum)).collect();
    assert_eq!(pair.agent.drain(pair::NAME).unwrap(), expected);
}

#[test]
fn a_burst_of_floats_is_added_whole() {
    add_in_a_burst(floats_here(), of_floats());
}

/// Windows that are gone round several times, in one round and in many.
fn go_round<D: Device>(device: (D, Sizes), config: RegionConfig) {
    let mut pair = Pair::new(device, config, 0, &[], false);
    let push = |seq| {
        packet(header(Kind::Push, 1, seq), &entries_of(config.lanes, |lane| (lane % 12, 3 - i32::from(lane))))
    };
    let mut seq = 0;
    for packets in [1, 1023, 1, 1024, 1025, 3000, 31, 4094, 2048] {
        for _ in 0..packets {
            pair.send(1, &push(seq)).unwrap();
            seq += 1;
        }
        // One of the last ones is missing, and comes in the next round.
        let answer = pair.send(1, &push(seq + 1)).unwrap();
        assert_eq!(Header::parse(&answer).unwrap().kind, Kind::Ack);
        pair.close_round();
        pair.send(1, &push(seq)).unwrap();
        seq += 2;
    }
    assert!(seq as usize > 10 * WINDOW);
    pair.close_round();
    pair.close_round();
}

#[test]
fn acked_sets_of_an_entry_that_takes_many_packets_in_a_round() {
    go_round(here(), CONFIG);
}

// rule D4
#[test]
fn a_full_bank_refuses_new_packets_and_duplicates_count() {
    let mut pair = Pair::new(here(), RegionConfig { bank_packets_max: 5, ..CONFIG }, 0, &[], false);
    let push = |seq| packet(header(Kind::Push, 0, seq), &[(0, 1); 4]);
    for seq in 0..5 {
        pair.send(0, &push(seq)).unwrap();
    }
    for seq in [5, 6] {
        let answer = pair.send(0, &push(seq)).unwrap();
        assert_eq!(Header::parse(&answer).unwrap().nack_reason(), Some(NackReason::BankFull));
    }
    let duplicate = pair.send(0, &push(3)).unwrap();
    assert_eq!(Header::parse(&duplicate).unwrap().kind, Kind::Ack);
    pair.close_round();
    pair.send(0, &push(5)).unwrap();
    // A duplicate takes room here, and in the reference it does not: a bank never takes more than it may, and may take less.
    let mut program = pair.agent.link().0.clone();
    for _ in 0..4 {
        program.process(Port::Worker(address(0)), &push(5)).unwrap();
    }
    let answer = program.process(Port::Worker(address(0)), &push(6)).unwrap();
    assert_eq!(Header::parse(&answer).unwrap().nack_reason(), Some(NackReason::BankFull));
}

#[test]
fn packets_reserved_for_agents_are_dropped_from_a_worker() {
    let mut pair = Pair::new(here(), CONFIG, 0, &[], false);
    for kind in [Kind::Install, Kind::Drain] {
        assert_eq!(pair.send(0, &packet(header(kind, 0, 0), &[(0, 1); 4])), None);
    }
    let mut flip = packet(header(Kind::Pull, 0, 0), &[]);
    flip[1] = libra_p4::packet::KIND_FLIP;
    assert_eq!(pair.send(0, &flip), None);
    // A push without entries has no use for a worker: the reference takes it, the program does not.
    let nothing = packet(header(Kind::Push, 0, 0), &[]);
    for worker in [0, 9] {
        assert_eq!(pair.agent.link().0.process(Port::Worker(address(worker)), &nothing), None);
    }
}
