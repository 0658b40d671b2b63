//! Deduplication of packets that were taken before.

use libra_conformance::WorkerName;
use libra_dataplane::{Flags, Header, Kind, NackReason, RegionConfig, SEQ_MAX};

use crate::scene::{AFTER, FIXED, OPEN, Profile, REGION, Scene, UNSOUND, header, packet, push, worker};

pub(crate) fn scenes() -> Vec<Scene> {
    let of = |profile| {
        [
            duplicates(profile),
            generations(profile),
            last_number(profile),
            round_of_a_duplicate(profile),
            long_round(profile),
            resumed(profile),
        ]
    };
    Profile::BOTH.into_iter().flat_map(of).collect()
}

fn duplicates(profile: Profile) -> Scene {
    let mut scene = Scene::with_of(
        profile,
        "dedup-duplicates",
        "A duplicate is acknowledged and not added, whatever it holds now (rules D1, D2).",
        FIXED,
    );
    let from = worker(0);
    assert_eq!(scene.taken(from, &push(0, 0, &[(3, 40)])).header.round, OPEN);
    scene.note("The network has delivered it twice.");
    scene.duplicate(from, &push(0, 0, &[(3, 40)]), OPEN);
    scene.note("Its worker has sent it again.");
    let again = Header { flags: Flags::RETRANSMIT, ..header(Kind::Push, 0, 0) };
    scene.duplicate(from, &packet(again, &[(3, 40)]), OPEN);
    scene.note("The number alone says what is a duplicate.");
    scene.duplicate(from, &push(0, 0, &[(5, 1)]), OPEN);
    scene.note("But what no region can take is dropped before that.");
    scene.malformed(from, &push(0, 0, &UNSOUND));
    scene.note("Another flow has numbers of its own.");
    scene.taken(worker(1), &push(1, 0, &[(3, 2)]));
    scene.note("One that was sent before and comes for the first time is added, and counted as sent again.");
    let again = Header { flags: Flags::RETRANSMIT.with(Flags::LAST), ..header(Kind::Push, 1, 1) };
    scene.taken(worker(1), &packet(again, &[(8, 7)]));
    scene.note("What was added is there once.");
    scene.bank(REGION);
    scene.close_round(REGION, 2);
    scene
}

fn generations(profile: Profile) -> Scene {
    let mut scene = Scene::with_of(
        profile,
        "dedup-generations",
        "Entry seq % 1024 of a window holds the generation of the last packet accepted there: an equal or older one is a\n\
         duplicate, a newer one is new (rule D1). That is judged by this entry alone, as one register access does it.",
        FIXED,
    );
    let from = worker(0);
    for seq in [0, 1, 1023] {
        scene.taken(from, &push(0, seq, &[(0, 1)]));
    }
    scene.note("The next generation of entry 0.");
    scene.taken(from, &push(0, 1024, &[(0, 1)]));
    scene.note("The older generation is a duplicate, and the newer one is one now.");
    scene.duplicate(from, &push(0, 0, &[(0, 1)]), OPEN);
    scene.duplicate(from, &push(0, 1024, &[(0, 1)]), OPEN);
    scene.note("Neighbours in the window are as they were.");
    scene.duplicate(from, &push(0, 1, &[(0, 1)]), OPEN);
    scene.duplicate(from, &push(0, 1023, &[(0, 1)]), OPEN);
    scene.taken(from, &push(0, 2, &[(0, 1)]));
    scene.note("Late in its window, out of order.");
    scene.taken(from, &push(0, 1027, &[(0, 1)]));
    scene.taken(from, &push(0, 1025, &[(0, 1)]));
    scene.note(
        "No worker sends number 3 now, as it was not acknowledged when 1027 was sent; if one did, the entry says that a newer\n\
         one was there.",
    );
    scene.duplicate(from, &push(0, 3, &[(0, 1)]), OPEN);
    scene.note("Two generations further at once.");
    scene.taken(from, &push(0, 5000, &[(0, 1)]));
    scene.duplicate(from, &push(0, 5000 - 1024, &[(0, 1)]), OPEN);
    scene.duplicate(from, &push(0, 5000 - 2 * 1024, &[(0, 1)]), OPEN);
    scene.bank(REGION);
    scene
}

fn last_number(profile: Profile) -> Scene {
    let mut scene = Scene::with_of(
        profile,
        "dedup-last-number",
        "The highest number of a flow is 2^32 - 2 (rule T1); 2^32 - 1 is never used, and dropped.",
        FIXED,
    );
    let from = worker(1);
    for seq in [SEQ_MAX - 1, SEQ_MAX] {
        scene.taken(from, &push(1, seq, &[(2, 5)]));
        scene.duplicate(from, &push(1, seq, &[(2, 5)]), OPEN);
    }
    scene.malformed(from, &push(1, u32::MAX, &[(2, 5)]));
    scene.note("A probe has any number.");
    scene.taken(from, &packet(header(Kind::Pull, 1, u32::MAX), &[]));
    scene.flip(REGION);
    scene.drain(REGION);
    scene
}

