//! The training loop of one worker.

use std::{mem, sync::Arc};

use libra_proto::{ClientError, Parameters, PullId, Pulled};
use thiserror::Error;

use crate::{
    ConfigError, TrainConfig,
    data::{DataError, Dataset, TestCase},
    evaluation,
    model::{ComputeError, Model, Network, SampleRows},
    quality::Quality,
    rows::DistinctRows,
    sampling::{Batch, NoNegatives, Sampler, Share},
};

/// Why training stopped.
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
        /// How many there are.
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
    Tables(#[from] libra_store::TableError),
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
    /// The layers could not be computed.
    #[error(transparent)]
    Compute(#[from] ComputeError),
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
    #[error("the model scores item {item} for user {user} as {score}: it has diverged, try a lower rate")]
    Score {
        /// The user.
        user: u32,
        /// The item.
        item: u32,
        /// The score.
        score: f32,
    },
}

/// How far an epoch is.
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

/// What became of an epoch.
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
    /// Mean loss of the samples: binary cross-entropy, ln 2 for a model that knows nothing.
    pub loss: f64,
}

/// One worker's training: its share of the data, its model, its buffers.
pub struct Trainer {
    dataset: Arc<Dataset>,
    model: Model,
    share: Share,
    sampler: Sampler,
    network: Network,
    distinct: DistinctRows,
    batch: Batch,
    /// The batch that is computed and the one that is being pulled meanwhile.
    steps: [Step; 2],
    gradients: Vec<f32>,
}

/// A batch between its pull and its push.
#[derive(Default)]
struct Step {
    pull: Option<PullId>,
    values: usize,
    samples: SampleRows,
    labels: Vec<f32>,
}

impl Trainer {
    /// The training of worker `worker` of `workers`.
    ///
    /// # Errors
    /// Settings, data set or worker number cannot be used.
    pub fn new(
        config: &TrainConfig,
        dataset: Arc<Dataset>,
        worker: usize,
        workers: usize,
    ) -> Result<Self, TrainError> {
        Self::on_subset(config, dataset, None, worker, workers)
    }

    /// As [`Self::new`], but of all training pairs only those with the indices in `subset` are trained on.
    pub(crate) fn on_subset(
        config: &TrainConfig,
        dataset: Arc<Dataset>,
        subset: Option<Vec<u32>>,
        worker: usize,
        workers: usize,
    ) -> Result<Self, TrainError> {
        config.check()?;
        dataset.check()?;
        if worker >= workers {
            return Err(TrainError::Worker { worker, workers });
        }
        let (batch, negatives, seed) = (config.batch, config.negatives, config.seed);
        let share = Share { worker, workers, batch, negatives, seed };
        let model = Model::new(config, &dataset);
        Ok(Self {
            sampler: Sampler::new(dataset.clone(), subset, share)?,
            network: Network::new(&model)?,
            distinct: DistinctRows::new(model.embedding_rows()),
            dataset,
            model,
            share,
            batch: Batch::default(),
            steps: [Step::default(), Step::default()],
            gradients: Vec::new(),
        })
    }

    /// The model that is trained: its tables are what a parameter server has to hold.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Samples that this worker trains on in one epoch.
    pub fn samples_per_epoch(&self) -> u64 {
        self.sampler.samples_per_epoch()
    }

    /// The test cases that this worker looks after.
    pub fn own_cases(&self) -> &[TestCase] {
        self.dataset.cases_of(self.share.worker, self.share.workers)
    }

    /// Trains on this worker's share once, and waits until its last push is visible. Epochs may be trained in any order, as
    /// the shuffle depends on their number alone.
    ///
    /// The pull of the next batch is under way while a batch is computed, so a step reads values that miss the push of the
    /// step before it. `progress` is called after every batch.
    ///
    /// # Errors
    /// The parameter server failed, or the model diverged. What was pushed before stays.
    pub fn train_epoch<P: Parameters + ?Sized>(
        &mut self,
        parameters: &mut P,
        epoch: u32,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<EpochReport, TrainError> {
        self.sampler.start_epoch(epoch);
        let samples_total = self.samples_per_epoch();
        let mut report = EpochReport { epoch, batches: 0, samples: 0, rows: 0, loss: 0.0 };
        let mut loss_sum = 0.0;
        let mut current = 0;
        self.start_step(parameters, current)?;
        while let Some(pull) = self.steps[current].pull.take() {
            let next = 1 - current;
            self.start_step(parameters, next)?;

            let Pulled { keys, values } = parameters.finish_pull(pull)?;
            let step = &self.steps[current];
            check_answer(step.values, &values)?;
            let loss = self.network.step(&values, &step.samples, &step.labels, &mut self.gradients)?;
            if !loss.is_finite() {
                return Err(TrainError::Diverged { epoch, batch: report.batches, loss });
            }
            report.batches += 1;
            report.rows += keys.len() as u64;
            report.samples += step.samples.len() as u64;
            loss_sum += loss * step.samples.len() as f64;
            report.loss = loss_sum / report.samples as f64;
            // The buffer of the values becomes that of the next gradients, so none is allocated.
            parameters.push(keys, mem::replace(&mut self.gradients, values))?;
            progress(Progress { epoch, samples: report.samples, samples_total, loss: report.loss });
            current = next;
        }
        parameters.flush()?;
        Ok(report)
    }

    /// Deals a batch and starts its pull; `pull` stays `None` at the end of the epoch.
    fn start_step<P: Parameters + ?Sized>(
        &mut self,
        parameters: &mut P,
        place: usize,
    ) -> Result<(), TrainError> {
        let step = &mut self.steps[place];
        step.pull = None;
        if self.sampler.next_batch(&mut self.batch) {
            let mut keys = Vec::with_capacity(2 * self.batch.len() + 3);
            self.distinct.collect(&self.model, &self.batch, &mut keys, &mut step.samples);
            mem::swap(&mut step.labels, &mut self.batch.labels);
            step.values = self.model.values_of(&keys);
            step.pull = Some(parameters.start_pull(keys)?);
        }
        Ok(())
    }

    /// Ranks the item of each of `cases` among its negatives, with the parameters as they are now.
    ///
    /// Usually `cases` are [`Self::own_cases`], and the answers of all workers are added.
    ///
    /// # Errors
    /// The parameter server failed, or a score is not a number.
    pub fn evaluate<P: Parameters + ?Sized>(
        &mut self,
        parameters: &mut P,
        cases: &[TestCase],
    ) -> Result<Quality, TrainError> {
        evaluation::evaluate(&self.model, &mut self.network, &mut self.distinct, parameters, cases)
    }
}

/// Fails unless an answer has as many values as its rows have.
pub(crate) fn check_answer(expected: usize, values: &[f32]) -> Result<(), TrainError> {
    if values.len() == expected { Ok(()) } else { Err(TrainError::Answer { expected, found: values.len() }) }
}

#[cfg(test)]
mod tests;
