//! The path of one worker against a real pipeline, over a bad link in virtual time.

mod bottleneck;
mod congestion;
mod harness;
mod moves;
mod moving_harness;
mod tags;

use core::time::Duration;
use std::collections::BTreeMap;

use libra_dataplane::{Flags, Header, Kind, NackReason, WINDOW};
use proptest::prelude::*;

use self::harness::{
    Arrival, CELLS, LOST, Link, PathHarness, READABLE, REGIONS, UNDURABLE_MAX, UNREADABLE, ack, header, ms,
    nack, probe_answer, write,
};
use super::flow::FLOW_PACKETS_MAX;
use super::probes::PROBES_BEGIN;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    // rules T4, T8, T10
    #[test]
    fn every_packet_is_added_once_whatever_the_link_does(
        (loss, duplicate, reorder) in (0u64..40, 0u64..40, 0u64..40),
        delay in 10u64..4000,
        in_flight_max in 1u32..64,
        bank_packets_max in prop_oneof![Just(3u32), Just(64), Just(4096)],
        seed: u64,
    ) {
        let link = Link { loss, duplicate, reorder, delay: Duration::from_micros(delay) };
        let mut harness = PathHarness::new(link, in_flight_max, bank_packets_max, seed);
        let mut kinds = BTreeMap::new();
        for _ in 0..120 {
            let region = REGIONS[usize::from(harness.random.percent(50))];
            let first = u16::try_from(harness.random.below(u64::from(CELLS) - 3)).unwrap();
            let cells = [first, first + 1];
            let dice = harness.random.below(3);
            let operation = match dice {
                0 => harness.push(region, &cells, Flags::LAST),
                1 => harness.push(region, &cells, Flags::VALUES),
                _ => harness.pull(region, &cells),
            };
            kinds.insert(operation, (dice, region, first));
            let pause = Duration::from_micros(harness.random.below(200));
            harness.run_for(pause);
        }
        harness.run_to_rest();
        harness.check_sums();
        for (operation, (dice, region, first)) in kinds {
            let values = (dice > 0 && region == READABLE).then(|| vec![100 + u32::from(first), 101 + u32::from(first)]);
            prop_assert_eq!(harness.values.get(&operation), values.as_ref());
            prop_assert_eq!(harness.accepted.contains_key(&operation), dice < 2);
            prop_assert_eq!(harness.unreadable.contains_key(&operation), dice == 2 && region == UNREADABLE);
        }
        // Nothing is left to wait for: after the last look around, the path sleeps.
        harness.run_for(ms(500));
        prop_assert_eq!(harness.path.poll_timeout(), None);
    }

    /// The path is driven by answers that no switch would give.
    #[test]
    fn invalid_answers_are_dropped_and_harm_nothing(
        datagrams in prop::collection::vec(invalid_datagrams(), 0..60),
        seed: u64,
    ) {
        let mut harness = PathHarness::new(Link::GOOD, 4, 4096, seed);
        for number in 0..8 {
            harness.push(REGIONS[number % 2], &[1, 2], if number < 4 { Flags::NONE } else { Flags::VALUES });
            harness.pull(REGIONS[number % 2], &[3, 4]);
        }
        for datagram in &datagrams {
            harness.deliver(datagram);
            harness.transmit();
            harness.run_for(Duration::from_micros(100));
        }
    }

    // rule W12
    #[test]
    fn bytes_that_are_no_packet_are_counted(datagrams in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 1..20)) {
        let mut harness = PathHarness::new(Link::GOOD, 4, 4096, 0);
        harness.push(READABLE, &[1, 2], Flags::NONE);
        for datagram in &datagrams {
            harness.deliver(datagram);
        }
        prop_assert_eq!(harness.path.statistics.dropped, datagrams.len() as u64);
        harness.run_to_rest();
        harness.check_sums();
    }
}

