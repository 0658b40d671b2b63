//! A server with a disk, which is the test.

use super::counter::{CONTROLLER, Counter, NOW, address, cut, drained, push};
use crate::cluster::{Cluster, Durability, Peer, View};
use crate::message::{Answered, Hello, Message, VERSION};
use crate::region::EPOCHS_BEGIN_AFTER;
use crate::role::Role;
use crate::server::{RestoreError, Restored, Server};
use crate::storage::{StorageEvent, StorageRequest};
use crate::testing::{self, HOT_ROWS, JOB};

/// A row that no switch holds.
const COLD: u64 = HOT_ROWS;
pub(super) const LOG: Durability =
    Durability { log: true, checkpoint_bytes_per_second: u64::MAX, ..Durability::NONE };

/// What a disk has taken: the newest checkpoint, and the log after it.
#[derive(Default)]
pub(super) struct Disk {
    pub(super) state: Vec<u8>,
    pub(super) covers: u64,
    /// Of the newest checkpoint, and of those that it builds on.
    pub(super) rows: Vec<libra_store::RowBlock>,
    pub(super) records: Vec<(u64, Vec<u8>)>,
    /// A checkpoint that is not finished.
    open: Option<(u64, u64, Vec<libra_store::RowBlock>)>,
}

impl Disk {
    /// Does all that was asked; the log only up to `durable` records.
    pub(super) fn serve(&mut self, counter: &mut Counter, durable: usize) {
        let mut left = durable;
        loop {
            let asked = core::mem::take(&mut counter.asked);
            if asked.is_empty() {
                return;
            }
            for request in asked {
                match request {
                    StorageRequest::Append { number, record } if left > 0 => {
                        left -= 1;
                        self.records.push((number, record));
                        counter.store(StorageEvent::Durable { record: number });
                    }
                    StorageRequest::Begin(head) => {
                        let base = head.base.map(|_| self.rows.clone());
                        self.open = Some((head.number, head.covers, base.unwrap_or_default()));
                    }
                    StorageRequest::Rows(rows) => {
                        self.open.as_mut().unwrap().2.push(rows);
                        counter.store(StorageEvent::RowsWritten);
                    }
                    StorageRequest::Finish { state } => {
                        let (number, covers, rows) = self.open.take().unwrap();
                        (self.state, self.covers, self.rows) = (state, covers, rows);
                        self.records.retain(|(record, _)| *record > covers);
                        counter.store(StorageEvent::Checkpointed { number, log_from: covers + 1 });
                    }
                    _ => {}
                }
            }
        }
    }

    /// The server that goes on from it. It has a stream to the controller, and was told its view.
    pub(super) fn restart(&self, view: View) -> Counter {
        let mut restored = Restored::new(&self.state, self.covers).unwrap();
        for rows in &self.rows {
            restored.rows(rows).unwrap();
        }
        for (number, record) in &self.records {
            restored.record(*number, record).unwrap();
        }
        assert_eq!((restored.number(), restored.address()), (0, address(1)));
        let mut counter = Counter::of(restored.finish(address(0), address(1)));
        let said = counter.answers(CONTROLLER);
        let [Message::Rejoin(rejoin), more @ ..] = said.as_slice() else { panic!("{said:?}") };
        // What it refused when it read the log, the controller may not have heard (rule C11).
        assert_eq!(more.len() as u64, counter.statistics().sums_refused.min(1), "{more:?}");
        assert!(more.iter().all(|message| matches!(message, Message::GradientsRefused { .. })));
        assert_eq!(rejoin.you, Peer::Server(0));
        assert!(rejoin.join.returns && rejoin.cluster.is_some());
        counter.say(CONTROLLER, Message::View(view.into()));
        assert!(matches!(counter.answers(CONTROLLER).as_slice(), [Message::Viewed { .. }]));
        counter
    }
}

fn with_log() -> (Counter, Disk) {
    with_log_in(testing::cluster(4))
}

/// A server with a log in a cluster like this.
pub(super) fn with_log_in(cluster: Cluster) -> (Counter, Disk) {
    let server = Server::new(address(0), address(1)).with_disk();
    let mut counter = Counter::starting_in(server, Cluster { durability: LOG, ..cluster });
    let mut disk = Disk::default();
    // Nobody may call it before it could be started again.
    assert!(viewed(&mut counter).is_empty());
    disk.serve(&mut counter, 0);
    assert_eq!(viewed(&mut counter), [1]);
    (counter, disk)
}

