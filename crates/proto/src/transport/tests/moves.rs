//! Regions move from one switch to another while packets are on their way.

use core::time::Duration;

use libra_dataplane::{Flags, Header, Kind, NackReason};
use proptest::prelude::*;

use super::moving::{Arrival, Moving};
use super::scene::{
    IDENTITY, LOST, Link, READABLE, REGIONS, Scene, UNREADABLE, VIEW, ack, address, bounds, ms, nack,
    probe_answer,
};
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
        let mut moving = Moving::new(link, in_flight_max, seed);
        for _ in 0..150 {
            let region = REGIONS[usize::from(moving.random.percent(50))];
            let cell = u16::try_from(moving.random.below(14)).unwrap();
            if moving.random.percent(70) { moving.push(region, cell) } else { moving.pull(region, cell) };
            if moving.random.percent(moves) {
                let region = REGIONS[usize::from(moving.random.percent(50))];
                // Now and then it comes back to its former switch, with no message to the worker in between.
                let place = usize::from(moving.random.percent(50));
                let view = moving.open(region, place);
                let late = Duration::from_micros(moving.random.below(6000));
                moving.schedule(late, Arrival::AtWorkerView(region, place, view));
            }
            let pause = Duration::from_micros(moving.random.below(300));
            moving.run_for(pause);
        }
        moving.run_for(ms(10));
        moving.finish();
    }
}

/// Four packets that switch 0 has: the first two are committed, the other two are only accepted. A fifth was lost.
fn five_packets() -> Moving {
    let mut moving = Moving::new(Link::GOOD, 16, 1);
    moving.push(READABLE, 1);
    moving.push(READABLE, 2);
    while moving.shards[&READABLE].epoch == 0 {
        moving.step();
    }
    // The worker does not receive that they are durable.
    moving.arrivals.retain(|_, arrival| !matches!(arrival, Arrival::Committed(..)));
    moving.push(READABLE, 3);
    moving.push(READABLE, 4);
    while moving.answered.len() < 4 {
        moving.step();
    }
    moving.link = LOST;
    moving.push(READABLE, 5);
    moving.link = Link::GOOD;
    assert_eq!((moving.answered.len(), moving.paths[0].in_flight()), (4, 1));
    moving
}

/// Tests rule V5.
#[test]
fn packets_not_durable_are_replayed_to_the_next_holder() {
    let mut moving = five_packets();
    moving.log.clear();
    let view = moving.open(READABLE, 1);
    moving.tell(READABLE, 1, view);
    let seen: Vec<_> = moving.log.iter().map(|(place, header)| (*place, header.seq, header.view)).collect();
    assert_eq!(seen, [0, 1, 2, 3, 4].map(|seq| (1, seq, view)));
    assert!(moving.log.iter().all(|(_, header)| header.flags.contains(Flags::RETRANSMIT)));
    assert_eq!((moving.paths[0].in_flight(), moving.paths[1].in_flight()), (0, 5));
    assert!(!moving.paths[0].is_idle() && !moving.paths[1].is_idle(), "the other region has not moved");
}

#[test]
fn packets_in_the_cut_are_acknowledged_once_and_not_added() {
    let mut moving = five_packets();
    moving.move_region(READABLE, 1);
    moving.run_for(Duration::from_micros(110));
    let counters = moving.pipelines[1].region(super::scene::JOB, READABLE).unwrap().counters();
    assert_eq!((counters.pushes, counters.duplicates), (3, 2));
    assert_eq!(moving.answered.values().copied().collect::<Vec<_>>(), [1; 5], "the fifth is news");
    // Answers to retransmissions are no evidence of that (rule T17); the one to the probe after them is.
    while moving.paths[1].push_flow(READABLE).first() < 2 {
        moving.step();
    }
    moving.finish();
}

#[test]
fn a_packet_never_sent_goes_to_the_next_holder_unmarked() {
    let mut moving = Moving::new(LOST, 1, 1);
    moving.push(READABLE, 1);
    moving.push(READABLE, 2);
    assert_eq!(moving.log.len(), 1);
    (moving.link, moving.paths[1]) = (Link::GOOD, Path::new(moving.paths[1].address(), IDENTITY, bounds(8)));
    moving.move_region(READABLE, 1);
    let marks: Vec<bool> = moving.log[1..].iter().map(|(_, h)| h.flags.contains(Flags::RETRANSMIT)).collect();
    assert_eq!(marks, [true, false]);
    moving.finish();
}

#[test]
fn pulls_move_too_and_are_answered_once() {
    let mut moving = Moving::new(LOST, 8, 1);
    let pulls = [moving.pull(READABLE, 1), moving.pull(UNREADABLE, 1), moving.pull(READABLE, 2)];
    moving.link = Link::GOOD;
    moving.move_region(READABLE, 1);
    assert_eq!((moving.paths[0].in_flight(), moving.paths[1].in_flight()), (1, 2));
    moving.finish();
    assert!(pulls.iter().all(|pull| moving.answered[pull] == 1));
}