/// Datagrams with a sound header and anything in it, aimed at what the path may be waiting for.
fn invalid_datagrams() -> impl Strategy<Value = Vec<u8>> {
    let fields = (
        1u8..8,
        0u8..8,
        prop_oneof![Just(READABLE), Just(UNREADABLE), any::<u8>()],
        any::<u16>(),
        any::<u16>(),
    );
    let seq = prop_oneof![
        0u32..12,
        FLOW_PACKETS_MAX..FLOW_PACKETS_MAX + 12,
        PROBES_BEGIN..PROBES_BEGIN + 4,
        Just(u32::MAX),
        any::<u32>()
    ];
    let entries = prop::collection::vec(
        (prop_oneof![0u16..9, any::<u16>()], prop_oneof![0u32..12, any::<u32>()]),
        0..5,
    );
    (fields, seq, entries).prop_map(|((kind, flags, region, round, durable), seq, entries)| {
        let (kind, flags) = (Kind::from_code(kind).unwrap(), Flags::from_bits(flags).unwrap());
        let mut bytes = write(kind, flags, region, seq, &entries);
        let entries = u8::try_from(entries.len()).unwrap();
        Header { round, durable, entries, ..header(kind, flags, region, seq) }.emit(&mut bytes);
        bytes
    })
}

#[test]
fn a_good_link_carries_each_packet_once_and_the_window_is_used() {
    let mut harness = PathHarness::new(Link::GOOD, 16, 4096, 1);
    for _ in 0..200 {
        harness.push(READABLE, &[1, 2, 3], Flags::LAST);
    }
    harness.run_to_rest();
    harness.check_sums();
    assert_eq!(harness.path.statistics.packets, 200);
    assert_eq!(harness.path.statistics.retransmits, 0);
    assert_eq!(harness.most_unanswered, 16, "the window is used, and never passed");
    assert!(harness.path.round_trip().unwrap() < ms(1));
}

// rule T3
#[test]
fn packets_in_flight_never_pass_their_maximum() {
    let mut harness = PathHarness::new(Link { delay: ms(1), ..Link::GOOD }, 16, 4096, 1);
    for _ in 0..200 {
        harness.push(READABLE, &[1], Flags::LAST);
    }
    assert_eq!((harness.sent.len(), harness.path.in_flight()), (16, 16), "the rest waits");
    harness.run_to_rest();
    harness.check_sums();
    assert_eq!(harness.sent.len(), 200);
}

// rule T2
#[test]
fn a_flow_goes_on_in_slow_rounds_while_it_may_keep_packets() {
    let mut harness = PathHarness::new(Link::GOOD, 4096, 1 << 14, 1);
    harness.commit_time = ms(50);
    let kept_max = UNDURABLE_MAX as usize;
    for _ in 0..kept_max + 100 {
        harness.push(READABLE, &[1], Flags::LAST);
    }
    harness.run_for(ms(40));
    assert_eq!(harness.sent.len(), kept_max, "all were accepted, and none is durable");
    assert_eq!(harness.accepted.len(), kept_max);
    harness.run_to_rest();
    harness.check_sums();
    assert_eq!(harness.sent.len(), kept_max + 100);
}

// rule T2
#[test]
fn a_flow_stops_a_window_ahead_of_what_is_not_acknowledged() {
    let mut harness = PathHarness::new(Link::GOOD, 4096, 4096, 1);
    for _ in 0..WINDOW + 100 {
        harness.push(READABLE, &[1], Flags::LAST);
    }
    // All but the first are acknowledged.
    let last = u32::try_from(WINDOW).unwrap();
    for seq in 1..last {
        harness.deliver(&ack(READABLE, seq, 9, 8));
        harness.transmit_elsewhere();
    }
    let sent_once = harness.path.statistics.packets - harness.path.statistics.retransmits;
    assert_eq!(sent_once, u64::from(last), "the rest waits for the first");
    harness.deliver(&ack(READABLE, 0, 9, 8));
    assert_eq!(harness.transmit_elsewhere(), (last..last + 100).collect::<Vec<_>>());
}

