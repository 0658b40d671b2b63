//! Cases that only packets with an entry for each of 16 lanes can show, and those that such packets leave out.

use libra_conformance::{Need, RegionName, Sender, WorkerName};
use libra_dataplane::{Flags, Header, Kind, NackReason, RegionConfig};

use crate::scene::{
    FIXED, JOB, OPEN, PLAN, Profile, REGION, Scene, UNSOUND, VIEW, header, packet, push, worker,
};

pub(crate) fn scenes() -> Vec<Scene> {
    vec![lanes(), malformed(), bound(), headroom(), agent(), strict()]
}

const LANES: u16 = Profile::LANES as u16;
const BOUND: i32 = (1 << 19) - 1;
/// Cells 0 to 7 hold rows, 8 is for padding.
const PADDING: u16 = 8;
const CONFIG: RegionConfig = RegionConfig { cells: PADDING + 1, ..FIXED };

fn scene(file: &'static str, about: &str) -> Scene {
    Scene::with_of(Profile::Wired, file, about, CONFIG)
}

/// An entry for each lane.
fn row<T>(entry: impl Fn(u16) -> (u16, T)) -> Vec<(u16, T)> {
    (0..LANES).map(entry).collect()
}

/// The same with one entry replaced.
fn with_entry<T>(mut entries: Vec<(u16, T)>, lane: u16, entry: (u16, T)) -> Vec<(u16, T)> {
    entries[usize::from(lane)] = entry;
    entries
}

/// A number of a lane that is no other's.
fn number(lane: u16) -> i32 {
    i32::from(lane + 1) * if lane.is_multiple_of(2) { 1000 } else { -999 }
}

fn lanes() -> Scene {
    let mut scene = scene(
        "lanes",
        "Entry p is in lane p: slot = cell * 16 + p. Cells of a packet need no order between lanes, and each lane has padding of its own.",
    );
    let from = worker(0);
    scene.note("One cell in all lanes; then another in each.");
    scene.taken(from, &push(0, 0, &row(|lane| (2, number(lane)))));
    scene.taken(from, &push(0, 1, &row(|lane| ((lane * 5 + 3) % PADDING, number(lane)))));
    scene.note("One lane after the other, padding in all others.");
    for lane in 0..LANES {
        let only = with_entry(row(|_| (PADDING, 0)), lane, (lane % PADDING, number(lane)));
        scene.taken(from, &push(0, 2 + u32::from(lane), &only));
    }
    scene.note("The first cell and the last one; padding alone.");
    scene.taken(
        worker(1),
        &push(1, 0, &row(|lane| (if lane.is_multiple_of(2) { 0 } else { PADDING - 1 }, 7))),
    );
    scene.taken(worker(1), &push(1, 1, &row(|_| (PADDING, 0))));
    scene.bank(REGION);
    scene.close_round(REGION, 2);
    scene.note("The other bank has none of it. Values are of lanes, too.");
    scene.taken(from, &push(0, 18, &row(|lane| (2, -number(lane)))));
    let value = |slot: u32| (slot, 0x0101_0000 + slot);
    scene.install(REGION, &(0..u32::from(PADDING * LANES)).map(value).collect::<Vec<_>>());
    scene.readable(REGION, true);
    for step in [0, 1, 3] {
        let cells = row(|lane| ((lane * step + 1) % (PADDING + 1), 0));
        scene.taken(from, &packet(header(Kind::Pull, 0, 0), &cells));
    }
    let ask = Header { flags: Flags::VALUES, ..header(Kind::Push, 1, 2) };
    let answer = scene.taken(worker(1), &packet(ask, &row(|lane| (lane % PADDING, 1))));
    assert!((0..LANES).zip(&answer.entries).all(|(lane, entry)| {
        entry.value == value(u32::from(lane % PADDING * LANES + lane)).1 && entry.cell == lane % PADDING
    }));
    scene.close_round(REGION, 2);
    scene.values(REGION);
    scene
}

