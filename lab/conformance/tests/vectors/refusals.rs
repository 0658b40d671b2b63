//! Refusals: their reasons and their order.

use libra_conformance::{RegionName, Sender, WorkerName};
use libra_dataplane::{Flags, Header, Kind, NackReason, RegionConfig};

use crate::scene::{
    AFTER, FIXED, JOB, PLAN, Profile, REGION, Scene, UNSOUND, VIEW, header, packet, push, worker,
};

pub(crate) fn scenes() -> Vec<Scene> {
    let scenes = [order, pull, bank_full, inactive, stale, senders, regions, moved];
    Profile::BOTH.into_iter().flat_map(|profile| scenes.map(|scene| scene(profile))).collect()
}

/// A packet that everything is wrong with, mended step by step.
fn order(profile: Profile) -> Scene {
    let mut scene = Scene::with_of(
        profile,
        "refusal-order-of-push",
        "A region checks plan, view, flow, whether it takes pushes, number and entries, room, and refuses for the first that fails\n\
         (rule W6). Everything is wrong with this push, and is mended in that order.",
        RegionConfig { bank_packets_max: 1, ..FIXED },
    );
    let stranger = WorkerName { job: JOB, worker: 2 };
    scene.worker(stranger);
    scene.taken(worker(1), &push(1, 0, &[(0, 1)]));
    scene.active(REGION, false);
    let unsound = UNSOUND.map(|(cell, value)| (cell, value.cast_unsigned()));
    let bad = if profile.is_wired() { &unsound[..] } else { &[(4, 1), (4, 1)] };
    let wrong = Header { plan: PLAN + 1, view: VIEW + 1, ..header(Kind::Push, 2, u32::MAX) };
    scene.note("The plan.");
    let nack = scene.refused(worker(2), &packet(wrong, bad), NackReason::StalePlan);
    assert_eq!((nack.view, nack.durable, nack.plan), (VIEW, AFTER, PLAN + 1));
    scene.note("The view: the refusal carries that of the region.");
    let wrong = Header { plan: PLAN, ..wrong };
    scene.refused(worker(2), &packet(wrong, bad), NackReason::StaleView);
    let wrong = Header { view: VIEW, ..wrong };
    if !profile.is_wired() {
        scene.note("The flow: the region has those of workers 0 and 1.");
        scene.refused(worker(2), &packet(wrong, bad), NackReason::UnknownFlow);
    }
    scene.note("The region takes no pushes.");
    let wrong = Header { worker: 0, ..wrong };
    scene.refused(worker(0), &packet(wrong, bad), NackReason::Inactive);
    scene.active(REGION, true);
    scene.note("The number.");
    scene.malformed(worker(0), &packet(wrong, bad));
    scene.note(if profile.is_wired() {
        "The entries: cell 0x7000."
    } else {
        "The entries: slot 4 is there twice."
    });
    let wrong = Header { seq: 0, ..wrong };
    scene.malformed(worker(0), &packet(wrong, bad));
    scene.note("The room: the bank takes one packet.");
    scene.refused(worker(0), &push(0, 0, &[(4, 1)]), NackReason::BankFull);
    scene.note("It has changed nothing.");
    scene.bank(REGION);
    scene.close_round(REGION, 2);
    scene.taken(worker(0), &push(0, 0, &[(4, 1)]));
    scene
}

fn pull(profile: Profile) -> Scene {
    let mut scene = Scene::with_of(
        profile,
        "refusal-order-of-pull",
        "A PULL is checked for plan, view, flow, whether there are values, and its cells. One without entries is a probe, and\n\
         always answered once the first three are right (rule W10).",
        FIXED,
    );
    scene.worker(WorkerName { job: JOB, worker: 2 });
    scene.active(REGION, false);
    let beyond = [(if profile.is_wired() { UNSOUND[0].0 } else { 10 }, 0)];
    for cells in [&beyond[..], &[]] {
        let wrong = Header { plan: PLAN - 1, view: VIEW - 1, ..header(Kind::Pull, 2, 7) };
        scene.refused(worker(2), &packet(wrong, cells), NackReason::StalePlan);
        let wrong = Header { plan: PLAN, ..wrong };
        scene.refused(worker(2), &packet(wrong, cells), NackReason::StaleView);
        let wrong = Header { view: VIEW, ..wrong };
        if !profile.is_wired() {
            scene.refused(worker(2), &packet(wrong, cells), NackReason::UnknownFlow);
        }
    }
    let wrong = header(Kind::Pull, 0, 7);
    scene.refused(worker(0), &packet(wrong, &beyond), NackReason::NotInstalled);
    scene.readable(REGION, true);
    scene.malformed(worker(0), &packet(wrong, &beyond));
    scene.note("Inactive or not does not matter to it (rule D7).");
    scene.taken(worker(0), &packet(wrong, &[(9, 0)]));
    scene.taken(worker(0), &packet(wrong, &[]));
    scene.readable(REGION, false);
    scene.note("A probe before there are values.");
    scene.taken(worker(0), &packet(wrong, &[]));
    scene
}

