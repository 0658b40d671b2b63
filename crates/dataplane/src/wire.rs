//! The hot packet: what its bytes mean, how it is read and how it is written.
//!
//! All numbers are big-endian, so that a P4 parser reads them as they are (rule W1).
//!
//! ```text
//!  0 magic u8 | kind u8 | flags u8 | entries u8
//!  4 job u16              | worker u16
//!  8 plan u16             | view u16
//! 12 region u8 | version u8
//! 14 round u16            | durable u16
//! 18 seq u32
//! 22 tag u64
//! 30 entries x { cell u16, value u32 }
//! ```
//!
//! The content of the entries of a packet depends on its kind:
//!
//! | kind | request | answer |
//! |---|---|---|
//! | `PUSH` | cell, gradient | an `ACK` or a `NACK` |
//! | `PULL` | cell, ignored | the same cells with their values; flag `VALUES` |
//! | `INSTALL` | cell, new value | an `ACK` |
//! | `DRAIN` | cell, ignored | the same cells with their sums; flag `VALUES` |
//! | `ACK` with `VALUES` | | cell, current value |
//! | `ACK` without | | count, first sequence number of a range; none at all means `seq` alone |
//!
//! Every answer carries in `durable` the newest round of its region that is committed and installed, in `round` the
//! round that took the packet, and in `view` the view of the region; in a `NACK`, `round` holds the [`NackReason`].
//!
//! A *view* is the number of an assignment of regions to switches, raised whenever a region moves to another switch; its
//! lower 16 bits are on the wire. A region takes packets of its own view only, so that neither a packet nor an answer
//! from before a move can do harm after it: a switch that was thought dead refuses what is meant for its successor, and
//! the other way round. What is refused for its view alone is answered with the view that the region has.

use core::fmt;

/// First byte of every hot packet.
pub const MAGIC: u8 = 0x4C;
/// The version of the format that this module reads and writes.
pub const VERSION: u8 = 3;
/// Bytes before the first entry.
pub const HEADER_BYTES: usize = 30;
/// Bytes of one entry: a cell (u16) and a value (u32).
pub const ENTRY_BYTES: usize = 6;
/// The most entries a packet can hold: its count is one byte.
pub const ENTRIES_MAX: usize = 255;
/// The most cells a region can have: bit 15 of a cell is zero on the wire, hardware puts the bank there.
pub const CELLS_MAX: u16 = 1 << 15;

/// Bytes of a packet of this many entries.
///
/// ```
/// assert_eq!(libra_dataplane::packet_bytes(240), 1470);
/// ```
#[must_use]
pub const fn packet_bytes(entries: u8) -> usize {
    HEADER_BYTES.wrapping_add((entries as usize).wrapping_mul(ENTRY_BYTES))
}

/// The most entries that fit in a packet of `bytes` bytes, such as the payload that a path lets through.
///
/// ```
/// assert_eq!(libra_dataplane::entries_in(1472), 240);
/// assert_eq!(libra_dataplane::entries_in(20), 0);
/// assert_eq!(libra_dataplane::entries_in(9000), 255);
/// ```
#[must_use]
pub const fn entries_in(bytes: usize) -> u8 {
    let entries = bytes.saturating_sub(HEADER_BYTES) / ENTRY_BYTES;
    if entries < ENTRIES_MAX {
        #[expect(clippy::cast_possible_truncation, reason = "it was just compared with 255")]
        let entries = entries as u8;
        entries
    } else {
        u8::MAX
    }
}

/// Returns true if round `a` is newer than round `b`, where rounds wrap around (rule W11, serial number arithmetic of RFC 1982).
///
/// Rounds that are 2^15 apart compare as not newer both ways; no two rounds that are alive at once are that far apart.
///
/// ```
/// use libra_dataplane::round_newer;
/// assert!(round_newer(8, 7) && !round_newer(7, 7) && !round_newer(7, 8));
/// assert!(round_newer(2, u16::MAX));
/// ```
#[must_use]
pub const fn round_newer(a: u16, b: u16) -> bool {
    let distance = a.wrapping_sub(b);
    distance != 0 && distance < 1 << 15
}