fn malformed() -> Scene {
    let mut scene = scene(
        "malformed",
        "Bytes that are no packet, and packets that a region does not take, are dropped, and nothing of them is left (rules W2, W5).",
    );
    let from = worker(0);
    let sound = push(0, 0, &row(|lane| (3, number(lane))));
    let with_byte = |at: usize, byte: u8| {
        let mut packet = sound.clone();
        packet[at] = byte;
        packet
    };
    for (what, at, bytes) in [
        ("Magic.", 0, &[0, 0x4B, 0xCC, 0xFF][..]),
        ("Kind.", 1, &[0, 5, 6, 7, 8, 9, 0x81, 0xFF]),
        ("Flags.", 2, &[0x08, 0x10, 0x20, 0x40, 0x80, 0xFF]),
        ("Entries, which the length does not make.", 3, &[0, 1, 15, 17, 255]),
        ("Version.", 13, &[0, 1, 2, 4, 0xFF]),
    ] {
        scene.note(what);
        for &byte in bytes {
            assert_eq!(scene.send(from, &with_byte(at, byte)), None);
        }
    }
    scene.note("Cut off at each byte.");
    for bytes in 0..sound.len() {
        scene.malformed(from, &sound[..bytes]);
    }
    scene.note("Longer, by a byte, an entry, and much; a header with something behind it.");
    let probe = packet(header(Kind::Pull, 0, 0), &[]);
    for more in [1, 5, 6, 7, 600] {
        scene.malformed(from, &[&sound[..], &vec![0; more]].concat());
        scene.malformed(from, &[&probe[..], &vec![0; more]].concat());
    }
    scene.note("A cell beyond all regions, in each lane; bit 15.");
    for lane in 0..LANES {
        for cell in [UNSOUND[0].0, 0x8000, 0x8003, 0xFFFF] {
            let wrong = with_entry(row(|_| (3, 1)), lane, (cell, 1));
            scene.malformed(from, &push(0, 0, &wrong));
            scene.malformed(from, &push(0, 0, &with_entry(row(|_| (PADDING, 0)), lane, (cell, 0))));
        }
    }
    scene.note("The number that is never used.");
    scene.malformed(from, &push(0, u32::MAX, &row(|_| (3, 1))));
    scene.note("So it is with pulls.");
    scene.readable(REGION, true);
    for lane in 0..LANES {
        let wrong = with_entry(row(|_| (3, 0)), lane, (UNSOUND[0].0, 0));
        scene.malformed(from, &packet(header(Kind::Pull, 0, 0), &wrong));
    }
    scene.note(
        "Fields that only answers use, and values of a pull, do not matter. The tag of every answer is zero.",
    );
    let odd = |kind, seq| Header { round: 0x1234, durable: 0xFFFF, ..header(kind, 0, seq) };
    scene.taken(from, &packet(odd(Kind::Pull, 9), &row(|lane| (lane % PADDING, 0xFFFF_FFFF))));
    let flags = Flags::from_bits(7).unwrap();
    scene.taken(from, &packet(Header { flags, ..odd(Kind::Pull, 1) }, &row(|_| (0, 0))));
    scene.bank(REGION);
    scene.note("Nothing of all that was taken, nor remembered.");
    scene.taken(from, &sound);
    scene.taken(from, &packet(odd(Kind::Push, 1), &row(|lane| (lane % PADDING, 1))));
    scene.close_round(REGION, 2);
    scene
}

fn bound() -> Scene {
    let mut scene = scene(
        "bound",
        "Fixed point: values are two's complement, at most the bound in magnitude, in each lane (rule W5). The bound is 524,287.",
    );
    let from = worker(0);
    scene.taken(from, &push(0, 0, &row(|lane| (0, if lane.is_multiple_of(2) { BOUND } else { -BOUND }))));
    scene.taken(from, &push(0, 1, &row(|lane| (1, if lane.is_multiple_of(2) { -1 } else { 0 }))));
    for lane in 0..LANES {
        for wrong in [BOUND + 1, -BOUND - 2, i32::MAX, i32::MIN, i32::MIN + 1, i32::MAX - BOUND] {
            scene.malformed(from, &push(0, 2, &with_entry(row(|_| (2, 1)), lane, (2, wrong))));
        }
    }
    scene.taken(from, &push(0, 2, &row(|lane| (0, if lane.is_multiple_of(2) { BOUND } else { -BOUND }))));
    scene.close_round(REGION, 1);
    scene.note("A PULL and an INSTALL have any values.");
    let any = packet(header(Kind::Pull, 0, 0), &row(|lane| (0, 0x8000_0000 + u32::from(lane))));
    scene.install(REGION, &[(0, 0x8000_0000), (1, 0x7FFF_FFFF)]);
    scene.readable(REGION, true);
    scene.taken(from, &any);
    scene
}

fn headroom() -> Scene {
    let mut scene = scene(
        "headroom",
        "4,096 packets of the highest values either way: a full bank just does not overflow, and takes no more (rule D4).",
    );
    let from = worker(0);
    let most = |seq| {
        push(0, seq, &row(|lane| (lane % PADDING, if lane.is_multiple_of(2) { BOUND } else { -BOUND })))
    };
    scene.send_times(2000, from, &most(0));
    scene.send_times(2096, from, &most(2000));
    scene.refused(from, &most(4096), NackReason::BankFull);
    scene.bank(REGION);
    let sums = scene.close_round(REGION, 1);
    assert_eq!(sums.0.get(&0), Some(&(4096 * BOUND).cast_unsigned()));
    scene.taken(from, &most(4096));
    scene.close_round(REGION, 1);
    scene
}

