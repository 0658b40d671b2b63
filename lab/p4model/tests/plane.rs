//! The plane of an agent over the program in this process.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use libra_dataplane::{Arithmetic, BankPackets, Header, Kind, NackReason, RegionConfig};
use libra_p4::{P4Plane, Sizes, Sums};
use libra_p4model::Switch;
use libra_proto::{Outgoing, Plane, RoundContents};

// rule D4
#[test]
fn a_bank_that_duplicates_have_filled_is_closed_in_time() {
    let lanes = 2;
    let sizes = Sizes { lanes, ..Sizes::default() };
    let mut plane = P4Plane::new(Switch::new(sizes), sizes);
    let Sums::Fixed { bound_bits } = sizes.sums else { panic!("the default is fixed point") };
    let config = RegionConfig {
        job: 1,
        region: 0,
        plan: 1,
        view: 1,
        lanes,
        cells: 4,
        flows: 1,
        bank_packets_max: 8,
        arithmetic: Arithmetic::Fixed { bound: (1 << bound_bits) - 1 },
    };
    let worker = SocketAddr::from(([10, 0, 0, 1], 4000));
    plane.begin(1);
    plane.set_workers(&BTreeMap::from([(0, worker)]));
    plane.open(config, 0, &RoundContents::default(), BankPackets::default());
    let push = |plane: &mut P4Plane<Switch>, seq| {
        let header = Header { job: 1, plan: 1, view: 1, seq, entries: lanes, ..Header::of_kind(Kind::Push) };
        let mut packet = header.to_bytes().to_vec();
        packet.extend([0, 0, 0, 0, 0, 1].repeat(lanes.into()));
        let mut answers = Outgoing::default();
        let bytes = packet.len();
        plane.handle_datagrams(worker, &mut packet, bytes, &mut answers);
        let (_, answer) = answers.get(0).expect("a worker is answered");
        Header::parse_without_entries(answer).expect("it is a packet").nack_reason()
    };
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
