//! What to train and how, as a person writes it down.

use std::{fmt, str::FromStr};

use libra_store::{Optimizer, OutOfRange, Rule, Schedule};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    lstm::LstmConfig,
    ncf::{Branches, NcfConfig},
};

/// Settings of a training run. Every worker of a job must have the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainConfig {
    /// Which model, with settings of its own.
    pub model: ModelConfig,
    /// Passes over the training data.
    pub epochs: u32,
    /// Samples of a step. Of a language model these are words: those of all streams.
    pub batch: usize,
    /// Decides initial values, order, and whatever else is drawn.
    pub seed: u64,
    /// How gradients change the rows of embeddings.
    pub embeddings: Rule,
    /// How gradients change the layers.
    pub layers: Rule,
}

/// Settings of one model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelConfig {
    /// Neural Collaborative Filtering.
    Ncf(NcfConfig),
    /// A language model.
    Lstm(LstmConfig),
}

/// The models by their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ModelKind {
    /// Neural Collaborative Filtering with generalised matrix factorisation alone.
    Gmf,
    /// Neural Collaborative Filtering with a multi-layer perceptron alone.
    Mlp,
    /// Neural Collaborative Filtering with both.
    Neumf,
    /// Language model of LSTM with a sampled softmax.
    Lstm,
}

impl ModelKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Gmf, Self::Mlp, Self::Neumf, Self::Lstm];

    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gmf => "gmf",
            Self::Mlp => "mlp",
            Self::Neumf => "neumf",
            Self::Lstm => "lstm",
        }
    }

    /// Settings with which it does well.
    ///
    /// Of NCF: 8 factors, 4 negatives and 20 epochs are those of He et al. 2017, section 4. Adam at a rate of 0.002 was
    /// the best on MovieLens 1M of 0.001 to 0.005 (HR@10 0.675 in memory; Adagrad 0.666), and does not mind that a switch applies
    /// the sum of two workers' pushes as one update: the same within 0.003.
    ///
    /// Of the language model: 200 cells and values up to 0.1 are those of the small model of Zaremba et al. 2014, with one layer instead of
    /// two. On Penn Treebank, with two workers that share a store in memory and the sum of two pushes as one update, it has a perplexity of 159
    /// on the validation text after one pass, 129 after two and 112 after six. Of one worker, a rate of 0.2 instead of 0.1 does the same
    /// within 2, and Adam at 0.004 for all rows has 254 after one pass, where these have 147.
    pub fn config(self) -> TrainConfig {
        let adam = Optimizer::Adam { rate: 0.002, beta1: 0.9, beta2: 0.999, epsilon: 1e-8 };
        let ncf = |branches| TrainConfig {
            model: ModelConfig::Ncf(NcfConfig { branches, ..NcfConfig::default() }),
            epochs: 20,
            batch: 1024,
            seed: 1,
            embeddings: adam.into(),
            layers: adam.into(),
        };
        match self {
            Self::Gmf => ncf(Branches::Gmf),
            Self::Mlp => ncf(Branches::Mlp),
            Self::Neumf => ncf(Branches::Neumf),
            Self::Lstm => TrainConfig {
                model: ModelConfig::Lstm(LstmConfig::default()),
                epochs: 6,
                batch: 1024,
                seed: 1,
                embeddings: Optimizer::Adagrad { rate: 0.1, epsilon: 1e-8 }.into(),
                layers: Optimizer::Adam { rate: 0.003, beta1: 0.9, beta2: 0.999, epsilon: 1e-8 }.into(),
            },
        }
    }
}

impl fmt::Display for ModelKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no model's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no model {name:?}: the models are {}", ModelKind::ALL.map(ModelKind::name).join(", "))]
pub struct UnknownModel {
    /// The name.
    pub name: String,
}

impl FromStr for ModelKind {
    type Err = UnknownModel;

    fn from_str(name: &str) -> Result<Self, UnknownModel> {
        let known = Self::ALL.into_iter().find(|kind| kind.name() == name);
        known.ok_or_else(|| UnknownModel { name: name.to_owned() })
    }
}

/// Largest batch.
pub const BATCH_MAX: usize = 1 << 20;

