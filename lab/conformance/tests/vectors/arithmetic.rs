//! Numbers at the edges.

use std::net::SocketAddrV4;

use libra_conformance::{RegionName, Sender, WorkerName};
use libra_dataplane::{Arithmetic, CELLS_MAX, Header, Kind, NackReason, RegionConfig};

use crate::scene::{F32, FIXED, REGION, Scene, TABLE, header, packet, push, worker};

pub(crate) fn scenes() -> Vec<Scene> {
    vec![
        largest(),
        bound(),
        headroom(),
        refused("f32-refused", "Single precision", F32),
        f32_sums(),
        refused("table-refused", "Single precision by tables", TABLE),
        table_sums(),
    ]
}

fn largest() -> Scene {
    let region = RegionName { job: u16::MAX, region: u8::MAX };
    let mut scene = Scene::new(
        "edges-largest",
        "The largest numbers of everything: job, region, plan, view, cells (32,768, of which the last is padding), and flows above 256.",
    );
    let config = RegionConfig {
        job: region.job,
        region: region.region,
        plan: u16::MAX,
        view: u16::MAX.into(),
        cells: CELLS_MAX,
        flows: 600,
        ..FIXED
    };
    for (last, worker) in [(2, 0), (3, 255), (4, 256), (5, 599), (6, 600), (7, u16::MAX)] {
        let address = SocketAddrV4::new([10, 7, 255, last].into(), u16::MAX);
        scene.worker_at(WorkerName { job: region.job, worker }, address);
    }
    scene.open(config, u16::MAX, &[(599, 0..9)]);
    let head = |kind, worker, seq| Header {
        job: config.job,
        region: config.region,
        plan: config.plan,
        view: config.view_on_wire(),
        ..header(kind, worker, seq)
    };
    let from = |worker| Sender::Worker(WorkerName { job: region.job, worker });
    let entries = [(0, 1), (255, 2), (256, 3), (0x3FFF, 4), (0x4000, 5), (0x7FFE, 6), (0x7FFF, 0)];
    for worker in [0, 255, 256] {
        scene.taken(from(worker), &packet(head(Kind::Push, worker, 0), &entries));
    }
    scene.duplicate(from(599), &packet(head(Kind::Push, 599, 8), &entries), u16::MAX);
    scene.taken(from(599), &packet(head(Kind::Push, 599, 9), &entries));
    scene.note("Flows that are not there.");
    for worker in [600, u16::MAX] {
        scene.refused(from(worker), &packet(head(Kind::Push, worker, 0), &entries), NackReason::UnknownFlow);
    }
    scene.install(region, &[(0x7FFE, u32::MAX), (256, 1)]);
    scene.readable(region, true);
    scene.taken(from(256), &packet(head(Kind::Pull, 256, u32::MAX), &entries));
    scene.flip(region);
    for flow in [0, 1, 255, 256, 599] {
        scene.acked(region, flow);
    }
    scene.drain(region);
    scene.values(region);
    scene
}

fn bound() -> Scene {
    const BOUND: i32 = 1000;
    let mut scene = Scene::with(
        "fixed-bound",
        "Fixed point: values are two's complement, at most the bound in magnitude (rule W5). The bound is 1,000.",
        RegionConfig { arithmetic: Arithmetic::Fixed { bound: 1000 }, ..FIXED },
    );
    scene.taken(worker(0), &push(0, 0, &[(0, BOUND), (1, -BOUND), (2, 0), (3, -1)]));
    for wrong in [BOUND + 1, -BOUND - 1, i32::MAX, i32::MIN, i32::MIN + 1, i32::MAX - BOUND] {
        scene.malformed(worker(0), &push(0, 1, &[(0, wrong)]));
        scene.malformed(worker(0), &push(0, 1, &[(0, 1), (1, 1), (2, 1), (3, 1), (4, wrong)]));
        scene.malformed(worker(0), &push(0, 1, &[(0, wrong), (1, 1), (2, 1), (3, 1), (4, 1)]));
    }
    scene.taken(worker(0), &push(0, 1, &[(0, BOUND), (1, -BOUND), (2, 5), (3, 1)]));
    scene.close_round(REGION, 1);
    scene
}

