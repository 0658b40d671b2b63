//! Rates of a member: the difference of two of its counts, by the seconds between them.

use std::ops::AddAssign;

use libra_monitor::Counts;
use libra_proto::{ServerStatistics, StepTimes, SwitchStatistics, WorkerStatistics};
use serde::Serialize;

/// Rates of a worker, per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct WorkerRates {
    pub(crate) pushes: f64,
    /// Rows that were pushed.
    pub(crate) rows: f64,
    pub(crate) rows_hot: f64,
    pub(crate) rows_pulled: f64,
    /// Packets, those that were sent again included.
    pub(crate) packets: f64,
    pub(crate) retransmits: f64,
    pub(crate) samples: f64,
    pub(crate) step: StepRates,
}

/// Seconds of a second that a worker spends on each part of a step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct StepRates {
    pub(crate) data: f64,
    pub(crate) pull: f64,
    pub(crate) compute: f64,
    pub(crate) push: f64,
    pub(crate) clock: f64,
}

/// Rates of a switch, per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct SwitchRates {
    pub(crate) packets: f64,
    /// Packets of pushes that were added.
    pub(crate) adds: f64,
    pub(crate) pulls: f64,
    pub(crate) rounds: f64,
    pub(crate) refused: f64,
}

/// Rates of a shard of a server, per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct ServerRates {
    pub(crate) row_updates: f64,
    pub(crate) row_updates_hot: f64,
    pub(crate) row_reads: f64,
    pub(crate) rounds: f64,
}

/// Counts that have rates.
pub(crate) trait Rated: Copy + AddAssign {
    type Rates: Copy + AddAssign;

    /// Returns those of a member.
    fn of(counts: &Counts) -> Option<Self>;

    /// Returns the rates between two looks; none if a count fell, since another process took the place.
    fn rates(before: &Self, after: &Self, seconds: f64) -> Option<Self::Rates>;
}

/// Rates of counts between two looks.
struct Slope {
    seconds: f64,
    /// No count fell.
    is_rising: bool,
}

impl Slope {
    fn of(&mut self, before: u64, after: u64) -> f64 {
        self.is_rising &= before <= after;
        after.saturating_sub(before) as f64 / self.seconds
    }
}

/// Rates by the names of their counts, if none of these fell.
macro_rules! slopes {
    ($before:ident, $after:ident, $seconds:ident, $kind:ident { $($rate:ident: $($count:ident).+),+ $(; $more:ident)? }) => {{
        let mut slope = Slope { seconds: $seconds, is_rising: true };
        let rates = $kind { $($rate: slope.of($before.$($count).+, $after.$($count).+)),+ $(, $more: step_rates(&mut slope, $before, $after))? };
        slope.is_rising.then_some(rates)
    }};
}

impl Rated for WorkerStatistics {
    type Rates = WorkerRates;

    fn of(counts: &Counts) -> Option<Self> {
        if let Counts::Worker(counts) = counts { Some(*counts) } else { None }
    }

    fn rates(before: &Self, after: &Self, seconds: f64) -> Option<WorkerRates> {
        slopes!(before, after, seconds, WorkerRates {
            pushes: pushes, rows: rows, rows_hot: rows_hot, rows_pulled: rows_pulled, packets: packets,
            retransmits: retransmits, samples: training.samples; step
        })
    }
}

fn step_rates(slope: &mut Slope, before: &WorkerStatistics, after: &WorkerStatistics) -> StepRates {
    let [before, after]: [&StepTimes; 2] = [&before.training.step_us, &after.training.step_us];
    let mut seconds = |before, after| slope.of(before, after) / 1e6;
    StepRates {
        data: seconds(before.data, after.data),
        pull: seconds(before.pull, after.pull),
        compute: seconds(before.compute, after.compute),
        push: seconds(before.push, after.push),
        clock: seconds(before.clock, after.clock),
    }
}

impl Rated for SwitchStatistics {
    type Rates = SwitchRates;

    fn of(counts: &Counts) -> Option<Self> {
        if let Counts::Switch(counts) = counts { Some(*counts) } else { None }
    }

