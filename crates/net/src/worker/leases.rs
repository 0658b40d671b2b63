//! The chunks that a worker has leases of, and that its user asks for.

use std::collections::VecDeque;

use libra_proto::{ClientError, WorkerCommand};

use super::WorkerNode;
use super::meter::Part;

/// Leases that a worker has at a time: of the chunk that it does, and of the next.
const LEASES: u16 = 2;

/// Chunks that a worker has leases of.
#[derive(Debug, Default)]
pub(super) struct Leases {
    /// The phase that its user is in: behind that of the job until it asks for a chunk.
    pub(super) phase: u64,
    /// It has asked for leases.
    pub(super) is_asking: bool,
    /// Chunks that its user has not begun.
    pub(super) waiting: VecDeque<u32>,
    /// Chunks that its user has begun and not finished.
    pub(super) begun: u32,
    /// Ticks by which its clock is ahead of those of its user.
    pub(super) skipped: u64,
}

impl Leases {
    pub(super) fn begin(phase: u64) -> Self {
        Self { phase, ..Self::default() }
    }
}

impl WorkerNode {
    /// Returns the phase of the work that this worker is in, or enters now; none if there is no more work. Waits for a phase of open work (rule K9).
    ///
    /// # Errors
    /// This worker was asked to end, or the job has ended.
    pub fn next_phase(&mut self) -> Result<Option<u64>, ClientError> {
        self.metered(Part::Clock, |worker| {
            worker.take_events()?;
            loop {
                worker.leases.phase = worker.leases.phase.max(worker.barriers);
                let phase = worker.leases.phase;
                // Of an added phase that is not kept it is going to receive that it is over.
                if phase < worker.cluster.phases() && phase >= worker.cluster.view.added.done {
                    return Ok(Some(phase));
                }
                if phase >= worker.cluster.phases() && !worker.cluster.takes_phases() {
                    return Ok(None);
                }
                worker.go_on()?;
                worker.wait()?;
            }
        })
    }

    /// The next chunk, once there is one; none if there is none at hand and one is to be finished, if it is to end, or behind the phase.
    pub(super) fn take_chunk(&mut self) -> Result<Option<u32>, ClientError> {
        self.take_events()?;
        if !core::mem::replace(&mut self.leases.is_asking, true) {
            self.command(WorkerCommand::Lease { wanted: LEASES })?;
        }
        loop {
            if self.drains {
                return Ok(None);
            }
            if self.barriers > self.leases.phase {
                self.leases.phase = self.barriers;
                return Ok(None);
            }
            let next = self.leases.waiting.pop_front();
            self.leases.begun += u32::from(next.is_some());
            if next.is_some() || self.leases.begun > 0 {
                return Ok(next);
            }
            self.wait()?;
        }
    }
}
