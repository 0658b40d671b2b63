//! Pruning: small weights count as 0, so that a model becomes sparse (Deng et al. 2021, section 4.3 and algorithm 1).
//!
//! The parameter server keeps every weight. A worker takes those nearest to 0 as 0, in training and in tests: of all vectors together, of R,
//! and of each hidden layer, a share that grows towards its target. The gradient by a weight that counts as 0 is pushed like any
//! other, so it counts again once it has moved far enough; in the code of Deng et al., too, pruned weights go on learning, but from 0.
//!
//! So there is nothing that workers would have to agree on: the shares follow from settings and the place of the batch in the epoch, and where a share ends
//! from the values at the server, which are the same for all. Limits of R and layers are found among the values of a pull, for the first batch of a chunk
//! and then every ten batches; that of the vectors among the rows of a sample, the same for all workers, read before each epoch. As far
//! as workers read at different moments, their limits differ by what was learnt in between.

use libra_client::{Parameters, Widths};
use serde::{Deserialize, Serialize};

use super::{
    Place,
    model::{Limits, Model},
};
use crate::{ConfigError, Measure, TrainError, trainer::read_rows};

/// Rows of features whose values stand for all.
const SAMPLED_ROWS: u64 = 1 << 13;

/// Batches of a chunk between two changes of the limits, as in the code of Deng et al.
const BATCHES: u64 = 10;

/// Target sparsity of a model. After `n` steps since the warm-up, shares have grown to `1 - damping^(n / interval)` of their targets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Prune {
    /// The share of the lanes of all vectors that is to be 0: at least 0, below 1. Weights of features are not pruned.
    pub embeddings: f32,
    /// The share of R.
    pub pairs: f32,
    /// The share of the weights of each hidden layer.
    pub layers: f32,
    /// Epochs before the first weight is pruned.
    pub warmup: u32,
    /// Above 0, below 1: the nearer to 1, the slower.
    pub damping: f32,
    /// Steps that belong to one power of the damping: batches, of all workers together.
    pub interval: u32,
}

impl Default for Prune {
    /// Nothing is pruned. Damping and interval are those of Deng et al., for a log with thousands of steps an epoch.
    fn default() -> Self {
        Self { embeddings: 0.0, pairs: 0.0, layers: 0.0, warmup: 2, damping: 0.99, interval: 100 }
    }
}

impl Prune {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let targets = [("embeddings", self.embeddings), ("pairs", self.pairs), ("layers", self.layers)];
        for (name, target) in targets {
            if !(0.0..1.0).contains(&target) {
                return Err(ConfigError::new(&format!("prune.{name}"), &target, "at least 0 and below 1"));
            }
        }
        if !(self.damping > 0.0 && self.damping < 1.0) {
            return Err(ConfigError::new("prune.damping", &self.damping, "above 0 and below 1"));
        }
        if self.interval == 0 {
            return Err(ConfigError::new("prune.interval", &self.interval, "at least 1"));
        }
        Ok(())
    }

    /// Returns true if anything is to be pruned.
    pub(super) fn is_wanted(&self) -> bool {
        self.share() > 0.0
    }

    /// Returns the largest share.
    pub(super) fn share(&self) -> f32 {
        self.embeddings.max(self.pairs).max(self.layers)
    }

    /// Returns the part of the targets that is reached after `steps` steps since the warm-up.
    fn reached(&self, steps: f64) -> f64 {
        1.0 - f64::from(self.damping).powf(steps.max(0.0) / f64::from(self.interval))
    }
}

/// The pruning of one worker.
pub(super) struct Pruning {
    settings: Prune,
    model: Model,
    widths: Widths,
    /// Batches of an epoch, of all workers together.
    epoch_batches: u64,
    epoch: u32,
    /// Magnitudes of the lanes of some vectors, ascending: as they were before the epoch.
    magnitudes: Vec<f32>,
}

impl Pruning {
    /// `epoch_batches` are those of all workers together.
    pub(super) fn new(settings: &Prune, model: &Model, epoch_batches: u64) -> Self {
        Self {
            settings: settings.clone(),
            widths: Widths::new(&model.tables()),
            model: model.clone(),
            epoch_batches,
            epoch: 0,
            magnitudes: Vec::new(),
        }
    }

    /// Goes to the start of an epoch.
    pub(super) fn start_epoch(
        &mut self,
        epoch: u32,
        parameters: &mut dyn Parameters,
    ) -> Result<(), TrainError> {
        self.epoch = epoch;
        if self.is_due() { self.look(parameters) } else { Ok(()) }
    }

    /// Finds the limits for a batch, whose R and layers are `layers`.
    pub(super) fn step(&self, place: Place, layers: &[f32], limits: &mut Limits) {
        if self.is_due() && place.in_chunk.is_multiple_of(BATCHES) {
            *limits = self.limits(place.in_epoch, layers);
        } else if !self.is_due() {
            *limits = Limits::default();
        }
    }

