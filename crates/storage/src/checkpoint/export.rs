//! Puts the checkpoints of several shards together into one file per table, by rising key.

use thiserror::Error;

use super::error::CheckpointError;
use super::manifest::TableInfo;
use super::reader::{Block, Checkpoint, read_column};
use super::safetensors::Layout;
use crate::disk::{Disk, DiskError};

/// Rows that are read at once.
const BLOCK_ROWS: u64 = 1 << 15;

/// A file that [`export`] wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exported {
    /// The table.
    pub table: String,
    /// The file.
    pub file: String,
    /// Its rows.
    pub rows: u64,
    /// Its length.
    pub bytes: u64,
}

/// The reason for which checkpoints could not be merged.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExportError {
    /// One of them cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The disk that is written to refused.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// There are none.
    #[error("there is no checkpoint to export")]
    Nothing,
    /// They are not of one job at one time.
    #[error("checkpoint {number} of shard {shard} does not belong to the first one: {field} differs")]
    Different {
        /// Its number.
        number: u64,
        /// Its shard.
        shard: u32,
        /// The field that differs.
        field: &'static str,
    },
    /// Two shards have a row.
    #[error("table {table:?}: row {key} is in two of the checkpoints")]
    TwoOwners {
        /// The table.
        table: String,
        /// The row.
        key: u64,
    },
    /// More rows than this function can count.
    #[error("table {table:?} has a file of more than 2^32 rows, or more than 2^31 files")]
    TooLarge {
        /// The table.
        table: String,
    },
}

/// The place of a row: a part, in the order of all checkpoints' blocks, and a row of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place(u64);

impl Place {
    /// Lowest bit: set if this place only records that the row was removed.
    fn new(part: usize, row: u64, is_removed: bool) -> Option<Self> {
        let part = u64::try_from(part).ok().filter(|part| *part < 1 << 31)?;
        (row < 1 << 32).then_some(Self(part << 33 | row << 1 | u64::from(is_removed)))
    }

    fn part(self) -> usize {
        usize::try_from(self.0 >> 33).expect("31 bits")
    }

    fn row(self) -> u64 {
        (self.0 >> 1) & u64::from(u32::MAX)
    }

    fn is_removed(self) -> bool {
        self.0 & 1 != 0
    }
}

/// Writes one safetensors file for each table, `<position>-<name>.safetensors`, with the rows of all these checkpoints
/// (one for each shard) by rising key: `keys`, `values` and `state`. A file of that name is replaced, when the new one
/// is durable.
///
/// Takes 16 bytes of memory for each row of the largest table, and `memory_bytes` for rows. Less memory means that the
/// checkpoints are read more often.
///
/// # Errors
/// See [`ExportError`].
pub fn export<D: Disk + Clone, T: Disk>(
    checkpoints: &[Checkpoint<D>],
    disk: &T,
    memory_bytes: usize,
) -> Result<Vec<Exported>, ExportError> {
    export_split(checkpoints, disk, memory_bytes, 1, |_| 0)
}

/// As [`export`], with the rows of each table divided into so many files; `file_of` maps keys to files:
/// `<position>-<name>-<file>-of-<files>.safetensors`, counted from 0. One file is named as [`export`] does.
/// With more, rows take twice as many bytes of memory while they are divided.
///
/// # Errors
/// See [`ExportError`].
///
/// # Panics
/// `file_of` names a file that there is not.
pub fn export_split<D: Disk + Clone, T: Disk>(
    checkpoints: &[Checkpoint<D>],
    disk: &T,
    memory_bytes: usize,
    files: usize,
    file_of: impl Fn(u64) -> usize,
) -> Result<Vec<Exported>, ExportError> {
    let first = &checkpoints.first().ok_or(ExportError::Nothing)?.manifest().description;
    for checkpoint in checkpoints {
        let description = &checkpoint.manifest().description;
        let field = if description.job != first.job {
            "job"
        } else if description.seed != first.seed {
            "seed"
        } else if description.tables != first.tables {
            "tables"
        } else {
            continue;
        };
        return Err(ExportError::Different { number: description.number, shard: description.shard, field });
    }
    let mut exported = Vec::new();
    for (position, info) in first.tables.iter().enumerate() {
        let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '_' };
        let name = format!("{position}-{}", info.name.chars().map(plain).collect::<String>());
        let index = index(checkpoints, position, info)?;
        if files == 1 {
            let file = format!("{name}.safetensors");
            exported.push(export_file(checkpoints, info, index, file, disk, memory_bytes)?);
            continue;
        }
        let mut parts: Vec<Vec<(u64, Place)>> = vec![Vec::new(); files];
        for row in index {
            parts[file_of(row.0)].push(row);
        }
        for (number, part) in parts.into_iter().enumerate() {
            let file = format!("{name}-{number:05}-of-{files:05}.safetensors");
            exported.push(export_file(checkpoints, info, part, file, disk, memory_bytes)?);
        }
    }
    Ok(exported)
}

