//! The training loop of one worker.

use std::{collections::VecDeque, mem};

use libra_client::{ClientError, Mode, Parameters, PullId, Pulled, TableSpec, TrainingNote, Widths};
use thiserror::Error;

use crate::{ConfigError, DataError, Learner, Measure, Quality, ncf::NoNegatives};

/// Rows of one pull of an evaluation.
const PULLED_MAX: usize = 4096;

/// Pulls of an evaluation that are under way at the same time.
const PULLS_MAX: usize = 4;

/// Training stopped.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TrainError {
    /// A setting cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The data set cannot be used.
    #[error(transparent)]
    Data(#[from] DataError),
    /// No negatives can be drawn.
    #[error(transparent)]
    Negatives(#[from] NoNegatives),
    /// A worker that does not exist.
    #[error("worker {worker} of {workers}: workers count from 0")]
    Worker {
        /// The worker.
        worker: usize,
        /// Number of workers.
        workers: usize,
    },
    /// The share of the data set for a profile run is none.
    #[error("a sample of {sample} of the data set is none: it must be above 0 and at most 1")]
    Sample {
        /// The share that was asked for.
        sample: f64,
    },
    /// The tables of the model were refused by the store.
    #[error(transparent)]
    Tables(#[from] libra_client::TableError),
    /// The parameter server failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The answer of the parameter server does not have the shape of the rows that were asked for.
    #[error("a pull brought {found} values, its rows have {expected}")]
    Answer {
        /// Values these rows have.
        expected: usize,
        /// Values that came.
        found: usize,
    },
    /// The loss is infinite or not a number: the model has diverged, most likely because a learning rate is too high.
    #[error("the loss of batch {batch} in epoch {epoch} is {loss}: the model has diverged, try a lower rate")]
    Diverged {
        /// The epoch.
        epoch: u32,
        /// The batch of this worker in the epoch, from 0.
        batch: u64,
        /// The loss.
        loss: f64,
    },
    /// A score is not a number.
    #[error("the model scores {what} as {score}: it has diverged, try a lower rate")]
    Score {
        /// The test case.
        what: String,
        /// The score.
        score: f32,
    },
}

/// Progress of an epoch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// The epoch.
    pub epoch: u32,
    /// Samples that this worker has trained on in this epoch.
    pub samples: u64,
    /// Samples that it will have at the end of the epoch.
    pub samples_total: u64,
    /// Mean loss of those samples so far.
    pub loss: f64,
}

/// Result of an epoch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EpochReport {
    /// The epoch.
    pub epoch: u32,
    /// Batches of this worker: as many pulls, and as many pushes.
    pub batches: u64,
    /// Samples of this worker.
    pub samples: u64,
    /// Rows that were pulled and pushed.
    pub rows: u64,
    /// Mean loss of the samples.
    pub loss: f64,
}

/// The training of one worker, whatever it trains.
pub trait Training {
    /// Samples that this worker trains on in one epoch.
    fn samples_per_epoch(&self) -> u64;

    /// Trains on this worker's share once, and waits until its last push is visible. Epochs may be trained in any order, as
    /// the shuffle depends on their number alone. All workers must have been at a barrier just before: modes count from there.
    ///
    /// The pull of the next batch is under way while a batch is computed, so a step reads values that miss the push of the
    /// step before it; but not in [`Mode::Sync`]. `progress` is called after every batch.
    ///
    /// # Errors
    /// The parameter server failed, or the model diverged. What was pushed before stays.
    fn train_epoch(
        &mut self,
        parameters: &mut dyn Parameters,
        epoch: u32,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<EpochReport, TrainError>;

    /// Goes through an epoch without training: hands over the rows of each push, until `see` returns false.
    ///
    /// # Errors
    /// The data cannot be read.
    fn visit_epoch(&mut self, epoch: u32, visit: &mut dyn FnMut(&[u64]) -> bool) -> Result<(), TrainError>;

    /// Measures the current parameters on this worker's part of the test data. The results of all workers are added.
    ///
    /// # Errors
    /// The parameter server failed, or a score is not a number.
    fn evaluate(&mut self, parameters: &mut dyn Parameters) -> Result<Quality, TrainError>;

    /// Returns findings of the last evaluation beside the quality, about the whole model, not this worker's part. Most models have none.
    fn findings(&self) -> Vec<Measure>;
}

/// The loop: pulls what a [`Learner`] deals, and pushes what it computes.
pub(crate) struct Trainer<L: Learner> {
    learner: L,
    mode: Mode,
    widths: Widths,
    /// The batch that is computed and the one that is being pulled meanwhile.
    steps: [Step<L::Batch>; 2],
    gradients: Vec<f32>,
}

/// A batch between its pull and its push.
#[derive(Default)]
struct Step<B> {
    pull: Option<PullId>,
    batch: B,
    samples: usize,
    rows: usize,
    values: usize,
}

impl<L: Learner> Trainer<L> {
    /// Trains `learner`, whose rows are in these tables.
    pub(crate) fn new(learner: L, tables: &[TableSpec], mode: Mode) -> Self {
        let steps = [Step::default(), Step::default()];
        Self { learner, mode, widths: Widths::new(tables), steps, gradients: Vec::new() }
    }

