//! Checks at every store: jobs that upload, go on, are killed, and are refused, and tools that read what they left.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::server::{BUCKET, Kind, Store};
use crate::findings::Finding;
use crate::process::{Running, check_interrupt};
use crate::shell;

/// Directory of the job in the bucket.
const RUN: &str = "jobs/run";
const LIMIT: Duration = Duration::from_secs(90);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// So many that a file of a shard is uploaded in parts.
const USERS: u32 = 6000;
/// MB a second at which the job uploads that is killed: slow, so that it is in the midst of it.
const SLOW: &str = "4";
const COMPARE: &str = include_str!("compare.py");

type Check = fn(&Bench) -> Result<Finding>;

/// In the order in which they are made: each relies on what those before left.
pub(super) const CHECKS: &[(&str, Check)] = &[
    ("a job uploads", Bench::uploads),
    ("a second job is refused", Bench::second_is_refused),
    ("3 -> 2 -> 5 servers", Bench::other_servers),
    ("export for serving", Bench::export),
    ("killed in an upload", Bench::killed),
    ("damage is named", Bench::damaged),
    ("prune leaves no garbage", Bench::prune),
    ("bucket gone in mid-job", Bench::bucket_gone),
    ("refused before training", Bench::refused_before_training),
];

/// A store, and where the other files of jobs are.
pub(super) struct Bench {
    pub(super) store: Store,
    pub(super) libra: PathBuf,
    pub(super) folder: PathBuf,
}

/// A process that has ended.
struct Ended {
    success: bool,
    text: String,
}

