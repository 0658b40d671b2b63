//! Pauses of a worker before it asks if its rounds are durable.

use core::time::Duration;

/// Time without an answer before it asks, and asks again (rule T8).
pub(super) const PROBE_INTERVAL: Duration = Duration::from_millis(4);
/// The first pause, while an operation waits for the answer: about what a switch and a shard take for a round that closes at once.
const HURRIED_INTERVAL: Duration = Duration::from_micros(500);

/// Number of probes for the rounds of a region without an answer.
#[derive(Debug, Clone, Default)]
pub(super) struct Patience {
    asked: u32,
}

impl Patience {
    /// Returns the present pause. It is short at first while an operation waits, and then longer and longer: a round may be one that closes by its
    /// time.
    pub(super) fn interval(&self, hurried: bool) -> Duration {
        if !hurried {
            return PROBE_INTERVAL;
        }
        let doubled = 2u32.saturating_pow(self.asked);
        HURRIED_INTERVAL.saturating_mul(doubled).min(PROBE_INTERVAL)
    }

    pub(super) fn asked(&mut self) {
        self.asked = self.asked.saturating_add(1);
    }

    /// A newer epoch is durable.
    pub(super) fn heard(&mut self) {
        self.asked = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // rule T8
    #[test]
    fn an_expedited_probe_is_early_and_then_backs_off() {
        let mut patience = Patience::default();
        let mut intervals = |hurried| {
            let interval = patience.interval(hurried);
            patience.asked();
            interval.as_micros()
        };
        assert_eq!([true; 5].map(&mut intervals), [500, 1000, 2000, 4000, 4000]);
        assert_eq!(intervals(false), 4000);
        patience.heard();
        assert_eq!(patience.interval(true), HURRIED_INTERVAL);
        patience.asked = u32::MAX;
        patience.asked();
        assert_eq!(patience.interval(true), PROBE_INTERVAL);
    }
}
