//! The end of a process: signals, exit codes and the termination log.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use libra_client::{Controller, JobSpec, NodeOptions, Optimizer, ServerEvent, Sizes, TableSpec};
use libra_net::{ServerNode, WorkerNode};
use libra_proto::MemberEvent;
use tempfile::TempDir;

use crate::process::{Member, assert_refused, controller, free_address, libra, run, tiny_data};

fn path_in(directory: &TempDir, name: &str) -> String {
    directory.path().join(name).to_str().unwrap().to_owned()
}

#[test]
fn sigterm_ends_a_process_that_has_nothing_to_drain_with_75() {
    let directory = TempDir::new().unwrap();
    let log = path_in(&directory, "reason");
    let arguments = ["worker", "--controller", &free_address(), "--connect-timeout", "100"];
    let worker = Member::start(&[&arguments[..], &["--termination-log", &log]].concat());
    worker.line_with("waiting for the cluster");
    worker.signal("-TERM");
    let terminated = Instant::now();
    let (code, last) = worker.end();
    assert_eq!((code, last.as_str()), (Some(75), "libra: terminated"));
    assert!(terminated.elapsed() < Duration::from_secs(1), "{:?}", terminated.elapsed());
    assert_eq!(fs::read_to_string(&log).unwrap(), "terminated\n");
}

#[test]
fn a_signal_in_the_profile_run_ends_it_at_once() {
    let directory = TempDir::new().unwrap();
    // A controller that is terminated comes again, and its job goes on; that of `train` is gone.
    for (command, signal, code, is_failed) in [
        (&["controller", "--listen", "127.0.0.1:0"][..], "-TERM", 75, false),
        (&["controller", "--listen", "127.0.0.1:0"], "-INT", 130, true),
        (&["train"], "-TERM", 75, true),
        (&["train"], "-INT", 130, true),
    ] {
        let events = path_in(&directory, &format!("{}{signal}", command[0]));
        let options = ["--sample", "1", "--factors", "64", "--events", &events];
        let member = Member::start(&[command, &options].concat());
        thread::sleep(Duration::from_secs(1));
        member.signal(signal);
        let signalled = Instant::now();
        let (ended, lines) = member.end_with_lines();
        assert_eq!(ended, Some(code), "{command:?} {signal}: {lines:?}");
        assert!(signalled.elapsed() < Duration::from_secs(1), "{command:?}: {:?}", signalled.elapsed());
        let is_past = |line: &String| line.contains("waiting for") || line.contains("training");
        assert!(!lines.iter().any(is_past), "the profile was made before: {lines:?}");
        let events = fs::read_to_string(events).unwrap();
        let last = events.lines().next_back().unwrap_or_default();
        assert_eq!(last.contains("\"event\":\"job_failed\""), is_failed, "{command:?} {signal}: {events}");
    }
}

#[test]
fn sigint_ends_a_member_with_130() {
    let arguments = ["server", "--controller", &free_address(), "--connect-timeout", "100"];
    let server = Member::start(&arguments);
    server.line_with("waiting for the cluster");
    server.signal("-INT");
    assert_eq!(server.end(), (Some(130), "libra: interrupted".to_owned()));
}

#[test]
fn members_that_lose_their_controller_may_be_started_again() {
    let directory = TempDir::new().unwrap();
    for kind in ["server", "switch", "worker"] {
        let log = path_in(&directory, kind);
        let arguments = [kind, "--controller", &free_address(), "--connect-timeout", "1"];
        let output = run(&[&arguments[..], &["--termination-log", &log]].concat());
        assert_eq!(output.status.code(), Some(75));
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let reason = fs::read_to_string(&log).unwrap();
        assert_eq!(stderr.lines().next_back(), Some(format!("libra: {}", reason.trim_end()).as_str()));
        assert_eq!(reason.lines().count(), 1, "{reason:?}");
    }
}

#[test]
fn a_failed_job_is_not_to_be_started_again() {
    let directory = TempDir::new().unwrap();
    let (ours, theirs) = (directory.path().join("ours"), directory.path().join("theirs"));
    for place in [&ours, &theirs] {
        fs::create_dir(place).unwrap();
    }
    let (data, other) = (tiny_data(&ours), tiny_data(&theirs));
    cut_first_line(&theirs.join("tiny.train.pairs.tsv"));
    let log = path_in(&directory, "reason");
    let sizes = ["--workers", "1", "--servers", "1", "--switches", "0"];
    let (controller, address) =
        controller(&[&["--data", &data, "--termination-log", &log], &sizes[..]].concat());
    let server = Member::start(&["server", "--controller", &address]);
    let worker = Member::start(&["worker", "--controller", &address, "--data", &other]);
    assert_eq!(worker.end().0, Some(1));
    assert_eq!(server.end().0, Some(1));
    assert_eq!(controller.end().0, Some(1));
    let reason = fs::read_to_string(&log).unwrap();
    assert!(reason.starts_with("the job failed: "), "{reason}");
}

