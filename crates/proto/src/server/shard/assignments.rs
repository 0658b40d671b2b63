//! Rows that workers set, and tables that they reset.

use libra_dataplane::mutants::{Mutant, is_enabled};
use libra_store::{TableSpec, first_non_finite};

use super::{ProtocolViolation, Shard};
use crate::message::{Assign, Reset};
use crate::role::Link;
use crate::server::journal::RecordOf;

impl Shard {
    /// Sets rows once, as a push is applied once (rule C12).
    pub(in crate::server) fn assign(
        &mut self,
        link: Link,
        worker: u16,
        assign: Assign,
    ) -> Result<(), ProtocolViolation> {
        let keys = self.check_assign(&assign)?;
        if let Some(bad) = first_non_finite(&assign.values.0) {
            self.refuse_push(link, worker, assign.number, &keys, (bad, assign.values.0[bad]));
            return Ok(());
        }
        if assign.number > self.newest_push(worker) || is_enabled(Mutant::AssignAppliedTwice) {
            if !is_enabled(Mutant::AssignNotLogged) {
                self.journal.write(&RecordOf::Assign { worker, assign: &assign });
            }
            self.set_rows(worker, &assign, &keys);
        } else {
            self.statistics.duplicates += 1;
        }
        let changes = self.notify_owners(&keys);
        self.answer_when_kept(link, assign.number, None, changes);
        Ok(())
    }

    /// Sets rows that were written down.
    pub(in crate::server) fn apply_written_assign(
        &mut self,
        worker: u16,
        assign: &Assign,
    ) -> Result<(), ProtocolViolation> {
        let keys = self.check_assign(assign)?;
        self.set_rows(worker, assign, &keys);
        Ok(())
    }

    /// Resets a table once.
    pub(in crate::server) fn reset(
        &mut self,
        link: Link,
        worker: u16,
        reset: &Reset,
    ) -> Result<(), ProtocolViolation> {
        self.table(reset.table)?;
        if reset.number > self.newest_push(worker) {
            self.journal.write(&RecordOf::Reset { worker, reset });
            self.reset_table(worker, reset);
        } else {
            self.statistics.duplicates += 1;
        }
        // Owners may not have the changes of a reset before this one, or of the first time: they are sent all their rows of the table.
        let mut hot: Vec<u64> = self.hot_keys(reset.table).collect();
        if is_enabled(Mutant::ResetKeptFromSwitches) {
            hot.clear();
        }
        let changes = self.notify_owners(&hot);
        self.answer_when_kept(link, reset.number, None, changes);
        Ok(())
    }

    /// Resets a table as was written down.
    pub(in crate::server) fn apply_written_reset(
        &mut self,
        worker: u16,
        reset: &Reset,
    ) -> Result<(), ProtocolViolation> {
        self.table(reset.table)?;
        self.reset_table(worker, reset);
        Ok(())
    }

    pub(super) fn table(&self, table: u16) -> Result<&TableSpec, ProtocolViolation> {
        self.store.tables().get(usize::from(table)).ok_or(ProtocolViolation)
    }

    fn newest_push(&self, worker: u16) -> u64 {
        self.pushed.get(&worker).map_or(0, |last| last.number)
    }

    /// Returns the keys, all of which are of the shard and the table, which has rows of these lengths.
    fn check_assign(&self, assign: &Assign) -> Result<Vec<u64>, ProtocolViolation> {
        let Assign { table, keys, values, states, number: _ } = assign;
        let spec = self.table(*table)?;
        let keys = keys.to_vec();
        let words = spec.rule.state_len(spec.width);
        let fits = values.0.len() == keys.len() * spec.width
            && (states.0.is_empty() || states.0.len() == keys.len() * words)
            && keys.iter().all(|key| spec.keys.contains(key))
            && self.owns(&keys)
            && first_bad_state(spec, &states.0).is_none();
        if fits { Ok(keys) } else { Err(ProtocolViolation) }
    }

    fn set_rows(&mut self, worker: u16, assign: &Assign, keys: &[u64]) {
        let Assign { number, table, values, states, .. } = assign;
        let set = self.store.assign(usize::from(*table), keys, &values.0, &states.0);
        set.expect("keys and lengths were checked");
        self.count_push(worker, *number, 0);
    }

    fn reset_table(&mut self, worker: u16, reset: &Reset) {
        drop(self.store.reset(reset.table.into(), reset.steps));
        self.count_push(worker, reset.number, 0);
    }

    /// Returns the keys of the plan that are of a table and of this shard.
    fn hot_keys(&self, table: u16) -> impl Iterator<Item = u64> {
        let keys = &self.store.tables()[usize::from(table)].keys;
        let rows = self.cluster.plan.iter().flat_map(|plan| &plan.rows).map(|row| row.key);
        rows.filter(|key| keys.contains(key) && self.owns_key(*key))
    }
}

/// Returns the position of the first value of states that its optimizer cannot go on from. What eviction keeps of a row is not a number.
pub(crate) fn first_bad_state(spec: &TableSpec, states: &[f32]) -> Option<usize> {
    let words = spec.rule.state_len(spec.width).max(1);
    let numbers = spec.rule.optimizer.state_len(spec.width);
    let bad = |row: &[f32]| first_non_finite(&row[..numbers.min(row.len())]);
    states.chunks(words).enumerate().find_map(|(index, row)| Some(index * words + bad(row)?))
}
