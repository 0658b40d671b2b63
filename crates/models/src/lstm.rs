//! Language model of LSTM with a sampled softmax (Jozefowicz et al. 2016, arXiv:1602.02410): predicts the next word. Penn Treebank, the One
//! Billion Word Benchmark, or a synthetic text.

pub mod data;

mod batches;
mod evaluation;
mod model;
mod sampling;

use std::sync::Arc;

use libra_client::{Parameters, TableSpec, Widths};
use serde::{Deserialize, Serialize};

use batches::{Batch, BatchConfig, BatchReader};
pub use data::{Synthetic, Text};
use evaluation::{RUN, Rows};
use model::{Memory, Model, Network};

use crate::{
    Chunk, Chunks, DataFile, Learner, Measure, Quality, TrainConfig, TrainError, Training, Workload,
    config::ConfigError, learner::chunks_of, matrix::dot, quality::Language, trainer::Trainer,
};

/// Most lanes of a word, cells of a layer and lanes of a projection: a layer of such a model is a row of 128 MiB.
pub const SIZE_MAX: usize = 2048;

/// Most layers.
pub const LAYERS_MAX: usize = 16;

/// Most words.
pub const VOCABULARY_MAX: usize = 1 << 24;

/// Most words of a sample.
pub const SAMPLES_MAX: usize = 1 << 16;

/// Batches of a chunk, at least: its streams begin without a state. On the first 177,000 words of Penn Treebank perplexity on validation text is the same within 2% as
/// with a single chunk: after three epochs 253, 230 and 236, and 254, 234 and 232.
const CHUNK_BATCHES: u64 = 16;

/// Settings of this model.
///
/// A step takes [`TrainConfig::batch`] words: so many divided by `steps` streams of a chunk of the text, `steps` words of each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LstmConfig {
    /// Lanes of the row of a word.
    pub embedding: usize,
    /// Cells of a layer.
    pub hidden: usize,
    /// Values that the cells of a layer are projected to; 0 for no projection.
    pub projection: usize,
    /// Layers.
    pub layers: usize,
    /// Words of each stream in a batch: so far back in time go gradients.
    pub steps: usize,
    /// Words drawn for each batch that stand for all that do not follow. If there are no more words than this, all of them are taken, and the softmax is exact.
    pub samples: usize,
    /// Probability that a value is dropped on its way up to the next layer, in training.
    pub dropout: f32,
    /// Largest Euclidean norm of the gradient of a batch, over all its rows; a larger one is scaled to it. It is the gradient of the mean loss
    /// of a word.
    pub clip: f32,
    /// Size of the vocabulary; rarer words are one unknown word.
    pub vocabulary: usize,
    /// All values begin evenly spread between minus this and this.
    pub range: f32,
}

impl Default for LstmConfig {
    fn default() -> Self {
        Self {
            embedding: 200,
            hidden: 200,
            projection: 0,
            layers: 1,
            steps: 32,
            samples: 1024,
            dropout: 0.25,
            clip: 1.0,
            vocabulary: 800_000,
            range: 0.1,
        }
    }
}

impl LstmConfig {
    pub(crate) fn check(&self, batch: usize) -> Result<(), ConfigError> {
        for (field, size) in [("embedding", self.embedding), ("hidden", self.hidden)] {
            if !(1..=SIZE_MAX).contains(&size) {
                return Err(ConfigError::new(field, &size, "between 1 and 2048"));
            }
        }
        if self.projection > SIZE_MAX {
            return Err(ConfigError::new("projection", &self.projection, "at most 2048"));
        }
        if !(1..=LAYERS_MAX).contains(&self.layers) {
            return Err(ConfigError::new("layers", &self.layers, "between 1 and 16"));
        }
        if self.steps == 0 {
            return Err(ConfigError::new("steps", &self.steps, "at least 1"));
        }
        if !batch.is_multiple_of(self.steps) {
            return Err(ConfigError::new("batch", &batch, "a multiple of `steps`"));
        }
        if !(1..=SAMPLES_MAX).contains(&self.samples) {
            return Err(ConfigError::new("samples", &self.samples, "between 1 and 65536"));
        }
        if !(0.0..1.0).contains(&self.dropout) {
            return Err(ConfigError::new("dropout", &self.dropout, "at least 0 and below 1"));
        }
        for (field, value) in [("clip", self.clip), ("range", self.range)] {
            if !(value.is_finite() && value > 0.0) {
                return Err(ConfigError::new(field, &value, "a positive number"));
            }
        }
        if !(2..=VOCABULARY_MAX).contains(&self.vocabulary) {
            return Err(ConfigError::new("vocabulary", &self.vocabulary, "between 2 and 16777216"));
        }
        Ok(())
    }
}

/// A model of words, and a text.
#[derive(Debug)]
pub struct Lstm {
    settings: LstmConfig,
    config: TrainConfig,
    text: Arc<Text>,
    model: Model,
}

impl Lstm {
    /// A model with these settings for the words of `text`.
    ///
    /// # Errors
    /// Settings or data cannot be used.
    pub fn new(settings: &LstmConfig, config: &TrainConfig, text: Arc<Text>) -> Result<Self, TrainError> {
        config.check()?;
        settings.check(config.batch)?;
        text.check()?;
        let model = Model::new(settings, config, text.vocabulary());
        Ok(Self { settings: settings.clone(), config: config.clone(), text, model })
    }
}

