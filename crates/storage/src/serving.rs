//! Exports for serving: the rows of each checkpoint of a job, as a base with all of them and deltas with what has changed.
//!
//! ```text
//! TO/current.json                               the newest version, and those that it builds on; written last
//! TO/version-<n>-<identity>/manifest.json       files of a version, with lengths and CRC32C
//! TO/version-<n>-<identity>/delta-*.safetensors rows that have changed since the version before, and keys of those that are no more
//! TO/version-<n>-<identity>/base-*.safetensors  all rows, in some versions
//! TO/exporter.json                              the process that exports
//! ```
//!
//! A version has the number of its checkpoint. It is there when `current.json` lists it; nothing else counts, so that an export which was
//! interrupted is never read, and the next one removes it. There is no state of the optimizer.
//!
//! Changes are found by comparison: the bytes of all exported rows are in a spool on the local disk, divided by key
//! into parts of some 16 MiB, and the rows of a checkpoint are divided the same way before a part is compared. So memory is bounded
//! whatever the size of tables. Of a checkpoint that builds on the one before only what was written since is read. The spool belongs to a
//! process: one that is started again reads back the newest base and its deltas, and compares them with their checksums.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};

use tracing::debug;

use crate::checkpoint::{Block, Checkpoints, Description, TableInfo};
use crate::disk::Disk;

mod compare;
mod error;
mod format;
mod manifest;
mod read_back;
mod source;
mod spool;
mod target;

pub use error::ServingError;
pub use format::Format;
pub use manifest::{Current, ExportedFile, ExportedTable, ListedVersion, VersionManifest};
pub use target::{ExporterId, Target};

use compare::{Change, compare};
use format::Rows;
use manifest::{MANIFEST, directory, is_layer};
use source::Source;
use spool::{Record, Spool};
use target::Claim;

/// Rows of a checkpoint that are read at once.
const BLOCK_ROWS: usize = 1 << 14;
/// Versions after a base, at most: who begins reads all of them.
const VERSIONS_MAX: u64 = 100;
/// About the size of a part in memory, and of a file.
const PART_BYTES: usize = 16 << 20;

/// Condition for a version with all rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BaseRule {
    /// The deltas since the last one have more than half of its bytes, or there are 100.
    Size,
    /// So many versions after the last one.
    Every(u64),
}

/// Settings of an export.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Form of the values of rows.
    pub format: Format,
    /// Tables beside layers; `None`: all.
    pub tables: Option<Vec<String>>,
    /// Condition for a base.
    pub base: BaseRule,
    /// Bases that are kept, with the deltas after the oldest of them; at least 1.
    pub keep: usize,
    /// About the bytes of a part in memory, and of a file.
    pub part_bytes: usize,
}

impl Default for Settings {
    fn default() -> Self {
        let (format, base) = (Format::F32, BaseRule::Size);
        Self { format, tables: None, base, keep: 2, part_bytes: PART_BYTES }
    }
}

/// Progress of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The stage that it is in.
    pub stage: Stage,
    /// Rows of which this is done, about.
    pub done: u64,
    /// All rows, about.
    pub rows: u64,
}

/// A stage of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Reading back what was exported before.
    ReadBack,
    /// Reading the checkpoint.
    Read,
    /// Comparing it with what was exported before, and writing the delta.
    Compare,
    /// Writing a base.
    Base,
}

/// A version that was exported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// Its number.
    pub version: u64,
    /// The version before.
    pub previous: Option<u64>,
    /// Rows that it has.
    pub rows: u64,
    /// Rows that have changed, or are new; all rows in the first version.
    pub changed: u64,
    /// Rows that are no more.
    pub removed: u64,
    /// Bytes of the delta.
    pub delta_bytes: u64,
    /// Bytes of the base, if it has one.
    pub base_bytes: Option<u64>,
    /// True if only what was written after the checkpoint before was read of this one.
    pub is_incremental: bool,
    /// False if the store has no conditional put.
    pub is_conditional: bool,
    /// Objects that were removed, and their bytes.
    pub pruned: (u64, u64),
}

/// Exports the checkpoints of a job, one after the other.
#[derive(Debug)]
pub struct Exporter {
    claim: Claim,
    settings: Settings,
    spool: Spool,
    current: Option<Current>,
    /// Of the newest version: checksums of the manifests of its checkpoint.
    source: Vec<u32>,
    /// Bytes of the newest base, and of the deltas after it.
    bytes: (u64, u64),
    /// Versions that were begun.
    attempts: u64,
}

