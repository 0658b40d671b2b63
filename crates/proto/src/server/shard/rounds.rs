//! Sums of hot rows: what switches have drained is applied once, and they are told the new values.

use libra_dataplane::mutants::{Mutant, is_enabled};
use libra_plan::PlacedRow;
use libra_store::first_non_finite;

use super::{DeferredReply, ProtocolViolation, Region, Shard};
use crate::bulk::Bulk;
use crate::message::{Committed, Drained, Message, SlotRun, SlotValues};
use crate::region;
use crate::role::Link;
use crate::server::journal::RecordOf;

impl Shard {
    /// Applies a round of a switch once (rules E4, E5).
    pub(in crate::server) fn commit(
        &mut self,
        link: Link,
        drained: Drained,
    ) -> Result<(), ProtocolViolation> {
        let region = self.regions.get(&drained.region).ok_or(ProtocolViolation)?;
        let of_the_owner = region.ownership.view_id == drained.view_id && region.owner == Some(link);
        if !of_the_owner && !is_enabled(Mutant::FencingIgnored) {
            self.statistics.fenced += 1;
            return Ok(());
        }
        let (number, view_id) = (drained.region, drained.view_id);
        let touched = region
            .touched_rows(self.cluster.hot_path.lanes, &drained.slots, drained.sums.0.len())
            .ok_or(ProtocolViolation)?;
        // The new values, if they can be said at once.
        let mut values = None;
        if drained.round <= region.committed {
            self.statistics.duplicates += 1;
            if is_enabled(Mutant::CommitAppliedTwice) {
                self.apply_sums(number, &touched, &drained.sums.0);
            }
        } else if drained.round == region.committed + 1 {
            self.journal.write(&RecordOf::Round(&drained));
            self.apply_round(&touched, drained);
            if self.journal.has(self.journal.newest()) {
                values = Some(self.values_after_sums(number, &touched));
            }
            // Rows that are removed may be among them.
            if self.sweep(touched.len()) {
                values = None;
            }
        } else {
            return Err(ProtocolViolation);
        }
        if let Some(values) = values {
            self.send_committed(link, number, view_id, values);
        } else {
            let positions = touched.into_iter().map(|(position, _)| position).collect();
            self.defer(DeferredReply::Committed { link, region: number, view_id, positions });
        }
        Ok(())
    }

    fn apply_round(&mut self, touched: &[(usize, usize)], drained: Drained) {
        self.apply_sums(drained.region, touched, &drained.sums.0);
        let region = self.region_mut(drained.region);
        region.committed = drained.round;
        region.contents.advance(drained.contents);
        self.statistics.rounds += 1;
    }

    /// Applies a round that was written down.
    pub(in crate::server) fn apply_written_round(
        &mut self,
        drained: Drained,
    ) -> Result<(), ProtocolViolation> {
        let region = self.regions.get(&drained.region).ok_or(ProtocolViolation)?;
        let touched = region
            .touched_rows(self.cluster.hot_path.lanes, &drained.slots, drained.sums.0.len())
            .ok_or(ProtocolViolation)?;
        self.apply_round(&touched, drained);
        Ok(())
    }

    /// Updates the rows that were touched, and puts their new values where their gradients were. Finite gradients may have a sum that no f32
    /// holds. Of such a row nothing is applied, of the others all; that follows from the sums alone, so it is the same when a round is read
    /// from the log (rule C11).
    pub(super) fn apply_sums(&mut self, number: u8, touched: &[(usize, usize)], sums: &[u32]) {
        let arithmetic = self.cluster.hot_path.arithmetic;
        let (layout, gradients) = (&self.regions[&number].layout, &mut self.gradients);
        gradients.clear();
        let found = self.rows.fill(&self.store, |keys| {
            for &(position, start) in touched {
                let row = layout.rows[position];
                let sums = &sums[start..start + row.width as usize];
                if sums.iter().any(|&sum| sum != 0) {
                    keys.push(row.key);
                    gradients.extend(sums.iter().map(|&sum| region::gradient_of(sum, row.scale, arithmetic)));
                }
            }
        });
        found.expect("placed rows belong to tables");
        if first_non_finite(&self.gradients).is_some() {
            self.refuse_sums();
        }
        let updated = self.store.update_and_read_batch(&self.rows, &mut self.gradients);
        updated.expect("placed rows have these widths");
        let count = self.rows.keys().len() as u64;
        self.statistics.row_updates += count;
        self.statistics.row_updates_hot += count;
    }

