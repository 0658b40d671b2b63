//! Commands that moved from this program to `libra-lab`.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, anyhow, bail};
use clap::Args;

/// The program of the laboratory: simulators, benchmarks, soaks.
const LABORATORY: &str = "libra-lab";

#[derive(Args)]
pub(crate) struct Arguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<OsString>,
}

/// Replaces this process by `libra-lab` with this command: the one beside this program, or else the one on the `PATH`.
pub(crate) fn run(command: &str, arguments: &Arguments) -> Result<()> {
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join(LABORATORY)));
    let program = beside.filter(|program| program.is_file()).unwrap_or_else(|| PathBuf::from(LABORATORY));
    let error = Command::new(program).arg(command).args(&arguments.rest).exec();
    if error.kind() == ErrorKind::NotFound {
        bail!(
            "`{command}` is a command of {LABORATORY}, which is not installed: in a checkout, build it with \
             `cargo build --release --bin {LABORATORY}`"
        );
    }
    Err(anyhow!(error).context(format!("cannot start {LABORATORY}")))
}