fn headroom() -> Scene {
    let mut scene = Scene::with(
        "fixed-headroom",
        "The highest bound for three packets a bank: a full bank just does not overflow, either way (rule D4).",
        RegionConfig {
            arithmetic: Arithmetic::Fixed { bound: i32::MAX.unsigned_abs() / 3 },
            bank_packets_max: 3,
            ..FIXED
        },
    );
    let most = i32::MAX / 3;
    for seq in 0..3 {
        scene.taken(worker(0), &push(0, seq, &[(0, most), (1, -most)]));
    }
    scene.malformed(worker(1), &push(1, 0, &[(0, most + 1)]));
    scene.close_round(REGION, 1);
    scene.note("The highest bound of all, for one packet.");
    let region = RegionConfig {
        region: 1,
        arithmetic: Arithmetic::Fixed { bound: i32::MAX.unsigned_abs() },
        bank_packets_max: 1,
        ..FIXED
    };
    scene.open(region, 0, &[]);
    let head = Header { region: 1, ..header(Kind::Push, 0, 0) };
    scene.malformed(worker(0), &packet(head, &[(0, 0x8000_0000)]));
    scene.taken(worker(0), &packet(head, &[(0, 0x7FFF_FFFF), (1, 0x8000_0001)]));
    scene.close_round(RegionName { job: region.job, region: 1 }, 1);
    scene
}

fn refused(file: &'static str, what: &str, config: RegionConfig) -> Scene {
    let about = format!(
        "{what}: every finite number is taken, and NaN and infinities are malformed, whatever their other bits (rule W5)."
    );
    let mut scene = Scene::with(file, &about, config);
    let value = |seq, bits| packet(header(Kind::Push, 0, seq), &[(0, 0x3F80_0000), (3, bits)]);
    for bits in
        [0x7F80_0000, 0xFF80_0000, 0x7FC0_0000, 0xFFC0_0000, 0x7F80_0001, 0xFF80_0001, 0x7FFF_FFFF, u32::MAX]
    {
        scene.malformed(worker(0), &value(0, bits));
        scene.malformed(
            worker(0),
            &packet(header(Kind::Push, 0, 0), &[(0, bits), (1, 0), (2, 0), (3, 0), (4, 0)]),
        );
    }
    for (seq, bits) in
        (0..).zip([0x7F7F_FFFF, 0xFF7F_FFFF, 0, 0x8000_0000, 1, 0x8000_0001, 0x007F_FFFF, 0x0080_0000])
    {
        scene.taken(worker(0), &value(seq, bits));
    }
    scene.note("Padding is +0 and nothing else.");
    scene.malformed(worker(0), &packet(header(Kind::Push, 0, 9), &[(9, 0x8000_0000)]));
    scene.taken(worker(0), &packet(header(Kind::Push, 0, 9), &[(9, 0)]));
    scene.close_round(REGION, 1);
    scene
}

