//! A server that is asked to end.

use core::time::Duration;

use super::durability::{Disk, LOG, with_log_in};
use super::harness::{CONTROLLER, NOW, ServerHarness, address, push};
use crate::cluster::{Durability, Peer};
use crate::message::Message;
use crate::role::Role;
use crate::server::{MemberEvent, Server, ServerCommand, ServerEvent};
use crate::storage::{StorageEvent, StorageRequest};
use crate::testing::{self, HOT_ROWS};

/// A row that no switch holds.
const COLD: u64 = HOT_ROWS;

fn drain(harness: &mut ServerHarness) {
    harness.server.handle_command(NOW, ServerCommand::Drain);
    harness.collect();
}

/// The reason for which not all is saved, of a server that has ended.
fn drained(harness: &mut ServerHarness) -> Option<Option<String>> {
    let ended = |event| match event {
        ServerEvent::Member(MemberEvent::Drained { unsaved }) => Some(unsaved),
        _ => None,
    };
    core::mem::take(&mut harness.events).into_iter().find_map(ended)
}

// rule L9
#[test]
fn a_server_with_a_log_ends_when_the_log_has_everything() {
    let (mut harness, mut disk) = with_log_in(testing::cluster(4));
    let worker = harness.call(Peer::Worker(0));
    harness.send(worker, push(1, &[COLD], 1.0));
    drain(&mut harness);
    assert_eq!(drained(&mut harness), None);
    // What comes now is for the process after it.
    assert_eq!(harness.request(worker, push(2, &[COLD], 1.0)), []);
    disk.serve(&mut harness, 1);
    assert_eq!(harness.answers(worker).len(), 1, "what it has applied is answered");
    assert_eq!(drained(&mut harness), Some(None));
    assert_eq!(disk.records.len(), 1);
    harness.store(StorageEvent::Durable { record: 1 });
    assert_eq!(drained(&mut harness), None, "it ends once");
}

// rule L9
#[test]
fn one_without_a_log_writes_a_checkpoint_of_what_it_answered() {
    let durability = Durability { log: false, checkpoint_every: Some(Duration::from_secs(60)), ..LOG };
    let mut harness = ServerHarness::starting(Server::new(address(1)).with_disk(), durability);
    let mut disk = Disk::default();
    disk.serve(&mut harness, 0);
    let worker = harness.call(Peer::Worker(0));
    assert_eq!(harness.request(worker, push(1, &[COLD], 2.0)).len(), 1);
    drain(&mut harness);
    assert_eq!(harness.request(worker, push(2, &[COLD], 2.0)), []);
    disk.serve(&mut harness, 0);
    assert_eq!(drained(&mut harness), Some(None));
    let mut again = disk.restart(harness.view());
    let worker = again.call(Peer::Worker(0));
    // The first push is there, and comes again; the second was never taken.
    assert_eq!(again.request(worker, push(1, &[COLD], 2.0)).len(), 1);
    assert_eq!(again.request(worker, push(2, &[COLD], 2.0)).len(), 1);
    assert_eq!(again.value(COLD), -4.0);
}

// rule L9
#[test]
fn a_checkpoint_that_cannot_be_written_is_tried_again() {
    let (mut harness, mut disk) = with_log_in(testing::cluster(4));
    harness.store(StorageEvent::LogFailed { reason: "full".into() });
    harness.requests.clear();
    drain(&mut harness);
    assert!(harness.requests.iter().any(|request| matches!(request, StorageRequest::Begin(_))));
    harness.requests.clear();
    let number = 2;
    harness.store(StorageEvent::CheckpointFailed { number, reason: "full".into() });
    assert!(harness.events.contains(&ServerEvent::SaveFailed { reason: "full".into() }));
    assert_eq!(drained(&mut harness), None);
    harness.requests.clear();
    harness.server.handle_timeout(NOW + Duration::from_secs(1));
    harness.collect();
    disk.serve(&mut harness, 0);
    assert_eq!(drained(&mut harness), Some(None));
}

#[test]
fn one_that_keeps_nothing_tells_what_is_lost() {
    let mut harness = ServerHarness::new();
    drain(&mut harness);
    let unsaved = drained(&mut harness).flatten().expect("it has rows, and no place for them");
    assert!(unsaved.contains("no log and no checkpoints"), "{unsaved}");
    let mut harness = ServerHarness::of(Server::new(address(1)));
    drain(&mut harness);
    assert_eq!(drained(&mut harness), Some(None), "before the job it has nothing");
}

#[test]
fn a_job_that_ends_meanwhile_has_its_last_checkpoint() {
    let (mut harness, mut disk) = with_log_in(testing::cluster(4));
    let worker = harness.call(Peer::Worker(0));
    harness.send(worker, push(1, &[COLD], 1.0));
    drain(&mut harness);
    harness.send(CONTROLLER, Message::Finish);
    disk.serve(&mut harness, 1);
    assert_eq!(drained(&mut harness), None);
    let restored = crate::server::Restored::new(&disk.state, disk.covers);
    assert_eq!(restored.err(), Some(crate::server::RestoreError::Done));
}
