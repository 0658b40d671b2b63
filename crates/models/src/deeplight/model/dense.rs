//! The layers, forward and back.

use std::iter;

use rand::{Rng, rngs::SmallRng};

use super::{
    Layer, Model,
    network::{Limits, keep},
};
use crate::affine::{Matrix, multiply, outer_sum, transposed};

/// The layers of a model, and what they are made of at the moment.
pub(super) struct DenseNet {
    layers: Vec<Layer>,
    dropout: f32,
    /// Of each layer the weights and below them the biases: (inputs + 1) x outputs.
    rows: Vec<Vec<f32>>,
    /// The weights of each layer, with inputs and outputs exchanged: what the way back takes.
    transposed: Vec<Vec<f32>>,
    /// Outputs of each hidden layer: samples x outputs.
    outputs: Vec<Vec<f32>>,
    /// Factors of those: 0, or large enough to keep the mean. Empty without dropout.
    masks: Vec<Vec<f32>>,
}

impl DenseNet {
    pub(super) fn new(model: &Model) -> Self {
        let layers = model.layers();
        let none = vec![Vec::new(); layers.len()];
        Self {
            dropout: model.dropout(),
            rows: none.clone(),
            transposed: none.clone(),
            outputs: none.clone(),
            masks: none,
            layers,
        }
    }

    /// Takes over the rows of the layers, one after the other.
    pub(super) fn load(&mut self, mut values: &[f32], limits: &Limits) {
        let targets = self.rows.iter_mut().zip(&mut self.transposed);
        let limits = limits.hidden.iter().copied().chain(iter::repeat(0.0));
        for ((layer, (row, turned)), limit) in self.layers.iter().zip(targets).zip(limits) {
            let source;
            (source, values) = values.split_at(layer.width());
            row.clear();
            row.extend_from_slice(source);
            let weights = &mut row[..layer.weights()];
            if limit > 0.0 {
                weights.iter_mut().for_each(|weight| *weight = keep(*weight, limit));
            }
            *turned = transposed(Matrix { values: weights, columns: layer.outputs });
        }
    }

    /// Adds to the `logits` of some samples, whose `inputs` are samples x inputs. In training, `random` decides what is left out.
    pub(super) fn forward(&mut self, inputs: &[f32], logits: &mut [f32], mut random: Option<&mut SmallRng>) {
        let (output, hidden) = self.layers.split_last().expect("a model has an output layer");
        let bias = *self.rows[hidden.len()].last().expect("a layer has a bias");
        if hidden.is_empty() {
            logits.iter_mut().for_each(|logit| *logit += bias);
            return;
        }
        for (place, layer) in hidden.iter().enumerate() {
            let input = if place == 0 { inputs } else { &self.outputs[place - 1] };
            let weights = Matrix { values: &self.rows[place], columns: layer.outputs };
            let biases = weights.row(layer.inputs);
            let mut outputs =
                multiply(Matrix { values: input, columns: layer.inputs }, weights, Some(biases));
            // Not `max`, which would make zeros of what is not a number, and hide that the model has diverged.
            outputs.iter_mut().for_each(|value| *value = if *value < 0.0 { 0.0 } else { *value });
            let mask = &mut self.masks[place];
            mask.clear();
            if let Some(random) = random.as_deref_mut()
                && self.dropout > 0.0
            {
                let scale = 1.0 / (1.0 - self.dropout);
                let draw = |_| if random.random::<f32>() < self.dropout { 0.0 } else { scale };
                mask.extend((0..outputs.len()).map(draw));
                outputs.iter_mut().zip(mask).for_each(|(value, factor)| *value *= *factor);
            }
            self.outputs[place] = outputs;
        }
        let last = &self.outputs[hidden.len() - 1];
        let weights = &self.rows[hidden.len()][..output.inputs];
        for (logit, inputs) in logits.iter_mut().zip(last.chunks_exact(output.inputs)) {
            *logit += bias + inputs.iter().zip(weights).map(|(input, weight)| input * weight).sum::<f32>();
        }
    }

    /// Passes the gradients of the logits of the samples that went forward last back: those of the `inputs` replace `by_input`, those of the
    /// layers are laid out like their rows and added to `gradients`.
    pub(super) fn backward(
        &self,
        inputs: &[f32],
        by_logit: &[f32],
        by_input: &mut Vec<f32>,
        mut gradients: &mut [f32],
    ) {
        if self.layers.len() == 1 {
            gradients[0] += by_logit.iter().sum::<f32>();
            by_input.clear();
            by_input.resize(inputs.len(), 0.0);
            return;
        }
        let mut by_output = by_logit.to_vec();
        for (place, layer) in self.layers.iter().enumerate().rev() {
            let input = if place == 0 { inputs } else { &self.outputs[place - 1] };
            let by_outputs = Matrix { values: &by_output, columns: layer.outputs };
            let by_row = outer_sum(Matrix { values: input, columns: layer.inputs }, by_outputs);
            let sums;
            (gradients, sums) = gradients.split_at_mut(gradients.len() - layer.width());
            sums.iter_mut().zip(&by_row).for_each(|(sum, gradient)| *sum += gradient);
            let turned = Matrix { values: &self.transposed[place], columns: layer.inputs };
            let mut by_values = multiply(by_outputs, turned, None);
            if place > 0 {
                // Where the output was cut off or left out, nothing goes back.
                let outputs = self.outputs[place - 1].iter();
                by_values
                    .iter_mut()
                    .zip(outputs)
                    .filter(|(_, output)| **output <= 0.0)
                    .for_each(|(g, _)| *g = 0.0);
                by_values.iter_mut().zip(&self.masks[place - 1]).for_each(|(g, factor)| *g *= factor);
            }
            by_output = by_values;
        }
        *by_input = by_output;
    }
}
