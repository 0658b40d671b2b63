//! `libra-lab`: the laboratory of Libra. It breaks clusters, measures them, and repeats the paper's evaluation.
//!
//! ```text
//!  sim    ──▶ clusters in virtual time under every fault         ──▶ was anything lost, or counted twice?
//!  soak   ──▶ processes that add known numbers, and are killed   ──▶ are the sums equal to the bit?
//!  bench  ──▶ a store, or processes, as fast as they can         ──▶ figures, beside those of the machine
//! ```
//!
//! Training does not need it. The members of its clusters are those of `libra`, of the crate `libra-launch`, started as processes of this
//! program.
//!
//! Exit codes are those of `libra`, in [`exit`].

#![forbid(unsafe_code)]

mod bench;
mod security;
mod sim;
mod soak;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use libra_launch::{diagnostics, exit, interrupt, member, plane};
use mimalloc::MiMalloc;

/// As in `libra`, so that what is measured is what ships.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// The laboratory of Libra: simulators, soaks and benchmarks.
#[derive(Parser)]
#[command(name = "libra-lab", version, max_term_width = 100, args_override_self = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs clusters in virtual time under every fault, and checks that nothing is lost or counted twice
    Sim(sim::Arguments),
    /// Kills members of a cluster that adds up known numbers, and checks the sums to the bit
    Soak(soak::Arguments),
    /// Measures what servers and their store can do on this machine
    #[command(subcommand)]
    Bench(bench::Command),
    /// A server of a soak or a benchmark
    #[command(hide = true)]
    Server(member::ServerArguments),
    /// A switch of a soak or a benchmark
    #[command(hide = true)]
    Switch(member::SwitchArguments),
    #[command(hide = true)]
    XdpPass(plane::PassArguments),
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    if !matches!(command, Command::Switch(_)) {
        interrupt::watch();
    }
    let result = diagnostics::begin().and_then(|()| match command {
        Command::Sim(arguments) => sim::run(&arguments),
        Command::Soak(arguments) => soak::run(&arguments),
        Command::Bench(command) => bench::run(&command),
        Command::Server(arguments) => member::run_server(&arguments),
        Command::Switch(arguments) => member::run_switch(&arguments),
        Command::XdpPass(arguments) => plane::pass(&arguments),
    });
    exit::end("libra-lab", result)
}
