//! Gradients of one table from a backward pass to the step of the optimizer.

use thiserror::Error;

use crate::sums::{NotFinite, RowSums};
use crate::working_set::{Lookup, WorkingSet};

/// A backward pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pass {
    /// Number of the graph task, as the engine of the front end counts them.
    pub task: i64,
    /// The thread that runs it.
    pub thread: u64,
}

/// A commit of a pass that cannot be trusted.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum CommitError {
    /// Backward passes of two threads overlap. The engine does not say which of them wrote the gradient of the handle.
    #[error("two threads run backward passes over this table at once")]
    Threads,
}

/// Sums of gradients by row, as the gradient of a parameter accumulates.
///
/// The front end shows the rows to its own tools as one number, the *norm* of all sums, in the gradient of a handle. What these tools do to
/// the handle is done to the rows: [`settle`](Self::settle) compares the handle with the norm that was written there.
///
/// Sums of a pass are *pending* until it is [committed](Self::commit), so a pass that ends before has changed nothing.
#[derive(Debug)]
pub struct Accumulator {
    pending: Vec<(Pass, RowSums)>,
    /// Of passes that are committed.
    sums: RowSums,
    /// True if the slots of `sums` are of an earlier generation.
    is_old: bool,
    norm: f32,
    /// True if all sums are known to be finite.
    is_finite: bool,
    /// Memory of finished passes.
    spare: Vec<RowSums>,
    /// Rows without a gradient, ascending.
    frozen: Vec<u64>,
    width: usize,
}

impl Accumulator {
    /// Returns no gradients, of rows of so many values.
    pub fn new(width: usize) -> Self {
        Self {
            pending: Vec::new(),
            sums: RowSums::new(width),
            is_old: false,
            norm: 0.0,
            is_finite: true,
            spare: Vec::new(),
            frozen: Vec::new(),
            width,
        }
    }

    /// Sets the rows that have no gradient: what passes add to them is not committed, and is not in the norm.
    pub fn freeze(&mut self, mut rows: Vec<u64>) {
        rows.sort_unstable();
        self.frozen = rows;
    }

    /// Forgets the sums of frozen rows.
    pub fn leave_frozen(&self, sums: &mut RowSums) {
        if !self.frozen.is_empty() {
            sums.retain(|row| self.frozen.binary_search(&row).is_err());
        }
    }

    /// Adds gradients of a look-up in a pass: `add` gets its slots in the current generation of `set`, the row numbers by slot, and the sums of
    /// the pass.
    pub fn add(
        &mut self,
        pass: Pass,
        set: &mut WorkingSet,
        lookup: &Lookup,
        add: impl FnOnce(&[u32], &[u64], &mut RowSums),
    ) {
        let index = match self.pending.iter().position(|(pending, _)| *pending == pass) {
            Some(index) => index,
            None => {
                let sums = self.spare.pop().unwrap_or_else(|| RowSums::new(self.width));
                self.pending.push((pass, sums));
                self.pending.len() - 1
            }
        };
        let sums = &mut self.pending[index].1;
        if set.is_current(lookup) {
            add(lookup.slots(), set.ids(), sums);
        } else {
            let translated = set.translate(lookup);
            add(translated.slots(), set.ids(), sums);
        }
    }

    /// Commits the pending sums of a pass, whose gradient of the handle is `handle`; returns the norm to write there.
    ///
    /// # Errors
    /// Another thread has a pass under way. Nothing of either is committed.
    pub fn commit(&mut self, pass: Pass, handle: f32, set: &mut WorkingSet) -> Result<f32, CommitError> {
        if self.pending.iter().any(|(pending, _)| pending.thread != pass.thread) {
            self.drop_pending();
            return Err(CommitError::Threads);
        }
        self.settle(handle);
        if let Some(index) = self.pending.iter().position(|(pending, _)| pending.task == pass.task) {
            let (_, mut of_pass) = self.pending.swap_remove(index);
            self.leave_frozen(&mut of_pass);
            if self.sums.is_empty() {
                std::mem::swap(&mut self.sums, &mut of_pass);
            } else {
                if self.is_old {
                    self.sums.rebase(set);
                }
                self.sums.merge(&of_pass);
            }
            self.is_old = false;
            of_pass.clear();
            self.spare.push(of_pass);
        }
        let norm = self.sums.norm();
        // No square of a finite sum is too large for it.
        self.is_finite = norm.is_finite();
        self.norm = narrow(norm);
        Ok(self.norm)
    }

    /// Does to the rows what was done to the gradient of the handle: 0 clears them, and a factor multiplies them.
    pub fn settle(&mut self, handle: f32) {
        // 0 first: after an infinite norm, the factor would be 0 / inf or not a number.
        if handle == 0.0 {
            self.sums.clear();
            self.is_old = false;
            self.is_finite = true;
        } else if handle.to_bits() != self.norm.to_bits() && self.norm != 0.0 {
            self.sums.scale(f64::from(handle) / f64::from(self.norm));
            self.is_finite = false;
        }
        self.norm = handle;
    }

    /// Sets the number that the gradient of the handle is compared with, where the front end has written another one than the norm.
    pub fn remember(&mut self, handle: f32) {
        self.norm = handle;
    }

    /// Returns the committed sums.
    pub fn sums(&self) -> &RowSums {
        &self.sums
    }

    /// Returns true if a pass is pending: one that ended before its commit, or whose commit the engine never asked for.
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Checks that all committed sums are finite.
    ///
    /// # Errors
    /// The first that is not.
    pub fn check_finite(&self) -> Result<(), NotFinite> {
        if self.is_finite { Ok(()) } else { self.sums.check_finite() }
    }

