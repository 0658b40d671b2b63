//! Reading files with arbitrary contents returns the written data or an error: no panic, no memory that the
//! files do not have.

use libra_storage::checkpoint::{Checkpoints, Description, PartSettings, TableInfo};
use libra_storage::disk::SimulatedDisk;
use libra_storage::wal::{Log, RecordNumber, Settings};
use proptest::prelude::*;

const SEGMENT: &str = "log-00000000000000000001.libra";
const MANIFEST: &str = "checkpoint-1/manifest.json";

fn open_log(disk: &SimulatedDisk, from: u64) {
    let opened = Log::open(disk.clone(), Settings::new(1, 0), RecordNumber(from), |_, _| Ok(()));
    if let Ok((mut log, _)) = opened {
        log.append(b"goes on").unwrap();
        log.sync().unwrap();
    }
}

fn log() -> (SimulatedDisk, Vec<u8>) {
    let disk = SimulatedDisk::new(1);
    let (mut log, _) =
        Log::open(disk.clone(), Settings::new(1, 0), RecordNumber::NONE, |_, _| Ok(())).unwrap();
    for record in [&b"one"[..], b"", b"three"] {
        log.append(record).unwrap();
        log.sync().unwrap();
    }
    let bytes = disk.contents()[SEGMENT].clone();
    (disk, bytes)
}

fn checkpoints() -> (Checkpoints<SimulatedDisk>, String) {
    let checkpoints = Checkpoints::new(SimulatedDisk::new(1));
    let table = TableInfo { name: "t".into(), keys: 0..50, width: 2, state: 1, rule: 1.into() };
    let description = Description {
        number: 1,
        job: 1,
        seed: 1,
        shards: 1,
        shard: 0,
        covers: RecordNumber(5),
        steps: [("a".into(), 7)].into(),
        tables: vec![table],
        position: None,
    };
    let mut writer = checkpoints.begin(description, None, PartSettings::default()).unwrap();
    writer.write_rows(0, &[1, 2], &[1.0; 4], &[1.0; 2]).unwrap();
    writer.finish(b"state").unwrap();
    let manifest = String::from_utf8(checkpoints.disk().contents()[MANIFEST].clone()).unwrap();
    (checkpoints, manifest)
}

/// Reads all there is in every way.
fn read_all(checkpoints: &Checkpoints<SimulatedDisk>) {
    checkpoints.list().unwrap();
    checkpoints.verify(1).ok();
    if let Some(checkpoint) = checkpoints.newest_valid().unwrap().checkpoint {
        let mut blocks = checkpoint.blocks(usize::MAX);
        while let Ok(Some(_)) = blocks.next_block() {}
        libra_storage::checkpoint::export(&[checkpoint], &SimulatedDisk::new(1), 100).ok();
    }
    checkpoints.prune(1).unwrap();
}

/// A manifest with a checksum that is right.
fn sealed(manifest: &str) -> Vec<u8> {
    let (_, rest) = manifest.split_once(",").unwrap();
    let sum = crc32c::crc32c(rest.trim_end_matches('\n').as_bytes());
    format!("{{\n  \"checksum\": \"{sum:08x}\",{rest}").into_bytes()
}

#[test]
fn sealing_is_as_the_writer_does_it() {
    let (_, manifest) = checkpoints();
    assert_eq!(sealed(&manifest), manifest.as_bytes());
}

#[test]
fn numbers_of_a_manifest_that_cannot_be() {
    let (checkpoints, manifest) = checkpoints();
    let digits: Vec<_> =
        manifest.match_indices(|letter: char| letter.is_ascii_digit()).map(|(at, _)| at).collect();
    let numbers =
        ["0", "3", "-1", "1e30", "4294967295", "9223372036854775807", "18446744073709551615", "null", "[]"];
    for at in digits.into_iter().filter(|at| !manifest.as_bytes()[at - 1].is_ascii_digit()) {
        let end = at + manifest[at..].find(|letter: char| !letter.is_ascii_digit()).unwrap();
        for number in numbers {
            let changed = format!("{}{number}{}", &manifest[..at], &manifest[end..]);
            checkpoints.disk().put(MANIFEST, &sealed(&changed));
            read_all(&checkpoints);
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_as_a_segment(bytes: Vec<u8>, from in 0..5u64) {
        let disk = SimulatedDisk::new(1);
        disk.put(SEGMENT, &bytes);
        open_log(&disk, from);
    }

    #[test]
    fn any_bytes_after_a_sound_header(bytes: Vec<u8>, kept in 36..200usize, from in 0..5u64) {
        let (disk, sound) = log();
        let bytes = [&sound[..kept.min(sound.len())], &bytes].concat();
        disk.put(SEGMENT, &bytes);
        open_log(&disk, from);
    }

    #[test]
    fn parts_of_a_log_in_any_order(pieces in proptest::collection::vec((36..120usize, 1..60usize), 0..20)) {
        let (disk, sound) = log();
        let mut bytes = sound[..36].to_vec();
        for (start, length) in pieces {
            bytes.extend(&sound[start.min(sound.len())..(start + length).min(sound.len())]);
        }
        disk.put(SEGMENT, &bytes);
        open_log(&disk, 0);
    }

    #[test]
    fn any_name_as_a_segment(name in "log-[0-9]{0,22}.libra") {
        let disk = SimulatedDisk::new(1);
        disk.put(&name, b"LIBRALOG");
        open_log(&disk, 3);
    }

    #[test]
    fn any_bytes_as_a_manifest(bytes: Vec<u8>) {
        let (checkpoints, _) = checkpoints();
        checkpoints.disk().put(MANIFEST, &bytes);
        read_all(&checkpoints);
    }

    #[test]
    fn any_text_in_a_sealed_manifest(at in 0..2000usize, length in 0..40usize, text: String) {
        let (checkpoints, manifest) = checkpoints();
        let start = 26 + at % (manifest.len() - 26);
        let end = (start + length).min(manifest.len());
        checkpoints.disk().put(MANIFEST, &sealed(&format!("{}{text}{}", &manifest[..start], &manifest[end..])));
        read_all(&checkpoints);
    }

    #[test]
    fn any_bytes_as_rows(bytes: Vec<u8>, seal: bool) {
        let (checkpoints, manifest) = checkpoints();
        checkpoints.disk().put("checkpoint-1/table-0-t-rows-00000.safetensors", &bytes);
        if seal {
            // The manifest agrees with the bytes, as far as it can.
            let mut json: serde_json::Value = serde_json::from_str(&manifest).unwrap();
            json["files"][0]["bytes"] = bytes.len().into();
            json["files"][0]["checksum"] = format!("{:08x}", crc32c::crc32c(&bytes)).into();
            let text = serde_json::to_string_pretty(&json).unwrap();
            let rest = text.strip_prefix('{').unwrap();
            checkpoints.disk().put(MANIFEST, &sealed(&format!("{{\n  \"checksum\": \"00000000\",{rest}\n")));
        }
        assert!(checkpoints.open(1).is_err());
        read_all(&checkpoints);
    }
}
