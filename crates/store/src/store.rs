//! The rows of one shard.

use std::mem::size_of;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use thiserror::Error;

use crate::table::{TableError, TableSpec, order};

/// The rows of one shard: reads their values, and updates them by gradients.
///
/// A row is kept from its first update on. Rows of a table lie one after the other in one allocation, so that
/// an update of a new row allocates nothing but the table's growth, and tables of billions of keys cost what
/// was touched of them.
#[derive(Debug, Clone)]
pub struct Store {
    seed: u64,
    tables: Vec<TableSpec>,
    /// The rows of each table, in the order of `tables`.
    arenas: Vec<Arena>,
    /// First key and position of each table, by rising key.
    by_first_key: Vec<(u64, usize)>,
}

/// The rows of one table, each as its values followed by the state of its optimizer.
#[derive(Debug, Clone)]
struct Arena {
    /// Which row, in order of first update, a key is.
    index: HashMap<u64, usize, FixedState>,
    rows: Vec<f32>,
    /// f32 of one row.
    stride: usize,
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
}

impl Store {
    /// An empty store of these tables; `seed` decides the first values of all rows.
    ///
    /// # Errors
    /// The tables are no tables of one model, or have numbers that cannot train: see [`TableError`].
    pub fn new(tables: Vec<TableSpec>, seed: u64) -> Result<Self, TableError> {
        let by_first_key =
            order(&tables)?.into_iter().map(|position| (tables[position].keys.start, position)).collect();
        let arenas = tables
            .iter()
            .map(|spec| Arena {
                index: HashMap::with_hasher(FixedState::default()),
                rows: Vec::new(),
                stride: spec.width + spec.optimizer.state_len(spec.width),
            })
            .collect();
        Ok(Self { seed, tables, arenas, by_first_key })
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
        let (spec, arena) = (&self.tables[position], &self.arenas[position]);
        match arena.index.get(&key) {
            Some(row) => {
                let start = row * arena.stride;
                values.copy_from_slice(&arena.rows[start..start + spec.width]);
            }
            None => spec.init.fill(self.seed, key, values),
        }
        Ok(())
    }

    /// Changes a row by a gradient, or by a sum of gradients that counts as one, as the optimizer of its
    /// table says.
    ///
    /// The gradient is taken as it is: one that is not finite makes the row so too.
    ///
    /// # Errors
    /// No table holds the key, or `gradient` is not as wide as the row. Nothing changed.
    pub fn update(&mut self, key: u64, gradient: &[f32]) -> Result<(), RowError> {
        let position = self.position_for(key, gradient.len())?;
        let (spec, arena) = (&self.tables[position], &mut self.arenas[position]);
        let count = arena.index.len();
        let start = match arena.index.entry(key) {
            Entry::Occupied(row) => row.get() * arena.stride,
            Entry::Vacant(vacant) => {
                vacant.insert(count);
                let start = arena.rows.len();
                arena.rows.resize(start + arena.stride, 0.0);
                spec.init.fill(self.seed, key, &mut arena.rows[start..start + spec.width]);
                start
            }
        };
        let (values, state) = arena.rows[start..start + arena.stride].split_at_mut(spec.width);
        spec.optimizer.apply(values, state, gradient);
        Ok(())
    }

    /// How many rows are kept: those that were updated at least once.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.arenas.iter().map(|arena| arena.index.len()).sum()
    }

    /// Bytes of memory that the rows and their index take, with what was allocated in advance.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let of = |arena: &Arena| arena.rows.capacity() * size_of::<f32>() + arena.index.allocation_size();
        self.arenas.iter().map(of).sum()
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