/// Kind of a packet: its request or its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Add the entries to the active bank.
    Push = 1,
    /// Read the values of the entries; also its answer.
    Pull = 2,
    /// Write the values of the entries. Only from the owning shard.
    Install = 3,
    /// Read and clear the entries of the idle bank; also its answer. Only from the agent.
    Drain = 4,
    /// Taken.
    Ack = 5,
    /// Refused, for a [`NackReason`].
    Nack = 6,
    /// Dense streaming in the manner of SwitchML. Reserved: pipelines drop it.
    Stream = 7,
}

impl Kind {
    /// The kind of this code, if there is one.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Push,
            2 => Self::Pull,
            3 => Self::Install,
            4 => Self::Drain,
            5 => Self::Ack,
            6 => Self::Nack,
            7 => Self::Stream,
            _ => return None,
        })
    }
}

/// Marks on a packet. A value of this type has no unknown bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(u8);

impl Flags {
    /// No mark.
    pub const NONE: Self = Self(0);
    /// The packet was sent before, with the same sequence number.
    pub const RETRANSMIT: Self = Self(0x01);
    /// On a `PUSH`: answer with values. On an answer: the entries hold values (or the sums of a drain).
    pub const VALUES: Self = Self(0x02);
    /// The last packet of one push in this region.
    pub const LAST: Self = Self(0x04);

    /// The flags of these bits, or `None` if a bit among them means nothing.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Option<Self> {
        if bits & !(Self::RETRANSMIT.0 | Self::VALUES.0 | Self::LAST.0) == 0 {
            Some(Self(bits))
        } else {
            None
        }
    }

    /// The bits as they are on the wire.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Returns true if all of `flags` are set.
    #[must_use]
    pub const fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// These flags and those.
    #[must_use]
    pub const fn with(self, flags: Self) -> Self {
        Self(self.0 | flags.0)
    }
}

/// Reason why a request was refused. The sender receives it; nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum NackReason {
    /// The active bank has taken as many packets as it may before the next flip.
    BankFull = 1,
    /// The packet was made for another plan than the region has.
    StalePlan = 2,
    /// The region has no values to read yet: read from the shard.
    NotInstalled = 3,
    /// The region is not here, or the worker has no flow in it.
    UnknownFlow = 4,
    /// The region takes no pushes now.
    Inactive = 5,
    /// The packet was sent under another view than the region has: one of the two is from before a move.
    StaleView = 6,
    /// The job has sent more than its part of a switch that it shares with others. Reserved: no switch refuses for it yet.
    Throttled = 7,
}

impl NackReason {
    /// Every reason, in the order of their codes.
    pub const ALL: [Self; 7] = [
        Self::BankFull,
        Self::StalePlan,
        Self::NotInstalled,
        Self::UnknownFlow,
        Self::Inactive,
        Self::StaleView,
        Self::Throttled,
    ];

    /// The reason of this code, if there is one.
    #[must_use]
    pub const fn from_code(code: u16) -> Option<Self> {
        Some(match code {
            1 => Self::BankFull,
            2 => Self::StalePlan,
            3 => Self::NotInstalled,
            4 => Self::UnknownFlow,
            5 => Self::Inactive,
            6 => Self::StaleView,
            7 => Self::Throttled,
            _ => return None,
        })
    }
}

/// Reason why a sequence of bytes is not a packet, or not one that its region can take (rules W2, W5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Malformed {
    /// Shorter than a header.
    Truncated,
    /// The first byte is not [`MAGIC`].
    Magic,
    /// Another version of the format.
    Version,
    /// No such kind.
    Kind,
    /// A flag that means nothing.
    Flags,
    /// The length does not agree with the number of entries.
    Length,
    /// A cell that does not exist.
    Cell,
    /// The cells of a lane do not strictly increase: a slot could be touched twice in one pass.
    Order,
    /// A value outside of the bound of its region, not finite, or not zero in a padding entry.
    Value,
    /// The sequence number [`u32::MAX`], which is never used.
    Sequence,
}

