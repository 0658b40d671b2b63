//! `libra bench`: what a cluster of servers can do on this machine, beside what the machine itself can do.

mod limits;
mod load;
mod push_pull;
mod report;
mod usage;
mod worker;

use anyhow::Result;
use clap::Subcommand;

/// Measures servers.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Pushes and pulls rows of servers over TCP, each in a process of its own
    PushPull(push_pull::Arguments),
    /// What a process of push-pull is
    #[command(hide = true)]
    Worker(worker::Arguments),
}

pub(crate) fn run(command: &Command) -> Result<()> {
    match command {
        Command::PushPull(arguments) => push_pull::run(arguments),
        Command::Worker(arguments) => worker::run(arguments),
    }
}
