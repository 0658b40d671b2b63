//! Snapshots: the rows as they were at one moment, read while they go on changing.

use super::admission_filter::AdmissionFilter;
use super::marks::Snapshots;
use super::rows::BLOCK;
use super::table_rows::TableRows;
use super::watch::Watch;
use super::{RowError, Store};

/// With more rows copied, updates outrun the reader.
const COPIED_FIRST_MAX: usize = 1 << 16;

/// Rows that a reset removes at once: those in a file are read before if a snapshot is active.
const REMOVED_AT_ONCE: usize = 1 << 12;

/// Rows of one table, as they were when a snapshot began.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RowBlock {
    /// Position of the table in [`Store::tables`].
    pub table: usize,
    /// Keys of the rows, in no order.
    pub keys: Vec<u64>,
    /// Values of the rows, one row after the other.
    pub values: Vec<f32>,
    /// State of the rows, one row after the other, [`UpdateRule::state_len`](crate::UpdateRule::state_len) words each.
    pub state: Vec<f32>,
    /// Keys of rows that were removed since the last snapshot began. Some of them may have been made again, and are then
    /// among the rows of this block or a later one, never of an earlier one: first remove, then restore.
    pub removed: Vec<u64>,
    /// A piece of what the admission of the table had counted, for [`Store::restore_admission`]: opaque, and the same on any
    /// machine. Together they are all of it, also in a snapshot of changes, for a store that has counted nothing.
    pub admission: Vec<u8>,
}

/// Rows that a snapshot has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// All.
    Full,
    /// Those that were made, changed or removed since the last snapshot began that was not cancelled, or since
    /// [`Store::track_changes`] if that was later. It may have some that did not change.
    Changed,
}

/// Progress of the reader of a snapshot.
#[derive(Debug, Clone, Default)]
pub(super) struct Reading {
    /// Steps of each table when it began.
    steps: Vec<u64>,
    /// The table whose removed keys come next.
    removed_of: usize,
    /// The table whose rows come next.
    rows_of: usize,
    /// The table whose admission comes next.
    admission_of: usize,
}

