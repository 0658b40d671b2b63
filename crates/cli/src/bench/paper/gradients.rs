//! Pairs of gradients that a switch would add: of the same value, from two pushes.

use std::collections::HashMap;

use anyhow::Result;
use foldhash::fast::FixedState;
use libra_proto::{ClientError, Parameters, PullId, Pulled};
use libra_store::Store;
use libra_train::{LAYER_KEYS, LocalParameters, Share};

use super::tasks::Task;
use crate::progress::Bars;

/// Pushes that are gone through: gradients of a model that has begun to learn, not of its first steps alone.
const PUSHES: u64 = 400;

/// Trains in memory, and takes pairs from all pushes alike.
pub(super) fn pairs(task: &Task, pairs_max: usize, bars: Bars) -> Result<Vec<(f32, f32)>> {
    let store = Store::new(task.workload.tables(), task.config.seed)?;
    let widths = task.embeddings().into_iter().map(|table| (table.keys, table.width as usize)).collect();
    let mut recorder = Recorder {
        parameters: LocalParameters::new(store),
        widths,
        last: HashMap::default(),
        pairs: Vec::new(),
        pairs_per_push: pairs_max.div_ceil(usize::try_from(PUSHES).unwrap_or(1)).max(1),
        pairs_max,
    };
    let samples = PUSHES * task.config.batch as u64;
    let sample = (samples as f64 / task.workload.samples_per_epoch() as f64).min(1.0);
    let bar = bars.bar("gradients");
    let mut training = task.workload.clone().training(Share { sample, ..Share::WHOLE })?;
    // A small data set has few pushes in an epoch.
    for epoch in 0.. {
        let before = recorder.pairs.len();
        training.train_epoch(&mut recorder, epoch, &mut |progress| {
            bar.set_length(progress.samples_total);
            bar.set_position(progress.samples);
        })?;
        if recorder.pairs.len() >= pairs_max || epoch > 0 && recorder.pairs.len() == before {
            break;
        }
    }
    bar.finish_and_clear();
    Ok(recorder.pairs)
}

struct Recorder {
    parameters: LocalParameters,
    widths: Vec<(std::ops::Range<u64>, usize)>,
    /// The last gradient of each row.
    last: HashMap<u64, Vec<f32>, FixedState>,
    pairs: Vec<(f32, f32)>,
    pairs_per_push: usize,
    pairs_max: usize,
}

impl Recorder {
    /// Pairs the gradients of a push with those that came before. Rows are taken at equal distances, so that hot ones do not crowd out the rest.
    fn pair(&mut self, keys: &[u64], gradients: &[f32]) {
        let mut rest = gradients;
        let mut found = Vec::new();
        for &key in keys.iter().take_while(|&&key| key < LAYER_KEYS) {
            let width =
                self.widths.iter().find(|(keys, _)| keys.contains(&key)).map_or(1, |(_, width)| *width);
            let gradient;
            (gradient, rest) = rest.split_at(width);
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

impl Parameters for Recorder {
    fn start_pull(&mut self, keys: Vec<u64>) -> Result<PullId, ClientError> {
        self.parameters.start_pull(keys)
    }

    fn finish_pull(&mut self, pull: PullId) -> Result<Pulled, ClientError> {
        self.parameters.finish_pull(pull)
    }

    fn push(&mut self, keys: Vec<u64>, gradients: Vec<f32>) -> Result<(), ClientError> {
        self.pair(&keys, &gradients);
        self.parameters.push(keys, gradients)
    }

    fn flush(&mut self) -> Result<(), ClientError> {
        self.parameters.flush()
    }

    fn barrier(&mut self) -> Result<(), ClientError> {
        self.parameters.barrier()
    }
}
