//! Reads a checkpoint and all that it builds on.

use super::error::{CheckpointError, Fault};
use super::manifest::{Content, FileInfo, Manifest, TableInfo};
use super::safetensors::Layout;
use super::{Checkpoints, directory_name};
use crate::disk::{Disk, read_exact};

/// A checkpoint, with all that it builds on.
#[derive(Debug, Clone)]
pub struct Checkpoint<D> {
    disk: D,
    /// The full one first.
    manifests: Vec<Manifest>,
    state: Vec<u8>,
}

/// Rows from a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Block<'a> {
    /// Rows as they are in this checkpoint, unless a later block has them, too.
    Rows {
        /// The position of their table.
        table: usize,
        /// Their keys.
        keys: &'a [u64],
        /// Their values, row after row.
        values: &'a [f32],
        /// The state of their optimizer, row after row.
        state: &'a [f32],
    },
    /// Rows of earlier blocks that are no more.
    Removed {
        /// The position of their table.
        table: usize,
        /// Their keys.
        keys: &'a [u64],
    },
}

impl<D: Disk + Clone> Checkpoint<D> {
    /// Reads all files of a checkpoint and of those that it builds on, and compares them with their checksums.
    pub(super) fn open(checkpoints: &Checkpoints<D>, number: u64) -> Result<Self, CheckpointError> {
        let manifests = checkpoints.chain(number)?;
        for manifest in &manifests {
            for file in &manifest.files {
                verify(checkpoints.disk(), manifest, file)?;
            }
        }
        let state = read_state(checkpoints.disk(), manifests.last().expect("the chain has itself"))?;
        Ok(Self { disk: checkpoints.disk().clone(), manifests, state })
    }

    /// Reads the state of the owner, and takes the other files as they are.
    pub(super) fn of_rows(disk: D, manifests: Vec<Manifest>) -> Result<Self, CheckpointError> {
        let state = read_state(&disk, manifests.last().expect("the chain has itself"))?;
        Ok(Self { disk, manifests, state })
    }

    /// Returns its manifest.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        self.manifests.last().expect("the chain has itself")
    }

    /// The manifests of the full checkpoint and of its increments up to this one.
    #[must_use]
    pub fn manifests(&self) -> &[Manifest] {
        &self.manifests
    }

    pub(super) fn disk(&self) -> &D {
        &self.disk
    }

    /// Returns the state that its owner gave to [`Writer::finish`](super::Writer::finish).
    #[must_use]
    pub fn state(&self) -> &[u8] {
        &self.state
    }

    /// Its rows, at most `rows_max` at once. To take every block in its turn, replacing and removing rows of earlier
    /// ones, makes the rows that were written.
    #[must_use]
    pub fn blocks(&self, rows_max: usize) -> Blocks<'_, D> {
        self.blocks_above(0, rows_max)
    }

    /// The same of the checkpoints with numbers above this one: what has changed since, if it is one of those that this builds on.
    #[must_use]
    pub fn blocks_above(&self, number: u64, rows_max: usize) -> Blocks<'_, D> {
        let mut parts = Vec::new();
        let is_above = |manifest: &&Manifest| number == 0 || manifest.description.number > number;
        for manifest in self.manifests.iter().filter(is_above) {
            let of = |removed: bool| {
                manifest.files.iter().filter(move |file| match file.content {
                    Content::Rows { .. } => !removed,
                    Content::Removed { .. } => removed,
                    Content::State => false,
                })
            };
            parts.extend(of(true).chain(of(false)).map(|file| PartFile::of(manifest, file)));
        }
        Blocks {
            disk: &self.disk,
            rows_max: rows_max.max(1),
            parts,
            next_part: 0,
            row: 0,
            columns: Columns::default(),
            sums: [0; 3],
        }
    }
}

