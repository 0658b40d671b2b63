use super::*;
use crate::disk::SimulatedDisk;

fn settings() -> Settings {
    Settings { segment_bytes: 200, ..Settings::new(7, 2) }
}

type Records = Vec<(u64, Vec<u8>)>;

fn open(disk: &SimulatedDisk, from: u64) -> Result<(Log<SimulatedDisk>, Recovery, Records), OpenError> {
    let mut records = Vec::new();
    let (log, recovery) = Log::open(disk.clone(), settings(), RecordNumber(from), |number, bytes| {
        records.push((number.0, bytes.to_vec()));
        Ok(())
    })?;
    Ok((log, recovery, records))
}

fn numbers(records: &Records) -> Vec<u64> {
    records.iter().map(|(number, _)| *number).collect()
}

fn disk_with(records: u8) -> SimulatedDisk {
    let disk = SimulatedDisk::new(1);
    let (mut log, ..) = open(&disk, 0).unwrap();
    for record in 1..=records {
        log.append(&[record; 40]).unwrap();
        log.sync().unwrap();
    }
    disk
}

#[test]
fn records_come_back_in_order_and_over_segments() {
    let disk = disk_with(10);
    let (log, recovery, records) = open(&disk, 0).unwrap();
    assert_eq!(numbers(&records), (1..=10).collect::<Vec<_>>());
    assert!(records.iter().all(|(number, bytes)| bytes.iter().all(|byte| u64::from(*byte) == *number)));
    assert_eq!(log.segments().len(), 4);
    assert_eq!(recovery, Recovery { replayed: 10, newest: RecordNumber(10), torn: None });
    assert_eq!(numbers(&open(&disk, 5).unwrap().2), (5..=10).collect::<Vec<_>>());
}

#[test]
fn many_records_take_one_sync() {
    let disk = SimulatedDisk::new(1);
    let (mut log, ..) = open(&disk, 0).unwrap();
    let before = disk.syncs();
    for _ in 0..3 {
        log.append(b"x").unwrap();
    }
    assert_eq!((log.newest(), log.durable()), (RecordNumber(3), RecordNumber::NONE));
    assert_eq!(log.sync().unwrap(), RecordNumber(3));
    assert_eq!(disk.syncs() - before, 1);
    log.sync().unwrap();
    assert_eq!(disk.syncs() - before, 1, "nothing to make durable");
}

#[test]
fn records_that_a_checkpoint_covers_are_removed() {
    let disk = disk_with(10);
    let (mut log, ..) = open(&disk, 0).unwrap();
    log.remove_before(RecordNumber(8)).unwrap();
    assert_eq!(log.segments(), [RecordNumber(7), RecordNumber(10)]);
    drop(log);
    assert_eq!(numbers(&open(&disk, 8).unwrap().2), [8, 9, 10]);
    let error = open(&disk, 3).unwrap_err();
    assert!(
        matches!(error, OpenError::Missing { from: RecordNumber(3), to: RecordNumber(6), .. }),
        "{error}"
    );
}

#[test]
fn a_log_that_ends_before_its_checkpoint_goes_on_after_it() {
    let disk = disk_with(2);
    let (mut log, recovery, records) = open(&disk, 100).unwrap();
    assert_eq!((recovery.newest, records.len()), (RecordNumber(99), 0));
    assert_eq!(log.append(b"new").unwrap(), RecordNumber(100));
    log.sync().unwrap();
    drop(log);
    assert_eq!(numbers(&open(&disk, 100).unwrap().2), [100]);
    assert!(matches!(open(&disk, 2), Err(OpenError::Missing { from: RecordNumber(3), .. })));
}

#[test]
fn damage_before_what_was_durable_is_told_from_a_torn_end() {
    let disk = disk_with(3);
    let name = segment_name(RecordNumber(1));
    let offset_of = |index: u64| HEADER_LEN as u64 + index * 64;
    let last = disk.fork();
    last.flip_bit(&name, offset_of(2) + 30, 3);
    let (_, recovery, records) = open(&last, 0).unwrap();
    assert_eq!(numbers(&records), [1, 2]);
    let torn = recovery.torn.unwrap();
    assert_eq!((torn.record, torn.offset, torn.bytes), (RecordNumber(3), offset_of(2), 64));

    disk.flip_bit(&name, offset_of(1) + 30, 3);
    let before = disk.contents();
    let error = open(&disk, 0).unwrap_err();
    let OpenError::Damaged { file, offset, record, damage } = &error else { panic!("{error}") };
    assert_eq!((file, *offset, *record), (&name, offset_of(1), RecordNumber(2)));
    assert_eq!(*damage, Damage::Checksum);
    assert_eq!(disk.contents(), before);
}

