//! `cargo xtask ray`: jobs on a Ray cluster of three nodes, each in a network namespace, whose processes and nodes are killed and drained.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;

use crate::namespaces::ip::{self, Network};
use crate::process::{self, Running};
use crate::{Outcome, python, shell};

/// Nodes of the cluster; the tests run at the first.
const NODES: &[&str] = &["ray0", "ray1", "ray2"];
const CONSTRAINTS: &str = "python/tests/on_ray/constraints.txt";
/// Time of the tests, which take four minutes on two cores, and that of all with the long ones. Others may use the cores, too.
const LIMIT: Duration = Duration::from_secs(480);
const LIMIT_OF_ALL: Duration = Duration::from_secs(900);
/// Start of the line of the tests that names those which were left out.
const LEFT_OUT: &str = "left out: ";

#[derive(Args, Default)]
pub(crate) struct Options {
    /// The binary under test, instead of a release build of this checkout
    #[arg(long, value_name = "FILE")]
    libra: Option<PathBuf>,
    /// Directory with the installed package libra_ps, instead of a wheel of this checkout
    #[arg(long, value_name = "DIR")]
    site: Option<PathBuf>,
    /// Also tests of a minute or more: DLRM in Ray Train, drivers that are lost, raw logs that become data
    #[arg(long)]
    all: bool,
    /// Tests to run, as `pytest -k` takes them, long ones too
    #[arg(long, value_name = "EXPRESSION")]
    tests: Option<String>,
    /// Measures instead: samples/s on Ray and of the same processes by hand, in so many rounds
    #[arg(long, value_name = "N", conflicts_with = "tests")]
    rounds: Option<u32>,
    /// Samples of DLRM in Ray Train: a million tell its AUC to 0.002
    #[arg(long, value_name = "N")]
    rows: Option<u32>,
    /// Fails instead of skipping when this machine cannot do it
    #[arg(long)]
    required: bool,
}

/// Returns the interpreter of an environment with Ray, which is made if it is not there.
pub(crate) fn environment() -> Result<PathBuf> {
    python::environment_of(CONSTRAINTS)
}

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    let prepared = ip::permitted().and_then(|()| {
        process::catch_interrupts()?;
        environment()
    });
    let python = match prepared {
        Ok(python) => python,
        Err(error) if !options.required => return Ok(Outcome::Skipped(format!("{error:#}"))),
        Err(error) => return Err(error),
    };
    let is_short = !options.all && options.tests.is_none() && options.rounds.is_none();
    if !python::lend_torch(&python)? && !is_short {
        shell::loudly("Ray Train SKIPPED: `cargo xtask python` has installed no torch");
    }
    let site = match &options.site {
        Some(site) => site.canonicalize().context("--site")?,
        None => python::site(&python)?,
    };
    let libra = shell::binary("libra", options.libra.as_deref())?;
    let folder = shell::target_directory()?.join("ray");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;

    let network = Network::new(NODES).context("network namespaces are permitted, but not what they need")?;
    let named: Vec<_> = NODES
        .iter()
        .enumerate()
        .map(|(index, node)| format!("{}={}", network.namespace(node), ip::address(index)))
        .collect();
    let mut command = network.command(NODES[0]);
    command.arg(&python).args(["-m", "pytest", "-rs", "--durations=0", "python/tests/on_ray"]);
    // Warnings of Ray are not ours.
    command.args(["--override-ini=filterwarnings=default", "--override-ini=cache_dir=target/ray/pytest"]);
    if let Some(rounds) = options.rounds {
        command.args(["-s", "-k=throughput"]).env("LIBRA_RAY_ROUNDS", rounds.to_string());
    }
    command.envs(options.rows.map(|rows| ("LIBRA_RAY_ROWS", rows.to_string())));
    command.args(options.tests.as_deref().map(|tests| format!("-k={tests}")));
    command.args(is_short.then_some("-m=not long"));
    command.env("PYTHONPATH", &site).env_remove("PYTHONHOME").env_remove("RAY_ADDRESS");
    command.env("LIBRA_BINARY", &libra).env("LIBRA_RAY_NODES", named.join(","));
    let tests = Running::start("pytest", command, folder.join("pytest.log"))?;
    println!("tests run; what they print is in {}", folder.join("pytest.log").display());
    let result = tests.finish(if is_short { LIMIT } else { LIMIT_OF_ALL });
    let left = network.kill();
    let printed = fs::read_to_string(folder.join("pytest.log")).unwrap_or_default();
    println!(
        "{}",
        printed
            .lines()
            .filter(|line| line.contains(" passed") || line.contains("s call ") || line.contains(" by hand"))
            .collect::<Vec<_>>()
            .join("\n")
    );
    result?;
    left?;
    let left_out = printed.lines().find_map(|line| line.strip_prefix(LEFT_OUT)).filter(|_| is_short);
    if let Some(tests) = left_out {
        println!("left out, for `cargo xtask ray --all`: {tests}");
    }
    Ok(Outcome::Passed)
}
