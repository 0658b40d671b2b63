//! Members whose stream to the controller broke, in every phase.

use super::desk::{Desk, ms};
use crate::cluster::Peer;
use crate::controller::{ControllerCommand, ControllerEvent};
use crate::message::{Kind, Message};

use Peer::{Server, Switch, Worker};

/// Tests rule M8.
#[test]
fn a_returning_member_is_sent_the_view_if_it_is_its_turn() {
    let mut desk = Desk::running(2, 2, 0, 2);
    for peer in [Server(0), Switch(0), Worker(0)] {
        let before = desk.links_of[&peer];
        let link = desk.rejoin(peer);
        assert!(matches!(desk.heard_on(link).as_slice(), [Message::View(_)]), "{peer}");
        assert!(desk.closed.contains(&before), "no member has two streams");
    }
    // A change that only the servers may have received.
    desk.break_stream(Switch(1));
    desk.pass(ms(200), &[]);
    desk.who_heard();
    for peer in [Server(0), Switch(0), Worker(0)] {
        desk.rejoin(peer);
    }
    assert_eq!(desk.who_heard(), [Server(0)]);
    desk.viewed(Server(0));
    desk.viewed(Server(1));
    assert_eq!(desk.who_heard(), [Switch(0)], "on its new stream");
    for peer in [Server(1), Switch(0), Worker(1)] {
        desk.rejoin(peer);
    }
    assert_eq!(desk.who_heard(), [Server(1), Switch(0)]);
    desk.viewed(Switch(0));
    assert_eq!(desk.who_heard(), [Worker(0), Worker(1)]);
}

#[test]
fn messages_on_the_old_stream_count_no_more() {
    let mut desk = Desk::running(1, 0, 0, 2);
    let before = desk.links_of[&Worker(0)];
    desk.rejoin(Worker(0));
    desk.tell(before, Message::Leave);
    assert_eq!(desk.view().number, 1);
    // Its end is not the loss of the member.
    desk.links_of.insert(Worker(0), before);
    desk.break_stream(Worker(0));
    desk.pass(ms(3000), &[]);
    assert_eq!(desk.events(), []);
}

#[test]
fn a_change_waits_for_a_server_whose_stream_is_broken() {
    let mut desk = Desk::running(2, 1, 1, 1);
    desk.break_stream(Server(1));
    desk.break_stream(Switch(0));
    desk.pass(ms(200), &[]);
    assert_eq!(desk.holders(), [Some(1), Some(1)]);
    desk.viewed(Server(0));
    assert_eq!(desk.heard(Switch(1)), []);
    desk.rejoin(Server(1));
    assert_eq!(desk.heard_view(Server(1)), Some(desk.view()));
    desk.viewed(Server(1));
    assert_eq!(desk.heard_view(Switch(1)), Some(desk.view().of(Kind::Switch)));
}

/// Tests rule V10.
#[test]
fn a_switch_taken_for_dead_joins_under_another_number() {
    let mut desk = Desk::running(1, 1, 1, 1);
    desk.pass(ms(700), &[Switch(0)]);
    assert_eq!(desk.lost(), [Switch(0)]);
    desk.settle();
    let link = desk.rejoin(Switch(0));
    desk.links_of.insert(Switch(2), link);
    desk.viewed(Server(0));
    desk.viewed(Switch(1));
    let heard = desk.heard(Switch(2));
    assert!(matches!(heard.as_slice(), [Message::Start(start)] if start.you == Switch(2)), "{heard:?}");
    assert_eq!(desk.holders(), [Some(1)]);
    assert!(matches!(desk.events().as_slice(), [.., ControllerEvent::Joined { peer: Switch(2), .. }]));
}

#[test]
fn a_worker_taken_for_dead_is_told_so() {
    let mut desk = Desk::running(1, 0, 0, 2);
    desk.pass(ms(10_000), &[Worker(0)]);
    desk.settle();
    let link = desk.rejoin(Worker(0));
    assert!(matches!(desk.heard_on(link).as_slice(), [Message::Abort { .. }]));
    assert!(desk.closed.contains(&link));
    assert_eq!(desk.view().number, 2);
}

#[test]
fn a_switch_that_retires_is_told_again() {
    let mut desk = Desk::running(1, 1, 1, 1);
    desk.break_stream(Switch(0));
    desk.command(ControllerCommand::Migrate { switch: 0 });
    desk.rejoin(Switch(0));
    assert_eq!(desk.heard(Switch(0)).last(), Some(&Message::Retire));
}

#[test]
fn a_rejoin_after_the_end_or_as_another_member_is_refused() {
    let mut desk = Desk::running(1, 1, 0, 1);
    for you in [Peer::Controller, Server(0), Worker(0)] {
        let link = desk.call();
        let mut rejoin = desk.rejoin_message(Switch(0), link);
        rejoin.you = you;
        desk.tell(link, Message::Rejoin(Box::new(rejoin)));
        assert!(matches!(desk.heard_on(link).as_slice(), [Message::Abort { .. }]));
        assert!(desk.closed.contains(&link));
    }
    let link = desk.rejoin_with(Switch(0), |rejoin| rejoin.join.version += 1);
    assert!(matches!(desk.heard_on(link).as_slice(), [Message::Abort { .. }]));
    desk.command(ControllerCommand::Abort { reason: "enough".into() });
    for peer in [Server(0), Switch(0), Worker(0)] {
        let link = desk.rejoin(peer);
        assert!(matches!(desk.heard_on(link).as_slice(), [Message::Abort { .. }]));
    }
    let link = desk.call();
    desk.tell(link, Message::Join(super::desk::join(Kind::Worker, link)));
    assert!(matches!(desk.heard_on(link).as_slice(), [Message::Abort { .. }]));
}

#[test]
fn a_worker_whose_stream_broke_before_its_start_is_not_refused() {
    let mut desk = Desk::running(1, 0, 0, 2);
    desk.from(Worker(1), Message::Leave);
    desk.settle();
    desk.join(Worker(2));
    desk.break_stream(Worker(2));
    desk.pass(ms(100), &[]);
    let link = desk.join(Worker(3));
    assert_eq!((desk.heard_on(link), desk.closed.last()), (vec![], Some(&link)), "it has to try again");
    desk.pass(ms(1900), &[]);
    desk.join(Worker(3));
    desk.settle();
    assert_eq!(desk.view().workers.keys().copied().collect::<Vec<_>>(), [0, 3]);
}

// rule M18
#[test]
fn members_of_another_job_are_turned_away() {
    let mut desk = Desk::running(1, 1, 0, 1);
    let members = desk.view();
    for (peer, reason) in [(Worker(0), "worker 0"), (Server(0), "server 0")] {
        let link = desk.rejoin_with(peer, |rejoin| rejoin.instance += 1);
        let said = desk.heard_on(link);
        assert!(
            matches!(said.first(), Some(Message::Abort { reason: said }) if said.contains(reason)),
            "{said:?}"
        );
    }
    assert_eq!((desk.view(), desk.lost()), (members, vec![]), "its own members go on");
}
