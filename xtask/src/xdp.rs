//! `cargo xtask xdp`: what needs a kernel that runs our programs. The tests of `crates/backends/xdp` that `cargo test` skips without
//! root, then soaks whose switches add up in the kernel, in network namespaces; and a benchmark there that is interrupted.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::Value;

use crate::namespaces::ip;
use crate::process::Running;
use crate::{Outcome, fuzz, shell};

/// Processes in namespaces of their own; switches and a worker are killed, packets lost, and the sums compared to the bit.
const SOAK: &[&str] = &[
    "soak",
    "--plane=xdp",
    "--seconds=12",
    "--standby=1",
    "--loss=0.01",
    "--duplicate=0.01",
    "--reorder=0.05",
    "--kill=switch@3s,worker@6s,switch@8s",
    "--quiet",
];

/// Longer than the test waits.
const BENCH: &[&str] = &["bench", "hot-path", "--plane=xdp", "--seconds=600", "--quiet"];
const WAIT_MAX: Duration = Duration::from_secs(30);

#[derive(Args, Default)]
pub(crate) struct Options {
    /// Fails instead of skipping when this machine cannot do it
    #[arg(long)]
    required: bool,
}

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    if let Err(error) = possible() {
        if options.required {
            return Err(error);
        }
        return Ok(Outcome::Skipped(format!("{error:#}")));
    }
    let fuzzing = fuzz::SECONDS.saturating_mul(1000).to_string();
    shell::test(&["libra-xdp"], &[("LIBRA_XDP_REQUIRED", "1"), (fuzz::TIME, &fuzzing)])?;
    let lab = shell::binary("libra-lab", None)?;
    soak(&lab, "off", "off")?;
    soak(&lab, "tls", "mac")?;
    interrupt(&lab)?;
    Ok(Outcome::Passed)
}

/// Runs the soak with streams that are protected so, and checks the tags of its packets.
fn soak(lab: &Path, security: &str, tags: &str) -> Result<()> {
    let json = shell::target_directory()?.join("soak-xdp.json");
    let mut soak = shell::program(lab, SOAK);
    soak.args(["--security", security, "--json"]).arg(&json);
    shell::run(soak)?;
    let text = fs::read_to_string(&json).with_context(|| format!("no report at {}", json.display()))?;
    let report: Value = serde_json::from_str(&text).context("the report of the soak")?;
    let found = report.pointer("/transport/packet_tags");
    if found != Some(&tags.into()) {
        bail!("packets of a soak with --security {security} had tags {found:?}, expected {tags}");
    }
    Ok(())
}

/// Interrupts a benchmark, as a user at a terminal does, and checks whether it leaves network namespaces behind.
fn interrupt(lab: &Path) -> Result<()> {
    let before = namespaces()?;
    let log = shell::target_directory()?.join("interrupted.log");
    let mut bench = Running::start("bench hot-path", shell::program(lab, BENCH), log)?;
    wait_for(|| Ok((namespaces()? != before).then_some(())))
        .with_context(|| format!("no network namespace was made\n{}", bench.tail()))?;
    bench.signal("-INT")?;
    let status = wait_for(|| bench.status()).context("the benchmark goes on after an interrupt")?;
    if status.code() != Some(130) {
        bail!("an interrupted benchmark ended with {status} instead of 130");
    }
    let after = namespaces()?;
    if after != before {
        bail!("an interrupted benchmark left network namespaces behind: {after:?} instead of {before:?}");
    }
    Ok(())
}

fn namespaces() -> Result<BTreeSet<String>> {
    let list = shell::output(shell::program("ip", &["netns", "list"]))?;
    let names = list.lines().filter_map(|line| line.split_whitespace().next());
    Ok(names.map(str::to_owned).collect())
}

fn wait_for<T>(mut ready: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let until = Instant::now() + WAIT_MAX;
    loop {
        if let Some(ready) = ready()? {
            return Ok(ready);
        }
        if Instant::now() > until {
            bail!("waited for {WAIT_MAX:?}");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Fails with the reason if programs cannot be made and loaded here.
fn possible() -> Result<()> {
    if !cfg!(target_os = "linux") {
        bail!("XDP is of Linux");
    }
    let clang = std::env::var("LIBRA_CLANG").unwrap_or_else(|_| "clang".to_owned());
    if Command::new(&clang).arg("--version").output().is_err() {
        bail!("there is no {clang}, so the XDP plane is left out of the build");
    }
    if !Path::new("/sys/fs/bpf").exists() {
        bail!("this kernel runs no programs (it was built without BPF)");
    }
    ip::permitted()
}
