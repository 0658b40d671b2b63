//! `libra-lab sim`: whole clusters in virtual time under every fault, a scenario for each seed.

use core::time::Duration;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use anyhow::{Result, bail};
use clap::Args;
use indicatif::ProgressBar;
use libra_faultsim::{Options, Report, Scenario, TraceWriter};
use serde::{Serialize, Serializer};

use libra_launch::arguments::clear;
use libra_launch::document::write_json;
use libra_launch::event_log::milliseconds;
use libra_launch::progress::Bars;
use libra_launch::table::summary;

/// Runs whole clusters in virtual time under every fault, and checks that each gradient counts exactly once.
///
/// One seed decides everything: who is there, what the network does, who dies or sleeps and when, what is pushed. The
/// same seed gives the same run, to the bit.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Scenarios to run: 0..2000 are those of the seeds 0 to 1999
    #[arg(long, value_name = "A..B", default_value = "0..300", value_parser = parse_seeds, conflicts_with = "seed")]
    seeds: core::ops::Range<u64>,
    /// The one scenario to run
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Prints the scenario and everything that happens in it
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Threads; by default one for each core
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Writes what came of it to this file, for machines
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Prints nothing but failures
    #[arg(long)]
    quiet: bool,
}

fn parse_seeds(text: &str) -> Result<core::ops::Range<u64>, String> {
    let parse = |number: &str| number.parse::<u64>().ok();
    let ends = text.split_once("..").and_then(|(first, end)| Some(parse(first)?..parse(end)?));
    ends.filter(|seeds| !seeds.is_empty())
        .ok_or_else(|| "expected A..B, two numbers, the first one smaller".to_owned())
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if let Some(path) = &arguments.json {
        clear(path)?;
    }
    // A role that panics is a finding, which is reported with its seed. Its backtrace comes with --trace.
    if !arguments.trace {
        std::panic::set_hook(Box::new(|_| {}));
    }
    let started = Instant::now();
    let seeds = arguments.seed.map_or_else(|| arguments.seeds.clone(), |seed| seed..seed + 1);
    let mut sums = if arguments.trace { trace(seeds.start) } else { swarm(arguments, seeds.clone()) };
    let _ = std::panic::take_hook();
    sums.seconds = started.elapsed().as_secs_f64();
    if let (Some(seed), Some(hash), false) = (arguments.seed, &sums.trace_hash, arguments.quiet) {
        println!("seed {seed}: trace hash {hash}");
    }
    if !arguments.quiet {
        print(&sums);
    }
    if let Some(path) = &arguments.json {
        write_json(path, &sums)?;
    }
    if let Some((seed, _)) = sums.failures.first_key_value() {
        bail!(
            "{} of {} scenarios went wrong; replay the first: libra-lab sim --seed {seed} --trace",
            sums.failures.len(),
            sums.scenarios
        );
    }
    Ok(())
}

/// One scenario, with everything that happens in it.
fn trace(seed: u64) -> Sums {
    println!("{:#?}", Scenario::draw(seed));
    let writer = TraceWriter::new(|line| println!("{line}"));
    let mut sums = Sums::default();
    sums.add(&libra_faultsim::run(seed, Options { trace: Some(writer) }));
    sums
}

/// Many scenarios, over some threads. Failures are reported as they come.
fn swarm(arguments: &Arguments, seeds: core::ops::Range<u64>) -> Sums {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let threads = arguments.threads.map_or(cores, usize::from);
    let bar = Bars::new(arguments.quiet).bar("simulate");
    bar.set_length(seeds.end - seeds.start);
    let next = AtomicU64::new(seeds.start);
    let (sender, reports) = mpsc::channel();
    let mut sums = Sums::default();
    thread::scope(|scope| {
        for _ in 0..threads {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end
                        || sender.send(libra_faultsim::run(seed, Options::default())).is_err()
                    {
                        break;
                    }
                }
            });
        }
        drop(sender);
        for report in reports {
            print_report(&bar, &report);
            sums.add(&report);
        }
    });
    bar.finish_and_clear();
    sums
}

