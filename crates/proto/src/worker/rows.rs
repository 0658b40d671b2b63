//! Where the rows of an operation lie: in which slots or on which shard, and where in the caller's arrays.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use libra_plan::{Place, Placement, shard_of};
use libra_store::{TableSpec, first_non_finite};

use crate::client::ClientError;

/// A row that a switch holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HotRow {
    pub(crate) region: u8,
    pub(crate) slot: u16,
    pub(crate) width: u32,
    /// Power of two of the scale of its slots.
    pub(crate) scale: libra_plan::Scale,
    /// Where its values begin in the arrays of the operation.
    pub(crate) offset: u32,
    pub(crate) key: u64,
}

/// A row that only its shard holds, for this operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ColdRow {
    pub(crate) shard: u16,
    pub(crate) width: u32,
    pub(crate) offset: u32,
    pub(crate) key: u64,
}

impl HotRow {
    pub(crate) fn range(&self) -> core::ops::Range<usize> {
        self.offset as usize..(self.offset + self.width) as usize
    }
}

impl ColdRow {
    pub(crate) fn range(&self) -> core::ops::Range<usize> {
        self.offset as usize..(self.offset + self.width) as usize
    }
}

/// Where rows lie in the caller's arrays, those that follow each other there as one.
pub(crate) fn spans(rows: &[ColdRow]) -> impl Iterator<Item = core::ops::Range<usize>> {
    let runs = rows.chunk_by(|row, next| row.range().end == next.range().start);
    runs.map(|run| run[0].range().start..run[run.len() - 1].range().end)
}

/// Orders rows by shard, and those of a shard as they are: counted, as to compare them takes ten times as long.
fn by_shard(rows: Vec<ColdRow>, shards: u16) -> Vec<ColdRow> {
    if shards == 1 || rows.is_empty() {
        return rows;
    }
    let mut places = vec![0; usize::from(shards) + 1];
    for row in &rows {
        places[usize::from(row.shard) + 1] += 1;
    }
    for shard in 0..usize::from(shards) {
        places[shard + 1] += places[shard];
    }
    let mut sorted = vec![rows[0]; rows.len()];
    for row in rows {
        let place = &mut places[usize::from(row.shard)];
        sorted[*place] = row;
        *place += 1;
    }
    sorted
}

/// The rows of one operation, sorted out.
#[derive(Debug, Default)]
pub(crate) struct Sorted {
    /// By region, then by slot.
    pub(crate) hot: Vec<HotRow>,
    /// By shard.
    pub(crate) cold: Vec<ColdRow>,
    /// Values of all rows together.
    pub(crate) values: usize,
}

/// What tells hot from cold.
#[derive(Debug, Clone)]
pub(crate) struct Directory {
    tables: Vec<TableSpec>,
    placement: Option<Placement>,
    shards: u16,
    seen: HashMap<u64, u32, FixedState>,
}

impl Directory {
    pub(crate) fn new(tables: Vec<TableSpec>, placement: Option<Placement>, shards: u16) -> Self {
        Self { tables, placement, shards, seen: HashMap::default() }
    }

    fn place(&self, key: u64) -> Option<Place> {
        self.placement.as_ref()?.find(key)
    }

    /// The table of a row. `guess` is that of the row before: most rows have the same.
    fn table<'t>(&'t self, key: u64, guess: Option<&'t TableSpec>) -> Result<&'t TableSpec, ClientError> {
        match guess {
            Some(table) if table.keys.contains(&key) => Ok(table),
            _ => {
                let table = self.tables.iter().find(|table| table.keys.contains(&key));
                table.ok_or(ClientError::UnknownKey { key })
            }
        }
    }

    /// Sorts the rows of `keys`, which lie one behind the other in the caller's arrays; hot are those of regions that are held (rule V8).
    pub(crate) fn sort(&self, keys: &[u64], is_held: impl Fn(u8) -> bool) -> Result<Sorted, ClientError> {
        let mut sorted = Sorted::default();
        let (mut offset, mut table) = (0, None);
        let mut cold = Vec::new();
        for &key in keys {
            let width = if let Some(place) = self.place(key).filter(|place| is_held(place.region)) {
                let hot = HotRow {
                    region: place.region,
                    slot: place.slot,
                    width: place.width,
                    scale: place.scale,
                    offset,
                    key,
                };
                sorted.hot.push(hot);
                place.width
            } else {
                let of = self.table(key, table)?;
                table = Some(of);
                let width = u32::try_from(of.width).expect("a store refuses rows this wide");
                if cold.is_empty() {
                    cold.reserve(keys.len() - sorted.hot.len());
                }
                cold.push(self.cold(key, offset, width));
                width
            };
            offset += width;
        }
        sorted.hot.sort_unstable_by_key(|row| (row.region, row.slot));
        sorted.cold = by_shard(cold, self.shards);
        sorted.values = offset as usize;
        Ok(sorted)
    }

