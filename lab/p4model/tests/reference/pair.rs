//! The program and the reference side by side, and what is done to both.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;

use libra_dataplane::{
    Arithmetic, Flags, Header, Kind, PacketWriter, Pipeline, Region, RegionConfig, RegionMemory, Tags,
    packet_bytes, set_tag, tag_of,
};
use libra_p4::{Agent, Cookie, Sizes, Sums, TableChange};
use libra_p4model::Port;
use proptest::prelude::*;

use crate::device::Device;

/// A smaller program than the usual one: more happens to each cell.
pub(crate) const SMALL: Sizes =
    Sizes { lanes: 4, cell_bits: 6, flow_bits: 3, regions: 4, sums: Sums::Fixed { bound_bits: 19 } };
pub(crate) const CELLS: u16 = 13;
pub(crate) const WORKERS: u16 = 3;
pub(crate) const CONFIG: RegionConfig = RegionConfig {
    job: 7,
    region: 2,
    plan: 3,
    view: 9,
    lanes: SMALL.lanes,
    cells: CELLS,
    flows: WORKERS,
    bank_packets_max: 4096,
    arithmetic: Arithmetic::Fixed { bound: (1 << 19) - 1 },
};
pub(crate) const NAME: (u16, u8) = (7, 2);

/// Returns the address that a worker sends from.
pub(crate) fn address(worker: u16) -> SocketAddrV4 {
    SocketAddrV4::new([10, 77, 0, 3].into(), 5000 + worker)
}

/// The program and the reference, side by side.
pub(crate) struct Pair<D: Device> {
    pub(crate) agent: Agent<D>,
    reference: Pipeline<Vec<Region<Vec<u32>>>, Vec<u32>>,
    pub(crate) config: RegionConfig,
    has_cookies: bool,
}

/// The cookie of a worker, in a job with keys.
const fn cookie(worker: u16) -> u64 {
    0x0123_4567_89ab_cdef ^ (worker as u64) << 40 ^ worker as u64
}

