//! The program against the reference: the same packets, to the bit the same answers, sums, values and cuts.
#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddrV4;

use libra_dataplane::{
    Arithmetic, Flags, Header, Kind, NackReason, PacketWriter, Pipeline, Region, RegionConfig, RegionMemory,
    WINDOW, packet_bytes,
};
use libra_p4::{Agent, Link, Port, Sizes, Switch, TableChange};
use proptest::prelude::*;

const SIZES: Sizes = Sizes { lanes: 4, cell_bits: 6, flow_bits: 3, regions: 4, bound_bits: 19 };
const LANES: u8 = SIZES.lanes;
const CELLS: u16 = 13;
const WORKERS: u16 = 3;
const CONFIG: RegionConfig = RegionConfig {
    job: 7,
    region: 2,
    plan: 3,
    view: 9,
    lanes: LANES,
    cells: CELLS,
    flows: WORKERS,
    bank_packets_max: 4096,
    arithmetic: Arithmetic::Fixed { bound: (1 << 19) - 1 },
};
const NAME: (u16, u8) = (7, 2);

struct Here(Switch);

impl Link for Here {
    type Error = Infallible;

    fn exchange(&mut self, packets: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, Infallible> {
        let answer =
            |packet: &Vec<u8>| self.0.process(Port::Agent, packet).expect("the agent is always answered");
        Ok(packets.iter().map(answer).collect())
    }

    fn change(&mut self, change: &TableChange) -> Result<(), Infallible> {
        self.0.change(change);
        Ok(())
    }
}

fn address(worker: u16) -> SocketAddrV4 {
    SocketAddrV4::new([10, 0, 0, 2].into(), 5000 + worker)
}

/// The program and the reference, side by side.
struct Pair {
    agent: Agent<Here>,
    reference: Pipeline<Vec<Region<Vec<u32>>>, Vec<u32>>,
    config: RegionConfig,
}

impl Pair {
    fn new(config: RegionConfig, durable: u16, seen: &[(u16, std::ops::Range<u32>)]) -> Self {
        let mut agent = Agent::new(Here(Switch::new(SIZES)), SIZES);
        // Something else was here before, and has left its marks.
        agent.open(RegionConfig { region: 1, ..config }, 40, [(0, 0..700)]).unwrap();
        agent.install((config.job, 1), (0..40).map(|slot| (slot, slot + 1))).unwrap();
        for worker in 0..WORKERS {
            let address = address(worker);
            agent.change(&TableChange::AddWorker { address, job: config.job, worker }).unwrap();
        }
        for seq in 0..40 {
            let header = Header { region: 1, ..header(Kind::Push, 1, seq) };
            let packet = packet(header, &[(2, 5), (1, -6), (3, 7), (12, 0)]);
            agent.link().0.process(Port::Worker(address(1)), &packet).unwrap();
            if seq == 20 {
                agent.flip((config.job, 1)).unwrap();
            }
        }
        agent.close((config.job, 1)).unwrap();
        agent.open(config, durable, seen.iter().cloned()).unwrap();

        let memory = RegionMemory::allocate(&config, |words| vec![0; words]);
        let mut region = Region::new(config, memory).unwrap();
        region.resume_after(durable);
        for (flow, seqs) in seen {
            assert!(region.mark_seen(*flow, seqs.clone()));
        }
        Self { agent, reference: Pipeline::new(vec![region]).unwrap(), config }
    }

    fn region(&mut self) -> &mut Region<Vec<u32>> {
        self.reference.region_mut(NAME.0, NAME.1).unwrap()
    }

    /// Hands a datagram of a worker to both, and returns the answer.
    fn send(&mut self, worker: u16, datagram: &[u8]) -> Option<Vec<u8>> {
        let mut expected = None;
        let mut buffer = datagram.to_vec();
        let from = (self.config.job, worker);
        self.reference
            .process_burst(from, [buffer.as_mut_slice()], |answer| expected = Some(answer.to_vec()));
        let found = self.agent.link().0.process(Port::Worker(address(worker)), datagram);
        let read = |answer: &Option<Vec<u8>>| answer.as_deref().map(|bytes| Header::parse(bytes).unwrap());
        assert_eq!(read(&found), read(&expected), "to {:?}", Header::parse_without_entries(datagram));
        assert_eq!(found, expected, "to {:?}", Header::parse_without_entries(datagram));
        found
    }

    fn flip(&mut self) {
        let closed = self.region().flip().ok();
        assert_eq!(self.agent.flip(NAME).unwrap(), closed);
    }

    fn drain(&mut self) {
        let mut expected = BTreeMap::new();
        self.region().drain(|first, sums| expected.extend((first..).zip(sums.iter().copied())));
        expected.retain(|_, sum| *sum != 0);
        assert_eq!(BTreeMap::from_iter(self.agent.drain(NAME).unwrap().sums), expected);
    }

    /// Right after a drain, before the next epoch has taken a packet, both know the same.
    fn compare_cut(&mut self) {
        for flow in 0..WORKERS {
            let expected: Vec<_> = self.region().window(flow).unwrap().accepted().collect();
            assert_eq!(self.agent.cut(NAME, flow), expected, "flow {flow}");
        }
    }

