//! Valid and invalid regions and pipelines, and the operations of the agent on them.

use libra_dataplane::{
    Arithmetic, ConfigError, Entry, Flags, FlipError, Header, Kind, NackReason, Pipeline, Region,
    RegionConfig, RegionMemory, Verdict, WINDOW_WORDS,
};

use crate::scene::{JOB, answer, entries, header, pipeline, region, small_config, write};

// rule D4
#[test]
fn each_config_error_has_its_cause() {
    let good = small_config();
    assert_eq!(good.check(), Ok(()));
    assert_eq!(RegionConfig { lanes: 0, ..good }.check(), Err(ConfigError::Lanes));
    assert_eq!(RegionConfig { cells: 1, ..good }.check(), Err(ConfigError::Cells { cells: 1 }));
    assert_eq!(RegionConfig { cells: 32_769, ..good }.check(), Err(ConfigError::Cells { cells: 32_769 }));
    assert_eq!(RegionConfig { cells: 32_768, ..good }.check(), Ok(()));
    assert_eq!(RegionConfig { flows: 0, ..good }.check(), Err(ConfigError::Flows));
    assert_eq!(RegionConfig { bank_packets_max: 0, ..good }.check(), Err(ConfigError::BankPackets));

    let tight = |bank_packets_max, bound| {
        RegionConfig { bank_packets_max, arithmetic: Arithmetic::Fixed { bound }, ..good }.check()
    };
    assert_eq!(tight(1 << 12, (1 << 19) - 1), Ok(()));
    assert_eq!(tight(1, i32::MAX.unsigned_abs()), Ok(()));
    assert_eq!(
        tight(1 << 12, 1 << 19),
        Err(ConfigError::Headroom { bank_packets_max: 1 << 12, bound: 1 << 19 })
    );
    assert!(tight(u32::MAX, u32::MAX).is_err());
}

#[test]
fn memory_must_have_the_asked_length_and_is_cleared() {
    let config = RegionConfig { cells: 10, lanes: 3, flows: 4, ..small_config() };
    let words = config.memory_words();
    assert_eq!((words.values, words.sums, words.dirty, words.windows), (30, 30, 4, 4 * WINDOW_WORDS));

    let mut memory = RegionMemory::allocate(&config, |words| vec![0; words]);
    memory.dirty[1].pop();
    let error = Region::new(config, memory).unwrap_err();
    assert_eq!(error, ConfigError::Memory { array: "dirty", expected: 4, found: 3 });

    let used = RegionMemory::allocate(&config, |words| vec![9; words]);
    assert_eq!(Region::new(config, used).unwrap(), region(config));
}

#[test]
fn regions_are_found_by_job_and_number() {
    let named = |job, region| RegionConfig { job, region, ..small_config() };
    let names = [(9, 1), (2, 200), (2, 0), (9, 0), (0, 7)];
    let mut pipeline = pipeline(&names.map(|(job, region)| named(job, region)));
    for (job, region) in names {
        assert_eq!(pipeline.region(job, region).unwrap().config().region, region);
        let push = Header { job, region, ..header(Kind::Push, 0, 0) };
        assert_eq!(answer(&mut pipeline, &write(push, &[])).0.kind, Kind::Ack);
    }
    let push = Header { job: 2, region: 1, ..header(Kind::Push, 0, 0) };
    let (nack, _) = answer(&mut pipeline, &write(push, &[]));
    assert_eq!(nack.nack_reason(), Some(NackReason::UnknownFlow));
    assert_eq!((pipeline.counters().pushes, pipeline.counters().unknown_flow), (5, 1));

    pipeline.change(|regions| regions.push(region(named(2, 1)))).unwrap();
    assert_eq!(answer(&mut pipeline, &write(push, &[])).0.kind, Kind::Ack);
    let twice = pipeline.change(|regions| regions.push(region(named(0, 7)))).unwrap_err();
    assert_eq!((twice.job, twice.region), (0, 7));
    assert!(Pipeline::new(vec![region(named(1, 1)), region(named(1, 1))]).is_err());
}

// rule D5
#[test]
fn a_bank_counts_its_packets_until_it_is_used_again() {
    let mut pipeline = pipeline(&[small_config()]);
    for (seq, flags) in [(0, Flags::NONE), (1, Flags::LAST), (2, Flags::LAST)] {
        let push = Header { flags, ..header(Kind::Push, 0, seq) };
        let _ = answer(&mut pipeline, &write(push, &entries(&[(1, 4)])));
    }
    let region = pipeline.regions_mut().next().unwrap();
    assert_eq!((region.round(), region.pushes_in_bank(), region.last_in_bank()), (1, 3, 2));
    assert_eq!(region.flip(), Ok(1));
    assert_eq!((region.round(), region.pushes_in_bank(), region.last_in_bank()), (2, 0, 0));
    assert_eq!((region.idle_packets().pushes, region.idle_packets().last), (3, 2));

    assert_eq!(region.dirty_blocks().collect::<Vec<_>>(), [0]);
    assert_eq!(region.flip(), Err(FlipError::IdleBankNotDrained));
    let mut drained = Vec::new();
    region.drain(|first_slot, sums| drained.push((first_slot, sums.to_vec())));
    assert_eq!(drained, [(0, vec![0, 12, 0])]);
    assert!(region.is_idle_clean());
    assert_eq!(region.flip(), Ok(2));
}

