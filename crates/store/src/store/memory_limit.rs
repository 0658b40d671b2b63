//! The memory limit of a store: rows that were not used for long go to a file, and come back when they are used.

use std::fmt;

use thiserror::Error;

use super::Store;
use super::admission_filter::AdmissionFilter;
use super::eviction::Summary;
use super::file::RowFile;
use super::many::Run;
use super::table_rows::TableRows;
use crate::block_file::{BlockFile, BlockFileError};

/// Rows that stay in memory at least, of all tables that have others in the file.
const ROWS_MIN: usize = if cfg!(test) { 8 } else { 256 };
/// About so many bytes of rows go to the file at once, and not less than a sixteenth of it when memory is short.
const DEMOTED_BYTES: usize = 1 << 18;
/// Of each table, as many rows at once at least.
const DEMOTED_ROWS_MIN: usize = 16;

/// Counts of the moves of a store between memory and its file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskCounts {
    /// Rows that are in the file and not in memory.
    pub rows: u64,
    /// Records that were read so far.
    pub records_read: u64,
    /// Records that were written so far.
    pub records_written: u64,
    /// True if the disk had no more room when it was last asked: then rows stay in memory above the limit.
    pub is_full: bool,
}

/// Reason why a store with a memory limit is of no use any more.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreFault {
    /// The file failed.
    #[error("rows cannot be moved between memory and disk: {0}")]
    Disk(BlockFileError),
    /// A record has another row.
    #[error("record {record} of the rows on disk is of row {found}, and should be of row {key}")]
    WrongRow {
        /// The record.
        record: u32,
        /// The row that should be there.
        key: u64,
        /// The row that is there.
        found: u64,
    },
    /// The limit does not do for what must be in memory.
    #[error("the memory limit is too low: {0}")]
    Limit(#[from] LimitTooLow),
}

/// The limit does not do for what must be in memory.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[error("the rows of a shard may take {}, and need {} at least, of which {} are for indexes and narrow rows", Mib(*limit), Mib(*needed), Mib(*indexes))]
pub struct LimitTooLow {
    /// Bytes that the store may use.
    pub limit: usize,
    /// Bytes that it needs.
    pub needed: usize,
    /// Bytes of these that are for where rows are, for rows that stay in memory, and for counts of admission.
    pub indexes: usize,
}

/// Shows bytes in MiB, rounded up to a tenth.
struct Mib(usize);

impl fmt::Display for Mib {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = (self.0 as u64 * 10).div_ceil(1 << 20);
        write!(f, "{}.{} MiB", tenths / 10, tenths % 10)
    }
}

/// # Memory limit
///
/// Rows that were not used for long are moved to a file, several hundred at once, and are read in batches before they are used. All else
/// is as without a limit, to the bit: reads, updates, evictions and snapshots have rows wherever they lie. A row in the file takes about
/// 16 bytes of memory. Narrow rows, of up to 4 words with the state, stay in memory: where they are would take about as much.
impl Store {
    /// Keeps the memory of rows and indexes at about so many bytes from now on, and other rows in a file. The rows of one batch, copies
    /// for a [snapshot](#snapshots) and buffers of about a MiB come on top.
    ///
    /// When the disk is full, rows stay in memory above the limit ([`DiskCounts::is_full`]). Any other failure makes the store useless:
    /// see [`Store::fault`].
    ///
    /// # Errors
    /// The limit does not do for what is in memory without any row.
    ///
    /// # Panics
    /// There are rows.
    pub fn limit_memory(&mut self, bytes: usize, file: Box<dyn BlockFile>) -> Result<(), LimitTooLow> {
        for (rows, spec) in self.rows.iter_mut().zip(&self.tables).filter(|(rows, _)| rows.can_be_limited()) {
            rows.limit(Summary::new(spec));
        }
        let indexes = self.limited_bytes();
        let needed = indexes + self.bytes_min();
        if bytes < needed {
            return Err(LimitTooLow { limit: bytes, needed, indexes });
        }
        self.file = Some(Box::new(RowFile::new(file, bytes)));
        Ok(())
    }

    /// The first failure of the file of a store with a memory limit. From then on the store changes nothing, and what it returns
    /// means nothing. Its owner looks here before anything leaves that rests on the store, and ends.
    #[must_use]
    pub fn fault(&self) -> Option<&StoreFault> {
        self.file.as_ref()?.fault.as_ref()
    }

