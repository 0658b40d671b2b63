//! `libra bench`: what a store and a cluster of servers can do on this machine, beside what the machine itself can do.

mod keeping;
mod latency;
mod limits;
mod load;
mod push_pull;
mod report;
mod rows;
mod store;
mod usage;
mod worker;

use anyhow::{Result, bail};
use clap::Subcommand;

/// Measures servers.
///
/// `store` is what one core does with the rows of a shard, `push-pull` what is left of it behind sockets and messages. Both
/// measure the limits of the machine in the same run: compare the ratio, for a machine that has other work is slower in both.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Pushes and pulls rows of servers over TCP, each in a process of its own
    PushPull(push_pull::Arguments),
    /// Reads and updates rows of a store in this process, without sockets and messages
    Store(store::Arguments),
    /// What a process of push-pull is
    #[command(hide = true)]
    Worker(worker::Arguments),
}

pub(crate) fn run(command: &Command) -> Result<()> {
    match command {
        Command::PushPull(arguments) => push_pull::run(arguments),
        Command::Store(arguments) => store::run(arguments),
        Command::Worker(arguments) => worker::run(arguments),
    }
}

fn check_seconds(seconds: f64) -> Result<()> {
    if !(0.1..=86_400.0).contains(&seconds) {
        bail!("--seconds {seconds}: expected a number from 0.1 up to a day");
    }
    Ok(())
}
