//! DeepLight (Deng et al. 2021, arXiv:2002.06987): predicts clicks. A field-weighted factorisation machine beside a multi-layer
//! perceptron, DeepFwFM, pruned while it is trained, if asked for. Criteo's click logs, or synthetic data.

pub mod data;
mod feed;
mod model;
mod prune;
mod shuffle;

use std::sync::Arc;

use libra_client::{Parameters, ReadCounts, TableSpec, Widths};
use libra_data::{DataError as SetError, Fault};
use serde::{Deserialize, Serialize};

pub use data::{Dataset, Layout, Reading, Synthetic};
pub(crate) use feed::open;
use feed::{Feed, Source};
use model::{Model, Network, Samples};
pub use prune::Prune;
use prune::Pruning;

use crate::{
    Chunk, Chunks, DataError, DataFile, FileChunks, Learner, Measure, Quality, TrainConfig, TrainError,
    Training, Workload,
    config::ConfigError,
    order::random_at,
    quality::Clicks,
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

/// A model of clicks, and data of them.
#[derive(Debug)]
pub struct DeepLight {
    settings: DeepLightConfig,
    config: TrainConfig,
    source: Arc<dyn Source>,
    model: Model,
}

impl DeepLight {
    /// A model with these settings for the features of `source`.
    pub(crate) fn new(
        settings: &DeepLightConfig,
        config: &TrainConfig,
        source: Arc<dyn Source>,
    ) -> Result<Self, TrainError> {
        config.check()?;
        settings.check()?;
        if settings.prune.is_wanted() && source.keys().start > 0 {
            // A share of all vectors is pruned, and nothing lists those that are hashed.
            let expected = "none, as the keys of these data are hashes; a plain train.txt has a vocabulary";
            return Err(ConfigError::new("prune", &settings.prune.share(), expected).into());
        }
        let model = Model::new(settings, config, &*source);
        Ok(Self { settings: settings.clone(), config: config.clone(), source, model })
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
        self.source.name()
    }

    fn size(&self) -> Vec<(u64, &'static str)> {
        self.source.size()
    }

    fn files(&self) -> Vec<DataFile> {
        self.source.files()
    }

    fn tables(&self) -> Vec<TableSpec> {
        self.model.tables()
    }

    fn samples_per_epoch(&self) -> u64 {
        self.source.rows()
    }

    fn profile_samples_max(&self) -> u64 {
        self.source.profile_rows_max()
    }

    fn untrained_loss(&self) -> f64 {
        2f64.ln()
    }

    fn baselines(&self) -> Vec<Measure> {
        self.source.baselines()
    }

    fn chunks(&self, workers: u16) -> Chunks {
        self.source.chunks(self.config.batch, workers)
    }

    fn file(&self, name: &str, workers: u16) -> Result<FileChunks, TrainError> {
        let file = match self.source.file(name) {
            Err(DataError::Set(SetError { fault: Fault::Empty, .. })) => {
                return Ok(FileChunks { rows: 0, chunks: Chunks { training: 0, evaluation: 0 } });
            }
            file => file?,
        };
        Ok(FileChunks { rows: file.rows(), chunks: file.chunks(self.config.batch, workers) })
    }

    fn training(self: Arc<Self>, sample: f64) -> Result<Box<dyn Training>, TrainError> {
        let tables = self.model.tables();
        Ok(Box::new(Trainer::new(DeepLightLearner::new(&self, sample)?, &tables, self.config.mode)))
    }
}

/// The model at one worker.
struct DeepLightLearner {
    source: Arc<dyn Source>,
    batch: usize,
    seed: u64,
    feed: Box<dyn Feed>,
    /// The file that the feed is of, if the data are followed, and what was read of those before.
    file: Option<String>,
    reads_before: ReadCounts,
    model: Model,
    widths: Widths,
    /// The next batch.
    next: Place,
    network: Network,
    pruning: Pruning,
}

/// Place of a batch: its number in the epoch, and in its chunk.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    in_epoch: u64,
    in_chunk: u64,
}

/// The samples of a step.
#[derive(Default)]
struct Batch {
    place: Place,
    samples: Samples,
}

impl DeepLightLearner {
    fn new(workload: &DeepLight, sample: f64) -> Result<Self, TrainError> {
        let DeepLight { settings, config, source, model } = workload;
        let feed = source.clone().feed(sample, config.batch, config.seed)?;
        let batches = feed.rows().div_ceil(config.batch as u64);
        Ok(Self {
            pruning: Pruning::new(&settings.prune, model, batches),
            widths: Widths::new(&model.tables()),
            network: Network::new(model),
            model: model.clone(),
            next: Place::default(),
            source: source.clone(),
            batch: config.batch,
            seed: config.seed,
            feed,
            file: None,
            reads_before: ReadCounts::default(),
        })
    }
}

