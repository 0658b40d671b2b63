//! DenseNet: the layers, forwards and backwards.

use std::ops::Range;

use super::{Layer, Model, sparse::Inputs};
use crate::affine::{Affine, Matrix};

/// The layers of a model, and what they are made of at the moment.
pub(super) struct DenseNet {
    layers: Vec<Layer>,
    product_width: usize,
    tower_width: usize,
    /// The rows of the layers, one after the other: of each the weights and below them the biases, (inputs + 1) x outputs.
    rows: Vec<f32>,
}

/// Intermediate results of a forward pass that the backward pass uses.
struct Activations {
    /// The outputs of each hidden layer.
    hidden: Vec<Vec<f32>>,
    /// The inputs of the output layer: the products beside the outputs of the last hidden layer. Empty if one of these is all of it.
    joined: Vec<f32>,
    logits: Vec<f32>,
}

impl DenseNet {
    pub(super) fn new(model: &Model) -> Self {
        Self {
            layers: model.layers(),
            product_width: model.product_width(),
            tower_width: 2 * model.tower_width(),
            rows: vec![0.0; model.layer_values()],
        }
    }

    /// Takes over the rows of the layers, one after the other.
    pub(super) fn load(&mut self, rows: &[f32]) {
        self.rows.copy_from_slice(rows);
    }

    /// Adds the logits of the samples of `inputs` to the end of `logits`.
    pub(super) fn logits(&self, inputs: &Inputs, logits: &mut Vec<f32>) {
        logits.extend_from_slice(&self.forward(inputs).logits);
    }

    /// Each layer with where its row is.
    fn ranges(&self) -> Vec<Range<usize>> {
        let mut end = 0;
        let range = |layer: &Layer| {
            let start = end;
            end += layer.width();
            start..end
        };
        self.layers.iter().map(range).collect()
    }

    fn layer(&self, index: usize, range: Range<usize>) -> Affine<'_> {
        Affine {
            row: Matrix { values: &self.rows[range], columns: self.layers[index].outputs },
            relu: index + 1 < self.layers.len(),
        }
    }

    fn forward(&self, inputs: &Inputs) -> Activations {
        let ranges = self.ranges();
        let (output, hidden_ranges) = ranges.split_last().expect("a model has an output layer");
        let mut hidden: Vec<Vec<f32>> = Vec::with_capacity(hidden_ranges.len());
        for (index, range) in hidden_ranges.iter().enumerate() {
            let input = self.input_of_hidden(index, inputs, &hidden);
            hidden.push(self.layer(index, range.clone()).forward(input));
        }
        let mut joined = Vec::new();
        if let Some(last) = hidden.last().filter(|_| self.product_width > 0) {
            let width = self.layers[hidden.len() - 1].outputs;
            let rows = inputs.products.chunks_exact(self.product_width).zip(last.chunks_exact(width));
            rows.for_each(|(products, last)| {
                joined.extend_from_slice(products);
                joined.extend_from_slice(last);
            });
        }
        let input = self.input_of_output(inputs, &hidden, &joined);
        let logits = self.layer(hidden.len(), output.clone()).forward(input);
        Activations { hidden, joined, logits }
    }

    fn input_of_hidden<'a>(&self, index: usize, inputs: &'a Inputs, hidden: &'a [Vec<f32>]) -> Matrix<'a> {
        match index.checked_sub(1) {
            None => Matrix { values: &inputs.tower, columns: self.tower_width },
            Some(before) => Matrix { values: &hidden[before], columns: self.layers[before].outputs },
        }
    }

    fn input_of_output<'a>(
        &self,
        inputs: &'a Inputs,
        hidden: &'a [Vec<f32>],
        joined: &'a [f32],
    ) -> Matrix<'a> {
        let columns = self.layers[hidden.len()].inputs;
        let values = match hidden.last() {
            None if self.product_width > 0 => &inputs.products,
            None => &inputs.tower,
            Some(last) if self.product_width == 0 => last,
            Some(_) => joined,
        };
        Matrix { values, columns }
    }

    /// Computes the logits, asks `loss` for the gradient of the loss by them, and passes it back.
    ///
    /// The gradients of the inputs replace `input_gradients`; those of the layers are laid out like their rows and added to
    /// `layer_gradients`.
    pub(super) fn step(
        &self,
        inputs: &Inputs,
        loss: impl FnOnce(&mut [f32]),
        input_gradients: &mut Inputs,
        layer_gradients: &mut [f32],
    ) {
        let Activations { hidden, joined, logits } = self.forward(inputs);
        let ranges = self.ranges();
        let mut by_output = logits.clone();
        loss(&mut by_output);
        let mut back = |index: usize, input: Matrix<'_>, outputs: &[f32], by_output: &[f32]| {
            let range = ranges[index].clone();
            let gradients = self.layer(index, range.clone()).backward(input, outputs, by_output);
            for (sum, gradient) in layer_gradients[range].iter_mut().zip(&gradients.by_row) {
                *sum += gradient;
            }
            gradients.by_input
        };
        let input = self.input_of_output(inputs, &hidden, &joined);
        let by_input = back(hidden.len(), input, &logits, &by_output);
        if hidden.is_empty() {
            let target = if self.product_width > 0 {
                &mut input_gradients.products
            } else {
                &mut input_gradients.tower
            };
            *target = by_input;
            return;
        }
        let mut by_last = by_input;
        if self.product_width > 0 {
            let (mut products, mut rest) = (Vec::new(), Vec::new());
            for row in by_last.chunks_exact(input.columns) {
                let (of_products, of_last) = row.split_at(self.product_width);
                products.extend_from_slice(of_products);
                rest.extend_from_slice(of_last);
            }
            input_gradients.products = products;
            by_last = rest;
        }
        for index in (0..hidden.len()).rev() {
            by_last = back(index, self.input_of_hidden(index, inputs, &hidden), &hidden[index], &by_last);
        }
        input_gradients.tower = by_last;
    }
}
