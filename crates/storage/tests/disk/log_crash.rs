//! After any crash, full disk or failed sync the log has a prefix of the appended records, with all that were durable.

use libra_plan::SplitMix64;
use libra_storage::disk::{Disk, SimulatedDisk};
use libra_storage::wal::{Log, OpenError, RecordNumber, Settings};

use crate::every::{Bug, Every, Planted};

fn settings() -> Settings {
    Settings { segment_bytes: 90, ..Settings::new(7, 2) }
}

fn record(number: u64) -> Vec<u8> {
    let length = usize::try_from(number * 5 % 12).unwrap();
    vec![u8::try_from(number % 251).unwrap(); length]
}

/// The records of the owner when the machine stops.
#[derive(Debug, Clone, Default)]
struct Known {
    appended: u64,
    durable: u64,
    /// The first record that no checkpoint covers.
    from: u64,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Append,
    Sync,
    /// A checkpoint covers all that is durable.
    Cover,
    /// The process dies, the machine does not.
    Reopen,
}

use Step::{Append, Cover, Reopen, Sync};
const HISTORY: &[Step] = &[
    Append, Sync, Append, Append, Sync, Append, Sync, Append, Sync, Cover, Append, Append, Append, Sync,
    Reopen, Append, Sync, Append,
];

/// Runs the steps until the machine stops.
fn run<D: Disk + Clone>(disk: &D, steps: &[Step], known: &mut Known) {
    let open = |from: u64| Log::open(disk.clone(), settings(), RecordNumber(from), |_, _| Ok(()));
    let Ok((mut log, _)) = open(known.from) else { return };
    for step in steps {
        match step {
            Append => known.appended = log.append(&record(known.appended + 1)).unwrap().0,
            Sync => {
                if let Ok(durable) = log.sync() {
                    known.durable = durable.0;
                    continue;
                }
                // The process dies of it, the machine does not.
                let Ok((reopened, recovery)) = open(known.from) else { return };
                log = reopened;
                (known.appended, known.durable) = (recovery.newest.0, recovery.newest.0);
            }
            Cover => {
                known.from = known.durable + 1;
                if log.remove_before(RecordNumber(known.from)).is_err() {
                    return;
                }
            }
            Reopen => {
                let Ok((reopened, recovery)) = open(known.from) else { return };
                log = reopened;
                // Records that were only in memory are gone, and those recovered are durable.
                (known.appended, known.durable) = (recovery.newest.0, recovery.newest.0);
            }
        }
    }
}

/// Checks that the log on this disk is a prefix of the appended records with all durable ones; and that it stays
/// so when it is used and the machine crashes again.
fn check<D: Disk + Clone>(disk: &D, crash: &dyn Fn(), known: &Known) -> Result<(), String> {
    let mut newest = replay(disk, known.from.max(1), known.from.max(1) - 1)?;
    if newest < known.durable || newest > known.appended {
        return Err(format!("the newest is {newest}: {known:?}"));
    }
    let (mut log, _) = Log::open(disk.clone(), settings(), RecordNumber(known.from), |_, _| Ok(()))
        .map_err(|error| error.to_string())?;
    for _ in 0..2 {
        newest = log.append(&record(newest + 1)).map_err(|error| error.to_string())?.0;
    }
    log.sync().map_err(|error| error.to_string())?;
    crash();
    let again = replay(disk, known.from.max(1), known.from.max(1) - 1)?;
    if again == newest { Ok(()) } else { Err(format!("after another crash {again}, not {newest}")) }
}

/// Reads the log and compares its records with those appended.
fn replay<D: Disk + Clone>(disk: &D, from: u64, mut newest: u64) -> Result<u64, String> {
    let (_, recovery) = Log::open(disk.clone(), settings(), RecordNumber(from), |number, bytes| {
        if number.0 != newest + 1 || bytes != record(number.0) {
            return Err(format!("record {number} after {newest}: {bytes:?}").into());
        }
        newest = number.0;
        Ok(())
    })
    .map_err(|error| error.to_string())?;
    assert_eq!(recovery.newest.0, newest);
    Ok(newest)
}

/// Every crash point with every loss; how many there were, or the first that broke a promise.
fn every_crash(bug: Option<Bug>) -> Result<u32, String> {
    let mut count = 0;
    for crash_at in 0.. {
        let disk = SimulatedDisk::new(1);
        // So small that a later record can be there without an earlier one.
        disk.set_sector_bytes(26);
        disk.crash_at(crash_at);
        let planted = Planted { disk: disk.clone(), bug };
        let mut known = Known::default();
        run(&planted, HISTORY, &mut known);
        let mut every = Every::default();
        while every.next() {
            let disk = disk.fork();
            disk.crash_with(&mut |options| every.choose(options));
            let planted = Planted { disk: disk.clone(), bug };
            check(&planted, &|| disk.crash_with(&mut |_| 0), &known)
                .map_err(|error| format!("crash at {crash_at}: {error}"))?;
            count += 1;
        }
        if disk.operations() < crash_at {
            return Ok(count);
        }
    }
    unreachable!("the history ends")
}

