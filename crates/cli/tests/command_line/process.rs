//! The binary's processes, and what they are run on.

use std::fs;
use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use libra_launch::process::Process;
use serde_json::Value;
use tempfile::TempDir;

/// No process of these tests may take longer: a hang is a failure.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);

pub(crate) fn libra(arguments: &[&str]) -> Command {
    let mut command = Command::new(crate::PROGRAM);
    command.args(arguments).stdin(Stdio::null());
    command
}

/// A running member, ended when the test ends.
pub(crate) struct Member {
    process: Process,
    stderr: mpsc::Receiver<String>,
}

impl Member {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::spawn(&mut libra(arguments))
    }

    pub(crate) fn spawn(command: &mut Command) -> Self {
        let mut process =
            Process::start("libra", command.stdout(Stdio::null()).stderr(Stdio::piped())).unwrap();
        let (sender, stderr) = mpsc::channel();
        process.read_stderr(move |line| sender.send(line).is_ok());
        Self { process, stderr }
    }

    /// Waits for a line that holds `text`.
    pub(crate) fn line_with(&self, text: &str) -> String {
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
    pub(crate) fn end(self) -> (Option<i32>, String) {
        let (code, lines) = self.end_with_lines();
        (code, lines.into_iter().last().unwrap_or_default())
    }

    /// Waits for the end: exit code, and the lines it wrote that no `line_with` has read.
    pub(crate) fn end_with_lines(mut self) -> (Option<i32>, Vec<String>) {
        let status = self.process.wait(Instant::now() + DEADLINE).unwrap();
        (status.code(), self.stderr.iter().collect())
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn signal(&self, signal: &str) {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }
}

pub(crate) fn run(arguments: &[&str]) -> Output {
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

/// Checks that the command fails with this code, and that its line has each of `words`.
pub(crate) fn assert_refused(arguments: &[&str], code: i32, words: &[&str]) {
    let output = run(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "libra {arguments:?}: {stderr}");
    let line = stderr
        .lines()
        .rfind(|line| {
            line.starts_with("libra: ") || line.starts_with("libra-lab: ") || line.starts_with("error: ")
        })
        .unwrap_or_default();
    for word in words {
        assert!(line.contains(word), "libra {arguments:?}: {word:?} is not in {line:?}");
    }
}

/// Starts a controller on any free port; returns it and where it listens.
pub(crate) fn controller(arguments: &[&str]) -> (Member, String) {
    let mut all = vec!["controller", "--listen", "127.0.0.1:0"];
    all.extend(arguments);
    let member = Member::start(&all);
    let line = member.line_with("waiting for");
    let address = line.split([' ', ',']).find(|word| word.parse::<SocketAddr>().is_ok()).unwrap().to_owned();
    (member, address)
}

/// An address at which nothing listens.
pub(crate) fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

pub(crate) fn members(address: &str) -> Vec<Member> {
    let kinds = ["worker", "server", "switch", "worker", "server"];
    kinds.iter().map(|kind| Member::start(&[kind, "--controller", address])).collect()
}

/// A data set small enough for a test: every user likes the items of its own half.
pub(crate) fn tiny_data(directory: &Path) -> String {
    data_of(directory, 60)
}

/// The same with this many users.
pub(crate) fn data_of(directory: &Path, users: u32) -> String {
    let (mut train, mut rating, mut negative) = (String::new(), String::new(), String::new());
    for user in 0..users {
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

/// A directory that ends with the test, and data of a model in it.
pub(crate) struct Place {
    pub(crate) directory: TempDir,
    pub(crate) data: String,
}

impl Place {
    /// With data of this many users.
    pub(crate) fn of(users: u32) -> Self {
        let directory = TempDir::new().unwrap();
        let data = directory.path().join("data");
        fs::create_dir(&data).unwrap();
        let data = data_of(&data, users);
        Self { directory, data }
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_owned()
    }
}

/// Reads a document that was written for machines. All of them begin with their schema.
pub(crate) fn json(path: &Path) -> Value {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.starts_with("{\n  \"schema\": 2,\n"), "no schema: {}: {text:.80}", path.display());
    serde_json::from_str(&text).unwrap()
}
