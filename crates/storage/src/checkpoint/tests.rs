use std::collections::BTreeMap;

use super::*;
use crate::disk::SimulatedDisk;

type Rows = BTreeMap<(usize, u64), Vec<u32>>;

fn table(name: &str, keys: std::ops::Range<u64>, width: u32, state: u32) -> TableInfo {
    TableInfo { name: name.into(), keys, width, state, rule: serde_json::json!({ "sgd": 0.1 }) }
}

fn description(number: u64) -> Description {
    Description {
        number,
        job: 5,
        seed: 6,
        shards: 2,
        shard: 0,
        covers: RecordNumber(number * 10),
        steps: BTreeMap::from([("pushes".into(), number)]),
        tables: vec![table("user", 0..100, 2, 1), table("item/ä", 100..200, 1, 0)],
        position: None,
    }
}

const SMALL: PartSettings = PartSettings { rows_max: 3, bytes_max: 1 << 20 };

/// Values that differ in every row and checkpoint, and some that are no numbers.
fn values(number: u64, key: u64, count: usize) -> Vec<f32> {
    (0..count as u64)
        .map(|index| f32::from_bits(u32::try_from(0x7fc0_0000 + number * 10_000 + key * 10 + index).unwrap()))
        .collect()
}

fn write(
    checkpoints: &Checkpoints<SimulatedDisk>,
    number: u64,
    base: Option<u64>,
    keys: &[u64],
    removed: &[u64],
) {
    let mut writer = checkpoints.begin(description(number), base, SMALL).unwrap();
    for key in keys {
        let (position, width, state) = if *key < 100 { (0, 2, 1) } else { (1, 1, 0) };
        writer
            .write_rows(position, &[*key], &values(number, *key, width), &values(number, *key, state))
            .unwrap();
    }
    for key in removed {
        writer.remove_rows(usize::from(*key >= 100), &[*key]).unwrap();
    }
    writer.finish(&[u8::try_from(number).unwrap(); 5]).unwrap();
}

fn read(checkpoint: &Checkpoint<SimulatedDisk>, rows_max: usize) -> Rows {
    let mut rows = Rows::new();
    let mut blocks = checkpoint.blocks(rows_max);
    while let Some(block) = blocks.next_block().unwrap() {
        match block {
            Block::Rows { table, keys, values, state } => {
                for (index, key) in keys.iter().enumerate() {
                    let of = |all: &[f32]| {
                        let each = all.len() / keys.len();
                        all[index * each..][..each].iter().map(|value| value.to_bits()).collect::<Vec<_>>()
                    };
                    rows.insert((table, *key), [of(values), of(state)].concat());
                }
            }
            Block::Removed { table, keys } => {
                for key in keys {
                    rows.remove(&(table, *key));
                }
            }
        }
    }
    rows
}

fn expected(rows: &[(u64, u64)]) -> Rows {
    let row = |&(number, key): &(u64, u64)| {
        let (position, width, state) = if key < 100 { (0, 2, 1) } else { (1, 1, 0) };
        let numbers = [values(number, key, width), values(number, key, state)].concat();
        ((position, key), numbers.into_iter().map(f32::to_bits).collect())
    };
    rows.iter().map(row).collect()
}

/// Full 1 with increments 2 and 3; full 4.
fn some() -> Checkpoints<SimulatedDisk> {
    let checkpoints = Checkpoints::new(SimulatedDisk::new(1));
    write(&checkpoints, 1, None, &[9, 1, 2, 3, 4, 5, 6, 100, 199], &[]);
    write(&checkpoints, 2, Some(1), &[1, 7, 150], &[2, 100]);
    write(&checkpoints, 3, Some(2), &[2, 3], &[7]);
    write(&checkpoints, 4, None, &[11], &[]);
    checkpoints
}

#[test]
fn rows_come_back_to_the_bit_in_blocks_of_any_size() {
    let checkpoints = some();
    let first = expected(&[9, 1, 2, 3, 4, 5, 6, 100, 199].map(|key| (1, key)));
    let third = expected(&[(1, 9), (2, 1), (3, 2), (3, 3), (1, 4), (1, 5), (1, 6), (2, 150), (1, 199)]);
    for rows_max in [1, 2, 3, 100] {
        assert_eq!(read(&checkpoints.open(1).unwrap(), rows_max), first);
        assert_eq!(read(&checkpoints.open(3).unwrap(), rows_max), third);
    }
    let checkpoint = checkpoints.open(3).unwrap();
    assert_eq!(checkpoint.state(), [3; 5]);
    assert_eq!(checkpoint.manifest().description, description(3));
    assert_eq!(checkpoints.verify(3).unwrap().checkpoints, 3);
    assert_eq!(checkpoints.verify(1).unwrap().rows, 9);
}

