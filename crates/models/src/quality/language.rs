//! Perplexity.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

/// Surprise of the words of a text, from which perplexity follows.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Language {
    /// Sum over words of -ln of the probability that the model gave them.
    pub nats: f64,
    /// Number of words.
    pub words: u64,
}

impl Language {
    /// The exponential of the mean: as many words, all equally likely, would be as surprising. 1 without words.
    pub fn perplexity(&self) -> f64 {
        (self.nats / self.words.max(1) as f64).exp()
    }
}

impl AddAssign for Language {
    fn add_assign(&mut self, other: Self) {
        self.nats += other.nats;
        self.words += other.words;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_equally_likely_words_have_that_perplexity() {
        let mut language = Language { nats: 3.0 * 50f64.ln(), words: 3 };
        assert!((language.perplexity() - 50.0).abs() < 1e-9);
        language += language;
        assert!((language.perplexity() - 50.0).abs() < 1e-9);
        assert_eq!(Language::default().perplexity(), 1.0);
    }
}
