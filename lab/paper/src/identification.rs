//! Precision of hot parameters that a sample identifies: the paper's section "Precision of Hot Parameter
//! Identification".
//!
//! > we sort the model parameters in descending order according to the update frequency, and add each time 1,000
//! > parameters to the hot parameter list H_g from the highest rank to the lowest, till the increase of the cumulative
//! > update frequency falls below a pre-defined threshold (1% in our experiment).
//!
//! The paper leaves some things open; this is what is done here:
//!
//! - The *increase* is the share that the 1,000 parameters have of all updates, as the figure of cumulative
//!   proportions shows it: not a share of what the list has so far.
//! - The step whose increase is below the threshold is still added: "till" looks at it after it was made. So a list is
//!   empty only if nothing was updated.
//! - Equal counts are ordered by rising key, in both lists alike. A tie across the end of a list is therefore cut at
//!   the same keys, which is a little kind to the precision where many parameters have a count of 1.
//! - What was never updated is in no list. The last step takes what is left, be it fewer than 1,000.
//!
//! A parameter is a row here: it is what is counted and what is placed.

use std::cmp::Reverse;

use libra_plan::Frequencies;
use serde::Serialize;

/// Growth of the list of hot parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Growth {
    /// Parameters in a step; at least 1.
    pub step: usize,
    /// The list ends with the first step that brings less than this share of all updates.
    pub threshold: f64,
}

/// 1,000 parameters and 1%.
impl Default for Growth {
    fn default() -> Self {
        Self { step: 1000, threshold: 0.01 }
    }
}

impl Growth {
    /// The hot list of counted parameters: pairs of key and count in any order, each key once. `total` is the updates
    /// of all parameters, those included that may not be hot. Keys by falling count, and by rising key among equals.
    ///
    /// ```
    /// use libra_paper::Growth;
    ///
    /// // Steps of two parameters: 85%, 15%, and then what is below the threshold, which is still taken.
    /// let growth = Growth { step: 2, threshold: 0.10 };
    /// let counts = [(7, 5), (1, 60), (4, 25), (3, 6), (9, 2), (8, 1), (6, 1)];
    /// assert_eq!(growth.hot_list(counts, 100), [1, 4, 3, 7, 9, 6]);
    /// ```
    ///
    /// # Panics
    /// If `step` is 0.
    #[must_use]
    pub fn hot_list(&self, counts: impl IntoIterator<Item = (u64, u64)>, total: u64) -> Vec<u64> {
        let mut ranked: Vec<(u64, u64)> = counts.into_iter().filter(|(_, count)| *count > 0).collect();
        ranked.sort_unstable_by_key(|(key, count)| (Reverse(*count), *key));
        let length = self.length(&ranked, total);
        ranked.truncate(length);
        ranked.into_iter().map(|(key, _)| key).collect()
    }

    /// The hot list of a profile run.
    #[must_use]
    pub fn hot_list_of(&self, frequencies: &Frequencies) -> Vec<u64> {
        let counts = frequencies.ranked().into_iter().map(|row| (row.key, row.count));
        self.hot_list(counts, frequencies.total())
    }

    /// Returns the number of ranked parameters that are hot.
    fn length(&self, ranked: &[(u64, u64)], total: u64) -> usize {
        assert!(self.step > 0, "a list must grow by at least one parameter a step");
        let mut length = 0;
        for step in ranked.chunks(self.step) {
            length += step.len();
            let increase: u64 = step.iter().map(|(_, count)| *count).sum();
            if (increase as f64) < self.threshold * total as f64 {
                break;
            }
        }
        length
    }
}

/// Comparison of a hot list from a sample with that from the whole data.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Identified {
    /// Parameters that are hot by the whole data, the paper's |H_g|.
    pub whole: usize,
    /// Parameters that are hot by the sample, the paper's |H_s|.
    pub sample: usize,
    /// Parameters that are hot by both.
    pub both: usize,
    /// both / whole, 0 to 1; 1 if nothing is hot. A sample with a longer list is not punished for it.
    pub precision: f64,
}

