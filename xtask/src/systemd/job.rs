//! A job of six units, while they are killed, stopped and restarted.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::container::{Container, Root};
use super::sources;
use crate::findings::{Finding, Findings};
use crate::report::Report;
use crate::{process, shell};

const UNITS: &[(&str, &str)] = &[
    ("controller", "job"),
    ("server", "0"),
    ("server", "1"),
    ("switch", "0"),
    ("worker", "0"),
    ("worker", "1"),
];
const CONTROLLER: &str = "libra-controller@job";
const SERVER: &str = "libra-server@0";
const SWITCH: &str = "libra-switch@0";
const WORKER: &str = "libra-worker@0";
/// Time for a unit to become what it should.
const STEP_MAX: Duration = Duration::from_secs(40);
/// Of a log with which a server has something to go on.
const LOG_BYTES: u64 = 1 << 20;
const JOB_MAX: Duration = Duration::from_secs(120);
const CAP_NET_ADMIN: u64 = 1 << 12;
const CAP_BPF: u64 = 1 << 39;
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Boots the units, and checks one after the other how they start, return and end.
pub(super) fn boot(root: Root, epochs: u32, findings: &mut Findings) {
    let container = match configure(&root, epochs).and_then(|()| root.boot()) {
        Ok(container) => container,
        Err(error) => return findings.note("boot", Err(error)),
    };
    type Check = fn(&Container, &Root) -> Result<Finding>;
    let checks: &[(&str, Check)] = &[
        ("units are ready", |container, _| are_ready(container)),
        ("users and capabilities", |container, _| have_no_rights(container)),
        ("switch in the kernel", |container, _| is_in_kernel(container)),
        ("server, killed", killed_returns),
        ("worker, standing still", |container, _| stands_still(container)),
        ("controller, restarted", |container, _| controller_restarts(container)),
        ("switch, stopped", |container, _| switch_stops(container)),
        ("job ends", job_ends),
    ];
    for (name, check) in checks {
        let found = check(&container, &root);
        let failed = found.is_err();
        findings.note(name, found);
        if failed {
            break;
        }
    }
}

fn configure(root: &Root, epochs: u32) -> Result<()> {
    let token = shell::output(shell::program(root.libra(), &["token"]))?;
    root.configure("token.env", 0o600, &format!("LIBRA_TOKEN={}\n", token.trim()))?;
    root.configure("cluster.env", 0o644, "LIBRA_CONTROLLER=127.0.0.1:7700\n")?;
    let job = format!(
        "LIBRA_WORKERS=2\nLIBRA_SERVERS=2\nLIBRA_SWITCHES=1\nLIBRA_LOG=true\nLIBRA_EPOCHS={epochs}\n"
    );
    root.configure("libra-controller@job.env", 0o644, &job)?;
    // So that the test need not wait for half a minute.
    root.edit("libra-worker@.service", "[Service]\nWatchdogSec=4\n")?;
    let drop_in = sources().join("xdp.conf");
    let text = fs::read_to_string(&drop_in).with_context(|| format!("cannot read {}", drop_in.display()))?;
    root.edit("libra-switch@kernel.service", &text)?;
    root.configure("libra-switch@kernel.env", 0o644, "LIBRA_INTERFACE=lo\n")?;
    for (role, instance) in UNITS {
        root.enable(role, instance)?;
    }
    Ok(())
}

