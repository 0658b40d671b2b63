//! One scenario from the first join to the last report: a phase of faults, in which nothing may go wrong, and one without, in
//! which everything must come to its end.

use core::fmt;
use core::time::Duration;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use libra_proto::Instant;

use crate::check::Violation;
use crate::network::NetworkCounts;
use crate::runner::ScenarioRunner;
use crate::scenario::Scenario;
use crate::trace::TraceWriter;
use crate::world::WorldCounts;

/// Options of a run.
#[derive(Debug, Default)]
pub struct Options {
    /// Takes a line for everything that happens.
    pub trace: Option<TraceWriter>,
}

/// Result of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// One number for everything that happened: the same seed gives the same one.
    pub trace_hash: u64,
    /// Virtual time from the beginning to the end.
    pub virtual_time: Duration,
    /// Counters.
    pub counts: Counts,
    /// The first violation, if there is one.
    pub violation: Option<Violation>,
}

/// Counters of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Datagrams and what became of them.
    pub network: NetworkCounts,
    /// Counters of the world.
    pub world: WorldCounts,
    /// Operations that users began.
    pub operations: u64,
    /// Rounds that shards applied, those of replays included.
    pub rounds: u64,
    /// Packets that workers sent again.
    pub retransmits: u64,
    /// Number of restarts of flows of pushes.
    pub renewals: u64,
    /// Views that the controller made.
    pub views: u64,
    /// Faults that happened, by name.
    pub faults: BTreeMap<&'static str, u64>,
    /// The longest time from when the controller noticed that something was amiss until everybody had what it holds.
    pub take_over_max: Duration,
    /// The longest time that a push took to be accepted.
    pub push_max: Duration,
    /// The longest time that any operation took.
    pub operation_max: Duration,
    /// The longest time that an operation took once the faults were over.
    pub recovery_max: Duration,
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, trace_hash, virtual_time, counts, violation } = self;
        write!(
            formatter,
            "seed {seed}: hash {trace_hash:016x}, {:.2} s, {} datagrams, {} lost, {} messages, {} operations, {} rounds, {} views, slowest push {:.0} ms",
            virtual_time.as_secs_f64(),
            counts.network.datagrams,
            counts.network.lost,
            counts.world.messages,
            counts.operations,
            counts.rounds,
            counts.views,
            counts.push_max.as_secs_f64() * 1e3,
        )?;
        match violation {
            None => Ok(()),
            Some(violation) => write!(formatter, "; VIOLATION {violation}"),
        }
    }
}

/// Runs the scenario of a seed.
pub fn run(seed: u64, options: Options) -> Report {
    run_scenario(Scenario::draw(seed), options)
}

/// Runs a scenario.
pub fn run_scenario(scenario: Scenario, options: Options) -> Report {
    let seed = scenario.seed;
    let mut runner = ScenarioRunner::new(scenario, options.trace);
    // A role that panics has a bug; what it left behind is looked at no more.
    let outcome = catch_unwind(AssertUnwindSafe(|| runner.run_to_end()));
    let violation = match outcome {
        Ok(violation) => violation,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            let text = text.unwrap_or_else(|| "a panic without words".to_owned());
            Some(Violation { checker: "panic", text, at: runner.now() })
        }
    };
    Report {
        seed,
        trace_hash: runner.trace_hash(),
        virtual_time: runner.now().since(Instant::ZERO),
        counts: runner.counts(),
        violation,
    }
}
