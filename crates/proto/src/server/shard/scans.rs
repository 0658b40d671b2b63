//! Scans: all rows of a table that are kept, a page at a time.

use libra_dataplane::mutants::{Mutant, is_enabled};

use super::{ProtocolViolation, Shard};
use crate::bulk::Bulk;
use crate::keys::Keys;
use crate::message::{Message, TablePage};
use crate::role::Link;

/// Bytes of keys, values and states of a page, unless one row alone has more.
pub(crate) const PAGE_BYTES_MAX: usize = 8 << 20;

/// Keys of a table when its scan began. Pages are found in them without another look at all rows.
#[derive(Debug, Clone)]
pub(super) struct ScannedKeys {
    table: u16,
    /// Ascending.
    keys: Vec<u64>,
}

impl Shard {
    /// Sends the rows of a table behind a key (rule C13). Rows that change or come while a table is scanned are those of before or of after.
    pub(in crate::server) fn scan(
        &mut self,
        link: Link,
        number: u64,
        table: u16,
        after: Option<u64>,
        page_bytes_max: usize,
    ) -> Result<(), ProtocolViolation> {
        self.table(table)?;
        let scanned = self.scanning.take().filter(|scanned| scanned.table == table && after.is_some());
        let scanned = scanned.unwrap_or_else(|| {
            let mut keys: Vec<u64> = self.store.keys_of(table.into()).collect();
            keys.sort_unstable();
            ScannedKeys { table, keys }
        });
        let repeats = is_enabled(Mutant::ScanRepeatsRow);
        let is_before = |key: u64, after| if repeats { key < after } else { key <= after };
        let begin = after.map_or(0, |after| scanned.keys.partition_point(|key| is_before(*key, after)));
        let page = self.page(table.into(), &scanned.keys[begin..], page_bytes_max);
        self.statistics.row_reads += page.keys.len() as u64;
        self.scanning = page.next.map(|_| scanned);
        self.outbox.push_back((link, Message::Scanned { number, page }));
        Ok(())
    }

    fn page(&mut self, table: usize, keys: &[u64], bytes_max: usize) -> TablePage {
        let spec = &self.store.tables()[table];
        let (width, words) = (spec.width, spec.rule.state_len(spec.width));
        let row_bytes = size_of::<u64>() + size_of::<f32>() * (width + words);
        let keys_of_page = &keys[..keys.len().min((bytes_max / row_bytes).max(1))];
        self.store.prepare_rows(keys_of_page);
        let mut kept = Vec::with_capacity(keys_of_page.len());
        let mut values = Vec::with_capacity(keys_of_page.len() * width);
        let mut states = Vec::with_capacity(keys_of_page.len() * words);
        for &key in keys_of_page {
            // It may have been removed since the scan began.
            if let Some((row, state)) = self.store.row(key) {
                kept.push(key);
                values.extend_from_slice(row);
                states.extend_from_slice(state);
            }
        }
        let next = if keys_of_page.len() == keys.len() { None } else { keys_of_page.last().copied() };
        let (keys, steps) = (Keys::new(kept.into_iter()), self.store.steps(table));
        TablePage { keys, values: Bulk(values), states: Bulk(states), steps, next }
    }
}
