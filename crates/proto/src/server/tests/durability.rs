//! A server with a disk, which is the test.

use core::time::Duration;

use super::harness::{CONTROLLER, NOW, ServerHarness, address, contents, drained, push};
use crate::authentication::Pass;
use crate::cluster::{Cluster, Durability, Load, Peer, Upload, View};
use crate::message::{Answered, Hello, Message, VERSION};
use crate::region::ROUNDS_BEGIN_AFTER;
use crate::role::Role;
use crate::server::journal::RecordOf;
use crate::server::snapshot::State;
use crate::server::{MemberEvent, MemoryLimit, RestoreError, Restored, Server, ServerCommand, ServerEvent};
use crate::storage::{StorageEvent, StorageRequest};
use crate::testing::{self, HOT_ROWS, JOB};

/// A row that no switch holds.
const COLD: u64 = HOT_ROWS;
pub(super) const LOG: Durability =
    Durability { log: true, checkpoint_bytes_per_second: u64::MAX, ..Durability::NONE };

/// Contents of a disk: the newest checkpoint, and the log after it.
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
    pub(super) fn serve(&mut self, harness: &mut ServerHarness, durable: usize) {
        let mut left = durable;
        loop {
            let requests = core::mem::take(&mut harness.requests);
            if requests.is_empty() {
                return;
            }
            for request in requests {
                match request {
                    StorageRequest::Append { number, record } if left > 0 => {
                        left -= 1;
                        self.records.push((number, record));
                        harness.store(StorageEvent::Durable { record: number });
                    }
                    StorageRequest::Begin(head) => {
                        let base = head.base.map(|_| self.rows.clone());
                        self.open = Some((head.number, head.covers, base.unwrap_or_default()));
                    }
                    StorageRequest::Rows(rows) => {
                        self.open.as_mut().unwrap().2.push(rows);
                        harness.store(StorageEvent::RowsWritten);
                    }
                    StorageRequest::Finish { state } => {
                        let (number, covers, rows) = self.open.take().unwrap();
                        (self.state, self.covers, self.rows) = (state, covers, rows);
                        self.records.retain(|(record, _)| *record > covers);
                        harness.store(StorageEvent::Checkpointed { number, log_from: covers + 1 });
                    }
                    _ => {}
                }
            }
        }
    }

    /// The server that goes on from it. It has a stream to the controller, and was sent its view.
    pub(super) fn restart(&self, view: View) -> ServerHarness {
        self.restart_limited(view, None)
    }

    /// The same with a limit of its memory.
    pub(super) fn restart_limited(&self, view: View, limit: Option<MemoryLimit>) -> ServerHarness {
        let mut restored = Restored::with_memory_limit(&self.state, self.covers, limit).unwrap();
        for rows in &self.rows {
            restored.rows(rows).unwrap();
        }
        for (number, record) in &self.records {
            restored.record(*number, record).unwrap();
        }
        assert_eq!((restored.number(), restored.address()), (0, address(1)));
        let mut harness = ServerHarness::of(restored.finish(address(1)));
        let sent = harness.answers(CONTROLLER);
        let [Message::Rejoin(rejoin), more @ ..] = sent.as_slice() else { panic!("{sent:?}") };
        // The controller may not have received what it refused when it read the log (rule C11).
        assert_eq!(more.len() as u64, harness.statistics().sums_refused.min(1), "{more:?}");
        assert!(more.iter().all(|message| matches!(message, Message::GradientsRefused { .. })));
        assert_eq!(rejoin.you, Peer::Server(0));
        assert!(rejoin.join.is_restartable && rejoin.cluster.is_some());
        harness.send(CONTROLLER, Message::View(view.into()));
        assert!(matches!(harness.answers(CONTROLLER).as_slice(), [Message::Viewed { .. }]));
        harness
    }
}

fn with_log() -> (ServerHarness, Disk) {
    with_log_in(testing::cluster(4))
}

/// A server with a log in a cluster like this.
pub(super) fn with_log_in(cluster: Cluster) -> (ServerHarness, Disk) {
    let server = Server::new(address(1)).with_disk();
    let mut harness = ServerHarness::starting_in(server, Cluster { durability: LOG, ..cluster });
    let mut disk = Disk::default();
    // No member may call it before it could be started again.
    assert!(viewed(&mut harness).is_empty());
    disk.serve(&mut harness, 0);
    assert_eq!(viewed(&mut harness), [1]);
    (harness, disk)
}