fn cut_first_line(file: &Path) {
    let text = fs::read_to_string(file).unwrap();
    fs::write(file, text.split_once('\n').unwrap().1).unwrap();
}

#[test]
fn the_termination_log_is_empty_after_a_job_that_is_done() {
    let directory = TempDir::new().unwrap();
    let data = tiny_data(directory.path());
    let log = path_in(&directory, "reason");
    fs::write(&log, "of an earlier run\n").unwrap();
    let options = ["--workers", "1", "--servers", "1", "--switches", "0", "--sample", "1", "--epochs", "1"];
    let (controller, address) =
        controller(&[&["--data", &data, "--termination-log", &log], &options[..]].concat());
    let server = Member::start(&["server", "--controller", &address]);
    let worker = Member::start(&["worker", "--controller", &address]);
    for member in [controller, server, worker] {
        let (code, last) = member.end();
        assert_eq!(code, Some(0), "{last}");
    }
    assert_eq!(fs::read_to_string(&log).unwrap(), "");
}

/// A controller whose job is done, and which waits for the last counts of its server until it is dropped.
struct FinishingController {
    address: String,
    release: Option<mpsc::Sender<()>>,
    members: Vec<JoinHandle<()>>,
}

impl FinishingController {
    fn start() -> Self {
        let controller = Controller::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = controller.address();
        let options = move || NodeOptions::new(address);
        let server = ServerNode::bind(options(), None).unwrap();
        let (finishing, is_finishing) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let serve = move || {
            let hold = move |event: &ServerEvent| {
                if let ServerEvent::Member(MemberEvent::Finished(_)) = event {
                    finishing.send(()).unwrap();
                    // Its counts leave when this returns.
                    let _ = released.recv();
                }
            };
            server.run(hold).map(drop).unwrap();
        };
        let work = move || WorkerNode::join(options()).unwrap().report(String::new()).unwrap();
        let control = move || {
            let sizes = Sizes { servers: 1, switches: 0, workers: 1 };
            let spec =
                JobSpec::new(sizes, vec![TableSpec::new("rows", 0..4, 1, Optimizer::Sgd { rate: 1.0 })]);
            let (_ask, commands) = tokio::sync::mpsc::unbounded_channel();
            controller.run(sizes, spec.cluster(), commands, |_| ()).map(drop).unwrap();
        };
        let members = vec![thread::spawn(control), thread::spawn(serve), thread::spawn(work)];
        is_finishing.recv().unwrap();
        Self { address: address.to_string(), release: Some(release), members }
    }
}

impl Drop for FinishingController {
    fn drop(&mut self) {
        drop(self.release.take());
        self.members.drain(..).for_each(|member| member.join().unwrap());
    }
}

#[test]
fn a_member_that_comes_when_the_job_is_done_exits_with_0() {
    let directory = TempDir::new().unwrap();
    let controller = FinishingController::start();
    for kind in ["server", "switch", "worker"] {
        let (log, events) = (path_in(&directory, "reason"), path_in(&directory, kind));
        let options = ["--controller", &controller.address, "--termination-log", &log, "--events", &events];
        let late = Member::start(&[&[kind], &options[..]].concat());
        assert_eq!(late.end(), (Some(0), "the job is done".to_owned()), "{kind}");
        assert_eq!(fs::read_to_string(&log).unwrap(), "");
        let events = fs::read_to_string(&events).unwrap();
        assert!(events.lines().next_back().unwrap().contains("\"event\":\"member_done\""), "{events}");
    }
}

#[test]
fn a_termination_log_that_cannot_be_written_is_named() {
    let directory = TempDir::new().unwrap();
    let log = path_in(&directory, "nowhere/reason");
    assert_refused(&["server", "--termination-log", &log], 1, &[&log]);
    assert_refused(&["controller", "--termination-log", &log], 1, &[&log]);
}

/// Returns what a service manager is told next.
fn told(socket: &UnixDatagram) -> String {
    let mut text = [0; 256];
    let bytes = socket.recv(&mut text).unwrap();
    String::from_utf8_lossy(&text[..bytes]).trim_end().to_owned()
}

#[test]
fn a_service_manager_learns_that_members_live_and_stop() {
    for kind in ["server", "switch", "worker"] {
        let directory = TempDir::new().unwrap();
        let path = path_in(&directory, "notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut command = libra(&[kind, "--controller", &free_address(), "--patience", "forever"]);
        let member = Member::spawn(command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "400000"));
        assert_eq!(told(&socket), "READY=1");
        // Nothing happens at it, and its loops turn all the same.
        let begun = Instant::now();
        (0..10).for_each(|_| assert_eq!(told(&socket), "WATCHDOG=1"));
        assert!(begun.elapsed() > Duration::from_millis(500), "{kind}: {:?}", begun.elapsed());
        member.signal("-TERM");
        let stops = std::iter::from_fn(|| Some(told(&socket))).find(|text| text != "WATCHDOG=1");
        assert_eq!(stops.unwrap(), "STOPPING=1");
        assert_eq!(member.end().0, Some(75));
    }
}
