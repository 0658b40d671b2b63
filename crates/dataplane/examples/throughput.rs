//! Throughput of a pipeline on one core: `cargo run --release -p libra-dataplane --example throughput`.
//!
//! Packets are in the cache when they are executed, as they are after a burst was received.

use std::hint::black_box;
use std::time::{Duration, Instant};

use libra_dataplane::{
    Arithmetic, BODY_KEY_BYTES, BodyKey, CELLS_MAX, Direction, HEADER_BYTES, Header, Kind, PacketWriter,
    PathKeys, Pipeline, Region, RegionConfig, RegionMemory, TAG_KEY_BYTES, TagKey, Tags, packet_bytes,
};
use rand::rngs::SmallRng;
use rand::seq::IteratorRandom as _;
use rand::{Rng as _, SeedableRng as _};

/// Entries of a packet: one per lane of a hardware switch, those of a packet of 192 bytes, and as many as an Ethernet frame holds.
const ENTRIES: [u8; 3] = [16, 27, 240];
const BURST: usize = 32;
/// Packets between two flips.
const ROUND: u32 = 64;

type Packets = Vec<Box<[u8]>>;

fn main() {
    println!("bursts of {BURST}, a flip and a drain every {ROUND} packets, one core");
    ENTRIES.into_iter().for_each(report_all);
}

fn report_all(entries: u8) {
    println!("{entries} entries a packet");
    let fixed = Arithmetic::Fixed { bound: (1 << 19) - 1 };
    let scattered = |random: &mut SmallRng| {
        let mut cells = (0..CELLS_MAX - 1).choose_multiple(random, entries.into());
        cells.sort_unstable();
        cells
    };
    let neighbours = |random: &mut SmallRng| {
        let first = random.random_range(0..32_000);
        (first..first + u16::from(entries)).collect()
    };
    let thirds = |random: &mut SmallRng| {
        let mut cell = random.random_range(0..31_000);
        let next = |_| {
            cell += random.random_range(1..=5);
            cell
        };
        (0..entries).map(next).collect()
    };
    let body = BodyKey::from_bytes(&[0xa5; BODY_KEY_BYTES]);
    let key = TagKey::from_bytes([7; TAG_KEY_BYTES]);
    let macs = Some(Tags::Mac { body: &body, keys: PathKeys { up: key, down: key } });
    report(entries, "push, fixed point, cells next to each other", Kind::Push, fixed, None, neighbours);
    report(entries, "the same with tags", Kind::Push, fixed, macs, neighbours);
    report(entries, "push, fixed point, a third of neighbouring cells", Kind::Push, fixed, None, thirds);
    report(entries, "the same with tags", Kind::Push, fixed, macs, thirds);
    report(entries, "push, fixed point, cells all over the region", Kind::Push, fixed, None, scattered);
    report(entries, "push, f32, cells all over the region", Kind::Push, Arithmetic::F32, None, scattered);
    report(entries, "push, table, cells all over the region", Kind::Push, Arithmetic::Table, None, scattered);
    report(entries, "pull, cells all over the region", Kind::Pull, fixed, None, scattered);
}

/// A number of either sign for a cell.
fn gradient(arithmetic: Arithmetic, cell: u16) -> u32 {
    let number = cell.wrapping_mul(40_503).cast_signed();
    match arithmetic {
        Arithmetic::Fixed { .. } => i32::from(number).cast_unsigned(),
        Arithmetic::F32 | Arithmetic::Table => (f32::from(number) * 1e-6).to_bits(),
    }
}

fn header(kind: Kind, entries: u8, seq: u32) -> Header {
    Header { entries, job: 1, plan: 1, view: 1, seq, ..Header::of_kind(kind) }
}

fn report(
    entries: u8,
    name: &str,
    kind: Kind,
    arithmetic: Arithmetic,
    tags: Option<Tags<'_>>,
    mut cells: impl FnMut(&mut SmallRng) -> Vec<u16>,
) {
    let config = RegionConfig {
        job: 1,
        region: 0,
        plan: 1,
        view: 1,
        lanes: 1,
        cells: CELLS_MAX,
        flows: 1,
        bank_packets_max: 4096,
        arithmetic,
    };
    let memory = RegionMemory::allocate(&config, |words| vec![0; words]);
    let mut region = Region::new(config, memory).expect("a sound config");
    region.set_readable(true);
    let mut pipeline = Pipeline::new(vec![region]).expect("there is one region");

    let mut random = SmallRng::seed_from_u64(1);
    let mut bursts: Vec<Packets> = (0..2)
        .map(|_| {
            let packet = |_| {
                let mut packet = vec![0; packet_bytes(entries)].into_boxed_slice();
                let mut writer = PacketWriter::new(header(kind, entries, 0), &mut packet);
                for cell in cells(&mut random) {
                    assert!(writer.push(cell, gradient(arithmetic, cell)));
                }
                assert_eq!(writer.finish(), packet_bytes(entries));
                packet
            };
            (0..BURST).map(packet).collect()
        })
        .collect();

    let mut seq = 0;
    let mut processing = Duration::ZERO;
    let mut draining = Duration::ZERO;
    let mut answers = 0_u64;
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(2) {
        for packets in &mut bursts {
            for packet in packets.iter_mut() {
                packet[..HEADER_BYTES].copy_from_slice(&header(kind, entries, seq).to_bytes());
                if let Some(tags) = tags {
                    tags.sign(Direction::Up, packet, 1);
                }
                seq += 1;
            }
            let before = Instant::now();
            let burst = black_box(packets).iter_mut().map(|packet| &mut packet[..]);
            pipeline.process_tagged_burst((1, 0), tags, burst, |answer| {
                answers += 1;
                black_box(answer);
            });
            processing += before.elapsed();
            if seq % ROUND == 0 {
                let before = Instant::now();
                let region = pipeline.region_mut(1, 0).expect("it was made above");
                region.flip().expect("it was drained");
                region.drain(|first_slot, sums| {
                    black_box((first_slot, sums));
                });
                draining += before.elapsed();
            }
        }
    }
    let counters = pipeline.counters();
    assert_eq!(counters.packets, u64::from(seq));
    assert_eq!(counters.pushes + counters.pulls, counters.packets);
    let entries = f64::from(seq) * f64::from(entries);
    println!(
        "{name:46} {:7.1} Mentries/s  {:5.2} ns/entry  {:6.1} ns/packet  (drain {:4.2} ns/entry, {answers} answers)",
        entries / processing.as_secs_f64() / 1e6,
        processing.as_secs_f64() * 1e9 / entries,
        processing.as_secs_f64() * 1e9 / f64::from(seq),
        draining.as_secs_f64() * 1e9 / entries,
    );
}
