//! Places of the rows of an operation: the slots or the shard, and the positions in the caller's arrays.

use core::ops::Range;
use std::vec::Drain;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use libra_plan::{Place, Placement, Shards};
use libra_store::{TableSpec, first_non_finite};
use pulp::{Arch, NullaryFnOnce};

use super::order::Order;
use crate::client::ClientError;

/// The memory of so many operations is kept for later ones.
const SPARE_MAX: usize = 64;
/// Keys that are compared with those before them before it is decided whether to go on.
const RISE_BLOCK: usize = 256;

const ARRAYS_MAX: &str = "arrays hold fewer than 2^32 values";

/// A row that a switch holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HotRow {
    pub(crate) place: Place,
    /// Position of its values in the arrays of the operation.
    pub(crate) offset: u32,
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
    pub(crate) fn width(&self) -> usize {
        self.place.width as usize
    }

    pub(crate) fn slots(&self) -> Range<u16> {
        let width = u16::try_from(self.place.width).expect("a hot row fits a packet");
        self.place.slot..self.place.slot + width
    }

    /// Returns the positions of its slots among those of its region.
    pub(crate) fn slot_range(&self) -> Range<usize> {
        let first = usize::from(self.place.slot);
        first..first + self.width()
    }

    pub(crate) fn range(&self) -> Range<usize> {
        self.offset as usize..self.offset as usize + self.width()
    }
}

impl ColdRow {
    pub(crate) fn range(&self) -> Range<usize> {
        self.offset as usize..(self.offset + self.width) as usize
    }
}

/// Returns the places of rows in the caller's arrays, those that follow each other there as one.
pub(crate) fn spans(rows: &[ColdRow]) -> impl Iterator<Item = Range<usize>> {
    let runs = rows.chunk_by(|row, next| row.range().end == next.range().start);
    runs.map(|run| run[0].range().start..run[run.len() - 1].range().end)
}

/// Orders rows by shard, and those of a shard as they are: counted, as to compare them takes ten times as long.
pub(crate) fn by_shard(rows: Vec<ColdRow>, shards: u16) -> Vec<ColdRow> {
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

/// The table of a row. `guess` is that of the row before: most rows have the same.
fn find_table<'t>(
    tables: &'t [TableSpec],
    key: u64,
    guess: Option<&'t TableSpec>,
) -> Result<&'t TableSpec, ClientError> {
    match guess {
        Some(table) if table.keys.contains(&key) => Ok(table),
        _ => tables.iter().find(|table| table.keys.contains(&key)).ok_or(ClientError::UnknownKey { key }),
    }
}

/// A row for the cold path.
fn cold_row(key: u64, offset: u32, width: u32, shards: Shards) -> ColdRow {
    ColdRow { shard: shards.of(key), width, offset, key }
}

/// The rows of an operation that are not hot, or not only.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// In the order of their keys.
    pub(crate) cold: Vec<ColdRow>,
    /// Number of values of all rows together.
    pub(crate) values: usize,
}

/// Table that separates hot rows from cold ones.
#[derive(Debug, Clone)]
pub(crate) struct Directory {
    tables: Vec<TableSpec>,
    placement: Option<Placement>,
    shards: Shards,
    /// The hot rows of the operation at hand.
    order: Order,
    seen: HashMap<u64, u32, FixedState>,
    /// Memory of operations that are done.
    spare: Vec<Vec<HotRow>>,
}

/// The hot rows of an operation, by region and then by slot.
#[derive(Debug)]
pub(crate) struct HotRows<'d> {
    placement: &'d Placement,
    /// Numbers and offsets.
    listed: Drain<'d, (u32, u32)>,
    /// The first of them that was not handed over.
    next: usize,
}

impl HotRows<'_> {
    fn rest(&self) -> &[(u32, u32)] {
        &self.listed.as_slice()[self.next..]
    }

    /// Returns the next row, and leaves it there.
    pub(crate) fn peek(&self) -> Option<HotRow> {
        self.rest().first().map(|row| placed(self.placement, row))
    }

    /// Takes rows of one region, as many as fit a packet, and returns the region and their positions.
    pub(crate) fn next_packet(&mut self, entries_max: u8) -> Option<(u8, Range<usize>)> {
        let region = self.peek()?.place.region;
        let (placement, rest) = (self.placement, self.rest());
        let entries_max = u32::from(entries_max);
        let count = if let Some(width) = placement.regions()[usize::from(region)].width {
            // Rows of one width are not looked at.
            let end = placement.numbers(region).end;
            let most = rest.len().min((entries_max / width) as usize);
            rest[..most].partition_point(|(number, _)| *number < end)
        } else {
            let mut room = entries_max;
            let fits = |(number, _): &&(u32, u32)| {
                let place = placement.place(*number);
                let left = room.checked_sub(place.width).filter(|_| place.region == region);
                room = left.unwrap_or_default();
                left.is_some()
            };
            rest.iter().take_while(fits).count()
        };
        assert!(count > 0, "a row of a hot table is no wider than a packet");
        let positions = self.next..self.next + count;
        self.next = positions.end;
        Some((region, positions))
    }

    /// The rows at some positions.
    pub(crate) fn at(&self, positions: Range<usize>) -> PacketContents<'_> {
        let Self { placement, listed, .. } = self;
        PacketContents::Listed { placement, rows: &listed.as_slice()[positions] }
    }
}

