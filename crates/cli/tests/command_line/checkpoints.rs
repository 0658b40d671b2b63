//! `libra checkpoint` on what servers write.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use libra_plan::shard_of;
use libra_storage::checkpoint::{Checkpoints, Description, PartSettings, TableInfo};
use libra_storage::disk::RealDisk;
use libra_storage::wal::{Log, RecordNumber, Settings};
use serde_json::Value;
use tempfile::TempDir;

use crate::process::{DEADLINE, assert_refused, json, run};

const ROWS: u64 = 40;

/// The data directory of a job.
struct Job {
    directory: TempDir,
    shards: u16,
}

impl Job {
    fn new(shards: u16) -> Self {
        Self { directory: TempDir::new().unwrap(), shards }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn shard(&self, shard: u16) -> PathBuf {
        self.path().join(format!("shard-{shard}"))
    }

    /// Writes a shard's part of a checkpoint with those of `keys` that it has.
    fn write_part(&self, shard: u16, number: u64, base: Option<u64>, keys: std::ops::Range<u64>) {
        let table = |name: &str, keys, width, state| TableInfo {
            name: name.into(),
            keys,
            width,
            state,
            rule: serde_json::json!({ "optimizer": "adagrad" }),
        };
        let description = Description {
            number,
            job: 1,
            seed: 9,
            shards: self.shards.into(),
            shard: shard.into(),
            covers: RecordNumber(number),
            steps: [("user".into(), 10 * number)].into(),
            tables: vec![table("user", 0..ROWS, 2, 1), table("item", ROWS..2 * ROWS, 1, 0)],
            position: None,
        };
        let disk = open(self.shard(shard));
        let mut writer = Checkpoints::new(disk).begin(description, base, PartSettings::default()).unwrap();
        for key in keys.filter(|key| shard_of(*key, self.shards) == shard) {
            let first = value(number, key);
            if key < ROWS {
                writer.write_rows(0, &[key], &[first, -first], &[0.5]).unwrap();
            } else {
                writer.write_rows(1, &[key], &[first], &[]).unwrap();
            }
        }
        writer.finish(b"state").unwrap();
    }

    fn write(&self, number: u64, base: Option<u64>, keys: std::ops::Range<u64>) {
        for shard in 0..self.shards {
            self.write_part(shard, number, base, keys.clone());
        }
    }

    fn log(&self, shard: u16, records: u8) {
        let disk = open(self.shard(shard));
        let settings = Settings { segment_bytes: 100, ..Settings::new(1, shard.into()) };
        let (mut log, _) = Log::open(disk, settings, RecordNumber::NONE, |_, _| Ok(())).unwrap();
        for record in 0..records {
            log.append(&[record; 60]).unwrap();
            log.sync().unwrap();
        }
        log.close().unwrap();
    }

    /// Runs `libra checkpoint` with these words behind the directory, and reads what it wrote for machines.
    fn checkpoint(&self, subcommand: &str, more: &[&str]) -> (Option<i32>, String, Value) {
        let file = self.directory.path().join("out.json");
        let _ = fs::remove_file(&file);
        let (path, out) = (self.path(), file.to_str().unwrap().to_owned());
        let arguments = ["checkpoint", subcommand, path.to_str().unwrap(), "--json", &out];
        let output = run(&[&arguments[..], more].concat());
        let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        let value =
            if fs::read(&file).is_ok_and(|bytes| !bytes.is_empty()) { json(&file) } else { Value::Null };
        (output.status.code(), text, value)
    }

    fn refused(&self, subcommand: &str, more: &[&str], words: &[&str]) {
        let path = self.path();
        assert_refused(&[&["checkpoint", subcommand, path.to_str().unwrap()], more].concat(), 1, words);
    }
}

/// Opens a directory to write to it. A process that another test starts holds the lock of this one between fork and exec.
fn open(directory: PathBuf) -> RealDisk {
    let deadline = Instant::now() + DEADLINE;
    loop {
        match RealDisk::open(directory.clone()) {
            Ok(disk) => return disk,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
    }
}

fn value(number: u64, key: u64) -> f32 {
    (1000 * number + key) as f32
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 4;
    fs::write(path, bytes).unwrap();
}

/// The file of rows of users in a part of a checkpoint.
fn users(shard: &Path, number: u64) -> PathBuf {
    shard.join(format!("checkpoint-{number}/table-0-user-rows-00000.safetensors"))
}

/// All files below a directory, but the locks, with their bytes.
fn contents(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.push((path.clone(), Vec::new()));
            all.extend(contents(&path));
        } else if path.file_name().unwrap() != "lock" {
            let bytes = fs::read(&path).unwrap();
            all.push((path, bytes));
        }
    }
    all.sort();
    all
}

