//! Generator of synthetic clicks.

use std::ops::Range;

use rand::{Rng, SeedableRng, rngs::SmallRng};
use rand_distr::{Distribution, Zipf};

use super::SyntheticLrConfig;
use crate::splitmix::splitmix64;

/// Standard deviation of the planted weights of features.
const WEIGHT_DEVIATION: f32 = 0.35;

/// The planted weight that every sample has: clicks are rare.
const PLANTED_BIAS: f32 = -1.5;

/// Number of samples that share a seed: any run of samples can be generated without those before.
const RUN: u64 = 256;

/// Makes samples, always the same of the same settings.
///
/// A sample draws features by rank, from a Zipf distribution; the key of a rank is a permutation, so that neighbouring keys are not
/// equally hot. Each feature has a planted weight, normal and decided by its key alone, and the sample is a click with the logistic of the sum of its
/// weights: so there is something to learn, and a best that can be reached.
#[derive(Debug, Clone)]
pub struct Generator {
    features: u64,
    drawn: usize,
    ranks: Zipf<f64>,
    /// Coprime to the number of features.
    stride: u64,
    seed: u64,
}

/// The sample.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Sample {
    /// Keys, ascending, each once.
    pub(super) features: Vec<u64>,
    /// The logit of the probability of a click.
    pub(super) logit: f32,
    pub(super) clicked: bool,
}

impl Generator {
    /// # Panics
    /// If the settings have not been checked.
    pub fn new(settings: &SyntheticLrConfig, seed: u64) -> Self {
        let SyntheticLrConfig { features, drawn, exponent, .. } = *settings;
        // About the golden section of the keys: neighbours in rank are far apart.
        let mut stride = high_half(features, 0x9E37_79B9_7F4A_7C15) | 1;
        while greatest_common_divisor(stride, features) != 1 {
            stride += 2;
        }
        let ranks = Zipf::new(features as f64, exponent).expect("checked settings");
        Self { features, drawn, ranks, stride, seed }
    }

    /// The key of the feature of a rank, from 0.
    pub fn key(&self, rank: u64) -> u64 {
        let key = u128::from(rank) * u128::from(self.stride) % u128::from(self.features);
        u64::try_from(key).expect("below the number of features")
    }

    /// The samples of an epoch with these numbers.
    pub(super) fn samples(&self, epoch: u32, numbers: Range<u64>) -> Samples<'_> {
        let mut samples = Samples { generator: self, epoch, numbers, random: SmallRng::seed_from_u64(0) };
        // Those of the run before the first are made and forgotten.
        let (first, end) = (samples.numbers.start, samples.numbers.end);
        samples.numbers = first - first % RUN..end;
        let mut forgotten = Sample::default();
        while samples.numbers.start < first && samples.next(&mut forgotten) {}
        samples
    }

    /// The weight that was planted for a feature: normal, after Box and Muller 1958.
    fn weight(&self, key: u64) -> f32 {
        let bits = splitmix64(key ^ self.seed.rotate_left(17));
        let unit = |bits: u64| ((bits >> 40) as f32 + 0.5) / (1 << 24) as f32;
        let radius = (-2.0 * unit(bits).ln()).sqrt();
        WEIGHT_DEVIATION * radius * (std::f32::consts::TAU * unit(bits << 24)).cos()
    }
}

/// Samples, one after the other.
pub(super) struct Samples<'g> {
    generator: &'g Generator,
    epoch: u32,
    numbers: Range<u64>,
    random: SmallRng,
}

