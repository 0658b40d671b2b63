//! Workers that come, go and die within an epoch.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::process::{DEADLINE, Member, controller, data_of, free_address, json};

/// Options of a job of one epoch that lasts for seconds.
const JOB: [&str; 10] =
    ["--epochs", "1", "--batch", "2", "--sample", "1", "--factors", "4", "--switches", "1"];

/// Samples of the epoch, counted by workers, and those that there are; and chunks that were done again.
fn trained(json: &Value, data: &str) -> (u64, u64, u64) {
    let lines = std::fs::read_to_string(format!("{data}/tiny.train.pairs.tsv")).unwrap().lines().count();
    let negatives = json["configuration"]["training"]["model"]["ncf"]["negatives"].as_u64().unwrap();
    let count = |path: &str| json.pointer(path).and_then(Value::as_u64).unwrap();
    (count("/samples"), lines as u64 * (1 + negatives), count("/data/repeated"))
}

fn worker(address: &str) -> Member {
    Member::start(&["worker", "--controller", address])
}

/// A job with its servers and its switch, and the first workers, that has begun.
fn start(data: &str, workers: &str, path: &str, begun: usize) -> (Member, String, Vec<Member>, Vec<Member>) {
    let options = ["--data", data, "--workers", workers, "--json", path];
    let (controller, address) = controller(&[&options[..], &JOB].concat());
    let kinds = ["server", "switch", "server"];
    let others = kinds.iter().map(|kind| Member::start(&[kind, "--controller", &address])).collect();
    let workers = (0..begun).map(|_| worker(&address)).collect();
    controller.line_with("training begins");
    (controller, address, others, workers)
}

#[test]
fn workers_come_and_go_and_each_sample_is_trained_once() {
    let directory = TempDir::new().unwrap();
    let data = data_of(directory.path(), 1000);
    let file = directory.path().join("out.json");
    let (controller, address, others, mut workers) = start(&data, "2..5", file.to_str().unwrap(), 2);
    for number in 2..5 {
        workers.push(worker(&address));
        let line = controller.line_with("joined");
        assert!(line.contains(&format!("worker {number}")), "{line}");
    }
    workers.iter().for_each(|worker| drop(worker.line_with("the cluster is complete")));
    let stays = workers.remove(0);
    for goes in workers {
        goes.signal("-TERM");
        let (code, last) = goes.end();
        assert_eq!(code, Some(75), "{last}");
    }
    let (code, last) = controller.end();
    assert_eq!(code, Some(0), "{last}");
    for member in others.into_iter().chain([stays]) {
        assert_eq!(member.end().0, Some(0));
    }
    let json = json(&file);
    let (samples, expected, repeated) = trained(&json, &data);
    assert_eq!((samples, repeated), (expected, 0), "{json:#}");
    assert!(json["epochs"][0]["workers"].as_u64().unwrap() > 2, "{json:#}");
}

/// Asks a worker how often it has pushed; nothing while it does not answer.
fn pushes(worker: &str) -> Option<u64> {
    let mut stream = TcpStream::connect(worker).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: worker\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let line = answer.lines().find(|line| line.starts_with("libra_worker_pushes_total"))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[test]
fn a_newcomer_pushes_within_two_seconds_of_its_join() {
    let directory = TempDir::new().unwrap();
    let data = data_of(directory.path(), 1000);
    let file = directory.path().join("out.json");
    let (controller, address, others, mut workers) = start(&data, "1..2", file.to_str().unwrap(), 1);
    let http = free_address();
    workers.push(Member::start(&["worker", "--controller", &address, "--http", &http]));
    controller.line_with("joined");
    let joined = Instant::now();
    while pushes(&http).is_none_or(|pushes| pushes == 0) {
        assert!(joined.elapsed() < DEADLINE, "the newcomer does not push");
        std::thread::sleep(Duration::from_millis(10));
    }
    let waited = joined.elapsed();
    assert!(waited <= Duration::from_secs(2), "{waited:?}");
    assert_eq!(controller.end().0, Some(0));
    for member in others.into_iter().chain(workers) {
        assert_eq!(member.end().0, Some(0));
    }
}

#[test]
fn what_a_killed_worker_had_is_done_by_others() {
    let directory = TempDir::new().unwrap();
    let data = data_of(directory.path(), 1000);
    let file = directory.path().join("out.json");
    let (controller, _, others, mut workers) = start(&data, "3", file.to_str().unwrap(), 3);
    std::thread::sleep(Duration::from_millis(300));
    workers.drain(..2).for_each(|worker| worker.signal("-KILL"));
    let (code, last) = controller.end();
    assert_eq!(code, Some(0), "{last}");
    for member in others.into_iter().chain(workers) {
        assert_eq!(member.end().0, Some(0));
    }
    let (samples, expected, repeated) = trained(&json(&file), &data);
    assert_eq!(samples, expected, "accounts hold what is done, and nothing is done by two");
    assert!(repeated <= 4, "{repeated} chunks of two workers");
}
