//! Real runs beside the simulation of the same machine.

use core::time::Duration;
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use libra_perfsim::{Costs, Host, Model, PowerLaw, Report, Setting, System, Topology};
use procfs::{CurrentSI, KernelStats};
use serde::Serialize;
use serde_json::Value;

use super::{Arguments, Calibration};
use crate::bench::report::{million, print};
use libra_launch::document::write_json;
use libra_launch::parent_guard;

/// Defaults of `libra-lab bench hot-path`.
const SLOTS: u64 = 30_000;
const BATCH: usize = 10_000;
const OPEN: usize = 8;
const PUSHES_PER_ROUND: u32 = 64;
const ZIPF: f64 = 1.05;

/// A run and what was predicted for it.
#[derive(Debug, Clone, Serialize)]
struct Compared {
    workers: u16,
    system: &'static str,
    measured: f64,
    predicted: f64,
    error: f64,
    /// Nanoseconds of a pair: workers with their users, switch, server.
    measured_ns: [f64; 3],
    predicted_ns: [f64; 3],
    /// Cores that others took meanwhile.
    others: f64,
}

#[derive(Debug, Serialize)]
struct Validation {
    /// For each number of workers and each system the run whose error is in the middle.
    medians: Vec<Compared>,
    /// All runs; those of each round with prices that were measured before, between and after them.
    rounds: Vec<Vec<Compared>>,
}

/// Result of a run of the benchmark.
struct Measured {
    pairs_per_second: [f64; 2],
    ns: [[f64; 3]; 2],
    others: f64,
}

/// Prices and runs take turns: a machine differs from one minute to the next by more than what is asked.
pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let (mut rounds, mut machine) = (Vec::new(), String::new());
    for _ in 0..arguments.repeats {
        let mut calibration = Calibration::begin(arguments)?;
        calibration.pass()?;
        let mut runs = Vec::new();
        for &workers in &arguments.workers {
            runs.push((workers, measure(workers, arguments.seconds, cores)?));
            calibration.pass()?;
        }
        let costs = calibration.costs();
        let round = runs.iter().map(|(workers, run)| compare(&costs, *workers, run, cores));
        rounds.push(round.collect::<Result<Vec<_>>>()?.concat());
        machine = costs.machine;
    }
    let medians = medians(&rounds);
    let lines = medians.iter().enumerate().map(|(place, one)| {
        let ns = |[workers, switch, server]: [f64; 3]| format!("{workers:.1}, {switch:.1}, {server:.1}");
        let errors: Vec<String> =
            rounds.iter().map(|round| format!("{:+.0}%", round[place].error * 100.0)).collect();
        let note = format!(
            "measured {}; error {:+.0}%, of {}; ns a value of workers, switch, server: {} for {}; others took {:.2} cores",
            million(one.measured),
            one.error * 100.0,
            errors.join(", "),
            ns(one.predicted_ns),
            ns(one.measured_ns),
            one.others
        );
        ("", million(one.predicted), format!("{} workers, {}: {note}", one.workers, one.system))
    });
    print(&format!("predicted for {cores} cores, from costs of {machine}"), lines.collect());
    if let Some(path) = &arguments.json {
        write_json(path, &Validation { medians, rounds })?;
    }
    Ok(())
}

/// One run, through the switch and past it.
fn compare(costs: &Costs, workers: u16, run: &Measured, cores: usize) -> Result<Vec<Compared>> {
    // What others take of the cores is a matter of the machine, not of what is predicted: cores are slower by it.
    let speed = ((cores as f64 - run.others) / cores as f64).clamp(0.05, 1.0);
    let host = Host { cores, speed, polls: false };
    let systems = [(System::Libra, "through the switch"), (System::PsSparse, "past it")];
    let compared = systems.into_iter().enumerate().map(|(place, (system, name))| {
        let report = predict(costs, system, workers, host)?;
        let (measured, predicted) = (run.pairs_per_second[place], report.pairs_per_second);
        let ns = |kind| report.roles.get(kind).map_or(0.0, |role| role.ns_per_pair * speed);
        Ok(Compared {
            workers,
            system: name,
            measured,
            predicted,
            error: predicted / measured - 1.0,
            measured_ns: run.ns[place],
            predicted_ns: [ns("worker") + ns("user"), ns("switch"), ns("server")],
            others: run.others,
        })
    });
    compared.collect()
}

