//! `libra`: trains sparse models on a cluster whose switch adds up the gradients of the hot rows.
//!
//! Here everything comes together: data and model (`libra-models`), the plan of hot rows (`libra-plan`), and the roles on their
//! sockets (`libra-net`). It has no logic of theirs, and nothing depends on it.
//!
//! ```text
//!  train       ──▶ Job: data, plan, Cluster ──▶ a controller, and a thread per member ──▶ Report
//!  controller  ──▶ Job: data, plan, Cluster ──▶ a controller, waiting for members     ──▶ Report
//!  server, switch, worker                   ──▶ one member, configured by the controller
//!  profile     ──▶ trains on a sample       ──▶ a plan;      plan show ──▶ what is in it
//!  doctor      ──▶ facts of this machine and of a path ──▶ findings
//!  top, job    ──▶ what a controller answers over HTTP ──▶ a screen, a summary; and commands to it
//!  data        ──▶ files and objects    ──▶ what is in them, and data sets on disk
//!  export      ──▶ checkpoints, as they come ──▶ bases and deltas for serving
//!  checkpoint  ──▶ what servers have written, while they run or not ──▶ tables, verdicts, plain files
//! ```
//!
//! Each subcommand has a file of its own. Roles carry two texts that only this crate reads: the `Task` of the
//! controller for the workers, and the `Account` of each worker for the `Report`.
//!
//! Exit codes are those of [`exit`].

#![forbid(unsafe_code)]

mod checkpoint;
mod config_file;
mod controller;
mod data;
mod doctor;
mod environment;
mod export;
mod figures;
mod http;
mod job;
mod laboratory;
mod output;
mod p4;
mod plan;
mod profile;
mod top;
mod train;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use libra_launch::{diagnostics, exit, interrupt, member, plane, security};
use mimalloc::MiMalloc;

use self::config_file::ConfigFile;
use self::environment::Environment;

/// Messages are so large that the system's allocator returns them to the kernel when they are freed; it then maps and clears their
/// pages again for each.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Trains sparse models with in-network aggregation of the hot rows.
///
/// Without a cluster at hand, `libra train` starts one on this machine and trains on built-in data.
/// Over several machines, start one `controller`, then `server`s, `switch`es and `worker`s that join it, in any order.
///
/// An option may also be in the environment, as LIBRA_STATE_DIR for --state-dir, or in a file (--config).
///
/// Exit codes: 0 done; 1 failed, and would fail again; 2 the command line is wrong; 75 start it again; 130 SIGINT; 143 a second SIGTERM.
#[derive(Parser)]
#[command(name = "libra", version, max_term_width = 100, args_override_self = true)]
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
    Export(export::Arguments),
    #[command(subcommand)]
    Data(data::Command),
    /// Gathers a cluster, runs one job on it and prints its report
    Controller(controller::Arguments),
    /// Owns shards of the rows
    Server(member::ServerArguments),
    /// Adds up the gradients of hot rows
    Switch(member::SwitchArguments),
    /// Trains on its share of the data
    Worker(member::WorkerArguments),
    #[command(subcommand)]
    Job(job::Command),
    /// Shows a job that runs: its members, their rates and what happens, four times a second
    Top(top::Arguments),
    /// Examines this machine, and the path to another one
    Doctor(doctor::Arguments),
    /// Makes the token of a cluster over several machines
    Token(security::TokenArguments),
    #[command(hide = true)]
    XdpPass(plane::PassArguments),
    /// Generates the program of a switch in P4, and describes it
    #[command(subcommand)]
    P4(p4::Command),
    /// Runs the command of the same name of `libra-lab`
    #[command(hide = true, disable_help_flag = true)]
    Bench(laboratory::Arguments),
    /// Runs the command of the same name of `libra-lab`
    #[command(hide = true, disable_help_flag = true)]
    Sim(laboratory::Arguments),
    /// Runs the command of the same name of `libra-lab`
    #[command(hide = true, disable_help_flag = true)]
    Soak(laboratory::Arguments),
}

fn main() -> ExitCode {
    let cli = parse();
    if !matches!(cli, Ok(Cli { command: Command::Switch(_) })) {
        interrupt::watch();
    }
    let result = diagnostics::begin().and(cli).and_then(|cli| match cli.command {
        Command::Train(arguments) => train::run(&arguments),
        Command::Profile(arguments) => profile::run(&arguments),
        Command::Plan(command) => plan::run(&command),
        Command::Checkpoint(command) => checkpoint::run(&command),
        Command::Export(arguments) => export::run(&arguments),
        Command::Data(command) => data::run(&command),
        Command::Controller(arguments) => controller::run(&arguments),
        Command::Server(arguments) => member::run_server(&arguments),
        Command::Switch(arguments) => member::run_switch(&arguments),
        Command::Worker(arguments) => member::run_worker(&arguments),
        Command::Job(command) => job::run(&command),
        Command::Top(arguments) => top::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Token(arguments) => security::run_token(&arguments),
        Command::XdpPass(arguments) => plane::pass(&arguments),
        Command::P4(command) => p4::run(&command),
        Command::Bench(arguments) => laboratory::run("bench", &arguments),
        Command::Sim(arguments) => laboratory::run("sim", &arguments),
        Command::Soak(arguments) => laboratory::run("soak", &arguments),
    });
    exit::end("libra", result)
}

/// Parses the command line. What is typed goes before what is in the environment, and that before what is in a `--config` file.
fn parse() -> anyhow::Result<Cli> {
    let typed: Vec<_> = std::env::args_os().collect();
    let variable = |key: &str| std::env::var_os(key);
    let environment =
        Environment::read(&Cli::command(), &typed, variable).unwrap_or_else(|error| error.exit());
    let file = ConfigFile::read(&Cli::command(), &typed)?;
    let matches = Cli::command().try_get_matches_from(file.expand(environment.expand(typed)));
    let matches = matches.unwrap_or_else(|error| file.explain(environment.explain(error)).exit());
    Ok(Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()))
}
