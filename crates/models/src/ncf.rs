//! Neural Collaborative Filtering (He et al. 2017, arXiv:1708.05031): predicts the item that a user touches next. MovieLens, or synthetic data.

pub mod data;
mod evaluation;
mod model;
mod sampling;

use std::sync::Arc;

use libra_client::{Parameters, TableSpec, Widths};
use serde::{Deserialize, Serialize};

pub use data::{Dataset, Synthetic, TestCase};
pub use model::Branches;
use model::{Model, Network, SampleRows};
pub use sampling::NoNegatives;
use sampling::{Batch, BatchConfig, Sampler};

use crate::{
    Chunk, Chunks, DataFile, Learner, Measure, Quality, TrainConfig, TrainError, Training, Workload,
    config::ConfigError,
    learner::chunks_of,
    quality::{LIST, Ranking},
    rows::DistinctRows,
    trainer::{Trainer, read_rows},
};

/// Largest number of factors: the tower of such a model has 16 million weights.
pub const FACTORS_MAX: usize = 1024;

/// Largest number of negatives for a positive.
pub const NEGATIVES_MAX: usize = 1000;

/// Test cases that a chunk of an evaluation has at least.
const TESTED_CASES: u64 = 16;

/// Settings of this model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NcfConfig {
    /// One of the three models.
    pub branches: Branches,
    /// Predictive factors F: how wide the last hidden layer is, and with it everything else.
    pub factors: usize,
    /// Negatives drawn for each positive.
    pub negatives: usize,
    /// Standard deviation of the initial embeddings, which are normal with mean 0.
    pub deviation: f32,
}

impl Default for NcfConfig {
    fn default() -> Self {
        Self { branches: Branches::Neumf, factors: 8, negatives: 4, deviation: 0.01 }
    }
}

impl NcfConfig {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if !(1..=FACTORS_MAX).contains(&self.factors) {
            return Err(ConfigError::new("factors", &self.factors, "between 1 and 1024"));
        }
        if self.negatives > NEGATIVES_MAX {
            return Err(ConfigError::new("negatives", &self.negatives, "at most 1000"));
        }
        if !(self.deviation.is_finite() && self.deviation > 0.0) {
            return Err(ConfigError::new("deviation", &self.deviation, "a positive number"));
        }
        Ok(())
    }
}

/// A model of users and items, and who touched what.
#[derive(Debug)]
pub struct Ncf {
    settings: NcfConfig,
    config: TrainConfig,
    dataset: Arc<Dataset>,
    model: Model,
}

impl Ncf {
    /// A model with these settings for the users and items of `dataset`.
    ///
    /// # Errors
    /// Settings or data cannot be used.
    pub fn new(
        settings: &NcfConfig,
        config: &TrainConfig,
        dataset: Arc<Dataset>,
    ) -> Result<Self, TrainError> {
        config.check()?;
        settings.check()?;
        dataset.check()?;
        let model = Model::new(settings, config, &dataset);
        Ok(Self { settings: settings.clone(), config: config.clone(), dataset, model })
    }
}

impl Workload for Ncf {
    fn model(&self) -> String {
        format!("{}, {} factors", self.settings.branches, self.settings.factors)
    }

    fn data(&self) -> &str {
        &self.dataset.name
    }

    fn size(&self) -> Vec<(u64, &'static str)> {
        let Dataset { users, items, train, .. } = &*self.dataset;
        vec![((*users).into(), "users"), ((*items).into(), "items"), (train.len() as u64, "pairs")]
    }

    fn files(&self) -> Vec<DataFile> {
        self.dataset.files.clone()
    }

    fn tables(&self) -> Vec<TableSpec> {
        self.model.tables()
    }

    fn samples_per_epoch(&self) -> u64 {
        (self.dataset.train.len() * (1 + self.settings.negatives)) as u64
    }

    fn untrained_loss(&self) -> f64 {
        2f64.ln()
    }

