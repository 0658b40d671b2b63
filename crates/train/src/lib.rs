//! Trains recommendation models on implicit feedback against a parameter server: data sets, models, the training loop, quality.
#![forbid(unsafe_code)]

pub mod data;
pub mod model;
pub mod quality;
pub mod sampling;

mod config;
mod evaluation;
mod local;
mod profile;
mod rows;
mod trainer;

pub use config::{BATCH_MAX, ConfigError, FACTORS_MAX, NEGATIVES_MAX, TrainConfig};
pub use data::{DataError, Dataset, Synthetic, TestCase};
pub use local::LocalParameters;
pub use model::{Model, ModelKind};
pub use profile::{profile, provenance};
pub use quality::Quality;
pub use trainer::{EpochReport, Progress, TrainError, Trainer};