fn print_report(bar: &ProgressBar, report: &Report) {
    bar.inc(1);
    if let Some(violation) = &report.violation {
        let seed = report.seed;
        bar.suspend(|| println!("seed {seed}: {violation}\n  libra-lab sim --seed {seed} --trace"));
    }
}

/// Totals of many scenarios.
#[derive(Default, Serialize)]
struct Sums {
    scenarios: u64,
    /// By seed.
    failures: BTreeMap<u64, String>,
    /// If there was one scenario: 16 hexadecimal digits.
    trace_hash: Option<String>,
    seconds: f64,
    #[serde(rename = "virtual_seconds", serialize_with = "in_seconds")]
    virtual_time: Duration,
    datagrams: u64,
    lost: u64,
    messages: u64,
    operations: u64,
    rounds: u64,
    retransmits: u64,
    views: u64,
    faults: BTreeMap<&'static str, u64>,
    #[serde(rename = "take_over_ms_max", serialize_with = "in_milliseconds")]
    take_over_max: Duration,
    #[serde(rename = "push_ms_max", serialize_with = "in_milliseconds")]
    push_max: Duration,
    #[serde(rename = "recovery_ms_max", serialize_with = "in_milliseconds")]
    recovery_max: Duration,
}

fn in_seconds<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}

fn in_milliseconds<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(milliseconds(*duration))
}

impl Sums {
    fn add(&mut self, report: &Report) {
        let counts = &report.counts;
        self.scenarios += 1;
        self.trace_hash = (self.scenarios == 1).then(|| format!("{:016x}", report.trace_hash));
        self.failures.extend(report.violation.as_ref().map(|violation| (report.seed, violation.to_string())));
        self.virtual_time += report.virtual_time;
        self.datagrams += counts.network.datagrams;
        self.lost += counts.network.lost;
        self.messages += counts.world.messages;
        self.operations += counts.operations;
        self.rounds += counts.rounds;
        self.retransmits += counts.retransmits;
        self.views += counts.views;
        for (fault, times) in &counts.faults {
            *self.faults.entry(fault).or_default() += times;
        }
        self.take_over_max = self.take_over_max.max(counts.take_over_max);
        self.push_max = self.push_max.max(counts.push_max);
        self.recovery_max = self.recovery_max.max(counts.recovery_max);
    }
}

fn print(sums: &Sums) {
    let mut rows: Vec<(String, String, String)> = Vec::new();
    let mut row = |name: &str, value: String, note: String| rows.push((name.to_owned(), value, note));
    let ms = |time| format!("{:.0} ms", milliseconds(time));
    row(
        "scenarios",
        sums.scenarios.to_string(),
        format!("{:.0} s of clusters in {:.1} s", sums.virtual_time.as_secs_f64(), sums.seconds),
    );
    row("went wrong", sums.failures.len().to_string(), String::new());
    row(
        "datagrams",
        sums.datagrams.to_string(),
        format!("{} lost, {} sent again", sums.lost, sums.retransmits),
    );
    row("operations", sums.operations.to_string(), format!("{} rounds, {} views", sums.rounds, sums.views));
    let faults: Vec<String> = sums.faults.iter().map(|(fault, times)| format!("{fault} {times}")).collect();
    for (line, faults) in faults.chunks(3).enumerate() {
        row(if line == 0 { "faults" } else { "" }, String::new(), faults.join(", "));
    }
    row("slowest change of view", ms(sums.take_over_max), "from when the controller noticed".to_owned());
    row("slowest push", ms(sums.push_max), "while there were faults".to_owned());
    row("slowest operation", ms(sums.recovery_max), "once the faults were over".to_owned());
    println!("{}", summary(rows));
}
