//! Scenarios whose work is dealt in chunks.

use libra_proto::Work;

use super::{Fault, Scenario};
use crate::random::Random;

/// Work is open from this seed on: those below keep the scenarios by which the limits of mutants were found.
pub const OPEN_WORK_FROM: u64 = 10_000;

impl Scenario {
    /// In a quarter of the scenarios work is dealt in chunks, in a third of these it is open, and there is mostly room for more workers than the job begins with.
    pub(super) fn with_work(mut self, random: &mut Random) -> Self {
        let sets_at_barriers = self.workload.set.is_some_and(|set| set.at_barriers);
        if sets_at_barriers || self.has_async_devices || !random.chance(0.25) {
            return self;
        }
        let chunks = (0..random.within(1..=3)).map(|_| u32::from(random.small(1..=20))).collect();
        // Workers that describe a job cannot open its work.
        let is_open = self.seed >= OPEN_WORK_FROM && self.proposals.is_none() && random.fork(1).chance(0.33);
        self.work = Some(if is_open {
            Work { is_open, ..Work::default() }
        } else {
            Work { phases: u64::MAX, chunks, ..Work::default() }
        });
        self.places += random.small(0..=3);
        (self.workload.in_chunks, self.workload.barrier_every, self.workload.tick_every) = (true, 0, 0);
        for _ in 0..random.below(4) {
            let fault = if random.chance(0.6) { Fault::WorkerJoins } else { Fault::WorkerLeaves };
            self.faults.push((random.up_to(self.safety.mul_f64(0.9)), fault));
        }
        self.faults.sort_by_key(|(at, _)| *at);
        self
    }
}
