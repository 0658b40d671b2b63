//! Findings of the checks of one step, printed as they come.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;

use crate::{Outcome, shell};

/// Options of a step whose checks need a binary, and programs that are not installed everywhere. CI has the default ones.
#[derive(Args, Default)]
pub(crate) struct StepOptions {
    /// The binary under test, instead of a release build of this checkout
    #[arg(long, value_name = "FILE")]
    libra: Option<PathBuf>,
    /// Fails instead of skipping when something is not installed
    #[arg(long)]
    pub(crate) required: bool,
}

impl StepOptions {
    /// The binary under test.
    pub(crate) fn binary(&self) -> Result<PathBuf> {
        shell::binary("libra", self.libra.as_deref())
    }

    /// The outcome of a step that cannot be made here, for this reason.
    pub(crate) fn skip(&self, reason: String) -> Result<Outcome> {
        if self.required { bail!(reason) } else { Ok(Outcome::Skipped(reason)) }
    }
}

/// Result of a check, in a few words; or the reason why it could not be made.
pub(crate) enum Finding {
    Passed(String),
    Skipped(String),
}

/// All findings, printed as they come.
#[derive(Default)]
pub(crate) struct Findings {
    skipped: Vec<&'static str>,
    failed: Vec<&'static str>,
}

impl Findings {
    /// Prints a finding, and keeps it for the outcome.
    pub(crate) fn note(&mut self, check: &'static str, finding: Result<Finding>) {
        match finding {
            Ok(Finding::Passed(found)) => println!("{check:<24} ok       {found}"),
            Ok(Finding::Skipped(reason)) => {
                println!("{check:<24} SKIPPED  {reason}");
                self.skipped.push(check);
            }
            Err(error) => {
                println!("{check:<24} FAILED   {error:#}");
                self.failed.push(check);
            }
        }
    }
    /// The outcome of all. With `required`, a check that could not be made is an error.
    pub(crate) fn outcome(self, required: bool) -> Result<Outcome> {
        let Self { skipped, failed } = self;
        if !failed.is_empty() {
            bail!("failed: {}", failed.join(", "));
        }
        match skipped.is_empty() {
            true => Ok(Outcome::Passed),
            false if required => bail!("skipped: {}", skipped.join(", ")),
            false => Ok(Outcome::Skipped(skipped.join(", "))),
        }
    }
}
