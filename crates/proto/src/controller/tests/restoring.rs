//! Servers that read their disks for longer than a member may be away.

use super::harness::{ControllerHarness, address, ms};
use crate::cluster::Peer;
use crate::controller::ControllerEvent;
use crate::message::{Message, Restoring};
use crate::role::Link;
use crate::testing;

use Peer::{Server, Worker};

/// A cluster of servers that come back; they share an address if they are shards of one process.
fn with_servers(servers: u16, is_one_process: bool) -> ControllerHarness {
    let mut harness = ControllerHarness::running(servers, 1, 0, 2);
    for number in 0..servers {
        harness.controller.members.get_mut(&Server(number)).unwrap().is_restartable = true;
        if is_one_process {
            harness.controller.cluster.view.servers[usize::from(number)] = address(Link(Link::ACCEPTED + 99));
        }
    }
    harness
}

fn progress(server: u16, read: u64) -> Restoring {
    Restoring { instance: testing::JOB.into(), server, read, total: 5_000_000_000 }
}

fn tell(harness: &mut ControllerHarness, link: Link, server: u16, read: u64) {
    harness.deliver(link, Message::Restoring(progress(server, read)));
}

// rule L8
#[test]
fn a_server_is_waited_for_while_it_reads_its_disk() {
    let mut harness = with_servers(1, false);
    harness.break_stream(Server(0));
    harness.pass(ms(25_000), &[]);
    harness.events();
    harness.received(Worker(1));
    let link = harness.call();
    for step in 1..=10 {
        tell(&mut harness, link, 0, step * 1_000_000);
        harness.pass(ms(25_000), &[]);
        // Workers call it for as long.
        assert_eq!(harness.received(Worker(1)), [Message::Restoring(progress(0, step * 1_000_000))]);
        assert_eq!(harness.events(), [ControllerEvent::Restoring(progress(0, step * 1_000_000))]);
    }
    assert!(harness.admitted.contains(&link) && !harness.closed.contains(&link));
    harness.rejoin(Server(0));
    let [ControllerEvent::Returned { peer: Server(0), took }] = harness.events()[..] else {
        panic!("not back")
    };
    assert_eq!(took, ms(275_000));
    // The next time it has as long again, and no longer.
    harness.break_stream(Server(0));
    harness.pass(ms(30_000), &[]);
    let reason = harness.failure().expect("it is given up");
    assert!(reason.ends_with("it did not come back in 30 s"), "{reason}");
}

// rule L8
#[test]
fn a_server_that_reads_no_more_ends_the_job() {
    let mut harness = with_servers(1, false);
    harness.break_stream(Server(0));
    harness.pass(ms(20_000), &[]);
    let link = harness.call();
    tell(&mut harness, link, 0, 1_200_000_000);
    harness.pass(ms(29_000), &[]);
    // Not more than before, on this stream and on another.
    tell(&mut harness, link, 0, 1_200_000_000);
    let other = harness.call();
    tell(&mut harness, other, 0, 1_200_000_000);
    assert_eq!(harness.failure(), None);
    harness.pass(ms(1000), &[]);
    let reason = harness.failure().expect("it is given up");
    assert!(reason.contains("it has read 1200 of 5000 MB of its disk, and nothing more in 30 s"), "{reason}");
}

#[test]
fn a_user_is_told_the_progress_every_10_s() {
    let mut harness = with_servers(1, false);
    harness.break_stream(Server(0));
    harness.events();
    let link = harness.call();
    let mut told = Vec::new();
    for step in 0..25 {
        tell(&mut harness, link, 0, step);
        harness.pass(ms(1000), &[]);
        told.extend(harness.events());
    }
    assert_eq!(told, [0, 10, 20].map(|read| ControllerEvent::Restoring(progress(0, read))));
}

#[test]
fn all_shards_of_a_process_are_waited_for() {
    let mut harness = with_servers(3, true);
    for number in 0..3 {
        harness.break_stream(Server(number));
    }
    let link = harness.call();
    for (server, read) in [(0, 1), (1, 0), (2, 0), (2, 1)] {
        harness.pass(ms(29_000), &[]);
        tell(&mut harness, link, server, read);
    }
    harness.pass(ms(29_000), &[]);
    for number in 0..3 {
        harness.rejoin(Server(number));
    }
    harness.pass(ms(60_000), &[]);
    assert_eq!(harness.failure(), None);
}

#[test]
fn progress_of_another_process_does_not_count() {
    let mut harness = with_servers(2, false);
    harness.break_stream(Server(0));
    harness.pass(ms(29_000), &[]);
    let link = harness.call();
    // One is there; another is of no cluster; a third of another job.
    tell(&mut harness, link, 1, 1);
    tell(&mut harness, link, 7, 1);
    let other = harness.call();
    let foreign = Restoring { instance: 1, ..progress(0, 1) };
    harness.deliver(other, Message::Restoring(foreign));
    for link in [link, other] {
        assert!(matches!(harness.received_on(link)[..], [Message::Abort { .. }]));
    }
    assert_eq!(harness.received(Worker(0)), []);
    harness.pass(ms(1000), &[]);
    assert!(harness.failure().is_some());
}

// rule L8
#[test]
fn a_new_controller_waits_for_a_server_that_reads() {
    let cluster = with_servers(2, false).cluster();
    let mut harness = ControllerHarness::new(2, 1, 2);
    // Alone it shows no cluster that could be taken over.
    let early = harness.call();
    tell(&mut harness, early, 1, 1);
    assert!(harness.closed.contains(&early));
    let return_of = |harness: &mut ControllerHarness, number| {
        harness.rejoin_with(Server(number), |rejoin| {
            rejoin.view = cluster.view.number;
            rejoin.cluster = Some(Box::new(cluster.clone()));
        });
    };
    return_of(&mut harness, 0);
    for worker in [Worker(0), Worker(1)] {
        harness.rejoin_with(worker, |rejoin| rejoin.view = 1);
    }
    let link = harness.call();
    for step in 1..=3 {
        harness.pass(ms(29_000), &[]);
        tell(&mut harness, link, 1, step);
    }
    harness.pass(ms(29_000), &[]);
    assert_eq!(harness.failure(), None);
    return_of(&mut harness, 1);
    assert!(harness.events().contains(&ControllerEvent::Recovered));
}