#[test]
fn a_closed_log_has_no_doubtful_end() {
    let disk = disk_with(2);
    let (mut log, ..) = open(&disk, 0).unwrap();
    log.append(b"last").unwrap();
    log.close().unwrap();
    let (mut log, recovery, records) = open(&disk.fork(), 0).unwrap();
    assert_eq!((records.len(), recovery.torn), (3, None));
    assert_eq!(log.append(b"goes on").unwrap(), RecordNumber(4));
    disk.flip_bit(&segment_name(RecordNumber(2)), HEADER_LEN as u64 + 64 + 25, 0);
    assert!(matches!(open(&disk, 0), Err(OpenError::Damaged { record: RecordNumber(3), .. })));
}

#[test]
fn a_full_disk_keeps_durable_records_and_goes_on_with_room() {
    let disk = disk_with(2);
    let (mut log, ..) = open(&disk, 0).unwrap();
    disk.set_capacity(Some(disk.used() + 30));
    log.append(&[3; 40]).unwrap();
    let error = log.sync().unwrap_err();
    assert!(error.is_full());
    assert_eq!((error.durable, error.waiting), (RecordNumber(2), 1));
    assert_eq!(open(&disk.fork(), 0).unwrap().2.len(), 2);
    log.append(&[4; 40]).unwrap();
    log.sync().unwrap_err();
    disk.set_capacity(None);
    assert_eq!(log.sync().unwrap(), RecordNumber(4));
    assert_eq!(numbers(&open(&disk, 0).unwrap().2), [1, 2, 3, 4]);
}

#[test]
fn a_segment_that_fails_leaves_no_part_on_a_full_disk() {
    let disk = disk_with(2);
    let (mut log, ..) = open(&disk, 0).unwrap();
    log.append(&[3; 40]).unwrap();
    disk.fail_syncs(disk.syncs()..disk.syncs() + 1);
    log.sync().unwrap_err();
    // The next segment does not fit.
    let used = disk.used();
    disk.set_capacity(Some(used + HEADER_LEN as u64 + 30));
    let is_left = || disk.contents().contains_key(UNFINISHED);
    assert!(log.sync().unwrap_err().is_full() && !is_left());
    drop(log);
    disk.set_capacity(Some(disk.used() + 20));
    Log::open(disk.clone(), settings(), RecordNumber(20), |_, _| Ok(())).unwrap_err();
    assert!(!is_left());
}

#[test]
fn records_of_a_failed_sync_are_written_again_elsewhere() {
    let disk = disk_with(2);
    let (mut log, ..) = open(&disk, 0).unwrap();
    log.append(&[3; 40]).unwrap();
    disk.fail_syncs(disk.syncs()..disk.syncs() + 1);
    log.sync().unwrap_err();
    assert_eq!(log.durable(), RecordNumber(2));
    assert_eq!(log.sync().unwrap(), RecordNumber(3));
    assert_eq!(log.segments(), [1, 2, 3].map(RecordNumber));
    disk.crash();
    assert_eq!(numbers(&open(&disk, 0).unwrap().2), [1, 2, 3]);
}

#[test]
fn records_that_may_be_in_memory_only_are_written_again() {
    let disk = disk_with(2);
    let (mut log, ..) = open(&disk, 0).unwrap();
    log.append(&[3; 40]).unwrap();
    disk.fail_syncs(disk.syncs()..disk.syncs() + 1);
    log.sync().unwrap_err();
    drop(log);
    let full = disk.fork();
    full.set_capacity(Some(full.used()));
    let (mut log, recovery, _) = open(&full, 0).unwrap();
    assert_eq!((recovery.newest, log.durable()), (RecordNumber(3), RecordNumber(2)));
    log.sync().unwrap_err();
    full.set_capacity(None);
    assert_eq!(log.sync().unwrap(), RecordNumber(3));
    for disk in [disk, full] {
        assert_eq!(numbers(&open(&disk, 0).unwrap().2), [1, 2, 3]);
        disk.crash_with(&mut |_| 0);
        assert_eq!(numbers(&open(&disk, 0).unwrap().2), [1, 2, 3]);
    }
}

#[test]
fn no_more_waits_than_may() {
    let disk = SimulatedDisk::new(1);
    let settings = Settings { pending_bytes_max: 100, ..settings() };
    let (mut log, _) = Log::open(disk, settings, RecordNumber::NONE, |_, _| Ok(())).unwrap();
    log.append(&[0; 200]).expect("alone it may be longer");
    assert!(matches!(log.append(b"x"), Err(AppendError::Behind { most: 100, .. })));
    log.sync().unwrap();
    assert_eq!(log.append(b"x").unwrap(), RecordNumber(2));
}

#[test]
fn a_record_that_its_owner_refuses_is_named() {
    let disk = disk_with(2);
    let opened = Log::open(disk, settings(), RecordNumber::NONE, |number, _| {
        if number == RecordNumber(2) { Err("not a push".into()) } else { Ok(()) }
    });
    let error = opened.unwrap_err().to_string();
    assert!(error.contains("record 2") && error.contains("not a push"), "{error}");
}
