//! Records of a worker about each push, which survive if the worker is killed: a record is written before the
//! push is sent, and one when it is acknowledged. The kernel has each at once; only the machine could still lose it.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};

const RECORD_BYTES: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Issued,
    Acknowledged,
}

/// A step of a push at its worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record {
    /// Microseconds since 1970.
    pub(super) at: u64,
    /// The push, counted from zero.
    pub(super) push: u32,
    pub(super) step: Step,
}

impl Record {
    fn to_bytes(self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[..8].copy_from_slice(&self.at.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.push.to_le_bytes());
        bytes[12] = u8::from(self.step == Step::Acknowledged);
        bytes
    }

    fn from_bytes(bytes: &[u8; RECORD_BYTES]) -> Self {
        let (at, rest) = bytes.split_first_chunk().expect("a record has 16 bytes");
        let (push, rest) = rest.split_first_chunk().expect("a record has 16 bytes");
        let step = if rest[0] == 0 { Step::Issued } else { Step::Acknowledged };
        Self { at: u64::from_le_bytes(*at), push: u32::from_le_bytes(*push), step }
    }
}

/// The records of one worker.
#[derive(Debug)]
pub(super) struct Records(File);

impl Records {
    pub(super) fn create(directory: &Path, worker: u16) -> Result<Self> {
        let path = path(directory, worker);
        File::create_new(&path).map(Self).with_context(|| format!("cannot write {}", path.display()))
    }

    pub(super) fn write(&mut self, record: Record) -> Result<()> {
        self.0.write_all(&record.to_bytes()).context("cannot write down what became of a push")
    }
}

fn path(directory: &Path, worker: u16) -> PathBuf {
    directory.join(format!("pushes-{worker}"))
}

/// The records of a worker; none if it never came to push.
pub(super) fn read(directory: &Path, worker: u16) -> Result<Vec<Record>> {
    let path = path(directory, worker);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let bytes = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    // Of a worker that was killed the last record may be torn.
    Ok(bytes.as_chunks().0.iter().map(Record::from_bytes).collect())
}

/// Returns the number of records that all workers have written so far.
pub(super) fn count(directory: &Path, workers: u16) -> u64 {
    let bytes = (0..workers).filter_map(|worker| path(directory, worker).metadata().ok());
    bytes.map(|file| file.len() / RECORD_BYTES as u64).sum()
}

/// Microseconds since 1970: what processes of one machine agree on.
pub(super) fn wall_clock() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_and_a_torn_one_does_not() {
        let directory = tempfile::TempDir::new().unwrap();
        let mut records = Records::create(directory.path(), 3).unwrap();
        let issued = Record { at: 1 << 50, push: 70_000, step: Step::Issued };
        let acknowledged = Record { at: (1 << 50) + 1, push: 70_000, step: Step::Acknowledged };
        records.write(issued).unwrap();
        records.write(acknowledged).unwrap();
        records.0.write_all(&[1, 2, 3]).unwrap();
        assert_eq!(read(directory.path(), 3).unwrap(), [issued, acknowledged]);
        assert_eq!(count(directory.path(), 4), 2);
        assert!(read(directory.path(), 2).unwrap().is_empty());
    }
}
