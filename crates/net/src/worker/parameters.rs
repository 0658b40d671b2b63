//! The handle of a training loop as its parameters.

use std::time::Instant;

use libra_proto::{ClientError, Level, Parameters, PullId, Pulled, Tick, TrainingNote, WorkerCommand};

use super::ledger::Open;
use super::meter::Part;
use super::{PUSHES_OPEN_MAX, WorkerNode, WorkerNote, bytes_of};

impl Parameters for WorkerNode {
    fn start_pull(&mut self, keys: Vec<u64>) -> Result<PullId, ClientError> {
        self.metered(Part::Pull, |worker| {
            worker.take_events()?;
            // A step that has begun goes on to its push.
            if worker.ledger.is_empty() {
                worker.go_on()?;
            }
            let bytes = bytes_of(&keys, worker.values_of(&keys));
            let command = |number| WorkerCommand::Pull { id: PullId(number), keys };
            worker.begin(Open::Pull, bytes, command).map(PullId)
        })
    }

    fn finish_pull(&mut self, pull: PullId) -> Result<Pulled, ClientError> {
        self.metered(Part::Pull, |worker| {
            loop {
                if let Some(pulled) = worker.ledger.take_pulled(pull) {
                    return Ok(pulled);
                }
                if !worker.ledger.is_pulling(pull) {
                    return Err(ClientError::UnknownPull(pull));
                }
                worker.wait()?;
            }
        })
    }

    fn push(&mut self, keys: Vec<u64>, gradients: Vec<f32>) -> Result<(), ClientError> {
        self.metered(Part::Push, |worker| {
            worker.take_events()?;
            while worker.ledger.pushes() >= PUSHES_OPEN_MAX {
                worker.wait()?;
            }
            worker.push_at(Level::Accepted, Open::Push, keys, gradients)?;
            worker.go_on()
        })
    }

    fn flush(&mut self) -> Result<(), ClientError> {
        self.metered(Part::Push, |worker| {
            worker.flush_pushes()?;
            worker.go_on()
        })
    }

    fn barrier(&mut self) -> Result<(), ClientError> {
        let number = self.barriers;
        self.barriers += 1;
        self.metered(Part::Clock, |worker| {
            worker.command(WorkerCommand::Barrier { number })?;
            worker.go_on()?;
            while worker.wait()? != WorkerNote::Released(number) {
                worker.go_on()?;
            }
            Ok(())
        })
    }

    fn tick(&mut self, tick: Tick) -> Result<(), ClientError> {
        self.command(WorkerCommand::Tick(tick))
    }

    fn wait_for_clocks(&mut self, least: u64) -> Result<(), ClientError> {
        self.metered(Part::Clock, |worker| {
            worker.take_events()?;
            while worker.clocks < least + worker.leases.skipped {
                worker.go_on()?;
                worker.wait()?;
            }
            Ok(())
        })
    }

    fn next_chunk(&mut self, chunks: u32, _last: Option<u32>) -> Result<Option<u32>, ClientError> {
        let known = self.cluster.chunks(self.leases.phase);
        assert_eq!(known, chunks, "the chunks of phase {} are those of the job", self.leases.phase);
        self.metered(Part::Clock, Self::take_chunk)
    }

    fn expected_chunk(&self, _chunks: u32, _last: Option<u32>) -> Option<u32> {
        self.leases.waiting.front().copied()
    }

    fn finish_chunk(&mut self, chunk: u32, account: String) -> Result<(), ClientError> {
        self.leases.begun -= 1;
        self.command(WorkerCommand::FinishChunk { chunk, account })
    }

    fn note(&mut self, note: TrainingNote) {
        self.meter.note(Instant::now(), note);
    }
}
