//! The training loop of one worker.

use std::{collections::VecDeque, mem};

use libra_client::{ClientError, Mode, Parameters, PullId, Pulled, TableSpec, TrainingNote, Widths};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{Chunk, ConfigError, DataError, Learner, Measure, Quality, ncf::NoNegatives, quality::Mismatch};

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
    /// Samples of the epoch, of all workers together: a worker trains on as many of them as it gets.
    pub samples_total: u64,
    /// Mean loss of those samples so far.
    pub loss: f64,
}

/// Result of the training of an epoch, by one worker or by several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct EpochReport {
    /// The epoch.
    pub epoch: u32,
    /// Batches: as many pulls, and as many pushes.
    pub batches: u64,
    /// Samples.
    pub samples: u64,
    /// Rows that were pulled and pushed.
    pub rows: u64,
    /// Mean loss of the samples; 0 of none.
    pub loss: f64,
}

impl EpochReport {
    /// Adds what another worker did in the same epoch.
    pub fn add(&mut self, other: &Self) {
        self.batches += other.batches;
        self.rows += other.rows;
        self.add_loss(other.samples, other.loss);
    }

    /// Adds samples with their mean loss.
    fn add_loss(&mut self, samples: u64, loss: f64) {
        self.samples += samples;
        if self.samples > 0 {
            self.loss += (loss - self.loss) * (samples as f64 / self.samples as f64);
        }
    }
}

/// Result of the evaluation of a model, by one worker or by several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// The quality on the chunks of the test data that were evaluated.
    pub quality: Quality,
    /// Findings beside it, about the whole model: each worker that evaluates has them for itself.
    pub findings: Vec<Measure>,
}

impl Evaluation {
    /// Adds what another worker found on other chunks.
    ///
    /// # Errors
    /// Something else was measured there.
    pub fn add(&mut self, other: &Self) -> Result<(), Mismatch> {
        self.quality.add(&other.quality)?;
        if self.findings.is_empty() {
            self.findings.clone_from(&other.findings);
        }
        Ok(())
    }
}

/// The training of one worker, whatever it trains.
pub trait Training {
    /// Samples of one epoch, of all workers together.
    fn samples_per_epoch(&self) -> u64;

    /// Chunks of an epoch that a single worker goes through.
    fn chunks_alone(&self) -> u32;

    /// Goes to a file of data that are [followed](crate::TrainConfig::follow): epochs and evaluations are passes over it until there is another.
    ///
    /// # Errors
    /// The file cannot be read, or has other columns than the first one.
    fn start_file(&mut self, name: &str) -> Result<(), TrainError>;

    /// Trains on the chunks of an epoch that this worker gets (see [`Parameters::next_chunk`]) until all are done, and waits until its last push is visible. Epochs may
    /// be trained in any order, as the order of the samples depends on their number alone. Modes count the steps of a
    /// worker from here. The account of a chunk is the [`EpochReport`] so far, as JSON.
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
        chunks: u32,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<EpochReport, TrainError>;

    /// Goes through a whole epoch without training: hands over the rows of each push, until `visit` returns false.
    ///
    /// # Errors
    /// The data cannot be read.
    fn visit_epoch(&mut self, epoch: u32, visit: &mut dyn FnMut(&[u64]) -> bool) -> Result<(), TrainError>;

    /// Measures the current parameters, which are those after an epoch, on the chunks of the test data that this worker gets, until all are done. The results of all workers are added. The account of a
    /// chunk is the [`Evaluation`] so far, as JSON.
    ///
    /// # Errors
    /// The parameter server failed, or a score is not a number.
    fn evaluate(
        &mut self,
        parameters: &mut dyn Parameters,
        epoch: u32,
        chunks: u32,
    ) -> Result<Evaluation, TrainError>;
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
    /// The chunk of the batch.
    chunk: Option<u32>,
    batch: B,
    samples: usize,
    rows: usize,
    values: usize,
}

/// The chunks that a worker gets in an epoch.
struct Chunks {
    chunks: u32,
    /// The one that it got last, and whether there is more of it.
    last: Option<u32>,
    is_open: bool,
}

impl<L: Learner> Trainer<L> {
    /// Trains `learner`, whose rows are in these tables.
    pub(crate) fn new(learner: L, tables: &[TableSpec], mode: Mode) -> Self {
        let steps = [Step::default(), Step::default()];
        Self { learner, mode, widths: Widths::new(tables), steps, gradients: Vec::new() }
    }

