//! Members whose stream to the controller broke, in every phase.

use super::harness::{ControllerHarness, ms};
use crate::cluster::Peer;
use crate::controller::{ControllerCommand, ControllerEvent};
use crate::message::{Kind, Message};

use Peer::{Server, Switch, Worker};

/// Tests rule M8.
#[test]
fn a_returning_member_is_sent_the_view_if_it_is_its_turn() {
    let mut harness = ControllerHarness::running(2, 2, 0, 2);
    for peer in [Server(0), Switch(0), Worker(0)] {
        let before = harness.links_of[&peer];
        let link = harness.rejoin(peer);
        assert!(matches!(harness.received_on(link).as_slice(), [Message::View(_)]), "{peer}");
        assert!(harness.closed.contains(&before), "no member has two streams");
    }
    // A change that only the servers may have received.
    harness.break_stream(Switch(1));
    harness.pass(ms(200), &[]);
    harness.recipients();
    for peer in [Server(0), Switch(0), Worker(0)] {
        harness.rejoin(peer);
    }
    assert_eq!(harness.recipients(), [Server(0)]);
    harness.viewed(Server(0));
    harness.viewed(Server(1));
    assert_eq!(harness.recipients(), [Switch(0)], "on its new stream");
    for peer in [Server(1), Switch(0), Worker(1)] {
        harness.rejoin(peer);
    }
    assert_eq!(harness.recipients(), [Server(1), Switch(0)]);
    harness.viewed(Switch(0));
    assert_eq!(harness.recipients(), [Worker(0), Worker(1)]);
}

#[test]
fn messages_on_the_old_stream_count_no_more() {
    let mut harness = ControllerHarness::running(1, 0, 0, 2);
    let before = harness.links_of[&Worker(0)];
    harness.rejoin(Worker(0));
    harness.deliver(before, Message::Leave { returns: false });
    assert_eq!(harness.view().number, 1);
    // Its end is not the loss of the member.
    harness.links_of.insert(Worker(0), before);
    harness.break_stream(Worker(0));
    harness.pass(ms(3000), &[]);
    assert_eq!(harness.events(), []);
}

#[test]
fn a_change_waits_for_a_server_whose_stream_is_broken() {
    let mut harness = ControllerHarness::running(2, 1, 1, 1);
    harness.break_stream(Server(1));
    harness.break_stream(Switch(0));
    harness.pass(ms(200), &[]);
    assert_eq!(harness.owners(), [Some(1), Some(1)]);
    harness.viewed(Server(0));
    assert_eq!(harness.received(Switch(1)), []);
    harness.rejoin(Server(1));
    assert_eq!(harness.received_view(Server(1)), Some(harness.view()));
    harness.viewed(Server(1));
    assert_eq!(harness.received_view(Switch(1)), Some(harness.view().of(Kind::Switch)));
}

/// Tests rule V10.
#[test]
fn a_switch_taken_for_dead_joins_under_another_number() {
    let mut harness = ControllerHarness::running(1, 1, 1, 1);
    harness.pass(ms(700), &[Switch(0)]);
    assert_eq!(harness.lost(), [Switch(0)]);
    harness.settle();
    let link = harness.rejoin(Switch(0));
    harness.links_of.insert(Switch(2), link);
    harness.viewed(Server(0));
    harness.viewed(Switch(1));
    let received = harness.received(Switch(2));
    assert!(matches!(received.as_slice(), [Message::Start(start)] if start.you == Switch(2)), "{received:?}");
    assert_eq!(harness.owners(), [Some(1)]);
    assert!(matches!(harness.events().as_slice(), [.., ControllerEvent::Joined { peer: Switch(2), .. }]));
}