/// A setting that cannot be used.
#[derive(Debug, Error, Clone, PartialEq)]
#[error("{field} = {found}: it must be {expected}")]
pub struct ConfigError {
    /// The setting.
    pub field: String,
    /// What it was set to.
    pub found: String,
    /// What would do.
    pub expected: &'static str,
}

impl ConfigError {
    pub(crate) fn new(field: &str, found: &dyn ToString, expected: &'static str) -> Self {
        Self { field: field.to_owned(), found: found.to_string(), expected }
    }
}

impl TrainConfig {
    /// Checks every setting.
    ///
    /// # Errors
    /// The first one that cannot be used.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.epochs == 0 {
            return Err(ConfigError::new("epochs", &self.epochs, "at least 1"));
        }
        if !(1..=BATCH_MAX).contains(&self.batch) {
            return Err(ConfigError::new("batch", &self.batch, "between 1 and 1048576"));
        }
        check_rule("embeddings", &self.embeddings)?;
        check_rule("layers", &self.layers)?;
        match &self.model {
            ModelConfig::Ncf(ncf) => ncf.check(),
            ModelConfig::Lstm(lstm) => lstm.check(self.batch),
        }
    }
}

fn check_rule(setting: &str, rule: &Rule) -> Result<(), ConfigError> {
    rule.check().map_err(|OutOfRange { field, value, wanted }| ConfigError {
        field: format!("{setting}.{field}"),
        found: value.to_string(),
        expected: wanted,
    })?;
    // A store refuses it, too, but that is at a server.
    if matches!(rule.optimizer, Optimizer::Ftrl { .. }) && rule.schedule != Schedule::default() {
        return Err(ConfigError {
            field: format!("{setting}.schedule"),
            found: format!("{:?}", rule.schedule),
            expected: "constant beside FTRL, whose rate falls by itself",
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_good_and_can_be_named() {
        for kind in ModelKind::ALL {
            assert_eq!(kind.config().check(), Ok(()));
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        let error = "ncf".parse::<ModelKind>().unwrap_err();
        assert_eq!(error.to_string(), "there is no model \"ncf\": the models are gmf, mlp, neumf, lstm");
    }

    #[test]
    fn every_bad_setting_is_named() {
        let good = ModelKind::Neumf.config();
        let field = |config: TrainConfig| config.check().unwrap_err().field;
        let ncf = |change: fn(&mut NcfConfig)| {
            let mut settings = NcfConfig::default();
            change(&mut settings);
            TrainConfig { model: ModelConfig::Ncf(settings), ..good.clone() }
        };
        assert_eq!(field(ncf(|ncf| ncf.factors = 0)), "factors");
        assert_eq!(field(ncf(|ncf| ncf.factors = 1 << 40)), "factors");
        assert_eq!(field(ncf(|ncf| ncf.negatives = 1001)), "negatives");
        assert_eq!(field(ncf(|ncf| ncf.deviation = f32::NAN)), "deviation");
        assert_eq!(field(TrainConfig { epochs: 0, ..good.clone() }), "epochs");
        assert_eq!(field(TrainConfig { batch: 0, ..good.clone() }), "batch");
        let optimizer = Optimizer::Sgd { rate: -0.5 };
        assert_eq!(field(TrainConfig { embeddings: optimizer.into(), ..good.clone() }), "embeddings.rate");
        let optimizer = Optimizer::Adam { rate: 0.5, beta1: 1.0, beta2: 0.9, epsilon: 1e-8 };
        let error = TrainConfig { layers: optimizer.into(), ..good.clone() }.check().unwrap_err();
        assert_eq!(error.to_string(), "layers.beta1 = 1: it must be at least 0 and below 1");
        let layers = Rule { weight_decay: -1.0, ..good.layers };
        assert_eq!(field(TrainConfig { layers, ..good.clone() }), "layers.weight_decay");
        let ftrl = Optimizer::Ftrl { alpha: 0.1, beta: 1.0, l1: 0.0, l2: 0.0 };
        let embeddings = Rule { schedule: Schedule { warmup: 5, ..Schedule::default() }, ..ftrl.into() };
        let error = TrainConfig { embeddings, ..good }.check().unwrap_err();
        assert!(error.to_string().contains("it must be constant beside FTRL"), "{error}");
        assert_eq!(error.field, "embeddings.schedule");
    }
}