impl Samples<'_> {
    /// Replaces `sample` by the next one; false at the end.
    pub(super) fn next(&mut self, sample: &mut Sample) -> bool {
        let Some(number) = self.numbers.next() else { return false };
        let Generator { drawn, ranks, seed, .. } = *self.generator;
        if number.is_multiple_of(RUN) {
            let run = splitmix64((number / RUN) ^ (u64::from(self.epoch) << 32));
            self.random = SmallRng::seed_from_u64(run ^ seed);
        }
        sample.features.clear();
        for _ in 0..drawn {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank, from 1")]
            let rank = ranks.sample(&mut self.random) as u64 - 1;
            sample.features.push(self.generator.key(rank.min(self.generator.features - 1)));
        }
        sample.features.sort_unstable();
        sample.features.dedup();
        let weights = sample.features.iter().map(|&key| self.generator.weight(key));
        sample.logit = PLANTED_BIAS + weights.sum::<f32>();
        sample.clicked = self.random.random::<f32>() < 1.0 / (1.0 + (-sample.logit).exp());
        true
    }
}

/// The upper 64 bits of a product.
fn high_half(a: u64, b: u64) -> u64 {
    u64::try_from((u128::from(a) * u128::from(b)) >> 64).expect("64 bits are left")
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::*;

    fn made(generator: &Generator, epoch: u32, numbers: Range<u64>) -> Vec<Sample> {
        let mut samples = generator.samples(epoch, numbers);
        let mut sample = Sample::default();
        std::iter::from_fn(|| samples.next(&mut sample).then(|| sample.clone())).collect()
    }

    #[test]
    fn any_part_of_an_epoch_can_be_made_by_itself() {
        let generator = Generator::new(&SyntheticLrConfig::search_engine(), 7);
        let whole = made(&generator, 3, 0..700);
        assert_eq!(made(&generator, 3, 250..530), whole[250..530]);
        assert_eq!(made(&generator, 3, 512..513), whole[512..513]);
        assert_ne!(made(&generator, 4, 0..700), whole);
        let clicks = whole.iter().filter(|sample| sample.clicked).count();
        assert!((70..350).contains(&clicks), "{clicks}");
    }

    #[test]
    fn keys_are_a_permutation_of_ranks() {
        for features in [1, 2, 10, 1000, 4095] {
            let generator =
                Generator::new(&SyntheticLrConfig { features, ..SyntheticLrConfig::search_engine() }, 1);
            let keys: HashSet<u64> = (0..features).map(|rank| generator.key(rank)).collect();
            assert!(keys.len() as u64 == features && keys.iter().all(|key| *key < features), "{features}");
        }
    }

    /// The paper's figure of hot and cold parameters: a push counts a row once, however many of its samples have the feature.
    #[test]
    fn the_hottest_take_the_share_of_updates_that_the_paper_reports() {
        for (settings, least, most) in [
            (SyntheticLrConfig::online_advertising(), 0.50, 0.52),
            (SyntheticLrConfig::search_engine(), 0.70, 0.72),
        ] {
            let generator = Generator::new(&settings, 1);
            let hot: HashSet<u64> = (0..30_000).map(|rank| generator.key(rank)).collect();
            let (mut updates, mut of_hot) = (0, 0);
            for batch in 0..20 {
                let numbers = batch * 1024..(batch + 1) * 1024;
                let rows: HashSet<u64> =
                    made(&generator, 0, numbers).into_iter().flat_map(|sample| sample.features).collect();
                updates += rows.len();
                of_hot += rows.iter().filter(|key| hot.contains(key)).count();
            }
            let share = of_hot as f64 / updates as f64;
            assert!((least..most).contains(&share), "{}: {share}", settings.name);
        }
    }

    #[test]
    fn planted_weights_are_normal_and_those_of_the_key() {
        let generator = Generator::new(&SyntheticLrConfig::search_engine(), 1);
        let weights: Vec<f32> = (0..20_000).map(|key| generator.weight(key)).collect();
        let mean = weights.iter().sum::<f32>() / 20_000.0;
        let variance = weights.iter().map(|weight| (weight - mean).powi(2)).sum::<f32>() / 20_000.0;
        assert!(mean.abs() < 0.01, "{mean}");
        assert!((variance.sqrt() - WEIGHT_DEVIATION).abs() < 0.01, "{variance}");
        let distinct: HashMap<u32, ()> = weights.iter().map(|weight| (weight.to_bits(), ())).collect();
        assert!(distinct.len() > 19_000);
    }
}
