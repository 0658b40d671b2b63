//! Streams with a peer that is not identified, or not the one that it claims to be.

use super::counter::{Counter, address, push};
use crate::cluster::Peer;
use crate::message::{Answered, Hello, Message};
use crate::role::{Link, Role, Strangers};
use crate::server::ServerEvent;
use crate::testing::JOB;

use Peer::{Controller, Server, Switch, Worker};

fn hello(from: Peer) -> Message {
    Message::Hello(Hello { instance: JOB.into(), from, answered: Answered::default() })
}

// rule S2
#[test]
fn peers_are_admitted_only_if_the_view_has_them() {
    let mut counter = Counter::new();
    for from in [Worker(4), Switch(4), Worker(u16::MAX), Server(0), Controller] {
        let link = counter.call(from);
        assert_eq!(counter.closed.last(), Some(&link), "{from}");
    }
    assert_eq!((counter.admitted.len(), counter.statistics().dropped), (0, 5));
    for from in [Worker(0), Worker(3), Switch(3)] {
        let link = counter.call(from);
        assert!(counter.admitted.contains(&link));
        counter.say(link, hello(Worker(1)));
        assert_eq!(counter.closed.last(), Some(&link), "a stream is of one caller");
    }
}

// rule S2
#[test]
fn a_caller_has_one_stream_the_newest() {
    let mut counter = Counter::new();
    let old = counter.call(Worker(1));
    let late = counter.open();
    let new = counter.call(Worker(1));
    assert_eq!(counter.closed, [old]);
    // What was sent on a stream that broke is read late.
    counter.say(late, hello(Worker(1)));
    assert_eq!(counter.closed, [old, late]);
    assert_eq!(counter.ask(new, push(1, &[0], 1.0)).len(), 1);
    for stale in [old, late] {
        assert_eq!(counter.ask(stale, push(2, &[0], 1.0)), []);
    }
    assert_eq!(counter.statistics().dropped, 2);
}

// rule S3
#[test]
fn a_server_is_ended_only_by_the_controller() {
    let mut counter = Counter::new();
    let abort = || Message::Abort { reason: "no more".into() };
    let (stranger, worker, switch) = (counter.open(), counter.call(Worker(1)), counter.call(Switch(1)));
    for link in [stranger, worker, switch, Link(Link::ACCEPTED + 77)] {
        counter.say(link, abort());
        assert_eq!(counter.closed.last(), Some(&link));
    }
    assert_eq!(counter.statistics().dropped, 4);
    assert_eq!(counter.call(Worker(1)), *counter.admitted.last().unwrap(), "it serves");
}

// rules S1, S2
#[test]
fn strangers_are_counted_and_told_of_when_their_number_doubles() {
    let mut counter = Counter::new();
    let mut told = Vec::new();
    for _ in 0..100 {
        let strangers = Strangers { count: 3, remote: address(7), reason: "silent".into() };
        counter.server.handle_strangers(super::counter::NOW, strangers);
        while let Some(event) = counter.server.poll_event() {
            let ServerEvent::Strangers(strangers) = event else { panic!("{event:?}") };
            told.push(strangers.count);
        }
    }
    assert_eq!(told, [3, 6, 9, 18, 33, 66, 129, 258]);
    assert_eq!(counter.statistics().dropped, 300);
}
