//! `libra plan`: shows plans.

use std::path::PathBuf;

use anyhow::Result;
use clap::Subcommand;

use libra_launch::arguments::load_plan;
use libra_launch::report::plan_text;

/// Commands about plans.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Shows the provenance of a plan, the hot rows of each table, and the predicted share of pushes
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