impl Learner for DeepLightLearner {
    type Batch = Batch;

    fn start_file(&mut self, name: &str) -> Result<(), TrainError> {
        if self.file.as_deref() != Some(name) {
            self.reads_before = self.reads();
            self.feed = self.source.file(name)?.feed(1.0, self.batch, self.seed)?;
            self.file = Some(name.to_owned());
        }
        Ok(())
    }

    fn start_epoch(&mut self, epoch: u32) {
        self.feed.start_epoch(epoch);
    }

    fn start_chunk(&mut self, chunk: Chunk) -> Result<(), TrainError> {
        self.next = Place { in_epoch: self.feed.start_chunk(chunk)?, in_chunk: 0 };
        Ok(())
    }

    fn expect_chunk(&mut self, chunk: Chunk) {
        self.feed.expect_chunk(chunk);
    }

    fn before_epoch(&mut self, epoch: u32, parameters: &mut dyn Parameters) -> Result<(), TrainError> {
        self.pruning.start_epoch(epoch, parameters)
    }

    fn samples_per_epoch(&self) -> u64 {
        self.feed.rows()
    }

    fn chunks_alone(&self) -> u32 {
        self.feed.chunks_alone()
    }

    fn reads(&self) -> ReadCounts {
        let mut reads = self.reads_before;
        reads += self.feed.reads();
        reads
    }

    fn next_batch(&mut self, batch: &mut Batch, keys: &mut Vec<u64>) -> Result<usize, TrainError> {
        let Batch { place, samples } = batch;
        *place = self.next;
        samples.clear();
        self.feed.next_batch(samples, keys)?;
        if samples.len() > 0 {
            keys.extend(self.model.layer_keys());
            self.next.in_epoch += 1;
            self.next.in_chunk += 1;
        }
        Ok(samples.len())
    }

    fn step(
        &mut self,
        Batch { place, samples }: &Batch,
        values: &[f32],
        gradients: &mut Vec<f32>,
    ) -> Result<f64, TrainError> {
        let layers = &values[values.len() - self.model.layer_values()..];
        self.pruning.step(*place, layers, &mut self.network.limits);
        // The order of the rows is drawn from the seed of the epoch itself.
        let dropout_seed = self.feed.epoch_seed() ^ 0xd20b_0d20_b0d2_0b0d;
        let mut random = random_at(dropout_seed, place.in_epoch);
        Ok(self.network.step(values, samples, &mut random, gradients))
    }

    fn quality_of_nothing(&self) -> Quality {
        Quality::Clicks(Clicks::default())
    }

    /// A pruned model is tested as it is after the last step of the epoch.
    fn start_evaluation(
        &mut self,
        epoch: u32,
        parameters: &mut dyn Parameters,
    ) -> Result<Vec<Measure>, TrainError> {
        let keys: Vec<u64> = self.model.layer_keys().collect();
        let layers = read_rows(parameters, &self.widths, &keys)?;
        let findings = self.pruning.evaluate(epoch, parameters, &layers, &mut self.network.limits)?;
        self.network.load_layers(&layers);
        Ok(findings)
    }

    fn evaluate(&mut self, chunk: Chunk, parameters: &mut dyn Parameters) -> Result<Quality, TrainError> {
        let mut number = self.feed.start_test(chunk, SCORED_ROWS)?;
        let mut quality = Clicks::default();
        let (mut samples, mut keys, mut logits) = (Samples::default(), Vec::new(), Vec::new());
        loop {
            samples.clear();
            keys.clear();
            self.feed.next_test(&mut samples, &mut keys)?;
            if samples.len() == 0 {
                return Ok(Quality::Clicks(quality));
            }
            let rows = read_rows(parameters, &self.widths, &keys)?;
            self.network.score(&rows, &samples, &mut logits);
            if let Some(place) = logits.iter().position(|logit| !logit.is_finite()) {
                let what = format!("row {} of the data", number + place as u64 + 1);
                return Err(TrainError::Score { what, score: logits[place] });
            }
            quality.add(&Clicks::of(&logits, samples.clicked()));
            number += samples.len() as u64;
        }
    }
}

#[cfg(test)]
mod tests;
