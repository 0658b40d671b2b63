//! Mistakes of engines that start members, and machines that they start them on.

use std::net::TcpListener;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::process::{Member, assert_refused, controller, free_address, json, libra, run, tiny_data};

/// Starts the controller of a job of a server and a switch. Returns it, where it listens, and the path of its report.
fn start(directory: &TempDir, workers: &str, options: &[&str]) -> (Member, String, String) {
    let data = tiny_data(directory.path());
    let report = directory.path().join("report.json").to_str().unwrap().to_owned();
    let sizes = ["--workers", workers, "--servers", "1", "--switches", "1"];
    let job = ["--data", &data, "--epochs", "1", "--factors", "4", "--json", &report];
    let (controller, address) = controller(&[&sizes[..], &job, options].concat());
    (controller, address, report)
}

fn report(path: &str) -> Value {
    json(path.as_ref())
}

#[test]
fn a_second_controller_is_refused_and_the_first_goes_on() {
    let directory = TempDir::new().unwrap();
    let http = free_address();
    let (controller, address, path) = start(&directory, "1", &["--http", &http]);
    let at = format!("another controller is at {address}");
    let shows = format!("`libra top --http {http}` shows it");
    // All that it was started with is in use.
    assert_refused(&["controller", "--listen", &address, "--http", &http], 1, &[&at, &shows]);
    let members = ["server", "switch", "worker"];
    let members = members.map(|kind| Member::start(&[kind, "--controller", &address]));
    assert_eq!(controller.end().0, Some(0));
    assert!(members.into_iter().all(|member| member.end().0 == Some(0)));
    assert!(report(&path)["quality"]["hr10"].is_f64());
}

#[test]
fn an_address_that_something_else_has_may_become_free() {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    assert_refused(&["controller", "--listen", &address], 75, &[&address, "in use"]);
}

#[test]
fn a_controller_waits_for_one_that_is_about_to_end() {
    let directory = TempDir::new().unwrap();
    let (first, address, _) = start(&directory, "1", &[]);
    let second = Member::start(&["controller", "--listen", &address, "--servers", "1"]);
    first.signal("-TERM");
    first.end();
    second.line_with("waiting for 1 servers");
    second.signal("-KILL");
    second.end();
}

/// As rule M22 says.
#[test]
fn a_member_too_many_is_told_how_many_are_there() {
    let directory = TempDir::new().unwrap();
    let (controller, address, _) = start(&directory, "1", &[]);
    let server = Member::start(&["server", "--controller", &address]);
    controller.line_with("server 0 joined");
    let words = ["the cluster has no place for another server: 1 of 1 are there"];
    assert_refused(&["server", "--controller", &address], 75, &words);
    let others = ["switch", "worker"].map(|kind| Member::start(&[kind, "--controller", &address]));
    assert_eq!(controller.end().0, Some(0));
    assert_eq!(server.end().0, Some(0));
    assert!(others.into_iter().all(|member| member.end().0 == Some(0)));
}

#[test]
fn members_killed_while_they_gather_are_replaced() {
    let directory = TempDir::new().unwrap();
    let (controller, address, _) = start(&directory, "2", &[]);
    let member = |kind: &str| Member::start(&[kind, "--controller", &address]);
    for kind in ["server", "switch", "worker"] {
        let killed = member(kind);
        controller.line_with(&format!("{kind} 0 joined"));
        killed.signal("-KILL");
        killed.end();
    }
    let members = ["server", "switch", "worker", "worker"].map(member);
    let (code, last) = controller.end();
    assert_eq!(code, Some(0), "{last}");
    for member in members {
        let (code, last) = member.end();
        assert_eq!(code, Some(0), "{last}");
    }
}

/// Files with tokens of two clusters.
fn tokens(directory: &TempDir) -> [String; 2] {
    ["token", "other-token"].map(|name| {
        let path = directory.path().join(name).to_str().unwrap().to_owned();
        assert!(run(&["token", "--out", &path]).status.success());
        path
    })
}

#[test]
fn a_name_that_leads_to_another_controller_is_looked_up_again() {
    let directory = TempDir::new().unwrap();
    let [token, other] = tokens(&directory);
    let (stranger, address) = controller(&["--servers", "1", "--switches", "0", "--token-file", &other]);
    let port = address.rsplit_once(':').unwrap().1;
    let name = format!("localhost:{port}");
    let member = |kind: &str| {
        Member::start(&[kind, "--controller", &name, "--token-file", &token, "--patience", "60"])
    };
    let members = ["server", "switch", "worker"].map(member);
    stranger.line_with("streams were closed");
    stranger.signal("-KILL");
    stranger.end();
    let (controller, _, _) = start(&directory, "1", &["--listen", &address, "--token-file", &token]);
    assert_eq!(controller.end().0, Some(0));
    assert!(members.into_iter().all(|member| member.end().0 == Some(0)));
}

/// A command whose time of day is another.
fn at(offset: &str, arguments: &[&str]) -> Command {
    let plain = libra(arguments);
    let mut command = Command::new("faketime");
    command.args(["-f", offset]).arg(plain.get_program()).args(plain.get_args()).stdin(Stdio::null());
    // The time that passes is the same on all machines.
    command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    command
}

#[test]
fn clocks_that_are_an_hour_apart_make_no_difference() {
    if Command::new("faketime").arg("--version").output().is_err() {
        eprintln!("SKIPPED: there is no faketime: apt-get install faketime");
        return;
    }
    let directory = TempDir::new().unwrap();
    let token = directory.path().join("token");
    let token = token.to_str().unwrap();
    assert!(run(&["token", "--out", token]).status.success());
    let (controller, address, path) = start(&directory, "1", &["--token-file", token]);
    let member = |offset: &str, kind: &str| {
        Member::spawn(&mut at(offset, &[kind, "--controller", &address, "--token-file", token]))
    };
    let members = [member("+1h", "server"), member("-1h", "switch"), member("-1h", "worker")];
    let (code, last) = controller.end();
    assert_eq!(code, Some(0), "{last}");
    assert!(members.into_iter().all(|member| member.end().0 == Some(0)));
    let seconds = report(&path)["seconds"]["total"].as_f64().unwrap();
    assert!(seconds < 600.0, "an hour is in no time: {seconds}");
}