/// Full 1, its increment 2, of 3 only one part, full 4; a log in each shard.
fn some(shards: u16) -> Job {
    let job = Job::new(shards);
    job.write(1, None, 0..2 * ROWS);
    job.write(2, Some(1), 10..50);
    job.write_part(0, 3, None, 0..2 * ROWS);
    job.write(4, None, 0..2 * ROWS);
    for shard in 0..shards {
        job.log(shard, 7);
    }
    job
}

#[test]
fn a_list_groups_the_parts_of_all_shards() {
    let job = some(3);
    fs::create_dir(job.shard(1).join("checkpoint-9.partial")).unwrap();
    fs::remove_file(users(&job.shard(2), 4)).unwrap();
    let before = contents(&job.path());
    let (code, text, listing) = job.checkpoint("list", &[]);
    assert_eq!(code, Some(0), "{text}");
    let checkpoints = listing["checkpoints"].as_array().unwrap();
    let of = |field: &str| checkpoints.iter().map(|one| one[field].clone()).collect::<Vec<_>>();
    assert_eq!(of("number"), [4, 3, 2, 1]);
    assert_eq!(of("complete"), [false, false, true, true]);
    assert_eq!(of("rows")[2..], [40, 80]);
    assert_eq!(of("base"), [Value::Null, Value::Null, 1.into(), Value::Null]);
    assert_eq!(checkpoints[1]["missing"], serde_json::json!(["shard-1", "shard-2"]));
    assert!(checkpoints[0]["damaged"][0].as_str().unwrap().contains("shard-2/checkpoint-4/table-0-user"));
    assert_eq!(listing["logs"][2]["first_record"], 1);
    assert!(listing["logs"][0]["segments"].as_u64().unwrap() > 2);
    let words = [
        "shard-1, shard-2",
        "missing",
        "damaged",
        "changes since 1",
        "full",
        "user, item",
        "(UTC)",
        "9.partial",
    ];
    for word in words {
        assert!(text.contains(word), "{word:?} is not in\n{text}");
    }
    assert!(contents(&job.path()) == before, "looking changes nothing");

    // The directory of one shard by itself.
    let shard = job.shard(1);
    let output = run(&["checkpoint", "list", shard.to_str().unwrap()]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("complete") && text.contains("changes since 1"), "{text}");
}

#[test]
fn a_checkpoint_can_be_looked_into_down_to_one_row() {
    let job = some(2);
    let (code, text, seen) = job.checkpoint("inspect", &["2"]);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(seen["shards"][1]["manifest"]["steps"]["user"], 20);
    assert_eq!(seen["shards"][0]["numbers"], serde_json::json!([1, 2]));
    for word in
        ["since checkpoint 1", "0..40", "adagrad", "user 20", "records up to 2", "state.bin", "seed 9"]
    {
        assert!(text.contains(word), "{word:?} is not in\n{text}");
    }
    let row = |number: &str, key: &str| job.checkpoint("inspect", &[number, "--key", key]).2;
    assert_eq!(row("2", "11")["values"], serde_json::json!([2011.0, -2011.0]));
    assert_eq!(row("2", "11")["state"], serde_json::json!([0.5]));
    let old = row("2", "9");
    assert_eq!(
        (&old["values"][0], &old["written_in"], &old["table"]),
        (&1009.0.into(), &1.into(), &"user".into())
    );
    assert_eq!(old["shard"], format!("shard-{}", shard_of(9, 2)));
    assert_eq!(row("2", "79")["values"], serde_json::json!([1079.0]));
    assert_eq!(job.checkpoint("inspect", &[]).2["number"], 4, "the newest complete one");
    job.refused("inspect", &["7"], &["no checkpoint 7", "4, 3, 2, 1"]);
    job.refused("inspect", &["3"], &["checkpoint 3", "not complete", "shard-1 has none"]);
    job.refused("inspect", &["--key", "80"], &["no table", "key 80", "user 0..40, item 40..80"]);
    job.write(5, None, 0..3);
    job.refused("inspect", &["--key", "30"], &["row 30", "never written"]);
}

