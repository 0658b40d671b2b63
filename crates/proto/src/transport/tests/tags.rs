//! Tags of packets and answers, at the worker's end.

use libra_dataplane::{Direction, Flags, HEADER_BYTES, Header, Kind, NackReason, Tags, set_tag};

use super::harness::{
    IDENTITY, JOB, PLAN, READABLE, VIEW, VIEW_ON_WIRE, WORKER, address, bounds, ms, submit,
};
use crate::authentication::{PathTags, Secret, TagKind};
use crate::cluster::Peer;
use crate::role::Outgoing;
use crate::time::Instant;
use crate::transport::flow::{FLOW_PACKETS_MAX, PacketRows};
use crate::transport::path::{Delivery, Path};
use crate::transport::region::RegionFlows;

/// The tags of the path to a switch.
fn tags_of(switch: u16, kind: TagKind) -> PathTags {
    let secret = Secret::new([3; 32]).of_member(Peer::Switch(switch));
    secret.path(WORKER).tags(kind).expect("it is a kind of tags")
}

fn path(switch: u16, kind: TagKind) -> Path {
    Path::new(address(), IDENTITY, bounds(16)).with_tags(Some(tags_of(switch, kind)))
}

fn transmit(path: &mut Path, now: Instant) -> Vec<Vec<u8>> {
    let mut outgoing = Outgoing::default();
    path.poll_transmit(now, &mut outgoing);
    outgoing.iter().map(|(_, datagram)| datagram.to_vec()).collect()
}

fn push(path: &mut Path, cells: u16) {
    let entries: Vec<_> = (0..cells).map(|cell| (cell, 7)).collect();
    let packet_rows = PacketRows { operation: 1, first: 0, end: cells.into() };
    submit(path, Kind::Push, Flags::LAST, READABLE, &entries, packet_rows);
}

fn ack(tags: Tags<'_>, seq: u32, view: u64) -> Vec<u8> {
    let header = Header {
        job: JOB,
        worker: WORKER,
        plan: PLAN,
        view: VIEW_ON_WIRE,
        region: READABLE,
        round: 7,
        durable: 6,
        seq,
        ..Header::of_kind(Kind::Ack)
    };
    let mut bytes = header.to_bytes();
    tags.sign(Direction::Down, &mut bytes, view);
    bytes.to_vec()
}

/// Number of packets that an answer shows to be accepted.
fn accepted(path: &mut Path, now: Instant, answer: &[u8]) -> usize {
    let mut accepted = 0;
    path.handle_datagram(now, answer, &mut |delivery| {
        accepted += usize::from(matches!(delivery, Delivery::Accepted(..)));
    });
    accepted
}

// rules A2, A4
#[test]
fn an_answer_counts_with_the_tag_of_its_switch_alone() {
    let now = Instant::ZERO + ms(1);
    for kind in [TagKind::Cookie, TagKind::Mac] {
        let mut path = path(0, kind);
        path.put(READABLE, RegionFlows::new(FLOW_PACKETS_MAX), VIEW);
        push(&mut path, 5);
        let sent = transmit(&mut path, now);
        let (own, other) = (tags_of(0, kind), tags_of(1, kind));
        assert!(own.tags().is_authentic(Direction::Up, &sent[0], VIEW), "{kind}");
        assert!(!other.tags().is_authentic(Direction::Up, &sent[0], VIEW), "{kind}");
        let right = ack(own.tags(), 0, VIEW);
        let mut wrong = vec![ack(other.tags(), 0, VIEW)];
        let mut bare: [u8; HEADER_BYTES] = right[..].try_into().unwrap();
        set_tag(&mut bare, 0);
        wrong.push(bare.to_vec());
        if kind == TagKind::Mac {
            wrong.push(ack(own.tags(), 0, VIEW + (1 << 16)));
            // Another round, and what was durable before.
            for at in [15, 17] {
                let mut altered = right.clone();
                altered[at] ^= 1;
                wrong.push(altered);
            }
        }
        for (number, wrong) in (1..).zip(&wrong) {
            assert_eq!(accepted(&mut path, now, wrong), 0, "{kind}");
            assert_eq!((path.statistics.forged, path.in_flight()), (number, 1));
        }
        assert_eq!(accepted(&mut path, now, &right), 1, "{kind}");
    }
}

// rule A2
#[test]
fn what_is_sent_again_has_the_tag_of_where_it_goes() {
    let now = Instant::ZERO + ms(1);
    let mut first = path(0, TagKind::Mac);
    first.put(READABLE, RegionFlows::new(FLOW_PACKETS_MAX), VIEW);
    push(&mut first, 9);
    let own = tags_of(0, TagKind::Mac);
    let once = transmit(&mut first, now);
    first.handle_timeout(now + ms(500));
    let again = transmit(&mut first, now + ms(500));
    assert_ne!(once, again, "it is marked");
    assert!(again.iter().all(|packet| own.tags().is_authentic(Direction::Up, packet, VIEW)));
    // The region moves to another switch.
    let flows = first.take(READABLE);
    let mut second = path(1, TagKind::Mac);
    second.put(READABLE, flows, VIEW + 1);
    let moved = transmit(&mut second, now + ms(501));
    assert_eq!(moved.len(), 1);
    assert!(tags_of(1, TagKind::Mac).tags().is_authentic(Direction::Up, &moved[0], VIEW + 1));
    assert!(!own.tags().is_authentic(Direction::Up, &moved[0], VIEW + 1));
}

// rules A3, A5
#[test]
fn without_a_tag_no_refusal_shows_that_a_switch_is_there() {
    let mut path = path(0, TagKind::Mac);
    path.put(READABLE, RegionFlows::new(FLOW_PACKETS_MAX), VIEW);
    push(&mut path, 1);
    let mut now = Instant::ZERO + ms(1);
    transmit(&mut path, now);
    let mut is_unreachable = false;
    for _ in 0..40 {
        now = now + ms(100);
        path.handle_timeout(now);
        for packet in transmit(&mut path, now) {
            let request = Header::parse(&packet).unwrap();
            let round = NackReason::StaleView as u16;
            let nack =
                Header { kind: Kind::Nack, entries: 0, flags: Flags::NONE, round, view: 99, ..request };
            accepted(&mut path, now, &nack.to_bytes());
        }
        is_unreachable |= path.take_unreachable(now);
    }
    assert!(is_unreachable);
}
