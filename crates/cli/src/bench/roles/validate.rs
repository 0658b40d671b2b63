//! Real runs beside the simulation of the same machine.

use core::time::Duration;
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use libra_sim::performance::{Costs, Host, Model, PowerLaw, Report, Setting, Site, System};
use procfs::{CurrentSI, KernelStats};
use serde::Serialize;
use serde_json::Value;

use super::Arguments;
use crate::arguments::write_json;
use crate::bench::report::{million, print};
use crate::leash;

/// What `libra bench hot-path` uses when it is not told otherwise.
const SLOTS: u64 = 30_000;
const BATCH: usize = 10_000;
const OPEN: usize = 8;
const PUSHES_PER_EPOCH: u32 = 64;
const ZIPF: f64 = 1.05;

#[derive(Debug, Serialize)]
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

/// What a run of the benchmark came to.
struct Measured {
    pairs_per_second: [f64; 2],
    ns: [[f64; 3]; 2],
    others: f64,
}

pub(super) fn run(arguments: &Arguments, costs: &Costs) -> Result<()> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut all = Vec::new();
    for &workers in &arguments.workers {
        let runs = (0..arguments.repeats).map(|_| measure(workers, arguments.seconds, cores));
        let runs = runs.collect::<Result<Vec<_>>>()?;
        let best = runs.into_iter().min_by(|one, other| one.others.total_cmp(&other.others));
        let best = best.context("there is at least one run")?;
        // What others take of the cores is a matter of the machine, not of what is predicted: cores are slower by it.
        let speed = ((cores as f64 - best.others) / cores as f64).clamp(0.05, 1.0);
        let host = Host { cores, speed, polls: false };
        for (place, system) in [System::Libra, System::PsSparse].into_iter().enumerate() {
            let report = predict(costs, system, workers, host)?;
            let (measured, predicted) = (best.pairs_per_second[place], report.pairs_per_second);
            let ns = |kind| report.roles.get(kind).map_or(0.0, |role| role.ns_per_pair * speed);
            all.push(Compared {
                workers,
                system: if place == 0 { "through the switch" } else { "past it" },
                measured,
                predicted,
                error: predicted / measured - 1.0,
                measured_ns: best.ns[place],
                predicted_ns: [ns("worker") + ns("user"), ns("switch"), ns("server")],
                others: best.others,
            });
        }
    }
    let lines = all.iter().map(|one| {
        let ns = |[workers, switch, server]: [f64; 3]| format!("{workers:.1}, {switch:.1}, {server:.1}");
        let note = format!(
            "measured {}; error {:+.0}%; ns a pair of workers, switch, server: {} for {}; others took {:.2} cores",
            million(one.measured),
            one.error * 100.0,
            ns(one.predicted_ns),
            ns(one.measured_ns),
            one.others
        );
        ("", million(one.predicted), format!("{} workers, {}: {note}", one.workers, one.system))
    });
    print(format!("predicted for {cores} cores, from costs of {}", costs.machine), lines.collect());
    if let Some(path) = &arguments.json {
        write_json(path, &all)?;
    }
    Ok(())
}

/// The benchmark as a simulation.
fn predict(costs: &Costs, system: System, workers: u16, host: Host) -> Result<Report> {
    let setting = Setting {
        system,
        workers,
        servers: 1,
        site: Site::OneMachine(host),
        model: Model { rows: SLOTS, width: 1, law: PowerLaw::new(SLOTS, ZIPF), batch: BATCH },
        hot: SLOTS,
        open: OPEN,
        pushes_per_epoch: PUSHES_PER_EPOCH,
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
    let mut command = Command::new(leash::this_program()?);
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
    let hot = number("/goodput/pairs_per_second")?;
    let cold = number("/cold/pairs_per_second")?;
    let ns = [
        [
            number("/workers/cpu_ns_per_pair")?,
            number("/switch/cpu_ns_per_pair")?,
            number("/server/cpu_ns_per_pair")?,
        ],
        [number("/cold/workers/cpu_ns_per_pair")?, 0.0, number("/cold/server/cpu_ns_per_pair")?],
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
