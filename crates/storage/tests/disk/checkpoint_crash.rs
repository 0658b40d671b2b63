//! After any crash or full disk the newest checkpoint that was finished is there, to the bit, and nothing that is half.

use std::collections::BTreeMap;

use libra_plan::SplitMix64;
use libra_storage::checkpoint::{Block, Checkpoint, CheckpointError, Checkpoints, Description, PartSettings};
use libra_storage::checkpoint::{TableInfo, WriteError};
use libra_storage::disk::{Disk, SimulatedDisk};
use libra_storage::wal::RecordNumber;

use crate::every::{Bug, Every, Planted};

const PARTS: PartSettings = PartSettings { rows_max: 2, bytes_max: 1 << 20 };

fn description(number: u64) -> Description {
    let table = TableInfo { name: "t".into(), keys: 0..50, width: 2, state: 1, rule: 1.into() };
    Description {
        number,
        job: 1,
        seed: 1,
        shards: 1,
        shard: 0,
        covers: RecordNumber(number),
        steps: [].into(),
        tables: vec![table],
        position: None,
    }
}

/// Key, and the checkpoint that it was last written in.
type Rows = BTreeMap<u64, u64>;

/// Number, base, rows, removed rows.
type Step = (u64, Option<u64>, &'static [u64], &'static [u64]);
const STEPS: &[Step] =
    &[(1, None, &[1, 2, 3], &[]), (2, Some(1), &[3, 4], &[1]), (4, None, &[5], &[]), (5, Some(4), &[], &[5])];

fn rows_of(number: u64) -> Rows {
    match number {
        0 | 5 => [].into(),
        1 => [(1, 1), (2, 1), (3, 1)].into(),
        2 => [(2, 1), (3, 2), (4, 2)].into(),
        _ => [(5, 4)].into(),
    }
}

fn write<D: Disk + Clone>(checkpoints: &Checkpoints<D>, step: &Step) -> Result<(), WriteError> {
    let (number, base, rows, removed) = *step;
    let mut writer = checkpoints.begin(description(number), base, PARTS)?;
    for key in rows {
        let row = [*key as f32, f32::from_bits(u32::try_from(number).unwrap()), 0.5];
        writer.write_rows(0, &[*key], &row[..2], &row[2..])?;
    }
    if base.is_some() {
        writer.remove_rows(0, removed)?;
    }
    writer.finish(&[u8::try_from(number).unwrap(); 3]).map(drop)
}

/// Writes all checkpoints, prunes after the third, and returns the last one finished and the last one begun.
fn run<D: Disk + Clone>(disk: &D) -> (u64, u64) {
    let checkpoints = Checkpoints::new(disk.clone());
    let mut finished = 0;
    for step in STEPS {
        if checkpoints.discard_unfinished().is_err() || write(&checkpoints, step).is_err() {
            return (finished, step.0);
        }
        finished = step.0;
        if finished == 4 && checkpoints.prune(1).is_err() {
            break;
        }
    }
    (finished, finished)
}

fn rows<D: Disk + Clone>(checkpoint: &Checkpoint<D>) -> Result<Rows, String> {
    let mut rows = Rows::new();
    let mut blocks = checkpoint.blocks(1);
    while let Some(block) = blocks.next_block().map_err(|error| error.to_string())? {
        match block {
            Block::Rows { keys, values, state, .. } => {
                if values[0] != keys[0] as f32 || state != [0.5] {
                    return Err(format!("row {keys:?} is {values:?} {state:?}"));
                }
                rows.insert(keys[0], values[1].to_bits().into());
            }
            Block::Removed { keys, .. } => {
                rows.remove(&keys[0]);
            }
        }
    }
    Ok(rows)
}

/// Checks that the newest checkpoint is the one that was finished last, or the one that was begun after it.
fn check<D: Disk + Clone>(disk: &D, (finished, begun): (u64, u64)) -> Result<(), String> {
    let checkpoints = Checkpoints::new(disk.clone());
    let newest = checkpoints.newest_valid().map_err(|error| error.to_string())?;
    for skipped in newest.skipped {
        if !matches!(skipped.why, CheckpointError::Unfinished { .. }) {
            return Err(skipped.why.to_string());
        }
    }
    let number = newest.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.manifest().description.number);
    if number != finished && number != begun {
        return Err(format!("the newest is {number}, but {finished} was finished, {begun} begun"));
    }
    if let Some(checkpoint) = newest.checkpoint {
        let found = rows(&checkpoint)?;
        if found != rows_of(number) || checkpoint.state() != [u8::try_from(number).unwrap(); 3] {
            return Err(format!("checkpoint {number} is {found:?}"));
        }
    }
    // Remains of unfinished checkpoints do not disturb.
    checkpoints.discard_unfinished().map_err(|error| error.to_string())?;
    write(&checkpoints, &(9, None, &[5], &[])).map_err(|error| error.to_string())?;
    checkpoints.prune(1).map_err(|error| error.to_string())?;
    let left: Vec<_> = checkpoints.list().map_err(|error| error.to_string())?;
    if left.len() == 1 { Ok(()) } else { Err(format!("left: {left:?}")) }
}