#[test]
fn verification_names_everything_that_is_damaged() {
    let job = some(2);
    let before = contents(&job.path());
    let (code, text, verdict) = job.checkpoint("verify", &[]);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(verdict["damaged"].as_array().unwrap().len(), 0);
    assert_eq!((&verdict["checkpoints"], &verdict["log_records"]), (&7.into(), &14.into()));
    let bytes = |suffix: &str| -> usize {
        before
            .iter()
            .filter(|(path, _)| path.to_str().unwrap().ends_with(suffix))
            .map(|(_, bytes)| bytes.len())
            .sum()
    };
    assert_eq!(verdict["bytes"], bytes(".safetensors") + bytes(".bin"));
    assert_eq!(verdict["log_bytes"], bytes(".libra"));
    assert!(
        text.contains("as it was written") && text.contains("/s") && text.contains("shard-1 has no"),
        "{text}"
    );
    assert!(contents(&job.path()) == before, "looking changes nothing");

    flip(&users(&job.shard(0), 1), 300);
    fs::remove_file(users(&job.shard(1), 4)).unwrap();
    let segments: Vec<_> =
        before.iter().filter(|(path, _)| path.extension().is_some_and(|end| end == "libra")).collect();
    flip(&segments[1].0, 70);
    let (code, text, verdict) = job.checkpoint("verify", &[]);
    assert_eq!(code, Some(1), "{text}");
    let damaged: Vec<_> =
        verdict["damaged"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
    assert_eq!(damaged.len(), 3, "{damaged:#?}");
    let named = |path: &Path, what: &str| {
        let path = path.to_str().unwrap();
        damaged.iter().any(|one| one.contains(path) && one.contains(what))
    };
    assert!(named(&users(&job.shard(0), 1), "its checksum is"), "{damaged:#?}");
    assert!(named(&users(&job.shard(1), 4), "missing"), "{damaged:#?}");
    assert!(named(&segments[1].0, "checksum of the record"), "{damaged:#?}");
    assert!(text.contains("3 things in"), "{text}");
    assert_eq!(job.checkpoint("verify", &["2"]).0, Some(1), "what it builds on is damaged");
    assert_eq!(job.checkpoint("verify", &["3"]).0, Some(0), "a shard without it is no damage");

    let manifest = job.shard(1).join("checkpoint-2/manifest.json");
    flip(&manifest, 200);
    job.refused("verify", &["2"], &["2 things"]);
    job.refused("inspect", &["2"], &[manifest.to_str().unwrap(), "checksum"]);
    assert_eq!(job.checkpoint("list", &[]).0, Some(0));
}

const SCRIPT: &str = "
import json, sys
from safetensors.numpy import load_file
root = sys.argv[1]
index = json.load(open(root + '/export.json'))
for table in index['tables']:
    for file in table['files']:
        tensors = load_file(root + '/' + file['name'])
        assert len(tensors['keys']) == file['rows'] and tensors['values'].shape == (file['rows'], table['width'])
        assert tensors['state'].shape == (file['rows'], table['state'])
        for key, row in zip(tensors['keys'].tolist(), tensors['values'].tolist()):
            print(table['name'], key, *row)
";

#[test]
fn python_reads_an_export() {
    if !Command::new("python3")
        .args(["-c", "import numpy, safetensors"])
        .output()
        .is_ok_and(|output| output.status.success())
    {
        // Past the capture of the test runner, so that it is seen although the test passes.
        let skipped = "SKIPPED: python3 cannot import numpy and safetensors: pip install numpy safetensors\n";
        std::io::stderr().write_all(skipped.as_bytes()).unwrap();
        return;
    }
    let job = some(3);
    let mut expected = Vec::new();
    for key in 0..2 * ROWS {
        let first = value(if (10..50).contains(&key) { 2 } else { 1 }, key);
        expected.push(if key < ROWS {
            format!("user {key} {first:?} {:?}", -first)
        } else {
            format!("item {key} {first:?}")
        });
    }
    for shards in ["1", "4"] {
        let to = job.directory.path().join(format!("model-{shards}"));
        let (code, text, _) =
            job.checkpoint("export", &["2", "--to", to.to_str().unwrap(), "--shards", shards]);
        assert_eq!(code, Some(0), "{text}");
        let output = Command::new("python3").args(["-c", SCRIPT]).arg(&to).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        if shards == "1" {
            assert_eq!(lines, expected);
        } else {
            lines.sort();
            expected.sort();
            assert_eq!(lines, expected);
        }
    }
}

#[test]
fn an_export_is_whole_and_overwrites_nothing() {
    let job = some(2);
    let to = job.directory.path().join("model");
    let export = |more: &[&str]| job.checkpoint("export", &[&["--to", to.to_str().unwrap()], more].concat());
    let (code, text, written) = export(&["1", "--shards", "2"]);
    assert_eq!(code, Some(0), "{text}");
    let names: Vec<_> = contents(&to)
        .into_iter()
        .map(|(path, _)| path.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    let files =
        ["0-user-00000-of-00002", "0-user-00001-of-00002", "1-item-00000-of-00002", "1-item-00001-of-00002"];
    let mut expected: Vec<_> = files.iter().map(|name| format!("{name}.safetensors")).collect();
    expected.push("export.json".to_owned());
    assert_eq!(names, expected);
    assert_eq!((&written["checkpoint"], &written["tables"][0]["width"]), (&1.into(), &2.into()));
    assert!(!to.join("lock").exists());
    let (code, text, _) = export(&[]);
    assert!(code == Some(1) && text.contains("nothing is overwritten"), "{text}");
    fs::remove_dir_all(&to).unwrap();
    let (code, text, _) = export(&["3"]);
    assert!(code == Some(1) && text.contains("not complete"), "{text}");
    flip(&users(&job.shard(0), 4), 300);
    let (code, text, _) = export(&["4"]);
    assert!(
        code == Some(1) && text.contains("checkpoint-4/table-0-user") && text.contains("checksum"),
        "{text}"
    );
    assert!(!to.exists() && !job.directory.path().join("model.partial").exists(), "nothing is left of it");
}

#[test]
fn pruning_keeps_what_is_needed_and_what_is_sound() {
    let job = some(2);
    job.write(5, Some(4), 0..5);
    fs::create_dir(job.shard(1).join("checkpoint-9.partial")).unwrap();
    fs::write(job.shard(1).join("checkpoint-9.partial/x"), [0; 100]).unwrap();
    let before = contents(&job.path());
    let (code, text, dry) = job.checkpoint("prune", &["--keep-checkpoints", "1", "--dry-run"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("would remove") && contents(&job.path()) == before);
    let (code, text, pruned) = job.checkpoint("prune", &["--keep-checkpoints", "1"]);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!((&pruned["removed"], &pruned["freed_bytes"]), (&dry["removed"], &dry["freed_bytes"]));
    assert_eq!((pruned["kept"][0].as_u64(), pruned["kept_as_base"][0].as_u64()), (Some(5), Some(4)));
    let of = |listing: &Value| -> Vec<u64> {
        let all = listing["checkpoints"].as_array().unwrap();
        all.iter().map(|one| one["number"].as_u64().unwrap()).collect()
    };
    let listing = job.checkpoint("list", &[]).2;
    assert_eq!(of(&listing), [5, 4]);
    assert!(listing["leftovers"].as_array().unwrap().is_empty());
    let freed = |all: &[(PathBuf, Vec<u8>)]| all.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
    assert_eq!(pruned["freed_bytes"], freed(&before) - freed(&contents(&job.path())));
    assert_eq!(job.checkpoint("verify", &[]).0, Some(0), "logs and the rest are as they were");

    // One that is damaged does not count, and stays as long as it is newer than those that do.
    job.write(6, None, 0..2 * ROWS);
    flip(&users(&job.shard(0), 6), 300);
    let pruned = job.checkpoint("prune", &["--keep-checkpoints", "1"]).2;
    assert_eq!((&pruned["kept_newer"][0], &pruned["kept_as_base"][0]), (&6.into(), &4.into()));
    assert_eq!(of(&job.checkpoint("list", &[]).2), [6, 5, 4]);
    job.write(7, None, 0..2 * ROWS);
    job.checkpoint("prune", &["--keep-checkpoints", "1"]);
    assert_eq!(of(&job.checkpoint("list", &[]).2), [7]);
    flip(&users(&job.shard(0), 7), 300);
    let (code, text, _) = job.checkpoint("prune", &["--keep-checkpoints", "1"]);
    assert!(code == Some(0) && text.contains("none was removed"), "{text}");
    assert_eq!(of(&job.checkpoint("list", &[]).2), [7]);
    assert_refused(
        &["checkpoint", "prune", "x", "--keep-checkpoints", "0"],
        2,
        &["--keep-checkpoints", "1.."],
    );
}

#[test]
fn nothing_is_pruned_that_a_server_writes_to() {
    let job = some(2);
    let before = contents(&job.path());
    let server = open(job.shard(1));
    job.refused("prune", &["--keep-checkpoints", "1"], &["server", "shard-1", "another process"]);
    assert!(contents(&job.path()) == before);
    drop(server);
    assert_eq!(job.checkpoint("prune", &["--keep-checkpoints", "1"]).0, Some(0));
}

#[test]
fn parts_of_different_jobs_are_no_checkpoint() {
    let job = some(2);
    fs::rename(job.shard(1), job.shard(5)).unwrap();
    fs::rename(job.shard(0), job.shard(1)).unwrap();
    job.refused("inspect", &["4"], &["shard-1/checkpoint-4 is of shard 0, not 1"]);
    job.refused("export", &["--to", "nowhere"], &["no checkpoint that all its shards have"]);
}

#[test]
fn a_directory_without_checkpoints_is_refused() {
    let job = Job::new(1);
    for subcommand in ["list", "inspect", "verify"] {
        job.refused(subcommand, &[], &["cannot read the directory", "data"]);
    }
    fs::create_dir(job.path()).unwrap();
    for (subcommand, more) in [
        ("list", &[][..]),
        ("verify", &[]),
        ("export", &["--to", "x"]),
        ("prune", &["--keep-checkpoints", "1"]),
    ] {
        job.refused(subcommand, more, &["data is no directory of checkpoints", "shard-<n>"]);
    }
    assert!(contents(&job.path()).is_empty(), "nothing was made there");
    job.log(0, 1);
    job.refused("inspect", &[], &["no checkpoint", "there is none"]);
    assert_refused(&["checkpoint", "inspect", "x", "seven"], 2, &["seven"]);
}

#[test]
fn a_checkpoint_without_a_position_is_not_resumed() {
    let job = Job::new(1);
    job.write_part(0, 3, None, 0..ROWS);
    let path = job.path();
    let refused = ["train", "--quiet", "--resume", path.to_str().unwrap()];
    assert_refused(&refused, 1, &["--resume", "checkpoint 3 has no position in the data", "--restore-from"]);
}