// rules T5, T16
#[test]
fn retransmissions_leave_in_one_run_with_new_packets() {
    for (window, expected) in [(64, &[100, 164][..]), (512, &[100, 100, 612])] {
        let mut harness = PathHarness::new(Link::GOOD, window, 4096, 1);
        for _ in 0..WINDOW {
            harness.push(READABLE, &[1], Flags::LAST);
        }
        for seq in 0..100 {
            harness.deliver(&ack(READABLE, seq, 9, 8));
            harness.transmit_elsewhere();
        }
        harness.path.handle_timeout(harness.now);
        let in_flight = harness.path.in_flight();
        harness.deliver(&ack(READABLE, 101, 9, 8));
        // A large window has it twice, and that counts once.
        assert_eq!(harness.transmit_elsewhere(), expected);
        assert_eq!((harness.path.in_flight(), harness.path.statistics.retransmits), (in_flight, 1));
    }
}

// rules T7, T9
#[test]
fn a_push_is_kept_until_its_round_is_durable_and_not_longer() {
    let mut harness = PathHarness::new(Link::GOOD, 16, 4096, 1);
    harness.push(READABLE, &[1], Flags::LAST);
    harness.push(READABLE, &[1], Flags::LAST);
    let frontiers = harness.frontiers();
    assert_eq!(frontiers, [(READABLE, 2), (UNREADABLE, 0)]);
    harness.deliver(&ack(READABLE, 1, 9, 8));
    harness.deliver(&ack(READABLE, 0, 8, 7));
    assert_eq!(harness.accepted.len(), 2);
    assert!(!harness.is_durable(&frontiers), "round 8 is durable, 9 is not");
    assert!(harness.is_durable(&[(READABLE, 1)]));
    // An old answer that comes late takes nothing back, and a copy of one brings nothing.
    harness.deliver(&ack(READABLE, 0, 8, 3));
    assert!(harness.is_durable(&[(READABLE, 1)]));
    harness.deliver(&ack(READABLE, 1, 9, 9));
    assert!(!harness.is_durable(&frontiers));
    let probe = harness.ask(READABLE);
    harness.deliver(&probe_answer(READABLE, probe, 9));
    assert!(harness.is_durable(&frontiers));
    assert_eq!(harness.accepted.values().copied().collect::<Vec<_>>(), [1, 1]);
}

// rules T9, W11
#[test]
fn rounds_may_wrap_while_a_worker_is_away() {
    let mut harness = PathHarness::new(Link::GOOD, 16, 4096, 1);
    harness.push(READABLE, &[1], Flags::LAST);
    harness.deliver(&ack(READABLE, 0, 10, 10));
    // The others have closed 40,000 rounds since: 40,010 looks older than 10.
    harness.push(READABLE, &[1], Flags::LAST);
    harness.deliver(&ack(READABLE, 1, 40_011, 40_010));
    let frontiers = harness.frontiers();
    assert!(!harness.is_durable(&frontiers), "round 40,011 is still open");
    let probe = harness.ask(READABLE);
    harness.deliver(&probe_answer(READABLE, probe, 40_011));
    assert!(harness.is_durable(&frontiers));
}

// rule T11
/// Tests rule W7.
#[test]
fn a_switch_without_the_region_does_not_set_what_is_durable() {
    let mut harness = PathHarness::new(Link { loss: 100, ..Link::GOOD }, 16, 4096, 1);
    for _ in 0..2 {
        harness.push(READABLE, &[1], Flags::LAST);
    }
    // As serial numbers go, the 0 of a process that has just started is newer than this round.
    harness.deliver(&ack(READABLE, 0, 0xff00, 0xfeff));
    harness.deliver(&nack(READABLE, 1, NackReason::UnknownFlow));
    assert_eq!(harness.path.push_flow(READABLE).first(), 0);
    harness.deliver(&ack(READABLE, 1, 0xff00, 0xff00));
    assert_eq!(harness.path.push_flow(READABLE).first(), 0, "it had an answer before, so this may be a copy");
    harness.push(READABLE, &[1], Flags::LAST);
    harness.deliver(&ack(READABLE, 2, 0xff01, 0xff00));
    assert_eq!(harness.path.push_flow(READABLE).first(), 2);
}

