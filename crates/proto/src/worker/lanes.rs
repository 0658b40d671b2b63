//! Packing for switches that wire each place of a packet to a lane: a packet has one entry of each (rule W13).

use libra_dataplane::PacketWriter;
use libra_plan::Placement;

use super::rows::HotRow;

/// Packets that are filled at the same time: a bit each.
const OPEN: usize = u64::BITS as usize;

/// Packs rows by their lanes.
#[derive(Debug, Clone)]
pub(super) struct Lanes {
    pub(super) open: OpenPackets,
    pub(super) entries: LaneEntries,
}

impl Lanes {
    pub(super) fn new(lanes: u8, placement: &Placement) -> Self {
        Self { open: OpenPackets::new(lanes), entries: LaneEntries::new(lanes, placement) }
    }
}

/// The lanes of a row, one for each of its values.
pub(super) fn lanes_of(row: &HotRow, lanes: u8) -> impl Iterator<Item = usize> {
    row.slots().map(move |slot| usize::from(slot % u16::from(lanes)))
}

/// Packets of one region that are filled at the same time. A row goes into the oldest in which its lanes are free, as in Algorithm 1
/// of the paper; that one fills any number of packets at once, and leaves rows over for packets with a lane twice.
#[derive(Debug, Clone)]
pub(super) struct OpenPackets {
    /// For each lane, in which packets it is free.
    free: Vec<u64>,
    /// A ring; those with rows come one after the other.
    packets: Vec<Vec<HotRow>>,
    /// The place of the oldest.
    oldest: usize,
}

impl OpenPackets {
    fn new(lanes: u8) -> Self {
        Self { free: vec![u64::MAX; lanes.into()], packets: vec![Vec::new(); OPEN], oldest: 0 }
    }

    /// Fills the list with the rows of the next packet, and returns its region. `next` is the row after those that are packed.
    pub(super) fn next_packet(
        &mut self,
        hot_rows: &mut impl Iterator<Item = HotRow>,
        next: &mut Option<HotRow>,
        rows: &mut Vec<HotRow>,
    ) -> Option<u8> {
        let mut region = self.packets[self.oldest].first().map(|row| row.place.region);
        while let Some(row) = next.take().or_else(|| hot_rows.next()) {
            if *region.get_or_insert(row.place.region) != row.place.region || !self.put(row) {
                *next = Some(row);
                break;
            }
        }
        self.close(rows);
        region
    }

    /// Returns true if no packet has a row.
    pub(super) fn is_empty(&self) -> bool {
        self.packets[self.oldest].is_empty()
    }

    /// Puts a row into the oldest packet in which its lanes are free; `false` if there is none.
    fn put(&mut self, row: HotRow) -> bool {
        let lanes = u8::try_from(self.free.len()).expect("a packet has at most 255 lanes");
        let free = lanes_of(&row, lanes).fold(u64::MAX, |free, lane| free & self.free[lane]);
        if free == 0 {
            return false;
        }
        let after_oldest =
            free.rotate_right(u32::try_from(self.oldest).expect("it is below 64")).trailing_zeros();
        let place = (self.oldest + after_oldest as usize) % OPEN;
        for lane in lanes_of(&row, lanes) {
            self.free[lane] &= !(1 << place);
        }
        self.packets[place].push(row);
        true
    }

    /// Exchanges the rows of the oldest packet for memory.
    fn close(&mut self, rows: &mut Vec<HotRow>) {
        rows.clear();
        core::mem::swap(rows, &mut self.packets[self.oldest]);
        for free in &mut self.free {
            *free |= 1 << self.oldest;
        }
        self.oldest = (self.oldest + 1) % OPEN;
    }
}

/// Writes rows where their lanes are.
#[derive(Debug, Clone)]
pub(super) struct LaneEntries {
    /// The padding of each region: its last cell.
    paddings: Vec<u16>,
    /// Those of a packet.
    entries: Vec<(u16, u32)>,
}

impl LaneEntries {
    fn new(lanes: u8, placement: &Placement) -> Self {
        let paddings = placement.regions().iter().map(|layout| layout.cells(lanes) - 1).collect();
        Self { paddings, entries: vec![(0, 0); lanes.into()] }
    }

    /// Writes slots and words of a region, and padding where none of them is.
    pub(super) fn write(
        &mut self,
        region: u8,
        words: impl Iterator<Item = (u16, u32)>,
        packet: &mut PacketWriter<'_>,
    ) {
        self.entries.fill((self.paddings[usize::from(region)], 0));
        let lanes = u16::try_from(self.entries.len()).expect("a packet has at most 255 lanes");
        for (slot, word) in words {
            self.entries[usize::from(slot % lanes)] = (slot / lanes, word);
        }
        packet.extend(self.entries.iter().copied());
    }
}

#[cfg(test)]
mod tests;
