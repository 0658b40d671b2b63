//! `libra-lab bench calibrate`: what roles and the kernel beneath them cost, each measured alone: the input of `libra-lab bench simulate`.

mod kernel;
mod replay;
mod validate;
mod worker_cost;

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use libra_perfsim::{CostKind, Costs};

use super::report::print;
use libra_launch::arguments::clear;
use libra_launch::document::write_json;

/// Number of passes in which a worker is measured.
const PASSES: usize = 7;

/// Measures what a worker, a switch, a server and the kernel beneath them take of a processor, each alone.
///
/// A worker and its user run as they do in a cluster, before one thread that acknowledges everything. A switch and a server are handed what they were handed in a simulation,
/// alone and without sockets, and each step is timed; their loop, sockets and kernel are measured with two threads that only send to each other. What comes of it is a
/// price for each packet, byte, pair and message: what `libra-lab bench simulate` needs. With --validate, the prices predict what `libra-lab bench hot-path` measures on this
/// machine.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Predicts from these costs instead of measuring again: a file that --json has written, or `built-in`
    #[arg(long, value_name = "FILE")]
    costs: Option<String>,
    /// Measures a switch and a server whose cores have other work between two of their turns, and other data in half of their caches: as where there are fewer cores
    /// than threads. --validate does so by itself
    #[arg(long, conflicts_with = "costs")]
    shared: bool,
    /// Runs `libra-lab bench hot-path` with 1, 2 and 4 workers, and compares it with what a simulation of this machine predicts
    #[arg(long)]
    validate: bool,
    /// With --validate: workers of each run
    #[arg(long, value_name = "N,N..", value_delimiter = ',', default_values_t = [1, 2, 4], requires = "validate")]
    workers: Vec<u16>,
    /// With --validate: how long each run measures
    #[arg(long, value_name = "S", default_value_t = 5.0)]
    seconds: f64,
    /// With --validate: how often prices are measured, and then runs of each number of workers: an odd number, as the error in the middle counts
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = odd)]
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
    if arguments.validate {
        return validate::run(arguments);
    }
    let mut calibration = Calibration::begin(arguments)?;
    (0..PASSES).try_for_each(|_| calibration.pass())?;
    let costs = calibration.costs();
    print_costs(&costs);
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
    serde_json::from_str(&text)
        .with_context(|| format!("{source} holds no costs of `libra-lab bench calibrate`"))
}

fn odd(text: &str) -> Result<u8, &'static str> {
    text.parse().ok().filter(|number| number % 2 == 1).ok_or("not an odd number below 256")
}

/// Prices that are measured, or were.
enum Calibration {
    Given(Costs),
    Measured {
        /// All but those of worker and user.
        costs: Box<Costs>,
        /// Passes from which those of worker and user are fitted.
        passes: Vec<worker_cost::Pass>,
    },
}

impl Calibration {
    /// Measures all that does not take passes.
    fn begin(arguments: &Arguments) -> Result<Self> {
        if let Some(source) = &arguments.costs {
            return load(source).map(Self::Given);
        }
        let (kernel, wake_latency_ns) = (kernel::measure()?, kernel::wake_latency());
        let machine = arguments.machine.clone();
        let mut costs = Box::new(Costs { machine, kernel, wake_latency_ns, ..Costs::measured() });
        replay::measure(&mut costs, arguments.shared || arguments.validate)?;
        Ok(Self::Measured { costs, passes: Vec::new() })
    }

    /// Measures worker and user once more.
    fn pass(&mut self) -> Result<()> {
        if let Self::Measured { passes, .. } = self {
            passes.push(worker_cost::pass()?);
        }
        Ok(())
    }

    fn costs(&self) -> Costs {
        match self {
            Self::Given(costs) => costs.clone(),
            Self::Measured { costs, passes } => {
                let (worker, user) = worker_cost::prices(&costs.kernel, passes);
                Costs { worker, user, ..costs.as_ref().clone() }
            }
        }
    }
}

fn print_costs(costs: &Costs) {
    for (name, prices) in [
        ("worker", &costs.worker),
        ("switch", &costs.switch),
        ("server", &costs.server),
        ("user", &costs.user),
        ("kernel", &costs.kernel),
    ] {
        let line = |(item, price): (&CostKind, &f64)| {
            let digits = if *price < 10.0 { 3 } else { 0 };
            ("", format!("{price:.digits$} ns"), format!("{item:?}"))
        };
        print(&format!("{name}: nanoseconds of a processor"), prices.0.iter().map(line).collect());
    }
    let waking = costs.wake_latency_ns.0.iter().map(|[idle, latency]| {
        ("", format!("{latency:.0} ns"), format!("after {:.0} us of idleness", idle / 1000.0))
    });
    print("an idle core wakes", waking.collect());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_have_a_middle() {
        assert_eq!(odd("3"), Ok(3));
        assert!(["", "0", "2", "256", "-1"].into_iter().all(|text| odd(text).is_err()));
    }
}
