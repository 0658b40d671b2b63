//! A text made from a seed, so that everything can be tried without a download.

use rand::{Rng, SeedableRng, rngs::SmallRng};
use rand_distr::{Distribution, Zipf};

use super::{
    Text,
    vocabulary::{Census, Vocabulary},
};

/// Words that like to follow a word.
const FOLLOWERS: usize = 4;

/// Recipe of a synthetic text.
///
/// Words occur after Zipf's law. Each sentence has a topic, which is not written down; in each topic, each word has a few followers of
/// its own. So the previous word carries information about the next one, and the words before that, which reveal the topic, carry more.
#[derive(Debug, Clone, PartialEq)]
pub struct Synthetic {
    /// Different words, beside the end of a sentence and the unknown one.
    pub vocabulary: u32,
    /// Sentences to learn from; a tenth as many are to be predicted.
    pub sentences: usize,
    /// Words of a sentence.
    pub length: usize,
    /// Topics.
    pub topics: usize,
    /// Probability that the next word is a follower of this one, between 0 and 1.
    pub strength: f64,
    /// Exponent of Zipf's law.
    pub exponent: f64,
    /// Everything follows from it.
    pub seed: u64,
}

impl Default for Synthetic {
    fn default() -> Self {
        Self {
            vocabulary: 2000,
            sentences: 10_000,
            length: 19,
            topics: 2,
            strength: 0.8,
            exponent: 1.0,
            seed: 1,
        }
    }
}

impl Synthetic {
    /// Makes the text, with a vocabulary of at most so many words. A recipe whose numbers make no sense (no words, no sentence) is bent to the
    /// nearest one that does.
    pub fn generate(&self, vocabulary: usize) -> Text {
        let mut random = SmallRng::seed_from_u64(self.seed ^ 0x07e4_7a71_c1ea_7a5e);
        let count = self.vocabulary.max(1);
        let exponent = if self.exponent >= 0.0 { self.exponent } else { 0.0 };
        let zipf =
            Zipf::new(f64::from(count), exponent).expect("at least one word, and no negative exponent");
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "ranks are whole numbers from 1 to the number of words"
        )]
        let draw = |random: &mut SmallRng| zipf.sample(random) as usize - 1;
        let words: Vec<String> = (0..count).map(|word| format!("w{word}")).collect();
        let topics = self.topics.max(1);
        let followers: Vec<[usize; FOLLOWERS]> =
            (0..topics * words.len()).map(|_| std::array::from_fn(|_| draw(&mut random))).collect();
        let strength = self.strength.clamp(0.0, 1.0);
        let sentence = |random: &mut SmallRng| -> Vec<usize> {
            let topic = random.random_range(0..topics);
            let mut word = draw(random);
            let mut next = |_| {
                let follows = random.random_bool(strength);
                let follower = followers[topic * words.len() + word][random.random_range(0..FOLLOWERS)];
                word = if follows { follower } else { draw(random) };
                word
            };
            (0..self.length.max(1)).map(&mut next).collect()
        };
        let count = self.sentences.max(1);
        let train: Vec<Vec<usize>> = (0..count).map(|_| sentence(&mut random)).collect();
        let valid: Vec<Vec<usize>> = (0..count.div_ceil(10)).map(|_| sentence(&mut random)).collect();

        let mut census = Census::default();
        for sentence in &train {
            census.add(sentence.iter().map(|&word| &words[word][..]));
        }
        let vocabulary = census.finish(vocabulary, 1);
        let number = |vocabulary: &Vocabulary, sentences: &[Vec<usize>]| {
            let mut text = vocabulary.start();
            for sentence in sentences {
                vocabulary.append(&mut text, sentence.iter().map(|&word| &words[word][..]));
            }
            text
        };
        let (train, valid) = (number(&vocabulary, &train), number(&vocabulary, &valid));
        Text { name: "synthetic".to_owned(), counts: vocabulary.counts, train, valid, files: Vec::new() }
    }
}
