//! Tags of packets: MACs, and cookies where a switch cannot compute them.

use libra_conformance::{Key, RegionName, Sender, WorkerName};
use libra_dataplane::{
    BODY_KEY_BYTES, BodyKey, Direction, Flags, HEADER_BYTES, Header, Kind, NackReason, PathKeys,
    RegionConfig, TagKey, set_tag, tag_of,
};
use libra_plan::SplitMix64;

use crate::scene::{
    AFTER, FIXED, JOB, OPEN, PLAN, Profile, REGION, Scene, UNSOUND, VIEW, header, packet, push, worker,
};

pub(crate) fn scenes() -> Vec<Scene> {
    let macs =
        [packets(), bodies(), forged(), flipped(), views(), moved(), stale(), order(), neighbours(), acks()];
    let cookies = Profile::BOTH.map(cookies);
    macs.into_iter().chain(cookies).collect()
}

/// The key of a worker, in a job with MACs. All have the same body key.
pub(crate) fn mac(worker: u16) -> Key {
    let of_path = |direction| TagKey::from_bytes(bytes(1000 + 10 * u64::from(worker) + direction));
    let body = Box::new(BodyKey::from_bytes(&bytes::<BODY_KEY_BYTES>(1)));
    Key::Mac { body, keys: PathKeys { up: of_path(0), down: of_path(1) } }
}

/// The key of a worker, in a job with cookies.
pub(crate) fn cookie(worker: u16) -> Key {
    Key::Cookie(u64::from_be_bytes(bytes(2000 + u64::from(worker))))
}

/// Bytes that look random.
fn bytes<const BYTES: usize>(seed: u64) -> [u8; BYTES] {
    let mut random = SplitMix64::new(seed);
    std::array::from_fn(|_| random.bits().to_be_bytes()[0])
}

/// A vector whose workers have MACs.
fn scene(file: &'static str, about: &str, config: RegionConfig) -> Scene {
    let mut scene = Scene::with(file, about, config);
    for worker in 0..config.flows {
        scene.key(WorkerName { job: config.job, worker }, &mac(worker));
    }
    scene
}

/// A packet with this tag.
fn tagged(mut packet: Vec<u8>, tag: u64) -> Vec<u8> {
    set_tag(packet.first_chunk_mut().unwrap(), tag);
    packet
}

fn tag(packet: &[u8]) -> u64 {
    tag_of(packet.first_chunk().unwrap())
}

/// A packet with the tag of another view than that of its region.
fn of_view(worker: u16, mut packet: Vec<u8>, view: u64) -> Vec<u8> {
    mac(worker).tags().sign(Direction::Up, &mut packet, view);
    packet
}

