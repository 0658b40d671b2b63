//! `libra data`, from a set that is made to one that is shuffled.

use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use crate::process::{assert_refused, run};

/// Runs `libra data`, and returns what it printed.
fn data(arguments: &[&str]) -> String {
    let output = run(&[&["data"], arguments].concat());
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{stderr}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(stdout.lines().chain(stderr.lines()).all(|line| line.chars().count() <= 100), "{stdout}{stderr}");
    stdout
}

#[test]
fn sets_are_made_converted_shuffled_and_checked() {
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let [text, parquet, back, shuffled, json] = ["text", "parquet", "back", "shuffled", "json"].map(path);
    let made = data(&["make", "--rows", "5000", "--format", "gzip", "--files", "3", "--to", &text]);
    assert!(made.contains("5,000 rows in"), "{made}");
    data(&["convert", &text, "--to", &parquet, "--group-rows", "500"]);
    data(&["convert", &parquet, "--to", &back, "--format", "text", "--file-rows", "1667"]);
    data(&["shuffle", &parquet, "--to", &shuffled, "--memory", "1MiB", "--seed", "3"]);
    // Text to Parquet and back is the same text.
    let plain = path("plain");
    data(&["make", "--rows", "5000", "--format", "text", "--files", "3", "--to", &plain]);
    for day in ["day_0", "day_1", "day_2"] {
        assert_eq!(
            fs::read(path(&format!("back/{day}"))).unwrap(),
            fs::read(path(&format!("plain/{day}"))).unwrap()
        );
    }
    let figures = |place: &str| -> Value {
        data(&["check", place, "--json", &json]);
        let mut report: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
        for time in ["seconds", "rows_per_second"] {
            report.as_object_mut().unwrap().remove(time);
        }
        report
    };
    let checked = figures(&parquet);
    assert_eq!((&checked["rows"], &checked["bad_chunks"]), (&5000.into(), &0.into()));
    assert_eq!(checked["categories"][8]["distinct"], 3);
    assert_eq!(checked["numbers"], figures(&shuffled)["numbers"]);
    assert_eq!(checked, figures(&text));
    let inspected = data(&["inspect", &parquet]);
    assert!(
        inspected.contains("5,000 rows in 1 file") && inspected.contains("10 chunks of 500 to 500 rows"),
        "{inspected}"
    );
    assert!(data(&["inspect", &text]).contains("3 chunks of 1,666 to 1,667 rows"));
}

#[test]
fn bad_rows_end_a_check_with_their_places() {
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    data(&["make", "--rows", "10", "--format", "text", "--files", "2", "--to", &path("set")]);
    for day in [path("set/day_0"), path("set/day_1")] {
        let text = fs::read_to_string(&day).unwrap();
        let (first, rest) = text.split_once('\n').unwrap();
        fs::write(&day, format!("{first}\n7{}", &rest[1..])).unwrap();
    }
    assert_refused(
        &["data", "check", &path("set")],
        1,
        &["day_0, column label, line 2", "and 1 more of 2 chunks"],
    );
    assert_refused(
        &["data", "convert", &path("set"), "--to", &path("to")],
        1,
        &["day_0, column label, line 2"],
    );
    assert_refused(&["data", "inspect", &path("none")], 1, &["there is no such file or directory"]);
    let full = path("set");
    assert_refused(&["data", "make", "--to", &full], 1, &["the directory is not empty"]);
}
