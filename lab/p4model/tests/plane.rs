//! The plane of an agent over the program in this process.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use libra_dataplane::{
    Arithmetic, BODY_KEY_BYTES, BankPackets, BodyKey, Header, Kind, NackReason, PathKeys, RegionConfig,
    TagKey,
};
use libra_p4::{P4Plane, Sizes, Sums};
use libra_p4model::Switch;
use libra_proto::{Outgoing, PathTags, Plane, RoundContents, TagKind, WorkerPath};

const LANES: u8 = 2;

/// A plane of a small program, and a region for it.
fn plane() -> (P4Plane<Switch>, RegionConfig) {
    let sizes = Sizes { lanes: LANES, ..Sizes::default() };
    let mut plane = P4Plane::new(Switch::new(sizes), sizes);
    let Sums::Fixed { bound_bits } = sizes.sums else { panic!("the default is fixed point") };
    let config = RegionConfig {
        job: 1,
        region: 0,
        plan: 1,
        view: 1,
        lanes: LANES,
        cells: 4,
        flows: 1,
        bank_packets_max: 8,
        arithmetic: Arithmetic::Fixed { bound: (1 << bound_bits) - 1 },
    };
    plane.begin(1);
    (plane, config)
}

fn worker() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 4000))
}

/// The header of the answer to a push of the worker.
fn push(plane: &mut P4Plane<Switch>, seq: u32, tag: u64) -> Option<Header> {
    let header = Header { job: 1, plan: 1, view: 1, seq, entries: LANES, tag, ..Header::of_kind(Kind::Push) };
    let mut packet = header.to_bytes().to_vec();
    packet.extend([0, 0, 0, 0, 0, 1].repeat(LANES.into()));
    let mut answers = Outgoing::default();
    let bytes = packet.len();
    plane.handle_datagrams(worker(), &mut packet, bytes, &mut answers);
    let (_, answer) = answers.get(0)?;
    Some(Header::parse_without_entries(answer).expect("it is a packet"))
}

// rule A5
#[test]
fn packets_with_the_cookie_of_their_worker_alone_are_taken() {
    let (mut plane, config) = plane();
    assert_eq!(plane.tags(), TagKind::Cookie);
    let path = |tags| BTreeMap::from([(0, WorkerPath { address: worker(), tags })]);
    plane.set_workers(&path(Some(PathTags::Cookie(7 << 32 | 9))));
    plane.open(config, 0, &RoundContents::default(), BankPackets::default());
    let answer = push(&mut plane, 0, 7 << 32 | 9).expect("it is the cookie");
    assert_eq!((answer.kind, answer.tag), (Kind::Ack, 7 << 32 | 9));
    for wrong in [0, 7 << 32, 9, 9 << 32 | 7] {
        assert_eq!(push(&mut plane, 1, wrong), None, "{wrong:x}");
    }
    // The worker has come again, and has another one.
    plane.set_workers(&path(Some(PathTags::Cookie(8))));
    assert_eq!(push(&mut plane, 1, 7 << 32 | 9), None);
    assert_eq!(push(&mut plane, 1, 8).map(|answer| (answer.kind, answer.tag)), Some((Kind::Ack, 8)));
    plane.set_workers(&path(None));
    assert_eq!(push(&mut plane, 2, 8), None);
    assert_eq!(push(&mut plane, 2, 0).map(|answer| (answer.kind, answer.tag)), Some((Kind::Ack, 0)));
    plane.clear_wakeups();
    assert_eq!((plane.taken(0).pushes, plane.failure()), (3, None));
}

#[test]
fn a_job_with_macs_is_refused_in_words() {
    let (mut plane, _) = plane();
    let key = TagKey::from_bytes([1; 16]);
    let body = Arc::new(BodyKey::from_bytes(&[1; BODY_KEY_BYTES]));
    let tags = Some(PathTags::Mac { body, keys: PathKeys { up: key, down: key } });
    plane.set_workers(&BTreeMap::from([(0, WorkerPath { address: worker(), tags })]));
    let failure = plane.failure().expect("it cannot compute them");
    assert_eq!(failure, "packets of the worker at 10.0.0.1:4000 have MACs: a P4 switch knows cookies alone");
}

// rule D4
#[test]
fn a_bank_that_duplicates_have_filled_is_closed_in_time() {
    let (mut plane, config) = plane();
    plane.set_workers(&BTreeMap::from([(0, worker().into())]));
    plane.open(config, 0, &RoundContents::default(), BankPackets::default());
    let push =
        |plane: &mut P4Plane<Switch>, seq| push(plane, seq, 0).expect("a worker is answered").nack_reason();
    assert_eq!(push(&mut plane, 0), None);
    plane.clear_wakeups();
    assert_eq!(plane.taken(0).pushes, 1);
    plane.close_round(0);
    (0..8).for_each(|_| assert_eq!(push(&mut plane, 0), None, "a duplicate"));
    assert_eq!(push(&mut plane, 1), Some(NackReason::BankFull));
    (1..32).for_each(|_| plane.clear_wakeups());
    assert_eq!(plane.taken(0).pushes, 0);
    plane.clear_wakeups();
    assert_eq!(plane.taken(0).pushes, 1, "so the agent closes it");
    plane.close_round(0);
    assert_eq!((push(&mut plane, 1), plane.failure()), (None, None));
}
