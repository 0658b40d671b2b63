//! Interface of a model that can be trained.

use std::{ops::Range, sync::Arc};

use libra_client::{Parameters, TableSpec};

use crate::{Measure, Quality, TrainError, Training};

/// Part of a data set that one worker trains on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Partition {
    /// This worker, below `workers`.
    pub worker: usize,
    /// All workers.
    pub workers: usize,
    /// Partition of the training data that all workers together train on, drawn by the seed: above 0, at most 1.
    pub sample: f64,
}

impl Partition {
    /// Everything, for a single worker.
    pub const WHOLE: Self = Self { worker: 0, workers: 1, sample: 1.0 };

    /// The share of worker `worker` of `workers` of all data.
    pub fn of(worker: usize, workers: usize) -> Self {
        Self { worker, workers, ..Self::WHOLE }
    }

    /// Fails if there is no such share.
    ///
    /// # Errors
    /// [`TrainError::Worker`] or [`TrainError::Sample`].
    pub fn check(&self) -> Result<(), TrainError> {
        let Self { worker, workers, sample } = *self;
        if worker >= workers {
            return Err(TrainError::Worker { worker, workers });
        }
        if !(sample > 0.0 && sample <= 1.0) {
            return Err(TrainError::Sample { sample });
        }
        Ok(())
    }

    /// Returns the range of `count` things that are this worker's, if each worker gets a run of neighbours.
    pub fn range(&self, count: usize) -> Range<usize> {
        let Range { start, end } = self.range_of(count as u64);
        let place = |at: u64| usize::try_from(at).expect("at most the count");
        place(start)..place(end)
    }

    /// The same where things are counted with 64 bits.
    pub fn range_of(&self, count: u64) -> Range<u64> {
        let bound = |worker: usize| {
            let bound = u128::from(count) * worker as u128 / self.workers as u128;
            u64::try_from(bound).expect("at most the count")
        };
        bound(self.worker)..bound(self.worker + 1)
    }
}

/// A model and its data: what a job trains. The workers of a process share one.
///
/// Everything follows from settings, data and seeds, so that every process of a job has the same.
pub trait Workload: Send + Sync {
    /// The model and its size, for people: `neumf, 8 factors`.
    fn model(&self) -> String;

    /// A short name of the data set.
    fn data(&self) -> &str;

    /// Size of the data: 6040 users, 3706 items. A worker compares it with the controller's to detect that it has
    /// other data.
    fn size(&self) -> Vec<(u64, &'static str)>;

    /// The tables of the model (see [`LAYER_KEYS`](crate::LAYER_KEYS)), for the parameter server.
    fn tables(&self) -> Vec<TableSpec>;

    /// Samples of one epoch, of all workers together.
    fn samples_per_epoch(&self) -> u64;

    /// Returns the loss of an untrained model.
    fn untrained_loss(&self) -> f64;

    /// Returns the quality of baselines without a model, which training has to beat.
    fn baselines(&self) -> Vec<Measure>;

    /// The training of one worker.
    ///
    /// # Errors
    /// There is no such share, or data or settings cannot be used.
    fn training(self: Arc<Self>, partition: Partition) -> Result<Box<dyn Training>, TrainError>;
}

/// A model at one worker: deals batches, and computes.
pub trait Learner {
    /// Samples of a step, between being dealt and being computed.
    type Batch: Default;

    /// Shuffles for an epoch and goes to its start. What is dealt follows from the number of the epoch, not from what was dealt before.
    ///
    /// # Errors
    /// The data cannot be read.
    fn start_epoch(&mut self, epoch: u32) -> Result<(), TrainError>;

    /// Called after [`Self::start_epoch`], before the first batch is dealt: for a model that has to see parameters beyond those of its batches.
    ///
    /// # Errors
    /// The parameter server failed.
    fn before_epoch(&mut self, _epoch: u32, _parameters: &mut dyn Parameters) -> Result<(), TrainError> {
        Ok(())
    }

    /// Samples that this worker trains on in an epoch.
    fn samples_per_epoch(&self) -> u64;

    /// Replaces `batch` by the next samples, and `keys`, which is empty, by the rows that it takes: each once, and those of layers as well.
    /// Returns how many samples there are; none at the end of the epoch.
    ///
    /// # Errors
    /// The data cannot be read.
    fn next_batch(&mut self, batch: &mut Self::Batch, keys: &mut Vec<u64>) -> Result<usize, TrainError>;

    /// The mean loss of a batch. `values` holds its rows in the order of their keys; `gradients` is replaced by the gradients of the mean, laid out
    /// like them.
    ///
    /// # Errors
    /// The computation failed.
    fn step(
        &mut self,
        batch: &Self::Batch,
        values: &[f32],
        gradients: &mut Vec<f32>,
    ) -> Result<f64, TrainError>;

    /// Measures the current parameters on this worker's part of the test data.
    ///
    /// # Errors
    /// The parameter server failed, or a score is not a number.
    fn evaluate(&mut self, parameters: &mut dyn Parameters) -> Result<Quality, TrainError>;

    /// Returns findings of the last evaluation beside the quality, about the whole model, not this worker's part. Most models have none.
    fn findings(&self) -> Vec<Measure> {
        Vec::new()
    }
}
