//! `cargo xtask xdp`: what needs a kernel that runs our programs. The tests of `crates/xdp` that `cargo test` skips without
//! root, then a soak whose switches add up in the kernel, in network namespaces.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};
use clap::Args;

use crate::namespaces::ip;
use crate::{Outcome, shell};

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
    let mut test = shell::cargo(&["test", "--quiet", "--package", "libra-xdp"]);
    test.env("LIBRA_XDP_REQUIRED", "1");
    shell::run(test)?;
    shell::run(shell::cargo(&["build", "--quiet", "--release", "--bin", "libra"]))?;
    shell::run(shell::program(shell::target_directory()?.join("release/libra"), SOAK))?;
    Ok(Outcome::Passed)
}

/// Whether programs can be made and loaded here; if not, why.
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
