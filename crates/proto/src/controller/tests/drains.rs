//! Members that are asked to end, and servers that come back at another address.

use core::net::SocketAddr;

use super::harness::{ControllerHarness, ms};
use crate::cluster::Peer;
use crate::message::Message;
use crate::role::Link;

use Peer::{Server, Switch, Worker};

/// A member asks to go. Returns its stream.
fn leave(harness: &mut ControllerHarness, peer: Peer) -> Link {
    harness.from(peer, Message::Leave { returns: true });
    harness.links_of[&peer]
}

// rule V12
#[test]
fn a_switch_goes_when_the_shards_have_everything() {
    let mut harness = ControllerHarness::running(2, 1, 1, 1);
    let link = leave(&mut harness, Switch(0));
    assert_eq!(harness.received(Switch(0)), [Message::Retire]);
    assert_eq!(harness.owners(), [Some(0); 2], "nothing moves before");
    harness.from(Switch(0), Message::Retired);
    assert_eq!(harness.received_on(link), [Message::Finish]);
    assert_eq!(harness.owners(), [Some(1); 2]);
    assert_eq!(harness.view().switches.keys().copied().collect::<Vec<_>>(), [1]);
    harness.settle();
    assert_eq!(harness.lost(), [], "nothing is amiss");
    // Should it not have heard, it hears again.
    let link = harness.rejoin(Switch(0));
    assert_eq!(harness.received_on(link), [Message::Finish]);
}

// rule V12
#[test]
fn switches_go_one_by_one_and_the_last_leaves_cold_rows() {
    let mut harness = ControllerHarness::running(2, 2, 0, 1);
    let links = [0, 1].map(|switch| leave(&mut harness, Switch(switch)));
    assert_eq!(harness.received_on(links[0]), [Message::Retire]);
    assert_eq!(harness.received_on(links[1]), []);
    harness.from(Switch(0), Message::Retired);
    assert_eq!(harness.received_on(links[0]), [Message::Finish]);
    assert!(!harness.received_on(links[1]).contains(&Message::Retire), "it does not act on the view yet");
    [Server(0), Server(1), Switch(1)].into_iter().for_each(|peer| harness.viewed(peer));
    assert!(harness.received_on(links[1]).contains(&Message::Retire));
    assert!(!harness.owners().contains(&Some(0)));
    harness.from(Switch(1), Message::Retired);
    assert!(harness.received_on(links[1]).contains(&Message::Finish));
    assert!(harness.owners().iter().all(Option::is_none));
    harness.settle();
    // The rows are hot again when one comes back.
    harness.join(Switch(2));
    assert!(harness.owners().iter().all(|owner| *owner == Some(2)));
}

#[test]
fn a_standby_goes_at_once_and_one_that_hangs_after_a_second() {
    let mut harness = ControllerHarness::running(1, 1, 1, 1);
    let link = leave(&mut harness, Switch(1));
    assert_eq!(harness.received_on(link), [Message::Finish]);
    assert_eq!(harness.owners(), [Some(0)]);
    harness.settle();
    let link = leave(&mut harness, Switch(0));
    harness.pass(ms(999), &[]);
    assert!(!harness.received_on(link).contains(&Message::Finish));
    harness.pass(ms(1), &[]);
    assert!(harness.received_on(link).contains(&Message::Finish));
    assert_eq!(harness.owners(), [None]);
}

#[test]
fn a_switch_that_is_to_go_gets_no_region() {
    let mut harness = ControllerHarness::running(1, 2, 1, 1);
    leave(&mut harness, Switch(0));
    leave(&mut harness, Switch(1));
    // While the first retires, a view is made for another reason.
    harness.join(Switch(3));
    assert!(harness.owners().iter().all(|owner| *owner != Some(0)));
    assert_eq!(harness.lost(), []);
}

