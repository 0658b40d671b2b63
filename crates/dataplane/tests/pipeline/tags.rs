//! In a job with keys a packet counts only with its tag, and every answer has one.

use std::ops::Range;

use libra_dataplane::{
    BODY_KEY_BYTES, BankPackets, BodyKey, Counters, Direction, Flags, HEADER_BYTES, Header, Kind, Packet,
    PathKeys, TagKey, Tags, packet_bytes,
};
use proptest::prelude::*;

use crate::scene::{
    JOB, TestPipeline, VIEW, VIEW_ID, any_config, any_entries, entries, header, mend, pipeline, small_config,
    write,
};

fn body_key() -> BodyKey {
    BodyKey::from_bytes(&core::array::from_fn::<_, BODY_KEY_BYTES, _>(|at| {
        u8::try_from((at * 167 + at / 256 * 13) % 256).unwrap()
    }))
}

/// Another one for each worker.
fn path_keys(worker: u8) -> PathKeys {
    PathKeys { up: TagKey::from_bytes([worker; 16]), down: TagKey::from_bytes([0x80 | worker; 16]) }
}

fn mac(body: &BodyKey) -> Tags<'_> {
    Tags::Mac { body, keys: path_keys(1) }
}

/// Executes packets of worker 0, and returns its answers.
fn burst(pipeline: &mut TestPipeline, tags: Option<Tags<'_>>, packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut packets = packets.to_vec();
    let mut answers = Vec::new();
    let each = packets.iter_mut().map(Vec::as_mut_slice);
    pipeline.process_tagged_burst((JOB, 0), tags, each, |answer| answers.push(answer.to_vec()));
    answers
}

fn signed(mut packet: Vec<u8>, tags: Tags<'_>, view: u64) -> Vec<u8> {
    tags.sign(Direction::Up, &mut packet, view);
    packet
}

fn push(seq: u32) -> Vec<u8> {
    write(header(Kind::Push, 0, seq), &entries(&[(0, 5), (1, 6)]))
}

/// The packets that the region has taken of worker 0, and how many of all.
fn taken(pipeline: &TestPipeline) -> (Vec<Range<u32>>, BankPackets) {
    let region = &pipeline.regions()[0];
    (region.window(0).unwrap().accepted().collect(), region.active_packets())
}

fn without_tag(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    let header = Header::parse_without_entries(&packet).unwrap();
    Header { tag: 0, ..header }.emit(&mut packet);
    packet
}

// rules A3, A4
#[test]
fn what_is_wrong_in_any_bit_changes_nothing_and_is_not_answered() {
    let key = body_key();
    let right = signed(push(7), mac(&key), VIEW_ID);
    for bit in 0..8 * right.len() {
        let mut pipeline = pipeline(&[small_config()]);
        let before = pipeline.clone();
        let mut wrong = right.clone();
        wrong[bit / 8] ^= 1 << (bit % 8);
        assert!(burst(&mut pipeline, Some(mac(&key)), &[wrong]).is_empty(), "bit {bit}");
        let counters = pipeline.counters();
        let dropped =
            counters.forged + counters.stale + counters.malformed + counters.foreign + counters.unexpected;
        assert_eq!((counters.packets, dropped), (1, 1), "bit {bit}");
        assert!(bit / 8 < HEADER_BYTES - 8 || counters.forged == 1, "bit {bit}");
        assert_eq!(taken(&pipeline), taken(&before));
    }
    let mut pipeline = pipeline(&[small_config()]);
    let answers = burst(&mut pipeline, Some(mac(&key)), &[right]);
    assert!(mac(&key).is_authentic(Direction::Down, &answers[0], VIEW_ID));
    assert_eq!(pipeline.counters(), Counters { packets: 1, pushes: 1, ..Counters::default() });
}

// rule A2
#[test]
fn a_mac_is_of_one_worker_one_direction_and_one_view() {
    let key = body_key();
    let other_worker = Tags::Mac { body: &key, keys: path_keys(2) };
    let mut other_direction = push(0);
    mac(&key).sign(Direction::Down, &mut other_direction, VIEW_ID);
    for (wrong, what) in [
        (signed(push(0), other_worker, VIEW_ID), "the key of another worker"),
        (other_direction, "the key of answers"),
        (signed(push(0), mac(&key), VIEW_ID + (1 << 16)), "another view that looks the same in the header"),
        (signed(push(0), mac(&key), VIEW.into()), "a view without its upper bits"),
        (push(0), "no tag"),
    ] {
        let mut pipeline = pipeline(&[small_config()]);
        assert!(burst(&mut pipeline, Some(mac(&key)), &[wrong]).is_empty(), "{what}");
        assert_eq!(pipeline.counters().forged, 1, "{what}");
    }
}

// rule A3
#[test]
fn with_macs_what_is_stale_is_not_answered() {
    let key = body_key();
    let mut pipeline = pipeline(&[small_config()]);
    let stale = [
        Header { view: VIEW + 1, ..header(Kind::Push, 0, 0) },
        Header { plan: 99, ..header(Kind::Pull, 0, 0) },
        Header { region: 9, ..header(Kind::Push, 0, 0) },
    ];
    let packets = stale.map(|header| signed(write(header, &[]), mac(&key), VIEW_ID + 1));
    assert!(burst(&mut pipeline, Some(mac(&key)), &packets).is_empty());
    assert_eq!((pipeline.counters().stale, pipeline.counters().packets), (3, 3));
}

