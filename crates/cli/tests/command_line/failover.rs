//! Members that are killed or interrupted, and clusters that go on or end.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::process::{Member, assert_refused, controller, json, members, run, tiny_data};

/// Returns the samples in the accounts of each epoch.
fn samples_of_epochs(json: &Value) -> Vec<u64> {
    let epochs = json["epochs"].as_array().unwrap();
    epochs.iter().map(|epoch| epoch["samples"].as_u64().unwrap_or(0)).collect()
}

#[test]
fn a_lost_worker_is_replaced_and_the_job_goes_on() {
    let directory = TempDir::new().unwrap();
    let data = tiny_data(directory.path());
    let file = directory.path().join("out.json");
    let path = file.to_str().unwrap();
    let options = ["--batch", "64", "--sample", "1", "--factors", "4", "--json", path];
    let (controller, address) = controller(&[&["--data", &data, "--epochs", "200"], &options[..]].concat());
    let mut members = members(&address);
    controller.line_with("training begins");
    thread::sleep(Duration::from_millis(300));
    members.remove(0).signal("-KILL");
    let line = controller.line_with("the job goes on");
    assert!(line.contains("worker") && line.contains("disappeared"), "{line}");
    thread::sleep(Duration::from_millis(300));
    members.push(Member::start(&["worker", "--controller", &address]));
    let line = controller.line_with("joined");
    assert!(line.contains("worker 2"), "{line}");
    let (code, last) = controller.end();
    assert_eq!(code, Some(0), "{last}");
    for member in members {
        assert_eq!(member.end().0, Some(0));
    }
    let json = json(&file);
    assert!(json["quality"]["loss"].as_f64().unwrap() < 0.1, "{json:#}");
    let samples = samples_of_epochs(&json);
    assert_eq!(samples, vec![samples[0]; 200], "what it had is done by others");
    assert!(json["data"]["repeated"].as_u64().unwrap() <= 2, "{json:#}");
    let failover = &json["failover"];
    assert!(failover["lost"][0]["member"].as_str().unwrap().contains("worker"), "{failover:#}");
    assert_eq!(failover["joined_late"][0]["member"], "worker 2");
}

#[test]
fn a_lost_server_without_a_log_ends_the_job() {
    let directory = TempDir::new().unwrap();
    let data = tiny_data(directory.path());
    let (controller, address) = controller(&["--data", &data, "--epochs", "100000", "--sample", "1"]);
    let mut members = members(&address);
    controller.line_with("training begins");
    members.remove(1).signal("-KILL");
    let killed = Instant::now();
    let (code, last) = controller.end();
    assert_eq!(code, Some(1));
    assert!(last.contains("server") && last.contains("disappeared"), "{last}");
    assert!(killed.elapsed() < Duration::from_secs(5), "{:?}", killed.elapsed());
    for member in members {
        let (code, last) = member.end();
        assert_eq!(code, Some(1), "{last}");
        assert!(last.contains("disappeared"), "{last}");
    }
}

#[test]
fn a_restarted_controller_resumes_its_job() {
    let directory = TempDir::new().unwrap();
    let data = tiny_data(directory.path());
    let file = directory.path().join("out.json");
    let path = file.to_str().unwrap();
    let options = ["--data", &data, "--epochs", "120", "--batch", "64", "--sample", "1", "--factors", "4"];
    let (first, address) = controller(&options);
    let members = members(&address);
    first.line_with("training begins");
    thread::sleep(Duration::from_millis(200));
    first.signal("-KILL");
    first.end();
    let second =
        Member::start(&[&["controller", "--listen", &address, "--json", path], &options[..]].concat());
    second.line_with("took over");
    let (code, last) = second.end();
    assert_eq!(code, Some(0), "{last}");
    for member in members {
        assert_eq!(member.end().0, Some(0));
    }
    let json = json(&file);
    assert!(json["quality"]["loss"].as_f64().unwrap() < 0.1, "{json:#}");
    let samples = samples_of_epochs(&json);
    assert_eq!((samples.len(), &json["data"]["repeated"]), (120, &Value::from(0)));
    assert!(samples.iter().all(|of_epoch| *of_epoch == samples[0]), "{samples:?}");
    assert_eq!(json["failover"]["recovered"], true);
    assert!(json["failover"]["lost"].as_array().unwrap().is_empty());
}

#[test]
fn training_goes_on_when_a_switch_is_killed_or_relieved() {
    let directory = TempDir::new().unwrap();
    let data = tiny_data(directory.path());
    let file = directory.path().join("out.json");
    let path = file.to_str().unwrap();
    let trouble = ["--switches", "2", "--standby", "2", "--kill", "switch@200ms", "--migrate", "800ms"];
    let arguments = ["train", "--data", &data, "--epochs", "120", "--batch", "64", "--sample", "1"];
    let output = run(&[&arguments[..], &trouble, &["--factors", "4", "--json", path]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let table = String::from_utf8_lossy(&output.stdout);
    for word in ["take-over", "migration", "longest stall", "regions moved"] {
        assert!(table.contains(word), "{word:?} is not in\n{table}");
    }
    let json = json(&file);
    assert!(json["quality"]["loss"].as_f64().unwrap() < 0.1, "{json:#}");
    let failover = &json["failover"];
    for deed in ["killed", "migrated"] {
        assert!(failover[deed][0]["take_over_ms"].as_f64().unwrap() < 2_000.0, "{failover:#}");
    }
    assert!(json["transport"]["stall_ms_max"].as_f64().unwrap() > 0.0);
    assert_refused(&["train", "--kill", "worker@1s"], 1, &["worker@1s", "libra-lab soak"]);
    assert_refused(&["train", "--kill", "switch"], 2, &["switch@10s"]);
    assert_refused(&["train", "--switch", "none", "--standby", "1"], 1, &["--switch none"]);
}

#[test]
fn an_interrupt_ends_everything_at_once() {
    let directory = TempDir::new().unwrap();
    let data = tiny_data(directory.path());
    let member = Member::start(&["train", "--data", &data, "--epochs", "1000000", "--sample", "1"]);
    thread::sleep(Duration::from_secs(1));
    member.signal("-INT");
    let (code, last) = member.end();
    assert_eq!(code, Some(130));
    assert!(last.contains("interrupted"), "{last}");
}

#[test]
fn an_interrupt_of_the_controller_ends_all_members() {
    let directory = TempDir::new().unwrap();
    let data = tiny_data(directory.path());
    let (controller, address) = controller(&["--data", &data, "--epochs", "100000", "--sample", "1"]);
    let members = members(&address);
    controller.line_with("training begins");
    controller.signal("-INT");
    let interrupted = Instant::now();
    let (code, last) = controller.end();
    assert_eq!(code, Some(130));
    assert!(last.contains("interrupted"), "{last}");
    for member in members {
        let (code, last) = member.end();
        assert_eq!(code, Some(1), "{last}");
        assert!(last.contains("interrupted"), "{last}");
    }
    assert!(interrupted.elapsed() < Duration::from_secs(5), "{:?}", interrupted.elapsed());
}
