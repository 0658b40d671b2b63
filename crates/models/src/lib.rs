//! Trains sparse models against a parameter server: data sets, models, the training loop, and measures of quality.
//!
//! | model | prediction | data |
//! |---|---|---|
//! | [`deeplight`] | clicks | Criteo, data sets in Parquet, or synthetic |
//! | [`ncf`] | the next item of a user | MovieLens, or synthetic |
//! | [`lstm`] | the next word | Penn Treebank, One Billion Word Benchmark, or synthetic |
//! | [`synthetic_lr`] | clicks of the paper's industrial tasks | synthetic, with the skew that the paper reports |
//!
//! It never opens a socket, starts a thread or reads a clock: large data sets are read by `libra-data`, which waits for servers; of the parameter server it uses the trait
//! [`Parameters`](libra_client::Parameters) only, so the same loop runs over a cluster and over the memory of this process
//! ([`LocalParameters`](libra_client::LocalParameters)). Seeds decide everything: the same data, settings and answers give the same pushes.
//!
//! A model and its data are a [`Workload`], the training of one worker a [`Training`]. Behind both is a [`Learner`], which deals batches and
//! computes; the loop is the same for all. Training and evaluation are divided into [chunks](Chunk), of which a worker does those that it gets from
//! [`Parameters::next_chunk`](libra_client::Parameters::next_chunk): any worker may do any of them, with the same result.
//!
//! ```text
//!  Learner::next_batch ──► distinct rows ──► pull ──► Learner::step ──► gradients ──┐
//!                                             │                                     │
//!                                         Parameters ◄────────── push ──────────────┘
//! ```
//!
//! ```
//! use std::sync::Arc;
//!
//! use libra_client::{LocalParameters, Store};
//! use libra_models::{ModelKind, open};
//!
//! let config = ModelKind::Neumf.config();
//! let workload = open(&config, "synthetic")?;
//! let chunks = workload.chunks(1);
//! let mut training = workload.clone().training(1.0)?;
//! let mut parameters = LocalParameters::new(Store::new(workload.tables(), config.seed)?);
//! let report = training.train_epoch(&mut parameters, 0, chunks.training, &mut |_progress| ())?;
//! assert!(report.loss < workload.untrained_loss());
//! for measure in training.evaluate(&mut parameters, 0, chunks.evaluation)?.quality.measures() {
//!     println!("{} {:.3}", measure.name, measure.value);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

pub mod deeplight;
pub mod lstm;
pub mod ncf;
pub mod quality;
pub mod record;
pub mod synthetic_lr;

mod activation;
mod affine;
mod config;
mod data;
mod learner;
mod loss;
mod matrix;
mod order;
mod profile;
mod rows;
mod splitmix;
mod tables;
#[cfg(test)]
mod testing;
mod trainer;

use std::sync::Arc;

pub use config::{BATCH_MAX, ConfigError, ModelConfig, ModelKind, TrainConfig, UnknownModel};
pub use data::{DataError, DataFile};
pub use learner::{CHUNK_SAMPLES_MAX, Chunk, Chunks, FileChunks, Learner, Workload};
pub use libra_data::{Followed, FollowedFile, Listing, Options as DataOptions, order_of_names};
pub use profile::{profile, provenance};
pub use quality::{Measure, Mismatch, Quality};
pub use tables::{HASHED_KEYS, LAYER_KEYS, shapes};
pub use trainer::{EpochReport, Evaluation, Progress, TrainError, Training};

/// Opens the data that `source` names, a path or `synthetic`, for the model of `config`. Of data that are followed there must be a file.
///
/// # Errors
/// Settings or data cannot be used.
pub fn open(config: &TrainConfig, source: &str) -> Result<Arc<dyn Workload>, TrainError> {
    config.check()?;
    match &config.model {
        ModelConfig::Deeplight(settings) => {
            let source = deeplight::open(source, settings.reading(), config)?;
            Ok(Arc::new(deeplight::DeepLight::new(settings, config, source)?))
        }
        ModelConfig::Ncf(settings) => {
            let dataset = Arc::new(ncf::Dataset::open(source, config.seed)?);
            Ok(Arc::new(ncf::Ncf::new(settings, config, dataset)?))
        }
        ModelConfig::SyntheticLr(settings) => {
            Ok(Arc::new(synthetic_lr::SyntheticLr::open(settings, config, source)?))
        }
        ModelConfig::Lstm(settings) => {
            let text = Arc::new(lstm::Text::open(source, config.seed, settings.vocabulary)?);
            Ok(Arc::new(lstm::Lstm::new(settings, config, text)?))
        }
    }
}
