//! Servers whose rows take more memory than they may: soaks with kills, a full disk, and a disk that damages blocks.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::process::{DEADLINE, Member, assert_refused, json, run};

/// Runs a soak that is to be equal to the bit, and returns the counts of its servers.
fn soak(options: &[&str]) -> Value {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("out.json");
    let output =
        run(&[&["soak", "--memory-limit", "1MiB", "--json", file.to_str().unwrap()], options].concat());
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{stdout}{stderr}");
    let json = json(&file);
    assert_eq!((&json["equal"], &json["differences"]), (&Value::Bool(true), &Value::from(0)));
    assert!(stdout.contains("on disk"), "{stdout}");
    json["server"].clone()
}

#[test]
fn servers_with_a_memory_limit_that_are_killed_lose_nothing() {
    let kills = ["--kill", "server@2s,switch@3s", "--kill", "server@4s"];
    let counts = soak(&[&["--seconds", "6", "--log", "--checkpoint-every", "1.5"], &kills[..]].concat());
    let count = |name: &str| counts[name].as_u64().unwrap();
    assert!(count("rows_on_disk") > count("rows") / 2, "{counts:#}");
    assert!(count("disk_rows_read") > 1_000 && count("disk_rows_written") > 1_000, "{counts:#}");
    assert_eq!(count("shards_over_limit"), 0);
}

#[test]
fn servers_on_a_full_disk_keep_rows_above_the_limit() {
    let counts = soak(&["--seconds", "3", "--file-limit", "512KiB"]);
    assert_eq!(counts["shards_over_limit"], 4, "{counts:#}");
    assert!(counts["rows_on_disk"].as_u64().unwrap() < counts["rows"].as_u64().unwrap() / 2, "{counts:#}");
}

/// The files of rows of the servers that a process has started, if some are on disk: the files have no other name.
fn row_files(parent: u32) -> Vec<File> {
    let output = Command::new("ps").args(["-o", "pid=", "--ppid", &parent.to_string()]).output().unwrap();
    let children = String::from_utf8(output.stdout).unwrap();
    let files = children.split_whitespace().flat_map(|child| {
        let descriptors = fs::read_dir(Path::new("/proc").join(child).join("fd")).into_iter().flatten();
        descriptors.filter_map(|descriptor| {
            let path = descriptor.ok()?.path();
            let target = fs::read_link(&path).ok()?;
            let is_of_rows = target.to_str()?.contains("/state/rows-");
            let file = is_of_rows.then(|| OpenOptions::new().write(true).open(&path).ok())??;
            (file.metadata().ok()?.len() > 1 << 20).then_some(file)
        })
    });
    files.collect()
}

#[test]
fn a_server_whose_blocks_are_damaged_ends_with_one_line() {
    let soak =
        Member::start(&["soak", "--seconds", "60", "--memory-limit", "1MiB", "--servers", "1", "--log"]);
    let deadline = Instant::now() + DEADLINE;
    let files = loop {
        let files = row_files(soak.id());
        if !files.is_empty() {
            break files;
        }
        assert!(Instant::now() < deadline, "no rows are on disk");
        thread::sleep(Duration::from_millis(100));
    };
    for file in files {
        let bytes = file.metadata().unwrap().len();
        for at in (0..bytes).step_by(4096) {
            file.write_all_at(&[0x55; 64], at + 512).unwrap();
        }
    }
    let (code, line) = soak.end();
    assert_eq!(code, Some(1), "{line}");
    for word in ["server process", "cannot read block", "/state/rows-", "its checksum is wrong"] {
        assert!(line.contains(word), "{word:?} is not in {line:?}");
    }
}

#[test]
fn a_limit_that_is_too_low_is_refused_with_what_is_needed() {
    assert_refused(
        &["soak", "--memory-limit", "16KiB"],
        1,
        &["the memory limit is too low", "--memory-limit must be"],
    );
    assert_refused(&["soak", "--memory-limit", "16"], 2, &["KiB, MiB, GiB or TiB"]);
    let output = run(&["server", "--memory-limit", "1GiB"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--state-dir"));
}
