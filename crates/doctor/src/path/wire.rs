//! Formats: frames of the stream, and probes.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use libra_proto::VERSION;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Bytes of a frame, question or answer: an answer is never longer than its question.
pub(super) const FRAME_BYTES: usize = 256;
/// What follows the head of a frame, and all of a probe.
pub(super) const FORMAT: u16 = 1;
const FRAME_MAGIC: [u8; 8] = *b"LIBRADOC";
const PROBE_MAGIC: [u8; 8] = *b"LIBRAPRB";
/// Magic, format, version of the messages. The same in every format.
const HEAD_BYTES: usize = 12;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Question {
    /// A session is wanted.
    Hello,
    /// What came of it.
    Counts,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// A session, and the address that the question came from.
    Welcome {
        session: u64,
        caller: SocketAddr,
    },
    /// As many sessions as there may be.
    Busy,
    Counts(Counts),
}

/// What came at the listener.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Counts {
    /// Probes of the kind [`Kind::Echo`], each once.
    pub(super) arrived: u32,
    pub(super) duplicates: u32,
    pub(super) reordered: u32,
    /// Bytes of the longest, of both kinds.
    pub(super) longest: u16,
    /// Probes whose checksum was wrong, and datagrams that the kernel refused for theirs.
    pub(super) corrupted: u64,
    /// Of the kind [`Kind::Count`]: bytes behind the first datagram, and the time from the first to the last.
    pub(super) counted_bytes: u64,
    pub(super) counted_ns: u64,
}

/// Head of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) format: u16,
    pub(super) messages: u16,
}

/// Writes a frame.
pub(super) fn frame(content: &impl Serialize) -> [u8; FRAME_BYTES] {
    let mut bytes = [0; FRAME_BYTES];
    bytes[..8].copy_from_slice(&FRAME_MAGIC);
    bytes[8..10].copy_from_slice(&FORMAT.to_be_bytes());
    bytes[10..HEAD_BYTES].copy_from_slice(&VERSION.to_be_bytes());
    postcard::to_slice(content, &mut bytes[HEAD_BYTES..]).expect("contents are below a hundred bytes");
    bytes
}

/// Reads the head of a frame; none if it is of another program.
pub(super) fn head(bytes: &[u8; FRAME_BYTES]) -> Option<Head> {
    let number = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    (bytes[..8] == FRAME_MAGIC).then(|| Head { format: number(8), messages: number(10) })
}

/// Reads what a frame of this format has.
pub(super) fn content<T: DeserializeOwned>(bytes: &[u8; FRAME_BYTES]) -> Option<T> {
    (head(bytes)?.format == FORMAT).then(|| postcard::from_bytes(&bytes[HEAD_BYTES..]).ok())?
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// It comes back.
    Echo,
    /// It is counted.
    Count,
    /// It came back.
    Echoed,
}

/// A probe.
///
/// ```text
///  0 magic (8)   8 session (8)   16 kind (1)   20 number (4)   24 CRC-32C of all the rest (4)   28 address (16)   44 port (2)   filling
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Probe {
    pub(super) session: u64,
    pub(super) kind: Kind,
    pub(super) number: u32,
    /// Of a probe that came back: where it came from.
    pub(super) caller: Option<SocketAddr>,
}

/// Bytes of the shortest probe.
pub(super) const PROBE_BYTES_MIN: usize = 64;
const CHECKSUM: core::ops::Range<usize> = 24..28;

/// Reasons why bytes are no probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoProbe {
    /// Of another program.
    Foreign,
    /// Its checksum is wrong.
    Corrupted,
}

impl Probe {
    /// Fills all of `bytes`, of which there are at least [`PROBE_BYTES_MIN`].
    pub(super) fn write(&self, bytes: &mut [u8]) {
        bytes.fill(0xa5);
        bytes[..8].copy_from_slice(&PROBE_MAGIC);
        bytes[8..16].copy_from_slice(&self.session.to_be_bytes());
        bytes[16] = match self.kind {
            Kind::Echo => 0,
            Kind::Count => 1,
            Kind::Echoed => 2,
        };
        bytes[20..24].copy_from_slice(&self.number.to_be_bytes());
        let (ip, port) = self.caller.map_or((Ipv6Addr::UNSPECIFIED, 0), |caller| match caller.ip() {
            IpAddr::V4(ip) => (ip.to_ipv6_mapped(), caller.port()),
            IpAddr::V6(ip) => (ip, caller.port()),
        });
        bytes[28..44].copy_from_slice(&ip.octets());
        bytes[44..46].copy_from_slice(&port.to_be_bytes());
        let checksum = checksum(bytes);
        bytes[CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Self, NoProbe> {
        if bytes.len() < PROBE_BYTES_MIN || bytes[..8] != PROBE_MAGIC {
            return Err(NoProbe::Foreign);
        }
        let number = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if number(CHECKSUM.start) != checksum(bytes) {
            return Err(NoProbe::Corrupted);
        }
        let kind = match bytes[16] {
            0 => Kind::Echo,
            1 => Kind::Count,
            2 => Kind::Echoed,
            _ => return Err(NoProbe::Foreign),
        };
        let session = u64::from(number(8)) << 32 | u64::from(number(12));
        let mut ip = [0; 16];
        ip.copy_from_slice(&bytes[28..44]);
        let port = u16::from_be_bytes([bytes[44], bytes[45]]);
        let caller = (port != 0).then(|| SocketAddr::new(Ipv6Addr::from(ip).to_canonical(), port));
        Ok(Self { session, kind, number: number(20), caller })
    }
}

fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..CHECKSUM.start]), &bytes[CHECKSUM.end..])
}
