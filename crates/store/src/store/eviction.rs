//! Eviction of rows.

use std::cmp::Reverse;

use super::Store;
use super::file::RowFile;
use super::table_rows::{TableRows, Traced};
use crate::TableSpec;
use crate::key::{number_at, words_of};
use crate::row_lifecycle::Eviction;
use crate::update::sum_of_squares;

/// Rows that are compared with each other.
const WINDOW: usize = 16;

/// The part of a row in the file that stays in memory: all that decides its eviction.
#[derive(Debug, Clone, Copy)]
pub(super) enum Summary {
    /// The last words, so many.
    Last(usize),
    /// The norm of so many values.
    Norm(usize),
}

impl Summary {
    pub(super) fn new(spec: &TableSpec) -> Self {
        match spec.rule.growth.eviction {
            Some(Eviction::LowestNorm { .. }) => Self::Norm(spec.width),
            _ => Self::Last(spec.rule.growth.words()),
        }
    }

    /// Number of its words, at most 2.
    pub(super) fn words(self) -> usize {
        match self {
            Self::Last(words) => words,
            Self::Norm(_) => 2,
        }
    }

    /// That of a row.
    pub(super) fn of(self, words: &[u32]) -> [u32; 2] {
        match self {
            Self::Last(count) => {
                let last = &words[words.len() - count..];
                [0, 1].map(|at| last.get(at).copied().unwrap_or(0))
            }
            Self::Norm(width) => words_of(norm(&words[..width])),
        }
    }
}

/// Result of one look at rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evicted {
    /// Number of rows that were looked at, or places where a row might be.
    pub looked: usize,
    /// Keys of the rows that were removed, of any table.
    pub removed: Vec<u64>,
}

/// Cost of growth so far, since the store was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LifecycleCounts {
    /// Gradients that changed nothing, because the admission of a table made no row for them.
    pub dropped: u64,
    /// Rows that [`Store::evict`] removed.
    pub evicted: u64,
}

/// Progress of a store's looks at its rows.
#[derive(Debug, Clone, Default)]
pub(super) struct EvictionProgress {
    /// The table that is next.
    table: usize,
    /// Position in each table: of rows in memory, or in each part of them.
    cursors: Vec<usize>,
    pub(super) evicted: u64,
}

impl EvictionProgress {
    pub(super) fn new(tables: usize) -> Self {
        Self { cursors: vec![0; tables], ..Self::default() }
    }
}

/// # RowLifecycle
///
/// ```
/// use libra_store::{Admission, Eviction, RowLifecycle, Init, Optimizer, UpdateRule, Store, TableSpec};
///
/// let growth = RowLifecycle {
///     admission: Some(Admission::Occurrences { updates: 2, keys: 1 << 20 }),
///     eviction: Some(Eviction::Idle { steps: 2 }),
/// };
/// let rule = UpdateRule { growth, ..Optimizer::Sgd { rate: 0.5 }.into() };
/// let table = TableSpec { name: "item".into(), keys: 0..1 << 60, width: 1, rule, init: Init::Zero };
/// let mut store = Store::new(vec![table], 42)?;
/// store.update_many(&[1, 2], &[-2.0; 2])?;
/// assert_eq!((store.rows(), store.lifecycle_counts().dropped), (0, 2));
/// store.update_many(&[1, 2], &[-2.0; 2])?;
/// assert_eq!(store.rows(), 2);
/// store.update(1, &[-2.0])?;
/// store.update(1, &[-2.0])?;
/// assert_eq!(store.evict(1000).removed, [2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl Store {
    /// Looks at so many rows, going on where it stopped the last time, and removes those that the [`Eviction`] of their
    /// table wants to go. The owner of the store must call it between batches, often enough: what is not
    /// looked at stays, and a table may grow beyond its `rows_max` until then. A call takes about as long as an
    /// update of as many rows; it ends before if it has gone once through all tables, or where nothing should go.
    ///
    /// Of a table with too many rows, 16 or a few more at a time are compared, each from another part of memory, and the lowest
    /// of them go: as many as the table has too many by proportion, and at least one. So a row may go that is not among the
    /// lowest of the table, if it is among those it was compared with; where half of all rows should stay, one of these
    /// goes in 2^15. For such a table, a call looks at 16 places at least.
    ///
    /// The same calls remove the same rows. But which are compared depends on where rows came to lie, which is not in a
    /// snapshot: a log should record the keys that went, and [`Store::remove`] them when it is replayed.
    pub fn evict(&mut self, rows_max: usize) -> Evicted {
        self.evict_but(rows_max, |_| false)
    }

    /// The same, without the rows that stay by age and use: those whose gradients come summed have fewer updates, and longer times
    /// between them, than what is known of them elsewhere. They count as rows of their table, and go by their norm like any other.
    pub fn evict_but(&mut self, rows_max: usize, stays: impl Fn(u64) -> bool) -> Evicted {
        let mut evicted = Evicted::default();
        for _ in 0..self.tables.len() {
            let table = self.eviction.table;
            if !self.evict_of(table, rows_max, &stays, &mut evicted) {
                break;
            }
            self.eviction.table = (table + 1) % self.tables.len();
        }
        self.eviction.evicted += evicted.removed.len() as u64;
        evicted
    }

    /// Returns true if that is all for this table; else as many rows were looked at as are allowed.
    fn evict_of(
        &mut self,
        table: usize,
        looks_max: usize,
        stays: &impl Fn(u64) -> bool,
        evicted: &mut Evicted,
    ) -> bool {
        let spec = &self.tables[table];
        let trace = spec.rule.growth.trace(self.steps[table].count);
        let (rows, cursor) = (&mut self.rows[table], &mut self.eviction.cursors[table]);
        let file = &mut self.file;
        let words = trace.words();
        match spec.rule.growth.eviction {
            None => true,
            Some(Eviction::Idle { steps }) => {
                let is_old = |key, traced: Traced<'_>| trace.age(traced.last(words)) >= steps && !stays(key);
                evict_old(rows, file, cursor, looks_max, is_old, evicted)
            }
            Some(Eviction::LeastUsed { rows_max, .. }) => {
                let use_of = |words: &[u32]| (trace.updates(words), Reverse(trace.age(words)));
                let use_of = |key, traced: Traced<'_>| (!stays(key)).then(|| use_of(traced.last(words)));
                evict_lowest(rows, file, rows_max, cursor, looks_max, use_of, evicted)
            }
            Some(Eviction::LowestNorm { rows_max }) => {
                let norm = |_, traced: Traced<'_>| match traced {
                    Traced::Words(words) => Some(norm(&words[..spec.width])),
                    Traced::Summary(norm) => Some(number_at(norm, 0)),
                };
                evict_lowest(rows, file, rows_max, cursor, looks_max, norm, evicted)
            }
        }
    }

    /// Returns the cost of growth so far.
    #[must_use]
    pub fn lifecycle_counts(&self) -> LifecycleCounts {
        let dropped = self.admission_filters.iter().map(|admission_filter| admission_filter.dropped).sum();
        LifecycleCounts { dropped, evicted: self.eviction.evicted }
    }
}

