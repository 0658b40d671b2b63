//! Jobs that are killed, and go on where they were.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::durability::{complete, export};
use crate::process::{DEADLINE, Member, Place, assert_refused, json, run};

/// Options of a job of two epochs that last for a second or more each.
const JOB: [&str; 10] =
    ["train", "--epochs", "2", "--sample", "1", "--factors", "4", "--batch", "32", "--quiet"];
/// Samples of an epoch: 5,333 pairs, each with four that were drawn.
const SAMPLES: u64 = 5 * 5333;

impl Place {
    fn job<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        [&JOB[..], &["--data", &self.data], more].concat()
    }

    /// Runs a job to its end; returns its report.
    fn run(&self, more: &[&str]) -> Value {
        let report = self.path("report.json");
        let output = run(&self.job(&[more, &["--json", &report]].concat()));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        json(Path::new(&report))
    }

    /// Starts a job, and kills it some time after it has written another checkpoint. Returns false if it was over by then.
    fn kill(&self, state: &str, pause: u64, more: &[&str]) -> bool {
        let newest = || newest(Path::new(state));
        let (before, deadline) = (newest(), Instant::now() + DEADLINE);
        let member = Member::start(&self.job(more));
        // The first one is of the beginning, and the last one of the end.
        while newest() < before + 2 {
            assert!(Instant::now() < deadline, "no checkpoints above {before}");
            sleep(Duration::from_millis(5));
        }
        sleep(Duration::from_millis(pause));
        member.signal("-KILL");
        member.end().0 != Some(0)
    }

    /// Starts a job, and kills it when a checkpoint of it is at its URL, which is this directory.
    fn kill_when_committed(&self, archive: &str, more: &[&str]) {
        let member = Member::start(&self.job(more));
        let has_commits = || {
            let entries = fs::read_dir(archive).into_iter().flatten();
            // A file that is still being written has another ending.
            entries.into_iter().any(|entry| {
                let name = entry.unwrap().file_name().into_string().unwrap();
                name.starts_with("job-") && name.ends_with(".json")
            })
        };
        let deadline = Instant::now() + DEADLINE;
        while !has_commits() {
            assert!(Instant::now() < deadline, "nothing is committed");
            sleep(Duration::from_millis(5));
        }
        member.signal("-KILL");
        assert_ne!(member.end().0, Some(0), "it was over before");
    }
}

/// The newest checkpoint of shard 0; 0 if there is none.
fn newest(state: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(state.join("shard-0")) else { return 0 };
    let number = |name: String| name.strip_prefix("checkpoint-")?.parse().ok();
    entries.filter_map(|entry| number(entry.unwrap().file_name().into_string().unwrap())).max().unwrap_or(0)
}

fn count(report: &Value, path: &str) -> u64 {
    report.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path}: {report:#}"))
}

#[test]
fn a_job_killed_at_chunks_ends_equal_to_the_bit() {
    let place = Place::of(400);
    for (optimizer, switch) in [("sgd:lr=0.1", "udp"), ("adam:lr=0.01", "none")] {
        let mode = ["--workers", "1", "--mode", "sync", "--optimizer", optimizer, "--switch", switch];
        let options = [&mode[..], &["--checkpoint-every", "0.1", "--checkpoint-at", "chunks"]].concat();
        let whole = place.path(&format!("whole-{switch}"));
        place.run(&[&options[..], &["--state-dir", &whole]].concat());
        let killed = place.path(&format!("killed-{switch}"));
        assert!(place.kill(&killed, 30, &[&options[..], &["--state-dir", &killed]].concat()));
        for pause in [130, 10] {
            if !place.kill(&killed, pause, &[&options[..], &["--resume", &killed]].concat()) {
                break;
            }
        }
        let report = place.run(&[&options[..], &["--resume", &killed]].concat());
        assert_eq!((count(&report, "/samples"), count(&report, "/data/repeated")), (2 * SAMPLES, 0));
        assert!(count(&report, "/data/samples_before") > 0);
        let tables = |state: &str| {
            let last = complete(state, place.directory.path()).into_iter().max().unwrap().to_string();
            export(state, &last, Path::new(&place.path(&format!("export-{state}").replace('/', "-"))))
        };
        assert!(tables(&whole) == tables(&killed), "{optimizer}: the tables differ");
    }
}

