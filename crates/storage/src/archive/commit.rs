//! The object that makes a checkpoint of a job count.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use libra_objects::{Created, Object};
use serde::{Deserialize, Serialize};
use tracing::debug;

use super::{Archive, ArchiveError, Named, committed, named};
use crate::checkpoint::sealed::{ParseError, field, hex, seal, unseal};
use crate::checkpoint::{
    CheckpointError, Checkpoints, Description, Fault, FileInfo, MANIFEST, TableInfo, directory_name,
};

/// A checkpoint of a job: all files of all shards, those of the checkpoints that it builds on among them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Commit {
    /// Version of the format.
    pub version: u64,
    /// Its number.
    pub number: u64,
    /// The job.
    pub job: u64,
    /// The seed that first values of rows follow from.
    pub seed: u64,
    /// Number of shards among which the rows are divided.
    pub shards: u32,
    /// The tables of the job.
    pub tables: Vec<TableInfo>,
    /// Numbers of the checkpoints that its files are of: those it builds on, and itself.
    pub chain: BTreeSet<u64>,
    /// The files.
    pub files: Vec<CommittedFile>,
}

/// A file that counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommittedFile {
    /// Its path from the URL.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// CRC32C of all its bytes.
    #[serde(with = "hex")]
    pub checksum: u32,
}

impl Commit {
    /// Version of the format.
    pub const VERSION: u64 = 1;

    pub(super) fn name(number: u64) -> String {
        format!("job-{number}.json")
    }

    /// Reads the bytes of the commit with this number, which messages call `file`.
    ///
    /// # Errors
    /// They are not as they were written.
    pub fn read(bytes: &[u8], number: u64, file: String) -> Result<Self, CheckpointError> {
        Self::parse(bytes, number).map_err(|error| match error {
            ParseError::Fault(fault) => CheckpointError::Damaged { file, fault },
            ParseError::Version(found) => CheckpointError::Version { file, found, known: Self::VERSION },
        })
    }

    /// Returns the bytes that are read as this commit.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        seal(self).0
    }

    fn parse(bytes: &[u8], number: u64) -> Result<Self, ParseError> {
        let (commit, _) = unseal::<Self>(bytes, "a commit", Self::VERSION)?;
        if commit.number != number {
            return Err(field("number", commit.number, "the number in the name").into());
        }
        if commit.shards == 0 || commit.shards > u32::from(u16::MAX) {
            return Err(field("shards", commit.shards, "from 1 to 65535").into());
        }
        let is_own = |file: &CommittedFile| match named(&file.name) {
            Some(Named::File { checkpoint }) => commit.chain.contains(&checkpoint),
            _ => false,
        };
        match commit.files.iter().find(|file| !is_own(file)) {
            Some(file) => Err(field("files", &file.name, "files of checkpoints in the chain").into()),
            None => Ok(commit),
        }
    }

    /// Bytes of all its files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}

/// Result of [`Archive::look_above`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// The newest checkpoint that all shards have uploaded.
    pub uploaded: Option<u64>,
    /// Bytes of all objects: they change while something is uploaded.
    pub bytes: u64,
}

/// The parts of a checkpoint that the shards of a job have uploaded.
struct Parts {
    description: Description,
    chain: BTreeSet<u64>,
    files: Vec<CommittedFile>,
}

impl Archive {
    /// Makes a checkpoint count that all shards have uploaded.
    ///
    /// # Errors
    /// Something of it is not there, another job has taken the URL over, or the store refused.
    pub fn commit(&self, number: u64, owner: u64) -> Result<Commit, ArchiveError> {
        self.check_owner(owner)?;
        let objects = self.list("")?;
        let commit = self.assemble(&objects, number)?;
        let (bytes, name) = (Bytes::from(commit.to_bytes()), Commit::name(number));
        let create = || self.objects.create(&self.at(&name), bytes.clone()).map_err(self.fail(&name));
        // A store without conditional put would replace it.
        let is_new = !objects.contains_key(&name) && create()? != Created::Taken;
        if !is_new && self.objects.read(&self.at(&name)).map_err(self.fail(&name))? != bytes {
            return Err(ArchiveError::NumberTaken { url: self.url.clone(), number });
        }
        debug!(number, url = self.url, files = commit.files.len(), "a checkpoint is committed");
        Ok(commit)
    }

