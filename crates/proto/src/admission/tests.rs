//! The bounds have room for the messages that members send.

use core::net::SocketAddr;

use super::*;
use crate::authentication::{Pass, TagKind};
use crate::bulk::Bulk;
use crate::message::{
    AckedSet, Answered, ColdPush, Drained, Hello, Join, Kind, Message, Rejoin, Replay, RoundContents, VERSION,
};
use crate::testing;
use crate::values::Values;
use crate::work::WorkDone;

fn cluster(workers: u16) -> Cluster {
    Cluster { shares: workers, ..testing::cluster(workers) }
}

// rule S1
#[test]
fn first_messages_are_short_but_for_a_server_that_returns() {
    let far = SocketAddr::from(([0xffff; 8], u16::MAX));
    let join = Join {
        version: VERSION,
        kind: Kind::Worker,
        stream: Some(far),
        shards: 1,
        datagrams: Some(far),
        receive_bytes: u32::MAX,
        is_restartable: true,
        is_slow: true,
        tags: TagKind::Mac,
        http: None,
    };
    let you = Peer::Worker(u16::MAX);
    let answered = Answered { newest: u64::MAX, count: u64::MAX };
    let hello = Message::Hello(Hello {
        pass: Pass::default(),
        instance: u64::MAX,
        from: you,
        to: u16::MAX,
        answered,
    })
    .encode();
    let rejoin = Rejoin {
        join: join.clone(),
        instance: u64::MAX,
        you,
        pass: Pass::default(),
        share: u16::MAX,
        view: u64::MAX,
        barriers: u64::MAX,
        cluster: None,
        work_done: WorkDone::default(),
    };
    let long = Rejoin { cluster: Some(Box::new(cluster(4))), ..rejoin.clone() };
    let join = Message::Join(join).encode();
    for rejoin in [rejoin, long] {
        let rejoin = Message::Rejoin(Box::new(rejoin)).encode();
        assert!(may_be_long(rejoin[0]));
        assert!(rejoin.len() < FIRST_BYTES_MAX);
    }
    for short in [join, hello] {
        assert!(!may_be_long(short[0]) && short.len() < FIRST_BYTES_MAX / 8, "{}", short.len());
    }
}

// rule S2
#[test]
fn the_largest_messages_of_callers_are_within_their_bounds() {
    let mut cluster = cluster(32);
    let of_worker = |cluster: &Cluster| bytes_max(cluster, Peer::Worker(0));
    // The most rows of a request, none of which makes the others shorter (rules C6, C8).
    let count = REQUEST_BYTES_MAX as u64 / 12;
    let keys: Vec<u64> = (0..count).map(|key| key.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
    let gradients = Values::from(vec![1.5; keys.len()]);
    let push = ColdPush { number: u64::MAX, keys: keys.as_slice().into(), gradients, answer: true };
    let push = Message::Push(push).encode();
    assert!((REQUEST_BYTES_MAX - 12..of_worker(&cluster)).contains(&push.len()), "{}", push.len());
    // One row that is wider than that.
    cluster.tables[0].width = 1 << 20;
    let gradients = Values::from(vec![1.5; 1 << 20]);
    let row = ColdPush { number: u64::MAX, keys: [u64::MAX].as_slice().into(), gradients, answer: true };
    assert!(Message::Push(row).encode().len() < of_worker(&cluster));
    cluster.tables[0].width = 4;
    // Packets of a region without an owner.
    let entries = usize::from(cluster.hot_path.entries_max);
    let packet = Bulk(vec![0xff; HEADER_BYTES + entries * ENTRY_BYTES]);
    let packets = vec![packet; REPLAY_PACKETS_MAX];
    let replay = Message::Replay(Replay { region: 255, view_id: u64::MAX, below: u32::MAX, packets });
    assert!(replay.encode().len() < of_worker(&cluster));
    // A round that has touched every second block of slots, and contents of every second number.
    let above: Vec<(u32, u32)> =
        (0..u32::try_from(WINDOW / 2).unwrap()).map(|run| (u32::MAX - 2 * run, 1)).collect();
    let flow = AckedSet { below: u32::MAX, above };
    let contents = RoundContents {
        flows: (0..cluster.worker_numbers()).map(|worker| (u16::MAX - worker, flow.clone())).collect(),
    };
    let slots: Vec<(u16, u16)> = (0..SLOTS_PER_REGION / 16).map(|block| (16 * block, 8)).collect();
    let sums = Bulk(vec![u32::MAX; SLOTS_PER_REGION.into()]);
    let drained = Drained { region: 255, view_id: u64::MAX, round: u64::MAX, contents, slots, sums };
    let (bytes, most) =
        (Message::Drained(drained.into()).encode().len(), bytes_max(&cluster, Peer::Switch(0)));
    assert!((most / 2..most).contains(&bytes), "{bytes} of {most}");
}

// rule S2
#[test]
fn no_bound_is_above_what_any_message_may_have() {
    let cluster = cluster(u16::MAX);
    assert_eq!(bytes_max(&cluster, Peer::Switch(0)), MESSAGE_BYTES_MAX);
    assert_eq!(bytes_max(&cluster, Peer::Worker(0)), REQUEST_BYTES_MAX + AROUND_BYTES);
}