#[test]
fn a_job_resumes_with_other_members() {
    let place = Place::of(400);
    let state = place.path("state");
    let options = ["--checkpoint-every", "0.1", "--optimizer", "adam:lr=0.01"];
    assert!(place.kill(&state, 50, &[&options[..], &["--state-dir", &state]].concat()));
    let members = ["--workers", "3", "--servers", "1", "--resume", &state];
    place.kill(&state, 50, &[&options[..], &members].concat());
    let report =
        place.run(&[&options[..], &["--workers", "1", "--servers", "3", "--resume", &state]].concat());
    assert_eq!(count(&report, "/samples"), 2 * SAMPLES, "each sample is in one account");
    let repeated = count(&report, "/data/repeated");
    assert!((1..=2 * 2 + 2 * 3).contains(&repeated), "two leases of each worker at each cut: {repeated}");
    // How well it learns is as uneven as without a kill.
    let losses: Vec<f64> = (0..2).map(|epoch| report["epochs"][epoch]["loss"].as_f64().unwrap()).collect();
    assert!(losses[0] < 0.6 && losses[1] < losses[0], "{losses:?}");
}

#[test]
fn a_job_resumes_from_a_url() {
    let place = Place::of(400);
    let (state, archive) = (place.path("state"), place.path("archive"));
    let url = format!("file://{archive}");
    // Long enough for a commit before the end.
    let options = ["--epochs", "6", "--checkpoint-every", "0.1", "--checkpoints", &url];
    place.kill_when_committed(&archive, &[&options[..], &["--state-dir", &state]].concat());
    let resumed = [&options[..], &["--resume", &url, "--servers", "1", "--workers", "3"]].concat();
    assert_refused(&place.job(&[&resumed[..], &["--log"]].concat()), 1, &["--log", "--state-dir DIR"]);
    let other = place.path("other");
    let report = place.run(&[&resumed[..], &["--state-dir", &other]].concat());
    assert_eq!(count(&report, "/samples"), 6 * SAMPLES);
    let again = place.run(&["--epochs", "6", "--resume", &url, "--state-dir", &other]);
    assert_eq!(again["quality"], report["quality"], "the last checkpoint is there, too");
    assert!(run(&["checkpoint", "verify", &url, "--quiet"]).status.success());
}

#[test]
fn resume_auto_begins_a_job_or_goes_on_with_it() {
    let place = Place::of(400);
    let archive = place.path("archive");
    let url = format!("file://{archive}");
    let options = ["--epochs", "6", "--checkpoint-every", "0.1", "--resume", "auto"];
    let state = |run: u32| place.path(&format!("state-{run}"));
    assert_refused(
        &place.job(&[&options[..], &["--state-dir", &state(0)]].concat()),
        1,
        &["--resume auto", "--checkpoints URL"],
    );
    let options = [&options[..], &["--checkpoints", &url]].concat();
    place.kill_when_committed(&archive, &[&options[..], &["--state-dir", &state(1)]].concat());
    let report = place.run(&[&options[..], &["--state-dir", &state(2)]].concat());
    assert_eq!(count(&report, "/samples"), 6 * SAMPLES);
    assert!(count(&report, "/data/samples_before") > 0);
    let again = place.run(&[&options[..], &["--state-dir", &state(3)]].concat());
    assert_eq!(again["quality"], report["quality"], "the job is done");
}

