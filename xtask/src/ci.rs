//! The whole pipeline, step by step; the first step that fails ends it.

mod processors;
mod queue;

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;

use processors::Processors;
use queue::Queue;

use crate::{
    Outcome, book, container, doctor, examples, findings, flood, forge, fuzz, kubernetes, namespaces, no_std,
    p4, process, prometheus, python, ray, readme, shell, slurm, smoke, systemd, tidy, torchx, xdp,
};

#[derive(Args)]
pub(crate) struct Options {
    /// Leaves `cargo test` out, for a caller that has just run it
    #[arg(long)]
    skip_tests: bool,
    /// Begins at this step, after one was mended
    #[arg(long, value_name = "STEP")]
    from: Option<String>,
    /// Runs the programs of a release build, as they ship, instead of those that `cargo test` has built
    #[arg(long)]
    release: bool,
}

struct Step {
    name: &'static str,
    work: Work,
}

enum Work {
    /// The programs that later steps run.
    Programs,
    /// A step that judges times: nothing runs beside it.
    Alone(fn() -> Result<Outcome>),
    /// A step that judges no times: a command may run beside it.
    Shares(fn() -> Result<Outcome>),
    /// A command that computes and judges no times. It runs beside later steps that share, on what they leave of the processors.
    Beside(fn() -> Result<Command>),
}

use Work::{Alone, Beside, Programs, Shares};

/// Cheap steps first: a slip shows within seconds. Those that share come before those that do not, which wait for what runs beside.
const STEPS: &[Step] = &[
    Step { name: "fmt", work: Shares(|| cargo(&["fmt", "--all", "--check"])) },
    Step { name: "tidy", work: Shares(tidy::run) },
    Step { name: "clippy", work: Beside(|| Ok(shell::cargo(CLIPPY))) },
    Step { name: "doc", work: Beside(doc) },
    Step { name: TEST, work: Alone(|| cargo(&["test"])) },
    Step { name: PROGRAMS, work: Programs },
    Step { name: "README commands", work: Shares(readme::check_with_binary) },
    Step { name: "book", work: Shares(book::run) },
    Step { name: "smoke", work: Shares(smoke::run) },
    Step { name: "paper", work: Beside(paper) },
    Step {
        name: "test xtask",
        work: Beside(|| Ok(shell::cargo(&["test", "--quiet", "--package", "xtask"]))),
    },
    Step { name: "simulation", work: Beside(|| lab(&["sim", "--seeds", "0..300"])) },
    Step { name: "simulation of open work", work: Beside(|| lab(&["sim", "--seeds", "10000..10100"])) },
    Step { name: "fuzz", work: Beside(|| Ok(fuzz::command(&fuzz::Options::for_ci()))) },
    Step { name: "mutants", work: Beside(|| Ok(shell::cargo(MUTANTS))) },
    Step { name: "ray", work: Shares(|| ray::run(&ray::Options::default())) },
    Step { name: "examples", work: Shares(examples::run) },
    Step { name: "no-std", work: Shares(|| no_std::run(&no_std::Options::default())) },
    Step { name: "torchx", work: Shares(|| torchx::run(&findings::StepOptions::default())) },
    Step { name: "container", work: Shares(|| container::run(&findings::StepOptions::default())) },
    Step { name: "kubernetes", work: Shares(|| kubernetes::run(&findings::StepOptions::default())) },
    Step { name: "slurm", work: Shares(|| slurm::run(&findings::StepOptions::default())) },
    Step { name: "python", work: Alone(|| python::run(&python::Options::default())) },
    Step { name: "soak", work: Alone(|| passes(lab(SOAK)?)) },
    Step { name: "soak of drains", work: Alone(|| passes(lab(DRAINS)?)) },
    Step { name: "flood", work: Alone(|| flood::run(&flood::Options::for_ci())) },
    Step { name: "xdp", work: Alone(|| xdp::run(&xdp::Options::default())) },
    Step { name: "forged answers", work: Alone(|| forge::run(&forge::Options::for_ci())) },
    Step { name: "doctor", work: Alone(|| doctor::run(&doctor::Options::default())) },
    Step { name: "prometheus", work: Alone(|| prometheus::run(&prometheus::Options::for_ci())) },
    Step { name: "systemd", work: Alone(|| systemd::run(&systemd::Options::for_ci())) },
    Step { name: "p4", work: Alone(|| p4::test(&p4::TestOptions::default())) },
    Step { name: "namespaces", work: Alone(|| namespaces::run(&namespaces::Options::for_ci())) },
];

