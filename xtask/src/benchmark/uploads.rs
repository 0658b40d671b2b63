//! Checkpoints at URLs: their way to a store beside that of another client, their cost for the job, and their way to an export.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{LIMIT, Options, median};
use crate::process::{Running, check_interrupt};
use crate::shell;
use crate::stores::{BUCKET, Kind, Store};

/// Bytes of the checkpoint that is uploaded, in MB: some seconds of any store on loopback.
const MEGABYTES: u64 = 400;
/// Seconds between two checkpoints of a job.
const CHECKPOINT_EVERY: &str = "5";
/// Seconds between two looks of an export that follows.
const LOOKS_EVERY: u64 = 1;
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Raw figures and tables of them.
pub(super) fn measure(options: &Options, folder: &Path) -> Result<(String, String)> {
    let folder = folder.join("uploads");
    shell::remove_directory(&folder)?;
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let programs = shell::programs(&["libra", "libra-lab"])?;
    let bench = Bench { programs, folder, options };
    bench.make()?;
    let mut raw = "store,repeat,what,value\n".to_owned();
    let mut summary =
        "| store | `rclone copy`, MB/s | a server, MB/s | ratio | training beside uploads, of that \
                       without |\n|---|---|---|---|---|\n"
            .to_owned();
    for kind in Kind::ALL {
        let Some(store) = Store::start(kind, &bench.folder, "127.0.0.1")? else {
            shell::loudly(&format!("{} is not installed: {}", kind.name(), kind.installation()));
            continue;
        };
        store.make_bucket()?;
        let mut of: [Vec<f64>; 5] = Default::default();
        for repeat in 0..options.repeats {
            let (copied, uploaded) = bench.upload(&store, repeat)?;
            let (alone, beside) = bench.train(&store, repeat)?;
            let figures = [copied, uploaded, uploaded / copied, alone, beside / alone];
            let names = ["rclone", "server", "upload ratio", "samples/s without uploads", "training ratio"];
            for ((name, value), all) in names.iter().zip(figures).zip(&mut of) {
                println!("{}: {name} {value:.3}", kind.name());
                writeln!(raw, "{},{repeat},{name},{value:.4}", kind.name())?;
                all.push(value);
            }
        }
        let [copied, uploaded, ratio, _, training] = of.map(median);
        writeln!(summary, "| {} | {copied:.0} | {uploaded:.0} | {ratio:.2} | {training:.2} |", kind.name())?;
    }
    let mut delays = bench.follow()?;
    for (number, delay) in delays.iter().enumerate() {
        writeln!(raw, "file,{number},seconds to the export,{delay:.3}")?;
    }
    delays.sort_by(f64::total_cmp);
    let (count, most) = (delays.len(), delays.last().copied().unwrap_or(f64::NAN));
    let middle = median(delays);
    writeln!(
        summary,
        "\nAn export that looks every {LOOKS_EVERY} s has a version {middle:.2} s after its commit, the latest of \
         {count} after {most:.2} s."
    )?;
    Ok((raw, summary))
}

struct Bench<'a> {
    programs: PathBuf,
    folder: PathBuf,
    options: &'a Options,
}

