//! Figures of rows that are read once: missing values, ranges and skew.

use std::collections::{HashMap, HashSet};

use foldhash::fast::FixedState;
use serde::Serialize;

use crate::columns::{Columns, Ids};
use crate::hash::splitmix64;

/// Ids of a category that are counted exactly; of more, a sample of so many is.
const SAMPLE_MAX: usize = 1 << 13;
/// Ids whose share may be found: one of the rows divided by this is, in any case.
const FREQUENT_MAX: usize = 1 << 7;

/// Adds up figures of rows.
#[derive(Debug, Clone)]
pub struct Check {
    rows: u64,
    clicks: u64,
    numbers: Vec<NumberFigures>,
    categories: Vec<Skew>,
}

/// Figures of a numeric column.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct NumberFigures {
    /// Missing values.
    pub missing: u64,
    /// The smallest value; infinite if there is none.
    pub min: f64,
    /// The largest value; negative infinite if there is none.
    pub max: f64,
}

/// Figures of a category.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CategoryFigures {
    /// Rows without an id.
    pub missing: u64,
    /// All ids.
    pub ids: u64,
    /// Different ids: exact up to 8,192, then an estimate within some 2%.
    pub distinct: u64,
    /// Share of the most frequent id, at least; it misses at most one of 128.
    pub most_frequent: f64,
}

impl Check {
    /// No rows, of so many numeric columns and categories.
    pub fn new(numbers: usize, categories: usize) -> Self {
        let none = NumberFigures { missing: 0, min: f64::INFINITY, max: f64::NEG_INFINITY };
        Self {
            rows: 0,
            clicks: 0,
            numbers: vec![none; numbers],
            categories: vec![Skew::default(); categories],
        }
    }

    /// Adds rows.
    pub fn add(&mut self, columns: &Columns) {
        self.rows += columns.rows() as u64;
        self.clicks += columns.labels.iter().filter(|&&label| label == 1.0).count() as u64;
        for (figures, values) in self.numbers.iter_mut().zip(&columns.numbers) {
            for &value in values {
                figures.missing += u64::from(value.is_nan());
                // The smaller of NaN and a number is the number.
                figures.min = figures.min.min(value);
                figures.max = figures.max.max(value);
            }
        }
        for (skew, ids) in self.categories.iter_mut().zip(&columns.categories) {
            skew.add(ids);
        }
    }

    /// Returns the number of rows, and of those with label 1.
    pub fn rows(&self) -> (u64, u64) {
        (self.rows, self.clicks)
    }

    /// Returns the figures of numeric columns.
    pub fn numbers(&self) -> &[NumberFigures] {
        &self.numbers
    }

    /// Returns the figures of categories.
    pub fn categories(&self) -> Vec<CategoryFigures> {
        self.categories.iter().map(Skew::figures).collect()
    }
}

/// Counts of ids in bounded memory.
#[derive(Debug, Clone, Default)]
struct Skew {
    missing: u64,
    ids: u64,
    /// Ids whose hash ends in `shift` zeros (Wegman's adaptive sampling, Flajolet 1990).
    sample: HashSet<u64, FixedState>,
    shift: u32,
    /// Candidates for the most frequent id (Misra, Gries 1982).
    frequent: HashMap<u64, u64, FixedState>,
}

impl Skew {
    fn add(&mut self, ids: &Ids) {
        self.missing += ids.offsets.windows(2).filter(|ends| ends[0] == ends[1]).count() as u64;
        self.ids += ids.ids.len() as u64;
        for &id in &ids.ids {
            if splitmix64(id).trailing_zeros() >= self.shift {
                self.sample.insert(id);
                while self.sample.len() > SAMPLE_MAX {
                    self.shift += 1;
                    self.sample.retain(|&id| splitmix64(id).trailing_zeros() >= self.shift);
                }
            }
            if let Some(count) = self.frequent.get_mut(&id) {
                *count += 1;
            } else if self.frequent.len() < FREQUENT_MAX {
                self.frequent.insert(id, 1);
            } else {
                self.frequent.retain(|_, count| {
                    *count -= 1;
                    *count > 0
                });
            }
        }
    }

    fn figures(&self) -> CategoryFigures {
        let most = self.frequent.values().max().copied().unwrap_or(0);
        CategoryFigures {
            missing: self.missing,
            ids: self.ids,
            distinct: (self.sample.len() as u64) << self.shift,
            most_frequent: most as f64 / self.ids.max(1) as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinct_ids_are_estimated_and_frequent_ones_found() {
        let mut ids = Ids::default();
        for row in 0..300_000u64 {
            ids.ids.push(if row % 5 == 0 { 7 } else { 1_000 + row });
            ids.end_row();
        }
        ids.end_row();
        let mut skew = Skew::default();
        skew.add(&ids);
        let figures = skew.figures();
        assert_eq!((figures.missing, figures.ids), (1, 300_000));
        assert!((228_000..252_000).contains(&figures.distinct), "{figures:?}");
        assert!((0.19..0.2001).contains(&figures.most_frequent), "{figures:?}");
        let mut few = Skew::default();
        few.add(&Ids { offsets: vec![0, 1, 3], ids: vec![5, 5, 6] });
        assert_eq!((few.figures().distinct, few.figures().missing), (2, 0));
    }
}
