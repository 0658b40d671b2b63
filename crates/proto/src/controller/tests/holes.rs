//! Cases in which something was lost, existed twice, or stood still for ever.

use super::desk::{Desk, ms};
use crate::cluster::{Cluster, Peer};
use crate::controller::{ControllerCommand, ControllerEvent};
use crate::message::Message;
use crate::statistics::{Statistics, WorkerStatistics};

use Peer::{Server, Switch, Worker};

fn left_behind() -> Cluster {
    let desk = Desk::running(1, 1, 1, 2);
    let mut cluster = desk.cluster();
    cluster.view.number = 4;
    cluster
}

fn recovering(cluster: &Cluster) -> Desk {
    let mut desk = Desk::new(1, 1, 2);
    desk.rejoin_with(Server(0), |rejoin| {
        (rejoin.view, rejoin.cluster) = (4, Some(Box::new(cluster.clone())));
    });
    desk
}

#[test]
fn a_cluster_fails_if_no_worker_comes_back_or_joins() {
    let mut desk = recovering(&left_behind());
    for peer in [Switch(0), Switch(1)] {
        desk.rejoin_with(peer, |rejoin| rejoin.view = 4);
    }
    desk.pass(ms(2000), &[]);
    assert!(desk.heard(Server(0)).iter().all(|message| *message != Message::Finish));
    // One that had joined and was not sent its place before the controller died calls all the time.
    let mut in_time = desk.clone();
    in_time.join(Worker(2));
    in_time.pass(ms(2100), &[]);
    assert_eq!(in_time.failure(), None);
    desk.pass(ms(2100), &[]);
    assert!(desk.failure().is_some());
}

#[test]
fn a_barrier_of_the_highest_number_is_no_panic() {
    let mut desk = recovering(&left_behind());
    for peer in [Switch(0), Switch(1), Worker(0), Worker(1)] {
        desk.rejoin_with(peer, |rejoin| rejoin.barriers = u64::MAX);
    }
    for worker in [0, 1] {
        desk.from(Worker(worker), Message::Barrier { number: u64::MAX });
    }
}

#[test]
fn a_worker_replaced_before_a_failover_does_not_come_back() {
    let mut cluster = left_behind();
    // Worker 0 was taken for dead; worker 2 has its share.
    let address = cluster.view.workers.remove(&0).unwrap();
    cluster.view.workers.insert(2, address);
    cluster.view.next_worker = 3;
    let mut desk = recovering(&cluster);
    for peer in [Switch(0), Switch(1), Worker(1)] {
        desk.rejoin_with(peer, |rejoin| rejoin.view = 4);
    }
    desk.rejoin_with(Worker(0), |rejoin| rejoin.view = 2);
    desk.rejoin_with(Worker(2), |rejoin| (rejoin.view, rejoin.share) = (4, 0));
    assert_eq!(desk.view().workers.keys().copied().collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn a_switch_that_retired_before_a_failover_keeps_no_regions() {
    let mut desk = recovering(&left_behind());
    for peer in [Switch(0), Switch(1), Worker(0), Worker(1)] {
        desk.rejoin_with(peer, |rejoin| rejoin.view = 4);
    }
    // Requested by the controller before; it reports so on every stream.
    desk.from(Switch(0), Message::Retired);
    desk.settle();
    assert_eq!(desk.holders(), [Some(1)], "switch 0 refuses every push until it gets another tenure");
}

#[test]
fn reports_of_a_lost_worker_stay() {
    let mut desk = Desk::running(1, 0, 0, 2);
    let statistics = Statistics::Worker(WorkerStatistics::default());
    desk.from(Worker(0), Message::Report { text: "zero".into(), statistics });
    desk.break_stream(Worker(0));
    desk.pass(ms(2000), &[]);
    desk.settle();
    desk.from(Worker(1), Message::Report { text: "one".into(), statistics });
    desk.from(Server(0), Message::Heartbeat { statistics, probe: 0 });
    let Some(ControllerEvent::Finished(outcome)) = desk.events().pop() else { panic!() };
    assert_eq!(outcome.reports, ["zero", "one"]);
}

#[test]
fn a_switch_that_has_retired_is_better_than_none() {
    let mut desk = Desk::running(1, 1, 1, 1);
    desk.command(ControllerCommand::Migrate { switch: 0 });
    desk.from(Switch(0), Message::Retired);
    desk.settle();
    desk.break_stream(Switch(1));
    desk.pass(ms(200), &[]);
    assert_eq!(desk.holders(), [Some(0)]);
}

#[test]
fn a_switch_whose_standby_dies_while_it_retires_goes_on() {
    let mut desk = Desk::running(1, 1, 1, 1);
    desk.command(ControllerCommand::Migrate { switch: 0 });
    desk.break_stream(Switch(1));
    desk.pass(ms(200), &[]);
    desk.from(Switch(0), Message::Retired);
    assert_eq!(desk.holders(), [Some(0)]);
}

#[test]
fn a_worker_that_missed_its_permission_to_leave_has_left() {
    let mut desk = Desk::running(1, 0, 0, 2);
    desk.from(Worker(1), Message::Leave);
    // The stream broke before Finish came.
    desk.links_of.insert(Worker(1), crate::role::Link(crate::role::Link::ACCEPTED + 1));
    let link = desk.rejoin(Worker(1));
    assert_eq!(desk.heard_on(link), [Message::Finish]);
}

#[test]
fn a_view_of_the_highest_number_is_no_panic() {
    let mut desk = recovering(&left_behind());
    for peer in [Switch(0), Switch(1), Worker(0)] {
        desk.rejoin_with(peer, |rejoin| rejoin.view = 4);
    }
    desk.from(Worker(0), Message::Viewed { number: u64::MAX });
    desk.rejoin_with(Worker(1), |rejoin| rejoin.view = 4);
}
