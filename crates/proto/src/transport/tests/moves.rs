//! Regions move from one switch to another while packets are on their way.

use core::time::Duration;

use libra_dataplane::{Flags, Header, Kind, NackReason};
use proptest::prelude::*;

use super::harness::{
    IDENTITY, LOST, Link, PathHarness, READABLE, REGIONS, UNREADABLE, VIEW, VIEW_ON_WIRE, ack, address,
    bounds, ms, nack, probe_answer,
};
use super::moving_harness::{Arrival, MovingHarness};
use crate::role::Outgoing;
use crate::transport::flow::FLOW_PACKETS_MAX;
use crate::transport::path::Path;
use crate::transport::region::RegionFlows;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn packets_are_committed_once_however_often_their_region_moves(
        (loss, duplicate, reorder) in (0u64..40, 0u64..40, 0u64..40),
        delay in 10u64..3000,
        in_flight_max in 1u32..64,
        moves in 0u64..12,
        seed: u64,
    ) {
        let link = Link { loss, duplicate, reorder, delay: Duration::from_micros(delay) };
        let mut harness = MovingHarness::new(link, in_flight_max, seed);
        for _ in 0..150 {
            let region = REGIONS[usize::from(harness.random.percent(50))];
            let cell = u16::try_from(harness.random.below(14)).unwrap();
            if harness.random.percent(70) { harness.push(region, cell) } else { harness.pull(region, cell) };
            if harness.random.percent(moves) {
                let region = REGIONS[usize::from(harness.random.percent(50))];
                // Now and then it comes back to its former switch, with no message to the worker in between.
                let place = usize::from(harness.random.percent(50));
                let view = harness.open(region, place);
                let late = Duration::from_micros(harness.random.below(6000));
                harness.schedule(late, Arrival::AtWorkerView(region, place, view));
            }
            let pause = Duration::from_micros(harness.random.below(300));
            harness.run_for(pause);
        }
        harness.run_for(ms(10));
        harness.finish();
    }
}

/// Four packets that switch 0 has: the first two are committed, the other two are only accepted. A fifth was lost.
fn five_packets() -> MovingHarness {
    let mut harness = MovingHarness::new(Link::GOOD, 16, 1);
    harness.push(READABLE, 1);
    harness.push(READABLE, 2);
    while harness.shards[&READABLE].round == 0 {
        harness.step();
    }
    // The worker does not receive that they are durable.
    harness.arrivals.retain(|_, arrival| !matches!(arrival, Arrival::Committed(..)));
    harness.push(READABLE, 3);
    harness.push(READABLE, 4);
    while harness.answered.len() < 4 {
        harness.step();
    }
    harness.link = LOST;
    harness.push(READABLE, 5);
    harness.link = Link::GOOD;
    assert_eq!((harness.answered.len(), harness.paths[0].in_flight()), (4, 1));
    harness
}

/// Tests rule V5.
#[test]
fn packets_not_durable_are_replayed_to_the_next_owner() {
    let mut harness = five_packets();
    harness.log.clear();
    let view = harness.open(READABLE, 1);
    harness.notify_worker(READABLE, 1, view);
    let seen: Vec<_> =
        harness.log.iter().map(|(place, header)| (*place, header.seq, u64::from(header.view))).collect();
    assert_eq!(seen, [0, 1, 2, 3, 4].map(|seq| (1, seq, view)));
    assert!(harness.log.iter().all(|(_, header)| header.flags.contains(Flags::RETRANSMIT)));
    assert_eq!((harness.paths[0].in_flight(), harness.paths[1].in_flight()), (0, 5));
    assert!(!harness.paths[0].is_idle() && !harness.paths[1].is_idle(), "the other region has not moved");
}

#[test]
fn packets_in_the_cut_are_acknowledged_once_and_not_added() {
    let mut harness = five_packets();
    harness.move_region(READABLE, 1);
    harness.run_for(Duration::from_micros(110));
    let counters = harness.pipelines[1].region(super::harness::JOB, READABLE).unwrap().counters();
    assert_eq!((counters.pushes, counters.duplicates), (3, 2));
    assert_eq!(harness.answered.values().copied().collect::<Vec<_>>(), [1; 5], "the fifth is news");
    // Answers to retransmissions are no evidence of that (rule T17); the one to the probe after them is.
    while harness.paths[1].push_flow(READABLE).first() < 2 {
        harness.step();
    }
    harness.finish();
}

