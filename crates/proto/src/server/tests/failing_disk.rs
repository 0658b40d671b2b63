//! A server whose disk is slow, or does not do what it is asked.

use super::durability::{Disk, LOG, with_log_in};
use super::harness::{CONTROLLER, ServerHarness, address, push};
use crate::cluster::Peer;
use crate::message::Message;
use crate::role::Role;
use crate::server::{Restored, Server};
use crate::storage::{StorageEvent, StorageRequest};
use crate::testing::{self, HOT_ROWS};

/// A row that no switch holds.
const COLD: u64 = HOT_ROWS;

/// The checkpoint that the server has asked for last.
fn begun(harness: &ServerHarness) -> u64 {
    let begun = harness.requests.iter().rev().find_map(|request| match request {
        StorageRequest::Begin(head) => Some(head.number),
        _ => None,
    });
    begun.expect("a checkpoint has begun")
}

// rule L6
#[test]
fn a_log_that_takes_long_to_restart_is_asked_once() {
    let (mut harness, _) = with_log_in(testing::cluster(4));
    let worker = harness.call(Peer::Worker(0));
    harness.store(StorageEvent::LogFailed { reason: "full".into() });
    harness.requests.clear();
    for (number, pushed) in [(2, 1), (3, 2)] {
        harness.send(CONTROLLER, Message::Checkpoint { number });
        harness.request(worker, push(pushed, &[COLD], 1.0));
        harness.store(StorageEvent::Checkpointed { number, log_from: 1 });
    }
    let of_the_log = |request: &StorageRequest| match request {
        StorageRequest::Append { number, .. } => Some(format!("append {number}")),
        StorageRequest::RestartLog { from } => Some(format!("restart from {from}")),
        _ => None,
    };
    let requests: Vec<String> = harness.requests.iter().filter_map(of_the_log).collect();
    assert_eq!(requests, ["append 1", "restart from 1", "append 2"]);
    // It has what was appended meanwhile, and everything waits for it again.
    harness.store(StorageEvent::Durable { record: 1 });
    assert_eq!(harness.request(worker, push(3, &[COLD], 1.0)), []);
    harness.store(StorageEvent::Durable { record: 3 });
    assert_eq!(harness.answers(worker).len(), 1);
}

// rule L6
#[test]
fn a_log_that_fails_to_restart_is_asked_again_later() {
    let (mut harness, _) = with_log_in(testing::cluster(4));
    let worker = harness.call(Peer::Worker(0));
    for number in [2, 3] {
        harness.store(StorageEvent::LogFailed { reason: "full".into() });
        harness.send(CONTROLLER, Message::Checkpoint { number });
        harness.store(StorageEvent::Checkpointed { number, log_from: 1 });
        let requests = core::mem::take(&mut harness.requests);
        assert!(
            requests.iter().any(|request| matches!(request, StorageRequest::RestartLog { .. })),
            "{requests:?}"
        );
    }
    harness.store(StorageEvent::Durable { record: 0 });
    assert_eq!(harness.request(worker, push(1, &[COLD], 1.0)), []);
}

// rule L2
#[test]
fn a_checkpoint_that_failed_leaves_its_number_unused() {
    let (mut harness, mut disk) = with_log_in(testing::cluster(4));
    harness.send(CONTROLLER, Message::Checkpoint { number: 2 });
    // Its last step failed: it may be there all the same.
    harness.requests.clear();
    harness.store(StorageEvent::CheckpointFailed { number: 2, reason: "the directory".into() });
    harness.send(CONTROLLER, Message::Finish);
    assert_eq!(begun(&harness), 3);
    disk.serve(&mut harness, 0);
}

// rule L2
#[test]
fn a_server_numbers_checkpoints_above_one_that_was_passed_over() {
    let (harness, disk) = with_log_in(testing::cluster(4));
    let mut restored = Restored::new(&disk.state, disk.covers).unwrap();
    restored.passed_over(5);
    let mut again = ServerHarness::of(restored.finish(address(1)));
    again.send(CONTROLLER, Message::View(harness.view().into()));
    again.send(CONTROLLER, Message::Finish);
    assert_eq!(begun(&again), 6);
}

// rule L1
#[test]
fn records_read_but_not_durable_are_not_answered() {
    let server = Server::new(address(1)).with_disk();
    let mut harness = ServerHarness::starting(server, LOG);
    let mut disk = Disk::default();
    disk.serve(&mut harness, 0);
    let worker = harness.call(Peer::Worker(0));
    harness.send(worker, push(1, &[COLD], 2.0));
    disk.serve(&mut harness, 1);
    // The next process reads the push, and the disk, which is full, does not take it once more.
    let mut restored = Restored::new(&disk.state, disk.covers).unwrap();
    disk.rows.iter().for_each(|rows| restored.rows(rows).unwrap());
    let (number, record) = &disk.records[0];
    restored.record(*number, record).unwrap();
    restored.durable_up_to(0);
    let mut again = ServerHarness::of(restored.finish(address(1)));
    again.answers(CONTROLLER);
    again.send(CONTROLLER, Message::View(harness.view().into()));
    assert_eq!(again.answers(CONTROLLER), [], "it acts on the view when the log has all before it");
    let worker = again.call(Peer::Worker(0));
    assert_eq!(again.request(worker, push(1, &[COLD], 2.0)), []);
    again.store(StorageEvent::Durable { record: 1 });
    assert_eq!(again.answers(worker).len(), 1);
    assert!(again.server.poll_timeout().is_some());
}