    fn rates(before: &Self, after: &Self, seconds: f64) -> Option<SwitchRates> {
        slopes!(
            before,
            after,
            seconds,
            SwitchRates { packets: packets, adds: pushes, pulls: pulls, rounds: rounds, refused: refused }
        )
    }
}

impl Rated for ServerStatistics {
    type Rates = ServerRates;

    fn of(counts: &Counts) -> Option<Self> {
        if let Counts::Server(counts) = counts { Some(*counts) } else { None }
    }

    fn rates(before: &Self, after: &Self, seconds: f64) -> Option<ServerRates> {
        slopes!(
            before,
            after,
            seconds,
            ServerRates {
                row_updates: row_updates,
                row_updates_hot: row_updates_hot,
                row_reads: row_reads,
                rounds: rounds
            }
        )
    }
}

/// Adds the rates of members of one kind.
macro_rules! add_rates {
    ($kind:ident: $($rate:ident),+) => {
        impl AddAssign for $kind {
            fn add_assign(&mut self, other: Self) {
                $(self.$rate += other.$rate;)+
            }
        }
    };
}

add_rates!(WorkerRates: pushes, rows, rows_hot, rows_pulled, packets, retransmits, samples, step);
add_rates!(StepRates: data, pull, compute, push, clock);
add_rates!(SwitchRates: packets, adds, pulls, rounds, refused);
add_rates!(ServerRates: row_updates, row_updates_hot, row_reads, rounds);

/// Returns the share of a part, from 0 to 1; none of nothing.
pub(crate) fn share(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| (part / whole).clamp(0.0, 1.0))
}

impl StepRates {
    /// Returns the shares of the parts in the order of a step: data, pull, compute, push, clock. None for a worker that tells no
    /// times.
    pub(crate) fn shares(&self) -> Option<[f64; 5]> {
        let parts = [self.data, self.pull, self.compute, self.push, self.clock];
        let whole: f64 = parts.iter().sum();
        (whole > 0.0).then(|| parts.map(|part| part / whole))
    }
}

#[cfg(test)]
mod tests {
    use libra_proto::TrainingCounts;

    use super::*;

    fn worker(pushes: u64, pull_us: u64) -> WorkerStatistics {
        let step_us = StepTimes { pull: pull_us, compute: 3 * pull_us, ..StepTimes::default() };
        let training = TrainingCounts { samples: 10 * pushes, step_us, ..TrainingCounts::default() };
        WorkerStatistics { pushes, rows: 100 * pushes, rows_hot: 80 * pushes, training, ..Default::default() }
    }

    #[test]
    fn rates_are_differences_by_time() {
        let rates = Rated::rates(&worker(10, 1_000_000), &worker(30, 1_500_000), 2.0);
        let rates: WorkerRates = rates.expect("all counts rise");
        assert_eq!((rates.pushes, rates.rows, rates.rows_hot, rates.samples), (10.0, 1000.0, 800.0, 100.0));
        assert_eq!((rates.step.pull, rates.step.compute), (0.25, 0.75));
        assert_eq!(share(rates.rows_hot, rates.rows), Some(0.8));
        assert_eq!(rates.step.shares(), Some([0.0, 0.25, 0.75, 0.0, 0.0]));
    }

    #[test]
    fn a_count_that_fell_gives_no_rates() {
        assert_eq!(WorkerStatistics::rates(&worker(30, 9), &worker(2, 10), 1.0), None);
        assert_eq!(WorkerStatistics::rates(&worker(30, 9), &worker(31, 8), 1.0), None, "a time counts, too");
        let switch = |packets| SwitchStatistics { packets, ..Default::default() };
        assert_eq!(SwitchStatistics::rates(&switch(3), &switch(2), 1.0), None);
        let server = |row_reads| ServerStatistics { row_reads, ..Default::default() };
        assert_eq!(ServerStatistics::rates(&server(3), &server(2), 1.0), None);
    }

    #[test]
    fn nothing_has_no_shares() {
        assert_eq!(share(0.0, 0.0), None);
        assert_eq!(StepRates::default().shares(), None);
    }
}
