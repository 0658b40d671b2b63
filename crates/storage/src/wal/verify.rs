//! Reads a log without opening it, and checks that all of it is sound.

use super::error::OpenError;
use super::format::{HEADER_LEN, Header, segment_name};
use super::recovery::{read_segment, segments as firsts, was_durable};
use super::{RecordNumber, Settings, Torn};
use crate::disk::{Disk, DiskError};

/// A file of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Its name.
    pub file: String,
    /// Its first record.
    pub first: RecordNumber,
    /// Its length.
    pub bytes: u64,
}

/// Result of [`verify`].
#[derive(Debug, Default)]
pub struct Verified {
    /// Sound records.
    pub records: u64,
    /// The newest of them; [`RecordNumber::NONE`] if there is none.
    pub newest: RecordNumber,
    /// Bytes of all files.
    pub bytes: u64,
    /// The job and the shard in the log, if a file of it could be read.
    pub owner: Option<(u64, u32)>,
    /// An end that was not written completely. [`Log::open`](super::Log::open) would cut it off; nothing that was
    /// acknowledged is in it.
    pub torn: Option<Torn>,
    /// Damaged or missing records, in the order of the files.
    pub faults: Vec<OpenError>,
}

/// The files of a log, by their records. Reads none of them.
///
/// # Errors
/// The disk refused, or a file has a name that no log gives.
pub fn segments(disk: &impl Disk) -> Result<Vec<SegmentInfo>, OpenError> {
    let mut segments = Vec::new();
    for first in firsts(disk)? {
        let file = segment_name(first);
        match disk.bytes(&file) {
            Ok(bytes) => segments.push(SegmentInfo { file, first, bytes }),
            // Its owner is at work, and needs it no more.
            Err(error) if error.is_missing() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(segments)
}

/// Reads all of a log and compares every record with its checksum; nothing on the disk is changed, and its owner may
/// be at work. Unlike [`Log::open`](super::Log::open) it goes on behind a fault, with the next file.
///
/// `from` is the first record that no checkpoint covers: only from it on records may not be missing. `watch` gets
/// the bytes of each file that was read.
///
/// # Errors
/// The disk refused. Faults of the log itself are in [`Verified::faults`].
pub fn verify(
    disk: &impl Disk,
    from: RecordNumber,
    mut watch: impl FnMut(u64),
) -> Result<Verified, DiskError> {
    let mut verified = Verified::default();
    let segments = match segments(disk) {
        Ok(segments) => segments,
        Err(OpenError::Disk(error)) => return Err(error),
        Err(fault) => {
            verified.faults.push(fault);
            return Ok(verified);
        }
    };
    // The next record: a log whose records after the last checkpoint are all gone may begin with any record after it.
    let mut next = from.max(RecordNumber(1));
    for (index, info) in segments.iter().enumerate() {
        let SegmentInfo { file, first, bytes } = info.clone();
        verified.bytes += bytes;
        if first > next {
            let to = RecordNumber(first.0 - 1);
            verified.faults.push(OpenError::Missing { from: next, to, next: file.clone() });
        }
        let end = segments.get(index + 1).map(|following| following.first);
        match read(disk, &mut verified, info, end) {
            Ok(reached) => next = next.max(reached),
            Err(OpenError::Disk(error)) if error.is_missing() && disk.bytes(&file).is_err() => {}
            Err(OpenError::Disk(error)) => return Err(error),
            Err(fault) => {
                verified.faults.push(fault);
                // Records behind the damage are not missing, too.
                next = next.max(end.unwrap_or(first));
            }
        }
        watch(bytes);
    }
    Ok(verified)
}

/// Reads one file, and returns the number of the record that would follow its sound ones.
fn read(
    disk: &impl Disk,
    verified: &mut Verified,
    info: &SegmentInfo,
    end: Option<RecordNumber>,
) -> Result<RecordNumber, OpenError> {
    let owner = match verified.owner {
        Some(owner) => Some(owner),
        None => owner_of(disk, &info.file)?,
    };
    // Any would do for a header that cannot be read: the reader of the file reports that.
    let (job, shard) = owner.unwrap_or_default();
    let settings = Settings::new(job, shard);
    let (mut records, mut newest) = (0, verified.newest);
    let segment = read_segment(disk, &settings, info.first, end, &mut |number, _| {
        (records, newest) = (records + 1, number);
        Ok(())
    })?;
    verified.owner = owner;
    verified.records += records;
    verified.newest = newest;
    if let Some(damage) = segment.damage {
        let (file, offset, record) = (info.file.clone(), segment.end, segment.next);
        if end.is_some() || was_durable(disk, &settings, &file, &segment)? {
            return Err(OpenError::Damaged { file, offset, record, damage });
        }
        let bytes = segment.bytes - segment.end;
        verified.torn = Some(Torn { file, offset, bytes, record, damage });
    }
    Ok(segment.next)
}

/// Returns the job and the shard in the header of a file.
fn owner_of(disk: &impl Disk, file: &str) -> Result<Option<(u64, u32)>, DiskError> {
    let mut bytes = [0; HEADER_LEN];
    let read = disk.read(file, 0, &mut bytes)?;
    let header = (read == HEADER_LEN).then(|| Header::parse(&bytes).ok()).flatten();
    Ok(header.map(|header| (header.owner.job, header.owner.shard)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::SimulatedDisk;
    use crate::wal::Log;

    /// Records of 40 bytes, two or three in a file.
    fn disk_with(records: u8) -> (SimulatedDisk, Log<SimulatedDisk>) {
        let disk = SimulatedDisk::new(1);
        let settings = Settings { segment_bytes: 150, ..Settings::new(7, 2) };
        let (mut log, _) = Log::open(disk.clone(), settings, RecordNumber::NONE, |_, _| Ok(())).unwrap();
        for record in 1..=records {
            log.append(&[record; 40]).unwrap();
            log.sync().unwrap();
        }
        (disk, log)
    }

    fn contents(disk: &SimulatedDisk, file: &str) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(disk.bytes(file).unwrap()).unwrap()];
        disk.read(file, 0, &mut bytes).unwrap();
        bytes
    }

    fn flip(disk: &SimulatedDisk, file: &str, at: usize) {
        let mut bytes = contents(disk, file);
        bytes[at] ^= 1;
        disk.put(file, &bytes);
    }

    #[test]
    fn a_sound_log_is_counted_and_not_changed() {
        let (disk, log) = disk_with(10);
        let mut watched = 0;
        let verified = verify(&disk, RecordNumber::NONE, |bytes| watched += bytes).unwrap();
        assert!(verified.faults.is_empty() && verified.torn.is_none(), "{verified:?}");
        assert_eq!((verified.records, verified.newest), (10, RecordNumber(10)));
        assert_eq!(verified.owner, Some((7, 2)));
        let infos = segments(&disk).unwrap();
        assert_eq!(infos.iter().map(|info| info.first).collect::<Vec<_>>(), log.segments());
        let bytes: u64 = infos.iter().map(|info| info.bytes).sum();
        assert_eq!((verified.bytes, watched), (bytes, bytes));
        log.close().unwrap();
        assert!(verify(&disk, RecordNumber::NONE, |_| ()).unwrap().faults.is_empty());
    }

    #[test]
    fn every_damaged_file_is_named_and_the_rest_is_read() {
        let (disk, log) = disk_with(10);
        let infos = segments(&disk).unwrap();
        assert_eq!(infos.len(), 5, "{infos:?}");
        drop(log);
        flip(&disk, &infos[0].file, HEADER_LEN + 30);
        flip(&disk, &infos[2].file, 3);
        let verified = verify(&disk, RecordNumber::NONE, |_| ()).unwrap();
        let faults: Vec<String> = verified.faults.iter().map(ToString::to_string).collect();
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert!(faults[0].contains(&infos[0].file) && faults[0].contains("checksum"), "{faults:?}");
        assert!(faults[1].contains(&infos[2].file) && faults[1].contains("does not begin"), "{faults:?}");
        assert_eq!((verified.records, verified.newest), (6, RecordNumber(10)));
    }

    #[test]
    fn a_missing_file_counts_only_if_no_checkpoint_covers_it() {
        let (disk, log) = disk_with(10);
        drop(log);
        let infos = segments(&disk).unwrap();
        disk.remove(&infos[0].file).unwrap();
        let faults = |from| verify(&disk, RecordNumber(from), |_| ()).unwrap().faults;
        assert!(faults(infos[1].first.0).is_empty());
        let found = faults(1);
        assert!(matches!(found[..], [OpenError::Missing { from: RecordNumber(1), .. }]), "{found:?}");
        disk.remove(&infos[3].file).unwrap();
        let found = faults(infos[1].first.0);
        assert!(
            matches!(&found[..], [OpenError::Missing { next, .. }] if *next == infos[4].file),
            "{found:?}"
        );
    }

    #[test]
    fn a_torn_end_is_no_damage_and_stays() {
        let (disk, log) = disk_with(3);
        drop(log);
        let last = segments(&disk).unwrap().pop().unwrap();
        let mut bytes = contents(&disk, &last.file);
        bytes.extend([9; 11]);
        disk.put(&last.file, &bytes);
        let verified = verify(&disk, RecordNumber::NONE, |_| ()).unwrap();
        assert!(verified.faults.is_empty(), "{verified:?}");
        assert_eq!(verified.torn.unwrap().bytes, 11);
        assert_eq!(contents(&disk, &last.file), bytes);
    }

    #[test]
    fn a_foreign_file_and_an_unknown_one_are_faults() {
        let (disk, log) = disk_with(2);
        drop(log);
        let other = SimulatedDisk::new(2);
        let settings = Settings::new(8, 2);
        Log::open(other.clone(), settings, RecordNumber(4), |_, _| Ok(())).unwrap();
        let foreign = segments(&other).unwrap().pop().unwrap().file;
        disk.put(&foreign, &contents(&other, &foreign));
        let faults = verify(&disk, RecordNumber::NONE, |_| ()).unwrap().faults;
        let is_foreign = |fault: &OpenError| matches!(fault, OpenError::Foreign { field: "job", .. });
        assert!(faults.iter().any(is_foreign), "{faults:?}");
        disk.put("log-1.libra", b"");
        let faults = verify(&disk, RecordNumber::NONE, |_| ()).unwrap().faults;
        assert!(matches!(faults[..], [OpenError::UnknownFile { .. }]), "{faults:?}");
    }
}