fn viewed(harness: &mut ServerHarness) -> Vec<u64> {
    let sent = harness.answers(CONTROLLER).into_iter();
    sent.filter_map(|message| match message {
        Message::Viewed { number } => Some(number),
        _ => None,
    })
    .collect()
}

// rule L1
#[test]
fn a_push_is_answered_when_the_log_has_it() {
    let (mut harness, mut disk) = with_log();
    let worker = harness.call(Peer::Worker(0));
    assert_eq!(harness.request(worker, push(1, &[COLD], 2.0)), []);
    assert_eq!(harness.request(worker, push(2, &[COLD], 2.0)), []);
    // It is applied, and others may read it.
    assert_eq!(harness.value(COLD), -4.0);
    disk.serve(&mut harness, 1);
    let answers = harness.answers(worker);
    assert!(matches!(answers.as_slice(), [Message::Pushed { number: 1, .. }]), "{answers:?}");
}

// rule L1
#[test]
fn rounds_are_committed_and_views_acted_on_once_logged() {
    let (mut harness, mut disk) = with_log();
    let switch = harness.call(Peer::Switch(0));
    assert!(harness.adopt(switch, 1).is_some());
    assert_eq!(harness.request(switch, drained(1, 1, 5)), []);
    // A switch that asks meanwhile receives nothing that is not certain.
    let adopt = Message::Adopt { region: 0, view_id: 1, round: ROUNDS_BEGIN_AFTER, contents: contents(0) };
    assert_eq!(harness.request(switch, adopt), []);
    disk.serve(&mut harness, 1);
    let answers = harness.answers(switch);
    assert!(matches!(answers.as_slice(), [Message::Committed(_), Message::Adopted(_)]), "{answers:?}");
    let view = View { number: 2, ..harness.view() };
    assert_eq!(harness.request(CONTROLLER, Message::View(view.into())), []);
    disk.serve(&mut harness, 1);
    assert_eq!(viewed(&mut harness), [2]);
}

// rules L1, L3, C1
#[test]
fn a_restarted_server_has_all_it_answered_and_takes_none_twice() {
    let (mut harness, mut disk) = with_log();
    let worker = harness.call(Peer::Worker(0));
    let switch = harness.call(Peer::Switch(0));
    harness.adopt(switch, 1);
    for number in 1..=3 {
        harness.send(worker, push(number, &[COLD], 2.0));
    }
    harness.send(switch, drained(1, 1, 5));
    disk.serve(&mut harness, 4);
    harness.send(worker, push(4, &[COLD], 2.0));
    let (hot, cold) = (harness.value(0), harness.value(COLD));

    let mut harness = disk.restart(harness.view());
    let worker = harness.call(Peer::Worker(0));
    // The last one never came to the log; that before was answered, and comes again all the same.
    assert_eq!((harness.value(0), harness.value(COLD)), (hot, cold + 2.0));
    harness.send(worker, push(3, &[COLD], 2.0));
    harness.send(worker, push(4, &[COLD], 2.0));
    disk.serve(&mut harness, 1);
    assert_eq!(harness.answers(worker).len(), 2);
    assert_eq!(harness.value(COLD), cold);
    let switch = harness.call(Peer::Switch(0));
    let adopted = harness.adopt(switch, 1).unwrap();
    assert_eq!((adopted.round, adopted.contents), (1, contents(1)));
    assert_eq!(harness.statistics().lost_pushes + harness.statistics().lost_rounds, 0);
}

// rule L5
#[test]
fn a_restarted_server_serves_only_once_it_has_the_view() {
    let (mut harness, mut disk) = with_log();
    disk.serve(&mut harness, 0);
    let restored = Restored::new(&disk.state, disk.covers).unwrap();
    let mut harness = ServerHarness::of(restored.finish(address(1)));
    let caller = harness.call(Peer::Switch(0));
    assert_eq!((harness.answers(caller), harness.closed.as_slice()), (vec![], &[caller][..]));
}

