//! The JSON objects of an export.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::error::ServingError;
use super::format::Format;
use crate::checkpoint::sealed::{ParseError, field, hex, seal, unseal_with};
use crate::checkpoint::{Fault, TableInfo};

/// Version of the format of an export.
const FORMAT: u64 = 1;
/// Object that names the newest version, written last.
pub(super) const CURRENT: &str = "current.json";
/// Object of each version, beside its files.
pub(super) const MANIFEST: &str = "manifest.json";

/// The newest version of an export, and those that it builds on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Current {
    /// Version of this format.
    pub(super) format: u64,
    /// The newest version: the number of its checkpoint.
    pub version: u64,
    /// The newest version that has all rows.
    pub base: u64,
    /// Form of the values of rows.
    pub values: Format,
    /// The seed that first values of rows follow from.
    pub seed: u64,
    /// The job.
    pub job: u64,
    /// The tables.
    pub tables: Vec<ExportedTable>,
    /// All versions that are there, by rising number.
    pub versions: Vec<ListedVersion>,
}

/// An exported table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportedTable {
    /// Its name.
    pub name: String,
    /// The keys that its rows can have.
    pub keys: Range<u64>,
    /// Values of a row.
    pub width: u32,
    /// Form of its values.
    pub values: Format,
}

impl ExportedTable {
    pub(super) fn of(info: &TableInfo, format: Format) -> Self {
        let values = if is_layer(info) { Format::F32 } else { format };
        Self { name: info.name.clone(), keys: info.keys.clone(), width: info.width, values }
    }

    /// Bytes of a row.
    pub(super) fn stride(&self) -> usize {
        self.values.stride(self.width as usize)
    }
}

/// True if a table is a layer: one row.
pub(super) fn is_layer(info: &TableInfo) -> bool {
    info.keys.end - info.keys.start == 1
}

/// A version in [`Current`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedVersion {
    /// Its number.
    pub version: u64,
    /// True if it has all rows.
    pub is_base: bool,
    /// The version that its delta goes on from; the first one has none.
    pub previous: Option<u64>,
    /// The directory of its files.
    pub directory: String,
    /// Length of its manifest.
    pub bytes: u64,
    /// CRC32C of all bytes of its manifest.
    #[serde(with = "hex")]
    pub checksum: u32,
}

/// A version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionManifest {
    /// Version of this format.
    pub(super) format: u64,
    /// Its number: that of its checkpoint.
    pub version: u64,
    /// The version that its delta goes on from.
    pub previous: Option<u64>,
    /// Seconds since 1970 at which it was written.
    pub written: u64,
    /// Checksums of the manifests of its checkpoint, by shard.
    pub(super) source: Vec<u32>,
    /// Files with all rows, if it has them.
    pub base: Option<Vec<ExportedFile>>,
    /// Files with what has changed since the version before.
    pub delta: Vec<ExportedFile>,
}

/// A file of an export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportedFile {
    /// Its name in the directory of its version.
    pub name: String,
    /// The position of its table.
    pub table: usize,
    /// Number of rows.
    pub rows: u64,
    /// Number of keys of rows that are no more.
    pub removed: u64,
    /// Its length.
    pub bytes: u64,
    /// CRC32C of all its bytes.
    #[serde(with = "hex")]
    pub checksum: u32,
}

impl Current {
    pub(super) fn new(
        version: u64,
        base: u64,
        values: Format,
        seed: u64,
        job: u64,
        tables: Vec<ExportedTable>,
        versions: Vec<ListedVersion>,
    ) -> Self {
        Self { format: FORMAT, version, base, values, seed, job, tables, versions }
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        seal(self).0
    }

    /// Reads the bytes of an object that messages call `name`.
    ///
    /// # Errors
    /// They are not as they were written.
    pub fn read(bytes: &[u8], name: &str) -> Result<Self, ServingError> {
        let read = || {
            let (current, _) = unseal_with::<Self>(bytes, "the newest version of an export", FORMAT_FIELD)?;
            current.check()?;
            Ok(current)
        };
        read().map_err(|error| damaged(name, error))
    }

    fn check(&self) -> Result<(), Fault> {
        let rises = self.versions.windows(2).all(|pair| pair[0].version < pair[1].version);
        let is_last = self.versions.last().is_some_and(|last| last.version == self.version);
        if !rises || !is_last {
            return Err(field("versions", "other versions", "by rising number, up to version"));
        }
        if !self.versions.iter().any(|listed| listed.version == self.base && listed.is_base) {
            return Err(field("base", self.base, "a version that has all rows"));
        }
        let is_plain = |listed: &ListedVersion| is_directory(&listed.directory);
        match self.versions.iter().find(|listed| !is_plain(listed)) {
            Some(listed) => Err(field("directory", &listed.directory, "version-<number>-<identity>")),
            None => Ok(()),
        }
    }

    /// The versions from which the newest one is put together: a base, and deltas.
    pub fn chain(&self) -> impl Iterator<Item = &ListedVersion> {
        self.versions.iter().filter(|listed| listed.version >= self.base)
    }
}

impl VersionManifest {
    pub(super) fn new(version: u64, previous: Option<u64>, written: u64, source: Vec<u32>) -> Self {
        Self { format: FORMAT, version, previous, written, source, base: None, delta: Vec::new() }
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        seal(self).0
    }

    /// Reads the bytes of an object that messages call `name`.
    ///
    /// # Errors
    /// They are not as they were written.
    pub fn read(bytes: &[u8], name: &str) -> Result<Self, ServingError> {
        let read = unseal_with::<Self>(bytes, "a version of an export", FORMAT_FIELD);
        read.map(|(manifest, _)| manifest).map_err(|error| damaged(name, error))
    }

    /// Bytes of its files.
    pub(super) fn bytes(files: &[ExportedFile]) -> u64 {
        files.iter().map(|file| file.bytes).sum()
    }
}

const FORMAT_FIELD: (&str, u64) = ("format", FORMAT);

fn damaged(name: &str, error: ParseError) -> ServingError {
    let file = name.to_owned();
    match error {
        ParseError::Fault(fault) => ServingError::Damaged { file, fault },
        ParseError::Version(found) => ServingError::Format { file, found, known: FORMAT },
    }
}

/// The directory of a version that an exporter writes.
pub(super) fn directory(version: u64, exporter: u64) -> String {
    format!("version-{version}-{exporter:016x}")
}

/// True if a name is one of [`directory`].
pub(super) fn is_directory(name: &str) -> bool {
    let parts = || {
        let (version, exporter) = name.strip_prefix("version-")?.split_once('-')?;
        Some((version.parse().ok()?, u64::from_str_radix(exporter, 16).ok()?))
    };
    parts().is_some_and(|(version, exporter)| directory(version, exporter) == name)
}
