//! The rows of one shard.

mod admission_filter;
mod batch;
mod blocks;
mod copy_on_write;
mod eviction;
mod file;
mod filed_rows;
mod many;
mod marks;
mod memory_limit;
mod mutants;
#[cfg(test)]
mod pair;
mod rows;
mod snapshot;
mod table_rows;
mod watch;

use std::mem::discriminant;

use libra_plan::Shard;
use thiserror::Error;

use crate::UpdateRule;
use crate::table::{TableError, TableSpec, order};
use crate::update::Corrections;
use admission_filter::AdmissionFilter;
use batch::Batch;
use eviction::EvictionProgress;
pub use eviction::{Evicted, LifecycleCounts};
use file::RowFile;
pub use many::KeyBatch;
use many::copy_values;
use marks::Snapshots;
pub use memory_limit::{DiskCounts, LimitTooLow, StoreFault};
use snapshot::Reading;
pub use snapshot::{Extent, RowBlock};
use table_rows::{RowPlace, TableRows};

/// The rows of one shard: reads their values, and updates them by gradients.
///
/// A row is kept from its first update on, so tables of billions of keys cost what was touched of them: values,
/// state of the optimizer, and less than 16 bytes a row for the key and the index from about 100,000 rows on.
/// No update takes long because the table grows: what one new row may move is bounded, however many rows
/// there are.
///
/// A store with a [memory limit](#memory-limit) has no copy: `clone` panics.
#[derive(Debug, Clone)]
pub struct Store {
    seed: u64,
    tables: Vec<TableSpec>,
    /// The rows of each table, in the order of `tables`: values, then state of the optimizer.
    rows: Vec<TableRows>,
    /// Steps of each table, in the order of `tables`.
    steps: Vec<Steps>,
    /// Number of batches that were applied.
    batches: u64,
    /// First key and position of each table, by rising key.
    by_first_key: Vec<(u64, usize)>,
    /// Decides which gradients make rows, for each table.
    admission_filters: Vec<AdmissionFilter>,
    /// Numbers of the rule of each table by the steps of its rows.
    corrections: Vec<Corrections>,
    eviction: EvictionProgress,
    snapshots: Snapshots,
    /// Progress of the reader of the active snapshot, or of the last one.
    reading: Reading,
    /// There if memory is limited.
    file: Option<Box<RowFile>>,
}

/// Number of batches that touched a table.
#[derive(Debug, Clone, Copy, Default)]
struct Steps {
    count: u64,
    /// The last batch that did: its rows of one table may be in several places.
    last_batch: u64,
}

impl Steps {
    /// Counts this batch, and returns the number of batches before it that touched the table.
    fn before(&mut self, batch: u64) -> u64 {
        if self.last_batch != batch {
            self.last_batch = batch;
            self.count += 1;
        }
        self.count - 1
    }
}

