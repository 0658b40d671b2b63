//! A profile run: trains on a sample, and counts which rows its pushes update.

use std::sync::Arc;

use libra_plan::{Frequencies, Provenance};
use libra_proto::{ClientError, Parameters, PullId, Pulled};
use libra_store::Store;
use rand::{SeedableRng, rngs::SmallRng};

use crate::{
    TrainConfig,
    data::Dataset,
    local::LocalParameters,
    model::Model,
    trainer::{Progress, TrainError, Trainer},
};

/// A sample of fewer pushes is trained on again, for its gradients only: those of the first steps of a model, when it knows
/// nothing, are smaller than those that come later.
const GRADIENT_PUSHES: u64 = 256;

/// Trains one epoch on a random `sample` of the training pairs, in memory, and counts the rows of every push.
///
/// Batches are made exactly as in training, and a batch is a push; so a row's count divided by the pushes is how often a push
/// of a worker will update it. The gradients are real ones, so their magnitudes serve for the scales of a plan.
/// Rows of layers count in the total, but are no candidates (see [`Frequencies`]).
///
/// # Errors
/// `sample` is not in (0, 1], settings or data set cannot be used, or the model diverged.
pub fn profile(
    config: &TrainConfig,
    dataset: &Arc<Dataset>,
    sample: f64,
    progress: &mut dyn FnMut(Progress),
) -> Result<Frequencies, TrainError> {
    let subset = draw(dataset.train.len(), sample, config.seed).ok_or(TrainError::Sample { sample })?;
    let mut trainer = Trainer::on_subset(config, dataset.clone(), Some(subset), 0, 1)?;
    let model = *trainer.model();
    let mut recorder = Recorder {
        parameters: LocalParameters::new(Store::new(model.tables(), config.seed)?),
        frequencies: Frequencies::new(model.shapes()).expect("a store took these tables"),
        model,
        counting: true,
        pushes: 0,
    };
    let mut epoch = 0;
    while recorder.pushes < GRADIENT_PUSHES {
        trainer.train_epoch(&mut recorder, epoch, progress)?;
        recorder.counting = false;
        epoch += 1;
    }
    Ok(recorder.frequencies)
}

/// Where a plan made from `frequencies` comes from, for the plan to say.
pub fn provenance(
    config: &TrainConfig,
    dataset: &Dataset,
    sample: f64,
    frequencies: &Frequencies,
) -> Provenance {
    Provenance {
        model: format!("{} F={}", config.model, config.factors),
        data: dataset.name.clone(),
        sample,
        seed: config.seed,
        batch: u32::try_from(config.batch).unwrap_or(u32::MAX),
        pushes: frequencies.pushes(),
        tool: concat!("libra ", env!("CARGO_PKG_VERSION")).to_owned(),
    }
}

/// Indices of a random share of `count`, at least one, ascending; `None` if the share is none.
fn draw(count: usize, sample: f64, seed: u64) -> Option<Vec<u32>> {
    if !(sample > 0.0 && sample <= 1.0) || count == 0 {
        return None;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at most `count`, and not negative"
    )]
    let drawn = ((count as f64 * sample).round() as usize).clamp(1, count);
    let mut random = SmallRng::seed_from_u64(seed ^ 0x0b5e_55ed_5a3b_1e00);
    let mut indices: Vec<u32> = rand::seq::index::sample(&mut random, count, drawn)
        .into_iter()
        .map(|index| u32::try_from(index).expect("pairs are numbered with 32 bits"))
        .collect();
    indices.sort_unstable();
    Some(indices)
}

/// Passes everything on, and writes down what is pushed.
struct Recorder {
    parameters: LocalParameters,
    frequencies: Frequencies,
    model: Model,
    /// Whether rows are counted: in the first pass over the sample, the one whose batches are those of training.
    counting: bool,
    pushes: u64,
}

impl Parameters for Recorder {
    fn start_pull(&mut self, keys: Vec<u64>) -> Result<PullId, ClientError> {
        self.parameters.start_pull(keys)
    }

    fn finish_pull(&mut self, pull: PullId) -> Result<Pulled, ClientError> {
        self.parameters.finish_pull(pull)
    }

    fn push(&mut self, keys: Vec<u64>, gradients: Vec<f32>) -> Result<(), ClientError> {
        self.pushes += 1;
        if self.counting {
            self.frequencies.record_push(keys.iter().copied());
        }
        let width = self.model.width();
        let rows = keys.iter().take_while(|&&key| self.model.is_embedding(key));
        for (&key, gradient) in rows.zip(gradients.chunks_exact(width)) {
            let largest = gradient.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
            self.frequencies.record_gradient(key, largest);
        }
        self.parameters.push(keys, gradients)
    }

    fn flush(&mut self) -> Result<(), ClientError> {
        self.parameters.flush()
    }

    fn barrier(&mut self) -> Result<(), ClientError> {
        self.parameters.barrier()
    }
}