/// # Snapshots
///
/// A snapshot takes the time to begin that it takes to look at each table, however many rows there are, and is then read
/// in pieces, between updates. A row that an update is the first to change after the beginning, and that was not read by
/// then, is copied before; so reading slowly costs memory, at most that of all rows once more.
///
/// ```
/// use libra_store::{Extent, Init, Optimizer, Store, TableSpec};
///
/// # let rule = Optimizer::Sgd { rate: 0.5 }.into();
/// # let table = || TableSpec { name: "item".into(), keys: 0..100, width: 1, rule, init: Init::Zero };
/// let mut store = Store::new(vec![table()], 42)?;
/// store.update_many(&[1, 2, 3], &[-2.0; 3])?;
///
/// store.begin_snapshot(Extent::Full);
/// store.update(2, &[-2.0])?;
/// let mut copy = Store::new(vec![table()], 42)?;
/// while let Some(block) = store.read_snapshot(1000) {
///     copy.restore(block.table, &block.keys, &block.values, &block.state)?;
/// }
/// copy.set_steps(0, store.snapshot_steps(0));
///
/// let (mut now, mut then) = ([0.0; 3], [0.0; 3]);
/// store.read_many(&[1, 2, 3], &mut now)?;
/// copy.read_many(&[1, 2, 3], &mut then)?;
/// assert_eq!((now, then), ([1.0, 2.0, 1.0], [1.0; 3]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl Store {
    /// Remembers from now on which rows change, for [`Extent::Changed`]. It costs a bit for each row and three while a
    /// snapshot is active, 8 bytes for each removal since the last snapshot, and some of the time of updates.
    ///
    /// # Panics
    /// A snapshot is active: what has changed since it began would be forgotten.
    pub fn track_changes(&mut self) {
        assert!(self.snapshots.active.is_none(), "a snapshot is active");
        self.snapshots.tracks = true;
        for rows in &mut self.rows {
            rows.watch(self.snapshots);
        }
        self.tell_admission_filters();
    }

    /// Begins a snapshot of all tables as they are now. No row is looked at: this takes microseconds.
    ///
    /// Until the snapshot is over, runs of neighbouring keys are not put where they are found fastest; the batches after it
    /// make up for that.
    ///
    /// # Panics
    /// Another snapshot is active; or only changes are asked for, and [`Store::track_changes`] was not called.
    pub fn begin_snapshot(&mut self, extent: Extent) {
        assert!(self.snapshots.active.is_none(), "a snapshot is active");
        assert!(self.snapshots.tracks || extent == Extent::Full, "changes are not tracked");
        self.snapshots.begun += 1;
        self.snapshots.active = Some(extent);
        for rows in &mut self.rows {
            rows.begin(self.snapshots);
        }
        self.tell_admission_filters();
        let steps = self.steps.iter().map(|steps| steps.count).collect();
        self.reading = Reading { steps, ..Reading::default() };
    }

    /// The next rows of the active snapshot, at most so many, of one table; each row comes once. First come removed keys,
    /// at most so many at once, then rows, by and large in the order in which they lie in memory, then admissions.
    ///
    /// A block may be empty: then many rows were looked at, and none of them is in the snapshot. `None`: all were read, and
    /// the snapshot is over, or none was active.
    ///
    /// # Panics
    /// `rows_max` is 0.
    pub fn read_snapshot(&mut self, rows_max: usize) -> Option<RowBlock> {
        assert!(rows_max > 0, "no rows at all would never be the last ones");
        let extent = self.snapshots.active?;
        let removed_of = &mut self.reading.removed_of;
        while extent == Extent::Changed && *removed_of < self.rows.len() {
            let table = *removed_of;
            let removed = watch(&mut self.rows[table]).read_removed(rows_max).to_vec();
            if !removed.is_empty() {
                return Some(RowBlock { table, removed, ..RowBlock::default() });
            }
            *removed_of += 1;
        }
        // Rows that lie twice in memory go first; but not where updates outrun the reader: there the marks of rows cost more, and
        // they are done with when all rows were looked at.
        if self.rows_copied() <= COPIED_FIRST_MAX
            && let Some(block) = self.read_copied(rows_max, true)
        {
            return Some(block);
        }
        let rows_of = &mut self.reading.rows_of;
        while *rows_of < self.rows.len() {
            let mut block = RowBlock { table: *rows_of, ..RowBlock::default() };
            let width = self.tables[*rows_of].width;
            let is_last = self.rows[*rows_of].walk(rows_max, self.file.as_deref_mut(), |key, words| {
                block.push(key, words, width);
            });
            *rows_of += usize::from(is_last);
            if !block.keys.is_empty() || !is_last {
                return Some(block);
            }
        }
        if let Some(block) = self.read_copied(rows_max, false) {
            return Some(block);
        }
        while self.reading.admission_of < self.admission_filters.len() {
            let table = self.reading.admission_of;
            if let Some(admission) =
                self.admission_filters[table].counts_mut().and_then(|counts| counts.read(rows_max))
            {
                return Some(RowBlock { table, admission, ..RowBlock::default() });
            }
            self.reading.admission_of += 1;
        }
        self.snapshots.finished = self.snapshots.begun;
        self.end(Watch::finish);
        None
    }

    /// Rows that were copied, of a table that has many of them or any.
    fn read_copied(&mut self, rows_max: usize, many: bool) -> Option<RowBlock> {
        let has = |rows: &mut TableRows| {
            let copied = watch(rows).copied();
            if many { copied.has_burst() } else { copied.len() > 0 }
        };
        let table = self.rows.iter_mut().position(has)?;
        let width = self.tables[table].width;
        let mut block = RowBlock { table, ..RowBlock::default() };
        while block.keys.len() < rows_max
            && let Some(burst) = watch(&mut self.rows[table]).take_copied(rows_max - block.keys.len())
        {
            let words = burst.words.len() / burst.keys.len();
            for (key, words) in burst.keys.iter().zip(burst.words.chunks_exact(words)) {
                block.push(*key, words, width);
            }
        }
        Some(block)
    }

    /// Returns the number of rows that the active snapshot has had to copy because updates came first, and that were not read yet: the memory
    /// cost of a slow reader.
    #[must_use]
    pub fn rows_copied(&self) -> usize {
        self.rows.iter().filter_map(TableRows::watched).map(|watch| watch.copied().len()).sum()
    }

    /// Returns true if a snapshot is active: one was begun, and neither read to its end nor cancelled.
    #[must_use]
    pub fn snapshot_is_active(&self) -> bool {
        self.snapshots.active.is_some()
    }

    /// Returns [`Store::steps`] of a table as of the beginning of the last snapshot.
    ///
    /// # Panics
    /// There is no such table, or there never was a snapshot.
    #[must_use]
    pub fn snapshot_steps(&self, table: usize) -> u64 {
        self.reading.steps[table]
    }

    /// Gives up the active snapshot, if there is one. What has changed before it began counts as changed again, as if it
    /// had not begun.
    pub fn cancel_snapshot(&mut self) {
        if self.snapshots.active.is_some() {
            self.end(Watch::cancel);
        }
    }

    fn end(&mut self, how: fn(&mut Watch, Snapshots)) {
        self.snapshots.active = None;
        for rows in &mut self.rows {
            how(watch(rows), self.snapshots);
            if !self.snapshots.tracks {
                rows.forget();
            }
        }
        self.tell_admission_filters();
    }

    fn tell_admission_filters(&mut self) {
        for counts in self.admission_filters.iter_mut().filter_map(AdmissionFilter::counts_mut) {
            counts.enter(self.snapshots);
        }
    }

    /// Adds a piece of what the admission of a table has counted, as [`RowBlock::admission`] gave it; pieces of several shards, too. It
    /// counts as changed.
    ///
    /// # Errors
    /// The table has no such admission, or is not the one that the piece is of. Nothing changed.
    ///
    /// # Panics
    /// There is no such table.
    pub fn restore_admission(&mut self, table: usize, admission: &[u8]) -> Result<(), RowError> {
        if admission.is_empty() {
            return Ok(());
        }
        let counts = self.admission_filters[table].counts_mut().filter(|counts| counts.accepts(admission));
        counts.ok_or(RowError::WrongAdmission { table })?.restore(admission);
        Ok(())
    }

    /// Sets many rows of one table, as an [`Store::insert`] for each in this order does, but faster; most of all in the order
    /// of [`Store::read_snapshot`] and a few thousand at once. Values lie one row after the other, and so does state.
    ///
    /// Rows that are restored count as changed. So [`Store::track_changes`] goes after what loads a checkpoint.
    ///
    /// # Errors
    /// The table does not hold one of the keys, or values or state are not as long as all rows together. Nothing changed.
    ///
    /// # Panics
    /// There is no such table.
    pub fn restore(
        &mut self,
        table: usize,
        keys: &[u64],
        values: &[f32],
        state: &[f32],
    ) -> Result<(), RowError> {
        let spec = &self.tables[table];
        if let Some(key) = keys.iter().find(|key| !spec.keys.contains(key)) {
            return Err(RowError::NotOfTable { key: *key });
        }
        let state_len = spec.rule.state_len(spec.width);
        if values.len() != keys.len() * spec.width {
            return Err(RowError::WrongLength { width: keys.len() * spec.width, found: values.len() });
        }
        if state.len() != keys.len() * state_len {
            return Err(RowError::WrongStates { words: keys.len() * state_len, found: state.len() });
        }
        if !self.bring(table, keys) {
            return Ok(());
        }
        let (spec, rows) = (&self.tables[table], &mut self.rows[table]);
        for (at, key) in keys.iter().enumerate() {
            if at % BLOCK == 0 {
                rows.expect(&keys[at..]);
            }
            let (place, _) = rows.find_or_insert(*key, |_| ());
            let (row_values, row_state) = rows.words_mut(place).split_at_mut(spec.width);
            row_values.copy_from_slice(bytemuck::cast_slice(&values[at * spec.width..(at + 1) * spec.width]));
            row_state.copy_from_slice(bytemuck::cast_slice(&state[at * state_len..(at + 1) * state_len]));
        }
        self.relieve();
        Ok(())
    }
}

