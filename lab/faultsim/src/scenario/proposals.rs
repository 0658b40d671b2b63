//! Jobs that workers describe, and workers that disagree at first.

use core::time::Duration;

use libra_proto::{Cluster, Mode};

use crate::random::Random;

/// Workers describe the job to a controller that has no tables.
#[derive(Debug, Clone, PartialEq)]
pub struct Proposals {
    /// One of several workers describes another job at first.
    pub other: Option<Disagreement>,
}

/// A worker that describes another job, until its user has noticed.
#[derive(Debug, Clone, PartialEq)]
pub struct Disagreement {
    /// Its place among the first workers.
    pub worker: u16,
    /// The time after which it is started again with the job of the others.
    pub ends: Duration,
    kind: u8,
}

impl Proposals {
    /// In some scenarios.
    pub(super) fn draw(random: &mut Random, workers: u16) -> Option<Self> {
        if !random.chance(0.3) {
            return None;
        }
        let other = (workers > 1 && random.chance(0.5)).then(|| Disagreement {
            worker: random.small(0..=workers - 1),
            ends: random.duration(Duration::from_millis(5)..Duration::from_secs(2)),
            kind: *random.pick(&[0, 1, 2, 3]),
        });
        Some(Self { other })
    }
}

impl Disagreement {
    /// The other job.
    pub(crate) fn job(&self, mut job: Cluster) -> Cluster {
        match self.kind {
            0 => job.seed = !job.seed,
            1 => job.mode = if job.mode == Mode::Sync { Mode::Async } else { Mode::Sync },
            2 => job.tables.iter_mut().for_each(|table| table.width += 1),
            _ => drop(job.tables.pop()),
        }
        if self.kind > 1 {
            // Its plan would not fit the tables.
            job.plan = None;
        }
        job
    }
}