    /// Looks for a checkpoint above this number, and above all that count, that all shards have uploaded.
    ///
    /// # Errors
    /// The store refused.
    pub fn look_above(&self, above: u64) -> Result<Look, ArchiveError> {
        let objects = self.list("")?;
        let bytes = objects.values().map(|object| object.bytes).sum();
        let above = objects.keys().filter_map(|name| committed(name)).max().unwrap_or(0).max(above);
        let manifests: BTreeSet<u64> = objects
            .keys()
            .filter(|name| name.ends_with(&format!("/{MANIFEST}")))
            .filter_map(|name| match named(name) {
                Some(Named::File { checkpoint }) if checkpoint > above => Some(checkpoint),
                _ => None,
            })
            .collect();
        for number in manifests.into_iter().rev() {
            match self.assemble(&objects, number) {
                Ok(_) => return Ok(Look { uploaded: Some(number), bytes }),
                Err(ArchiveError::Incomplete { .. } | ArchiveError::Checkpoint(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Look { uploaded: None, bytes })
    }

    /// Looks that all files of a checkpoint are there, by the manifests of all shards.
    fn assemble(&self, objects: &BTreeMap<String, Object>, number: u64) -> Result<Commit, ArchiveError> {
        let mut parts = self.part(objects, number, 0)?;
        let shards = u16::try_from(parts.description.shards).unwrap_or(u16::MAX);
        for shard in 1..shards {
            let other = self.part(objects, number, shard)?;
            if let Some(field) = differs(&parts.description, &other.description) {
                let lacks = format!("{field} of shard {shard} is not that of shard 0");
                return Err(ArchiveError::Incomplete { number, url: self.url.clone(), lacks });
            }
            parts.chain.extend(other.chain);
            parts.files.extend(other.files);
        }
        let Parts { description, chain, files } = parts;
        let Description { job, seed, shards, tables, .. } = description;
        Ok(Commit { version: Commit::VERSION, number, job, seed, shards, tables, chain, files })
    }

    /// The files of a shard.
    fn part(
        &self,
        objects: &BTreeMap<String, Object>,
        number: u64,
        shard: u16,
    ) -> Result<Parts, ArchiveError> {
        let lacks = |lacks: String| ArchiveError::Incomplete { number, url: self.url.clone(), lacks };
        let at = |number, file: &str| format!("shard-{shard}/{}/{file}", directory_name(number));
        if !objects.contains_key(&at(number, MANIFEST)) {
            return Err(lacks(format!("shard {shard} has not uploaded its part")));
        }
        let checkpoints = Checkpoints::new(self.raw_disk(objects, shard));
        let manifests = checkpoints.manifests(number)?;
        let description = manifests.last().expect("the chain has itself").description.clone();
        if description.shard != u32::from(shard) {
            return Err(lacks(format!("{} is of shard {}", at(number, MANIFEST), description.shard)));
        }
        let (mut chain, mut files) = (BTreeSet::new(), Vec::new());
        for manifest in &manifests {
            let number = manifest.description.number;
            chain.insert(number);
            let bytes = checkpoints.manifest_bytes(number)?;
            let own = CommittedFile {
                name: at(number, MANIFEST),
                bytes: bytes.len() as u64,
                checksum: crc32c::crc32c(&bytes),
            };
            let others = manifest.files.iter().map(|FileInfo { name, bytes, checksum, .. }| CommittedFile {
                name: at(number, name),
                bytes: *bytes,
                checksum: *checksum,
            });
            files.extend(others.chain([own]));
        }
        for file in &files {
            match objects.get(&file.name).map(|object| object.bytes) {
                Some(found) if found == file.bytes => {}
                Some(found) => {
                    let fault = Fault::Length { expected: file.bytes, found };
                    return Err(lacks(format!("{}: {fault}", file.name)));
                }
                None => return Err(lacks(format!("{} is missing", file.name))),
            }
        }
        Ok(Parts { description, chain, files })
    }
}

/// Returns the field that must be the same in all shards, and is not.
fn differs(first: &Description, other: &Description) -> Option<&'static str> {
    if first.job != other.job {
        Some("the job")
    } else if first.seed != other.seed {
        Some("the seed")
    } else if first.shards != other.shards {
        Some("the number of shards")
    } else {
        (first.tables != other.tables).then_some("a table")
    }
}
