//! Opens a log: reads its files, and distinguishes a tail that a crash tore from damage.
//!
//! A crash may leave anything in place of bytes that were written and not synced: parts, zeros, even a later record without
//! an earlier one. All that can be cut off, because it was never called durable. The same bytes in place of a record
//! that *was* durable are damage, and must never be cut off silently. Three rules distinguish them:
//!
//! - Only the last segment can have a torn tail. Any other ends with the record before the next one, which was durable
//!   when that was begun; bytes behind it do not count.
//! - Each record names the newest durable one at the time when it was appended. If anywhere behind a place that
//!   cannot be read there is a sound record that names the record which should be in that place, or a later one, it
//!   is damage.
//! - If there is none, the record was at best in the last batch that was synced, and nothing on the disk shows if
//!   that sync was completed: it counts as torn, and is reported as such. [`Log::close`] writes a mark so that this
//!   doubt is only left after a crash.
//!
//! There is a third kind of bytes: sound, and perhaps not on the disk. If only the process died, the bytes read of the
//! last batch may come from memory; and if a sync had failed before, no later one would write it. So records of which
//! which nothing shows to be durable are written again, into a new segment, before the log is open.

use std::collections::VecDeque;
use std::error::Error;

use tracing::debug;

use super::error::{Damage, OpenError};
use super::format::{BadHeader, HEADER_LEN, Header, RECORD_HEADER_LEN, RecordHeader, UNFINISHED, VERSION};
use super::format::{segment_first, segment_name};
use super::window::Window;
use super::{Log, RecordNumber, Settings, Tail};
use crate::disk::{Disk, DiskError, read_exact, remove_if_there};

/// In the search behind a torn place, at most so many times the length of the searched bytes goes into checksums. Bytes
/// that need more were made to.
const SEARCH_EFFORT: u64 = 64;

/// Result of [`Log::open`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovery {
    /// Number of records that the owner was given.
    pub replayed: u64,
    /// The newest record of the log.
    pub newest: RecordNumber,
    /// The tail that was cut off, if there was one.
    pub torn: Option<Torn>,
}

/// An end of a log that was not written completely.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Torn {
    /// The segment.
    pub file: String,
    /// Place of the cut.
    pub offset: u64,
    /// Number of bytes that were cut off.
    pub bytes: u64,
    /// The record that would have been there.
    pub record: RecordNumber,
    /// The damage to it.
    pub damage: Damage,
}

/// Result of reading a segment.
pub(super) struct Segment {
    /// End of its sound records.
    pub(super) end: u64,
    pub(super) bytes: u64,
    /// The record that would follow.
    pub(super) next: RecordNumber,
    /// The damage instead of it.
    pub(super) damage: Option<Damage>,
    /// The newest record that is certain to have been durable.
    certain: RecordNumber,
    /// End of that record.
    certain_end: u64,
}

impl<D: Disk> Log<D> {
    /// Opens the log in a directory, or begins one, and gives the owner its records from number `from` on, in order.
    ///
    /// `from` is the first record that no checkpoint covers; older ones may be missing or damaged, and are not read.
    /// A log that ends before it goes on with that number.
    ///
    /// All that the owner is given is durable then, unless the disk is full: see [`durable`](Self::durable).
    ///
    /// # Errors
    /// See [`OpenError`]. The file that it names is on the disk as it was; the owner must discard the records that it was given until then.
    pub fn open<F>(
        disk: D,
        settings: Settings,
        from: RecordNumber,
        mut replay: F,
    ) -> Result<(Self, Recovery), OpenError>
    where
        F: FnMut(RecordNumber, &[u8]) -> Result<(), Box<dyn Error + Send + Sync>>,
    {
        let from = from.max(RecordNumber(1));
        let segments = segments(&disk)?;
        // Those before the last one that begins at or before `from` hold nothing that is needed.
        let needed = segments.partition_point(|first| *first <= from).saturating_sub(1);
        let mut next = from;
        let mut replayed = 0;
        let mut torn = None;
        let mut last = None;
        let mut counted = |number, bytes: &[u8]| {
            if number < from {
                return Ok(());
            }
            replayed += 1;
            replay(number, bytes)
        };
        for (index, first) in segments.iter().copied().enumerate().skip(needed) {
            let name = segment_name(first);
            // The first one that is read may begin anywhere before `from`, all others where the one before ended.
            if first > next {
                let to = RecordNumber(first.0 - 1);
                return Err(OpenError::Missing { from: next, to, next: name });
            }
            let end = segments.get(index + 1).copied();
            let segment = read_segment(&disk, &settings, first, end, &mut counted)?;
            if let Some(damage) = segment.damage {
                if end.is_some() || was_durable(&disk, &settings, &name, &segment)? {
                    let (offset, record) = (segment.end, segment.next);
                    return Err(OpenError::Damaged { file: name, offset, record, damage });
                }
                let (offset, bytes) = (segment.end, segment.bytes - segment.end);
                torn = Some(Torn { file: name, offset, bytes, record: segment.next, damage });
            }
            next = segment.next;
            last = Some(segment);
        }
        if let Some(torn) = &torn {
            disk.truncate(&torn.file, torn.offset)?;
        }
        remove_if_there(&disk, UNFINISHED)?;
        let salt = settings.owner().salt();
        let newest = RecordNumber(next.0.max(from.0) - 1);
        let mut log = Self {
            disk,
            settings,
            salt,
            segments,
            active_bytes: 0,
            tail: Tail::Nothing,
            newest,
            durable: newest,
            pending: Vec::new(),
        };
        debug!(
            segments = log.segments.len(),
            replayed,
            newest = newest.0,
            torn = torn.is_some(),
            "a log is opened"
        );
        log.settle(last.as_ref())?;
        Ok((log, Recovery { replayed, newest, torn }))
    }

