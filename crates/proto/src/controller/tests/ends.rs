//! Barriers, and how workers and jobs end.

use super::harness::{ControllerHarness, ms};
use crate::cluster::Peer;
use crate::controller::{ControllerCommand, ControllerEvent};
use crate::message::Message;
use crate::statistics::{Statistics, WorkerStatistics};

use Peer::{Server, Switch, Worker};

fn at_barrier(harness: &mut ControllerHarness, worker: u16, number: u64) {
    harness.from(Worker(worker), Message::Barrier { number });
}

fn report(harness: &mut ControllerHarness, worker: u16) {
    let statistics = Statistics::Worker(WorkerStatistics::default());
    harness.from(Worker(worker), Message::Report { text: format!("worker {worker}"), statistics });
}

#[test]
fn a_barrier_opens_when_all_have_come() {
    let mut harness = ControllerHarness::running(1, 0, 0, 3);
    for number in 0..3 {
        at_barrier(&mut harness, 2, number);
        at_barrier(&mut harness, 0, number);
        at_barrier(&mut harness, 0, number);
        assert_eq!(harness.recipients(), []);
        at_barrier(&mut harness, 1, number);
        for worker in 0..3 {
            assert_eq!(harness.received(Worker(worker)), [Message::Release { number }]);
        }
    }
    // One that did not receive it asks again.
    at_barrier(&mut harness, 1, 2);
    assert_eq!(harness.received(Worker(1)), [Message::Release { number: 2 }]);
    at_barrier(&mut harness, 1, 4);
    assert!(harness.failure().is_some(), "it cannot have passed barrier 3");
}

#[test]
fn barriers_do_not_wait_for_workers_that_died_left_or_reported() {
    let mut harness = ControllerHarness::running(1, 0, 0, 4);
    report(&mut harness, 3);
    at_barrier(&mut harness, 0, 0);
    at_barrier(&mut harness, 1, 0);
    harness.break_stream(Worker(2));
    harness.pass(ms(1999), &[]);
    assert_eq!(harness.recipients(), []);
    harness.pass(ms(1), &[]);
    harness.viewed(Server(0));
    assert!(harness.received(Worker(0)).contains(&Message::Release { number: 0 }));
    harness.settle();
    at_barrier(&mut harness, 0, 1);
    harness.from(Worker(1), Message::Leave { returns: false });
    assert_eq!(harness.received(Worker(1)), [Message::Finish]);
    harness.viewed(Server(0));
    assert!(harness.received(Worker(0)).contains(&Message::Release { number: 1 }));
    harness.settle();
    assert_eq!(harness.failure(), None);
    report(&mut harness, 0);
    let statistics = Statistics::Worker(WorkerStatistics::default());
    harness.from(Server(0), Message::Heartbeat { statistics, probe: 0 });
    let Some(ControllerEvent::Finished(outcome)) = harness.events().pop() else { panic!() };
    assert_eq!(outcome.reports, ["worker 0", "worker 3"]);
}

/// Tests rule M2.
#[test]
fn a_late_worker_begins_at_the_next_barrier_which_waits_for_it() {
    let mut harness = ControllerHarness::running(1, 0, 0, 2);
    at_barrier(&mut harness, 0, 0);
    at_barrier(&mut harness, 1, 0);
    harness.from(Worker(1), Message::Leave { returns: false });
    harness.settle();
    at_barrier(&mut harness, 0, 1);
    harness.settle();
    // Barrier 1 has opened for the one that was left.
    harness.join(Worker(2));
    at_barrier(&mut harness, 0, 2);
    harness.viewed(Server(0));
    let received = harness.received(Worker(2));
    assert!(matches!(received.as_slice(), [Message::Start(start)] if start.barrier == 2), "{received:?}");
    assert!(!harness.received(Worker(0)).contains(&Message::Release { number: 2 }));
    at_barrier(&mut harness, 2, 2);
    assert_eq!(harness.received(Worker(0)), [Message::Release { number: 2 }]);
    assert_eq!(harness.received(Worker(2)), [Message::Release { number: 2 }]);
}

#[test]
fn the_last_worker_may_neither_die_nor_leave() {
    let mut harness = ControllerHarness::running(1, 1, 0, 2);
    harness.break_stream(Worker(0));
    harness.pass(ms(2000), &[]);
    assert_eq!(harness.failure(), None);
    harness.break_stream(Worker(1));
    harness.pass(ms(2000), &[]);
    assert!(harness.failure().is_some());
    assert!(matches!(harness.received(Server(0)).last(), Some(Message::Abort { .. })));

    let mut harness = ControllerHarness::running(1, 1, 0, 1);
    harness.from(Worker(0), Message::Leave { returns: false });
    assert!(harness.failure().is_some());
}

/// Tests rule M11.
#[test]
fn a_worker_that_leaves_makes_room_and_keeps_its_number() {
    let mut harness = ControllerHarness::running(1, 1, 0, 2);
    let link = harness.links_of[&Worker(0)];
    harness.from(Worker(0), Message::Leave { returns: false });
    assert_eq!(harness.received_on(link), [Message::Finish]);
    assert_eq!(harness.view().workers.keys().copied().collect::<Vec<_>>(), [1]);
    assert_eq!(harness.lost(), [], "nothing is amiss");
    harness.settle();
    // What it still sends, and that its stream breaks, changes nothing.
    harness.deliver(link, Message::Barrier { number: 0 });
    harness.links_of.insert(Worker(0), link);
    harness.break_stream(Worker(0));
    harness.pass(ms(3000), &[]);
    harness.join(Worker(2));
    assert_eq!(harness.view().workers.keys().copied().collect::<Vec<_>>(), [1, 2]);
}

