//! Rows on the local disk, divided by key into parts that fit into memory: those that were exported, and those of the checkpoint
//! that is compared with them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::error::ServingError;
use super::format::Rows;
use crate::disk::{DIRECTORY_MODE, FILE_MODE};

/// Bytes of all rows that wait to be written to their parts.
const BUFFERED: usize = 32 << 20;
/// Parts of a table, at most: a directory with more files is slow.
const PARTS_MAX: usize = 1 << 16;
/// Bytes of a key and of a tag, in front of each row of a checkpoint.
const HEAD: usize = 16;

/// Rows on the local disk. They are of this process alone: another one reads back what is at the target.
#[derive(Debug)]
pub(super) struct Spool {
    directory: PathBuf,
    part_bytes: usize,
    tables: Vec<TableParts>,
    buffered: usize,
}

/// A table on the disk.
#[derive(Debug)]
struct TableParts {
    stride: usize,
    /// Rows that were exported.
    rows: u64,
    /// Of each part what waits to be written to its file of rows of the checkpoint. Their number is a power of two.
    parts: Vec<Vec<u8>>,
}

/// A row of a checkpoint, or the note that it is no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) key: u64,
    /// The shard that has it.
    pub(super) shard: u16,
    pub(super) is_removed: bool,
}

impl Record {
    fn to_bytes(self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[..8].copy_from_slice(&self.key.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.shard.to_le_bytes());
        bytes[10] = self.is_removed.into();
        bytes
    }

    fn of_bytes(bytes: &[u8]) -> Self {
        let (key, rest) = bytes.split_first_chunk().expect("a record has a head");
        Self {
            key: u64::from_le_bytes(*key),
            shard: u16::from_le_bytes([rest[0], rest[1]]),
            is_removed: rest[2] != 0,
        }
    }
}

impl Spool {
    /// A directory that is made, and emptied if it is there. Parts have about so many bytes.
    pub(super) fn new(directory: &Path, part_bytes: usize) -> Result<Self, ServingError> {
        let spool = Self { directory: directory.to_owned(), part_bytes, tables: Vec::new(), buffered: 0 };
        spool.empty()?;
        Ok(spool)
    }

