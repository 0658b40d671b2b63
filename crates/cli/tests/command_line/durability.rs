//! State that servers keep, and jobs that resume from it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::process::{Member, assert_refused, controller, json, members, run, tiny_data};

pub(crate) fn train<'a>(data: &'a str, state: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let all =
        ["train", "--data", data, "--batch", "64", "--sample", "1", "--factors", "4", "--state-dir", state];
    [&all[..], &["--keep-checkpoints", "100", "--quiet"], more].concat()
}

/// The files of a whole checkpoint, exported to `to`, by name.
pub(crate) fn export(state: &str, number: &str, to: &Path) -> BTreeMap<String, Vec<u8>> {
    let output = run(&["checkpoint", "export", state, number, "--to", to.to_str().unwrap(), "--quiet"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let files = fs::read_dir(to).unwrap().map(|entry| entry.unwrap().path());
    let tables = files.filter(|path| path.extension().is_some_and(|end| end == "safetensors"));
    tables.map(|path| (path.file_name().unwrap().to_str().unwrap().into(), fs::read(path).unwrap())).collect()
}

/// The numbers of the complete checkpoints in a state directory.
pub(crate) fn complete(state: &str, directory: &Path) -> Vec<u64> {
    let file = directory.join("list.json");
    let output = run(&["checkpoint", "list", state, "--quiet", "--json", file.to_str().unwrap()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let checkpoints = json(&file)["checkpoints"].as_array().unwrap().clone();
    let complete = checkpoints.iter().filter(|checkpoint| checkpoint["complete"] == Value::Bool(true));
    complete.map(|checkpoint| checkpoint["number"].as_u64().unwrap()).collect()
}

#[test]
fn a_job_restores_a_checkpoint_on_any_number_of_servers() {
    let directory = TempDir::new().unwrap();
    let data = tiny_data(directory.path());
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let first = path("first");
    let options = ["--epochs", "20", "--log", "--checkpoint-every", "0.2", "--incremental-checkpoints", "2"];
    let output = run(&train(&data, &first, &options));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let numbers = complete(&first, directory.path());
    let newest = *numbers.iter().max().unwrap();
    assert!(newest >= 2, "{numbers:?}");
    assert!(run(&["checkpoint", "verify", &first, "--quiet"]).status.success());
    let kept = export(&first, &newest.to_string(), &directory.path().join("export"));
    assert!(kept.len() >= 3, "{:?}", kept.keys());
    for servers in ["1", "3", "5"] {
        let state = path(servers);
        let load = format!("{first}@{newest}");
        let output =
            run(&train(&data, &state, &["--epochs", "1", "--servers", servers, "--restore-from", &load]));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        // The first checkpoint holds the loaded rows, before any training.
        let loaded = export(&state, "1", &directory.path().join(format!("export-{servers}")));
        assert!(loaded == kept, "with {servers} servers");
    }
    assert_refused(&train(&data, &first, &["--epochs", "1"]), 1, &["job", "done", "--restore-from"]);
    assert_refused(&train(&data, &path("x"), &["--restore-from", &path("none")]), 1, &["--restore-from"]);
    assert_refused(&["train", "--log"], 1, &["--log needs --state-dir"]);
    assert_refused(&["train", "--checkpoint-at", "chunks"], 1, &["give --checkpoint-every S"]);
}

#[test]
fn a_restarted_server_resumes_from_its_log() {
    let directory = TempDir::new().unwrap();
    let data = tiny_data(directory.path());
    let (file, state) = (directory.path().join("out.json"), directory.path().join("state"));
    let (path, state) = (file.to_str().unwrap(), state.to_str().unwrap());
    let arguments = ["--data", &data, "--epochs", "400", "--batch", "64", "--sample", "1", "--factors", "4"];
    let (controller, address) = controller(&[&arguments[..], &["--log", "--json", path]].concat());
    let server = |shards: &str| {
        let shards = ["--shards-per-server", shards];
        Member::start(&[&["server", "--controller", &address, "--state-dir", state][..], &shards].concat())
    };
    let (mut victim, others) = (server("2"), server("2"));
    let rest: Vec<Member> =
        ["worker", "switch", "worker"].map(|kind| Member::start(&[kind, "--controller", &address])).into();
    controller.line_with("training begins");
    std::thread::sleep(std::time::Duration::from_millis(500));
    let holders = [&victim, &others].map(|holder| format!("process {} on ", holder.id()));
    let third = ["server", "--controller", &address, "--state-dir", state];
    let words = [state, &holders[0], &holders[1], "choose another --state-dir"];
    assert_refused(&third, 75, &words);
    assert_refused(&train(&data, state, &["--epochs", "1"]), 75, &words);
    victim.signal("-KILL");
    controller.line_with("is away");
    victim = server("3");
    victim.line_with("--shards-per-server 3 is ignored");
    assert!(victim.line_with("goes on with").contains("records of the log"));
    controller.line_with("is back after");
    for member in rest.into_iter().chain([victim, others, controller]) {
        let (code, last) = member.end();
        assert_eq!(code, Some(0), "{last}");
    }
    let json = json(&file);
    assert_eq!(json["failover"]["returned"].as_array().unwrap().len(), 2, "both of its shards: {json:#}");
    assert!(json["quality"]["loss"].as_f64().unwrap() < 0.1, "{json:#}");
    assert!(
        Command::new(env!("CARGO_BIN_EXE_libra"))
            .args(["checkpoint", "verify", state, "--quiet"])
            .status()
            .unwrap()
            .success()
    );
}

#[test]
fn a_log_without_a_state_directory_is_refused() {
    let directory = TempDir::new().unwrap();
    let data = tiny_data(directory.path());
    let (controller, address) = controller(&["--data", &data, "--factors", "4", "--sample", "1", "--log"]);
    let members = members(&address);
    let (code, last) = controller.end();
    assert_eq!(code, Some(1));
    assert!(last.contains("server") && last.contains("the job has a log, and"), "{last}");
    assert!(last.contains("--state-dir DIR"), "{last}");
    drop(members);
}