/// Tests rule V10: what a switch sent as the member that it was does not count against the one that it becomes.
#[test]
fn an_abort_that_crosses_a_start_does_not_count() {
    let mut harness = ControllerHarness::running(1, 1, 1, 1);
    harness.pass(ms(700), &[Switch(0)]);
    harness.settle();
    let link = harness.rejoin(Switch(0));
    harness.links_of.insert(Switch(2), link);
    let abort = || Message::Abort { reason: "switch 0: a shard does not commit what it is sent".into() };
    // As it rejoined, and before it is started.
    harness.deliver(link, Message::Viewed { number: 1 });
    harness.deliver(link, abort());
    harness.viewed(Server(0));
    harness.viewed(Switch(1));
    assert!(matches!(harness.received(Switch(2)).as_slice(), [Message::Start(_)]));
    harness.lost();
    // While its new place is on the way.
    harness.deliver(link, abort());
    assert_eq!(harness.lost(), []);
    assert!(harness.view().switches.contains_key(&2));
    harness.viewed(Switch(2));
    harness.deliver(link, abort());
    assert_eq!(harness.lost(), [Switch(2)]);
}

#[test]
fn a_worker_taken_for_dead_is_told_so() {
    let mut harness = ControllerHarness::running(1, 0, 0, 2);
    harness.pass(ms(10_000), &[Worker(0)]);
    harness.settle();
    let link = harness.rejoin(Worker(0));
    assert!(matches!(harness.received_on(link).as_slice(), [Message::Abort { .. }]));
    assert!(harness.closed.contains(&link));
    assert_eq!(harness.view().number, 2);
}

#[test]
fn a_switch_that_retires_is_told_again() {
    let mut harness = ControllerHarness::running(1, 1, 1, 1);
    harness.break_stream(Switch(0));
    harness.command(ControllerCommand::Migrate { switch: 0 });
    harness.rejoin(Switch(0));
    assert_eq!(harness.received(Switch(0)).last(), Some(&Message::Retire));
}

#[test]
fn a_rejoin_after_the_end_or_as_another_member_is_refused() {
    let mut harness = ControllerHarness::running(1, 1, 0, 1);
    for you in [Peer::Controller, Server(0), Worker(0)] {
        let link = harness.call();
        let mut rejoin = harness.rejoin_message(Switch(0), link);
        rejoin.you = you;
        harness.deliver(link, Message::Rejoin(Box::new(rejoin)));
        assert!(matches!(harness.received_on(link).as_slice(), [Message::Abort { .. }]));
        assert!(harness.closed.contains(&link));
    }
    let link = harness.rejoin_with(Switch(0), |rejoin| rejoin.join.version += 1);
    assert!(matches!(harness.received_on(link).as_slice(), [Message::Abort { .. }]));
    harness.command(ControllerCommand::Abort { reason: "enough".into() });
    for peer in [Server(0), Switch(0), Worker(0)] {
        let link = harness.rejoin(peer);
        assert!(matches!(harness.received_on(link).as_slice(), [Message::Abort { .. }]));
    }
    let link = harness.call();
    harness.deliver(link, Message::Join(super::harness::join(Kind::Worker, link)));
    assert!(matches!(harness.received_on(link).as_slice(), [Message::Abort { .. }]));
}

#[test]
fn a_worker_whose_stream_broke_before_its_start_is_not_refused() {
    let mut harness = ControllerHarness::running(1, 0, 0, 2);
    harness.from(Worker(1), Message::Leave { returns: false });
    harness.settle();
    harness.join(Worker(2));
    harness.break_stream(Worker(2));
    harness.pass(ms(100), &[]);
    let link = harness.join(Worker(3));
    assert_eq!(
        (harness.received_on(link), harness.closed.last()),
        (vec![], Some(&link)),
        "it has to try again"
    );
    harness.pass(ms(1900), &[]);
    harness.join(Worker(3));
    harness.settle();
    assert_eq!(harness.view().workers.keys().copied().collect::<Vec<_>>(), [0, 3]);
}

// rule M18
#[test]
fn members_of_another_job_are_turned_away() {
    let mut harness = ControllerHarness::running(1, 1, 0, 1);
    let members = harness.view();
    for (peer, reason) in [(Worker(0), "worker 0"), (Server(0), "server 0")] {
        let link = harness.rejoin_with(peer, |rejoin| rejoin.instance += 1);
        let sent = harness.received_on(link);
        assert!(
            matches!(sent.first(), Some(Message::Abort { reason: sent }) if sent.contains(reason)),
            "{sent:?}"
        );
    }
    assert_eq!((harness.view(), harness.lost()), (members, vec![]), "its own members go on");
}
