//! Clocks: the least clock of all workers, as each receives it.

use super::harness::{ControllerHarness, ms};
use crate::cluster::Peer;
use crate::message::Message;
use crate::statistics::{Statistics, WorkerStatistics};

use Peer::{Server, Worker};

fn send_clock(harness: &mut ControllerHarness, worker: u16, barrier: u64, clock: u64) {
    harness.from(Worker(worker), Message::Clock { barrier, clock });
}

/// The clocks that a worker was sent since the last look: the barrier, and the least.
fn clocks_sent(harness: &mut ControllerHarness, worker: u16) -> Vec<(u64, u64)> {
    let clocks = |message| match message {
        Message::Clocks { barrier, least, .. } => Some((barrier, least)),
        _ => None,
    };
    harness.received(Worker(worker)).into_iter().filter_map(clocks).collect()
}

fn at_barrier(harness: &mut ControllerHarness, worker: u16, number: u64) {
    harness.from(Worker(worker), Message::Barrier { number });
}

/// Tests rule M16.
#[test]
fn workers_are_told_the_least_of_all_clocks_when_it_grows() {
    let mut harness = ControllerHarness::running(1, 0, 0, 2);
    send_clock(&mut harness, 0, 0, 5);
    assert_eq!(clocks_sent(&mut harness, 0), []);
    send_clock(&mut harness, 1, 0, 2);
    assert_eq!([0, 1].map(|worker| clocks_sent(&mut harness, worker)), [[(0, 2)], [(0, 2)]]);
    send_clock(&mut harness, 0, 0, 6);
    // One that goes back was sent before.
    send_clock(&mut harness, 1, 0, 1);
    assert_eq!(clocks_sent(&mut harness, 0), []);
    send_clock(&mut harness, 1, 0, 9);
    assert_eq!(clocks_sent(&mut harness, 1), [(0, 6)]);
    // Behind a barrier clocks restart, and what is late counts no more.
    [0, 1].into_iter().for_each(|worker| at_barrier(&mut harness, worker, 0));
    harness.settle();
    send_clock(&mut harness, 0, 0, 50);
    send_clock(&mut harness, 1, 1, 3);
    assert_eq!(clocks_sent(&mut harness, 0), []);
    send_clock(&mut harness, 0, 1, 1);
    assert_eq!(clocks_sent(&mut harness, 1), [(1, 1)]);
}

/// Tests rule M16.
#[test]
fn workers_at_the_barrier_done_or_gone_do_not_block_clocks() {
    let mut harness = ControllerHarness::running(1, 0, 0, 5);
    send_clock(&mut harness, 0, 0, 7);
    let statistics = Statistics::Worker(WorkerStatistics::default());
    harness.from(Worker(4), Message::Report { text: String::new(), statistics });
    harness.from(Worker(3), Message::Leave { returns: false });
    harness.settle();
    at_barrier(&mut harness, 2, 0);
    assert_eq!(clocks_sent(&mut harness, 0), []);
    harness.break_stream(Worker(1));
    harness.pass(ms(1999), &[]);
    assert_eq!(clocks_sent(&mut harness, 0), []);
    harness.pass(ms(1), &[]);
    harness.viewed(Server(0));
    assert_eq!(clocks_sent(&mut harness, 0), [(0, 7)]);
}

/// Tests rule M16.
#[test]
fn a_late_worker_is_waited_for_from_its_first_barrier_on() {
    let mut harness = ControllerHarness::running(1, 0, 0, 2);
    harness.from(Worker(1), Message::Leave { returns: false });
    harness.settle();
    harness.join(Worker(2));
    harness.viewed(Server(0));
    send_clock(&mut harness, 0, 0, 4);
    assert_eq!(clocks_sent(&mut harness, 0), [(0, 4)], "it begins at barrier 0");
    [0, 2].into_iter().for_each(|worker| at_barrier(&mut harness, worker, 0));
    send_clock(&mut harness, 0, 1, 4);
    assert_eq!(clocks_sent(&mut harness, 0), []);
    send_clock(&mut harness, 2, 1, 3);
    assert_eq!(clocks_sent(&mut harness, 0), [(1, 3)]);
}

/// Tests rules M8, M16.
#[test]
fn a_worker_that_comes_back_is_sent_the_clocks_again() {
    let mut harness = ControllerHarness::running(1, 0, 0, 2);
    harness.rejoin(Worker(0));
    assert_eq!(clocks_sent(&mut harness, 0), []);
    [0, 1].into_iter().for_each(|worker| send_clock(&mut harness, worker, 0, 2));
    harness.break_stream(Worker(0));
    harness.rejoin(Worker(0));
    let received = harness.received(Worker(0));
    let view = harness.view().number;
    assert_eq!(received.last(), Some(&Message::Clocks { barrier: 0, least: 2, view }), "{received:?}");
}

/// Tests rules M9, M16.
#[test]
fn a_new_controller_waits_until_it_has_all_clocks() {
    let cluster = {
        let mut cluster = ControllerHarness::running(1, 0, 0, 2).cluster();
        cluster.view.number = 4;
        cluster
    };
    let mut harness = ControllerHarness::new(1, 0, 2);
    harness.rejoin_with(Server(0), |rejoin| (rejoin.view, rejoin.cluster) = (4, Some(Box::new(cluster))));
    harness.rejoin_with(Worker(0), |rejoin| (rejoin.view, rejoin.barriers) = (4, 2));
    send_clock(&mut harness, 0, 2, 8);
    assert_eq!(clocks_sent(&mut harness, 0), []);
    // Worker 1 was released from a barrier that worker 0 still waits at.
    harness.rejoin_with(Worker(1), |rejoin| (rejoin.view, rejoin.barriers) = (4, 3));
    send_clock(&mut harness, 1, 3, 6);
    harness.viewed(Server(0));
    assert_eq!(clocks_sent(&mut harness, 1), []);
    at_barrier(&mut harness, 0, 2);
    send_clock(&mut harness, 0, 3, 1);
    assert_eq!(clocks_sent(&mut harness, 1), [(3, 1)]);
}

#[test]
fn invalid_clocks_end_the_job_or_block_no_other() {
    let mut harness = ControllerHarness::running(1, 0, 0, 2);
    send_clock(&mut harness, 0, 0, u64::MAX);
    send_clock(&mut harness, 1, 0, 3);
    assert_eq!(clocks_sent(&mut harness, 1), [(0, 3)]);
    send_clock(&mut harness, 1, 0, u64::MAX);
    assert_eq!(clocks_sent(&mut harness, 1), []);
    send_clock(&mut harness, 1, 1, 0);
    assert!(harness.failure().is_some(), "it cannot have passed barrier 0");
}