fn bank_full(profile: Profile) -> Scene {
    let mut scene = Scene::with_of(
        profile,
        "refusal-bank-full",
        "A full bank refuses new packets and does not remember them; duplicates and pulls are answered as ever (rule D4).",
        RegionConfig { bank_packets_max: 3, ..FIXED },
    );
    for seq in 0..3 {
        scene.taken(worker(0), &push(0, seq, &[(0, 1)]));
    }
    scene.refused(worker(0), &push(0, 3, &[(0, 1)]), NackReason::BankFull);
    scene.refused(worker(1), &push(1, 0, &[(0, 1)]), NackReason::BankFull);
    scene.note("Also one that adds nothing.");
    scene.refused(worker(1), &push(1, 0, &[]), NackReason::BankFull);
    let with_values = Header { flags: Flags::VALUES, ..header(Kind::Push, 1, 0) };
    scene.refused(worker(1), &packet(with_values, &[(0, 1)]), NackReason::BankFull);
    scene.note("Malformed ones are dropped, not refused.");
    scene.malformed(worker(1), &push(1, 0, &UNSOUND));
    scene.duplicate(worker(0), &push(0, 1, &[(0, 1)]), AFTER + 1);
    scene.readable(REGION, true);
    scene.taken(worker(1), &packet(header(Kind::Pull, 1, 0), &[(0, 0)]));
    scene.bank(REGION);
    scene.live_acked(REGION, 1);
    scene.note("After a flip there is room, before the bank is drained that was full.");
    scene.flip(REGION);
    scene.taken(worker(0), &push(0, 3, &[(0, 1)]));
    scene.taken(worker(1), &push(1, 0, &[(0, 1)]));
    scene.taken(worker(1), &push(1, 1, &[]));
    scene.refused(worker(1), &push(1, 2, &[]), NackReason::BankFull);
    scene.drain(REGION);
    scene.refused(worker(1), &push(1, 2, &[]), NackReason::BankFull);
    scene.close_round(REGION, 2);
    scene
}

fn inactive(profile: Profile) -> Scene {
    let mut scene = Scene::with_of(
        profile,
        "refusal-inactive",
        "A region that is not active refuses every push, duplicates too, and does all else as before (rule D7).",
        FIXED,
    );
    scene.taken(worker(0), &push(0, 0, &[(0, 1)]));
    scene.active(REGION, false);
    scene.refused(worker(0), &push(0, 0, &[(0, 1)]), NackReason::Inactive);
    scene.refused(worker(0), &push(0, 1, &[(0, 1)]), NackReason::Inactive);
    scene.note("Before it looks at what is in it.");
    scene.refused(worker(0), &push(0, 1, &UNSOUND), NackReason::Inactive);
    scene.install(REGION, &[(scene.slot(0, 3), 0x3F80_0000)]);
    scene.readable(REGION, true);
    scene.taken(worker(0), &packet(header(Kind::Pull, 0, 5), &[(3, 0)]));
    scene.close_round(REGION, 1);
    scene.active(REGION, true);
    scene.duplicate(worker(0), &push(0, 0, &[(0, 1)]), AFTER + 1);
    scene.taken(worker(0), &push(0, 1, &[(0, 1)]));
    scene.close_round(REGION, 1);
    scene
}