    /// Deals the batch of a step of this epoch and starts its pull, when it may read; `pull` stays `None` at the end of the epoch.
    fn start_step(
        &mut self,
        parameters: &mut dyn Parameters,
        place: usize,
        number: u64,
    ) -> Result<(), TrainError> {
        let step = &mut self.steps[place];
        step.pull = None;
        // About as many as the last time.
        let mut keys = Vec::with_capacity(step.rows);
        parameters.note(TrainingNote::Reads);
        step.samples = self.learner.next_batch(&mut step.batch, &mut keys)?;
        parameters.note(TrainingNote::Computes);
        step.rows = keys.len().max(step.rows);
        if step.samples > 0 {
            step.values = self.widths.sum(&keys);
            self.mode.before_pull(number, parameters)?;
            step.pull = Some(parameters.start_pull(keys)?);
        }
        Ok(())
    }
}

impl<L: Learner> Training for Trainer<L> {
    fn samples_per_epoch(&self) -> u64 {
        self.learner.samples_per_epoch()
    }

    fn train_epoch(
        &mut self,
        parameters: &mut dyn Parameters,
        epoch: u32,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<EpochReport, TrainError> {
        parameters.note(TrainingNote::Reads);
        self.learner.start_epoch(epoch)?;
        parameters.note(TrainingNote::Computes);
        self.learner.before_epoch(epoch, parameters)?;
        let samples_total = self.samples_per_epoch();
        let mut report = EpochReport { epoch, batches: 0, samples: 0, rows: 0, loss: 0.0 };
        let mut loss_sum = 0.0;
        let mut current = 0;
        self.start_step(parameters, current, 0)?;
        while let Some(pull) = self.steps[current].pull.take() {
            let (next, number) = (1 - current, report.batches);
            if self.mode.pulls_ahead() {
                self.start_step(parameters, next, number + 1)?;
            }

            let Pulled { keys, values } = parameters.finish_pull(pull)?;
            self.mode.after_pull(parameters)?;
            let step = &self.steps[current];
            check_answer(step.values, &values)?;
            let loss = self.learner.step(&step.batch, &values, &mut self.gradients)?;
            if !loss.is_finite() {
                return Err(TrainError::Diverged { epoch, batch: report.batches, loss });
            }
            report.batches += 1;
            report.rows += keys.len() as u64;
            report.samples += step.samples as u64;
            loss_sum += loss * step.samples as f64;
            report.loss = loss_sum / report.samples as f64;
            parameters.note(TrainingNote::Trained { samples: step.samples as u64, loss: report.loss });
            // The buffer of the values becomes that of the next gradients, so none is allocated.
            self.mode.before_push(number, parameters)?;
            parameters.push(keys, mem::replace(&mut self.gradients, values))?;
            self.mode.after_push(parameters)?;
            progress(Progress { epoch, samples: report.samples, samples_total, loss: report.loss });
            if !self.mode.pulls_ahead() {
                self.start_step(parameters, next, number + 1)?;
            }
            current = next;
        }
        parameters.flush()?;
        Ok(report)
    }

    fn visit_epoch(&mut self, epoch: u32, visit: &mut dyn FnMut(&[u64]) -> bool) -> Result<(), TrainError> {
        self.learner.start_epoch(epoch)?;
        let mut keys = Vec::new();
        while self.learner.next_batch(&mut self.steps[0].batch, &mut keys)? > 0 && visit(&keys) {
            keys.clear();
        }
        Ok(())
    }

    fn evaluate(&mut self, parameters: &mut dyn Parameters) -> Result<Quality, TrainError> {
        self.learner.evaluate(parameters)
    }

    fn findings(&self) -> Vec<Measure> {
        self.learner.findings()
    }
}

/// Reads rows in several pulls, some of which are under way at the same time.
///
/// # Errors
/// The parameter server failed.
pub(crate) fn read_rows(
    parameters: &mut dyn Parameters,
    widths: &Widths,
    keys: &[u64],
) -> Result<Vec<f32>, TrainError> {
    let mut values = Vec::with_capacity(widths.sum(keys));
    let mut pulls: VecDeque<(PullId, usize)> = VecDeque::new();
    let mut finish = |parameters: &mut dyn Parameters, (pull, expected)| -> Result<(), TrainError> {
        let pulled = parameters.finish_pull(pull)?;
        check_answer(expected, &pulled.values)?;
        values.extend_from_slice(&pulled.values);
        Ok(())
    };
    for part in keys.chunks(PULLED_MAX) {
        if pulls.len() == PULLS_MAX
            && let Some(pull) = pulls.pop_front()
        {
            finish(parameters, pull)?;
        }
        pulls.push_back((parameters.start_pull(part.to_vec())?, widths.sum(part)));
    }
    for pull in pulls {
        finish(parameters, pull)?;
    }
    Ok(values)
}

/// Fails unless an answer has as many values as its rows have.
fn check_answer(expected: usize, values: &[f32]) -> Result<(), TrainError> {
    if values.len() == expected { Ok(()) } else { Err(TrainError::Answer { expected, found: values.len() }) }
}

#[cfg(test)]
mod tests;
