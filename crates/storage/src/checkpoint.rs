//! Checkpoints: rows of a shard and the state of their owner, as of one moment, in a directory of files.

use std::collections::BTreeSet;

use crate::disk::{Disk, DiskError, read_exact};
use crate::wal::RecordNumber;

mod error;
mod export;
mod find;
mod manifest;
mod reader;
mod safetensors;
pub(crate) mod sealed;
mod writer;

pub use error::{CheckpointError, Fault, WriteError};
pub use export::{ExportError, Exported, export, export_split};
pub use find::Row;
pub use manifest::{Base, Content, Description, FileInfo, Manifest, TableInfo};
pub use reader::{Block, Blocks, Checkpoint};
pub use writer::{PartSettings, Writer};

pub(crate) use manifest::NAME as MANIFEST;
use sealed::ParseError;

/// After the name of a directory: it is being written, or was when something happened.
const UNFINISHED: &str = ".partial";
/// After the name of a directory: it is being removed.
const REMOVED: &str = ".removed";

/// The checkpoints in a directory.
///
/// Checkpoint 7 is the directory `checkpoint-7`. It is written as `checkpoint-7.partial` and renamed when all of it is
/// durable, and renamed once more before it is removed: under its name it is there as a whole, or damaged.
#[derive(Debug, Clone)]
pub struct Checkpoints<D> {
    disk: D,
}

/// A checkpoint in a [`Checkpoints::list`].
#[derive(Debug)]
pub struct Listed {
    /// Its number.
    pub number: u64,
    /// Its directory.
    pub directory: String,
    /// Its manifest; its other files were not looked at.
    pub manifest: Result<Manifest, CheckpointError>,
}

/// A checkpoint that was passed over.
#[derive(Debug)]
pub struct Skipped {
    /// Its number.
    pub number: u64,
    /// Its directory.
    pub directory: String,
    /// The reason for which it cannot be used.
    pub why: CheckpointError,
}

/// Result of [`Checkpoints::newest_valid`].
#[derive(Debug)]
pub struct Newest<D> {
    /// The newest checkpoint that is sound with all that it builds on.
    pub checkpoint: Option<Checkpoint<D>>,
    /// The newer ones, newest first: the owner should report them.
    pub skipped: Vec<Skipped>,
}

/// Result of [`Checkpoints::newest_outline`].
#[derive(Debug)]
pub struct Outline {
    /// The manifests of the full checkpoint and of its increments up to this one.
    pub manifests: Vec<Manifest>,
    /// The state that its owner gave.
    pub state: Vec<u8>,
}

/// Result of [`Checkpoints::verify`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verified {
    /// Checkpoints: itself, and all that it builds on.
    pub checkpoints: usize,
    /// Rows in all of them.
    pub rows: u64,
    /// Bytes of all of them, without the manifests.
    pub bytes: u64,
}

/// Result of [`Checkpoints::prune`].
#[derive(Debug)]
pub struct Pruned {
    /// Those that are kept, newest first; with all that they build on.
    pub kept: Vec<u64>,
    /// Those that are gone, newest first.
    pub removed: Vec<u64>,
    /// Those that are there and cannot be used, newest first.
    pub damaged: Vec<Skipped>,
    /// The first record of the log that one of those kept still needs; `None` if none is kept. Older ones may go.
    pub log_from: Option<RecordNumber>,
}

impl<D: Disk + Clone> Checkpoints<D> {
    /// The checkpoints in the directory of a disk.
    #[must_use]
    pub fn new(disk: D) -> Self {
        Self { disk }
    }

    /// The disk.
    #[must_use]
    pub fn disk(&self) -> &D {
        &self.disk
    }

    /// Begins to write a checkpoint: a full one, or one with the rows that changed since `base`.
    ///
    /// # Errors
    /// There is a newer one, the base cannot be used, or the disk refused.
    pub fn begin(
        &self,
        description: Description,
        base: Option<u64>,
        settings: PartSettings,
    ) -> Result<Writer<D>, WriteError> {
        Writer::begin(self, description, base, settings)
    }

    /// Opens a checkpoint with all that it builds on. Every byte of them was compared with its checksum then.
    ///
    /// # Errors
    /// See [`CheckpointError`].
    pub fn open(&self, number: u64) -> Result<Checkpoint<D>, CheckpointError> {
        Checkpoint::open(self, number)
    }