/// Writes the data of the jobs: an epoch takes a moment, and rows are wide.
pub(super) fn write_data(folder: &Path) -> Result<()> {
    let (mut train, mut rating, mut negative) = (String::new(), String::new(), String::new());
    for user in 0..USERS {
        let item = user % 40;
        writeln!(train, "{user}\t{}", (item + 2) % 40)?;
        writeln!(rating, "{user}\t{item}\t5\t0")?;
        writeln!(negative, "({user},{item})\t{}\t{}", (item + 1) % 40, (item + 3) % 40)?;
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for (name, text) in [("train.pairs.tsv", train), ("test.rating", rating), ("test.negative", negative)] {
        fs::write(folder.join(format!("wide.{name}")), text)?;
    }
    Ok(())
}

impl Bench {
    fn url(&self) -> String {
        self.store.url(BUCKET, RUN)
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        self.store.client(&self.libra, arguments)
    }

    fn end(&self, mut process: Running, log: &str) -> Result<Ended> {
        let deadline = Instant::now() + LIMIT;
        let status = loop {
            check_interrupt()?;
            if let Some(status) = process.status()? {
                break status;
            }
            ensure!(Instant::now() < deadline, "it still runs:\n{}", process.tail());
            std::thread::sleep(LOOK_EVERY);
        };
        Ok(Ended { success: status.success(), text: self.log(log)? })
    }

    fn log(&self, name: &str) -> Result<String> {
        let bytes = fs::read(self.path(&format!("{name}.log"))).context("a process left no log")?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn start(&self, command: Command, log: &str) -> Result<Running> {
        Running::start(log, command, self.path(&format!("{log}.log")).into())
    }

    fn run(&self, arguments: &[&str]) -> Result<Ended> {
        self.end(self.start(self.command(arguments), "command")?, "command")
    }

    fn succeed(&self, arguments: &[&str]) -> Result<String> {
        let Ended { success, text } = self.run(arguments)?;
        ensure!(success, "`libra {}` failed: {}", arguments.join(" "), text.trim());
        Ok(text)
    }

    fn train<'a>(&'a self, data: &'a str, state: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        let job = ["train", "--model", "gmf", "--factors", "512", "--data", data, "--switch", "none"];
        let sizes = ["--workers", "1", "--batch", "4096", "--sample", "1", "--state-dir", state, "--quiet"];
        [&job[..], &sizes, more].concat()
    }

    /// Trains in a state directory of this name.
    fn job(&self, state: &str, more: &[&str]) -> Result<Ended> {
        let (data, state) = (self.data(), self.path(state));
        self.run(&self.train(&data, &state, more))
    }

    fn job_succeeds(&self, state: &str, more: &[&str]) -> Result<String> {
        let Ended { success, text } = self.job(state, more)?;
        ensure!(success, "the job in {state} failed: {}", text.trim());
        Ok(text)
    }

    fn data(&self) -> String {
        self.folder.with_file_name("data").display().to_string()
    }

    /// Numbers of the complete checkpoints at a place, newest first.
    fn numbers(&self, place: &str) -> Result<Vec<u64>> {
        let file = self.path("list.json");
        let Ended { success, text } = self.run(&["checkpoint", "list", place, "--quiet", "--json", &file])?;
        if !success {
            ensure!(text.contains("has no checkpoint"), "{}", text.trim());
            return Ok(Vec::new());
        }
        let list: Value = serde_json::from_slice(&fs::read(file)?)?;
        let all = list["checkpoints"].as_array().context("a list without checkpoints")?;
        let complete = all.iter().filter(|checkpoint| checkpoint["complete"] == true);
        Ok(complete.filter_map(|checkpoint| checkpoint["number"].as_u64()).collect())
    }

    fn newest(&self) -> Result<u64> {
        self.numbers(&self.url())?.first().copied().context("no checkpoint is there")
    }

    fn verify(&self) -> Result<()> {
        self.succeed(&["checkpoint", "verify", &self.url(), "--quiet"]).map(drop)
    }

    /// The whole tables of a checkpoint, by the names of their files.
    fn tables(&self, place: &str, number: u64, to: &str) -> Result<BTreeMap<String, Vec<u8>>> {
        let to = self.path(to);
        if Path::new(&to).exists() {
            fs::remove_dir_all(&to)?;
        }
        self.succeed(&["checkpoint", "export", place, &number.to_string(), "--to", &to, "--quiet"])?;
        let mut tables = BTreeMap::new();
        for entry in fs::read_dir(to)? {
            let path = entry?.path();
            if path.extension().is_some_and(|end| end == "safetensors") {
                tables.insert(path.display().to_string(), fs::read(&path)?);
            }
        }
        let name = |path: String| path.rsplit('/').next().unwrap_or_default().to_owned();
        Ok(tables.into_iter().map(|(path, bytes)| (name(path), bytes)).collect())
    }

    fn refused_before_training(&self) -> Result<Finding> {
        let data = self.data();
        let refuse = |url: &str, environment: &[(&'static str, String)], words: &[&str]| {
            let state = self.path("refused");
            let arguments = self.train(&data, &state, &["--epochs", "1", "--checkpoints", url, "--log"]);
            let mut command = shell::program(&self.libra, &arguments);
            command.envs(environment.iter().map(|(name, value)| (name, value)));
            let Ended { success, text } = self.end(self.start(command, "refused")?, "refused")?;
            ensure!(!success, "a job at {url} was not refused");
            ensure!(!Path::new(&state).exists(), "it was refused after servers began: {text}");
            let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("libra: ")).collect();
            ensure!(lines.len() == 1 && text.trim_end().ends_with(lines[0]), "not one line: {text}");
            ensure!(words.iter().all(|word| lines[0].contains(word)), "it lacks {words:?}: {text}");
            Ok(())
        };
        let mut found = Vec::new();
        if self.store.kind == Kind::File {
            refuse("file:///proc/sys/libra", &[], &["--checkpoints", "/proc/sys/libra"])?;
            found.push("a place that cannot be written");
        } else {
            let absent = self.store.url("absent", RUN);
            refuse(&absent, &self.store.environment, &["--checkpoints", "there is no such bucket"])?;
            found.push("an absent bucket");
        }
        if let Some((environment, how)) = self.store.without_rights()? {
            refuse(&self.url(), &environment, &["--checkpoints", "the credentials do not allow it"])?;
            found.push(how);
        }
        Ok(Finding::Passed(found.join(", ")))
    }

    fn uploads(&self) -> Result<Finding> {
        let url = self.url();
        let every = ["--checkpoints", &url, "--checkpoint-every", "0.5", "--incremental-checkpoints", "2"];
        let text =
            self.job_succeeds("first", &[&every[..], &["--epochs", "4", "--servers", "3"]].concat())?;
        let is_noted = text.contains("no conditional put");
        self.verify()?;
        let newest = self.newest()?;
        let own = self.numbers(&self.path("first"))?;
        ensure!(own.first() == Some(&newest), "the last one is not there: {newest} of {own:?}");
        self.succeed(&["checkpoint", "inspect", &url, "--key", "3", "--quiet"])?;
        let there = self.tables(&url, newest, "there")?;
        let here = self.tables(&self.path("first"), newest, "here")?;
        ensure!(there == here, "the rows are not those of the state directory");
        let bytes: usize = there.values().map(Vec::len).sum();
        let puts = if is_noted { "no conditional put, which it notes" } else { "conditional put" };
        Ok(Finding::Passed(format!("checkpoint {newest}, tables of {} MB, {puts}", bytes / 1_000_000)))
    }

    fn second_is_refused(&self) -> Result<Finding> {
        let Ended { success, text } = self.job("second", &["--epochs", "1", "--checkpoints", &self.url()])?;
        ensure!(!success && text.contains("has the checkpoints of another job, of process"), "{text}");
        Ok(Finding::Passed("and told whose they are".to_owned()))
    }

    fn other_servers(&self) -> Result<Finding> {
        let url = self.url();
        for (servers, epochs) in [("2", "5"), ("5", "6")] {
            let before = self.newest()?;
            let tables = self.tables(&url, before, "before")?;
            let resumed = ["--resume", &url, "--checkpoints", &url, "--epochs", epochs, "--servers", servers];
            self.job_succeeds(servers, &resumed)?;
            let state = self.path(servers);
            let own = self.numbers(&state)?;
            // Its own first checkpoint has the rows that it read, before any training.
            let first = own.last().copied().context("it wrote no checkpoint")?;
            ensure!(self.tables(&state, first, "own")? == tables, "rows differ on {servers} servers");
            ensure!(self.newest()? > before, "numbers do not go on");
        }
        self.verify()?;
        Ok(Finding::Passed(format!("tables equal to the bit, newest is {}", self.newest()?)))
    }

    fn export(&self) -> Result<Finding> {
        let packages = shell::target_directory()?.join("tools/python");
        if !packages.join("numpy").is_dir() {
            let reason = format!("numpy is not in {}: .ci/run installs it", packages.display());
            return Ok(Finding::Skipped(reason));
        }
        let (url, to) = (self.url(), self.store.url(BUCKET, "exports/run"));
        let numbers = self.numbers(&url)?;
        for number in numbers.iter().take(2).rev() {
            self.succeed(&["export", "--from", &format!("{url}@{number}"), "--to", &to])?;
        }
        let copy = self.path("export");
        self.store.rclone(&["copy", &format!("store:{BUCKET}/exports/run"), &copy])?;
        self.tables(&url, numbers[0], "exported")?;
        let serve = shell::root().join("python/libra_ps/serve.py");
        let tables = self.path("exported");
        let mut command = shell::program("python3", &["-c", COMPARE]);
        command.arg(serve).args([&copy, &tables]).env("PYTHONPATH", packages);
        let found = shell::output(command)?;
        ensure!(found.contains(&format!("version {},", numbers[0])), "{found}");
        Ok(Finding::Passed(format!("read by serve.py: {found}, {} versions", numbers.len().min(2))))
    }

    /// Kills a job that goes on from the URL while its servers upload, and another one goes on.
    fn killed(&self) -> Result<Finding> {
        let (url, data, state) = (self.url(), self.data(), self.path("killed"));
        let before = self.newest()?;
        let sizes = ["--epochs", "100000", "--servers", "3", "--checkpoint-every", "0.2"];
        let slow = ["--checkpoint-rate", SLOW, "--resume", &url, "--checkpoints", &url];
        let arguments = self.train(&data, &state, &[&sizes[..], &slow].concat());
        let mut job = self.start(self.command(&arguments), "killed")?;
        let deadline = Instant::now() + LIMIT;
        let uploading = loop {
            check_interrupt()?;
            ensure!(job.status()?.is_none(), "it ended: {}", job.tail());
            ensure!(Instant::now() < deadline, "it uploads nothing: {}", job.tail());
            let objects = self.store.objects(RUN)?;
            // Numbers may be left out.
            let newest = objects.iter().filter_map(|name| number_of(name)).max().unwrap_or(0);
            if newest > before && !objects.contains(&format!("job-{newest}.json")) {
                break newest;
            }
            std::thread::sleep(LOOK_EVERY);
        };
        drop(job);
        let objects = self.store.objects(RUN)?;
        let notes = objects.iter().filter(|name| name.ends_with(".upload")).count();
        ensure!(self.newest()? < uploading, "checkpoint {uploading} counts, and was not uploaded");
        self.verify()?;
        let open = self.store.open_uploads()?;
        let again = ["--resume", &url, "--checkpoints", &url, "--epochs", "7", "--servers", "2"];
        self.job_succeeds("again", &again)?;
        self.verify()?;
        ensure!(self.newest()? > before, "the job did not go on");
        let open = open.map_or(String::new(), |open| format!(", {open} uploads in parts open"));
        Ok(Finding::Passed(format!("at checkpoint {uploading}: {notes} notes left{open}; it goes on")))
    }

    fn damaged(&self) -> Result<Finding> {
        let url = self.url();
        let numbers = self.numbers(&url)?;
        let [newest, before, ..] = numbers[..] else { bail!("too few checkpoints: {numbers:?}") };
        let objects = self.store.objects(RUN)?;
        let part = format!("/checkpoint-{newest}/");
        let is_file = |name: &&String| name.contains(&part) && name.contains("-user-rows-");
        let name = objects.iter().find(is_file).context("no file of users")?;
        let (file, object) = (self.path("damaged"), format!("store:{BUCKET}/{RUN}/{name}"));
        let replace = |flip: u8| -> Result<()> {
            self.store.rclone(&["copyto", "--ignore-times", &object, &file])?;
            let mut bytes = fs::read(&file)?;
            *bytes.last_mut().context("an empty file")? ^= flip;
            fs::write(&file, bytes)?;
            self.store.rclone(&["copyto", "--ignore-times", &file, &object]).map(drop)
        };
        replace(4)?;
        let Ended { success, text } = self.run(&["checkpoint", "verify", &url])?;
        ensure!(!success && text.contains(name) && text.contains("is damaged"), "not named: {text}");
        let restored = self.job_succeeds("restored", &["--epochs", "1", "--restore-from", &url])?;
        let passed = format!("checkpoint {newest} of {url} is passed over: ");
        ensure!(restored.contains(&passed) && restored.contains(name), "not passed over: {restored}");
        let state = self.path("restored");
        let own = self.numbers(&state)?.last().copied().context("it wrote no checkpoint")?;
        let is_before = self.tables(&state, own, "own")? == self.tables(&url, before, "before")?;
        ensure!(is_before, "it has not begun with checkpoint {before}");
        replace(4)?;
        self.verify()?;
        Ok(Finding::Passed(format!("{name}; checkpoint {before} was taken")))
    }

    fn prune(&self) -> Result<Finding> {
        let url = self.url();
        let newest = self.newest()?;
        // As a job leaves them that is killed.
        let leftover = format!("store:{BUCKET}/{RUN}/shard-0/checkpoint-{}/state.bin", newest + 1);
        let source = self.path("leftover");
        fs::write(&source, "none")?;
        self.store.rclone(&["copyto", &source, &leftover])?;
        self.succeed(&["checkpoint", "prune", &url, "--keep-checkpoints", "1", "--quiet"])?;
        let there: BTreeSet<String> = self.store.objects(RUN)?.into_iter().collect();
        let commit = format!("job-{newest}.json");
        let text = self.store.rclone(&["cat", &format!("store:{BUCKET}/{RUN}/{commit}")])?;
        let committed: Value = serde_json::from_str(&text)?;
        let files = committed["files"].as_array().context("a commit without files")?;
        let files = files.iter().filter_map(|file| file["name"].as_str().map(str::to_owned));
        let expected: BTreeSet<String> = files.chain([commit, "owner.json".to_owned()]).collect();
        let garbage: Vec<_> = there.symmetric_difference(&expected).collect();
        ensure!(garbage.is_empty(), "not as the commit has it: {garbage:?}");
        let open = self.store.open_uploads()?;
        ensure!(open.is_none_or(|open| open == 0), "{open:?} uploads in parts are open");
        self.verify()?;
        Ok(Finding::Passed(format!("{} objects, all of checkpoint {newest} or its job", there.len())))
    }

    /// Removes the bucket of a job that uploads: the job notes it, and goes on.
    fn bucket_gone(&self) -> Result<Finding> {
        let (url, data, state) = (self.store.url(BUCKET, "jobs/gone"), self.data(), self.path("gone"));
        let events = self.path("gone.events");
        let more = ["--checkpoint-every", "0.3", "--checkpoints", &url, "--events", &events];
        let more = [&["--epochs", "100000"][..], &more].concat();
        let mut job = self.start(self.command(&self.train(&data, &state, &more)), "gone")?;
        let mut wait = |what: &str, is_there: &dyn Fn() -> Result<bool>| {
            let deadline = Instant::now() + LIMIT;
            while !is_there()? {
                check_interrupt()?;
                ensure!(job.status()?.is_none(), "the job ended: {}", job.tail());
                ensure!(Instant::now() < deadline, "{what} does not come: {}", job.tail());
                std::thread::sleep(LOOK_EVERY);
            }
            Ok(())
        };
        wait("a commit", &|| {
            Ok(self.store.objects("jobs")?.iter().any(|name| name.starts_with("gone/job-")))
        })?;
        self.store.rclone(&["purge", &format!("store:{BUCKET}")])?;
        wait("an event", &|| Ok(fs::read_to_string(&events)?.contains("checkpoint_failed")))?;
        drop(job);
        self.store.make_bucket()?;
        Ok(Finding::Passed("the job goes on, and notes it".to_owned()))
    }
}

/// The number of the checkpoint that an object is of.
fn number_of(name: &str) -> Option<u64> {
    let (_, rest) = name.split_once("/checkpoint-")?;
    rest.split_once('/')?.0.parse().ok()
}