fn packets() -> Scene {
    let mut scene = scene(
        "auth-packets",
        "In a job with keys a packet has a MAC in its tag, and its answer another one, of the other key (rules A2, A4): the same is done\n\
         as without keys, and every kind of answer has its MAC.",
        RegionConfig { bank_packets_max: 3, ..FIXED },
    );
    let probe = |scene: &Scene, worker| scene.signed(packet(header(Kind::Pull, worker, 1 << 31), &[]));
    let pull =
        |scene: &Scene, seq| scene.signed(packet(header(Kind::Pull, 1, seq), &[(2, 0), (0, 0), (8, 0)]));
    let first = scene.signed(push(0, 0, &[(0, 5), (3, -6)]));
    let answer = scene.taken(worker(0), &first);
    assert_ne!(answer.header.tag, 0);
    scene.note("A duplicate has the same answer, to the bit. With RETRANSMIT it is another packet, with another tag.");
    assert_eq!(scene.taken(worker(0), &first), answer);
    let again = Header { flags: Flags::RETRANSMIT, ..header(Kind::Push, 0, 0) };
    let again = scene.signed(packet(again, &[(0, 5), (3, (-6_i32).cast_unsigned())]));
    assert_ne!(tag(&again), tag(&first));
    scene.duplicate(worker(0), &again, OPEN);
    scene.note("Probes of both workers, and a read that is refused.");
    scene.taken(worker(0), &probe(&scene, 0));
    scene.taken(worker(1), &probe(&scene, 1));
    scene.refused(worker(1), &pull(&scene, 0), NackReason::NotInstalled);
    scene.note("Answers with values: the tag covers them.");
    scene.install(REGION, &[(0, 0x3F80_0000), (2, 0xBF80_0000), (8, 1)]);
    scene.readable(REGION, true);
    scene.taken(worker(1), &pull(&scene, 0));
    let ask = |seq, flags: Flags| Header { flags: flags.with(Flags::VALUES), ..header(Kind::Push, 0, seq) };
    let with_values = scene.signed(packet(ask(1, Flags::LAST), &[(0, 1), (2, 2), (8, 3)]));
    let answer = scene.taken(worker(0), &with_values);
    assert_eq!((answer.header.flags, answer.header.entries), (Flags::VALUES, 3));
    scene.note("The same question after another value: another tag.");
    scene.install(REGION, &[(2, 0x4000_0000)]);
    assert_ne!(scene.taken(worker(0), &with_values).header.tag, answer.header.tag);
    scene.note("A full bank, an inactive region, a worker without a flow.");
    scene.taken(worker(0), &scene.signed(push(0, 2, &[(1, 1)])));
    scene.refused(worker(0), &scene.signed(push(0, 3, &[(1, 1)])), NackReason::BankFull);
    scene.active(REGION, false);
    scene.refused(worker(0), &scene.signed(push(0, 3, &[(1, 1)])), NackReason::Inactive);
    scene.active(REGION, true);
    let stranger = WorkerName { job: JOB, worker: 2 };
    scene.worker(stranger);
    scene.key(stranger, &mac(2));
    scene.refused(worker(2), &scene.signed(push(2, 0, &[(1, 1)])), NackReason::UnknownFlow);
    scene.close_round(REGION, 2);
    scene.durable(REGION, OPEN);
    scene.taken(worker(0), &scene.signed(push(0, 3, &[(1, 1)])));
    scene.bank(REGION);
    scene
}

fn bodies() -> Scene {
    let mut scene = scene(
        "auth-bodies",
        "Entries are hashed in blocks of 32 bytes, the last one filled up with zeros (rule A2): all remainders, and up to the 255 entries\n\
         that a packet can have. Questions have as many entries as their answers.",
        RegionConfig { cells: 300, ..FIXED },
    );
    let values: Vec<_> = (0..299_u32).map(|slot| (slot, slot.wrapping_mul(0x9E37_79B9) | 1)).collect();
    scene.install(REGION, &values);
    scene.readable(REGION, true);
    for (seq, entries) in (0..17).chain([27, 53, 227, 228, 240, 254, 255]).enumerate() {
        let entries: Vec<_> = (0..entries).map(|at: u16| (at, (i32::from(at) - 100) * 997)).collect();
        let flags = if seq % 2 == 0 { Flags::VALUES } else { Flags::NONE };
        let mut push = push(0, u32::try_from(seq).unwrap(), &entries);
        push[2] = flags.bits();
        let push = scene.signed(push);
        scene.taken(worker(0), &push);
        let cells: Vec<_> = entries.iter().map(|&(cell, _)| (cell, 0)).collect();
        let pull = scene.signed(packet(header(Kind::Pull, 1, 7), &cells));
        scene.taken(worker(1), &pull);
        if let Some(last) = push.len().checked_sub(1).filter(|last| *last >= HEADER_BYTES) {
            // In the block that is filled up, if there is one.
            let mut wrong = push;
            wrong[last] ^= 1;
            scene.forged(worker(0), &wrong);
        }
    }
    scene.close_round(REGION, 2);
    scene
}

