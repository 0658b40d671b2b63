//! Pairs of gradients that a switch would add: of the same value, from two pushes.

use std::collections::HashMap;

use anyhow::Result;
use foldhash::fast::FixedState;
use libra_client::{LocalParameters, Observed, PushObserver, Widths};
use libra_models::{CHUNK_SAMPLES_MAX, LAYER_KEYS};
use libra_store::Store;

use super::tasks::Task;
use libra_launch::progress::Bars;

/// Pushes that are gone through: gradients of a model that has begun to learn, not of its first steps alone.
pub(super) const PUSHES: u64 = 400;

/// Trains in memory, and takes pairs from all pushes alike.
pub(super) fn pairs(task: &Task, pushes: u64, pairs_max: usize, bars: Bars) -> Result<Vec<(f32, f32)>> {
    let tables = task.workload.tables();
    let recorder = Recorder {
        widths: Widths::new(&tables),
        last: HashMap::default(),
        pairs: Vec::new(),
        pairs_per_push: pairs_max.div_ceil(usize::try_from(pushes).unwrap_or(1)).max(1),
        pairs_max,
    };
    let store = Store::new(tables, task.config.seed)?;
    let mut local = LocalParameters::new(store);
    let mut parameters = Observed::new(&mut local, recorder);
    let samples = pushes * task.config.batch as u64;
    let sample = (samples as f64 / task.workload.samples_per_epoch() as f64).min(1.0);
    let bar = bars.bar("gradients");
    let mut training = task.workload.clone().training(sample)?;
    let chunks = u32::try_from(training.samples_per_epoch().div_ceil(CHUNK_SAMPLES_MAX))?;
    // A small data set has few pushes in an epoch.
    for epoch in 0.. {
        let before = parameters.observer.pairs.len();
        training.train_epoch(&mut parameters, epoch, chunks, &mut |progress| {
            bar.set_length(progress.samples_total);
            bar.set_position(progress.samples);
        })?;
        let found = parameters.observer.pairs.len();
        if found >= pairs_max || epoch > 0 && found == before {
            break;
        }
    }
    bar.finish_and_clear();
    Ok(parameters.observer.pairs)
}

struct Recorder {
    widths: Widths,
    /// The last gradient of each row.
    last: HashMap<u64, Vec<f32>, FixedState>,
    pairs: Vec<(f32, f32)>,
    pairs_per_push: usize,
    pairs_max: usize,
}

impl PushObserver for Recorder {
    /// Pairs the gradients of a push with those that came before. Rows are taken at equal distances, so that hot ones do not crowd out the rest.
    fn on_push(&mut self, keys: &[u64], gradients: &[f32]) {
        let mut found = Vec::new();
        let rows = self.widths.rows(keys, gradients);
        for (key, gradient) in rows.take_while(|(key, _)| *key < LAYER_KEYS) {
            if let Some(last) = self.last.insert(key, gradient.to_vec()) {
                found.extend(last.into_iter().zip(gradient.iter().copied()));
            }
        }
        // Of nothing and something the sum is right in any way.
        found.retain(|pair| pair.0 != 0.0 && pair.1 != 0.0);
        let wanted = self.pairs_per_push.min(self.pairs_max - self.pairs.len());
        let step = (found.len() / wanted.max(1)).max(1);
        self.pairs.extend(found.into_iter().step_by(step).take(wanted));
    }
}
