//! Processes that are killed: readers in mid-epoch, and writers to a store.

use std::fmt::Display;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use std::{env, fs, thread};

use libra_data::{Columns, DataSet, Destination, Options, OutputFormat, Selection, Shuffle};

use crate::server::{Reaction, Server};
use crate::support::{Directory, make, options};

/// The address of the server, for a process that a test starts.
const ADDRESS: &str = "LIBRA_TEST_ADDRESS";
/// Directory of indexes of texts, for the same.
const INDEXES: &str = "LIBRA_TEST_INDEXES";
/// Lines for the parent begin so.
const PRINTED: &str = "to the parent: ";

/// A process that a test has started.
struct Process {
    child: Child,
    stderr: BufReader<ChildStderr>,
}

impl Process {
    /// Runs a test of this file in a process of its own.
    fn start(test: &str, variables: &[(&str, &Path)]) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args([test, "--exact", "--nocapture"]).envs(variables.iter().copied());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        Self { child, stderr }
    }

    /// Waits for lines that it prints for its parent.
    fn lines(&mut self, count: usize) -> Vec<String> {
        let lines = self.stderr.by_ref().lines().map(Result::unwrap);
        lines.filter_map(|line| line.strip_prefix(PRINTED).map(str::to_owned)).take(count).collect()
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        assert_eq!(self.child.wait().unwrap().code(), None, "it is ended by the signal");
    }
}

/// Prints a line for the parent.
fn print(line: impl Display) {
    eprintln!("{PRINTED}{line}");
}

/// Waits to be killed, unless the parent has failed.
fn wait() {
    thread::sleep(Duration::from_secs(20));
}

const PARTS: u32 = 4;

/// Checksums of the batches of a part, each given to `each`.
fn read_part(set: &DataSet, part: u32, mut each: impl FnMut(u64)) {
    let pieces = Selection::new(set.chunks().to_vec()).part(part, PARTS, 3);
    let mut shuffle = Shuffle::new(set, pieces.into_iter(), u64::from(part));
    let mut batch = Columns::default();
    while shuffle.next_batch(16, &mut batch).unwrap() {
        each(batch.checksum());
    }
}

/// A worker that takes over the part of one that was killed reads the same batches, with the index that the other made.
#[test]
fn a_part_of_a_killed_reader_is_read_again_to_the_bit() {
    const NAME: &str = "killed::a_part_of_a_killed_reader_is_read_again_to_the_bit";
    if let Some(indexes) = env::var_os(INDEXES) {
        let set = open(&env::var(ADDRESS).unwrap(), indexes.as_ref());
        (0..PARTS).for_each(|part| read_part(&set, part, print));
        return wait();
    }
    for format in [OutputFormat::Parquet, OutputFormat::Text] {
        let directory = Directory::new();
        make(&directory.path("set"), 2000, format, 700, 300);
        let server = Server::start(Box::new(|_, _| Reaction::Serve));
        server.put(&directory.path("set"), "set");
        let address = server.address.to_string();
        let epoch = |indexes: &Path| {
            let set = open(&address, indexes);
            let mut sums = Vec::new();
            (0..PARTS).for_each(|part| read_part(&set, part, |sum| sums.push(sum.to_string())));
            (sums, set.counts().bytes)
        };
        let (expected, bytes) = epoch(&directory.path("own"));
        assert!(expected.len() >= 2000 / 16);
        // It is killed in the second part.
        let indexes = directory.path("indexes");
        let mut reader = Process::start(NAME, &[(ADDRESS, address.as_ref()), (INDEXES, &indexes)]);
        let read = reader.lines(45);
        reader.kill();
        assert_eq!(read, expected[..45], "{format:?}");
        let (again, bytes_again) = epoch(&indexes);
        assert_eq!(again, expected, "{format:?}");
        let has_index = format == OutputFormat::Text;
        assert_eq!(bytes_again < bytes, has_index, "{bytes_again} of {bytes} bytes are read");
    }
}

/// The server at an address, for its options.
fn server_at(address: &str) -> Server {
    Server { address: address.parse().unwrap(), files: Arc::default() }
}

fn open(address: &str, indexes: &Path) -> DataSet {
    let index_directory = Some(indexes.to_owned());
    let options = Options { index_directory, ..options(&server_at(address), &[]) };
    DataSet::open("s3://ads/set", &options).unwrap()
}

/// The temporary directory of a command that was killed is removed by the next one, that of a live one is not.
#[test]
fn the_next_writer_removes_what_a_killed_one_left() {
    const NAME: &str = "killed::the_next_writer_removes_what_a_killed_one_left";
    if let Ok(address) = env::var(ADDRESS) {
        let environment = options(&server_at(&address), &[]).environment.unwrap();
        let _destination = Destination::open("s3://ads/new", &environment).unwrap();
        print("open");
        return wait();
    }
    let directory = Directory::new();
    let server = Server::start(Box::new(|_, _| Reaction::Serve));
    let address = server.address.to_string();
    let all = directory.path("temporary");
    fs::create_dir(&all).unwrap();
    let names =
        || -> Vec<_> { fs::read_dir(&all).unwrap().map(|entry| entry.unwrap().file_name()).collect() };
    let start = || {
        let mut writer = Process::start(NAME, &[(ADDRESS, address.as_ref()), ("TMPDIR", &all)]);
        assert_eq!(writer.lines(1), ["open"]);
        writer
    };
    let (first, live) = (start(), start());
    let before = names();
    assert_eq!(before.len(), 2, "{before:?}");
    first.kill();
    assert_eq!(names().len(), 2, "a process that is killed removes nothing");
    start().kill();
    let after = names();
    assert_eq!(after.len(), 2, "that of the first one is gone, and one of its own is there: {after:?}");
    let kept: Vec<_> = before.iter().filter(|name| after.contains(name)).collect();
    let of_live = format!("libra-data-{}-", live.child.id());
    assert!(kept.len() == 1 && kept[0].to_str().unwrap().starts_with(&of_live), "{kept:?}");
    live.kill();
}