/// A file of rows.
#[derive(Debug, Clone)]
pub(super) struct PartFile<'a> {
    pub(super) path: String,
    pub(super) table: usize,
    pub(super) info: &'a TableInfo,
    pub(super) rows: u64,
    pub(super) is_removed: bool,
    pub(super) layout: Layout,
    file: &'a FileInfo,
}

impl<'a> PartFile<'a> {
    pub(super) fn of(manifest: &'a Manifest, file: &'a FileInfo) -> Self {
        let (table, rows, is_removed) = match file.content {
            Content::Rows { table, rows } => (table, rows, false),
            Content::Removed { table, rows } => (table, rows, true),
            Content::State => unreachable!("only files of rows are asked for"),
        };
        Self {
            path: path_of(manifest, file),
            table,
            info: &manifest.description.tables[table],
            rows,
            is_removed,
            layout: manifest.layout(file).expect("the manifest was checked"),
            file,
        }
    }

    fn damaged(&self, fault: Fault) -> CheckpointError {
        CheckpointError::Damaged { file: self.path.clone(), fault }
    }
}

fn path_of(manifest: &Manifest, file: &FileInfo) -> String {
    format!("{}/{}", directory_name(manifest.description.number), file.name)
}

/// The numbers of some rows.
#[derive(Debug, Default)]
struct Columns {
    keys: Vec<u64>,
    values: Vec<f32>,
    state: Vec<f32>,
}

/// The rows of a [`Checkpoint`], in blocks.
///
/// Checksums are compared once more at the end of each file, against a disk that changes its mind.
#[derive(Debug)]
pub struct Blocks<'a, D> {
    disk: &'a D,
    rows_max: usize,
    parts: Vec<PartFile<'a>>,
    next_part: usize,
    /// Rows of the part that were read.
    row: u64,
    columns: Columns,
    /// Checksums of the keys, values and state of the part that were read.
    sums: [u32; 3],
}

impl<D: Disk> Blocks<'_, D> {
    /// The next rows; `None` at the end.
    ///
    /// # Errors
    /// The disk refused, or has other bytes than when the checkpoint was opened. Rows that were given before are in
    /// doubt, too, then.
    pub fn next_block(&mut self) -> Result<Option<Block<'_>>, CheckpointError> {
        while self.parts.get(self.next_part).is_some_and(|part| self.row == part.rows) {
            // A file without rows.
            self.end_part()?;
        }
        let Some(part) = self.parts.get(self.next_part) else { return Ok(None) };
        let (table, is_removed) = (part.table, part.is_removed);
        let count = (part.rows - self.row).min(self.rows_max as u64);
        let (width, state_width) = (u64::from(part.info.width), u64::from(part.info.state));
        let (values_each, state_each) = if is_removed { (0, 0) } else { (width, state_width) };
        let columns = &mut self.columns;
        let (path, layout) = (&part.path, &part.layout);
        let places = [layout.keys.start, layout.values.start, layout.state.start];
        self.sums = [
            read_column(self.disk, path, places[0], self.row, count, self.sums[0], &mut columns.keys)?,
            read_column(
                self.disk,
                path,
                places[1],
                self.row * values_each,
                count * values_each,
                self.sums[1],
                &mut columns.values,
            )?,
            read_column(
                self.disk,
                path,
                places[2],
                self.row * state_each,
                count * state_each,
                self.sums[2],
                &mut columns.state,
            )?,
        ];
        if let Some(&key) = columns.keys.iter().find(|key| !part.info.keys.contains(key)) {
            return Err(part.damaged(Fault::Key { key, table: part.info.name.clone() }));
        }
        self.row += count;
        if self.row == part.rows {
            self.end_part()?;
        }
        let Columns { keys, values, state } = &self.columns;
        Ok(Some(if is_removed {
            Block::Removed { table, keys }
        } else {
            Block::Rows { table, keys, values, state }
        }))
    }

    /// Compares the checksum of a part that was read, put together from those of its columns.
    fn end_part(&mut self) -> Result<(), CheckpointError> {
        let part = &self.parts[self.next_part];
        let layout = &part.layout;
        let mut found = crc32c::crc32c(&layout.header);
        for (sum, column) in self.sums.into_iter().zip([&layout.keys, &layout.values, &layout.state]) {
            let length = usize::try_from(column.end - column.start).expect("it was read into memory");
            found = crc32c::crc32c_combine(found, sum, length);
        }
        let expected = part.file.checksum;
        if found != expected {
            return Err(part.damaged(Fault::Checksum { expected, found }));
        }
        (self.next_part, self.row, self.sums) = (self.next_part + 1, 0, [0; 3]);
        Ok(())
    }

    /// All files of rows, in the order of the blocks.
    pub(super) fn parts(&self) -> &[PartFile<'_>] {
        &self.parts
    }
}