/// Every crash point, with losses chosen from few; how many there were, or the first that broke a promise.
fn every_crash(bug: Option<Bug>) -> Result<u32, String> {
    let mut count = 0;
    for crash_at in 0.. {
        let disk = SimulatedDisk::new(1);
        disk.crash_at(crash_at);
        let known = run(&Planted { disk: disk.clone(), bug });
        let mut test = |choose: &mut dyn FnMut(usize) -> usize| {
            let disk = disk.fork();
            disk.crash_with(choose);
            count += 1;
            check(&disk, known).map_err(|error| format!("crash at {crash_at}: {error}"))
        };
        let mut every = Every::default();
        while every.next() {
            test(&mut |options| every.choose_coarsely(options))?;
        }
        let mut random = SplitMix64::new(crash_at);
        for _ in 0..20 {
            test(&mut |options| usize::try_from(random.below(options as u64)).unwrap())?;
        }
        if disk.operations() < crash_at {
            return Ok(count);
        }
    }
    unreachable!("the history ends")
}

#[test]
fn every_crash_point() {
    let count = every_crash(None).unwrap();
    assert!(count > 2000, "{count} cases");
}

#[test]
fn planted_bugs_are_found() {
    for bug in [Bug::Sync, Bug::SyncDirectory] {
        let found = every_crash(Some(bug));
        assert!(found.is_err(), "{bug:?} was not noticed in {found:?} cases");
    }
}

#[test]
fn a_disk_that_is_full_at_any_byte() {
    let before = SimulatedDisk::new(1);
    write(&Checkpoints::new(before.clone()), &STEPS[0]).unwrap();
    let after = before.fork();
    write(&Checkpoints::new(after.clone()), &STEPS[1]).unwrap();
    for capacity in before.used()..after.used() {
        let disk = before.fork();
        disk.set_capacity(Some(capacity));
        let checkpoints = Checkpoints::new(disk.clone());
        let error = write(&checkpoints, &STEPS[1]).unwrap_err();
        assert!(error.is_full(), "{error}");
        assert_eq!(disk.contents(), before.contents(), "the written files are gone again");
        disk.set_capacity(None);
        write(&checkpoints, &STEPS[1]).unwrap();
        disk.crash();
        check(&disk, (2, 2)).unwrap();
    }
}

/// The bytes of a sync that failed are not relied on: neither by this checkpoint nor by the next one.
#[test]
fn syncs_that_fail_at_any_time() {
    let before = SimulatedDisk::new(1);
    write(&Checkpoints::new(before.clone()), &STEPS[0]).unwrap();
    let mut failed = 0;
    for (failing, keeps, directories) in
        (0..6).flat_map(|failing| [(failing, false, 0), (failing, true, 0), (failing, false, 1 + failing)])
    {
        let disk = before.fork();
        if directories == 0 {
            disk.fail_syncs(disk.syncs() + failing..disk.syncs() + failing + 1);
        } else {
            disk.fail_directory_syncs(directories);
        }
        disk.keep_after_failed_syncs(keeps);
        let checkpoints = Checkpoints::new(disk.clone());
        let written = write(&checkpoints, &STEPS[1]);
        failed += u32::from(written.is_err());
        let known = if written.is_ok() { (2, 2) } else { (1, 2) };
        for lose_all in [true, false] {
            let crashed = disk.fork();
            crashed.fail_syncs(0..0);
            crashed.fail_directory_syncs(0);
            if lose_all {
                crashed.crash_with(&mut |_| 0)
            } else {
                crashed.crash()
            }
            check(&crashed, known).unwrap();
        }
        // The owner goes on, and must take another number: the failed one may be there.
        disk.fail_syncs(0..0);
        disk.fail_directory_syncs(0);
        write(&checkpoints, &STEPS[2]).unwrap();
        disk.crash_with(&mut |_| 0);
        check(&disk, (4, 4)).unwrap();
    }
    assert!(failed >= 12, "{failed}");
}

#[test]
fn every_bit_and_every_length_of_every_file() {
    let disk = SimulatedDisk::new(1);
    for step in &STEPS[..2] {
        write(&Checkpoints::new(disk.clone()), step).unwrap();
    }
    let refused = |disk: SimulatedDisk, name: &str| {
        let checkpoints = Checkpoints::new(disk);
        let error = checkpoints.open(2).map(drop).unwrap_err().to_string();
        assert!(error.contains(name), "{name}: {error}");
        assert!(checkpoints.verify(2).is_err());
    };
    for (name, bytes) in disk.contents() {
        for bit in 0..bytes.len() as u64 * 8 {
            let rotten = disk.fork();
            rotten.flip_bit(&name, bit / 8, u32::try_from(bit % 8).unwrap());
            refused(rotten, &name);
        }
        for length in 0..bytes.len() {
            let short = disk.fork();
            short.put(&name, &bytes[..length]);
            refused(short, &name);
        }
        let long = disk.fork();
        long.append(&name, b" ").unwrap();
        refused(long, &name);
        let missing = disk.fork();
        missing.remove(&name).unwrap();
        refused(missing, &name);
    }
}

#[test]
fn a_file_that_changes_after_it_was_opened_is_noticed() {
    let disk = SimulatedDisk::new(1);
    let checkpoints = Checkpoints::new(disk.clone());
    write(&checkpoints, &STEPS[0]).unwrap();
    let checkpoint = checkpoints.open(1).unwrap();
    let name = "checkpoint-1/table-0-t-rows-00000.safetensors";
    disk.flip_bit(name, disk.bytes(name).unwrap() - 1, 7);
    assert!(rows(&checkpoint).is_err());
}