    /// Makes the records durable that were read, and has a segment to go on with.
    fn settle(&mut self, last: Option<&Segment>) -> Result<(), DiskError> {
        match last {
            // Nothing that was read is needed, or nothing was there.
            Some(last) if last.next < self.newest.next() => self.write_segment(),
            None => self.write_segment(),
            Some(last) => {
                self.disk.sync_directory("")?;
                self.active_bytes = last.end;
                let name = self.active_name();
                if last.certain_end == last.end {
                    // A cut that is not durable could bring back the bytes behind it, after those that are written there next.
                    return self.disk.sync(&name);
                }
                let doubtful = usize::try_from(last.end - last.certain_end).expect("a batch is in memory");
                self.pending.resize(doubtful, 0);
                read_exact(&self.disk, &name, last.certain_end, &mut self.pending)?;
                self.durable = last.certain;
                self.tail = Tail::Doubtful;
                match self.try_sync() {
                    // They wait, as they would have if the process had lived.
                    Err(error) if error.is_full() => Ok(()),
                    other => other.map(drop),
                }
            }
        }
    }
}

/// The first records of all segments, rising.
pub(super) fn segments(disk: &impl Disk) -> Result<Vec<RecordNumber>, OpenError> {
    let mut segments = Vec::new();
    for entry in disk.list("")? {
        if !(entry.name.starts_with("log-") && entry.name.ends_with(".libra")) {
            continue;
        }
        match segment_first(&entry.name) {
            Some(first) if !entry.is_directory => segments.push(first),
            _ => return Err(OpenError::UnknownFile { file: entry.name }),
        }
    }
    segments.sort_unstable();
    Ok(segments)
}

/// The function that takes records.
pub(super) type Replay<'a> = dyn FnMut(RecordNumber, &[u8]) -> Result<(), Box<dyn Error + Send + Sync>> + 'a;

/// Reads a segment up to the first record of the next one, its end, or a place that cannot be read.
pub(super) fn read_segment(
    disk: &impl Disk,
    settings: &Settings,
    first: RecordNumber,
    end: Option<RecordNumber>,
    replay: &mut Replay<'_>,
) -> Result<Segment, OpenError> {
    let name = segment_name(first);
    let mut window = Window::new(disk, &name)?;
    check_header(&mut window, settings, &name, first)?;
    let salt = settings.owner().salt();
    let bytes = window.bytes();
    let mut offset = HEADER_LEN as u64;
    let mut next = first;
    let mut damage = None;
    // Records that may not be durable, with where they begin.
    let mut doubtful = VecDeque::new();
    while offset < bytes && Some(next) != end {
        let header = match record_at(&mut window, salt, offset, next)? {
            Ok(header) => header,
            Err(found) => {
                damage = Some(found);
                break;
            }
        };
        while doubtful.front().is_some_and(|(number, _)| *number <= header.durable) {
            doubtful.pop_front();
        }
        if !header.is_mark {
            let record = window.at(offset, header.record_len())?.expect("it was read just now");
            replay(next, &record[RECORD_HEADER_LEN..]).map_err(|cause| OpenError::Refused {
                file: name.clone(),
                offset,
                record: next,
                cause,
            })?;
            doubtful.push_back((next, offset));
            next = next.next();
        }
        offset += header.record_len() as u64;
    }
    let (certain, certain_end) = doubtful
        .front()
        .map_or((RecordNumber(next.0 - 1), offset), |(number, at)| (RecordNumber(number.0 - 1), *at));
    Ok(Segment { end: offset, bytes, next, damage, certain, certain_end })
}