/// Answers of a switch to a worker, of any kind and for any reason, with the fields that the copied answer has in common with them.
fn forgeries(seq: u32, durable: u16) -> impl Iterator<Item = Vec<u8>> {
    let header = move |kind, flags| Header { round: 8, durable, ..header(kind, flags, READABLE, seq) };
    let kinds = [Kind::Push, Kind::Pull, Kind::Install, Kind::Drain, Kind::Ack, Kind::Stream];
    let flags = [Flags::NONE, Flags::VALUES, Flags::RETRANSMIT, Flags::LAST];
    let answers = kinds.into_iter().flat_map(move |kind| flags.map(|flags| header(kind, flags)));
    let refusals = (0..8).map(move |reason| Header { round: reason, ..header(Kind::Nack, Flags::NONE) });
    answers.chain(refusals).map(|header| header.to_bytes().to_vec())
}

// rule T17
#[test]
fn copied_answers_do_not_set_what_is_durable() {
    let mut harness = PathHarness::new(LOST, 16, 4096, 1);
    for seq in 0..2 {
        harness.push(READABLE, &[1], Flags::LAST);
        harness.deliver(&ack(READABLE, seq, 9, 8));
    }
    let probe = harness.ask(READABLE);
    harness.deliver(&probe_answer(READABLE, probe, 8));
    harness.push(READABLE, &[1], Flags::LAST);
    for seq in [0, 1, 3, probe, probe + 1] {
        for forgery in forgeries(seq, 1008) {
            harness.deliver(&forgery);
        }
    }
    assert_eq!((harness.path.push_flow(READABLE).first(), harness.accepted.len()), (0, 2));
}

// rule T17
#[test]
fn answers_are_fresh_only_if_first_to_a_packet_sent_once() {
    let mut harness = PathHarness::new(LOST, 16, 4096, 1);
    harness.push(READABLE, &[1], Flags::LAST);
    // It is sent again: it is not certain which of the two this answers, or when that was.
    harness.run_for(ms(25));
    assert!(harness.path.statistics.retransmits > 0);
    harness.deliver(&ack(READABLE, 0, 9, 9));
    assert_eq!((harness.accepted.len(), harness.path.push_flow(READABLE).first()), (1, 0));
    // Neither is an answer that was kept back for 10 s.
    harness.push(READABLE, &[1], Flags::LAST);
    harness.now = harness.now + Duration::from_secs(10);
    harness.deliver(&ack(READABLE, 1, 10, 10));
    assert_eq!((harness.accepted.len(), harness.path.push_flow(READABLE).first()), (2, 0));
    let probe = harness.ask(READABLE);
    harness.deliver(&probe_answer(READABLE, probe, 10));
    assert_eq!(harness.path.push_flow(READABLE).first(), 2);
}

// rule T17
#[test]
fn copied_answers_do_not_end_a_timeout_or_put_off_a_probe() {
    let mut harness = PathHarness::new(Link::GOOD, 16, 4096, 1);
    harness.commit_time = Duration::from_secs(100);
    harness.push(READABLE, &[1], Flags::LAST);
    harness.run_for(ms(5));
    assert_eq!(harness.accepted.len(), 1);
    harness.link = LOST;
    let mut unreachable = false;
    for _ in 0..30 {
        harness.run_for(ms(100));
        unreachable |= harness.path.take_unreachable(harness.now);
        for forgery in forgeries(0, 0).chain(forgeries(PROBES_BEGIN, 0)) {
            harness.deliver(&forgery);
        }
    }
    assert!(unreachable, "its switch is gone, and forged answers do not count");
}

