//! Pushes and pulls of the cold path.

use std::collections::BTreeMap;

use libra_dataplane::mutants::{Mutant, is_enabled};
use libra_store::{KeyBatch, first_non_finite};

use super::waiting::WaitingPush;
use super::{ProtocolViolation, Pushed, Shard, is_installed};
use crate::bulk::BulkOf;
use crate::keys::Keys;
use crate::message::{Changed, ColdPush, MESSAGE_BYTES_MAX, Message};
use crate::role::Link;
use crate::server::journal::RecordOf;
use crate::values::Values;

/// Values of an answer at most.
const ANSWER_VALUES_MAX: usize = MESSAGE_BYTES_MAX / size_of::<f32>() - 1024;

impl Shard {
    /// Looks up which tables rows are of that this shard must own.
    pub(super) fn find_own(&self, keys: &Keys, rows: &mut KeyBatch) -> Result<(), ProtocolViolation> {
        rows.fill(&self.store, |to| keys.decode_into(to)).map_err(|_| ProtocolViolation)?;
        if self.owns(rows.keys()) { Ok(()) } else { Err(ProtocolViolation) }
    }

    /// Applies a push once (rule C1), and answers when every switch that holds some of its rows has their new values (rule C2). One
    /// with a gradient that is not finite is refused, whatever its number (rule C11).
    pub(in crate::server) fn push(
        &mut self,
        link: Link,
        worker: u16,
        push: ColdPush,
    ) -> Result<(), ProtocolViolation> {
        let mut rows = core::mem::take(&mut self.rows);
        let pushed = self.push_rows(link, worker, push, &mut rows);
        self.rows = rows;
        pushed
    }

    fn push_rows(
        &mut self,
        link: Link,
        worker: u16,
        push: ColdPush,
        rows: &mut KeyBatch,
    ) -> Result<(), ProtocolViolation> {
        let ColdPush { number, keys, gradients, answer } = push;
        self.find_own(&keys, rows)?;
        let mut gradients = gradients.into_vec();
        let fits = !answer || rows.values() <= ANSWER_VALUES_MAX;
        if !fits || rows.values() != gradients.len() {
            return Err(ProtocolViolation);
        }
        if let Some(bad) = first_non_finite(&gradients) {
            self.refuse_push(link, worker, number, rows.keys(), (bad, gradients[bad]));
            return Ok(());
        }
        let last = self.pushed.get(&worker).map_or(0, |last| last.number);
        // True if the new values are where the gradients were.
        let mut has_values = false;
        if number > last || is_enabled(Mutant::ColdPushAppliedTwice) {
            let record = RecordOf::Push { worker, number, keys: &keys, gradients: BulkOf(&gradients) };
            self.journal.write(&record);
            // An answer that waits for the log has the values of later.
            has_values = answer && self.journal.has(self.journal.newest());
            let updated = if has_values {
                self.store.update_and_read_batch(rows, &mut gradients)
            } else {
                self.store.update_batch(rows, &gradients)
            };
            updated.expect("the length was just checked");
            self.count_push(worker, number, rows.keys().len());
            // Rows that are removed may be of this push.
            has_values &= !self.sweep(rows.keys().len());
        } else {
            self.statistics.duplicates += 1;
        }
        let changes = self.notify_owners(rows.keys());
        if has_values && changes.is_empty() {
            self.send_pushed(link, number, gradients);
            return Ok(());
        }
        self.answer_when_kept(link, number, answer.then_some(keys), changes);
        Ok(())
    }

    /// Answers a push when the log has it, and switches have installed these changes.
    pub(super) fn answer_when_kept(
        &mut self,
        link: Link,
        number: u64,
        keys: Option<Keys>,
        changes: Vec<(u8, u64)>,
    ) {
        let record = self.journal.newest();
        let mut waiting = WaitingPush { link, number, record, keys, changes };
        let is_logged = self.journal.has(record);
        if !is_logged || !self.try_answer(&mut waiting) {
            self.waiting.add(waiting, is_logged);
        }
    }

    /// Applies a push that was written down.
    pub(in crate::server) fn apply_written_push(
        &mut self,
        worker: u16,
        number: u64,
        keys: &Keys,
        gradients: &[f32],
    ) -> Result<(), ProtocolViolation> {
        let mut rows = core::mem::take(&mut self.rows);
        let found = self.find_own(keys, &mut rows);
        let updated =
            found.and_then(|()| self.store.update_batch(&rows, gradients).map_err(|_| ProtocolViolation));
        if updated.is_ok() {
            self.count_push(worker, number, rows.keys().len());
        }
        self.rows = rows;
        updated
    }

