//! `cargo xtask conformance`: the vectors that other data planes must reproduce.

use anyhow::Result;

use crate::{Outcome, shell};

/// Runs the test that compares them, told to write instead.
pub(crate) fn run() -> Result<Outcome> {
    let test = ["test", "--quiet", "--package", "libra-conformance", "--test", "vectors", "--", "checked_in"];
    let mut command = shell::cargo(&test);
    command.env("LIBRA_VECTORS", "write");
    shell::run(command)?;
    println!("conformance/ is written: see `git diff conformance`");
    Ok(Outcome::Passed)
}
