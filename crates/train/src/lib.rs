//! Trains recommendation models on implicit feedback against a parameter server: data sets, models, the training loop, and how
//! good the result is.
//!
//! It never opens a socket, starts a thread or reads a clock; of the parameter server it knows the trait
//! [`Parameters`](libra_proto::Parameters) only, so the same loop runs over a cluster and over the memory of this process
//! ([`LocalParameters`]). What it does is decided by seeds: the same data, settings and answers give the same pushes.
//!
//! ```text
//!  Dataset ──► Sampler ──► distinct rows ──► pull ──► Network: SparseNet ─► DenseNet ─► loss
//!              (sampling)                     │                  │              │
//!                                         Parameters ◄── push ───┴── gradients ─┘
//! ```
//!
//! ```
//! use std::sync::Arc;
//!
//! use libra_store::Store;
//! use libra_train::{LocalParameters, Synthetic, TrainConfig, Trainer};
//!
//! let dataset = Arc::new(Synthetic { users: 60, items: 150, ..Synthetic::default() }.generate());
//! let config = TrainConfig { factors: 4, batch: 128, ..TrainConfig::default() };
//! let mut trainer = Trainer::new(&config, dataset.clone(), 0, 1)?;
//! let mut parameters = LocalParameters::new(Store::new(trainer.model().tables(), config.seed)?);
//! for epoch in 0..2 {
//!     let report = trainer.train_epoch(&mut parameters, epoch, &mut |_progress| ())?;
//!     assert!(report.loss < 0.75);
//! }
//! let quality = trainer.evaluate(&mut parameters, &dataset.test)?;
//! println!("HR@10 {:.3}, NDCG@10 {:.3}", quality.hit_rate(), quality.ndcg());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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
