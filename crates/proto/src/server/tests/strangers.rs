//! Streams with a peer that is not identified, or not the one that it claims to be.

use super::harness::{ServerHarness, address, push};
use crate::authentication::{Pass, Secret};
use crate::cluster::{Cluster, Peer};
use crate::message::{Answered, Hello, Message};
use crate::role::{Link, Role, Strangers};
use crate::server::ServerEvent;
use crate::testing::{self, JOB};

use Peer::{Controller, Server, Switch, Worker};

fn hello(from: Peer) -> Message {
    Message::Hello(Hello {
        pass: Pass::default(),
        instance: JOB.into(),
        from,
        to: 0,
        answered: Answered::default(),
    })
}

// rule S2
#[test]
fn peers_are_admitted_only_if_the_view_has_them() {
    let mut harness = ServerHarness::new();
    for from in [Worker(4), Switch(4), Worker(u16::MAX), Server(0), Controller] {
        let link = harness.call(from);
        assert_eq!(harness.closed.last(), Some(&link), "{from}");
    }
    assert_eq!((harness.admitted.len(), harness.statistics().dropped), (0, 5));
    for from in [Worker(0), Worker(3), Switch(3)] {
        let link = harness.call(from);
        assert!(harness.admitted.contains(&link));
        harness.send(link, hello(Worker(1)));
        assert_eq!(harness.closed.last(), Some(&link), "a stream is of one caller");
    }
}

// rule S2
#[test]
fn a_caller_has_one_stream_the_newest() {
    let mut harness = ServerHarness::new();
    let old = harness.call(Worker(1));
    let late = harness.open();
    let new = harness.call(Worker(1));
    assert_eq!(harness.closed, [old]);
    // What was sent on a stream that broke is read late.
    harness.send(late, hello(Worker(1)));
    assert_eq!(harness.closed, [old, late]);
    assert_eq!(harness.request(new, push(1, &[0], 1.0)).len(), 1);
    for stale in [old, late] {
        assert_eq!(harness.request(stale, push(2, &[0], 1.0)), []);
    }
    assert_eq!(harness.statistics().dropped, 2);
}

// rule S3
#[test]
fn a_server_is_ended_only_by_the_controller() {
    let mut harness = ServerHarness::new();
    let abort = || Message::Abort { reason: "no more".into() };
    let (stranger, worker, switch) = (harness.open(), harness.call(Worker(1)), harness.call(Switch(1)));
    for link in [stranger, worker, switch, Link(Link::ACCEPTED + 77)] {
        harness.send(link, abort());
        assert_eq!(harness.closed.last(), Some(&link));
    }
    assert_eq!(harness.statistics().dropped, 4);
    assert_eq!(harness.call(Worker(1)), *harness.admitted.last().unwrap(), "it serves");
}

// rules S1, S2
#[test]
fn strangers_are_counted_and_told_of_when_their_number_doubles() {
    let mut harness = ServerHarness::new();
    let mut reported = Vec::new();
    for _ in 0..100 {
        let strangers = Strangers { count: 3, remote: address(7), reason: "silent".into() };
        harness.server.handle_strangers(super::harness::NOW, strangers);
        while let Some(event) = harness.server.poll_event() {
            let ServerEvent::Strangers(strangers) = event else { panic!("{event:?}") };
            reported.push(strangers.count);
        }
    }
    assert_eq!(reported, [3, 6, 9, 18, 33, 66, 129, 258]);
    assert_eq!(harness.statistics().dropped, 300);
}

// rule S7
#[test]
fn a_caller_shows_the_pass_that_it_was_given() {
    let secret = Secret::new([5; 32]);
    let cluster = Cluster { secret: Some(secret.clone()), ..testing::cluster(4) };
    let mut harness = ServerHarness::starting_in(crate::server::Server::new(address(1)), cluster);
    harness.send(super::harness::CONTROLLER, Message::View(harness.view().into()));
    let mut call = |from, pass| {
        let hello = Hello { pass, instance: JOB.into(), from, to: 0, answered: Answered::default() };
        let link = harness.call_with(hello);
        harness.admitted.contains(&link)
    };
    let pass = |caller, callee| secret.of_member(caller).pass(callee);
    for caller in [Worker(1), Switch(1)] {
        assert!(!call(caller, Pass::default()), "{caller} without a pass");
        assert!(!call(caller, pass(Worker(2), Server(0))), "{caller} with the pass of another");
        assert!(!call(caller, pass(caller, Server(1))), "{caller} with the pass for another server");
        assert!(call(caller, pass(caller, Server(0))), "{caller}");
    }
    assert_eq!(harness.statistics().dropped, 6);
}
