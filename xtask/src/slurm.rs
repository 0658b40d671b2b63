//! `cargo xtask slurm`: the batch script of `deploy/slurm` in a real Slurm of four daemons, which are three nodes with one address.
//!
//! The default job must train; members whose steps are killed, or whose node goes down, must come back; SIGTERM to the script must end
//! all members in order, and the job must go on when Slurm starts it again.

mod cluster;
mod job;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::findings::{Finding, Findings};
use crate::{Outcome, process, shell};
use cluster::Cluster;

#[derive(Args)]
pub(crate) struct Options {
    /// The binary under test, instead of a release build of this checkout
    #[arg(long, value_name = "FILE")]
    libra: Option<PathBuf>,
    /// Fails instead of skipping when something is not installed
    #[arg(long)]
    required: bool,
}

impl Options {
    pub(crate) fn for_ci() -> Self {
        Self { libra: None, required: false }
    }
}

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    if let Some(reason) = cluster::missing() {
        return if options.required { bail!(reason) } else { Ok(Outcome::Skipped(reason)) };
    }
    process::catch_interrupts()?;
    let libra = shell::binary("libra", options.libra.as_deref())?;
    let mut findings = Findings::default();
    let script = shell::root().join("deploy/slurm/libra.sbatch");
    let mut cluster = Cluster::start(&shell::target_directory()?.join("slurm"), libra, script)?;
    findings.note("nodes", cluster.nodes_are_idle());
    type Check = fn(&mut Cluster) -> Result<Finding>;
    let checks: &[(&str, Check)] = &[
        ("default job", job::trains),
        ("members, killed", job::members_return),
        ("node, down", job::node_goes_down),
        ("job, terminated", job::ends_in_order),
        ("job, started again", job::goes_on),
        ("job, cancelled", job::is_cancelled),
    ];
    for (name, check) in checks {
        let found = check(&mut cluster);
        let failed = found.is_err();
        findings.note(name, found);
        if failed {
            break;
        }
    }
    let folder = cluster.folder().to_owned();
    drop(cluster);
    let outcome = findings.outcome(options.required)?;
    // Logs of servers are large; those of a failure are kept.
    std::fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    Ok(outcome)
}
