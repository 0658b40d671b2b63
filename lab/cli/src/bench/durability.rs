//! Cost of a log and a checkpoint for workers that push meanwhile.

use core::ops::Range;
use core::time::Duration;
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use libra_proto::Durability;
use serde::Serialize;

use super::worker::Account;
use libra_launch::arguments::CHECKPOINT_RATE;

/// Longer than any measurement: checkpoints are made when they are asked for.
const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// State that servers keep on disk while they are measured.
#[derive(Args, Debug, Clone)]
pub(super) struct DurabilityArgs {
    /// Directory for logs and checkpoints of servers; must be empty
    #[arg(long = "state-dir", alias = "state", value_name = "DIR")]
    pub(super) state: Option<PathBuf>,
    /// Servers answer when what they applied is in a log on the disk
    #[arg(long, requires = "state")]
    log: bool,
    /// Servers write a checkpoint so many seconds after the measurement began; its cost is reported
    #[arg(long, value_name = "S", requires = "state")]
    pub(super) checkpoint_at: Option<f64>,
    /// MB of the checkpoint that a server writes in a second
    #[arg(long, value_name = "N", default_value_t = CHECKPOINT_RATE, value_parser = clap::value_parser!(u64).range(1..))]
    checkpoint_rate: u64,
}

impl DurabilityArgs {
    pub(super) fn durability(&self) -> Durability {
        let checkpoint_every = self.state.is_some().then_some(NEVER);
        let checkpoint_bytes_per_second = self.checkpoint_rate.saturating_mul(1_000_000);
        Durability { log: self.log, checkpoint_every, checkpoint_bytes_per_second, ..Durability::NONE }
    }

    pub(super) fn check(&self, seconds: f64) -> Result<()> {
        match self.checkpoint_at {
            Some(at) if !(0.0..seconds).contains(&at) => {
                bail!("--checkpoint-at {at}: {seconds} s are measured")
            }
            _ => Ok(()),
        }
    }
}

/// Throughput of workers while a checkpoint was written, and otherwise.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct CheckpointFigures {
    /// From the command to the servers until the last had written it.
    pub(super) seconds: f64,
    pub(super) during: Pace,
    pub(super) otherwise: Pace,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(super) struct Pace {
    pub(super) rows_per_second: f64,
    /// The longest time in which a worker that had several operations under way got none done.
    pub(super) stall_ms_max: f64,
}

impl CheckpointFigures {
    /// Of the checkpoint that was written in this time, in nanoseconds since 1970.
    pub(super) fn new(accounts: &[Account], batch: usize, span: &Range<u64>) -> Self {
        let seconds = |nanoseconds: u64| Duration::from_nanos(nanoseconds).as_secs_f64();
        let (mut during, mut otherwise) = (Pace::default(), Pace::default());
        for account in accounts {
            let inside = span.start.max(account.begun)..span.end.min(account.ended);
            let inside_seconds = seconds(inside.end.saturating_sub(inside.start));
            let outside_seconds = seconds(account.ended - account.begun) - inside_seconds;
            let (mut counts, mut last) = ([0u32; 2], account.begun);
            for at in account.done.iter().map(|done| account.begun + u64::from(*done) * 1000) {
                let is_inside = inside.contains(&at);
                counts[usize::from(is_inside)] += 1;
                // A gap that reaches into the checkpoint is one of it.
                let pace = if is_inside || inside.contains(&last) { &mut during } else { &mut otherwise };
                pace.stall_ms_max = pace.stall_ms_max.max(1e3 * seconds(at - last));
                last = at;
            }
            let rows = |count: u32| f64::from(count) * batch as f64;
            during.rows_per_second += rows(counts[1]) / inside_seconds.max(1e-9);
            otherwise.rows_per_second += rows(counts[0]) / outside_seconds.max(1e-9);
        }
        Self { seconds: seconds(span.end - span.start), during, otherwise }
    }

    /// Returns the share of the pace that was left.
    pub(super) fn ratio(&self) -> f64 {
        self.during.rows_per_second / self.otherwise.rows_per_second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_separate_the_time_of_the_checkpoint_from_the_rest() {
        // One operation a millisecond for a second; while the checkpoint is written every second one, and once none for 40 ms.
        let slow = 200..400u32;
        let done = (1..1000).filter(|ms| !slow.contains(ms) || ms % 2 == 0 && !(300..340).contains(ms));
        let account = Account {
            begun: 5_000_000_000,
            ended: 6_000_000_000,
            rows: 0,
            latencies: Vec::new(),
            bytes: 0,
            done: done.map(|ms| ms * 1000).collect(),
        };
        let figures = CheckpointFigures::new(&[account], 10, &(5_200_000_000..5_400_000_000));
        assert!((figures.seconds - 0.2).abs() < 1e-9);
        assert!((figures.otherwise.rows_per_second - 9987.5).abs() < 20.0, "{figures:?}");
        assert!((figures.during.rows_per_second - 4000.0).abs() < 60.0, "{figures:?}");
        assert!((figures.during.stall_ms_max - 42.0).abs() < 1e-6, "{figures:?}");
        assert!((figures.otherwise.stall_ms_max - 1.0).abs() < 1e-6, "{figures:?}");
        assert!((figures.ratio() - 0.4).abs() < 0.01);
    }
}