impl Bench<'_> {
    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn start(&self, name: &str, command: Command) -> Result<Running> {
        Running::start(name, command, self.folder.join(format!("{name}.log")))
    }

    /// A command of `libra`, which reads and writes at a store if there is one.
    fn libra(&self, store: Option<&Store>, arguments: &[&str]) -> Command {
        let libra = self.programs.join("libra");
        store.map_or_else(|| shell::program(&libra, arguments), |store| store.client(&libra, arguments))
    }

    fn make(&self) -> Result<()> {
        let (rows, to) = (self.options.rows.to_string(), self.path("data"));
        let make = self.libra(None, &["data", "make", "--quiet", "--rows", &rows, "--to", &to]);
        self.start("make", make)?.finish(LIMIT)
    }

    /// Bytes of a checkpoint in a second, in MB, by rclone and as a server uploads them: both with the start of their process.
    fn upload(&self, store: &Store, repeat: u32) -> Result<(f64, f64)> {
        let directory = self.path("shard");
        let lab = |to: &str| {
            let megabytes = MEGABYTES.to_string();
            let mut command = store.client(&self.programs.join("libra-lab"), &["bench", "upload", "--quiet"]);
            command.args(["--directory", &directory, "--megabytes", &megabytes, "--to", to]);
            self.start("upload", command)?.finish(LIMIT)
        };
        if !Path::new(&directory).exists() {
            lab(&format!("file://{}", self.path("first")))?;
        }
        let rate = |took: Duration| MEGABYTES as f64 / took.as_secs_f64();
        let (copy, own) =
            (format!("store:{BUCKET}/copy-{repeat}"), store.url(BUCKET, &format!("own-{repeat}")));
        let begun = Instant::now();
        store.rclone(&["copy", &directory, &copy])?;
        let copied = rate(begun.elapsed());
        let begun = Instant::now();
        lab(&own)?;
        let uploaded = rate(begun.elapsed());
        for path in ["copy", "own"] {
            store.rclone(&["purge", &format!("store:{BUCKET}/{path}-{repeat}")])?;
        }
        Ok((copied, uploaded))
    }

    /// A job that writes checkpoints into a state directory of this name.
    fn job(&self, state: &str, store: Option<&Store>, more: &[&str]) -> Command {
        let (data, epochs) = (self.path("data"), self.options.epochs.to_string());
        let job = ["train", "--quiet", "--model", "deeplight", "--data", &data, "--epochs", &epochs];
        let mut command = self.libra(store, &job);
        command.args(["--servers", "2", "--checkpoint-every", CHECKPOINT_EVERY]);
        command.args(["--state-dir", &self.path(state)]).args(more);
        command
    }

    /// Samples a second of a job with checkpoints on its disk alone, and with uploads at the default rate.
    fn train(&self, store: &Store, repeat: u32) -> Result<(f64, f64)> {
        let run = |name: &str, more: &[&str]| -> Result<f64> {
            let report = self.path("report.json");
            let job = self.job(name, Some(store), &[more, &["--json", &report]].concat());
            self.start(name, job)?.finish(LIMIT)?;
            shell::remove_directory(&self.folder.join(name))?;
            let report: Value =
                serde_json::from_slice(&fs::read(&report)?).context("the report is no JSON")?;
            report["samples_per_second"].as_f64().context("the report has no samples_per_second")
        };
        let path = format!("job-{repeat}");
        let url = store.url(BUCKET, &path);
        let ways = [("alone", vec![]), ("beside", vec!["--checkpoints", url.as_str()])];
        // The first of two has the colder machine.
        let mut rates = [0.0; 2];
        for way in if repeat.is_multiple_of(2) { [0, 1] } else { [1, 0] } {
            rates[way] = run(ways[way].0, &ways[way].1)?;
        }
        store.rclone(&["purge", &format!("store:{BUCKET}/{path}")])?;
        Ok((rates[0], rates[1]))
    }

    /// Seconds from the commit of each checkpoint until the export has it as a version.
    fn follow(&self) -> Result<Vec<f64>> {
        let (archive, export) = (self.folder.join("archive"), self.folder.join("export"));
        let url = format!("file://{}", archive.display());
        let job = self.job("followed", None, &["--checkpoints", &url, "--keep-checkpoints", "100"]);
        let mut train = self.start("followed", job)?;
        let (every, to) = (LOOKS_EVERY.to_string(), export.display().to_string());
        let commits = || -> Vec<u64> {
            let names = fs::read_dir(&archive).into_iter().flatten().flatten();
            let number = |name: String| name.strip_prefix("job-")?.strip_suffix(".json")?.parse().ok();
            names.filter_map(|entry| number(entry.file_name().into_string().ok()?)).collect()
        };
        let deadline = Instant::now() + LIMIT;
        while commits().is_empty() {
            check_interrupt()?;
            ensure!(train.status()?.is_none() && Instant::now() < deadline, "no commit: {}", train.tail());
            sleep(LOOK_EVERY);
        }
        let follow = ["export", "--follow", "--quiet", "--from", &url, "--to", &to, "--every", &every];
        let mut exporter = self.start("export", self.libra(None, &follow))?;
        let version = || -> Option<u64> {
            let current: Value = serde_json::from_slice(&fs::read(export.join("current.json")).ok()?).ok()?;
            current["version"].as_u64()
        };
        // The first version is of what was there before.
        let (mut waiting, mut seen, mut delays) = (Vec::new(), commits(), Vec::new());
        loop {
            check_interrupt()?;
            ensure!(exporter.status()?.is_none() && Instant::now() < deadline, "{}", exporter.tail());
            let now = Instant::now();
            for number in commits() {
                if !seen.contains(&number) {
                    seen.push(number);
                    waiting.push((number, now));
                }
            }
            let visible = version().unwrap_or(0);
            delays.extend(
                waiting
                    .extract_if(.., |(number, _)| *number <= visible)
                    .map(|(_, at)| now.duration_since(at).as_secs_f64()),
            );
            if train.status()?.is_some() && waiting.is_empty() {
                break;
            }
            sleep(LOOK_EVERY);
        }
        exporter.signal("-TERM")?;
        exporter.finish(LIMIT)?;
        Ok(delays)
    }
}
