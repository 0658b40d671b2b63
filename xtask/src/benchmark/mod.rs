//! Whole training jobs, timed: over workers, batch sizes, with and without the switch; over rates of packet loss; with a slow worker,
//! killed and resumed, with all members restarted, through WireGuard, beside uploads of checkpoints, and on large data sets.
//!
//! Runs of one setting are spread over the whole time, so that a busy minute of the machine does not hit one setting alone.

mod data;
mod loss;
mod resume;
mod rolling;
mod secrecy;
mod stragglers;
mod uploads;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use crate::process::{self, Running};
use crate::report::Report;
use crate::{Outcome, shell};

const BINARY: &str = "release/libra";
/// A run that takes this long hangs.
const LIMIT: Duration = Duration::from_secs(600);

/// A figure of docs/benchmarks.
#[derive(Clone, Copy, ValueEnum)]
enum Figure {
    /// Samples per second over workers, batch sizes, with and without the switch
    Throughput,
    /// Training time over rates of packet loss, as the paper's evaluation has it
    Loss,
    /// Training time with one slow worker of four
    Stragglers,
    /// AUC of a job that trains from a bucket, loses every process and goes on with other numbers
    Resume,
    /// Pauses of workers, and HR@10, of a job whose members are all restarted in order
    Rolling,
    /// Samples per second and processor time on two hosts, with and without WireGuard between them
    Secrecy,
    /// Uploads of checkpoints beside `rclone copy`, training beside them, and the delay of an export that follows
    Uploads,
    /// Conversion of a large data set, and the start, the memory and the waits of a worker that reads it from a bucket
    Data,
}

/// Parameters of a measurement.
#[derive(Args)]
pub(crate) struct Options {
    /// The figure
    #[arg(long, value_enum, default_value = "throughput")]
    figure: Figure,
    /// The data set, as `libra train --data` takes it
    #[arg(long, default_value = "synthetic")]
    data: String,
    /// The model
    #[arg(long, default_value = "neumf")]
    model: String,
    /// Epochs of a run
    #[arg(long, default_value_t = 1)]
    epochs: u32,
    /// Rows to make for the figures of jobs that resume, of uploads and of data
    #[arg(long, default_value_t = 1_000_000)]
    rows: u64,
    /// Runs of each setting
    #[arg(long, default_value_t = 3)]
    repeats: u32,
    /// A directory for raw.csv and summary.md
    #[arg(long)]
    out: PathBuf,
}

#[derive(Clone, Copy)]
struct Setting {
    workers: u32,
    batch: u32,
    switch: bool,
}

impl Setting {
    fn all() -> Vec<Self> {
        let batches = |workers, switch| [256, 1024, 4096].map(|batch| Self { workers, batch, switch });
        [(1, false), (1, true), (2, false), (2, true)]
            .into_iter()
            .flat_map(|(workers, switch)| batches(workers, switch))
            .collect()
    }

    fn switch(self) -> &'static str {
        if self.switch { "udp" } else { "none" }
    }

    fn run(self, options: &Options, folder: &Path) -> Result<f64> {
        let (workers, batch) = (self.workers.to_string(), self.batch.to_string());
        let setting = ["--servers", "1", "--workers", &workers, "--batch", &batch, "--switch", self.switch()];
        Ok(train(options, folder, &setting)?.number("samples_per_second"))
    }
}

/// One training job, to its report.
fn train(options: &Options, folder: &Path, setting: &[&str]) -> Result<Report> {
    let json = folder.join("report.json");
    let mut command = shell::program(shell::target_directory()?.join(BINARY), &["train", "--quiet"]);
    command.args(["--data", &options.data, "--model", &options.model]);
    command.args(["--epochs", &options.epochs.to_string()]).args(setting).arg("--json").arg(&json);
    Running::start("libra", command, folder.join("output.log"))?.finish(LIMIT)?;
    Report::read(&json)
}

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    process::catch_interrupts()?;
    shell::programs(&["libra"])?;
    let folder = shell::target_directory()?.join("benchmark");
    for directory in [&folder, &options.out] {
        std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    }
    let (raw, summary) = match options.figure {
        Figure::Throughput => throughput(options, &folder)?,
        Figure::Loss => loss::measure(options, &folder)?,
        Figure::Stragglers => stragglers::measure(options, &folder)?,
        Figure::Resume => resume::measure(options, &folder)?,
        Figure::Rolling => rolling::measure(options, &folder)?,
        Figure::Secrecy => secrecy::measure(options, &folder)?,
        Figure::Uploads => uploads::measure(options, &folder)?,
        Figure::Data => data::measure(options, &folder)?,
    };
    println!("{summary}");
    for (name, text) in [("raw.csv", &raw), ("summary.md", &summary)] {
        let path = options.out.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(Outcome::Passed)
}

/// Raw figures and a table of them.
fn throughput(options: &Options, folder: &Path) -> Result<(String, String)> {
    let settings = Setting::all();
    let mut rates = vec![Vec::new(); settings.len()];
    let mut raw = "repeat,workers,batch,switch,samples_per_second\n".to_owned();
    for repeat in 0..options.repeats {
        for (setting, rates) in settings.iter().zip(&mut rates) {
            let rate = setting.run(options, folder)?;
            println!(
                "{} workers, batch {}, switch {}: {rate:.0} samples/s",
                setting.workers,
                setting.batch,
                setting.switch()
            );
            writeln!(raw, "{repeat},{},{},{},{rate:.0}", setting.workers, setting.batch, setting.switch())?;
            rates.push(rate);
        }
    }
    let summary = summary(&settings, &mut rates);
    Ok((raw, summary))
}

/// A table of minimum, median and maximum of each setting, in thousands of samples per second.
fn summary(settings: &[Setting], rates: &mut [Vec<f64>]) -> String {
    let mut table =
        "| workers | batch | switch | min | median | max (thousand samples/s) |\n|---|---|---|---|---|---|\n"
            .to_owned();
    for (setting, rates) in settings.iter().zip(rates) {
        rates.sort_by(f64::total_cmp);
        let (min, median, max) = match rates.as_slice() {
            [] => continue,
            [min, .., max] => (*min, rates[rates.len() / 2], *max),
            [only] => (*only, *only, *only),
        };
        let Setting { workers, batch, .. } = setting;
        let thousand = |rate: f64| rate / 1e3;
        table += &format!(
            "| {workers} | {batch} | {} | {:.0} | {:.0} | {:.0} |\n",
            setting.switch(),
            thousand(min),
            thousand(median),
            thousand(max)
        );
    }
    table
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle_of_their_order() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
    }

    #[test]
    fn the_summary_has_the_median_in_the_middle() {
        let settings = [Setting { workers: 2, batch: 256, switch: true }];
        let table = summary(&settings, &mut [vec![30e3, 10e3, 20e3]]);
        assert!(table.ends_with("| 2 | 256 | udp | 10 | 20 | 30 |\n"), "{table}");
    }
}
