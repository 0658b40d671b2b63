//! What the controller tells the workers to do, and what they tell it at the end. The roles carry both unread.

use std::path::Path;

use anyhow::{Context, Result, bail};
use libra_train::{Dataset, TrainConfig};
use serde::{Deserialize, Serialize};

/// The task of a training job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Task {
    /// Where the controller found the data. A worker on another machine may have it elsewhere.
    pub(crate) data: String,
    /// What the data set must look like.
    pub(crate) users: u32,
    pub(crate) items: u32,
    pub(crate) pairs: u64,
    pub(crate) config: TrainConfig,
}

impl Task {
    pub(crate) fn new(data: &str, dataset: &Dataset, config: &TrainConfig) -> Self {
        // A relative path means something else in the directory of another process.
        let absolute = Path::new(data).canonicalize().ok().and_then(|path| path.to_str().map(str::to_owned));
        let data = if data == "synthetic" { None } else { absolute }.unwrap_or_else(|| data.to_owned());
        let (users, items, pairs) = (dataset.users, dataset.items, dataset.train.len() as u64);
        Self { data, users, items, pairs, config: config.clone() }
    }

    pub(crate) fn to_text(&self) -> Result<String> {
        toml::to_string(self).context("the task cannot be written down")
    }

    pub(crate) fn from_text(text: &str) -> Result<Self> {
        toml::from_str(text).context("the controller's task is not one that this build understands")
    }

    /// Refuses a data set that is not the one the controller has.
    pub(crate) fn check(&self, data: &str, dataset: &Dataset) -> Result<()> {
        let here = (dataset.users, dataset.items, dataset.train.len() as u64);
        let there = (self.users, self.items, self.pairs);
        if here != there {
            bail!(
                "the data of this worker ({data}) has {} users, {} items and {} pairs, the controller's ({}) has {}, {} and {}",
                here.0,
                here.1,
                here.2,
                self.data,
                there.0,
                there.1,
                there.2
            );
        }
        Ok(())
    }
}

/// What one worker did in one epoch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct EpochAccount {
    pub(crate) samples: u64,
    /// Sum over samples.
    pub(crate) loss: f64,
    pub(crate) hits: u64,
    pub(crate) gain: f64,
    pub(crate) cases: u64,
    /// From the barrier before the epoch to the last push being visible.
    pub(crate) train_seconds: f64,
    pub(crate) evaluate_seconds: f64,
}

/// What one worker did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Account {
    /// The epoch that it began with: a worker that takes the place of another comes late.
    pub(crate) first_epoch: u32,
    pub(crate) epochs: Vec<EpochAccount>,
    /// The longest time in which pushes were under way and none was acknowledged.
    pub(crate) stall_ms_max: f64,
}

impl Account {
    pub(crate) fn to_text(&self) -> Result<String> {
        serde_json::to_string(self).context("the account cannot be written down")
    }

    /// Its part of an epoch, if it had one.
    pub(crate) fn epoch(&self, epoch: usize) -> Option<&EpochAccount> {
        self.epochs.get(epoch.checked_sub(self.first_epoch as usize)?)
    }

    /// How many epochs had passed when it was done.
    pub(crate) fn epochs_end(&self) -> usize {
        self.first_epoch as usize + self.epochs.len()
    }

    pub(crate) fn from_text(text: &str) -> Result<Self> {
        serde_json::from_str(text).context("a worker's account is not one that this build understands")
    }
}