fn stale(profile: Profile) -> Scene {
    let mut scene = Scene::with_of(
        profile,
        "refusal-stale",
        "Packets of another plan or view, by one, by a byte or by all, change nothing (rule V2). Plan and view compare as equal or not.",
        FIXED,
    );
    scene.readable(REGION, true);
    for seq in 0..3 {
        scene.taken(worker(0), &push(0, seq, &[(0, 1)]));
    }
    for kind in [Kind::Push, Kind::Pull] {
        for wrong in [1, 0xFFFF, 0x0100, 0x8000] {
            let plan = Header { plan: PLAN.wrapping_add(wrong), ..header(kind, 0, 3) };
            scene.refused(worker(0), &packet(plan, &[(0, 1)]), NackReason::StalePlan);
            let view = Header { view: VIEW.wrapping_add(wrong), ..header(kind, 0, 3) };
            scene.refused(worker(0), &packet(view, &[(0, 1)]), NackReason::StaleView);
        }
    }
    scene.note("A duplicate of another view is not acknowledged.");
    let again = Header { view: VIEW - 1, flags: Flags::RETRANSMIT, ..header(Kind::Push, 0, 2) };
    scene.refused(worker(0), &packet(again, &[(0, 1)]), NackReason::StaleView);
    scene.bank(REGION);
    assert_eq!(scene.close_round(REGION, 2).0.get(&0), Some(&3));
    scene
}

fn senders(profile: Profile) -> Scene {
    let mut scene = Scene::with_of(
        profile,
        "refusal-senders",
        "Who sends follows from the address alone (rule W4). What an address may not say is dropped (rule W3): in this order malformed,\n\
         foreign (it names another worker or job), unexpected (not a PUSH or PULL).",
        FIXED,
    );
    let sound = push(0, 0, &[(0, 1)]);
    scene.note("Addresses of no worker: another machine, and other ports of a worker's. Not counted here.");
    for address in ["10.7.0.77:5000", "10.7.0.2:4999", "10.7.0.2:5001", "10.7.0.3:5000"] {
        scene.dropped(Sender::Stranger(address.parse().unwrap()), &sound, None);
    }
    scene.note("A worker that says it is another one, of this job or of the same number in another job.");
    scene.foreign(worker(1), &sound);
    scene.foreign(worker(0), &push(1, 0, &[(0, 1)]));
    scene.foreign(worker(0), &push(0x0100, 0, &[(0, 1)]));
    scene.foreign(worker(0), &packet(Header { job: JOB + 1, ..header(Kind::Push, 0, 0) }, &[(0, 1)]));
    scene.foreign(worker(0), &packet(Header { job: 0x0107, ..header(Kind::Pull, 0, 0) }, &[]));
    scene.note("Workers neither install nor drain, and send no answers.");
    for kind in [Kind::Install, Kind::Drain, Kind::Ack, Kind::Nack, Kind::Stream] {
        for entries in [&[(0, 1)][..], &[]] {
            scene.unexpected(worker(0), &packet(header(kind, 0, 0), entries));
        }
        scene.note("It names another worker: foreign before unexpected.");
        scene.foreign(worker(1), &packet(header(kind, 0, 0), &[]));
    }
    scene.note("Malformed before foreign.");
    scene.malformed(worker(1), &[&sound[..], &[0]].concat());
    scene.note("Nothing of all that was taken. The worker itself is.");
    scene.bank(REGION);
    scene.values(REGION);
    scene.taken(worker(0), &sound);
    scene.note("A worker that comes later; and an address that becomes another worker's.");
    let at = "10.7.0.2:5000".parse().unwrap();
    scene.worker_at(WorkerName { job: JOB, worker: 1 }, at);
    scene.taken(worker(1), &push(1, 0, &[(0, 1)]));
    scene.close_round(REGION, 2);
    scene
}

