//! Placement of each hot row: its shard, region and slots.

mod index;

use core::ops::Range;

use thiserror::Error;

use self::index::Index;
pub use self::index::{Run, Search};
use crate::plan::{Invalid, Plan};
use crate::scale::Scale;
use crate::shard::shard_of;
use crate::table::{SLOTS_PER_REGION, TableShape};

/// Regions of one plan at most: the region of a packet is a u8.
pub const REGIONS_MAX: usize = 256;

/// Place of a hot row, as a worker needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Its region.
    pub region: u8,
    /// The first of its slots in the region.
    pub slot: u16,
    /// Number of slots it takes: one for each of its values.
    pub width: u32,
    /// The scale of its gradients.
    pub scale: Scale,
}

/// A hot row in its region, as a shard and an agent need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlacedRow {
    /// The row.
    pub key: u64,
    /// The first of its slots in the region.
    pub slot: u16,
    /// Number of slots it takes: one for each of its values.
    pub width: u32,
    /// The scale of its gradients.
    pub scale: Scale,
}

/// The rows of one region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionLayout {
    /// The region; also its position in [`Placement::regions`].
    pub region: u8,
    /// The shard that owns all of its rows.
    pub shard: u16,
    /// Slots its rows take: 0 to this, without a gap. At most as many as the placement was made for.
    pub slots: u16,
    /// The width of its rows, if all have the same.
    pub width: Option<u32>,
    /// Its rows by rising slot.
    pub rows: Vec<PlacedRow>,
}

impl RegionLayout {
    /// Cells the region needs with so many lanes: enough for its slots, and the last for padding.
    ///
    /// # Panics
    /// If there is no lane.
    #[must_use]
    pub fn cells(&self, lanes: u8) -> u16 {
        self.slots.div_ceil(lanes.into()) + 1
    }

    /// Gives its rows, which come by rank, their slots.
    fn deal_slots(&mut self, order: SlotOrder) {
        if order == SlotOrder::Key {
            self.rows.sort_unstable_by_key(|row| row.key);
        }
        let mut next = 0;
        for row in &mut self.rows {
            row.slot = next;
            next += u16::try_from(row.width).expect("a row is no wider than a region");
        }
    }

    /// The position in `rows` of the row that has `slot`; those of the slots after it follow in order.
    #[must_use]
    pub fn row_index_at(&self, slot: u16) -> Option<usize> {
        if slot >= self.slots {
            return None;
        }
        Some(self.rows.partition_point(|row| row.slot <= slot) - 1)
    }
}

/// The slots of a region, and in which order rows take them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionSlots {
    most: u16,
    order: SlotOrder,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SlotOrder {
    Rank,
    Key,
}

impl RegionSlots {
    /// Up to so many slots, and rows by rank: the paper's heat-based layout, in which lanes, to which slots are dealt in turn, are equally hot.
    #[must_use]
    pub const fn by_rank(most: u16) -> Self {
        Self { most, order: SlotOrder::Rank }
    }

    /// Up to so many slots, and rows by key. Where there is one lane the order means nothing to a switch, and a worker, whose
    /// rows mostly come by key and go into packets by slot, finds them in order.
    #[must_use]
    pub const fn by_key(most: u16) -> Self {
        Self { most, order: SlotOrder::Key }
    }
}

/// Reason why the hot rows cannot be placed.
#[derive(Debug, Error, Clone, PartialEq)]
#[non_exhaustive]
pub enum PlacementError {
    /// There are no shards to own rows.
    #[error("a job has at least one shard")]
    NoShards,
    /// The plan itself is at fault.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// A row is never in two regions.
    #[error("hot rows of table {table:?} have {width} values, a region has {slots} slots")]
    TooWide {
        /// The table.
        table: String,
        /// The width of its rows.
        width: u32,
        /// Slots of a region.
        slots: u16,
    },
    /// The rows fill more regions than there are numbers.
    #[error("over {shards} shards the plan needs {regions} regions, there are at most {REGIONS_MAX}")]
    TooManyRegions {
        /// Regions needed.
        regions: usize,
        /// Shards they are for.
        shards: u16,
    },
}

/// Places of all hot rows of a plan, for a given number of shards.
///
/// Each row belongs to the shard that [`shard_of`] names. In rank order the rows of a shard fill its regions,
/// one after the other; a row that does not fit in what is left of a region opens the next one, so that none
/// is in two. Regions are numbered across shards: first those of shard 0, then those of shard 1. A shard
/// without hot rows has none.
///
/// Within a region the first slot of a row is the sum of the widths before it, in the order of [`RegionSlots`]: with rows
/// of one width d by rank, the row of rank r (within the region) takes slots r x d to r x d + d, the paper's heat-based layout.
#[derive(Debug, Clone)]
pub struct Placement {
    regions: Vec<RegionLayout>,
    /// By region, then by slot: the number of a row is its position here.
    places: Vec<Place>,
    /// The number of the first row of each region.
    first_numbers: Vec<u32>,
    index: Index,
}