// rule A5
#[test]
fn a_cookie_is_the_same_in_packets_and_answers() {
    let (cookie, other) = (Tags::Cookie(0x0123_4567_89ab_cdef), Tags::Cookie(1));
    let mut pipeline = pipeline(&[small_config()]);
    assert!(burst(&mut pipeline, Some(cookie), &[push(0), signed(push(0), other, 0)]).is_empty());
    assert_eq!(pipeline.counters().forged, 2);
    let stale = write(Header { view: VIEW + 1, ..header(Kind::Push, 0, 1) }, &[]);
    let answers =
        burst(&mut pipeline, Some(cookie), &[push(0), stale].map(|packet| signed(packet, cookie, 0)));
    let kinds = answers.iter().map(|answer| Header::parse(answer).unwrap());
    assert_eq!(
        kinds.map(|answer| (answer.kind, answer.tag)).collect::<Vec<_>>(),
        [Kind::Ack, Kind::Nack].map(|kind| (kind, 0x0123_4567_89ab_cdef)),
        "what is stale is answered: its sender has the cookie"
    );
}

// rule A4
#[test]
fn each_kind_of_answer_has_its_tag() {
    let key = body_key();
    let mut pipeline = pipeline(&[small_config()]);
    let pull = write(header(Kind::Pull, 0, 1 << 30), &entries(&[(0, 0), (1, 0)]));
    let probe = write(header(Kind::Pull, 0, 1 << 31), &[]);
    let with_values = write(Header { flags: Flags::VALUES, ..header(Kind::Push, 0, 2) }, &entries(&[(1, 1)]));
    let mut kinds = Vec::new();
    for is_readable in [false, true] {
        pipeline.region_mut(JOB, 0).unwrap().set_readable(is_readable);
        for packets in
            [vec![pull.clone()], vec![probe.clone()], vec![push(0), push(1)], vec![with_values.clone()]]
        {
            let packets: Vec<_> =
                packets.into_iter().map(|packet| signed(packet, mac(&key), VIEW_ID)).collect();
            for answer in burst(&mut pipeline, Some(mac(&key)), &packets) {
                let packet = Packet::parse(&answer).unwrap();
                assert_eq!(answer.len(), packet_bytes(packet.header.entries));
                assert!(mac(&key).is_authentic(Direction::Down, &answer, VIEW_ID), "{:?}", packet.header);
                kinds.push((packet.header.kind, packet.header.entries));
            }
        }
    }
    let expected = [
        (Kind::Nack, 0),
        (Kind::Pull, 0),
        (Kind::Ack, 1),
        (Kind::Ack, 0),
        (Kind::Pull, 2),
        (Kind::Pull, 0),
        // Again, and beside it what the region has taken since.
        (Kind::Ack, 2),
        (Kind::Ack, 1),
    ];
    assert_eq!(kinds, expected);
}

proptest! {
    // rules A3, A4
    #[test]
    fn packets_with_tags_do_what_they_do_without(
        config in any_config(0),
        readable in any::<bool>(),
        packets in prop::collection::vec(
            (prop_oneof![4 => Just(Kind::Push), 1 => Just(Kind::Pull)], prop_oneof![3 => Just(0_u32), 1 => 0..9_u32],
             any_entries(), any::<Option<u16>>()),
            0..30,
        ),
    ) {
        let key = body_key();
        let mut plain = pipeline(&[config]);
        plain.region_mut(JOB, 0).unwrap().set_readable(readable);
        let mut tagged = plain.clone();
        for tags in [mac(&key), Tags::Cookie(77)] {
            let (mut right, mut all, mut forged) = (Vec::new(), Vec::new(), 0);
            for (place, (kind, back, mut entries, wrong)) in (0_u32..).zip(packets.clone()) {
                mend(&config, &mut entries);
                let packet = write(header(kind, 0, place.saturating_sub(back)), &entries);
                // Before the right one comes one that is not.
                if let Some(bits) = wrong.filter(|bits| *bits != 0) {
                    let mut packet = signed(packet.clone(), tags, VIEW_ID);
                    packet[HEADER_BYTES - 1] ^= bits.to_be_bytes()[0];
                    packet[HEADER_BYTES - 2] ^= bits.to_be_bytes()[1];
                    all.push(packet);
                    forged += 1;
                }
                all.push(signed(packet.clone(), tags, VIEW_ID));
                right.push(packet);
            }
            let (before, expected) = (tagged.counters(), burst(&mut plain, None, &right));
            let answers = burst(&mut tagged, Some(tags), &all);
            for answer in &answers {
                prop_assert!(tags.is_authentic(Direction::Down, answer, VIEW_ID));
            }
            let bare = |answers: &[Vec<u8>]| answers.iter().map(|answer| without_tag(answer)).collect::<Vec<_>>();
            prop_assert_eq!(bare(&answers), bare(&expected));
            prop_assert_eq!(tagged.counters().forged - before.forged, forged);
        }
        prop_assert_eq!(taken(&plain), taken(&tagged));
    }
}
