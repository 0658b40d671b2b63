//! Packing of a batch of gradients into packets by a worker: the paper's Algorithm 1 and the order of arrival.

use serde::Serialize;

use crate::layout::Layout;

/// Bytes of the largest packet of the paper, which its parser must read whole.
pub const PACKET_BYTES: u32 = 192;
/// Bytes of the headers that `dataplane`'s packets have before the first entry on the wire: Ethernet 14, IPv4 20, UDP
/// 8, ours 30.
pub const HEADERS_BYTES: u32 = 14 + 20 + 8 + 30;
/// Default number of entries of a packet: those of the profile `tofino` of the wire.
///
/// It is 168 bytes on the wire. Of the paper's 192 bytes, 20 entries of 6 bytes would fit behind [`HEADERS_BYTES`]; 24
/// pairs of two 4-byte numbers if 192 bytes are meant without any header. The paper does not say which.
pub const ENTRIES_PER_PACKET: u32 = 16;

/// Returns the number of entries that fit in a packet; none if the headers fill it.
///
/// ```
/// use libra_paper::{HEADERS_BYTES, PACKET_BYTES, entries_that_fit};
///
/// assert_eq!(entries_that_fit(PACKET_BYTES, HEADERS_BYTES, 6), 20);
/// assert_eq!(entries_that_fit(PACKET_BYTES, 0, 8), 24);
/// ```
///
/// # Panics
/// If an entry has no bytes.
#[must_use]
pub const fn entries_that_fit(packet_bytes: u32, headers_bytes: u32, entry_bytes: u32) -> u32 {
    packet_bytes.saturating_sub(headers_bytes) / entry_bytes
}

/// The paper's Estimate_packets: how many packets carry so many gradients.
///
/// # Panics
/// If a packet has no entries.
#[must_use]
pub const fn estimate_packets(gradients: usize, entries_per_packet: u32) -> usize {
    gradients.div_ceil(entries_per_packet as usize)
}

/// A way to pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Packing {
    /// The paper's Algorithm 1.
    Algorithm1,
    /// In the order in which the gradients are given, each packet full but the last: the baseline.
    Arrival,
}

/// A batch in packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// The ranks of each packet. None is empty.
    pub packets: Vec<Vec<u32>>,
    /// The first this many were packed by the layout; the others carry what was left over, the paper's G'.
    pub by_layout: usize,
}

/// Packs the gradients of a batch, given by the ranks of their parameters.
///
/// # Panics
/// If a packet has no entries, or a rank is not placed.
#[must_use]
pub fn pack(packing: Packing, batch: &[u32], layout: &Layout, entries_per_packet: u32) -> Packed {
    match packing {
        Packing::Algorithm1 => orchestrate(batch, layout, entries_per_packet),
        Packing::Arrival => Packed { packets: in_order(batch, entries_per_packet), by_layout: 0 },
    }
}

/// The paper's Algorithm 1, Parameter_orchestrating(G, m): each gradient goes into the first packet that is not full
/// and does not yet hold one of the same register. If there is none, it is left over. What is left over goes into new
/// packets, without regard to the layout.
///
/// The algorithm as it is written strikes, for each gradient, all packets with its register from a copy of the list.
/// Here is no copy: before the packet that took the last gradient of a register, every packet that is not full holds
/// that register already, or the gradient would have gone there. It stays so, because packets only fill. So the
/// search for the next one begins behind it, and full packets are skipped by a forest of pointers to the next that
/// may not be full (Tarjan's union-find): nearly constant time for each gradient.
///
/// ```
/// use libra_paper::{Layout, orchestrate};
///
/// // Ranks 0, 4 and 8 are in one register of four.
/// let packed = orchestrate(&[0, 4, 1, 8, 2, 3], &Layout::heat(12, 4), 3);
/// assert_eq!(packed.packets, [vec![0, 1, 2], vec![4, 3], vec![8]]);
/// assert_eq!(packed.by_layout, 2);
/// ```
///
/// # Panics
/// If a packet has no entries, or a rank is not placed.
#[must_use]
pub fn orchestrate(batch: &[u32], layout: &Layout, entries_per_packet: u32) -> Packed {
    let entries = entries_per_packet as usize;
    let mut packets = vec![Vec::with_capacity(entries); estimate_packets(batch.len(), entries_per_packet)];
    let mut open = OpenPackets::new(packets.len());
    // For each register, the packet after the one that took its last gradient.
    let mut next = vec![0; layout.registers() as usize];
    let mut left_over = Vec::new();
    for &rank in batch {
        let register = layout.register(rank);
        let Some(index) = open.first_from(next[register]) else {
            next[register] = packets.len();
            left_over.push(rank);
            continue;
        };
        packets[index].push(rank);
        next[register] = index + 1;
        if packets[index].len() == entries {
            open.close(index);
        }
    }
    let by_layout = packets.len();
    packets.extend(in_order(&left_over, entries_per_packet));
    Packed { packets, by_layout }
}

fn in_order(batch: &[u32], entries_per_packet: u32) -> Vec<Vec<u32>> {
    batch.chunks(entries_per_packet as usize).map(<[u32]>::to_vec).collect()
}

/// The packets that are not full.
struct OpenPackets {
    /// For each packet itself if it is open, or one after it before which none is; the last entry is the end.
    forward: Vec<usize>,
}

impl OpenPackets {
    fn new(packets: usize) -> Self {
        Self { forward: (0..=packets).collect() }
    }

    fn close(&mut self, index: usize) {
        self.forward[index] = index + 1;
    }

    /// The first open packet that is not before `index`.
    fn first_from(&mut self, index: usize) -> Option<usize> {
        let mut at = index;
        while self.forward[at] != at {
            // Halves the path for those who come after.
            self.forward[at] = self.forward[self.forward[at]];
            at = self.forward[at];
        }
        (at + 1 < self.forward.len()).then_some(at)
    }
}

#[cfg(test)]
mod tests;