fn viewed(counter: &mut Counter) -> Vec<u64> {
    let said = counter.answers(CONTROLLER).into_iter();
    said.filter_map(|message| match message {
        Message::Viewed { number } => Some(number),
        _ => None,
    })
    .collect()
}

// rule L1
#[test]
fn a_push_is_answered_when_the_log_has_it() {
    let (mut counter, mut disk) = with_log();
    let worker = counter.call(Peer::Worker(0));
    assert_eq!(counter.ask(worker, push(1, &[COLD], 2.0)), []);
    assert_eq!(counter.ask(worker, push(2, &[COLD], 2.0)), []);
    // It is applied, and others may read it.
    assert_eq!(counter.value(COLD), -4.0);
    disk.serve(&mut counter, 1);
    let answers = counter.answers(worker);
    assert!(matches!(answers.as_slice(), [Message::Pushed { number: 1, .. }]), "{answers:?}");
}

// rule L1
#[test]
fn an_epoch_is_committed_and_a_view_acted_on_when_the_log_has_it() {
    let (mut counter, mut disk) = with_log();
    let switch = counter.call(Peer::Switch(0));
    assert!(counter.adopt(switch, 1).is_some());
    assert_eq!(counter.ask(switch, drained(1, 1, 5)), []);
    // Who asks meanwhile hears nothing that is not certain.
    let adopt = Message::Adopt { region: 0, since: 1, epoch: EPOCHS_BEGIN_AFTER, cut: cut(0) };
    assert_eq!(counter.ask(switch, adopt), []);
    disk.serve(&mut counter, 1);
    let answers = counter.answers(switch);
    assert!(matches!(answers.as_slice(), [Message::Committed(_), Message::Adopted(_)]), "{answers:?}");
    let view = View { number: 2, ..counter.view() };
    assert_eq!(counter.ask(CONTROLLER, Message::View(view.into())), []);
    disk.serve(&mut counter, 1);
    assert_eq!(viewed(&mut counter), [2]);
}

// rules L1, L3, C1
#[test]
fn a_server_that_is_started_again_has_all_that_was_answered_and_takes_nothing_twice() {
    let (mut counter, mut disk) = with_log();
    let worker = counter.call(Peer::Worker(0));
    let switch = counter.call(Peer::Switch(0));
    counter.adopt(switch, 1);
    for number in 1..=3 {
        counter.say(worker, push(number, &[COLD], 2.0));
    }
    counter.say(switch, drained(1, 1, 5));
    disk.serve(&mut counter, 4);
    counter.say(worker, push(4, &[COLD], 2.0));
    let (hot, cold) = (counter.value(0), counter.value(COLD));

    let mut counter = disk.restart(counter.view());
    let worker = counter.call(Peer::Worker(0));
    // The last one never came to the log; that before was answered, and comes again all the same.
    assert_eq!((counter.value(0), counter.value(COLD)), (hot, cold + 2.0));
    counter.say(worker, push(3, &[COLD], 2.0));
    counter.say(worker, push(4, &[COLD], 2.0));
    disk.serve(&mut counter, 1);
    assert_eq!(counter.answers(worker).len(), 2);
    assert_eq!(counter.value(COLD), cold);
    let switch = counter.call(Peer::Switch(0));
    let adopted = counter.adopt(switch, 1).unwrap();
    assert_eq!((adopted.epoch, adopted.cut), (1, cut(1)));
    assert_eq!(counter.statistics().lost_pushes + counter.statistics().lost_epochs, 0);
}

// rule L5
#[test]
fn a_server_that_is_started_again_serves_nobody_before_it_knows_the_view() {
    let (mut counter, mut disk) = with_log();
    disk.serve(&mut counter, 0);
    let restored = Restored::new(&disk.state, disk.covers).unwrap();
    let mut counter = Counter::of(restored.finish(address(0), address(1)));
    let caller = counter.call(Peer::Switch(0));
    assert_eq!((counter.answers(caller), counter.closed.as_slice()), (vec![], &[caller][..]));
}

