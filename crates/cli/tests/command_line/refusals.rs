//! Errors of users get one line each.

use std::fs;
use std::net::{TcpListener, UdpSocket};

use tempfile::TempDir;

use crate::process::{Member, assert_refused, controller, free_address, run, tiny_data};

#[test]
fn every_bad_input_gets_one_clear_line() {
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let data = tiny_data(directory.path());
    assert_refused(&["train", "--model", "transformer"], 2, &["transformer", "gmf, mlp, neumf"]);
    assert_refused(&["train", "--workers", "0"], 2, &["--workers", "1 to 256"]);
    assert_refused(&["train", "--workers", "4..2"], 2, &["--workers", "other way round"]);
    assert_refused(&["train", "--workers", "2..4"], 1, &["--workers 2..4", "libra controller"]);
    assert_refused(&["train", "--epochs", "0"], 2, &["--epochs"]);
    assert_refused(&["train", "--optimizer", "adamax"], 2, &["--optimizer", "adamax", "adam, adamw"]);
    assert_refused(&["train", "--optimizer", "adam:beta=1"], 2, &["`beta`", "lr, beta1, beta2, epsilon"]);
    assert_refused(&["controller", "--schedule", "cosine"], 2, &["--schedule", "steps=N"]);
    assert_refused(&["profile", "--out", "x", "--clip", "norm:0"], 2, &["--clip", "limit = 0"]);
    assert_refused(
        &["train", "--optimizer", "ftrl", "--schedule", "linear:steps=9"],
        1,
        &["embeddings.schedule"],
    );
    assert_refused(&["train", "--batch", "0"], 1, &["batch"]);
    assert_refused(&["train", "--staleness", "2"], 1, &["--staleness 2", "--mode ssp"]);
    assert_refused(
        &["controller", "--mode", "sync", "--staleness", "2"],
        1,
        &["--staleness 2", "--mode ssp"],
    );
    assert_refused(&["train", "--mode", "ssp", "--staleness", "0"], 2, &["--staleness"]);
    assert_refused(&["train", "--mode", "bsp"], 2, &["bsp", "--mode"]);
    assert_refused(&["train", "--loss", "1.5"], 1, &["--loss", "1.5"]);
    assert_refused(&["train", "--sample", "0"], 1, &["sample", "0"]);
    assert_refused(&["train", "--data", &path("nowhere")], 1, &["nowhere"]);
    assert_refused(&["train", "--lanes", "0"], 2, &["--lanes"]);
    assert_refused(&["train", "--register-size", "1"], 2, &["--register-size", "2..=32768"]);
    assert_refused(&["train", "--lanes", "8"], 1, &["with 8 lanes", "more --lanes", "narrower model"]);
    assert_refused(
        &["train", "--lanes", "250"],
        1,
        &["--lanes 250", "1558 bytes", "--mtu 1500", "240 lanes", "larger --mtu"],
    );

    assert_refused(&["train", "--mtu", "100"], 2, &["--mtu", "auto, or 256 to 65535"]);
    assert_refused(&["train", "--mtu", "auto", "--lanes", "16"], 1, &["--mtu auto", "--lanes 16"]);

    let broken = TempDir::new().unwrap();
    let broken_data = tiny_data(broken.path());
    let train = broken.path().join("tiny.train.pairs.tsv");
    fs::write(&train, fs::read_to_string(&train).unwrap() + "7\tseven\n").unwrap();
    let lines = fs::read_to_string(&train).unwrap().lines().count();
    assert_refused(
        &["train", "--data", &broken_data],
        1,
        &["tiny.train.pairs.tsv", &format!("line {lines}"), "seven"],
    );

    assert_refused(&["train", "--data", &data, "--plan", &path("nowhere.toml")], 1, &["nowhere.toml"]);
    fs::write(path("torn.toml"), "number = 1\nrows = [").unwrap();
    assert_refused(&["train", "--data", &data, "--plan", &path("torn.toml")], 1, &["torn.toml", "line"]);
    let plan = path("plan.toml");
    assert!(
        run(&["profile", "--data", &data, "--sample", "1", "--factors", "4", "--out", &plan, "--quiet"])
            .status
            .success()
    );
    let shown = run(&["plan", "show", &plan]);
    assert!(shown.status.success() && String::from_utf8_lossy(&shown.stdout).contains("hot"));
    assert_refused(
        &["train", "--data", &data, "--plan", &plan, "--factors", "8"],
        1,
        &["plan.toml", "does not fit"],
    );

    let nowhere = path("nowhere/out.json");
    assert_refused(&["train", "--data", &data, "--json", &nowhere], 1, &[&nowhere]);
    assert_refused(&["profile", "--data", &data, "--out", &nowhere], 1, &[&nowhere]);

    fs::write(path("options.toml"), "bach = 64\n").unwrap();
    assert_refused(&["train", "--config", &path("options.toml")], 1, &["options.toml", "bach"]);
    fs::write(path("options.toml"), "batch = [64]\n").unwrap();
    assert_refused(&["train", "--config", &path("options.toml")], 1, &["options.toml", "batch"]);
}

#[test]
fn a_port_in_use_and_an_unreachable_controller_are_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    assert_refused(&["controller", "--listen", &address], 75, &[&address, "--listen"]);
    assert_refused(&["server", "--listen", &address], 75, &[&address, "--listen"]);
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let udp = taken.local_addr().unwrap().to_string();
    assert_refused(&["switch", "--listen", &udp], 75, &[&udp, "--listen"]);
    // A port that was free a moment ago.
    let free = free_address();
    for kind in ["server", "switch", "worker"] {
        assert_refused(&[kind, "--controller", &free, "--connect-timeout", "1"], 75, &["controller", &free]);
    }
}

#[test]
fn a_worker_with_other_data_is_refused_by_name() {
    let (ours, theirs) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (our_data, their_data) = (tiny_data(ours.path()), tiny_data(theirs.path()));
    let train = theirs.path().join("tiny.train.pairs.tsv");
    let text = fs::read_to_string(&train).unwrap();
    fs::write(&train, text.lines().skip(1).map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    let (controller, address) =
        controller(&["--data", &our_data, "--workers", "1", "--servers", "1", "--switches", "0"]);
    let server = Member::start(&["server", "--controller", &address]);
    let worker = Member::start(&["worker", "--controller", &address, "--data", &their_data]);
    assert_eq!(worker.end().0, Some(1));
    let (code, last) = controller.end();
    assert_eq!(code, Some(1));
    assert!(last.contains("users") && last.contains("pairs"), "{last}");
    assert_eq!(server.end().0, Some(1));
}
