//! The rows of one shard.

mod aside;
mod batch;
mod blocks;
mod gate;
mod kept;
mod marks;
mod rows;
mod snapshot;
mod sweep;
mod watch;

use std::mem::discriminant;
use std::ops::Range;

use libra_plan::Shard;
use thiserror::Error;

use crate::Rule;
use crate::table::{TableError, TableSpec, order};
use batch::Batch;
use blocks::Blocks;
use gate::Gate;
use kept::{Kept, RowPlace};
use marks::Snapshots;
use rows::BLOCK;
use snapshot::Reading;
pub use snapshot::{Extent, RowBlock};
use sweep::Sweep;
pub use sweep::{Evicted, GrowthCounts};

/// The rows of one shard: reads their values, and updates them by gradients.
///
/// A row is kept from its first update on, so tables of billions of keys cost what was touched of them: values,
/// state of the optimizer, and less than 16 bytes a row for the key and the index from about 100,000 rows on.
/// No update takes long because the table grows: what one new row may move is bounded, however many rows
/// there are.
#[derive(Debug, Clone)]
pub struct Store {
    seed: u64,
    tables: Vec<TableSpec>,
    /// The rows of each table, in the order of `tables`: values, then state of the optimizer.
    rows: Vec<Kept>,
    /// How often each table, in the order of `tables`, was touched.
    steps: Vec<Steps>,
    /// How many batches were applied.
    batches: u64,
    /// First key and position of each table, by rising key.
    by_first_key: Vec<(u64, usize)>,
    /// What decides which gradients make rows, for each table.
    gates: Vec<Gate>,
    sweep: Sweep,
    snapshots: Snapshots,
    /// How far the active snapshot was read, or the last one.
    reading: Reading,
}

/// How many batches touched a table.
#[derive(Debug, Clone, Copy, Default)]
struct Steps {
    count: u64,
    /// The last batch that did: its rows of one table may be in several places.
    last_batch: u64,
}

impl Steps {
    /// How many batches before this one touched the table; from now on, this one has.
    fn before(&mut self, batch: u64) -> u64 {
        if self.last_batch != batch {
            self.last_batch = batch;
            self.count += 1;
        }
        self.count - 1
    }
}

/// Why a row could not be read or updated.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RowError {
    /// No table holds this key.
    #[error("key {key} belongs to no table")]
    UnknownKey {
        /// The key that was asked for.
        key: u64,
    },
    /// The buffer or gradient is not as wide as the row.
    #[error("row {key} has {width} values, not {found}")]
    WrongWidth {
        /// The row.
        key: u64,
        /// How many values it has.
        width: usize,
        /// How many there were room for or gradients of.
        found: usize,
    },
    /// The buffer or the gradients of many rows are not as wide as these together.
    #[error("the rows have {width} values together, not {found}")]
    WrongLength {
        /// How many values the rows have.
        width: usize,
        /// How many there were room for or gradients of.
        found: usize,
    },
    /// What should be the state of an admission is not, or is of another table.
    #[error("table {table} cannot have this state of its admission")]
    WrongAdmission {
        /// Position of the table in [`Store::tables`].
        table: usize,
    },
    /// A table other than the one that was named holds this key, or none does.
    #[error("key {key} is not of this table")]
    NotOfTable {
        /// The key.
        key: u64,
    },
    /// What should be the state of the optimizer of many rows is of another length.
    #[error("the optimizer of these rows keeps {words} values together, not {found}")]
    WrongStates {
        /// How many values it keeps of all.
        words: usize,
        /// How many were given.
        found: usize,
    },
    /// What should be the state of the optimizer of a row is of another length.
    #[error("the optimizer of row {key} keeps {words} values, not {found}")]
    WrongState {
        /// The row.
        key: u64,
        /// How many values its optimizer keeps.
        words: usize,
        /// How many were given.
        found: usize,
    },
}

impl Store {
    /// An empty store of these tables, for all of their rows; `seed` decides the first values of all rows.
    ///
    /// # Errors
    /// The tables are no tables of one model, or have numbers that cannot train: see [`TableError`].
    pub fn new(tables: Vec<TableSpec>, seed: u64) -> Result<Self, TableError> {
        Self::of_shard(tables, seed, Shard::ONLY)
    }

