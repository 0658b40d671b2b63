//! Training time with one slow worker: how well the others take over what it does not do.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};

use super::{BINARY, LIMIT, Options, median};
use crate::process::{self, Running};
use crate::report::Report;
use crate::shell;

const WORKERS: u32 = 4;
/// Stops a process for three quarters of the time, until it has ended.
const QUARTER: &str = "while kill -STOP $0 2>/dev/null; do sleep 0.03; kill -CONT $0; sleep 0.01; done";

/// Raw figures and a table of them.
pub(super) fn measure(options: &Options, folder: &Path) -> Result<(String, String)> {
    let mut raw = "repeat,slow_workers,seconds\n".to_owned();
    let mut runs = [Vec::new(), Vec::new()];
    for repeat in 0..options.repeats {
        for (slow, seconds) in runs.iter_mut().enumerate() {
            let took = run(options, folder, slow)?;
            println!("{slow} slow workers: {took:.2} s");
            writeln!(raw, "{repeat},{slow},{took:.3}")?;
            seconds.push(took);
        }
    }
    let [alike, one_slow] = runs.map(median);
    Ok((raw, summary(alike, one_slow)))
}

/// A slow worker does a quarter of what each of the others does. If the others cannot be faster for it, the best time is that of all alike by the
/// sum of speeds; on a machine with fewer cores than members they can, and it is less.
fn summary(alike: f64, one_slow: f64) -> String {
    let workers = f64::from(WORKERS);
    let best = alike * workers / (workers - 0.75);
    format!(
        "| workers | seconds of training | by that of ideal division |\n|---|---|---|\n\
         | {WORKERS} alike | {alike:.2} | 1 |\n\
         | {} alike, one at a quarter of a core | {one_slow:.2} | {:.2} |\n",
        WORKERS - 1,
        one_slow / best
    )
}

/// Runs a job of separate processes; of the workers so many are slow. Returns the seconds of training.
fn run(options: &Options, folder: &Path, slow: usize) -> Result<f64> {
    let binary = shell::target_directory()?.join(BINARY);
    let json = folder.join("report.json");
    let address = process::free_address()?.to_string();
    let start = |name: &str, arguments: &[&str]| {
        let log = folder.join(format!("{name}.log"));
        Running::start(name, shell::program(binary.clone(), arguments), log)
    };
    let (epochs, workers) = (options.epochs.to_string(), WORKERS.to_string());
    let mut job = vec!["controller", "--listen", &address, "--switches", "0", "--servers", "1"];
    job.extend(["--workers", &workers, "--epochs", &epochs, "--model", &options.model]);
    job.extend(["--data", &options.data, "--json", json.to_str().context("a path of the target is text")?]);
    let mut processes = vec![start("controller", &job)?];
    processes.push(start("server", &["server", "--controller", &address])?);
    let mut slowed = Vec::new();
    for number in 0..WORKERS {
        let worker = start(&format!("worker-{number}"), &["worker", "--controller", &address])?;
        if (number as usize) < slow {
            let mut command = Command::new("sh");
            command.args(["-c", QUARTER, &worker.id().to_string()]);
            slowed.push(Running::start("throttle", command, folder.join("throttle.log"))?);
        }
        processes.push(worker);
    }
    process::wait(&mut processes, Instant::now() + LIMIT)?;
    drop(slowed);
    Ok(Report::read(&json)?.number("seconds.train"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_to_the_sum_of_speeds() {
        let table = summary(13.0, 16.0);
        assert!(table.contains("| 3 alike, one at a quarter of a core | 16.00 | 1.00 |"), "{table}");
    }
}
