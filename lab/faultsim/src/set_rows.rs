//! What users do with the table whose rows they set, and what they may read of it.
//!
//! Each row is set to a multiple of [`SET_STEP`] that is given once, and pushes are of ones: a value tells what its row was set to,
//! and how many pushes came after.

use std::collections::BTreeMap;

use libra_proto::{AssignedRows, WorkerCommand};

use crate::check::Verdict;
use crate::random::Random;
use crate::rows::{SET_STEP, SetTable, base_of};

/// Pushes of a row, at most: fewer than there are between two values that it is set to.
const PUSHES_MAX: u64 = 1000;
/// Operations that set rows, at most: an f32 holds all values.
const SETS_MAX: u16 = 8000;

/// Use of the table whose rows users set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SetWorkload {
    /// The share of operations that are of this table.
    pub share: f64,
    /// True if rows are set right after barriers only; else while others push to them.
    pub at_barriers: bool,
    /// Number of shards, each of which is scanned by itself.
    pub shards: u16,
}

/// The next operation of a user on the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SetOperation {
    Assign,
    Reset,
    Scan,
    Push,
    Pull,
}

impl SetWorkload {
    /// Draws an operation. Rows may be set if it is the first one after a barrier, or anywhere.
    pub(crate) fn draw(self, random: &mut Random, is_first: bool) -> SetOperation {
        use SetOperation::{Assign, Pull, Push, Reset, Scan};
        let mix = [Assign, Assign, Assign, Reset, Scan, Push, Push, Push, Push, Pull, Pull];
        match *random.pick(&mix) {
            Assign | Reset if self.at_barriers && !is_first => Push,
            operation => operation,
        }
    }
}

/// Rows that were set at once. Times are numbers of operations.
#[derive(Debug)]
struct Set {
    worker: u16,
    keys: Vec<u64>,
    base: f32,
    begun: u64,
    /// The newest operation when it was answered.
    answered: Option<u64>,
    /// Pushes that were visible when it began, and those that had begun when it was answered, by row.
    visible_before: BTreeMap<u64, u64>,
    begun_before: BTreeMap<u64, u64>,
}

/// All that users did to the table.
#[derive(Debug)]
pub(crate) struct SetHistory {
    table: SetTable,
    sets: Vec<Set>,
    /// Pushes of ones that have begun, and those that were reported as visible, by row.
    begun: BTreeMap<u64, u64>,
    visible: BTreeMap<u64, u64>,
}

impl SetHistory {
    pub(crate) fn new(table: SetTable) -> Self {
        let mut history = Self { table, sets: Vec::new(), begun: BTreeMap::new(), visible: BTreeMap::new() };
        // All rows begin as if they had been reset.
        history.set(u16::MAX, 0, table.keys().collect(), 0.0);
        history.answered(0, 0);
        history
    }

    /// Some rows of the table, each once.
    pub(crate) fn draw_keys(&self, random: &mut Random) -> Vec<u64> {
        let count = random.within(1..=self.table.rows);
        let first = random.below(self.table.rows);
        let keys = (0..count).map(|step| (first + step) % self.table.rows);
        keys.map(|row| self.table.keys().start + row).collect()
    }

    /// Those of them that may get another push.
    pub(crate) fn retain_pushable(&self, keys: &mut Vec<u64>) {
        keys.retain(|key| self.begun.get(key).is_none_or(|pushes| *pushes < PUSHES_MAX));
    }

    fn set(&mut self, worker: u16, begun: u64, keys: Vec<u64>, base: f32) {
        let (visible_before, begun_before) = (self.visible.clone(), BTreeMap::new());
        let answered = None;
        self.sets.push(Set { worker, keys, base, begun, answered, visible_before, begun_before });
    }

    /// A worker sets rows to a value that none had before.
    pub(crate) fn assign(
        &mut self,
        random: &mut Random,
        worker: u16,
        number: u64,
        keys: Vec<u64>,
    ) -> WorkerCommand {
        let base = u16::try_from(self.sets.len()).ok().filter(|sets| *sets < SETS_MAX);
        let base = f32::from(base.expect("a scenario has fewer operations")) * SET_STEP;
        let values = vec![base; keys.len() * self.table.width];
        let states = if random.chance(0.5) { values.clone() } else { Vec::new() };
        self.set(worker, number, keys.clone(), base);
        let rows = AssignedRows { table: SetTable::POSITION, keys, values, states };
        WorkerCommand::Assign { number, rows }
    }

