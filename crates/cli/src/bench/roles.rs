//! `libra bench roles`: what roles and the kernel beneath them cost, each measured alone: the input of `libra bench simulate`.

mod kernel;
mod replay;
mod validate;

use std::hint::black_box;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;

use anyhow::{Context, Result};
use clap::Args;
use libra_net::probe::Awake;
use libra_sim::performance::{Costs, Item, Prices};
use rustix::time::{ClockId, clock_gettime};

use super::report::print;
use crate::arguments::{clear, write_json};

/// Measures what a worker, a switch, a server and the kernel beneath them take of a processor, each alone.
///
/// A role is handed what it was handed in a simulation, alone and without sockets, and each step is timed; loop, sockets and kernel are measured with two threads that
/// only send to each other. What comes of it is a price for each packet, byte, pair and message: what `libra bench simulate` needs. With --validate, the prices predict
/// what `libra bench hot-path` measures on this machine.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Predicts from these costs instead of measuring anew: a file that --json has written, or `built-in`
    #[arg(long, value_name = "FILE")]
    costs: Option<String>,
    /// Measures roles whose cores have other work between two of their turns, and other data in half of their caches: as where there are fewer cores than threads.
    /// --validate does so by itself
    #[arg(long, conflicts_with = "costs")]
    shared: bool,
    /// Runs `libra bench hot-path` with 1, 2 and 4 workers, and compares it with what a simulation of this machine predicts
    #[arg(long)]
    validate: bool,
    /// With --validate: workers of each run
    #[arg(long, value_name = "N,N..", value_delimiter = ',', default_values_t = [1, 2, 4], requires = "validate")]
    workers: Vec<u16>,
    /// With --validate: how long each run measures
    #[arg(long, value_name = "S", default_value_t = 5.0)]
    seconds: f64,
    /// With --validate: runs of each number of workers; the one counts in which others had least work for the machine
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    repeats: u8,
    /// The machine and the day, in words, for the file
    #[arg(long, value_name = "TEXT", default_value = "this machine")]
    machine: String,
    /// Writes the costs to this file; with --validate the comparison
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    super::check_seconds(arguments.seconds)?;
    if let Some(path) = &arguments.json {
        clear(path)?;
    }
    let costs = match &arguments.costs {
        Some(source) => load(source)?,
        None => measure(&arguments.machine, arguments.shared || arguments.validate)?,
    };
    if arguments.validate {
        return validate::run(arguments, &costs);
    }
    if let Some(path) = &arguments.json {
        write_json(path, &costs)?;
    }
    Ok(())
}

/// Costs from a file, or those that this program was built with.
pub(super) fn load(source: &str) -> Result<Costs> {
    if source == "built-in" {
        return Ok(Costs::measured());
    }
    let text = std::fs::read_to_string(source).with_context(|| format!("cannot read {source}"))?;
    serde_json::from_str(&text).with_context(|| format!("{source} holds no costs of `libra bench roles`"))
}

fn measure(machine: &str, shared: bool) -> Result<Costs> {
    let (kernel, wake_latency_ns) = (kernel::measure()?, kernel::wake_latency());
    let user = {
        let _awake = Awake::new();
        user(&kernel)
    };
    let mut costs = Costs { machine: machine.to_owned(), user, kernel, wake_latency_ns, ..Costs::measured() };
    replay::measure(&mut costs, shared)?;
    for (name, prices) in [
        ("worker", &costs.worker),
        ("switch", &costs.switch),
        ("server", &costs.server),
        ("user", &costs.user),
        ("kernel", &costs.kernel),
    ] {
        let line = |(item, price): (&Item, &f64)| {
            let digits = if *price < 10.0 { 3 } else { 0 };
            ("", format!("{price:.digits$} ns"), format!("{item:?}"))
        };
        print(format!("{name}: nanoseconds of a processor"), prices.0.iter().map(line).collect());
    }
    let waking = costs.wake_latency_ns.0.iter().map(|[idle, latency]| {
        ("", format!("{latency:.0} ns"), format!("after {:.0} us of idleness", idle / 1000.0))
    });
    print("an idle core wakes".to_owned(), waking.collect());
    Ok(costs)
}

/// Processor time of this thread, in nanoseconds.
fn thread_time() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// What the user of a worker takes to make a push of one value a row, as the workers of the benchmark do, and to hand it to another thread.
fn user(kernel: &Prices) -> Prices {
    const PUSHES: usize = 2000;
    const REPEATS: usize = 5;
    let time_of = |rows: usize| {
        // As many as workers of the benchmark go through: more than the caches of a core hold.
        let batches: Vec<Vec<u64>> = (0..64).map(|batch| (batch..batch + rows as u64).collect()).collect();
        let mut least = u64::MAX;
        for _ in 0..REPEATS {
            // As many are under way as an operation of the benchmark has: memory goes back and is taken again.
            let (sender, receiver) = mpsc::sync_channel::<(Vec<u64>, Vec<f32>)>(8);
            let other = thread::spawn(move || receiver.iter().map(|(keys, _)| keys.len()).sum::<usize>());
            let begin = thread_time();
            for keys in batches.iter().cycle().take(PUSHES) {
                let push = (black_box(keys).clone(), vec![black_box(0.001_f32); rows]);
                if sender.send(push).is_err() {
                    break;
                }
            }
            least = least.min(thread_time() - begin);
            drop(sender);
            let _ = other.join();
        }
        least as f64 / PUSHES as f64
    };
    let (few, many) = (time_of(100), time_of(10_000));
    let pair = (many - few) / 9900.0;
    // It also wakes the thread of its worker, which is most of what a short push takes here, and is woken by it.
    let command = (few - 100.0 * pair).max(kernel.0.get(&Item::Turn).copied().unwrap_or(0.0));
    Prices([(Item::Command, command), (Item::Pair, pair)].into())
}