#[test]
fn damaged_checkpoints_are_skipped_and_named() {
    let checkpoints = some();
    let disk = checkpoints.disk();
    disk.flip_bit("checkpoint-4/state.bin", 2, 1);
    disk.put("checkpoint-5.partial/state.bin", b"half");
    let newest = checkpoints.newest_valid().unwrap();
    assert_eq!(newest.checkpoint.unwrap().manifest().description.number, 3);
    let why: Vec<_> = newest.skipped.iter().map(|skipped| skipped.why.to_string()).collect();
    assert!(why[0].starts_with("checkpoint-5.partial is no complete checkpoint"), "{why:?}");
    assert!(why[1].starts_with("checkpoint-4/state.bin is damaged: its checksum"), "{why:?}");

    // Without its base an increment is nothing.
    disk.flip_bit("checkpoint-1/table-0-user-rows-00001.safetensors", 300, 1);
    let newest = checkpoints.newest_valid().unwrap();
    assert!(newest.checkpoint.is_none());
    assert_eq!(newest.skipped.len(), 5);
    assert_eq!(checkpoints.list().unwrap().iter().filter(|listed| listed.manifest.is_ok()).count(), 4);
}

#[test]
fn a_base_that_is_missing_or_another_one_is_named() {
    let checkpoints = some();
    let other = Checkpoints::new(SimulatedDisk::new(1));
    write(&other, 1, None, &[1], &[]);
    for (name, bytes) in other.disk().contents() {
        checkpoints.disk().put(&name, &bytes);
    }
    let error = checkpoints.open(2).unwrap_err();
    assert!(matches!(error, CheckpointError::OtherBase { number: 2, base: 1, field: "checksum" }), "{error}");
    remove_directory(checkpoints.disk(), "checkpoint-1").unwrap();
    let error = checkpoints.open(3).unwrap_err();
    assert!(matches!(error, CheckpointError::Base { number: 2, base: 1, .. }), "{error}");
    assert!(matches!(checkpoints.open(17), Err(CheckpointError::Missing { number: 17 })));
}

#[test]
fn pruning_keeps_bases_and_the_last_sound_one() {
    let checkpoints = some();
    checkpoints.disk().flip_bit("checkpoint-4/state.bin", 2, 1);
    let pruned = checkpoints.prune(0).unwrap();
    assert_eq!((&pruned.kept[..], &pruned.removed[..]), (&[3, 2, 1][..], &[][..]));
    assert_eq!((pruned.damaged[0].number, pruned.log_from), (4, Some(RecordNumber(31))));

    write(&checkpoints, 5, None, &[1], &[]);
    let pruned = checkpoints.prune(2).unwrap();
    assert_eq!((&pruned.kept[..], pruned.log_from), (&[5, 3, 2, 1][..], Some(RecordNumber(31))));
    let pruned = checkpoints.prune(1).unwrap();
    assert_eq!((&pruned.kept[..], &pruned.removed[..]), (&[5][..], &[4, 3, 2, 1][..]));
    assert_eq!(checkpoints.list().unwrap().len(), 1);

    checkpoints.disk().flip_bit("checkpoint-5/state.bin", 2, 1);
    let pruned = checkpoints.prune(1).unwrap();
    assert_eq!((pruned.kept.len(), pruned.removed.len(), pruned.damaged.len()), (0, 0, 1));
}

#[test]
fn the_owner_keeps_others_besides_the_newest() {
    let checkpoints = some();
    let pruned = checkpoints.retain(1, &[2, 9]).unwrap();
    assert_eq!((&pruned.kept[..], &pruned.removed[..]), (&[4, 2, 1][..], &[3][..]));
    assert_eq!(
        pruned.log_from,
        checkpoints.retain(2, &[]).unwrap().log_from,
        "the log after it is needed, too"
    );
    assert_eq!(checkpoints.retain(1, &[9]).unwrap().removed, [2, 1], "one that is not there");
}