impl Identified {
    /// Compares two lists, each without repetition, in any order.
    ///
    /// ```
    /// let identified = libra_paper::Identified::of(&[5, 1, 4, 2], &[4, 9, 5, 2, 8]);
    /// assert_eq!((identified.both, identified.precision), (3, 0.75));
    /// ```
    #[must_use]
    pub fn of(whole: &[u64], sample: &[u64]) -> Self {
        let mut sorted = sample.to_vec();
        sorted.sort_unstable();
        let both = whole.iter().filter(|key| sorted.binary_search(key).is_ok()).count();
        let precision = if whole.is_empty() { 1.0 } else { both as f64 / whole.len() as f64 };
        Self { whole: whole.len(), sample: sample.len(), both, precision }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use libra_plan::TableShape;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_list_shorter_than_a_step_is_taken_whole() {
        assert_eq!(Growth::default().hot_list([(3, 1), (2, 9)], 10), [2, 3]);
        assert_eq!(Growth::default().hot_list([], 0), [0; 0]);
        assert_eq!(Growth::default().hot_list([(3, 0)], 10), [0; 0], "what was never updated is not hot");
    }

    #[test]
    fn the_increase_is_a_share_of_all_updates() {
        let growth = Growth { step: 1, threshold: 0.1 };
        let counts = [(0, 50), (1, 12), (2, 11), (3, 9), (4, 8)];
        assert_eq!(growth.hot_list(counts, 90).len(), 5, "9 of 90 is no less than 10%, 8 of 90 ends it");
        assert_eq!(growth.hot_list(counts, 105).len(), 4, "9 of 105 ends it");
        assert_eq!(growth.hot_list(counts, 10_000).len(), 1, "one step is always made");
    }

    #[test]
    fn equal_counts_are_cut_by_key() {
        let growth = Growth { step: 2, threshold: 0.9 };
        assert_eq!(growth.hot_list([(5, 1), (4, 1), (3, 1), (9, 2)], 5), [9, 3]);
    }

    #[test]
    fn a_profile_run_counts_rows_that_stay_cold_only_in_the_total() {
        let tables = vec![
            TableShape { name: "item".into(), keys: 0..10, width: 4, hot: true },
            TableShape { name: "layer".into(), keys: 10..12, width: 1, hot: false },
        ];
        let mut frequencies = Frequencies::new(tables).unwrap();
        for push in 0..8 {
            frequencies.record_push([0, 1 + push % 2, 10, 11]);
        }
        // 8 of 32, then 4 of 32, which is below 20%; key 2 would be next.
        let growth = Growth { step: 1, threshold: 0.2 };
        assert_eq!(growth.hot_list_of(&frequencies), [0, 1]);
    }

    proptest! {
        #[test]
        fn agrees_with_a_naive_model(
            counts in prop::collection::btree_map(0_u64..60, 0_u64..40, 0..50), step in 1_usize..8,
            cold in 0_u64..50, threshold in 0.0_f64..0.5,
        ) {
            let total = counts.values().sum::<u64>() + cold;
            let growth = Growth { step, threshold };
            let found = growth.hot_list(counts.clone(), total);
            // By the text: rank, add a step, look at what it brought.
            let mut left = counts;
            left.retain(|_, count| *count > 0);
            let mut expected = Vec::new();
            while !left.is_empty() {
                let mut increase = 0;
                for _ in 0..step {
                    let Some(most) = left.values().max().copied() else { break };
                    let key = *left.iter().find(|(_, count)| **count == most).unwrap().0;
                    left.remove(&key);
                    expected.push(key);
                    increase += most;
                }
                if (increase as f64) < threshold * total as f64 {
                    break;
                }
            }
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn precision_is_of_the_whole_list(
            whole in prop::collection::btree_set(0_u64..30, 1..20), sample in prop::collection::btree_set(0_u64..30, 0..20),
        ) {
            let list = |set: &BTreeSet<u64>| set.iter().rev().copied().collect::<Vec<_>>();
            let identified = Identified::of(&list(&whole), &list(&sample));
            prop_assert_eq!(identified.both, whole.intersection(&sample).count());
            prop_assert_eq!(identified.precision, identified.both as f64 / whole.len() as f64);
        }
    }
}
