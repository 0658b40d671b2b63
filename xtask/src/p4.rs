//! `cargo xtask p4`: the program of a P4 switch, where the tools are. For bmv2 that is `p4c-bm2-ss`, `simple_switch` and
//! `simple_switch_CLI` on the PATH, and root for network namespaces; for Tofino it is p4c with that back-end. What needs none of them
//! `cargo test` does.

mod tofino;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};

use crate::{Outcome, shell};

const BMV2_TOOLS: [&str; 3] = ["p4c-bm2-ss", "simple_switch", "simple_switch_CLI"];

#[derive(Args, Default)]
pub(crate) struct Options {
    /// Fails instead of skipping when this machine cannot do it
    #[arg(long)]
    required: bool,
    /// One of the two alone
    #[arg(long, value_enum)]
    target: Option<Target>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Target {
    /// Runs the program and compares it with the data plane in software
    Bmv2,
    /// Compiles and assembles the program, and checks that it is one pass of at most 12 stages
    Tofino,
}

pub(crate) fn run(options: &Options) -> Result<Outcome> {
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
            "bmv2: {} must be on the PATH, see docs/p4.md",
            missing.join(", ")
        )));
    }
    if shell::output(shell::program("id", &["-u"]))?.trim() != "0" {
        return Ok(Outcome::Skipped("bmv2: network namespaces need root".to_owned()));
    }
    let mut test = shell::cargo(&["test", "--quiet", "--package", "libra-p4"]);
    test.env("LIBRA_P4_REQUIRED", "1");
    shell::run(test)?;
    Ok(Outcome::Passed)
}

/// Which of these are not on the PATH.
fn missing<'a>(tools: &[&'a str]) -> Vec<&'a str> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |tool: &str| std::env::split_paths(&path).any(|folder| folder.join(tool).is_file());
    tools.iter().copied().filter(|tool| !is_there(tool)).collect()
}
