//! Rows with one feature a field: from their rows of parameters to the pairs of fields and the inputs of the layers, and gradients back.
//!
//! With `t_i = sum over j of R_ij v_j`, the sum over pairs is `1/2 sum over i of <v_i, t_i>`, and its gradient by `v_i` is `t_i`: what
//! the way forward computes, the way back needs. The vector of a field with several features is the mean of theirs, and so is its weight. The vectors of a row are laid out lane by lane, F values each, so that
//! all `t` of a batch are one product of matrices, and the loops go along the fields.

use super::network::{Limits, Samples, keep};
use crate::affine::{Matrix, multiply};

/// Values that are computed side by side.
const BLOCK: usize = 8;

/// R, and the working memory of a part of a batch.
pub(super) struct FieldNet {
    fields: usize,
    lanes: usize,
    /// Columns of `weights` and `products`: the fields, and zeros up to a whole number of blocks.
    columns: usize,
    /// R, symmetric, with a diagonal of zeros: fields x columns.
    weights: Vec<f32>,
    /// Sums over the samples of <v_i, v_j> times the gradient by the logit, of which those above the diagonal count: fields x columns.
    products: Vec<f32>,
    /// All t: samples x lanes, x columns.
    sums: Vec<f32>,
}

impl FieldNet {
    pub(super) fn new(fields: usize, lanes: usize) -> Self {
        let columns = fields.next_multiple_of(BLOCK);
        let square = vec![0.0; fields * columns];
        Self { fields, lanes, columns, weights: square.clone(), products: square, sums: Vec::new() }
    }

    /// Takes over R from its row: what is above the diagonal, line by line.
    pub(super) fn load(&mut self, pairs: &[f32], limit: f32) {
        let mut pairs = pairs.iter();
        for left in 0..self.fields {
            for right in left + 1..self.fields {
                let weight = keep(*pairs.next().expect("a value for each pair"), limit);
                self.weights[left * self.columns + right] = weight;
                self.weights[right * self.columns + left] = weight;
            }
        }
        self.products.fill(0.0);
    }

    /// Replaces `inputs` (samples x (lanes x fields)) by the vectors of some samples, and adds to their `logits`.
    pub(super) fn forward(
        &mut self,
        values: &[f32],
        samples: &Samples,
        part: std::ops::Range<usize>,
        limits: &Limits,
        inputs: &mut Vec<f32>,
        logits: &mut [f32],
    ) {
        let (fields, lanes, width) = (self.fields, self.lanes, self.lanes + 1);
        inputs.clear();
        inputs.resize(part.len() * lanes * fields, 0.0);
        let targets = inputs.chunks_exact_mut(lanes * fields).zip(logits.iter_mut());
        for (sample, (input, logit)) in part.zip(targets) {
            for (field, feature, part) in samples.fields(sample) {
                let row = &values[feature * width..][..width];
                for (lane, &value) in row[..lanes].iter().enumerate() {
                    input[lane * fields + field] += part * keep(value, limits.embeddings);
                }
                *logit += part * row[lanes];
            }
        }
        let vectors = Matrix { values: inputs, columns: fields };
        self.sums = multiply(vectors, Matrix { values: &self.weights, columns: self.columns }, None);
        let sums = self.sums.chunks_exact(self.columns).zip(inputs.chunks_exact(fields));
        for (lane, (sums, vectors)) in sums.enumerate() {
            let sum: f32 = sums.iter().zip(vectors).map(|(a, b)| a * b).sum();
            logits[lane / lanes] += 0.5 * sum;
        }
    }

    /// Adds the gradients of the samples that went forward last to those of their rows and of R. `by_input` holds the gradients that the
    /// layers give to `inputs`.
    pub(super) fn backward(
        &mut self,
        samples: &Samples,
        part: std::ops::Range<usize>,
        inputs: &[f32],
        by_logit: &[f32],
        by_input: &mut [f32],
        row_gradients: &mut [f32],
    ) {
        let (fields, lanes, width) = (self.fields, self.lanes, self.lanes + 1);
        let sums = self.sums.chunks_exact(self.columns).zip(by_input.chunks_exact_mut(fields));
        for (lane, (sums, by_input)) in sums.enumerate() {
            let gradient = by_logit[lane / lanes];
            for (by_input, sum) in by_input.iter_mut().zip(sums) {
                *by_input += gradient * sum;
            }
        }
        let mut padded = vec![0.0; self.columns];
        for (lane, vectors) in inputs.chunks_exact(fields).enumerate() {
            padded[..fields].copy_from_slice(vectors);
            let gradient = by_logit[lane / lanes];
            let products = self.products.chunks_exact_mut(self.columns).enumerate();
            for (left, products) in products {
                // From the block of the diagonal on: what is below it in that block does not count.
                let first = left / BLOCK * BLOCK;
                let factor = gradient * padded[left];
                let (products, _) = products[first..].as_chunks_mut::<BLOCK>();
                let (vectors, _) = padded[first..].as_chunks::<BLOCK>();
                for (products, vectors) in products.iter_mut().zip(vectors) {
                    for (product, value) in products.iter_mut().zip(vectors) {
                        *product += factor * value;
                    }
                }
            }
        }
        for ((sample, by_input), &gradient) in part.zip(by_input.chunks_exact(lanes * fields)).zip(by_logit) {
            for (field, feature, part) in samples.fields(sample) {
                let row = &mut row_gradients[feature * width..][..width];
                for (lane, value) in row[..lanes].iter_mut().enumerate() {
                    *value += part * by_input[lane * fields + field];
                }
                row[lanes] += part * gradient;
            }
        }
    }

    /// Writes the gradients of R, laid out like its row.
    pub(super) fn gradients(&self, pairs: &mut [f32]) {
        let mut pairs = pairs.iter_mut();
        for left in 0..self.fields {
            for right in left + 1..self.fields {
                *pairs.next().expect("a value for each pair") = self.products[left * self.columns + right];
            }
        }
    }
}
