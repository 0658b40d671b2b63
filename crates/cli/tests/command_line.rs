//! The binary as a black box: what a person types, and what they get.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// No process of these tests may take longer: a hang is a failure.
const DEADLINE: Duration = Duration::from_secs(120);

fn libra(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_libra"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// A running member, ended when the test ends.
struct Member {
    child: Child,
    stderr: mpsc::Receiver<String>,
}

impl Member {
    fn start(arguments: &[&str]) -> Self {
        let mut child = libra(arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (sender, stderr) = mpsc::channel();
        thread::spawn(move || lines.map_while(Result::ok).all(|line| sender.send(line).is_ok()));
        Self { child, stderr }
    }

    /// Waits for a line that holds `text`.
    fn line_with(&self, text: &str) -> String {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let line = self.stderr.recv_timeout(deadline.saturating_duration_since(Instant::now()));
            let line = line.unwrap_or_else(|_| panic!("no line with {text:?}"));
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Waits for the end: exit code, and the last line it wrote.
    fn end(mut self) -> (Option<i32>, String) {
        let deadline = Instant::now() + DEADLINE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "the process does not end");
            thread::sleep(Duration::from_millis(20));
        };
        (status.code(), self.stderr.iter().last().unwrap_or_default())
    }

    fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // Only ever our own child, and only if it is still there.
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn run(arguments: &[&str]) -> Output {
    let mut child = libra(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + DEADLINE;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() >= deadline {
            child.kill().unwrap();
            panic!("libra {arguments:?} does not end");
        }
        thread::sleep(Duration::from_millis(10));
    };
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    child.stdout.unwrap().read_to_end(&mut stdout).unwrap();
    child.stderr.unwrap().read_to_end(&mut stderr).unwrap();
    Output { status, stdout, stderr }
}

/// The command fails with this code, and its first line says each of `words`.
fn assert_refused(arguments: &[&str], code: i32, words: &[&str]) {
    let output = run(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "libra {arguments:?}: {stderr}");
    let line = stderr
        .lines()
        .rfind(|line| line.starts_with("libra: ") || line.starts_with("error: "))
        .unwrap_or_default();
    for word in words {
        assert!(line.contains(word), "libra {arguments:?}: {word:?} is not in {line:?}");
    }
}

/// A data set small enough for a test: every user likes the items of its own half.
fn tiny_data(directory: &Path) -> String {
    let (mut train, mut rating, mut negative) = (String::new(), String::new(), String::new());
    for user in 0..60u32 {
        let half = user % 2;
        let own = |index: u32| 2 * index + half;
        for index in 0..20 {
            if (index + user) % 3 != 0 {
                train += &format!("{user}\t{}\n", own(index));
            }
        }
        let test = own((3 - user % 3) % 3);
        rating += &format!("{user}\t{test}\t5\t0\n");
        negative += &format!("({user},{test})");
        for index in 0..20 {
            negative += &format!("\t{}", 2 * index + 1 - half);
        }
        negative.push('\n');
    }
    fs::write(directory.join("tiny.train.pairs.tsv"), train).unwrap();
    fs::write(directory.join("tiny.test.rating"), rating).unwrap();
    fs::write(directory.join("tiny.test.negative"), negative).unwrap();
    directory.to_str().unwrap().to_owned()
}

fn json(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn a_cluster_in_one_process_learns_and_says_so() {
    let directory = TempDir::new().unwrap();
    let data = tiny_data(directory.path());
    let file = directory.path().join("out.json");
    let faults = ["--loss", "0.02", "--duplicate", "0.02", "--reorder", "0.02"];
    let mut arguments =
        vec!["train", "--data", &data, "--epochs", "12", "--batch", "64", "--sample", "1", "--factors", "4"];
    arguments.extend(faults);
    arguments.extend(["--quiet", "--json", file.to_str().unwrap()]);
    let output = run(&arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stdout.is_empty() && output.stderr.is_empty(), "--quiet is quiet");
    let json = json(&file);
    assert!(json["quality"]["hr10"].as_f64().unwrap() > 0.8, "{json:#}");
    let count = |section: &str, field: &str| {
        json[section][field].as_u64().unwrap_or_else(|| panic!("{section}.{field}"))
    };
    assert_eq!(count("pushes", "rows"), count("pushes", "rows_hot") + count("pushes", "rows_cold"));
    assert!(
        count("pushes", "rows_hot") > count("server", "row_updates_hot"),
        "the switch absorbed something"
    );
    assert!(count("switch", "packets") > 0 && count("switch", "epochs") > 0);
    assert!(count("switch", "duplicates") > 0 && count("transport", "retransmits") > 0);
    assert!(count("transport", "packets") > count("transport", "retransmits"));
    for field in ["total", "train"] {
        assert!(json["seconds"][field].as_f64().unwrap() > 0.0);
    }
    assert!(json["samples_per_second"].as_f64().unwrap() > 0.0 && json["configuration"]["batch"] == 64);
}

#[test]
fn the_summary_says_what_the_switch_saved() {
    let directory = TempDir::new().unwrap();
    let data = tiny_data(directory.path());
    let output = run(&["train", "--data", &data, "--epochs", "1", "--model", "gmf", "--arithmetic", "f32"]);
    let table = String::from_utf8(output.stdout).unwrap();
    for word in ["HR@10", "chance 0.100", "absorbed", "saved the servers", "predicted"] {
        assert!(table.contains(word), "{word:?} is not in\n{table}");
    }
}

#[test]
fn without_a_switch_nothing_is_hot() {
    let directory = TempDir::new().unwrap();
    let data = tiny_data(directory.path());
    let file = directory.path().join("out.json");
    let path = file.to_str().unwrap();
    let output = run(&[
        "train",
        "--data",
        &data,
        "--epochs",
        "2",
        "--model",
        "mlp",
        "--workers",
        "1",
        "--switch",
        "none",
        "--json",
        path,
    ]);
    assert!(output.status.success());
    let json = json(&file);
    assert_eq!(json["pushes"]["rows_hot"], 0);
    assert_eq!(json["transport"]["packets"], 0);
}

#[test]
fn every_bad_input_gets_one_clear_line() {
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let data = tiny_data(directory.path());
    assert_refused(&["train", "--model", "transformer"], 2, &["transformer", "gmf, mlp and neumf"]);
    assert_refused(&["train", "--workers", "0"], 2, &["--workers", "1..="]);
    assert_refused(&["train", "--epochs", "0"], 2, &["--epochs"]);
    assert_refused(&["train", "--batch", "0"], 1, &["batch"]);
    assert_refused(&["train", "--loss", "1.5"], 1, &["--loss", "1.5"]);
    assert_refused(&["train", "--sample", "0"], 1, &["sample", "0"]);
    assert_refused(&["train", "--data", &path("nowhere")], 1, &["nowhere"]);

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
    assert_refused(&["controller", "--listen", &address], 1, &[&address, "--listen"]);
    assert_refused(&["server", "--listen", &address], 1, &[&address, "--listen"]);
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let udp = taken.local_addr().unwrap().to_string();
    assert_refused(&["switch", "--listen", &udp], 1, &[&udp, "--listen"]);
    // A port that was free a moment ago.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    for kind in ["server", "switch", "worker"] {
        assert_refused(&[kind, "--controller", &free, "--patience", "1"], 1, &["controller", &free]);
    }
}

/// Starts a controller on any free port; returns it and where it listens.
fn controller(arguments: &[&str]) -> (Member, String) {
    let mut all = vec!["controller", "--listen", "127.0.0.1:0"];
    all.extend(arguments);
    let member = Member::start(&all);
    let line = member.line_with("waiting for");
    let address = line.split([' ', ',']).find(|word| word.parse::<SocketAddr>().is_ok()).unwrap().to_owned();
    (member, address)
}

fn members(address: &str) -> Vec<Member> {
    let kinds = ["worker", "server", "switch", "worker", "server"];
    kinds.iter().map(|kind| Member::start(&[kind, "--controller", address])).collect()
}

#[test]
fn six_processes_train_one_model() {
    let directory = TempDir::new().unwrap();
    let data = tiny_data(directory.path());
    let file = directory.path().join("out.json");
    // The options come from a file; what is typed has the last word.
    let options = directory.path().join("options.toml");
    fs::write(&options, format!("data = '{data}'\nepochs = 99\nbatch = 64\nsample = 1.0\nfactors = 4\n"))
        .unwrap();
    let config = ["--config", options.to_str().unwrap(), "--epochs", "12", "--json", file.to_str().unwrap()];
    let (controller, address) = controller(&config);
    let members = members(&address);
    // Datagrams from nobody, and from a worker's host but no worker's port, are counted and dropped.
    let switch = &members[2];
    let at = switch.line_with("switch: at");
    let at = at.split([' ', ',']).find(|word| word.parse::<SocketAddr>().is_ok()).unwrap();
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    for round in 0..200u8 {
        stranger.send_to(&[b'L', round, 0, 1, 2, 3], at).unwrap();
        thread::sleep(Duration::from_millis(2));
    }
    let (code, last) = controller.end();
    assert_eq!(code, Some(0), "{last}");
    for member in members {
        assert_eq!(member.end().0, Some(0));
    }
    let json = json(&file);
    assert!(json["quality"]["hr10"].as_f64().unwrap() > 0.8, "{json:#}");
    assert_eq!(json["epochs"].as_array().unwrap().len(), 12);
    assert!(json["switch"]["unknown_senders"].as_u64().unwrap() > 0);
}

#[test]
fn a_worker_that_disappears_ends_the_job_for_everybody() {
    let directory = TempDir::new().unwrap();
    let data = tiny_data(directory.path());
    let (controller, address) = controller(&["--data", &data, "--epochs", "100000", "--sample", "1"]);
    let mut members = members(&address);
    controller.line_with("training begins");
    thread::sleep(Duration::from_millis(300));
    members.remove(0).signal("-KILL");
    let (code, last) = controller.end();
    assert_eq!(code, Some(1));
    assert!(last.contains("worker") && last.contains("disappeared"), "{last}");
    for member in members {
        let (code, last) = member.end();
        assert_eq!(code, Some(1), "{last}");
        assert!(last.contains("disappeared"), "{last}");
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
