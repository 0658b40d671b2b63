//! Large data sets: their conversion, the start of a job that reads one from a bucket, and the memory and the waits of its worker.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::Options;
use crate::process::{Running, check_interrupt, free_address};
use crate::stores::{BUCKET, Kind, Store};
use crate::{http, shell};

/// Files of a set, as of Criteo's terabyte.
const FILES: &str = "24";
/// A step with 100 million rows that takes this long hangs.
const LIMIT: Duration = Duration::from_secs(3600);
/// For so long a job trains.
const TRAINING: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The metrics by which the training loop counts its time, up to the part.
const STEP_SECONDS: &str = "libra_worker_step_seconds_total{part=\"";

/// Raw figures and tables of them.
pub(super) fn measure(options: &Options, folder: &Path) -> Result<(String, String)> {
    let folder = folder.join("data");
    shell::remove_directory(&folder)?;
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let libra = shell::programs(&["libra"])?.join("libra");
    let Some(store) = Store::start(Kind::S3s, &folder, "127.0.0.1")? else {
        bail!("{} is not installed: {}", Kind::S3s.name(), Kind::S3s.installation());
    };
    store.make_bucket()?;
    let bench = Bench { libra, folder, store };
    let mut raw = "rows,format,what,value\n".to_owned();
    let mut note = |rows: u64, format: &str, what: &str, value: f64| {
        println!("{rows} rows, {format}: {what} {value:.3}");
        writeln!(raw, "{rows},{format},{what},{value:.4}")
    };
    let (text, rows) = (bench.folder.join("text"), options.rows);
    bench.make(rows, "text", &text)?;
    let parquet = bench.bucket(rows);
    let mut summary = "| of text | thousand rows/s | memory, MB |\n|---|---|---|\n".to_owned();
    let conversion =
        ["convert", &text.display().to_string(), "--to", &parquet.display().to_string()].map(str::to_owned);
    let check = |set: &Path| ["check".to_owned(), set.display().to_string()];
    let mut rates = Vec::new();
    for (format, what, arguments) in [
        ("text", "convert", &conversion[..]),
        ("text", "check", &check(&text)),
        ("parquet", "check", &check(&parquet)),
    ] {
        let (seconds, memory) = bench.data(arguments)?;
        let rate = rows as f64 / seconds;
        note(rows, format, &format!("{what}, rows/s"), rate)?;
        note(rows, format, &format!("{what}, MB"), memory)?;
        writeln!(summary, "| `libra data {what}` of {format} | {:.0} | {memory:.0} |", rate / 1e3)?;
        rates.push(rate);
    }
    writeln!(summary, "\nParquet is read at {:.1} times the rate of text.\n", rates[2] / rates[1])?;
    shell::remove_directory(&text)?;
    let tenth = rows / 10;
    bench.make(tenth, "parquet", &bench.bucket(tenth))?;
    summary += "| rows in the bucket | first step after, s | memory of the worker, MB | reading, of its time | thousand samples/s |\n|---|---|---|---|---|\n";
    for repeat in 0..options.repeats {
        for rows in [tenth, rows] {
            let Training { first_step, memory, reading, rate } = bench.train(rows)?;
            let figures = [
                ("first step, s", first_step),
                ("worker, MB", memory),
                ("reading", reading),
                ("samples/s", rate),
            ];
            for (what, value) in figures {
                note(rows, "s3", &format!("{what}, run {repeat}"), value)?;
            }
            let (millions, percent, rate) = (rows as f64 / 1e6, 100.0 * reading, rate / 1e3);
            writeln!(
                summary,
                "| {millions} M | {first_step:.1} | {memory:.0} | {percent:.1}% | {rate:.0} |"
            )?;
        }
    }
    Ok((raw, summary))
}

struct Bench {
    libra: PathBuf,
    folder: PathBuf,
    store: Store,
}

/// Figures of the worker of a job.
struct Training {
    /// Seconds from the start of all processes.
    first_step: f64,
    /// The most that it had in memory, in MB.
    memory: f64,
    /// Part of the time of its training loop in which that waited for data.
    reading: f64,
    /// Samples in a second.
    rate: f64,
}

impl Bench {
    /// Directory of a set in the bucket.
    fn bucket(&self, rows: u64) -> PathBuf {
        self.store.data().join(BUCKET).join(rows.to_string())
    }