/// Tests the round that the `ACK` of a duplicate names, over four rounds.
fn round_of_a_duplicate(profile: Profile) -> Scene {
    let mut scene = Scene::with_of(
        profile,
        "dedup-round-of-a-duplicate",
        "The ACK of a duplicate names the round that took the packet, or a later one that is sure to close: the active one only if it\n\
         has a packet (rule D2). A window remembers no more than the bank. The rounds here are 65534, 65535, 0 and 1.",
        FIXED,
    );
    let first = push(0, 0, &[(0, 1)]);
    scene.taken(worker(0), &first);
    scene.duplicate(worker(0), &first, OPEN);
    scene.note("After a flip it is the round that was closed: the bank is the idle one.");
    scene.close_round(REGION, 1);
    scene.duplicate(worker(0), &first, OPEN);
    scene.note("And still so when the active bank has a packet.");
    scene.taken(worker(1), &push(1, 0, &[(0, 2)]));
    scene.duplicate(worker(0), &first, OPEN);
    scene.note(
        "Its bank is the active one again, and empty: that is a round that may never close, so the one before is named, which\n\
         has closed.",
    );
    scene.close_round(REGION, 2);
    scene.duplicate(worker(0), &first, OPEN + 1);
    scene.note("With a packet in it, the active round is sure to close.");
    scene.taken(worker(1), &push(1, 1, &[(0, 4)]));
    scene.duplicate(worker(0), &first, OPEN.wrapping_add(2));
    scene.note("One flip on, the bank of the first packet is idle: the newest round of that bank is named.");
    scene.close_round(REGION, 2);
    scene.duplicate(worker(0), &first, OPEN.wrapping_add(2));
    scene.note("The packet of the odd round: its bank is active, and empty.");
    scene.duplicate(worker(1), &push(1, 0, &[(0, 2)]), OPEN.wrapping_add(2));
    scene
}

/// Several generations of a flow in one round, as the sender rule allows.
fn long_round(profile: Profile) -> Scene {
    let mut scene = Scene::with_of(
        profile,
        "dedup-long-round",
        "3,000 packets of one flow in one round: a packet may be sent when everything 1,024 before it is acknowledged, durable or not,\n\
         so a round may hold several generations of a flow, and the acked set all of them.",
        FIXED,
    );
    let from = worker(0);
    scene.push_times(1000, 0, 0);
    scene
        .note("Numbers 1000 to 1002 are lost on the way. Others overtake them, up to the end of the window.");
    scene.push_times(1021, 0, 1003);
    assert_eq!(scene.live_acked(REGION, 0), [0..1000, 1003..2024]);
    scene.note("They are sent again; nothing above 2023 was, before they were acknowledged.");
    scene.push_times(3, 0, 1000);
    scene.note("The network delivers old ones again: of this generation, and of the one before.");
    scene.duplicate_times(50, from, &push(0, 1900, &[(0, 1)]), OPEN);
    scene.duplicate_times(50, from, &push(0, 900, &[(0, 1)]), OPEN);
    scene.note("Number 2024 is lost, and sent again behind 2999.");
    scene.push_times(975, 0, 2025);
    scene.taken(worker(1), &push(1, 0, &[(9, 0), (9, 0)]));
    assert_eq!(scene.live_acked(REGION, 0), [0..2024, 2025..3000]);
    scene.push_times(1, 0, 2024);
    scene.bank(REGION);
    scene.note("The round closes with all of them, and an acked set from number 0 to 2999.");
    let slot = scene.slot(0, 1);
    assert_eq!(scene.close_round(REGION, 2).0.get(&slot), Some(&3000));
    scene.note("A duplicate of each generation names the round that took it.");
    for seq in [0, 1000, 1023, 1024, 2024, 2999] {
        scene.duplicate(from, &push(0, seq, &[(0, 1)]), OPEN);
    }
    scene.push_times(100, 0, 3000);
    scene.close_round(REGION, 1);
    scene
}

fn resumed(profile: Profile) -> Scene {
    let mut scene = Scene::of(
        profile,
        "dedup-resumed",
        "A region that is opened with acked sets takes what they name for duplicates, and nothing else (rules D6, V5).",
    );
    let config = RegionConfig { flows: 4, ..FIXED };
    for flow in 0..4 {
        scene.worker(WorkerName { job: config.job, worker: flow });
    }
    scene.note("Of flow 0 nothing, of 1 a beginning, of 2 a beginning and gaps, of 3 more than a window.");
    let seen = [(1, 0..3), (2, 0..2), (2, 4..5), (2, 7..9), (3, 0..5000), (3, 5500..5501)];
    scene.open(config, 100, &seen);
    for flow in 0..4 {
        scene.acked(REGION, flow);
    }
    scene.note("Duplicates name the round that is durable, as their bank is the idle one.");
    scene.taken(worker(0), &push(0, 0, &[(0, 1)]));
    for seq in [0, 2] {
        scene.duplicate(worker(1), &push(1, seq, &[(0, 1)]), 100);
    }
    for seq in 0..10 {
        if [0, 1, 4, 7, 8].contains(&seq) {
            scene.duplicate(worker(2), &push(2, seq, &[(1, 1)]), 100);
        } else {
            scene.taken(worker(2), &push(2, seq, &[(1, 1)]));
        }
    }
    scene.note("Of flow 3, what is left of the window of 5,500.");
    for seq in [0, 1023, 4475, 4999, 5500] {
        scene.duplicate(worker(3), &push(3, seq, &[(2, 1)]), 100);
    }
    for seq in [5000, 5499, 5501] {
        scene.taken(worker(3), &push(3, seq, &[(2, 1)]));
    }
    assert_eq!(scene.close_round(REGION, 4).0.len(), 3);
    // A switch that wires lanes relies on the numbers that workers are given: see wired-strict.
    if !profile.is_wired() {
        scene.note("Its flows are four, not five.");
        scene.worker(WorkerName { job: config.job, worker: 4 });
        scene.refused(worker(4), &push(4, 0, &[(0, 1)]), NackReason::UnknownFlow);
    }
    assert_eq!(AFTER.wrapping_add(1), OPEN);
    scene
}
