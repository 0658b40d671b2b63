//! Bytes that are no packet, or not one that its region can take.

use libra_dataplane::{ENTRIES_MAX, Flags, HEADER_BYTES, Header, Kind, RegionConfig};

use crate::scene::{FIXED, JOB, OPEN, REGION, Scene, header, packet, push, worker};

pub(crate) fn scenes() -> Vec<Scene> {
    vec![header_bytes(), lengths(), truncated(), cells(), padding(), unchecked(), most_entries()]
}

/// A sound push with one byte of it replaced.
fn with_byte(at: usize, byte: u8) -> Vec<u8> {
    let mut packet = push(0, 0, &[(3, 5)]);
    packet[at] = byte;
    packet
}

fn header_bytes() -> Scene {
    let mut scene = Scene::with(
        "malformed-header",
        "Another magic or version, an unknown kind or flag: dropped without an answer (rule W2).",
        FIXED,
    );
    scene.note("Magic.");
    for byte in [0, 0x4B, 0xCC, 0xFF] {
        scene.malformed(worker(0), &with_byte(0, byte));
    }
    scene.note("Kind.");
    for byte in [0, 8, 0x81, 0xFF] {
        scene.malformed(worker(0), &with_byte(1, byte));
    }
    scene.note("Flags.");
    for byte in [0x08, 0x10, 0x20, 0x40, 0x80, 0xFF] {
        scene.malformed(worker(0), &with_byte(2, byte));
    }
    scene.note("Version.");
    for byte in [0, 1, 2, 4, 0xFF] {
        scene.malformed(worker(0), &with_byte(13, byte));
    }
    scene.note("That it names another worker does not matter then.");
    scene.malformed(worker(1), &with_byte(0, 0));
    scene.note("All flags that mean something.");
    for flags in 0..8 {
        let flags = Flags::from_bits(flags).unwrap();
        scene.taken(
            worker(0),
            &packet(Header { flags, ..header(Kind::Push, 0, u32::from(flags.bits())) }, &[]),
        );
    }
    scene.bank(REGION);
    scene
}

fn lengths() -> Scene {
    let mut scene = Scene::with(
        "malformed-length",
        "The length of the datagram must be the one that the number of entries makes (rule W2).",
        FIXED,
    );
    let sound = push(0, 0, &[(3, 5), (4, 6)]);
    scene.note("Oversized: by a byte, by an entry, by much; and a header with something behind it.");
    for more in [1, 5, 6, 7, 1500] {
        scene.malformed(worker(0), &[sound.clone(), vec![0; more]].concat());
    }
    for more in [1, 6] {
        scene.malformed(worker(0), &[push(0, 0, &[]), vec![0; more]].concat());
    }
    scene.note("A number of entries that the length does not make.");
    for entries in [0, 1, 3, 255] {
        let mut wrong = sound.clone();
        wrong[3] = entries;
        scene.malformed(worker(0), &wrong);
    }
    scene.note("256 entries more than the number says: the lower 8 bits agree.");
    scene.malformed(worker(0), &[push(0, 0, &[]), vec![0; 256 * 6]].concat());
    scene.note("So it is with pulls.");
    let pull = packet(header(Kind::Pull, 0, 0), &[(3, 0)]);
    scene.malformed(worker(0), &[&pull[..], &[0]].concat());
    scene.malformed(worker(0), &pull[..pull.len() - 1]);
    scene.taken(worker(0), &sound);
    scene
}

fn truncated() -> Scene {
    let mut scene =
        Scene::with("malformed-truncated", "A push of two entries, cut off at each byte (rule W2).", FIXED);
    let sound = push(0, 0, &[(3, 5), (4, 6)]);
    for bytes in 0..sound.len() {
        scene.malformed(worker(0), &sound[..bytes]);
    }
    scene.bank(REGION);
    scene.acked(REGION, 0);
    scene.taken(worker(0), &sound);
    scene
}

fn cells() -> Scene {
    let mut scene = Scene::with(
        "malformed-cells",
        "In a push cells must be in the region and strictly increase (rule W5). A push with one wrong entry is dropped whole. The\n\
         region has cells 0 to 8, and 9 for padding.",
        FIXED,
    );
    scene.note("Beyond the region; bit 15.");
    for cell in [10, 11, 0x7FFF, 0x8000, 0x8003, 0xFFFF] {
        scene.malformed(worker(0), &push(0, 0, &[(3, 1), (cell, 1)]));
        scene.malformed(worker(0), &push(0, 0, &[(cell, 0)]));
    }
    scene.note("Equal and descending: at the beginning, inside, at the end; far apart.");
    for wrong in
        [&[3, 3][..], &[3, 2], &[0, 0], &[0, 1, 2, 3, 4, 4, 5, 6], &[0, 1, 2, 3, 4, 5, 7, 6], &[1, 0, 2]]
    {
        let entries: Vec<_> = wrong.iter().map(|&cell| (cell, 1)).collect();
        scene.malformed(worker(0), &push(0, 0, &entries));
    }
    scene.note("Nothing of these was taken.");
    scene.bank(REGION);
    scene.note("From the first to the last.");
    let all: Vec<_> = (0..9).map(|cell| (cell, 1)).collect();
    scene.taken(worker(0), &push(0, 0, &all));
    scene.taken(worker(0), &push(0, 1, &[(0, 2), (8, 3)]));
    scene.close_round(REGION, 1);
    scene
}

