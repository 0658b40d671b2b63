//! The softmax, over a sample of words or over all.

use crate::{
    activation::exp,
    lstm::batches::Batch,
    matrix::{
        Matrix, add_product, add_rows, add_scaled, add_strided_product, dot, matrix, set_product, strided,
        sum,
    },
};

/// The softmax over the word that follows and the negatives of a batch.
#[derive(Debug, Default)]
pub(super) struct Sampled {
    /// Of each negative for each sample; then gradients.
    logits: Vec<f32>,
    /// Bias of each negative, less the logarithm of how often it was expected.
    offsets: Vec<f32>,
}

impl Sampled {
    /// Sum of the cross-entropy of the words that follow. `rows` are those of the outputs, and `hidden` what came out of the last layer,
    /// as many lanes as a row has, but one. `by_hidden`, `by_rows` (both all zero before) become the gradients of `share` times the sum.
    ///
    /// Logits are corrected by how often a word was expected in the sample (Jean et al. 2015, arXiv:1412.2007, section 3; Bengio and
    /// Senécal 2008), so that the gradient is about that of the full softmax. Where a negative is what follows, it does not count.
    pub(super) fn step(
        &mut self,
        batch: &Batch,
        rows: &[f32],
        hidden: &[f32],
        share: f32,
        by_hidden: &mut [f32],
        by_rows: &mut [f32],
    ) -> f64 {
        let (samples, negatives) = (batch.targets.len(), batch.negatives);
        let lanes = hidden.len() / samples;
        let width = lanes + 1;
        let weights = strided(rows, negatives, lanes, width);
        self.logits.resize(samples * negatives, 0.0);
        set_product(&mut self.logits, matrix(hidden, samples, lanes), weights.t());
        self.offsets.clear();
        let biases = rows.chunks_exact(width).map(|row| row[lanes]);
        self.offsets.extend(biases.zip(&batch.log_expected).map(|(bias, log)| bias - log));

        let mut loss = 0.0;
        for (sample, logits) in self.logits.chunks_exact_mut(negatives).enumerate() {
            let target = batch.targets[sample] as usize;
            let hidden = &hidden[sample * lanes..][..lanes];
            let row = &rows[target * width..][..lanes];
            let logit = dot(hidden, row) + self.offsets[target];
            let mut largest = logit;
            for (value, offset) in logits.iter_mut().zip(&self.offsets) {
                *value += offset;
            }
            if let Some(hit) = logits.get_mut(target) {
                *hit = f32::NEG_INFINITY;
            }
            largest = larger(largest, logits);
            for value in &mut *logits {
                *value = exp(*value - largest);
            }
            if let Some(hit) = logits.get_mut(target) {
                *hit = 0.0;
            }
            let own = exp(logit - largest);
            let total = own + sum(logits);
            loss += f64::from(total.ln() - (logit - largest));
            let factor = share / total;
            for value in &mut *logits {
                *value *= factor;
            }
            let by_logit = own * factor - share;
            add_scaled(&mut by_hidden[sample * lanes..][..lanes], row, by_logit);
            let by_row = &mut by_rows[target * width..][..width];
            add_scaled(&mut by_row[..lanes], hidden, by_logit);
            by_row[lanes] += by_logit;
        }
        let by_logits = matrix(&self.logits, samples, negatives);
        add_product(by_hidden, by_logits, weights);
        self.add_by_rows(by_rows, by_logits, matrix(hidden, samples, lanes));
        loss
    }

    /// Adds the gradients of the rows of the negatives.
    fn add_by_rows(&self, by_rows: &mut [f32], by_logits: Matrix<'_>, hidden: Matrix<'_>) {
        let (lanes, negatives) = (hidden.ncols(), by_logits.ncols());
        add_strided_product(by_rows, lanes + 1, by_logits.t(), hidden);
        let mut biases = vec![0.0; negatives];
        add_rows(&mut biases, &self.logits);
        for (row, bias) in by_rows.chunks_exact_mut(lanes + 1).zip(&biases) {
            row[lanes] += bias;
        }
    }
}

/// The largest of `start` and `values`. What is not a number is passed over: it shows in the sum.
fn larger(start: f32, values: &[f32]) -> f32 {
    let (chunks, rest) = values.as_chunks::<8>();
    let mut largest = [start; 8];
    for chunk in chunks {
        for (largest, &value) in largest.iter_mut().zip(chunk) {
            *largest = if value > *largest { value } else { *largest };
        }
    }
    rest.iter().chain(&largest).fold(start, |largest, &value| if value > largest { value } else { largest })
}

/// The logarithm of a sum of exponentials, to which more are added as they come.
#[derive(Debug, Clone, Copy)]
pub(in crate::lstm) struct LogSum {
    largest: f32,
    /// Of exponentials of what they are below the largest.
    sum: f64,
}

impl LogSum {
    /// Of nothing.
    pub(in crate::lstm) const NOTHING: Self = Self { largest: f32::MIN, sum: 0.0 };

    /// Adds the exponentials of `values`, which are used up.
    pub(in crate::lstm) fn add(&mut self, values: &mut [f32]) {
        let largest = larger(self.largest, values);
        self.sum *= f64::from(self.largest - largest).exp();
        self.largest = largest;
        for value in &mut *values {
            *value = exp(*value - largest);
        }
        self.sum += f64::from(sum(values));
    }

    /// The logarithm.
    pub(in crate::lstm) fn log(&self) -> f64 {
        f64::from(self.largest) + self.sum.ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_exponentials_are_those_of_f64() {
        let values: Vec<f32> = (0..100u8).map(|k| f32::from(k % 17) * 3.0 - 20.0).collect();
        let exact = values.iter().map(|&value| f64::from(value).exp()).sum::<f64>().ln();
        for split in [0, 1, 13, 100] {
            let mut sum = LogSum::NOTHING;
            let (left, right) = values.split_at(split);
            sum.add(&mut left.to_vec());
            sum.add(&mut right.to_vec());
            assert!((sum.log() - exact).abs() < 1e-5);
        }
        let mut sum = LogSum::NOTHING;
        sum.add(&mut [0.0, f32::NAN, 1.0]);
        assert!(sum.log().is_nan());
    }
}
