//! Packets for regions that no switch holds.

use super::harness::{ServerHarness, push, pushed_in, replay};
use crate::bulk::Bulk;
use crate::cluster::Peer;
use crate::message::{Message, Replay};
use crate::role::Link;
use crate::transport::flow::edit_header;

use Peer::{Switch, Worker};

/// A region whose owner is gone after a round: of worker 1 it had packets 0, 1, 5 and 6.
fn orphaned() -> (ServerHarness, Link, u64) {
    let mut harness = ServerHarness::new();
    let switch = harness.call(Switch(0));
    harness.adopt(switch, 1);
    harness.commit(switch, 1, 1, 100);
    let view_id = harness.assign_region(None);
    let worker = harness.call(Worker(1));
    (harness, worker, view_id)
}

fn replayed(view_id: u64, below: u32) -> Message {
    Message::Replayed { region: 0, view_id, below }
}

/// Tests rule V6.
#[test]
fn packets_in_the_contents_are_not_added_again() {
    let (mut harness, worker, view_id) = orphaned();
    // Each adds its number plus one: 3 + 4 + 5 of those that are new.
    assert_eq!(harness.request(worker, Message::Replay(replay(1, view_id, 0..7))), [replayed(view_id, 7)]);
    assert_eq!(harness.value(0), -112.0);
    assert_eq!((harness.statistics().rounds, harness.statistics().replays), (2, 1));
}

#[test]
fn a_replay_that_comes_twice_is_applied_once() {
    let (mut harness, worker, view_id) = orphaned();
    harness.send(worker, Message::Replay(replay(1, view_id, 0..4)));
    harness.hang_up(worker);
    let again = harness.call(Worker(1));
    harness.answers(worker);
    assert_eq!(harness.request(again, Message::Replay(replay(1, view_id, 0..4))), [replayed(view_id, 4)]);
    assert_eq!(harness.request(again, Message::Replay(replay(1, view_id, 3..8))), [replayed(view_id, 8)]);
    // 3 + 4, then 5 and 8.
    assert_eq!(harness.value(0), -120.0);
    assert_eq!(harness.statistics().rounds, 3, "what adds nothing is no round");
}

#[test]
fn workers_are_told_apart() {
    let (mut harness, worker, view_id) = orphaned();
    let other = harness.call(Worker(2));
    assert_eq!(harness.request(other, Message::Replay(replay(2, view_id, 0..2))), [replayed(view_id, 2)]);
    assert_eq!(harness.request(worker, Message::Replay(replay(1, view_id, 0..2))), [replayed(view_id, 2)]);
    assert_eq!(harness.value(0), -103.0);
    // And no worker sends for another.
    assert_eq!(harness.request(worker, Message::Replay(replay(2, view_id, 7..8))), []);
    assert_eq!(harness.closed, [worker]);
    assert_eq!(harness.value(0), -103.0);
}

#[test]
fn the_next_owner_goes_on_from_what_was_replayed() {
    let (mut harness, worker, view_id) = orphaned();
    harness.send(worker, Message::Replay(replay(1, view_id, 2..4)));
    harness.answers(worker);
    let next = harness.assign_region(Some(1));
    let switch = harness.call(Switch(1));
    let adopted = harness.adopt(switch, next).unwrap();
    assert_eq!(adopted.round, 2);
    let flow = &adopted.contents.flows[&1];
    assert_eq!((flow.below, flow.above.as_slice()), (4, [(5, 2)].as_slice()));
    assert_eq!(adopted.values, super::harness::values(-107.0));
    assert!(harness.commit(switch, next, 3, 1).is_some());
}

