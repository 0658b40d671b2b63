//! Update frequency of each row, and the size of its gradients.

use std::cmp::Reverse;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::table::{ShapeError, TableShape, Tables};

/// Counts, for each row, in how many pushes of a profile run it occurs, and remembers its largest gradient.
///
/// Exact: it keeps one entry for each row of a hot table that it has seen. Rows of other tables count in the
/// total only.
#[derive(Debug, Clone)]
pub struct Frequencies {
    tables: Tables,
    rows: HashMap<u64, Seen, FixedState>,
    total: u64,
    pushes: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    count: u64,
    /// The pushes of the count, dealt in turn.
    folds: [u32; FOLDS],
    max_abs: f32,
}

/// Parts into which the pushes are dealt, so that each can be judged by a ranking made from all the others.
pub const FOLDS: usize = 16;

/// A row that may become hot, with its update frequency (the paper's uf).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ranked {
    /// The row.
    pub key: u64,
    /// In how many pushes it was.
    pub count: u64,
    /// Number of its values, which is the number of slots it takes.
    pub width: u32,
}

impl Frequencies {
    /// Starts to count for a model of these tables.
    ///
    /// # Errors
    /// The tables are no tables of one model: see [`ShapeError`].
    pub fn new(tables: Vec<TableShape>) -> Result<Self, ShapeError> {
        Ok(Self {
            tables: Tables::new(tables)?,
            rows: HashMap::with_hasher(FixedState::default()),
            total: 0,
            pushes: 0,
        })
    }

    /// Counts the rows of one push.
    ///
    /// A row counts once per push, however many records of the batch touch it, because a worker sends it
    /// once. That the keys are distinct is the duty of the caller (training code merges gradients before it
    /// pushes, so its keys are).
    ///
    /// # Panics
    /// If a key belongs to no table; in debug builds also if the keys are not distinct.
    pub fn record_push(&mut self, keys: impl IntoIterator<Item = u64>) {
        let fold = usize::try_from(self.pushes % FOLDS as u64).expect("a remainder is small");
        self.pushes += 1;
        #[cfg(debug_assertions)]
        let mut distinct = hashbrown::HashSet::new();
        for key in keys {
            #[cfg(debug_assertions)]
            assert!(distinct.insert(key), "key {key} is twice in one push");
            self.total += 1;
            if self.may_be_hot(key) {
                let seen = self.rows.entry(key).or_default();
                seen.count += 1;
                seen.folds[fold] += 1;
            }
        }
    }

    /// Remembers that a gradient of row `key` had `max_abs` as the largest magnitude of its values.
    ///
    /// Magnitudes that are not finite are ignored: such a gradient takes the cold way whatever the scale is.
    ///
    /// # Panics
    /// If the key belongs to no table.
    pub fn record_gradient(&mut self, key: u64, max_abs: f32) {
        if !max_abs.is_finite() || !self.may_be_hot(key) {
            return;
        }
        let seen = self.rows.entry(key).or_default();
        seen.max_abs = seen.max_abs.max(max_abs.abs());
    }

    /// Updates of all rows, hot or not (the paper's T_n): a row counts once for each push it is in.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the number of pushes that were counted.
    #[must_use]
    pub fn pushes(&self) -> u64 {
        self.pushes
    }

    /// The tables of the model, in the order they were given.
    #[must_use]
    pub fn tables(&self) -> &[TableShape] {
        self.tables.shapes()
    }

    /// The rows that may become hot and were seen, by falling count, and by rising key among equals.
    #[must_use]
    pub fn ranked(&self) -> Vec<Ranked> {
        let mut ranked: Vec<Ranked> = self
            .rows
            .iter()
            .filter(|(_, seen)| seen.count > 0)
            .map(|(key, seen)| {
                let (_, table) = self.tables.find(*key).expect("only keys of tables are recorded");
                Ranked { key: *key, count: seen.count, width: table.width }
            })
            .collect();
        ranked.sort_unstable_by_key(|row| (Reverse(row.count), row.key));
        ranked
    }

    /// The share of the updates of a new push that the first `rows` of the ranking would take: an estimate for data that
    /// was not counted.
    ///
    /// The share seen in the sample is optimistic, because the rows were picked for being frequent in just that sample. So
    /// the pushes are dealt into 16 parts, and each part is judged by the ranking of all the others (cross-validation). Whole
    /// pushes are left out, never single updates: the rows of one push are not independent, for each is in it once at most.
    #[must_use]
    pub fn unseen_share(&self, rows: usize) -> f64 {
        let mut hits = 0;
        for fold in 0..FOLDS {
            let others = |seen: &Seen| seen.count - u64::from(seen.folds[fold]);
            let mut ranked: Vec<(Reverse<u64>, u64, u32)> =
                self.rows.iter().map(|(key, seen)| (Reverse(others(seen)), *key, seen.folds[fold])).collect();
            // Rows that no other part has seen are no candidates.
            ranked.retain(|(count, _, _)| count.0 > 0);
            if rows < ranked.len() {
                ranked.select_nth_unstable(rows);
                ranked.truncate(rows);
            }
            hits += ranked.iter().map(|(_, _, left_out)| u64::from(*left_out)).sum::<u64>();
        }
        if self.total == 0 { 0.0 } else { hits as f64 / self.total as f64 }
    }

    pub(crate) fn largest_gradients(&self) -> LargestGradients<'_> {
        let mut of_table = vec![0.0_f32; self.tables.shapes().len()];
        for (key, seen) in &self.rows {
            let (table, _) = self.tables.find(*key).expect("only keys of tables are recorded");
            of_table[table] = of_table[table].max(seen.max_abs);
        }
        let of_any = of_table.iter().copied().fold(0.0, f32::max);
        LargestGradients { frequencies: self, of_table, of_any }
    }

    fn may_be_hot(&self, key: u64) -> bool {
        let Some((_, table)) = self.tables.find(key) else { panic!("key {key} belongs to no table") };
        table.hot
    }
}

