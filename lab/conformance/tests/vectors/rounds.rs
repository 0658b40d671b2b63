//! Flips, and the numbers of rounds.

use libra_conformance::{RegionName, WorkerName};
use libra_dataplane::{Flags, Header, Kind, NackReason, RegionConfig};

use crate::scene::{FIXED, JOB, OPEN, Profile, REGION, Scene, header, packet, push, worker};

pub(crate) fn scenes() -> Vec<Scene> {
    Profile::BOTH.into_iter().flat_map(|profile| [wrap(profile), flip(profile), last(profile)]).collect()
}

fn wrap(profile: Profile) -> Scene {
    let mut scene = Scene::of(
        profile,
        "rounds-wrap",
        "Rounds on the wire have 16 bits and begin again after 65535 (rule W11). Two regions: one just before, one at zero.",
    );
    for worker in 0..2 {
        scene.worker(WorkerName { job: JOB, worker });
    }
    let zero = RegionConfig { region: 1, ..FIXED };
    scene.open(FIXED, 0xFFFC, &[(0, 0..2)]);
    scene.open(zero, 0xFFFF, &[(0, 0..2)]);
    let other = |seq| packet(Header { region: 1, ..header(Kind::Push, 0, seq) }, &[(1, 1)]);
    scene.note("Seen before: the round before the first one.");
    scene.duplicate(worker(0), &push(0, 1, &[(0, 1)]), 0xFFFC);
    scene.duplicate(worker(0), &other(1), 0xFFFF);
    for round in [0xFFFD_u16, 0xFFFE, 0xFFFF, 0, 1, 2] {
        scene.note(&format!("Round {round}."));
        let seq = u32::from(round.wrapping_sub(0xFFFD)) + 2;
        assert_eq!(scene.taken(worker(0), &push(0, seq, &[(0, 1 << seq)])).header.round, round);
        scene.duplicate(worker(0), &push(0, seq, &[(0, 1)]), round);
        assert_eq!(scene.taken(worker(0), &packet(header(Kind::Pull, 0, 0), &[])).header.round, round);
        scene.close_round(REGION, 2);
        scene.durable(REGION, round);
        let answer = scene.taken(worker(0), &packet(header(Kind::Pull, 0, 1), &[]));
        assert_eq!((answer.header.durable, answer.header.round), (round, round.wrapping_add(1)));
    }
    scene.note("The other region goes from 0 to 1.");
    scene.taken(worker(0), &other(2));
    scene.flip(RegionName { job: JOB, region: 1 });
    scene.taken(worker(0), &other(3));
    scene.duplicate(worker(0), &other(2), 0);
    scene
}

fn flip(profile: Profile) -> Scene {
    let mut scene = Scene::with_of(
        profile,
        "rounds-flip",
        "A flip swaps the banks between two packets, and needs an idle bank that is drained (rules D3, D5).",
        FIXED,
    );
    scene.note("Of an empty bank, too.");
    scene.flip(REGION);
    scene.flip(REGION);
    scene.taken(worker(0), &push(0, 0, &[(0, 5), (1, 6)]));
    scene.flip(REGION);
    scene.note("What comes now is in the other bank.");
    scene.taken(worker(0), &push(0, 1, &[(1, 70), (2, 80)]));
    scene.bank(REGION);
    assert_eq!(scene.flip(REGION), None);
    scene.note("The refused flip has changed nothing.");
    scene.taken(worker(0), &push(0, 2, &[(1, 1)]));
    scene.bank(REGION);
    assert_eq!(scene.drain(REGION).0.len(), 2);
    scene.note("Drained twice, it is empty.");
    assert_eq!(scene.drain(REGION).0.len(), 0);
    scene.flip(REGION);
    scene.bank(REGION);
    let slot = scene.slot(0, 1);
    assert_eq!(scene.drain(REGION).0.get(&slot), Some(&71));
    scene.note("Sums that cancel out: the bank holds nothing to apply.");
    scene.taken(worker(0), &push(0, 3, &[(4, 9)]));
    scene.taken(worker(0), &push(0, 4, &[(4, -9)]));
    scene.close_round(REGION, 1);
    scene.flip(REGION);
    scene
}

fn last(profile: Profile) -> Scene {
    let mut scene = Scene::with_of(
        profile,
        "rounds-bank",
        "What a bank has taken, and how many packets of it were the last of a push: the agent closes rounds by it (rule E1).\n\
         Duplicates and refused packets do not count.",
        RegionConfig { bank_packets_max: 5, ..FIXED },
    );
    let last = |seq, flags: Flags| Header { flags: flags.with(Flags::LAST), ..header(Kind::Push, 0, seq) };
    scene.bank(REGION);
    scene.taken(worker(0), &push(0, 0, &[(0, 1)]));
    scene.taken(worker(0), &packet(last(1, Flags::NONE), &[(0, 1)]));
    scene.bank(REGION);
    let again = packet(last(1, Flags::RETRANSMIT), &[(0, 1)]);
    // Where lanes are wired it may use up room (rule D4).
    if !profile.is_wired() {
        scene.duplicate(worker(0), &again, OPEN);
        scene.bank(REGION);
    }
    scene.taken(worker(0), &packet(last(2, Flags::RETRANSMIT), &[]));
    scene.taken(worker(0), &packet(last(3, Flags::VALUES), &[]));
    scene.taken(worker(0), &push(0, 4, &[(0, 1)]));
    scene.bank(REGION);
    scene.duplicate(worker(0), &again, OPEN);
    scene.refused(worker(0), &packet(last(5, Flags::NONE), &[(0, 1)]), NackReason::BankFull);
    scene.bank(REGION);
    scene.close_round(REGION, 1);
    scene.bank(REGION);
    scene.taken(worker(0), &packet(last(5, Flags::NONE), &[(0, 1)]));
    scene.bank(REGION);
    scene
}