/// For each place of the rounds, of which there is an odd number, what has the error in the middle.
fn medians(rounds: &[Vec<Compared>]) -> Vec<Compared> {
    let places = rounds.first().map_or(0, Vec::len);
    let median = |place: usize| {
        let mut all: Vec<&Compared> = rounds.iter().map(|round| &round[place]).collect();
        all.sort_by(|one, other| one.error.total_cmp(&other.error));
        all[all.len() / 2].clone()
    };
    (0..places).map(median).collect()
}

/// The benchmark as a simulation.
fn predict(costs: &Costs, system: System, workers: u16, host: Host) -> Result<Report> {
    let setting = Setting {
        system,
        workers,
        servers: 1,
        topology: Topology::OneMachine(host),
        model: Model { rows: SLOTS, width: 1, law: PowerLaw::new(SLOTS, ZIPF), batch: BATCH },
        hot: SLOTS,
        open: OPEN,
        pushes_per_round: PUSHES_PER_ROUND,
        entries_max: 240,
        costs: costs.clone(),
        warm_up: Duration::from_millis(30),
        measured: Duration::from_millis(150),
        drawn: 64,
        seed: 1,
    };
    setting.run().map_err(|reason| anyhow!("the simulation: {reason}"))
}

/// Runs the benchmark as a process of its own.
fn measure(workers: u16, seconds: f64, cores: usize) -> Result<Measured> {
    let file = tempfile::NamedTempFile::new().context("cannot make a temporary file")?;
    let before = (used_of_machine()?, used_of_children()?);
    let mut command = Command::new(parent_guard::this_program()?);
    command.args(["bench", "hot-path", "--quiet", "--workers", &workers.to_string()]);
    command.args(["--seconds", &seconds.to_string(), "--json"]).arg(file.path());
    let begun = std::time::Instant::now();
    let mut child = command.spawn().context("cannot start the benchmark")?;
    let status = child.wait()?;
    ensure!(status.success(), "the benchmark ended with {status}");
    let wall = begun.elapsed().as_secs_f64();
    let (used, own) = (used_of_machine()? - before.0, used_of_children()? - before.1);
    let text = std::fs::read_to_string(file.path())?;
    let report: Value = serde_json::from_str(&text)?;
    let number = |path: &str| {
        report
            .pointer(path)
            .and_then(Value::as_f64)
            .with_context(|| format!("the benchmark reports no {path}"))
    };
    let hot = number("/goodput/values_per_second")?;
    let cold = number("/cold/values_per_second")?;
    let ns = [
        [
            number("/workers/cpu_ns_per_value")?,
            number("/switch/cpu_ns_per_value")?,
            number("/server/cpu_ns_per_value")?,
        ],
        [number("/cold/workers/cpu_ns_per_value")?, 0.0, number("/cold/server/cpu_ns_per_value")?],
    ];
    let others = ((used - own) / wall).clamp(0.0, cores as f64);
    Ok(Measured { pairs_per_second: [hot, cold], ns, others })
}

/// Seconds of processors that were not idle, since the machine started. What a hypervisor took is no time of this machine.
fn used_of_machine() -> Result<f64> {
    let total = KernelStats::current()?.total;
    let ticks = total.user + total.nice + total.system + total.irq.unwrap_or(0) + total.softirq.unwrap_or(0);
    Ok(ticks as f64 / procfs::ticks_per_second() as f64)
}

/// Seconds of processors that children used which have ended, and theirs.
fn used_of_children() -> Result<f64> {
    let stat = procfs::process::Process::myself()?.stat()?;
    Ok((stat.cutime + stat.cstime) as f64 / procfs::ticks_per_second() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_run_in_the_middle_counts() {
        let of = |error| Compared {
            workers: 1,
            system: "past it",
            measured: 1.0,
            predicted: 1.0 + error,
            error,
            measured_ns: [0.0; 3],
            predicted_ns: [0.0; 3],
            others: 0.0,
        };
        let rounds = [[0.5, -0.1], [-0.3, -0.2], [0.1, 0.9]].map(|errors| errors.map(of).to_vec());
        let errors: Vec<f64> = medians(&rounds).iter().map(|one| one.error).collect();
        assert_eq!(errors, [0.1, -0.1]);
    }
}
