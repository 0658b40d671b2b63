//! A server that uploads its checkpoints.

use super::durability::{Disk, LOG};
use super::harness::{CONTROLLER, NOW, ServerHarness, address};
use crate::cluster::{Durability, Upload};
use crate::message::Message;
use crate::role::Role;
use crate::server::{MemberEvent, Server, ServerCommand, ServerEvent};
use crate::storage::{StorageEvent, StorageRequest};

/// A server of a job that began when checkpoint 7 was at the URL.
fn uploading() -> (ServerHarness, Disk, Upload) {
    let upload = Upload { url: "s3://b/run".into(), owner: 5, above: 7 };
    let durability = Durability { upload: Some(upload.clone()), ..LOG };
    let mut harness = ServerHarness::starting(Server::new(address(1)).with_disk(), durability);
    let begins =
        |request: &StorageRequest| matches!(request, StorageRequest::Begin(head) if head.number == 8);
    assert!(harness.requests.iter().any(begins), "{:?}", harness.requests);
    let mut disk = Disk::default();
    disk.serve(&mut harness, 0);
    harness.answers(CONTROLLER);
    (harness, disk, upload)
}

/// Writes everything of the checkpoint, and returns what is asked then.
fn write(harness: &mut ServerHarness, number: u64) -> Vec<StorageRequest> {
    while harness.requests.iter().any(|request| matches!(request, StorageRequest::Rows(_))) {
        let requests = core::mem::take(&mut harness.requests);
        for _ in requests.iter().filter(|request| matches!(request, StorageRequest::Rows(_))) {
            harness.store(StorageEvent::RowsWritten);
        }
    }
    harness.requests.clear();
    harness.store(StorageEvent::Checkpointed { number, log_from: 1 });
    core::mem::take(&mut harness.requests)
}

// rule L10
#[test]
fn the_controller_is_answered_when_the_upload_has_ended() {
    let (mut harness, _, to) = uploading();
    for (number, failure) in [(9, None), (10, Some("no such bucket".to_owned()))] {
        harness.send(CONTROLLER, Message::Checkpoint { number });
        let bytes_per_second = LOG.checkpoint_bytes_per_second;
        let asked = StorageRequest::Upload { number, to: to.clone(), bytes_per_second };
        let requests = write(&mut harness, number);
        assert!(requests.contains(&asked), "{requests:?}");
        assert!(requests.iter().any(|request| matches!(request, StorageRequest::TrimLog { .. })));
        assert_eq!(harness.answers(CONTROLLER), [Message::CheckpointBegun { number }]);
        harness.store(StorageEvent::Uploaded { number, bytes: 0, failure: failure.clone() });
        assert_eq!(
            harness.answers(CONTROLLER),
            [Message::Checkpointed { number, is_on_disk: true, failure }]
        );
    }
}

// rule L10
#[test]
fn a_checkpoint_that_was_not_written_is_not_uploaded() {
    let (mut harness, ..) = uploading();
    harness.send(CONTROLLER, Message::Checkpoint { number: 9 });
    harness.requests.clear();
    harness.answers(CONTROLLER);
    harness.store(StorageEvent::CheckpointFailed { number: 9, reason: "full".into() });
    let failure = Some("full".to_owned());
    assert_eq!(
        harness.answers(CONTROLLER),
        [Message::Checkpointed { number: 9, is_on_disk: false, failure }]
    );
    let uploads = |request: &StorageRequest| matches!(request, StorageRequest::Upload { .. });
    assert!(!harness.requests.iter().any(uploads), "{:?}", harness.requests);
}

// rule L10
#[test]
fn a_server_ends_when_its_last_checkpoint_is_uploaded() {
    for failure in [None, Some("no such bucket".to_owned())] {
        let (mut harness, ..) = uploading();
        harness.send(CONTROLLER, Message::Checkpoint { number: 9 });
        write(&mut harness, 9);
        // The job is done while the one before is uploaded.
        harness.send(CONTROLLER, Message::Finish);
        let uploaded = |harness: &mut ServerHarness, number, failure| {
            let event = StorageEvent::Uploaded { number, bytes: 0, failure };
            harness.server.handle_command(NOW, ServerCommand::Storage(event));
            harness.server.poll_event()
        };
        let begun = core::mem::take(&mut harness.requests);
        if failure.is_none() {
            // It ends before the last one is written.
            assert_eq!(uploaded(&mut harness, 9, None), None);
        }
        harness.requests = begun;
        let requests = write(&mut harness, 10);
        let last = |request: &StorageRequest| matches!(request, StorageRequest::Upload { number: 10, .. });
        assert!(requests.iter().any(last), "{requests:?}");
        assert_eq!(uploaded(&mut harness, 9, None), None);
        match uploaded(&mut harness, 10, failure.clone()) {
            Some(ServerEvent::Member(MemberEvent::Finished(_))) => assert_eq!(failure, None),
            Some(ServerEvent::Member(MemberEvent::Ended { reason, .. })) => {
                assert!(reason.contains("was not uploaded: no such bucket"), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    }
}
