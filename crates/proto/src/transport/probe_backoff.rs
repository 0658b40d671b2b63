//! Pauses of a worker before it asks if its rounds are durable.

use core::time::Duration;

/// Time without an answer before it asks, and asks again (rule T8).
pub(super) const PROBE_INTERVAL: Duration = Duration::from_millis(4);
/// The first pause, while an operation waits for the answer: about what a switch and a shard take for a round that closes at once.
const EXPEDITED_INTERVAL: Duration = Duration::from_micros(500);

/// Number of probes for the rounds of a region without an answer.
#[derive(Debug, Clone, Default)]
pub(super) struct ProbeBackoff {
    unanswered: u32,
}

impl ProbeBackoff {
    /// Returns the present pause. It is short at first while an operation waits, and then longer and longer: a round may be one that closes by its
    /// time.
    pub(super) fn interval(&self, expedited: bool) -> Duration {
        if !expedited {
            return PROBE_INTERVAL;
        }
        let doubled = 2u32.saturating_pow(self.unanswered);
        EXPEDITED_INTERVAL.saturating_mul(doubled).min(PROBE_INTERVAL)
    }

    pub(super) fn on_probe(&mut self) {
        self.unanswered = self.unanswered.saturating_add(1);
    }

    /// A newer round is durable.
    pub(super) fn reset(&mut self) {
        self.unanswered = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // rule T8
    #[test]
    fn an_expedited_probe_is_early_and_then_backs_off() {
        let mut probe_backoff = ProbeBackoff::default();
        let mut intervals = |expedited| {
            let interval = probe_backoff.interval(expedited);
            probe_backoff.on_probe();
            interval.as_micros()
        };
        assert_eq!([true; 5].map(&mut intervals), [500, 1000, 2000, 4000, 4000]);
        assert_eq!(intervals(false), 4000);
        probe_backoff.reset();
        assert_eq!(probe_backoff.interval(true), EXPEDITED_INTERVAL);
        probe_backoff.unanswered = u32::MAX;
        probe_backoff.on_probe();
        assert_eq!(probe_backoff.interval(true), PROBE_INTERVAL);
    }
}
