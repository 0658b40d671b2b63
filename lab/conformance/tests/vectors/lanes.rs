//! Regions of 16 lanes, as hardware has them: a register for each place of a packet.

use libra_conformance::Sender;
use libra_dataplane::{Flags, Header, Kind, RegionConfig};

use crate::scene::{F32, FIXED, OPEN, REGION, Scene, header, packet, push, worker};

pub(crate) fn scenes() -> Vec<Scene> {
    vec![fixed(), malformed(), agent(), f32()]
}

const LANES: u8 = 16;
const PADDING: u16 = 7;
/// Cells 0 to 6 of 16 lanes, and 7 for padding.
const CONFIG: RegionConfig = RegionConfig { lanes: LANES, cells: PADDING + 1, ..FIXED };

fn fixed() -> Scene {
    let mut scene = Scene::with(
        "lanes-fixed",
        "Entry p of a packet is in lane p % 16: slot = cell * 16 + lane. In each lane cells strictly increase; between lanes they need not.",
        CONFIG,
    );
    scene.note("One packet through all lanes, every one with the same cell.");
    let row: Vec<_> = (0..16).map(|lane| (2, lane + 1)).collect();
    scene.taken(worker(0), &push(0, 0, &row));
    scene.note("Cells that descend from lane to lane, and increase in each.");
    let zigzag: Vec<_> = (0..32).map(|place| (if place < 16 { (16 - place) / 4 } else { 6 }, 100)).collect();
    let zigzag: Vec<_> =
        zigzag.into_iter().map(|(cell, value)| (u16::try_from(cell).unwrap(), value)).collect();
    scene.taken(worker(0), &push(0, 1, &zigzag));
    scene.note("Padding where a lane has nothing to add, and fewer entries than lanes.");
    let mut sparse = vec![(PADDING, 0); 37];
    for (place, cell) in [(1, 0), (4, 2), (5, 3), (17, 4), (20, 5), (36, 6)] {
        sparse[place] = (cell, 7);
    }
    scene.taken(worker(1), &push(1, 0, &sparse));
    scene.taken(worker(1), &push(1, 1, &[(6, -1), (PADDING, 0), (0, -1)]));
    scene.taken(worker(1), &push(1, 2, &[(6, -1)]));
    scene.taken(worker(1), &push(1, 3, &[]));
    scene.taken(worker(1), &push(1, 4, &[(PADDING, 0); 16]));
    scene.duplicate(worker(1), &push(1, 0, &sparse), OPEN);
    scene.bank(REGION);
    scene.close_round(REGION, 2);
    scene.note("As many entries as a packet holds: 112 fill the region, then padding.");
    let full: Vec<_> = (0..112).map(|place| (u16::try_from(place / 16).unwrap(), place)).collect();
    scene.taken(worker(0), &push(0, 2, &full));
    let full = [full, vec![(PADDING, 0); 255 - 112]].concat();
    scene.taken(worker(0), &push(0, 3, &full));
    scene.close_round(REGION, 1);
    scene
}

fn malformed() -> Scene {
    let mut scene = Scene::with(
        "lanes-malformed",
        "What a region of 16 lanes cannot take: in one lane a cell that does not increase, beyond the region, or behind padding.",
        CONFIG,
    );
    let sound: Vec<_> = (0..40).map(|place| (u16::try_from(place / 16 * 2).unwrap(), 1)).collect();
    let with = |place: usize, entry| {
        let mut entries = sound.clone();
        entries[place] = entry;
        push(0, 0, &entries)
    };
    scene.note("Equal in lane 0; descending in lane 15.");
    scene.malformed(worker(0), &with(16, (0, 1)));
    scene.malformed(worker(0), &with(15, (3, 1)));
    scene.note("Beyond the region, in the first and the last entry; bit 15.");
    for place in [0, 39] {
        for cell in [8, 0x7FFF, 0x8000, 0x8002] {
            scene.malformed(worker(0), &with(place, (cell, 1)));
        }
    }
    scene.note("Padding with a value; a cell behind padding of its lane.");
    scene.malformed(worker(0), &with(3, (PADDING, 1)));
    scene.malformed(worker(0), &with(3, (PADDING, 0)));
    scene.note("Out of bounds.");
    scene.malformed(worker(0), &with(20, (2, 1 << 19)));
    scene.malformed(worker(0), &with(20, (2, i32::MIN)));
    scene.bank(REGION);
    scene.note("Padding behind the last cell of its lane.");
    scene.taken(worker(0), &with(35, (PADDING, 0)));
    scene.close_round(REGION, 1);
    scene
}