const CLIPPY: &[&str] = &["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"];
const TEST: &str = "test";
const PROGRAMS: &str = "programs";
/// The faults that the simulator, the fuzz targets, and the conformance vectors in software and in the program of a P4 switch must find; a build of its own, for no other has them.
const MUTANTS: &[&str] = &["test", "--quiet", "--features", "mutants", "--test", "mutants"];
/// Real processes that are killed, for a quarter of a minute.
const SOAK: &[&str] = &[
    "soak",
    "--seconds=15",
    "--standby=1",
    "--loss=0.01",
    "--duplicate=0.01",
    "--reorder=0.05",
    "--kill=switch@3s,worker@6s,controller@9s",
    "--quiet",
];

/// Real processes that are asked to end.
const DRAINS: &[&str] = &[
    "soak",
    "--seconds=14",
    "--log",
    "--standby=1",
    "--loss=0.01",
    "--drain=worker@2s,switch@4s,server@6s,controller@9s,switch@12s",
    "--quiet",
];

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    // What runs beside the steps must not outlive them.
    process::catch_interrupts()?;
    let start = Instant::now();
    let first = match &options.from {
        None => 0,
        Some(from) => STEPS.iter().position(|step| step.name == from).with_context(|| {
            format!("no step {from}: {}", STEPS.iter().map(|step| step.name).collect::<Vec<_>>().join(", "))
        })?,
    };
    let left_out: &[&str] = if options.skip_tests { &[TEST, PROGRAMS] } else { &[] };
    let steps = || STEPS[first..].iter().filter(|step| !left_out.contains(&step.name));
    let build = || shell::build(options.release).map(|()| Outcome::Passed);
    // The tests have just been built, and clippy would have to be waited for.
    if !steps().any(|step| step.name == PROGRAMS) {
        build()?;
    }
    let mut beside = Queue::start()?;
    let mut skipped = Vec::new();
    for (index, step) in steps().enumerate() {
        let run: &dyn Fn() -> Result<Outcome> = match &step.work {
            Beside(command) => {
                beside.add((step.name, *command));
                continue;
            }
            Programs => &build,
            Alone(run) => {
                beside.rest()?;
                run
            }
            Shares(run) => {
                beside.go_on()?;
                run
            }
        };
        process::check_interrupt()?;
        println!("=== {}/{} {}", index + 1, steps().count(), step.name);
        let (begin, processors) = (Instant::now(), Processors::now());
        let ended = run();
        let seconds = in_seconds(begin.elapsed());
        match ended.with_context(|| failed(step.name, &seconds))? {
            Outcome::Passed => println!("=== {} passed in {seconds}{}", step.name, processors.busy_since()),
            Outcome::Skipped(reason) => {
                shell::loudly(&format!("{} SKIPPED: {reason}", step.name));
                skipped.push(step.name);
            }
        }
    }
    beside.finish()?;
    let but = if skipped.is_empty() { String::new() } else { format!(" but SKIPPED {}", skipped.join(", ")) };
    println!("=== CI passed{but} ({} steps in {})", steps().count(), in_seconds(start.elapsed()));
    Ok(Outcome::Passed)
}

fn failed(name: &str, seconds: &str) -> String {
    format!("CI FAILED at step {name} after {seconds}")
}

fn cargo(arguments: &[&str]) -> Result<Outcome> {
    passes(shell::cargo(arguments))
}

fn passes(command: Command) -> Result<Outcome> {
    shell::run(command)?;
    Ok(Outcome::Passed)
}

/// The laboratory, which judges real processes and the simulator.
fn lab(arguments: &[&str]) -> Result<Command> {
    Ok(shell::program(shell::binary("libra-lab", None)?, arguments))
}

/// The paper's evaluation, of a small part of the data.
fn paper() -> Result<Command> {
    let report = shell::target_directory()?.join("paper-report");
    let out = format!("--out={}", report.display());
    lab(&["bench", "paper", "--quick", "--quiet", &out])
}

fn doc() -> Result<Command> {
    let mut command = shell::cargo(&["doc", "--quiet", "--workspace", "--no-deps"]);
    command.env("RUSTDOCFLAGS", "-Dwarnings");
    Ok(command)
}

fn in_seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}