    /// Counts of the file of a store with a memory limit; zeros without.
    #[must_use]
    pub fn disk_counts(&self) -> DiskCounts {
        let rows = self.rows.iter().map(|rows| rows.rows_filed() as u64).sum();
        self.file.as_ref().map_or_else(DiskCounts::default, |file| DiskCounts { rows, ..file.counts })
    }

    /// Brings the rows of keys to memory, those of each run from one table. Returns false if the file has failed.
    #[inline]
    pub(super) fn bring_runs(&mut self, runs: &[Run], keys: &[u64]) -> bool {
        self.file.is_none() || self.bring_runs_from_file(runs, keys)
    }

    fn bring_runs_from_file(&mut self, runs: &[Run], mut keys: &[u64]) -> bool {
        let Some(file) = &mut self.file else { return true };
        if file.fault.is_some() {
            return false;
        }
        for run in runs {
            let of_run;
            (of_run, keys) = keys.split_at(run.keys);
            let wanted = &mut file.wanted;
            self.rows[run.position].find_filed(of_run, |record| wanted.push((run.position, record)));
        }
        file.bring_wanted(&mut self.rows)
    }

    /// The same for keys of one table.
    #[inline]
    pub(super) fn bring(&mut self, position: usize, keys: &[u64]) -> bool {
        self.bring_runs(&[Run { position, keys: keys.len() }], keys)
    }

    /// Brings the row of a key to memory before it is read, with others going first: nothing is moved while it is looked at.
    #[inline]
    pub(super) fn bring_to_read(&mut self, position: usize, key: u64) {
        let mut is_filed = false;
        self.rows[position].find_filed(&[key], |_| is_filed = true);
        if is_filed {
            self.relieve();
            self.bring(position, &[key]);
        }
    }

    /// Brings rows to memory that [`Store::row`] is asked for next: all at once, where it would wait for the disk for each.
    /// Of keys of no table it brings nothing.
    pub fn prepare_rows(&mut self, keys: &[u64]) {
        self.relieve();
        let mut runs = Vec::new();
        if self.file.is_some() && self.runs(keys, &mut runs).is_ok() {
            self.bring_runs(&runs, keys);
        }
    }

    /// Moves rows to the file until memory is below the limit.
    #[inline]
    pub(super) fn relieve(&mut self) {
        if self.file.is_some() {
            self.relieve_to_file();
        }
    }

    fn relieve_to_file(&mut self) {
        let mut used = self.limited_bytes();
        let Some(file) = &mut self.file else { return };
        if used <= file.limit || file.fault.is_some() {
            return;
        }
        // Somewhat below, for a write takes as long for one row as for many.
        let target = file.limit - DEMOTED_BYTES.min(file.limit / 16);
        let mut keys = Vec::new();
        while used > target {
            let Some(file) = &mut self.file else { return };
            let in_memory: usize = self.rows.iter().map(TableRows::rows_movable).sum();
            if in_memory <= ROWS_MIN {
                if used > file.limit {
                    self.fail_for_limit(used);
                }
                return;
            }
            let (table, position) = &mut file.hand;
            let rows = &mut self.rows[*table];
            let row_bytes = rows.row_bytes();
            let wanted = (used - target).div_ceil(row_bytes).min(DEMOTED_BYTES / row_bytes);
            keys.clear();
            let rows_max = wanted.max(DEMOTED_ROWS_MIN).min(in_memory - ROWS_MIN);
            let table_ends = rows.choose_unused(position, rows_max, &mut keys);
            let of = *table;
            if table_ends {
                *table = (*table + 1) % self.rows.len();
            }
            if !keys.is_empty() && self.rows[of].demote(&keys, file) < keys.len() {
                // The disk is full, or has failed.
                return;
            }
            used = self.limited_bytes();
        }
    }

    /// No other row can go.
    fn fail_for_limit(&mut self, used: usize) {
        let rows: usize = self.rows.iter().map(TableRows::movable_bytes).sum();
        let indexes = used - rows;
        let needed = indexes + rows.max(self.bytes_min());
        let Some(file) = &mut self.file else { return };
        let limit = file.limit;
        file.fault.get_or_insert(StoreFault::Limit(LimitTooLow { limit, needed, indexes }));
    }

    /// Bytes of the rows that stay in memory.
    fn bytes_min(&self) -> usize {
        ROWS_MIN * self.rows.iter().map(TableRows::row_bytes).max().unwrap_or(0)
    }

    fn limited_bytes(&self) -> usize {
        let rows: usize = self.rows.iter().map(TableRows::limited_bytes).sum();
        rows + self.admission_filters.iter().map(AdmissionFilter::bytes_without_copies).sum::<usize>()
    }
}

#[cfg(test)]
mod tests;