impl Iterator for HotRows<'_> {
    type Item = HotRow;

    fn next(&mut self) -> Option<HotRow> {
        let row = self.peek()?;
        self.next += 1;
        Some(row)
    }
}

#[inline(always)]
pub(super) fn placed(placement: &Placement, &(number, offset): &(u32, u32)) -> HotRow {
    HotRow { place: *placement.place(number), offset }
}

/// The rows of a packet, all of one region.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PacketContents<'p> {
    /// Numbers and offsets: to copy their places takes a third of what else is done to rows.
    Listed {
        placement: &'p Placement,
        rows: &'p [(u32, u32)],
    },
    Placed(&'p [HotRow]),
}

impl PacketContents<'_> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Listed { rows, .. } => rows.len(),
            Self::Placed(rows) => rows.len(),
        }
    }

    /// Calls a function for each row.
    pub(crate) fn for_each(&self, mut f: impl FnMut(&HotRow)) {
        match *self {
            Self::Listed { placement, rows } => rows.iter().for_each(|row| f(&placed(placement, row))),
            Self::Placed(rows) => rows.iter().for_each(f),
        }
    }

    /// Adds the rows to a list, and returns them there.
    pub(crate) fn append_to<'l>(&self, list: &'l mut Vec<HotRow>) -> &'l [HotRow] {
        let first = list.len();
        match *self {
            Self::Listed { placement, rows } => {
                list.extend(rows.iter().map(|row| placed(placement, row)));
            }
            Self::Placed(rows) => list.extend_from_slice(rows),
        }
        &list[first..]
    }
}

/// Makes hot rows cold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Demotion<'d>(&'d Placement);

impl Demotion<'_> {
    /// A hot row, for the cold path.
    pub(crate) fn to_cold(self, row: &HotRow) -> ColdRow {
        let Self(placement) = self;
        let HotRow { place, offset } = *row;
        let shard = placement.regions()[usize::from(place.region)].shard;
        ColdRow { shard, width: place.width, offset, key: placement.key(place) }
    }
}

impl Directory {
    pub(crate) fn new(tables: Vec<TableSpec>, placement: Option<Placement>, shards: u16) -> Self {
        let order = Order::new(placement.as_ref().map_or(0, Placement::len));
        Self {
            tables,
            placement,
            shards: Shards::new(shards),
            order,
            seen: HashMap::default(),
            spare: Vec::new(),
        }
    }

    fn table<'t>(&'t self, key: u64, guess: Option<&'t TableSpec>) -> Result<&'t TableSpec, ClientError> {
        find_table(&self.tables, key, guess)
    }

    /// Looks the rows of `keys` up, which lie one behind the other in the caller's arrays. The hot ones are for
    /// [`hot_rows`](Self::hot_rows), the others are listed; of a row that occurs twice only one is hot, as a packet has a slot once.
    /// `rise` may be true if [keys rise](rise): then they are found faster.
    pub(crate) fn find(&mut self, keys: &[u64], rise: bool) -> Result<Found, ClientError> {
        let mut found = Found::default();
        let looked_up = Arch::new().dispatch(Lookup { directory: self, keys, rise, found: &mut found });
        if looked_up.is_err() {
            drop(self.order.take());
        }
        looked_up.map(|()| found)
    }

    /// The hot rows that were [found](Self::find), and the conversion of those that no switch takes to cold rows. Without a plan no row is hot.
    #[inline]
    pub(crate) fn hot_rows(&mut self) -> Option<(HotRows<'_>, Demotion<'_>)> {
        let Self { placement, order, .. } = self;
        let placement = placement.as_ref()?;
        Some((HotRows { placement, listed: order.take(), next: 0 }, Demotion(placement)))
    }

    /// Memory for a list of hot rows.
    pub(crate) fn hot_list(&mut self) -> Vec<HotRow> {
        self.spare.pop().unwrap_or_default()
    }

    /// Takes back the memory of an operation that is done.
    pub(crate) fn recycle(&mut self, mut rows: Vec<HotRow>) {
        rows.clear();
        if rows.capacity() > 0 && self.spare.len() < SPARE_MAX {
            self.spare.push(rows);
        }
    }

