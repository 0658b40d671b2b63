//! A server whose disk is so slow that it reads for longer than a member may be away.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::PROGRAM;
use crate::process::json;

// rule L8
#[test]
fn a_server_that_reads_for_36_s_does_not_end_the_job() {
    let directory = TempDir::new().unwrap();
    let (library, file) = (directory.path().join("slow_disk.so"), directory.path().join("out.json"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/command_line/slow_disk.c");
    let compiled =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).arg("-ldl").status();
    if !compiled.is_ok_and(|status| status.success()) {
        eprintln!("!! SKIPPED: there is no compiler of C for a slow disk");
        return;
    }
    let sizes = ["--workers", "1", "--servers", "1", "--shards-per-server", "1", "--standby", "0"];
    let output = Command::new(PROGRAM)
        .args([
            "soak",
            "--seconds",
            "28",
            "--log",
            "--checkpoint-every",
            "1",
            "--kill",
            "server@5s",
            "--json",
        ])
        .arg(&file)
        .args(sizes)
        .env("LD_PRELOAD", library)
        .output()
        .unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{stdout}{stderr}");
    let json = json(&file);
    assert_eq!(json["equal"], Value::Bool(true));
    let fault = &json["failover"]["injected_faults"][0];
    assert!(fault["recovery_ms"].as_f64().is_some_and(|recovery| recovery > 36_000.0), "{fault:#}");
    let notice = "server 0 reads its checkpoint and its log: ";
    assert!(stderr.contains(notice), "{stderr}");
}