    fn start(&self, name: &str, command: Command) -> Result<Running> {
        Running::start(name, command, self.folder.join(format!("{name}.log")))
    }

    fn make(&self, rows: u64, format: &str, to: &Path) -> Result<()> {
        let arguments =
            ["data", "make", "--quiet", "--format", format, "--files", FILES, "--rows", &rows.to_string()];
        let mut command = shell::program(&self.libra, &arguments);
        command.arg("--to").arg(to);
        self.start("make", command)?.finish(LIMIT)
    }

    /// Seconds and memory, in MB, of a command of `libra data`.
    fn data(&self, arguments: &[String]) -> Result<(f64, f64)> {
        let mut command = shell::program(&self.libra, &["data"]);
        command.args(arguments).arg("--quiet");
        let begun = Instant::now();
        let mut running = self.start(&arguments[0], command)?;
        let mut memory = 0.0;
        while running.status()?.is_none() {
            check_interrupt()?;
            ensure!(begun.elapsed() < LIMIT, "{}", running.tail());
            memory = memory_peak(&running).unwrap_or(memory);
            sleep(LOOK_EVERY);
        }
        let seconds = begun.elapsed().as_secs_f64();
        running.finish(LIMIT)?;
        Ok((seconds, memory))
    }

    /// A job of one worker and one server that reads a set from the bucket. It is ended after a while.
    fn train(&self, rows: u64) -> Result<Training> {
        let (controller, http) = (free_address()?.to_string(), free_address()?);
        let data = self.store.url(BUCKET, &rows.to_string());
        let start = |name: &str, arguments: &[&str]| {
            self.start(name, self.store.client(&self.libra, &[&[name], arguments].concat()))
        };
        let begun = Instant::now();
        let job =
            ["--model", "deeplight", "--data", &data, "--epochs", "1", "--servers", "1", "--workers", "1"];
        let job = [&["--listen", &controller, "--switches", "0", "--http", "off"], &job[..]].concat();
        let mut members = vec![start("controller", &job)?];
        members.push(start("server", &["--controller", &controller])?);
        members.push(start("worker", &["--controller", &controller, "--http", &http.to_string()])?);
        let mut look = || -> Result<Option<String>> {
            check_interrupt()?;
            for member in &mut members {
                ensure!(member.status()?.is_none(), "{}", member.tail());
            }
            ensure!(begun.elapsed() < LIMIT, "{}", members[2].tail());
            sleep(LOOK_EVERY);
            Ok(http::get(http, "/metrics", "text/plain").ok())
        };
        let samples = |metrics: &str| value(metrics, "libra_worker_samples_total");
        let first = loop {
            if let Some(metrics) =
                look()?.filter(|metrics| samples(metrics).is_some_and(|samples| samples > 0.0))
            {
                break metrics;
            }
        };
        let (first_step, first_at) = (begun.elapsed().as_secs_f64(), Instant::now());
        let mut last = first.clone();
        while first_at.elapsed() < TRAINING {
            last = look()?.unwrap_or(last);
        }
        let seconds = first_at.elapsed().as_secs_f64();
        let change = |of: &dyn Fn(&str) -> Option<f64>| {
            let change = of(&last).zip(of(&first)).map(|(last, first)| last - first);
            change.context("the worker does not count its samples and its time")
        };
        let part =
            |part: &'static str| move |metrics: &str| value(metrics, &format!("{STEP_SECONDS}{part}\"}}"));
        let parts = ["data", "pull", "compute", "push", "clock"].map(|name| change(&part(name)));
        let parts = parts.into_iter().collect::<Result<Vec<f64>>>()?;
        let reading = parts[0] / parts.iter().sum::<f64>();
        let memory = memory_peak(&members[2]).context("the worker has ended")?;
        Ok(Training { first_step, memory, reading, rate: change(&samples)? / seconds })
    }
}

/// The most that a process had in memory, in MB; `None` if it has ended.
fn memory_peak(process: &Running) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{}/status", process.id())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse::<f64>().ok().map(|kib| kib * 1.024e-3)
}

/// The value of a series in a text of metrics.
fn value(metrics: &str, series: &str) -> Option<f64> {
    metrics.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
}
