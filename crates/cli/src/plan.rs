//! `libra plan`: looks at plans.

use std::path::PathBuf;

use anyhow::Result;
use clap::Subcommand;

use libra_launch::arguments::load_plan;
use libra_launch::report::plan_text;

/// What to do with a plan.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Says where a plan comes from, how many rows of which tables are hot, and what share of pushes it predicts
    Show {
        /// A file that `libra profile` wrote
        plan: PathBuf,
    },
}

pub(crate) fn run(command: &Command) -> Result<()> {
    let Command::Show { plan } = command;
    println!("{}", plan_text(&load_plan(plan)?));
    Ok(())
}