/// Tests rule M2.
#[test]
fn a_worker_gets_no_number_when_all_are_given() {
    let mut harness = ControllerHarness::running(1, 1, 0, 2);
    for number in 2..32 {
        harness.from(Worker(if number == 2 { 0 } else { number - 1 }), Message::Leave { returns: false });
        harness.settle();
        harness.join(Worker(number));
        harness.settle();
    }
    assert_eq!(harness.view().workers.keys().copied().collect::<Vec<_>>(), [1, 31]);
    harness.from(Worker(31), Message::Leave { returns: false });
    harness.settle();
    let link = harness.join(Worker(32));
    let received = harness.received_on(link);
    let [Message::Abort { reason }] = received.as_slice() else { panic!("{received:?}") };
    assert!(reason.contains("all its 32 numbers of workers"), "{reason}");
    assert_eq!(harness.failure(), None, "the others go on");
}

#[test]
fn a_job_ends_with_all_reports_and_the_counters_of_the_others() {
    let mut harness = ControllerHarness::running(2, 1, 0, 2);
    report(&mut harness, 1);
    assert_eq!(harness.recipients(), []);
    report(&mut harness, 0);
    assert_eq!(harness.recipients().len(), 5);
    let statistics = Statistics::Worker(WorkerStatistics::default());
    harness.from(Server(0), Message::Heartbeat { statistics, probe: 0 });
    harness.break_stream(Server(1));
    harness.from(Worker(0), Message::Abort { reason: "it goes and the others are gone".into() });
    assert_eq!(harness.events(), []);
    // The switch sends nothing more, and no member is blamed for that.
    harness.pass(ms(800), &[Switch(0)]);
    let Some(ControllerEvent::Finished(outcome)) = harness.events().pop() else { panic!() };
    assert_eq!(outcome.reports, ["worker 0", "worker 1"]);
    // One that did not receive it does now.
    let link = harness.rejoin(Worker(0));
    assert_eq!(harness.received_on(link), [Message::Finish]);
}

/// Tests rule M12.
#[test]
fn a_process_that_joins_when_the_job_is_done_is_finished() {
    let mut harness = ControllerHarness::running(1, 1, 0, 1);
    report(&mut harness, 0);
    // The others have not sent their last counts, and then they have.
    for _ in 0..2 {
        for late in [Worker(1), Server(1), Switch(1)] {
            let link = harness.join(late);
            assert_eq!(harness.received_on(link), [Message::Finish], "{late}");
            assert!(harness.closed.contains(&link));
        }
        harness.pass(ms(11_000), &[]);
    }
    let done = |event: &ControllerEvent| matches!(event, ControllerEvent::Finished(_));
    assert!(harness.events().iter().any(done));

    let mut harness = ControllerHarness::running(1, 1, 0, 1);
    harness.command(ControllerCommand::Abort { reason: "the user".into() });
    let link = harness.join(Worker(1));
    assert_eq!(harness.received_on(link), [Message::Abort { reason: "the user".into() }]);
}

#[test]
fn a_member_that_aborts_ends_the_job_for_all() {
    for peer in [Server(0), Worker(1)] {
        let mut harness = ControllerHarness::running(1, 1, 0, 2);
        harness.from(peer, Message::Abort { reason: "out of memory".into() });
        assert_eq!(harness.failure().as_deref(), Some("out of memory"));
        assert_eq!(harness.recipients().len(), 4);
    }
    let mut harness = ControllerHarness::new(1, 1, 1);
    harness.join(Switch(0));
    harness.from(Switch(0), Message::Abort { reason: "no memory".into() });
    assert!(harness.failure().is_some(), "it has not even begun");
    let mut harness = ControllerHarness::new(1, 1, 1);
    harness.join(Server(0));
    harness.command(ControllerCommand::Abort { reason: "the user".into() });
    assert_eq!(harness.failure().as_deref(), Some("the user"));
    assert_eq!(harness.recipients(), [Server(0)]);
}

#[test]
fn a_worker_cannot_leave_before_the_start_or_after_the_end() {
    let mut harness = ControllerHarness::new(2, 1, 2);
    for peer in [Server(0), Worker(0), Worker(1)] {
        harness.join(peer);
    }
    harness.from(Worker(0), Message::Leave { returns: false });
    assert_eq!(harness.received(Server(0)), [], "server 1 and the switch are missing");
    let mut harness = ControllerHarness::running(1, 0, 0, 3);
    harness.command(ControllerCommand::Abort { reason: String::new() });
    harness.recipients();
    harness.from(Worker(0), Message::Leave { returns: false });
    assert_eq!(harness.recipients(), []);
}

#[test]
fn a_switch_that_gives_up_is_lost_and_no_more() {
    let mut harness = ControllerHarness::running(1, 1, 0, 1);
    harness.from(Switch(0), Message::Abort { reason: "no route to server 0".into() });
    assert_eq!((harness.lost(), harness.owners()), (vec![Switch(0)], vec![None]));
    harness.settle();
    harness.rejoin(Switch(0));
    assert_eq!(harness.owners(), [Some(1)], "it starts again under another number");
}