#[test]
fn an_increment_whose_base_was_pruned_meanwhile_is_not_finished() {
    let checkpoints = some();
    let writer = checkpoints.begin(description(5), Some(3), SMALL).unwrap();
    assert_eq!(checkpoints.prune(1).unwrap().removed, [3, 2, 1]);
    let error = writer.finish(&[]).unwrap_err();
    assert!(matches!(error, WriteError::Base(CheckpointError::Missing { number: 3 })), "{error}");
    assert_eq!(checkpoints.list().unwrap().len(), 1);
}

#[test]
fn an_abandoned_checkpoint_leaves_nothing() {
    let checkpoints = some();
    let before = checkpoints.disk().contents();
    let mut writer = checkpoints.begin(description(5), None, SMALL).unwrap();
    writer.write_rows(0, &[1, 2, 3, 4], &[0.0; 8], &[0.0; 4]).unwrap();
    assert!(matches!(
        writer.write_rows(0, &[1], &[0.0; 3], &[0.0]),
        Err(WriteError::Ragged { field: "values", .. })
    ));
    assert!(matches!(writer.write_rows(0, &[100], &[0.0; 2], &[0.0]), Err(WriteError::Key { key: 100, .. })));
    assert!(matches!(writer.write_rows(2, &[], &[], &[]), Err(WriteError::UnknownTable { table: 2 })));
    assert!(matches!(writer.remove_rows(0, &[1]), Err(WriteError::NotIncremental)));
    checkpoints.disk().set_capacity(Some(checkpoints.disk().used() + 10));
    assert!(writer.write_rows(0, &[5, 6, 7], &[0.0; 6], &[0.0; 3]).unwrap_err().is_full());
    assert_eq!(checkpoints.disk().contents(), before);
    checkpoints.disk().set_capacity(None);
    assert!(matches!(writer.finish(&[]), Err(WriteError::Failed)));
    drop(checkpoints.begin(description(5), Some(4), SMALL).unwrap());
    assert_eq!(checkpoints.disk().contents(), before);
    assert!(checkpoints.discard_unfinished().unwrap().is_empty());
}

#[test]
fn a_checkpoint_is_newer_than_all_others_and_like_its_base() {
    let checkpoints = some();
    let begin = |description, base| checkpoints.begin(description, base, SMALL).map(drop);
    assert!(matches!(begin(description(4), None), Err(WriteError::NotNewest { number: 4, newest: 4 })));
    let mut other = description(5);
    other.tables[0].width = 3;
    let error = begin(other, Some(4)).unwrap_err();
    assert!(matches!(error, WriteError::Base(CheckpointError::OtherBase { field: "tables", .. })), "{error}");
    let mut other = description(5);
    other.tables[0].rule = "another rate".into();
    begin(other, Some(4)).unwrap();
}

#[test]
fn shards_are_exported_into_one_sorted_file_per_table() {
    let checkpoints = some();
    let other = Checkpoints::new(SimulatedDisk::new(1));
    let mut writer = other.begin(Description { shard: 1, ..description(8) }, None, SMALL).unwrap();
    writer.write_rows(0, &[8, 0], &[8.0, 8.5, 0.0, 0.5], &[80.0, 1.0]).unwrap();
    writer.finish(&[]).unwrap();
    let chains = [checkpoints.open(3).unwrap(), other.open(8).unwrap()];
    let mut files = Vec::new();
    for memory_bytes in [0, 20, 1 << 20] {
        let disk = SimulatedDisk::new(1);
        let exported = export(&chains, &disk, memory_bytes).unwrap();
        assert_eq!(exported.iter().map(|file| file.rows).collect::<Vec<_>>(), [9, 2]);
        files.push(disk.contents());
    }
    assert!(files.windows(2).all(|pair| pair[0] == pair[1]));
    let tensors = ::safetensors::SafeTensors::deserialize(&files[0]["0-user.safetensors"]).unwrap();
    let tensor = |name| tensors.tensor(name).unwrap().data().to_vec();
    let keys: Vec<u64> = bytemuck::pod_collect_to_vec(&tensor("keys"));
    assert_eq!(keys, [0, 1, 2, 3, 4, 5, 6, 8, 9]);
    let rows = expected(&[(2, 1), (3, 2), (3, 3), (1, 4), (1, 5), (1, 6), (1, 9)]);
    let (values, state): (Vec<u32>, Vec<u32>) =
        (bytemuck::pod_collect_to_vec(&tensor("values")), bytemuck::pod_collect_to_vec(&tensor("state")));
    for (index, key) in keys.iter().enumerate().filter(|(_, key)| **key != 0 && **key != 8) {
        assert_eq!([values[index * 2], values[index * 2 + 1], state[index]], rows[&(0, *key)][..]);
    }
    assert_eq!(values[..2], [0.0f32.to_bits(), 0.5f32.to_bits()]);

    let twice = [checkpoints.open(3).unwrap(), checkpoints.open(1).unwrap()];
    let error = export(&twice, &SimulatedDisk::new(1), 100).unwrap_err();
    assert!(matches!(error, ExportError::TwoOwners { key: 1, .. }), "{error}");
}

