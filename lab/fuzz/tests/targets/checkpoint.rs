//! Checkpoints: any bytes in place of a manifest, and of a file of rows (safetensors).

use libra_fuzz::{Outcome, Target};
use libra_storage::checkpoint::{
    CheckpointError, Checkpoints, Description, Fault, PartSettings, TableInfo, export,
};
use libra_storage::disk::SimulatedDisk;
use libra_storage::wal::RecordNumber;

const MANIFEST: &str = "checkpoint-2/manifest.json";
const ROWS: &str = "checkpoint-2/table-0-t-rows-00000.safetensors";
/// The checksum of a manifest begins at this byte and has eight digits, and the bytes behind it begin at that one.
const CHECKSUM: usize = 17;
const BEHIND_CHECKSUM: usize = 27;

/// A full checkpoint and an increment.
fn written() -> Checkpoints<SimulatedDisk> {
    let checkpoints = Checkpoints::new(SimulatedDisk::new(1));
    let table = TableInfo { name: "t".into(), keys: 0..50, width: 2, state: 1, rule: 1.into() };
    let description = |number| Description {
        number,
        job: 1,
        seed: 1,
        shards: 1,
        shard: 0,
        covers: RecordNumber(5),
        steps: [("a".into(), 7)].into(),
        tables: vec![table.clone()],
        position: None,
    };
    let mut writer = checkpoints.begin(description(1), None, PartSettings::default()).unwrap();
    writer.write_rows(0, &[1, 2, 9], &[1.0; 6], &[1.0; 3]).unwrap();
    writer.finish(b"state").unwrap();
    let mut writer = checkpoints.begin(description(2), Some(1), PartSettings::default()).unwrap();
    writer.write_rows(0, &[1, 3], &[2.0; 4], &[2.0; 2]).unwrap();
    writer.remove_rows(0, &[9]).unwrap();
    writer.finish(b"state").unwrap();
    checkpoints
}

fn file(checkpoints: &Checkpoints<SimulatedDisk>, name: &str) -> Vec<u8> {
    checkpoints.disk().contents().remove(name).unwrap_or_else(|| panic!("there is no {name}"))
}

/// Makes the checksum of a manifest right.
pub(crate) fn seal(manifest: &mut [u8]) {
    if manifest.len() > BEHIND_CHECKSUM {
        let behind = &manifest[BEHIND_CHECKSUM..];
        let behind = behind.strip_suffix(b"\n").unwrap_or(behind);
        let sum = format!("{:08x}", crc32c::crc32c(behind));
        manifest[CHECKSUM..CHECKSUM + 8].copy_from_slice(sum.as_bytes());
    }
}

/// Reads a checkpoint in every way. One that cannot be used is passed over, in favour of the one before.
fn read(checkpoints: &Checkpoints<SimulatedDisk>) -> Outcome {
    checkpoints.list().unwrap();
    let verified = checkpoints.verify(2);
    let newest = checkpoints.newest_valid().unwrap();
    let Some(checkpoint) = newest.checkpoint else { panic!("the full one is sound") };
    assert_eq!(verified.is_ok(), newest.skipped.is_empty());
    let mut blocks = checkpoint.blocks(usize::MAX);
    let mut end = Ok(());
    loop {
        match blocks.next_block() {
            Ok(Some(_)) => {}
            Ok(None) => break,
            Err(error) => {
                end = Err(error);
                break;
            }
        }
    }
    let exported = export(&[checkpoint], &SimulatedDisk::new(1), 100);
    assert!(exported.is_ok() || end.is_err());
    checkpoints.prune(1).unwrap();
    match verified.map(drop).and(end) {
        Ok(()) => Outcome::beyond("ok"),
        Err(CheckpointError::Damaged { fault, .. }) => {
            let is_first = matches!(fault, Fault::Checksum { .. } | Fault::Header { expected: "a manifest" });
            let name = match fault {
                Fault::Field { field, .. } => format!("field {field}"),
                fault => format!("{fault:?}").split([' ', '(']).next().unwrap_or_default().to_owned(),
            };
            if is_first { Outcome::refused(name) } else { Outcome::beyond(name) }
        }
        Err(error) => Outcome::beyond(format!("{error:?}").split([' ', '(']).next().unwrap_or_default()),
    }
}

pub(crate) fn manifests() -> Target {
    Target::new("manifest", vec![file(&written(), MANIFEST)]).sealed(seal)
}

pub(crate) fn read_manifest(bytes: &[u8]) -> Outcome {
    let checkpoints = written();
    checkpoints.disk().put(MANIFEST, bytes);
    read(&checkpoints)
}

/// The manifest with the length and the checksum of other rows, so that it agrees with them.
fn manifest_of(manifest: &[u8], rows: &[u8]) -> Vec<u8> {
    let text = str::from_utf8(manifest).unwrap();
    let (_, name) = ROWS.split_once('/').unwrap();
    let (before, file) = text.split_once(name).unwrap();
    let (content, behind) = file.split_once("\"bytes\": ").unwrap();
    let (_, behind) = behind.split_once('}').unwrap();
    let (bytes, sum) = (rows.len(), crc32c::crc32c(rows));
    let entry = format!("\"bytes\": {bytes},\n      \"checksum\": \"{sum:08x}\"\n    }}");
    let mut bytes = [before, name, content, &entry, behind].concat().into_bytes();
    seal(&mut bytes);
    bytes
}

pub(crate) fn rows() -> Target {
    Target::new("safetensors", vec![file(&written(), ROWS)])
}

pub(crate) fn read_rows(bytes: &[u8]) -> Outcome {
    let checkpoints = written();
    let manifest = manifest_of(&file(&checkpoints, MANIFEST), bytes);
    checkpoints.disk().put(ROWS, bytes);
    checkpoints.disk().put(MANIFEST, &manifest);
    read(&checkpoints)
}

#[test]
fn a_sealed_manifest_is_as_it_was_written() {
    let (manifest, rows) = (file(&written(), MANIFEST), file(&written(), ROWS));
    let mut sealed = manifest.clone();
    sealed[CHECKSUM..CHECKSUM + 8].fill(b'0');
    seal(&mut sealed);
    assert_eq!(sealed, manifest);
    assert_eq!(manifest_of(&manifest, &rows), manifest);
}