impl<D: Device> Pair<D> {
    pub(crate) fn new(
        (device, sizes): (D, Sizes),
        config: RegionConfig,
        durable: u16,
        seen: &[(u16, std::ops::Range<u32>)],
        has_cookies: bool,
    ) -> Self {
        let mut agent = Agent::new(device, sizes);
        // Something else was here before, and has left its marks.
        agent.open(RegionConfig { region: 1, ..config }, 40, [(0, 0..700)]).unwrap();
        agent.install((config.job, 1), (0..40).map(|slot| (slot, slot + 1))).unwrap();
        for worker in 0..WORKERS {
            let cookie = Cookie(if has_cookies { cookie(worker) } else { 0 });
            let add = TableChange::AddWorker { address: address(worker), job: config.job, worker, cookie };
            agent.change(&[add]).unwrap();
        }
        for seq in 0..40 {
            let header = Header { region: 1, ..header(Kind::Push, 1, seq) };
            let header = Header { tag: if has_cookies { cookie(1) } else { 0 }, ..header };
            let packet = packet(header, &entries_of(config.lanes, |lane| (lane % 12, 5 - i32::from(lane))));
            agent.link().hand_over(Port::Worker(address(1)), &[packet], Some(1));
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
        Self { agent, reference: Pipeline::new(vec![region]).unwrap(), config, has_cookies }
    }

    pub(crate) fn region(&mut self) -> &mut Region<Vec<u32>> {
        self.reference.region_mut(NAME.0, NAME.1).unwrap()
    }

    /// Hands a datagram of a worker to both, and returns the answer. In a job with keys its tag is the difference to the right one.
    pub(crate) fn send(&mut self, worker: u16, datagram: &[u8]) -> Option<Vec<u8>> {
        let tags = self.has_cookies.then(|| Tags::Cookie(cookie(worker)));
        let mut datagram = datagram.to_vec();
        if let (true, Some(header)) = (self.has_cookies, datagram.first_chunk_mut()) {
            set_tag(header, tag_of(header) ^ cookie(worker));
        }
        let mut expected = None;
        let mut buffer = datagram.clone();
        let from = (self.config.job, worker);
        self.reference.process_tagged_burst(from, tags, [buffer.as_mut_slice()], |answer| {
            expected = Some(answer.to_vec());
        });
        let (port, answers) = (Port::Worker(address(worker)), expected.iter().count());
        let found = self.agent.link().hand_over(port, std::slice::from_ref(&datagram), Some(answers)).pop();
        let read = |answer: &Option<Vec<u8>>| answer.as_deref().map(|bytes| Header::parse(bytes).unwrap());
        assert_eq!(read(&found), read(&expected), "to {:?}", Header::parse_without_entries(&datagram));
        assert_eq!(found, expected, "to {:?}", Header::parse_without_entries(&datagram));
        found
    }

    pub(crate) fn flip(&mut self) {
        let closed = self.region().flip().ok();
        let taken = self.region().idle_packets();
        assert_eq!(self.agent.flip(NAME).unwrap(), closed.map(|closed| (closed, taken)));
    }

    pub(crate) fn drain(&mut self) {
        let mut expected = BTreeMap::new();
        self.region().drain(|first, sums| expected.extend((first..).zip(sums.iter().copied())));
        expected.retain(|_, sum| *sum != 0);
        assert_eq!(BTreeMap::from_iter(self.agent.drain(NAME).unwrap()), expected);
    }

    /// Right after a drain, before the next round has taken a packet, both have the same state.
    pub(crate) fn compare_acked(&mut self) {
        for flow in 0..WORKERS {
            let expected: Vec<_> = self.region().window(flow).unwrap().accepted().collect();
            assert_eq!(self.agent.acked(NAME, flow), expected, "flow {flow}");
        }
    }

    pub(crate) fn close_round(&mut self) {
        self.flip();
        self.drain();
        self.compare_acked();
    }
}

pub(crate) fn header(kind: Kind, worker: u16, seq: u32) -> Header {
    let RegionConfig { job, region, plan, .. } = CONFIG;
    Header { job, region, plan, view: CONFIG.view_on_wire(), worker, seq, ..Header::of_kind(kind) }
}

pub(crate) fn packet(header: Header, entries: &[(u16, i32)]) -> Vec<u8> {
    let mut packet = vec![0; packet_bytes(u8::try_from(entries.len()).unwrap())];
    let mut writer = PacketWriter::new(header, &mut packet);
    assert!(entries.iter().all(|&(cell, value)| writer.push(cell, value.cast_unsigned())));
    assert_eq!(writer.finish(), packet.len());
    packet
}

/// An entry for each lane.
pub(crate) fn entries_of(lanes: u8, entry: impl Fn(u16) -> (u16, i32)) -> Vec<(u16, i32)> {
    (0..u16::from(lanes)).map(entry).collect()
}

/// The next step.
#[derive(Debug, Clone)]
pub(crate) enum Step {
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
    CloseRound,
    Install {
        slots: Vec<(u16, u32)>,
    },
    Durable(u16),
    Readable(bool),
    Active(bool),
}

fn entries(config: RegionConfig) -> impl Strategy<Value = Vec<(u16, i32)>> {
    let of_float = |value: f32| value.to_bits().cast_signed();
    let (value, unsound) = match config.arithmetic {
        Arithmetic::Fixed { bound } => {
            let bound = bound.cast_signed();
            ((-bound..=bound).boxed(), bound + 1)
        }
        Arithmetic::F32 | Arithmetic::Table => {
            let any_finite = prop::num::f32::NORMAL | prop::num::f32::SUBNORMAL | prop::num::f32::ZERO;
            let value = prop_oneof![3 => -4.0_f32..4.0, 1 => any_finite];
            (value.prop_map(of_float).boxed(), of_float(f32::INFINITY))
        }
    };
    let entry = prop_oneof![
        8 => (0..CELLS - 1, value),
        1 => Just((CELLS - 1, 0)),
    ];
    let lanes = usize::from(config.lanes);
    let sound = prop::collection::vec(entry, lanes);
    let unsound = (sound.clone(), 0..lanes, any::<bool>()).prop_map(move |(mut entries, place, is_cell)| {
        // Beyond all regions of the switch, or beyond the bound.
        if is_cell {
            entries[place].0 = 0x7000;
        } else {
            entries[place].1 = unsound;
        }
        entries
    });
    prop_oneof![9 => sound, 1 => unsound]
}

pub(crate) fn step(config: RegionConfig) -> impl Strategy<Value = Step> {
    let (worker, lanes) = (0..WORKERS, config.lanes);
    prop_oneof![
        60 => (worker.clone(), prop_oneof![12 => Just(0_u32), 3 => 1..40_u32, 1 => 1000..1100_u32], entries(config), 0..8_u8)
            .prop_map(|(worker, back, entries, flags)| Step::Push { worker, back, entries, flags }),
        10 => (worker.clone(), prop::collection::vec(0..CELLS, usize::from(lanes)))
            .prop_map(|(worker, cells)| Step::Pull { worker, cells }),
        3 => worker.clone().prop_map(|worker| Step::Probe { worker }),
        6 => (worker, 1..5_u8, 0..8_u8).prop_map(|(worker, kind, field)| Step::Wrong { worker, kind, field }),
        4 => Just(Step::CloseRound),
        4 => prop::collection::btree_map(0..(CELLS - 1) * u16::from(lanes), any::<u32>(), 0..9)
            .prop_map(|slots| Step::Install { slots: slots.into_iter().collect() }),
        2 => any::<u16>().prop_map(Step::Durable),
        3 => any::<bool>().prop_map(Step::Readable),
        1 => prop::bool::weighted(0.8).prop_map(Step::Active),
    ]
}

pub(crate) fn carry_out<D: Device>(pair: &mut Pair<D>, next: &mut [u32; WORKERS as usize], step: Step) {
    match step {
        Step::Push { worker, back, entries, flags } => {
            let next = &mut next[usize::from(worker)];
            let seq = if back == 0 { *next } else { next.saturating_sub(back) };
            let flags = Flags::from_bits(flags).unwrap();
            let answer =
                pair.send(worker, &packet(Header { flags, ..header(Kind::Push, worker, seq) }, &entries));
            // By the sender rule no worker leaves a number out for long.
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
                5 => header.seq = u32::MAX,
                // Without keys a pipeline in software does not look at it.
                6 if pair.has_cookies => header.tag = 1 << (8 * kind + u8::try_from(worker).unwrap()),
                _ => (header.plan, header.view) = (header.plan + 1, header.view + 1),
            }
            pair.send(worker, &packet(header, &entries_of(pair.config.lanes, |_| (1, 1))));
        }
        Step::CloseRound => pair.close_round(),
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
