//! Time for which a switch has owed an answer.

use core::time::Duration;

use crate::time::Instant;

/// Time without any answer after which the switch is reported to the controller.
const UNREACHABLE_AFTER: Duration = Duration::from_secs(2);
/// Interval of probes in the meantime that ask for nothing but an answer.
const ASK_INTERVAL: Duration = Duration::from_millis(250);
/// The time between two looks counts as no more than this: a process that slept did not wait meanwhile. A worker looks with each heartbeat.
const STEP_MAX: Duration = Duration::from_millis(600);

/// The time that a switch has owed an answer, as far as its worker was awake.
#[derive(Debug, Clone, Default)]
pub(super) struct Outage {
    /// Up to when it is counted; `None` while nothing is owed.
    counted_to: Option<Instant>,
    lasted: Duration,
    /// When the switch is asked next.
    ask_at: Option<Instant>,
}

impl Outage {
    /// Something is asked.
    pub(super) fn begin(&mut self, now: Instant) {
        self.counted_to.get_or_insert(now);
        self.ask_at.get_or_insert(now + ASK_INTERVAL);
    }

    /// Returns true if the switch is to be asked now.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.ask_at.is_some_and(|due| due <= now);
        if is_due {
            self.ask_at = Some(now + ASK_INTERVAL);
        }
        is_due
    }

    /// The switch has answered, or nothing is asked any more.
    pub(super) fn end(&mut self) {
        *self = Self::default();
    }

    /// Returns true if it has lasted for too long, once for each time that it has.
    pub(super) fn is_too_long(&mut self, now: Instant) -> bool {
        let Some(counted_to) = self.counted_to else { return false };
        self.lasted += now.since(counted_to).min(STEP_MAX);
        self.counted_to = Some(now);
        let is_too_long = self.lasted >= UNREACHABLE_AFTER;
        if is_too_long {
            self.lasted = Duration::ZERO;
        }
        is_too_long
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    // rule M14
    #[test]
    fn two_seconds_without_an_answer_are_too_long() {
        let mut outage = Outage::default();
        assert!(!outage.is_too_long(at(90_000)), "nothing was asked");
        outage.begin(at(100_000));
        outage.begin(at(101_000));
        let mut is_expired = |millis| outage.is_too_long(at(millis));
        assert_eq!(
            [100_500, 101_000, 101_500, 101_999, 102_000, 102_500].map(&mut is_expired),
            [false, false, false, false, true, false]
        );
        assert_eq!([103_000, 103_500, 104_000].map(&mut is_expired), [false, false, true]);
        outage.end();
        assert!(!outage.is_too_long(at(200_000)));
    }

    #[test]
    fn the_switch_is_asked_four_times_a_second() {
        let mut outage = Outage::default();
        assert!(!outage.is_due(at(9000)), "nothing was asked");
        outage.begin(at(10_000));
        let mut is_due = |millis| outage.is_due(at(millis));
        assert_eq!(
            [10_249, 10_250, 10_499, 10_600, 10_850].map(&mut is_due),
            [false, true, false, true, true]
        );
        outage.end();
        assert!(!outage.is_due(at(20_000)));
    }

    // rules M13, M14
    #[test]
    fn time_that_the_worker_slept_does_not_count() {
        let mut outage = Outage::default();
        outage.begin(at(0));
        assert!(
            ![600_000, 600_004, 600_008, 600_012, 601_000]
                .map(|now| outage.is_too_long(at(now)))
                .contains(&true)
        );
        assert!(!outage.is_too_long(at(601_587)));
        assert!(outage.is_too_long(at(601_788)));
    }
}
