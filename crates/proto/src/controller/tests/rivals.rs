//! A controller whose members follow another one, and members that are there and send nothing.

use super::harness::{ControllerHarness, ms};
use crate::cluster::Peer;
use crate::controller::ControllerEvent;
use crate::message::Message;
use crate::role::Role;
use crate::statistics::{Statistics, WorkerStatistics};

use Peer::{Server, Switch, Worker};

const TERM: u64 = 1 << 32;

/// A cluster whose server comes back when it is gone.
fn with_server_that_returns() -> ControllerHarness {
    let mut harness = ControllerHarness::running(1, 1, 0, 2);
    harness.controller.members.get_mut(&Server(0)).unwrap().is_restartable = true;
    harness
}

fn releases(harness: &mut ControllerHarness) -> usize {
    let received = harness.received(Worker(0));
    received.iter().filter(|message| matches!(message, Message::Release { .. })).count()
}

// rule M17
#[test]
fn no_barrier_passes_without_a_lost_worker_unless_servers_agree() {
    let mut harness = with_server_that_returns();
    harness.break_stream(Server(0));
    harness.break_stream(Worker(1));
    harness.from(Worker(0), Message::Clock { barrier: 0, clock: 3 });
    harness.pass(ms(2500), &[]);
    assert_eq!(harness.lost(), [Worker(1)]);
    harness.from(Worker(0), Message::Barrier { number: 0 });
    assert_eq!(
        harness.received(Worker(0)),
        [],
        "perhaps the other worker and the server follow another controller"
    );
    harness.rejoin(Server(0));
    assert_eq!(releases(&mut harness), 0);
    harness.viewed(Server(0));
    assert_eq!(releases(&mut harness), 1);
}

// rule M17
#[test]
fn no_job_ends_without_a_lost_worker_unless_servers_agree() {
    let mut harness = with_server_that_returns();
    harness.break_stream(Server(0));
    harness.break_stream(Worker(1));
    harness.pass(ms(2500), &[]);
    let statistics = Statistics::Worker(WorkerStatistics::default());
    harness.from(Worker(0), Message::Report { text: "done".into(), statistics });
    assert_eq!(harness.received(Worker(0)), []);
    harness.rejoin(Server(0));
    harness.viewed(Server(0));
    assert_eq!(harness.received(Worker(0)), [Message::Finish]);
}

// rule M17
#[test]
fn a_member_with_a_newer_view_ends_the_controller_quietly() {
    for peer in [Server(0), Switch(0), Worker(1)] {
        let mut harness = ControllerHarness::running(1, 1, 0, 2);
        let link = harness.rejoin_with(peer, |rejoin| rejoin.view = TERM + 5);
        assert_eq!(harness.failure().as_deref(), Some("another controller has taken over the cluster"));
        assert!(
            harness.closed.contains(&link) && harness.closed.len() == 5,
            "all streams, the new one and the old"
        );
        assert_eq!(harness.recipients(), [], "no member is sent the end of the job");
        assert_eq!(harness.controller.poll_timeout(), None);
        let other = harness.rejoin_with(Worker(0), |rejoin| rejoin.view = TERM + 6);
        assert_eq!((harness.received_on(other), harness.closed.contains(&other)), (vec![], true));
    }
}

// rule M17
#[test]
fn a_server_that_still_logs_a_newer_view_ends_the_controller() {
    let mut harness = ControllerHarness::running(1, 1, 0, 2);
    let mut cluster = harness.cluster();
    cluster.view.number = TERM + 5;
    harness.rejoin_with(Server(0), |rejoin| rejoin.cluster = Some(Box::new(cluster)));
    assert_eq!(harness.failure().as_deref(), Some("another controller has taken over the cluster"));
    // A caller from before its end is not sent the end of the job: it must find the other one.
    for peer in [Worker(0), Switch(0)] {
        let link = harness.rejoin(peer);
        assert_eq!((harness.received_on(link), harness.closed.contains(&link)), (vec![], true));
    }
}

#[test]
fn a_member_with_the_present_view_ends_no_controller() {
    let mut harness = ControllerHarness::running(1, 1, 0, 2);
    let number = harness.view().number;
    harness.rejoin_with(Worker(0), |rejoin| rejoin.view = number);
    assert_eq!(harness.failure(), None);
}

// rule M7
#[test]
fn a_restartable_server_has_30_s_to_come_back() {
    let mut harness = with_server_that_returns();
    let link = harness.links_of[&Server(0)];
    harness.pass(ms(9999), &[Server(0)]);
    assert_eq!(harness.events(), []);
    harness.pass(ms(1), &[Server(0)]);
    assert!(matches!(harness.events().as_slice(), [ControllerEvent::Away { peer: Server(0), .. }]));
    assert!(harness.closed.contains(&link), "its stream counts as broken");
    let mut other = harness.clone();
    harness.pass(ms(29_000), &[]);
    assert_eq!(harness.events(), []);
    harness.rejoin(Server(0));
    assert!(matches!(harness.events().as_slice(), [ControllerEvent::Returned { peer: Server(0), .. }]));
    other.pass(ms(30_000), &[]);
    assert!(other.failure().is_some_and(|reason| reason.contains("sent nothing")));
}
