//! `libra-lab bench`: what a store and a cluster can do on this machine, beside what the machine itself can do; and the paper's evaluation.

mod calibrate;
mod controller;
mod disk;
mod durability;
mod hot_path;
mod join;
mod latency;
mod limits;
mod load;
mod paper;
mod processes;
mod push_pull;
mod read;
mod recorded;
mod report;
mod rows;
mod scraper;
mod simulate;
mod store;
mod upload;
mod usage;
mod worker;

use anyhow::{Result, bail};
use clap::Subcommand;

/// Measures servers and switches, and repeats the paper's evaluation.
///
/// `store` is what one core does with the rows of a shard, `push-pull` what is left of it behind sockets and messages; `hot-path` is what workers and a
/// switch do with hot rows. These measure the limits of the machine in the same run: compare the ratio, for a machine that has other work is slower in
/// both. `controller` is what a controller does with many members, `upload` the way of a checkpoint to a store, `read` the way of rows from a data set, `join` the way of a worker into a job, `calibrate` measures each role alone, `simulate` predicts a cluster from these, and `paper` repeats the paper's evaluation.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Pushes and pulls rows of servers over TCP, each in a process of its own
    PushPull(push_pull::Arguments),
    /// Reads and updates rows of a store in this process, without sockets and messages
    Store(store::Arguments),
    /// Pushes and pulls hot rows through a switch in a process or in the kernel, each member in a process of its own
    HotPath(hot_path::Arguments),
    /// Starts clusters of many members and sends them views, without sockets: the limits of one controller
    Controller(controller::Arguments),
    /// Uploads the checkpoint of a shard to a store
    Upload(upload::Arguments),
    /// Reads a data set, as a worker does
    Read(read::Arguments),
    /// Joins a job that runs and leaves it, as a worker
    Join(join::Arguments),
    /// Measures what each role and its kernel take of a processor, alone, and predicts real runs from it
    #[command(alias = "roles")]
    Calibrate(calibrate::Arguments),
    /// Simulates clusters on many machines, with the costs that `calibrate` has measured
    Simulate(simulate::Arguments),
    /// Repeats the paper's evaluation, and makes a report
    Paper(paper::Arguments),
    /// A worker of push-pull and hot-path
    #[command(hide = true)]
    Worker(worker::Arguments),
}

pub(crate) fn run(command: &Command) -> Result<()> {
    match command {
        Command::PushPull(arguments) => push_pull::run(arguments),
        Command::Controller(arguments) => controller::run(arguments),
        Command::HotPath(arguments) => hot_path::run(arguments),
        Command::Store(arguments) => store::run(arguments),
        Command::Upload(arguments) => upload::run(arguments),
        Command::Read(arguments) => read::run(arguments),
        Command::Join(arguments) => join::run(arguments),
        Command::Calibrate(arguments) => calibrate::run(arguments),
        Command::Simulate(arguments) => simulate::run(arguments),
        Command::Paper(arguments) => paper::run(arguments),
        Command::Worker(arguments) => worker::run(arguments),
    }
}

fn check_seconds(seconds: f64) -> Result<()> {
    if !(0.1..=86_400.0).contains(&seconds) {
        bail!("--seconds {seconds}: expected a number from 0.1 up to a day");
    }
    Ok(())
}
