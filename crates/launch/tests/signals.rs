//! Signals to a process that drains: this program once more, in its part as the process.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::io::{BufRead, BufReader};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use libra_launch::{exit, interrupt};

/// Names the process's part: whether its drain ends.
const PART: &str = "LIBRA_TEST_DRAIN";

/// A part of the other tests, which start it, and nothing by itself.
#[test]
fn process() {
    let Ok(part) = std::env::var(PART) else { return };
    let ends = part == "ends";
    interrupt::on_terminate(move || {
        println!("drain");
        if ends {
            std::process::exit(if interrupt::terminated() { exit::DONE.into() } else { 1 });
        }
    });
    interrupt::watch();
    println!("ready");
    std::thread::sleep(Duration::from_secs(60));
    panic!("no signal has ended this process");
}

/// Starts the process, and sends it each signal once it has said the word before it.
fn run(part: &str, signals: &[(&str, &str)]) -> ExitStatus {
    let arguments = ["--exact", "process", "--nocapture"];
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(arguments).env(PART, part).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let id = child.id().to_string();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    for (word, signal) in signals {
        assert!(lines.any(|line| line.ends_with(word)), "no {word:?} before {signal}");
        assert!(Command::new("kill").args([*signal, id.as_str()]).status().unwrap().success());
    }
    child.wait().unwrap()
}

#[test]
fn the_first_sigterm_begins_a_drain() {
    assert_eq!(run("ends", &[("ready", "-TERM")]).code(), Some(exit::DONE.into()));
}

#[test]
fn a_second_sigterm_ends_a_drain_with_143() {
    let status = run("goes on", &[("ready", "-TERM"), ("drain", "-TERM")]);
    assert_eq!(status.code(), Some(exit::TERMINATED.into()));
}

#[test]
fn sigint_in_a_drain_ends_it_with_130() {
    let status = run("goes on", &[("ready", "-TERM"), ("drain", "-INT")]);
    assert_eq!(status.code(), Some(exit::INTERRUPTED.into()));
}
