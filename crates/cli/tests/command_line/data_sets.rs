//! Jobs on data sets that are read while they are trained on.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use libra_data::{Make, Output, OutputFormat};
use tempfile::TempDir;

use crate::process::{Member, assert_refused, json, libra};
use crate::server::{Reaction, Server};

const MODEL: [&str; 6] = ["--model", "deeplight", "--batch", "100", "--epochs", "2"];

fn make(directory: &Path, format: OutputFormat) {
    let output = Output { format, file_rows: 2500, group_rows: 400 };
    Make { rows: 10_000, strength: 3.0, ..Make::default() }.write(directory, &output, &mut |_| ()).unwrap();
}

/// Each process opens the place by itself, with what its environment has; of nine requests one fails.
#[test]
fn a_job_reads_its_data_from_an_object_store() {
    let directory = TempDir::new().unwrap();
    make(&directory.path().join("set"), OutputFormat::Parquet);
    let server = Server::start(Box::new(|number, _| match number % 9 {
        8 => Reaction::Status(503, "<Error><Code>SlowDown</Code></Error>"),
        _ => Reaction::Serve,
    }));
    server.put(&directory.path().join("set"), "set");
    let keys = [("AWS_ACCESS_KEY_ID", "libra"), ("AWS_SECRET_ACCESS_KEY", "geheim")];
    let spawn = |arguments: &[&str]| Member::spawn(libra(arguments).envs(server.variables()).envs(keys));

    let file = directory.path().join("out.json");
    let job = ["controller", "--listen", "127.0.0.1:0", "--servers", "1", "--data", "s3://ads/set"];
    let results = ["--sample", "1", "--json", file.to_str().unwrap()];
    let controller = spawn(&[&job[..], &MODEL, &results].concat());
    let line = controller.line_with("waiting for");
    let address = line.split([' ', ',']).find(|word| word.parse::<SocketAddr>().is_ok()).unwrap();
    let members =
        ["server", "switch", "worker", "worker"].map(|kind| spawn(&[kind, "--controller", address]));
    for member in members.into_iter().chain([controller]) {
        let (code, lines) = member.end_with_lines();
        assert_eq!(code, Some(0), "{lines:?}");
        assert!(!lines.concat().contains("geheim"));
    }
    assert!(!fs::read_to_string(&file).unwrap().contains("geheim"));
    let report = json(&file);
    assert_eq!(
        (&report["samples"], &report["configuration"]["data"]),
        (&16_000.into(), &"s3://ads/set".into())
    );
    assert!(report["quality"]["auc"].as_f64().unwrap() > 0.7, "{:#}", report["quality"]);
    assert!(report["pushes"]["hot_share"].as_f64().unwrap() > 0.1, "{:#}", report["pushes"]);
    let data = |key: &str| report["data"][key].as_u64().unwrap();
    assert!(data("bytes") > 100_000 && data("requests") > 50, "{:#}", report["data"]);
    assert!((data("requests") / 20..data("requests") / 4).contains(&data("retries")), "{:#}", report["data"]);
}

#[test]
fn a_bad_row_ends_a_job_with_its_place() {
    let directory = TempDir::new().unwrap();
    let set = directory.path().join("set");
    make(&set, OutputFormat::Text);
    let train = |data: &str, words: &[&str]| {
        assert_refused(&[&["train", "--sample", "0.5", "--data", data], &MODEL[..]].concat(), 1, words);
    };
    let path = set.join("day_1");
    let text = fs::read_to_string(&path).unwrap();
    let (first, rest) = text.split_once('\n').unwrap();
    fs::write(&path, format!("{first}\n7{}", &rest[1..])).unwrap();
    let place = set.to_str().unwrap();
    train(place, &["day_1, column label, line 2: expected a label, 0 or 1, found \"7\""]);
    train(&format!("{place}/*.parquet"), &["*.parquet: no file matches the pattern"]);
    train("s3://", &["s3://: is not a place that Libra reads: it names no bucket or host"]);
    fs::write(set.join("dataset.toml"), "label = \"clicked\"\n").unwrap();
    train(place, &["dataset.toml: the description is not right: text is Criteo's"]);
}
