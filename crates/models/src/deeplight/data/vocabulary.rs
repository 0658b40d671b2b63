//! The vocabulary: values of fields that have a row of parameters.

use std::collections::HashMap;

use foldhash::fast::FixedState;

/// Different values that are counted at the same time: 150 MB of memory, at most.
pub(super) const COUNTED_MAX: usize = 1 << 22;

/// Bits of a [`Value`] below its field.
const FIELD_SHIFT: u32 = 40;

/// Rows of each field before those of its values: for a value that is missing, ..
const MISSING: u32 = 0;
/// .. and for all that are rare.
const RARE: u32 = 1;
const SPECIAL: u32 = 2;

/// A value of a field, or that it is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Value(u64);

impl Value {
    /// The value `value`, below 2^40 - 1, of field number `field`.
    pub(super) fn new(field: usize, value: u64) -> Self {
        debug_assert!(value < (1 << FIELD_SHIFT) - 1);
        Self((field as u64) << FIELD_SHIFT | (value + 1))
    }

    /// Field number `field` has none.
    pub(super) fn missing(field: usize) -> Self {
        Self((field as u64) << FIELD_SHIFT)
    }

    fn field(self) -> usize {
        usize::try_from(self.0 >> FIELD_SHIFT).expect("it was one")
    }

    fn is_missing(self) -> bool {
        self.0.trailing_zeros() >= FIELD_SHIFT
    }
}

/// Counts how often values occur.
///
/// It is exact while there are no more than [`COUNTED_MAX`] different ones. Then those that occurred once so far are forgotten, and if that makes
/// too little room, twice, and so on (lossy counting: Manku, Motwani 2002). Hence a value that is rare anyway may be counted too
/// low; memory stays bounded, and the outcome depends on the log alone.
pub(super) struct Counter {
    counts: HashMap<Value, u32, FixedState>,
    counted_max: usize,
}

impl Default for Counter {
    fn default() -> Self {
        Self::new(COUNTED_MAX)
    }
}

impl Counter {
    pub(super) fn new(counted_max: usize) -> Self {
        Self { counts: HashMap::default(), counted_max }
    }

    /// Counts the values of one row.
    pub(super) fn add(&mut self, values: &[Value]) {
        for &value in values.iter().filter(|value| !value.is_missing()) {
            let count = self.counts.entry(value).or_insert(0);
            *count = count.saturating_add(1);
        }
        let mut forgotten = 0;
        if self.counts.len() > self.counted_max {
            while self.counts.len() > self.counted_max / 2 {
                forgotten += 1;
                self.counts.retain(|_, count| *count > forgotten);
            }
        }
    }

    /// Gives rows to the values of `fields` fields that were counted at least `min_count` times.
    pub(super) fn finish(self, fields: usize, min_count: u32) -> Vocabulary {
        let frequent = self.counts.into_iter().filter(|(_, count)| *count >= min_count);
        let mut values: Vec<Value> = frequent.map(|(value, _)| value).collect();
        values.sort_unstable();
        let mut rows = HashMap::with_capacity_and_hasher(values.len(), FixedState::default());
        let mut first_rows = Vec::with_capacity(fields);
        let mut next = 0;
        let mut values = values.into_iter().peekable();
        for field in 0..fields {
            first_rows.push(next);
            next += SPECIAL;
            while let Some(value) = values.next_if(|value| value.field() == field) {
                rows.insert(value, next);
                next += 1;
            }
        }
        Vocabulary { first_rows, rows, count: next }
    }
}

/// The rows of parameters: the fields one after the other, of each a row for a value that is missing, a row for all that are rare, and
/// those of the values that are not.
#[derive(Debug, Clone)]
pub struct Vocabulary {
    /// The first row of each field.
    first_rows: Vec<u32>,
    rows: HashMap<Value, u32, FixedState>,
    count: u32,
}

impl Vocabulary {
    /// Returns the number of rows: their numbers are those below it.
    pub fn rows(&self) -> u32 {
        self.count
    }

    /// Returns the number of values with a row of their own.
    pub fn values(&self) -> usize {
        self.rows.len()
    }

    /// The row of a value.
    pub(super) fn row(&self, value: Value) -> u32 {
        let first = self.first_rows[value.field()];
        if value.is_missing() {
            first + MISSING
        } else {
            self.rows.get(&value).copied().unwrap_or(first + RARE)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequent_values_have_rows_of_their_own() {
        let mut counter = Counter::default();
        let (a, b, c) = (Value::new(0, 0), Value::new(1, 0), Value::new(1, (1 << 40) - 2));
        counter.add(&[a, b]);
        counter.add(&[a, c]);
        counter.add(&[Value::missing(0), c]);
        counter.add(&[Value::missing(0), Value::missing(1)]);
        let vocabulary = counter.finish(2, 2);
        assert_eq!((vocabulary.rows(), vocabulary.values()), (6, 2));
        let found = [Value::missing(0), Value::new(0, 7), a, Value::missing(1), b, c];
        assert_eq!(found.map(|value| vocabulary.row(value)), [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn counting_is_bounded_and_keeps_what_is_frequent() {
        let mut counter = Counter::new(100);
        for round in 0..10_000 {
            counter.add(&[Value::new(0, round % 7), Value::new(1, round)]);
            assert!(counter.counts.len() <= 100);
        }
        let vocabulary = counter.finish(2, 1000);
        assert_eq!(vocabulary.values(), 7);
        assert_eq!(vocabulary.rows(), 4 + 7);
    }
}