impl fmt::Display for Malformed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Truncated => "shorter than a header",
            Self::Magic => "wrong magic",
            Self::Version => "another version",
            Self::Kind => "unknown kind",
            Self::Flags => "unknown flag",
            Self::Length => "length and number of entries disagree",
            Self::Cell => "cell out of range",
            Self::Order => "cells of a lane do not increase",
            Self::Value => "value out of bounds",
            Self::Sequence => "sequence number out of range",
        })
    }
}

impl core::error::Error for Malformed {}

/// The header of a packet. Any value of this type can be emitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Header {
    /// Kind of the packet.
    pub kind: Kind,
    /// Marks.
    pub flags: Flags,
    /// Number of entries that follow.
    pub entries: u8,
    /// The tenant.
    pub job: u16,
    /// The worker whose packet this is, or whose packet is answered.
    pub worker: u16,
    /// Number of the plan that defines the cells of the region.
    pub plan: u16,
    /// The view under which the region is held according to the sender; in an answer: the region's own, or that of the
    /// request if the region is not here.
    pub view: u16,
    /// The region, counted per job.
    pub region: u8,
    /// In an answer: the round that took the packet; in a `NACK`: the code of the [`NackReason`]; else zero.
    pub round: u16,
    /// In an answer: the newest round of the region that is committed and installed; else zero.
    pub durable: u16,
    /// Sequence number in the flow (job, worker, region).
    pub seq: u32,
    /// Evidence of sender and contents in a job with keys, else zero (rules A1 to A5).
    pub tag: u64,
}

impl Header {
    /// A header of this kind in which everything else is zero, for its writer to fill in.
    #[must_use]
    pub const fn of_kind(kind: Kind) -> Self {
        Self {
            kind,
            flags: Flags::NONE,
            entries: 0,
            job: 0,
            worker: 0,
            plan: 0,
            view: 0,
            region: 0,
            round: 0,
            durable: 0,
            seq: 0,
            tag: 0,
        }
    }

    /// Reads and checks a whole packet: header, length, and that no cell has bit 15 set.
    ///
    /// The entries of an `ACK` without [`Flags::VALUES`] hold counts, which have no such bit to check.
    ///
    /// # Errors
    /// The first fault, in the order of the bytes; then the length; then the entries.
    pub fn parse(packet: &[u8]) -> Result<Self, Malformed> {
        crate::packet::Packet::parse(packet).map(|packet| packet.header)
    }

    /// As [`parse`](Self::parse), but leaves the entries unread: for callers that check them against a region anyway.
    ///
    /// # Errors
    /// As [`parse`](Self::parse), except [`Malformed::Cell`].
    pub fn parse_without_entries(packet: &[u8]) -> Result<Self, Malformed> {
        let Some((head, body)) = packet.split_first_chunk::<HEADER_BYTES>() else {
            return Err(Malformed::Truncated);
        };
        let &[
            magic,
            kind,
            flags,
            entries,
            job0,
            job1,
            worker0,
            worker1,
            plan0,
            plan1,
            view0,
            view1,
            region,
            version,
            round0,
            round1,
            durable0,
            durable1,
            seq0,
            seq1,
            seq2,
            seq3,
            ref tag @ ..,
        ] = head;
        if magic != MAGIC {
            return Err(Malformed::Magic);
        }
        let kind = Kind::from_code(kind).ok_or(Malformed::Kind)?;
        let flags = Flags::from_bits(flags).ok_or(Malformed::Flags)?;
        if version != VERSION {
            return Err(Malformed::Version);
        }
        if body.len() != usize::from(entries).wrapping_mul(ENTRY_BYTES) {
            return Err(Malformed::Length);
        }
        Ok(Self {
            kind,
            flags,
            entries,
            job: u16::from_be_bytes([job0, job1]),
            worker: u16::from_be_bytes([worker0, worker1]),
            plan: u16::from_be_bytes([plan0, plan1]),
            view: u16::from_be_bytes([view0, view1]),
            region,
            round: u16::from_be_bytes([round0, round1]),
            durable: u16::from_be_bytes([durable0, durable1]),
            seq: u32::from_be_bytes([seq0, seq1, seq2, seq3]),
            tag: u64::from_be_bytes(*tag),
        })
    }

