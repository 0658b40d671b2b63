//! Checkpoints of all servers, and servers that come back.

use core::time::Duration;

use super::harness::{ControllerHarness, ms};
use crate::cluster::{Durability, Peer};
use crate::controller::{ControllerCommand, ControllerEvent};
use crate::message::Message;
use crate::statistics::{ServerStatistics, Statistics};

use Peer::{Server, Worker};

/// Two servers that come back, and one worker.
fn keeping(checkpoint_every: Option<Duration>) -> ControllerHarness {
    let mut harness = ControllerHarness::running(2, 0, 0, 1);
    harness.controller.cluster.durability = Durability { log: true, checkpoint_every, ..Durability::NONE };
    for number in 0..2 {
        harness.controller.members.get_mut(&Server(number)).unwrap().is_restartable = true;
    }
    let now = harness.now;
    harness.controller.schedule_checkpoint(now);
    harness
}

/// The checkpoint that a server was sent a request for since the last look.
fn checkpoint_sent(harness: &mut ControllerHarness, server: u16) -> Option<u64> {
    harness.received(Server(server)).into_iter().find_map(|message| match message {
        Message::Checkpoint { number } => Some(number),
        _ => None,
    })
}

fn answer(harness: &mut ControllerHarness, server: u16, number: u64, failure: Option<&str>) {
    let (is_on_disk, failure) = (failure.is_none(), failure.map(str::to_owned));
    harness.from(Server(server), Message::Checkpointed { number, is_on_disk, failure });
}

// rule L2
#[test]
fn a_checkpoint_has_one_number_and_is_there_when_all_have_it() {
    let mut harness = keeping(Some(ms(1000)));
    harness.pass(ms(1050), &[]);
    assert_eq!([checkpoint_sent(&mut harness, 0), checkpoint_sent(&mut harness, 1)], [Some(2); 2]);
    answer(&mut harness, 0, 2, None);
    assert_eq!(harness.events(), []);
    harness.now = harness.now + ms(200);
    answer(&mut harness, 1, 2, None);
    let events = harness.events();
    assert!(
        matches!(events.as_slice(), [ControllerEvent::Checkpointed { number: 2, took }] if *took >= ms(200))
    );
    // A repeated answer, or one about a checkpoint that was not requested, changes nothing.
    answer(&mut harness, 1, 2, None);
    answer(&mut harness, 1, 9, None);
    assert_eq!(harness.events(), []);
    harness.pass(ms(1050), &[]);
    assert_eq!(checkpoint_sent(&mut harness, 0), Some(3));
    answer(&mut harness, 0, 3, Some("the disk is full"));
    answer(&mut harness, 1, 3, None);
    let events = harness.events();
    let [ControllerEvent::CheckpointFailed { number: 3, reason }] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!(reason, "server 0: the disk is full");
}

// rule L11
#[test]
fn servers_are_told_which_checkpoint_all_of_them_have() {
    let mut harness = keeping(None);
    harness.controller.first_checkpoint_is_complete();
    let mut begin = |answers: &[(Option<&str>, bool)]| {
        harness.command(ControllerCommand::Checkpoint);
        let received = harness.received(Server(0));
        let [Message::CheckpointComplete { number: complete }, Message::Checkpoint { number }] =
            &received[..]
        else {
            panic!("{received:?}")
        };
        for (server, (failure, is_on_disk)) in (0..).zip(answers) {
            let (is_on_disk, failure) = (*is_on_disk, failure.map(str::to_owned));
            harness.from(Server(server), Message::Checkpointed { number: *number, is_on_disk, failure });
        }
        (*complete, *number)
    };
    assert_eq!(begin(&[(None, true), (None, true)]), (1, 2));
    assert_eq!(begin(&[(None, true), (Some("full"), false)]), (2, 3));
    assert_eq!(begin(&[(None, true), (Some("not uploaded"), true)]), (2, 4));
    assert_eq!(begin(&[]), (4, 5));
}

// rules M7, L5
#[test]
fn no_checkpoint_begins_while_a_restartable_server_is_away() {
    let mut harness = keeping(Some(ms(1000)));
    harness.pass(ms(1050), &[]);
    assert_eq!([checkpoint_sent(&mut harness, 0), checkpoint_sent(&mut harness, 1)], [Some(2); 2]);
    answer(&mut harness, 0, 2, None);
    harness.break_stream(Server(1));
    let events = harness.events();
    assert!(
        matches!(
            events.as_slice(),
            [ControllerEvent::Away { peer: Server(1), .. }, ControllerEvent::CheckpointFailed { .. }]
        ),
        "{events:?}"
    );
    harness.pass(ms(29_000), &[Server(1)]);
    assert_eq!((harness.failure(), checkpoint_sent(&mut harness, 0)), (None, None));
    harness.rejoin_with(Server(1), |rejoin| rejoin.join.is_restartable = true);
    assert!(harness.received_view(Server(1)).is_some());
    let events = harness.events();
    assert!(
        matches!(events.as_slice(), [ControllerEvent::Returned { peer: Server(1), took }] if *took >= ms(29_000)),
        "{events:?}"
    );
    harness.pass(ms(2100), &[]);
    assert_eq!(checkpoint_sent(&mut harness, 1), Some(3));
    harness.break_stream(Server(1));
    harness.pass(ms(30_100), &[Server(1)]);
    assert!(harness.failure().is_some());
}

#[test]
fn a_log_that_has_grown_or_a_person_asks_for_a_checkpoint() {
    let mut harness = keeping(None);
    harness.pass(ms(5000), &[]);
    assert_eq!(checkpoint_sent(&mut harness, 0), None);
    let heartbeat = |log_bytes, checkpoint| {
        let counts = ServerStatistics { log_bytes, checkpoint, ..ServerStatistics::default() };
        Message::Heartbeat { statistics: Statistics::Server(counts), probe: 0 }
    };
    harness.from(Server(1), heartbeat(1 << 20, 6));
    assert_eq!(checkpoint_sent(&mut harness, 0), None);
    harness.from(Server(1), heartbeat(5 << 30, 6));
    // Above all that a server has, whatever requested it.
    assert_eq!(checkpoint_sent(&mut harness, 0), Some(7));
    harness.from(Server(1), heartbeat(5 << 30, 6));
    harness.command(ControllerCommand::Checkpoint);
    assert_eq!(checkpoint_sent(&mut harness, 0), None);
    answer(&mut harness, 0, 7, None);
    answer(&mut harness, 1, 7, None);
    harness.command(ControllerCommand::Checkpoint);
    assert_eq!(checkpoint_sent(&mut harness, 0), Some(8));
    // Servers without a disk are not asked.
    let mut harness = ControllerHarness::running(1, 0, 0, 1);
    harness.command(ControllerCommand::Checkpoint);
    assert_eq!((checkpoint_sent(&mut harness, 0), harness.received(Worker(0)).len()), (None, 0));
}