    /// A worker resets the table.
    pub(crate) fn reset(&mut self, worker: u16, number: u64) -> WorkerCommand {
        self.set(worker, number, self.table.keys().collect(), 0.0);
        WorkerCommand::Reset { number, table: SetTable::POSITION, steps: 0 }
    }

    /// An operation that sets rows is answered, when so many have begun.
    pub(crate) fn answered(&mut self, number: u64, operations: u64) {
        if let Some(set) = self.sets.iter_mut().rfind(|set| set.begun == number) {
            set.answered = Some(operations);
            set.begun_before = self.begun.clone();
        }
    }

    /// Ones are pushed to rows.
    pub(crate) fn pushed(&mut self, keys: &[u64]) {
        keys.iter().for_each(|key| *self.begun.entry(*key).or_default() += 1);
    }

    /// Pushes to rows are visible.
    pub(crate) fn seen(&mut self, keys: &[u64]) {
        for key in keys.iter().filter(|key| self.table.keys().contains(key)) {
            *self.visible.entry(*key).or_default() += 1;
        }
    }

    // rule C12
    /// A worker reads a row. It reads nothing from before what it had set itself; in the end, when everything is visible, from
    /// before what anyone had.
    pub(crate) fn check_read(
        &self,
        (worker, number): (u16, u64),
        key: u64,
        values: &[f32],
        is_last: bool,
    ) -> Verdict {
        let value = values.first().copied().unwrap_or_default();
        let base = base_of(value);
        let pushes = f64::from(base - value);
        let is_whole = values.iter().all(|other| *other == value);
        let of_row = || self.sets.iter().filter(|set| set.keys.contains(&key));
        let is_possible = |set: &Set| {
            let after = |other: &&Set| {
                (is_last || other.worker == worker)
                    && other.answered.is_some_and(|answered| answered < number)
                    && set.answered.is_some_and(|answered| answered < other.begun)
            };
            let most = count(&self.begun, key) - count(&set.visible_before, key);
            let least = match set.answered {
                Some(_) if is_last => count(&self.visible, key) - count(&set.begun_before, key),
                _ => 0.0,
            };
            set.base == base && (least..=most).contains(&pushes) && of_row().find(after).is_none()
        };
        if is_whole && of_row().any(is_possible) {
            return Ok(());
        }
        Err(format!("worker {worker} reads row {key} as {values:?}, which it cannot be any more, or not yet"))
    }
}

#[expect(clippy::cast_precision_loss, reason = "there are few pushes")]
fn count(pushes: &BTreeMap<u64, u64>, key: u64) -> f64 {
    pushes.get(&key).copied().unwrap_or_default() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: SetTable = SetTable { rows: 1, width: 2, hot: 0 };
    const KEY: u64 = 2000;

    /// Worker 3 has set the row twice, with a push between that was visible and one later; worker 4 sets it and has no answer.
    fn history() -> SetHistory {
        let (mut history, mut random) = (SetHistory::new(TABLE), Random::new(1));
        for number in [1, 3] {
            history.assign(&mut random, 3, number, vec![KEY]);
            history.answered(number, number);
            history.pushed(&[KEY]);
            history.seen(&[KEY]);
        }
        history.assign(&mut random, 4, 5, vec![KEY]);
        history
    }

    #[test]
    fn a_value_from_before_what_a_worker_set_is_noticed() {
        let history = history();
        let read = |worker, value| history.check_read((worker, 6), KEY, &[value; 2], false).is_ok();
        assert!(read(3, 2.0 * SET_STEP) && read(3, 2.0 * SET_STEP - 1.0) && read(3, 3.0 * SET_STEP));
        assert!(!read(3, SET_STEP), "it has set it again");
        assert!(read(4, SET_STEP), "others may read what was before");
        assert!(!read(4, 4.0 * SET_STEP), "it was never set to this");
        assert!(!read(4, 2.0 * SET_STEP - 2.0), "there was one push after it");
        assert!(history.check_read((4, 6), KEY, &[SET_STEP, 2.0 * SET_STEP], false).is_err());
    }

    #[test]
    fn in_the_end_all_pushes_are_in_the_row() {
        let history = history();
        let read = |value| history.check_read((4, 6), KEY, &[value; 2], true).is_ok();
        assert!(read(2.0 * SET_STEP - 1.0) && read(3.0 * SET_STEP));
        assert!(!read(2.0 * SET_STEP), "a push after it was visible");
        assert!(!read(SET_STEP), "it was set again");
    }
}