    /// The shard whose rows a region has.
    pub(crate) fn shard_of_region(&self, region: u8) -> u16 {
        let layout = self.placement.as_ref().and_then(|placement| placement.region(region));
        layout.expect("regions are those of the placement").shard
    }

    /// The regions with rows of a shard.
    pub(crate) fn regions_of(&self, shard: u16) -> Vec<u8> {
        let regions = self.placement.iter().flat_map(|placement| placement.regions_of(shard));
        regions.map(|layout| layout.region).collect()
    }

    /// A row for the cold path.
    pub(crate) fn cold(&self, key: u64, offset: u32, width: u32) -> ColdRow {
        let shard = if self.shards == 1 { 0 } else { shard_of(key, self.shards) };
        ColdRow { shard, width, offset, key }
    }

    /// Sums the gradients of keys that occur more than once into their first occurrence. Checks lengths and values.
    pub(crate) fn merge_duplicates(
        &mut self,
        keys: &mut Vec<u64>,
        gradients: &mut Vec<f32>,
    ) -> Result<(), ClientError> {
        // Ascending keys, as most callers have them, are distinct.
        if keys.is_sorted_by(|key, next| key < next) {
            return self.check(keys, gradients);
        }
        let mut seen = core::mem::take(&mut self.seen);
        seen.clear();
        let merged = self.merge(&mut seen, keys, gradients);
        self.seen = seen;
        merged
    }

    /// Checks that there is a finite gradient for each value of the rows.
    fn check(&self, keys: &[u64], gradients: &[f32]) -> Result<(), ClientError> {
        let (mut expected, mut table) = (0, None);
        for &key in keys {
            let of = self.table(key, table)?;
            table = Some(of);
            expected += of.width;
        }
        if expected != gradients.len() {
            return Err(ClientError::WrongLength { keys: keys.len(), expected, found: gradients.len() });
        }
        let Some(bad) = first_non_finite(gradients) else { return Ok(()) };
        let (mut start, mut table) = (0, None);
        for &key in keys {
            let of = self.table(key, table)?;
            table = Some(of);
            if bad < start + of.width {
                return Err(self.not_finite(key, bad - start, gradients[bad]));
            }
            start += of.width;
        }
        unreachable!("every gradient is that of a row")
    }

    fn not_finite(&self, key: u64, lane: usize, value: f32) -> ClientError {
        ClientError::NotFinite { table: self.table_name(key), key, lane, bits: value.to_bits() }
    }

    /// The name of the table of a row; of a row that is in none it is empty.
    pub(crate) fn table_name(&self, key: u64) -> String {
        self.table(key, None).map(|table| table.name.clone()).unwrap_or_default()
    }

    fn merge(
        &self,
        seen: &mut HashMap<u64, u32, FixedState>,
        keys: &mut Vec<u64>,
        gradients: &mut Vec<f32>,
    ) -> Result<(), ClientError> {
        let mut widths = Vec::with_capacity(keys.len());
        let mut table = None;
        for &key in keys.iter() {
            let of = self.table(key, table)?;
            table = Some(of);
            widths.push(of.width);
        }
        let expected: usize = widths.iter().sum();
        if expected != gradients.len() {
            return Err(ClientError::WrongLength { keys: keys.len(), expected, found: gradients.len() });
        }
        let (mut kept, mut read, mut written) = (0, 0, 0);
        for (index, &width) in widths.iter().enumerate() {
            let key = keys[index];
            let gradient = read..read + width;
            if let Some(lane) = gradients[gradient.clone()].iter().position(|value| !value.is_finite()) {
                return Err(self.not_finite(key, lane, gradients[read + lane]));
            }
            read += width;
            let first = *seen
                .entry(key)
                .or_insert(u32::try_from(written).expect("arrays hold fewer than 2^32 values"));
            let first = first as usize;
            if first < written {
                for (lane, from) in gradient.enumerate() {
                    gradients[first + lane] += gradients[from];
                    if !gradients[first + lane].is_finite() {
                        return Err(self.not_finite(key, lane, gradients[first + lane]));
                    }
                }
                continue;
            }
            gradients.copy_within(gradient, written);
            keys[kept] = key;
            kept += 1;
            written += width;
        }
        keys.truncate(kept);
        gradients.truncate(written);
        Ok(())
    }
}