fn padding() -> Scene {
    let mut scene = Scene::with(
        "malformed-padding",
        "The last cell, 9, is padding: it may come often, with value 0, and adds nothing (rule W5).",
        FIXED,
    );
    scene.taken(worker(0), &push(0, 0, &[(3, 5), (9, 0)]));
    scene.taken(worker(0), &push(0, 1, &[(3, 5), (9, 0), (9, 0), (9, 0)]));
    scene.taken(worker(0), &push(0, 2, &[(9, 0)]));
    scene.taken(worker(0), &push(0, 3, &[(9, 0), (9, 0)]));
    scene.note("With a value it is malformed.");
    for wrong in [1, -1, i32::MIN] {
        scene.malformed(worker(0), &push(0, 4, &[(3, 5), (9, wrong)]));
        scene.malformed(worker(0), &push(0, 4, &[(3, 5), (9, wrong), (9, 0)]));
    }
    scene.note("Behind padding nothing else follows: cells would decrease.");
    scene.malformed(worker(0), &push(0, 4, &[(3, 5), (9, 0), (4, 1)]));
    scene.malformed(worker(0), &push(0, 4, &[(9, 0), (3, 5), (9, 0)]));
    scene.bank(REGION);
    scene.close_round(REGION, 1);
    scene.readable(REGION, true);
    scene.note("A pull may ask for it; its value is zero.");
    scene.taken(worker(0), &packet(header(Kind::Pull, 0, 0), &[(9, 0), (3, 0), (9, 0)]));
    scene
}

fn unchecked() -> Scene {
    let mut scene = Scene::with(
        "malformed-not",
        "What is not malformed though it looks odd: fields of a request that only answers use, a tag, values of a pull, and cells of a\n\
         pull in any order. The tag of every answer is zero.",
        FIXED,
    );
    let odd = |kind, seq| Header { round: 0x1234, durable: 0xFFFF, tag: u64::MAX, ..header(kind, 0, seq) };
    scene.taken(worker(0), &packet(odd(Kind::Push, 0), &[(3, 5)]));
    scene.install(REGION, &[(0, 1), (3, 2), (8, 0xFFFF_FFFF)]);
    scene.readable(REGION, true);
    scene.taken(worker(0), &packet(odd(Kind::Pull, 0), &[(8, 1), (3, 0xFFFF_FFFF), (3, 7), (0, 9), (9, 4)]));
    let flags = Flags::from_bits(7).unwrap();
    scene.taken(worker(0), &packet(Header { flags, ..odd(Kind::Pull, 1) }, &[(0, 0)]));
    scene.note("A pull answers only cells that are there, all or nothing.");
    for cell in [10, 0x7FFF, 0x8000, 0xFFFF] {
        scene.malformed(worker(0), &packet(odd(Kind::Pull, 2), &[(0, 0), (cell, 0)]));
    }
    scene.note("A push without entries is taken like any other.");
    scene.taken(worker(0), &push(0, 1, &[]));
    scene.duplicate(worker(0), &push(0, 1, &[]), OPEN);
    scene.bank(REGION);
    scene.note("And closes a round without sums.");
    scene.flip(REGION);
    scene.drain(REGION);
    scene.taken(worker(0), &push(0, 2, &[]));
    scene.close_round(REGION, 1);
    scene
}

fn most_entries() -> Scene {
    let mut scene = Scene::with(
        "malformed-most-entries",
        "255 entries, which one byte can count, in a datagram of 1,560 bytes, which few paths let through.",
        RegionConfig { cells: 1000, ..FIXED },
    );
    let entries: Vec<_> =
        (0..u16::try_from(ENTRIES_MAX).unwrap()).map(|place| (place * 3, i32::from(place) - 100)).collect();
    let most = push(0, 0, &entries);
    assert_eq!(most.len(), HEADER_BYTES + 255 * 6);
    scene.taken(worker(0), &most);
    scene.note("One wrong entry at the end.");
    let mut wrong = most.clone();
    wrong[HEADER_BYTES + 254 * 6 + 1] = 0;
    scene.malformed(worker(0), &wrong);
    scene.malformed(worker(0), &most[..most.len() - 1]);
    scene.malformed(worker(0), &[most.clone(), vec![0; 6]].concat());
    scene.close_round(REGION, 1);
    scene.install(REGION, &[(0, 1), (3 * 254, 2), (998, 3)]);
    scene.readable(REGION, true);
    let cells: Vec<_> = entries.iter().map(|&(cell, _)| (cell, 0)).collect();
    let pull = Header { job: JOB, ..header(Kind::Pull, 0, 0) };
    scene.taken(worker(0), &packet(pull, &cells));
    let with_values = Header { flags: Flags::VALUES, ..header(Kind::Push, 0, 1) };
    let entries: Vec<_> = entries.iter().map(|&(cell, value)| (cell, value.cast_unsigned())).collect();
    scene.taken(worker(0), &packet(with_values, &entries));
    scene
}