impl Placement {
    /// Places the rows of a plan in regions of so many slots. There are never more than [`SLOTS_PER_REGION`]; a switch whose
    /// registers are short has fewer.
    ///
    /// # Errors
    /// The plan is not valid, a row does not fit a region, or the plan needs too many regions.
    pub fn new(plan: &Plan, shards: u16, slots: RegionSlots) -> Result<Self, PlacementError> {
        if shards == 0 {
            return Err(PlacementError::NoShards);
        }
        let slots_per_region = slots.most.min(SLOTS_PER_REGION);
        let tables = plan.checked_tables()?;
        let mut of_shards: Vec<Vec<RegionLayout>> = vec![Vec::new(); usize::from(shards)];
        for row in &plan.rows {
            let shard = shard_of(row.key, shards);
            let (_, table) = tables.find(row.key).expect("a checked plan has only rows of its tables");
            let width = u16::try_from(table.width).ok().filter(|width| *width <= slots_per_region);
            let Some(width) = width else {
                let TableShape { name, width, .. } = table;
                let (table, slots) = (name.clone(), slots_per_region);
                return Err(PlacementError::TooWide { table, width: *width, slots });
            };
            let regions = &mut of_shards[usize::from(shard)];
            if regions.last().is_none_or(|region| region.slots > slots_per_region - width) {
                let width = Some(table.width);
                regions.push(RegionLayout { region: 0, shard, slots: 0, width, rows: Vec::new() });
            }
            let region = regions.last_mut().expect("a region with room is there now");
            // Slots are dealt when all rows of the region are there.
            region.rows.push(PlacedRow { key: row.key, slot: 0, width: table.width, scale: row.scale });
            region.slots += width;
            region.width = region.width.filter(|width| *width == table.width);
        }

        let mut regions: Vec<RegionLayout> = of_shards.into_iter().flatten().collect();
        if regions.len() > REGIONS_MAX {
            return Err(PlacementError::TooManyRegions { regions: regions.len(), shards });
        }
        let mut places = Vec::with_capacity(plan.rows.len());
        let mut first_numbers = Vec::with_capacity(regions.len());
        for (number, layout) in regions.iter_mut().enumerate() {
            layout.region = u8::try_from(number).expect("there are at most REGIONS_MAX regions");
            layout.deal_slots(slots.order);
            first_numbers.push(u32::try_from(places.len()).expect("a plan has fewer than 2^31 rows"));
            places.extend(layout.rows.iter().map(|row| Place {
                region: layout.region,
                slot: row.slot,
                width: row.width,
                scale: row.scale,
            }));
        }
        let index = Index::new(regions.iter().flat_map(|layout| &layout.rows).map(|row| row.key));
        Ok(Self { regions, places, first_numbers, index })
    }

    /// All regions; the one numbered n is at position n.
    #[must_use]
    pub fn regions(&self) -> &[RegionLayout] {
        &self.regions
    }

    /// The region of this number.
    #[must_use]
    pub fn region(&self, region: u8) -> Option<&RegionLayout> {
        self.regions.get(usize::from(region))
    }

    /// The regions of one shard.
    pub fn regions_of(&self, shard: u16) -> impl Iterator<Item = &RegionLayout> {
        self.regions.iter().filter(move |layout| layout.shard == shard)
    }

    /// Finds rows by their keys, one after the other: the number of a row among the hot rows, which are counted by region and then by
    /// slot; `None` if it is cold.
    #[must_use]
    #[inline]
    pub fn search(&self) -> Search<'_> {
        self.index.search()
    }

    /// Returns the place of the row of this number.
    ///
    /// # Panics
    /// If there are not so many.
    #[must_use]
    #[inline]
    pub fn place(&self, number: u32) -> &Place {
        &self.places[number as usize]
    }

    /// The numbers of the rows of a region.
    ///
    /// # Panics
    /// If there is no such region.
    #[must_use]
    pub fn numbers(&self, region: u8) -> Range<u32> {
        let region = usize::from(region);
        let all = u32::try_from(self.places.len()).expect("a plan has fewer than 2^31 rows");
        self.first_numbers[region]..self.first_numbers.get(region + 1).copied().unwrap_or(all)
    }

    /// The key of the row that has this place.
    ///
    /// # Panics
    /// If no row has it.
    #[must_use]
    pub fn key(&self, place: Place) -> u64 {
        let layout = &self.regions[usize::from(place.region)];
        // The position of the row, if all of the region are as wide.
        let position = u32::from(place.slot) / place.width;
        let row = layout.rows.get(position as usize).filter(|row| row.slot == place.slot);
        row.or_else(|| self.row_at(place.region, place.slot)).expect("the place is that of a row").key
    }

    /// The region of the row of this number, and the position of the row in [`RegionLayout::rows`].
    ///
    /// # Panics
    /// If there are not so many.
    #[must_use]
    pub fn position(&self, number: u32) -> (u8, usize) {
        let region = self.place(number).region;
        (region, (number - self.first_numbers[usize::from(region)]) as usize)
    }

    /// Returns the place of the row `key`; `None` if it is cold.
    #[must_use]
    #[inline]
    pub fn find(&self, key: u64) -> Option<Place> {
        self.index.find(key).map(|number| *self.place(number))
    }

    /// The row that has a slot, in logarithmic time.
    #[must_use]
    pub fn row_at(&self, region: u8, slot: u16) -> Option<&PlacedRow> {
        let layout = self.region(region)?;
        layout.row_index_at(slot).map(|index| &layout.rows[index])
    }

    /// Returns the number of hot rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns true if no row is hot.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}

#[cfg(test)]
mod tests;