fn evict_old(
    rows: &mut TableRows,
    file: &mut Option<Box<RowFile>>,
    cursor: &mut usize,
    looks_max: usize,
    is_old: impl Fn(u64, Traced<'_>) -> bool,
    evicted: &mut Evicted,
) -> bool {
    let mut old = Vec::new();
    let (looks, is_all) = rows.look(cursor, looks_max - evicted.looked, |key, traced| {
        if is_old(key, traced) {
            old.push(key);
        }
    });
    evicted.looked += looks;
    evicted.remove(rows, file, &old);
    is_all
}

/// Compares rows from [`WINDOW`] parts of memory. Neighbours would not do: rows that were made at one time are often of
/// one worth, as the most frequent keys come first. A row without a score stays.
fn evict_lowest<S: Ord>(
    rows: &mut TableRows,
    file: &mut Option<Box<RowFile>>,
    rows_max: u64,
    cursor: &mut usize,
    looks_max: usize,
    score: impl Fn(u64, Traced<'_>) -> Option<S>,
    evicted: &mut Evicted,
) -> bool {
    let rows_max = usize::try_from(rows_max).unwrap_or(usize::MAX);
    let mut window = Vec::with_capacity(2 * WINDOW);
    // Once through the table may not be enough, but there are other tables.
    for _ in 0..rows.positions() {
        let beyond = rows.len().saturating_sub(rows_max);
        if beyond == 0 {
            return true;
        }
        let (start, mut looks) = (*cursor, 0);
        let part = rows.positions().div_ceil(WINDOW);
        window.clear();
        let has_looks = |looks| evicted.looked + looks + WINDOW <= looks_max || evicted.looked + looks == 0;
        while window.len() < WINDOW && *cursor < part && has_looks(looks) {
            let places = (0..WINDOW).map(|number| number * part + *cursor);
            window.extend(
                places
                    .filter_map(|place| rows.traced_at(place))
                    .filter_map(|(key, traced)| score(key, traced).map(|score| (score, key))),
            );
            looks += WINDOW;
            *cursor += 1;
        }
        let ended = *cursor >= part;
        if window.len() < WINDOW && !ended && evicted.looked > 0 {
            // Better with more of them the next time.
            *cursor = start;
            return false;
        }
        if ended {
            *cursor = 0;
        }
        evicted.looked += looks;
        window.sort_unstable();
        let going = (window.len() * beyond / rows.len()).max(1).min(beyond);
        let going: Vec<u64> = window.iter().take(going).map(|(_, key)| *key).collect();
        if !evicted.remove(rows, file, &going) {
            return true;
        }
    }
    true
}

impl Evicted {
    /// Returns false if the file has failed.
    fn remove(&mut self, rows: &mut TableRows, file: &mut Option<Box<RowFile>>, keys: &[u64]) -> bool {
        if !rows.bring_for_snapshot(file, keys) {
            return false;
        }
        for key in keys {
            let removed = rows.remove(*key);
            assert!(removed, "a row that was just looked at is there");
            self.removed.push(*key);
        }
        true
    }
}

/// A number for the Euclidean norm of these values, in the order of norms; the lowest one for what is not finite.
fn norm(values: &[u32]) -> u64 {
    let values: &[f32] = bytemuck::cast_slice(values);
    let squares = sum_of_squares(values.len(), |lane| values[lane]);
    // Bits of numbers that are not negative are in their order.
    if squares.is_finite() { 1 + squares.to_bits() } else { 0 }
}

#[cfg(test)]
mod tests;