    /// A hot row, for the cold path.
    pub(crate) fn to_cold(&self, row: &HotRow) -> ColdRow {
        Demotion(self.placement.as_ref().expect("without a plan no row is hot")).to_cold(row)
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

    /// Sums the gradients of keys that occur more than once into their first occurrence. Checks lengths and values. `rise` is true if
    /// [keys rise](rise).
    pub(crate) fn merge_duplicates(
        &mut self,
        keys: &mut Vec<u64>,
        gradients: &mut Vec<f32>,
        rise: bool,
    ) -> Result<(), ClientError> {
        // Rising keys, as most callers have them, are distinct.
        if rise {
            return self.check(keys, gradients);
        }
        let mut seen = core::mem::take(&mut self.seen);
        seen.clear();
        let merged = self.merge(&mut seen, keys, gradients);
        self.seen = seen;
        merged
    }

    /// Checks that there is a finite gradient for each value of the rows. Keys ascend.
    fn check(&self, keys: &[u64], gradients: &[f32]) -> Result<(), ClientError> {
        let (mut expected, mut rest) = (0, keys);
        while let Some(&key) = rest.first() {
            let of = self.table(key, None)?;
            let (of_table, others) = rest.split_at(rest.partition_point(|key| of.keys.contains(key)));
            expected += of_table.len() * of.width;
            rest = others;
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
            let first = *seen.entry(key).or_insert(u32::try_from(written).expect(ARRAYS_MAX));
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

/// Returns true if each key is above the one before it.
pub(crate) fn rise(keys: &[u64]) -> bool {
    Arch::new().dispatch(|| {
        // No exit within a block, which makes it vectorizable.
        let rises = |pairs: &[u64]| pairs.windows(2).fold(true, |rises, pair| rises & (pair[0] < pair[1]));
        let mut rest = keys;
        while rest.len() > RISE_BLOCK {
            if !rises(&rest[..=RISE_BLOCK]) {
                return false;
            }
            rest = &rest[RISE_BLOCK..];
        }
        rises(rest)
    })
}

/// Looks up the rows of an operation, with all instructions that this processor has: to count the bits of a block of keys is one of them.
struct Lookup<'d> {
    directory: &'d mut Directory,
    keys: &'d [u64],
    rise: bool,
    found: &'d mut Found,
}

impl NullaryFnOnce for Lookup<'_> {
    type Output = Result<(), ClientError>;

    #[inline(always)]
    fn call(self) -> Self::Output {
        let Self { directory: Directory { tables, placement, shards, order, .. }, keys, rise, found } = self;
        let mut search = placement.as_ref().map(Placement::search);
        let mut table = tables.first();
        let mut offset = 0;
        let mut rest = keys;
        while let Some((&key, others)) = rest.split_first() {
            let of = find_table(tables, key, table)?;
            table = Some(of);
            let width = u32::try_from(of.width).expect("a store refuses rows this wide");
            // Keys next to each other are found together.
            if rise && let Some(run) = search.as_mut().and_then(|search| search.run(key)) {
                let last = run.last.min(of.keys.end - 1);
                let (of_run, others) = rest.split_at(leading(rest, last));
                order.add_run(run.number, of_run, offset, width);
                offset += u32::try_from(of_run.len()).expect(ARRAYS_MAX) * width;
                rest = others;
                continue;
            }
            let number = search.as_mut().and_then(|search| search.find(key));
            if !number.is_some_and(|number| order.add(number, offset)) {
                if found.cold.is_empty() {
                    found.cold.reserve(rest.len());
                }
                found.cold.push(cold_row(key, offset, width, *shards));
            }
            offset += width;
            rest = others;
        }
        found.values = offset as usize;
        Ok(())
    }
}

/// Returns the number of keys up to `last`, of which the first is one. Keys rise.
#[inline(always)]
fn leading(keys: &[u64], last: u64) -> usize {
    // Doubled until it is beyond, for most runs have few keys of an operation.
    let mut end = 1;
    while keys.get(end).is_some_and(|key| *key <= last) {
        end *= 2;
    }
    let start = end / 2;
    start + keys[start..end.min(keys.len())].partition_point(|key| *key <= last)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn keys_rise_if_each_is_above_the_one_before(
            mut keys in prop::collection::btree_set(any::<u64>(), 0..400).prop_map(Vec::from_iter),
            copied in any::<prop::sample::Index>(),
            last in any::<u64>(),
        ) {
            prop_assert!(rise(&keys));
            if keys.len() > 1 {
                let count = leading(&keys, last.max(keys[0]));
                prop_assert_eq!(count, keys.iter().filter(|key| **key <= last.max(keys[0])).count());
                let copied = copied.index(keys.len() - 1);
                keys[copied + 1] = keys[copied];
                prop_assert!(!rise(&keys));
            }
        }
    }
}