fn check_header<D: Disk>(
    window: &mut Window<'_, D>,
    settings: &Settings,
    name: &str,
    first: RecordNumber,
) -> Result<(), OpenError> {
    let file = || name.to_owned();
    let damaged = |damage| OpenError::Damaged { file: file(), offset: 0, record: first, damage };
    let bytes = window.at(0, HEADER_LEN)?.ok_or_else(|| damaged(Damage::CutShort))?;
    let header =
        Header::parse(bytes.try_into().expect("the length of a header")).map_err(|bad| match bad {
            BadHeader::Magic => damaged(Damage::Magic),
            BadHeader::Version(found) => OpenError::Version { file: file(), found, known: VERSION },
            BadHeader::Checksum => damaged(Damage::HeaderChecksum),
        })?;
    let (found, expected) = (header.owner, settings.owner());
    if found.job != expected.job {
        return Err(OpenError::Foreign {
            file: file(),
            field: "job",
            found: found.job,
            expected: expected.job,
        });
    }
    if found.shard != expected.shard {
        let (found, expected) = (found.shard.into(), expected.shard.into());
        return Err(OpenError::Foreign { file: file(), field: "shard", found, expected });
    }
    if header.first != first {
        return Err(damaged(Damage::FirstRecord { found: header.first }));
    }
    Ok(())
}

/// The record at this place if it is sound and has this number.
fn record_at<D: Disk>(
    window: &mut Window<'_, D>,
    salt: u32,
    offset: u64,
    number: RecordNumber,
) -> Result<Result<RecordHeader, Damage>, DiskError> {
    let Some(bytes) = window.at(offset, RECORD_HEADER_LEN)? else { return Ok(Err(Damage::CutShort)) };
    let header = RecordHeader::parse(bytes.try_into().expect("the length of a header"));
    let Some(record) = window.at(offset, header.record_len())? else { return Ok(Err(Damage::CutShort)) };
    Ok(if !header.is_sound(salt, record) {
        Err(Damage::Checksum)
    } else if header.number != number {
        Err(Damage::Number { found: header.number })
    } else {
        Ok(header)
    })
}

/// Returns true if something behind the place that cannot be read shows that the record there had been durable.
pub(super) fn was_durable(
    disk: &impl Disk,
    settings: &Settings,
    name: &str,
    segment: &Segment,
) -> Result<bool, DiskError> {
    // A sound record of another number was not put there by a crash.
    if let Some(Damage::Number { .. }) = segment.damage {
        return Ok(true);
    }
    let salt = settings.owner().salt();
    let mut window = Window::new(disk, name)?;
    let mut effort = (segment.bytes - segment.end).saturating_mul(SEARCH_EFFORT);
    for offset in segment.end + 1..segment.bytes {
        let Some(bytes) = window.at(offset, RECORD_HEADER_LEN)? else { break };
        let header = RecordHeader::parse(bytes.try_into().expect("the length of a header"));
        // These numbers show of most places that they are no records.
        let tells = header.durable >= segment.next && header.durable < header.number;
        let fits = offset + header.record_len() as u64 <= segment.bytes;
        if !(tells && fits) {
            continue;
        }
        let Some(left) = effort.checked_sub(header.record_len() as u64) else {
            // Such bytes do not come about by a crash; to refuse them loses nothing.
            return Ok(true);
        };
        effort = left;
        let Some(record) = window.at(offset, header.record_len())? else { break };
        if header.is_sound(salt, record) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::SimulatedDisk;

    #[test]
    fn a_segment_of_another_log_is_refused() {
        let disk = SimulatedDisk::new(1);
        let settings = Settings::new(3, 1);
        drop(Log::open(disk.clone(), settings.clone(), RecordNumber::NONE, |_, _| Ok(())).unwrap());
        let open = |settings: Settings| {
            Log::open(disk.clone(), settings, RecordNumber::NONE, |_, _| Ok(())).map(|(_, recovery)| recovery)
        };
        let error = open(Settings::new(4, 1)).unwrap_err();
        assert!(matches!(error, OpenError::Foreign { field: "job", found: 3, expected: 4, .. }), "{error}");
        let error = open(Settings::new(3, 2)).unwrap_err();
        assert!(matches!(error, OpenError::Foreign { field: "shard", found: 1, expected: 2, .. }), "{error}");
        assert_eq!(open(settings).unwrap().newest, RecordNumber::NONE);
    }

    #[test]
    fn a_file_named_almost_like_a_segment_is_not_ignored() {
        let disk = SimulatedDisk::new(1);
        disk.put("log-1.libra", b"");
        let opened = Log::open(disk, Settings::new(1, 1), RecordNumber::NONE, |_, _| Ok(()));
        assert!(matches!(opened.unwrap_err(), OpenError::UnknownFile { file } if file == "log-1.libra"));
    }
}