    /// As [`Store::new`], for the rows of one shard. Keys of other shards must not come: it may take two of them for one. (In
    /// builds with debug assertions it panics.)
    ///
    /// # Errors
    /// As [`Store::new`].
    pub fn of_shard(tables: Vec<TableSpec>, seed: u64, shard: Shard) -> Result<Self, TableError> {
        let by_first_key =
            order(&tables)?.into_iter().map(|position| (tables[position].keys.start, position)).collect();
        let words = |spec: &TableSpec| spec.width + spec.rule.state_len(spec.width);
        let rows = tables.iter().map(|spec| Kept::new(&spec.keys, words(spec), shard)).collect();
        let steps = vec![Steps::default(); tables.len()];
        let gates = tables.iter().map(|spec| Gate::new(&spec.rule.growth, seed)).collect();
        let sweep = Sweep::new(tables.len());
        Ok(Self {
            seed,
            tables,
            rows,
            steps,
            batches: 0,
            by_first_key,
            gates,
            sweep,
            snapshots: Snapshots::default(),
            reading: Reading::default(),
        })
    }

    /// The tables, in the order they were given.
    #[must_use]
    pub fn tables(&self) -> &[TableSpec] {
        &self.tables
    }

    /// The table that holds `key`.
    #[must_use]
    pub fn table_of(&self, key: u64) -> Option<&TableSpec> {
        self.position_of(key).map(|position| &self.tables[position])
    }

    /// How many values the row `key` has; `None` if no table holds it.
    #[must_use]
    pub fn width(&self, key: u64) -> Option<usize> {
        self.table_of(key).map(|table| table.width)
    }

    /// Copies the values of a row. One that was never updated has its first values, and is not kept.
    ///
    /// # Errors
    /// No table holds the key, or `values` is not as wide as the row.
    pub fn read(&self, key: u64, values: &mut [f32]) -> Result<(), RowError> {
        let position = self.position_for(key, values.len())?;
        let (spec, rows) = (&self.tables[position], &self.rows[position]);
        match rows.find(key) {
            RowPlace::Nowhere => spec.init.fill(self.seed, key, values),
            place => copy_values(rows.words(place), values),
        }
        Ok(())
    }

    /// Copies the values of many rows, one row after the other, each as wide as its table; keys may come in
    /// any order and more than once. It is several times as fast as a [`Store::read`] for each, most of all
    /// for keys of one table in a row.
    ///
    /// # Errors
    /// No table holds one of the keys, or `values` is not as long as all rows together. Nothing was copied.
    pub fn read_many(&self, keys: &[u64], values: &mut [f32]) -> Result<(), RowError> {
        let runs = self.runs_of(keys, values.len())?;
        let (mut keys, mut values) = (keys, values);
        for Run { position, keys: run } in runs {
            let (spec, rows) = (&self.tables[position], &self.rows[position]);
            let of_run;
            (of_run, keys) = keys.split_at(run);
            let values_of_run;
            (values_of_run, values) = values.split_at_mut(run * spec.width);
            let mut blocks = Blocks::new(of_run, rows);
            for values in values_of_run.chunks_mut(BLOCK * spec.width) {
                let (keys, found) = blocks.next(rows);
                for ((key, place), values) in keys.iter().zip(found).zip(values.chunks_exact_mut(spec.width))
                {
                    if *place == RowPlace::Nowhere {
                        spec.init.fill(self.seed, *key, values);
                    } else {
                        copy_values(rows.words(*place), values);
                    }
                }
            }
        }
        Ok(())
    }

    /// Changes a row by a gradient, or by a sum of gradients that counts as one, as the rule of its
    /// table says; or makes it, if the [`Growth`](crate::Growth) of the table lets it. It counts as one step of the table.
    ///
    /// The gradient is taken as it is: one that is not finite makes the row so too.
    ///
    /// # Errors
    /// No table holds the key, or `gradient` is not as wide as the row. Nothing changed.
    pub fn update(&mut self, key: u64, gradient: &[f32]) -> Result<(), RowError> {
        let position = self.position_for(key, gradient.len())?;
        self.batches += 1;
        let step = self.steps[position].before(self.batches);
        let spec = &self.tables[position];
        let update = spec.rule.prepare(step);
        let batch = Batch::new(spec, self.seed, step, &update);
        let rows = &mut self.rows[position];
        rows.settle();
        batch.update_or_make(rows, &mut self.gates[position], key, gradient);
        Ok(())
    }

