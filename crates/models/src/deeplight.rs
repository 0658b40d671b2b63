//! DeepLight (Deng et al. 2021, arXiv:2002.06987): predicts clicks. A field-weighted factorisation machine beside a multi-layer
//! perceptron, DeepFwFM, pruned while it is trained, if asked for. Criteo's click logs, or synthetic data.

pub mod data;
mod model;
mod prune;
mod shuffle;

use std::sync::Arc;

use libra_client::{Parameters, TableSpec, Widths};
use rand::{SeedableRng, rngs::SmallRng};
use serde::{Deserialize, Serialize};

use data::{Cursor, Row};
pub use data::{Dataset, Layout, Reading, Synthetic};
use model::{Model, Network, Samples};
pub use prune::Prune;
use prune::Pruning;
use shuffle::Shuffle;

use crate::{
    Learner, Measure, Partition, Quality, TrainConfig, TrainError, Training, Workload,
    config::ConfigError,
    quality::Clicks,
    rows::DistinctRows,
    trainer::{Trainer, read_rows},
};

/// Largest width of a vector.
pub const WIDTH_MAX: usize = 256;

/// Most hidden layers, ..
pub const HIDDEN_MAX: usize = 8;

/// .. and how wide one may be: the first layer over Criteo's fields then has 10 million weights.
pub const UNITS_MAX: usize = 1024;

/// Rows of the test data that are scored together.
const SCORED_ROWS: usize = 1 << 12;

/// Settings of this model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeepLightConfig {
    /// Lanes of the vector of a feature: k.
    pub width: usize,
    /// Outputs of each hidden layer; none leave the factorisation machine alone.
    pub hidden: Vec<usize>,
    /// Values that occur less often among the training rows share one row of parameters for each field.
    pub min_count: u32,
    /// Partition of the rows, from the end of the log, that is tested on.
    pub test: f64,
    /// Partition of the outputs of hidden layers that is left out of a training step.
    pub dropout: f32,
    /// Standard deviation of the initial rows of features, which are normal with mean 0.
    pub deviation: f32,
    /// Target sparsity of the model.
    pub prune: Prune,
}

impl Default for DeepLightConfig {
    fn default() -> Self {
        Self {
            width: 10,
            hidden: vec![32, 32],
            min_count: 20,
            test: 0.2,
            dropout: 0.5,
            deviation: 0.001,
            prune: Prune::default(),
        }
    }
}

impl DeepLightConfig {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if !(1..=WIDTH_MAX).contains(&self.width) {
            return Err(ConfigError::new("width", &self.width, "between 1 and 256"));
        }
        let hidden = || format!("{:?}", self.hidden);
        if self.hidden.len() > HIDDEN_MAX {
            return Err(ConfigError::new("hidden", &hidden(), "at most 8 layers"));
        }
        if self.hidden.iter().any(|units| !(1..=UNITS_MAX).contains(units)) {
            return Err(ConfigError::new("hidden", &hidden(), "widths between 1 and 1024"));
        }
        if !(self.test > 0.0 && self.test < 1.0) {
            return Err(ConfigError::new("test", &self.test, "above 0 and below 1"));
        }
        if !(0.0..1.0).contains(&self.dropout) {
            return Err(ConfigError::new("dropout", &self.dropout, "at least 0 and below 1"));
        }
        if !(self.deviation.is_finite() && self.deviation > 0.0) {
            return Err(ConfigError::new("deviation", &self.deviation, "a positive number"));
        }
        self.prune.check()
    }

    /// Returns the settings by which a log becomes a data set.
    pub fn reading(&self) -> Reading {
        Reading { min_count: self.min_count, test: self.test }
    }
}

/// A model of clicks, and a log of them.
#[derive(Debug)]
pub struct DeepLight {
    settings: DeepLightConfig,
    config: TrainConfig,
    dataset: Arc<Dataset>,
    model: Model,
}

impl DeepLight {
    /// A model with these settings for the features of `dataset`.
    ///
    /// # Errors
    /// Settings cannot be used.
    pub fn new(
        settings: &DeepLightConfig,
        config: &TrainConfig,
        dataset: Arc<Dataset>,
    ) -> Result<Self, TrainError> {
        config.check()?;
        settings.check()?;
        let model = Model::new(settings, config, &dataset);
        Ok(Self { settings: settings.clone(), config: config.clone(), dataset, model })
    }
}

impl Workload for DeepLight {
    fn model(&self) -> String {
        let mut layers = String::new();
        for units in &self.settings.hidden {
            let dash = if layers.is_empty() { "" } else { "-" };
            layers = format!("{layers}{dash}{units}");
        }
        if layers.is_empty() {
            layers.push_str("no");
        }
        format!("deeplight, width {}, {layers} hidden", self.settings.width)
    }

    fn data(&self) -> &str {
        &self.dataset.name
    }

    fn size(&self) -> Vec<(u64, &'static str)> {
        let Dataset { layout, vocabulary, train, test, .. } = &*self.dataset;
        let mut size = vec![(train.rows as u64, "rows to train on"), (test.rows as u64, "to test on")];
        if let Layout::Fields(fields) = layout {
            size.push((*fields as u64, "fields"));
        }
        size.push((vocabulary.values() as u64, "values"));
        size
    }

    fn tables(&self) -> Vec<TableSpec> {
        self.model.tables()
    }

    fn samples_per_epoch(&self) -> u64 {
        self.dataset.train.rows as u64
    }

    fn untrained_loss(&self) -> f64 {
        2f64.ln()
    }

