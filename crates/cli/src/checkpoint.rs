//! `libra checkpoint`: the checkpoints and logs of a job's servers.

mod export;
mod inspect;
mod list;
mod prune;
mod verify;

use anyhow::Result;
use clap::Subcommand;

use crate::output::{Output, bytes, count};

/// Lists, verifies, exports and prunes the checkpoints of a job
///
/// DIR is the data directory of the job, with a directory shard-0, shard-1 .. of each shard, or one of those alone. In each are
/// checkpoints (checkpoint-NUMBER) and the log of later updates (log-*.libra). A number is a checkpoint of the job when every
/// shard has it. Only `prune` changes anything; all others may run while the servers do.
///
/// DIR may be a URL to which a job has uploaded checkpoints (--checkpoints): file:///DIR, s3://, gs:// or az://BUCKET/DIR, with
/// credentials in the environment. A number is a checkpoint there when job-NUMBER.json is.
#[derive(Subcommand, Debug)]
#[command(after_help = "\
Examples:
  libra checkpoint list data                         what is there, newest first
  libra checkpoint inspect data                      what is in the newest complete one
  libra checkpoint inspect data 7 --key 4711         the row of key 4711 in checkpoint 7
  libra checkpoint verify data                       reads all; exit code 1 if anything is damaged
  libra checkpoint export data --to model            whole tables as safetensors, for Python
  libra checkpoint prune data --keep-checkpoints 3 --dry-run
                                                     what would be removed
  libra checkpoint verify s3://models/run1           the same, at a URL")]
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