fn forged() -> Scene {
    let mut scene = scene(
        "auth-forged",
        "A wrong tag: nothing is done and nothing is answered, whatever the packet (rule A3).",
        FIXED,
    );
    scene.readable(REGION, true);
    let questions = [
        push(0, 0, &[(3, 5), (4, 6)]),
        packet(header(Kind::Pull, 0, 3), &[(3, 0)]),
        packet(header(Kind::Pull, 0, 1 << 31), &[]),
    ];
    for question in &questions {
        scene.note("None, all ones, the right one from the other end, and every bit of it flipped.");
        let right = tag(&scene.signed(question.clone()));
        let flipped = (0..64).map(|bit| right ^ 1 << bit);
        for wrong in [0, u64::MAX, right.swap_bytes()].into_iter().chain(flipped) {
            scene.forged(worker(0), &tagged(question.clone(), wrong));
        }
        scene.note(
            "The tag that an answer like it would have, that of another worker, and that of another packet.",
        );
        let mut downwards = question.clone();
        mac(0).tags().sign(Direction::Down, &mut downwards, VIEW.into());
        scene.forged(worker(0), &downwards);
        scene.forged(worker(0), &scene.signed_with(&mac(1), question.clone()));
        let mut next = question.clone();
        next[21] += 1;
        let next = scene.signed(next);
        scene.forged(worker(0), &tagged(question.clone(), tag(&next)));
        scene.note("The key of a job with cookies.");
        scene.forged(worker(0), &scene.signed_with(&cookie(0), question.clone()));
    }
    scene.note("A packet of another worker, signed by the sender or by the other.");
    let other = push(1, 0, &[(3, 5)]);
    scene.foreign(worker(0), &scene.signed(other.clone()));
    scene.foreign(worker(0), &scene.signed_with(&mac(0), other));
    scene.note("Nothing was taken or remembered.");
    scene.bank(REGION);
    for question in questions {
        let question = scene.signed(question);
        scene.taken(worker(0), &question);
    }
    scene.close_round(REGION, 2);
    scene
}

fn flipped() -> Scene {
    let mut scene = scene(
        "auth-flipped",
        "One bit of a sound packet is flipped on its way, in each byte: it is no packet, or its tag is wrong. Of 7 entries the last two and\n\
         a part of another are in a block that is filled up.",
        FIXED,
    );
    let entries = [(0, 5), (1, 6), (2, -7), (3, 8), (4, 9), (5, -10), (6, 11)];
    let sound = scene.signed(push(0, 0, &entries));
    for at in 0..sound.len() {
        let mut flipped = sound.clone();
        flipped[at] ^= 1 << (at % 8);
        if at >= HEADER_BYTES {
            scene.forged(worker(0), &flipped);
        } else {
            assert_eq!(scene.send(worker(0), &flipped), None, "byte {at}");
        }
    }
    scene.note("Two entries that change places, and words that do.");
    scene.forged(worker(0), &[&sound[..HEADER_BYTES], &sound[36..42], &sound[30..36], &sound[42..]].concat());
    let mut swapped = sound.clone();
    for at in 0..4 {
        swapped.swap(HEADER_BYTES + at, HEADER_BYTES + 4 + at);
    }
    scene.forged(worker(0), &swapped);
    scene.note("An entry of zeros more, or fewer: `entries` is in the tag.");
    let mut more = [&sound[..], &[0; 6]].concat();
    more[3] = 8;
    scene.forged(worker(0), &more);
    let mut fewer = sound[..sound.len() - 6].to_vec();
    fewer[3] = 6;
    scene.forged(worker(0), &fewer);
    scene.bank(REGION);
    scene.taken(worker(0), &sound);
    scene.close_round(REGION, 1);
    scene
}

fn views() -> Scene {
    let mut scene = scene(
        "auth-views",
        "The number of a view has 64 bits, its packets have the lower 16, and the tag covers all (rule A2). Each region is held since another\n\
         view with the same lower 16 bits.",
        FIXED,
    );
    let held: Vec<_> =
        (1..).zip([16, 17, 31, 32, 47, 63].map(|bit| 1_u64 << bit | u64::from(VIEW))).collect();
    for &(region, view) in &held {
        scene.open(RegionConfig { region, view, ..FIXED }, AFTER, &[]);
    }
    let views: Vec<_> = [(0, u64::from(VIEW))].into_iter().chain(held).collect();
    for &(region, view) in &views {
        scene.note(&format!("View {view}; the others are wrong for it."));
        let unsigned = packet(Header { region, ..header(Kind::Push, 0, 0) }, &[(1, 1)]);
        for &(_, other) in views.iter().filter(|(_, other)| *other != view) {
            scene.forged(worker(0), &of_view(0, unsigned.clone(), other));
        }
        let right = of_view(0, unsigned, view);
        assert_eq!(right, scene.signed(right.clone()));
        scene.taken(worker(0), &right);
    }
    scene
}

