//! On-line advertising (OA) and search (SE), the paper's industrial tasks: logistic regression on synthetic clicks.
//!
//! The paper's traces are not public. It reports the number of parameters of their models, and the skew of updates: the hottest
//! 30,000 of 150 million take just over half of them (OA), and of 9 million about 70% (SE). The [`Generator`] makes clicks like that. A row of
//! the model has one value, the weight of a feature, so parameters are rows here.

mod generator;

use std::{collections::HashMap, sync::Arc};

use foldhash::fast::FixedState;
use libra_client::{Init, Parameters, TableSpec, Widths};
use serde::{Deserialize, Serialize};

pub use generator::Generator;
use generator::Sample;

use crate::{
    Chunk, Chunks, DataFile, LAYER_KEYS, Learner, Measure, Quality, TrainConfig, TrainError, Training,
    Workload,
    config::ConfigError,
    data::DataError,
    learner::chunks_of,
    loss::cross_entropy,
    quality::Clicks,
    trainer::{Trainer, read_rows},
};

/// The only data source of these models.
const SOURCE: &str = "synthetic";

/// The row of the weight that every sample has.
const BIAS: u64 = LAYER_KEYS;

/// Test samples are as those of an epoch that is never trained.
const TEST_EPOCH: u32 = u32::MAX;

/// Settings of this model, and of the clicks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SyntheticLrConfig {
    /// Name of the model.
    pub name: String,
    /// Features there are, and weights of the model.
    pub features: u64,
    /// Features drawn for a sample. One that is drawn twice counts once.
    pub drawn: usize,
    /// Exponent of how often features are drawn: that of rank r with weight `r^-exponent`.
    pub exponent: f64,
    /// Samples of an epoch.
    pub samples: u64,
    /// Samples of the test.
    pub test: u64,
}

impl SyntheticLrConfig {
    /// On-line advertising: with batches of 1024 the hottest 30,000 features take 51% of the updates.
    pub fn online_advertising() -> Self {
        Self {
            name: "ads-lr".to_owned(),
            features: 150_000_000,
            drawn: 40,
            exponent: 1.1768,
            samples: 1 << 20,
            test: 50_000,
        }
    }

    /// Search: with batches of 1024 the hottest 30,000 features take 71% of the updates.
    pub fn search_engine() -> Self {
        Self {
            name: "search-lr".to_owned(),
            features: 9_000_000,
            exponent: 1.2934,
            ..Self::online_advertising()
        }
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if !(1..LAYER_KEYS).contains(&self.features) {
            return Err(ConfigError::new("features", &self.features, "at least 1 and below 2^40"));
        }
        if !(1..=1000).contains(&self.drawn) {
            return Err(ConfigError::new("drawn", &self.drawn, "between 1 and 1000"));
        }
        if !(0.0..=4.0).contains(&self.exponent) {
            return Err(ConfigError::new("exponent", &self.exponent, "between 0 and 4"));
        }
        if self.samples == 0 {
            return Err(ConfigError::new("samples", &self.samples, "at least 1"));
        }
        if self.test == 0 {
            return Err(ConfigError::new("test", &self.test, "at least 1"));
        }
        Ok(())
    }
}

/// Logistic regression, and the clicks that it predicts.
#[derive(Debug)]
pub struct SyntheticLr {
    settings: SyntheticLrConfig,
    config: TrainConfig,
    generator: Generator,
}

impl SyntheticLr {
    /// # Errors
    /// Settings cannot be used, or the source is not `synthetic`.
    pub fn open(
        settings: &SyntheticLrConfig,
        config: &TrainConfig,
        source: &str,
    ) -> Result<Self, TrainError> {
        config.check()?;
        settings.check()?;
        if source != SOURCE {
            return Err(
                DataError::SyntheticOnly { model: settings.name.clone(), found: source.to_owned() }.into()
            );
        }
        let generator = Generator::new(settings, config.seed);
        Ok(Self { settings: settings.clone(), config: config.clone(), generator })
    }
}

