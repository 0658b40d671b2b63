//! Texts: one to learn the next word from, and one to predict it in.
//!
//! | source | what it is |
//! |---|---|
//! | directory with `*.train.txt` and `*.valid.txt` | a line is a sentence, as in the Penn Treebank of Mikolov et al. 2010 |
//! | directory with `training-monolingual.tokenized.shuffled` and `heldout-monolingual.tokenized.shuffled` | the One Billion Word Benchmark (Chelba et al. 2013, arXiv:1312.3005), unpacked |
//! | the word `synthetic` | made from a seed, with topics planted in it |
//!
//! Words stand between blanks, and `<eos>` is added to each line. A word that is not in the vocabulary is `<unk>`.

mod files;
mod synthetic;
mod vocabulary;

use std::path::Path;

pub use synthetic::Synthetic;

use crate::data::{DataError, DataFile, Directory};

/// A text to learn from and one to be measured on, as numbers of words.
///
/// A word is a u32, so the One Billion Word Benchmark takes 3.3 GB of memory, which the workers of a process share. It is held and not
/// streamed: a worker reads at a hundred places at the same time, a profile run anywhere, and the parameters with what their optimizer
/// keeps take more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// A short name, for reports and for the provenance of a plan.
    pub name: String,
    /// Occurrences of each word in the training text. Words are numbered from the most frequent one; of words that are equally
    /// frequent, the first in the order of their bytes comes first.
    pub counts: Vec<u64>,
    /// The words of the training text, sentence after sentence, with an `<eos>` before the first and after each.
    pub train: Vec<u32>,
    /// Those of the validation text.
    pub valid: Vec<u32>,
    /// The files that they were read from.
    pub files: Vec<DataFile>,
}

impl Text {
    /// Opens what `source` names: the word `synthetic` or a directory (see the module's table). `seed` makes the synthetic text; the
    /// vocabulary has at most `vocabulary` words, the most frequent ones.
    ///
    /// # Errors
    /// Whatever is missing or malformed, with file, line, what was found and what was expected.
    pub fn open(source: &str, seed: u64, vocabulary: usize) -> Result<Self, DataError> {
        if source == "synthetic" {
            return Ok(Synthetic { seed, ..Synthetic::default() }.generate(vocabulary));
        }
        let path = Path::new(source);
        if path.is_file() {
            return Err(DataError::NoText { path: path.to_owned() });
        }
        let text = files::read(&Directory::list(path)?, vocabulary)?;
        text.check()?;
        Ok(text)
    }

    /// Different words.
    pub fn vocabulary(&self) -> usize {
        self.counts.len()
    }

    /// Returns the number of words of the training text that can be predicted: all but the first `<eos>`.
    pub fn samples(&self) -> usize {
        self.train.len().saturating_sub(1)
    }

    /// Returns the number of words of the validation text that can be predicted.
    pub fn cases(&self) -> usize {
        self.valid.len().saturating_sub(1)
    }

    /// Checks that every word is in the vocabulary and that there is something to learn and to predict. Texts that were read or
    /// generated satisfy this; one put together by hand may not.
    ///
    /// # Errors
    /// The first thing that is not so.
    pub fn check(&self) -> Result<(), DataError> {
        let name = || self.name.clone();
        if self.samples() == 0 {
            return Err(DataError::NoWords { name: name(), which: "training" });
        }
        if self.cases() == 0 {
            return Err(DataError::NoWords { name: name(), which: "validation" });
        }
        let limit = u32::try_from(self.counts.len()).expect("words are numbered with 32 bits");
        match self.train.iter().chain(&self.valid).find(|&&word| word >= limit) {
            Some(&id) => Err(DataError::OutOfRange { name: name(), what: "word", id, limit }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
