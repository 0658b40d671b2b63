//! Shared code of the tests: small regions, and packets for them.

use libra_dataplane::{
    Arithmetic, Entry, Header, Kind, Packet, PacketWriter, Pipeline, Region, RegionConfig, RegionMemory,
    Verdict, packet_bytes,
};
use proptest::prelude::*;

pub(crate) type TestPipeline = Pipeline<Vec<Region<Vec<u32>>>, Vec<u32>>;

pub(crate) const JOB: u16 = 5;
pub(crate) const PLAN: u16 = 3;
pub(crate) const VIEW: u16 = 9;
/// Its whole number.
pub(crate) const VIEW_ID: u64 = (5 << 16) + VIEW as u64;

pub(crate) fn region(config: RegionConfig) -> Region<Vec<u32>> {
    let memory = RegionMemory::allocate(&config, |words| vec![0; words]);
    Region::new(config, memory).unwrap()
}

pub(crate) fn pipeline(configs: &[RegionConfig]) -> TestPipeline {
    Pipeline::new(configs.iter().copied().map(region).collect::<Vec<_>>()).unwrap()
}

pub(crate) fn small_config() -> RegionConfig {
    RegionConfig {
        job: JOB,
        region: 0,
        plan: PLAN,
        view: VIEW_ID,
        lanes: 1,
        cells: 3,
        flows: 2,
        bank_packets_max: 100,
        arithmetic: Arithmetic::Fixed { bound: 1 << 20 },
    }
}

pub(crate) fn any_config(region: u8) -> impl Strategy<Value = RegionConfig> {
    let arithmetic = prop_oneof![
        3 => Just(Arithmetic::Fixed { bound: 1000 }),
        1 => Just(Arithmetic::Fixed { bound: i32::MAX.unsigned_abs() / 8 }),
        1 => Just(Arithmetic::F32),
        1 => Just(Arithmetic::Table),
    ];
    (prop_oneof![3 => Just(1_u8), 1 => 2..5_u8], 2..40_u16, 1..4_u16, 1..8_u32, arithmetic).prop_map(
        move |(lanes, cells, flows, bank_packets_max, arithmetic)| RegionConfig {
            job: JOB,
            region,
            plan: PLAN,
            view: VIEW_ID,
            lanes,
            cells,
            flows,
            bank_packets_max,
            arithmetic,
        },
    )
}

pub(crate) fn header(kind: Kind, worker: u16, seq: u32) -> Header {
    Header { job: JOB, worker, plan: PLAN, view: VIEW, seq, tag: 0xABCD, ..Header::of_kind(kind) }
}

pub(crate) fn write(header: Header, entries: &[Entry]) -> Vec<u8> {
    let mut buffer = vec![0; packet_bytes(u8::try_from(entries.len()).unwrap())];
    let mut writer = PacketWriter::new(header, &mut buffer);
    for entry in entries {
        assert!(writer.push(entry.cell, entry.value));
    }
    assert_eq!(writer.finish(), buffer.len());
    buffer
}

pub(crate) fn entries(list: &[(u16, i32)]) -> Vec<Entry> {
    list.iter().map(|&(cell, value)| Entry { cell, value: value.cast_unsigned() }).collect()
}

/// Processes a packet that must get an answer.
pub(crate) fn answer(pipeline: &mut TestPipeline, packet: &[u8]) -> (Header, Vec<Entry>) {
    let mut buffer = packet.to_vec();
    match pipeline.process(&mut buffer) {
        Verdict::Reply(bytes) => read(&buffer[..bytes]),
        Verdict::Drop(reason) => panic!("dropped: {reason:?}"),
    }
}

pub(crate) fn read(packet: &[u8]) -> (Header, Vec<Entry>) {
    let packet = Packet::parse(packet).unwrap();
    (packet.header, packet.entries().collect())
}

/// Entries for a push, mostly sound ones: in each lane ascending cells, then padding.
pub(crate) fn any_entries() -> impl Strategy<Value = Vec<Entry>> {
    let value = prop_oneof![
        4 => (-1000..=1000_i32).prop_map(i32::cast_unsigned),
        2 => (-8.0..8.0_f32).prop_map(f32::to_bits),
        1 => Just(0),
        1 => any::<u32>(),
    ];
    let steps =
        prop::collection::vec((prop_oneof![8 => 1..4_u16, 1 => Just(0), 1 => any::<u16>()], value), 0..20);
    (steps, 1..4_usize).prop_map(|(steps, lanes)| {
        let mut next = vec![0_u16; lanes];
        let entry = |(place, (step, value)): (usize, (u16, u32))| {
            let next = &mut next[place % lanes];
            *next = next.wrapping_add(step);
            Entry { cell: next.wrapping_sub(1) & 0x7FFF, value }
        };
        steps.into_iter().enumerate().map(entry).collect()
    })
}

/// Makes entries sound for a region where that is easy: values in bounds, and cells beyond the end become padding.
pub(crate) fn mend(config: &RegionConfig, entries: &mut [Entry]) {
    for entry in entries {
        if !config.arithmetic.allows(entry.value) {
            entry.value = 7;
        }
        if entry.cell >= config.cells - 1 {
            *entry = Entry { cell: config.cells - 1, value: 0 };
        }
    }
}
