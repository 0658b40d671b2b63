//! Regions and their owners: fencing, adoption, commits.

use std::sync::Arc;

use super::harness::{CONTROLLER, ServerHarness, address, contents, drained, push, values};
use crate::cluster::{Ownership, Peer, View};
use crate::message::{AckedSet, Committed, Drained, Message, RoundContents, SlotValues};
use crate::role::{Action, Callee, Link, LinkEvent, Role};
use crate::server::tests::harness::NOW;

use Peer::{Switch, Worker};

/// Tests rule V4.
#[test]
fn an_owner_gets_the_contents_and_the_values_of_all_rows() {
    let mut harness = ServerHarness::new();
    let (switch, worker) = (harness.call(Switch(0)), harness.call(Worker(1)));
    let first = harness.adopt(switch, 1).unwrap();
    assert_eq!(
        (first.round, first.contents, first.change, first.values),
        (0, RoundContents::default(), 0, values(0.0))
    );
    assert!(harness.commit(switch, 1, 1, 5).is_some());
    let view_id = harness.assign_region(Some(1));
    let answer = harness.request(worker, push(1, &[0], 2.0));
    assert_eq!(answer.len(), 1, "no switch has the region yet");
    let next = harness.call(Switch(1));
    let adopted = harness.adopt(next, view_id).unwrap();
    assert_eq!((adopted.region, adopted.view_id, adopted.round), (0, view_id, 1));
    assert_eq!((adopted.contents, adopted.values), (contents(1), values(-7.0)));
}

// rules E2, E5
#[test]
fn a_cut_names_what_changed_and_the_region_keeps_the_rest() {
    let mut harness = ServerHarness::new();
    let switch = harness.call(Switch(0));
    harness.adopt(switch, 1);
    let of = |worker: u16, below: u32| -> (u16, AckedSet) { (worker, AckedSet { below, above: Vec::new() }) };
    for (round, flows) in [(1, vec![of(0, 5), of(2, 7)]), (2, vec![of(2, 9)]), (3, vec![of(300, 1)])] {
        let Message::Drained(drained) = drained(1, round, 1) else { panic!("a round") };
        let contents = RoundContents { flows: flows.into_iter().collect() };
        let drained = Arc::new(Drained { contents, ..Arc::unwrap_or_clone(drained) });
        let once = harness.request(switch, Message::Drained(drained.clone()));
        assert!(matches!(once.as_slice(), [Message::Committed(_)]), "{once:?}");
        assert_eq!(
            harness.request(switch, Message::Drained(drained)),
            once,
            "sent again, it is answered again"
        );
    }
    let view_id = harness.assign_region(Some(1));
    let next = harness.call(Switch(1));
    let adopted = harness.adopt(next, view_id).unwrap();
    assert_eq!((adopted.round, adopted.contents.flows), (3, [of(0, 5), of(2, 9), of(300, 1)].into()));
}

#[test]
fn rounds_of_a_former_owner_are_neither_taken_nor_answered() {
    let mut harness = ServerHarness::new();
    let (former, next) = (harness.call(Switch(0)), harness.call(Switch(1)));
    harness.adopt(former, 1);
    assert!(harness.commit(former, 1, 1, 5).is_some());
    let view_id = harness.assign_region(Some(1));
    for switch in [former, next] {
        assert_eq!(harness.commit(switch, 1, 2, 50), None);
        assert_eq!(harness.commit(switch, 1, 1, 50), None, "not even what it had brought");
    }
    assert_eq!(
        harness.commit(next, view_id, 2, 50),
        None,
        "a switch that has not adopted it does not have its contents"
    );
    assert!(harness.adopt(former, 1).is_none());
    assert!(harness.adopt(former, view_id).is_none(), "it is not the owner");
    assert!(harness.adopt(next, 1).is_none());
    assert_eq!((harness.statistics().fenced, harness.closed.len()), (8, 0));
    assert_eq!(harness.adopt(next, view_id).unwrap().round, 1);
    assert_eq!(harness.commit(next, view_id, 2, 7).map(|committed| committed.round), Some(2));
    assert_eq!(harness.commit(former, 1, 3, 50), None);
    assert_eq!(harness.commit(former, view_id, 3, 50), None, "not on another stream");
    assert_eq!(harness.value(0), -12.0);
}

/// Tests rule E3.
#[test]
fn a_round_is_applied_once_and_none_is_skipped() {
    let mut harness = ServerHarness::new();
    let switch = harness.call(Switch(0));
    harness.adopt(switch, 1);
    let committed = |round, value: f32| {
        let values = SlotValues { slots: vec![(0, 2)], values: crate::bulk::Bulk(vec![value.to_bits(); 2]) };
        Some(Committed { region: 0, view_id: 1, round, values })
    };
    assert_eq!(harness.commit(switch, 1, 1, 5), committed(1, -5.0));
    assert_eq!(harness.commit(switch, 1, 1, 5), committed(1, -5.0), "it comes again, and is answered again");
    assert_eq!(harness.commit(switch, 1, 2, 1), committed(2, -6.0));
    assert_eq!(harness.statistics().duplicates, 1);
    assert_eq!(harness.commit(switch, 1, 4, 1), None, "round 3 is missing");
    assert_eq!(harness.closed, [switch]);
    assert_eq!(harness.value(0), -6.0);
}