    /// Changes many rows, as a [`Store::update`] for each in this order does, but several times as fast, most
    /// of all for keys of one table in a row. Gradients lie one after the other, each as wide as the table of
    /// its key; keys may come in any order and more than once. For each table that has one of the keys it counts
    /// as one step, and all its rows change at the rate of that step.
    ///
    /// # Errors
    /// No table holds one of the keys, or `gradients` is not as long as all rows together. Nothing changed.
    pub fn update_many(&mut self, keys: &[u64], gradients: &[f32]) -> Result<(), RowError> {
        let runs = self.runs_of(keys, gradients.len())?;
        self.batches += 1;
        let (mut keys, mut gradients) = (keys, gradients);
        for Run { position, keys: run } in runs {
            let (spec, step) = (&self.tables[position], self.steps[position].before(self.batches));
            let update = spec.rule.prepare(step);
            let batch = Batch::new(spec, self.seed, step, &update);
            let (rows, gate) = (&mut self.rows[position], &mut self.gates[position]);
            rows.settle();
            let of_run;
            (of_run, keys) = keys.split_at(run);
            let gradients_of_run;
            (gradients_of_run, gradients) = gradients.split_at(run * spec.width);
            let mut blocks = Blocks::new(of_run, rows);
            for gradients in gradients_of_run.chunks(BLOCK * spec.width) {
                let (keys, found) = blocks.next(rows);
                rows.touch_block(keys, found);
                let (moves, mut moved) = (rows.moves(), false);
                for ((key, place), gradient) in keys.iter().zip(found).zip(gradients.chunks_exact(spec.width))
                {
                    // Its key may have come before, and then a row was made that may have moved others.
                    if moved || *place == RowPlace::Nowhere {
                        batch.update_or_make(rows, gate, *key, gradient);
                        moved = rows.moves() != moves;
                    } else {
                        batch.update(rows.words_mut(*place), gradient);
                    }
                }
            }
        }
        Ok(())
    }

    /// Sets a row to these values and this state of its optimizer, whatever it was.
    ///
    /// # Errors
    /// No table holds the key, or values or state are not as long as those of the row. Nothing changed.
    pub fn insert(&mut self, key: u64, values: &[f32], state: &[f32]) -> Result<(), RowError> {
        let position = self.position_for(key, values.len())?;
        let (spec, rows) = (&self.tables[position], &mut self.rows[position]);
        let words = spec.rule.state_len(spec.width);
        if state.len() != words {
            return Err(RowError::WrongState { key, words, found: state.len() });
        }
        let (place, _) = rows.find_or_insert(key, |_| ());
        let (row_values, row_state) = rows.words_mut(place).split_at_mut(spec.width);
        row_values.copy_from_slice(bytemuck::cast_slice(values));
        row_state.copy_from_slice(bytemuck::cast_slice(state));
        Ok(())
    }

    /// Removes a row, and says whether it was kept. It is then one that was never updated.
    ///
    /// # Errors
    /// No table holds the key.
    pub fn remove(&mut self, key: u64) -> Result<bool, RowError> {
        let position = self.position_of(key).ok_or(RowError::UnknownKey { key })?;
        Ok(self.rows[position].remove(key))
    }

    /// Key, values and state of all rows that are kept of the table at `position` in [`Store::tables`], in the
    /// order in which they lie in memory.
    ///
    /// # Panics
    /// There is no such table.
    pub fn rows_of(&self, position: usize) -> impl Iterator<Item = (u64, &[f32], &[f32])> {
        let width = self.tables[position].width;
        self.rows[position].iter().map(move |(key, words)| {
            let (values, state) = bytemuck::cast_slice(words).split_at(width);
            (key, values, state)
        })
    }

    /// How many batches have touched the table at `position` in [`Store::tables`]: what its schedule goes by, and
    /// as much part of its state as its rows.
    ///
    /// # Panics
    /// There is no such table.
    #[must_use]
    pub fn steps(&self, position: usize) -> u64 {
        self.steps[position].count
    }

    /// Sets how many batches have touched a table, as [`Store::steps`] said when its rows were saved.
    ///
    /// # Panics
    /// There is no such table.
    pub fn set_steps(&mut self, position: usize, steps: u64) {
        self.steps[position].count = steps;
    }