impl Exporter {
    /// Takes a place, and removes what an exporter that was killed has left. Rows that were exported are read back to a directory on
    /// the local disk, which is emptied before and removed at the end.
    ///
    /// # Errors
    /// Another process exports there, what is there is damaged or another export, or store or disk refused.
    pub fn begin(
        target: &Target,
        owner: ExporterId,
        settings: Settings,
        spool: &Path,
        given_up: Arc<AtomicBool>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self, ServingError> {
        let claim = target.claim(owner, given_up)?;
        let spool = Spool::new(spool, settings.part_bytes)?;
        let (current, source) = (target.current()?, Vec::new());
        let mut exporter = Self { claim, settings, spool, current, source, bytes: (0, 0), attempts: 0 };
        exporter.claim.prune(exporter.current.as_ref())?;
        if let Some(current) = exporter.current.clone() {
            exporter.read_back(&current, progress)?;
        }
        Ok(exporter)
    }

    /// The newest version; `None` before the first.
    pub fn version(&self) -> Option<u64> {
        self.current.as_ref().map(|current| current.version)
    }

    /// The list of versions, with the newest; `None` before the first.
    pub fn current(&self) -> Option<&Current> {
        self.current.as_ref()
    }

    /// To be called now and then while there is nothing to export.
    ///
    /// # Errors
    /// Another process has taken the place over, this one should end, or the store refused.
    pub fn beat(&mut self) -> Result<(), ServingError> {
        self.claim.beat()
    }

    /// Leaves the place to others.
    ///
    /// # Errors
    /// Another process has taken it over, or the store refused.
    pub fn end(self) -> Result<(), ServingError> {
        self.claim.release()
    }

    /// Exports a checkpoint, of which each shard has its part; messages call the places of these by `names`.
    ///
    /// # Errors
    /// See [`ServingError`]. Unless that [is final](ServingError::is_final), another attempt may succeed.
    pub fn export<D: Disk + Clone>(
        &mut self,
        shards: &[(String, Checkpoints<D>)],
        number: u64,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Version, ServingError> {
        let exported = self.try_export(shards, number, progress);
        if exported.is_err() {
            self.spool.reject()?;
        }
        exported
    }

    fn try_export<D: Disk + Clone>(
        &mut self,
        shards: &[(String, Checkpoints<D>)],
        number: u64,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Version, ServingError> {
        if let Some(version) = self.version().filter(|version| number <= *version) {
            return Err(ServingError::NotNewer {
                url: self.claim.target().url().to_owned(),
                number,
                version,
            });
        }
        self.claim.beat()?;
        let source = Source::open(shards, number)?;
        let tables = self.tables(&source)?;
        let since = self.version().filter(|version| source.builds_on(shards, *version, &self.source));
        if self.current.is_none() {
            self.spool.begin(tables.iter().map(|(_, table)| table.stride()))?;
        }
        self.divide(&source, &tables, since, progress)?;
        self.attempts += 1;
        let previous = self.version();
        let written = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let mut files = Files {
            directory: directory(number, self.claim.id().wrapping_add(self.attempts)),
            manifest: VersionManifest::new(number, previous, written, source.checksums.clone()),
        };
        let sums = self.write_delta(&tables, &mut files, since.is_some(), progress)?;
        let rows: Vec<u64> = sums
            .iter()
            .enumerate()
            .map(|(table, sums)| self.spool.rows(table).saturating_add_signed(sums.2))
            .collect();
        let delta_bytes = VersionManifest::bytes(&files.manifest.delta);
        let base_bytes = if self.wants_base(delta_bytes) {
            Some(self.write_base(&tables, &mut files, rows.iter().sum(), progress)?)
        } else {
            None
        };
        let current = self.commit(&source, tables, files, base_bytes.is_some())?;
        let is_conditional = self.claim.commit(&current)?;
        debug!(number, url = self.claim.target().url(), "a version is exported");
        self.spool.accept(&sums.iter().map(|sums| sums.2).collect::<Vec<_>>())?;
        self.bytes = match base_bytes {
            Some(bytes) => (bytes, 0),
            None => (self.bytes.0, self.bytes.1 + delta_bytes),
        };
        self.source = source.checksums;
        self.current = Some(current);
        // What cannot be removed now is next time.
        let pruned = self.claim.prune(self.current.as_ref()).unwrap_or_default();
        Ok(Version {
            version: number,
            previous,
            rows: rows.iter().sum(),
            changed: sums.iter().map(|sums| sums.0).sum(),
            removed: sums.iter().map(|sums| sums.1).sum(),
            delta_bytes,
            base_bytes,
            is_incremental: since.is_some(),
            is_conditional,
            pruned,
        })
    }

    /// The tables to export, with their positions in the checkpoint; they are those that were exported before.
    fn tables<D>(&self, source: &Source<D>) -> Result<Vec<(usize, ExportedTable)>, ServingError> {
        let there = &source.description.tables;
        for table in self.settings.tables.iter().flatten() {
            if !there.iter().any(|info| info.name == *table) {
                let names: Vec<_> = there.iter().map(|info| info.name.as_str()).collect();
                return Err(ServingError::NoTable { table: table.clone(), there: names.join(", ") });
            }
        }
        let chosen = |info: &TableInfo| {
            is_layer(info) || self.settings.tables.as_ref().is_none_or(|names| names.contains(&info.name))
        };
        let tables: Vec<_> = there
            .iter()
            .enumerate()
            .filter(|(_, info)| chosen(info))
            .map(|(position, info)| (position, ExportedTable::of(info, self.settings.format)))
            .collect();
        let Some(current) = &self.current else { return Ok(tables) };
        let different = |there: String, here: String| ServingError::Different {
            url: self.claim.target().url().to_owned(),
            there,
            here,
        };
        if current.values != self.settings.format {
            let format = |format: Format| format!("values in {format}");
            return Err(different(format(current.values), format(self.settings.format)));
        }
        if current.seed != source.description.seed {
            let seed = |seed: u64| format!("seed {seed}");
            return Err(different(seed(current.seed), seed(source.description.seed)));
        }
        let own: Vec<&ExportedTable> = tables.iter().map(|(_, table)| table).collect();
        if !current.tables.iter().eq(own.iter().copied()) {
            let text = |tables: &mut dyn Iterator<Item = &ExportedTable>| {
                let table = |table: &ExportedTable| format!("{} (width {})", table.name, table.width);
                format!("the tables {}", tables.map(table).collect::<Vec<_>>().join(", "))
            };
            return Err(different(text(&mut current.tables.iter()), text(&mut own.into_iter())));
        }
        Ok(tables)
    }

    /// Divides the rows of a checkpoint among the parts of the spool.
    fn divide<D: Disk + Clone>(
        &mut self,
        source: &Source<D>,
        tables: &[(usize, ExportedTable)],
        since: Option<u64>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), ServingError> {
        let above = since.unwrap_or(0);
        let mut all = 0;
        for (table, (position, _)) in tables.iter().enumerate() {
            let rows = source.rows(*position, above);
            all += rows;
            let before = if since.is_some() { self.spool.rows(table) } else { 0 };
            self.spool.reserve(table, before.saturating_add(rows))?;
        }
        let mut positions = vec![None; source.description.tables.len()];
        for (table, (position, _)) in tables.iter().enumerate() {
            positions[*position] = Some(table);
        }
        let (mut row, mut done) = (Vec::new(), 0);
        for (shard, (name, checkpoint)) in source.parts.iter().enumerate() {
            let shard = u16::try_from(shard).unwrap_or(u16::MAX);
            let fail = |cause| ServingError::Checkpoint { file: name.clone(), cause };
            let mut blocks = checkpoint.blocks_above(above, BLOCK_ROWS);
            while let Some(block) = blocks.next_block().map_err(fail)? {
                self.claim.beat()?;
                match block {
                    Block::Rows { table, keys, values, .. } => {
                        let Some(table) = positions[table] else { continue };
                        let exported = &tables[table].1;
                        for (key, values) in keys.iter().zip(values.chunks_exact(exported.width as usize)) {
                            row.clear();
                            exported.values.encode(values, &mut row);
                            let record = Record { key: *key, shard, is_removed: false };
                            self.spool.push(table, record, &row)?;
                        }
                        done += keys.len() as u64;
                    }
                    Block::Removed { table, keys } => {
                        let Some(table) = positions[table] else { continue };
                        for key in keys {
                            self.spool.push(table, Record { key: *key, shard, is_removed: true }, &[])?;
                        }
                    }
                }
                progress(Progress { stage: Stage::Read, done, rows: all });
            }
        }
        self.spool.flush()
    }

    /// Compares the checkpoint with what was exported, and writes what has changed. Returns of each table the number of rows that have
    /// changed, of those that are no more, and by how many there are more.
    fn write_delta(
        &mut self,
        tables: &[(usize, ExportedTable)],
        files: &mut Files,
        is_incremental: bool,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Vec<(u64, u64, i64)>, ServingError> {
        let mut sums = Vec::new();
        let all: u64 = (0..tables.len()).map(|table| self.spool.parts(table) as u64).sum();
        let mut done = 0;
        for (table, (_, info)) in tables.iter().enumerate() {
            let (mut change, mut changed, mut removed, mut more) = (Change::default(), 0, 0, 0_i64);
            for part in 0..self.spool.parts(table) {
                self.claim.beat()?;
                done += 1;
                progress(Progress { stage: Stage::Compare, done, rows: all });
                let (records, rows) = self.spool.take(table, part)?;
                if records.is_empty() && is_incremental {
                    continue;
                }
                let before = self.spool.exported(table, part, false)?;
                let stride = info.stride();
                let found = compare(&before, &records, &rows, stride, is_incremental)
                    .map_err(|key| ServingError::TwoOwners { table: info.name.clone(), key })?;
                if found.changed.keys.is_empty() && found.removed.is_empty() {
                    continue;
                }
                changed += found.changed.keys.len() as u64;
                removed += found.removed.len() as u64;
                let count = |rows: &Rows| i64::try_from(rows.keys.len()).expect("they are in memory");
                more += count(&found.next) - count(&before);
                self.spool.set(table, part, &found.next)?;
                // The first version has all rows in its base.
                if self.current.is_some() {
                    change.append(found);
                    if change.bytes() >= self.settings.part_bytes {
                        self.write_file(files, (table, info), "delta", &std::mem::take(&mut change))?;
                    }
                }
            }
            if change.bytes() > 0 {
                self.write_file(files, (table, info), "delta", &change)?;
            }
            sums.push((changed, removed, more));
        }
        Ok(sums)
    }

    /// Writes all rows of the version that is made. Returns their bytes.
    fn write_base(
        &mut self,
        tables: &[(usize, ExportedTable)],
        files: &mut Files,
        all: u64,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<u64, ServingError> {
        files.manifest.base = Some(Vec::new());
        let mut done = 0;
        for (table, (_, info)) in tables.iter().enumerate() {
            for part in 0..self.spool.parts(table) {
                let rows = self.spool.exported(table, part, true)?;
                done += rows.keys.len() as u64;
                if !rows.keys.is_empty() {
                    let change = Change { changed: rows, ..Change::default() };
                    self.write_file(files, (table, info), "base", &change)?;
                }
                progress(Progress { stage: Stage::Base, done, rows: all });
            }
        }
        Ok(VersionManifest::bytes(files.manifest.base.as_deref().unwrap_or_default()))
    }

    fn write_file(
        &mut self,
        files: &mut Files,
        (table, info): (usize, &ExportedTable),
        kind: &'static str,
        change: &Change,
    ) -> Result<(), ServingError> {
        let bytes =
            format::file(&info.name, info.values, info.width as usize, &change.changed, &change.removed);
        let list = match (kind, &mut files.manifest.base) {
            ("base", Some(base)) => base,
            _ => &mut files.manifest.delta,
        };
        let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '_' };
        let table_name: String = info.name.chars().map(plain).collect();
        let name = format!("{kind}-{:05}-{table_name}.safetensors", list.len());
        list.push(ExportedFile {
            name: name.clone(),
            table,
            rows: change.changed.keys.len() as u64,
            removed: change.removed.len() as u64,
            bytes: bytes.len() as u64,
            checksum: crc32c::crc32c(&bytes),
        });
        self.claim.put(&format!("{}/{name}", files.directory), bytes.into())
    }

    fn wants_base(&self, delta_bytes: u64) -> bool {
        let Some(current) = &self.current else { return true };
        let since = current.versions.iter().filter(|listed| listed.version > current.base).count() as u64 + 1;
        match self.settings.base {
            BaseRule::Size => self.bytes.1 + delta_bytes > self.bytes.0 / 2 || since >= VERSIONS_MAX,
            BaseRule::Every(versions) => since >= versions,
        }
    }

    /// Writes the manifest of a version. Returns what is to name it.
    fn commit<D>(
        &mut self,
        source: &Source<D>,
        tables: Vec<(usize, ExportedTable)>,
        files: Files,
        is_base: bool,
    ) -> Result<Current, ServingError> {
        let Files { directory, manifest } = files;
        let bytes = manifest.to_bytes();
        let (version, previous) = (manifest.version, manifest.previous);
        let checksum = crc32c::crc32c(&bytes);
        let listed =
            ListedVersion { version, is_base, previous, directory, bytes: bytes.len() as u64, checksum };
        self.claim.put(&format!("{}/{MANIFEST}", listed.directory), bytes.into())?;
        let mut versions = self.current.as_ref().map(|current| current.versions.clone()).unwrap_or_default();
        versions.push(listed);
        let bases = versions.iter().rev().filter(|listed| listed.is_base).map(|listed| listed.version);
        let bases: Vec<u64> = bases.take(self.settings.keep.max(1)).collect();
        let oldest = bases.last().copied().expect("the first version has all rows");
        versions.retain(|listed| listed.version >= oldest);
        let tables = tables.into_iter().map(|(_, table)| table).collect();
        let Description { seed, job, .. } = source.description;
        Ok(Current::new(version, bases[0], self.settings.format, seed, job, tables, versions))
    }
}

/// A version while it is written.
#[derive(Debug)]
struct Files {
    directory: String,
    manifest: VersionManifest,
}