fn agent() -> Scene {
    let mut scene = Scene::with(
        "lanes-agent",
        "INSTALL, PULL, PUSH with VALUES and DRAIN address slots by the place of an entry, as PUSH does. They do not ask for an order.",
        CONFIG,
    );
    let row = |cell: u16, value: u32| (0..16).map(move |lane| (cell, value + lane)).collect::<Vec<_>>();
    let agent = Sender::Agent;
    let install = header(Kind::Install, 0, 0);
    scene.taken(agent, &packet(install, &[row(6, 0x600), row(0, 0x100), row(3, 0x300)].concat()));
    scene.note("Padding before the place of lane 2.");
    scene.taken(agent, &packet(install, &[(PADDING, 0), (PADDING, 0), (1, 0xABC)]));
    scene.malformed(agent, &packet(install, &[(0, 1), (PADDING, 1)]));
    scene.malformed(agent, &packet(install, &[(0, 1), (8, 0)]));
    scene.values(REGION);
    scene.note("By the agent's own way.");
    scene.install(REGION, &[(5 * 16 + 9, 0x59), (1, 0x77)]);
    scene.readable(REGION, true);
    scene.taken(worker(0), &packet(header(Kind::Pull, 0, 0), &[row(6, 0), row(0, 0), row(5, 0)].concat()));
    scene.taken(worker(0), &packet(header(Kind::Pull, 0, 1), &[(PADDING, 5), (0, 5), (1, 5), (6, 5)]));
    scene.malformed(worker(0), &packet(header(Kind::Pull, 0, 1), &[(0, 0), (8, 0)]));
    let with_values = Header { flags: Flags::VALUES, ..header(Kind::Push, 0, 0) };
    scene.taken(worker(0), &packet(with_values, &[row(0, 1), row(3, 2)].concat()));
    scene.flip(REGION);
    let drain = header(Kind::Drain, 0, 0);
    scene.taken(agent, &packet(drain, &row(3, 0)));
    scene.taken(agent, &packet(drain, &row(0, 0)[..15]));
    scene.malformed(agent, &packet(drain, &[(0, 0), (8, 0)]));
    assert_eq!(scene.flip(REGION), None);
    scene.drain(REGION);
    scene.flip(REGION);
    scene
}

fn f32() -> Scene {
    let mut scene = Scene::with(
        "lanes-f32",
        "Single precision in 16 lanes.",
        RegionConfig { lanes: LANES, cells: PADDING + 1, ..F32 },
    );
    for seq in 0..6_u16 {
        let entries: Vec<_> = (0..20_u16)
            .map(|place| {
                let value = f32::from(place * 7 + seq) * if seq % 2 == 0 { 0.1 } else { -0.3 };
                (place / 16 * 2 + 1, value.to_bits())
            })
            .collect();
        scene.taken(worker(0), &packet(header(Kind::Push, 0, u32::from(seq)), &entries));
    }
    scene.malformed(worker(0), &packet(header(Kind::Push, 0, 9), &[(0, 0), (0, 0x7F80_0000)]));
    scene.malformed(worker(0), &packet(header(Kind::Push, 0, 9), &[(0, 0), (PADDING, 0x8000_0000)]));
    scene.close_round(REGION, 1);
    scene
}
