//! Cases in which something was lost, existed twice, or stood still for ever.

use super::harness::{ControllerHarness, ms};
use crate::cluster::{Cluster, Peer};
use crate::controller::{ControllerCommand, ControllerEvent};
use crate::message::Message;
use crate::statistics::{Statistics, WorkerStatistics};

use Peer::{Server, Switch, Worker};

fn left_behind() -> Cluster {
    let harness = ControllerHarness::running(1, 1, 1, 2);
    let mut cluster = harness.cluster();
    cluster.view.number = 4;
    cluster
}

fn recovering(cluster: &Cluster) -> ControllerHarness {
    let mut harness = ControllerHarness::new(1, 1, 2);
    harness.rejoin_with(Server(0), |rejoin| {
        (rejoin.view, rejoin.cluster) = (4, Some(Box::new(cluster.clone())));
    });
    harness
}

#[test]
fn a_cluster_fails_if_no_worker_comes_back_or_joins() {
    let mut harness = recovering(&left_behind());
    for peer in [Switch(0), Switch(1)] {
        harness.rejoin_with(peer, |rejoin| rejoin.view = 4);
    }
    harness.pass(ms(2000), &[]);
    assert!(harness.received(Server(0)).iter().all(|message| *message != Message::Finish));
    // One that had joined and was not sent its place before the controller died calls all the time.
    let mut in_time = harness.clone();
    in_time.join(Worker(2));
    in_time.pass(ms(30_100), &[]);
    assert_eq!(in_time.failure(), None);
    harness.pass(ms(29_900), &[]);
    assert_eq!(harness.failure(), None, "others may come in their place");
    harness.pass(ms(200), &[]);
    assert!(harness.failure().is_some());
}

#[test]
fn a_barrier_of_the_highest_number_is_no_panic() {
    let mut harness = recovering(&left_behind());
    for peer in [Switch(0), Switch(1), Worker(0), Worker(1)] {
        harness.rejoin_with(peer, |rejoin| rejoin.barriers = u64::MAX);
    }
    for worker in [0, 1] {
        harness.from(Worker(worker), Message::Barrier { number: u64::MAX });
    }
}

#[test]
fn a_worker_replaced_before_a_failover_does_not_come_back() {
    let mut cluster = left_behind();
    // Worker 0 was taken for dead; worker 2 has its share.
    let address = cluster.view.workers.remove(&0).unwrap();
    cluster.view.workers.insert(2, address);
    cluster.view.next_worker = 3;
    let mut harness = recovering(&cluster);
    for peer in [Switch(0), Switch(1), Worker(1)] {
        harness.rejoin_with(peer, |rejoin| rejoin.view = 4);
    }
    harness.rejoin_with(Worker(0), |rejoin| rejoin.view = 2);
    harness.rejoin_with(Worker(2), |rejoin| (rejoin.view, rejoin.share) = (4, 0));
    assert_eq!(harness.view().workers.keys().copied().collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn a_switch_that_retired_before_a_failover_keeps_no_regions() {
    let mut harness = recovering(&left_behind());
    for peer in [Switch(0), Switch(1), Worker(0), Worker(1)] {
        harness.rejoin_with(peer, |rejoin| rejoin.view = 4);
    }
    // Requested by the controller before; it reports so on every stream.
    harness.from(Switch(0), Message::Retired);
    harness.settle();
    assert_eq!(
        harness.owners(),
        [Some(1)],
        "switch 0 refuses every push until it gets it again in another view"
    );
}

#[test]
fn reports_of_a_lost_worker_stay() {
    let mut harness = ControllerHarness::running(1, 0, 0, 2);
    let statistics = Statistics::Worker(WorkerStatistics::default());
    harness.from(Worker(0), Message::Report { text: "zero".into(), statistics });
    harness.break_stream(Worker(0));
    harness.pass(ms(2000), &[]);
    harness.settle();
    harness.from(Worker(1), Message::Report { text: "one".into(), statistics });
    harness.from(Server(0), Message::Heartbeat { statistics, probe: 0 });
    let Some(ControllerEvent::Finished(outcome)) = harness.events().pop() else { panic!() };
    assert_eq!(outcome.reports, ["zero", "one"]);
}

#[test]
fn a_switch_that_has_retired_is_better_than_none() {
    let mut harness = ControllerHarness::running(1, 1, 1, 1);
    harness.command(ControllerCommand::Migrate { switch: 0 });
    harness.from(Switch(0), Message::Retired);
    harness.settle();
    harness.break_stream(Switch(1));
    harness.pass(ms(200), &[]);
    assert_eq!(harness.owners(), [Some(0)]);
}

#[test]
fn a_switch_whose_standby_dies_while_it_retires_goes_on() {
    let mut harness = ControllerHarness::running(1, 1, 1, 1);
    harness.command(ControllerCommand::Migrate { switch: 0 });
    harness.break_stream(Switch(1));
    harness.pass(ms(200), &[]);
    harness.from(Switch(0), Message::Retired);
    assert_eq!(harness.owners(), [Some(0)]);
}

#[test]
fn a_worker_that_missed_its_permission_to_leave_has_left() {
    let mut harness = ControllerHarness::running(1, 0, 0, 2);
    harness.from(Worker(1), Message::Leave { returns: false });
    // The stream broke before Finish came.
    harness.links_of.insert(Worker(1), crate::role::Link(crate::role::Link::ACCEPTED + 1));
    let link = harness.rejoin(Worker(1));
    assert_eq!(harness.received_on(link), [Message::Finish]);
}

#[test]
fn a_view_of_the_highest_number_is_no_panic() {
    let mut harness = recovering(&left_behind());
    for peer in [Switch(0), Switch(1), Worker(0)] {
        harness.rejoin_with(peer, |rejoin| rejoin.view = 4);
    }
    harness.from(Worker(0), Message::Viewed { number: u64::MAX });
    harness.rejoin_with(Worker(1), |rejoin| rejoin.view = 4);
}