    /// The header as it is on the wire.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let [job0, job1] = self.job.to_be_bytes();
        let [worker0, worker1] = self.worker.to_be_bytes();
        let [plan0, plan1] = self.plan.to_be_bytes();
        let [view0, view1] = self.view.to_be_bytes();
        let [round0, round1] = self.round.to_be_bytes();
        let [durable0, durable1] = self.durable.to_be_bytes();
        let [seq0, seq1, seq2, seq3] = self.seq.to_be_bytes();
        let [tag0, tag1, tag2, tag3, tag4, tag5, tag6, tag7] = self.tag.to_be_bytes();
        #[rustfmt::skip]
        let bytes = [
            MAGIC, self.kind as u8, self.flags.bits(), self.entries,
            job0, job1, worker0, worker1,
            plan0, plan1, view0, view1,
            self.region, VERSION,
            round0, round1, durable0, durable1,
            seq0, seq1, seq2, seq3,
            tag0, tag1, tag2, tag3, tag4, tag5, tag6, tag7,
        ];
        bytes
    }

    /// Writes the header over the first [`HEADER_BYTES`] bytes of `packet`; what follows stays as it is.
    ///
    /// # Panics
    /// If `packet` is shorter than that.
    pub fn emit(&self, packet: &mut [u8]) {
        *packet.first_chunk_mut().expect("a buffer for a packet has room for its header") = self.to_bytes();
    }

    /// Bytes of the whole packet.
    #[must_use]
    pub const fn packet_bytes(&self) -> usize {
        packet_bytes(self.entries)
    }

    /// Returns the reason of the refusal: of a `NACK` with a known reason.
    #[must_use]
    pub const fn nack_reason(&self) -> Option<NackReason> {
        match self.kind {
            Kind::Nack => NackReason::from_code(self.round),
            _ => None,
        }
    }

    /// Returns true if the entries begin with a cell, rather than with the length of a range.
    pub(crate) const fn has_cells(&self) -> bool {
        !matches!(self.kind, Kind::Ack) || self.flags.contains(Flags::VALUES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    // rule W2
    #[test]
    fn each_fault_has_its_name() {
        let good = HEADER.to_bytes();
        let fault = |at: usize, byte: u8| {
            let mut bytes = good;
            bytes[at] = byte;
            Header::parse(&bytes)
        };
        assert_eq!(Header::parse(&good), Ok(HEADER));
        assert_eq!(Header::parse(&good[..29]), Err(Malformed::Truncated));
        assert_eq!(fault(0, 0), Err(Malformed::Magic));
        assert_eq!(fault(1, 0), Err(Malformed::Kind));
        assert_eq!(fault(1, 8), Err(Malformed::Kind));
        assert_eq!(fault(2, 8), Err(Malformed::Flags));
        assert_eq!(fault(3, 1), Err(Malformed::Length));
        assert_eq!(fault(13, 2), Err(Malformed::Version));
        assert_eq!(fault(13, 4), Err(Malformed::Version));
    }

    #[test]
    fn every_reason_has_a_code_of_its_own() {
        for (code, reason) in (1..).zip(NackReason::ALL) {
            assert_eq!((reason as u16, NackReason::from_code(code)), (code, Some(reason)));
        }
        assert_eq!(NackReason::from_code(0), None);
        assert_eq!(NackReason::from_code(8), None);
    }
}
