//! A whole model at work: one step of training, or scores.

use super::{
    Model, SampleRows,
    dense::DenseNet,
    sparse::{Inputs, SparseNet},
};
use crate::loss::cross_entropy;

/// Samples are computed in parts whose inputs have at most this many values.
///
/// They stay in the second-level cache then.
const PART_VALUES: usize = 1 << 15;

/// A model with its working memory.
pub(crate) struct Network {
    width: usize,
    /// Samples of a part.
    part: usize,
    layer_values: usize,
    sparse: SparseNet,
    dense: DenseNet,
    inputs: Inputs,
    input_gradients: Inputs,
}

impl Network {
    /// A network of the shape of `model`.
    pub(crate) fn new(model: &Model) -> Self {
        Self {
            width: model.width(),
            part: (PART_VALUES / model.product_width().max(2 * model.tower_width())).max(1),
            layer_values: model.layer_values(),
            sparse: SparseNet::new(model),
            dense: DenseNet::new(model),
            inputs: Inputs::default(),
            input_gradients: Inputs::default(),
        }
    }

    /// Loss and gradients of a batch.
    ///
    /// `values` holds the embedding rows that `samples` names and behind them the rows of the layers in their order; `gradients`
    /// is made to the same layout. The loss is the mean binary cross-entropy of the samples (He et al., equation 7), and
    /// the gradients are those of this mean.
    ///
    /// # Panics
    /// If the lengths do not fit together.
    pub(crate) fn step(
        &mut self,
        values: &[f32],
        samples: &SampleRows,
        labels: &[f32],
        gradients: &mut Vec<f32>,
    ) -> f64 {
        assert_eq!(samples.len(), labels.len(), "a sample has a label");
        let (rows, layers) = values.split_at(values.len() - self.layer_values);
        debug_assert!(rows.len().is_multiple_of(self.width));
        self.dense.load(layers);
        gradients.clear();
        gradients.resize(values.len(), 0.0);
        let (row_gradients, layer_gradients) = gradients.split_at_mut(rows.len());
        let share = 1.0 / labels.len().max(1) as f32;
        let mut loss = 0.0;
        let parts = samples.users.chunks(self.part).zip(samples.items.chunks(self.part));
        for ((users, items), labels) in parts.zip(labels.chunks(self.part)) {
            self.sparse.gather(rows, users, items, &mut self.inputs);
            self.dense.step(
                &self.inputs,
                |logits| loss += cross_entropy(logits, labels, &[], share),
                &mut self.input_gradients,
                layer_gradients,
            );
            self.sparse.scatter(rows, users, items, &self.input_gradients, row_gradients);
        }
        loss * f64::from(share)
    }

    /// Takes over the rows of the layers for [`Self::score`].
    pub(crate) fn load_layers(&mut self, rows: &[f32]) {
        self.dense.load(rows);
    }

    /// Replaces `logits` by the logits of `samples`, whose embedding rows are in `rows`.
    pub(crate) fn score(&mut self, rows: &[f32], samples: &SampleRows, logits: &mut Vec<f32>) {
        logits.clear();
        for (users, items) in samples.users.chunks(self.part).zip(samples.items.chunks(self.part)) {
            self.sparse.gather(rows, users, items, &mut self.inputs);
            self.dense.logits(&self.inputs, logits);
        }
    }
}
