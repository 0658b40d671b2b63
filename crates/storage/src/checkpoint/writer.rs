//! Writes a checkpoint, a little at a time.

use std::mem;

use super::error::{CheckpointError, WriteError};
use super::manifest::{self, Base, Content, Description, FileInfo, Manifest, TableInfo};
use super::safetensors::Layout;
use super::{Checkpoints, UNFINISHED, remove_directory};
use crate::disk::{Disk, DiskError};

/// Bytes that are given to the disk at once.
const WRITE_BYTES: usize = 1 << 20;
/// A file of fewer is not worth the memory of a stream.
const STREAM_BYTES_MIN: usize = 1 << 20;

/// Limits that divide the rows of a checkpoint into files. The one reached first ends a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartSettings {
    /// Rows of one file, at least 1.
    pub rows_max: usize,
    /// Bytes of the rows of one file. That much of each table that is being written is in memory.
    pub bytes_max: usize,
}

impl Default for PartSettings {
    /// 64 MiB, however many rows that is.
    fn default() -> Self {
        Self { rows_max: usize::MAX, bytes_max: 64 << 20 }
    }
}

/// A checkpoint that is being written.
///
/// It is given rows in pieces of any size, as the owner has time for them; tables can take turns. A file is written
/// and synced when it has all its rows, and by [`finish`](Self::finish): those calls wait for the disk, all others
/// only copy memory. An owner that must not wait for the disk gives the writer to a thread.
///
/// Until `finish` returns there is no checkpoint. After an error, or when it is dropped, the files written are removed,
/// which frees the disk.
#[derive(Debug)]
pub struct Writer<D: Disk + Clone> {
    disk: D,
    settings: PartSettings,
    description: Description,
    base: Option<Base>,
    directory: String,
    parts: Vec<Part>,
    files: Vec<FileInfo>,
    failed: bool,
}

/// The rows of a table that are not in a file yet.
#[derive(Debug, Default)]
struct Part {
    keys: Vec<u64>,
    values: Vec<f32>,
    state: Vec<f32>,
    removed: Vec<u64>,
    /// Files that the table has.
    files: usize,
}

impl<D: Disk + Clone> Writer<D> {
    /// Begins checkpoint `description.number`: full, or with the changes since `base`.
    pub(super) fn begin(
        checkpoints: &Checkpoints<D>,
        description: Description,
        base: Option<u64>,
        settings: PartSettings,
    ) -> Result<Self, WriteError> {
        description.check().map_err(WriteError::Description)?;
        let number = description.number;
        if let Some(newest) = checkpoints.numbers()?.into_iter().max().filter(|newest| *newest >= number) {
            return Err(WriteError::NotNewest { number, newest });
        }
        let base = base.map(|base| {
            let (found, checksum) = checkpoints.manifest(base)?;
            match differs(&description, &found.description) {
                Some(field) => Err(CheckpointError::OtherBase { number, base, field }),
                None => Ok(Base { number: base, checksum }),
            }
        });
        let base = base.transpose().map_err(WriteError::Base)?;
        let directory = format!("{}{UNFINISHED}", super::directory_name(number));
        let disk = checkpoints.disk().clone();
        remove_directory(&disk, &directory)?;
        disk.create_directory(&directory)?;
        let parts = description.tables.iter().map(|_| Part::default()).collect();
        Ok(Self { disk, settings, description, base, directory, parts, files: Vec::new(), failed: false })
    }

