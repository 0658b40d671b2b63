//! A whole model at work: one step of training, or scores.

use std::ops::Range;

use rand::rngs::SmallRng;

use super::{Layout, Model, bag::BagNet, dense::DenseNet, fields::FieldNet};
use crate::loss::cross_entropy;

/// Samples that are computed together: what they need stays in the second-level cache.
const PART_SAMPLES: usize = 64;

/// The rows of a batch.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Samples {
    /// The features of all samples, one after the other: indices into the rows of a pull.
    features: Vec<u32>,
    /// Field of each feature, and the part that it is of the vector of its field: one of so many features. Empty if each field has one feature.
    parts: Vec<(u32, f32)>,
    /// End of the features of each sample.
    ends: Vec<usize>,
    /// Clicks: 1 or 0.
    labels: Vec<f32>,
    /// Weights in the loss; empty if all are 1.
    weights: Vec<f32>,
}

impl Samples {
    /// Returns the number of samples.
    pub(crate) fn len(&self) -> usize {
        self.labels.len()
    }

    pub(crate) fn clear(&mut self) {
        self.features.clear();
        self.parts.clear();
        self.ends.clear();
        self.labels.clear();
        self.weights.clear();
    }

    /// Adds a sample with a feature of each field, or a bag.
    pub(crate) fn push(&mut self, features: impl Iterator<Item = u32>, clicked: bool) {
        self.features.extend(features);
        self.end(f32::from(u8::from(clicked)));
    }

    /// Adds a feature to the next sample. If a field may have several, each feature comes with its field, and the part that it is of that.
    pub(crate) fn add(&mut self, feature: u32, of_field: Option<(u32, f32)>) {
        self.features.push(feature);
        self.parts.extend(of_field);
    }

    /// Ends the next sample, which has the features added since the last one.
    pub(crate) fn end(&mut self, label: f32) {
        self.ends.push(self.features.len());
        self.labels.push(label);
    }

    /// Adds the weights of samples.
    pub(crate) fn weigh(&mut self, weights: &[f32]) {
        self.weights.extend_from_slice(weights);
    }

    /// Returns true for each sample with a click.
    pub(crate) fn clicked(&self) -> impl ExactSizeIterator<Item = bool> {
        self.labels.iter().map(|&label| label > 0.5)
    }

    pub(super) fn features(&self, sample: usize) -> &[u32] {
        &self.features[self.range(sample)]
    }

    /// Returns field, feature, and part of the field for each feature of a sample that is no bag.
    pub(crate) fn fields(&self, sample: usize) -> impl Iterator<Item = (usize, usize, f32)> {
        let range = self.range(sample);
        let start = range.start;
        range.map(move |at| {
            let (field, part) = match self.parts.get(at) {
                Some(&(field, part)) => (field as usize, part),
                None => (at - start, 1.0),
            };
            (field, self.features[at] as usize, part)
        })
    }

    fn range(&self, sample: usize) -> Range<usize> {
        let start = if sample == 0 { 0 } else { self.ends[sample - 1] };
        start..self.ends[sample]
    }
}

/// Values nearer to 0 than these count as 0.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Limits {
    /// Lanes of the vectors of features.
    pub(crate) embeddings: f32,
    /// R.
    pub(crate) pairs: f32,
    /// The weights of each hidden layer; none are as many zeros.
    pub(crate) hidden: Vec<f32>,
}

/// A value, or 0 if it is nearer to that than `limit`. What is not a number stays.
pub(super) fn keep(value: f32, limit: f32) -> f32 {
    if value.abs() < limit { 0.0 } else { value }
}

/// A model with its working memory.
pub(crate) struct Network {
    width: usize,
    pairs: usize,
    layer_values: usize,
    sparse: SparseNet,
    dense: DenseNet,
    /// Limits below which weights count as 0.
    pub(crate) limits: Limits,
    inputs: Vec<f32>,
    by_input: Vec<f32>,
    logits: Vec<f32>,
}

enum SparseNet {
    Fields(FieldNet),
    Bag(BagNet),
}