#[test]
fn rows_are_dealt_to_files_as_asked() {
    let disk = SimulatedDisk::new(1);
    let part = |key: u64| usize::from(key.is_multiple_of(3));
    let exported = export_split(&[some().open(3).unwrap()], &disk, 20, 2, part).unwrap();
    let name = |file: &Exported| (file.file.clone(), file.rows);
    let [user, item] = ["0-user", "1-item__"];
    assert_eq!(
        exported.iter().map(name).collect::<Vec<_>>(),
        [(user, 0, 4), (user, 1, 3), (item, 0, 1), (item, 1, 1)]
            .map(|(table, file, rows)| (format!("{table}-{file:05}-of-00002.safetensors"), rows))
    );
    let bytes = &disk.contents()["0-user-00001-of-00002.safetensors"];
    let tensors = ::safetensors::SafeTensors::deserialize(bytes).unwrap();
    let tensor = |name| tensors.tensor(name).unwrap().data().to_vec();
    assert_eq!(bytemuck::pod_collect_to_vec::<u8, u64>(&tensor("keys")), [3, 6, 9]);
    let found: Vec<u32> = bytemuck::pod_collect_to_vec(&tensor("values"));
    let row = |number, key| values(number, key, 2).into_iter().map(f32::to_bits);
    assert_eq!(found, row(3, 3).chain(row(1, 6)).chain(row(1, 9)).collect::<Vec<_>>());
}

#[test]
fn one_row_is_found_where_it_was_written_last() {
    let checkpoints = some();
    let found = |number, key: u64| checkpoints.find(number, usize::from(key >= 100), key).unwrap();
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    for number in 1..=3 {
        for ((_, key), row) in read(&checkpoints.open(number).unwrap(), 100) {
            let one = found(number, key).unwrap();
            assert_eq!([bits(&one.values), bits(&one.state)].concat(), row, "{key} in {number}");
        }
    }
    assert_eq!(found(3, 2).map(|row| row.number), Some(3), "removed by 2 and written again");
    assert_eq!(found(3, 9).map(|row| row.number), Some(1));
    assert_eq!([found(3, 7), found(2, 100), found(3, 8), found(4, 9)], [None, None, None, None]);
    checkpoints.disk().flip_bit("checkpoint-1/table-0-user-rows-00000.safetensors", 200, 1);
    assert_eq!(found(3, 2).map(|row| row.number), Some(3), "files that are not needed are not read");
    let error = checkpoints.find(3, 0, 9).unwrap_err();
    assert!(matches!(error, CheckpointError::Damaged { .. }), "{error}");
}

#[test]
fn every_damaged_file_of_a_checkpoint_is_named() {
    let checkpoints = some();
    let faults = |number| {
        let mut faults = Vec::new();
        checkpoints
            .verify_files(number, |file, result| faults.extend(result.err().map(|_| file.name.clone())))?;
        Ok::<_, CheckpointError>(faults)
    };
    assert!(faults(1).unwrap().is_empty());
    checkpoints.disk().flip_bit("checkpoint-1/state.bin", 2, 1);
    checkpoints.disk().remove("checkpoint-1/table-1-item__-rows-00000.safetensors").unwrap();
    assert_eq!(faults(1).unwrap(), ["table-1-item__-rows-00000.safetensors", "state.bin"]);
    assert!(faults(2).unwrap().is_empty(), "its base is not read");
    assert!(matches!(faults(9), Err(CheckpointError::Missing { number: 9 })));
}

#[test]
fn one_checkpoint_is_removed_and_no_other() {
    let checkpoints = some();
    checkpoints.remove(3).unwrap();
    checkpoints.remove(3).unwrap();
    let numbers: Vec<_> = checkpoints.list().unwrap().iter().map(|listed| listed.number).collect();
    assert_eq!(numbers, [4, 2, 1]);
    assert_eq!(checkpoints.manifests(2).unwrap().len(), 2);
    assert!(matches!(checkpoints.manifests(3), Err(CheckpointError::Missing { number: 3 })));
}
