//! Running a vector on a target.

use std::collections::BTreeSet;
use std::fmt::{self, Debug, Display};

use libra_dataplane::Counters;

use crate::burst::Burst;
use crate::ip;
use crate::need::Need;
use crate::target::Target;
use crate::vector::{COUNTERS, Counter, Line, Slots, Step, Vector};

/// Result of a vector that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use = "a vector that was skipped was not passed"]
pub enum Outcome {
    /// The target did all that the vector requires.
    Passed,
    /// The target does not offer this; nothing was done to it.
    Skipped(Need),
}

/// A target deviated from a vector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {cause}")]
pub struct Failure {
    /// The file of the vector.
    pub file: String,
    /// The line, counted from 1.
    pub line: usize,
    /// Cause of the failure.
    pub cause: Cause,
}

/// Cause of a failure at a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// The target gave another answer.
    Mismatch {
        /// To what.
        to: String,
        /// The differences.
        differences: Vec<Difference>,
    },
    /// The target could not be asked.
    Target(String),
}

impl Display for Cause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Target(error) => write!(formatter, "the target: {error}"),
            Self::Mismatch { to, differences } => {
                write!(formatter, "another answer to {to}:")?;
                differences.iter().try_for_each(|difference| write!(formatter, "\n    {difference}"))
            }
        }
    }
}

/// One difference from the vector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Name of the field.
    pub field: String,
    /// Value in the vector.
    pub expected: String,
    /// Value of the target.
    pub found: String,
}

impl Difference {
    pub(crate) fn new(
        field: impl Into<String>,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        Self { field: field.into(), expected: expected.into(), found: found.into() }
    }
}

impl Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: expected {}, found {}", self.field, self.expected, self.found)
    }
}

/// The most datagrams of a burst, as many as fit one run of the kernel's receive offload.
const BURST_MAX: usize = 64;

/// Runs a vector datagram by datagram: every answer must be the one of the file, byte by byte.
///
/// # Errors
/// The first line at which the target does something else.
pub fn run<T: Target>(vector: &Vector, target: &mut T) -> Result<Outcome, Failure> {
    run_with(vector, target, 1)
}

/// Runs a vector with the datagrams of one sender that follow each other handed over at once. Acknowledgements that were made one
/// are compared one by one; what else they list must have been taken (rule W8).
///
/// # Errors
/// The first line at which the target does something else.
pub fn run_in_bursts<T: Target>(vector: &Vector, target: &mut T) -> Result<Outcome, Failure> {
    run_with(vector, target, BURST_MAX)
}

fn run_with<T: Target>(vector: &Vector, target: &mut T, burst_max: usize) -> Result<Outcome, Failure> {
    if let Some(&need) = vector.needs.iter().find(|&&need| !target.offers(need)) {
        return Ok(Outcome::Skipped(need));
    }
    let mut burst = Burst::new(burst_max);
    for Line { number, step } in &vector.lines {
        let failure = |(line, cause)| Failure { file: vector.file.clone(), line, cause };
        if let Step::Exchange(exchange) = step {
            for n in 0..exchange.times {
                burst.add(*number, exchange, n, target).map_err(failure)?;
            }
        } else {
            burst.flush(target).map_err(failure)?;
            burst.keys.observe(step);
            carry_out(step, target).map_err(|cause| failure((*number, cause)))?;
        }
        // One at a time, each is answered before the next line is read.
        if burst_max == 1 {
            burst.flush(target).map_err(failure)?;
        }
    }
    let last = burst.flush(target);
    last.map_err(|(line, cause)| Failure { file: vector.file.clone(), line, cause })?;
    Ok(Outcome::Passed)
}

fn carry_out<T: Target>(step: &Step, target: &mut T) -> Result<(), Cause> {
    let cannot = |error: T::Error| Cause::Target(error.to_string());
    let different = match step {
        Step::Exchange(_) => unreachable!("datagrams go in bursts"),
        Step::Switch(address) => return target.set_switch(*address).map_err(cannot),
        Step::Worker(name, address) => return target.set_worker(*name, *address).map_err(cannot),
        Step::Key(name, key) => return target.set_key(*name, key).map_err(cannot),
        Step::Open { config, after, seen } => return target.open(config, *after, seen).map_err(cannot),
        Step::Close(region) => return target.close(*region).map_err(cannot),
        Step::Install(region, values) => return target.install(*region, values).map_err(cannot),
        Step::Durable(region, round) => return target.set_durable(*region, *round).map_err(cannot),
        Step::Readable(region, is) => return target.set_readable(*region, *is).map_err(cannot),
        Step::Active(region, is) => return target.set_active(*region, *is).map_err(cannot),
        Step::Ip { packet, verdict } => {
            let found = target.receive_ip(packet).map_err(cannot)?;
            ip::verdict_differences(packet, verdict, &found)
        }
        Step::Flip(region, closed) => compare("closed round", closed, &target.flip(*region).map_err(cannot)?),
        Step::Drain(region, sums) => slots("sum", sums, &target.drain(*region).map_err(cannot)?),
        Step::Values(region, values) => slots("value", values, &target.values(*region).map_err(cannot)?),
        Step::Acked(region, flow, ranges) => {
            compare("ranges", ranges, &target.acked(*region, *flow).map_err(cannot)?)
        }
        Step::Bank(region, packets) => compare("packets", packets, &target.bank(*region).map_err(cannot)?),
        Step::Counters(expected) => counters(expected, &target.counters().map_err(cannot)?),
    };
    mismatch(|| format!("`{}`", step.to_string().split(" =").next().unwrap_or_default()), different)
}

pub(crate) fn mismatch(to: impl FnOnce() -> String, differences: Vec<Difference>) -> Result<(), Cause> {
    if differences.is_empty() { Ok(()) } else { Err(Cause::Mismatch { to: to(), differences }) }
}

fn compare<V: PartialEq + Debug>(field: &str, expected: &V, found: &V) -> Vec<Difference> {
    if expected == found {
        return vec![];
    }
    vec![Difference::new(field, format!("{expected:?}"), format!("{found:?}"))]
}

fn slots(name: &str, expected: &Slots, found: &Slots) -> Vec<Difference> {
    let all: BTreeSet<_> = expected.0.keys().chain(found.0.keys()).collect();
    let value = |slots: &Slots, slot| format!("{:08x}", slots.0.get(slot).copied().unwrap_or_default());
    all.into_iter()
        .map(|slot| {
            Difference::new(format!("{name} of slot {slot}"), value(expected, slot), value(found, slot))
        })
        .filter(|difference| difference.expected != difference.found)
        .collect()
}

fn counters(expected: &Counters, found: &Counters) -> Vec<Difference> {
    let (mut expected, mut found) = (*expected, *found);
    COUNTERS
        .iter()
        .map(|Counter { name, of }| {
            Difference::new(*name, of(&mut expected).to_string(), of(&mut found).to_string())
        })
        .filter(|difference| difference.expected != difference.found)
        .collect()
}