/// Each case is a slot: what is added to it, in this order, and why.
const F32_CASES: &[(&str, &[u32])] = &[
    ("1 + 2^-24 is a tie, and goes to the even 1.", &[0x3F80_0000, 0x3380_0000]),
    ("The next float above 1, plus 2^-24: a tie that goes up.", &[0x3F80_0001, 0x3380_0000]),
    ("A little more than a tie goes up.", &[0x3F80_0000, 0x3380_0001]),
    ("A little less than a tie goes down.", &[0x3F80_0000, 0x337F_FFFF]),
    ("1 - 2^-25 is a tie below a power of two, and goes to 1.", &[0x3F80_0000, 0xB300_0000]),
    ("1 - 2^-24 is exact.", &[0x3F80_0000, 0xB380_0000]),
    ("0.1 + 0.2.", &[0x3DCC_CCCD, 0x3E4C_CCCD]),
    (
        "2^24 + 1 is a tie and goes down; 2^-10 more, by itself, is nothing.",
        &[0x4B80_0000, 0x3F80_0000, 0x3A80_0000],
    ),
    (
        "The same three in another order: 1 + 2^-10 is more than a tie, and goes up.",
        &[0x3F80_0000, 0x3A80_0000, 0x4B80_0000],
    ),
    ("Rounding carries into the next power of two.", &[0x3FFF_FFFF, 0x3380_0000]),
    ("Subnormal + subnormal.", &[0x0000_0001, 0x0000_0002]),
    ("Subnormals that make a normal number.", &[0x007F_FFFF, 0x0000_0001]),
    ("Normal numbers whose difference is subnormal.", &[0x0080_0001, 0x8080_0000]),
    ("The least normal number minus the least subnormal one.", &[0x0080_0000, 0x8000_0001]),
    ("Subnormal and large: nothing is left of it.", &[0x3F80_0000, 0x0000_0001]),
    ("x - x is +0.", &[0x4049_0FDB, 0xC049_0FDB]),
    ("-x + x is +0.", &[0xC049_0FDB, 0x4049_0FDB]),
    ("Cancellation leaves few bits.", &[0x3F80_0001, 0xBF80_0000]),
    ("+0 + -0 is +0: a slot begins with +0.", &[0x8000_0000, 0x8000_0000]),
    ("-0 and a number.", &[0x8000_0000, 0x8000_0001]),
    ("The largest number twice is infinity.", &[0x7F7F_FFFF, 0x7F7F_FFFF]),
    ("It stays so with any finite number.", &[0x7F7F_FFFF, 0x7F7F_FFFF, 0xFF7F_FFFF]),
    ("The other way, -infinity.", &[0xFF7F_FFFF, 0xFF7F_FFFF, 0x7F7F_FFFF]),
    ("Half a unit above the largest number rounds to infinity.", &[0x7F7F_FFFF, 0x7300_0000]),
    ("A little less does not.", &[0x7F7F_FFFF, 0x72FF_FFFF]),
    ("Large and small, added in the other order.", &[0x3380_0000, 0x3F80_0000, 0x3380_0000]),
];

fn f32_sums() -> Scene {
    let cases = u16::try_from(F32_CASES.len()).unwrap();
    let mut scene = Scene::with(
        "f32-sums",
        "Sums of IEEE 754 single precision, rounded to nearest, ties to even, one packet after the other: all bits of the sums matter.\n\
         Subnormal numbers are not flushed to zero. A slot begins with +0.",
        RegionConfig { cells: cases + 1, ..F32 },
    );
    let mut seq = 0;
    for (cell, (why, values)) in (0..).zip(F32_CASES) {
        scene.note(why);
        for &value in *values {
            scene.taken(worker(0), &packet(header(Kind::Push, 0, seq), &[(cell, value)]));
            seq += 1;
        }
    }
    scene.flip(REGION);
    let sums = scene.drain(REGION);
    // The comments above were written without running the code.
    for (slot, (why, values)) in (0..).zip(F32_CASES) {
        let sum = values.iter().fold(0.0_f32, |sum, &value| sum + f32::from_bits(value));
        assert_eq!(sums.0.get(&slot).copied().unwrap_or_default(), sum.to_bits(), "{why}");
    }
    scene
}