/// Reads `count` numbers from number `first` of a column on, and adds them to its checksum.
pub(super) fn read_column<T: bytemuck::Pod>(
    disk: &impl Disk,
    path: &str,
    start: u64,
    first: u64,
    count: u64,
    sum: u32,
    column: &mut Vec<T>,
) -> Result<u32, CheckpointError> {
    column.resize(usize::try_from(count).expect("a block is in memory"), T::zeroed());
    let bytes = bytemuck::cast_slice_mut(column);
    if !bytes.is_empty() {
        read_exact(disk, path, start + first * size_of::<T>() as u64, bytes)?;
    }
    Ok(crc32c::crc32c_append(sum, bytes))
}

/// Compares a file with its manifest.
pub(super) fn verify(disk: &impl Disk, manifest: &Manifest, file: &FileInfo) -> Result<(), CheckpointError> {
    const BLOCK: u64 = 1 << 20;
    let path = path_of(manifest, file);
    let damaged = |fault| Err(CheckpointError::Damaged { file: path.clone(), fault });
    let bytes = match disk.bytes(&path) {
        Err(error) if error.is_missing() => return damaged(Fault::Missing),
        other => other?,
    };
    if bytes != file.bytes {
        return damaged(Fault::Length { expected: file.bytes, found: bytes });
    }
    let header = manifest.layout(file).map(|layout| layout.header).unwrap_or_default();
    let mut buffer = vec![0; usize::try_from(bytes.min(BLOCK)).expect("a block")];
    let (mut offset, mut checksum) = (0, 0);
    let mut same = true;
    while offset < bytes {
        let count = usize::try_from((bytes - offset).min(BLOCK)).expect("a block");
        let block = &mut buffer[..count];
        read_exact(disk, &path, offset, block)?;
        checksum = crc32c::crc32c_append(checksum, block);
        // The header can be longer than a block.
        let rest = &header[header.len().min(usize::try_from(offset).unwrap_or(usize::MAX))..];
        same &= rest.iter().zip(&*block).all(|(expected, found)| expected == found);
        offset += count as u64;
    }
    if checksum != file.checksum {
        return damaged(Fault::Checksum { expected: file.checksum, found: checksum });
    }
    if !same {
        return damaged(Fault::Header { expected: "a file of these rows" });
    }
    Ok(())
}

pub(super) fn read_state(disk: &impl Disk, manifest: &Manifest) -> Result<Vec<u8>, CheckpointError> {
    let file = manifest.files.iter().find(|file| file.content == Content::State).expect("it was checked");
    let path = path_of(manifest, file);
    // The length is that of a manifest whose checksum is right.
    let mut state = vec![0; usize::try_from(file.bytes).expect("it was in memory when it was written")];
    read_exact(disk, &path, 0, &mut state)?;
    let found = crc32c::crc32c(&state);
    if found != file.checksum {
        let fault = Fault::Checksum { expected: file.checksum, found };
        return Err(CheckpointError::Damaged { file: path, fault });
    }
    Ok(state)
}
