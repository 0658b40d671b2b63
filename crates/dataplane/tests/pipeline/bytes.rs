//! No bytes make the pipeline panic, and whatever it answers is a packet no longer than the question.
//!
//! It means most in a build that checks for overflow, as the one for tests does.

use libra_dataplane::{Flags, Header, Kind, Packet, Verdict};
use proptest::prelude::*;

use crate::scene::{JOB, TestPipeline, any_config, any_entries, header, mend, pipeline, write};

fn survives(pipeline: &mut TestPipeline, bytes: &[u8]) {
    let mut buffer = bytes.to_vec();
    if let Verdict::Reply(length) = pipeline.process(&mut buffer) {
        assert!(length <= bytes.len());
        let answer = Packet::parse(&buffer[..length]).unwrap().header;
        assert!(matches!(answer.kind, Kind::Ack | Kind::Nack | Kind::Pull | Kind::Drain));
        assert_eq!(answer.kind == Kind::Nack, answer.nack_reason().is_some());
    }
    let mut buffer = bytes.to_vec();
    pipeline.process_burst((JOB, 0), [buffer.as_mut_slice()], |answer| {
        Packet::parse(answer).unwrap();
    });
    let counters = pipeline.counters();
    let fates = counters.pushes + counters.duplicates + counters.pulls + counters.installs + counters.drains;
    assert_eq!(counters.packets, fates + counters.refused() + counters.dropped());
}

pub(crate) fn any_kind() -> impl Strategy<Value = Kind> {
    (1..8_u8).prop_map(|code| Kind::from_code(code).unwrap())
}

pub(crate) fn any_flags() -> impl Strategy<Value = Flags> {
    (0..8_u8).prop_map(|bits| Flags::from_bits(bits).unwrap())
}

proptest! {
    // rule W12
    #[test]
    fn arbitrary_bytes(config in any_config(0), bytes in prop::collection::vec(any::<u8>(), 0..1600)) {
        survives(&mut pipeline(&[config]), &bytes);
    }

    #[test]
    fn arbitrary_bytes_after_a_good_beginning(
        config in any_config(0),
        kind in any_kind(),
        worker in 0..4_u16,
        body in prop::collection::vec(any::<u8>(), 0..1600),
        readable in any::<bool>(),
    ) {
        let mut pipeline = pipeline(&[config]);
        pipeline.region_mut(JOB, 0).unwrap().set_readable(readable);
        let entries = u8::try_from(body.len() / 6).unwrap_or(u8::MAX);
        let mut bytes = Header { entries, ..header(kind, worker, 7) }.to_bytes().to_vec();
        bytes.extend(body.iter().take(usize::from(entries) * 6));
        survives(&mut pipeline, &bytes);
    }

    #[test]
    fn sound_packets_with_a_few_bytes_changed(
        config in any_config(0),
        packets in prop::collection::vec(
            (any_kind(), any_flags(), any_entries(), prop::collection::vec((any::<u16>(), any::<u8>()), 0..3)),
            1..20,
        ),
    ) {
        let mut pipeline = pipeline(&[config]);
        pipeline.region_mut(JOB, 0).unwrap().set_readable(true);
        for (seq, (kind, flags, mut entries, changes)) in (0..).zip(packets) {
            mend(&config, &mut entries);
            let mut bytes = write(Header { flags, ..header(kind, 0, seq) }, &entries);
            for (place, byte) in changes {
                let place = usize::from(place) % bytes.len();
                bytes[place] = byte;
            }
            survives(&mut pipeline, &bytes);
        }
    }

    #[test]
    fn headers_come_back_as_they_were_written(
        kind in any_kind(),
        flags in any_flags(),
        words in any::<[u16; 6]>(),
        region in any::<u8>(),
        seq in any::<u32>(),
        tag in any::<u64>(),
        entries in any_entries(),
    ) {
        let [job, worker, plan, view, round, durable] = words;
        let count = u8::try_from(entries.len()).unwrap();
        let header =
            Header { kind, flags, entries: count, job, worker, plan, view, region, round, durable, seq, tag };
        let bytes = write(header, &entries);
        let packet = Packet::parse(&bytes).unwrap();
        prop_assert_eq!(packet.header, header);
        prop_assert!(packet.entries().eq(entries));
        let mut again = bytes.clone();
        header.emit(&mut again);
        prop_assert_eq!(again, bytes);
    }
}