fn moved() -> Scene {
    let mut scene = scene(
        "auth-moved",
        "Replay: a region goes away and comes back 65,536 views later, when its packets say the same view again. What was sent before is not\n\
         taken, whether it was taken then or not.",
        FIXED,
    );
    let sent: Vec<_> = (0..4).map(|seq| scene.signed(push(0, seq, &[(1, 1)]))).collect();
    scene.taken(worker(0), &sent[0]);
    scene.taken(worker(0), &sent[1]);
    scene.counters();
    scene.close(REGION);
    assert_eq!(scene.send(worker(0), &sent[2]), None);
    scene.open(RegionConfig { view: u64::from(VIEW) + (1 << 16), ..FIXED }, OPEN, &[(0, 0..2)]);
    for packet in &sent {
        assert_eq!(scene.send(worker(0), packet), None);
    }
    scene.note("The same packets under the new view: seen before, and new.");
    for (seq, packet) in sent.into_iter().enumerate() {
        let packet = scene.signed(packet);
        assert_eq!(scene.taken(worker(0), &packet).header.round, if seq < 2 { OPEN } else { OPEN + 1 });
    }
    scene.close_round(REGION, 1);
    scene
}

fn stale() -> Scene {
    let mut scene = scene(
        "auth-stale",
        "Packets for another view or plan, or for a region that is not here: with MACs they are dropped without an answer, as their tag\n\
         cannot be checked (rule A3). Without keys they are refused.",
        FIXED,
    );
    for kind in [Kind::Push, Kind::Pull] {
        let sound = header(kind, 0, 0);
        let stale = [
            Header { view: VIEW - 1, ..sound },
            Header { view: VIEW + 1, ..sound },
            Header { plan: PLAN + 1, ..sound },
            Header { plan: PLAN - 1, view: VIEW + 1, ..sound },
            Header { region: 9, ..sound },
        ];
        for stale in stale {
            let packet = packet(stale, &[(3, 0)]);
            scene.stale(worker(0), &scene.signed(packet.clone()));
            scene.stale(worker(0), &of_view(0, packet.clone(), stale.view.into()));
            scene.stale(worker(0), &packet);
        }
    }
    scene.note("A probe, too.");
    scene.stale(
        worker(1),
        &scene.signed(packet(Header { view: VIEW + 1, ..header(Kind::Pull, 1, 1 << 31) }, &[])),
    );
    scene
}