fn agent() -> Scene {
    let mut scene = scene(
        "agent",
        "INSTALL and DRAIN packets of the agent, an entry for each lane: one writes values, the other takes sums out of the idle bank.",
    );
    let agent = Sender::Agent;
    let install = Header { worker: 1, ..header(Kind::Install, 0, 77) };
    let value = |lane: u16| 0x0200_0000 + u32::from(lane);
    scene.taken(agent, &packet(install, &row(|lane| (lane % PADDING, value(lane)))));
    scene.note("Padding is left as it is; a value can become zero again.");
    scene.taken(agent, &packet(install, &with_entry(row(|_| (PADDING, 0)), 3, (5, 0xABC))));
    scene.taken(agent, &packet(install, &with_entry(row(|_| (PADDING, 0)), 2, (2, 0))));
    scene.values(REGION);
    scene.note("A cell beyond all regions, in each lane.");
    for lane in 0..LANES {
        let wrong = with_entry(row(|_| (0, 9)), lane, (UNSOUND[0].0, 0));
        scene.malformed(agent, &packet(install, &wrong));
    }
    scene.values(REGION);
    scene.note("Plan, then view, are checked, and whether the region is here.");
    let drain = Header { worker: 1, ..header(Kind::Drain, 0, 5) };
    for head in [install, drain] {
        let entries = row(|_| (1, 1));
        let stale = Header { plan: PLAN + 1, view: VIEW + 1, ..head };
        scene.refused(agent, &packet(stale, &entries), NackReason::StalePlan);
        scene.refused(agent, &packet(Header { plan: PLAN, ..stale }, &entries), NackReason::StaleView);
        scene.refused(agent, &packet(Header { region: 9, ..head }, &entries), NackReason::UnknownFlow);
    }
    scene.note("Sums of the idle bank, not of the active one. What is taken out is gone.");
    scene.taken(worker(0), &push(0, 0, &row(|lane| (lane % PADDING, number(lane)))));
    scene.taken(worker(0), &push(0, 1, &row(|_| (6, 1))));
    scene.taken(agent, &packet(drain, &row(|lane| (lane % PADDING, 9))));
    scene.flip(REGION);
    scene.taken(worker(0), &push(0, 2, &row(|_| (6, 100))));
    let answer = scene.taken(agent, &packet(drain, &row(|_| (6, 9))));
    assert_eq!((answer.header.round, answer.entries[0].value), (OPEN, 1));
    scene.taken(agent, &packet(drain, &row(|lane| (if lane == 6 { 6 } else { 1 }, 0))));
    scene.note("While it is inactive, too.");
    scene.active(REGION, false);
    scene.taken(
        agent,
        &packet(drain, &row(|lane| (if lane.is_multiple_of(2) { lane % PADDING } else { PADDING }, 0))),
    );
    assert_eq!(scene.flip(REGION), None);
    scene.note("The rest, by the agent's own way.");
    scene.drain(REGION);
    scene.taken(agent, &packet(drain, &row(|lane| (lane % PADDING, 0))));
    scene.flip(REGION);
    scene.drain(REGION);
    scene.note("No data plane takes answers and streams.");
    for kind in [Kind::Ack, Kind::Nack, Kind::Stream] {
        scene.unexpected(agent, &packet(header(kind, 0, 0), &[]));
    }
    scene
}

fn strict() -> Scene {
    let mut scene = scene(
        "strict",
        "What no worker sends that keeps the rules is dropped or refused all the same, and new pushes alone use up room (rules W5, W6, D4).",
    );
    scene.needs(Need::Strict);
    let from = worker(0);
    scene.note("Cells that are not of the region, but of a switch that has others; a value for padding; the bound of the other sign.");
    for lane in 0..LANES {
        for wrong in [(PADDING + 1, 1), (0x7F, 1), (PADDING, 1), (0, -BOUND - 1)] {
            scene.malformed(from, &push(0, 0, &with_entry(row(|_| (3, 1)), lane, wrong)));
        }
    }
    scene.note("A worker that the region has no flow for.");
    scene.worker(WorkerName { job: JOB, worker: 2 });
    scene.refused(worker(2), &push(2, 0, &row(|_| (3, 1))), NackReason::UnknownFlow);
    scene.bank(REGION);
    scene.note(
        "A region whose banks take two packets: duplicates do not count, nor what is dropped or refused.",
    );
    let config = RegionConfig { region: 1, bank_packets_max: 2, ..CONFIG };
    scene.open(config, 0, &[]);
    let small = |seq| packet(Header { region: 1, ..header(Kind::Push, 0, seq) }, &row(|_| (3, 1)));
    scene.taken(from, &small(0));
    scene.duplicate_times(1, from, &small(0), 1);
    scene.duplicate_times(1, from, &small(0), 1);
    let head = Header { region: 1, ..header(Kind::Push, 0, 1) };
    scene.malformed(from, &packet(head, &row(|_| (3, 1 << 19))));
    let small_region = RegionName { job: JOB, region: 1 };
    scene.active(small_region, false);
    scene.refused(from, &small(1), NackReason::Inactive);
    scene.active(small_region, true);
    scene.taken(from, &small(1));
    scene.refused(from, &small(2), NackReason::BankFull);
    scene
}