impl Network {
    /// A network of the shape of `model`.
    pub(crate) fn new(model: &Model) -> Self {
        Self {
            width: model.width(),
            pairs: model.pairs(),
            layer_values: model.layer_values(),
            sparse: match model.layout() {
                Layout::Fields(fields) => SparseNet::Fields(FieldNet::new(fields, model.lanes())),
                Layout::Bag => SparseNet::Bag(BagNet::new(model.lanes())),
            },
            dense: DenseNet::new(model),
            limits: Limits::default(),
            inputs: Vec::new(),
            by_input: Vec::new(),
            logits: Vec::new(),
        }
    }

    /// Loss and gradients of a batch. `random` decides what dropout leaves out.
    ///
    /// `values` holds the rows of the features that `samples` names and behind them R and the rows of the layers in their order; `gradients` is
    /// made to the same layout. The loss is the mean binary cross-entropy of the samples, and the gradients are those of this mean, by
    /// the weights as they count (see [`Limits`]).
    ///
    /// # Panics
    /// If the lengths do not fit together.
    pub(crate) fn step(
        &mut self,
        values: &[f32],
        samples: &Samples,
        random: &mut SmallRng,
        gradients: &mut Vec<f32>,
    ) -> f64 {
        let (rows, layers) = values.split_at(values.len() - self.layer_values);
        debug_assert!(rows.len().is_multiple_of(self.width));
        self.load_layers(layers);
        gradients.clear();
        gradients.resize(values.len(), 0.0);
        let (row_gradients, layer_gradients) = gradients.split_at_mut(rows.len());
        let (pair_gradients, dense_gradients) = layer_gradients.split_at_mut(self.pairs);
        let share = 1.0 / samples.len().max(1) as f32;
        let mut loss = 0.0;
        for part in parts(samples.len()) {
            self.forward(rows, samples, part.clone(), Some(&mut *random));
            let Self { sparse, dense, limits, inputs, by_input, logits, .. } = self;
            let weights = samples.weights.get(part.clone()).unwrap_or_default();
            loss += cross_entropy(logits, &samples.labels[part.clone()], weights, share);
            dense.backward(inputs, logits, by_input, dense_gradients);
            match sparse {
                SparseNet::Fields(net) => {
                    net.backward(samples, part, inputs, logits, by_input, row_gradients);
                }
                SparseNet::Bag(net) => {
                    net.backward(rows, samples, part, limits, logits, by_input, row_gradients);
                }
            }
        }
        if let SparseNet::Fields(net) = &self.sparse {
            net.gradients(pair_gradients);
        }
        loss * f64::from(share)
    }

    /// Takes over R and the rows of the layers for [`Self::score`].
    pub(crate) fn load_layers(&mut self, values: &[f32]) {
        let (pairs, rows) = values.split_at(self.pairs);
        if let SparseNet::Fields(net) = &mut self.sparse {
            net.load(pairs, self.limits.pairs);
        }
        self.dense.load(rows, &self.limits);
    }

    /// Replaces `logits` by the logits of `samples`, whose features are in `rows`.
    pub(crate) fn score(&mut self, rows: &[f32], samples: &Samples, logits: &mut Vec<f32>) {
        logits.clear();
        for part in parts(samples.len()) {
            self.forward(rows, samples, part, None);
            logits.extend_from_slice(&self.logits);
        }
    }

    /// Computes inputs and logits of some samples.
    fn forward(
        &mut self,
        rows: &[f32],
        samples: &Samples,
        part: Range<usize>,
        random: Option<&mut SmallRng>,
    ) {
        let Self { sparse, dense, limits, inputs, logits, .. } = self;
        logits.clear();
        logits.resize(part.len(), 0.0);
        match sparse {
            SparseNet::Fields(net) => net.forward(rows, samples, part, limits, inputs, logits),
            SparseNet::Bag(net) => net.forward(rows, samples, part, limits, inputs, logits),
        }
        dense.forward(inputs, logits, random);
    }
}

fn parts(samples: usize) -> impl Iterator<Item = Range<usize>> {
    (0..samples).step_by(PART_SAMPLES).map(move |start| start..samples.min(start + PART_SAMPLES))
}
