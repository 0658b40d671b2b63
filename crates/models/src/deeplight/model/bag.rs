//! Rows that are bags of features: from their rows of parameters to their pairs and the inputs of the layers, and gradients back.
//!
//! With `s` the sum of the vectors of a bag, the sum over its pairs is `1/2 (<s, s> - sum of <v, v>)` (Rendle 2010, lemma 3.1), and its gradient
//! by a vector is `s - v`. A feature that is in a bag twice is a pair, too.

use super::network::{Limits, Samples, keep};

/// The working memory of a part of a batch.
pub(super) struct BagNet {
    lanes: usize,
    /// The sums of the vectors: samples x lanes.
    sums: Vec<f32>,
}

impl BagNet {
    pub(super) fn new(lanes: usize) -> Self {
        Self { lanes, sums: Vec::new() }
    }

    /// Replaces `inputs` (samples x lanes) by the means of the vectors of some samples, and adds to their `logits`.
    pub(super) fn forward(
        &mut self,
        values: &[f32],
        samples: &Samples,
        part: std::ops::Range<usize>,
        limits: &Limits,
        inputs: &mut Vec<f32>,
        logits: &mut [f32],
    ) {
        let (lanes, width) = (self.lanes, self.lanes + 1);
        self.sums.clear();
        self.sums.resize(part.len() * lanes, 0.0);
        inputs.clear();
        for ((sample, sums), logit) in part.zip(self.sums.chunks_exact_mut(lanes)).zip(logits) {
            let mut squares = 0.0;
            let features = samples.features(sample);
            for &feature in features {
                let row = &values[feature as usize * width..][..width];
                for (sum, &value) in sums.iter_mut().zip(&row[..lanes]) {
                    let value = keep(value, limits.embeddings);
                    *sum += value;
                    squares += value * value;
                }
                *logit += row[lanes];
            }
            let square: f32 = sums.iter().map(|sum| sum * sum).sum();
            *logit += 0.5 * (square - squares);
            let share = 1.0 / features.len() as f32;
            inputs.extend(sums.iter().map(|sum| sum * share));
        }
    }

    /// Adds the gradients of the samples that went forward last to those of their rows. `by_input` holds the gradients that the layers
    /// give to `inputs`.
    #[expect(clippy::too_many_arguments, reason = "all of them are parts of one step")]
    pub(super) fn backward(
        &self,
        values: &[f32],
        samples: &Samples,
        part: std::ops::Range<usize>,
        limits: &Limits,
        by_logit: &[f32],
        by_input: &[f32],
        row_gradients: &mut [f32],
    ) {
        let (lanes, width) = (self.lanes, self.lanes + 1);
        let sums = self.sums.chunks_exact(lanes).zip(by_input.chunks_exact(lanes));
        for ((sample, (sums, by_input)), &gradient) in part.zip(sums).zip(by_logit) {
            let features = samples.features(sample);
            let share = 1.0 / features.len() as f32;
            for &feature in features {
                let row = &values[feature as usize * width..][..lanes];
                let target = &mut row_gradients[feature as usize * width..][..width];
                for (lane, value) in target[..lanes].iter_mut().enumerate() {
                    let others = sums[lane] - keep(row[lane], limits.embeddings);
                    *value += gradient * others + share * by_input[lane];
                }
                target[lanes] += gradient;
            }
        }
    }
}
