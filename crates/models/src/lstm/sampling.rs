//! Draws the words that stand for all others in a sampled softmax.

use rand::{Rng, rngs::SmallRng};

/// Draws different words, frequent ones more often: word k of V, counted from the most frequent one, with probability
/// `ln((k + 2) / (k + 1)) / ln(V + 1)`, which is close to Zipf's law (`log_uniform_candidate_sampler` of TensorFlow, as
/// Jozefowicz et al. 2016 use it).
#[derive(Debug)]
pub(super) struct LogUniform {
    words: usize,
    log_words: f64,
    /// True for each word that was drawn; all false between two draws.
    drawn: Vec<bool>,
}

impl LogUniform {
    pub(super) fn new(words: usize) -> Self {
        Self { words, log_words: ((words + 1) as f64).ln(), drawn: vec![false; words] }
    }

    /// Replaces `sample` by `count` different words, in the order of their numbers, and returns how often it had to draw for them. All words if there are no
    /// more, for which it draws never.
    pub(super) fn draw(&mut self, count: usize, random: &mut SmallRng, sample: &mut Vec<u32>) -> u64 {
        sample.clear();
        if count >= self.words {
            sample.extend((0u32..).take(self.words));
            return 0;
        }
        let mut tries = 0;
        while sample.len() < count {
            tries += 1;
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "below the number of words, and at least 1"
            )]
            let word = ((random.random::<f64>() * self.log_words).exp() as usize - 1).min(self.words - 1);
            if !self.drawn[word] {
                self.drawn[word] = true;
                sample.push(u32::try_from(word).expect("words are numbered with 32 bits"));
            }
        }
        for &word in &*sample {
            self.drawn[word as usize] = false;
        }
        sample.sort_unstable();
        tries
    }

    /// The logarithm of how often a word is expected in a sample for which it was drawn `tries` times: of the probability that it is there.
    pub(super) fn log_expected(&self, word: u32, tries: u64) -> f32 {
        if tries == 0 {
            return 0.0;
        }
        let probability = (1.0 / (f64::from(word) + 1.0)).ln_1p() / self.log_words;
        let expected = -(tries as f64 * (-probability).ln_1p()).exp_m1();
        #[expect(clippy::cast_possible_truncation, reason = "a logit is no more precise")]
        let log = expected.ln() as f32;
        log
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn words_are_drawn_as_often_as_expected() {
        const DRAWS: u32 = 4000;
        let mut sampler = LogUniform::new(200);
        let mut random = SmallRng::seed_from_u64(3);
        let mut sample = Vec::new();
        let mut counts = vec![0u32; 200];
        let mut expected = vec![0.0; 200];
        for _ in 0..DRAWS {
            let tries = sampler.draw(20, &mut random, &mut sample);
            assert!(tries >= 20 && sample.len() == 20 && sample.is_sorted_by(|a, b| a < b));
            for &word in &sample {
                counts[word as usize] += 1;
            }
            for (word, expected) in (0..).zip(&mut expected) {
                *expected += f64::from(sampler.log_expected(word, tries)).exp();
            }
        }
        for (word, (&count, &expected)) in counts.iter().zip(&expected).enumerate() {
            assert!((f64::from(count) - expected).abs() < 5.0 * expected.sqrt() + 0.03 * expected, "{word}");
        }
        assert!(counts[0] > 3000 && counts[199] < 400);
    }

    #[test]
    fn more_than_there_are_is_all() {
        let mut sampler = LogUniform::new(3);
        let mut sample = vec![9];
        let tries = sampler.draw(5, &mut SmallRng::seed_from_u64(1), &mut sample);
        assert_eq!((tries, &sample[..]), (0, &[0, 1, 2][..]));
        assert_eq!(sampler.log_expected(2, tries), 0.0);
    }
}
