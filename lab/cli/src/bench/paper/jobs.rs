//! Jobs that are run for a report, in processes of their own.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tempfile::TempDir;

use super::tasks::Task;
use libra_launch::parent_guard;

/// A task with a plan, which is made once for all jobs that train it.
pub(super) struct Jobs<'a> {
    task: &'a Task,
    epochs: String,
    batch: String,
    directory: TempDir,
}

impl<'a> Jobs<'a> {
    /// Makes the plan, for workers with this batch.
    pub(super) fn of(task: &'a Task, epochs: u32, batch: usize) -> Result<Self> {
        let directory = TempDir::new().context("cannot make a directory for reports")?;
        let jobs = Self { task, epochs: epochs.to_string(), batch: batch.to_string(), directory };
        let profile = ["profile", "--quiet", "--out", &jobs.path("plan.toml")?, "--batch", &jobs.batch];
        libra(&[&profile[..], &task.options()].concat())?;
        Ok(jobs)
    }

    /// Trains the task with these workers, its own batch and no switch, and returns the report of the job.
    pub(super) fn without_switch(&self, workers: &str) -> Result<Value> {
        self.train(&["--workers", workers, "--switch", "none"])
    }

    /// Trains it with a switch.
    pub(super) fn with_switch(&self, workers: &str, more: &[&str]) -> Result<Value> {
        let plan = self.path("plan.toml")?;
        self.train(&[&["--workers", workers, "--plan", &plan, "--batch", &self.batch][..], more].concat())
    }

    fn train(&self, more: &[&str]) -> Result<Value> {
        let json = self.path("report.json")?;
        let common = ["train", "--quiet", "--epochs", &self.epochs, "--json", &json];
        libra(&[&common[..], &self.task.options(), more].concat())?;
        let text = std::fs::read_to_string(&json).context("a job has left no report")?;
        Ok(serde_json::from_str(&text)?)
    }

    fn path(&self, name: &str) -> Result<String> {
        let path = self.directory.path().join(name);
        path.to_str().map(str::to_owned).context("the path of a temporary directory is no text")
    }
}

/// The program whose jobs are measured.
const LIBRA: &str = "libra";

/// Runs `libra`, the one beside this program or else the one on the `PATH`, as long as this process is there.
fn libra(options: &[&str]) -> Result<()> {
    let beside = parent_guard::this_program()?.with_file_name(LIBRA);
    let program = if beside.is_file() { beside } else { PathBuf::from(LIBRA) };
    let mut command = Command::new(&program);
    command.args(options).arg("--exit-with-parent");
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut job = piped.spawn().with_context(|| {
        format!(
            "cannot start {}, whose jobs are measured: in a checkout, build it with `cargo build --release --bin libra`",
            program.display()
        )
    })?;
    // Held until the job is done: it would end with it.
    let stdin = job.stdin.take();
    let output = job.wait_with_output().context("cannot wait for a job")?;
    drop(stdin);
    if !output.status.success() {
        let told = String::from_utf8_lossy(&output.stderr);
        bail!("libra {} failed: {}", options.join(" "), told.trim());
    }
    Ok(())
}
