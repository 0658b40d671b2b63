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
    assert_refused(&["server", "--patience", "long"], 2, &["--patience"]);
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

#[test]
fn a_controller_on_another_machine_needs_a_token() {
    let output = run(&["worker", "--controller", "192.0.2.1:7700", "--patience", "1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--token-file"));
}