#[test]
fn an_acknowledgement_of_what_was_never_sent_is_ignored() {
    let mut harness = PathHarness::new(Link::GOOD, 1, 4096, 1);
    for _ in 0..3 {
        harness.push(READABLE, &[1], Flags::LAST);
    }
    assert_eq!(harness.sent.len(), 1);
    harness.deliver(&ack(READABLE, 2, 1, 0));
    assert_eq!(harness.accepted.len(), 0);
    harness.run_to_rest();
    harness.check_sums();
}

// rule T10
#[test]
fn values_not_asked_for_or_too_few_of_them_are_no_answer() {
    let mut harness = PathHarness::new(Link::GOOD, 8, 4096, 1);
    let push = harness.push(READABLE, &[1, 2], Flags::LAST);
    let pull = harness.pull(READABLE, &[1, 2]);
    harness.deliver(&write(Kind::Ack, Flags::VALUES, READABLE, 0, &[(1, 7), (2, 7)]));
    harness.deliver(&write(Kind::Pull, Flags::VALUES, READABLE, FLOW_PACKETS_MAX, &[(1, 7)]));
    assert_eq!(harness.path.statistics.dropped, 2);
    assert_eq!(harness.open(), 2);
    harness.run_to_rest();
    assert_eq!(harness.accepted[&push], 1);
    assert_eq!(harness.values[&pull], [101, 102]);
}

// rule T6
#[test]
fn a_refused_push_waits_a_moment_and_comes_again() {
    let mut harness = PathHarness::new(Link::GOOD, 8, 4096, 1);
    harness.push(READABLE, &[1], Flags::LAST);
    let refused_at = harness.now;
    harness.deliver(&nack(READABLE, 0, NackReason::BankFull));
    harness.deliver(&nack(READABLE, 0, NackReason::BankFull));
    assert_eq!(harness.path.in_flight(), 0);
    assert_eq!(harness.path.poll_timeout(), Some(refused_at + ms(1)));
    harness.arrivals.retain(|_, arrival| matches!(arrival, Arrival::Flip));
    harness.run_to_rest();
    harness.check_sums();
    assert_eq!(harness.path.statistics.retransmits, 1);
    assert_eq!(harness.path.statistics.refused, 2);
}

#[test]
fn an_answer_that_overtakes_its_own_retransmission_is_enough() {
    let mut harness = PathHarness::new(Link { delay: ms(25), ..Link::GOOD }, 8, 4096, 1);
    harness.commit_time = Duration::from_nanos(1);
    harness.push(READABLE, &[1], Flags::LAST);
    // A timer takes it for lost; before it is sent again the answer comes, and its round is durable already.
    harness.now = harness.now + ms(21);
    harness.path.handle_timeout(harness.now);
    harness.deliver(&ack(READABLE, 0, 1, 1));
    harness.transmit();
    assert_eq!(harness.path.statistics.retransmits, 0);
}

#[test]
fn a_long_round_trip_is_learnt_and_then_nothing_is_sent_twice() {
    let mut harness = PathHarness::new(Link { delay: ms(20), ..Link::GOOD }, 8, 4096, 1);
    for _ in 0..200 {
        harness.push(READABLE, &[1], Flags::LAST);
    }
    harness.run_to_rest();
    let early = harness.path.statistics.retransmits;
    assert!(early <= 40, "{early} of 200 packets were sent again over a link that loses none");
    assert!(harness.path.round_trip().unwrap() >= ms(38));
    for _ in 0..200 {
        harness.push(READABLE, &[1], Flags::LAST);
    }
    harness.run_to_rest();
    assert_eq!(harness.path.statistics.retransmits, early);
    harness.check_sums();
}

