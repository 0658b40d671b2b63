//! `libra data`, from a set that is made to one that is shuffled.

use std::fs;
use std::path::Path;

use libra_data::{ColumnKind, Description, Schema, Writer};
use serde_json::Value;
use tempfile::TempDir;

use crate::archive::Moto;
use crate::process::{assert_refused, json, run};

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
    // Nothing is left that a second attempt would take for a set.
    for _ in 0..2 {
        let convert = ["data", "convert", &path("set"), "--to", &path("to")];
        assert_refused(&convert, 1, &["day_0, column label, line 2"]);
        assert!(!Path::new(&path("to")).exists());
    }
    assert_refused(&["data", "inspect", &path("none")], 1, &["there is no such file or directory"]);
    let full = path("set");
    assert_refused(&["data", "make", "--to", &full], 1, &["the directory is not empty"]);
    assert_refused(&["data", "make", "--rows", "0", "--to", &path("to")], 2, &["--rows"]);
    let http = ["data", "make", "--to", "https://host/set"];
    assert_refused(&http, 1, &["https://host/set: a server of HTTP can only be read"]);
}

#[test]
fn roles_are_proposed_for_a_set_without_description() {
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let roles =
        "label = \"clicked\"\nweight = \"w\"\ntime = \"ts\"\nnumbers = [\"price\"]\ncategories = [\"user\"]";
    let schema = Schema {
        description: Description::parse(roles).unwrap(),
        numbers: vec![ColumnKind::Float],
        categories: vec![ColumnKind::Id],
    };
    let mut rows = schema.columns();
    rows.labels.push(1.0);
    rows.weights.push(0.5);
    rows.times.push(7);
    rows.numbers[0].push(1.5);
    rows.categories[0].ids.push(3);
    rows.categories[0].offsets.push(1);
    let set = path("set");
    let mut writer = Writer::create(set.as_ref(), &schema, &libra_data::Output::default()).unwrap();
    writer.write(&rows).unwrap();
    writer.finish().unwrap();
    fs::remove_file(Path::new(&set).join("dataset.toml")).unwrap();
    let report = path("json");
    let shown = data(&["inspect", &set, "--json", &report]);
    assert!(shown.contains("weight = \"w\"") && shown.contains("time = \"ts\""), "{shown}");
    assert!(shown.contains("Note: there is no dataset.toml beside the data"), "{shown}");
    let report = json(report.as_ref());
    assert_eq!(
        (&report["columns"][4]["name"], &report["proposal"]["numbers"]),
        (&"user".into(), &vec!["price"].into())
    );
    assert_refused(&["data", "check", &set], 1, &["needs a dataset.toml beside the data"]);
}

#[test]
fn sets_are_written_to_a_bucket_of_s3() {
    let Some(moto) = Moto::start() else {
        eprintln!("SKIPPED: there is no moto_server: pip install 'moto[server]'");
        return;
    };
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let run = |arguments: &[&str]| {
        let (done, text) = moto.run(&[&["data"], arguments].concat());
        assert!(!text.contains("geheim"), "{text}");
        (done, text)
    };
    let done = |arguments: &[&str]| {
        let (done, text) = run(arguments);
        assert!(done, "{text}");
    };
    let refused = |arguments: &[&str], words: &str| {
        let (done, text) = run(arguments);
        assert!(!done && text.contains(words), "{text}");
    };
    // The one file is large enough to be uploaded in parts.
    let make = ["make", "--rows", "50000", "--format", "text", "--files", "1", "--to"];
    let (local, text, index) = (path("local"), "s3://models/data/text", path("index"));
    done(&[&make[..], &[&local]].concat());
    done(&[&make[..], &[text]].concat());
    assert!(fs::metadata(path("local/train.txt")).unwrap().len() > 8 << 20);
    let (parquet, shuffled) = ("s3://models/data/parquet", "s3://models/data/shuffled/");
    done(&["convert", text, "--index-dir", &index, "--to", parquet, "--file-rows", "20000"]);
    done(&["shuffle", parquet, "--to", shuffled, "--memory", "16MiB"]);
    let report = path("json");
    let figures = |place: &str| {
        done(&["check", place, "--index-dir", &index, "--json", &report]);
        let report = json(report.as_ref());
        (report["rows"].clone(), report["numbers"].clone())
    };
    let expected = figures(&local);
    for place in [text, parquet, shuffled] {
        assert_eq!(figures(place), expected, "{place}");
    }
    let list = |place: &str| run(&["inspect", place, "--index-dir", &index]).1;
    assert!(list(parquet).contains("50,000 rows in 3 files"), "{}", list(parquet));
    refused(&["make", "--to", parquet], "s3://models/data/parquet: the directory is not empty");
    refused(&["make", "--to", "s3://absent/set"], "there is no such bucket");
    // A set that fails leaves no objects.
    let bad = path("bad");
    done(&["make", "--rows", "20", "--format", "text", "--files", "2", "--to", &bad]);
    fs::write(path("bad/day_1"), "7\n").unwrap();
    let convert = ["convert", &bad, "--to", "s3://models/bad", "--file-rows", "5"];
    refused(&convert, "day_1, line 1");
    done(&["make", "--rows", "20", "--to", "s3://models/bad"]);
}
