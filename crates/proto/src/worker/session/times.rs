//! Durations of a worker's operations, for its status.

use core::time::Duration;

use crate::status::WorkerDetails;
use crate::time::Instant;

/// Interval at which one push is followed until it is visible: its packets are looked for with each answer that comes.
const VISIBLE_INTERVAL: Duration = Duration::from_millis(100);

/// How many rows of a pull were read in switches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PullPath {
    Hot,
    Cold,
    Mixed,
}

impl PullPath {
    pub(super) fn of(rows_hot: usize, rows: usize) -> Self {
        match rows_hot {
            0 => Self::Cold,
            hot if hot == rows => Self::Hot,
            _ => Self::Mixed,
        }
    }
}

/// The durations so far.
#[derive(Debug, Clone, Default)]
pub(super) struct OperationTimes {
    /// What was measured; its paths are empty.
    details: WorkerDetails,
    /// When the next push is to be followed; none while one is.
    follow_at: Option<Instant>,
    follows: bool,
}

impl OperationTimes {
    /// Returns true if a push that begins now is to be followed until it is visible.
    pub(super) fn follow(&mut self, now: Instant) -> bool {
        let is_due = !self.follows && self.follow_at.is_none_or(|due| due <= now);
        if is_due {
            (self.follows, self.follow_at) = (true, Some(now + VISIBLE_INTERVAL));
        }
        is_due
    }

    /// The push that was followed is visible.
    pub(super) fn visible(&mut self, took: Duration) {
        self.follows = false;
        self.details.push_visible.record(took);
    }

    pub(super) fn pushed(&mut self, took: Duration) {
        self.details.push_accepted.record(took);
    }

    pub(super) fn pulled(&mut self, path: PullPath, took: Duration) {
        let histogram = match path {
            PullPath::Hot => &mut self.details.pull_hot,
            PullPath::Cold => &mut self.details.pull_cold,
            PullPath::Mixed => &mut self.details.pull_mixed,
        };
        histogram.record(took);
    }

    /// Returns a copy, without paths.
    pub(super) fn details(&self) -> WorkerDetails {
        self.details.clone()
    }
}