    /// Returns chance, and the loss of always predicting the share of clicks among the training rows.
    fn baselines(&self) -> Vec<Measure> {
        let rate = self.dataset.train.rate();
        let clicks = self.dataset.test.clicks as f64 / self.dataset.test.rows as f64;
        let loss = -(clicks * rate.ln() + (1.0 - clicks) * (1.0 - rate).ln());
        vec![
            Measure { key: "auc_of_chance", name: "chance", value: 0.5 },
            Measure { key: "log_loss_of_mean", name: "log loss of the mean click rate", value: loss },
        ]
    }

    fn training(self: Arc<Self>, partition: Partition) -> Result<Box<dyn Training>, TrainError> {
        let tables = self.model.tables();
        Ok(Box::new(Trainer::new(DeepLightLearner::new(&self, partition)?, &tables, self.config.mode)))
    }
}

/// The model at one worker.
struct DeepLightLearner {
    dataset: Arc<Dataset>,
    model: Model,
    partition: Partition,
    batch: usize,
    seed: u64,
    shuffle: Shuffle,
    network: Network,
    pruning: Pruning,
    distinct: DistinctRows,
    /// Source of randomness of dropout.
    random: SmallRng,
    row: Row,
}

impl DeepLightLearner {
    fn new(workload: &DeepLight, partition: Partition) -> Result<Self, TrainError> {
        partition.check()?;
        let DeepLight { settings, config, dataset, model } = workload;
        let shuffle = Shuffle::new(dataset, partition, config.seed)?;
        let batches = |rows: usize| rows.div_ceil(config.batch) as u64;
        let own = batches(shuffle.rows());
        let all = if partition.workers == 1 { own } else { batches(dataset.train.rows) };
        Ok(Self {
            pruning: Pruning::new(&settings.prune, model, all, own),
            network: Network::new(model),
            distinct: DistinctRows::new(model.features() as usize),
            dataset: dataset.clone(),
            model: model.clone(),
            partition,
            batch: config.batch,
            seed: config.seed,
            shuffle,
            random: SmallRng::seed_from_u64(config.seed),
            row: Row::default(),
        })
    }

    /// Adds `self.row` to the samples, and its features to `keys`.
    fn add_row(&mut self, samples: &mut Samples, keys: &mut Vec<u64>) {
        let Self { distinct, row, .. } = self;
        let features = row.parameters.iter().map(|&feature| distinct.index(u64::from(feature), keys));
        samples.push(features, row.clicked);
    }
}

impl Learner for DeepLightLearner {
    type Batch = Samples;

    fn start_epoch(&mut self, epoch: u32) -> Result<(), TrainError> {
        let drawn = u64::from(epoch) << 32 ^ self.partition.worker as u64;
        self.random = SmallRng::seed_from_u64(self.seed ^ drawn ^ 0xd20b_0d20_b0d2_0b0d);
        Ok(self.shuffle.start_epoch(epoch)?)
    }

    fn before_epoch(&mut self, epoch: u32, parameters: &mut dyn Parameters) -> Result<(), TrainError> {
        self.pruning.start_epoch(epoch, parameters)
    }

    fn samples_per_epoch(&self) -> u64 {
        self.shuffle.rows() as u64
    }

    fn next_batch(&mut self, samples: &mut Samples, keys: &mut Vec<u64>) -> Result<usize, TrainError> {
        samples.clear();
        self.distinct.start();
        while samples.len() < self.batch && self.shuffle.next(&mut self.row)? {
            self.add_row(samples, keys);
        }
        if samples.len() > 0 {
            keys.extend(self.model.layer_keys());
        }
        Ok(samples.len())
    }

    fn step(
        &mut self,
        samples: &Samples,
        values: &[f32],
        gradients: &mut Vec<f32>,
    ) -> Result<f64, TrainError> {
        let layers = &values[values.len() - self.model.layer_values()..];
        self.pruning.step(layers, &mut self.network.limits);
        Ok(self.network.step(values, samples, &mut self.random, gradients))
    }

    /// A pruned model is tested as it is after its last step.
    fn evaluate(&mut self, parameters: &mut dyn Parameters) -> Result<Quality, TrainError> {
        let widths = Widths::new(&self.model.tables());
        let layers = read_rows(parameters, &widths, &self.model.layer_keys().collect::<Vec<u64>>())?;
        self.pruning.evaluate(parameters, &layers, &mut self.network.limits)?;
        self.network.load_layers(&layers);

        let all = self.dataset.test_rows();
        let own = self.partition.range(all.len());
        let mut number = all.start + own.start;
        let mut cursor = Cursor::new(&self.dataset, number..all.start + own.end)?;
        let mut quality = Clicks::default();
        let (mut samples, mut keys, mut logits) = (Samples::default(), Vec::new(), Vec::new());
        loop {
            samples.clear();
            keys.clear();
            self.distinct.start();
            while samples.len() < SCORED_ROWS && cursor.read(&mut self.row, |_| true)? {
                self.add_row(&mut samples, &mut keys);
            }
            if samples.len() == 0 {
                return Ok(Quality::Clicks(quality));
            }
            let rows = read_rows(parameters, &widths, &keys)?;
            self.network.score(&rows, &samples, &mut logits);
            if let Some(place) = logits.iter().position(|logit| !logit.is_finite()) {
                let what = format!("row {} of the log", number + place + 1);
                return Err(TrainError::Score { what, score: logits[place] });
            }
            quality.add(&Clicks::of(&logits, samples.clicked()));
            number += samples.len();
        }
    }

    fn findings(&self) -> Vec<Measure> {
        self.pruning.found().to_vec()
    }
}

#[cfg(test)]
mod tests;
