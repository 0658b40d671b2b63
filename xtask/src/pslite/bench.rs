//! ps-lite and this library, compiled from one benchmark and run in turns, beside the least that its requests cost.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::{PSLITE, PsLiteOptions, compile};
use crate::{Outcome, shell};

/// What a request is like, and how many times as fast as ps-lite pushes and pulls are to be.
struct Case {
    name: &'static str,
    keys: &'static str,
    keys_a_request: &'static str,
    hashed: &'static str,
    goal: f64,
}

const CASES: &[Case] = &[
    Case { name: "hashed, 10,000 a request", keys: "1e7", keys_a_request: "1e4", hashed: "1", goal: 5.0 },
    Case { name: "keys 0..N, 10,000", keys: "1e7", keys_a_request: "1e4", hashed: "0", goal: 5.0 },
    Case { name: "hashed, 1,000", keys: "1e7", keys_a_request: "1e3", hashed: "1", goal: 4.0 },
    Case { name: "hashed, 100", keys: "1e7", keys_a_request: "1e2", hashed: "1", goal: 4.0 },
];

/// Share of the limit that is enough where the machine does not let a goal be reached.
const LIMIT_SHARE: f64 = 0.7;

/// Millions of pairs a second of all workers together.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Rates {
    push: f64,
    pull: f64,
}

/// Runs the benchmark with one server and as many workers as asked for.
pub(super) fn run(options: &PsLiteOptions, built: &Path, folder: &Path) -> Result<Outcome> {
    let benchmark = shell::root().join(PSLITE).join("examples/sparse_benchmark.cc");
    let ours = folder.join("sparse_benchmark");
    compile(&benchmark, &ours, built)?;
    let theirs = compile_theirs(&options.source, &benchmark, folder)?;
    let limit = compile_limit(folder)?;
    let systems: [&dyn Fn() -> Command; 3] =
        [&|| launched(&theirs, options.workers), &|| launched(&ours, options.workers), &|| {
            alone(&limit, options.workers)
        }];
    println!("M pairs/s of {} workers and one server, medians of {} turns", options.workers, options.turns);
    println!("limit: a server and workers of the same requests that do nothing else (sparse_limit.cc)");
    println!("goal: times as fast as ps-lite, or {LIMIT_SHARE} of the limit");
    println!(
        "{:26} {:5} {:>9} {:>9} {:>9} {:>7} {:>8}  goal",
        "", "", "ps-lite", "ours", "limit", "ratio", "of limit"
    );
    for case in CASES {
        let mut turns = Vec::new();
        for turn in 0..options.turns {
            let mut rates = [Rates::default(); 3];
            // Each is first in every third turn.
            let mut order = [0, 1, 2];
            order.rotate_left(turn as usize % 3);
            for system in order {
                rates[system] = measure(systems[system](), case, options)?;
            }
            turns.push(rates);
        }
        for (operation, rate) in
            [("push", (|rates| rates.push) as fn(Rates) -> f64), ("pull", |rates| rates.pull)]
        {
            let of = |program: usize| median(turns.iter().map(|turn| rate(turn[program])));
            let over = |other: usize| median(turns.iter().map(|turn| rate(turn[1]) / rate(turn[other])));
            let (ratio, of_limit) = (over(0), over(2));
            let met = if ratio >= case.goal || of_limit >= LIMIT_SHARE { "met" } else { "missed" };
            println!(
                "{:26} {operation:5} {:>9.1} {:>9.1} {:>9.1} {ratio:>7.2} {of_limit:>8.2}  {:.0}: {met}",
                case.name,
                of(0),
                of(1),
                of(2),
                case.goal
            );
        }
    }
    Ok(Outcome::Passed)
}

/// Compiles the benchmark with ps-lite's own sources.
fn compile_theirs(source: &Path, benchmark: &Path, folder: &Path) -> Result<PathBuf> {
    let (program, sources) = (folder.join("sparse_benchmark_ps_lite"), source.join("src"));
    let mut command = shell::program("protoc", &[]);
    command.arg(format!("--cpp_out={}", folder.display())).arg(format!("--proto_path={}", sources.display()));
    command.arg(sources.join("meta.proto"));
    shell::run(command).context("the benchmark needs protoc, and the headers of protobuf and ZeroMQ")?;
    let mut command = shell::program("c++", &["-std=c++17", "-O3", "-w"]);
    for include in [source.join("include").as_path(), &sources, folder] {
        command.arg("-I").arg(include);
    }
    command.arg(benchmark).args(["customer.cc", "postoffice.cc", "van.cc"].map(|name| sources.join(name)));
    command.arg(folder.join("meta.pb.cc")).arg("-o").arg(&program).args(["-lzmq", "-lprotobuf", "-pthread"]);
    shell::run(command)?;
    Ok(program)
}

/// Compiles the program that has rows and requests and nothing else.
fn compile_limit(folder: &Path) -> Result<PathBuf> {
    let program = folder.join("sparse_limit");
    let mut command = shell::program("c++", &["-std=c++17", "-O3"]);
    command.arg(shell::root().join(PSLITE).join("examples/sparse_limit.cc")).arg("-o").arg(&program);
    shell::run(command)?;
    Ok(program)
}

/// The command of a program whose roles a launcher starts.
fn launched(program: &Path, workers: u32) -> Command {
    let mut command = shell::program(shell::root().join(PSLITE).join("scripts/local.sh"), &["1"]);
    command.arg(workers.to_string()).arg(program).env_remove("LD_LIBRARY_PATH");
    command
}

/// The command of a program that starts its roles itself.
fn alone(program: &Path, workers: u32) -> Command {
    let mut command = shell::program(program, &[]);
    command.arg(workers.to_string());
    command
}

fn measure(mut command: Command, case: &Case, options: &PsLiteOptions) -> Result<Rates> {
    command.args([case.keys, case.keys_a_request, &options.seconds.to_string(), "8", case.hashed]);
    rates(&shell::output(command)?, options.workers)
}

/// Sums the last line of each worker: the first is from before everything was warm.
fn rates(output: &str, workers: u32) -> Result<Rates> {
    let mut sum = Rates::default();
    for worker in 0..workers {
        let begin = format!("worker {worker}: push ");
        let last = output.lines().rev().find_map(|line| line.strip_prefix(&begin));
        let Some((push, rest)) = last.and_then(|line| line.split_once(" M pairs/s, pull ")) else {
            bail!("worker {worker} printed no result:\n{output}");
        };
        let pull = rest.strip_suffix(" M pairs/s").context("a line of a worker ends with a rate")?;
        sum.push += push.parse::<f64>().context("a rate is a number")?;
        sum.pull += pull.parse::<f64>().context("a rate is a number")?;
    }
    Ok(sum)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_last_lines() {
        let output = "worker 1: push 1.0 M pairs/s, pull 2.0 M pairs/s\nworker 0: push 9.5 M pairs/s, pull 8.0 M pairs/s\n\
                      worker 1: push 3.5 M pairs/s, pull 4.0 M pairs/s\n";
        assert_eq!(rates(output, 2).unwrap(), Rates { push: 13.0, pull: 12.0 });
        assert!(rates(output, 3).is_err());
        assert!((median([3.0, 1.0, 2.0, 4.0].into_iter()) - 2.5).abs() < 1e-9);
    }
}