impl Workload for SyntheticLr {
    fn model(&self) -> String {
        format!("{}, logistic regression", self.settings.name)
    }

    fn data(&self) -> &'static str {
        SOURCE
    }

    fn size(&self) -> Vec<(u64, &'static str)> {
        vec![(self.settings.features, "features"), (self.settings.samples, "samples")]
    }

    fn files(&self) -> Vec<DataFile> {
        Vec::new()
    }

    fn tables(&self) -> Vec<TableSpec> {
        let table = |name: &str, keys, rule| TableSpec {
            name: name.to_owned(),
            keys,
            width: 1,
            rule,
            init: Init::Zero,
        };
        vec![
            table("weight", 0..self.settings.features, self.config.embeddings),
            table("bias", BIAS..BIAS + 1, self.config.layers),
        ]
    }

    fn samples_per_epoch(&self) -> u64 {
        self.settings.samples
    }

    fn untrained_loss(&self) -> f64 {
        2f64.ln()
    }

    fn baselines(&self) -> Vec<Measure> {
        // The same stream that the test takes: it makes no difference that training has others.
        let mut sample = Sample::default();
        let (mut sure, mut clicked) = (Vec::new(), Vec::new());
        let mut stream = self.generator.samples(TEST_EPOCH, 0..self.settings.test.min(10_000));
        while stream.next(&mut sample) {
            sure.push(sample.logit);
            clicked.push(sample.clicked);
        }
        let auc = Clicks::of(&sure, clicked.into_iter()).auc();
        vec![
            Measure::new("auc_of_chance", "chance", 0.5),
            Measure::new("auc_of_the_truth", "the weights that made the clicks", auc),
        ]
    }

    fn chunks(&self, workers: u16) -> Chunks {
        let batch = self.config.batch as u64;
        Chunks {
            training: chunks_of(self.settings.samples, batch, workers, 64),
            evaluation: chunks_of(self.settings.test, batch, workers, 16),
        }
    }

    fn training(self: Arc<Self>, sample: f64) -> Result<Box<dyn Training>, TrainError> {
        let mode = self.config.mode;
        if !(sample > 0.0 && sample <= 1.0) {
            return Err(TrainError::Sample { sample });
        }
        let tables = self.tables();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "at most the samples, and positive"
        )]
        let samples = ((self.settings.samples as f64 * sample).ceil() as u64).max(1);
        let learner = SyntheticLrLearner {
            workload: self,
            samples,
            next: 0..0,
            epoch: 0,
            sample: Sample::default(),
            distinct: HashMap::default(),
            logits: Vec::new(),
            widths: Widths::new(&tables),
        };
        Ok(Box::new(Trainer::new(learner, &tables, mode)))
    }
}

/// The model at one worker.
struct SyntheticLrLearner {
    workload: Arc<SyntheticLr>,
    /// Samples of an epoch.
    samples: u64,
    /// Numbers of the samples that are still to be dealt.
    next: std::ops::Range<u64>,
    epoch: u32,
    sample: Sample,
    /// Rows of the batch, by key.
    distinct: HashMap<u64, u32, FixedState>,
    logits: Vec<f32>,
    widths: Widths,
}

/// The samples of a step.
#[derive(Default)]
struct Samples {
    /// The rows of the features of all samples, one sample after the other; the last row is the bias.
    rows: Vec<u32>,
    /// End of the rows of each sample.
    ends: Vec<usize>,
    labels: Vec<f32>,
}

impl Samples {
    /// The rows of each sample.
    fn iter(&self) -> impl Iterator<Item = &[u32]> {
        let starts = [0].into_iter().chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.rows[start..end])
    }

    fn logits(&self, values: &[f32], logits: &mut Vec<f32>) {
        let bias = values.last().copied().unwrap_or_default();
        logits.clear();
        logits
            .extend(self.iter().map(|rows| bias + rows.iter().map(|&row| values[row as usize]).sum::<f32>()));
    }
}