    /// Forgets passes that are not committed.
    pub fn drop_pending(&mut self) {
        for (_, mut sums) in self.pending.drain(..) {
            sums.clear();
            self.spare.push(sums);
        }
    }

    /// Prepares for the next generation of the working set. Committed sums stay, as the gradient of a parameter does; passes under way are
    /// moved.
    pub fn renew(&mut self, set: &mut WorkingSet) {
        set.renew();
        self.is_old = true;
        for (_, sums) in &mut self.pending {
            sums.rebase(set);
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the gradient of a handle is an f32, infinite where the norm is too large for it"
)]
fn narrow(value: f64) -> f32 {
    value as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{IdSpace, Rows, add_rows};

    const SPACE: IdSpace = IdSpace::Bounded { rows: 100 };

    fn pass(task: i64) -> Pass {
        Pass { task, thread: 1 }
    }

    fn add(accumulator: &mut Accumulator, set: &mut WorkingSet, pass: Pass, ids: &[i64], gradient: &[f32]) {
        let lookup = set.assign(ids, SPACE, None).unwrap();
        accumulator.add(pass, set, &lookup, |slots, ids, sums| {
            add_rows(slots, Rows::new(gradient, 1), None, ids, sums);
        });
    }

    #[test]
    fn gradients_accumulate_until_the_handle_is_cleared() {
        let (mut set, mut accumulator) = (WorkingSet::new(1), Accumulator::new(1));
        add(&mut accumulator, &mut set, pass(0), &[7, 8], &[6.0, 8.0]);
        assert_eq!(accumulator.commit(pass(0), 0.0, &mut set), Ok(10.0));
        add(&mut accumulator, &mut set, pass(1), &[8, 7], &[8.0, 2.0]);
        // Clipped to half in between, and without a step.
        assert_eq!(accumulator.commit(pass(1), 5.0, &mut set), Ok(13.0));
        assert_eq!(accumulator.sums().values(), [5.0, 12.0]);
        accumulator.renew(&mut set);
        add(&mut accumulator, &mut set, pass(2), &[9, 7], &[1.0, 0.5]);
        accumulator.commit(pass(2), 13.0, &mut set).unwrap();
        assert_eq!(accumulator.sums().ids(), [7, 8, 9]);
        assert_eq!(accumulator.sums().values(), [5.5, 12.0, 1.0]);
        add(&mut accumulator, &mut set, pass(3), &[7], &[1.0]);
        assert_eq!(accumulator.commit(pass(3), 0.0, &mut set), Ok(1.0));
        assert_eq!(accumulator.sums().ids(), [7]);
    }

    #[test]
    fn a_pass_that_ends_early_changes_nothing() {
        let (mut set, mut accumulator) = (WorkingSet::new(1), Accumulator::new(1));
        add(&mut accumulator, &mut set, pass(0), &[7], &[3.0]);
        add(&mut accumulator, &mut set, pass(1), &[7], &[1.0]);
        assert_eq!(accumulator.commit(pass(1), 0.0, &mut set), Ok(1.0));
        assert!(accumulator.has_pending());
        accumulator.drop_pending();
        assert_eq!(accumulator.sums().values(), [1.0]);
    }

    #[test]
    fn frozen_rows_have_no_gradient() {
        let (mut set, mut accumulator) = (WorkingSet::new(1), Accumulator::new(1));
        accumulator.freeze(vec![9, 7]);
        add(&mut accumulator, &mut set, pass(0), &[7, 8, 9], &[f32::NAN, 2.0, 3.0]);
        assert_eq!(accumulator.commit(pass(0), 0.0, &mut set), Ok(2.0));
        assert_eq!((accumulator.sums().ids(), accumulator.check_finite()), (&[8][..], Ok(())));
        add(&mut accumulator, &mut set, pass(1), &[9], &[3.0]);
        assert_eq!(accumulator.commit(pass(1), 0.0, &mut set), Ok(0.0));
        assert!(accumulator.sums().is_empty());
    }

    #[test]
    fn an_infinite_norm_is_cleared_by_zero() {
        let (mut set, mut accumulator) = (WorkingSet::new(1), Accumulator::new(1));
        add(&mut accumulator, &mut set, pass(0), &[7], &[f32::INFINITY]);
        assert_eq!(accumulator.commit(pass(0), 0.0, &mut set), Ok(f32::INFINITY));
        assert!(accumulator.check_finite().is_err());
        add(&mut accumulator, &mut set, pass(1), &[7], &[2.0]);
        assert_eq!(accumulator.commit(pass(1), 0.0, &mut set), Ok(2.0));
        assert_eq!(accumulator.sums().values(), [2.0]);
    }

    #[test]
    fn overlapping_threads_are_refused() {
        let (mut set, mut accumulator) = (WorkingSet::new(1), Accumulator::new(1));
        add(&mut accumulator, &mut set, pass(0), &[7], &[3.0]);
        let other = Pass { task: 1, thread: 2 };
        add(&mut accumulator, &mut set, other, &[7], &[3.0]);
        assert_eq!(accumulator.commit(other, 0.0, &mut set), Err(CommitError::Threads));
        assert!(accumulator.sums().is_empty() && !accumulator.has_pending());
    }

    #[test]
    fn a_factor_is_exact_where_norms_are_tiny() {
        let (mut set, mut accumulator) = (WorkingSet::new(1), Accumulator::new(1));
        let tiny = 1e-43_f32;
        add(&mut accumulator, &mut set, pass(0), &[7], &[tiny]);
        let norm = accumulator.commit(pass(0), 0.0, &mut set).unwrap();
        accumulator.settle(norm);
        assert_eq!(accumulator.sums().values(), [tiny]);
    }
}