// rule L4
#[test]
fn what_others_know_and_the_shard_does_not_is_counted_as_lost_and_not_added_again() {
    let server = Server::new(address(0), address(1)).with_disk();
    let durability =
        Durability { checkpoint_every: Some(core::time::Duration::from_secs(1)), ..Durability::NONE };
    let mut counter = Counter::starting(server, durability);
    let mut disk = Disk::default();
    disk.serve(&mut counter, 0);
    let worker = counter.call(Peer::Worker(0));
    let switch = counter.call(Peer::Switch(0));
    counter.adopt(switch, 1);
    for number in 1..=5 {
        counter.say(worker, push(number, &[COLD], 2.0));
    }
    for epoch in 1..=3 {
        counter.commit(switch, 1, epoch, 7);
    }
    assert_eq!(counter.answers(worker).len(), 5);

    let mut counter = disk.restart(counter.view());
    let answered = Answered { newest: 5, count: 5 };
    let worker = counter.call_with(Hello { instance: JOB.into(), from: Peer::Worker(0), answered });
    let switch = counter.call(Peer::Switch(0));
    let adopt = Message::Adopt { region: 0, since: 1, epoch: EPOCHS_BEGIN_AFTER + 3, cut: cut(3) };
    let answers = counter.ask(switch, adopt);
    let [Message::Adopted(adopted)] = answers.as_slice() else { panic!("{answers:?}") };
    assert_eq!((adopted.epoch, &adopted.cut), (EPOCHS_BEGIN_AFTER + 3, &cut(3)));
    assert_eq!((counter.statistics().lost_pushes, counter.statistics().lost_epochs), (5, 3));
    // The job goes on from there.
    assert!(counter.commit(switch, 1, 4, 7).is_some());
    assert_eq!(counter.ask(worker, push(6, &[COLD], 2.0)).len(), 1);
    assert_eq!(counter.value(COLD), -2.0);
}

// rule L6
#[test]
fn a_log_that_cannot_be_written_holds_nobody_up_and_begins_anew_after_a_checkpoint() {
    let (mut counter, mut disk) = with_log();
    let worker = counter.call(Peer::Worker(0));
    assert_eq!(counter.ask(worker, push(1, &[COLD], 1.0)), []);
    counter.asked.clear();
    counter.store(StorageEvent::LogFailed { reason: "full".into() });
    assert_eq!(counter.answers(worker).len(), 1);
    assert_eq!(counter.ask(worker, push(2, &[COLD], 1.0)).len(), 1);
    assert!(counter.asked.iter().all(|request| !matches!(request, StorageRequest::Append { .. })));

    // The disk is still full.
    let due = counter.server.poll_timeout().unwrap().max(NOW + super::super::RESUME_PAUSE);
    counter.server.handle_timeout(due);
    counter.store(StorageEvent::CheckpointFailed { number: 2, reason: "full".into() });
    counter.asked.clear();
    assert_eq!(counter.ask(worker, push(3, &[COLD], 1.0)).len(), 1);
    // Now it is not.
    counter.server.handle_timeout(due + 2 * super::super::RESUME_PAUSE);
    counter.store(StorageEvent::RowsWritten);
    assert_eq!(counter.ask(worker, push(4, &[COLD], 1.0)).len(), 1);
    let began = counter.asked.iter().any(|request| matches!(request, StorageRequest::Begin(_)));
    let appended =
        counter.asked.iter().any(|request| matches!(request, StorageRequest::Append { number: 4, .. }));
    assert!(began && appended, "{:?}", counter.asked);
    disk.serve(&mut counter, 8);
    // The end of the checkpoint is due when the rows before it have had their time.
    counter.server.handle_timeout(due + 3 * super::super::RESUME_PAUSE);
    counter.store(StorageEvent::RowsWritten);
    disk.serve(&mut counter, 8);
    assert_eq!(counter.ask(worker, push(5, &[COLD], 1.0)), []);
    disk.serve(&mut counter, 8);
    assert_eq!(counter.answers(worker).len(), 1);
    let mut counter = disk.restart(counter.view());
    assert_eq!(counter.value(COLD), -5.0);
}