impl SyntheticLrLearner {
    /// Replaces `samples` by the next of a stream, up to `count`, and adds their rows to `keys`.
    fn collect(&mut self, count: u64, samples: &mut Samples, keys: &mut Vec<u64>) {
        samples.rows.clear();
        samples.ends.clear();
        samples.labels.clear();
        self.distinct.clear();
        let end = self.next.end.min(self.next.start + count);
        let mut stream = self.workload.generator.samples(self.epoch, self.next.start..end);
        while stream.next(&mut self.sample) {
            for &key in &self.sample.features {
                let row = *self.distinct.entry(key).or_insert_with(|| {
                    keys.push(key);
                    u32::try_from(keys.len() - 1).expect("fewer than 2^32 rows")
                });
                samples.rows.push(row);
            }
            samples.ends.push(samples.rows.len());
            samples.labels.push(f32::from(u8::from(self.sample.clicked)));
        }
        self.next.start = end;
        if !samples.labels.is_empty() {
            keys.push(BIAS);
        }
    }
}

impl Learner for SyntheticLrLearner {
    type Batch = Samples;

    fn start_epoch(&mut self, epoch: u32) {
        self.epoch = epoch;
        self.next = 0..0;
    }

    fn start_chunk(&mut self, chunk: Chunk) -> Result<(), TrainError> {
        self.next = chunk.samples(self.samples, self.workload.config.batch);
        Ok(())
    }

    fn samples_per_epoch(&self) -> u64 {
        self.samples
    }

    fn next_batch(&mut self, samples: &mut Samples, keys: &mut Vec<u64>) -> Result<usize, TrainError> {
        self.collect(self.workload.config.batch as u64, samples, keys);
        Ok(samples.labels.len())
    }

    fn step(
        &mut self,
        samples: &Samples,
        values: &[f32],
        gradients: &mut Vec<f32>,
    ) -> Result<f64, TrainError> {
        samples.logits(values, &mut self.logits);
        let share = 1.0 / samples.labels.len().max(1) as f32;
        let loss = cross_entropy(&mut self.logits, &samples.labels, &[], share);
        gradients.clear();
        gradients.resize(values.len(), 0.0);
        for (rows, &gradient) in samples.iter().zip(&self.logits) {
            for &row in rows {
                gradients[row as usize] += gradient;
            }
        }
        if let Some(bias) = gradients.last_mut() {
            *bias = self.logits.iter().sum();
        }
        Ok(loss * f64::from(share))
    }

    fn quality_of_nothing(&self) -> Quality {
        Quality::Clicks(Clicks::default())
    }

    fn start_evaluation(
        &mut self,
        _epoch: u32,
        _parameters: &mut dyn Parameters,
    ) -> Result<Vec<Measure>, TrainError> {
        self.epoch = TEST_EPOCH;
        Ok(Vec::new())
    }

    fn evaluate(&mut self, chunk: Chunk, parameters: &mut dyn Parameters) -> Result<Quality, TrainError> {
        self.next = chunk.range(self.workload.settings.test);
        let (mut samples, mut keys) = (Samples::default(), Vec::new());
        let mut quality = Clicks::default();
        while !self.next.is_empty() {
            keys.clear();
            self.collect(TESTED_AT_ONCE, &mut samples, &mut keys);
            let values = read_rows(parameters, &self.widths, &keys)?;
            samples.logits(&values, &mut self.logits);
            if let Some(&score) = self.logits.iter().find(|logit| !logit.is_finite()) {
                return Err(TrainError::Score { what: "a test sample".to_owned(), score });
            }
            let clicked = samples.labels.iter().map(|&label| label > 0.0);
            quality.add(&Clicks::of(&self.logits, clicked));
        }
        Ok(Quality::Clicks(quality))
    }
}

/// Test samples whose rows are read together.
const TESTED_AT_ONCE: u64 = 8192;

#[cfg(test)]
mod tests;