/// The largest gradients of rows, with those of whole tables to fall back to.
pub(crate) struct LargestGradients<'a> {
    frequencies: &'a Frequencies,
    of_table: Vec<f32>,
    of_any: f32,
}

impl LargestGradients<'_> {
    /// The largest magnitude to plan for, in a gradient of row `key`.
    ///
    /// The largest that was seen of the row; of a row of which none was seen, the largest of its table; then
    /// the largest of any table; and 1 when no gradient was seen at all.
    pub(crate) fn of(&self, key: u64) -> f32 {
        let of_row = self.frequencies.rows.get(&key).map_or(0.0, |seen| seen.max_abs);
        let of_table = self.frequencies.tables.find(key).map_or(0.0, |(table, _)| self.of_table[table]);
        [of_row, of_table, self.of_any].into_iter().find(|max_abs| *max_abs > 0.0).unwrap_or(1.0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn tables() -> Vec<TableShape> {
        vec![
            TableShape { name: "item".into(), keys: 0..50, width: 4, hot: true },
            TableShape { name: "dense".into(), keys: 50..60, width: 1, hot: false },
            TableShape { name: "user".into(), keys: 60..90, width: 1, hot: true },
        ]
    }

    proptest! {
        #[test]
        fn counts_agree_with_a_naive_model(
            pushes in prop::collection::vec(prop::collection::hash_set(0_u64..90, 0..20), 0..30),
        ) {
            let mut frequencies = Frequencies::new(tables()).unwrap();
            let mut counts = BTreeMap::<u64, u64>::new();
            for push in &pushes {
                frequencies.record_push(push.iter().copied());
                for key in push {
                    *counts.entry(*key).or_default() += 1;
                }
            }
            prop_assert_eq!(frequencies.total(), counts.values().sum::<u64>());
            prop_assert_eq!(frequencies.pushes(), pushes.len() as u64);
            let mut expected: Vec<(u64, u64)> =
                counts.into_iter().filter(|(key, _)| !(50..60).contains(key)).collect();
            // Stable, and the map was ascending by key.
            expected.sort_by_key(|(_, count)| Reverse(*count));
            let ranked = frequencies.ranked();
            prop_assert_eq!(ranked.iter().map(|row| (row.key, row.count)).collect::<Vec<_>>(), expected);
            for row in ranked {
                prop_assert_eq!(row.width, if row.key < 50 { 4 } else { 1 });
            }
        }
    }

    #[test]
    fn a_row_without_gradient_takes_the_maximum_of_its_table_or_all() {
        let max_abs = |frequencies: &Frequencies, key| frequencies.largest_gradients().of(key);
        let mut frequencies = Frequencies::new(tables()).unwrap();
        assert_eq!(max_abs(&frequencies, 3), 1.0);
        frequencies.record_gradient(3, 0.5);
        frequencies.record_gradient(3, 0.25);
        frequencies.record_gradient(4, -2.0);
        frequencies.record_gradient(4, f32::INFINITY);
        frequencies.record_gradient(55, 100.0);
        assert_eq!(max_abs(&frequencies, 3), 0.5);
        assert_eq!(max_abs(&frequencies, 5), 2.0);
        assert_eq!(max_abs(&frequencies, 70), 2.0);
        assert_eq!(frequencies.ranked(), [], "a gradient is no push");
    }

    /// Each part judged by ranking all the others from scratch.
    fn naive_unseen(pushes: &[Vec<u64>], rows: usize) -> f64 {
        let mut hits = 0;
        for fold in 0..FOLDS {
            let mut counts = BTreeMap::<u64, u64>::new();
            let (left_out, others): (Vec<_>, Vec<_>) =
                pushes.iter().enumerate().partition(|(index, _)| index % FOLDS == fold);
            for key in others.iter().flat_map(|(_, push)| *push) {
                *counts.entry(*key).or_default() += 1;
            }
            let mut ranked: Vec<_> = counts.into_iter().collect();
            ranked.sort_by_key(|(key, count)| (Reverse(*count), *key));
            let hot: Vec<u64> = ranked.iter().take(rows).map(|(key, _)| *key).collect();
            hits += left_out.iter().flat_map(|(_, push)| *push).filter(|key| hot.contains(key)).count();
        }
        hits as f64 / pushes.iter().map(Vec::len).sum::<usize>().max(1) as f64
    }

    proptest! {
        #[test]
        fn keys_left_out_are_judged_by_the_others(
            pushes in prop::collection::vec(prop::collection::btree_set(0_u64..10, 0..8), 0..40), rows in 0_usize..12,
        ) {
            let pushes: Vec<Vec<u64>> = pushes.into_iter().map(|push| push.into_iter().collect()).collect();
            let mut frequencies = Frequencies::new(tables()).unwrap();
            pushes.iter().for_each(|push| frequencies.record_push(push.iter().copied()));
            prop_assert!((frequencies.unseen_share(rows) - naive_unseen(&pushes, rows)).abs() < 1e-12);
        }
    }

    #[test]
    #[should_panic(expected = "key 90 belongs to no table")]
    fn a_key_of_no_table_is_a_bug() {
        Frequencies::new(tables()).unwrap().record_push([90]);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "key 1 is twice in one push")]
    fn a_key_twice_is_a_bug() {
        Frequencies::new(tables()).unwrap().record_push([1, 1]);
    }
}
