//! `cargo xtask systemd`: the units of `deploy/systemd`, verified, and booted in a container whose first process is systemd.
//!
//! The container has the `/usr` of this machine, a network namespace with nothing but loopback, and a job of six units. A server is killed,
//! a worker stands still, the controller is restarted and the switch stopped; the job must end as if by hand.

mod container;
mod job;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::findings::{self, Finding, Findings};
use crate::shell::{self, starts};
use crate::{Outcome, process};
use container::Root;

const ROLES: &[&str] = &["controller", "server", "switch", "worker"];
/// Largest exposure that `systemd-analyze security` may compute, in tenths: up to 4.9 it says "OK".
const EXPOSURE_TENTHS_MAX: u32 = 40;
/// Begins what is the same in all units, but for the lines that begin with one of [`OWN`].
const CONFINEMENT: &str = "# Confinement";
const OWN: &[&str] =
    &["#", "StateDirectory", "CapabilityBoundingSet=", "AmbientCapabilities=", "[Install]", "WantedBy="];

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    step: findings::StepOptions,
    /// Epochs of the job: some 30 s of training are needed
    #[arg(long, value_name = "N", default_value_t = 28)]
    epochs: u32,
}

impl Options {
    pub(crate) fn for_ci() -> Self {
        Self { step: findings::StepOptions::default(), epochs: 28 }
    }
}

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    if !starts("systemd-analyze") {
        let reason = "there is no systemd-analyze (apt-get install systemd)".to_owned();
        return options.step.skip(reason);
    }
    process::catch_interrupts()?;
    let libra = options.step.binary()?;
    let folder = shell::target_directory()?.join("systemd");
    let root = Root::make(&folder, &libra)?;
    let mut findings = Findings::default();
    findings.note("confinement is the same", confinement_is_the_same());
    findings.note("systemd-analyze verify", verify(&root));
    findings.note("exposure", exposure(&root));
    match container::missing() {
        Some(reason) => findings.note("boot", Ok(Finding::Skipped(reason))),
        None => job::boot(root, options.epochs, &mut findings),
    }
    let outcome = findings.outcome(options.step.required)?;
    // Logs of servers are large; those of a failure are kept.
    fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    Ok(outcome)
}

/// The directory of the units under test.
fn sources() -> PathBuf {
    shell::root().join("deploy/systemd")
}

fn unit_of(role: &str) -> String {
    format!("libra-{role}@.service")
}

/// Compares what each unit may do: a line that is added to one and not to the others is a slip.
fn confinement_is_the_same() -> Result<Finding> {
    let mut all = Vec::new();
    for role in ROLES {
        let path = sources().join(unit_of(role));
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        all.push((role, confinement(&text).with_context(|| path.display().to_string())?));
    }
    let (_, first) = &all[0];
    for (role, lines) in &all[1..] {
        ensure!(lines == first, "{} differs from {}:\n{lines:#?}", unit_of(role), unit_of(ROLES[0]));
    }
    Ok(Finding::Passed(format!("{} lines in {} units", first.len(), ROLES.len())))
}

/// The lines of a unit that confine it, without those that are its own.
fn confinement(unit: &str) -> Result<Vec<String>> {
    let (_, section) = unit.split_once(CONFINEMENT).context("it has no such section")?;
    let is_common = |line: &&str| !line.is_empty() && !OWN.iter().any(|own| line.starts_with(own));
    Ok(section.lines().skip(1).filter(is_common).map(str::to_owned).collect())
}

/// Verifies the units beside a binary, with the machine's own units for what they name.
fn verify(root: &Root) -> Result<Finding> {
    for role in ROLES {
        // A complaint is printed, and only some of them are an error.
        let mut command =
            shell::program("systemd-analyze", &["verify", "--man=no", "--recursive-errors=yes"]);
        command.arg(root.verifiable(&unit_of(role))?);
        let output = command.output().context("cannot start systemd-analyze")?;
        let complaints = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success() && complaints.is_empty(), "{}", complaints.trim());
    }
    Ok(Finding::Passed(format!("{} units without complaint", ROLES.len())))
}

fn exposure(root: &Root) -> Result<Finding> {
    let threshold = format!("--threshold={EXPOSURE_TENTHS_MAX}");
    let mut found = Vec::new();
    for role in ROLES {
        let mut command = shell::program("systemd-analyze", &["security", "--offline=true", "--no-pager"]);
        command.arg(&threshold).arg(root.verifiable(&unit_of(role))?);
        let printed = shell::output(command).with_context(|| format!("{role} is too exposed"))?;
        let level = printed.lines().last().and_then(|line| line.split(": ").nth(1));
        let level = level.and_then(|level| level.split(' ').next()).context("no level was printed")?;
        found.push(format!("{role} {level}"));
    }
    Ok(Finding::Passed(format!(
        "{}; the limit is {}",
        found.join(", "),
        f64::from(EXPOSURE_TENTHS_MAX) / 10.0
    )))
}

/// Writes a file of the container.
fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_unit_that_are_its_own_are_left_out() {
        let unit = "[Service]\nType=notify\n\n# Confinement: of a user.\nDynamicUser=yes\nStateDirectory=a\n\
                    CapabilityBoundingSet=\nUMask=0077\n\n[Install]\nWantedBy=multi-user.target\n";
        assert_eq!(confinement(unit).unwrap(), ["DynamicUser=yes", "UMask=0077"]);
        assert!(confinement("[Service]\n").is_err());
    }
}