// rule D6
#[test]
fn a_standby_goes_on_where_the_committed_cut_ends() {
    let mut first = pipeline(&[small_config()]);
    for seq in [0, 1, 2, 5, 6, 1020, 1023] {
        let _ = answer(&mut first, &write(header(Kind::Push, 1, seq), &entries(&[(0, 1)])));
    }
    let acked: Vec<_> = first.regions()[0].window(1).unwrap().accepted().collect();
    assert_eq!(acked, [0..3, 5..7, 1020..1021, 1023..1024]);

    let mut region = region(small_config());
    region.resume_after(u16::MAX);
    for range in acked.clone() {
        assert!(region.mark_seen(1, range));
    }
    assert!(!region.mark_seen(2, 0..1));
    assert_eq!(region.window(1).unwrap().accepted().collect::<Vec<_>>(), acked);
    assert!(region.window(2).is_none());

    let mut standby = Pipeline::new(vec![region]).unwrap();
    let (old, _) = answer(&mut standby, &write(header(Kind::Push, 1, 5), &entries(&[(0, 1)])));
    assert_eq!((old.kind, old.round, old.durable), (Kind::Ack, u16::MAX, u16::MAX));
    let (new, _) = answer(&mut standby, &write(header(Kind::Push, 1, 3), &entries(&[(0, 1)])));
    assert_eq!((new.kind, new.round), (Kind::Ack, 0));
    assert_eq!((standby.counters().duplicates, standby.counters().pushes), (1, 1));
}

#[test]
fn a_long_cut_is_restored_too() {
    let mut region = region(small_config());
    assert!(region.mark_seen(0, 0..100_000));
    assert!(region.mark_seen(0, 100_500..100_501));
    let window = region.window(0).unwrap();
    assert_eq!(window.accepted().collect::<Vec<_>>(), [0..100_000, 100_500..100_501]);
}

// rule W9
#[test]
fn a_push_with_values_is_answered_with_values_if_there_are_any() {
    let mut pipeline = pipeline(&[small_config()]);
    let push = |seq| {
        let push = Header { flags: Flags::VALUES, ..header(Kind::Push, 0, seq) };
        write(push, &entries(&[(0, 1), (1, 2), (2, 0)]))
    };
    let (ack, values) = answer(&mut pipeline, &push(0));
    assert_eq!((ack.kind, ack.flags, values), (Kind::Ack, Flags::NONE, vec![]));

    let install = write(header(Kind::Install, 0, 0), &entries(&[(0, 70), (1, 71)]));
    assert_eq!(answer(&mut pipeline, &install).0.kind, Kind::Ack);
    pipeline.region_mut(5, 0).unwrap().set_readable(true);
    let (ack, values) = answer(&mut pipeline, &push(1));
    assert_eq!((ack.kind, ack.flags), (Kind::Ack, Flags::VALUES));
    assert_eq!(values, entries(&[(0, 70), (1, 71), (2, 0)]));
    assert_eq!(pipeline.regions()[0].values(), [70, 71, 0]);
}

// rule T1
#[test]
fn the_last_sequence_number_of_all_is_refused() {
    let mut pipeline = pipeline(&[small_config()]);
    let mut packet = write(header(Kind::Push, 0, u32::MAX), &[]);
    assert!(matches!(pipeline.process(&mut packet), Verdict::Drop(_)));
    let _ = answer(&mut pipeline, &write(header(Kind::Push, 0, u32::MAX - 1), &[]));
}

#[test]
fn a_push_without_entries_is_a_packet_like_any_other() {
    for lanes in [1, 3] {
        let mut pipeline = pipeline(&[RegionConfig { lanes, ..small_config() }]);
        let empty = write(Header { flags: Flags::LAST, ..header(Kind::Push, 0, 0) }, &[]);
        for _ in 0..2 {
            let (ack, body) = answer(&mut pipeline, &empty);
            assert_eq!((ack.kind, ack.seq, ack.round, body), (Kind::Ack, 0, 1, Vec::<Entry>::new()));
        }
        let region = pipeline.region(JOB, 0).unwrap();
        assert!(region.window(0).unwrap().contains(0));
        assert_eq!((region.pushes_in_bank(), region.last_in_bank()), (1, 1));
        assert_eq!((region.counters().pushes, region.counters().duplicates), (1, 1));
        let region = pipeline.region_mut(JOB, 0).unwrap();
        assert_eq!(region.flip(), Ok(1));
        assert!(region.is_idle_clean());
    }
}

#[test]
fn pushes_sent_again_are_counted_where_they_are_acknowledged() {
    let mut pipeline = pipeline(&[RegionConfig { bank_packets_max: 1, ..small_config() }]);
    let mut retransmits_after = |seq, flags| {
        let _ = answer(&mut pipeline, &write(Header { flags, ..header(Kind::Push, 0, seq) }, &[]));
        pipeline.counters().retransmits
    };
    // Lost on the way here, lost on the way back, refused as the bank is full, and not sent before.
    assert_eq!(retransmits_after(0, Flags::RETRANSMIT), 1);
    assert_eq!(retransmits_after(0, Flags::RETRANSMIT.with(Flags::LAST)), 2);
    assert_eq!(retransmits_after(1, Flags::RETRANSMIT), 2);
    assert_eq!(retransmits_after(0, Flags::NONE), 2);
    let counters = pipeline.counters();
    assert_eq!((counters.pushes, counters.duplicates, counters.bank_full, counters.packets), (1, 2, 1, 4));
}
