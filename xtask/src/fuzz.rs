//! `cargo xtask fuzz`: random inputs for every fuzz target. They are tests of `cargo test`, with more time.

use std::process::Command;

use anyhow::Result;
use clap::Args;

use crate::{Outcome, shell};

/// Milliseconds of random inputs for each target, for the library that makes them.
pub(crate) const TIME: &str = "BOLERO_RANDOM_TEST_TIME_MS";
/// Time of each target in CI. That of the program in the kernel is a part of `cargo xtask xdp`.
pub(crate) const SECONDS: u64 = 5;
/// Begins the name of every target.
const TARGETS: &str = "fuzz_";

#[derive(Args)]
pub(crate) struct Options {
    /// Seconds of random inputs for each target
    #[arg(long, default_value_t = SECONDS, value_name = "N")]
    seconds: u64,
    /// Targets that run at the same time
    #[arg(long, default_value_t = 2, value_name = "N")]
    jobs: u16,
    /// Runs only targets whose name contains this, such as fuzz_logs
    #[arg(long, default_value = TARGETS, value_name = "NAME")]
    target: String,
}

impl Options {
    pub(crate) fn for_ci() -> Self {
        Self { seconds: SECONDS, jobs: 2, target: TARGETS.to_owned() }
    }
}

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    shell::run(command(options))?;
    Ok(Outcome::Passed)
}

pub(crate) fn command(options: &Options) -> Command {
    // Of all packages: with a part of them, dependencies would be built again with fewer features.
    let mut arguments = vec!["test", "--quiet", "--lib", "--test", "targets"];
    let threads = format!("--test-threads={}", options.jobs);
    arguments.extend(["--", "--nocapture", &threads, &options.target]);
    let mut test = shell::cargo(&arguments);
    test.env(TIME, options.seconds.saturating_mul(1000).to_string());
    test
}