// rule L4
#[test]
fn updates_missing_in_the_shard_are_lost_and_not_added_again() {
    let server = Server::new(address(1)).with_disk();
    let durability = Durability { checkpoint_every: Some(Duration::from_secs(1)), ..Durability::NONE };
    let mut harness = ServerHarness::starting(server, durability);
    let mut disk = Disk::default();
    disk.serve(&mut harness, 0);
    let worker = harness.call(Peer::Worker(0));
    let switch = harness.call(Peer::Switch(0));
    harness.adopt(switch, 1);
    for number in 1..=5 {
        harness.send(worker, push(number, &[COLD], 2.0));
    }
    for round in 1..=3 {
        harness.commit(switch, 1, round, 7);
    }
    assert_eq!(harness.answers(worker).len(), 5);

    let mut harness = disk.restart(harness.view());
    let answered = Answered { newest: 5, count: 5 };
    let worker = harness.call_with(Hello {
        pass: Pass::default(),
        instance: JOB.into(),
        from: Peer::Worker(0),
        to: 0,
        answered,
    });
    let switch = harness.call(Peer::Switch(0));
    let adopt =
        Message::Adopt { region: 0, view_id: 1, round: ROUNDS_BEGIN_AFTER + 3, contents: contents(3) };
    let answers = harness.request(switch, adopt);
    let [Message::Adopted(adopted)] = answers.as_slice() else { panic!("{answers:?}") };
    assert_eq!((adopted.round, &adopted.contents), (ROUNDS_BEGIN_AFTER + 3, &contents(3)));
    assert_eq!((harness.statistics().lost_pushes, harness.statistics().lost_rounds), (5, 3));
    // The job goes on from there.
    assert!(harness.commit(switch, 1, 4, 7).is_some());
    assert_eq!(harness.request(worker, push(6, &[COLD], 2.0)).len(), 1);
    assert_eq!(harness.value(COLD), -2.0);
}

// rule L6
#[test]
fn a_failed_log_blocks_no_reply_and_restarts_at_a_checkpoint() {
    let (mut harness, mut disk) = with_log();
    let worker = harness.call(Peer::Worker(0));
    assert_eq!(harness.request(worker, push(1, &[COLD], 1.0)), []);
    harness.requests.clear();
    harness.store(StorageEvent::LogFailed { reason: "full".into() });
    assert_eq!(harness.answers(worker).len(), 1);
    assert_eq!(harness.request(worker, push(2, &[COLD], 1.0)).len(), 1);
    assert!(harness.requests.iter().all(|request| !matches!(request, StorageRequest::Append { .. })));

    // The disk is still full.
    let due = harness.server.poll_timeout().unwrap().max(NOW + super::super::RESUME_PAUSE);
    harness.server.handle_timeout(due);
    harness.store(StorageEvent::CheckpointFailed { number: 2, reason: "full".into() });
    harness.requests.clear();
    assert_eq!(harness.request(worker, push(3, &[COLD], 1.0)).len(), 1);
    // Now it is not.
    harness.server.handle_timeout(due + 2 * super::super::RESUME_PAUSE);
    harness.store(StorageEvent::RowsWritten);
    assert_eq!(harness.request(worker, push(4, &[COLD], 1.0)).len(), 1);
    let began = harness.requests.iter().any(|request| matches!(request, StorageRequest::Begin(_)));
    let appended =
        harness.requests.iter().any(|request| matches!(request, StorageRequest::Append { number: 4, .. }));
    assert!(began && appended, "{:?}", harness.requests);
    disk.serve(&mut harness, 8);
    // The end of the checkpoint is due when the rows before it have had their time.
    harness.server.handle_timeout(due + 3 * super::super::RESUME_PAUSE);
    harness.store(StorageEvent::RowsWritten);
    disk.serve(&mut harness, 8);
    assert_eq!(harness.request(worker, push(5, &[COLD], 1.0)), []);
    disk.serve(&mut harness, 8);
    assert_eq!(harness.answers(worker).len(), 1);
    let mut harness = disk.restart(harness.view());
    assert_eq!(harness.value(COLD), -5.0);
}

