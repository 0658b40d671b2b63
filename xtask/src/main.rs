//! `cargo xtask`: what the developers of Libra and its CI run besides `cargo test`.
//!
//! It is no part of the product: nothing in `crates/` depends on it, and it depends on nothing in `crates/`; it
//! looks at the sources and at the binaries from outside.

#![forbid(unsafe_code)]

mod benchmark;
mod book;
mod ci;
mod conformance;
mod container;
mod doctor;
mod errors;
mod examples;
mod findings;
mod flood;
mod forge;
mod fuzz;
mod http;
mod kubernetes;
mod namespaces;
mod no_std;
mod p4;
mod process;
mod prometheus;
mod pslite;
mod python;
mod ray;
mod readme;
mod report;
mod shell;
mod slurm;
mod smoke;
mod stores;
mod systemd;
mod tidy;
mod torchx;
mod wheel;
mod xdp;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Tools of the developers of Libra.
#[derive(Parser)]
#[command(name = "cargo xtask", max_term_width = 110)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs the whole pipeline: all that a change must pass
    Ci(ci::Options),
    /// Checks what the compiler does not: arrows between crates, their promises, names, lengths, the README
    Tidy,
    /// Writes the header for C again, after a change of crates/pslite/src/ffi
    Header,
    /// Installs the library for C and C++, with pkg-config and CMake files
    Install(pslite::InstallOptions),
    /// Compiles the tests of a checkout of ps-lite against our headers, and runs each many times
    Pslite(pslite::PsLiteOptions),
    /// Builds the Python package and runs its tests, with torch unless it is left out
    Python(python::Options),
    /// Installs the packages that tests in Python and on Ray need into a cache
    Environments,
    /// Builds the wheel that ships, and checks what it needs of a machine
    Wheel,
    /// Writes the vectors in `conformance/` again, with the results of the reference
    Conformance,
    /// Writes the page of errors in the manual, as the code has them now
    Errors,
    /// Proves that `dataplane` needs neither std nor alloc, by linking a program without them
    NoStd(no_std::Options),
    /// Measures samples per second over workers, batch sizes, with and without the switch
    Benchmark(benchmark::Options),
    /// Runs the first command of the README and looks at what it reports
    Smoke,
    /// Runs the programs of `examples/`, in processes and in one
    Examples,
    /// Runs jobs whose processes have a network namespace each; one with a server that comes back elsewhere (needs root)
    Namespaces(namespaces::Options),
    /// Gives every reader of bytes random inputs, each for a while
    Fuzz(fuzz::Options),
    /// Floods a job with streams and datagrams of strangers, and measures what that costs it
    Flood(flood::Options),
    /// Runs the program of a P4 switch in bmv2, against the data plane in software (needs root and the tools of P4)
    P4(p4::Options),
    /// Runs soaks beside a forger of answers of their switches (needs root)
    Forge(forge::Options),
    /// Forges answers in the network namespace that it runs in
    #[command(hide = true)]
    Forger(forge::ForgerOptions),
    /// Plants faults in machines and paths of network namespaces, and looks whether `libra doctor` names each (needs root)
    Doctor(doctor::Options),
    /// Answers a doctor as one of another version does
    #[command(hide = true)]
    OtherDoctor(doctor::OtherOptions),
    /// Checks configuration, alerts and dashboards with a real Prometheus, during a job of seven processes
    Prometheus(prometheus::Options),
    /// Builds the image of `deploy/container` from a binary, and runs it (needs root)
    Container(findings::StepOptions),
    /// Checks the manifests of `deploy/kubernetes` by the schemas of Kubernetes and JobSet, without a cluster
    Kubernetes(findings::StepOptions),
    /// Runs the batch script of `deploy/slurm` in a Slurm of four daemons, with jobs whose members are killed (needs root)
    Slurm(findings::StepOptions),
    /// Runs jobs whose checkpoints go to a directory, moto, s3s-fs and Azurite, with kills, damage and refusals
    Stores(stores::Options),
    /// Boots the units of `deploy/systemd` in a container, with a job whose members are killed and stopped (needs root)
    Systemd(systemd::Options),
    /// Runs a job by the component of TorchX, on this machine
    Torchx(findings::StepOptions),
    /// Runs jobs on a Ray cluster of three network namespaces, and kills and drains processes and nodes of it (needs root)
    Ray(ray::Options),
    /// Runs the data plane in the kernel: against the one in software, and in a cluster whose switches are killed (needs root)
    Xdp(xdp::Options),
}

/// Outcome of a check that did not fail.
pub(crate) enum Outcome {
    Passed,
    /// This machine cannot do it; the reason.
    Skipped(String),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Ci(options) => ci::run(&options),
        Command::Tidy => tidy::run(),
        Command::Header => pslite::header(),
        Command::Install(options) => pslite::install(&options),
        Command::Pslite(options) => pslite::ps_lite(&options),
        Command::Python(options) => python::run(&options),
        Command::Environments => python::prepare().and_then(|prepared| ray::environment().map(|_| prepared)),
        Command::Wheel => wheel::run(),
        Command::Conformance => conformance::run(),
        Command::Errors => errors::run(),
        Command::NoStd(options) => no_std::run(&options),
        Command::Benchmark(options) => benchmark::run(&options),
        Command::Smoke => smoke::run(),
        Command::Examples => examples::run(),
        Command::Namespaces(options) => namespaces::run(&options),
        Command::Fuzz(options) => fuzz::run(&options),
        Command::Flood(options) => flood::run(&options),
        Command::P4(options) => p4::run(&options),
        Command::Forge(options) => forge::run(&options),
        Command::Forger(options) => forge::forge(&options),
        Command::Doctor(options) => doctor::run(&options),
        Command::OtherDoctor(options) => doctor::other(&options),
        Command::Prometheus(options) => prometheus::run(&options),
        Command::Container(options) => container::run(&options),
        Command::Kubernetes(options) => kubernetes::run(&options),
        Command::Slurm(options) => slurm::run(&options),
        Command::Stores(options) => stores::run(&options),
        Command::Systemd(options) => systemd::run(&options),
        Command::Torchx(options) => torchx::run(&options),
        Command::Ray(options) => ray::run(&options),
        Command::Xdp(options) => xdp::run(&options),
    };
    match result {
        Ok(Outcome::Passed) => ExitCode::SUCCESS,
        Ok(Outcome::Skipped(reason)) => {
            shell::loudly(&format!("SKIPPED: {reason}"));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