fn order() -> Scene {
    let mut scene = scene(
        "auth-order",
        "The order in which a packet is looked at (rules A3, W6): bytes, sender, kind, region, plan, view; then the tag; then all else.",
        FIXED,
    );
    let from = worker(0);
    scene.note("Before the tag, whether it is right or not: malformed bytes, another worker, a kind that no worker sends, another view.");
    let sound = push(0, 0, &[(3, 5)]);
    for packet in [scene.signed(sound.clone()), sound.clone()] {
        scene.malformed(from, &packet[..packet.len() - 1]);
        let mut unknown = packet.clone();
        unknown[2] = 0x80;
        scene.malformed(from, &unknown);
    }
    for kind in [Kind::Ack, Kind::Nack, Kind::Install, Kind::Drain, Kind::Stream] {
        let packet = packet(header(kind, 0, 0), &[]);
        scene.unexpected(from, &scene.signed(packet.clone()));
        scene.unexpected(from, &packet);
    }
    let foreign_and_stale = packet(Header { view: VIEW + 1, ..header(Kind::Push, 1, 0) }, &[]);
    scene.foreign(from, &scene.signed(foreign_and_stale));
    scene.note("After the tag: what is wrong with a wrong tag is forged, and with the right one it is as without keys.");
    let unsound = UNSOUND.map(|(cell, value)| (cell, value.cast_unsigned()));
    let malformed = [
        packet(header(Kind::Push, 0, 0), &unsound),
        push(0, 0, &[(4, 1), (3, 1)]),
        push(0, 0, &[(3, 1 << 19)]),
        push(0, u32::MAX, &[(3, 1)]),
    ];
    for packet in malformed {
        scene.forged(from, &packet);
        scene.malformed(from, &scene.signed(packet));
    }
    let pull = packet(header(Kind::Pull, 0, 0), &[(3, 0)]);
    scene.forged(from, &pull);
    scene.refused(from, &scene.signed(pull), NackReason::NotInstalled);
    scene.active(REGION, false);
    scene.forged(from, &sound);
    scene.refused(from, &scene.signed(sound.clone()), NackReason::Inactive);
    scene.active(REGION, true);
    let stranger = WorkerName { job: JOB, worker: 2 };
    scene.worker(stranger);
    scene.key(stranger, &mac(2));
    scene.forged(worker(2), &push(2, 0, &[(3, 1)]));
    scene.refused(worker(2), &scene.signed(push(2, 0, &[(3, 1)])), NackReason::UnknownFlow);
    scene.note("A duplicate with a wrong tag is not acknowledged.");
    scene.taken(from, &scene.signed(sound.clone()));
    scene.forged(from, &sound);
    scene.bank(REGION);
    scene
}

fn neighbours() -> Scene {
    let mut scene = scene(
        "auth-neighbours",
        "Beside a job with keys one without: its tags mean nothing, and those of its answers are zero. A worker has its key wherever it sends\n\
         from, until it gets another one. An address of no worker has none.",
        FIXED,
    );
    let open_job = WorkerName { job: 8, worker: 0 };
    scene.worker(open_job);
    scene.open(RegionConfig { job: 8, ..FIXED }, AFTER, &[]);
    let unsigned = |seq, tag| packet(Header { job: 8, tag, ..header(Kind::Push, 0, seq) }, &[(3, 5)]);
    for (seq, tag) in [(0, 0), (1, 1), (2, u64::MAX)] {
        assert_eq!(scene.taken(Sender::Worker(open_job), &unsigned(seq, tag)).header.tag, 0);
    }
    let stale = Header { job: 8, view: VIEW + 1, ..header(Kind::Push, 0, 3) };
    scene.refused(Sender::Worker(open_job), &packet(stale, &[]), NackReason::StaleView);
    scene.note("The workers with keys.");
    scene.taken(worker(0), &scene.signed(push(0, 0, &[(3, 5)])));
    scene.forged(worker(1), &push(1, 0, &[(3, 5)]));
    let stranger = Sender::Stranger("10.7.0.99:5000".parse().unwrap());
    scene.dropped(stranger, &scene.signed(push(0, 1, &[(3, 5)])), None);
    scene.note("From another address.");
    let moved = WorkerName { job: JOB, worker: 0 };
    scene.worker_at(moved, "10.7.0.77:6000".parse().unwrap());
    scene.taken(worker(0), &scene.signed(push(0, 1, &[(3, 5)])));
    scene.note("With another key.");
    scene.key(moved, &mac(5));
    scene.forged(worker(0), &scene.signed_with(&mac(0), push(0, 2, &[(3, 5)])));
    scene.taken(worker(0), &scene.signed(push(0, 2, &[(3, 5)])));
    scene.bank(REGION);
    scene
}

fn acks() -> Scene {
    let mut scene = scene(
        "auth-acks",
        "Pushes one right after the other, taken and not. Who reads them at once may answer by fewer acknowledgements, whose tag covers the\n\
         numbers that they list (rules W8, A2).",
        FIXED,
    );
    for seq in (0..12).chain([20, 21, 22, 3, 4, 30]) {
        scene.taken(worker(0), &scene.signed(push(0, seq, &[(1, 1)])));
        if seq % 5 == 3 {
            scene.forged(worker(0), &push(0, seq, &[(1, 1)]));
        }
    }
    for seq in 0..6 {
        let of = u16::try_from(seq % 2).unwrap();
        scene.taken(worker(of), &scene.signed(push(of, 40 + seq, &[(1, 1)])));
    }
    scene.close_round(REGION, 2);
    scene
}

