//! Exports for serving, beside the jobs whose checkpoints they are of.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::archive::Moto;
use crate::durability::{complete, export, train};
use crate::process::{DEADLINE, Member, Place, assert_refused, json, run};

/// Rows of a table: the bytes of their values.
type Rows = BTreeMap<u64, Vec<u8>>;

/// Reads a file of safetensors: rows, and keys of those that are no more.
fn rows_of(bytes: &[u8]) -> (Rows, Vec<u64>) {
    let (length, rest) = bytes.split_first_chunk::<8>().unwrap();
    let (header, tensors) = rest.split_at(usize::try_from(u64::from_le_bytes(*length)).unwrap());
    let header: Value = serde_json::from_slice(header).unwrap();
    let tensor = |name: &str| {
        let at =
            |index: usize| usize::try_from(header[name]["data_offsets"][index].as_u64().unwrap()).unwrap();
        &tensors[at(0)..at(1)]
    };
    let keys = |name| tensor(name).chunks_exact(8).map(|key| u64::from_le_bytes(key.try_into().unwrap()));
    let width = usize::try_from(header["values"]["shape"][1].as_u64().unwrap()).unwrap();
    assert_eq!(header["values"]["dtype"], "F32");
    let rows = keys("keys").zip(tensor("values").chunks_exact(4 * width).map(<[u8]>::to_vec)).collect();
    let removed = if header["removed"].is_null() { Vec::new() } else { keys("removed").collect() };
    (rows, removed)
}

