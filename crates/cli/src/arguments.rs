//! Options that several subcommands share, and what they mean.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use libra_net::FaultRates;
use libra_plan::{Budget, DEFAULT_C, DEFAULT_HEADROOM_BITS, DEFAULT_P, FOLDS, Plan};
use libra_proto::ArithmeticMode;
use libra_train::{Dataset, Model, ModelKind, TrainConfig};
use serde::Serialize;

use crate::progress::Bars;
use crate::rule::RuleArguments;

/// What a step of training is.
#[derive(Args, Debug, Clone)]
pub(crate) struct ModelArguments {
    /// The model of Neural Collaborative Filtering (He et al. 2017): gmf, mlp or neumf
    #[arg(long, value_name = "MODEL", default_value = "neumf")]
    pub(crate) model: ModelKind,
    /// MovieLens data (a directory with the NCF split, or with u.data), or `synthetic` for built-in data
    #[arg(long, value_name = "DIR", default_value = "synthetic")]
    pub(crate) data: String,
    /// Samples of a step of one worker
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub(crate) batch: usize,
    /// Predictive factors of the model
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub(crate) factors: usize,
    /// Decides initial values, order and negatives
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) rules: RuleArguments,
}

/// What to train, and for how long.
#[derive(Args, Debug, Clone)]
pub(crate) struct TrainingArguments {
    #[command(flatten)]
    pub(crate) model: ModelArguments,
    /// Passes over the training pairs
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) epochs: u32,
}

impl TrainingArguments {
    pub(crate) fn config(&self) -> Result<TrainConfig> {
        Ok(TrainConfig { epochs: self.epochs, ..self.model.config()? })
    }
}

impl ModelArguments {
    pub(crate) fn config(&self) -> Result<TrainConfig> {
        let config = TrainConfig {
            model: self.model,
            factors: self.factors,
            batch: self.batch,
            seed: self.seed,
            embeddings: self.rules.embeddings(self.batch),
            layers: self.rules.layers(self.batch),
            ..TrainConfig::default()
        };
        config.check()?;
        Ok(config)
    }

    pub(crate) fn dataset(&self) -> Result<Arc<Dataset>> {
        Ok(Arc::new(Dataset::open(&self.data, self.seed)?))
    }
}

/// Batches that a profile run must have: each of the parts by which a plan is judged then has one.
const PUSHES_MIN: usize = FOLDS;

/// Which rows are hot.
#[derive(Args, Debug, Clone)]
pub(crate) struct SampleArguments {
    /// Share of the training pairs that the profile run trains on, above 0 and at most 1; at least 16 batches
    #[arg(long, value_name = "F", default_value_t = 0.08)]
    pub(crate) sample: f64,
    /// Share of all row updates that the switch should take (p of the paper's Principle 1)
    #[arg(long, value_name = "P", default_value_t = DEFAULT_P)]
    pub(crate) hot_share: f64,
    /// Share of the switch's 20 MiB of on-chip memory that may be used (c of Principle 1)
    #[arg(long, value_name = "C", default_value_t = DEFAULT_C)]
    pub(crate) memory_share: f64,
}

impl SampleArguments {
    /// Trains on the sample and makes a plan of what it saw.
    pub(crate) fn plan(&self, config: &TrainConfig, dataset: &Arc<Dataset>, bars: &Bars) -> Result<Plan> {
        let sample = self.enough(config, dataset, bars);
        let budget = Budget { p: self.hot_share, c: self.memory_share, ..Budget::default() };
        budget.check()?;
        let bar = bars.bar("profile");
        let frequencies = libra_train::profile(config, dataset, sample, &mut |progress| {
            bar.set_length(progress.samples_total);
            bar.set_position(progress.samples);
            bar.set_message(format!("loss {:.4}", progress.loss));
        })?;
        bar.finish_and_clear();
        let provenance = libra_train::provenance(config, dataset, sample, &frequencies);
        Ok(Plan::new(1, provenance, &frequencies, budget, DEFAULT_HEADROOM_BITS)?)
    }
}

impl SampleArguments {
    /// The share to train on: a few pushes more than were asked for, where those would tell nothing of how often rows come.
    fn enough(&self, config: &TrainConfig, dataset: &Dataset, bars: &Bars) -> f64 {
        let samples = dataset.train.len() * (1 + config.negatives);
        let least = ((PUSHES_MIN * config.batch) as f64 / samples as f64).min(1.0);
        // What is no share is left to the profile run to refuse.
        if !(self.sample > 0.0 && self.sample < least) {
            return self.sample;
        }
        bars.line(&format!(
            "note: the profile run takes {least:.3} of the data, the share {} has too few batches",
            self.sample
        ));
        least
    }
}

/// How the hot path works.
#[derive(Args, Debug, Clone)]
pub(crate) struct HotPathArguments {
    /// How switch slots add: fixed (planned fixed point, exact in any order) or f32 (IEEE 754)
    #[arg(long, value_name = "MODE", default_value = "fixed", value_parser = parse_arithmetic)]
    pub(crate) arithmetic: ArithmeticMode,
    /// A plan written by `libra profile`; without it the job begins with a profile run
    #[arg(long, value_name = "FILE")]
    pub(crate) plan: Option<PathBuf>,
    /// Pushes after which a switch closes an epoch; without it as many as there are workers
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pushes_per_epoch: Option<u32>,
    /// Largest IP packet that the network between workers and switches lets through, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = clap::value_parser!(u16).range(256..))]
    pub(crate) mtu: u16,
    /// Milliseconds after which a switch closes an epoch that has fewer
    #[arg(long, value_name = "MS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) epoch_ms: u64,
}

fn parse_arithmetic(text: &str) -> Result<ArithmeticMode, String> {
    match text {
        "fixed" => Ok(ArithmeticMode::Fixed),
        "f32" => Ok(ArithmeticMode::F32),
        _ => Err("expected fixed or f32".to_owned()),
    }
}

/// Empties a file that will be written when long work is done: it shows now whether that is possible, and what an earlier
/// run left cannot be taken for the result.
pub(crate) fn clear(path: &Path) -> Result<()> {
    std::fs::write(path, "").with_context(|| format!("cannot write {}", path.display()))
}

/// Writes what came of a command, for machines.
pub(crate) fn write_json(path: &Path, content: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(content)?;
    std::fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()))
}

/// Reads a plan, and refuses one that was made for another model.
pub(crate) fn read_plan(path: &Path, model: &Model) -> Result<Plan> {
    let plan = load_plan(path)?;
    let file = path.display();
    plan.fits(&model.shapes()).with_context(|| {
        format!(
            "the plan {file} does not fit the model; make one with `libra profile` for this model and data"
        )
    })?;
    Ok(plan)
}

/// Reads a plan.
pub(crate) fn load_plan(path: &Path) -> Result<Plan> {
    let file = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read the plan {file}"))?;
    Plan::from_toml(&text).with_context(|| format!("{file} is not a plan"))
}

/// Faults to inject into the hot path, for tests of the transport.
#[derive(Args, Debug, Clone)]
pub(crate) struct FaultArguments {
    /// Probability that a datagram of the hot path is lost on its way out, at both ends
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    pub(crate) loss: f64,
    /// Probability that it is sent twice
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    pub(crate) duplicate: f64,
    /// Probability that it is overtaken by up to 32 later ones
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    pub(crate) reorder: f64,
}

impl FaultArguments {
    pub(crate) fn rates(&self) -> Result<FaultRates> {
        FaultRates::new(self.loss, self.duplicate, self.reorder).context("--loss, --duplicate or --reorder")
    }
}