    /// Adds rows of the table at this position: for each key its values, and for each its optimizer's state, one row
    /// after the other. A key may come once in a checkpoint.
    ///
    /// # Errors
    /// These are no rows of the table, and nothing was added; or the disk refused, and the checkpoint is given up.
    pub fn write_rows(
        &mut self,
        table: usize,
        keys: &[u64],
        values: &[f32],
        state: &[f32],
    ) -> Result<(), WriteError> {
        let info = self.checked(table, keys)?;
        let (width, state_width) = (info.width as usize, info.state as usize);
        for (field, each, found) in [("values", width, values.len()), ("state", state_width, state.len())] {
            let (rows, expected) = (keys.len(), keys.len() * each);
            if found != expected {
                return Err(WriteError::Ragged { table: info.name.clone(), field, rows, expected, found });
            }
        }
        let row_bytes = size_of::<u64>() + (width + state_width) * size_of::<f32>();
        let rows_max = self.settings.rows_max.min(self.settings.bytes_max / row_bytes).max(1);
        let mut done = 0;
        while done < keys.len() {
            let part = &mut self.parts[table];
            let end = keys.len().min(done + rows_max - part.keys.len());
            part.keys.extend_from_slice(&keys[done..end]);
            part.values.extend_from_slice(&values[done * width..end * width]);
            part.state.extend_from_slice(&state[done * state_width..end * state_width]);
            done = end;
            if part.keys.len() == rows_max {
                self.write_part(table)?;
            }
        }
        Ok(())
    }

    /// Removes rows with these keys, which the base, or those it builds on, may have. Removals
    /// count before rows, whatever the order in which they were given.
    ///
    /// # Errors
    /// As [`write_rows`](Self::write_rows); or the checkpoint is a full one.
    pub fn remove_rows(&mut self, table: usize, keys: &[u64]) -> Result<(), WriteError> {
        self.checked(table, keys)?;
        if self.base.is_none() {
            return Err(WriteError::NotIncremental);
        }
        let rows_max = self.settings.rows_max.min(self.settings.bytes_max / size_of::<u64>()).max(1);
        for &key in keys {
            self.parts[table].removed.push(key);
            if self.parts[table].removed.len() == rows_max {
                self.write_removed(table)?;
            }
        }
        Ok(())
    }

    /// Writes the rest, and `state`, which the owner gets back as it is; then the checkpoint is there, durable.
    ///
    /// # Errors
    /// The disk refused, or the base is gone, and the checkpoint is given up. If it refused only the very last step, a later look at the
    /// disk may find the checkpoint, complete.
    pub fn finish(mut self, state: &[u8]) -> Result<Manifest, WriteError> {
        if self.failed {
            return Err(WriteError::Failed);
        }
        for table in 0..self.parts.len() {
            if !self.parts[table].keys.is_empty() {
                self.write_part(table)?;
            }
            if !self.parts[table].removed.is_empty() {
                self.write_removed(table)?;
            }
        }
        self.write_file(manifest::STATE.to_owned(), Content::State, &[state])?;
        self.check_base()?;
        let manifest = Manifest {
            version: manifest::VERSION,
            description: self.description.clone(),
            base: self.base,
            files: mem::take(&mut self.files),
        };
        self.publish(&manifest.to_bytes().0)?;
        Ok(manifest)
    }

    /// Checks that the base is still there: it may have been pruned while this was written.
    fn check_base(&self) -> Result<(), WriteError> {
        let Some(Base { number: base, checksum }) = self.base else { return Ok(()) };
        let checkpoints = Checkpoints::new(self.disk.clone());
        let found =
            checkpoints.chain(base).and_then(|_| checkpoints.manifest(base)).map_err(WriteError::Base)?;
        if found.1 == checksum {
            return Ok(());
        }
        let number = self.description.number;
        Err(WriteError::Base(CheckpointError::OtherBase { number, base, field: "checksum" }))
    }

    fn publish(&mut self, manifest: &[u8]) -> Result<(), DiskError> {
        write_synced(&self.disk, &format!("{}/{}", self.directory, manifest::NAME), &[manifest])?;
        self.disk.sync_directory(&self.directory)?;
        self.disk.rename(&self.directory, &super::directory_name(self.description.number))?;
        self.disk.sync_directory("")
    }

    /// The table at this position, if it can have all these keys.
    fn checked(&self, table: usize, keys: &[u64]) -> Result<&TableInfo, WriteError> {
        if self.failed {
            return Err(WriteError::Failed);
        }
        let info = self.description.tables.get(table).ok_or(WriteError::UnknownTable { table })?;
        match keys.iter().find(|key| !info.keys.contains(key)) {
            Some(&key) => Err(WriteError::Key { table: info.name.clone(), key }),
            None => Ok(info),
        }
    }