fn regions(profile: Profile) -> Scene {
    let mut scene = Scene::of(
        profile,
        "refusal-regions",
        "Several regions and jobs in one switch. What is for a region that is not here is refused as UnknownFlow, with the view of\n\
         the request, and zero in durable (rule W7).",
    );
    let configs = [
        FIXED,
        RegionConfig { region: 1, plan: PLAN + 1, view: FIXED.view + 1, cells: 100, flows: 1, ..FIXED },
        RegionConfig { region: 255, ..FIXED },
        RegionConfig { job: JOB + 1, view: FIXED.view + 2, ..FIXED },
    ];
    for (job, worker) in [(JOB, 0), (JOB, 1), (JOB + 1, 0), (JOB + 2, 0)] {
        scene.worker(WorkerName { job, worker });
    }
    for (after, config) in (10..).zip(configs) {
        scene.open(config, after, &[]);
    }
    let head = |config: &RegionConfig, kind, worker, seq| Header {
        job: config.job,
        region: config.region,
        plan: config.plan,
        view: config.view_on_wire(),
        ..header(kind, worker, seq)
    };
    scene.note("The same number in each region: flows of their own.");
    for (round, config) in (11..).zip(&configs) {
        let from = Sender::Worker(WorkerName { job: config.job, worker: 0 });
        let push = packet(head(config, Kind::Push, 0, 0), &[(0, u32::from(config.region) + 1)]);
        scene.taken(from, &push);
        scene.duplicate(from, &push, round);
    }
    scene.note("Worker 1 has a flow in region 0, not in region 1.");
    scene.taken(worker(1), &packet(head(&configs[0], Kind::Push, 1, 0), &[(1, 9)]));
    if !profile.is_wired() {
        let stray = packet(head(&configs[1], Kind::Push, 1, 0), &[(1, 9)]);
        scene.refused(worker(1), &stray, NackReason::UnknownFlow);
    }
    scene.note("A cell that is in region 1 and not in region 0, where it is padding or nothing.");
    scene.taken(worker(0), &packet(head(&configs[1], Kind::Push, 0, 1), &[(9, 1), (98, 2)]));
    if !profile.is_wired() {
        scene.malformed(worker(0), &packet(head(&configs[0], Kind::Push, 0, 1), &[(8, 1), (98, 2)]));
    }
    scene.note("Regions that are not here.");
    for kind in [Kind::Push, Kind::Pull] {
        for entries in [&[(0, 1)][..], &[]] {
            let stray = Header { region: 2, view: 0x1234, ..header(kind, 0, 5) };
            let nack = scene.refused(worker(0), &packet(stray, entries), NackReason::UnknownFlow);
            assert_eq!((nack.view, nack.durable), (0x1234, 0));
        }
    }
    let stray = Header { job: JOB + 1, region: 1, ..header(Kind::Push, 0, 0) };
    let from = Sender::Worker(WorkerName { job: JOB + 1, worker: 0 });
    scene.refused(from, &packet(stray, &[(0, 1)]), NackReason::UnknownFlow);
    let from = Sender::Worker(WorkerName { job: JOB + 2, worker: 0 });
    let stray = Header { job: JOB + 2, ..header(Kind::Push, 0, 0) };
    scene.refused(from, &packet(stray, &[(0, 1)]), NackReason::UnknownFlow);
    scene.note("Each region has rounds, banks and values of its own.");
    for config in &configs {
        scene.bank(RegionName::of(config));
    }
    let second = RegionName::of(&configs[1]);
    scene.flip(second);
    scene.install(second, &[(scene.slot(0, 98), 7)]);
    scene.readable(second, true);
    scene.durable(second, 11);
    scene.taken(worker(0), &packet(head(&configs[1], Kind::Pull, 0, 1), &[(98, 0), (0, 0)]));
    scene.refused(
        worker(0),
        &packet(head(&configs[0], Kind::Pull, 0, 1), &[(8, 0)]),
        NackReason::NotInstalled,
    );
    for config in &configs {
        let name = RegionName::of(config);
        if name != second {
            scene.flip(name);
        }
        scene.drain(name);
        scene.values(name);
    }
    scene
}

fn moved(profile: Profile) -> Scene {
    let mut scene = Scene::with_of(
        profile,
        "refusal-moved",
        "A region leaves and comes back under another view: nothing of it is left but what it is opened with (rules V2, D6).",
        FIXED,
    );
    scene.install(REGION, &[(0, 5), (1, 6)]);
    scene.readable(REGION, true);
    for seq in 0..4 {
        scene.taken(worker(0), &push(0, seq, &[(0, 1), (1, 2)]));
    }
    scene.flip(REGION);
    scene.taken(worker(0), &push(0, 4, &[(0, 1), (1, 2)]));
    scene.counters();
    scene.close(REGION);
    scene.open(RegionConfig { view: FIXED.view + 1, ..FIXED }, AFTER + 1, &[(0, 0..4)]);
    scene.values(REGION);
    scene.bank(REGION);
    scene.acked(REGION, 0);
    let late = push(0, 4, &[(0, 1), (1, 2)]);
    scene.refused(worker(0), &late, NackReason::StaleView);
    let replay = |seq| Header { view: VIEW + 1, flags: Flags::RETRANSMIT, ..header(Kind::Push, 0, seq) };
    for seq in 2..5 {
        scene.taken(worker(0), &packet(replay(seq), &[(0, 1), (1, 2)]));
    }
    let pull = Header { view: VIEW + 1, ..header(Kind::Pull, 0, 0) };
    scene.refused(worker(0), &packet(pull, &[(0, 0)]), NackReason::NotInstalled);
    scene.close_round(REGION, 1);
    scene
}
