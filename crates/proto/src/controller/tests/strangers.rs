//! Streams with a peer that is not identified, or in no view.

use super::harness::{ControllerHarness, join};
use crate::cluster::Peer;
use crate::controller::ControllerEvent;
use crate::message::{Kind, Message};
use crate::statistics::{Statistics, WorkerStatistics};

use Peer::{Server, Switch, Worker};

fn abort() -> Message {
    Message::Abort { reason: "no more".into() }
}

/// Number of strangers that were reported to the user.
fn strangers(harness: &mut ControllerHarness) -> u64 {
    let count = |event| if let ControllerEvent::Strangers(strangers) = event { strangers.count } else { 0 };
    harness.events().into_iter().map(count).max().unwrap_or(0)
}

// rule S3
#[test]
fn an_unidentified_peer_ends_nothing() {
    let mut harness = ControllerHarness::running(1, 1, 0, 1);
    let statistics = Statistics::Worker(WorkerStatistics::default());
    let messages = [
        abort(),
        Message::Barrier { number: 77 },
        Message::Leave { returns: false },
        Message::Report { text: String::new(), statistics },
        Message::Unreachable { switch: 0 },
        Message::Viewed { number: 1 },
        Message::Finish,
        Message::Retired,
    ];
    for message in messages {
        let link = harness.call();
        harness.deliver(link, message.clone());
        assert_eq!(harness.received_on(link), []);
        assert_eq!(harness.closed.last(), Some(&link), "{message:?}");
        assert!(!harness.admitted.contains(&link));
    }
    assert_eq!(strangers(&mut harness), 8);
    assert_eq!(harness.failure(), None);
    // A member may, and is admitted for as long as it is one.
    assert!(harness.admitted.contains(&harness.links_of[&Worker(0)]));
    harness.from(Worker(0), abort());
    assert_eq!(harness.failure().as_deref(), Some("no more"));
}

// rule S3
#[test]
fn a_peer_in_no_view_does_not_end_a_recovery() {
    for words in [abort(), Message::Barrier { number: 77 }] {
        let known = ControllerHarness::running(2, 0, 0, 1).cluster();
        let mut harness = ControllerHarness::new(2, 0, 1);
        harness.rejoin_with(Server(0), |rejoin| rejoin.cluster = Some(Box::new(known)));
        for peer in [Worker(9), Switch(9), Server(9)] {
            let link = harness.rejoin(peer);
            harness.deliver(link, words.clone());
            assert_eq!(harness.failure(), None, "{peer} is in no view");
        }
        harness.rejoin(Worker(0));
        harness.from(Worker(0), words);
        assert!(harness.failure().is_some(), "worker 0 is in the view of the servers");
    }
}

// rule S2
#[test]
fn a_stream_is_of_one_member_and_a_member_has_one() {
    let mut harness = ControllerHarness::running(1, 0, 0, 2);
    let link = harness.links_of[&Worker(1)];
    let rejoin = harness.rejoin_message(Worker(0), link);
    harness.deliver(link, Message::Rejoin(Box::new(rejoin)));
    assert_eq!(harness.closed, [link], "worker 1 is not worker 0, too");
    harness.from(Worker(0), Message::Barrier { number: 0 });
    let before = harness.links_of[&Worker(0)];
    harness.rejoin(Worker(0));
    assert_eq!(harness.closed, [link, before]);
}

// rule S1
#[test]
fn nothing_is_kept_of_strangers() {
    let mut harness = ControllerHarness::running(1, 1, 0, 1);
    let callers = harness.controller.callers.len();
    for _ in 0..100 {
        let (unresponsive, full) = (harness.call(), harness.call());
        harness.deliver(unresponsive, abort());
        harness.deliver(full, Message::Join(join(Kind::Worker, full)));
    }
    assert_eq!(harness.controller.callers.len(), callers);
}
