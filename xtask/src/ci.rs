//! The whole pipeline, step by step; the first step that fails ends it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;

use crate::{
    Outcome, book, container, doctor, examples, findings, flood, forge, fuzz, kubernetes, namespaces, no_std,
    p4, prometheus, python, ray, readme, shell, slurm, smoke, systemd, tidy, torchx, xdp,
};

#[derive(Args)]
pub(crate) struct Options {
    /// Leaves `cargo test` out, for a caller that has just run it
    #[arg(long)]
    skip_tests: bool,
    /// Begins at this step, after one was mended
    #[arg(long, value_name = "STEP")]
    from: Option<String>,
}

type Step = (&'static str, fn() -> Result<Outcome>);

/// Cheap steps first: a slip shows within seconds.
const STEPS: &[Step] = &[
    ("fmt", || cargo(&["fmt", "--all", "--check"])),
    ("tidy", tidy::run),
    ("clippy", || cargo(&["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"])),
    ("doc", doc),
    ("book", book::run),
    (TEST, || cargo(&["test"])),
    ("test xtask", || cargo(&["test", "--quiet", "--package", "xtask"])),
    ("fuzz", || fuzz::run(&fuzz::Options::for_ci())),
    ("no-std", || no_std::run(&no_std::Options::default())),
    ("release build", || cargo(&["build", "--quiet", "--release", "--bin", "libra", "--bin", "libra-lab"])),
    ("README commands", readme::check_with_binary),
    ("smoke", smoke::run),
    ("examples", examples::run),
    ("python", || python::run(&python::Options::default())),
    ("ray", || ray::run(&ray::Options::default())),
    ("simulation", || lab(&["sim", "--seeds", "0..300"])),
    ("simulation of open work", || lab(&["sim", "--seeds", "10000..10100"])),
    ("mutants", || cargo(MUTANTS)),
    ("soak", || lab(SOAK)),
    ("soak of drains", || lab(DRAINS)),
    ("flood", || flood::run(&flood::Options::for_ci())),
    ("paper", paper),
    ("xdp", || xdp::run(&xdp::Options::default())),
    ("forged answers", || forge::run(&forge::Options::for_ci())),
    ("doctor", || doctor::run(&doctor::Options::default())),
    ("prometheus", || prometheus::run(&prometheus::Options::for_ci())),
    ("systemd", || systemd::run(&systemd::Options::for_ci())),
    ("torchx", || torchx::run(&findings::StepOptions::default())),
    ("container", || container::run(&findings::StepOptions::default())),
    ("kubernetes", || kubernetes::run(&findings::StepOptions::default())),
    ("slurm", || slurm::run(&findings::StepOptions::default())),
    ("p4", || p4::test(&p4::TestOptions::default())),
    ("namespaces", || namespaces::run(&namespaces::Options::for_ci())),
];

const TEST: &str = "test";
/// The faults that the simulator, the fuzz targets, and the conformance vectors in software and in the program of a P4 switch must find; a build of its own, for no other has them.
const MUTANTS: &[&str] = &["test", "--quiet", "--release", "--features", "mutants", "--test", "mutants"];
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
    let start = Instant::now();
    let first = match &options.from {
        None => 0,
        Some(from) => STEPS.iter().position(|(name, _)| name == from).with_context(|| {
            format!("no step {from}: {}", STEPS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "))
        })?,
    };
    let steps: Vec<Step> =
        STEPS[first..].iter().copied().filter(|(name, _)| !(options.skip_tests && *name == TEST)).collect();
    let mut skipped = Vec::new();
    for (index, (name, step)) in steps.iter().enumerate() {
        println!("=== {}/{} {name}", index + 1, steps.len());
        let begin = Instant::now();
        let ended = step();
        let seconds = in_seconds(begin.elapsed());
        match ended.with_context(|| format!("CI FAILED at step {name} after {seconds}"))? {
            Outcome::Passed => println!("=== {name} passed in {seconds}"),
            Outcome::Skipped(reason) => {
                shell::loudly(&format!("{name} SKIPPED: {reason}"));
                skipped.push(*name);
            }
        }
    }
    let but = if skipped.is_empty() { String::new() } else { format!(" but SKIPPED {}", skipped.join(", ")) };
    println!("=== CI passed{but} ({} steps in {})", steps.len(), in_seconds(start.elapsed()));
    Ok(Outcome::Passed)
}

fn cargo(arguments: &[&str]) -> Result<Outcome> {
    shell::run(shell::cargo(arguments))?;
    Ok(Outcome::Passed)
}

/// The laboratory of the release build.
fn lab(arguments: &[&str]) -> Result<Outcome> {
    shell::run(shell::program(shell::target_directory()?.join("release/libra-lab"), arguments))?;
    Ok(Outcome::Passed)
}

/// The paper's evaluation, of a small part of the data.
fn paper() -> Result<Outcome> {
    let report = shell::target_directory()?.join("paper-report");
    let out = format!("--out={}", report.display());
    lab(&["bench", "paper", "--quick", "--quiet", &out])
}

fn doc() -> Result<Outcome> {
    let mut command = shell::cargo(&["doc", "--quiet", "--workspace", "--no-deps"]);
    command.env("RUSTDOCFLAGS", "-Dwarnings");
    shell::run(command)?;
    Ok(Outcome::Passed)
}

fn in_seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}
