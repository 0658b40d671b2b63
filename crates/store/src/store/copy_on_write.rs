//! Memory of a snapshot until it is read: rows as they were, and keys. Neither list copies what it
//! has when it grows, which would take long when it is long.

/// About the size of one allocation of rows.
const BURST_BYTES: usize = 1 << 16;
/// Keys of one allocation.
const BURST_KEYS: usize = if cfg!(test) { 64 } else { 1 << 12 };

/// Rows of one table as they were before an update.
#[derive(Debug, Clone)]
pub(super) struct CopiedRows {
    bursts: Vec<Burst>,
    /// Rows of a burst.
    burst_rows: usize,
    /// Words of a row.
    words: usize,
}

/// Rows of one allocation.
#[derive(Debug, Clone)]
pub(super) struct Burst {
    pub(super) keys: Vec<u64>,
    /// Of one row after the other.
    pub(super) words: Vec<u32>,
}

impl CopiedRows {
    /// Nothing yet; rows have so many words.
    pub(super) fn new(words: usize) -> Self {
        Self { bursts: Vec::new(), burst_rows: (BURST_BYTES / (words * size_of::<u32>())).max(1), words }
    }

    #[inline]
    pub(super) fn push(&mut self, key: u64, words: &[u32]) {
        if self.bursts.last().is_none_or(|burst| burst.keys.len() == self.burst_rows) {
            let keys = Vec::with_capacity(self.burst_rows);
            self.bursts.push(Burst { keys, words: Vec::with_capacity(self.burst_rows * self.words) });
        }
        let burst = self.bursts.last_mut().expect("pushed above");
        burst.keys.push(key);
        burst.words.extend_from_slice(words);
    }

    pub(super) fn len(&self) -> usize {
        // All but the last are full.
        self.bursts.last().map_or(0, |last| (self.bursts.len() - 1) * self.burst_rows + last.keys.len())
    }

    /// Returns true if there are as many as one allocation holds.
    pub(super) fn has_burst(&self) -> bool {
        self.bursts.first().is_some_and(|burst| burst.keys.len() == self.burst_rows)
    }

    /// Takes out some rows, in any order; at most so many.
    pub(super) fn take(&mut self, rows_max: usize) -> Option<Burst> {
        let last = self.bursts.last_mut()?;
        if last.keys.len() <= rows_max {
            return self.bursts.pop();
        }
        let left = last.keys.len() - rows_max;
        Some(Burst { keys: last.keys.split_off(left), words: last.words.split_off(left * self.words) })
    }

    pub(super) fn clear(&mut self) {
        self.bursts = Vec::new();
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let row_bytes = size_of::<u64>() + self.words * size_of::<u32>();
        self.bursts.len() * self.burst_rows * row_bytes + self.bursts.capacity() * size_of::<Burst>()
    }
}

/// A list of keys.
#[derive(Debug, Clone, Default)]
pub(super) struct Keys {
    bursts: Vec<Vec<u64>>,
}

/// Progress of the reader of a list of keys.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct KeysRead {
    burst: usize,
    keys: usize,
}

impl Keys {
    pub(super) fn push(&mut self, key: u64) {
        if self.bursts.last().is_none_or(|burst| burst.len() == BURST_KEYS) {
            self.bursts.push(Vec::with_capacity(BURST_KEYS));
        }
        self.bursts.last_mut().expect("pushed above").push(key);
    }

    pub(super) fn append(&mut self, others: Self) {
        self.bursts.extend(others.bursts);
    }

    /// The next keys, at most so many; none at the end.
    pub(super) fn read(&self, from: &mut KeysRead, keys_max: usize) -> &[u64] {
        let Some(burst) = self.bursts.get(from.burst) else { return &[] };
        let end = burst.len().min(from.keys + keys_max);
        let keys = &burst[from.keys..end];
        *from = if end == burst.len() {
            KeysRead { burst: from.burst + 1, keys: 0 }
        } else {
            KeysRead { keys: end, ..*from }
        };
        keys
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let keys: usize = self.bursts.iter().map(Vec::capacity).sum();
        keys * size_of::<u64>() + self.bursts.capacity() * size_of::<Vec<u64>>()
    }
}