#[test]
fn every_crash_with_every_loss() {
    let count = every_crash(None).unwrap();
    assert!(count > 5000, "{count} cases");
}

#[test]
fn planted_bugs_are_found() {
    for bug in [Bug::Sync, Bug::SyncDirectory, Bug::Truncate] {
        let found = every_crash(Some(bug));
        assert!(found.is_err(), "{bug:?} was not noticed in {found:?} cases");
    }
}

/// A batch of which a crash has lost the first record is cut off; a record in its place must not bring the rest of it back.
#[test]
fn a_cut_off_tail_never_follows_its_replacement() {
    let settings = Settings::new(7, 2);
    let open = |disk: &SimulatedDisk| {
        let mut read = Vec::new();
        let opened = Log::open(disk.clone(), settings.clone(), RecordNumber::NONE, |_, record| {
            read.push(record.to_vec());
            Ok(())
        });
        (opened.unwrap().0, read)
    };
    let before = SimulatedDisk::new(1);
    before.set_sector_bytes(26);
    let (mut log, _) = open(&before);
    for record in [b"old 1", b"old 2", b"old 3"] {
        log.append(record).unwrap();
    }
    log.sync().unwrap();
    let name = before.contents().into_keys().next().unwrap();
    // Its first record is noise.
    before.flip_bit(&name, libra_storage::wal::HEADER_BYTES + 25, 0);
    for crash_at in 0..8 {
        let disk = before.fork();
        disk.crash_at(before.operations() + crash_at);
        let mut known = 0;
        if let Ok((mut log, recovery)) =
            Log::open(disk.clone(), settings.clone(), RecordNumber::NONE, |_, _| Ok(()))
        {
            assert!(recovery.torn.is_some_and(|torn| torn.record == RecordNumber(1)));
            log.append(b"new 1").unwrap();
            known = log.sync().map_or(0, |durable| durable.0);
        }
        let mut every = Every::default();
        while every.next() {
            let disk = disk.fork();
            disk.crash_with(&mut |options| every.choose(options));
            let (_, read) = open(&disk);
            let is_sound =
                if known == 1 { read == [b"new 1"] } else { read.is_empty() || read == [b"new 1"] };
            assert!(
                is_sound,
                "crash at {crash_at}: {:?}",
                read.iter().map(|r| String::from_utf8_lossy(r)).collect::<Vec<_>>()
            );
        }
    }
}

#[test]
fn a_disk_that_is_full_at_any_byte() {
    let whole = SimulatedDisk::new(1);
    run(&whole, HISTORY, &mut Known::default());
    for capacity in 0..whole.used() + 200 {
        let disk = SimulatedDisk::new(capacity);
        disk.set_capacity(Some(capacity));
        let opened = Log::open(disk.clone(), settings(), RecordNumber::NONE, |_, _| Ok(()));
        let Ok((mut log, _)) = opened else {
            assert!(matches!(opened, Err(OpenError::Disk(error)) if error.is_full()));
            continue;
        };
        let mut known = Known::default();
        for number in 1..=9 {
            known.appended = log.append(&record(number)).unwrap().0;
            match log.sync() {
                Ok(durable) => known.durable = durable.0,
                Err(error) => assert!(error.is_full() && error.durable.0 == known.durable, "{error}"),
            }
            assert_eq!(log.durable().0, known.durable);
            let crashed = disk.fork();
            crashed.crash();
            crashed.set_capacity(None);
            check(&crashed, &|| crashed.crash(), &known).unwrap();
        }
        disk.set_capacity(None);
        assert_eq!(log.sync().unwrap().0, 9, "there is room again");
        disk.crash();
        assert_eq!(replay(&disk, 1, 0).unwrap(), 9);
    }
}

/// Syncs of files fail once or a few times, at any time, and are forgotten or not; then syncs of directories.
fn failing_syncs(bug: Option<Bug>) -> Result<(), String> {
    for (failing, length) in (0..20).flat_map(|failing| (1..4).map(move |length| (failing, length))) {
        for keeps in [false, true] {
            syncs_fail(bug, |disk| {
                disk.fail_syncs(failing..failing + length);
                disk.keep_after_failed_syncs(keeps);
            })?;
        }
        syncs_fail(bug, |disk| disk.fail_directory_syncs(length))?;
    }
    Ok(())
}