fn cookies(profile: Profile) -> Scene {
    let mut scene = Scene::with_of(
        profile,
        "auth-cookie",
        "In a job with cookies the tag of every packet of a worker is its cookie, and the answer has it, too. All else is as without keys,\n\
         but that packets with another tag are dropped without an answer (rule A5).",
        FIXED,
    );
    for worker in 0..2 {
        scene.key(WorkerName { job: JOB, worker }, &cookie(worker));
    }
    let pull = packet(header(Kind::Pull, 0, 3), &[(3, 0)]);
    let probe = packet(header(Kind::Pull, 0, 1 << 31), &[]);
    let Key::Cookie(right) = cookie(0) else { unreachable!("it makes cookies") };
    let first = scene.signed(push(0, 0, &[(3, 5)]));
    assert_eq!(scene.taken(worker(0), &first).header.tag, right);
    scene.duplicate(worker(0), &first, OPEN);
    scene.refused(worker(0), &scene.signed(pull.clone()), NackReason::NotInstalled);
    scene.taken(worker(0), &scene.signed(probe.clone()));
    scene.install(REGION, &[(scene.slot(0, 3), 0x3F80_0000)]);
    scene.readable(REGION, true);
    scene.taken(worker(0), &scene.signed(pull.clone()));
    let with_values = Header { flags: Flags::VALUES, ..header(Kind::Push, 0, 1) };
    scene.taken(worker(0), &scene.signed(packet(with_values, &[(3, 7)])));
    scene.taken(worker(1), &scene.signed(push(1, 0, &[(3, 9)])));
    scene.note("A bit of the cookie flipped; none; that of the other worker.");
    for question in [push(0, 2, &[(3, 5)]), pull, probe] {
        for bit in 0..64 {
            scene.forged(worker(0), &tagged(question.clone(), right ^ 1 << bit));
        }
        scene.forged(worker(0), &question);
        scene.forged(worker(0), &scene.signed_with(&cookie(1), question));
    }
    scene.bank(REGION);
    scene.note(
        "Another view or plan, or a region that is not here, is refused, and the answer has the cookie.",
    );
    for (stale, reason) in [
        (Header { view: VIEW + 1, ..header(Kind::Push, 0, 2) }, NackReason::StaleView),
        (Header { plan: PLAN + 1, ..header(Kind::Push, 0, 2) }, NackReason::StalePlan),
        (Header { view: VIEW - 1, ..header(Kind::Pull, 0, 2) }, NackReason::StaleView),
        (Header { region: 9, ..header(Kind::Push, 0, 2) }, NackReason::UnknownFlow),
    ] {
        let stale = packet(stale, &[(3, 0)]);
        assert_eq!(scene.refused(worker(0), &scene.signed(stale.clone()), reason).tag, right);
        scene.forged(worker(0), &stale);
    }
    scene.active(REGION, false);
    scene.refused(worker(0), &scene.signed(push(0, 2, &[(3, 5)])), NackReason::Inactive);
    scene.active(REGION, true);
    scene.note("It does not cover the bytes of a packet: a bit that is flipped on the way is not noticed.");
    let mut other = scene.signed(push(0, 2, &[(3, 5)]));
    other[35] ^= 8;
    scene.taken(worker(0), &other);
    scene.note("A region of another number of its view takes the same cookies, as packets have no more of it than its end.");
    let other = RegionName { job: JOB, region: 1 };
    scene.open(RegionConfig { region: 1, view: u64::from(VIEW) + (1 << 16), ..FIXED }, AFTER, &[]);
    let other_push = packet(Header { region: 1, ..header(Kind::Push, 0, 0) }, &[(3, 5)]);
    scene.taken(worker(0), &scene.signed(other_push));
    scene.close_round(other, 2);
    scene.close_round(REGION, 2);
    scene
}
