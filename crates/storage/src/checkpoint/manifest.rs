//! The manifest of a checkpoint: `manifest.json`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::error::Fault;
use super::safetensors::Layout;
use super::sealed::{ParseError, field, hex, seal, unseal};
use crate::wal::RecordNumber;

pub(crate) const NAME: &str = "manifest.json";
pub(super) const STATE: &str = "state.bin";
pub(super) const VERSION: u64 = 1;
/// A longer one is not read. One file of rows takes about 200 bytes of it.
pub(crate) const BYTES_MAX: u64 = 256 << 20;

/// Description and contents of a checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the format.
    pub version: u64,
    /// The description.
    #[serde(flatten)]
    pub description: Description,
    /// The checkpoint that it builds on; a full one has none.
    pub base: Option<Base>,
    /// All other files.
    pub files: Vec<FileInfo>,
}

/// Identity of a checkpoint. All but `number`, `tables` and `covers` means nothing here and is kept for the owner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// Its number, above those of all before.
    pub number: u64,
    /// The job.
    pub job: u64,
    /// The seed that first values of rows follow from.
    pub seed: u64,
    /// Number of shards among which the rows were divided.
    pub shards: u32,
    /// The shard that wrote it.
    pub shard: u32,
    /// The newest record of the log whose effect is in it: recovery goes on with the next one.
    pub covers: RecordNumber,
    /// Steps, and whatever else is counted.
    pub steps: BTreeMap<String, u64>,
    /// The tables of the job.
    pub tables: Vec<TableInfo>,
    /// The position of the job, for one that resumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<serde_json::Value>,
}

/// A table as in a checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableInfo {
    /// Its name, unique in the job.
    pub name: String,
    /// The keys that its rows can have.
    pub keys: Range<u64>,
    /// Values of a row, at least 1.
    pub width: u32,
    /// Numbers that its optimizer keeps for a row.
    pub state: u32,
    /// The rule by which its rows change, as its owner describes it.
    pub rule: serde_json::Value,
}

/// The base of an increment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Base {
    /// The number of that checkpoint.
    pub number: u64,
    /// The checksum of its manifest, so that no other takes its place.
    #[serde(with = "hex")]
    pub checksum: u32,
}

/// A file of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileInfo {
    /// Its name in the directory.
    pub name: String,
    /// Its content.
    pub content: Content,
    /// Its length.
    pub bytes: u64,
    /// CRC32C of all its bytes.
    #[serde(with = "hex")]
    pub checksum: u32,
}

/// Content of a file of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// Rows of a table.
    Rows {
        /// The position of the table.
        table: usize,
        /// Number of rows.
        rows: u64,
    },
    /// Keys of rows of a table that the base has, and that are no more.
    Removed {
        /// The position of the table.
        table: usize,
        /// Number of rows.
        rows: u64,
    },
    /// State that the owner gets back as it was.
    State,
}

impl Manifest {
    /// Number of rows that it has; in an increment, of those that changed.
    #[must_use]
    pub fn rows(&self) -> u64 {
        let rows = |file: &FileInfo| match file.content {
            Content::Rows { rows, .. } => rows,
            Content::Removed { .. } | Content::State => 0,
        };
        self.files.iter().map(rows).sum()
    }

    /// Number of rows of the table at this position.
    #[must_use]
    pub fn rows_of(&self, position: usize) -> u64 {
        let rows = |file: &FileInfo| match file.content {
            Content::Rows { table, rows } if table == position => rows,
            _ => 0,
        };
        self.files.iter().map(rows).sum()
    }

    /// Bytes of all its files but the manifest.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// The bytes of the file, and their checksum, which is in the first line.
    pub(crate) fn to_bytes(&self) -> (Vec<u8>, u32) {
        seal(self)
    }

    /// Reads the bytes of [`to_bytes`](Self::to_bytes).
    pub(crate) fn parse(bytes: &[u8]) -> Result<(Self, u32), ParseError> {
        let (manifest, checksum) = unseal::<Self>(bytes, "a manifest", VERSION)?;
        manifest.check()?;
        Ok((manifest, checksum))
    }

    fn check(&self) -> Result<(), Fault> {
        self.description.check()?;
        if let Some(base) = self.base.filter(|base| base.number >= self.description.number) {
            return Err(field("base.number", base.number, "below the checkpoint's own number"));
        }
        let mut names = BTreeSet::new();
        let mut states = 0;
        for (index, file) in self.files.iter().enumerate() {
            let of = |name: &str| format!("files[{index}].{name}");
            let simple = !file.name.starts_with('.') && !file.name.is_empty() && file.name != NAME;
            if !simple || file.name.contains(['/', '\\', '\0']) {
                return Err(field(&of("name"), &file.name, "the name of a file in this directory"));
            }
            if !names.insert(&file.name) {
                return Err(field(&of("name"), &file.name, "another than those before"));
            }
            let layout = match file.content {
                Content::State => {
                    states += 1;
                    continue;
                }
                Content::Removed { .. } if self.base.is_none() => {
                    return Err(field(&of("content"), "removed", "something that a full checkpoint has"));
                }
                Content::Rows { table, .. } | Content::Removed { table, .. }
                    if table >= self.description.tables.len() =>
                {
                    return Err(field(&of("content.table"), table, "the position of a table"));
                }
                Content::Rows { .. } | Content::Removed { .. } => self.layout(file),
            };
            if layout.is_none_or(|layout| layout.bytes() != file.bytes) {
                return Err(field(&of("bytes"), file.bytes, "the size of its rows"));
            }
        }
        if states != 1 {
            return Err(field(
                "files",
                format!("{states} of them of state"),
                "one of state, and any of rows",
            ));
        }
        Ok(())
    }

    /// Returns the places of the parts of a file of rows.
    pub(super) fn layout(&self, file: &FileInfo) -> Option<Layout> {
        match file.content {
            Content::Rows { table, rows } => {
                let table = self.description.tables.get(table)?;
                Layout::of_rows(&table.name, rows, table.width, table.state)
            }
            Content::Removed { table, rows } => {
                Layout::of_removed(&self.description.tables.get(table)?.name, rows)
            }
            Content::State => None,
        }
    }
}

impl Description {
    pub(super) fn check(&self) -> Result<(), Fault> {
        if self.shard >= self.shards {
            return Err(field("shard", self.shard, "below the number of shards"));
        }
        if self.covers.0 >= 1 << 62 {
            return Err(field("covers", self.covers, "a number that leaves room for later ones"));
        }
        let mut names = BTreeSet::new();
        for (index, table) in self.tables.iter().enumerate() {
            let of = |name: &str| format!("tables[{index}].{name}");
            if table.name.is_empty() || !names.insert(&table.name) {
                return Err(field(
                    &of("name"),
                    format!("{:?}", table.name),
                    "a name that no other table has",
                ));
            }
            if table.width == 0 {
                return Err(field(&of("width"), 0, "at least 1"));
            }
            if table.keys.is_empty() {
                return Err(field(&of("keys"), format!("{:?}", table.keys), "a range that is not empty"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
