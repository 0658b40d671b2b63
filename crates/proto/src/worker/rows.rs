//! Where the rows of an operation lie: in which slots or on which shard, and where in the caller's arrays.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use libra_plan::{Place, Placement, shard_of};
use libra_store::TableSpec;

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

    /// The width of a row by its table.
    fn width(&self, key: u64) -> Result<u32, ClientError> {
        let table = self.tables.iter().find(|table| table.keys.contains(&key));
        let width = table.ok_or(ClientError::UnknownKey { key })?.width;
        Ok(u32::try_from(width).expect("a store refuses rows this wide"))
    }

    /// Sorts the rows of `keys`, which lie one behind the other in the caller's arrays; hot are those of regions that are held (rule V8).
    pub(crate) fn sort(&self, keys: &[u64], is_held: impl Fn(u8) -> bool) -> Result<Sorted, ClientError> {
        let mut sorted = Sorted::default();
        let mut offset = 0;
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
                let width = self.width(key)?;
                sorted.cold.push(self.cold(key, offset, width));
                width
            };
            offset += width;
        }
        sorted.hot.sort_unstable_by_key(|row| (row.region, row.slot));
        sorted.cold.sort_by_key(|row| row.shard);
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
        ColdRow { shard: shard_of(key, self.shards), width, offset, key }
    }

    /// Sums the gradients of keys that occur more than once into their first occurrence. Checks lengths and values.
    pub(crate) fn merge_duplicates(
        &mut self,
        keys: &mut Vec<u64>,
        gradients: &mut Vec<f32>,
    ) -> Result<(), ClientError> {
        let mut seen = core::mem::take(&mut self.seen);
        seen.clear();
        let merged = self.merge(&mut seen, keys, gradients);
        self.seen = seen;
        merged
    }

    fn merge(
        &self,
        seen: &mut HashMap<u64, u32, FixedState>,
        keys: &mut Vec<u64>,
        gradients: &mut Vec<f32>,
    ) -> Result<(), ClientError> {
        let mut widths = Vec::with_capacity(keys.len());
        for &key in keys.iter() {
            widths.push(self.place(key).map_or_else(|| self.width(key), |place| Ok(place.width))? as usize);
        }
        let expected: usize = widths.iter().sum();
        if expected != gradients.len() {
            return Err(ClientError::WrongLength { keys: keys.len(), expected, found: gradients.len() });
        }
        let (mut kept, mut read, mut written) = (0, 0, 0);
        for (index, &width) in widths.iter().enumerate() {
            let key = keys[index];
            let gradient = read..read + width;
            if !gradients[gradient.clone()].iter().all(|value| value.is_finite()) {
                return Err(ClientError::NotFinite { key });
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
                        return Err(ClientError::NotFinite { key });
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
