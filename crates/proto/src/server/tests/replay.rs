//! Packets for regions that no switch holds.

use super::counter::{Counter, push, pushed_in, replay};
use crate::bulk::Bulk;
use crate::cluster::Peer;
use crate::message::{Message, Replay};
use crate::role::Link;

use Peer::{Switch, Worker};

/// A region whose holder is gone after an epoch: of worker 1 it had packets 0, 1, 5 and 6.
fn orphaned() -> (Counter, Link, u64) {
    let mut counter = Counter::new();
    let switch = counter.call(Switch(0));
    counter.adopt(switch, 1);
    counter.commit(switch, 1, 1, 100);
    let since = counter.give(None);
    let worker = counter.call(Worker(1));
    (counter, worker, since)
}

fn replayed(since: u64, below: u32) -> Message {
    Message::Replayed { region: 0, since, below }
}

/// Tests rule V6.
#[test]
fn packets_in_the_cut_are_not_added_again() {
    let (mut counter, worker, since) = orphaned();
    // Each adds its number plus one: 3 + 4 + 5 of those that are new.
    assert_eq!(counter.ask(worker, Message::Replay(replay(1, since, 0..7))), [replayed(since, 7)]);
    assert_eq!(counter.value(0), -112.0);
    assert_eq!((counter.statistics().epochs, counter.statistics().replays), (2, 1));
}

#[test]
fn a_replay_that_comes_twice_is_applied_once() {
    let (mut counter, worker, since) = orphaned();
    counter.say(worker, Message::Replay(replay(1, since, 0..4)));
    counter.hang_up(worker);
    let again = counter.call(Worker(1));
    counter.answers(worker);
    assert_eq!(counter.ask(again, Message::Replay(replay(1, since, 0..4))), [replayed(since, 4)]);
    assert_eq!(counter.ask(again, Message::Replay(replay(1, since, 3..8))), [replayed(since, 8)]);
    // 3 + 4, then 5 and 8.
    assert_eq!(counter.value(0), -120.0);
    assert_eq!(counter.statistics().epochs, 3, "what adds nothing is no epoch");
}

#[test]
fn workers_are_told_apart() {
    let (mut counter, worker, since) = orphaned();
    let other = counter.call(Worker(2));
    assert_eq!(counter.ask(other, Message::Replay(replay(2, since, 0..2))), [replayed(since, 2)]);
    assert_eq!(counter.ask(worker, Message::Replay(replay(1, since, 0..2))), [replayed(since, 2)]);
    assert_eq!(counter.value(0), -103.0);
    // And no worker sends for another.
    assert_eq!(counter.ask(worker, Message::Replay(replay(2, since, 7..8))), []);
    assert_eq!(counter.closed, [worker]);
    assert_eq!(counter.value(0), -103.0);
}

#[test]
fn the_next_holder_goes_on_from_what_was_replayed() {
    let (mut counter, worker, since) = orphaned();
    counter.say(worker, Message::Replay(replay(1, since, 2..4)));
    counter.answers(worker);
    let next = counter.give(Some(1));
    let switch = counter.call(Switch(1));
    let adopted = counter.adopt(switch, next).unwrap();
    assert_eq!(adopted.epoch, 2);
    let flow = &adopted.cut.flows[&1];
    assert_eq!((flow.below, flow.above.as_slice()), (4, [(5, 2)].as_slice()));
    assert_eq!(adopted.values, super::counter::values(-107.0));
    assert!(counter.commit(switch, next, 3, 1).is_some());
}

#[test]
fn a_replay_of_another_view_is_neither_taken_nor_answered() {
    let (mut counter, worker, since) = orphaned();
    assert_eq!(counter.ask(worker, Message::Replay(replay(1, since - 1, 2..4))), []);
    assert_eq!(counter.ask(worker, Message::Replay(replay(1, since + 1, 2..4))), []);
    counter.give(Some(1));
    assert_eq!(counter.ask(worker, Message::Replay(replay(1, since, 2..4))), [], "it has gone to a switch");
    let later = counter.give(None);
    assert_eq!(counter.ask(worker, Message::Replay(replay(1, since, 2..4))), []);
    assert_eq!((counter.statistics().fenced, counter.value(0)), (4, -100.0));
    assert_eq!(counter.ask(worker, Message::Replay(replay(1, later, 2..4))), [replayed(later, 4)]);
    assert_eq!(counter.value(0), -107.0);
    assert_eq!(counter.closed, []);
}

#[test]
fn a_replay_longer_than_a_bank_or_a_window_is_taken_whole() {
    let (mut counter, worker, since) = orphaned();
    let end = 5000;
    assert_eq!(counter.ask(worker, Message::Replay(replay(1, since, 0..end))), [replayed(since, end)]);
    // Rows of packets 0, 1, 5 and 6 were in the sum of the switch.
    let sum = (1..=u64::from(end)).sum::<u64>() - (1 + 2 + 6 + 7) + 100;
    #[expect(clippy::cast_precision_loss, reason = "it is below 2^24")]
    let expected = -(sum as f32);
    assert_eq!(counter.value(0), expected);
    assert!(counter.statistics().epochs > 2, "a bank does not hold so many");
    assert_eq!(
        counter.ask(worker, Message::Replay(replay(1, since, end - 3000..end))),
        [replayed(since, end)]
    );
    assert_eq!(counter.value(0), expected);
}

#[test]
fn packets_that_make_no_sense_are_not_taken() {
    let (_, _, since) = orphaned();
    let edit = |edit: fn(&mut libra_dataplane::Header)| {
        let mut bad = replay(1, since, 2..3);
        let mut header = libra_dataplane::Header::parse_without_entries(&bad.packets[0].0).unwrap();
        edit(&mut header);
        header.emit(&mut bad.packets[0].0);
        bad
    };
    let bad = [
        Replay { packets: vec![Bulk(vec![1, 2, 3])], ..replay(1, since, 0..0) },
        Replay { region: 9, ..replay(1, since, 2..3) },
        edit(|header| header.kind = libra_dataplane::Kind::Install),
        edit(|header| header.kind = libra_dataplane::Kind::Drain),
        edit(|header| header.region = 1),
        edit(|header| header.plan += 1),
        edit(|header| header.view += 1),
        edit(|header| header.job += 1),
        edit(|header| header.entries = 9),
    ];
    for replay in bad {
        let (mut counter, worker, _) = orphaned();
        assert_eq!(counter.ask(worker, Message::Replay(replay.clone())), [], "{replay:?}");
        assert_eq!((counter.value(0), counter.closed.as_slice()), (-100.0, [worker].as_slice()));
    }
    // A number that no region has a window for.
    let (mut counter, _, since) = orphaned();
    counter.seat([4000]);
    let worker = counter.call(Worker(4000));
    assert_eq!(counter.ask(worker, Message::Replay(replay(4000, since, 0..1))), []);
    assert_eq!(counter.closed, [worker]);
}

#[test]
fn rows_without_a_holder_are_pushed_and_answered_like_others() {
    let (mut counter, worker, since) = orphaned();
    assert_eq!(counter.ask(worker, push(1, &[0], 1.0)), [pushed_in(since, 1, &[-101.0; 2])]);
    assert_eq!(counter.ask(worker, Message::Replay(replay(1, since, 2..3))), [replayed(since, 3)]);
    assert_eq!(counter.value(0), -104.0);
}