    /// Changes the numbers of the rule of a table, such as its rate, from the next batch on. Rows keep their values and states.
    ///
    /// # Errors
    /// A number that cannot train. Nothing changed.
    ///
    /// # Panics
    /// There is no such table, or the rule is of another optimizer or growth, whose states are others.
    pub fn set_rule(&mut self, position: usize, rule: Rule) -> Result<(), TableError> {
        let spec = &self.tables[position];
        let kind = |rule: &Rule| discriminant(&rule.optimizer);
        assert_eq!(kind(&rule), kind(&spec.rule), "the states of rows are those of their optimizer");
        assert_eq!(rule.growth, spec.rule.growth, "the counts of a table are those of its growth");
        let mut changed = vec![TableSpec { rule, ..spec.clone() }];
        order(&changed)?;
        self.tables[position] = changed.remove(0);
        Ok(())
    }

    /// How many rows are kept: those that were updated at least once.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows.iter().map(Kept::len).sum()
    }

    /// Bytes of memory that the rows, their index, the counts of an admission and the copies for a snapshot take, with what
    /// was allocated in advance.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let rows: usize = self.rows.iter().map(Kept::memory_bytes).sum();
        rows + self.gates.iter().map(Gate::memory_bytes).sum::<usize>()
    }

    /// How many values the rows of these keys have together.
    ///
    /// # Errors
    /// No table holds one of the keys.
    pub fn values_of(&self, keys: &[u64]) -> Result<usize, RowError> {
        let runs = self.runs(keys)?;
        Ok(runs.iter().map(|run| run.keys * self.tables[run.position].width).sum())
    }

    /// The same as runs, if the rows have so many values together.
    fn runs_of(&self, keys: &[u64], found: usize) -> Result<Vec<Run>, RowError> {
        let runs = self.runs(keys)?;
        let width = runs.iter().map(|run| run.keys * self.tables[run.position].width).sum();
        if found != width {
            return Err(RowError::WrongLength { width, found });
        }
        Ok(runs)
    }

    /// Of which tables the keys are.
    fn runs(&self, keys: &[u64]) -> Result<Vec<Run>, RowError> {
        let (mut rest, mut runs) = (keys, Vec::new());
        while let Some(key) = rest.first() {
            let position = self.position_of(*key).ok_or(RowError::UnknownKey { key: *key })?;
            let keys = run_within(&self.tables[position].keys, rest);
            runs.push(Run { position, keys });
            rest = &rest[keys..];
        }
        Ok(runs)
    }

    fn position_of(&self, key: u64) -> Option<usize> {
        let after = self.by_first_key.partition_point(|(first, _)| *first <= key);
        let (_, position) = *self.by_first_key[..after].last()?;
        self.tables[position].keys.contains(&key).then_some(position)
    }

    fn position_for(&self, key: u64, found: usize) -> Result<usize, RowError> {
        let position = self.position_of(key).ok_or(RowError::UnknownKey { key })?;
        let width = self.tables[position].width;
        if found != width {
            return Err(RowError::WrongWidth { key, width, found });
        }
        Ok(position)
    }
}

/// Keys of one table, one after the other in a batch.
struct Run {
    /// That of the table in [`Store::tables`].
    position: usize,
    /// How many.
    keys: usize,
}

/// How many keys, from the first one on, are of a table.
fn run_within(of_table: &Range<u64>, keys: &[u64]) -> usize {
    let last = of_table.end - 1;
    // The highest bit is set for each that is not; and for keys of a table of more than 2^63, which are looked at again. Whole blocks
    // without a way out in their midst are several times as fast.
    let beyond = |key: &u64| key.wrapping_sub(of_table.start) | last.wrapping_sub(*key);
    let is_within = |block: &&[u64]| block.iter().fold(0, |found, key| found | beyond(key)) >> 63 == 0;
    let whole = keys.chunks_exact(BLOCK).take_while(is_within).count() * BLOCK;
    let rest = &keys[whole..];
    whole + rest.iter().position(|key| !of_table.contains(key)).unwrap_or(rest.len())
}

/// Copies the values of a row.
#[inline]
fn copy_values(words: &[u32], values: &mut [f32]) {
    // For one value, the call that copies many takes longer than the copy.
    if let ([value], [word, ..]) = (&mut *values, words) {
        *value = f32::from_bits(*word);
    } else {
        values.copy_from_slice(bytemuck::cast_slice(&words[..values.len()]));
    }
}

#[cfg(test)]
mod tests;
