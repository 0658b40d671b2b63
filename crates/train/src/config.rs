//! What to train and how, as a person writes it down.

use libra_store::{Optimizer, OutOfRange, Rule, Schedule};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::model::ModelKind;

/// Settings of a training run. Every worker of a job must have the same.
///
/// The defaults are NeuMF with 8 factors, 4 negatives and 20 epochs (He et al. 2017, section 4). Adam at a rate of 0.002 was
/// the best on MovieLens 1M of 0.001 to 0.005 (HR@10 0.675 in memory; Adagrad 0.666), and does not mind that a switch applies
/// the sum of two workers' pushes as one update: the same within 0.003.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrainConfig {
    /// Which model.
    pub model: ModelKind,
    /// Predictive factors F: how wide the last hidden layer is, and with it everything else.
    pub factors: usize,
    /// Passes over the training pairs.
    pub epochs: u32,
    /// Samples of a step; positives and negatives both count.
    pub batch: usize,
    /// Negatives drawn for each positive.
    pub negatives: usize,
    /// Decides initial values, order and negatives.
    pub seed: u64,
    /// How gradients change the embedding rows of users and items.
    pub embeddings: Rule,
    /// How gradients change the layers.
    pub layers: Rule,
    /// Standard deviation of the initial embeddings, which are normal with mean 0.
    pub deviation: f32,
}

/// Largest number of factors: the tower of such a model has 16 million weights.
pub const FACTORS_MAX: usize = 1024;

/// Largest batch.
pub const BATCH_MAX: usize = 1 << 20;

/// Largest number of negatives for a positive.
pub const NEGATIVES_MAX: usize = 1000;

impl Default for TrainConfig {
    fn default() -> Self {
        let adam = Optimizer::Adam { rate: 0.002, beta1: 0.9, beta2: 0.999, epsilon: 1e-8 };
        Self {
            model: ModelKind::Neumf,
            factors: 8,
            epochs: 20,
            batch: 1024,
            negatives: 4,
            seed: 1,
            embeddings: adam.into(),
            layers: adam.into(),
            deviation: 0.01,
        }
    }
}

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

impl TrainConfig {
    /// Checks every setting.
    ///
    /// # Errors
    /// The first one that cannot be used.
    pub fn check(&self) -> Result<(), ConfigError> {
        let wrong = |field: &str, found: &dyn ToString, expected| {
            Err(ConfigError { field: field.to_owned(), found: found.to_string(), expected })
        };
        if !(1..=FACTORS_MAX).contains(&self.factors) {
            return wrong("factors", &self.factors, "between 1 and 1024");
        }
        if self.epochs == 0 {
            return wrong("epochs", &self.epochs, "at least 1");
        }
        if !(1..=BATCH_MAX).contains(&self.batch) {
            return wrong("batch", &self.batch, "between 1 and 1048576");
        }
        if self.negatives > NEGATIVES_MAX {
            return wrong("negatives", &self.negatives, "at most 1000");
        }
        if !(self.deviation.is_finite() && self.deviation > 0.0) {
            return wrong("deviation", &self.deviation, "a positive number");
        }
        check_rule("embeddings", &self.embeddings)?;
        check_rule("layers", &self.layers)
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
    fn the_defaults_are_good() {
        assert_eq!(TrainConfig::default().check(), Ok(()));
    }

    #[test]
    fn every_bad_setting_is_named() {
        let good = TrainConfig::default();
        let field = |config: TrainConfig| config.check().unwrap_err().field;
        assert_eq!(field(TrainConfig { factors: 0, ..good.clone() }), "factors");
        assert_eq!(field(TrainConfig { factors: 1 << 40, ..good.clone() }), "factors");
        assert_eq!(field(TrainConfig { epochs: 0, ..good.clone() }), "epochs");
        assert_eq!(field(TrainConfig { batch: 0, ..good.clone() }), "batch");
        assert_eq!(field(TrainConfig { negatives: 1001, ..good.clone() }), "negatives");
        assert_eq!(field(TrainConfig { deviation: f32::NAN, ..good.clone() }), "deviation");
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
