//! Barriers, and how workers and jobs end.

use super::desk::{Desk, ms};
use crate::cluster::Peer;
use crate::controller::{ControllerCommand, ControllerEvent};
use crate::message::Message;
use crate::statistics::{Statistics, WorkerStatistics};

use Peer::{Server, Switch, Worker};

fn at_barrier(desk: &mut Desk, worker: u16, number: u64) {
    desk.from(Worker(worker), Message::Barrier { number });
}

fn report(desk: &mut Desk, worker: u16) {
    let statistics = Statistics::Worker(WorkerStatistics::default());
    desk.from(Worker(worker), Message::Report { text: format!("worker {worker}"), statistics });
}

#[test]
fn a_barrier_opens_when_all_have_come() {
    let mut desk = Desk::running(1, 0, 0, 3);
    for number in 0..3 {
        at_barrier(&mut desk, 2, number);
        at_barrier(&mut desk, 0, number);
        at_barrier(&mut desk, 0, number);
        assert_eq!(desk.who_heard(), []);
        at_barrier(&mut desk, 1, number);
        for worker in 0..3 {
            assert_eq!(desk.heard(Worker(worker)), [Message::Release { number }]);
        }
    }
    // One that did not receive it asks again.
    at_barrier(&mut desk, 1, 2);
    assert_eq!(desk.heard(Worker(1)), [Message::Release { number: 2 }]);
    at_barrier(&mut desk, 1, 4);
    assert!(desk.failure().is_some(), "it cannot have passed barrier 3");
}

#[test]
fn barriers_do_not_wait_for_workers_that_died_left_or_reported() {
    let mut desk = Desk::running(1, 0, 0, 4);
    report(&mut desk, 3);
    at_barrier(&mut desk, 0, 0);
    at_barrier(&mut desk, 1, 0);
    desk.break_stream(Worker(2));
    desk.pass(ms(1999), &[]);
    assert_eq!(desk.who_heard(), []);
    desk.pass(ms(1), &[]);
    desk.viewed(Server(0));
    assert!(desk.heard(Worker(0)).contains(&Message::Release { number: 0 }));
    desk.settle();
    at_barrier(&mut desk, 0, 1);
    desk.from(Worker(1), Message::Leave);
    assert_eq!(desk.heard(Worker(1)), [Message::Finish]);
    desk.viewed(Server(0));
    assert!(desk.heard(Worker(0)).contains(&Message::Release { number: 1 }));
    desk.settle();
    assert_eq!(desk.failure(), None);
    report(&mut desk, 0);
    let statistics = Statistics::Worker(WorkerStatistics::default());
    desk.from(Server(0), Message::Heartbeat { statistics, probe: 0 });
    let Some(ControllerEvent::Finished(outcome)) = desk.events().pop() else { panic!() };
    assert_eq!(outcome.reports, ["worker 0", "worker 3"]);
}

/// Tests rule M2.
#[test]
fn a_late_worker_begins_at_the_next_barrier_which_waits_for_it() {
    let mut desk = Desk::running(1, 0, 0, 2);
    at_barrier(&mut desk, 0, 0);
    at_barrier(&mut desk, 1, 0);
    desk.from(Worker(1), Message::Leave);
    desk.settle();
    at_barrier(&mut desk, 0, 1);
    desk.settle();
    // Barrier 1 has opened for the one that was left.
    desk.join(Worker(2));
    at_barrier(&mut desk, 0, 2);
    desk.viewed(Server(0));
    let heard = desk.heard(Worker(2));
    assert!(matches!(heard.as_slice(), [Message::Start(start)] if start.barrier == 2), "{heard:?}");
    assert!(!desk.heard(Worker(0)).contains(&Message::Release { number: 2 }));
    at_barrier(&mut desk, 2, 2);
    assert_eq!(desk.heard(Worker(0)), [Message::Release { number: 2 }]);
    assert_eq!(desk.heard(Worker(2)), [Message::Release { number: 2 }]);
}

#[test]
fn the_last_worker_may_neither_die_nor_leave() {
    let mut desk = Desk::running(1, 1, 0, 2);
    desk.break_stream(Worker(0));
    desk.pass(ms(2000), &[]);
    assert_eq!(desk.failure(), None);
    desk.break_stream(Worker(1));
    desk.pass(ms(2000), &[]);
    assert!(desk.failure().is_some());
    assert!(matches!(desk.heard(Server(0)).last(), Some(Message::Abort { .. })));

    let mut desk = Desk::running(1, 1, 0, 1);
    desk.from(Worker(0), Message::Leave);
    assert!(desk.failure().is_some());
}

