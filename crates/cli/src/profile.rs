//! `libra profile`: trains on a sample, finds the hot rows and writes a plan.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;

use libra_launch::arguments::{ModelArguments, SampleArguments, clear};
use libra_launch::parent_guard;
use libra_launch::progress::Bars;
use libra_launch::report::plan_text;

/// Trains on a sample of the data in memory, counts which rows its pushes update, and writes a plan of the hot ones.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    model: ModelArguments,
    #[command(flatten)]
    sample: SampleArguments,
    /// File to write the plan to
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Prints nothing but errors
    #[arg(long)]
    quiet: bool,
    /// Reads options from a TOML file: `sample = 0.04` stands for --sample 0.04
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Ends with its standard input: for processes that another one has started
    #[arg(long, hide = true, alias = "leashed")]
    exit_with_parent: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if arguments.exit_with_parent {
        parent_guard::exit_with_parent(|_| ())?;
    }
    let config = arguments.model.config()?;
    let workload = libra_models::open(&config, &arguments.model.data)?;
    clear(&arguments.out)?;
    let plan = arguments.sample.plan(&config, &workload, &Bars::new(arguments.quiet))?;
    let out = arguments.out.display();
    std::fs::write(&arguments.out, plan.to_toml())
        .with_context(|| format!("cannot write the plan to {out}"))?;
    if !arguments.quiet {
        println!("{}", plan_text(&plan));
        println!("written to {out}");
    }
    Ok(())
}
