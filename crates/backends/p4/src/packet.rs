//! Packets of an agent to a P4 switch beyond what any switch understands. All of it comes by the port of the agent alone.
//!
//! | packet | effect | `tag` of its answer |
//! |---|---|---|
//! | `FLIP`, kind 8, no entries | sets the round that takes packets and the durable one to those of its header, and the conditions of the region to the upper half of `tag`; with `LAST` the banks are swapped, and what the new one has taken is counted from zero | lower half: what the bank had taken, pushes in the lower 16 bits, those with `LAST` in the upper ones |
//! | `PULL` without entries | nothing | the same |
//! | `DRAIN` | takes the sums of its cells out of the idle bank, and of the acked set of the idle bank the word that `seq` is in, and the highest number of the flow of `worker` | upper half: the word; lower half: one past the highest number, or 0 if this flow gave no packet, or was asked before |
//! | `PUSH` without entries | the window of `worker` remembers for `seq` the lower half of `tag`: one past the newest number that its entry has taken; 0 forgets | |

use libra_dataplane::{BankPackets, Flags, Header};

/// The code of `FLIP`. No other data plane has it: a pipeline that gets one drops it.
pub const KIND_FLIP: u8 = 8;
/// A region takes pushes.
pub const CONDITION_ACTIVE: u8 = 1;
/// The values of a region may be read.
pub const CONDITION_READABLE: u8 = 2;

const KIND_AT: usize = 1;

/// Content of a `FLIP`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flip {
    /// The round that takes packets.
    pub(crate) round: u16,
    /// The newest round that is committed and installed.
    pub(crate) durable: u16,
    pub(crate) is_active: bool,
    pub(crate) is_readable: bool,
    /// True if the banks are swapped.
    pub(crate) swaps: bool,
}

impl Flip {
    /// Returns the packet. `header` names the region.
    pub(crate) fn to_packet(self, header: &Header) -> Vec<u8> {
        let flags = if self.swaps { Flags::LAST } else { Flags::NONE };
        let active = if self.is_active { CONDITION_ACTIVE } else { 0 };
        let readable = if self.is_readable { CONDITION_READABLE } else { 0 };
        let tag = u64::from(active | readable) << 32;
        let (round, durable) = (self.round, self.durable);
        let mut packet = Header { flags, round, durable, tag, ..*header }.to_bytes().to_vec();
        packet[KIND_AT] = KIND_FLIP;
        packet
    }
}

/// The upper and the lower half of a tag.
pub const fn halves(tag: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = tag.to_be_bytes();
    (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]))
}

/// Returns the word that a window keeps for the packet of this number. The numbers of an entry differ by whole windows, so that their order is that
/// of generations, which hardware would have to shift first.
pub const fn remembered(seq: u32) -> u32 {
    seq.wrapping_add(1)
}

/// Returns the packets that a bank has taken from the word that counts them.
pub(crate) const fn bank_packets(word: u32) -> BankPackets {
    BankPackets { pushes: word & 0xffff, last: word >> 16 }
}