/// Tests rule M11.
#[test]
fn a_worker_that_leaves_makes_room_and_keeps_its_number() {
    let mut desk = Desk::running(1, 1, 0, 2);
    let link = desk.links_of[&Worker(0)];
    desk.from(Worker(0), Message::Leave);
    assert_eq!(desk.heard_on(link), [Message::Finish]);
    assert_eq!(desk.view().workers.keys().copied().collect::<Vec<_>>(), [1]);
    assert_eq!(desk.lost(), [], "nothing is amiss");
    desk.settle();
    // What it still sends, and that its stream breaks, changes nothing.
    desk.tell(link, Message::Barrier { number: 0 });
    desk.links_of.insert(Worker(0), link);
    desk.break_stream(Worker(0));
    desk.pass(ms(3000), &[]);
    desk.join(Worker(2));
    assert_eq!(desk.view().workers.keys().copied().collect::<Vec<_>>(), [1, 2]);
}

/// Tests rule M2.
#[test]
fn a_worker_gets_no_number_when_all_are_given() {
    let mut desk = Desk::running(1, 1, 0, 2);
    for number in 2..32 {
        desk.from(Worker(if number == 2 { 0 } else { number - 1 }), Message::Leave);
        desk.settle();
        desk.join(Worker(number));
        desk.settle();
    }
    assert_eq!(desk.view().workers.keys().copied().collect::<Vec<_>>(), [1, 31]);
    desk.from(Worker(31), Message::Leave);
    desk.settle();
    let link = desk.join(Worker(32));
    let heard = desk.heard_on(link);
    let [Message::Abort { reason }] = heard.as_slice() else { panic!("{heard:?}") };
    assert!(reason.contains("all its 32 numbers of workers"), "{reason}");
    assert_eq!(desk.failure(), None, "the others go on");
}

#[test]
fn a_job_ends_with_all_reports_and_the_counters_of_the_others() {
    let mut desk = Desk::running(2, 1, 0, 2);
    report(&mut desk, 1);
    assert_eq!(desk.who_heard(), []);
    report(&mut desk, 0);
    assert_eq!(desk.who_heard().len(), 5);
    let statistics = Statistics::Worker(WorkerStatistics::default());
    desk.from(Server(0), Message::Heartbeat { statistics, probe: 0 });
    desk.break_stream(Server(1));
    desk.from(Worker(0), Message::Abort { reason: "it goes and the others are gone".into() });
    assert_eq!(desk.events(), []);
    // The switch sends nothing more, and no member is blamed for that.
    desk.pass(ms(800), &[Switch(0)]);
    let Some(ControllerEvent::Finished(outcome)) = desk.events().pop() else { panic!() };
    assert_eq!(outcome.reports, ["worker 0", "worker 1"]);
    // One that did not receive it does now.
    let link = desk.rejoin(Worker(0));
    assert_eq!(desk.heard_on(link), [Message::Finish]);
}

#[test]
fn a_member_that_aborts_ends_the_job_for_all() {
    for peer in [Server(0), Worker(1)] {
        let mut desk = Desk::running(1, 1, 0, 2);
        desk.from(peer, Message::Abort { reason: "out of memory".into() });
        assert_eq!(desk.failure().as_deref(), Some("out of memory"));
        assert_eq!(desk.who_heard().len(), 4);
    }
    let mut desk = Desk::new(1, 1, 1);
    desk.join(Switch(0));
    desk.from(Switch(0), Message::Abort { reason: "no memory".into() });
    assert!(desk.failure().is_some(), "it has not even begun");
    let mut desk = Desk::new(1, 1, 1);
    desk.join(Server(0));
    desk.command(ControllerCommand::Abort { reason: "the user".into() });
    assert_eq!(desk.failure().as_deref(), Some("the user"));
    assert_eq!(desk.who_heard(), [Server(0)]);
}

#[test]
fn a_worker_cannot_leave_before_the_start_or_after_the_end() {
    let mut desk = Desk::new(2, 1, 2);
    for peer in [Server(0), Worker(0), Worker(1)] {
        desk.join(peer);
    }
    desk.from(Worker(0), Message::Leave);
    assert_eq!(desk.heard(Server(0)), [], "server 1 and the switch are missing");
    let mut desk = Desk::running(1, 0, 0, 3);
    desk.command(ControllerCommand::Abort { reason: String::new() });
    desk.who_heard();
    desk.from(Worker(0), Message::Leave);
    assert_eq!(desk.who_heard(), []);
}

#[test]
fn a_switch_that_gives_up_is_lost_and_no_more() {
    let mut desk = Desk::running(1, 1, 0, 1);
    desk.from(Switch(0), Message::Abort { reason: "no route to server 0".into() });
    assert_eq!((desk.lost(), desk.holders()), (vec![Switch(0)], vec![None]));
    desk.settle();
    desk.rejoin(Switch(0));
    assert_eq!(desk.holders(), [Some(1)], "it starts again under another number");
}
