//! Checkpoints of all servers, and servers that come back.

use core::time::Duration;

use super::desk::{Desk, ms};
use crate::cluster::{Durability, Peer};
use crate::controller::{ControllerCommand, ControllerEvent};
use crate::message::Message;
use crate::statistics::{ServerStatistics, Statistics};

use Peer::{Server, Worker};

/// Two servers that come back, and one worker.
fn keeping(checkpoint_every: Option<Duration>) -> Desk {
    let mut desk = Desk::running(2, 0, 0, 1);
    desk.controller.cluster.durability = Durability { log: true, checkpoint_every, ..Durability::NONE };
    for number in 0..2 {
        desk.controller.members.get_mut(&Server(number)).unwrap().returns = true;
    }
    let now = desk.now;
    desk.controller.schedule_checkpoint(now);
    desk
}

/// The checkpoint that a server was sent a request for since the last look.
fn told(desk: &mut Desk, server: u16) -> Option<u64> {
    desk.heard(Server(server)).into_iter().find_map(|message| match message {
        Message::Checkpoint { number } => Some(number),
        _ => None,
    })
}

fn answer(desk: &mut Desk, server: u16, number: u64, failure: Option<&str>) {
    let failure = failure.map(str::to_owned);
    desk.from(Server(server), Message::Checkpointed { number, failure });
}

// rule L2
#[test]
fn a_checkpoint_has_one_number_and_is_there_when_all_have_it() {
    let mut desk = keeping(Some(ms(1000)));
    desk.pass(ms(1050), &[]);
    assert_eq!([told(&mut desk, 0), told(&mut desk, 1)], [Some(2); 2]);
    answer(&mut desk, 0, 2, None);
    assert_eq!(desk.events(), []);
    desk.now = desk.now + ms(200);
    answer(&mut desk, 1, 2, None);
    let events = desk.events();
    assert!(
        matches!(events.as_slice(), [ControllerEvent::Checkpointed { number: 2, took }] if *took >= ms(200))
    );
    // A repeated answer, or one about a checkpoint that was not requested, changes nothing.
    answer(&mut desk, 1, 2, None);
    answer(&mut desk, 1, 9, None);
    assert_eq!(desk.events(), []);
    desk.pass(ms(1050), &[]);
    assert_eq!(told(&mut desk, 0), Some(3));
    answer(&mut desk, 0, 3, Some("the disk is full"));
    answer(&mut desk, 1, 3, None);
    let events = desk.events();
    let [ControllerEvent::CheckpointFailed { number: 3, reason }] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!(reason, "server 0: the disk is full");
}

// rules M7, L5
#[test]
fn no_checkpoint_begins_while_a_restartable_server_is_away() {
    let mut desk = keeping(Some(ms(1000)));
    desk.pass(ms(1050), &[]);
    assert_eq!([told(&mut desk, 0), told(&mut desk, 1)], [Some(2); 2]);
    answer(&mut desk, 0, 2, None);
    desk.break_stream(Server(1));
    let events = desk.events();
    assert!(
        matches!(
            events.as_slice(),
            [ControllerEvent::Away { peer: Server(1), .. }, ControllerEvent::CheckpointFailed { .. }]
        ),
        "{events:?}"
    );
    desk.pass(ms(29_000), &[Server(1)]);
    assert_eq!((desk.failure(), told(&mut desk, 0)), (None, None));
    desk.rejoin_with(Server(1), |rejoin| rejoin.join.returns = true);
    assert!(desk.heard_view(Server(1)).is_some());
    let events = desk.events();
    assert!(
        matches!(events.as_slice(), [ControllerEvent::Returned { peer: Server(1), took }] if *took >= ms(29_000)),
        "{events:?}"
    );
    desk.pass(ms(2100), &[]);
    assert_eq!(told(&mut desk, 1), Some(3));
    desk.break_stream(Server(1));
    desk.pass(ms(30_100), &[Server(1)]);
    assert!(desk.failure().is_some());
}

#[test]
fn a_log_that_has_grown_or_a_person_asks_for_a_checkpoint() {
    let mut desk = keeping(None);
    desk.pass(ms(5000), &[]);
    assert_eq!(told(&mut desk, 0), None);
    let heartbeat = |log_bytes, checkpoint| {
        let counts = ServerStatistics { log_bytes, checkpoint, ..ServerStatistics::default() };
        Message::Heartbeat { statistics: Statistics::Server(counts), probe: 0 }
    };
    desk.from(Server(1), heartbeat(1 << 20, 6));
    assert_eq!(told(&mut desk, 0), None);
    desk.from(Server(1), heartbeat(5 << 30, 6));
    // Above all that a server has, whatever requested it.
    assert_eq!(told(&mut desk, 0), Some(7));
    desk.from(Server(1), heartbeat(5 << 30, 6));
    desk.command(ControllerCommand::Checkpoint);
    assert_eq!(told(&mut desk, 0), None);
    answer(&mut desk, 0, 7, None);
    answer(&mut desk, 1, 7, None);
    desk.command(ControllerCommand::Checkpoint);
    assert_eq!(told(&mut desk, 0), Some(8));
    // Servers without a disk are not asked.
    let mut desk = Desk::running(1, 0, 0, 1);
    desk.command(ControllerCommand::Checkpoint);
    assert_eq!((told(&mut desk, 0), desk.heard(Worker(0)).len()), (None, 0));
}
