//! `cargo xtask p4`: the program of a P4 switch in bmv2, where the tools are: `p4c-bm2-ss`, `simple_switch` and `simple_switch_CLI` on the
//! PATH, and root for network namespaces. What needs none of them `cargo test` does.

use anyhow::{Result, bail};
use clap::Args;

use crate::{Outcome, shell};

const TOOLS: [&str; 3] = ["p4c-bm2-ss", "simple_switch", "simple_switch_CLI"];

#[derive(Args, Default)]
pub(crate) struct Options {
    /// Fails instead of skipping when this machine cannot do it
    #[arg(long)]
    required: bool,
}

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    let missing: Vec<&str> = TOOLS.into_iter().filter(|tool| !is_on_the_path(tool)).collect();
    let reason = if !missing.is_empty() {
        format!("{} must be on the PATH, see docs/p4.md", missing.join(", "))
    } else if shell::output(shell::program("id", &["-u"]))?.trim() != "0" {
        "network namespaces need root".to_owned()
    } else {
        let mut test = shell::cargo(&["test", "--quiet", "--package", "libra-p4"]);
        test.env("LIBRA_P4_REQUIRED", "1");
        shell::run(test)?;
        return Ok(Outcome::Passed);
    };
    if options.required {
        bail!("the program of a P4 switch cannot be run: {reason}");
    }
    Ok(Outcome::Skipped(reason))
}

fn is_on_the_path(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(tool).is_file())
}
