//! Names instead of addresses: of the controller, and those by which members are known.

use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::process::{Member, assert_refused, controller, run, tiny_data};

/// A name that never has an address (RFC 6761).
const NOWHERE: &str = "controller.invalid:7700";

#[test]
fn an_unknown_host_is_named_until_patience_ends() {
    for (kind, more) in [("worker", &[][..]), ("switch", &["--insecure"]), ("server", &["--insecure"])] {
        let begun = Instant::now();
        let arguments = [&[kind, "--controller", NOWHERE, "--patience", "2"], more].concat();
        assert_refused(&arguments, 75, &[NOWHERE, "tried for"]);
        assert!(begun.elapsed() > Duration::from_millis(1500), "{kind}: {:?}", begun.elapsed());
    }
    // With an address of its own it need not look the name up before it calls.
    let listen = ["server", "--listen", "127.0.0.1:0", "--insecure"];
    assert_refused(&[&listen[..], &["--controller", NOWHERE, "--patience", "1"]].concat(), 75, &[NOWHERE]);
}

#[test]
fn an_advertised_name_without_address_is_no_controller() {
    for name in ["member.invalid", "member.invalid:7701"] {
        let arguments = ["server", "--controller", "127.0.0.1:9", "--advertise", name, "--patience", "1"];
        assert_refused(&arguments, 75, &[&format!("--advertise {name}: no such host"), "tried for"]);
        let stderr = run(&arguments).stderr;
        assert!(!String::from_utf8_lossy(&stderr).contains("controller"), "{name}");
    }
}

#[test]
fn a_place_that_is_none_is_an_error_of_the_command_line() {
    for (place, reason) in [
        ("localhost", "no port"),
        ("localhost:0", "1 to 65535"),
        ("::1:7700", "in brackets"),
        ("a b:7700", "neither an IP address nor a name"),
    ] {
        assert_refused(&["worker", "--controller", place], 2, &["--controller", reason]);
    }
    assert_refused(&["server", "--advertise", "a b"], 2, &["--advertise", "nor a name"]);
    for time in ["long", "nan", "-1"] {
        let patience = format!("--patience={time}");
        assert_refused(&["server", &patience], 2, &["--patience", time, "expected seconds"]);
    }
}

#[test]
fn members_find_their_controller_by_its_name() {
    let directory = TempDir::new().unwrap();
    let data = tiny_data(directory.path());
    let options = ["--workers", "1", "--servers", "1", "--switches", "1", "--sample", "1", "--epochs", "2"];
    let (controller, address) = controller(&[&["--data", &data], &options[..]].concat());
    let port = address.rsplit_once(':').unwrap().1;
    let place = format!("localhost:{port}");
    let common = ["--controller", &place, "--patience", "forever"];
    let server = Member::start(&[&["server"], &common[..]].concat());
    let switch = Member::start(&[&["switch", "--advertise", "localhost"], &common[..]].concat());
    let worker = Member::start(&[&["worker", "--advertise", "127.0.0.1"], &common[..]].concat());
    for member in [controller, server, switch, worker] {
        let (code, last) = member.end();
        assert_eq!(code, Some(0), "{last}");
    }
}

#[test]
fn an_advertised_address_is_that_which_others_call() {
    let directory = TempDir::new().unwrap();
    let data = tiny_data(directory.path());
    let options = ["--workers", "1", "--servers", "1", "--switches", "0", "--sample", "1"];
    let (controller, address) = controller(&[&["--data", &data], &options[..]].concat());
    // 127.0.0.9 is this machine, too, but the server does not listen there; a worker that calls it is refused.
    let server = ["server", "--listen", "127.0.0.1:0", "--advertise", "127.0.0.9", "--controller", &address];
    let server = Member::start(&server);
    let worker = Member::start(&["worker", "--controller", &address]);
    let (code, last) = controller.end();
    assert_eq!(code, Some(1), "{last}");
    for word in ["worker 0", "to server ", "127.0.0.9"] {
        assert!(last.contains(word), "{word:?} is not in {last}");
    }
    drop((server, worker));
}

/// A job of one worker, one server and one switch, of which this one is known by an address that is not its own. Returns the controller, that
/// member, and the others.
fn with_a_wrong_address(kind: &str, directory: &TempDir) -> (Member, Member, Vec<Member>) {
    let data = tiny_data(directory.path());
    let options = ["--workers", "1", "--servers", "1", "--switches", "1", "--sample", "1", "--epochs", "2"];
    let (controller, address) = controller(&[&["--data", &data], &options[..]].concat());
    let others = ["server", "switch", "worker"].into_iter().filter(|other| *other != kind);
    let others = others.map(|other| Member::start(&[other, "--controller", &address])).collect();
    let wrong = Member::start(&[kind, "--controller", &address, "--advertise", "127.0.0.9"]);
    (controller, wrong, others)
}

/// Checks that a member fails within 10 s of a moment, and that its last line has these words.
fn assert_fails_with(member: Member, begun: Instant, words: &[&str]) {
    let (code, last) = member.end();
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(code, Some(1), "{last}");
    for word in words {
        assert!(last.contains(word), "{word:?} is not in {last}");
    }
}

#[test]
fn a_switch_that_no_worker_reaches_ends_and_the_job_goes_on() {
    let directory = TempDir::new().unwrap();
    let (controller, switch, others) = with_a_wrong_address("switch", &directory);
    controller.line_with("training begins");
    let begun = Instant::now();
    assert_fails_with(switch, begun, &["switch 0", "worker 0", "127.0.0.9:", "--advertise"]);
    controller.line_with("switch 0 could not be reached by worker 0: it is known by 127.0.0.9:");
    for member in others.into_iter().chain([controller]) {
        let (code, last) = member.end();
        assert_eq!(code, Some(0), "{last}");
    }
}

#[test]
fn a_worker_that_the_switch_knows_by_another_address_is_named() {
    let directory = TempDir::new().unwrap();
    let (controller, worker, _others) = with_a_wrong_address("worker", &directory);
    controller.line_with("training begins");
    let begun = Instant::now();
    for member in [worker, controller] {
        assert_fails_with(member, begun, &["worker 0", "127.0.0.9", "switch 0", "--advertise"]);
    }
}

#[test]
fn a_controller_on_another_machine_needs_a_token() {
    let output = run(&["worker", "--controller", "192.0.2.1:7700", "--patience", "1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--token-file"));
}
