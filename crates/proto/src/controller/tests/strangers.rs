//! Streams with a peer that is not identified, or in no view.

use super::desk::{Desk, join};
use crate::cluster::Peer;
use crate::controller::ControllerEvent;
use crate::message::{Kind, Message};
use crate::statistics::{Statistics, WorkerStatistics};

use Peer::{Server, Switch, Worker};

fn abort() -> Message {
    Message::Abort { reason: "no more".into() }
}

/// Number of strangers that were reported to the user.
fn strangers(desk: &mut Desk) -> u64 {
    let count = |event| if let ControllerEvent::Strangers(strangers) = event { strangers.count } else { 0 };
    desk.events().into_iter().map(count).max().unwrap_or(0)
}

// rule S3
#[test]
fn an_unidentified_peer_ends_nothing() {
    let mut desk = Desk::running(1, 1, 0, 1);
    let statistics = Statistics::Worker(WorkerStatistics::default());
    let messages = [
        abort(),
        Message::Barrier { number: 77 },
        Message::Leave,
        Message::Report { text: String::new(), statistics },
        Message::Unreachable { switch: 0 },
        Message::Viewed { number: 1 },
        Message::Finish,
        Message::Retired,
    ];
    for message in messages {
        let link = desk.call();
        desk.tell(link, message.clone());
        assert_eq!(desk.heard_on(link), []);
        assert_eq!(desk.closed.last(), Some(&link), "{message:?}");
        assert!(!desk.admitted.contains(&link));
    }
    assert_eq!(strangers(&mut desk), 8);
    assert_eq!(desk.failure(), None);
    // A member may, and is admitted for as long as it is one.
    assert!(desk.admitted.contains(&desk.links_of[&Worker(0)]));
    desk.from(Worker(0), abort());
    assert_eq!(desk.failure().as_deref(), Some("no more"));
}

// rule S3
#[test]
fn a_peer_in_no_view_does_not_end_a_recovery() {
    for words in [abort(), Message::Barrier { number: 77 }] {
        let known = Desk::running(2, 0, 0, 1).cluster();
        let mut desk = Desk::new(2, 0, 1);
        desk.rejoin_with(Server(0), |rejoin| rejoin.cluster = Some(Box::new(known)));
        for peer in [Worker(9), Switch(9), Server(9)] {
            let link = desk.rejoin(peer);
            desk.tell(link, words.clone());
            assert_eq!(desk.failure(), None, "{peer} is in no view");
        }
        desk.rejoin(Worker(0));
        desk.from(Worker(0), words);
        assert!(desk.failure().is_some(), "worker 0 is in the view of the servers");
    }
}

// rule S2
#[test]
fn a_stream_is_of_one_member_and_a_member_has_one() {
    let mut desk = Desk::running(1, 0, 0, 2);
    let link = desk.links_of[&Worker(1)];
    let rejoin = desk.rejoin_message(Worker(0), link);
    desk.tell(link, Message::Rejoin(Box::new(rejoin)));
    assert_eq!(desk.closed, [link], "worker 1 is not worker 0, too");
    desk.from(Worker(0), Message::Barrier { number: 0 });
    let before = desk.links_of[&Worker(0)];
    desk.rejoin(Worker(0));
    assert_eq!(desk.closed, [link, before]);
}

// rule S1
#[test]
fn nothing_is_kept_of_strangers() {
    let mut desk = Desk::running(1, 1, 0, 1);
    let callers = desk.controller.callers.len();
    for _ in 0..100 {
        let (silent, full) = (desk.call(), desk.call());
        desk.tell(silent, abort());
        desk.tell(full, Message::Join(join(Kind::Worker, full)));
    }
    assert_eq!(desk.controller.callers.len(), callers);
}
