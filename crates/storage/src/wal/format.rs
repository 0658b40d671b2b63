//! The bytes of a segment: its header, and records.
//!
//! All numbers are little-endian.
//!
//! | header, at | bytes | |
//! |---|---|---|
//! | 0 | 8 | `LIBRALOG` |
//! | 8 | 4 | version |
//! | 12 | 4 | shard |
//! | 16 | 8 | job |
//! | 24 | 8 | number of the first record |
//! | 32 | 4 | CRC32C of bytes 0 to 31 |
//!
//! | record, at | bytes | |
//! |---|---|---|
//! | 0 | 4 | CRC32C of job, shard and all that follows |
//! | 4 | 4 | length of the payload; the highest bit is set in a mark |
//! | 8 | 8 | number; of a mark, that of the next record |
//! | 16 | 8 | newest record that was durable when this one was appended |
//! | 24 | length | payload |
//!
//! The last number of a record distinguishes a torn tail from damage: see `recovery`.

use super::RecordNumber;

pub(super) const MAGIC: [u8; 8] = *b"LIBRALOG";
pub(super) const VERSION: u32 = 1;
pub(super) const HEADER_LEN: usize = 36;
pub(super) const RECORD_HEADER_LEN: usize = 24;
/// Longest record. The format has room for twice that.
pub(super) const RECORD_BYTES_MAX: usize = 1 << 30;
const MARK: u32 = 1 << 31;

/// Job and shard of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) job: u64,
    pub(super) shard: u32,
}

impl Owner {
    /// Returns the start value of all checksums of its records, so that those of another log are not taken for its own.
    pub(super) fn salt(self) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&self.job.to_le_bytes()), &self.shard.to_le_bytes())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) owner: Owner,
    pub(super) first: RecordNumber,
}

/// Damage to a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BadHeader {
    Magic,
    Version(u32),
    Checksum,
}

impl Header {
    pub(super) fn to_bytes(self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.owner.shard.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.owner.job.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.first.0.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[..32]);
        bytes[32..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    pub(super) fn parse(bytes: &[u8; HEADER_LEN]) -> Result<Self, BadHeader> {
        if bytes[0..8] != MAGIC {
            return Err(BadHeader::Magic);
        }
        // Before the checksum: another version may have it elsewhere.
        let version = u32_at(bytes, 8);
        if version != VERSION {
            return Err(BadHeader::Version(version));
        }
        if u32_at(bytes, 32) != crc32c::crc32c(&bytes[..32]) {
            return Err(BadHeader::Checksum);
        }
        let owner = Owner { shard: u32_at(bytes, 12), job: u64_at(bytes, 16) };
        Ok(Self { owner, first: RecordNumber(u64_at(bytes, 24)) })
    }
}

/// The part of a record before the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RecordHeader {
    checksum: u32,
    pub(super) is_mark: bool,
    pub(super) length: usize,
    pub(super) number: RecordNumber,
    pub(super) durable: RecordNumber,
}

impl RecordHeader {
    pub(super) fn parse(bytes: &[u8; RECORD_HEADER_LEN]) -> Self {
        let length = u32_at(bytes, 4);
        Self {
            checksum: u32_at(bytes, 0),
            is_mark: length & MARK != 0,
            length: (length & !MARK) as usize,
            number: RecordNumber(u64_at(bytes, 8)),
            durable: RecordNumber(u64_at(bytes, 16)),
        }
    }

    /// Bytes of the whole record.
    pub(super) fn record_len(&self) -> usize {
        RECORD_HEADER_LEN + self.length
    }

    /// Returns true if `record`, header and all, is as it was written.
    pub(super) fn is_sound(&self, salt: u32, record: &[u8]) -> bool {
        self.checksum == crc32c::crc32c_append(salt, &record[4..])
    }
}

/// Appends a record.
pub(super) fn encode_record(
    buffer: &mut Vec<u8>,
    salt: u32,
    number: RecordNumber,
    durable: RecordNumber,
    bytes: &[u8],
) {
    let length = u32::try_from(bytes.len()).expect("at most RECORD_BYTES_MAX");
    encode(buffer, salt, length, number, durable, bytes);
}

/// Appends a mark: nothing was logged, but all before it is durable.
pub(super) fn encode_mark(buffer: &mut Vec<u8>, salt: u32, next: RecordNumber, durable: RecordNumber) {
    encode(buffer, salt, MARK, next, durable, &[]);
}

fn encode(
    buffer: &mut Vec<u8>,
    salt: u32,
    length: u32,
    number: RecordNumber,
    durable: RecordNumber,
    bytes: &[u8],
) {
    let start = buffer.len();
    buffer.extend_from_slice(&[0; 4]);
    buffer.extend_from_slice(&length.to_le_bytes());
    buffer.extend_from_slice(&number.0.to_le_bytes());
    buffer.extend_from_slice(&durable.0.to_le_bytes());
    buffer.extend_from_slice(bytes);
    let checksum = crc32c::crc32c_append(salt, &buffer[start + 4..]);
    buffer[start..start + 4].copy_from_slice(&checksum.to_le_bytes());
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// The name of the segment that begins with this record. Names sort as numbers do.
pub(super) fn segment_name(first: RecordNumber) -> String {
    format!("log-{:020}.libra", first.0)
}

/// The first record of the segment of this name; `None` if it is the name of no segment.
pub(super) fn segment_first(name: &str) -> Option<RecordNumber> {
    let digits = name.strip_prefix("log-")?.strip_suffix(".libra")?;
    let canonical = digits.len() == 20 && digits.bytes().all(|digit| digit.is_ascii_digit());
    // So far from the end that no number after it overflows.
    let number = digits.parse().ok().filter(|number| canonical && (1..1 << 62).contains(number))?;
    Some(RecordNumber(number))
}

/// The name of a segment before it is complete.
pub(super) const UNFINISHED: &str = "log.partial";
