//! `cargo xtask p4 test`: the program of a P4 switch, where the tools are. For bmv2 that is `p4c-bm2-ss`, `simple_switch` and
//! `simple_switch_CLI` on the PATH, and root for network namespaces; for Tofino it is p4c with that back-end. What needs none of them
//! `cargo test` does.

mod tofino;

use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand, ValueEnum};

use crate::namespaces::ip::Network;
use crate::namespaces::{self, HOSTS, Job, SWITCH};
use crate::{Outcome, process, shell};

const BMV2_TOOLS: [&str; 3] = ["p4c-bm2-ss", "simple_switch", "simple_switch_CLI"];

/// Address of the bmv2 of the training, for workers.
const SWITCH_ADDRESS: &str = "10.77.0.200:4700";
const WORKERS_INTERFACE: &str = "workers";
/// Time that a training, and a soak, may take with bmv2, which handles about a thousand packets a second.
const LIMIT: Duration = Duration::from_secs(420);

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    test: TestOptions,
}

#[derive(Subcommand)]
enum Command {
    /// Tests the program; what is done where no command is named
    Test(TestOptions),
}

#[derive(Args, Default)]
pub(crate) struct TestOptions {
    /// Fails instead of skipping when this machine cannot do it
    #[arg(long)]
    required: bool,
    /// One of the two alone
    #[arg(long, value_enum)]
    target: Option<Target>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Target {
    /// Runs the program, and compares it with the data plane in software and with the vectors in `conformance/`
    Bmv2,
    /// Compiles and assembles the program, and checks that it is one pass of at most 12 stages
    Tofino,
}

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    test(options.of_test())
}

impl Options {
    fn of_test(&self) -> &TestOptions {
        match &self.command {
            Some(Command::Test(options)) => options,
            None => &self.test,
        }
    }
}

pub(crate) fn test(options: &TestOptions) -> Result<Outcome> {
    let mut reasons = Vec::new();
    for target in [Target::Bmv2, Target::Tofino] {
        if options.target.is_some_and(|only| only != target) {
            continue;
        }
        let outcome = match target {
            Target::Bmv2 => run_bmv2()?,
            Target::Tofino => tofino::run()?,
        };
        if let Outcome::Skipped(reason) = outcome {
            reasons.push(reason);
        }
    }
    if reasons.is_empty() {
        return Ok(Outcome::Passed);
    }
    let reason = reasons.join("; ");
    if options.required {
        bail!("not all of the program of a P4 switch was checked: {reason}");
    }
    Ok(Outcome::Skipped(reason))
}

fn run_bmv2() -> Result<Outcome> {
    let missing = missing(&BMV2_TOOLS);
    if !missing.is_empty() {
        return Ok(Outcome::Skipped(format!(
            "bmv2: {} must be on the PATH, see docs/operating/p4.md",
            missing.join(", ")
        )));
    }
    if let Err(error) = namespaces::ip::permitted() {
        return Ok(Outcome::Skipped(format!("bmv2: {error:#}")));
    }
    shell::test(&["libra-p4", "libra-p4model"], &[("LIBRA_P4_REQUIRED", "1")])?;
    let program = shell::target_directory()?.join("libra-p4.json");
    let program = program.to_str().context("the target directory has a name of UTF-8")?;
    let source = "crates/backends/p4/program/libra_v1model.p4";
    shell::run(shell::program("p4c-bm2-ss", &["--std", "p4-16", "-o", program, source]))?;
    train(program)?;
    soak(program)?;
    Ok(Outcome::Passed)
}

/// A training in step, which has one result whatever its network does, through bmv2 and through the pipeline in software: the same to the last bit.
fn train(program: &str) -> Result<()> {
    process::catch_interrupts()?;
    let options = [
        "--data=synthetic",
        "--model=gmf",
        "--factors=2",
        "--mode=sync",
        "--epochs=1",
        "--batch=16384",
        // Every row is hot, and what is cold all the same, a layer of two weights, stays as it was: the order in which servers receive cold pushes
        // is chance, and floats have other sums in another order.
        "--sample=1",
        "--hot-share=1",
        "--hot-slots=32000",
        "--layer-optimizer=sgd:lr=1e-30",
        "--lanes=16",
        "--register-size=2048",
        // A round ends with the pushes of both workers, and not before one of them: what an optimizer makes of two sums is not what it
        // makes of one.
        "--round-ms=10000",
    ];
    let options = options.map(str::to_owned).to_vec();
    let job = Job::new("p4", &shell::programs(&["libra"])?, "synthetic".to_owned(), options, LIMIT)?;
    let network = Network::new(HOSTS)?;
    network.add_switch_port(SWITCH, WORKERS_INTERFACE)?;
    let software =
        job.cluster(&network, &[], "mac").context("a training through the pipeline in software")?;
    let p4 = ["--plane=p4", "--bmv2", program, "--interface", WORKERS_INTERFACE, "--listen", SWITCH_ADDRESS];
    let bmv2 = job.cluster(&network, &p4, "cookie").context("a training through bmv2")?;
    println!("software: {}", software.summary());
    println!("bmv2:     {}", bmv2.summary());
    for report in [&software, &bmv2] {
        if report.number("switch.rounds") == 0.0 {
            bail!("a training did not go through its switch");
        }
    }
    for quality in ["quality.hr10", "quality.ndcg10", "quality.loss"] {
        let (software, bmv2) = (software.number(quality), bmv2.number(quality));
        if software.to_bits() != bmv2.to_bits() {
            bail!("{quality} is {bmv2} through bmv2, and {software} through the pipeline in software");
        }
    }
    Ok(())
}

/// Known numbers through bmv2, with loss and duplication, and with a switch that is killed.
fn soak(program: &str) -> Result<()> {
    let lab = shell::binary("libra-lab", None)?;
    let mut soak = shell::program(&lab, &["soak", "--plane=p4", "--bmv2", program, "--lanes=16"]);
    soak.args(["--servers=1", "--seconds=30", "--loss=0.01", "--duplicate=0.02", "--kill=switch@12s"]);
    shell::run(soak)
}

/// Returns the tools that are not on the PATH.
fn missing<'a>(tools: &[&'a str]) -> Vec<&'a str> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |tool: &str| std::env::split_paths(&path).any(|folder| folder.join(tool).is_file());
    tools.iter().copied().filter(|tool| !is_there(tool)).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn parsed(words: &str) -> Option<(bool, bool)> {
        let line = Line::try_parse_from(std::iter::once("p4").chain(words.split_whitespace())).ok()?;
        let options = line.options.of_test();
        Some((options.required, options.target == Some(Target::Bmv2)))
    }

    #[test]
    fn to_test_is_what_is_done_without_a_command() {
        for words in ["--required --target bmv2", "test --required --target bmv2"] {
            assert_eq!(parsed(words), Some((true, true)), "{words}");
        }
        for words in ["", "test"] {
            assert_eq!(parsed(words), Some((false, false)), "{words}");
        }
        assert_eq!(parsed("--required test"), None, "options are those of the command");
    }
}