    /// Opens a checkpoint whose rows are compared with checksums while they are read: each file at its end.
    ///
    /// # Errors
    /// See [`CheckpointError`].
    pub fn open_rows(&self, number: u64) -> Result<Checkpoint<D>, CheckpointError> {
        Checkpoint::of_rows(self.disk.clone(), self.chain(number)?)
    }

    /// Reads of the newest checkpoint that can be read all but its rows; `None` if there is none.
    ///
    /// # Errors
    /// The disk refused.
    pub fn newest_outline(&self) -> Result<Option<Outline>, DiskError> {
        let outline = |number: u64| -> Result<_, CheckpointError> {
            let manifests = self.chain(number)?;
            let state = reader::read_state(&self.disk, manifests.last().expect("the chain has itself"))?;
            Ok(Outline { manifests, state })
        };
        Ok(self.numbers()?.into_iter().find_map(|number| outline(number).ok()))
    }

    /// Opens the newest checkpoint that is sound, and returns which ones are not.
    ///
    /// # Errors
    /// The disk refused.
    pub fn newest_valid(&self) -> Result<Newest<D>, DiskError> {
        let mut skipped = Vec::new();
        for (number, directory) in self.directories()? {
            match self.usable(number, &directory).and_then(|()| self.open(number)) {
                Ok(checkpoint) => return Ok(Newest { checkpoint: Some(checkpoint), skipped }),
                Err(why) => skipped.push(Skipped { number, directory, why }),
            }
        }
        Ok(Newest { checkpoint: None, skipped })
    }

    /// All checkpoints, newest first, with those that were not finished. Reads the manifests.
    ///
    /// # Errors
    /// The disk refused.
    pub fn list(&self) -> Result<Vec<Listed>, DiskError> {
        let listed = |(number, directory): (u64, String)| {
            let manifest = self.usable(number, &directory).and_then(|()| self.inspect(number));
            Listed { number, directory, manifest }
        };
        Ok(self.directories()?.into_iter().map(listed).collect())
    }

    /// Reads the manifest of a checkpoint; its other files are not looked at.
    ///
    /// # Errors
    /// See [`CheckpointError`].
    pub fn inspect(&self, number: u64) -> Result<Manifest, CheckpointError> {
        Ok(self.manifest(number)?.0)
    }

    /// Reads the manifests of a checkpoint and of all that it builds on, the full one first; their other files are
    /// not looked at.
    ///
    /// # Errors
    /// See [`CheckpointError`].
    pub fn manifests(&self, number: u64) -> Result<Vec<Manifest>, CheckpointError> {
        self.chain(number)
    }

    /// Reads every file of one checkpoint, but not those it builds on, and reports of each if it is as it was
    /// written. Unlike [`verify`](Self::verify) it goes on behind a damaged one.
    ///
    /// # Errors
    /// There is no manifest that can be read.
    pub fn verify_files(
        &self,
        number: u64,
        mut verified: impl FnMut(&FileInfo, Result<(), CheckpointError>),
    ) -> Result<(), CheckpointError> {
        let manifest = self.inspect(number)?;
        for file in &manifest.files {
            verified(file, reader::verify(&self.disk, &manifest, file));
        }
        Ok(())
    }

    /// Finds the row of a key of the table at this position, as it is in a checkpoint or in those it builds on; `None` if
    /// they have none. Compares with its checksum every file that it reads, and reads no more of them than it must.
    ///
    /// # Errors
    /// See [`CheckpointError`].
    pub fn find(&self, number: u64, table: usize, key: u64) -> Result<Option<Row>, CheckpointError> {
        find::find(&self.disk, &self.chain(number)?, table, key)
    }

    /// Reads a checkpoint and all that it builds on, and compares every byte with its checksum.
    ///
    /// # Errors
    /// See [`CheckpointError`].
    pub fn verify(&self, number: u64) -> Result<Verified, CheckpointError> {
        let manifests = self.chain(number)?;
        for manifest in &manifests {
            for file in &manifest.files {
                reader::verify(&self.disk, manifest, file)?;
            }
        }
        Ok(Verified {
            checkpoints: manifests.len(),
            rows: manifests.iter().map(Manifest::rows).sum(),
            bytes: manifests.iter().map(Manifest::bytes).sum(),
        })
    }