/// Writes the rows of `index`, which are by rising key.
fn export_file<D: Disk + Clone, T: Disk>(
    checkpoints: &[Checkpoint<D>],
    info: &TableInfo,
    mut index: Vec<(u64, Place)>,
    file: String,
    disk: &T,
    memory_bytes: usize,
) -> Result<Exported, ExportError> {
    let rows = index.len() as u64;
    let too_large = || ExportError::TooLarge { table: info.name.clone() };
    let layout = Layout::of_rows(&info.name, rows, info.width, info.state).ok_or_else(too_large)?;
    let partial = format!("{file}.partial");
    crate::disk::remove_if_there(disk, &partial)?;
    disk.create_stream(&partial)?;
    disk.append(&partial, &layout.header)?;
    let mut keys = Vec::new();
    for block in index.chunks(usize::try_from(BLOCK_ROWS).expect("small")) {
        keys.clear();
        keys.extend(block.iter().map(|(key, _)| *key));
        disk.append(&partial, bytemuck::cast_slice(&keys))?;
    }
    // The keys are written. From here on a row is its position in the file and its place, by rising place among those
    // that are gathered at once.
    for (at, row) in (0..).zip(&mut index) {
        row.0 = at;
    }
    let widest = info.width.max(info.state) as usize * size_of::<f32>();
    let rows_at_once = (memory_bytes / widest).max(1);
    for wanted in index.chunks_mut(rows_at_once) {
        wanted.sort_unstable_by_key(|(_, place)| *place);
    }
    for (column, each) in [(Column::Values, info.width as usize), (Column::State, info.state as usize)] {
        if each == 0 {
            continue;
        }
        for (chunk, wanted) in index.chunks(rows_at_once).enumerate() {
            let gathered = gather(checkpoints, column, each, wanted, chunk * rows_at_once)?;
            for piece in gathered.chunks(1 << 18) {
                disk.append(&partial, bytemuck::cast_slice(piece))?;
            }
        }
    }
    disk.sync(&partial)?;
    disk.close(&partial);
    disk.rename(&partial, &file)?;
    disk.sync_directory("")?;
    Ok(Exported { table: info.name.clone(), file, rows, bytes: layout.bytes() })
}

/// All rows of a table with their places, by rising key.
fn index<D: Disk + Clone>(
    checkpoints: &[Checkpoint<D>],
    position: usize,
    info: &TableInfo,
) -> Result<Vec<(u64, Place)>, ExportError> {
    let mut index = Vec::new();
    let mut parts_before = 0;
    for checkpoint in checkpoints {
        let mut own = Vec::new();
        let parts = checkpoint.blocks(1);
        for (part, file) in parts.parts().iter().enumerate().filter(|(_, file)| file.table == position) {
            let mut keys: Vec<u64> = Vec::new();
            for start in (0..file.rows).step_by(usize::try_from(BLOCK_ROWS).expect("small")) {
                let count = BLOCK_ROWS.min(file.rows - start);
                let place = file.layout.keys.start;
                read_column(checkpoint.disk(), &file.path, place, start, count, 0, &mut keys)?;
                for (row, key) in (start..).zip(&keys) {
                    let place = Place::new(parts_before + part, row, file.is_removed)
                        .ok_or_else(|| ExportError::TooLarge { table: info.name.clone() })?;
                    own.push((*key, place));
                }
            }
        }
        // Of the places of one key the last one counts: later parts replace or remove rows of earlier ones.
        own.sort_unstable();
        let mut last = 0;
        for at in 0..own.len() {
            if own.get(at + 1).is_none_or(|(next, _)| *next != own[at].0) {
                own[last] = own[at];
                last += 1;
            }
        }
        own.truncate(last);
        index.extend(own.into_iter().filter(|(_, place)| !place.is_removed()));
        parts_before += parts.parts().len();
    }
    index.sort_unstable();
    match index.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(pair) => Err(ExportError::TwoOwners { table: info.name.clone(), key: pair[0].0 }),
        None => Ok(index),
    }
}

#[derive(Debug, Clone, Copy)]
enum Column {
    Values,
    State,
}

/// A column of the rows that are wanted, in the order of their positions, of which `first` is the lowest. Reads all
/// parts from front to back, and leaves out the rest.
fn gather<D: Disk + Clone>(
    checkpoints: &[Checkpoint<D>],
    column: Column,
    each: usize,
    wanted: &[(u64, Place)],
    first: usize,
) -> Result<Vec<f32>, ExportError> {
    let mut gathered = vec![0.0; wanted.len() * each];
    let mut wanted = wanted.iter().peekable();
    let mut parts_before = 0;
    for checkpoint in checkpoints {
        let mut blocks = checkpoint.blocks(usize::try_from(BLOCK_ROWS).expect("small"));
        let parts: Vec<u64> = blocks.parts().iter().map(|part| part.rows).collect();
        let (mut part, mut row) = (0, 0);
        while let Some(block) = blocks.next_block()? {
            while parts[part] == row {
                (part, row) = (part + 1, 0);
            }
            let (rows, numbers) = match (block, column) {
                (Block::Rows { keys, values, .. }, Column::Values) => (keys.len(), values),
                (Block::Rows { keys, state, .. }, Column::State) => (keys.len(), state),
                (Block::Removed { keys, .. }, _) => (keys.len(), &[][..]),
            };
            let end = row + rows as u64;
            let in_block = |place: Place| place.part() == parts_before + part && place.row() < end;
            while let Some((at, place)) = wanted.next_if(|(_, place)| in_block(*place)) {
                let to = usize::try_from(*at).expect("a position in memory") - first;
                let from = usize::try_from(place.row() - row).expect("a row of the block");
                gathered[to * each..][..each].copy_from_slice(&numbers[from * each..][..each]);
            }
            row = end;
        }
        parts_before += parts.len();
    }
    assert!(wanted.next().is_none(), "every row that was indexed is in a block");
    Ok(gathered)
}
