//! Reads of workers, and packets by which the agent writes and drains.

use libra_conformance::Sender;
use libra_dataplane::{Flags, Header, Kind, NackReason, RegionConfig};

use crate::scene::{
    AFTER, FIXED, OPEN, PLAN, Profile, REGION, Scene, UNSOUND, VIEW, header, packet, push, worker,
};

pub(crate) fn scenes() -> Vec<Scene> {
    let of = |profile| [pull(profile), push_with_values(profile)];
    Profile::BOTH.into_iter().flat_map(of).chain([install(), drain()]).collect()
}

fn pull(profile: Profile) -> Scene {
    let mut scene = Scene::with_of(
        profile,
        "values-pull",
        "A PULL is answered with the values of its cells, in its order, once there are values (rule W10).",
        FIXED,
    );
    let probe = packet(header(Kind::Pull, 0, u32::MAX - 1), &[]);
    let pull = packet(header(Kind::Pull, 0, 0), &[(2, 0), (0, 0), (8, 0)]);
    scene.taken(worker(0), &probe);
    scene.refused(worker(0), &pull, NackReason::NotInstalled);
    let slots = [(0, 2), (1, 0), (2, 8)].map(|(place, cell)| scene.slot(place, cell));
    scene.install(REGION, &[(slots[1], 0x3F80_0000), (slots[0], 0xBF80_0000), (slots[2], 1)]);
    scene.note("Written, but not yet readable: the shard has not installed all.");
    scene.refused(worker(0), &pull, NackReason::NotInstalled);
    scene.readable(REGION, true);
    let answer = scene.taken(worker(0), &pull);
    assert_eq!(answer.header.flags, Flags::VALUES);
    assert_eq!(answer.entries[0].value, 0xBF80_0000);
    scene.taken(worker(0), &probe);
    scene.note("Gradients do not change values; an answer says which round is open and which is durable.");
    scene.taken(worker(0), &push(0, 0, &[(0, 1)]));
    scene.close_round(REGION, 1);
    scene.taken(worker(1), &packet(header(Kind::Pull, 1, 7), &[(0, 0)]));
    scene.install(REGION, &[(0, 0x4000_0000)]);
    scene.durable(REGION, OPEN);
    let answer = scene.taken(worker(1), &packet(header(Kind::Pull, 1, 7), &[(0, 0)]));
    assert_eq!((answer.header.round, answer.header.durable), (OPEN.wrapping_add(1), OPEN));
    scene.taken(worker(0), &probe);
    scene.note("The same number again is answered again.");
    scene.taken(worker(1), &packet(header(Kind::Pull, 1, 7), &[(1, 0)]));
    scene.values(REGION);
    scene
}

fn push_with_values(profile: Profile) -> Scene {
    let mut scene = Scene::with_of(
        profile,
        "values-push",
        "A PUSH with VALUES is answered with values if the region has them, and by an ACK without if not; it is added either way (rule W9).",
        FIXED,
    );
    let ask = |seq, flags: Flags| Header { flags: flags.with(Flags::VALUES), ..header(Kind::Push, 0, seq) };
    let entries = [(1, 10), (4, 20), (9, 0)];
    scene.install(REGION, &[(scene.slot(0, 1), 0xAAAA_AAAA), (scene.slot(1, 4), 0xBBBB_BBBB)]);
    let answer = scene.taken(worker(0), &packet(ask(0, Flags::NONE), &entries));
    assert_eq!((answer.header.flags, answer.header.entries), (Flags::NONE, 0));
    scene.readable(REGION, true);
    let answer = scene.taken(worker(0), &packet(ask(1, Flags::LAST), &entries));
    let entries_of_packet = if profile.is_wired() { Profile::LANES } else { 3 };
    assert_eq!((answer.header.flags, answer.header.entries), (Flags::VALUES, entries_of_packet));
    scene.note("A duplicate gets values too.");
    scene.duplicate(worker(0), &packet(ask(0, Flags::RETRANSMIT), &entries), OPEN);
    if !profile.is_wired() {
        scene.note("Without entries, an ACK with VALUES and none.");
        scene.taken(worker(0), &packet(ask(2, Flags::NONE), &[]));
    }
    scene.note("Refused or malformed, no values.");
    let unsound = UNSOUND.map(|(cell, value)| (cell, value.cast_unsigned()));
    scene.malformed(worker(0), &packet(ask(3, Flags::NONE), &unsound));
    scene.active(REGION, false);
    scene.refused(worker(0), &packet(ask(3, Flags::NONE), &entries), NackReason::Inactive);
    scene.active(REGION, true);
    scene.bank(REGION);
    scene.close_round(REGION, 1);
    scene
}