/// The job as it is when worker 1 comes in the place of the last one, and it has gone on for a minute.
fn with_another_worker(vacant: &ControllerHarness) -> ControllerHarness {
    let mut harness = vacant.clone();
    harness.join(Worker(1));
    harness.settle();
    harness.pass(ms(60_000), &[]);
    assert_eq!(harness.failure(), None);
    harness
}

// rule M11
#[test]
fn a_job_waits_for_a_worker_in_the_place_of_its_last() {
    let mut harness = ControllerHarness::running(1, 0, 0, 1);
    let link = leave(&mut harness, Worker(0));
    assert_eq!(harness.received_on(link), [Message::Finish]);
    harness.settle();
    harness.pass(ms(29_000), &[]);
    assert_eq!(harness.failure(), None);
    with_another_worker(&harness);
    harness.pass(ms(1000), &[]);
    assert!(harness.failure().is_some());
}

// rule M7
#[test]
fn a_job_that_waits_for_a_worker_may_lose_a_switch() {
    let mut harness = ControllerHarness::running(1, 1, 0, 1);
    leave(&mut harness, Worker(0));
    harness.pass(ms(20_000), &[Switch(0)]);
    assert_eq!((harness.lost(), harness.failure()), (vec![Switch(0)], None));
}

// rules M2, M7
#[test]
fn a_job_without_numbers_for_another_worker_ends_at_once() {
    let mut harness = ControllerHarness::running(1, 0, 0, 1);
    harness.controller.cluster.view.next_worker = harness.controller.cluster.worker_numbers();
    leave(&mut harness, Worker(0));
    let reason = harness.failure().unwrap();
    assert!(reason.contains("numbers of workers"), "{reason}");
}

// rule M7
#[test]
fn a_job_waits_for_a_worker_that_is_started_again() {
    let mut harness = ControllerHarness::new(1, 0, 1);
    // Its server keeps what it has; of a worker nothing is kept.
    harness.controller.cluster.durability.log = true;
    harness.join_with(Server(0), |join| join.is_restartable = true);
    harness.join_with(Worker(0), |join| join.is_restartable = true);
    harness.settle();
    harness.pass(ms(29_000), &[Worker(0)]);
    assert_eq!(harness.lost(), [Worker(0)]);
    harness.pass(ms(1000), &[]);
    assert_eq!(harness.failure(), None);
    // It is not started again, and the job fails when it is lost.
    let mut with_another = with_another_worker(&harness);
    with_another.pass(ms(29_000), &[Worker(1)]);
    assert!(with_another.failure().is_some_and(|reason| reason.ends_with("there is no other worker")));
    harness.pass(ms(30_000), &[]);
    assert!(harness.failure().is_some());
}

// rule V13
#[test]
fn all_learn_where_a_server_is_now() {
    let elsewhere = SocketAddr::from(([10, 0, 7, 7], 4700));
    let mut harness = ControllerHarness::running(2, 1, 0, 1);
    let before = harness.view();
    harness.break_stream(Server(1));
    harness.rejoin_with(Server(1), |rejoin| rejoin.join.stream = Some(elsewhere));
    assert_eq!(harness.view().servers, [before.servers[0], elsewhere]);
    assert!(harness.view().number > before.number);
    harness.settle();
    // One that is where it was changes nothing.
    let number = harness.view().number;
    harness.break_stream(Server(1));
    harness.rejoin_with(Server(1), |rejoin| rejoin.join.stream = Some(elsewhere));
    assert_eq!(harness.view().number, number);
}

#[test]
fn a_new_controller_learns_where_servers_are() {
    let elsewhere = SocketAddr::from(([10, 0, 7, 7], 4700));
    let mut old = ControllerHarness::running(1, 0, 0, 1);
    let cluster = old.cluster();
    old.settle();
    let mut harness = ControllerHarness::new(1, 0, 1);
    harness.rejoin_with(Server(0), |rejoin| {
        rejoin.join.stream = Some(elsewhere);
        rejoin.cluster = Some(Box::new(cluster));
    });
    harness.rejoin(Worker(0));
    assert_eq!(harness.view().servers, [elsewhere]);
}