    pub(super) fn count_push(&mut self, worker: u16, number: u64, rows: usize) {
        let last = self.pushed.entry(worker).or_default();
        *last = Pushed { number, count: last.count + 1 };
        self.statistics.row_updates += rows as u64;
    }

    /// Sends the new values of rows to the switches that hold them. Returns which changes must be installed.
    pub(in crate::server) fn notify_owners(&mut self, keys: &[u64]) -> Vec<(u8, u64)> {
        let Some(placement) = &self.placement else { return Vec::new() };
        let mut search = placement.search();
        let mut positions: BTreeMap<u8, Vec<usize>> = BTreeMap::new();
        for number in keys.iter().filter_map(|&key| search.find(key)) {
            let (region, position) = placement.position(number);
            if self.regions[&region].adopted {
                positions.entry(region).or_default().push(position);
            }
        }
        let mut changes = Vec::new();
        for (number, mut positions) in positions {
            positions.sort_unstable();
            positions.dedup();
            let values = self.values(number, positions);
            let region = self.region_mut(number);
            region.change += 1;
            changes.push((number, region.change));
            if let Some(link) = region.owner {
                let changed = Changed {
                    region: number,
                    view_id: region.ownership.view_id,
                    change: region.change,
                    values,
                };
                self.outbox.push_back((link, Message::Changed(changed)));
            }
        }
        changes
    }

    /// An owner has installed all changes up to this one.
    pub(in crate::server) fn installed(
        &mut self,
        link: Link,
        number: u8,
        view_id: u64,
        change: u64,
    ) -> Result<(), ProtocolViolation> {
        let region = self.regions.get_mut(&number).ok_or(ProtocolViolation)?;
        if region.ownership.view_id == view_id && region.owner == Some(link) {
            region.installed = region.installed.max(change.min(region.change));
            self.answer_waiting();
        }
        Ok(())
    }

    /// Answers the pushes that the log has, and that wait for no switch any more (rules C3, L1).
    pub(super) fn answer_waiting(&mut self) {
        let mut waiting = core::mem::take(&mut self.waiting);
        waiting.answer(self.journal.kept(), |push| self.try_answer(push));
        self.waiting = waiting;
    }

    /// Answers a push that the log has, unless it waits for a switch. Returns whether it did.
    fn try_answer(&mut self, push: &mut WaitingPush) -> bool {
        push.changes.retain(|change| !is_installed(&self.regions, *change));
        if push.changes.is_empty() {
            let values = push.keys.as_ref().map_or_else(|| Ok(Vec::new()), |keys| self.read(keys));
            self.send_pushed(push.link, push.number, values.expect("the push was checked when it came"));
        }
        push.changes.is_empty()
    }

    fn send_pushed(&mut self, link: Link, number: u64, values: Vec<f32>) {
        let values = Values::new(self.cluster.cold_path.values, values);
        let view = self.cluster.view.number;
        self.outbox.push_back((link, Message::Pushed { number, view, values }));
    }

    pub(in crate::server) fn pull(
        &mut self,
        link: Link,
        number: u64,
        keys: &Keys,
    ) -> Result<(), ProtocolViolation> {
        let values = self.read(keys)?;
        self.statistics.row_reads += keys.len() as u64;
        let values = Values::new(self.cluster.cold_path.values, values);
        self.outbox.push_back((link, Message::Pulled { number, values }));
        Ok(())
    }

    /// The values of rows for an answer. No peer may ask for more than a message holds (rule C8).
    fn read(&mut self, keys: &Keys) -> Result<Vec<f32>, ProtocolViolation> {
        let mut rows = core::mem::take(&mut self.rows);
        let found = self.find_own(keys, &mut rows);
        let is_answer = found.is_ok() && rows.values() <= ANSWER_VALUES_MAX;
        let values = is_answer.then(|| {
            let mut values = vec![0.0; rows.values()];
            self.store.read_batch(&rows, &mut values).expect("it has the length of the rows");
            values
        });
        self.rows = rows;
        values.ok_or(ProtocolViolation)
    }
}