    /// Finds the limits for an evaluation after an epoch. Returns findings: shares that count as 0. `layers` are R and layers as they are now.
    pub(super) fn evaluate(
        &mut self,
        epoch: u32,
        parameters: &mut dyn Parameters,
        layers: &[f32],
        limits: &mut Limits,
    ) -> Result<Vec<Measure>, TrainError> {
        *limits = Limits::default();
        if !self.settings.is_wanted() {
            return Ok(Vec::new());
        }
        self.epoch = epoch;
        if self.is_due() {
            self.look(parameters)?;
            *limits = self.limits(self.epoch_batches, layers);
        }
        Ok(self.measure(layers, limits))
    }

    fn is_due(&self) -> bool {
        self.settings.is_wanted() && self.epoch >= self.settings.warmup
    }

    /// Reads the rows of a sample of the features, evenly spread.
    fn look(&mut self, parameters: &mut dyn Parameters) -> Result<(), TrainError> {
        let features = self.model.features().end;
        let count = features.min(SAMPLED_ROWS);
        let keys: Vec<u64> = (0..count).map(|number| number * features / count).collect();
        let rows = read_rows(parameters, &self.widths, &keys)?;
        self.magnitudes.clear();
        for row in rows.chunks_exact(self.model.width()) {
            self.magnitudes.extend(row[..self.model.lanes()].iter().map(|value| value.abs()));
        }
        self.magnitudes.sort_unstable_by(f32::total_cmp);
        Ok(())
    }

    /// The limits after so many batches of the epoch.
    fn limits(&self, batches: u64, layers: &[f32]) -> Limits {
        let epochs = f64::from(self.epoch - self.settings.warmup);
        let steps = epochs * self.epoch_batches as f64 + batches as f64;
        let reached = self.settings.reached(steps);
        let share = |target: f32| reached * f64::from(target);
        let (pairs, layers) = layers.split_at(self.model.pairs());
        let hidden = self.hidden(layers).map(|weights| limit(weights, share(self.settings.layers))).collect();
        Limits {
            embeddings: place(self.magnitudes.len(), share(self.settings.embeddings))
                .map_or(0.0, |place| self.magnitudes[place]),
            pairs: limit(pairs, share(self.settings.pairs)),
            hidden,
        }
    }

    /// The weights of each hidden layer.
    fn hidden<'a>(&self, mut rows: &'a [f32]) -> impl Iterator<Item = &'a [f32]> + use<'a> {
        let mut layers = self.model.layers();
        layers.pop();
        layers.into_iter().map(move |layer| {
            let row;
            (row, rows) = rows.split_at(layer.width());
            &row[..layer.weights()]
        })
    }

    /// Counts what is below the limits.
    fn measure(&self, layers: &[f32], limits: &Limits) -> Vec<Measure> {
        let below = |values: &[f32], limit: f32| values.iter().filter(|value| value.abs() < limit).count();
        let (pairs, rows) = layers.split_at(self.model.pairs());
        let (mut pruned, mut weights) = (0, 0);
        for (place, layer) in self.hidden(rows).enumerate() {
            pruned += below(layer, limits.hidden.get(place).copied().unwrap_or(0.0));
            weights += layer.len();
        }
        let share = |pruned: usize, all: usize| pruned as f64 / all.max(1) as f64;
        let embeddings = share(below(&self.magnitudes, limits.embeddings), self.magnitudes.len());
        vec![
            Measure::new("pruned_embeddings", "vectors pruned", embeddings),
            Measure::new("pruned_pairs", "pairs pruned", share(below(pairs, limits.pairs), pairs.len())),
            Measure::new("pruned_layers", "layers pruned", share(pruned, weights)),
        ]
    }
}

/// The magnitude below which the share `share` of `values` is; 0 for none.
fn limit(values: &[f32], share: f64) -> f32 {
    let Some(place) = place(values.len(), share) else { return 0.0 };
    let mut magnitudes: Vec<f32> = values.iter().map(|value| value.abs()).collect();
    *magnitudes.select_nth_unstable_by(place, f32::total_cmp).1
}

/// The first of `count` ascending values that is not among the share `share` of the smallest.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a number of values")]
fn place(count: usize, share: f64) -> Option<usize> {
    (share > 0.0 && count > 0).then(|| ((count as f64 * share).round() as usize).min(count - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_grow_as_in_the_paper() {
        let prune = Prune { embeddings: 0.5, ..Prune::default() };
        assert_eq!((prune.reached(0.0), prune.reached(-1.0)), (0.0, 0.0));
        assert!((prune.reached(100.0) - 0.01).abs() < 1e-6);
        assert!((prune.reached(10_000.0) - (1.0 - 0.99f64.powi(100))).abs() < 1e-4);
    }

    #[test]
    fn a_limit_has_its_share_below_it() {
        let values = [0.5, -0.1, 0.3, -0.4, 0.2];
        assert_eq!(limit(&values, 0.0), 0.0);
        assert_eq!(limit(&values, 0.4), 0.3);
        assert_eq!(limit(&values, 0.999), 0.5);
        assert_eq!(limit(&[], 0.5), 0.0);
    }
}
