//! Which packets were taken before.

use libra_dataplane::{Flags, Header, Kind, NackReason, RegionConfig, SEQ_MAX};

use crate::scene::{AFTER, FIXED, REGION, Scene, header, packet, push, worker};

pub(crate) fn scenes() -> Vec<Scene> {
    vec![duplicates()]
}

/// The newest epoch that a region of these scenes has open.
const OPEN: u16 = AFTER + 1;

fn duplicates() -> Scene {
    let mut scene = Scene::with(
        "dedup-duplicates",
        "A duplicate is acknowledged and not added, whatever it holds now (rules D1, D2).",
        FIXED,
    );
    let from = worker(0);
    assert_eq!(scene.taken(from, &push(0, 0, &[(3, 40)])).header.epoch, OPEN);
    scene.note("The network has delivered it twice.");
    scene.taken(from, &push(0, 0, &[(3, 40)]));
    scene.note("Its worker has sent it again.");
    let again = Header { flags: Flags::RETRANSMIT, ..header(Kind::Push, 0, 0) };
    scene.taken(from, &packet(again, &[(3, 40)]));
    scene.note("The number alone says what is a duplicate.");
    scene.taken(from, &push(0, 0, &[(5, 1)]));
    scene.note("Another flow has numbers of its own.");
    scene.taken(worker(1), &push(1, 0, &[(3, 2)]));
    scene.bank(REGION);
    assert_eq!(scene.flip(REGION), Some(OPEN));
    scene.cut(REGION, 0);
    scene.cut(REGION, 1);
    scene.drain(REGION);
    scene
}