    /// The values of rows after sums were applied to them: those that have changed are where their gradients were.
    fn values_after_sums(&mut self, number: u8, touched: &[(usize, usize)]) -> SlotValues {
        let layout = &self.regions[&number].layout;
        let mut updated = self.rows.keys().iter().peekable();
        let mut of_updated = self.gradients.as_slice();
        let (mut slots, mut values) = (Vec::new(), Vec::with_capacity(self.gradients.len()));
        // Rows without a gradient: their keys, and where their values go.
        let (mut others, mut places) = (Vec::new(), Vec::new());
        for &(position, _) in touched {
            let row = layout.rows[position];
            let width = row.width as usize;
            add_slots(&mut slots, row);
            if updated.next_if_eq(&&row.key).is_some() {
                let of_row;
                (of_row, of_updated) = of_updated.split_at(width);
                values.extend(of_row.iter().map(|value| value.to_bits()));
            } else {
                others.push(row.key);
                places.push(values.len()..values.len() + width);
                values.resize(values.len() + width, 0);
            }
        }
        let mut of_others = vec![0.0; values.len() - self.gradients.len()];
        self.store
            .read_many(&others, &mut of_others)
            .expect("placed rows belong to tables, with these widths");
        let mut of_others = of_others.iter();
        for place in places {
            values[place].iter_mut().zip(&mut of_others).for_each(|(place, value)| *place = value.to_bits());
        }
        SlotValues { slots, values: Bulk(values) }
    }

    /// The present values of rows of a region, by their position in its layout, ascending.
    pub(super) fn values(&mut self, number: u8, positions: impl IntoIterator<Item = usize>) -> SlotValues {
        let layout = &self.regions[&number].layout;
        let (mut slots, mut keys, mut count) = (Vec::new(), Vec::new(), 0);
        for position in positions {
            let row = layout.rows[position];
            add_slots(&mut slots, row);
            keys.push(row.key);
            count += row.width as usize;
        }
        let mut values = vec![0.0; count];
        self.store.read_many(&keys, &mut values).expect("placed rows belong to tables, with these widths");
        SlotValues { slots, values: Bulk(values.into_iter().map(f32::to_bits).collect()) }
    }

    pub(super) fn send_committed(&mut self, link: Link, region: u8, view_id: u64, values: SlotValues) {
        let round = self.regions[&region].committed;
        let committed = Committed { region, view_id, round, values };
        self.outbox.push_back((link, Message::Committed(committed)));
    }
}

/// Adds the slots of a row to runs of slots before it.
fn add_slots(slots: &mut Vec<SlotRun>, row: PlacedRow) {
    let width = u16::try_from(row.width).expect("a hot row fits a region");
    match slots.last_mut() {
        Some((first, count)) if *first + *count == row.slot => *count += width,
        _ => slots.push((row.slot, width)),
    }
}

impl Region {
    /// The rows that lie whole in runs of slots: their position in the layout, and where their sums begin.
    /// `None` if the runs are not what a switch sends.
    pub(super) fn touched_rows(
        &self,
        lanes: u8,
        runs: &[SlotRun],
        sums: usize,
    ) -> Option<Vec<(usize, usize)>> {
        let slots = u32::from(self.layout.cells(lanes)) * u32::from(lanes);
        let mut rows = Vec::new();
        let (mut start, mut free) = (0usize, 0u32);
        for &(first, count) in runs {
            let (run, end) = (u32::from(first), u32::from(first) + u32::from(count));
            if run < free || end > slots {
                return None;
            }
            free = end;
            let from = self.layout.rows.partition_point(|row| row.slot < first);
            for (position, row) in self.layout.rows.iter().enumerate().skip(from) {
                if u32::from(row.slot) + row.width > end {
                    break;
                }
                rows.push((position, start + usize::from(row.slot - first)));
            }
            start += usize::from(count);
        }
        (start == sums).then_some(rows)
    }
}
