//! Time of a training loop by what it does, measured where it calls.

use core::time::Duration;
use std::time::Instant;

use libra_proto::{StepTimes, TrainingCounts, TrainingNote};

/// Interval at which the role learns of the progress.
const REPORT_INTERVAL: Duration = Duration::from_millis(100);

/// A part of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Data,
    Pull,
    Compute,
    Push,
    Clock,
}

/// Measures parts of steps, and keeps the progress of the training.
#[derive(Debug)]
pub(super) struct Meter {
    part: Part,
    since: Instant,
    reported_at: Instant,
    counts: TrainingCounts,
    /// Nanoseconds below a microsecond, which are not lost.
    rest: [u64; 5],
}

impl Meter {
    pub(super) fn new(now: Instant) -> Self {
        let counts = TrainingCounts::default();
        Self { part: Part::Compute, since: now, reported_at: now, counts, rest: [0; 5] }
    }

    /// Another part begins. Returns the one before.
    pub(super) fn enter(&mut self, now: Instant, part: Part) -> Part {
        let before = core::mem::replace(&mut self.part, part);
        let took = now.saturating_duration_since(core::mem::replace(&mut self.since, now));
        let rest = &mut self.rest[before as usize];
        let nanos = *rest + u64::try_from(took.as_nanos()).unwrap_or(u64::MAX / 2);
        *rest = nanos % 1000;
        *part_of(&mut self.counts.step_us, before) += nanos / 1000;
        before
    }

    /// The training loop tells what it does.
    pub(super) fn note(&mut self, now: Instant, note: TrainingNote) {
        match note {
            TrainingNote::Plans { samples } => self.counts.samples_planned += samples,
            TrainingNote::Reads => drop(self.enter(now, Part::Data)),
            TrainingNote::Read(reads) => self.counts.reads = reads,
            TrainingNote::Computes => drop(self.enter(now, Part::Compute)),
            TrainingNote::Trained { samples, loss } => {
                self.counts.samples += samples;
                self.counts.loss = loss;
            }
        }
    }

    /// Returns the counts if it is time for the role to learn of them.
    pub(super) fn poll(&mut self, now: Instant) -> Option<TrainingCounts> {
        let is_due = now.saturating_duration_since(self.reported_at) >= REPORT_INTERVAL;
        is_due.then(|| self.counts(now))
    }

    /// Returns the counts up to now.
    pub(super) fn counts(&mut self, now: Instant) -> TrainingCounts {
        self.reported_at = now;
        self.enter(now, self.part);
        self.counts
    }
}

fn part_of(times: &mut StepTimes, part: Part) -> &mut u64 {
    match part {
        Part::Data => &mut times.data,
        Part::Pull => &mut times.pull,
        Part::Compute => &mut times.compute,
        Part::Push => &mut times.push,
        Part::Clock => &mut times.clock,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_to_the_time_since_the_begin() {
        let began = Instant::now();
        let mut meter = Meter::new(began);
        let mut now = began;
        let mut enter = |meter: &mut Meter, part, nanos| {
            now += Duration::from_nanos(nanos);
            meter.enter(now, part);
        };
        for _ in 0..1000 {
            enter(&mut meter, Part::Data, 1_300);
            enter(&mut meter, Part::Pull, 2_700);
            enter(&mut meter, Part::Clock, 10_900);
            enter(&mut meter, Part::Compute, 100);
        }
        let times = meter.counts(now).step_us;
        assert_eq!(times, StepTimes { data: 2_700, pull: 10_900, compute: 1_300, push: 0, clock: 100 });
    }

    #[test]
    fn the_role_learns_of_progress_ten_times_a_second() {
        let began = Instant::now();
        let mut meter = Meter::new(began);
        meter.note(began, TrainingNote::Plans { samples: 10 });
        meter.note(began, TrainingNote::Trained { samples: 4, loss: 0.5 });
        assert_eq!(meter.poll(began + Duration::from_millis(99)), None);
        let counts = meter.poll(began + Duration::from_millis(101)).unwrap();
        assert_eq!((counts.samples, counts.samples_planned, counts.loss), (4, 10, 0.5));
        assert_eq!(meter.poll(began + Duration::from_millis(150)), None);
    }
}
