//! `cargo xtask slurm`: the batch script of `deploy/slurm` in a real Slurm of four daemons, which are three nodes with one address.
//!
//! The default job must train; members whose steps are killed or terminated, or whose node goes down, must come back; SIGTERM to the
//! script, when the time of the job is nearly over, must end all members in order, and the job must go on where it was when Slurm starts it
//! again.

mod cluster;
mod job;

use anyhow::{Context, Result};

use crate::findings::{Finding, Findings, StepOptions};
use crate::{Outcome, process, shell};
use cluster::Cluster;

pub(crate) fn run(options: &StepOptions) -> Result<Outcome> {
    if let Some(reason) = cluster::missing() {
        return options.skip(reason);
    }
    process::catch_interrupts()?;
    let libra = options.binary()?;
    let mut findings = Findings::default();
    let script = shell::root().join("deploy/slurm/libra.sbatch");
    let mut cluster = Cluster::start(&shell::target_directory()?.join("slurm"), libra, script)?;
    findings.note("nodes", cluster.nodes_are_idle());
    type Check = fn(&mut Cluster) -> Result<Finding>;
    let checks: &[(&str, Check)] = &[
        ("job of two components", job::is_refused),
        ("default job", job::trains),
        ("program in Python", job::runs_a_program),
        ("members, killed", job::members_return),
        ("node, down", job::node_goes_down),
        ("all members, terminated", job::members_are_terminated),
        ("job, cancelled", job::is_cancelled),
        ("job, out of time", job::ends_in_order),
        ("job, started again", job::goes_on),
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