    fn empty(&self) -> Result<(), ServingError> {
        match fs::remove_dir_all(&self.directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(self.fail("cannot empty", &self.directory)(error));
            }
            _ => {}
        }
        let made = || {
            if let Some(parent) = self.directory.parent() {
                fs::create_dir_all(parent)?;
            }
            // Not one that another user has made meanwhile.
            fs::DirBuilder::new().mode(DIRECTORY_MODE).create(&self.directory)
        };
        made().map_err(self.fail("cannot make", &self.directory))
    }

    /// Forgets all rows, and takes those of tables with rows of so many bytes.
    pub(super) fn begin(&mut self, strides: impl Iterator<Item = usize>) -> Result<(), ServingError> {
        self.empty()?;
        self.buffered = 0;
        let table = |stride| TableParts { stride, rows: 0, parts: vec![Vec::new()] };
        self.tables = strides.map(table).collect();
        Ok(())
    }

    /// The number of exported rows of a table.
    pub(super) fn rows(&self, table: usize) -> u64 {
        self.tables[table].rows
    }

    pub(super) fn parts(&self, table: usize) -> usize {
        self.tables[table].parts.len()
    }

    /// Makes room for so many rows of a table.
    pub(super) fn reserve(&mut self, table: usize, rows: u64) -> Result<(), ServingError> {
        let TableParts { stride, parts, .. } = &self.tables[table];
        let (before, row) = (parts.len(), 8 + *stride as u64);
        let wanted = rows.saturating_mul(row).div_ceil(self.part_bytes as u64).next_power_of_two();
        let wanted = usize::try_from(wanted).unwrap_or(PARTS_MAX).min(PARTS_MAX);
        if wanted <= before {
            return Ok(());
        }
        let exported: Vec<PathBuf> = (0..before).map(|part| self.path("rows", table, part)).collect();
        let old: Vec<PathBuf> = exported.iter().map(|path| path.with_extension("old")).collect();
        for (from, to) in exported.iter().zip(&old) {
            if from.exists() {
                fs::rename(from, to).map_err(self.fail("cannot rename", from))?;
            }
        }
        self.tables[table].parts = vec![Vec::new(); wanted];
        for path in old {
            let rows = self.read_rows(&path, table)?;
            let stride = self.tables[table].stride;
            let mut divided: std::collections::BTreeMap<usize, Rows> = std::collections::BTreeMap::new();
            for (at, key) in rows.keys.iter().enumerate() {
                divided.entry(part_of(*key, wanted)).or_default().push(*key, rows.row(at, stride));
            }
            for (part, rows) in divided {
                self.write_rows(&self.path("rows", table, part), &rows)?;
            }
            self.remove(&path)?;
        }
        Ok(())
    }

    /// Takes a row of a checkpoint; later ones of a key replace earlier ones.
    pub(super) fn push(&mut self, table: usize, record: Record, row: &[u8]) -> Result<(), ServingError> {
        let TableParts { parts, stride, .. } = &mut self.tables[table];
        let part = part_of(record.key, parts.len());
        let before = parts[part].len();
        parts[part].extend_from_slice(&record.to_bytes());
        parts[part].extend_from_slice(row);
        parts[part].resize(before + HEAD + *stride, 0);
        self.buffered += HEAD + *stride;
        if self.buffered >= BUFFERED { self.flush() } else { Ok(()) }
    }

    /// Writes all rows of a checkpoint that wait.
    pub(super) fn flush(&mut self) -> Result<(), ServingError> {
        for table in 0..self.tables.len() {
            for part in 0..self.tables[table].parts.len() {
                let buffer = std::mem::take(&mut self.tables[table].parts[part]);
                if buffer.is_empty() {
                    continue;
                }
                let path = self.path("new", table, part);
                let opened = OpenOptions::new().append(true).create(true).mode(FILE_MODE).open(&path);
                opened
                    .and_then(|mut file| file.write_all(&buffer))
                    .map_err(self.fail("cannot write", &path))?;
            }
        }
        self.buffered = 0;
        Ok(())
    }

    /// The rows of a checkpoint in a part, each with its record and position, in the order in which they came. They are removed.
    pub(super) fn take(&self, table: usize, part: usize) -> Result<(Vec<Record>, Vec<u8>), ServingError> {
        let path = self.path("new", table, part);
        let Some(bytes) = self.read(&path)? else { return Ok((Vec::new(), Vec::new())) };
        self.remove(&path)?;
        let stride = self.tables[table].stride;
        let mut rows = Vec::with_capacity(bytes.len());
        let records = bytes.chunks_exact(HEAD + stride).map(|record| {
            rows.extend_from_slice(&record[HEAD..]);
            Record::of_bytes(record)
        });
        Ok((records.collect(), rows))
    }

    /// The exported rows of a part, by rising key; those of the version that is made, if it has changed them.
    pub(super) fn exported(&self, table: usize, part: usize, is_next: bool) -> Result<Rows, ServingError> {
        let next = self.path("next", table, part);
        if is_next && next.exists() {
            return self.read_rows(&next, table);
        }
        self.read_rows(&self.path("rows", table, part), table)
    }

    /// Takes the rows of a part of the version that is made.
    pub(super) fn set(&self, table: usize, part: usize, rows: &Rows) -> Result<(), ServingError> {
        self.write_rows(&self.path("next", table, part), rows)
    }

    /// The version that was made is the exported one now. Its tables have so many rows more, or fewer.
    pub(super) fn accept(&mut self, changes: &[i64]) -> Result<(), ServingError> {
        for (table, change) in changes.iter().enumerate() {
            for part in 0..self.parts(table) {
                let next = self.path("next", table, part);
                if next.exists() {
                    let rows = self.path("rows", table, part);
                    fs::rename(&next, rows).map_err(self.fail("cannot rename", &next))?;
                }
            }
            self.tables[table].rows = self.tables[table].rows.saturating_add_signed(*change);
        }
        Ok(())
    }

    /// Forgets the version that was made.
    pub(super) fn reject(&mut self) -> Result<(), ServingError> {
        self.buffered = 0;
        for table in 0..self.tables.len() {
            for part in 0..self.parts(table) {
                self.tables[table].parts[part].clear();
                for kind in ["next", "new"] {
                    self.remove(&self.path(kind, table, part))?;
                }
            }
        }
        Ok(())
    }

    fn path(&self, kind: &str, table: usize, part: usize) -> PathBuf {
        self.directory.join(format!("{kind}-{table}-{part}"))
    }

    fn read(&self, path: &Path) -> Result<Option<Vec<u8>>, ServingError> {
        match fs::read(path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.fail("cannot read", path)(error)),
        }
    }

    fn remove(&self, path: &Path) -> Result<(), ServingError> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(self.fail("cannot remove", path)(error))
            }
            _ => Ok(()),
        }
    }

    fn read_rows(&self, path: &Path, table: usize) -> Result<Rows, ServingError> {
        let Some(mut bytes) = self.read(path)? else { return Ok(Rows::default()) };
        let rows = bytes.len() / (8 + self.tables[table].stride);
        let keys = bytemuck::pod_collect_to_vec(&bytes[..8 * rows]);
        bytes.drain(..8 * rows);
        Ok(Rows { keys, rows: bytes })
    }

    fn write_rows(&self, path: &Path, rows: &Rows) -> Result<(), ServingError> {
        let write = || {
            let mut file =
                OpenOptions::new().write(true).create(true).truncate(true).mode(FILE_MODE).open(path)?;
            file.write_all(bytemuck::cast_slice(&rows.keys))?;
            File::write_all(&mut file, &rows.rows)
        };
        write().map_err(self.fail("cannot write", path))
    }

    #[expect(clippy::unused_self, reason = "all its errors name the option of its place")]
    fn fail(&self, verb: &'static str, path: &Path) -> impl Fn(io::Error) -> ServingError {
        let attempted = format!("{verb} {}", path.display());
        move |cause| ServingError::Spool { attempted: attempted.clone(), cause }
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        // What cannot be removed now is when the next one begins.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// The part of a key.
fn part_of(key: u64, parts: usize) -> usize {
    // The upper bits of a product depend on all of the key (Fibonacci hashing).
    let mixed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    usize::try_from(mixed >> 32).expect("32 bits") & (parts - 1)
}