#[test]
fn answers_from_before_a_move_are_ignored() {
    let mut scene = Scene::new(LOST, 16, 4096, 1);
    for _ in 0..2 {
        scene.push(READABLE, &[1], Flags::LAST);
    }
    scene.pull(READABLE, &[1]);
    let flows = scene.path.take(READABLE);
    assert_eq!(scene.path.in_flight(), 0);
    scene.path.put(READABLE, flows, VIEW + 1);
    let dropped = scene.path.statistics.dropped;
    for answer in [
        ack(READABLE, 0, 7, 7),
        nack(READABLE, 1, NackReason::BankFull),
        nack(READABLE, 0, NackReason::NotInstalled),
    ] {
        scene.deliver(&answer);
    }
    assert_eq!(scene.path.statistics.dropped, dropped + 3);
    assert_eq!((scene.accepted.len(), scene.unreadable.len(), scene.path.in_flight()), (0, 0, 0));
    // The region is not even there any more.
    let flows = scene.path.take(READABLE);
    scene.deliver(&ack(READABLE, 0, 7, 7));
    assert_eq!(scene.path.statistics.dropped, dropped + 4);
    // Under the present view the same answer counts, once the packet was sent under it. Before that it is a cut that the switch goes on
    // from, and no sample of round trips.
    scene.path.put(READABLE, flows, VIEW + 1);
    let answer = Header { view: VIEW + 1, ..Header::parse_without_entries(&ack(READABLE, 0, 7, 7)).unwrap() };
    scene.deliver(&answer.to_bytes());
    assert_eq!(scene.accepted.len(), 0);
    scene.transmit_elsewhere();
    scene.deliver(&answer.to_bytes());
    assert_eq!(scene.accepted.len(), 1);
}

#[test]
fn durable_rounds_of_a_former_holder_free_nothing_of_the_next() {
    let mut scene = Scene::new(LOST, 16, 4096, 1);
    scene.push(READABLE, &[1], Flags::LAST);
    // The former holder took it in round 9, which will never be committed.
    scene.deliver(&ack(READABLE, 0, 9, 7));
    let flows = scene.path.take(READABLE);
    scene.path.put(READABLE, flows, VIEW + 1);
    scene.transmit_elsewhere();
    let of_next = |answer: Vec<u8>| {
        let header = Header::parse_without_entries(&answer).unwrap();
        Header { view: VIEW + 1, ..header }.to_bytes()
    };
    scene.deliver(&of_next(ack(READABLE, 0, 9, 8)));
    for (durable, kept_from) in [(8, 0), (9, 1)] {
        let probe = scene.ask(READABLE);
        scene.deliver(&of_next(probe_answer(READABLE, probe, durable)));
        assert_eq!(scene.path.push_flow(READABLE).first(), kept_from);
    }
    assert_eq!(scene.accepted.values().sum::<u32>(), 1, "it was reported as accepted before");
}

#[test]
fn a_queue_with_a_region_that_is_gone_goes_on_with_the_others() {
    let mut path = Path::new(address(), IDENTITY, bounds(2));
    path.put(READABLE, RegionFlows::new(FLOW_PACKETS_MAX), VIEW);
    path.put(UNREADABLE, RegionFlows::new(FLOW_PACKETS_MAX), VIEW);
    let mut submit = |region, operation| {
        for kind in [Kind::Push, Kind::Pull] {
            let cargo = crate::transport::flow::Cargo { operation, first: 0, end: 1 };
            super::scene::submit(&mut path, kind, Flags::NONE, region, &[(1, 1)], cargo);
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
    let mut scene = Scene::new(LOST, 16, 4096, 1);
    scene.push(READABLE, &[1], Flags::LAST);
    scene.deliver(&nack(READABLE, 0, NackReason::Inactive));
    let flows = scene.path.take(READABLE);
    scene.path.put(READABLE, flows, VIEW + 1);
    assert_eq!(scene.transmit_elsewhere(), [0]);
    // The pause ends, and the packet is on its way already.
    scene.now = scene.now + ms(1);
    scene.path.handle_timeout(scene.now);
    assert_eq!((scene.transmit_elsewhere(), scene.path.in_flight()), (vec![], 1));
}

#[test]
fn a_switch_that_retires_is_asked_again_after_a_pause() {
    let mut scene = Scene::new(Link::GOOD, 16, 4096, 1);
    scene.pipeline.region_mut(super::scene::JOB, READABLE).unwrap().set_active(false);
    scene.push(READABLE, &[1], Flags::LAST);
    let pull = scene.pull(READABLE, &[1]);
    scene.run_for(ms(20));
    let refused = scene.path.statistics.refused;
    assert!((10..=20).contains(&refused), "every 1.1 ms: {refused} in 20 ms");
    assert_eq!(scene.values[&pull], [101], "it still reads");
    assert!(scene.accepted.is_empty());
    scene.pipeline.region_mut(super::scene::JOB, READABLE).unwrap().set_active(true);
    scene.run_to_rest();
    scene.check_sums();
}

#[test]
fn a_region_back_at_its_switch_is_not_blocked_by_its_old_queue() {
    let mut moving = Moving::new(Link::GOOD, 4096, 1);
    // A window full of packets that are accepted and not durable; the next ones wait in the queue.
    for _ in 0..libra_dataplane::WINDOW + 100 {
        moving.push(READABLE, 1);
    }
    // The region comes back to the same switch: what is waiting in the queue comes before what must be replayed.
    moving.move_region(READABLE, 0);
    moving.finish();
}
