//! Looks for one row, from the newest increment back.

use super::error::CheckpointError;
use super::manifest::{Content, FileInfo, Manifest};
use super::reader::{PartFile, read_column, verify};
use crate::disk::Disk;

/// Keys that are read at once.
const BLOCK_ROWS: u64 = 1 << 15;

/// A row of a checkpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The checkpoint that it was written to: the one that was asked for, or one that this builds on.
    pub number: u64,
    /// Its values.
    pub values: Vec<f32>,
    /// The state of its optimizer.
    pub state: Vec<f32>,
}

/// The row of a key after all of `manifests`, the full one first.
pub(super) fn find(
    disk: &impl Disk,
    manifests: &[Manifest],
    table: usize,
    key: u64,
) -> Result<Option<Row>, CheckpointError> {
    for manifest in manifests.iter().rev() {
        // Rows count after removals.
        for file in manifest.files.iter().filter(|file| is_of(file, table, false)) {
            if let Some(row) = position(disk, manifest, file, key)? {
                return read(disk, manifest, file, row).map(Some);
            }
        }
        for file in manifest.files.iter().filter(|file| is_of(file, table, true)) {
            if position(disk, manifest, file, key)?.is_some() {
                return Ok(None);
            }
        }
    }
    Ok(None)
}

/// Returns true if a file has rows, or keys of removed rows, of this table.
fn is_of(file: &FileInfo, wanted: usize, removed: bool) -> bool {
    match file.content {
        Content::Rows { table, .. } => table == wanted && !removed,
        Content::Removed { table, .. } => table == wanted && removed,
        Content::State => false,
    }
}

/// Returns the position in a file of the row with this key.
fn position(
    disk: &impl Disk,
    manifest: &Manifest,
    file: &FileInfo,
    key: u64,
) -> Result<Option<u64>, CheckpointError> {
    verify(disk, manifest, file)?;
    let part = PartFile::of(manifest, file);
    let mut keys: Vec<u64> = Vec::new();
    let mut start = 0;
    while start < part.rows {
        let count = BLOCK_ROWS.min(part.rows - start);
        read_column(disk, &part.path, part.layout.keys.start, start, count, 0, &mut keys)?;
        if let Some(at) = keys.iter().position(|found| *found == key) {
            return Ok(Some(start + at as u64));
        }
        start += count;
    }
    Ok(None)
}

fn read(disk: &impl Disk, manifest: &Manifest, file: &FileInfo, row: u64) -> Result<Row, CheckpointError> {
    let part = PartFile::of(manifest, file);
    let (width, state_width) = (u64::from(part.info.width), u64::from(part.info.state));
    let (mut values, mut state) = (Vec::new(), Vec::new());
    read_column(disk, &part.path, part.layout.values.start, row * width, width, 0, &mut values)?;
    read_column(disk, &part.path, part.layout.state.start, row * state_width, state_width, 0, &mut state)?;
    Ok(Row { number: manifest.description.number, values, state })
}