#[test]
fn a_round_trip_that_grows_tenfold_is_learnt_too() {
    let mut harness = PathHarness::new(Link { delay: ms(1), ..Link::GOOD }, 8, 4096, 1);
    for _ in 0..50 {
        harness.push(READABLE, &[1], Flags::LAST);
    }
    harness.run_to_rest();
    harness.link.delay = ms(20);
    for _ in 0..200 {
        harness.push(READABLE, &[1], Flags::LAST);
    }
    harness.run_to_rest();
    let retransmits = harness.path.statistics.retransmits;
    assert!(retransmits <= 40, "{retransmits} of 200 packets were sent again over a link that loses none");
    harness.check_sums();
}

// rule T5
#[test]
fn lost_packets_are_noticed_by_later_ones_before_the_timer() {
    let mut harness = PathHarness::new(Link { delay: ms(3), ..Link::GOOD }, 8, 4096, 1);
    harness.push(READABLE, &[1], Flags::LAST);
    harness.run_to_rest();
    harness.push(READABLE, &[1], Flags::LAST);
    harness.arrivals.retain(|_, arrival| matches!(arrival, Arrival::Flip));
    let lost_at = harness.now;
    harness.now = harness.now + ms(1);
    harness.push(READABLE, &[1], Flags::LAST);
    while harness.path.statistics.retransmits == 0 {
        harness.step();
    }
    let waited = harness.now.since(lost_at);
    assert!(waited >= ms(6) && waited <= ms(8), "round trip 6 ms, waited {waited:?}");
    harness.run_to_rest();
    harness.check_sums();
}

/// Tests rule T5.
#[test]
fn a_lost_packet_is_noticed_by_one_sent_after_it_at_once() {
    let mut harness = PathHarness::new(Link { delay: ms(3), ..Link::GOOD }, 8, 4096, 1);
    harness.link.loss = 100;
    harness.push(READABLE, &[1], Flags::LAST);
    harness.link.loss = 0;
    harness.push(READABLE, &[1], Flags::LAST);
    let sent_at = harness.now;
    while harness.path.statistics.retransmits == 0 {
        harness.step();
    }
    assert_eq!(harness.now.since(sent_at), ms(6), "with the answer to the other one");
    harness.run_to_rest();
    harness.check_sums();
}

#[test]
fn the_last_packet_is_sent_again_once_before_its_timeout() {
    let mut harness = PathHarness::new(Link { delay: Duration::from_micros(50), ..Link::GOOD }, 8, 4096, 1);
    for _ in 0..100 {
        harness.push(READABLE, &[1], Flags::LAST);
        harness.run_for(ms(1));
    }
    harness.run_to_rest();
    harness.link.loss = 100;
    harness.push(READABLE, &[1], Flags::LAST);
    let (sent_at, mut sent_again) = (harness.now, Vec::new());
    while harness.now < sent_at + ms(40) {
        harness.step();
        if harness.path.statistics.retransmits > sent_again.len() as u64 {
            sent_again.push(harness.now.since(sent_at).as_millis());
        }
    }
    assert_eq!(sent_again, [1, 11, 31], "after 1 ms, and then as the timer fires");
}

// rule T4
#[test]
fn a_dead_switch_is_asked_less_and_less_often() {
    let mut harness = PathHarness::new(Link { loss: 100, ..Link::GOOD }, 8, 4096, 1);
    harness.push(READABLE, &[1], Flags::LAST);
    harness.run_for(Duration::from_secs(2));
    let sent = harness.path.statistics.packets;
    assert!((10..=16).contains(&sent), "20 + 40 + 80 + 160 ms, then every 200 ms: {sent} in 2 s");
    harness.link = Link::BAD;
    harness.run_to_rest();
    harness.check_sums();
}

