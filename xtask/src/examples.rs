//! Runs the programs of `examples/`, the one for a cluster of processes with `libra server` and `libra switch`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::process::{self, Running};
use crate::{Outcome, shell};

const LIMIT: Duration = Duration::from_secs(120);
/// Loss of an untrained logistic regression.
const UNTRAINED_LOSS: f64 = core::f64::consts::LN_2;
/// A program of one page shows how little a front end needs.
const LINES_MAX: usize = 60;

pub(crate) fn run() -> Result<Outcome> {
    process::catch_interrupts()?;
    // They are as `cargo test` has built them: in a release build they would have dependencies of their own.
    shell::run(shell::cargo(&[
        "build",
        "--quiet",
        "--bin",
        "libra",
        "--example",
        "logistic_regression",
        "--example",
        "in_process",
        "--example",
        "custom_plan",
    ]))?;
    let source = std::fs::read_to_string(shell::root().join("examples/logistic_regression.rs"))?;
    let lines = source.lines().count();
    ensure!(lines <= LINES_MAX, "examples/logistic_regression.rs has {lines} lines, at most {LINES_MAX}");
    let folder = shell::target_directory()?.join("examples-run");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    in_processes(&folder)?;
    for name in ["in_process", "custom_plan"] {
        let log = log(&folder, name);
        Running::start(name, shell::program(example(name)?, &[]), log.clone())?.finish(LIMIT)?;
        println!("{name}: {}", packets_of_switches(&log)?);
    }
    Ok(Outcome::Passed)
}

/// The logistic regression: a controller, two servers, a switch and two workers, a process each.
fn in_processes(folder: &Path) -> Result<()> {
    let address = process::free_address()?.to_string();
    let regression = example("logistic_regression")?;
    let libra = shell::target_directory()?.join("debug/libra");
    let member = |role| (role, shell::program(&libra, &[role, "--quiet", "--controller", &address]));
    let front_end = |role| (role, shell::program(&regression, &[role, &address]));
    let commands = [
        front_end("controller"),
        member("server"),
        member("server"),
        member("switch"),
        front_end("worker"),
        front_end("worker"),
    ];
    let mut processes = Vec::new();
    for (index, (role, command)) in commands.into_iter().enumerate() {
        processes.push(Running::start(role, command, log(folder, &format!("{index}-{role}")))?);
    }
    process::wait(&mut processes, Instant::now() + LIMIT)?;
    let controller = log(folder, "0-controller");
    let printed = std::fs::read_to_string(&controller)?;
    let losses: Vec<f64> = printed.split('"').filter_map(|part| part.parse().ok()).collect();
    ensure!(losses.len() == 2, "two workers report a loss each: {printed}");
    ensure!(losses.iter().all(|loss| *loss < 0.5 * UNTRAINED_LOSS), "it has not learned: {printed}");
    println!("logistic_regression: losses {losses:?}, {}", packets_of_switches(&controller)?);
    Ok(())
}

fn example(name: &str) -> Result<PathBuf> {
    Ok(shell::target_directory()?.join("debug/examples").join(name))
}

fn log(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.log"))
}

/// Reads the number at the end of what a program printed, which no switch leaves at zero.
fn packets_of_switches(log: &Path) -> Result<String> {
    let printed = std::fs::read_to_string(log)?;
    let last = printed.lines().last().and_then(|line| line.rsplit_once(": ")).map(|(_, number)| number);
    let packets: u64 =
        last.and_then(|number| number.parse().ok()).with_context(|| format!("no number: {printed}"))?;
    ensure!(packets > 0, "no packet went through a switch: {printed}");
    Ok(format!("{packets} packets added by switches"))
}
