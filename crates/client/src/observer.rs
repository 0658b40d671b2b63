//! Observers of pushes.

use libra_proto::{ClientError, Parameters, PullId, Pulled, Tick, TrainingNote};

/// Sees pushes before they are applied.
pub trait PushObserver {
    /// Sees one push: its keys, and the gradients of their rows one after the other.
    fn on_push(&mut self, keys: &[u64], gradients: &[f32]);
}

impl<W: PushObserver + ?Sized> PushObserver for &mut W {
    fn on_push(&mut self, keys: &[u64], gradients: &[f32]) {
        (**self).on_push(keys, gradients);
    }
}

/// Parameters whose pushes an observer sees.
pub struct Observed<'a, W> {
    parameters: &'a mut dyn Parameters,
    /// The observer.
    pub observer: W,
}

impl<'a, W: PushObserver> Observed<'a, W> {
    /// Shows all that is pushed to `parameters` to `observer`.
    pub fn new(parameters: &'a mut dyn Parameters, observer: W) -> Self {
        Self { parameters, observer }
    }
}

impl<W: PushObserver> Parameters for Observed<'_, W> {
    fn start_pull(&mut self, keys: Vec<u64>) -> Result<PullId, ClientError> {
        self.parameters.start_pull(keys)
    }

    fn finish_pull(&mut self, pull: PullId) -> Result<Pulled, ClientError> {
        self.parameters.finish_pull(pull)
    }

    fn push(&mut self, keys: Vec<u64>, gradients: Vec<f32>) -> Result<(), ClientError> {
        self.observer.on_push(&keys, &gradients);
        self.parameters.push(keys, gradients)
    }

    fn flush(&mut self) -> Result<(), ClientError> {
        self.parameters.flush()
    }

    fn barrier(&mut self) -> Result<(), ClientError> {
        self.parameters.barrier()
    }

    fn tick(&mut self, tick: Tick) -> Result<(), ClientError> {
        self.parameters.tick(tick)
    }

    fn wait_for_clocks(&mut self, least: u64) -> Result<(), ClientError> {
        self.parameters.wait_for_clocks(least)
    }

    fn next_chunk(&mut self, chunks: u32, last: Option<u32>) -> Result<Option<u32>, ClientError> {
        self.parameters.next_chunk(chunks, last)
    }

    fn expected_chunk(&self, chunks: u32, last: Option<u32>) -> Option<u32> {
        self.parameters.expected_chunk(chunks, last)
    }

    fn finish_chunk(&mut self, chunk: u32, account: String) -> Result<(), ClientError> {
        self.parameters.finish_chunk(chunk, account)
    }

    fn note(&mut self, note: TrainingNote) {
        self.parameters.note(note);
    }
}