fn syncs_fail(bug: Option<Bug>, fail: impl Fn(&SimulatedDisk)) -> Result<(), String> {
    let disk = SimulatedDisk::new(1);
    fail(&disk);
    let planted = Planted { disk: disk.clone(), bug };
    let (mut log, mut tries) = loop {
        match Log::open(planted.clone(), settings(), RecordNumber::NONE, |_, _| Ok(())) {
            Ok((log, _)) => break (log, 0),
            Err(error) => assert!(matches!(error, OpenError::Disk(_))),
        }
    };
    let mut known = Known::default();
    for number in 1..=9 {
        if number == 4 {
            fail(&disk);
        }
        known.appended = log.append(&record(number)).unwrap().0;
        while let Err(error) = log.sync() {
            tries += 1;
            assert!(tries < 10 && error.durable.0 == known.durable, "{error}");
            for seed in 0..4 {
                let crashed = disk.fork();
                let mut random = SplitMix64::new(seed);
                works_again(&crashed);
                crashed.crash_with(&mut |options| usize::try_from(random.below(options as u64)).unwrap());
                check(&crashed, &|| crashed.crash(), &known)?;
            }
        }
        known.durable = number;
        let crashed = disk.fork();
        works_again(&crashed);
        crashed.crash_with(&mut |_| 0);
        check(&crashed, &|| crashed.crash(), &known)?;
    }
    Ok(())
}

fn works_again(disk: &SimulatedDisk) {
    disk.fail_syncs(0..0);
    disk.fail_directory_syncs(0);
}

#[test]
fn syncs_that_fail_at_any_time() {
    failing_syncs(None).unwrap();
}

#[test]
fn a_sync_that_is_only_tried_again_is_found() {
    assert!(failing_syncs(Some(Bug::SyncRetried)).is_err());
}

/// Flips every bit of a log, one at a time: the records read are those appended, or else an error is returned.
fn every_flip(close: bool) {
    let disk = SimulatedDisk::new(1);
    let (mut log, _) = Log::open(disk.clone(), settings(), RecordNumber::NONE, |_, _| Ok(())).unwrap();
    for number in 1..=7 {
        log.append(&record(number)).unwrap();
        if number != 6 {
            log.sync().unwrap();
        }
    }
    if close {
        log.close().unwrap();
    }
    let (mut refused, mut torn) = (0, 0);
    for (name, bytes) in disk.contents() {
        for bit in 0..bytes.len() as u64 * 8 {
            let rotten = disk.fork();
            rotten.flip_bit(&name, bit / 8, u32::try_from(bit % 8).unwrap());
            let mut newest = 0;
            let opened = Log::open(rotten.clone(), settings(), RecordNumber::NONE, |number, bytes| {
                assert_eq!(number.0, newest + 1);
                assert_eq!(bytes, record(number.0), "{name} bit {bit}");
                newest = number.0;
                Ok(())
            });
            match opened {
                Ok((_, recovery)) => {
                    let expected = if close { 7..=7 } else { 5..=6 };
                    assert!(
                        recovery.torn.is_some() && expected.contains(&newest),
                        "{name} bit {bit}: {newest}"
                    );
                    torn += 1;
                }
                Err(error) => {
                    assert!(error.to_string().contains(&name), "{error}");
                    assert_eq!(rotten.contents().len(), disk.contents().len());
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 1000 && torn > 100, "{refused} refused, {torn} torn");
}

#[test]
fn every_bit_of_a_log_that_was_left() {
    every_flip(false);
}

#[test]
fn every_bit_of_a_log_that_was_closed() {
    every_flip(true);
}

#[test]
fn long_lives_with_many_crashes() {
    for seed in 0..150 {
        let mut random = SplitMix64::new(seed);
        let disk = SimulatedDisk::new(seed);
        let mut known = Known::default();
        for life in 0..8 {
            let steps: Vec<_> = (0..random.below(60))
                .map(|_| {
                    [Append, Append, Append, Sync, Sync, Cover, Reopen]
                        [usize::try_from(random.below(7)).unwrap()]
                })
                .collect();
            disk.crash_at(disk.operations() + random.below(80));
            if random.below(3) == 0 {
                disk.fail_syncs(disk.syncs() + random.below(6)..disk.syncs() + 6);
            }
            run(&disk, &steps, &mut known);
            disk.crash();
            disk.fail_syncs(0..0);
            let from = known.from.max(1);
            let newest = replay(&disk, from, from - 1)
                .unwrap_or_else(|error| panic!("seed {seed} life {life}: {error}"));
            assert!(
                newest >= known.durable && newest <= known.appended.max(from - 1),
                "seed {seed} life {life}: {known:?}"
            );
            (known.appended, known.durable) = (newest, newest);
        }
    }
}