#[test]
fn a_job_that_is_done_says_so_and_more_epochs_go_on() {
    let place = Place::of(400);
    let state = place.path("state");
    let done = place.run(&["--epochs", "1", "--state-dir", &state]);
    let again = place.run(&["--epochs", "1", "--resume", &state]);
    assert_eq!(again["quality"], done["quality"]);
    assert_eq!((count(&again, "/samples"), count(&again, "/data/samples_before")), (SAMPLES, SAMPLES));
    let more = place.run(&["--epochs", "2", "--resume", &state]);
    assert_eq!(more["epochs"][0]["loss"], done["epochs"][0]["loss"]);
    assert_eq!(count(&more, "/samples"), 2 * SAMPLES);
}

#[test]
fn another_job_is_not_resumed() {
    let place = Place::of(400);
    let state = place.path("state");
    place.run(&["--epochs", "1", "--state-dir", &state]);
    let refused = |more: &[&str], words: &[&str]| {
        let job = place.job(&[&["--epochs", "2", "--resume", &state], more].concat());
        assert_refused(&job, 1, words);
    };
    let words =
        ["--resume", "another model: --factors is 8, and was 4. To begin another job", "--restore-from"];
    refused(&["--factors", "8"], &words);
    refused(&["--model", "gmf", "--factors", "8"], &["--model is gmf, and was neumf", "--factors is 8"]);
    refused(&["--seed", "5"], &["--resume", "--seed 1"]);
    assert_refused(
        &place.job(&["--resume", "nowhere"]),
        1,
        &["--resume nowhere", "cannot read the directory"],
    );
    let at = format!("{state}@99");
    assert_refused(&place.job(&["--resume", &at]), 1, &["has no checkpoint 99"]);
    assert_refused(&place.job(&["--resume", &state, "--restore-from", &state]), 2, &["cannot be used with"]);
    let pairs = format!("{}/tiny.train.pairs.tsv", place.data);
    let text = fs::read_to_string(&pairs).unwrap();
    fs::write(&pairs, format!("{text}0\t1\n")).unwrap();
    refused(&[], &["other data", "tiny.train.pairs.tsv", "bytes now, and had"]);
    fs::write(&pairs, text).unwrap();
    // Another batch is said, and allowed.
    let output = run(&place
        .job(&["--epochs", "2", "--resume", &state, "--batch", "64", "--clip", "norm:1.5"])
        .into_iter()
        .filter(|option| *option != "--quiet")
        .collect::<Vec<_>>());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.contains("the batch is 64, and was 32 before"), "{stderr}");
    assert!(stderr.contains("note: --clip is norm:1.5, and was none"), "{stderr}");
    assert!(!stderr.contains(['{', '}']), "{stderr}");
}

#[test]
fn damage_in_a_directory_is_named_and_the_one_before_is_taken() {
    let place = Place::of(400);
    let state = place.path("state");
    place.run(&["--epochs", "1", "--checkpoint-every", "0.2", "--state-dir", &state]);
    let numbers = complete(&state, place.directory.path());
    let (newest, before) = (numbers[0], numbers[1]);
    let damaged = format!("shard-1/checkpoint-{newest}/table-1-item-rows-00000.safetensors");
    let path = Path::new(&state).join(&damaged);
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 4;
    fs::write(&path, bytes).unwrap();
    let runs = |arguments: &[&str]| {
        let output = run(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{stderr}");
        let passed = format!("checkpoint {newest} of {state} is passed over: ");
        assert!(stderr.contains(&passed) && stderr.contains(&damaged), "{stderr}");
    };
    let exported = place.path("exported");
    runs(&["export", "--from", &state, "--to", &exported]);
    let current = fs::read_to_string(Path::new(&exported).join("current.json")).unwrap();
    let current: Value = serde_json::from_str(&current).unwrap();
    assert_eq!(current["version"], before, "{current}");
    let other = place.path("other");
    runs(&place.job(&["--epochs", "1", "--restore-from", &state, "--state-dir", &other]));
    runs(&place.job(&["--epochs", "1", "--resume", &state]));
    // It goes on in the same directory, above the damaged one.
    assert!(complete(&state, place.directory.path())[0] > newest);
}
