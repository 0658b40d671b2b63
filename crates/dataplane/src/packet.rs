//! A whole packet: reading the entries of one that was checked, and writing one entry by entry.

use crate::wire::{CELLS_MAX, ENTRIES_MAX, ENTRY_BYTES, Flags, HEADER_BYTES, Header, Kind, Malformed};

/// One entry as it is on the wire.
pub(crate) type EntryBytes = [u8; ENTRY_BYTES];

/// One entry of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Cell of the region; the lane follows from the place of the entry in the packet.
    pub cell: u16,
    /// A gradient, a value or a sum, as the arithmetic of the region understands its bits.
    pub value: u32,
}

impl Entry {
    /// Reads an entry. Any six bytes are one.
    #[inline]
    #[must_use]
    pub const fn from_bytes(bytes: [u8; ENTRY_BYTES]) -> Self {
        let [cell0, cell1, value0, value1, value2, value3] = bytes;
        Self {
            cell: u16::from_be_bytes([cell0, cell1]),
            value: u32::from_be_bytes([value0, value1, value2, value3]),
        }
    }

    /// The entry as it is on the wire.
    #[inline]
    #[must_use]
    pub const fn to_bytes(self) -> [u8; ENTRY_BYTES] {
        let [cell0, cell1] = self.cell.to_be_bytes();
        let [value0, value1, value2, value3] = self.value.to_be_bytes();
        [cell0, cell1, value0, value1, value2, value3]
    }
}

/// Sequence numbers `first .. first + count` of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SeqRange {
    /// The first sequence number.
    pub first: u32,
    /// Number of packets in the range.
    pub count: u16,
}

impl SeqRange {
    /// Its sequence numbers. A range that would pass [`u32::MAX`] ends there.
    pub fn iter(self) -> impl Iterator<Item = u32> + Clone {
        self.first..self.first.saturating_add(u32::from(self.count))
    }
}

/// A packet that was checked: reading it cannot fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Its header.
    pub header: Header,
    body: &'a [EntryBytes],
}

impl<'a> Packet<'a> {
    /// Reads and checks a whole packet.
    ///
    /// # Errors
    /// As [`Header::parse`].
    pub fn parse(packet: &'a [u8]) -> Result<Self, Malformed> {
        let header = Header::parse_without_entries(packet)?;
        let body = body(packet);
        if header.has_cells() && body.iter().any(|&bytes| Entry::from_bytes(bytes).cell >= CELLS_MAX) {
            return Err(Malformed::Cell);
        }
        Ok(Self { header, body })
    }

    /// Its entries, in order.
    #[inline]
    pub fn entries(&self) -> impl ExactSizeIterator<Item = Entry> + Clone + use<'a> {
        self.body.iter().map(|&bytes| Entry::from_bytes(bytes))
    }

    /// The entry at a place, if there are so many.
    #[inline]
    #[must_use]
    pub fn entry(&self, place: usize) -> Option<Entry> {
        self.body.get(place).map(|&bytes| Entry::from_bytes(bytes))
    }

    /// Returns the sequence numbers that an `ACK` acknowledges: the ranges it lists, or its `seq` alone. None for other kinds.
    pub fn acknowledged(&self) -> impl Iterator<Item = SeqRange> + Clone + use<'a> {
        let (alone, ranges) = match (self.header.kind, self.header.has_cells() || self.body.is_empty()) {
            (Kind::Ack, true) => (Some(SeqRange { first: self.header.seq, count: 1 }), [].as_slice()),
            (Kind::Ack, false) => (None, self.body),
            _ => (None, [].as_slice()),
        };
        alone.into_iter().chain(ranges.iter().map(|&bytes| {
            let Entry { cell, value } = Entry::from_bytes(bytes);
            SeqRange { first: value, count: cell }
        }))
    }
}

/// The entries of a packet whose length was checked; of any other bytes, the whole entries in them.
pub(crate) fn body(packet: &[u8]) -> &[EntryBytes] {
    packet.get(HEADER_BYTES..).unwrap_or_default().as_chunks().0
}

/// As [`body`], to write to.
pub(crate) fn body_mut(packet: &mut [u8]) -> &mut [EntryBytes] {
    packet.get_mut(HEADER_BYTES..).unwrap_or_default().as_chunks_mut().0
}

