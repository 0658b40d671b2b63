//! A burst does what its packets do one by one; only acknowledgements are fewer.

use std::collections::{BTreeMap, BTreeSet};

use libra_dataplane::{Entry, Flags, Header, Kind, Packet, RegionConfig, Verdict};
use proptest::prelude::*;

use crate::bytes::{any_flags, any_kind};
use crate::scene::{
    JOB, TestPipeline, any_config, any_entries, entries, header, mend, pipeline, small_config, write,
};

/// An answer, with an acknowledgement of many packets taken apart.
type Answer = (Header, Vec<Entry>);

fn is_acknowledgement(answer: &Header) -> bool {
    answer.kind == Kind::Ack && !answer.flags.contains(Flags::VALUES)
}

fn take_apart(answer: &[u8], into: &mut Vec<Answer>) {
    let packet = Packet::parse(answer).unwrap();
    if !is_acknowledgement(&packet.header) {
        into.push((packet.header, packet.entries().collect()));
        return;
    }
    let seqs: Vec<u32> = packet.acknowledged().flat_map(|range| range.iter()).collect();
    assert!(seqs.contains(&packet.header.seq));
    into.extend(seqs.into_iter().map(|seq| (Header { entries: 0, seq, ..packet.header }, vec![])));
}

fn burst(pipeline: &mut TestPipeline, from: (u16, u16), packets: &[Vec<u8>]) -> (Vec<Answer>, usize) {
    let mut packets = packets.to_vec();
    let (mut answers, mut sent) = (Vec::new(), 0);
    pipeline.process_burst(from, packets.iter_mut().map(Vec::as_mut_slice), |answer| {
        sent += 1;
        take_apart(answer, &mut answers);
    });
    (answers, sent)
}

// rule W8
#[test]
fn acknowledgements_become_ranges() {
    let mut pipeline = pipeline(&[small_config()]);
    let push = |seq| write(header(Kind::Push, 0, seq), &entries(&[(0, 1)]));
    let mut packets = [push(4), push(5), push(6), push(9), push(6)];
    let mut sent = Vec::new();
    let each = packets.iter_mut().map(Vec::as_mut_slice);
    pipeline.process_burst((JOB, 0), each, |answer| sent.push(answer.to_vec()));
    let [only] = sent.as_slice() else { panic!("one answer, not {}", sent.len()) };
    let ranges: Vec<_> =
        Packet::parse(only).unwrap().entries().map(|entry| (entry.value, entry.cell)).collect();
    assert_eq!(ranges, [(4, 3), (9, 1), (6, 1)]);
    assert_eq!((pipeline.counters().pushes, pipeline.counters().duplicates), (4, 1));
}

/// The ranges of the only acknowledgement of pushes, by first number and count.
fn ranges(pipeline: &mut TestPipeline, seqs: &[u32]) -> Vec<(u32, u16)> {
    let mut packets: Vec<_> =
        seqs.iter().map(|seq| write(header(Kind::Push, 0, *seq), &entries(&[(0, 1)]))).collect();
    let mut sent = Vec::new();
    let each = packets.iter_mut().map(Vec::as_mut_slice);
    pipeline.process_burst((JOB, 0), each, |answer| sent.push(answer.to_vec()));
    let [only] = sent.as_slice() else { panic!("one answer, not {}", sent.len()) };
    Packet::parse(only).unwrap().acknowledged().map(|range| (range.first, range.count)).collect()
}

// rule W8
#[test]
fn packets_taken_before_are_acknowledged_again() {
    let config = RegionConfig { bank_packets_max: 1000, ..small_config() };
    let mut pipeline = pipeline(&[config]);
    assert_eq!(ranges(&mut pipeline, &[0, 1, 2, 4]), [(0, 3), (4, 1)]);
    assert_eq!(ranges(&mut pipeline, &[5, 6]), [(0, 3), (4, 3)]);
    assert_eq!(ranges(&mut pipeline, &[3, 3]), [(0, 3), (4, 3), (3, 1)], "a packet that was sent twice");
    assert_eq!(ranges(&mut pipeline, &[7]), [(7, 1)], "one packet is acknowledged alone");
    let many: Vec<u32> = (8..200).collect();
    assert_eq!(ranges(&mut pipeline, &many), [(8, 192)]);
    assert_eq!(ranges(&mut pipeline, &[200, 201]), [(74, 128)], "the 128 highest");
}

// rule D2
#[test]
fn an_acknowledgement_of_a_round_names_no_packet_of_the_next() {
    let mut pipeline = pipeline(&[small_config()]);
    ranges(&mut pipeline, &[0, 1]);
    pipeline.region_mut(JOB, 0).unwrap().flip().unwrap();
    // Those of the round before count for the present one, which is sure to close, but not the other way round.
    assert_eq!(ranges(&mut pipeline, &[3, 4]), [(0, 2), (3, 2)]);
    assert_eq!(ranges(&mut pipeline, &[0, 1]), [(0, 2)]);
}

#[test]
fn one_packet_is_acknowledged_without_entries() {
    let mut pipeline = pipeline(&[small_config()]);
    let mut packet = write(header(Kind::Push, 0, 4), &entries(&[(0, 1)]));
    pipeline.process_burst((JOB, 0), [packet.as_mut_slice()], |answer| {
        let answer = Header::parse(answer).unwrap();
        assert_eq!((answer.kind, answer.seq, answer.entries, answer.tag), (Kind::Ack, 4, 0, 0));
    });
}

