//! Quality of a job that trains from a bucket, loses every process, and goes on with other numbers of workers and servers.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{BINARY, Options};
use crate::http;
use crate::process::{self, Running, check_interrupt};
use crate::stores::{BUCKET, Kind, Store};
use crate::{python, shell};

/// A job that takes this long hangs: twenty million rows in one epoch take a quarter of it.
const LIMIT: Duration = Duration::from_secs(3600);
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// The part of the work at which every process is killed.
const KILLED_AT: f64 = 0.4;
/// Seconds between two checkpoints, at most: a short job has several before it is killed.
const CHECKPOINT_EVERY: f64 = 20.0;

/// Raw figures and a table of them.
pub(super) fn measure(options: &Options, folder: &Path) -> Result<(String, String)> {
    let folder = folder.join("resume");
    shell::remove_directory(&folder)?;
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let store = Store::start(Kind::Moto, &folder, "127.0.0.1")?
        .with_context(|| format!("no server that speaks S3: {}", Kind::Moto.installation()))?;
    store.make_bucket()?;
    let bench = Bench { store, libra: shell::target_directory()?.join(BINARY), folder, options };
    bench.make()?;
    let undisturbed = bench.undisturbed()?;
    let (killed_at, resumed) =
        bench.killed_and_resumed((undisturbed.seconds / 10.0).min(CHECKPOINT_EVERY))?;
    let scored = bench.score()?;
    let row = |name: &str, job: &Job| {
        let Job { quality, samples, repeated, seconds } = job;
        format!("| {name} | {quality:.4} | {samples:.0} | {repeated:.0} | {seconds:.0} |\n")
    };
    let mut summary =
        "| job | AUC | samples | repeated chunks | seconds of training |\n|---|---|---|---|---|\n".to_owned();
    summary += &row("2 workers, 2 servers, undisturbed", &undisturbed);
    let name = format!("killed at {:.0}%, resumed with 3 workers and 1 server", 100.0 * killed_at);
    summary += &row(&name, &resumed);
    writeln!(summary, "\nThe export of the second, scored in Python: {scored}")?;
    let mut raw = "job,auc,samples,repeated,seconds\n".to_owned();
    for (name, Job { quality, samples, repeated, seconds }) in
        [("undisturbed", &undisturbed), ("resumed", &resumed)]
    {
        writeln!(raw, "{name},{quality},{samples},{repeated},{seconds:.1}")?;
    }
    Ok((raw, summary))
}

struct Bench<'a> {
    store: Store,
    libra: PathBuf,
    folder: PathBuf,
    options: &'a Options,
}

/// Figures of a report.
struct Job {
    quality: f64,
    samples: f64,
    repeated: f64,
    seconds: f64,
}

impl Bench<'_> {
    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn url(&self, path: &str) -> String {
        self.store.url(BUCKET, path)
    }

    fn libra(&self, arguments: &[&str]) -> Command {
        self.store.client(&self.libra, arguments)
    }

    fn start(&self, log: &str, command: Command) -> Result<Running> {
        Running::start(log, command, self.path(&format!("{log}.log")).into())
    }

    /// Makes the data in the bucket.
    fn make(&self) -> Result<()> {
        let (rows, url) = (self.options.rows.to_string(), self.url("data"));
        let make = self.libra(&["data", "make", "--quiet", "--rows", &rows, "--to", &url]);
        self.start("make", make)?.finish(LIMIT)
    }

    /// A job that writes its checkpoints to a URL, with a state directory of its own.
    fn train(&self, name: &str, to: &str, every: f64, more: &[&str]) -> Command {
        let (data, epochs) = (self.url("data"), self.options.epochs.to_string());
        let mut command = self.libra(&["train", "--quiet", "--model", "deeplight", "--data", &data]);
        command.args([
            "--epochs",
            &epochs,
            "--checkpoint-every",
            &every.to_string(),
            "--checkpoints",
            &self.url(to),
        ]);
        command.args(["--state-dir", &self.path(name)]).args(more);
        command
    }

    fn finish(&self, name: &str, command: Command) -> Result<Job> {
        let mut command = command;
        let report = self.path(&format!("{name}.json"));
        command.args(["--json", &report]);
        self.start(name, command)?.finish(LIMIT)?;
        let report: Value = serde_json::from_slice(&fs::read(&report)?).context("the report is no JSON")?;
        let number = |path: &[&str]| {
            let value = path.iter().fold(&report, |value, key| &value[*key]);
            value.as_f64().with_context(|| format!("the report of {name} lacks {}", path.join(".")))
        };
        let job = Job {
            quality: number(&["quality", "auc"])?,
            samples: number(&["samples"])?,
            repeated: number(&["data", "repeated"])?,
            seconds: number(&["seconds", "train"])?,
        };
        println!("{name}: AUC {:.4}, {:.0} samples in {:.0} s", job.quality, job.samples, job.seconds);
        Ok(job)
    }

    fn undisturbed(&self) -> Result<Job> {
        let train =
            self.train("undisturbed", "undisturbed", CHECKPOINT_EVERY, &["--workers", "2", "--servers", "2"]);
        self.finish("undisturbed", train)
    }

    /// Kills a job, all of whose members are in one process. Another goes on with what the bucket has. Returns where it was killed, and what the other one reports.
    fn killed_and_resumed(&self, every: f64) -> Result<(f64, Job)> {
        let http = process::free_address()?;
        let sizes = ["--workers", "2", "--servers", "2", "--http", &http.to_string()];
        let mut job = self.start("killed", self.train("killed", "run", every, &sizes))?;
        let deadline = Instant::now() + LIMIT;
        let killed_at = loop {
            check_interrupt()?;
            ensure!(job.status()?.is_none() && Instant::now() < deadline, "{}", job.tail());
            let ratio = progress(http).unwrap_or(0.0);
            if ratio >= KILLED_AT {
                break ratio;
            }
            std::thread::sleep(LOOK_EVERY);
        };
        drop(job);
        println!("killed at {:.1}%", 100.0 * killed_at);
        let run = self.url("run");
        let sizes = ["--workers", "3", "--servers", "1", "--resume", &run];
        Ok((killed_at, self.finish("resumed", self.train("resumed", "run", every, &sizes))?))
    }

    /// Exports the model, and scores the rows that are left out for tests.
    fn score(&self) -> Result<String> {
        let (model, data) = (self.path("model"), self.path("rows"));
        let export = self.libra(&["export", "--quiet", "--from", &self.url("run"), "--to", &model]);
        self.start("export", export)?.finish(LIMIT)?;
        let Some((python, site)) = python::with_torch()? else {
            return Ok("not done, `cargo xtask python` has made no environment".to_owned());
        };
        self.store.rclone(&["copy", &format!("store:{BUCKET}/data"), &data])?;
        let mut score = shell::program(python, &["examples/python/score.py"]);
        score.args(["--export", &model, "--data", &data]).env("PYTHONPATH", site);
        let printed = shell::output(score)?;
        Ok(printed.lines().last().unwrap_or_default().to_owned())
    }
}

/// The part of the work that is done; `None` before the job begins.
fn progress(http: SocketAddr) -> Option<f64> {
    let status: Value = serde_json::from_str(&http::get(http, "/status", "application/json").ok()?).ok()?;
    status["progress"]["ratio"].as_f64()
}
