//! Data sets of implicit feedback: which user touched which item, and on what a model is tested.
//!
//! | source | what it is |
//! |---|---|
//! | directory with `*.train.pairs.tsv` or `*.train.rating`, `*.test.rating`, `*.test.negative` | the split of He et al. 2017, as their repository publishes it |
//! | directory with `u.data`, or that file | MovieLens 100K; the split is made here |
//! | the word `synthetic` | made from a seed, with preferences planted in it |

mod interactions;
mod pairs;
mod ratings;
mod synthetic;

use std::path::Path;

pub use interactions::Interactions;
pub use synthetic::Synthetic;

use crate::data::{DataError, DataFile, Directory};

/// Negatives that a test item is ranked against, where the data set does not bring its own (He et al. 2017, section 4.1).
pub const TEST_NEGATIVES: usize = 99;

/// The test case of one user: the item it touched, hidden among items it did not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestCase {
    /// The user, from 0.
    pub user: u32,
    /// The item it touched, which is not in the training pairs.
    pub item: u32,
    /// Items that it is ranked against.
    pub negatives: Vec<u32>,
}

/// Training pairs and test cases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dataset {
    /// A short name, for reports and for the provenance of a plan.
    pub name: String,
    /// Users are 0..users.
    pub users: u32,
    /// Items are 0..items.
    pub items: u32,
    /// Pairs of (user, item) that happened.
    pub train: Vec<(u32, u32)>,
    /// One case a user, as a rule.
    pub test: Vec<TestCase>,
    /// The files that it was read from.
    pub files: Vec<DataFile>,
}

impl Dataset {
    /// Opens what `source` names: the word `synthetic`, a directory, or a `u.data` file (see the module's table).
    ///
    /// `seed` makes the synthetic set, and draws the test negatives where a data set has none of its own: every worker
    /// of a job must give the same one.
    ///
    /// # Errors
    /// Whatever is missing or malformed, with file, line, what was found and what was expected.
    ///
    /// ```
    /// let dataset = libra_models::ncf::Dataset::open("synthetic", 1)?;
    /// assert!(dataset.train.len() > 10_000);
    /// # Ok::<(), libra_models::DataError>(())
    /// ```
    pub fn open(source: &str, seed: u64) -> Result<Self, DataError> {
        if source == "synthetic" {
            return Ok(Synthetic { seed, ..Synthetic::default() }.generate());
        }
        let path = Path::new(source);
        if path.is_file() {
            return ratings::read(path, seed);
        }
        let directory = Directory::list(path)?;
        match directory.the_one(&["train.pairs.tsv", "train.rating"])? {
            Some(train) => pairs::read(&directory, &train),
            None if directory.names.iter().any(|name| name == ratings::FILE) => {
                ratings::read(&path.join(ratings::FILE), seed)
            }
            None => Err(DataError::Unrecognised { path: path.to_owned() }),
        }
    }

    /// Checks that every id is within its range and that there is something to learn and to test.
    /// Data sets that were read or generated satisfy this; one put together by hand may not.
    ///
    /// # Errors
    /// The first thing that is not so.
    pub fn check(&self) -> Result<(), DataError> {
        let within = |what, id, limit| {
            if id < limit {
                Ok(())
            } else {
                Err(DataError::OutOfRange { name: self.name.clone(), what, id, limit })
            }
        };
        if self.train.is_empty() {
            return Err(DataError::NothingToLearn { name: self.name.clone() });
        }
        if self.test.is_empty() {
            return Err(DataError::NothingToTest { name: self.name.clone() });
        }
        for &(user, item) in &self.train {
            within("user", user, self.users)?;
            within("item", item, self.items)?;
        }
        for case in &self.test {
            within("user", case.user, self.users)?;
            within("item", case.item, self.items)?;
            for &negative in &case.negatives {
                within("item", negative, self.items)?;
            }
        }
        Ok(())
    }

    /// Returns the number of training pairs of each item: the score of the baseline that recommends popular items.
    pub fn popularity(&self) -> Vec<f32> {
        let mut counts = vec![0.0; self.items as usize];
        for &(_, item) in &self.train {
            counts[item as usize] += 1.0;
        }
        counts
    }
}

#[cfg(test)]
mod tests;