fn parse(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Reads the newest version: its number, and its tables by name. `None` if there is none.
fn read(to: &Path) -> Option<(u64, BTreeMap<String, Rows>)> {
    let current = to.join("current.json");
    let current = current.exists().then(|| parse(&current))?;
    let tables = current["tables"].as_array().unwrap();
    let names: Vec<String> = tables.iter().map(|table| table["name"].as_str().unwrap().to_owned()).collect();
    let mut tables: BTreeMap<String, Rows> = names.iter().map(|name| (name.clone(), Rows::new())).collect();
    for listed in current["versions"].as_array().unwrap() {
        if listed["version"].as_u64() < current["base"].as_u64() {
            continue;
        }
        let directory = to.join(listed["directory"].as_str().unwrap());
        let manifest = parse(&directory.join("manifest.json"));
        let kind = if listed["version"] == current["base"] { "base" } else { "delta" };
        for file in manifest[kind].as_array().unwrap() {
            let (rows, removed) = rows_of(&fs::read(directory.join(file["name"].as_str().unwrap())).unwrap());
            let name = &names[usize::try_from(file["table"].as_u64().unwrap()).unwrap()];
            let table = tables.get_mut(name).unwrap();
            removed.iter().for_each(|key| assert!(table.remove(key).is_some(), "{key}"));
            table.extend(rows);
        }
    }
    Some((current["version"].as_u64().unwrap(), tables))
}

/// The tables of a checkpoint, by `libra checkpoint export`.
fn whole(state: &str, number: u64, to: &Path) -> BTreeMap<String, Rows> {
    let files = export(state, &number.to_string(), to);
    let name = |file: &str| file.split_once('-').unwrap().1.strip_suffix(".safetensors").unwrap().to_owned();
    files.iter().map(|(file, bytes)| (name(file), rows_of(bytes).0)).collect()
}

/// Waits until a version is there, and compares it with its checkpoint.
fn wait_for(place: &Place, state: &str, to: &str, number: u64) {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some((version, tables)) = read(Path::new(to)).filter(|(version, _)| *version >= number) {
            let directory = place.path(&format!("whole-{version}-{}", to.len()));
            assert_eq!(tables, whole(state, version, Path::new(&directory)), "version {version}");
            return;
        }
        assert!(Instant::now() < deadline, "version {number} is not at {to}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_job_is_exported_while_it_trains() {
    let place = Place::of(60);
    let [state, to, file] = ["state", "to", "export.json"].map(|name| place.path(name));
    let follow = ["export", "--follow", "--from", &state, "--to", &to, "--every", "0.1", "--base-every", "3"];
    let exporter = Member::start(&[&follow[..], &["--json", &file]].concat());
    exporter.line_with("note: cannot read the directory");
    let every = ["--checkpoint-every", "0.2", "--incremental-checkpoints", "3", "--servers", "2"];
    let output = run(&train(&place.data, &state, &[&every[..], &["--epochs", "12"]].concat()));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let newest = complete(&state, place.directory.path())[0];
    wait_for(&place, &state, &to, newest);
    // Another one is told whose the place is.
    let refused = run(&["export", "--from", &state, "--to", &to]);
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(stderr.contains(&format!("another exporter, process {} on", exporter.id())), "{stderr}");
    exporter.signal("-TERM");
    assert_eq!(exporter.end().0, Some(0));
    assert!(!Path::new(&to).join("exporter.json").exists());
    let exports = json(Path::new(&file));
    let versions = exports["versions"].as_array().unwrap();
    assert_eq!(exports["version"], newest);
    assert!(versions.len() >= 3, "{exports}");
    let is_some = |number: &Value| number.as_u64() > Some(0);
    // A checkpoint at the end can be of the same rows as that before it: its delta is empty.
    let changes = |version: &Value| is_some(&version["changed"]) || is_some(&version["removed"]);
    assert!(versions.iter().any(|version| version["incremental"] == true && changes(version)), "{exports}");
    let mut deltas = versions.iter().skip(1);
    assert!(deltas.all(|version| is_some(&version["delta_bytes"]) == changes(version)), "{exports}");
    // It is there already.
    let output = run(&["export", "--from", &state, "--to", &to]);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && stdout.contains(&format!("version {newest} is at {to} already")),
        "{stdout}"
    );
}

#[test]
fn an_exporter_that_is_killed_is_followed_by_another() {
    let place = Place::of(60);
    let [state, to] = ["state", "to"].map(|name| place.path(name));
    let every = ["--checkpoint-every", "0.2", "--incremental-checkpoints", "2"];
    let output = run(&train(&place.data, &state, &[&every[..], &["--epochs", "12"]].concat()));
    assert!(output.status.success());
    let numbers = complete(&state, place.directory.path());
    let (newest, oldest) = (numbers[0], *numbers.last().unwrap());
    let from = format!("{state}@{oldest}");
    assert!(run(&["export", "--from", &from, "--to", &to, "--quiet"]).status.success());
    wait_for(&place, &state, &to, oldest);
    let follow = ["export", "--follow", "--from", &state, "--to", &to, "--every", "0.1"];
    for wait in [5, 20, 60, 150] {
        let exporter = Member::start(&follow);
        thread::sleep(Duration::from_millis(wait));
        exporter.signal("-KILL");
        assert_eq!(exporter.end().0, None);
        let (version, tables) = read(Path::new(&to)).unwrap();
        let directory = place.path(&format!("killed-{wait}"));
        assert_eq!(tables, whole(&state, version, Path::new(&directory)), "version {version}");
    }
    let exporter = Member::start(&follow);
    wait_for(&place, &state, &to, newest);
    exporter.signal("-INT");
    assert_eq!(exporter.end().0, Some(130));
    assert!(!Path::new(&to).join("exporter.json").exists());
    let directories =
        fs::read_dir(&to).unwrap().filter(|entry| entry.as_ref().unwrap().path().is_dir()).count();
    let current = parse(&Path::new(&to).join("current.json"));
    assert_eq!(directories, current["versions"].as_array().unwrap().len());
    // A checkpoint below is of another run.
    assert_refused(
        &["export", "--from", &from, "--to", &to],
        1,
        &["is not above version", "choose another --to"],
    );
}

#[test]
fn exports_that_cannot_be_are_refused() {
    let place = Place::of(60);
    let [state, to] = ["state", "to"].map(|name| place.path(name));
    assert!(run(&train(&place.data, &state, &["--epochs", "1"])).status.success());
    let with = |more: &[&'static str]| {
        let all: Vec<&str> = [&["export", "--from", &state, "--to", &to][..], more].concat();
        all.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let refused = |arguments: &[String], code: i32, words: &[&str]| {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        assert_refused(&arguments, code, words);
    };
    refused(&with(&["--format", "f16"]), 2, &["the formats are f32, bf16 and i8"]);
    refused(&with(&["--every", "3"]), 2, &["required arguments were not provided"]);
    refused(&with(&["--tables", "user,itme"]), 1, &["no table \"itme\"; it has user, item"]);
    assert!(!Path::new(&to).join("exporter.json").exists(), "the place is free again");
    for (to, words) in [
        ("ftp://host/run", "the schemes are file, s3, gs, az, http and https"),
        ("https://host/run", "nothing is exported to a server of HTTP"),
        ("s3://key:geheim@b/run", "credentials belong into the environment"),
        ("s3://b/run?X-Amz-Signature=geheim", "give a directory, without query"),
    ] {
        assert_refused(&["export", "--from", &state, "--to", to], 1, &["--to", words]);
    }
    let none = place.path("none");
    assert_refused(&["export", "--from", &none, "--to", &to], 1, &["cannot read the directory"]);
    let absent = format!("{state}@77");
    assert_refused(&["export", "--from", &absent, "--to", &to], 1, &["has no checkpoint 77; there "]);
    assert_refused(&["export", "--follow", "--from", &absent, "--to", &to], 1, &["leave out the number"]);
    assert_refused(&["export", "--follow", "--from", "s3://b/x?y=geheim", "--to", &to], 1, &["--from"]);
    assert!(run(&["export", "--from", &state, "--to", &to, "--format", "bf16"]).status.success());
    let number = complete(&state, place.directory.path())[0];
    let current = parse(&Path::new(&to).join("current.json"));
    assert_eq!((current["version"].as_u64(), &current["values"]), (Some(number), &"bf16".into()));
    let damaged = Path::new(&to).join("current.json");
    let text = fs::read_to_string(&damaged).unwrap();
    fs::write(&damaged, text.replace("\"user\"", "\"uses\"")).unwrap();
    refused(&with(&[]), 1, &["current.json is damaged: its checksum is", "begin again with a base"]);
}

#[test]
fn an_export_goes_from_bucket_to_bucket() {
    let Some(moto) = Moto::start() else {
        eprintln!("SKIPPED: there is no moto_server: pip install 'moto[server]'");
        return;
    };
    let place = Place::of(60);
    let state = place.path("state");
    let url = "s3://models/run";
    let every = ["--checkpoints", url, "--checkpoint-every", "0.2", "--incremental-checkpoints", "2"];
    let other = place.path("other");
    // Each commits one checkpoint at least, its last.
    for (state, more) in
        [(&state, ["--epochs", "3"].as_slice()), (&other, &["--epochs", "6", "--resume", url])]
    {
        let (done, text) =
            moto.run(&train(&place.data, state, &[&every[..], &["--servers", "3"], more].concat()));
        assert!(done, "{text}");
    }
    let file = place.path("list.json");
    let (done, text) = moto.run(&["checkpoint", "list", url, "--quiet", "--json", &file]);
    assert!(done, "{text}");
    // A number may be on the disks of servers alone.
    let list = json(Path::new(&file))["checkpoints"].as_array().unwrap().clone();
    let numbers: Vec<u64> = list.iter().map(|one| one["number"].as_u64().unwrap()).collect();
    for number in [numbers[1], numbers[0]] {
        let (done, text) =
            moto.run(&["export", "--from", &format!("{url}@{number}"), "--to", "s3://models/export"]);
        assert!(done && text.contains(&format!("version {number}: ")) && !text.contains("geheim"), "{text}");
        assert!(!text.contains("no conditional put"), "{text}");
    }
    let (done, text) = moto.run(&["export", "--from", url, "--to", "s3://absent/export"]);
    assert!(!done && text.contains("there is no such bucket"), "{text}");
    // The same rows as from the disk.
    let to = place.path("to");
    let from = format!("{other}@{}", numbers[0]);
    assert!(run(&["export", "--from", &from, "--to", &to, "--quiet"]).status.success());
    wait_for(&place, &other, &to, numbers[0]);
}
