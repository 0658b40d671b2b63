//! `libra`: trains sparse models on a cluster whose switch adds up the gradients of the hot rows.
//!
//! Here everything comes together: data and model (`libra-train`), the plan of hot rows (`libra-plan`), and the roles on their
//! sockets (`libra-net`). It has no logic of theirs, and nothing depends on it.
//!
//! ```text
//!  train       ──▶ Job: data, plan, Cluster ──▶ a controller, and a thread per member ──▶ Report
//!  controller  ──▶ Job: data, plan, Cluster ──▶ a controller, waiting for members     ──▶ Report
//!  server, switch, worker                   ──▶ one member; what to do, the controller says
//!  profile     ──▶ trains on a sample       ──▶ a plan;      plan show ──▶ what is in it
//!  bench       ──▶ a store, or processes, as fast as they can       ──▶ figures, beside those of the machine
//!  checkpoint  ──▶ what servers have written, while they run or not ──▶ tables, verdicts, plain files
//!  soak        ──▶ processes that add known numbers, and are killed ──▶ are the sums equal to the bit?
//! ```
//!
//! Each subcommand has a file of its own. Roles carry two texts that only this crate reads: the `Task` of the
//! controller for the workers, and the `Account` of each worker for the `Report`.
//!
//! Exit codes: 0 done, 1 failed (one line on stderr says why), 2 the command line is wrong, 130 interrupted.

#![forbid(unsafe_code)]

mod arguments;
mod bench;
mod checkpoint;
mod chronicle;
mod config_file;
mod controller;
mod interrupt;
mod job;
mod leash;
mod member;
mod models;
mod network;
mod p4;
mod plan;
mod plane;
mod profile;
mod progress;
mod report;
mod rule;
mod sim;
mod soak;
mod strike;
mod task;
mod train;
mod training;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use mimalloc::MiMalloc;

/// Messages are as large as what the system's allocator gives back to the kernel at once: it then makes and clears their pages
/// again for each.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Trains sparse models with in-network aggregation of the hot rows.
///
/// Without a cluster at hand, `libra train` starts one on this machine and trains on built-in data.
/// Over several machines, start one `controller`, then `server`s, `switch`es and `worker`s that join it, in any order.
#[derive(Parser)]
#[command(name = "libra", version, max_term_width = 110, args_override_self = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Starts a whole cluster on this machine and trains a model on it
    Train(train::Arguments),
    /// Trains on a sample, finds the hot rows and writes a plan
    Profile(profile::Arguments),
    /// Shows a plan
    #[command(subcommand)]
    Plan(plan::Command),
    #[command(subcommand)]
    Checkpoint(checkpoint::Command),
    /// Gathers a cluster, runs one job on it and prints what came of it
    Controller(controller::Arguments),
    /// Runs clusters in virtual time under every fault, and checks that nothing is lost or counted twice
    Sim(sim::Arguments),
    /// Owns one shard of the rows
    Server(member::ServerArguments),
    /// Adds up the gradients of hot rows
    Switch(member::SwitchArguments),
    /// Trains on its share of the data
    Worker(member::WorkerArguments),
    #[command(hide = true)]
    XdpPass(plane::PassArguments),
    /// The program of a switch in P4: what is generated for it
    #[command(subcommand)]
    P4(p4::Command),
    /// Kills members of a cluster that adds up known numbers, and checks the sums to the bit
    Soak(soak::Arguments),
    /// Measures what servers and their store can do on this machine
    #[command(subcommand)]
    Bench(bench::Command),
}

fn main() -> ExitCode {
    interrupt::watch();
    let result = parse().and_then(|cli| match cli.command {
        Command::Train(arguments) => train::run(&arguments),
        Command::Profile(arguments) => profile::run(&arguments),
        Command::Plan(command) => plan::run(&command),
        Command::Checkpoint(command) => checkpoint::run(&command),
        Command::Controller(arguments) => controller::run(&arguments),
        Command::Sim(arguments) => sim::run(&arguments),
        Command::Server(arguments) => member::run_server(&arguments),
        Command::Switch(arguments) => member::run_switch(&arguments),
        Command::Worker(arguments) => member::run_worker(&arguments),
        Command::XdpPass(arguments) => plane::pass(&arguments),
        Command::P4(command) => p4::run(&command),
        Command::Soak(arguments) => soak::run(&arguments),
        Command::Bench(command) => bench::run(&command),
    });
    match result {
        _ if interrupt::happened() => ExitCode::from(interrupt::EXIT_CODE),
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("libra: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The command line, with what a `--config` file says put before what the user typed, so that the user has the last word.
fn parse() -> anyhow::Result<Cli> {
    let typed: Vec<_> = std::env::args_os().collect();
    let arguments = config_file::expand(&Cli::command(), typed)?;
    let matches = Cli::command().get_matches_from(arguments);
    Ok(Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()))
}
