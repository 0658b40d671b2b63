//! `libra doctor`: its findings as a table and as JSON, the path to another process, and bad input.

use std::net::TcpListener;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::process::{Member, assert_refused, controller, libra, run};

/// Runs a doctor; returns its findings. The exit code must follow from them.
fn findings(arguments: &[&str]) -> Vec<Value> {
    let output = run(&[&["doctor", "--json"], arguments].concat());
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = document["findings"].as_array().unwrap().clone();
    let has_bad = findings.iter().any(|finding| finding["verdict"] == "bad");
    assert_eq!(output.status.code(), Some(i32::from(has_bad)), "{document:#}");
    findings
}

fn of<'a>(findings: &'a [Value], check: &str) -> &'a Value {
    let found = findings.iter().find(|finding| finding["check"] == check);
    found.unwrap_or_else(|| panic!("no {check} in {findings:#?}"))
}

#[test]
fn a_machine_is_examined_for_a_job() {
    let directory = TempDir::new().unwrap();
    let state = directory.path().to_str().unwrap();
    let options = ["--state-dir", state, "--rows", "1000", "--width", "16", "--optimizer", "adam"];
    let findings = findings(&options);
    assert!(of(&findings, "memory")["found"].as_str().unwrap().contains("a server needs"));
    assert!(of(&findings, "disk-sync")["found"].as_str().unwrap().contains("durable after"));
    assert!(of(&findings, "receive-buffer")["found"].as_str().unwrap().contains("of 512 packets each"));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "it leaves nothing behind");
}

#[test]
fn memory_that_is_too_small_is_bad_in_the_table() {
    let output = run(&["doctor", "--rows", "1000000000000", "--width", "128"]);
    assert_eq!(output.status.code(), Some(1));
    let (table, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let line = table.lines().find(|line| line.contains("BAD") && line.contains("memory"));
    assert!(line.is_some() && table.contains("--memory-limit"), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[test]
fn a_member_reports_a_bad_machine_at_its_start() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("events.jsonl");
    let events = path.to_str().unwrap();
    let member = libra(&["worker", "--controller", "127.0.0.1:9", "--patience", "0", "--events", events]);
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 64; exec \"$@\"", "sh"]).arg(member.get_program());
    let (code, lines) = Member::spawn(limited.args(member.get_args())).end_with_lines();
    assert_eq!(code, Some(75), "{lines:?}");
    let line = lines.iter().find(|line| line.contains("descriptors")).unwrap();
    assert!(line.starts_with("worker: descriptors is bad: 64 files") && line.contains("ulimit -n"), "{line}");
    let text = std::fs::read_to_string(path).unwrap();
    let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut findings = events.filter(|event| event["event"] == "machine_finding");
    let found = findings.find(|finding| finding["check"] == "descriptors").unwrap();
    assert_eq!((&found["verdict"], &found["role"]), (&"bad".into(), &"worker".into()));
    assert!(found["costs"].is_string() && found["mend"].is_string(), "{found}");
}

#[test]
fn the_path_to_a_doctor_of_this_machine_is_measured() {
    let listener = Member::start(&["doctor", "--listen", "127.0.0.1:0"]);
    let line = listener.line_with("listens at");
    let address = line.split_whitespace().find_map(|word| word.strip_suffix(',')).unwrap();
    let findings = findings(&["--to", address]);
    assert_eq!(of(&findings, "version")["verdict"], "ok");
    assert!(of(&findings, "reach")["found"].as_str().unwrap().contains("is this machine"));
    assert!(of(&findings, "path-mtu")["found"].as_str().unwrap().contains("1,500 bytes"));
    listener.line_with("calls, version");
    listener.signal("-INT");
    assert_eq!(listener.end().0, Some(130));
}

#[test]
fn a_controller_is_asked_and_gives_no_place() {
    let (_controller, address) = controller(&["--workers", "1", "--servers", "1", "--switches", "0"]);
    let findings = findings(&["--to", &address]);
    let reach = of(&findings, "reach");
    assert_eq!(reach["verdict"], "ok", "{reach:#}");
    assert!(reach["found"].as_str().unwrap().contains("is a controller"));
}

#[test]
fn bad_input_of_a_doctor_gets_one_line() {
    let refused = |options: &[&str], code: i32, parts: &[&str]| {
        assert_refused(&[&["doctor"], options].concat(), code, parts);
    };
    refused(&["--to", "10.0.0.1"], 2, &["--to", "10.0.0.1:7799"]);
    refused(&["--to", "a:1", "--listen", "127.0.0.1:0"], 2, &["cannot be used with"]);
    refused(&["--rows", "5"], 2, &["required"]);
    refused(&["--rows", "5", "--width", "2", "--optimizer", "adom"], 1, &["--optimizer", "adom"]);
    refused(&["--optimizer", "banana"], 1, &["--optimizer", "banana"]);
    refused(&["--state-dir", "nowhere/at/all"], 1, &["nowhere/at/all"]);
    refused(&["--interface", "none0"], 1, &["none0", "no such interface"]);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    refused(&["--listen", &address], 1, &["cannot listen", &address]);
}