/// Writes a packet into a buffer, entry by entry.
///
/// ```
/// use libra_dataplane::{Flags, Header, Kind, Packet, PacketWriter};
///
/// let header = Header {
///     kind: Kind::Push, flags: Flags::LAST, entries: 0, job: 1, worker: 2, plan: 1, view: 1,
///     region: 0, round: 0, durable: 0, seq: 7, tag: 0,
/// };
/// let mut buffer = [0; 1472];
/// let mut writer = PacketWriter::new(header, &mut buffer);
/// assert!(writer.push(3, 100));
/// assert!(writer.push(9, 200));
/// let bytes = writer.finish();
///
/// let packet = Packet::parse(&buffer[..bytes]).unwrap();
/// assert_eq!(packet.header, Header { entries: 2, ..header });
/// assert_eq!(packet.entries().map(|entry| entry.cell).collect::<Vec<_>>(), [3, 9]);
/// ```
#[derive(Debug)]
pub struct PacketWriter<'a> {
    header: Header,
    head: &'a mut [u8; HEADER_BYTES],
    free: core::slice::IterMut<'a, EntryBytes>,
    entries: u8,
}

impl<'a> PacketWriter<'a> {
    /// Starts a packet. The `entries` of `header` is ignored: [`finish`](Self::finish) fills in how many were pushed.
    ///
    /// # Panics
    /// If `buffer` is shorter than [`HEADER_BYTES`].
    #[must_use]
    pub fn new(header: Header, buffer: &'a mut [u8]) -> Self {
        let (head, body) =
            buffer.split_first_chunk_mut().expect("a buffer for a packet has room for its header");
        let (body, _) = body.as_chunks_mut();
        let entries = body.len().min(ENTRIES_MAX);
        let free = body.get_mut(..entries).unwrap_or_default().iter_mut();
        Self { header, head, free, entries: 0 }
    }

    /// Adds an entry; `false` if the packet is full, and then nothing was added.
    #[inline]
    #[must_use = "an entry that did not fit must go into another packet"]
    pub fn push(&mut self, cell: u16, value: u32) -> bool {
        let Some(bytes) = self.free.next() else { return false };
        *bytes = Entry { cell, value }.to_bytes();
        self.entries = self.entries.wrapping_add(1);
        true
    }

    /// Adds entries, cell and value, until there are no more or the packet is full.
    #[inline]
    pub fn extend(&mut self, entries: impl Iterator<Item = (u16, u32)>) {
        let room = self.free.len();
        for ((cell, value), bytes) in entries.zip(self.free.by_ref()) {
            *bytes = Entry { cell, value }.to_bytes();
        }
        let added = room.wrapping_sub(self.free.len());
        self.entries = self.entries.wrapping_add(u8::try_from(added).unwrap_or(u8::MAX));
    }

    /// Adds entries of which cells and values are in lists of their own, as [`extend`](Self::extend) does.
    #[inline]
    pub fn extend_from_slices(&mut self, cells: &[u16], values: &[u32]) {
        let free = core::mem::take(&mut self.free).into_slice();
        let count = cells.len().min(values.len()).min(free.len());
        let (added, free) = free.split_at_mut_checked(count).unwrap_or_default();
        for ((bytes, &cell), &value) in added.iter_mut().zip(cells).zip(values) {
            *bytes = Entry { cell, value }.to_bytes();
        }
        self.entries = self.entries.wrapping_add(u8::try_from(count).unwrap_or(u8::MAX));
        self.free = free.iter_mut();
    }

    /// Sets a flag of the header.
    pub const fn flag(&mut self, flag: Flags) {
        self.header.flags = self.header.flags.with(flag);
    }

    /// Returns the number of entries that were added.
    #[must_use]
    pub const fn entries(&self) -> u8 {
        self.entries
    }

    /// Returns the number of further entries that fit.
    #[must_use]
    pub fn room(&self) -> usize {
        self.free.len()
    }

