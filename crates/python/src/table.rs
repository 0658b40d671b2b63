//! One table as the worker sees it.

use libra_lookup::{Accumulator, IdSpace, WorkingSet};

use crate::backend::Part;

/// Rows that the current step has looked up, and gradients that no step has taken.
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) space: IdSpace,
    pub(crate) width: usize,
    /// Key of the row 0.
    pub(crate) first_key: u64,
    pub(crate) set: WorkingSet,
    pub(crate) accumulator: Accumulator,
    /// The values of the set are those before a step that was pushed.
    pub(crate) is_spent: bool,
    /// The row of the padding id, where it is not 0.
    pub(crate) padding_row: Option<Vec<f32>>,
    pub(crate) counts: Counts,
}

/// Counts of a table since the start.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Counts {
    /// Ids that were looked up.
    pub(crate) ids: u64,
    /// Rows that were read for them.
    pub(crate) rows_pulled: u64,
    /// Rows with a gradient in pushes.
    pub(crate) rows_pushed: u64,
    /// Pushes.
    pub(crate) pushes: u64,
}

impl Table {
    pub(crate) fn new(name: String, space: IdSpace, width: usize, first_key: u64) -> Self {
        Self {
            name,
            space,
            width,
            first_key,
            set: WorkingSet::of_table(width, space),
            accumulator: Accumulator::new(width),
            is_spent: false,
            padding_row: None,
            counts: Counts::default(),
        }
    }

    /// Forgets values that a step has changed.
    pub(crate) fn begin_step(&mut self) {
        if self.is_spent {
            self.accumulator.renew(&mut self.set);
            self.is_spent = false;
        }
    }
    /// Returns `factor` times the gradients of all passes as part of a push. They stay.
    pub(crate) fn part(&mut self, table: usize, factor: f64) -> Part {
        let sums = self.accumulator.sums();
        let (mut keys, mut gradients) =
            (Vec::with_capacity(sums.ids().len()), Vec::with_capacity(sums.values().len()));
        sums.gather(factor, &mut keys, &mut gradients);
        keys.iter_mut().for_each(|key| *key += self.first_key);
        self.counts.rows_pushed += keys.len() as u64;
        self.counts.pushes += 1;
        Part { table, keys, gradients }
    }
}
