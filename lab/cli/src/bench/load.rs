//! What the workers of a benchmark do.

use core::ops::Range;

use anyhow::{Context, Result};
use clap::ValueEnum;
use libra_proto::ValueFormat;
use serde::{Deserialize, Serialize};

use super::rows::Rows;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Operation {
    /// Adds gradients to rows
    Push,
    /// Reads rows
    Pull,
    /// Adds gradients and reads the new values in one trip
    PushPull,
}

impl Operation {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Push => "pushes",
            Self::Pull => "pulls",
            Self::PushPull => "pushes with pulls",
        }
    }
}

/// What the controller tells the workers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Load {
    pub(super) operation: Operation,
    #[serde(flatten)]
    pub(super) rows: Rows,
    /// How messages carry gradients and values.
    #[serde(rename = "wire_dtype")]
    pub(super) wire: ValueFormat,
    /// Operations of a worker that are under way at once.
    pub(super) open: usize,
    pub(super) seconds: f64,
    pub(super) workers: u16,
}

impl Load {
    pub(super) fn to_text(&self) -> Result<String> {
        serde_json::to_string(self).context("the load cannot be written down")
    }

    pub(super) fn from_text(text: &str) -> Result<Self> {
        serde_json::from_str(text).context("the controller's task is not that of a benchmark")
    }

    /// The rows that a worker must push once before anything is measured.
    pub(super) fn share(&self, worker: u16) -> Range<u64> {
        let at = |worker: u16| self.rows.made() * u64::from(worker) / u64::from(self.workers);
        at(worker)..at(worker + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::rows::Fill;
    use crate::bench::rows::tests::rows;

    fn load(keys: u64) -> Load {
        Load {
            operation: Operation::Push,
            rows: rows(keys, false),
            wire: ValueFormat::Bf16,
            open: 4,
            seconds: 1.0,
            workers: 3,
        }
    }

    #[test]
    fn shares_are_everything_once() {
        let load = load(1000);
        let all: Vec<u64> = (0..3).flat_map(|worker| load.share(worker)).collect();
        assert!(all.into_iter().eq(0..1000));
    }

    #[test]
    fn workers_read_what_the_controller_wrote() {
        let mut load = load(1000);
        load.rows.fill = Fill::Rows(12);
        assert_eq!(Load::from_text(&load.to_text().unwrap()).unwrap(), load);
    }
}
