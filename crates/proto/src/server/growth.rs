//! Rows of a shard whose tables do not keep all of them: admission and eviction.

use libra_store::{LifecycleCounts, RowError};

use super::journal::RecordOf;
use super::shard::Shard;
use crate::bulk::BulkOf;
use crate::statistics::ServerStatistics;

/// So many rows are looked at after each push at least: tables with little traffic lose old rows, too.
const SWEEP_LOOKS_MIN: usize = 64;

impl Shard {
    /// Looks at some rows, as many as updates can make and a few more, and lets those go that must (rule G2). Which ones these are depends on where
    /// they lie in memory, which no checkpoint keeps: the log has their keys. Gradients that make no row need no record (rule G1): what is
    /// counted follows from the pushes, and from the counts in the checkpoint. Rows of the plan do not go by age or use: a switch sums
    /// their gradients, and a round of the hottest row, in which others get thousands of pushes, is one update. Returns whether some went.
    pub(super) fn sweep(&mut self, updated: usize) -> bool {
        let placement = self.placement.as_ref();
        let is_planned = |key| placement.is_some_and(|placement| placement.find(key).is_some());
        let removed = self.store.evict_but(2 * updated + SWEEP_LOOKS_MIN, is_planned).removed;
        if !removed.is_empty() {
            self.journal.write(&RecordOf::Evicted { keys: BulkOf(&removed) });
            self.notify_owners(&removed);
        }
        !removed.is_empty()
    }

    /// Evicts rows that were evicted before, as the log has it (rule G2).
    pub(super) fn evict_again(&mut self, keys: &[u64]) -> Result<(), RowError> {
        for key in keys {
            self.store.remove(*key)?;
        }
        self.statistics.rows_evicted += keys.len() as u64;
        Ok(())
    }

    /// Returns its counters. The store counts from when this process began, or from the checkpoint that it goes on from.
    pub(super) fn statistics(&self) -> ServerStatistics {
        let LifecycleCounts { dropped, evicted } = self.store.lifecycle_counts();
        let disk = self.store.disk_counts();
        ServerStatistics {
            rows: self.store.rows() as u64,
            rows_on_disk: disk.rows,
            disk_rows_read: disk.records_read,
            disk_rows_written: disk.records_written,
            shards_over_limit: disk.is_full.into(),
            log_bytes: self.journal.bytes(),
            rows_evicted: self.statistics.rows_evicted + evicted,
            gradients_not_admitted: self.statistics.gradients_not_admitted + dropped,
            ..self.statistics
        }
    }
}