/// Waits until it is so; `what` is the error if it does not become so.
fn wait(container: &Container, limit: Duration, what: &str, is_so: impl Fn() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + limit;
    while !is_so()? {
        process::check_interrupt()?;
        if Instant::now() > deadline {
            let journal = container.inside("journalctl", &["--no-pager", "--lines=30", "--unit=libra-*"])?;
            anyhow::bail!("{what}:\n{journal}");
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

fn is(container: &Container, unit: &str, state: &str) -> Result<bool> {
    Ok(container.property(unit, "ActiveState")? == state)
}

/// With `Type=notify`, a unit is active when its process has said that it is ready.
fn are_ready(container: &Container) -> Result<Finding> {
    let begun = Instant::now();
    for (role, instance) in UNITS {
        let unit = format!("libra-{role}@{instance}");
        wait(container, STEP_MAX, &format!("{unit} is not active"), || is(container, &unit, "active"))?;
    }
    wait(container, STEP_MAX, "training does not begin", || {
        Ok(container.journal(CONTROLLER)?.contains("training begins"))
    })?;
    Ok(Finding::Passed(format!(
        "{} active, training after {:.1} s",
        UNITS.len(),
        begun.elapsed().as_secs_f64()
    )))
}

/// Sets of capabilities of the process of a unit; the first field of its user is the real one.
fn rights(container: &Container, unit: &str) -> Result<(u64, u64, bool)> {
    let id = container.property(unit, "MainPID")?;
    let status = container.inside("cat", &[&format!("/proc/{id}/status")])?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map(|line| line.trim().to_owned()).with_context(|| format!("{unit} has no {name}"))
    };
    let set = |name| Ok::<_, anyhow::Error>(u64::from_str_radix(&field(name)?, 16)?);
    Ok((set("CapEff:")?, set("CapBnd:")?, field("Uid:")?.starts_with("0\t")))
}

/// A standby whose program is attached to loopback: it takes no packet there, and shows that the drop-in lets it start.
fn is_in_kernel(container: &Container) -> Result<Finding> {
    const UNIT: &str = "libra-switch@kernel";
    let started = container.systemctl(&["start", UNIT]);
    let journal = container.journal(UNIT)?;
    if journal.contains("without the XDP plane") {
        return Ok(Finding::Skipped("the binary was built without clang".to_owned()));
    }
    started.with_context(|| journal.clone())?;
    let (effective, _, is_root) = rights(container, UNIT)?;
    ensure!(!is_root && effective == CAP_BPF, "root: {is_root}, CapEff: {effective:x}\n{journal}");
    container.systemctl(&["stop", UNIT])?;
    Ok(Finding::Passed("attached, and left with CAP_BPF alone".to_owned()))
}

fn have_no_rights(container: &Container) -> Result<Finding> {
    for (role, instance) in UNITS {
        let unit = format!("libra-{role}@{instance}");
        let (effective, bounding, is_root) = rights(container, &unit)?;
        let expected = if *role == "switch" { CAP_NET_ADMIN } else { 0 };
        ensure!(
            !is_root && (effective, bounding) == (expected, expected),
            "{unit}: root: {is_root}, CapEff: {effective:x}, CapBnd: {bounding:x}, expected {expected:x}"
        );
    }
    Ok(Finding::Passed("none is root; the switch has CAP_NET_ADMIN alone, the others none".to_owned()))
}

/// Waits until a unit was started again by itself, and is ready.
fn returned(container: &Container, unit: &str) -> Result<()> {
    wait(container, STEP_MAX, &format!("{unit} does not return"), || {
        Ok(container.property(unit, "NRestarts")? == "1" && is(container, unit, "active")?)
    })
}

fn killed_returns(container: &Container, root: &Root) -> Result<Finding> {
    wait(container, STEP_MAX, "the server has no log", || Ok(bytes(&root.state(SERVER))? > LOG_BYTES))?;
    container.systemctl(&["kill", "--signal=KILL", SERVER])?;
    let begun = Instant::now();
    returned(container, SERVER)?;
    wait(container, STEP_MAX, "the controller does not see it", || {
        Ok(container.journal(CONTROLLER)?.contains("is back after"))
    })?;
    let seconds = begun.elapsed().as_secs_f64();
    let journal = container.journal(SERVER)?;
    let records: Vec<_> = journal.lines().filter_map(|line| line.split_once(" goes on with ")).collect();
    ensure!(!records.is_empty(), "it has begun with nothing:\n{journal}");
    Ok(Finding::Passed(format!("after {seconds:.1} s it goes on with {}", records[0].1)))
}

/// Bytes of all files in a directory.
fn bytes(directory: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(directory).with_context(|| format!("cannot list {}", directory.display()))? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        sum += if metadata.is_dir() { bytes(&entry.path())? } else { metadata.len() };
    }
    Ok(sum)
}

fn stands_still(container: &Container) -> Result<Finding> {
    container.systemctl(&["kill", "--signal=STOP", WORKER])?;
    returned(container, WORKER)?;
    let journal = container.journal(WORKER)?;
    ensure!(journal.contains("Watchdog timeout"), "it was not the watchdog:\n{journal}");
    Ok(Finding::Passed("the watchdog ends it, and it is started again".to_owned()))
}

fn controller_restarts(container: &Container) -> Result<Finding> {
    let before = container.property(CONTROLLER, "MainPID")?;
    container.systemctl(&["restart", CONTROLLER])?;
    let after = container.property(CONTROLLER, "MainPID")?;
    ensure!(before != after, "it is the same process");
    wait(container, STEP_MAX, "it does not take the job over", || {
        let journal = container.journal(CONTROLLER)?;
        Ok(journal
            .lines()
            .rev()
            .take_while(|line| !line.contains("Started "))
            .any(|line| line.contains("took over")))
    })?;
    Ok(Finding::Passed("another process takes the job over".to_owned()))
}

/// It ends with 75, which is no failure when it was asked to.
fn switch_stops(container: &Container) -> Result<Finding> {
    container.systemctl(&["stop", SWITCH])?;
    let property = |name| container.property(SWITCH, name);
    let found = (property("ActiveState")?, property("Result")?, property("ExecMainStatus")?);
    let expected = ("inactive".to_owned(), "success".to_owned(), "75".to_owned());
    ensure!(found == expected, "{found:?}");
    container.systemctl(&["start", SWITCH])?;
    Ok(Finding::Passed("inactive with exit code 75, and started again".to_owned()))
}

/// All but the switch are inactive at the end; that waits for the next job.
fn job_ends(container: &Container, root: &Root) -> Result<Finding> {
    for (role, instance) in UNITS.iter().filter(|(role, _)| *role != "switch") {
        let unit = format!("libra-{role}@{instance}");
        wait(container, JOB_MAX, &format!("{unit} does not end"), || is(container, &unit, "inactive"))?;
        let status = container.property(&unit, "ExecMainStatus")?;
        ensure!(status == "0", "{unit} ended with {status}:\n{}", container.journal(&unit)?);
    }
    wait(container, STEP_MAX, "the switch does not wait for the next job", || {
        Ok(container.property(SWITCH, "NRestarts")? == "1" && is(container, SWITCH, "active")?)
    })?;
    let report = Report::read(&root.state(CONTROLLER).join("report.json"))?;
    report.check_work()?;
    Ok(Finding::Passed(report.summary()))
}
