//! Lists of recommendations: HR@10 and NDCG@10, as He et al. 2017 (arXiv:1708.05031, section 4.1) measure them.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

/// Length of the list that is recommended.
pub const LIST: usize = 10;

/// Quality of the places that a model gives to the items that users touched.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Ranking {
    /// Cases whose item is among the first ten.
    pub hits: u64,
    /// Sum of 1 / log2(place + 1) of these, where the first place is 1.
    pub gain: f64,
    /// All cases.
    pub cases: u64,
}

impl Ranking {
    /// Adds a case in which `better` negatives came before the item.
    pub fn add_rank(&mut self, better: usize) {
        self.cases += 1;
        if better < LIST {
            self.hits += 1;
            self.gain += 1.0 / ((better + 2) as f64).log2();
        }
    }

    /// HR@10: the share of cases whose item is among the first ten; 0 without cases.
    pub fn hit_rate(&self) -> f64 {
        self.hits as f64 / self.cases.max(1) as f64
    }

    /// NDCG@10: the mean gain; 0 without cases.
    pub fn ndcg(&self) -> f64 {
        self.gain / self.cases.max(1) as f64
    }
}

impl AddAssign for Ranking {
    fn add_assign(&mut self, other: Self) {
        self.hits += other.hits;
        self.gain += other.gain;
        self.cases += other.cases;
    }
}

/// Returns the number of `negatives` that come before the item.
///
/// A tie counts against the item: a model that gives all items the same score must not count as a good one.
pub fn better(item: f32, negatives: &[f32]) -> usize {
    negatives.iter().filter(|&&score| score >= item).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gains_of_places_are_those_of_the_paper() {
        let mut quality = Ranking::default();
        quality.add_rank(0);
        quality.add_rank(2);
        quality.add_rank(9);
        quality.add_rank(10);
        assert_eq!((quality.hits, quality.cases), (3, 4));
        assert!((quality.gain - (1.0 + 0.5 + 1.0 / 11f64.log2())).abs() < 1e-12);
        assert_eq!(quality.hit_rate(), 0.75);
        let mut sum = quality;
        sum += quality;
        assert_eq!((sum.hits, sum.cases, sum.ndcg()), (6, 8, quality.ndcg()));
        assert_eq!((Ranking::default().hit_rate(), Ranking::default().ndcg()), (0.0, 0.0));
    }

    #[test]
    fn ties_count_against_the_item() {
        assert_eq!(better(0.5, &[0.5; 99]), 99);
        assert_eq!(better(0.5, &[0.4, 0.6, 0.5]), 2);
    }
}