/// Reason why a row could not be read or updated.
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
        /// Number of its values.
        width: usize,
        /// Number of values that there were room for or gradients of.
        found: usize,
    },
    /// The buffer or the gradients of many rows are not as wide as these together.
    #[error("the rows have {width} values together, not {found}")]
    WrongLength {
        /// Number of values of each row.
        width: usize,
        /// Number of values that there were room for or gradients of.
        found: usize,
    },
    /// The given state of an admission is none, or is of another table.
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
    /// The given state of the optimizer of many rows is of another length.
    #[error("the optimizer of these rows keeps {words} values together, not {found}")]
    WrongStates {
        /// Number of values that it keeps of all.
        words: usize,
        /// Number of values that were given.
        found: usize,
    },
    /// The given state of the optimizer of a row is of another length.
    #[error("the optimizer of row {key} keeps {words} values, not {found}")]
    WrongState {
        /// The row.
        key: u64,
        /// Number of values that its optimizer keeps.
        words: usize,
        /// Number of values that were given.
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
        let rows = |spec: &TableSpec| {
            TableRows::new(&spec.keys, words(spec), shard, spec.rule.growth.eviction.is_some())
        };
        let rows = tables.iter().map(rows).collect();
        let steps = vec![Steps::default(); tables.len()];
        let admission_filters =
            tables.iter().map(|spec| AdmissionFilter::new(&spec.rule.growth, seed)).collect();
        let corrections = vec![Corrections::default(); tables.len()];
        let eviction = EvictionProgress::new(tables.len());
        Ok(Self {
            seed,
            tables,
            rows,
            steps,
            batches: 0,
            by_first_key,
            corrections,
            admission_filters,
            eviction,
            snapshots: Snapshots::default(),
            reading: Reading::default(),
            file: None,
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

    /// Returns the number of values of the row `key`; `None` if no table holds it.
    #[must_use]
    pub fn width(&self, key: u64) -> Option<usize> {
        self.table_of(key).map(|table| table.width)
    }

    /// Copies the values of a row. One that was never updated has its first values, and is not kept.
    ///
    /// # Errors
    /// No table holds the key, or `values` is not as wide as the row.
    pub fn read(&mut self, key: u64, values: &mut [f32]) -> Result<(), RowError> {
        let position = self.position_for(key, values.len())?;
        self.bring_to_read(position, key);
        let (spec, rows) = (&self.tables[position], &mut self.rows[position]);
        let place = rows.find(key);
        rows.mark_used(&[place]);
        match place {
            RowPlace::Nowhere => spec.init.fill(self.seed, key, values),
            _ => copy_values(bytemuck::cast_slice(&rows.words(place)[..spec.width]), values),
        }
        Ok(())
    }

    /// Returns the values and the state of a row that is kept; `None` if it was never updated, or no table holds it.
    #[must_use]
    pub fn row(&mut self, key: u64) -> Option<(&[f32], &[f32])> {
        let position = self.position_of(key)?;
        self.bring_to_read(position, key);
        let rows = &self.rows[position];
        match rows.find(key) {
            RowPlace::Nowhere => None,
            place => Some(bytemuck::cast_slice(rows.words(place)).split_at(self.tables[position].width)),
        }
    }

    /// Changes a row by a gradient, or by a sum of gradients that counts as one, as the rule of its
    /// table says; or makes it, if the [`RowLifecycle`](crate::RowLifecycle) of the table lets it. It counts as one step of the table.
    ///
    /// The gradient is taken as it is: one that is not finite makes the row so too.
    ///
    /// # Errors
    /// No table holds the key, or `gradient` is not as wide as the row. Nothing changed.
    pub fn update(&mut self, key: u64, gradient: &[f32]) -> Result<(), RowError> {
        let position = self.position_for(key, gradient.len())?;
        if !self.bring(position, &[key]) {
            return Ok(());
        }
        self.batches += 1;
        let step = self.steps[position].before(self.batches);
        let spec = &self.tables[position];
        let update = spec.rule.prepare(step);
        let batch = Batch::new(spec, self.seed, step, &update, &[]);
        let rows = &mut self.rows[position];
        rows.settle();
        batch.update_or_make(rows, &mut self.admission_filters[position], key, gradient);
        self.relieve();
        Ok(())
    }

    /// Sets a row to these values and this state of its optimizer, whatever it was.
    ///
    /// # Errors
    /// No table holds the key, or values or state are not as long as those of the row. Nothing changed.
    pub fn insert(&mut self, key: u64, values: &[f32], state: &[f32]) -> Result<(), RowError> {
        let position = self.position_for(key, values.len())?;
        if !self.bring(position, &[key]) {
            return Ok(());
        }
        let (spec, rows) = (&self.tables[position], &mut self.rows[position]);
        let words = spec.rule.state_len(spec.width);
        if state.len() != words {
            return Err(RowError::WrongState { key, words, found: state.len() });
        }
        let (place, _) = rows.find_or_insert(key, |_| ());
        let (row_values, row_state) = rows.words_mut(place).split_at_mut(spec.width);
        row_values.copy_from_slice(bytemuck::cast_slice(values));
        row_state.copy_from_slice(bytemuck::cast_slice(state));
        self.relieve();
        Ok(())
    }

    /// Removes a row, and returns true if it was kept. It is then one that was never updated.
    ///
    /// # Errors
    /// No table holds the key.
    pub fn remove(&mut self, key: u64) -> Result<bool, RowError> {
        let position = self.position_of(key).ok_or(RowError::UnknownKey { key })?;
        let is_sound = self.rows[position].bring_for_snapshot(&mut self.file, &[key]);
        Ok(is_sound && self.rows[position].remove(key))
    }

    /// Key, values and state of all rows that are kept of the table at `position` in [`Store::tables`], in the
    /// order in which they lie in memory.
    ///
    /// # Panics
    /// There is no such table, or its rows may lie in a file: then a [snapshot](#snapshots) has them.
    pub fn rows_of(&self, position: usize) -> impl Iterator<Item = (u64, &[f32], &[f32])> {
        assert!(self.file.is_none(), "rows in the file must be read");
        let width = self.tables[position].width;
        self.rows[position].iter().map(move |(key, words)| {
            let (values, state) = bytemuck::cast_slice(words).split_at(width);
            (key, values, state)
        })
    }

    /// Keys of all rows that are kept of the table at `position` in [`Store::tables`], in no order.
    ///
    /// # Panics
    /// There is no such table.
    pub fn keys_of(&self, position: usize) -> impl Iterator<Item = u64> {
        self.rows[position].keys()
    }

    /// Returns how many batches have touched the table at `position` in [`Store::tables`]: its schedule depends on it, and it is
    /// as much part of the state of the table as its rows.
    ///
    /// # Panics
    /// There is no such table.
    #[must_use]
    pub fn steps(&self, position: usize) -> u64 {
        self.steps[position].count
    }

    /// Sets how many batches have touched a table, as returned by [`Store::steps`] when its rows were saved.
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
    pub fn set_rule(&mut self, position: usize, rule: UpdateRule) -> Result<(), TableError> {
        let spec = &self.tables[position];
        let kind = |rule: &UpdateRule| discriminant(&rule.optimizer);
        assert_eq!(kind(&rule), kind(&spec.rule), "the states of rows are those of their optimizer");
        assert_eq!(rule.growth, spec.rule.growth, "the counts of a table are those of its growth");
        let mut changed = vec![TableSpec { rule, ..spec.clone() }];
        order(&changed)?;
        self.tables[position] = changed.remove(0);
        Ok(())
    }

    /// Returns the number of rows that are kept: those that were updated at least once.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows.iter().map(TableRows::len).sum()
    }

    /// Bytes of memory that the rows, their index, the counts of an admission, the copies for a snapshot and the buffer of a file take,
    /// with what was allocated in advance.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let rows: usize = self.rows.iter().map(TableRows::memory_bytes).sum();
        let counts: usize = self.admission_filters.iter().map(AdmissionFilter::memory_bytes).sum();
        rows + counts + self.file.as_ref().map_or(0, |file| file.memory_bytes())
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

#[cfg(test)]
mod tests;
