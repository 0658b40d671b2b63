//! Effect of one batch on the rows of one table.

use super::admission_filter::AdmissionFilter;
use super::table_rows::{RowPlace, TableRows};
use crate::row_lifecycle::Trace;
use crate::{TableSpec, Update};

/// Effect of one batch on each of its rows of one table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Batch<'a> {
    spec: &'a TableSpec,
    seed: u64,
    /// Number of batches that have touched the table before.
    step: u64,
    /// Not a copy, for which an update would wait until the row before is stored.
    update: &'a Update,
    corrections: &'a [[f32; 2]],
    trace: Trace,
}

impl<'a> Batch<'a> {
    #[inline(always)]
    pub(super) fn new(
        spec: &'a TableSpec,
        seed: u64,
        step: u64,
        update: &'a Update,
        corrections: &'a [[f32; 2]],
    ) -> Self {
        Self { spec, seed, step, update, corrections, trace: spec.rule.growth.trace(step + 1) }
    }

    /// Updates a row, wherever it is; or makes it, if the admission filter lets it. Returns its new values if there is a row then.
    #[inline(never)]
    pub(super) fn update_or_make<'r>(
        &self,
        rows: &'r mut TableRows,
        admission_filter: &mut AdmissionFilter,
        key: u64,
        gradient: &[f32],
    ) -> Option<&'r [f32]> {
        if admission_filter.is_closed()
            && rows.find(key) == RowPlace::Nowhere
            && !admission_filter.admits(key, self.step)
        {
            return None;
        }
        let (place, _) = rows.find_or_insert(key, |words| {
            self.first_values(key, bytemuck::cast_slice_mut(&mut words[..self.spec.width]));
        });
        Some(self.update(rows.words_mut(place), gradient))
    }

    /// Puts the values of a row that is not kept.
    pub(super) fn first_values(&self, key: u64, values: &mut [f32]) {
        self.spec.init.fill(self.seed, key, values);
    }

    /// Updates a row, and returns its new values.
    #[inline(always)]
    pub(super) fn update<'w>(&self, words: &'w mut [u32], gradient: &[f32]) -> &'w [f32] {
        let words = if self.trace.words() == 0 { words } else { self.leave_trace(words) };
        let words: &mut [f32] = bytemuck::cast_slice_mut(words);
        let (values, state) = words.split_at_mut(self.spec.width);
        self.update.apply_with(self.corrections, values, state, gradient);
        values
    }

    /// Those words that are not of the trace.
    #[inline(never)]
    fn leave_trace<'w>(&self, words: &'w mut [u32]) -> &'w mut [u32] {
        let (words, of_growth) = words.split_at_mut(words.len() - self.trace.words());
        self.trace.leave(of_growth);
        words
    }
}
