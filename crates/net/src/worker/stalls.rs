//! Times in which nothing gets done.

use core::time::Duration;
use std::time::Instant;

/// The longest time for which pushes waited without one of them getting done.
#[derive(Debug, Default)]
pub(super) struct Stalls {
    /// Since when pushes are under way and none was answered.
    since: Option<Instant>,
    pub(super) longest: Duration,
}

impl Stalls {
    pub(super) fn pushed(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    pub(super) fn answered(&mut self, at: Instant, left: usize) {
        if let Some(since) = self.since {
            self.longest = self.longest.max(at.saturating_duration_since(since));
        }
        self.since = (left > 0).then_some(at);
    }
}
