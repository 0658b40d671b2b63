//! `cargo xtask forge`: soaks beside a forger of answers of the switch. An attacker on the path sees each answer and can write
//! another with its header; none of them may change what is counted (rule T17 of docs/reference/protocol.md).

mod forger;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::namespaces::ip::{self, Network};
use crate::process::{self, Running};
use crate::{Outcome, shell};

/// The one namespace, of which only loopback is used.
const HOST: &str = "soak";
/// Time that a soak may take beyond its own.
const ENDING: Duration = Duration::from_secs(60);

#[derive(Args)]
pub(crate) struct Options {
    /// Soaks, one after the other, each with another seed
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seconds that the workers of each push; two switches are killed meanwhile
    #[arg(long, value_name = "S", default_value_t = 16, value_parser = clap::value_parser!(u64).range(8..=600))]
    seconds: u64,
    /// Milliseconds between two volleys: to each worker a forged answer of every kind and for every reason
    #[arg(long, value_name = "MS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    every: u64,
    /// The binary under test, instead of a release build of this checkout
    #[arg(long, value_name = "FILE")]
    libra: Option<std::path::PathBuf>,
    /// Fails instead of skipping when this machine does not allow it
    #[arg(long)]
    required: bool,
}

impl Options {
    /// Options of CI.
    pub(crate) fn for_ci() -> Self {
        Self { rounds: 1, seconds: 10, every: 5, libra: None, required: false }
    }
}

/// The command that this program runs in the namespace.
#[derive(Args)]
pub(crate) struct ForgerOptions {
    #[arg(long)]
    every: u64,
    #[arg(long)]
    seconds: u64,
}

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    if let Err(error) = ip::permitted() {
        if options.required {
            return Err(error);
        }
        return Ok(Outcome::Skipped(format!("{error:#}")));
    }
    process::catch_interrupts()?;
    let libra = shell::binary("libra-lab", options.libra.as_deref())?;
    let mut wrong = Vec::new();
    for round in 1..=options.rounds {
        let network = Network::new(&[HOST])?;
        let sent = soak(options, &network, &libra, round).with_context(|| format!("round {round}"));
        match sent {
            Ok(account) => println!("round {round}: equal to the bit; {account}"),
            Err(error) => {
                println!("{error:#}");
                wrong.push(round.to_string());
            }
        }
        process::check_interrupt()?;
    }
    if !wrong.is_empty() {
        bail!("{} of {} soaks went wrong: {}", wrong.len(), options.rounds, wrong.join(", "));
    }
    Ok(Outcome::Passed)
}

/// One soak in a namespace, beside the forger. Returns the forger's report.
fn soak(options: &Options, network: &Network, libra: &std::path::Path, round: u32) -> Result<String> {
    let logs = shell::target_directory()?;
    let mut forger = network.command(HOST);
    forger.arg(std::env::current_exe().context("cannot find the path of this program")?);
    forger.arg("forger");
    // It begins before the soak and ends with it.
    let longest = options.seconds + ENDING.as_secs();
    forger.args([format!("--every={}", options.every), format!("--seconds={longest}")]);
    let mut forger = Running::start("forger", forger, logs.join("forger.log"))?;
    let mut soak = network.command(HOST);
    let (first, second) = (options.seconds * 6 / 16, options.seconds * 10 / 16);
    soak.arg(libra).args([
        "soak",
        "--workers=3",
        "--servers=2",
        "--switches=1",
        "--quiet",
        &format!("--seconds={}", options.seconds),
        &format!("--seed={round}"),
        &format!("--kill=switch@{first}s,switch@{second}s"),
    ]);
    let soak = Running::start("soak", soak, logs.join("forge-soak.log"))?;
    soak.finish(Duration::from_secs(longest))?;
    if let Some(status) = forger.status()? {
        bail!("the forger ended before the soak ({status})\n{}", forger.tail());
    }
    forger.signal("-TERM")?;
    let deadline = Instant::now() + ENDING;
    process::wait(std::slice::from_mut(&mut forger), deadline)?;
    let tail = forger.tail();
    let account = tail.lines().last().unwrap_or_default().trim().to_owned();
    if !account.starts_with("forged") {
        bail!("the forger has written no report\n{tail}");
    }
    Ok(account)
}

pub(crate) fn forge(options: &ForgerOptions) -> Result<Outcome> {
    process::catch_interrupts()?;
    let every = Duration::from_millis(options.every);
    let account = forger::run(every, Duration::from_secs(options.seconds))?;
    println!("{account}");
    Ok(Outcome::Passed)
}
