//! Cases that random lives are too short for.

use libra_dataplane::{Arithmetic, Entry, F32_NAN, Header, Kind};
use libra_proto::RoundContents;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::scene::{Both, address, config, header, write};

#[test]
fn sums_of_special_and_random_floats() {
    sums(Arithmetic::F32);
}

#[test]
fn sums_of_special_and_random_floats_by_tables() {
    sums(Arithmetic::Table);
}

/// Each pair of numbers goes into a slot of its own, one packet after the other, and the kernel's sum is the reference's.
fn sums(arithmetic: Arithmetic) {
    let Some(mut both) = Both::load(1) else { return };
    let config = libra_dataplane::RegionConfig { bank_packets_max: u32::MAX, ..config(0, arithmetic) };
    both.open(config, 0, &RoundContents::default());
    let magnitudes = [
        0,
        1,
        2,
        0x007F_FFFF,
        0x0080_0000,
        0x0080_0001,
        0x00FF_FFFF,
        0x0100_0000,
        0x3F80_0000,
        0x3F80_0001,
        0x4000_0000,
        0x4B00_0000,
        0x4B80_0000,
        0x4B80_0001,
        0x4C00_0000,
        0x7EFF_FFFF,
        0x7F00_0000,
        0x7F7F_FFFE,
        0x7F7F_FFFF,
    ];
    let special: Vec<u32> = magnitudes.iter().flat_map(|&bits| [bits, bits | 1 << 31]).collect();
    let mut pairs: Vec<(u32, u32)> =
        special.iter().flat_map(|&a| special.iter().map(move |&b| (a, b))).collect();
    let mut random = SmallRng::seed_from_u64(1);
    for _ in 0..40_000 {
        let (a, b): (u32, u32) = (random.random(), random.random());
        // Exponents that are near each other: there sums are shifted and rounded.
        let near = (a & 0x7F80_0000).wrapping_add(((b >> 23) & 31) << 23) & 0x7F80_0000;
        for b in [b, near | b & 0x807F_FFFF, near | b & 0x8000_0007, b & 0x81FF_FFFF] {
            pairs.push((a, b));
        }
    }
    pairs.retain(|(a, b)| [a, b].iter().all(|bits| *bits & 0x7FFF_FFFF < 0x7F80_0000));
    let mut seq = 0;
    for chunk in pairs.chunks(255) {
        for side in [|pair: &(u32, u32)| pair.0, |pair: &(u32, u32)| pair.1] {
            let entries: Vec<_> =
                (0..).zip(chunk).map(|(cell, pair)| Entry { cell, value: side(pair) }).collect();
            both.send(address(0), &write(header(Kind::Push, 0, seq), &entries)).unwrap();
            seq += 1;
        }
        let round = both.close_round(0);
        for ((a, b), sum) in chunk.iter().zip(&round.sums) {
            assert_eq!(arithmetic.add(arithmetic.add(0, *a), *b), *sum, "{a:#010x} + {b:#010x}");
        }
    }
}

/// A bank that has become infinite or no number.
#[test]
fn sums_beyond_all_numbers() {
    for arithmetic in [Arithmetic::F32, Arithmetic::Table] {
        let Some(mut both) = Both::load(1) else { return };
        both.open(config(0, arithmetic), 0, &RoundContents::default());
        let max = f32::MAX.to_bits();
        for (seq, value) in [max, max, max | 1 << 31, 1_f32.to_bits()].into_iter().enumerate() {
            let header = header(Kind::Push, 0, u32::try_from(seq).unwrap());
            both.send(address(0), &write(header, &[Entry { cell: 1, value }])).unwrap();
        }
        assert_eq!(both.close_round(0).sums[1], f32::INFINITY.to_bits());
    }
    assert_ne!(f32::INFINITY.to_bits(), F32_NAN);
}

/// The window goes round many times within one round, and over several.
// rules D1, E2
#[test]
fn windows_go_round() {
    let Some(mut both) = Both::load(2) else { return };
    let config = libra_dataplane::RegionConfig {
        bank_packets_max: 1 << 20,
        ..config(0, Arithmetic::Fixed { bound: 1 << 10 })
    };
    both.open(config, 0, &RoundContents::default());
    for seq in 0..6000_u32 {
        // Two change places now and then.
        let seq = if seq % 10 < 8 { seq } else { seq ^ 1 };
        for seq in [seq, seq, seq.saturating_sub(900)] {
            both.send(address(1), &write(header(Kind::Push, 1, seq), &[Entry { cell: 3, value: 1 }]))
                .unwrap();
        }
        if [10, 2500, 2505, 4700].contains(&seq) {
            let round = both.close_round(0);
            let total: u32 = round.contents.flows[&1].above.iter().map(|(_, count)| count).sum();
            assert_eq!(round.contents.flows[&1].below + total, u32::try_from(both.xdp_pushes()).unwrap());
        }
        both.compare(&[0]);
    }
}

/// One job per switch, several regions in it, and none that was not opened.
#[test]
fn regions_do_not_touch_each_other() {
    let Some(mut both) = Both::load(2) else { return };
    for region in [0, 7, 255] {
        both.open(config(region, Arithmetic::Fixed { bound: 100 }), 6, &RoundContents::default());
    }
    for (seq, region) in [0, 7, 255, 8, 7].into_iter().enumerate() {
        let header = Header { region, ..header(Kind::Push, 0, u32::try_from(seq).unwrap()) };
        let cell = 390 + u16::from(region % 8);
        both.send(address(0), &write(header, &[Entry { cell, value: u32::from(region) % 100 }])).unwrap();
    }
    both.compare(&[0, 7, 255]);
    for region in [0, 7, 255] {
        both.close_round(region);
    }
    both.each(|plane| plane.forget(7));
    let header = Header { region: 7, ..header(Kind::Push, 0, 9) };
    both.send(address(0), &write(header, &[])).unwrap();
    both.compare(&[0, 255]);
}