    fn baselines(&self) -> Vec<Measure> {
        let mut negatives = 0;
        for case in &self.dataset.test {
            negatives += case.negatives.len();
        }
        let candidates = 1.0 + negatives as f64 / self.dataset.test.len() as f64;
        let popularity = evaluation::popularity(&self.dataset).hit_rate();
        vec![
            Measure::new("hr10_of_chance", "chance", LIST as f64 / candidates),
            Measure::new("hr10_of_popularity", "recommending what is popular", popularity),
        ]
    }

    fn chunks(&self, workers: u16) -> Chunks {
        Chunks {
            training: chunks_of(self.samples_per_epoch(), self.config.batch as u64, workers, 64),
            // Each chunk reads most items again.
            evaluation: chunks_of(self.dataset.test.len() as u64, TESTED_CASES, workers, 16),
        }
    }

    fn training(self: Arc<Self>, sample: f64) -> Result<Box<dyn Training>, TrainError> {
        let tables = self.model.tables();
        Ok(Box::new(Trainer::new(NcfLearner::new(&self, sample)?, &tables, self.config.mode)))
    }
}

/// The model at one worker.
struct NcfLearner {
    dataset: Arc<Dataset>,
    model: Model,
    widths: Widths,
    sampler: Sampler,
    network: Network,
    distinct: DistinctRows,
    batch: Batch,
}

/// The samples of a step.
#[derive(Default)]
struct Samples {
    rows: SampleRows,
    labels: Vec<f32>,
}

impl NcfLearner {
    fn new(workload: &Ncf, sample: f64) -> Result<Self, TrainError> {
        let Ncf { settings, config, dataset, model } = workload;
        let batch_config =
            BatchConfig { batch: config.batch, negatives: settings.negatives, sample, seed: config.seed };
        Ok(Self {
            sampler: Sampler::new(dataset.clone(), batch_config)?,
            widths: Widths::new(&model.tables()),
            network: Network::new(model),
            distinct: DistinctRows::new(model.embedding_rows()),
            dataset: dataset.clone(),
            model: *model,
            batch: Batch::default(),
        })
    }
}

impl Learner for NcfLearner {
    type Batch = Samples;

    fn start_epoch(&mut self, epoch: u32) {
        self.sampler.start_epoch(epoch);
    }

    fn start_chunk(&mut self, chunk: Chunk) -> Result<(), TrainError> {
        self.sampler.start_chunk(chunk);
        Ok(())
    }

    fn samples_per_epoch(&self) -> u64 {
        self.sampler.samples_per_epoch()
    }

    fn next_batch(&mut self, samples: &mut Samples, keys: &mut Vec<u64>) -> Result<usize, TrainError> {
        samples.rows.clear();
        samples.labels.clear();
        if self.sampler.next_batch(&mut self.batch) {
            self.distinct.start();
            for (&user, &item) in self.batch.users.iter().zip(&self.batch.items) {
                let user = self.distinct.index(self.model.user_key(user), keys);
                let item = self.distinct.index(self.model.item_key(item), keys);
                samples.rows.push(user, item);
            }
            keys.extend(self.model.layer_keys());
            samples.labels.extend_from_slice(&self.batch.labels);
        }
        Ok(samples.labels.len())
    }

    fn step(
        &mut self,
        samples: &Samples,
        values: &[f32],
        gradients: &mut Vec<f32>,
    ) -> Result<f64, TrainError> {
        Ok(self.network.step(values, &samples.rows, &samples.labels, gradients))
    }

    fn quality_of_nothing(&self) -> Quality {
        Quality::Ranking(Ranking::default())
    }

    fn start_evaluation(
        &mut self,
        _epoch: u32,
        parameters: &mut dyn Parameters,
    ) -> Result<Vec<Measure>, TrainError> {
        let keys: Vec<u64> = self.model.layer_keys().collect();
        self.network.load_layers(&read_rows(parameters, &self.widths, &keys)?);
        Ok(Vec::new())
    }

    fn evaluate(&mut self, chunk: Chunk, parameters: &mut dyn Parameters) -> Result<Quality, TrainError> {
        let cases = &self.dataset.test[chunk.places(self.dataset.test.len())];
        let Self { model, widths, network, distinct, .. } = self;
        Ok(Quality::Ranking(evaluation::evaluate(model, widths, network, distinct, parameters, cases)?))
    }
}

#[cfg(test)]
mod tests;
