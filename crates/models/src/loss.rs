//! Binary cross-entropy.

/// Sum of the binary cross-entropy of `labels` under the logits, which are replaced by its gradient times `share`. Samples count by their `weights`;
/// without any, each is 1.
///
/// Written for logits, not probabilities, so that it neither overflows nor loses precision when the model is sure.
pub(crate) fn cross_entropy(logits: &mut [f32], labels: &[f32], weights: &[f32], share: f32) -> f64 {
    let mut loss = 0.0;
    let weights = weights.iter().copied().chain(core::iter::repeat(1.0));
    for ((logit, &label), weight) in logits.iter_mut().zip(labels).zip(weights) {
        let z = *logit;
        let decay = (-z.abs()).exp();
        loss += f64::from(weight * (z.max(0.0) - z * label + decay.ln_1p()));
        let probability = if z >= 0.0 { 1.0 / (1.0 + decay) } else { decay / (1.0 + decay) };
        *logit = (probability - label) * (weight * share);
    }
    loss
}
