//! `libra checkpoint`: the checkpoints and logs of a job's servers.

mod export;
mod inspect;
mod list;
mod prune;
mod verify;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};
use indicatif::BinaryBytes;
use serde::Serialize;

use libra_launch::arguments::clear;
use libra_launch::document::write_json;
use libra_launch::progress::Bars;
use libra_launch::table::{paragraph, table};

/// Lists, verifies, exports and prunes the checkpoints of a job
///
/// DIR is the data directory of the job, with a directory shard-0, shard-1 .. of each shard, or one of those alone. In each are
/// checkpoints (checkpoint-NUMBER) and the log of later updates (log-*.libra). A number is a checkpoint of the job when every
/// shard has it. Only `prune` changes anything; all others may run while the servers do.
#[derive(Subcommand, Debug)]
#[command(after_help = "\
Examples:
  libra checkpoint list data                         what is there, newest first
  libra checkpoint inspect data                      what is in the newest complete one
  libra checkpoint inspect data 7 --key 4711         the row of key 4711 in checkpoint 7
  libra checkpoint verify data                       reads all; exit code 1 if anything is damaged
  libra checkpoint export data --to model            whole tables as safetensors, for Python
  libra checkpoint prune data --keep-checkpoints 3 --dry-run
                                                     what would be removed")]
pub(crate) enum Command {
    List(list::Arguments),
    Inspect(inspect::Arguments),
    Verify(verify::Arguments),
    Export(export::Arguments),
    Prune(prune::Arguments),
}

pub(crate) fn run(command: &Command) -> Result<()> {
    match command {
        Command::List(arguments) => list::run(arguments),
        Command::Inspect(arguments) => inspect::run(arguments),
        Command::Verify(arguments) => verify::run(arguments),
        Command::Export(arguments) => export::run(arguments),
        Command::Prune(arguments) => prune::run(arguments),
    }
}

/// Destinations of the result.
#[derive(Args, Debug)]
struct Output {
    /// Writes the result to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Prints nothing but errors
    #[arg(long)]
    quiet: bool,
}

impl Output {
    fn bars(&self) -> Bars {
        Bars::new(self.quiet)
    }

    /// Fails early if the file cannot be written.
    fn begin(&self) -> Result<()> {
        self.json.as_deref().map_or(Ok(()), clear)
    }

    /// Prints a sentence, on as many lines as it takes.
    fn print(&self, text: &str) {
        if !self.quiet {
            println!("{}", paragraph(text));
        }
    }

    fn print_table(&self, header: &[&str], numbers: &[usize], rows: impl IntoIterator<Item = Vec<String>>) {
        if !self.quiet {
            println!("{}", table(header, numbers, rows));
        }
    }

    fn write(&self, content: &impl Serialize) -> Result<()> {
        self.json.as_deref().map_or(Ok(()), |path| write_json(path, content))
    }
}

fn bytes(count: u64) -> String {
    BinaryBytes(count).to_string()
}

/// A count and its noun.
fn count(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", libra_launch::report::group(number), if number == 1 { one } else { many })
}