#[test]
fn an_owner_whose_stream_broke_comes_again_and_goes_on() {
    let mut harness = ServerHarness::new();
    let before = harness.call(Switch(0));
    harness.adopt(before, 1);
    harness.commit(before, 1, 1, 5);
    harness.hang_up(before);
    let switch = harness.call(Switch(0));
    assert_eq!(harness.commit(switch, 1, 2, 3), None, "first it must receive what it has missed");
    let adopted = harness.adopt(switch, 1).unwrap();
    assert_eq!((adopted.round, adopted.contents, adopted.values), (1, contents(1), values(-5.0)));
    assert!(harness.commit(switch, 1, 2, 3).is_some());
    // The end of the old stream is reported late.
    harness.hang_up(before);
    assert!(harness.commit(switch, 1, 3, 3).is_some());
    // Two streams at once: the newer one counts.
    let newer = harness.call(Switch(0));
    assert!(harness.adopt(newer, 1).is_some());
    harness.hang_up(switch);
    assert!(harness.commit(newer, 1, 4, 3).is_some());
}

#[test]
fn an_older_view_is_ignored_and_answered_with_the_newest() {
    let mut harness = ServerHarness::new();
    let view_id = harness.assign_region(Some(1));
    let older =
        View { number: 1, ownerships: vec![Ownership { owner: Some(0), view_id: 1 }], ..harness.view() };
    let answer = harness.request(CONTROLLER, Message::View(older.into()));
    assert_eq!(answer, [Message::Viewed { number: view_id }]);
    let switches = [harness.call(Switch(0)), harness.call(Switch(1))];
    assert!(harness.adopt(switches[0], 1).is_none());
    assert!(harness.adopt(switches[1], view_id).is_some());
}

#[test]
fn a_view_that_moves_nothing_interrupts_no_stream() {
    let mut harness = ServerHarness::new();
    let switch = harness.call(Switch(0));
    harness.adopt(switch, 1);
    let view =
        View { number: 9, ownerships: vec![Ownership { owner: Some(0), view_id: 1 }], ..harness.view() };
    assert_eq!(harness.request(CONTROLLER, Message::View(view.into())), [Message::Viewed { number: 9 }]);
    assert!(harness.commit(switch, 1, 1, 5).is_some());
}

#[test]
fn drains_that_make_no_sense_change_nothing() {
    let bad: [fn(&mut Drained); 5] = [
        |drained| drained.region = 7,
        |drained| drained.slots = vec![(0, 3)],
        |drained| drained.slots = vec![(2, 1), (1, 1)],
        |drained| drained.slots = vec![(u16::MAX, 2)],
        |drained| drained.sums.0.clear(),
    ];
    for edit in bad {
        let mut harness = ServerHarness::new();
        let switch = harness.call(Switch(0));
        harness.adopt(switch, 1);
        let Message::Drained(mut drained) = drained(1, 1, 5) else { unreachable!() };
        edit(Arc::make_mut(&mut drained));
        assert_eq!(harness.request(switch, Message::Drained(drained)), []);
        assert_eq!((harness.value(0), harness.closed.as_slice()), (0.0, [switch].as_slice()));
    }
}

#[test]
fn a_server_without_controller_sends_the_next_one_its_state() {
    let mut harness = ServerHarness::new();
    let switch = harness.call(Switch(1));
    let view_id = harness.assign_region(Some(1));
    harness.adopt(switch, view_id);
    harness.hang_up(CONTROLLER);
    assert!(harness.commit(switch, view_id, 1, 5).is_some());
    let due = harness.server.poll_timeout().unwrap();
    assert!(due.since(NOW) <= core::time::Duration::from_millis(100));
    harness.server.handle_timeout(due);
    let Some(Action::Connect { link, to }) = harness.server.poll_action() else { panic!() };
    assert_eq!(to, Callee::Controller);
    harness.server.handle_link(due, link, LinkEvent::Opened { remote: address(0) });
    let Some(Action::Send { message: Message::Rejoin(rejoin), .. }) = harness.server.poll_action() else {
        panic!()
    };
    assert_eq!((rejoin.you, rejoin.view), (Peer::Server(0), view_id));
    let cluster = rejoin.cluster.unwrap();
    assert_eq!(
        (cluster.view.number, cluster.view.ownerships),
        (view_id, vec![Ownership { owner: Some(1), view_id }])
    );
    assert_eq!(cluster.plan, crate::testing::cluster(4).plan);
    // Messages on the old stream come from no peer.
    harness.send(CONTROLLER, Message::Abort { reason: "late".into() });
    assert_eq!(harness.closed, [CONTROLLER]);
    assert_eq!(Link(1), link);
}

#[test]
fn an_owner_that_gets_a_region_back_starts_again() {
    let mut harness = ServerHarness::new();
    let switch = harness.call(Switch(0));
    harness.adopt(switch, 1);
    harness.assign_region(None);
    let view_id = harness.assign_region(Some(0));
    assert!(harness.adopt(switch, view_id).is_some());
    assert_eq!(harness.commit(switch, 1, 1, 50), None);
    assert_eq!(harness.commit(switch, view_id, 1, 5).map(|committed| committed.view_id), Some(view_id));
    assert_eq!(harness.value(0), -5.0);
}

#[test]
fn an_adoption_on_a_broken_stream_does_not_take_the_region() {
    let mut harness = ServerHarness::new();
    // The switch sent Adopt on `older`, lost the stream, and sent it again on `newer`; what it sent first comes last.
    let (older, newer) = (harness.call(Switch(0)), harness.call(Switch(0)));
    harness.adopt(newer, 1).unwrap();
    harness
        .send(older, Message::Adopt { region: 0, view_id: 1, round: 0, contents: RoundContents::default() });
    harness.hang_up(older);
    assert!(harness.commit(newer, 1, 1, 5).is_some(), "the switch waits for this answer for ever");
}