    /// Writes the header, and returns the number of bytes of the packet in the buffer.
    #[must_use = "the packet is that many bytes of the buffer"]
    pub fn finish(self) -> usize {
        let header = Header { entries: self.entries, ..self.header };
        *self.head = header.to_bytes();
        header.packet_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::packet_bytes;

    const HEADER: Header = Header {
        kind: Kind::Push,
        flags: Flags::LAST,
        entries: 0,
        job: 0x0102,
        worker: 0x0304,
        plan: 0x0506,
        view: 0x0708,
        region: 9,
        round: 0x0A0B,
        durable: 0x0C0D,
        seq: 0x0E0F_1011,
        tag: 0x1213_1415_1617_1819,
    };

    // rule W1
    #[test]
    fn the_layout_is_the_documented_one() {
        let mut buffer = [0xEE; 42];
        let mut writer = PacketWriter::new(HEADER, &mut buffer);
        assert_eq!(writer.room(), 2);
        assert!(writer.push(0x1A1B, 0x1C1D_1E1F));
        assert_eq!(writer.finish(), 36);
        #[rustfmt::skip]
        assert_eq!(buffer, [
            0x4C, 1, 4, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 3, 0xA, 0xB, 0xC, 0xD, 0xE, 0xF, 0x10, 0x11,
            0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19,
            0x1A, 0x1B, 0x1C, 0x1D, 0x1E, 0x1F,
            0xEE, 0xEE, 0xEE, 0xEE, 0xEE, 0xEE,
        ]);
    }

    #[test]
    fn bit_15_is_refused_where_it_is_a_cell() {
        let write = |kind, flags| {
            let mut buffer = [0; 36];
            let mut writer = PacketWriter::new(Header { kind, flags, ..HEADER }, &mut buffer);
            assert!(writer.push(CELLS_MAX, 9));
            assert!(!writer.push(0, 0));
            assert_eq!(writer.finish(), 36);
            Header::parse(&buffer)
        };
        assert_eq!(write(Kind::Push, Flags::NONE), Err(Malformed::Cell));
        assert_eq!(write(Kind::Ack, Flags::VALUES), Err(Malformed::Cell));
        assert!(write(Kind::Ack, Flags::NONE).is_ok());
    }

    // rule W8
    #[test]
    fn acknowledged_is_the_ranges_or_the_packet_alone() {
        let ack = Header { kind: Kind::Ack, flags: Flags::NONE, ..HEADER };
        let bytes = ack.to_bytes();
        let alone = Packet::parse(&bytes).unwrap();
        assert!(alone.acknowledged().eq([SeqRange { first: HEADER.seq, count: 1 }]));

        let mut buffer = [0; 42];
        let mut writer = PacketWriter::new(ack, &mut buffer);
        assert!(writer.push(2, 10) && writer.push(40_000, 100));
        let bytes = writer.finish();
        let ranges = Packet::parse(&buffer[..bytes]).unwrap();
        let expected = [SeqRange { first: 10, count: 2 }, SeqRange { first: 100, count: 40_000 }];
        assert!(ranges.acknowledged().eq(expected));
        assert!(expected[0].iter().eq([10, 11]));

        let push = HEADER.to_bytes();
        assert_eq!(Packet::parse(&push).unwrap().acknowledged().count(), 0);
    }

    #[test]
    fn slices_are_added_like_single_entries_until_it_is_full() {
        let (cells, values) = ([1, 2, 0x1234, 4], [10, 20, 0x1234_5678, 40, 50]);
        for length in [30, 36, 48, 54, 60] {
            let (mut one_by_one, mut at_once) = ([0; 60], [0; 60]);
            let mut writer = PacketWriter::new(HEADER, &mut one_by_one[..length]);
            writer.extend(cells.into_iter().zip(values));
            let bytes = writer.finish();
            let mut writer = PacketWriter::new(HEADER, &mut at_once[..length]);
            writer.extend_from_slices(&cells[..1], &values);
            writer.extend_from_slices(&cells[1..], &values[1..]);
            assert_eq!(writer.finish(), bytes);
            assert_eq!(at_once, one_by_one);
        }
    }

    #[test]
    fn a_packet_holds_at_most_255_entries() {
        let mut buffer = [0; 4000];
        let mut writer = PacketWriter::new(HEADER, &mut buffer);
        let fitted = (0..1000).take_while(|&cell| writer.push(cell, 1)).count();
        assert_eq!(fitted, ENTRIES_MAX);
        assert_eq!(writer.finish(), packet_bytes(u8::MAX));
    }
}
