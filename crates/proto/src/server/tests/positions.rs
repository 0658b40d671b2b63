//! Positions of the work in checkpoints.

use std::collections::{BTreeMap, BTreeSet};

use super::durability::{Disk, LOG};
use super::harness::{CONTROLLER, ServerHarness, address};
use crate::cluster::{Cluster, Durability, Load};
use crate::message::Message;
use crate::server::Server;
use crate::storage::{CheckpointHead, StorageEvent, StorageRequest};
use crate::testing;
use crate::work::{AddedPhases, Position, Work, WorkDone, WorkRecord};

fn done(phase: u64, chunks: &[u32]) -> WorkDone {
    let accounts = BTreeMap::from([(phase, "account".to_owned())]);
    let record = WorkRecord { phase, done: chunks.iter().copied().collect::<BTreeSet<u32>>(), accounts };
    WorkDone { phase, records: vec![(0, record)], repeated: 1 }
}

fn work(done: WorkDone) -> Work {
    Work { phases: 4, chunks: vec![8], done, ..Work::default() }
}

/// A server of a job with this work, which begins with what is asked of its disk.
fn working(durability: Durability, work: Work) -> ServerHarness {
    let cluster = Cluster { durability, work: Some(work), task: "task".to_owned(), ..testing::cluster(4) };
    ServerHarness::starting_in(Server::new(address(1)).with_disk(), cluster)
}

/// The newest checkpoint that was begun.
fn begun(harness: &ServerHarness) -> CheckpointHead {
    let head = |request: &StorageRequest| match request {
        StorageRequest::Begin(head) => Some((**head).clone()),
        _ => None,
    };
    harness.requests.iter().rev().find_map(head).expect("a checkpoint has begun")
}

fn position(work: Work) -> Option<Position> {
    Some(Position { task: "task".to_owned(), work, added: AddedPhases::default() })
}

// rule K7
#[test]
fn checkpoints_have_what_the_controller_told_last() {
    let mut harness = working(LOG, work(WorkDone::default()));
    assert_eq!(begun(&harness).position, position(work(WorkDone::default())));
    let mut disk = Disk::default();
    disk.serve(&mut harness, 0);
    harness.send(CONTROLLER, Message::WorkDone(Box::new(done(2, &[1, 5]))));
    harness.send(CONTROLLER, Message::Checkpoint { number: 2 });
    assert_eq!(begun(&harness).position, position(work(done(2, &[1, 5]))));
    assert!(harness.answers(CONTROLLER).contains(&Message::CheckpointBegun { number: 2 }));
    disk.serve(&mut harness, 0);
    // One that comes back has it, too.
    let mut harness = disk.restart(harness.view());
    harness.send(CONTROLLER, Message::Checkpoint { number: 3 });
    assert_eq!(begun(&harness).position, position(work(done(2, &[1, 5]))));
    // The last one has the end of the work.
    harness.requests.clear();
    harness.store(StorageEvent::Checkpointed { number: 3, log_from: 1 });
    harness.send(CONTROLLER, Message::WorkDone(Box::new(done(4, &[]))));
    harness.send(CONTROLLER, Message::Finish);
    assert_eq!(begun(&harness).position, position(work(done(4, &[]))));
}

// rule L11
#[test]
fn a_checkpoint_keeps_the_one_that_all_shards_have() {
    let mut cluster = Cluster { durability: LOG, ..testing::cluster(4) };
    cluster.view.servers = vec![address(1), address(2)];
    let mut harness = ServerHarness::starting_in(Server::new(address(1)).with_disk(), cluster);
    let mut disk = Disk::default();
    let mut kept = |messages: &[Message]| {
        messages.iter().for_each(|message| harness.send(CONTROLLER, message.clone()));
        let kept = begun(&harness).besides;
        disk.serve(&mut harness, 8);
        kept
    };
    let (complete, begin) =
        (|number| Message::CheckpointComplete { number }, |number| Message::Checkpoint { number });
    assert_eq!([kept(&[]), kept(&[begin(2)])], [None; 2]);
    assert_eq!(kept(&[complete(2), begin(3)]), Some([2, 2]));
    // One that comes back waits until it is told.
    let mut returned = disk.restart(harness.view());
    returned.send(CONTROLLER, begin(4));
    assert_eq!(begun(&returned).besides, None);
    // The last one may be complete although nothing was said of it.
    harness.send(CONTROLLER, Message::Finish);
    assert_eq!(begun(&harness).besides, Some([2, 3]));
}

// rule K8
#[test]
fn a_job_that_resumes_counts_its_checkpoints_on() {
    let load = Load { directory: "before".to_owned(), number: 6, resumes_with: Some(9) };
    let durability = Durability { load: Some(load), ..LOG };
    let mut harness = working(durability, work(done(1, &[3])));
    let is_asked = |wanted: fn(&StorageRequest) -> bool| harness.requests.iter().any(wanted);
    assert!(is_asked(|request| matches!(request, StorageRequest::Create { resumes: true, .. })));
    assert!(is_asked(|request| matches!(request, StorageRequest::Load { number: 6, states: true, .. })));
    harness.store(StorageEvent::LoadEnded { steps: vec![7], states: vec![b"of another version".to_vec()] });
    let head = begun(&harness);
    assert_eq!((head.number, head.position), (9, position(work(done(1, &[3])))));
    let mut disk = Disk::default();
    disk.serve(&mut harness, 0);
    harness.send(CONTROLLER, Message::Checkpoint { number: 9 });
    let refused =
        |message: &Message| matches!(message, Message::Checkpointed { number: 9, failure: Some(_), .. });
    assert!(harness.answers(CONTROLLER).iter().any(refused), "there is one of that number");
}