fn install() -> Scene {
    let mut scene = Scene::with(
        "agent-install",
        "INSTALL packets of the agent: all entries are written or, if one cell is not there, none. Flows and numbers do not matter.",
        FIXED,
    );
    let agent = Sender::Agent;
    let head = Header { worker: 0xFFFF, ..header(Kind::Install, 0, 77) };
    let answer = scene.taken(agent, &packet(head, &[(3, 0x3F80_0000), (0, 7), (8, 9)]));
    assert_eq!((answer.header.kind, answer.header.round, answer.header.durable), (Kind::Ack, OPEN, AFTER));
    scene.note("In any order, and twice: the last one stays. Padding with value 0 is left as it is.");
    scene.taken(agent, &packet(head, &[(5, 1), (5, 2), (9, 0), (4, 3)]));
    scene.taken(agent, &packet(head, &[]));
    scene.values(REGION);
    scene.note("A cell that is not there, or a value for padding.");
    for wrong in [(10, 0), (0x7FFF, 0), (0x8000, 0), (9, 1)] {
        scene.malformed(agent, &packet(head, &[(0, 0xFFFF), wrong]));
        scene.malformed(agent, &packet(head, &[wrong, (0, 0xFFFF)]));
    }
    scene.note("Plan, then view, are checked.");
    let stale = Header { plan: PLAN + 1, view: VIEW + 1, ..head };
    scene.refused(agent, &packet(stale, &[(0, 0xFFFF)]), NackReason::StalePlan);
    scene.refused(agent, &packet(Header { plan: PLAN, ..stale }, &[(0, 0xFFFF)]), NackReason::StaleView);
    scene.refused(agent, &packet(Header { region: 9, ..head }, &[(0, 0xFFFF)]), NackReason::UnknownFlow);
    scene.values(REGION);
    scene.note("A value can become zero again; while the region is inactive, too.");
    scene.active(REGION, false);
    scene.taken(agent, &packet(head, &[(3, 0)]));
    scene.values(REGION);
    scene.note("No data plane takes answers and streams.");
    for kind in [Kind::Ack, Kind::Nack, Kind::Stream] {
        scene.unexpected(agent, &packet(header(kind, 0, 0), &[]));
        scene.unexpected(agent, &packet(Header { region: 9, ..header(kind, 0, 0) }, &[]));
    }
    scene.malformed(agent, &packet(head, &[(0, 1)])[..35]);
    scene
}

fn drain() -> Scene {
    let mut scene = Scene::with(
        "agent-drain",
        "DRAIN packets of the agent read and clear cells of the idle bank; the answer names the round of that bank. A flip is refused\n\
         until nothing is left (rule D5).",
        RegionConfig { cells: 30, ..FIXED },
    );
    let agent = Sender::Agent;
    let head = Header { worker: 3, ..header(Kind::Drain, 0, 5) };
    scene.taken(worker(0), &push(0, 0, &[(0, 1), (7, 2), (8, 3), (28, -4)]));
    scene.note("The idle bank is empty, whatever the active one holds.");
    scene.taken(agent, &packet(head, &[(0, 9), (7, 9)]));
    scene.flip(REGION);
    scene.taken(worker(0), &push(0, 1, &[(0, 100), (28, 100)]));
    scene.note("Some cells, in any order, and one twice: then it is empty.");
    let answer = scene.taken(agent, &packet(head, &[(8, 0), (0, 0), (8, 0), (29, 0)]));
    assert_eq!(answer.header.round, OPEN);
    assert_eq!(answer.entries.iter().map(|entry| entry.value).collect::<Vec<_>>(), [3, 1, 0, 0]);
    assert_eq!(scene.flip(REGION), None);
    scene.note("A cell that is not there: nothing is taken out.");
    for cell in [30, 0x7FFF, 0x8000] {
        scene.malformed(agent, &packet(head, &[(7, 0), (cell, 0)]));
    }
    let stale = Header { plan: PLAN + 1, view: VIEW + 1, ..head };
    scene.refused(agent, &packet(stale, &[(7, 0)]), NackReason::StalePlan);
    scene.refused(agent, &packet(Header { plan: PLAN, ..stale }, &[(7, 0)]), NackReason::StaleView);
    scene.refused(agent, &packet(Header { region: 9, ..head }, &[(7, 0)]), NackReason::UnknownFlow);
    scene.note("The rest; now the bank may be flipped.");
    scene.taken(agent, &packet(head, &[(7, 0), (28, 0)]));
    assert_eq!(scene.flip(REGION), Some(OPEN + 1));
    scene.note("By packets and by the agent's own way, mixed.");
    scene.taken(agent, &packet(head, &[(28, 0)]));
    scene.taken(agent, &packet(head, &[]));
    scene.drain(REGION);
    scene.flip(REGION);
    scene
}