// rule L2
#[test]
fn rows_of_a_failed_increment_are_in_the_next_checkpoint() {
    let server = Server::new(address(1)).with_disk();
    let every = Some(Duration::from_secs(1));
    let durability = Durability { log: false, checkpoint_every: every, increments: 9, ..LOG };
    let mut harness = ServerHarness::starting(server, durability);
    let mut disk = Disk::default();
    disk.serve(&mut harness, 0);
    let worker = harness.call(Peer::Worker(0));
    harness.request(worker, push(1, &[COLD], 1.0));
    let begin = |harness: &mut ServerHarness, number| {
        harness.send(CONTROLLER, Message::Checkpoint { number });
        let base = harness.requests.iter().rev().find_map(|request| match request {
            StorageRequest::Begin(head) => Some(head.base),
            _ => None,
        });
        base.expect("a checkpoint has begun")
    };
    // All rows are handed over, and the disk is full.
    assert_eq!(begin(&mut harness, 2), Some(1), "only what has changed");
    let is_whole = harness.requests.iter().any(|request| matches!(request, StorageRequest::Finish { .. }));
    assert!(is_whole, "{:?}", harness.requests);
    harness.store(StorageEvent::CheckpointFailed { number: 2, reason: "full".into() });
    harness.requests.clear();
    assert_eq!(begin(&mut harness, 3), None, "an increment would lack the row");
    disk.serve(&mut harness, 0);
    assert_eq!(begin(&mut harness, 4), Some(3));
    disk.serve(&mut harness, 0);
    assert_eq!(disk.restart(harness.view()).value(COLD), -1.0);
}

