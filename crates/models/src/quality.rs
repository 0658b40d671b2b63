//! Quality of a model: sums over test data, so that the parts of several workers can be added, and the measures computed from them.

mod clicks;
mod language;
mod ranking;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

pub use clicks::Clicks;
pub use language::Language;
pub use ranking::{LIST, Ranking, better};

/// One figure of a report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    /// Its name for machines.
    pub key: Cow<'static, str>,
    /// Its name for people.
    pub name: Cow<'static, str>,
    /// Its value.
    pub value: f64,
}

impl Measure {
    /// A figure of these names.
    pub const fn new(key: &'static str, name: &'static str, value: f64) -> Self {
        Self { key: Cow::Borrowed(key), name: Cow::Borrowed(name), value }
    }
}

/// Quality of a model on some test data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quality {
    /// Of lists of recommendations.
    Ranking(Ranking),
    /// Of the probability of a click.
    Clicks(Clicks),
    /// Of the probability of the next word.
    Language(Language),
}

/// Two parts measure different things.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("two workers measured different things")]
pub struct Mismatch;

impl Quality {
    /// Adds what was found on other test data.
    ///
    /// # Errors
    /// Something else was measured there.
    pub fn add(&mut self, other: &Self) -> Result<(), Mismatch> {
        match (self, other) {
            (Self::Ranking(sum), Self::Ranking(other)) => *sum += *other,
            (Self::Clicks(sum), Self::Clicks(other)) => sum.add(other),
            (Self::Language(sum), Self::Language(other)) => *sum += *other,
            _ => return Err(Mismatch),
        }
        Ok(())
    }

    /// The figures, the most important first.
    pub fn measures(&self) -> Vec<Measure> {
        match self {
            Self::Ranking(ranking) => vec![
                Measure::new("hr10", "HR@10", ranking.hit_rate()),
                Measure::new("ndcg10", "NDCG@10", ranking.ndcg()),
            ],
            Self::Clicks(clicks) => vec![
                Measure::new("auc", "AUC", clicks.auc()),
                Measure::new("log_loss", "log loss", clicks.log_loss()),
            ],
            Self::Language(language) => {
                vec![Measure::new("perplexity", "perplexity", language.perplexity())]
            }
        }
    }

    /// Returns the number of test cases, and their noun.
    pub fn cases(&self) -> (u64, &'static str) {
        match self {
            Self::Ranking(ranking) => (ranking.cases, "users"),
            Self::Clicks(clicks) => (clicks.cases(), "rows"),
            Self::Language(language) => (language.words, "words"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_added_if_they_measure_the_same() {
        let mut quality = Quality::Ranking(Ranking { hits: 1, gain: 1.0, cases: 2 });
        quality.add(&Quality::Ranking(Ranking { hits: 2, gain: 0.5, cases: 2 })).unwrap();
        assert_eq!(quality, Quality::Ranking(Ranking { hits: 3, gain: 1.5, cases: 4 }));
        assert_eq!(quality.measures()[0], Measure::new("hr10", "HR@10", 0.75));
        assert_eq!(quality.add(&Quality::Language(Language::default())), Err(Mismatch));
        assert_eq!(quality.cases(), (4, "users"));
    }
}
