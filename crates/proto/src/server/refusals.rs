//! Gradients that are not finite: refused, counted, and reported to the controller (rule C11).

use std::collections::BTreeMap;

use libra_store::first_non_finite;

use super::shard::Shard;
use crate::message::Message;
use crate::role::Link;

/// Bound of the pairs of a worker and a table that have a count of their own; refusals beyond them are in the totals alone. A client that
/// never checks thus cannot fill the memory of a server or of the controller.
pub(crate) const REFUSALS_MAX: usize = 64;

/// Refusals since this process started, by worker (none: the sum of a round) and table.
#[derive(Debug, Clone, Default)]
pub(super) struct Refusals {
    by_source: BTreeMap<(Option<u16>, u16), Refusal>,
    /// True if there is one that was never reported to the controller.
    has_first: bool,
}

#[derive(Debug, Clone, Copy)]
struct Refusal {
    /// The first row.
    key: u64,
    count: u64,
    /// Number of them that were reported to the controller.
    reported: u64,
}

impl Refusals {
    fn note(&mut self, worker: Option<u16>, table: u16, key: u64) {
        if let Some(refusal) = self.by_source.get_mut(&(worker, table)) {
            refusal.count += 1;
        } else if self.by_source.len() < REFUSALS_MAX {
            self.by_source.insert((worker, table), Refusal { key, count: 1, reported: 0 });
            self.has_first = true;
        }
    }

    /// Returns the refusals of pairs that were not reported at all: they are reported at once.
    pub(super) fn take_first(&mut self) -> Vec<Message> {
        if core::mem::take(&mut self.has_first) {
            self.take(|refusal| refusal.reported == 0)
        } else {
            Vec::new()
        }
    }

    /// Returns the counts that have grown since the last report: they are reported with each heartbeat.
    pub(super) fn take_changed(&mut self) -> Vec<Message> {
        self.take(|refusal| refusal.reported < refusal.count)
    }

    /// The controller may be another, or have missed something.
    pub(super) fn forget_reported(&mut self) {
        self.by_source.values_mut().for_each(|refusal| refusal.reported = 0);
    }

    fn take(&mut self, is_wanted: impl Fn(&Refusal) -> bool) -> Vec<Message> {
        let wanted = self.by_source.iter_mut().filter(|(_, refusal)| is_wanted(refusal));
        wanted
            .map(|(&(worker, table), refusal)| {
                refusal.reported = refusal.count;
                let Refusal { key, count, .. } = *refusal;
                Message::GradientsRefused { worker, table, key, count }
            })
            .collect()
    }
}

impl Shard {
    /// Refuses a push whose value at `position` of all its gradients is not finite. That follows from the message alone and changes nothing
    /// but counts, so nothing of it is written down: should the push come again, it is refused again (rule C11).
    pub(super) fn refuse_push(
        &mut self,
        link: Link,
        worker: u16,
        number: u64,
        keys: &[u64],
        (position, value): (usize, f32),
    ) {
        let mut rest = position;
        let of_row = keys.iter().find_map(|&key| {
            let width = self.store.width(key).expect("push has checked the keys");
            let lane = rest;
            rest = rest.saturating_sub(width);
            (lane < width).then_some((key, lane))
        });
        let (key, lane) = of_row.expect("push has checked that each gradient is that of a row");
        self.statistics.pushes_refused += 1;
        self.note_refusal(Some(worker), key);
        let lane = u32::try_from(lane).expect("a store refuses rows this wide");
        let message = Message::PushRefused { number, key, lane, bits: value.to_bits() };
        self.outbox.push_back((link, message));
    }

    /// Takes those rows from what the store is about to be given of a round whose sums are not finite.
    pub(super) fn refuse_sums(&mut self) {
        let (rows, gradients) = (core::mem::take(&mut self.rows), core::mem::take(&mut self.gradients));
        let (mut rest, mut finite) = (gradients.as_slice(), Vec::new());
        for &key in rows.keys() {
            let width = self.store.width(key).expect("placed rows belong to tables");
            let sums;
            (sums, rest) = rest.split_at(width);
            if first_non_finite(sums).is_some() {
                self.statistics.sums_refused += 1;
                self.note_refusal(None, key);
            } else {
                finite.push(key);
                self.gradients.extend_from_slice(sums);
            }
        }
        let found = self.rows.fill(&self.store, |keys| keys.extend(finite));
        found.expect("placed rows belong to tables");
    }

    fn note_refusal(&mut self, worker: Option<u16>, key: u64) {
        let table = self.store.tables().iter().position(|table| table.keys.contains(&key));
        let table = table.expect("the row was found before");
        // A job with more tables than that has them counted under the last number: only the name is wrong then.
        self.refusals.note(worker, u16::try_from(table).unwrap_or(u16::MAX), key);
    }
}