#[test]
fn a_packet_never_sent_goes_to_the_next_owner_unmarked() {
    let mut harness = MovingHarness::new(LOST, 1, 1);
    harness.push(READABLE, 1);
    harness.push(READABLE, 2);
    assert_eq!(harness.log.len(), 1);
    (harness.link, harness.paths[1]) =
        (Link::GOOD, Path::new(harness.paths[1].address(), IDENTITY, bounds(8)));
    harness.move_region(READABLE, 1);
    let marks: Vec<bool> =
        harness.log[1..].iter().map(|(_, h)| h.flags.contains(Flags::RETRANSMIT)).collect();
    assert_eq!(marks, [true, false]);
    harness.finish();
}

#[test]
fn pulls_move_too_and_are_answered_once() {
    let mut harness = MovingHarness::new(LOST, 8, 1);
    let pulls = [harness.pull(READABLE, 1), harness.pull(UNREADABLE, 1), harness.pull(READABLE, 2)];
    harness.link = Link::GOOD;
    harness.move_region(READABLE, 1);
    assert_eq!((harness.paths[0].in_flight(), harness.paths[1].in_flight()), (1, 2));
    harness.finish();
    assert!(pulls.iter().all(|pull| harness.answered[pull] == 1));
}

#[test]
fn answers_from_before_a_move_are_ignored() {
    let mut harness = PathHarness::new(LOST, 16, 4096, 1);
    for _ in 0..2 {
        harness.push(READABLE, &[1], Flags::LAST);
    }
    harness.pull(READABLE, &[1]);
    let flows = harness.path.take(READABLE);
    assert_eq!(harness.path.in_flight(), 0);
    harness.path.put(READABLE, flows, VIEW + 1);
    let dropped = harness.path.statistics.dropped;
    for answer in [
        ack(READABLE, 0, 7, 7),
        nack(READABLE, 1, NackReason::BankFull),
        nack(READABLE, 0, NackReason::NotInstalled),
    ] {
        harness.deliver(&answer);
    }
    assert_eq!(harness.path.statistics.dropped, dropped + 3);
    assert_eq!((harness.accepted.len(), harness.unreadable.len(), harness.path.in_flight()), (0, 0, 0));
    // The region is not even there any more.
    let flows = harness.path.take(READABLE);
    harness.deliver(&ack(READABLE, 0, 7, 7));
    assert_eq!(harness.path.statistics.dropped, dropped + 4);
    // Under the present view the same answer counts, once the packet was sent under it. Before that it is the contents that the switch goes on
    // from, and no sample of round trips.
    harness.path.put(READABLE, flows, VIEW + 1);
    let answer =
        Header { view: VIEW_ON_WIRE + 1, ..Header::parse_without_entries(&ack(READABLE, 0, 7, 7)).unwrap() };
    harness.deliver(&answer.to_bytes());
    assert_eq!(harness.accepted.len(), 0);
    harness.transmit_elsewhere();
    harness.deliver(&answer.to_bytes());
    assert_eq!(harness.accepted.len(), 1);
}

#[test]
fn durable_rounds_of_a_former_owner_free_nothing_of_the_next() {
    let mut harness = PathHarness::new(LOST, 16, 4096, 1);
    harness.push(READABLE, &[1], Flags::LAST);
    // The former owner took it in round 9, which will never be committed.
    harness.deliver(&ack(READABLE, 0, 9, 7));
    let flows = harness.path.take(READABLE);
    harness.path.put(READABLE, flows, VIEW + 1);
    harness.transmit_elsewhere();
    let of_next = |answer: Vec<u8>| {
        let header = Header::parse_without_entries(&answer).unwrap();
        Header { view: VIEW_ON_WIRE + 1, ..header }.to_bytes()
    };
    harness.deliver(&of_next(ack(READABLE, 0, 9, 8)));
    for (durable, kept_from) in [(8, 0), (9, 1)] {
        let probe = harness.ask(READABLE);
        harness.deliver(&of_next(probe_answer(READABLE, probe, durable)));
        assert_eq!(harness.path.push_flow(READABLE).first(), kept_from);
    }
    assert_eq!(harness.accepted.values().sum::<u32>(), 1, "it was reported as accepted before");
}

