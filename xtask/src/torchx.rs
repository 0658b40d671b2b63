//! `cargo xtask torchx`: the component of `libra_ps.torchx`, run on this machine by TorchX.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::findings::{Finding, Findings, StepOptions};
use crate::process::{self, Running};
use crate::report::Report;
use crate::{Outcome, shell};

const COMPONENT: &str = "python/libra_ps/torchx.py:job";
const ROLES: &[&str] = &["controller", "server", "switch", "worker"];
const LIMIT: Duration = Duration::from_secs(100);

pub(crate) fn run(options: &StepOptions) -> Result<Outcome> {
    let target = shell::target_directory()?;
    let packages = target.join("tools/torchx");
    if shell::output(torchx(&packages, &["--version"])).is_err() {
        let reason = format!("torchx is not in {}: .ci/run installs it", packages.display());
        return options.skip(reason);
    }
    process::catch_interrupts()?;
    let libra = options.binary()?;
    let folder = target.join("torchx");
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut findings = Findings::default();
    findings.note("local_cwd trains", trains(&packages, &folder, &libra));
    findings.note("script for Slurm", script(&packages));
    findings.outcome(options.required)
}

fn torchx(packages: &Path, arguments: &[&str]) -> Command {
    let mut command = shell::program("python3", &["-m", "torchx.cli.main"]);
    command.env("PYTHONPATH", packages).args(arguments);
    command
}

fn trains(packages: &Path, folder: &Path, libra: &Path) -> Result<Finding> {
    let port = process::free_address()?.port().to_string();
    let json = folder.join("report.json");
    let logs = format!("log_dir={}", folder.join("logs").display());
    let job_options = format!("epochs=2,quiet,json={}", json.display());
    let mut command = torchx(packages, &["run", "--scheduler=local_cwd", "--wait", "-cfg", &logs, COMPONENT]);
    command.arg("--libra").arg(libra).args(["--port", &port, "--options", &job_options]);
    Running::start("torchx", command, folder.join("torchx.log"))?.finish(LIMIT)?;
    let report = Report::read(&json)?;
    report.check_work()?;
    Ok(Finding::Passed(report.summary()))
}

/// The script is made and not run: one member that ends with anything but 0 ends the job there.
fn script(packages: &Path) -> Result<Finding> {
    let arguments = ["run", "--dryrun", "--scheduler=slurm", "-cfg", "partition=all", COMPONENT];
    let printed = shell::output(torchx(packages, &arguments))?;
    for role in ROLES {
        ensure!(printed.contains(&format!("exec libra {role} ")), "there is no {role}:\n{printed}");
    }
    let first = "--controller=\"${SLURM_JOB_NODELIST_HET_GROUP_0:-127.0.0.1}\":7700";
    ensure!(printed.contains(first), "members do not call the machine of the first role:\n{printed}");
    Ok(Finding::Passed(format!("{} roles, which call the machine of the first", ROLES.len())))
}