    /// Deals the batch of a step of this epoch, which may be the first of another chunk, and starts its pull, when it may read; `pull` stays `None` if there is no chunk
    /// to be had.
    fn start_step(
        &mut self,
        parameters: &mut dyn Parameters,
        place: usize,
        chunks: &mut Chunks,
        report: &EpochReport,
        number: u64,
    ) -> Result<(), TrainError> {
        let step = &mut self.steps[place];
        (step.pull, step.chunk) = (None, None);
        // About as many as the last time.
        let mut keys = Vec::with_capacity(step.rows);
        let mut started = None;
        loop {
            if chunks.is_open {
                parameters.note(TrainingNote::Reads);
                step.samples = self.learner.next_batch(&mut step.batch, &mut keys)?;
                parameters.note(TrainingNote::Read(self.learner.reads()));
                parameters.note(TrainingNote::Computes);
                if step.samples > 0 {
                    break;
                }
                chunks.is_open = false;
            }
            if let Some(empty) = started {
                parameters.finish_chunk(empty, account(report))?;
            }
            let Some(chunk) = parameters.next_chunk(chunks.chunks, chunks.last)? else { return Ok(()) };
            parameters.note(TrainingNote::Reads);
            self.learner.start_chunk(Chunk { number: chunk, chunks: chunks.chunks })?;
            parameters.note(TrainingNote::Computes);
            (chunks.last, chunks.is_open) = (Some(chunk), true);
            started = Some(chunk);
        }
        if let Some(number) = parameters.expected_chunk(chunks.chunks, chunks.last) {
            self.learner.expect_chunk(Chunk { number, chunks: chunks.chunks });
        }
        step.chunk = chunks.last;
        step.rows = keys.len().max(step.rows);
        step.values = self.widths.sum(&keys);
        self.mode.before_pull(number, parameters)?;
        step.pull = Some(parameters.start_pull(keys)?);
        Ok(())
    }
}

impl<L: Learner> Training for Trainer<L> {
    fn samples_per_epoch(&self) -> u64 {
        self.learner.samples_per_epoch()
    }

    fn chunks_alone(&self) -> u32 {
        self.learner.chunks_alone()
    }

    fn start_file(&mut self, name: &str) -> Result<(), TrainError> {
        self.learner.start_file(name)
    }

    fn train_epoch(
        &mut self,
        parameters: &mut dyn Parameters,
        epoch: u32,
        chunks: u32,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<EpochReport, TrainError> {
        self.learner.start_epoch(epoch);
        self.learner.before_epoch(epoch, parameters)?;
        let samples_total = self.samples_per_epoch();
        let mut report = EpochReport { epoch, ..EpochReport::default() };
        let chunks = &mut Chunks { chunks, last: None, is_open: false };
        let mut current = 0;
        self.start_step(parameters, current, chunks, &report, 0)?;
        while let Some(pull) = self.steps[current].pull.take() {
            let (next, number) = (1 - current, report.batches);
            if self.mode.pulls_ahead() {
                self.start_step(parameters, next, chunks, &report, number + 1)?;
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
            report.add_loss(step.samples as u64, loss);
            parameters.note(TrainingNote::Trained { samples: step.samples as u64, loss: report.loss });
            // The buffer of the values becomes that of the next gradients, so none is allocated.
            self.mode.before_push(number, parameters)?;
            parameters.push(keys, mem::replace(&mut self.gradients, values))?;
            self.mode.after_push(parameters)?;
            progress(Progress { epoch, samples: report.samples, samples_total, loss: report.loss });

            if !self.mode.pulls_ahead() {
                self.start_step(parameters, next, chunks, &report, number + 1)?;
            }
            if let Some(chunk) = self.steps[current].chunk
                && self.steps[next].chunk != Some(chunk)
            {
                parameters.finish_chunk(chunk, account(&report))?;
                // A worker that has finished what it had waits for chunks that come back from others.
                if self.steps[next].pull.is_none() {
                    self.start_step(parameters, next, chunks, &report, number + 1)?;
                }
            }
            current = next;
        }
        parameters.flush()?;
        Ok(report)
    }

    fn visit_epoch(&mut self, epoch: u32, visit: &mut dyn FnMut(&[u64]) -> bool) -> Result<(), TrainError> {
        self.learner.start_epoch(epoch);
        let chunks = self.chunks_alone();
        let mut keys = Vec::new();
        for number in 0..chunks {
            self.learner.start_chunk(Chunk { number, chunks })?;
            if number + 1 < chunks {
                self.learner.expect_chunk(Chunk { number: number + 1, chunks });
            }
            while self.learner.next_batch(&mut self.steps[0].batch, &mut keys)? > 0 {
                if !visit(&keys) {
                    return Ok(());
                }
                keys.clear();
            }
        }
        Ok(())
    }

    fn evaluate(
        &mut self,
        parameters: &mut dyn Parameters,
        epoch: u32,
        chunks: u32,
    ) -> Result<Evaluation, TrainError> {
        let mut evaluation = Evaluation { quality: self.learner.quality_of_nothing(), findings: Vec::new() };
        let mut last = None;
        while let Some(number) = parameters.next_chunk(chunks, last)? {
            if last.is_none() {
                evaluation.findings = self.learner.start_evaluation(epoch, parameters)?;
            }
            let quality = self.learner.evaluate(Chunk { number, chunks }, parameters)?;
            parameters.note(TrainingNote::Read(self.learner.reads()));
            evaluation.quality.add(&quality).expect("a model has one kind of quality");
            parameters.finish_chunk(number, account(&evaluation))?;
            last = Some(number);
        }
        Ok(evaluation)
    }
}

/// The account of a worker, for [`Parameters::finish_chunk`].
fn account(account: &impl Serialize) -> String {
    serde_json::to_string(account).expect("an account is numbers and names")
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
