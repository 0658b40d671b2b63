//! Reading back what an exporter before has exported.

use super::compare::compare;
use super::error::ServingError;
use super::format::{self, Rows};
use super::manifest::{Current, ExportedFile, ExportedTable, ListedVersion, MANIFEST, VersionManifest};
use super::spool::Record;
use super::target::Target;
use super::{Exporter, Progress, Stage};
use crate::checkpoint::Fault;
use crate::checkpoint::sealed::field;

impl Exporter {
    /// Reads the newest version to the spool.
    pub(super) fn read_back(
        &mut self,
        current: &Current,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), ServingError> {
        let target = self.claim.target().clone();
        self.spool.begin(current.tables.iter().map(ExportedTable::stride))?;
        let mut chain = Vec::new();
        for listed in current.chain() {
            let name = format!("{}/{MANIFEST}", listed.directory);
            let bytes = target.read(&name)?;
            compare_checksum(&target, &name, &bytes, (listed.bytes, listed.checksum))?;
            chain.push((listed, VersionManifest::read(&bytes, &target.named(&name))?));
        }
        let read = |(listed, manifest): &(&ListedVersion, VersionManifest)| {
            let base = (listed.version == current.base).then(|| manifest.base.clone()).flatten();
            base.unwrap_or_else(|| manifest.delta.clone())
        };
        let all = chain.iter().flat_map(read).map(|file| file.rows).sum();
        let mut done = 0;
        for (at, version) in chain.iter().enumerate() {
            let files = read(version);
            let mut wanted = vec![0; current.tables.len()];
            for file in &files {
                let Some(wanted) = wanted.get_mut(file.table) else {
                    let fault = field("table", file.table, "the position of a table");
                    let file = target.named(&format!("{}/{MANIFEST}", version.0.directory));
                    return Err(ServingError::Damaged { file, fault });
                };
                *wanted += file.rows;
            }
            for (table, wanted) in wanted.into_iter().enumerate() {
                self.spool.reserve(table, self.spool.rows(table) + wanted)?;
            }
            for file in &files {
                self.claim.beat()?;
                let name = format!("{}/{}", version.0.directory, file.name);
                let bytes = target.read(&name)?;
                compare_checksum(&target, &name, &bytes, (file.bytes, file.checksum))?;
                self.take_back(&target.named(&name), file, &current.tables[file.table], &bytes)?;
                done += file.rows;
                progress(Progress { stage: Stage::ReadBack, done, rows: all });
            }
            self.merge_back(current, at > 0)?;
        }
        let newest = chain.last().map(|(_, manifest)| manifest.source.clone());
        self.source = newest.unwrap_or_default();
        let bytes =
            |(_, manifest): &(&ListedVersion, VersionManifest)| VersionManifest::bytes(&manifest.delta);
        let base = chain.first().and_then(|(_, manifest)| manifest.base.as_deref()).unwrap_or_default();
        self.bytes = (VersionManifest::bytes(base), chain.iter().skip(1).map(bytes).sum());
        Ok(())
    }

    /// Divides the rows of an exported file among the parts of the spool.
    fn take_back(
        &mut self,
        name: &str,
        file: &ExportedFile,
        info: &ExportedTable,
        bytes: &[u8],
    ) -> Result<(), ServingError> {
        let counts = usize::try_from(file.rows).ok().zip(usize::try_from(file.removed).ok());
        let parsed = counts.and_then(|counts| format::parse(bytes, info.values, info.width as usize, counts));
        let Some((rows, removed)) = parsed else {
            let fault = Fault::Header { expected: "a file of these rows" };
            return Err(ServingError::Damaged { file: name.to_owned(), fault });
        };
        let record = |key: u64, is_removed| Record { key, shard: 0, is_removed };
        for key in removed {
            self.spool.push(file.table, record(key, true), &[])?;
        }
        for (at, key) in rows.keys.iter().enumerate() {
            self.spool.push(file.table, record(*key, false), rows.row(at, info.stride()))?;
        }
        Ok(())
    }

    /// Merges what was read back of a version into the rows before.
    fn merge_back(&mut self, current: &Current, is_delta: bool) -> Result<(), ServingError> {
        self.spool.flush()?;
        let mut changes = Vec::new();
        for (table, info) in current.tables.iter().enumerate() {
            let mut more = 0;
            for part in 0..self.spool.parts(table) {
                let (records, rows) = self.spool.take(table, part)?;
                if records.is_empty() {
                    continue;
                }
                let before = self.spool.exported(table, part, false)?;
                let found = compare(&before, &records, &rows, info.stride(), is_delta)
                    .map_err(|key| ServingError::TwoOwners { table: info.name.clone(), key })?;
                let count = |rows: &Rows| i64::try_from(rows.keys.len()).expect("they are in memory");
                more += count(&found.next) - count(&before);
                self.spool.set(table, part, &found.next)?;
            }
            changes.push(more);
        }
        self.spool.accept(&changes)
    }
}

/// Compares an object with what is known of it.
fn compare_checksum(
    target: &Target,
    name: &str,
    bytes: &[u8],
    (length, expected): (u64, u32),
) -> Result<(), ServingError> {
    let found = crc32c::crc32c(bytes);
    let fault = if bytes.len() as u64 != length {
        Fault::Length { expected: length, found: bytes.len() as u64 }
    } else if found != expected {
        Fault::Checksum { expected, found }
    } else {
        return Ok(());
    };
    Err(ServingError::Damaged { file: target.named(name), fault })
}