#[test]
fn bytes_that_are_no_state_or_record_are_refused_in_words() {
    assert!(matches!(Restored::new(&[7; 40], 0), Err(RestoreError::State(_))));
    let (mut harness, mut disk) = with_log();
    disk.serve(&mut harness, 0);
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

// rule L4
#[test]
fn a_record_of_rounds_that_do_not_fit_is_refused() {
    let (mut harness, mut disk) = with_log();
    disk.serve(&mut harness, 0);
    let mut restored = Restored::new(&disk.state, 0).unwrap();
    let mut forget = |number, region, round| {
        let contents = contents(1);
        let record = RecordOf::Forgotten { region, round: ROUNDS_BEGIN_AFTER + round, contents: &contents };
        restored.record(number, &postcard::to_stdvec(&record).unwrap()).map_err(|error| error.to_string())
    };
    assert_eq!(forget(5, 0, 2), Ok(()));
    for (region, round) in [(0, 1), (0, 2), (200, 3)] {
        let error = forget(6, region, round).unwrap_err();
        assert!(error.contains("record 6 of the log") && error.contains("rounds"), "{error}");
    }
}

#[test]
fn a_view_with_another_number_of_servers_is_not_acted_on() {
    let (mut harness, mut disk) = with_log();
    disk.serve(&mut harness, 0);
    let view = View { number: 9, servers: Vec::new(), ..harness.view() };
    let mut restored = Restored::new(&disk.state, 0).unwrap();
    let record = postcard::to_stdvec(&RecordOf::View(&view)).unwrap();
    let error = restored.record(5, &record).unwrap_err().to_string();
    assert!(error.contains("another number of servers"), "{error}");
    let dropped = harness.statistics().dropped;
    harness.send(CONTROLLER, Message::View(view.into()));
    assert_eq!(harness.statistics().dropped, dropped + 1);
}

// rule L7
#[test]
fn the_last_checkpoint_is_marked_as_that_of_a_finished_job() {
    let (mut harness, mut disk) = with_log();
    harness.send(CONTROLLER, Message::Finish);
    disk.serve(&mut harness, 0);
    assert_eq!(Restored::new(&disk.state, disk.covers).unwrap_err(), RestoreError::Done);
}

// rule L7
#[test]
fn a_failure_of_the_checkpoint_before_is_not_that_of_the_last() {
    let (mut harness, mut disk) = with_log();
    disk.serve(&mut harness, 0);
    harness.send(CONTROLLER, Message::Checkpoint { number: 2 });
    harness.send(CONTROLLER, Message::Finish);
    harness.requests.clear();
    harness.store(StorageEvent::CheckpointFailed { number: 2, reason: "full".into() });
    disk.serve(&mut harness, 0);
    assert_eq!(Restored::new(&disk.state, disk.covers).unwrap_err(), RestoreError::Done);
}

#[test]
fn a_server_without_a_disk_aborts_a_job_that_wants_one() {
    let every = Some(Duration::from_secs(1));
    let load = Some(Load { directory: "run".into(), number: 1, resumes_with: None });
    for (durability, parts) in [
        (LOG, "a log"),
        (Durability { checkpoint_every: every, ..LOG }, "a log and checkpoints"),
        (Durability { load, ..Durability::NONE }, "rows to restore"),
    ] {
        let reason = refused(Server::new(address(1)), durability).expect("it has no place for it");
        assert!(reason.contains(&format!("the job has {parts}, and this server")), "{reason}");
        assert!(reason.contains("--state-dir"), "{reason}");
    }
}

/// The reason for which a server refuses a job, if it does.
fn refused(server: Server, durability: Durability) -> Option<String> {
    let mut harness = ServerHarness::starting(server, durability);
    harness.answers(CONTROLLER).into_iter().find_map(|sent| match sent {
        Message::Abort { reason } => Some(reason),
        _ => None,
    })
}

#[test]
fn a_temporary_disk_is_for_uploaded_checkpoints_alone() {
    let every = Some(Duration::from_secs(1));
    let upload = Some(Upload { url: "s3://b/run".into(), owner: 1, above: 0 });
    let server = || Server::new(address(1)).with_temporary_disk();
    let kept = Durability { checkpoint_every: every, ..Durability::NONE };
    let uploaded = Durability { upload, ..kept.clone() };
    assert_eq!(refused(server(), uploaded.clone()), None);
    let reason = refused(server(), kept).expect("they would go with the process");
    assert!(reason.contains("the job has checkpoints, and"), "{reason}");
    assert!(refused(server(), Durability { log: true, ..uploaded.clone() }).is_some());
    // It asks for its first checkpoint, and is no server that comes back.
    let mut harness = ServerHarness::starting(server(), uploaded);
    Disk::default().serve(&mut harness, 0);
    harness.server.handle_command(NOW, ServerCommand::Drain);
    harness.collect();
    let is_told = |event: &ServerEvent| match event {
        ServerEvent::Member(MemberEvent::Drained { unsaved }) => {
            unsaved.as_ref().is_some_and(|unsaved| unsaved.contains("at the URL"))
        }
        _ => false,
    };
    assert!(harness.events.iter().any(is_told), "{:?}", harness.events);
}

// rule L2
#[test]
fn a_checkpoint_is_throttled_while_the_server_serves() {
    let server = Server::new(address(1)).with_disk();
    // Of a row of two values, 16 bytes with its key.
    let mut harness =
        ServerHarness::starting(server, Durability { checkpoint_bytes_per_second: 1600, ..LOG });
    let mut disk = Disk::default();
    disk.serve(&mut harness, 0);
    let worker = harness.call(Peer::Worker(0));
    harness.send(worker, push(1, &[COLD, COLD + 1, COLD + 2], 1.0));
    disk.serve(&mut harness, 1);
    harness.send(CONTROLLER, Message::Checkpoint { number: 2 });
    disk.serve(&mut harness, 0);
    assert!(disk.open.is_some(), "the rows are on the disk, and the end is not due");
    let due = harness.server.poll_timeout().unwrap();
    assert_eq!(due, NOW + Duration::from_millis(30));
    harness.server.handle_timeout(due);
    harness.store(StorageEvent::RowsWritten);
    disk.serve(&mut harness, 0);
    assert!(disk.open.is_none());
    assert!(harness.answers(CONTROLLER).contains(&Message::Checkpointed {
        number: 2,
        is_on_disk: true,
        failure: None
    }));
}

// rule C8
#[test]
fn a_state_with_rows_that_no_message_holds_is_refused() {
    let (_, disk) = with_log();
    let mut state = State::of_bytes(&disk.state).unwrap();
    state.cluster.tables[0].width = 1 << 32;
    let error = Restored::new(&state.to_bytes(), 0).unwrap_err().to_string();
    assert!(error.contains("state of the checkpoint") && error.contains("4294967296 values"), "{error}");
}