impl Workload for Lstm {
    fn model(&self) -> String {
        let LstmConfig { embedding, hidden, projection, layers, .. } = self.settings;
        let projected = if projection > 0 { format!("-{projection}") } else { String::new() };
        let times = if layers > 1 { format!(", {layers} layers") } else { String::new() };
        format!("lstm, {embedding}-{hidden}{projected}{times}")
    }

    fn data(&self) -> &str {
        &self.text.name
    }

    fn size(&self) -> Vec<(u64, &'static str)> {
        vec![
            (self.text.vocabulary() as u64, "different words"),
            (self.text.samples() as u64, "to learn from"),
        ]
    }

    fn files(&self) -> Vec<DataFile> {
        self.text.files.clone()
    }

    fn tables(&self) -> Vec<TableSpec> {
        self.model.tables()
    }

    fn samples_per_epoch(&self) -> u64 {
        self.text.samples() as u64
    }

    fn untrained_loss(&self) -> f64 {
        (self.text.vocabulary() as f64).ln()
    }

    fn baselines(&self) -> Vec<Measure> {
        let value = evaluation::unigrams(&self.text).perplexity();
        vec![Measure::new("perplexity_of_unigrams", "how frequent words are, alone", value)]
    }

    fn chunks(&self, workers: u16) -> Chunks {
        Chunks {
            training: chunks_of(
                self.samples_per_epoch(),
                CHUNK_BATCHES * self.config.batch as u64,
                workers,
                64,
            ),
            // Runs are read side by side.
            evaluation: chunks_of(self.text.cases() as u64, RUN as u64, workers, 8),
        }
    }

    fn training(self: Arc<Self>, sample: f64) -> Result<Box<dyn Training>, TrainError> {
        let tables = self.model.tables();
        Ok(Box::new(Trainer::new(LstmLearner::new(&self, sample)?, &tables, self.config.mode)))
    }
}

/// The model at one worker.
struct LstmLearner {
    text: Arc<Text>,
    model: Model,
    widths: Widths,
    batch_reader: BatchReader,
    network: Network,
    /// Of the streams that are trained on. Batches are computed in the order in which they are dealt, so it goes from one to the next.
    memory: Memory,
    /// Rows of an evaluation.
    rows: Option<Rows>,
    batch: usize,
    clip: f32,
}

impl LstmLearner {
    fn new(workload: &Lstm, sample: f64) -> Result<Self, TrainError> {
        let Lstm { settings, config, text, model } = workload;
        let batch_config = BatchConfig {
            streams: config.batch / settings.steps,
            steps: settings.steps,
            samples: settings.samples,
            seed: config.seed,
        };
        Ok(Self {
            batch_reader: BatchReader::new(text.clone(), *model, batch_config, sample)?,
            network: Network::new(model, settings.dropout),
            memory: Memory::new(model, batch_config.streams),
            text: text.clone(),
            model: *model,
            widths: Widths::new(&model.tables()),
            rows: None,
            batch: config.batch,
            clip: settings.clip,
        })
    }
}

impl Learner for LstmLearner {
    type Batch = Batch;

    fn start_epoch(&mut self, epoch: u32) {
        self.batch_reader.start_epoch(epoch);
        self.rows = None;
    }

    fn start_chunk(&mut self, chunk: Chunk) -> Result<(), TrainError> {
        self.batch_reader.start_chunk(chunk);
        Ok(())
    }

    fn samples_per_epoch(&self) -> u64 {
        self.batch_reader.samples_per_epoch()
    }

    fn next_batch(&mut self, batch: &mut Batch, keys: &mut Vec<u64>) -> Result<usize, TrainError> {
        Ok(self.batch_reader.next_batch(batch, keys))
    }

    /// The gradients of a short batch at the end of the text are those of its mean times the share of a batch that it has: a few words
    /// alone would move every layer as far as a thousand do.
    fn step(&mut self, batch: &Batch, values: &[f32], gradients: &mut Vec<f32>) -> Result<f64, TrainError> {
        if batch.is_first {
            self.memory.forget();
        }
        let share = 1.0 / self.batch as f32;
        let loss = self.network.step(values, batch, share, &mut self.memory, gradients);
        clip(gradients, self.clip);
        Ok(loss / batch.targets.len() as f64)
    }

    fn quality_of_nothing(&self) -> Quality {
        Quality::Language(Language::default())
    }

    fn start_evaluation(
        &mut self,
        _epoch: u32,
        parameters: &mut dyn Parameters,
    ) -> Result<Vec<Measure>, TrainError> {
        self.rows = Some(Rows::read(&self.model, &self.widths, parameters)?);
        Ok(Vec::new())
    }

    fn evaluate(&mut self, chunk: Chunk, parameters: &mut dyn Parameters) -> Result<Quality, TrainError> {
        let Self { model, network, rows, widths, text, .. } = self;
        let rows = rows.as_ref().expect("an evaluation has been started");
        let quality = evaluation::evaluate(model, network, rows, widths, parameters, text, chunk)?;
        Ok(Quality::Language(quality))
    }
}

/// Scales gradients whose Euclidean norm is larger than `limit` to that norm (Pascanu et al. 2013, arXiv:1211.5063).
fn clip(gradients: &mut [f32], limit: f32) {
    let squares: f64 = gradients.chunks(1 << 12).map(|part| f64::from(dot(part, part))).sum();
    let norm = squares.sqrt();
    if norm > f64::from(limit) {
        #[expect(clippy::cast_possible_truncation, reason = "between 0 and 1")]
        let factor = (f64::from(limit) / norm) as f32;
        gradients.iter_mut().for_each(|gradient| *gradient *= factor);
    }
}

#[cfg(test)]
mod tests;