#[test]
fn a_queue_with_a_region_that_is_gone_goes_on_with_the_others() {
    let mut path = Path::new(address(), IDENTITY, bounds(2));
    path.put(READABLE, RegionFlows::new(FLOW_PACKETS_MAX), VIEW);
    path.put(UNREADABLE, RegionFlows::new(FLOW_PACKETS_MAX), VIEW);
    let mut submit = |region, operation| {
        for kind in [Kind::Push, Kind::Pull] {
            let packet_rows = crate::transport::flow::PacketRows { operation, first: 0, end: 1 };
            super::harness::submit(&mut path, kind, Flags::NONE, region, &[(1, 1)], packet_rows);
        }
    };
    submit(READABLE, 1);
    submit(READABLE, 2);
    submit(UNREADABLE, 3);
    let mut outgoing = Outgoing::default();
    let now = crate::time::Instant::ZERO + ms(1);
    path.poll_transmit(now, &mut outgoing);
    assert_eq!(outgoing.len(), 2, "the pulls of the first region fill the path");
    drop(path.take(READABLE));
    assert_eq!(path.in_flight(), 0);
    outgoing.clear();
    path.poll_transmit(now, &mut outgoing);
    let regions: Vec<u8> = outgoing.iter().map(|(_, bytes)| Header::parse(bytes).unwrap().region).collect();
    assert_eq!(regions, [UNREADABLE; 2]);
    assert_eq!(path.in_flight(), 2);
    // Timers of the packets that moved fire, and find nothing.
    for _ in 0..10 {
        let Some(timeout) = path.poll_timeout() else { break };
        path.handle_timeout(timeout);
    }
    drop(path.take(UNREADABLE));
    assert!(path.is_idle() && path.in_flight() == 0);
    while let Some(timeout) = path.poll_timeout() {
        path.handle_timeout(timeout);
    }
    outgoing.clear();
    path.poll_transmit(now + ms(1000), &mut outgoing);
    assert!(outgoing.is_empty());
}

#[test]
fn a_refused_packet_of_a_moved_region_skips_the_pause() {
    let mut harness = PathHarness::new(LOST, 16, 4096, 1);
    harness.push(READABLE, &[1], Flags::LAST);
    harness.deliver(&nack(READABLE, 0, NackReason::Inactive));
    let flows = harness.path.take(READABLE);
    harness.path.put(READABLE, flows, VIEW + 1);
    assert_eq!(harness.transmit_elsewhere(), [0]);
    // The pause ends, and the packet is on its way already.
    harness.now = harness.now + ms(1);
    harness.path.handle_timeout(harness.now);
    assert_eq!((harness.transmit_elsewhere(), harness.path.in_flight()), (vec![], 1));
}

#[test]
fn a_switch_that_retires_is_asked_again_after_a_pause() {
    let mut harness = PathHarness::new(Link::GOOD, 16, 4096, 1);
    harness.pipeline.region_mut(super::harness::JOB, READABLE).unwrap().set_active(false);
    harness.push(READABLE, &[1], Flags::LAST);
    let pull = harness.pull(READABLE, &[1]);
    harness.run_for(ms(20));
    let refused = harness.path.statistics.refused;
    assert!((10..=20).contains(&refused), "every 1.1 ms: {refused} in 20 ms");
    assert_eq!(harness.values[&pull], [101], "it still reads");
    assert!(harness.accepted.is_empty());
    harness.pipeline.region_mut(super::harness::JOB, READABLE).unwrap().set_active(true);
    harness.run_to_rest();
    harness.check_sums();
}

#[test]
fn a_region_back_at_its_switch_is_not_blocked_by_its_old_queue() {
    let mut harness = MovingHarness::new(Link::GOOD, 4096, 1);
    // A window full of packets that are accepted and not durable; the next ones wait in the queue.
    for _ in 0..libra_dataplane::WINDOW + 100 {
        harness.push(READABLE, 1);
    }
    // The region comes back to the same switch: what is waiting in the queue comes before what must be replayed.
    harness.move_region(READABLE, 0);
    harness.finish();
}
