//! AUC and log loss of probabilities.

use serde::{Deserialize, Serialize};

/// Number of steps of the logit by which probabilities are distinguished.
const STEPS: i32 = 1 << 13;
/// Logits beyond this are as good as sure.
const LOGIT_MAX: f32 = 16.0;

/// Quality of predicted probabilities of clicks.
///
/// The area under the curve of true against false positives is a matter of order between all pairs of test cases. So that the parts of
/// several workers can be added, and a test set of any size be measured, it is counted how many cases there are of each logit, in steps of
/// 1/256: cases of the same step count as ties.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Clicks {
    /// Sum over cases of -ln of the probability that the model gave to what happened.
    nats: f64,
    clicks: u64,
    others: u64,
    /// Steps that occur, ascending: the step, how many cases with a click it has, and how many without.
    steps: Vec<(i32, u32, u32)>,
}

impl Clicks {
    /// Returns the quality on cases with these logits.
    ///
    /// # Panics
    /// If there are not as many labels as logits.
    pub fn of(logits: &[f32], clicked: impl ExactSizeIterator<Item = bool>) -> Self {
        assert_eq!(logits.len(), clicked.len(), "a case has a label");
        let mut quality = Self::default();
        for (&logit, clicked) in logits.iter().zip(clicked) {
            let away = f64::from(if clicked { -logit } else { logit });
            quality.nats += away.max(0.0) + (-away.abs()).exp().ln_1p();
            quality.clicks += u64::from(clicked);
            quality.others += u64::from(!clicked);
            quality.steps.push((step(logit), u32::from(clicked), u32::from(!clicked)));
        }
        quality.merge();
        quality
    }

    /// Adds what was found on other cases.
    pub fn add(&mut self, other: &Self) {
        self.nats += other.nats;
        self.clicks += other.clicks;
        self.others += other.others;
        self.steps.extend_from_slice(&other.steps);
        self.merge();
    }

    fn merge(&mut self) {
        self.steps.sort_unstable();
        self.steps.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same {
                kept.1 += next.1;
                kept.2 += next.2;
            }
            same
        });
    }

    /// Returns the number of cases.
    pub fn cases(&self) -> u64 {
        self.clicks + self.others
    }

    /// The probability that a case with a click got a higher logit than one without, ties counting half. 0.5 if one kind is missing.
    pub fn auc(&self) -> f64 {
        let pairs = self.clicks as f64 * self.others as f64;
        if pairs == 0.0 {
            return 0.5;
        }
        let (mut above, mut others_below) = (0.0, 0u64);
        for &(_, clicks, others) in &self.steps {
            above += f64::from(clicks) * (others_below as f64 + 0.5 * f64::from(others));
            others_below += u64::from(others);
        }
        above / pairs
    }

    /// The mean of -ln of the probability of what happened; 0 without cases.
    pub fn log_loss(&self) -> f64 {
        self.nats / self.cases().max(1) as f64
    }
}

#[expect(clippy::cast_possible_truncation, reason = "clamped to the steps there are")]
fn step(logit: f32) -> i32 {
    let unit = STEPS as f32 / (2.0 * LOGIT_MAX);
    (logit.clamp(-LOGIT_MAX, LOGIT_MAX) * unit).round() as i32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn naive_auc(cases: &[(f32, bool)]) -> f64 {
        let logits = |wanted: bool| cases.iter().filter(move |case| case.1 == wanted).map(|case| case.0);
        let (mut above, mut pairs) = (0.0, 0.0);
        for click in logits(true) {
            for other in logits(false) {
                above += f64::from(u8::from(click > other)) + 0.5 * f64::from(u8::from(click == other));
                pairs += 1.0;
            }
        }
        if pairs == 0.0 { 0.5 } else { above / pairs }
    }

    proptest! {
        #[test]
        fn the_area_is_that_of_all_pairs_however_the_cases_are_split(
            // Logits of quarters are steps, so that ties are the same here and there.
            cases in prop::collection::vec(((-40i8..40).prop_map(|q| f32::from(q) / 4.0), any::<bool>()), 0..60),
            split in 0usize..60,
        ) {
            let of = |cases: &[(f32, bool)]| {
                let logits: Vec<f32> = cases.iter().map(|case| case.0).collect();
                Clicks::of(&logits, cases.iter().map(|case| case.1))
            };
            let (left, right) = cases.split_at(split.min(cases.len()));
            let mut sum = of(left);
            sum.add(&of(right));
            prop_assert!((sum.auc() - naive_auc(&cases)).abs() < 1e-12);
            prop_assert_eq!(sum.cases(), cases.len() as u64);
            let naive: f64 = cases.iter().map(|&(logit, clicked)| {
                let probability = 1.0 / (1.0 + (-f64::from(logit)).exp());
                -if clicked { probability.ln() } else { (1.0 - probability).ln() }
            }).sum();
            prop_assert!((sum.log_loss() * cases.len() as f64 - naive).abs() < 1e-3 * (1.0 + naive));
        }
    }

    #[test]
    fn equal_scores_have_an_auc_of_one_half() {
        let quality = Clicks::of(&[0.0; 4], [true, false, false, true].into_iter());
        assert_eq!((quality.auc(), quality.cases()), (0.5, 4));
        assert!((quality.log_loss() - 2f64.ln()).abs() < 1e-12);
        assert_eq!(Clicks::default().auc(), 0.5);
    }
}
