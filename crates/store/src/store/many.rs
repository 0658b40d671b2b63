//! Many rows at once: several times as fast as one after the other, most of all for keys of one table in a row.

use std::ops::Range;

use pulp::{Arch, NullaryFnOnce};

use super::batch::Batch;
use super::blocks::Blocks;
use super::rows::BLOCK;
use super::table_rows::RowPlace;
use super::{RowError, Store};

/// Keys of rows with the tables that they are of: found once for all that is done with these rows, in memory that is used again.
///
/// ```
/// use libra_store::{Init, KeyBatch, Optimizer, Store, TableSpec};
///
/// # let rule = Optimizer::Sgd { rate: 0.5 }.into();
/// # let item = TableSpec { name: "item".into(), keys: 0..1_000, width: 2, rule, init: Init::Zero };
/// let mut store = Store::new(vec![item], 42)?;
/// let mut batch = KeyBatch::default();
/// batch.fill(&store, |keys| keys.extend([3, 7]))?;
/// let mut values = vec![1.0, -2.0, 0.0, 4.0];
/// assert_eq!(batch.values(), values.len());
///
/// store.update_and_read_batch(&batch, &mut values)?;
/// assert_eq!(values, [-0.5, 1.0, 0.0, -2.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct KeyBatch {
    keys: Vec<u64>,
    runs: Vec<Run>,
    values: usize,
}

impl KeyBatch {
    /// Takes the keys that `put` adds to an empty vector, in any order and more than once, for use with this store.
    ///
    /// # Errors
    /// No table holds one of the keys. The batch is empty then.
    pub fn fill(&mut self, store: &Store, put: impl FnOnce(&mut Vec<u64>)) -> Result<(), RowError> {
        self.clear();
        put(&mut self.keys);
        let found = store.runs(&self.keys, &mut self.runs);
        match found {
            Ok(values) => self.values = values,
            Err(_) => self.clear(),
        }
        found.map(|_| ())
    }

    fn clear(&mut self) {
        self.keys.clear();
        self.runs.clear();
        self.values = 0;
    }

    /// The keys.
    #[must_use]
    pub fn keys(&self) -> &[u64] {
        &self.keys
    }

    /// Number of values that their rows have together.
    #[must_use]
    pub fn values(&self) -> usize {
        self.values
    }

    fn check(&self, found: usize) -> Result<(), RowError> {
        let width = self.values;
        if found == width { Ok(()) } else { Err(RowError::WrongLength { width, found }) }
    }
}

/// Keys of one table, one after the other in a batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    /// That of the table in [`Store::tables`].
    pub(super) position: usize,
    /// Number of keys.
    pub(super) keys: usize,
}

/// Gradients of rows, one behind the other. Those that can be written to are replaced by the new values of their rows.
trait Gradients: Sized {
    /// Splits them after so many values.
    fn split(self, values: usize) -> (Self, Self);
    /// Those of each row of this width.
    fn rows(self, width: usize) -> impl Iterator<Item = Self>;
    fn gradient(&self) -> &[f32];
    /// Has the new values of its row written over a gradient.
    fn replace(self, put: impl FnOnce(&mut [f32]));
}

impl Gradients for &[f32] {
    #[inline]
    fn split(self, values: usize) -> (Self, Self) {
        self.split_at(values)
    }

    #[inline]
    fn rows(self, width: usize) -> impl Iterator<Item = Self> {
        self.chunks_exact(width)
    }

    #[inline]
    fn gradient(&self) -> &[f32] {
        self
    }

    #[inline]
    fn replace(self, _put: impl FnOnce(&mut [f32])) {}
}

impl Gradients for &mut [f32] {
    #[inline]
    fn split(self, values: usize) -> (Self, Self) {
        self.split_at_mut(values)
    }

    #[inline]
    fn rows(self, width: usize) -> impl Iterator<Item = Self> {
        self.chunks_exact_mut(width)
    }

    #[inline]
    fn gradient(&self) -> &[f32] {
        self
    }

    #[inline]
    fn replace(self, put: impl FnOnce(&mut [f32])) {
        put(self);
    }
}

/// [`Store::update_runs`] in the widest instructions that the processor has. None of them rounds otherwise than those of all processors.
struct UpdateRuns<'a, G> {
    store: &'a mut Store,
    runs: &'a [Run],
    keys: &'a [u64],
    gradients: G,
}

impl<G: Gradients> NullaryFnOnce for UpdateRuns<'_, G> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        self.store.update_runs_with(self.runs, self.keys, self.gradients);
    }
}

impl Store {
    /// Copies the values of many rows, one row after the other, each as wide as its table; keys may come in
    /// any order and more than once. It is several times as fast as a [`Store::read`] for each, most of all
    /// for keys of one table in a row.
    ///
    /// # Errors
    /// No table holds one of the keys, or `values` is not as long as all rows together. Nothing was copied.
    pub fn read_many(&mut self, keys: &[u64], values: &mut [f32]) -> Result<(), RowError> {
        self.read_runs(&self.runs_of(keys, values.len())?, keys, values);
        Ok(())
    }

    /// As [`Store::read_many`], of keys that were looked at before.
    ///
    /// # Errors
    /// `values` is not as long as all rows together. Nothing was copied.
    pub fn read_batch(&mut self, batch: &KeyBatch, values: &mut [f32]) -> Result<(), RowError> {
        batch.check(values.len())?;
        self.read_runs(&batch.runs, &batch.keys, values);
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
        self.update_runs(&self.runs_of(keys, gradients.len())?, keys, gradients);
        Ok(())
    }