/// Each case is a slot: what is added to it, in this order, and why; then all bits of the sum, where they follow from that.
const TABLE_CASES: &[(&str, &[u32], Option<u32>)] = &[
    (
        "A number that is added to nothing stays what it is, to the last bit.",
        &[0x3DCC_CCCD],
        Some(0x3DCC_CCCD),
    ),
    ("A negative one, too.", &[0xBDCC_CCCD], Some(0xBDCC_CCCD)),
    ("1 + 1 is 2: θ is 0.", &[0x3F80_0000, 0x3F80_0000], Some(0x4000_0000)),
    ("0.1 + 0.2.", &[0x3DCC_CCCD, 0x3E4C_CCCD], None),
    ("The same in the other order: a sum has the same bits.", &[0x3E4C_CCCD, 0x3DCC_CCCD], None),
    ("Of a sum, 8 bits of the fraction are left.", &[0x4049_0FDB, 0x402D_F854], None),
    ("1 + 2^-10 is less than the tables tell from 1.", &[0x3F80_0000, 0x3A80_0000], Some(0x3F80_0000)),
    (
        "And that often it is still 1.",
        &[0x3F80_0000, 0x3A80_0000, 0x3A80_0000, 0x3A80_0000],
        Some(0x3F80_0000),
    ),
    ("θ may be nearly as large as numbers are.", &[0x7F00_0000, 0x0080_0000], Some(0x7F00_0000)),
    (
        "The logarithm of the largest number is rounded up: with anything added it is infinity.",
        &[0x7F7F_FFFF, 0x0080_0000],
        Some(0x7F80_0000),
    ),
    ("x - x is +0.", &[0x4049_0FDB, 0xC049_0FDB], Some(0)),
    ("-x + x is +0.", &[0xC049_0FDB, 0x4049_0FDB], Some(0)),
    (
        "Numbers whose logarithms are the same cancel, though they are not.",
        &[0x3F80_0001, 0xBF80_0000],
        Some(0),
    ),
    ("1.5 - 1.25.", &[0x3FC0_0000, 0xBFA0_0000], None),
    ("The larger one has the sign.", &[0x3FA0_0000, 0xBFC0_0000], None),
    (
        "1 - (1 - 2^-8): of numbers that are near each other the difference is rough.",
        &[0x3F80_0000, 0xBF7F_0000],
        None,
    ),
    ("1 - (1 - 2^-7): less so.", &[0x3F80_0000, 0xBF7E_0000], None),
    ("Every bit of a fraction.", &[0x3FFF_FFFF, 0x3FFF_FFFF], None),
    ("Only the lower half of a fraction.", &[0x3F80_0FFF, 0x3F80_0FFF], None),
    (
        "Subnormal numbers are zeros of their sign; a slot begins with +0.",
        &[0x007F_FFFF, 0x007F_FFFF],
        Some(0),
    ),
    ("The same below zero.", &[0x807F_FFFF, 0x8000_0001], Some(0)),
    ("The least normal number and a subnormal one.", &[0x0080_0000, 0x007F_FFFF], Some(0x0080_0000)),
    (
        "A difference below the least normal number is zero, of the sign of the larger one.",
        &[0x0080_0000, 0x80C0_0000],
        Some(0x8000_0000),
    ),
    ("+0 + -0 is +0.", &[0x8000_0000, 0x8000_0000], Some(0)),
    (
        "-0 that came of a difference stays, with another -0.",
        &[0x0080_0000, 0x80C0_0000, 0x8000_0000],
        Some(0x8000_0000),
    ),
    ("And is +0 with +0.", &[0x0080_0000, 0x80C0_0000, 0], Some(0)),
    ("The largest number twice is infinity.", &[0x7F7F_FFFF, 0x7F7F_FFFF], Some(0x7F80_0000)),
    ("It stays so with any finite number.", &[0x7F7F_FFFF, 0x7F7F_FFFF, 0xFF7F_FFFF], Some(0x7F80_0000)),
    ("The other way, -infinity.", &[0xFF7F_FFFF, 0xFF7F_FFFF, 0x7F7F_FFFF], Some(0xFF80_0000)),
];

fn table_sums() -> Scene {
    let cases = u16::try_from(TABLE_CASES.len()).unwrap();
    let mut scene = Scene::with(
        "table-sums",
        "Sums of single precision by the seven tables of the paper (crates/dataplane/src/table.rs says what is in them and how they are used), one\n\
         packet after the other: all bits of the sums matter. Subnormal numbers are zeros. A slot begins with +0.",
        RegionConfig { cells: cases + 1, ..TABLE },
    );
    let mut seq = 0;
    for (cell, (why, values, _)) in (0..).zip(TABLE_CASES) {
        scene.note(why);
        for &value in *values {
            scene.taken(worker(0), &packet(header(Kind::Push, 0, seq), &[(cell, value)]));
            seq += 1;
        }
    }
    scene.flip(REGION);
    let sums = scene.drain(REGION);
    // The comments above were written without running the code.
    for (slot, (why, values, bits)) in (0..).zip(TABLE_CASES) {
        let found = sums.0.get(&slot).copied().unwrap_or_default();
        match bits {
            Some(bits) => assert_eq!(found, *bits, "{why}"),
            None => {
                let right: f64 = values.iter().map(|&value| f64::from(f32::from_bits(value))).sum();
                let largest =
                    values.iter().map(|&value| f64::from(f32::from_bits(value)).abs()).fold(0.0, f64::max);
                assert!(
                    (f64::from(f32::from_bits(found)) - right).abs() <= 0.008 * largest,
                    "{why}: {found:#x}"
                );
            }
        }
    }
    scene
}
