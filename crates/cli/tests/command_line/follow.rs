//! Jobs that follow their data.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use libra_data::{Make, Output, OutputFormat};
use serde_json::Value;
use tempfile::TempDir;

use crate::process::{DEADLINE, Member, assert_refused, controller, json};

/// Rows of a file.
const ROWS: u64 = 2000;
const MODEL: [&str; 8] =
    ["--model", "deeplight", "--batch", "100", "--follow", "--follow-every", "0.1", "--sample"];

/// Files that are not there yet, and the directory that is followed.
struct Files {
    directory: TempDir,
}

impl Files {
    fn make(files: u64) -> Self {
        let directory = TempDir::new().unwrap();
        let output = Output { format: OutputFormat::Parquet, file_rows: ROWS, group_rows: 400 };
        let made = directory.path().join("made");
        let make = Make { rows: files * ROWS, strength: 3.0, ..Make::default() };
        make.write(&made, &output, &mut |_| ()).unwrap();
        fs::create_dir(directory.path().join("followed")).unwrap();
        fs::copy(made.join("dataset.toml"), directory.path().join("followed/dataset.toml")).unwrap();
        Self { directory }
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_owned()
    }

    fn followed(&self) -> String {
        self.path("followed")
    }

    /// The next file comes, whole.
    fn add(&self, number: u64) {
        let name = format!("part-{number:05}.parquet");
        let from = self.directory.path().join("made").join(&name);
        fs::rename(from, Path::new(&self.followed()).join(name)).unwrap();
    }

    fn complete(&self) {
        fs::write(Path::new(&self.followed()).join("_SUCCESS"), "").unwrap();
    }

    /// The path of events of a member.
    fn events(&self, member: &str) -> String {
        self.path(&format!("{member}.jsonl"))
    }

    fn train<'a>(&'a self, data: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        [&["train", "--data", data][..], &MODEL, &["1"], more].concat()
    }
}

fn report(path: &str) -> Value {
    json(&PathBuf::from(path))
}

/// Waits until so many evaluations are in a file of events.
fn wait_for_tests(events: &str, count: usize) {
    let deadline = Instant::now() + DEADLINE;
    while fs::read_to_string(events).unwrap_or_default().matches("epoch_evaluated").count() < count {
        assert!(Instant::now() < deadline, "fewer than {count} evaluations in {events}");
        sleep(Duration::from_millis(10));
    }
}

/// Each file is tested on before it is trained on, but for the first.
fn assert_files(report: &Value, files: usize) {
    let epochs = report["epochs"].as_array().unwrap();
    assert_eq!(epochs.len(), files, "{report:#}");
    for (number, epoch) in epochs.iter().enumerate() {
        assert_eq!(epoch["samples"], ROWS, "file {number}");
        assert_eq!(epoch["auc"].is_number(), number + 1 < files, "file {number}: {epoch:#}");
    }
    assert_eq!(report["samples"], ROWS * files as u64);
}

#[test]
fn files_are_trained_on_as_they_come() {
    let files = Files::make(5);
    let (data, json, events) = (files.followed(), files.path("report.json"), files.events("train"));
    let member = Member::start(&files.train(&data, &["--json", &json, "--events", &events]));
    member.line_with("waiting for the first file of");
    files.add(1);
    files.add(2);
    wait_for_tests(&events, 1);
    // A name in front of what was taken.
    files.add(0);
    member.line_with("part-00000.parquet is left out");
    fs::write(Path::new(&data).join("part-00003.parquet"), "PAR1").unwrap();
    member.line_with("the files behind it wait for it");
    files.add(4);
    files.add(3);
    files.complete();
    let (code, lines) = member.end_with_lines();
    assert_eq!(code, Some(0), "{lines:?}");
    let report = report(&json);
    assert_files(&report, 4);
    let auc = |number: usize| report["epochs"][number]["auc"].as_f64().unwrap();
    assert!(auc(2) > 0.6, "it learns: {:#}", report["epochs"]);
    assert_eq!(report["quality"]["auc"], report["epochs"][2]["auc"]);
}