    /// Removes all but the newest `keep` sound checkpoints and those they build on; and of those that are not sound,
    /// the ones that are older than all kept. At least one sound checkpoint is kept. Without any, nothing is removed.
    ///
    /// Verifies the checkpoints that it keeps, which reads all of them.
    ///
    /// # Errors
    /// The disk refused. Another call goes on.
    pub fn prune(&self, keep: usize) -> Result<Pruned, DiskError> {
        self.remove_all_but(keep, &[], |number| self.verify(number).map(drop))
    }

    /// As [`prune`](Self::prune), but keeps others besides, and trusts the manifests without reading the files: for the owner, who has
    /// written them a moment ago.
    ///
    /// # Errors
    /// The disk refused. Another call goes on.
    pub fn retain(&self, keep: usize, besides: &[u64]) -> Result<Pruned, DiskError> {
        self.remove_all_but(keep, besides, |_| Ok(()))
    }

    fn remove_all_but(
        &self,
        keep: usize,
        besides: &[u64],
        check: impl Fn(u64) -> Result<(), CheckpointError>,
    ) -> Result<Pruned, DiskError> {
        let (mut kept, mut needed) = (Vec::new(), BTreeSet::new());
        let mut pruned =
            Pruned { kept: Vec::new(), removed: Vec::new(), damaged: Vec::new(), log_from: None };
        let mut superfluous = Vec::new();
        for (number, directory) in self.finished()? {
            if kept.len() >= keep.max(1) && !besides.contains(&number) {
                superfluous.push((number, directory));
                continue;
            }
            match check(number).and_then(|()| self.chain(number)) {
                Ok(chain) => {
                    let from = chain.last().expect("the chain has itself").description.covers.next();
                    pruned.log_from = Some(pruned.log_from.map_or(from, |before| before.min(from)));
                    needed.extend(chain.iter().map(|manifest| manifest.description.number));
                    kept.push(number);
                }
                Err(why) => pruned.damaged.push(Skipped { number, directory, why }),
            }
        }
        // An increment goes before the one it builds on, so that none is ever left without.
        for (number, directory) in superfluous {
            if needed.contains(&number) {
                continue;
            }
            self.remove_named(&directory)?;
            pruned.removed.push(number);
        }
        pruned.kept = needed.into_iter().rev().collect();
        Ok(pruned)
    }

    /// Removes a checkpoint, sound or not, if it is there. Increments on it can be used no more: the caller removes
    /// that before, or has none.
    ///
    /// # Errors
    /// The disk refused. Another call goes on, or [`discard_unfinished`](Self::discard_unfinished).
    pub fn remove(&self, number: u64) -> Result<(), DiskError> {
        if self.numbers()?.contains(&number) { self.remove_named(&directory_name(number)) } else { Ok(()) }
    }

    fn remove_named(&self, directory: &str) -> Result<(), DiskError> {
        let removed = format!("{directory}{REMOVED}");
        remove_directory(&self.disk, &removed)?;
        self.disk.rename(directory, &removed)?;
        self.disk.sync_directory("")?;
        remove_directory(&self.disk, &removed)
    }

    /// Removes the remains of checkpoints whose writing or removal was interrupted. Not while one
    /// is being written.
    ///
    /// # Errors
    /// The disk refused.
    pub fn discard_unfinished(&self) -> Result<Vec<String>, DiskError> {
        let mut discarded = Vec::new();
        for (_, directory) in self.directories()? {
            if directory.ends_with(UNFINISHED) || directory.ends_with(REMOVED) {
                remove_directory(&self.disk, &directory)?;
                discarded.push(directory);
            }
        }
        Ok(discarded)
    }

    /// Everything that is named like a checkpoint, newest first, finished ones before others of the same number.
    fn directories(&self) -> Result<Vec<(u64, String)>, DiskError> {
        let mut directories: Vec<_> = self
            .disk
            .list("")?
            .into_iter()
            .filter(|entry| entry.is_directory)
            .filter_map(|entry| Some((number_of(&entry.name)?, entry.name)))
            .collect();
        directories.sort_by(|(number, name), (other, another)| other.cmp(number).then(name.cmp(another)));
        Ok(directories)
    }

    fn finished(&self) -> Result<Vec<(u64, String)>, DiskError> {
        let mut directories = self.directories()?;
        directories.retain(|(number, directory)| *directory == directory_name(*number));
        Ok(directories)
    }

