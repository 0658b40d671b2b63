//! Bits that flip where no checksum sees it: in the memory of a card or of a switch, before or after the checksum was computed.
//!
//! Gradients, values, sequence numbers and rounds are protected by nothing as long as the place of the MAC is empty, so what flips there is
//! taken for what was sent. A bit of what the protocol compares makes a packet that is dropped or refused, and changes nothing.

use libra_dataplane::{CELLS_MAX, ENTRY_BYTES, Flags, HEADER_BYTES, Header, Kind};

use crate::random::Random;

/// Fields in which bits flip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlippedBits {
    /// In what the protocol compares.
    Compared,
    /// Anywhere.
    Any,
}

/// Flips bits of the datagrams of a [`World`](crate::World).
#[derive(Debug)]
pub(crate) struct Flips {
    pub(crate) bits: FlippedBits,
    /// The chance that a datagram is hit.
    pub(crate) chance: f64,
    /// Entries of a packet that are in different lanes.
    pub(crate) lanes: usize,
    pub(crate) random: Random,
}

/// A datagram that was hit, with a checksum that is right.
#[derive(Debug)]
pub(crate) struct Flipped {
    pub(crate) bytes: Vec<u8>,
    /// True if the datagram as it was sent does not arrive.
    pub(crate) is_instead: bool,
}

impl Flips {
    /// Returns the changed datagram, if it is hit.
    pub(crate) fn flip(&mut self, datagram: &[u8]) -> Option<Flipped> {
        if !self.random.chance(self.chance) {
            return None;
        }
        let mut bytes = datagram.to_vec();
        match self.bits {
            FlippedBits::Any => {
                for _ in 0..self.random.within(1..=4) {
                    let bit = self.random.index(bytes.len() * 8);
                    flip_bit(&mut bytes, bit / 8, bit % 8);
                }
            }
            FlippedBits::Compared => self.flip_compared(&mut bytes)?,
        }
        Some(Flipped { bytes, is_instead: self.random.chance(0.5) })
    }

    /// Flips a bit such that the packet must not count; `None` if it has none at the place that was drawn.
    fn flip_compared(&mut self, bytes: &mut Vec<u8>) -> Option<()> {
        let header = Header::parse(bytes).ok()?;
        let is_request = matches!(header.kind, Kind::Push | Kind::Pull) && !is_answer(&header);
        let bit = self.random.index(8);
        let wide = self.random.index(2);
        match self.random.below(12) {
            0 => flip_bit(bytes, 0, bit),
            1 => flip_bit(bytes, 1, bit),
            2 if header.kind == Kind::Push => flip_bit(bytes, 2, bit),
            3 => flip_bit(bytes, 3, bit),
            4 => flip_bit(bytes, 4 + wide, bit),
            5 => flip_bit(bytes, 6 + wide, bit),
            6 if is_request => flip_bit(bytes, 8 + wide, bit),
            // Another view than any of these: a bit that makes the present one of one that has just ended makes the packet that its worker is
            // about to send.
            7 if wide == 0 => flip_bit(bytes, 10, bit),
            7 => flip_bit(bytes, 11, 6 + bit % 2),
            // A region that there is not: there are fewer than 128.
            8 => flip_bit(bytes, 12, 7),
            9 => flip_bit(bytes, 13, bit),
            10 => {
                let cut = 1 + self.random.index(bytes.len() - 1);
                bytes.truncate(bytes.len() - cut);
            }
            11 if header.entries > 0 => return self.flip_cell(bytes, &header),
            _ => return None,
        }
        Some(())
    }

    /// A cell that is none, or that does not come after the one before it in its lane.
    fn flip_cell(&mut self, bytes: &mut [u8], header: &Header) -> Option<()> {
        let entry = self.random.index(usize::from(header.entries));
        let at = HEADER_BYTES + entry * ENTRY_BYTES;
        let cell_of = |bytes: &[u8], at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let before = entry.checked_sub(self.lanes).map(|before| HEADER_BYTES + before * ENTRY_BYTES);
        let after = Some(at + self.lanes * ENTRY_BYTES).filter(|after| *after < bytes.len());
        let bit = self.random.index(15);
        let mut changed = cell_of(bytes, at) ^ 1 << bit;
        let is_late = before.is_some_and(|before| changed <= cell_of(bytes, before));
        let is_early = after.is_some_and(|after| changed >= cell_of(bytes, after));
        // A read may name any cells, in any order.
        if header.kind != Kind::Push || !(is_late || is_early) {
            let has_cells = header.kind != Kind::Ack || header.flags.contains(Flags::VALUES);
            if !has_cells {
                return None;
            }
            changed = cell_of(bytes, at) | CELLS_MAX;
        }
        bytes[at..at + 2].copy_from_slice(&changed.to_be_bytes());
        Some(())
    }
}

/// True if what might be a request is an answer: one to a `PULL` has values.
fn is_answer(header: &Header) -> bool {
    header.kind == Kind::Pull && header.flags.contains(Flags::VALUES)
}

fn flip_bit(bytes: &mut [u8], byte: usize, bit: usize) {
    bytes[byte] ^= 1 << bit;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push() -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES + 3 * ENTRY_BYTES];
        Header { entries: 3, job: 9, ..Header::of_kind(Kind::Push) }.emit(&mut bytes);
        for (entry, cell) in bytes[HEADER_BYTES..].chunks_exact_mut(ENTRY_BYTES).zip([4u16, 5, 9]) {
            entry[..2].copy_from_slice(&cell.to_be_bytes());
        }
        bytes
    }

    #[test]
    fn flips_hit_compared_fields_and_no_gradients() {
        let sent = push();
        let mut flips = Flips { bits: FlippedBits::Compared, chance: 1.0, lanes: 1, random: Random::new(5) };
        let hit: Vec<Vec<u8>> = (0..2000).filter_map(|_| flips.flip(&sent)).map(|hit| hit.bytes).collect();
        assert!(hit.len() > 1500 && hit.iter().all(|bytes| *bytes != sent));
        for bytes in hit.iter().filter(|bytes| bytes.len() == sent.len()) {
            assert_eq!(bytes[14..HEADER_BYTES], sent[14..HEADER_BYTES], "rounds, sequence number and tag");
            let values =
                |bytes: &[u8]| bytes[HEADER_BYTES..].chunks(6).map(|entry| entry[2..].to_vec()).collect();
            let (before, after): (Vec<_>, Vec<_>) = (values(&sent), values(bytes));
            assert_eq!(before, after);
        }
        let orders = hit.iter().filter(|bytes| {
            let packet = libra_dataplane::Packet::parse(bytes);
            packet.is_ok_and(|packet| !packet.entries().is_sorted_by(|one, next| one.cell < next.cell))
        });
        assert!(orders.count() > 20);
    }
}