/// Returns true if a worker that looks every 100 ms reports its switch as unreachable.
fn is_unreachable_within(harness: &mut PathHarness, time: Duration) -> bool {
    let mut unreachable = false;
    for _ in 0..time.as_millis() / 100 {
        harness.run_for(ms(100));
        unreachable |= harness.path.take_unreachable(harness.now);
    }
    unreachable
}

#[test]
fn a_switch_that_owes_an_answer_for_two_seconds_is_unreachable() {
    let mut harness = PathHarness::new(Link::GOOD, 8, 4096, 1);
    harness.push(READABLE, &[1], Flags::LAST);
    harness.run_to_rest();
    assert!(!is_unreachable_within(&mut harness, ms(5000)), "no switch was asked for anything");
    harness.link.loss = 100;
    harness.push(READABLE, &[1], Flags::LAST);
    assert!(!is_unreachable_within(&mut harness, ms(1900)));
    assert!(is_unreachable_within(&mut harness, ms(300)));
    assert!(!is_unreachable_within(&mut harness, ms(1700)), "it is reported once");
    assert!(is_unreachable_within(&mut harness, ms(300)), "and again");
    harness.link = Link::GOOD;
    assert!(!is_unreachable_within(&mut harness, ms(4000)));
    harness.run_to_rest();
    harness.check_sums();
}

// rules M14, T17
#[test]
fn a_switch_that_answered_what_was_sent_twice_owes_nothing() {
    let mut harness = PathHarness::new(LOST, 16, 4096, 1);
    harness.pull(READABLE, &[1]);
    harness.run_for(ms(25));
    assert!(harness.path.statistics.retransmits > 0);
    harness.deliver(&write(Kind::Pull, Flags::VALUES, READABLE, FLOW_PACKETS_MAX, &[(1, 7)]));
    assert_eq!(harness.open(), 0);
    // No switch is asked for three seconds; then the way is longer than a few timers.
    assert!(!is_unreachable_within(&mut harness, ms(3000)));
    harness.push(READABLE, &[1], Flags::LAST);
    assert!(!is_unreachable_within(&mut harness, ms(1800)));
}

// rules M14, T8
#[test]
fn a_switch_that_refuses_for_long_is_not_unreachable() {
    let mut harness = PathHarness::new(Link::GOOD, 16, 4096, 1);
    harness.pipeline.region_mut(harness::JOB, READABLE).unwrap().set_active(false);
    harness.push(READABLE, &[1], Flags::LAST);
    assert!(!is_unreachable_within(&mut harness, ms(5000)));
    assert!(harness.path.statistics.refused > 1000);
}

// rules M14, V2
#[test]
fn a_switch_that_acts_on_a_newer_view_is_not_unreachable() {
    let mut harness = PathHarness::new(LOST, 16, 4096, 1);
    harness.push(READABLE, &[1], Flags::LAST);
    for _ in 0..30 {
        let until = harness.now + ms(200);
        while harness.now < until {
            let probe = harness.ask(READABLE);
            let round = NackReason::StaleView as u16;
            let refusal = header(Kind::Nack, Flags::NONE, READABLE, probe);
            harness.deliver(&Header { view: harness::VIEW_ON_WIRE + 1, round, ..refusal }.to_bytes());
        }
        assert!(!harness.path.take_unreachable(harness.now));
    }
    assert!(is_unreachable_within(&mut harness, ms(2300)), "no switch answers any more");
}

#[test]
fn a_switch_lost_after_all_was_accepted_is_unreachable_too() {
    let mut harness = PathHarness::new(Link::GOOD, 8, 4096, 1);
    harness.commit_time = ms(50);
    harness.push(READABLE, &[1], Flags::LAST);
    harness.run_for(ms(5));
    assert_eq!(harness.accepted.len(), 1);
    harness.link.loss = 100;
    let unreachable = is_unreachable_within(&mut harness, ms(2300));
    assert!(unreachable, "a push is not durable, and thousands of probes were not answered");
}
