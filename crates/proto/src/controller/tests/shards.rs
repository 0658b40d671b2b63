//! Servers of several shards.

use super::super::RETURN_MAX;
use super::harness::{ControllerHarness, address, join, ms};
use crate::cluster::Peer;
use crate::message::{Join, Kind, Message};
use crate::role::Link;

/// A shard of the server at the address of the caller `server`.
fn shard(server: Link, shards: u16) -> Message {
    Message::Join(Join { shards, ..join(Kind::Server, server) })
}

fn started(harness: &mut ControllerHarness, link: Link) -> Option<Peer> {
    harness.received_on(link).into_iter().find_map(|message| match message {
        Message::Start(start) => Some(start.you),
        _ => None,
    })
}

// rule M1
#[test]
fn a_job_begins_when_all_shards_of_its_servers_are_there() {
    let mut harness = ControllerHarness::new(2, 0, 1);
    let (one, other) = (harness.call(), harness.call());
    let links = [one, other, harness.call(), harness.call(), harness.call()];
    harness.join(Peer::Worker(0));
    // One server of two shards and one of three, in turns.
    for (link, (server, shards)) in
        links.into_iter().zip([(one, 2), (other, 3), (one, 2), (other, 3), (other, 3)])
    {
        assert_eq!(started(&mut harness, one), None);
        harness.deliver(link, shard(server, shards));
    }
    let numbers = links.map(|link| started(&mut harness, link));
    assert_eq!(numbers, [0, 1, 2, 3, 4].map(|number| Some(Peer::Server(number))));
    let addresses = [one, other, one, other, other].map(address);
    assert_eq!(harness.cluster().view.servers, addresses);
}

// rule M1
#[test]
fn shards_that_go_before_the_job_begins_leave_no_gap() {
    let mut harness = ControllerHarness::new(2, 0, 1);
    let (gone, also_gone, other) = (harness.call(), harness.call(), harness.call());
    for (number, link) in (0..).zip([gone, also_gone]) {
        harness.links_of.insert(Peer::Server(number), link);
        harness.deliver(link, shard(gone, 2));
    }
    harness.links_of.insert(Peer::Server(2), other);
    harness.deliver(other, shard(other, 1));
    for number in 0..2 {
        harness.break_stream(Peer::Server(number));
    }
    harness.pass(RETURN_MAX + ms(1), &[]);
    let next = harness.call();
    harness.deliver(next, shard(next, 1));
    harness.join(Peer::Worker(0));
    assert_eq!(started(&mut harness, next), Some(Peer::Server(0)));
    assert_eq!(started(&mut harness, other), Some(Peer::Server(1)));
    assert_eq!(harness.cluster().view.servers, [next, other].map(address));
}

// rule M1
#[test]
fn a_server_has_the_shards_that_it_says() {
    let mut harness = ControllerHarness::new(1, 0, 1);
    let refusal = |harness: &mut ControllerHarness, message| {
        let link = harness.call();
        harness.deliver(link, message);
        harness.received_on(link).into_iter().find_map(|message| match message {
            Message::Abort { reason } | Message::NoPlace { reason } => Some(reason),
            _ => None,
        })
    };
    let server = harness.call();
    let none = refusal(&mut harness, shard(server, 0)).unwrap();
    assert!(none.contains("1 to 1024 shards, not 0"), "{none}");
    assert_eq!(refusal(&mut harness, shard(server, 2)), None);
    let another = refusal(&mut harness, shard(server, 3)).unwrap();
    assert!(another.contains("1 of 2 shards"), "{another}");
    assert_eq!(refusal(&mut harness, shard(server, 2)), None);
    let more = refusal(&mut harness, shard(server, 2)).unwrap();
    assert!(more.contains("2 of 2 shards"), "{more}");
    let other = harness.call();
    let no_place = refusal(&mut harness, shard(other, 1)).unwrap();
    assert!(no_place.contains("no place for another server"), "{no_place}");
}

#[test]
fn a_job_with_more_shards_than_keys_fails_in_words() {
    let mut harness = ControllerHarness::new(1, 0, 1);
    harness.join(Peer::Worker(0));
    let keys: u64 = harness.cluster().tables.iter().map(|table| table.keys.end - table.keys.start).sum();
    let shards = u16::try_from(keys + 1).unwrap();
    let server = harness.call();
    for _ in 0..shards {
        let link = harness.call();
        harness.deliver(link, shard(server, shards));
    }
    let failure = harness.failure().unwrap();
    assert!(failure.contains("--shards-per-server"), "{failure}");
}
