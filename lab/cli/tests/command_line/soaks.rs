//! `libra-lab soak`, and what an interrupt does to processes that another one has started.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::process::{DEADLINE, Member, assert_refused, json, libra, run};

// rule T18
#[test]
fn a_soak_with_flows_that_restart_is_equal_to_the_bit() {
    let output =
        run(&["soak", "--seconds", "5", "--flow-packets", "2000", "--loss", "0.01", "--kill", "switch@2s"]);
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{stdout}{stderr}");
    assert!(stdout.contains("equal to the bit"), "{stdout}");
}

#[test]
fn a_soak_with_kills_of_every_role_is_equal_to_the_bit() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("out.json");
    let faults = ["--loss", "0.01", "--duplicate", "0.01", "--reorder", "0.05"];
    let kills = [
        "--kill",
        "switch@1s,worker@2s,server@3s",
        "--kill",
        "controller@4.5s,server@6.5s",
        "--migrate",
        "5.5s",
    ];
    let keep = ["--log", "--checkpoint-every", "1"];
    let faults = [&faults[..], &keep].concat();
    let output =
        run(&[&["soak", "--seconds", "8", "--json", file.to_str().unwrap()], &faults[..], &kills].concat());
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{stdout}{stderr}");
    assert!(stdout.contains("equal to the bit"), "{stdout}");
    let json = json(&file);
    assert_eq!((&json["equal"], &json["differences"]), (&Value::Bool(true), &Value::from(0)));
    assert_eq!(json["workers"]["killed"], 1);
    assert_eq!(json["failover"]["recoveries"], 1);
    for fault in json["failover"]["injected_faults"].as_array().unwrap() {
        assert!(fault["recovery_ms"].as_f64().is_some() && fault["target"].is_string(), "{fault:#}");
    }
    assert!(json["transport"]["retransmits"].as_u64().unwrap() > 0);
    assert_refused(
        &["soak", "--kill", "servant@3s"],
        2,
        &["servant", "switch, worker, server or controller"],
    );
    assert_refused(&["soak", "--kill", "server@3s"], 1, &["--kill server", "--log", "--checkpoint-every"]);
    assert_refused(&["soak", "--kill", "switch@30s"], 1, &["switch@30s", "20 s"]);
    assert_refused(
        &["soak", "--namespaces", "--plane", "xdp"],
        1,
        &["--namespaces", "a network of their own"],
    );
    assert_refused(&["soak", "--workers", "1", "--kill", "worker@3s"], 1, &["two"]);
}

#[test]
fn a_soak_of_drains_loses_nothing() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("out.json");
    let drains = ["worker@1s", "switch@2s", "server@3s", "controller@4s"];
    let (typed, json_file) = (drains.join(","), file.to_str().unwrap());
    let output = run(&["soak", "--seconds", "6", "--log", "--drain", &typed, "--json", json_file]);
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{stdout}{stderr}");
    let json = json(&file);
    assert_eq!(json["configuration"]["drain"], Value::from(&drains[..]));
    assert_eq!((&json["workers"]["left"], &json["server"]["lost_pushes"]), (&1.into(), &0.into()));
}

/// The processes that one has started, when there are so many.
fn children_of(parent: u32, count: usize) -> Vec<String> {
    let children = || {
        let output = Command::new("ps").args(["-o", "pid=", "--ppid", &parent.to_string()]).output();
        String::from_utf8(output.unwrap().stdout)
            .unwrap()
            .split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let deadline = Instant::now() + DEADLINE;
    while children().len() < count {
        assert!(Instant::now() < deadline, "the cluster does not come together");
        thread::sleep(Duration::from_millis(50));
    }
    children()
}

#[test]
fn an_interrupted_soak_leaves_no_process_behind() {
    let soak = Member::start(&["soak", "--seconds", "60"]);
    let children = children_of(soak.id(), 7);
    soak.signal("-INT");
    assert_eq!(soak.end().0, Some(130));
    for child in children {
        assert!(!Path::new("/proc").join(&child).exists(), "{child} is still there");
    }
}

#[test]
fn an_interrupt_of_all_processes_is_reported_once() {
    let options = ["bench", "hot-path", "--workers", "2", "--seconds", "60"];
    let bench = Member::spawn(libra(&options).process_group(0));
    // A server, a switch, and the workers, which print to the same terminal.
    children_of(bench.id(), 4);
    // They have started, and are to have read what they are.
    thread::sleep(Duration::from_secs(1));
    let terminal = Command::new("kill").args(["-INT", "--", &format!("-{}", bench.id())]).status();
    assert!(terminal.unwrap().success());
    let (code, lines) = bench.end_with_lines();
    assert_eq!(code, Some(130));
    let told = lines.join("\n");
    assert_eq!(told.matches("libra: interrupted").count(), 1, "{told}");
}
