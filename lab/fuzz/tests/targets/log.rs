//! A log: any bytes in place of a segment.

use libra_fuzz::{Outcome, Target};
use libra_storage::disk::SimulatedDisk;
use libra_storage::wal::{Log, OpenError, RecordNumber, Settings};

const SEGMENT: &str = "log-00000000000000000001.libra";
const HEADER: usize = 36;
const RECORD_HEADER: usize = 24;
/// Set in the length of a mark, which is no record.
const MARK: u32 = 1 << 31;

fn settings() -> Settings {
    Settings::new(1, 0)
}

type Records = Vec<(u64, Vec<u8>)>;

fn open(disk: &SimulatedDisk) -> Result<(Log<SimulatedDisk>, Records), OpenError> {
    let mut records = Vec::new();
    let (log, recovery) = Log::open(disk.clone(), settings(), RecordNumber::NONE, |number, record| {
        records.push((number.0, record.to_vec()));
        Ok(())
    })?;
    assert_eq!(recovery.replayed, records.len() as u64);
    assert_eq!(recovery.newest.0, records.len() as u64);
    Ok((log, records))
}

/// Segments of logs that were synced in several ways, one closed and one not.
fn written() -> Vec<Vec<u8>> {
    let segment = |records: &[&[u8]], of_a_sync: usize, closed: bool| {
        let disk = SimulatedDisk::new(1);
        let (mut log, _) = open(&disk).unwrap();
        for records in records.chunks(of_a_sync) {
            for record in records {
                log.append(record).unwrap();
            }
            log.sync().unwrap();
        }
        if closed {
            log.close().unwrap();
        }
        disk.contents().remove(SEGMENT).unwrap()
    };
    vec![
        segment(&[], 1, false),
        segment(&[b"one", b"", b"three"], 1, false),
        segment(&[b"one", b"two", &[7; 300], b"four", b"five"], 2, true),
    ]
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn salt() -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&1u64.to_le_bytes()), &0u32.to_le_bytes())
}

/// The next record or mark from a place on, header and all, by its length.
fn record_at(bytes: &[u8], at: usize) -> Option<&[u8]> {
    let length = (u32_at(bytes, at + 4)? & !MARK) as usize;
    bytes.get(at..at + RECORD_HEADER + length)
}

/// Makes the checksums right, as far as lengths lead to them.
fn seal(bytes: &mut [u8]) {
    if bytes.len() < HEADER {
        return;
    }
    let sum = crc32c::crc32c(&bytes[..32]);
    bytes[32..HEADER].copy_from_slice(&sum.to_le_bytes());
    let mut at = HEADER;
    while let Some(record) = record_at(bytes, at) {
        let (sum, end) = (crc32c::crc32c_append(salt(), &record[4..]), at + record.len());
        bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
        at = end;
    }
}

/// The sound records with the right numbers at the beginning of a segment, and the place behind them.
fn sound(bytes: &[u8]) -> (Records, usize) {
    let (mut records, mut at) = (Vec::new(), HEADER);
    while let Some(record) = record_at(bytes, at) {
        let number = u64::from_le_bytes(record[8..16].try_into().unwrap());
        let is_sound = u32_at(record, 0) == Some(crc32c::crc32c_append(salt(), &record[4..]));
        if !is_sound || number != records.len() as u64 + 1 {
            break;
        }
        at += record.len();
        if u32_at(record, 4).is_some_and(|length| length & MARK == 0) {
            records.push((number, record[RECORD_HEADER..].to_vec()));
        }
    }
    (records, at)
}

/// A log of any bytes has the sound records at its beginning, or an error names the place behind them and leaves the file as it was.
pub(crate) fn read(bytes: &[u8]) -> Outcome {
    let disk = SimulatedDisk::new(1);
    disk.put(SEGMENT, bytes);
    let (expected, end) = sound(bytes);
    match open(&disk) {
        Ok((mut log, records)) => {
            assert_eq!(records, expected);
            let name = if end == bytes.len() { "whole" } else { "torn" };
            // It goes on, and what was read stays.
            log.append(b"goes on").unwrap();
            log.sync().unwrap();
            drop(log);
            let (_, mut again) = open(&disk).expect("a log that was opened can be opened again");
            assert_eq!(again.pop(), Some((records.len() as u64 + 1, b"goes on".to_vec())));
            assert_eq!(again, records);
            Outcome::beyond(name)
        }
        Err(error) => {
            assert_eq!(disk.contents()[SEGMENT], bytes, "{error}");
            match error {
                OpenError::Damaged { file, offset, damage, .. } => {
                    assert_eq!(file, SEGMENT);
                    if offset == 0 {
                        return Outcome::of::<(), _>(&Err(damage));
                    }
                    assert_eq!(offset, end as u64, "{damage:?}");
                    Outcome::of::<(), _>(&Err(damage)).past_the_first_check()
                }
                OpenError::Version { .. } => Outcome::refused("version"),
                OpenError::Foreign { field, .. } => Outcome::refused(format!("foreign {field}")),
                other => panic!("nothing else can be wrong with one segment: {other}"),
            }
        }
    }
}

pub(crate) fn target() -> Target {
    Target::new("log", written()).sealed(seal)
}

#[test]
fn a_sealed_log_is_as_it_was_written() {
    for segment in written() {
        let mut sealed = segment.clone();
        sealed[32..HEADER].fill(0);
        sealed.get_mut(HEADER..HEADER + 4).into_iter().for_each(|sum| sum.fill(0));
        seal(&mut sealed);
        assert_eq!(sealed, segment);
    }
}
