//! Task of the workers from the controller, and their accounts at the end. The roles carry both unread.

use std::path::Path;

use anyhow::{Context, Result, bail};
use libra_models::{Measure, Quality, TrainConfig, Workload};
use serde::{Deserialize, Serialize};

use crate::report::group;

/// The task of a training job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Path of the data at the controller. A worker on another machine may have it elsewhere.
    pub data: String,
    /// Size of the data.
    pub size: String,
    /// The settings of the training.
    pub config: TrainConfig,
}

impl Task {
    /// A task for the workers of a job.
    pub fn new(data: &str, workload: &dyn Workload, config: &TrainConfig) -> Self {
        // A relative path means something else in the directory of another process.
        let absolute = Path::new(data).canonicalize().ok().and_then(|path| path.to_str().map(str::to_owned));
        let data = if data == "synthetic" { None } else { absolute }.unwrap_or_else(|| data.to_owned());
        Self { data, size: size(workload), config: config.clone() }
    }

    /// Returns the task as text, as roles carry it.
    pub fn to_text(&self) -> Result<String> {
        toml::to_string(self).context("the task cannot be written down")
    }

    /// Reads a task. Fails if the text is none.
    pub fn from_text(text: &str) -> Result<Self> {
        toml::from_str(text).context("the controller's task is not one that this build understands")
    }

    /// Refuses data that are not those of the controller.
    pub fn check(&self, data: &str, workload: &dyn Workload) -> Result<()> {
        let size = size(workload);
        if size != self.size {
            bail!(
                "the data of this worker ({data}) has {size}, the controller's ({}) has {}",
                self.data,
                self.size
            );
        }
        Ok(())
    }
}

/// Describes the size of the data, for people: `6,040 users, 3,706 items`.
pub fn size(workload: &dyn Workload) -> String {
    let parts = workload.size().into_iter().map(|(count, of_what)| format!("{} {of_what}", group(count)));
    parts.collect::<Vec<_>>().join(", ")
}

/// Account of one worker of one epoch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EpochAccount {
    /// Samples that the worker trained.
    pub samples: u64,
    /// Sum over samples.
    pub loss: f64,
    /// The quality of the model at the end of the epoch.
    pub quality: Quality,
    /// Other measurements of the evaluation.
    pub findings: Vec<Measure>,
    /// From the barrier before the epoch to the last push being visible.
    pub train_seconds: f64,
    /// Time of the evaluation in seconds.
    pub evaluate_seconds: f64,
}

/// Account of one worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Account {
    /// The epoch that it began with: a worker that takes the place of another comes late.
    pub first_epoch: u32,
    /// The epochs of training.
    pub epochs: Vec<EpochAccount>,
    /// The longest time in which pushes were under way and none was acknowledged.
    pub stall_ms_max: f64,
}

impl Account {
    /// Returns the account as text, as roles carry it.
    pub fn to_text(&self) -> Result<String> {
        serde_json::to_string(self).context("the account cannot be written down")
    }

    /// Its part of an epoch, if it had one.
    pub fn epoch(&self, epoch: usize) -> Option<&EpochAccount> {
        self.epochs.get(epoch.checked_sub(self.first_epoch as usize)?)
    }

    /// Returns the number of epochs that had passed when it was done.
    pub fn epochs_end(&self) -> usize {
        self.first_epoch as usize + self.epochs.len()
    }

    /// Reads an account. Fails if the text is none.
    pub fn from_text(text: &str) -> Result<Self> {
        serde_json::from_str(text).context("a worker's account is not one that this build understands")
    }
}