#[test]
fn a_replay_of_another_view_is_neither_taken_nor_answered() {
    let (mut harness, worker, view_id) = orphaned();
    assert_eq!(harness.request(worker, Message::Replay(replay(1, view_id - 1, 2..4))), []);
    assert_eq!(harness.request(worker, Message::Replay(replay(1, view_id + 1, 2..4))), []);
    harness.assign_region(Some(1));
    assert_eq!(
        harness.request(worker, Message::Replay(replay(1, view_id, 2..4))),
        [],
        "it has gone to a switch"
    );
    let later = harness.assign_region(None);
    assert_eq!(harness.request(worker, Message::Replay(replay(1, view_id, 2..4))), []);
    assert_eq!((harness.statistics().fenced, harness.value(0)), (4, -100.0));
    assert_eq!(harness.request(worker, Message::Replay(replay(1, later, 2..4))), [replayed(later, 4)]);
    assert_eq!(harness.value(0), -107.0);
    assert_eq!(harness.closed, []);
}

#[test]
fn a_replay_longer_than_a_bank_or_a_window_is_taken_whole() {
    let (mut harness, worker, view_id) = orphaned();
    let end = 5000;
    assert_eq!(
        harness.request(worker, Message::Replay(replay(1, view_id, 0..end))),
        [replayed(view_id, end)]
    );
    // Rows of packets 0, 1, 5 and 6 were in the sum of the switch.
    let sum = (1..=u64::from(end)).sum::<u64>() - (1 + 2 + 6 + 7) + 100;
    #[expect(clippy::cast_precision_loss, reason = "it is below 2^24")]
    let expected = -(sum as f32);
    assert_eq!(harness.value(0), expected);
    assert!(harness.statistics().rounds > 2, "a bank does not hold so many");
    assert_eq!(
        harness.request(worker, Message::Replay(replay(1, view_id, end - 3000..end))),
        [replayed(view_id, end)]
    );
    assert_eq!(harness.value(0), expected);
}

#[test]
fn packets_that_make_no_sense_are_not_taken() {
    let (_, _, view_id) = orphaned();
    let edit = |edit: fn(&mut libra_dataplane::Header)| {
        let mut bad = replay(1, view_id, 2..3);
        let mut header = libra_dataplane::Header::parse_without_entries(&bad.packets[0].0).unwrap();
        edit(&mut header);
        header.emit(&mut bad.packets[0].0);
        bad
    };
    let bad = [
        Replay { packets: vec![Bulk(vec![1, 2, 3])], ..replay(1, view_id, 0..0) },
        Replay { region: 9, ..replay(1, view_id, 2..3) },
        edit(|header| header.kind = libra_dataplane::Kind::Install),
        edit(|header| header.kind = libra_dataplane::Kind::Drain),
        edit(|header| header.region = 1),
        edit(|header| header.plan += 1),
        edit(|header| header.view += 1),
        edit(|header| header.job += 1),
        edit(|header| header.entries = 9),
    ];
    for replay in bad {
        let (mut harness, worker, _) = orphaned();
        assert_eq!(harness.request(worker, Message::Replay(replay.clone())), [], "{replay:?}");
        assert_eq!((harness.value(0), harness.closed.as_slice()), (-100.0, [worker].as_slice()));
    }
    // A number that no region has a window for.
    let (mut harness, _, view_id) = orphaned();
    harness.add_workers([4000]);
    let worker = harness.call(Worker(4000));
    assert_eq!(harness.request(worker, Message::Replay(replay(4000, view_id, 0..1))), []);
    assert_eq!(harness.closed, [worker]);
}

#[test]
fn rows_without_an_owner_are_pushed_and_answered_like_others() {
    let (mut harness, worker, view_id) = orphaned();
    assert_eq!(harness.request(worker, push(1, &[0], 1.0)), [pushed_in(view_id, 1, &[-101.0; 2])]);
    assert_eq!(harness.request(worker, Message::Replay(replay(1, view_id, 2..3))), [replayed(view_id, 3)]);
    assert_eq!(harness.value(0), -104.0);
}

// rule A6
#[test]
fn tags_of_replayed_packets_do_not_count() {
    let (mut harness, worker, view_id) = orphaned();
    let mut replay = replay(1, view_id, 0..4);
    for (number, packet) in (1..).zip(&mut replay.packets) {
        edit_header(&mut packet.0, |header| header.tag = number);
    }
    assert_eq!(harness.request(worker, Message::Replay(replay)), [replayed(view_id, 4)]);
    assert_eq!(harness.value(0), -107.0);
}
