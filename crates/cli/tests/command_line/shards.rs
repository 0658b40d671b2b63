//! Servers of several shards.

use tempfile::TempDir;

use crate::process::{Member, controller, json, run, tiny_data};

#[test]
fn a_restarted_server_goes_on_with_all_its_shards() {
    let directory = TempDir::new().unwrap();
    let data = tiny_data(directory.path());
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (report, state) = (path("out.json"), path("state"));
    let arguments = ["--data", &data, "--epochs", "400", "--batch", "64", "--sample", "1", "--factors", "4"];
    let (controller, address) = controller(&[&arguments[..], &["--log", "--json", &report]].concat());
    let server = |shards| {
        let member = ["server", "--controller", &address, "--state-dir", &state];
        Member::start(&[&member[..], &["--shards-per-server", shards]].concat())
    };
    let (victim, other) = (server("3"), server("1"));
    assert!(victim.line_with("waiting for").contains("shards: 3,"));
    let rest: Vec<Member> =
        ["worker", "switch", "worker"].map(|kind| Member::start(&[kind, "--controller", &address])).into();
    controller.line_with("training begins");
    std::thread::sleep(std::time::Duration::from_millis(500));
    victim.signal("-KILL");
    victim.end();
    let victim = server("2");
    victim.line_with("--shards-per-server 2 is ignored, as its state directory has 3");
    for _ in 0..3 {
        assert!(victim.line_with("goes on with").contains("records of the log"));
    }
    assert!(victim.line_with("waiting for").contains("shards: 3,"));
    for _ in 0..3 {
        controller.line_with("is back after");
    }
    for member in rest.into_iter().chain([victim, other, controller]) {
        let (code, last) = member.end();
        assert_eq!(code, Some(0), "{last}");
    }
    let report = json(report.as_ref());
    assert_eq!(report["failover"]["returned"].as_array().unwrap().len(), 3, "{report:#}");
    assert!(report["quality"]["loss"].as_f64().unwrap() < 0.1, "{report:#}");

    // The note of the address is no matter of checkpoints.
    let list = path("list.json");
    for command in [&["list", &state, "--json", &list][..], &["verify", &state]] {
        let output = run(&[&["checkpoint"], command].concat());
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
        assert!(output.status.success() && !text.contains("address"), "{command:?}: {text}");
    }
    let checkpoints = json(list.as_ref())["checkpoints"].as_array().unwrap().clone();
    assert!(checkpoints.iter().any(|checkpoint| checkpoint["complete"] == true), "{checkpoints:?}");
    for shard in 0..4 {
        assert!(directory.path().join(format!("state/shard-{shard}/address")).is_file());
    }
}

#[test]
fn more_shards_than_keys_end_the_job_with_one_line() {
    let directory = TempDir::new().unwrap();
    let data = tiny_data(directory.path());
    let (controller, address) = controller(&["--data", &data, "--model", "gmf", "--sample", "1"]);
    let member = |kind: &[&str]| Member::start(&[kind, &["--controller", &address]].concat());
    let servers = ["300", "1"].map(|shards| member(&["server", "--shards-per-server", shards]));
    let others = [&["worker"][..], &["worker"], &["switch"]].map(member);
    let (code, lines) = controller.end_with_lines();
    assert_eq!(code, Some(1));
    let says = |line: &&String| line.contains("301 shards") && line.contains("--shards-per-server");
    assert_eq!(lines.iter().filter(says).count(), 1, "{lines:?}");
    for member in servers.into_iter().chain(others) {
        let (code, lines) = member.end_with_lines();
        assert_eq!(code, Some(1), "{lines:?}");
        assert_eq!(lines.iter().filter(says).count(), 1, "{lines:?}");
    }
}
