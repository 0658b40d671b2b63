//! Large data sets: their conversion, the rate at which they are read, the start of a job that reads one from a bucket, and the memory and the waits of its worker.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::Options;
use crate::process::{self, Running, check_interrupt, free_address};
use crate::prometheus::sum;
use crate::stores::{BUCKET, Kind, Store};
use crate::{http, shell};

/// Files of a set, as of Criteo's terabyte.
const FILES: &str = "24";
/// A step with 100 million rows that takes this long hangs.
const LIMIT: Duration = Duration::from_secs(3600);
/// For so long a job trains.
const TRAINING: Duration = Duration::from_secs(60);
/// More than it has the time for, also on a small set.
const EPOCHS: &str = "1000";
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Reads four million rows, one row group after the other.
const FLOOR: &str = "
import pathlib, sys, time
import pyarrow.parquet as parquet
rows, begun = 0, time.monotonic()
for path in sorted(pathlib.Path(sys.argv[1]).glob('*.parquet')):
    file = parquet.ParquetFile(path)
    for group in range(file.num_row_groups):
        if rows < 4_000_000:
            rows += file.read_row_group(group, use_threads=False).num_rows
print(rows / (time.monotonic() - begun))
";

/// Raw figures and tables of them.
pub(super) fn measure(options: &Options, folder: &Path) -> Result<(String, String)> {
    let folder = folder.join("data");
    shell::remove_directory(&folder)?;
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let programs = shell::programs(&["libra", "libra-lab"])?;
    let Some(store) = Store::start(Kind::S3rver, &folder, "127.0.0.1")? else {
        bail!("{} is not installed: {}", Kind::S3rver.name(), Kind::S3rver.installation());
    };
    store.make_bucket()?;
    let bench = Bench { programs, folder, store };
    let mut raw = "rows,format,what,value\n".to_owned();
    let mut note = |rows: u64, format: &str, what: &str, value: f64| {
        println!("{rows} rows, {format}: {what} {value:.3}");
        writeln!(raw, "{rows},{format},{what},{value:.4}")
    };
    let (text, rows) = (bench.folder.join("text"), options.rows);
    bench.make(rows, "text", &text)?;
    let parquet = bench.folder.join("parquet");
    let (seconds, memory) = bench.convert(&text, &parquet)?;
    let converted = rows as f64 / seconds;
    note(rows, "text", "convert, rows/s", converted)?;
    note(rows, "text", "convert, MB", memory)?;
    let mut summary = format!(
        "`libra data convert`, text to Parquet: {:.0} thousand rows/s, {memory:.0} MB of memory.\n\n\
         | one thread | thousand rows/s |\n|---|---|\n",
        converted / 1e3
    );
    for repeat in 0..options.repeats {
        for (format, set) in [("text", &text), ("Parquet", &parquet)] {
            for (order, rate) in bench.read(set)? {
                note(rows, format, &format!("{order}, rows/s, run {repeat}"), rate)?;
                writeln!(summary, "| {format}, {order} | {:.0} |", rate / 1e3)?;
            }
        }
        if let Some(rate) = bench.floor(&parquet)? {
            note(rows, "Parquet", &format!("pyarrow, rows/s, run {repeat}"), rate)?;
            writeln!(summary, "| Parquet, by pyarrow into its arrays | {:.0} |", rate / 1e3)?;
        }
    }
    summary.push('\n');
    shell::remove_directory(&text)?;
    bench.upload(rows, &parquet)?;
    let (tenth, smaller) = (rows / 10, bench.folder.join("tenth"));
    bench.make(tenth, "parquet", &smaller)?;
    bench.upload(tenth, &smaller)?;
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
    programs: PathBuf,
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
    /// Moves a set into the bucket.
    fn upload(&self, rows: u64, set: &Path) -> Result<()> {
        let (set, to) = (set.display().to_string(), format!("store:{BUCKET}/{rows}"));
        self.store.rclone(&["move", &set, &to]).map(drop)
    }

    fn start(&self, name: &str, command: Command) -> Result<Running> {
        Running::start(name, command, self.folder.join(format!("{name}.log")))
    }

    fn make(&self, rows: u64, format: &str, to: &Path) -> Result<()> {
        let arguments =
            ["data", "make", "--quiet", "--format", format, "--files", FILES, "--rows", &rows.to_string()];
        let mut command = shell::program(self.programs.join("libra"), &arguments);
        command.arg("--to").arg(to);
        self.start("make", command)?.finish(LIMIT)
    }

    /// Seconds and memory, in MB, of the conversion of a set.
    fn convert(&self, set: &Path, to: &Path) -> Result<(f64, f64)> {
        let mut command = shell::program(self.programs.join("libra"), &["data", "convert", "--quiet"]);
        command.arg(set).arg("--to").arg(to);
        let begun = Instant::now();
        let mut running = self.start("convert", command)?;
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

    /// Rows of a set that one thread reads in a second, by their order.
    fn read(&self, set: &Path) -> Result<[(&'static str, f64); 2]> {
        let json = self.folder.join("read.json");
        let mut command = shell::program(self.programs.join("libra-lab"), &["bench", "read", "--quiet"]);
        command.arg("--data").arg(set).arg("--json").arg(&json);
        self.start("read", command)?.finish(LIMIT)?;
        let figures: Value = serde_json::from_slice(&fs::read(&json)?).context("the figures are no JSON")?;
        let rate = |name: &str| figures[name].as_f64().with_context(|| format!("there is no {name}"));
        Ok([
            ("in the order of the set", rate("rows_per_second")?),
            ("in the order of an epoch", rate("rows_per_second_shuffled")?),
        ])
    }

    /// Rows that one thread decompresses and decodes in a second, by another library, and does nothing with.
    fn floor(&self, set: &Path) -> Result<Option<f64>> {
        let python = shell::target_directory()?.join("tools/pyarrow/bin/python");
        if !python.exists() {
            shell::loudly(
                "pyarrow is not installed: python3 -m venv target/tools/pyarrow && target/tools/pyarrow/bin/pip install pyarrow",
            );
            return Ok(None);
        }
        let mut command = shell::program(&python, &["-c", FLOOR]);
        command.arg(set);
        let printed = shell::output(command)?;
        Ok(Some(printed.trim().parse().with_context(|| format!("pyarrow: no number in {printed:?}"))?))
    }

    /// A job of one worker and one server that reads a set from the bucket. It is ended after a while.
    fn train(&self, rows: u64) -> Result<Training> {
        let (controller, http) = (free_address()?.to_string(), free_address()?);
        let data = self.store.url(BUCKET, &rows.to_string());
        let start = |name: &str, arguments: &[&str]| {
            self.start(name, self.store.client(&self.programs.join("libra"), &[&[name], arguments].concat()))
        };
        let begun = Instant::now();
        let job =
            ["--model", "deeplight", "--data", &data, "--epochs", EPOCHS, "--servers", "1", "--workers", "1"];
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
        let samples = |metrics: &str| sum::<f64>(metrics, "libra_worker_samples_total");
        let first = loop {
            if let Some(metrics) = look()?.filter(|metrics| samples(metrics) > 0.0) {
                break metrics;
            }
        };
        let (first_step, first_at) = (begun.elapsed().as_secs_f64(), Instant::now());
        let mut last = first.clone();
        while first_at.elapsed() < TRAINING {
            last = look()?.unwrap_or(last);
        }
        let seconds = first_at.elapsed().as_secs_f64();
        let change = |of: &dyn Fn(&str) -> f64| of(&last) - of(&first);
        let parts = ["data", "pull", "compute", "push", "clock"].map(|part| {
            let series = format!("libra_worker_step_seconds_total{{part=\"{part}\"}}");
            change(&|metrics| sum(metrics, &series))
        });
        let all: f64 = parts.iter().sum();
        ensure!(all > 0.0, "the worker does not count the time of its steps");
        let memory = memory_peak(&members[2])?;
        Ok(Training { first_step, memory, reading: parts[0] / all, rate: change(&samples) / seconds })
    }
}

/// The most that a process had in memory, in MB.
fn memory_peak(running: &Running) -> Result<f64> {
    Ok(process::memory(running.id(), "VmHWM")? as f64 * 1.024e-3)
}