// rule L2
#[test]
fn what_a_failed_increment_had_is_in_the_next_checkpoint() {
    let server = Server::new(address(0), address(1)).with_disk();
    let every = Some(core::time::Duration::from_secs(1));
    let durability = Durability { log: false, checkpoint_every: every, increments: 9, ..LOG };
    let mut counter = Counter::starting(server, durability);
    let mut disk = Disk::default();
    disk.serve(&mut counter, 0);
    let worker = counter.call(Peer::Worker(0));
    counter.ask(worker, push(1, &[COLD], 1.0));
    let begin = |counter: &mut Counter, number| {
        counter.say(CONTROLLER, Message::Checkpoint { number });
        let base = counter.asked.iter().rev().find_map(|request| match request {
            StorageRequest::Begin(head) => Some(head.base),
            _ => None,
        });
        base.expect("a checkpoint has begun")
    };
    // All rows are handed over, and the disk is full.
    assert_eq!(begin(&mut counter, 2), Some(1), "only what has changed");
    let is_whole = counter.asked.iter().any(|request| matches!(request, StorageRequest::Finish { .. }));
    assert!(is_whole, "{:?}", counter.asked);
    counter.store(StorageEvent::CheckpointFailed { number: 2, reason: "full".into() });
    counter.asked.clear();
    assert_eq!(begin(&mut counter, 3), None, "an increment would lack the row");
    disk.serve(&mut counter, 0);
    assert_eq!(begin(&mut counter, 4), Some(3));
    disk.serve(&mut counter, 0);
    assert_eq!(disk.restart(counter.view()).value(COLD), -1.0);
}

#[test]
fn what_is_no_state_or_record_is_refused_in_words() {
    assert!(matches!(Restored::new(&[7; 40], 0), Err(RestoreError::State(_))));
    let (mut counter, mut disk) = with_log();
    disk.serve(&mut counter, 0);
    let [.., low, _] = disk.state.first_chunk_mut::<12>().unwrap();
    *low -= 1;
    let error = Restored::new(&disk.state, 0).unwrap_err().to_string();
    assert!(
        error.contains(&format!("version {}, this program reads version {VERSION}", VERSION - 1)),
        "{error}"
    );
    disk.state[10] += 1;
    let mut restored = Restored::new(&disk.state, 0).unwrap();
    let error = restored.record(5, &[99, 1, 2]).unwrap_err();
    assert!(error.to_string().starts_with("record 5 of the log"), "{error}");
}

// rule L7
#[test]
fn the_last_checkpoint_says_that_the_job_was_done() {
    let (mut counter, mut disk) = with_log();
    counter.say(CONTROLLER, Message::Finish);
    disk.serve(&mut counter, 0);
    assert_eq!(Restored::new(&disk.state, disk.covers).unwrap_err(), RestoreError::Done);
}

// rule L7
#[test]
fn a_failure_of_the_checkpoint_before_is_not_that_of_the_last() {
    let (mut counter, mut disk) = with_log();
    disk.serve(&mut counter, 0);
    counter.say(CONTROLLER, Message::Checkpoint { number: 2 });
    counter.say(CONTROLLER, Message::Finish);
    counter.asked.clear();
    counter.store(StorageEvent::CheckpointFailed { number: 2, reason: "full".into() });
    disk.serve(&mut counter, 0);
    assert_eq!(Restored::new(&disk.state, disk.covers).unwrap_err(), RestoreError::Done);
}

#[test]
fn a_server_without_a_disk_does_not_take_part_in_a_job_that_wants_one() {
    let mut counter = Counter::starting(Server::new(address(0), address(1)), LOG);
    let said = counter.answers(CONTROLLER);
    let Some(Message::Abort { reason }) = said.last() else { panic!("{said:?}") };
    assert!(reason.contains("--state-dir"), "{reason}");
}

// rule L2
#[test]
fn a_checkpoint_is_no_faster_than_the_job_wants_while_the_server_serves() {
    let server = Server::new(address(0), address(1)).with_disk();
    // Of a row of two values, 16 bytes with its key.
    let mut counter = Counter::starting(server, Durability { checkpoint_bytes_per_second: 1600, ..LOG });
    let mut disk = Disk::default();
    disk.serve(&mut counter, 0);
    let worker = counter.call(Peer::Worker(0));
    counter.say(worker, push(1, &[COLD, COLD + 1, COLD + 2], 1.0));
    disk.serve(&mut counter, 1);
    counter.say(CONTROLLER, Message::Checkpoint { number: 2 });
    disk.serve(&mut counter, 0);
    assert!(disk.open.is_some(), "the rows are on the disk, and the end is not due");
    let due = counter.server.poll_timeout().unwrap();
    assert_eq!(due, NOW + core::time::Duration::from_millis(30));
    counter.server.handle_timeout(due);
    counter.store(StorageEvent::RowsWritten);
    disk.serve(&mut counter, 0);
    assert!(disk.open.is_none());
    assert!(counter.answers(CONTROLLER).contains(&Message::Checkpointed { number: 2, failure: None }));
}
