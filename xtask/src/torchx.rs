//! `cargo xtask torchx`: the component of `libra_ps.torchx`, run on this machine by TorchX, and what it would ask Slurm and Kubernetes for.

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
    shell::remove_directory(&folder)?;
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut findings = Findings::default();
    findings.note("local_cwd trains", trains(&packages, &folder, &libra));
    for (name, request) in REQUESTS {
        findings.note(name, request.is_complete(&packages));
    }
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

/// The request of TorchX to a scheduler, made and not run: one member that ends with anything but 0 ends the job there.
struct Request {
    scheduler: &'static str,
    configuration: &'static str,
    /// Module of Python that the scheduler is made with.
    module: &'static str,
    /// The machine of the first role, as members of the others are told.
    first: &'static str,
    /// The way in which it says that no member is started again.
    no_retry: &'static str,
}

const REQUESTS: &[(&str, Request)] = &[
    (
        "script for Slurm",
        Request {
            scheduler: "slurm",
            configuration: "partition=all",
            module: "torchx",
            first: "\"${SLURM_JOB_NODELIST_HET_GROUP_0:-127.0.0.1}\":7700",
            no_retry: "--kill-on-bad-exit=1",
        },
    ),
    (
        "job for Kubernetes",
        Request {
            scheduler: "kubernetes",
            configuration: "namespace=training,queue=default",
            module: "kubernetes",
            first: "\"${VC_CONTROLLER_0_HOSTS:-127.0.0.1}\":7700",
            no_retry: "restartPolicy: Never",
        },
    ),
];

impl Request {
    fn is_complete(&self, packages: &Path) -> Result<Finding> {
        let mut import = shell::program("python3", &["-c", &format!("import {}", self.module)]);
        import.env("PYTHONPATH", packages);
        if shell::output(import).is_err() {
            let reason = format!("{} is not in {}: .ci/run installs it", self.module, packages.display());
            return Ok(Finding::Skipped(reason));
        }
        let scheduler = format!("--scheduler={}", self.scheduler);
        // Without a workspace no image is made of this directory, which docker would do.
        let run = ["run", "--dryrun", &scheduler, "--workspace=", "-cfg", self.configuration, COMPONENT];
        let member = ["--image=registry.example.org/libra", "--token_file=/etc/libra/token"];
        let printed = shell::output(torchx(packages, &[&run[..], &member].concat()))?;
        let (_, asked) = printed.split_once("=== SCHEDULER REQUEST ===").context("nothing is asked for")?;
        // Lines are broken between words.
        let asked = asked.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut members = 0;
        for role in ROLES {
            let command = format!("exec libra {role} --token-file=/etc/libra/token ");
            let count = asked.matches(&command).count();
            ensure!(
                count == if matches!(*role, "server" | "worker") { 2 } else { 1 },
                "{count} x {role}:\n{printed}"
            );
            members += count;
        }
        let calls = asked.matches(&format!("--controller={}", self.first)).count();
        ensure!(calls == members - 1, "{calls} members call the machine of the first role:\n{printed}");
        let ends = asked.matches(self.no_retry).count();
        ensure!(ends == members, "{ends} members have {}:\n{printed}", self.no_retry);
        Ok(Finding::Passed(format!(
            "{members} members, which call the machine of the first; none is started again"
        )))
    }
}