    /// As [`Store::update_many`], of keys that were looked at before.
    ///
    /// # Errors
    /// `gradients` is not as long as all rows together. Nothing changed.
    pub fn update_batch(&mut self, batch: &KeyBatch, gradients: &[f32]) -> Result<(), RowError> {
        batch.check(gradients.len())?;
        self.update_runs(&batch.runs, &batch.keys, gradients);
        Ok(())
    }

    /// As [`Store::update_batch`], and writes the new values of each row over its gradient: what [`Store::read_batch`] would read then, but each row
    /// is looked up once. A key that occurs twice has in each place the values after the gradient there.
    ///
    /// # Errors
    /// `gradients` is not as long as all rows together. Nothing changed.
    pub fn update_and_read_batch(&mut self, batch: &KeyBatch, gradients: &mut [f32]) -> Result<(), RowError> {
        batch.check(gradients.len())?;
        self.update_runs(&batch.runs, &batch.keys, gradients);
        Ok(())
    }

    fn read_runs(&mut self, runs: &[Run], mut keys: &[u64], mut values: &mut [f32]) {
        if !self.bring_runs(runs, keys) {
            return;
        }
        for Run { position, keys: run } in runs {
            let (spec, rows) = (&self.tables[*position], &mut self.rows[*position]);
            let of_run;
            (of_run, keys) = keys.split_at(*run);
            let values_of_run;
            (values_of_run, values) = values.split_at_mut(run * spec.width);
            let mut blocks = Blocks::new(of_run, rows);
            for values in values_of_run.chunks_mut(BLOCK * spec.width) {
                let (keys, found) = blocks.next(rows);
                rows.mark_used(&found[..keys.len()]);
                for ((key, place), values) in keys.iter().zip(found).zip(values.chunks_exact_mut(spec.width))
                {
                    if *place == RowPlace::Nowhere {
                        spec.init.fill(self.seed, *key, values);
                    } else {
                        copy_values(bytemuck::cast_slice(&rows.words(*place)[..spec.width]), values);
                    }
                }
            }
        }
        self.relieve();
    }

    #[inline(never)]
    fn update_runs<G: Gradients>(&mut self, runs: &[Run], keys: &[u64], gradients: G) {
        if !self.bring_runs(runs, keys) {
            return;
        }
        Arch::new().dispatch(UpdateRuns { store: self, runs, keys, gradients });
        self.relieve();
    }

    #[inline(always)]
    fn update_runs_with<G: Gradients>(&mut self, runs: &[Run], mut keys: &[u64], mut gradients: G) {
        self.batches += 1;
        for Run { position, keys: run } in runs {
            let (spec, step) = (&self.tables[*position], self.steps[*position].before(self.batches));
            let update = spec.rule.prepare(step);
            let corrections = &mut self.corrections[*position];
            corrections.prepare(&update, step + 1);
            let batch = Batch::new(spec, self.seed, step, &update, corrections.by_steps());
            let (rows, admission_filter) =
                (&mut self.rows[*position], &mut self.admission_filters[*position]);
            rows.settle();
            let of_run;
            (of_run, keys) = keys.split_at(*run);
            let mut blocks = Blocks::new(of_run, rows);
            for _ in 0..run.div_ceil(BLOCK) {
                let (keys, found) = blocks.next(rows);
                rows.touch_block(keys, found);
                rows.mark_used(&found[..keys.len()]);
                let of_block;
                (of_block, gradients) = gradients.split(keys.len() * spec.width);
                let (moves, mut moved) = (rows.moves(), false);
                for ((key, place), gradient) in keys.iter().zip(found).zip(of_block.rows(spec.width)) {
                    // Its key may have come before, and then a row was made that may have moved others.
                    if moved || *place == RowPlace::Nowhere {
                        match batch.update_or_make(rows, admission_filter, *key, gradient.gradient()) {
                            Some(values) => gradient.replace(|answer| copy_values(values, answer)),
                            None => gradient.replace(|answer| batch.first_values(*key, answer)),
                        }
                        moved = rows.moves() != moves;
                    } else {
                        let values = batch.update(rows.words_mut(*place), gradient.gradient());
                        gradient.replace(|answer| copy_values(values, answer));
                    }
                }
            }
        }
    }

    /// The tables that keys are of, if their rows have so many values together.
    fn runs_of(&self, keys: &[u64], found: usize) -> Result<Vec<Run>, RowError> {
        let mut runs = Vec::new();
        let width = self.runs(keys, &mut runs)?;
        if found != width {
            return Err(RowError::WrongLength { width, found });
        }
        Ok(runs)
    }

    /// Lists the tables that keys are of; returns how many values their rows have together.
    pub(super) fn runs(&self, keys: &[u64], runs: &mut Vec<Run>) -> Result<usize, RowError> {
        let (mut rest, mut values) = (keys, 0);
        while let Some(key) = rest.first() {
            let position = self.position_of(*key).ok_or(RowError::UnknownKey { key: *key })?;
            let spec = &self.tables[position];
            let keys = run_within(&spec.keys, rest);
            runs.push(Run { position, keys });
            values += keys * spec.width;
            rest = &rest[keys..];
        }
        Ok(values)
    }
}

/// Returns the number of keys, from the first one on, that are of a table.
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
pub(super) fn copy_values(from: &[f32], values: &mut [f32]) {
    // For one value, the call that copies many takes longer than the copy.
    if let ([value], [from]) = (&mut *values, from) {
        *value = *from;
    } else {
        values.copy_from_slice(from);
    }
}

#[cfg(test)]
mod tests;