impl Store {
    /// As [`Store::restore`], where no `state` at all is that of rows that never had a gradient.
    ///
    /// # Errors
    /// As [`Store::restore`].
    ///
    /// # Panics
    /// There is no such table.
    pub fn assign(
        &mut self,
        table: usize,
        keys: &[u64],
        values: &[f32],
        state: &[f32],
    ) -> Result<(), RowError> {
        if !state.is_empty() {
            return self.restore(table, keys, values, state);
        }
        let spec = &self.tables[table];
        let none = vec![0.0; keys.len() * spec.rule.state_len(spec.width)];
        self.restore(table, keys, values, &none)
    }

    /// Removes all rows of a table, and sets how many batches have touched it. Returns the keys of the rows that were kept.
    ///
    /// # Panics
    /// There is no such table.
    pub fn reset(&mut self, table: usize, steps: u64) -> Vec<u64> {
        let keys: Vec<u64> = self.rows[table].keys().collect();
        for keys in keys.chunks(REMOVED_AT_ONCE) {
            if !self.rows[table].bring_for_snapshot(&mut self.file, keys) {
                break;
            }
            for key in keys {
                self.rows[table].remove(*key);
            }
        }
        self.set_steps(table, steps);
        keys
    }
}

impl RowBlock {
    #[inline]
    fn push(&mut self, key: u64, words: &[u32], width: usize) {
        let (values, state) = words.split_at(width);
        self.keys.push(key);
        self.values.extend_from_slice(bytemuck::cast_slice(values));
        self.state.extend_from_slice(bytemuck::cast_slice(state));
    }
}

fn watch(rows: &mut TableRows) -> &mut Watch {
    rows.watched_mut().expect("rows are watched while a snapshot is active")
}

#[cfg(test)]
mod tests;