    fn close_epoch(&mut self) {
        self.flip();
        self.drain();
        self.compare_cut();
    }
}

fn header(kind: Kind, worker: u16, seq: u32) -> Header {
    let RegionConfig { job, region, plan, view, .. } = CONFIG;
    Header { job, region, plan, view, worker, seq, ..Header::of_kind(kind) }
}

fn packet(header: Header, entries: &[(u16, i32)]) -> Vec<u8> {
    let mut packet = vec![0; packet_bytes(u8::try_from(entries.len()).unwrap())];
    let mut writer = PacketWriter::new(header, &mut packet);
    assert!(entries.iter().all(|&(cell, value)| writer.push(cell, value.cast_unsigned())));
    assert_eq!(writer.finish(), packet.len());
    packet
}

/// What happens next.
#[derive(Debug, Clone)]
enum Step {
    /// A worker sends its next number, one that it has sent before, or one of its window that is still missing.
    Push {
        worker: u16,
        back: u32,
        entries: Vec<(u16, i32)>,
        flags: u8,
    },
    Pull {
        worker: u16,
        cells: Vec<u16>,
    },
    Probe {
        worker: u16,
    },
    /// A header that is wrong in one field.
    Wrong {
        worker: u16,
        kind: u8,
        field: u8,
    },
    CloseEpoch,
    Install {
        slots: Vec<(u16, u32)>,
    },
    Durable(u16),
    Readable(bool),
    Active(bool),
}

fn entries() -> impl Strategy<Value = Vec<(u16, i32)>> {
    let bound = (1 << 19) - 1;
    let entry = prop_oneof![
        8 => (0..CELLS - 1, -bound..=bound),
        1 => Just((CELLS - 1, 0)),
    ];
    let sound = prop::collection::vec(entry, usize::from(LANES));
    let unsound = (sound.clone(), 0..usize::from(LANES), any::<bool>()).prop_map(
        move |(mut entries, place, is_cell)| {
            // Beyond all regions of the switch, or beyond the bound.
            if is_cell {
                entries[place].0 = 64;
            } else {
                entries[place].1 = bound + 1;
            }
            entries
        },
    );
    prop_oneof![9 => sound, 1 => unsound]
}

fn step() -> impl Strategy<Value = Step> {
    let worker = 0..WORKERS;
    prop_oneof![
        60 => (worker.clone(), prop_oneof![3 => Just(0_u32), 1 => 1..40_u32], entries(), 0..8_u8)
            .prop_map(|(worker, back, entries, flags)| Step::Push { worker, back, entries, flags }),
        10 => (worker.clone(), prop::collection::vec(0..CELLS, usize::from(LANES)))
            .prop_map(|(worker, cells)| Step::Pull { worker, cells }),
        3 => worker.clone().prop_map(|worker| Step::Probe { worker }),
        6 => (worker, 1..5_u8, 0..6_u8).prop_map(|(worker, kind, field)| Step::Wrong { worker, kind, field }),
        4 => Just(Step::CloseEpoch),
        4 => prop::collection::btree_map(0..(CELLS - 1) * u16::from(LANES), any::<u32>(), 0..9)
            .prop_map(|slots| Step::Install { slots: slots.into_iter().collect() }),
        2 => any::<u16>().prop_map(Step::Durable),
        3 => any::<bool>().prop_map(Step::Readable),
        1 => prop::bool::weighted(0.8).prop_map(Step::Active),
    ]
}

fn carry_out(pair: &mut Pair, next: &mut [u32; WORKERS as usize], step: Step) {
    match step {
        Step::Push { worker, back, entries, flags } => {
            let next = &mut next[usize::from(worker)];
            let seq = if back == 0 { *next } else { next.saturating_sub(back) };
            let flags = Flags::from_bits(flags).unwrap();
            let answer =
                pair.send(worker, &packet(Header { flags, ..header(Kind::Push, worker, seq) }, &entries));
            // By the sender rule nobody leaves a number out for long.
            let is_taken = answer.is_some_and(|answer| Header::parse(&answer).unwrap().kind == Kind::Ack);
            if seq == *next && is_taken {
                *next += 1;
            }
        }
        Step::Pull { worker, cells } => {
            let entries: Vec<_> = cells.into_iter().map(|cell| (cell, 5)).collect();
            pair.send(worker, &packet(header(Kind::Pull, worker, 4), &entries));
        }
        Step::Probe { worker } => {
            _ = pair.send(worker, &packet(header(Kind::Pull, worker, u32::MAX - 1), &[]))
        }
        Step::Wrong { worker, kind, field } => {
            let mut header = header(Kind::from_code(kind).unwrap(), worker, 9);
            match field {
                0 => header.job += 1,
                1 => header.worker += 1,
                2 => header.plan += 1,
                3 => header.view += 1,
                4 => header.region += 1,
                _ => (header.plan, header.view) = (header.plan + 1, header.view + 1),
            }
            pair.send(worker, &packet(header, &[(1, 1); LANES as usize]));
        }
        Step::CloseEpoch => pair.close_epoch(),
        Step::Install { slots } => {
            let slots: Vec<_> = slots.into_iter().map(|(slot, value)| (u32::from(slot), value)).collect();
            for &(slot, value) in &slots {
                install(&mut pair.reference, pair.config, slot, value);
            }
            pair.agent.install(NAME, slots).unwrap();
        }
        Step::Durable(durable) => {
            pair.region().set_durable(durable);
            pair.agent.set_durable(NAME, durable).unwrap();
        }
        Step::Readable(is_readable) => {
            pair.region().set_readable(is_readable);
            pair.agent.set_readable(NAME, is_readable).unwrap();
        }
        Step::Active(is_active) => {
            pair.region().set_active(is_active);
            pair.agent.set_active(NAME, is_active).unwrap();
        }
    }
    let taken = pair.region().active_packets();
    assert_eq!(pair.agent.taken(NAME).unwrap(), taken);
}

fn install(
    pipeline: &mut Pipeline<Vec<Region<Vec<u32>>>, Vec<u32>>,
    config: RegionConfig,
    slot: u32,
    value: u32,
) {
    let lanes = u32::from(config.lanes);
    let (cell, lane) = (u16::try_from(slot / lanes).unwrap(), (slot % lanes) as usize);
    let mut entries = vec![(config.cells - 1, 0); lane];
    entries.push((cell, value.cast_signed()));
    let mut bytes = packet(Header { region: config.region, ..header(Kind::Install, 0, 0) }, &entries);
    assert!(matches!(pipeline.process(&mut bytes), libra_dataplane::Verdict::Reply(_)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    // rules W5, W6, W7, W9, W10, D1, D2, D3, D5, D6, D7, E2
    #[test]
    fn the_program_does_what_the_reference_does(
        durable in prop_oneof![Just(0_u16), Just(65_533), any::<u16>()],
        seen in prop_oneof![Just(0_u32), 1..3000_u32],
        gap in 0..30_u32,
        steps in prop::collection::vec(step(), 0..400),
    ) {
        let above = if seen > 0 && gap > 0 { seen + gap..seen + gap + 3 } else { 0..0 };
        let ranges = [(0, 0..seen), (0, above), (2, 0..seen / 2)];
        let ranges: Vec<_> = ranges.into_iter().filter(|(_, range)| !range.is_empty()).collect();
        let mut pair = Pair::new(CONFIG, durable, &ranges);
        pair.compare_cut();
        let mut next = [seen, 0, seen / 2];
        for step in steps {
            carry_out(&mut pair, &mut next, step);
        }
        pair.close_epoch();
        pair.close_epoch();
    }
}

/// Windows that are gone round several times, in one epoch and in many.
#[test]
fn cuts_are_right_where_an_entry_takes_many_packets_in_an_epoch() {
    let mut pair = Pair::new(CONFIG, 0, &[]);
    let mut seq = 0;
    for packets in [1, 1023, 1, 1024, 1025, 3000, 31, 4094, 2048] {
        for _ in 0..packets {
            pair.send(1, &packet(header(Kind::Push, 1, seq), &[(0, 1), (1, 2), (2, 3), (3, -4)])).unwrap();
            seq += 1;
        }
        // One of the last ones is missing, and comes in the next epoch.
        let answer = pair.send(1, &packet(header(Kind::Push, 1, seq + 1), &[(0, 1); 4])).unwrap();
        assert_eq!(Header::parse(&answer).unwrap().kind, Kind::Ack);
        pair.close_epoch();
        pair.send(1, &packet(header(Kind::Push, 1, seq), &[(0, 1); 4])).unwrap();
        seq += 2;
    }
    assert!(seq as usize > 10 * WINDOW);
    pair.close_epoch();
    pair.close_epoch();
}

// rule D4
#[test]
fn a_bank_that_is_full_refuses_what_is_new_and_duplicates_count() {
    let mut pair = Pair::new(RegionConfig { bank_packets_max: 5, ..CONFIG }, 0, &[]);
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
    pair.close_epoch();
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
fn what_only_an_agent_may_say_is_dropped_from_a_worker() {
    let mut pair = Pair::new(CONFIG, 0, &[]);
    for kind in [Kind::Install, Kind::Drain] {
        assert_eq!(pair.send(0, &packet(header(kind, 0, 0), &[(0, 1); 4])), None);
    }
    let mut flip = packet(header(Kind::Pull, 0, 0), &[]);
    flip[1] = libra_p4::KIND_FLIP;
    assert_eq!(pair.send(0, &flip), None);
    // A push without entries says nothing that a worker has to say: the reference takes it, the program does not.
    let nothing = packet(header(Kind::Push, 0, 0), &[]);
    assert_eq!(pair.agent.link().0.process(Port::Worker(address(0)), &nothing), None);
    assert_eq!(pair.agent.link().0.process(Port::Worker(address(9)), &nothing), None);
}
