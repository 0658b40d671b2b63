//! Health of a switch, judged by its answers to probes (paper section 3.6: detection by statistics and response delay).

use core::time::Duration;

use crate::statistics::SwitchStatistics;
use crate::time::Instant;

/// Interval of probes of a switch.
pub(super) const PROBE_INTERVAL: Duration = Duration::from_millis(100);
/// Over how long a time rates are taken.
const PERIOD: Duration = Duration::from_secs(1);
/// With fewer packets in a period its loss is not judged.
const PACKETS_MIN: u64 = 500;

/// When a switch is about to fail. What it holds then moves to a standby, if there is one, before it fails (rule M6).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HealthLimits {
    /// The share of pushes that are marked as sent again: packets or their answers get lost on the way.
    pub loss: f64,
    /// Longest time for the answer to a probe.
    pub delay: Duration,
    /// For how many seconds in a row one of them must be exceeded.
    pub seconds: u32,
}

impl Default for HealthLimits {
    fn default() -> Self {
        Self { loss: 0.2, delay: Duration::from_millis(250), seconds: 3 }
    }
}

/// The state of the health check of one switch.
#[derive(Debug, Clone, Default)]
pub(super) struct Health {
    /// The newest probe, and when it was sent.
    probe: u64,
    probed_at: Instant,
    began_at: Instant,
    base: SwitchStatistics,
    delay_max: Duration,
    bad_seconds: u32,
}

impl Health {
    /// The number of the next probe.
    pub(super) fn probe(&mut self, now: Instant) -> u64 {
        self.probe += 1;
        self.probed_at = now;
        self.probe
    }

    /// A probe is answered. Returns whether the switch is about to fail.
    pub(super) fn answered(
        &mut self,
        now: Instant,
        probe: u64,
        counts: &SwitchStatistics,
        limits: &HealthLimits,
    ) -> bool {
        // Later probes were sent before this one was answered: it took longer than they have taken so far.
        let missed = u32::try_from(self.probe.saturating_sub(probe)).unwrap_or(u32::MAX);
        let delay = now.since(self.probed_at) + PROBE_INTERVAL.saturating_mul(missed);
        self.delay_max = self.delay_max.max(delay);
        if now.since(self.began_at) < PERIOD {
            return false;
        }
        let total = |counts: &SwitchStatistics| counts.pushes.saturating_add(counts.duplicates);
        let pushes = total(counts).saturating_sub(total(&self.base));
        let retransmits = counts.retransmits.saturating_sub(self.base.retransmits);
        #[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 52 bits")]
        let loss = if pushes < PACKETS_MIN { 0.0 } else { retransmits as f64 / pushes as f64 };
        let bad = loss > limits.loss || self.delay_max > limits.delay;
        self.bad_seconds = if bad { self.bad_seconds + 1 } else { 0 };
        (self.began_at, self.base, self.delay_max) = (now, *counts, Duration::ZERO);
        self.bad_seconds >= limits.seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A switch that is probed for so many seconds, each probe answered after `delay`.
    fn judge(seconds: u64, delay: Duration, retransmits_in_100: u64) -> bool {
        let (mut health, mut counts) = (Health::default(), SwitchStatistics::default());
        let mut failing = false;
        for probe in 1..=10 * seconds {
            let now = Instant::ZERO + PROBE_INTERVAL * u32::try_from(probe).unwrap();
            let number = health.probe(now);
            counts.pushes += 100;
            counts.retransmits += retransmits_in_100;
            failing |= health.answered(now + delay, number, &counts, &HealthLimits::default());
        }
        failing
    }

    // rule M6
    #[test]
    fn loss_or_delay_must_last_to_count() {
        let prompt = Duration::from_millis(1);
        assert!(!judge(20, prompt, 15));
        assert!(!judge(2, prompt, 50));
        assert!(judge(5, prompt, 25));
        assert!(!judge(20, Duration::from_millis(200), 0));
        assert!(judge(5, Duration::from_millis(300), 0));
    }

    #[test]
    fn an_answer_to_an_old_probe_took_long() {
        let (mut health, counts) = (Health::default(), SwitchStatistics::default());
        let mut failing = false;
        for probe in 1..=60u32 {
            let now = Instant::ZERO + PROBE_INTERVAL * probe;
            let number = health.probe(now);
            if number > 5 {
                failing |= health.answered(now, number - 5, &counts, &HealthLimits::default());
            }
        }
        assert!(failing);
    }
}