    fn write_part(&mut self, table: usize) -> Result<(), WriteError> {
        let name = self.file_name(table, "rows");
        let info = &self.description.tables[table];
        let mut part = mem::take(&mut self.parts[table]);
        let rows = part.keys.len() as u64;
        let layout = Layout::of_rows(&info.name, rows, info.width, info.state).expect("it is in memory");
        let (keys, values) = (bytemuck::cast_slice(&part.keys), bytemuck::cast_slice(&part.values));
        let pieces = [&layout.header, keys, values, bytemuck::cast_slice(&part.state)];
        self.write_file(name, Content::Rows { table, rows }, &pieces)?;
        // The next part needs the same memory.
        part.keys.clear();
        part.values.clear();
        part.state.clear();
        part.files += 1;
        self.parts[table] = part;
        Ok(())
    }

    fn write_removed(&mut self, table: usize) -> Result<(), WriteError> {
        let name = self.file_name(table, "removed");
        let removed = mem::take(&mut self.parts[table].removed);
        let rows = removed.len() as u64;
        let layout = Layout::of_removed(&self.description.tables[table].name, rows).expect("it is in memory");
        let pieces = [&layout.header, bytemuck::cast_slice(&removed)];
        self.write_file(name, Content::Removed { table, rows }, &pieces)?;
        self.parts[table].files += 1;
        Ok(())
    }

    /// A name that shows the table to people; its position makes it unique whatever the table is called.
    fn file_name(&self, table: usize, content: &str) -> String {
        let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '_' };
        let name: String = self.description.tables[table].name.chars().take(40).map(plain).collect();
        format!("table-{table}-{name}-{content}-{:05}.safetensors", self.parts[table].files)
    }

    fn write_file(&mut self, name: String, content: Content, pieces: &[&[u8]]) -> Result<(), WriteError> {
        match write_synced(&self.disk, &format!("{}/{name}", self.directory), pieces) {
            Ok((bytes, checksum)) => {
                self.files.push(FileInfo { name, content, bytes, checksum });
                Ok(())
            }
            Err(error) => {
                self.failed = true;
                // At once: others may wait for the room.
                remove_directory(&self.disk, &self.directory).ok();
                Err(error.into())
            }
        }
    }
}

impl<D: Disk + Clone> Drop for Writer<D> {
    /// Files of an unfinished one are removed, or else found as unfinished later. Once it was finished
    /// there is no directory of this name.
    fn drop(&mut self) {
        remove_directory(&self.disk, &self.directory).ok();
    }
}

/// Writes a file that is not there yet, and makes its bytes durable. Returns its length and checksum.
pub(super) fn write_synced(disk: &impl Disk, name: &str, pieces: &[&[u8]]) -> Result<(u64, u32), DiskError> {
    let length: usize = pieces.iter().map(|piece| piece.len()).sum();
    if length < STREAM_BYTES_MIN {
        disk.create(name)?
    } else {
        disk.create_stream(name)?
    }
    let (mut bytes, mut checksum) = (0, 0);
    for piece in pieces.iter().flat_map(|piece| piece.chunks(WRITE_BYTES)) {
        disk.append(name, piece)?;
        // While it is in the cache.
        checksum = crc32c::crc32c_append(checksum, piece);
        bytes += piece.len() as u64;
    }
    disk.sync(name)?;
    disk.close(name);
    Ok((bytes, checksum))
}

/// Returns the field that must be the same in an increment and its base, and is not.
pub(super) fn differs(increment: &Description, base: &Description) -> Option<&'static str> {
    let tables = |description: &Description| {
        let shape = |table: &TableInfo| (table.name.clone(), table.keys.clone(), table.width, table.state);
        description.tables.iter().map(shape).collect::<Vec<_>>()
    };
    if increment.job != base.job {
        Some("job")
    } else if (increment.shards, increment.shard) != (base.shards, base.shard) {
        Some("shard")
    } else if increment.seed != base.seed {
        Some("seed")
    } else {
        (tables(increment) != tables(base)).then_some("tables")
    }
}
