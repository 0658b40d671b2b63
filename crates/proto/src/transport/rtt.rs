//! Round-trip time and the timers that follow from it (RFC 6298, and the time threshold of RFC 9002 section 6.1.2).

use core::time::Duration;

/// Before the first sample. Generous: a wrong retransmission costs little, but every flow starts here.
const INITIAL: Duration = Duration::from_millis(20);
/// Timers below the scheduling noise of the machines would fire for nothing.
const GRANULARITY: Duration = Duration::from_millis(2);
/// One packet that was not lost costs next to nothing.
const PROBE_TIMEOUT_MIN: Duration = Duration::from_millis(1);
const TIMEOUT_MIN: Duration = Duration::from_millis(10);
pub(super) const TIMEOUT_MAX: Duration = Duration::from_millis(200);

/// Smoothed round-trip time of a path.
#[derive(Debug, Clone)]
pub(crate) struct Rtt {
    smoothed: Option<Duration>,
    variation: Duration,
    latest: Duration,
    least: Duration,
    backoff: u32,
}

impl Rtt {
    /// An estimator without a sample.
    pub(crate) fn new() -> Self {
        Self {
            smoothed: None,
            variation: Duration::ZERO,
            latest: Duration::ZERO,
            least: Duration::MAX,
            backoff: 0,
        }
    }

    /// Learns from a packet that was sent once and answered after `sample` (Karn: never from a retransmitted one).
    /// Only this ends a back-off, or a round trip above the timeout could never be learnt (RFC 6298, section 3).
    pub(crate) fn sample(&mut self, sample: Duration) {
        self.latest = sample;
        self.least = self.least.min(sample);
        self.backoff = 0;
        let Some(smoothed) = self.smoothed else {
            self.smoothed = Some(sample);
            self.variation = sample / 2;
            return;
        };
        self.variation = self.variation * 3 / 4 + smoothed.abs_diff(sample) / 4;
        self.smoothed = Some(smoothed * 7 / 8 + sample / 8);
    }

    /// A timer has fired without an answer: the next one waits twice as long.
    pub(crate) fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(5);
    }

    /// Returns the time to wait for an answer when nothing sent later has been answered either.
    pub(crate) fn timeout(&self) -> Duration {
        let base = match self.smoothed {
            // Round trips through a queue hardly vary while it fills or empties, and then do by more than they ever did.
            Some(smoothed) => smoothed + (self.variation * 4).max(smoothed / 8).max(GRANULARITY),
            None => INITIAL,
        };
        (base.max(TIMEOUT_MIN) * (1 << self.backoff)).min(TIMEOUT_MAX)
    }

    /// Returns the time to wait for an answer when something that was sent later has been answered: reordering explains no more (rule T5).
    pub(crate) fn reorder_allowance(&self) -> Duration {
        let rtt = self.smoothed.unwrap_or(INITIAL).max(self.latest);
        (rtt * 9 / 8).max(GRANULARITY)
    }

    /// After how long without an answer to send something again that may be lost, though nothing later was sent that could
    /// show it (RFC 9002, section 6.2.1).
    pub(crate) fn probe_timeout(&self) -> Duration {
        let rtt = self.smoothed.map_or(INITIAL, |smoothed| smoothed + self.variation * 4);
        rtt.max(PROBE_TIMEOUT_MIN)
    }

    /// Returns true if an answer comes too soon after its packet was sent again: it is one to what was sent before.
    pub(crate) fn is_too_soon(&self, answered_after: Duration) -> bool {
        self.smoothed.is_some() && answered_after < self.least / 2
    }

    /// Returns true if an answer to a packet that was sent again comes so late that it is one to what was sent last (rule T5).
    pub(crate) fn is_late_enough(&self, answered_after: Duration) -> bool {
        self.smoothed.is_some_and(|smoothed| answered_after >= smoothed * 7 / 8)
    }

    /// The smoothed round-trip time, if any packet was answered yet.
    pub(crate) fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_path_gets_a_timeout_an_eighth_above_its_round_trip() {
        let mut rtt = Rtt::new();
        for _ in 0..100 {
            rtt.sample(Duration::from_millis(30));
        }
        assert_eq!(rtt.smoothed().unwrap().as_millis(), 30);
        assert!(rtt.timeout() > Duration::from_millis(33) && rtt.timeout() < Duration::from_millis(34));
    }

    #[test]
    fn timeouts_double_up_to_a_bound_and_a_sample_resets_them() {
        let mut rtt = Rtt::new();
        rtt.sample(Duration::from_millis(1));
        let calm = rtt.timeout();
        rtt.back_off();
        assert_eq!(rtt.timeout(), calm * 2);
        for _ in 0..100 {
            rtt.back_off();
        }
        assert!(rtt.timeout() <= TIMEOUT_MAX);
        rtt.sample(Duration::from_millis(1));
        assert_eq!(rtt.timeout(), calm);
    }
}