    /// The numbers of all finished checkpoints, newest first.
    fn numbers(&self) -> Result<Vec<u64>, DiskError> {
        Ok(self.finished()?.into_iter().map(|(number, _)| number).collect())
    }

    fn usable(&self, number: u64, directory: &str) -> Result<(), CheckpointError> {
        if directory == directory_name(number) {
            Ok(())
        } else {
            Err(CheckpointError::Unfinished { directory: directory.to_owned() })
        }
    }

    /// The bytes of the manifest of a checkpoint.
    pub(crate) fn manifest_bytes(&self, number: u64) -> Result<Vec<u8>, CheckpointError> {
        let directory = directory_name(number);
        let file = format!("{directory}/{}", manifest::NAME);
        let damaged = |fault| CheckpointError::Damaged { file: file.clone(), fault };
        let length = match self.disk.bytes(&file) {
            Ok(length) => length,
            Err(error) if error.is_missing() => {
                let is_there = self.disk.list("")?.iter().any(|entry| entry.name == directory);
                return Err(if is_there {
                    damaged(Fault::Missing)
                } else {
                    CheckpointError::Missing { number }
                });
            }
            Err(error) => return Err(error.into()),
        };
        if length > manifest::BYTES_MAX {
            return Err(damaged(Fault::Length { expected: manifest::BYTES_MAX, found: length }));
        }
        let mut bytes = vec![0; usize::try_from(length).expect("below BYTES_MAX")];
        read_exact(&self.disk, &file, 0, &mut bytes)?;
        Ok(bytes)
    }

    /// The manifest of a checkpoint, and its checksum.
    pub(crate) fn manifest(&self, number: u64) -> Result<(Manifest, u32), CheckpointError> {
        let bytes = self.manifest_bytes(number)?;
        let file = format!("{}/{}", directory_name(number), manifest::NAME);
        let damaged = |fault| CheckpointError::Damaged { file: file.clone(), fault };
        let (manifest, checksum) = Manifest::parse(&bytes).map_err(|error| match error {
            ParseError::Fault(fault) => damaged(fault),
            ParseError::Version(found) => {
                CheckpointError::Version { file: file.clone(), found, known: manifest::VERSION }
            }
        })?;
        if manifest.description.number != number {
            let found = manifest.description.number.to_string();
            let wanted = "the number of the directory";
            return Err(damaged(Fault::Field { field: "number".to_owned(), found, wanted }));
        }
        Ok((manifest, checksum))
    }

    /// The manifests of a checkpoint and of all that it builds on, the full one first.
    fn chain(&self, number: u64) -> Result<Vec<Manifest>, CheckpointError> {
        let mut chain = vec![self.manifest(number)?.0];
        while let Some(base) = chain.last().expect("it was put in").base {
            let increment = &chain.last().expect("it was put in").description;
            let (manifest, checksum) = self.manifest(base.number).map_err(|cause| CheckpointError::Base {
                number: increment.number,
                base: base.number,
                cause: Box::new(cause),
            })?;
            let differs = writer::differs(increment, &manifest.description);
            if let Some(field) = (checksum != base.checksum).then_some("checksum").or(differs) {
                let (number, base) = (increment.number, base.number);
                return Err(CheckpointError::OtherBase { number, base, field });
            }
            chain.push(manifest);
        }
        chain.reverse();
        Ok(chain)
    }
}

pub(crate) fn directory_name(number: u64) -> String {
    format!("checkpoint-{number}")
}

/// The number in the name of a directory, finished or not.
fn number_of(name: &str) -> Option<u64> {
    let rest = name.strip_prefix("checkpoint-")?;
    let digits = rest.strip_suffix(UNFINISHED).or_else(|| rest.strip_suffix(REMOVED)).unwrap_or(rest);
    digits.parse().ok().filter(|number: &u64| number.to_string() == digits)
}

/// Removes a directory with its files, if it is there.
fn remove_directory(disk: &impl Disk, directory: &str) -> Result<(), DiskError> {
    let entries = match disk.list(directory) {
        Err(error) if error.is_missing() => return Ok(()),
        other => other?,
    };
    for entry in entries {
        disk.remove(&format!("{directory}/{}", entry.name))?;
    }
    disk.remove(directory)
}

#[cfg(test)]
mod tests;