#[test]
fn a_job_that_follows_ends_in_order_and_is_resumed() {
    let files = Files::make(4);
    let (data, state) = (files.followed(), files.path("state"));
    let [first, second, third] = ["first", "second", "third"].map(|name| files.path(name));
    files.add(0);
    let events = files.events("train");
    let options = ["--checkpoint-every", "0.1", "--state-dir", &state];
    let outputs = ["--json", &first, "--events", &events];
    let member = Member::start(&files.train(&data, &[options, outputs].concat()));
    files.add(1);
    wait_for_tests(&events, 1);
    member.signal("-TERM");
    let (code, lines) = member.end_with_lines();
    assert_eq!(code, Some(0), "{lines:?}");
    assert_files(&report(&first), 2);
    // Without a rest it waits, and is killed in the middle.
    files.add(2);
    let events = files.events("killed");
    let options = ["--checkpoint-every", "0.1", "--resume", &state, "--events", &events];
    let member = Member::start(&files.train(&data, &options));
    member.line_with("goes on from checkpoint");
    wait_for_tests(&events, 1);
    member.signal("-KILL");
    member.end();
    files.add(3);
    files.complete();
    let resume = ["--resume", &state, "--workers", "1"];
    let member = Member::start(&files.train(&data, &[&resume[..], &["--json", &second]].concat()));
    assert_eq!(member.end().0, Some(0));
    assert_files(&report(&second), 4);
    // There is nothing left.
    let member = Member::start(&files.train(&data, &[&resume[..], &["--json", &third]].concat()));
    assert_eq!(member.end().0, Some(0));
    let report = report(&third);
    assert_eq!(report["data"]["samples_before"], report["samples"]);
    let refused = ["train", "--model", "deeplight", "--data", &data, "--resume", &state, "--switch", "none"];
    assert_refused(&refused, 1, &["--resume", "give --follow"]);
}

/// A job of several processes that follows.
struct Cluster {
    /// Options of its controllers.
    job: Vec<String>,
    address: String,
    controller: Member,
    /// A server and two workers.
    members: Vec<Member>,
    events: [String; 3],
}

impl Cluster {
    fn start(files: &Files) -> Self {
        let data = files.followed();
        let job = [&["--switches", "0", "--servers", "1", "--data", &data][..], &MODEL, &["1"]].concat();
        let (controller, address) = controller(&job);
        let job = job.into_iter().map(str::to_owned).collect();
        let events = ["server", "first", "second"].map(|name| files.events(name));
        let kinds = ["server", "worker", "worker"].into_iter().zip(&events);
        let members = kinds
            .map(|(kind, events)| Member::start(&[kind, "--controller", &address, "--events", events]))
            .collect();
        Self { job, address, controller, members, events }
    }

    /// The controller dies, and returns its successor and the members.
    fn succeed(self, change: impl FnOnce(), more: &[&str]) -> Vec<Member> {
        self.controller.signal("-KILL");
        self.controller.end();
        change();
        let own = ["controller", "--listen", &self.address];
        let options: Vec<&str> =
            own.iter().chain(more).copied().chain(self.job.iter().map(String::as_str)).collect();
        [vec![Member::start(&options)], self.members].into_iter().flatten().collect()
    }
}

#[test]
fn a_controller_that_takes_over_follows_on() {
    let files = Files::make(4);
    let json = files.path("report.json");
    files.add(0);
    let cluster = Cluster::start(&files);
    let events = cluster.events.clone();
    files.add(1);
    wait_for_tests(&events[1], 1);
    let members = cluster.succeed(|| files.add(2), &["--json", &json]);
    wait_for_tests(&events[2], 2);
    files.add(3);
    files.complete();
    for member in members {
        let (code, lines) = member.end_with_lines();
        assert_eq!(code, Some(0), "{lines:?}");
    }
    assert_files(&report(&json), 4);
}

#[test]
fn a_controller_without_the_data_ends_the_job_for_all() {
    let files = Files::make(2);
    files.add(0);
    let cluster = Cluster::start(&files);
    files.add(1);
    wait_for_tests(&cluster.events[1], 1);
    let away = || fs::rename(files.followed(), files.path("away")).unwrap();
    for member in cluster.succeed(away, &[]) {
        let (code, lines) = member.end_with_lines();
        assert_eq!(code, Some(1), "{lines:?}");
        assert!(lines.iter().any(|line| line.contains("there is no such file or directory")), "{lines:?}");
    }
}

#[test]
fn data_that_cannot_be_followed_are_refused() {
    let files = Files::make(1);
    files.add(0);
    let data = files.followed();
    let file = format!("{data}/part-00000.parquet");
    let pattern = format!("{data}/*.parquet");
    let of = |data: &str, more: &[&str], code: i32, words: &[&str]| {
        assert_refused(&[&files.train(data, &[])[..], more].concat(), code, words);
    };
    of(&file, &[], 1, &["files are added to a directory"]);
    of(&pattern, &[], 1, &["files are added to a directory"]);
    of("https://127.0.0.1:1/x", &[], 1, &["files are added to a directory"]);
    of(&files.path("none"), &[], 1, &["none", "there is no such file or directory"]);
    of(&data, &["--epochs", "2"], 2, &["--epochs"]);
    let neumf = ["train", "--data", &data, "--follow"];
    assert_refused(&neumf, 1, &["follow", "deeplight alone follows its data"]);
    // What can never be read ends a job that would wait for it.
    fs::write(Path::new(&data).join("part-00001.parquet"), "PAR1").unwrap();
    files.complete();
    of(&data, &[], 1, &["part-00001.parquet", "_SUCCESS"]);
}