#[test]
fn more_ranges_than_fit_go_into_several_acknowledgements() {
    let config = RegionConfig {
        bank_packets_max: 500,
        arithmetic: libra_dataplane::Arithmetic::F32,
        ..small_config()
    };
    let mut pipeline = pipeline(&[config]);
    let packets: Vec<_> = (0..200).map(|n| write(header(Kind::Push, 0, 2 * n), &[])).collect();
    let (answers, sent) = burst(&mut pipeline, (JOB, 0), &packets);
    assert_eq!(sent, 4);
    let acknowledged: BTreeSet<u32> = answers.iter().map(|(header, _)| header.seq).collect();
    assert!(acknowledged.into_iter().eq((0..200).map(|n| 2 * n)));
}

// rule W3
#[test]
fn others_packets_and_kinds_are_dropped() {
    let mut pipeline = pipeline(&[small_config()]);
    let packets = [
        write(header(Kind::Push, 1, 0), &entries(&[(0, 1)])),
        write(Header { job: JOB + 1, ..header(Kind::Push, 0, 0) }, &[]),
        write(header(Kind::Install, 0, 0), &entries(&[(0, 1)])),
        write(header(Kind::Drain, 0, 0), &entries(&[(0, 1)])),
        write(header(Kind::Ack, 0, 0), &[]),
        vec![1, 2, 3],
    ];
    assert_eq!(burst(&mut pipeline, (JOB, 0), &packets).1, 0);
    let counters = pipeline.counters();
    assert_eq!((counters.foreign, counters.unexpected, counters.malformed, counters.packets), (2, 3, 1, 6));
}

proptest! {
    #[test]
    fn a_burst_is_its_packets_one_by_one(
        configs in (any_config(0), any_config(1)),
        readable in any::<[bool; 2]>(),
        packets in prop::collection::vec(
            (
                prop_oneof![6 => Just(Kind::Push), 2 => Just(Kind::Pull), 1 => any_kind()],
                prop_oneof![3 => Just(Flags::NONE), 1 => any_flags()],
                prop_oneof![8 => Just(0_u16), 1 => 0..3_u16],
                prop_oneof![3 => Just(0_u8), 1 => 0..3_u8],
                prop_oneof![3 => Just(0_u32), 1 => 0..9_u32],
                any_entries(),
            ),
            0..40,
        ),
    ) {
        let configs = [configs.0, configs.1];
        let mut one_by_one = pipeline(&configs);
        for (region, readable) in one_by_one.regions_mut().zip(readable) {
            region.set_readable(readable);
        }
        let mut at_once = one_by_one.clone();

        let packets: Vec<_> = (0..)
            .zip(packets)
            .map(|(place, (kind, flags, worker, region, back, mut entries))| {
                let seq = u32::saturating_sub(place, back);
                if let Some(config) = configs.get(usize::from(region)) {
                    mend(config, &mut entries);
                }
                write(Header { flags, region, ..header(kind, worker, seq) }, &entries)
            })
            .collect();

        let mut barred = 0;
        let mut taken_by = BTreeMap::new();
        for packets in packets.chunks(15) {
            let mut expected = Vec::new();
            for packet in packets {
                let header = Header::parse(packet).unwrap();
                if header.worker != 0 || !matches!(header.kind, Kind::Push | Kind::Pull) {
                    barred += 1;
                    continue;
                }
                let mut buffer = packet.clone();
                if let Verdict::Reply(bytes) = one_by_one.process(&mut buffer) {
                    take_apart(&buffer[..bytes], &mut expected);
                    let answer = Header::parse(&buffer[..bytes]).unwrap();
                    if answer.kind == Kind::Ack {
                        taken_by.entry((answer.region, answer.seq)).or_insert(answer.round);
                    }
                }
            }
            let (answers, sent) = burst(&mut at_once, (JOB, 0), packets);
            prop_assert!(sent <= expected.len());
            // Numbers that are listed again were taken, and by this round or one before it.
            let (said, repeated): (Vec<_>, Vec<_>) =
                answers.into_iter().partition(|answer| expected.contains(answer));
            for (header, _) in repeated {
                prop_assert!(is_acknowledgement(&header));
                let round = taken_by.get(&(header.region, header.seq));
                prop_assert!(round.is_some_and(|round| *round <= header.round), "{header:?} {round:?}");
            }
            let others = |answers: &[Answer]| -> Vec<Answer> {
                answers.iter().filter(|(header, _)| !is_acknowledgement(header)).cloned().collect()
            };
            prop_assert_eq!(others(&said), others(&expected));
            prop_assert!(expected.iter().all(|answer| said.contains(answer)), "{said:?} {expected:?}");
            // So that the next burst has duplicates of this round among pushes of the next.
            for region in one_by_one.regions_mut().chain(at_once.regions_mut()) {
                region.drain(|_, _| {});
                region.set_durable(region.round().wrapping_sub(1));
                region.flip().unwrap();
            }
        }
        prop_assert_eq!(at_once.regions(), one_by_one.regions());
        let counters = at_once.counters();
        prop_assert_eq!(counters.foreign + counters.unexpected, barred);
        prop_assert_eq!(counters.packets, one_by_one.counters().packets + barred);
    }
}
