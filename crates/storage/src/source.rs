//! Checkpoints of a job to read: in a data directory, or at a URL.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use libra_objects::{Environment, Place};

use crate::archive::{Archive, ArchiveError, View};
use crate::disk::{Disk, DiskError, RealDisk};
use crate::place::shard_directory;

/// True if a text is a URL, and no path.
pub fn is_url(text: &str) -> bool {
    Place::is_url(text)
}

/// The checkpoints of a job, for reading.
#[derive(Debug)]
pub enum Source {
    /// In a data directory.
    Directory(PathBuf),
    /// At a URL: those that were committed when it was opened.
    Archive(Archive, View),
}

impl Source {
    /// Opens a path or a URL; of a URL only what is of this checkpoint, if there is a number.
    ///
    /// # Errors
    /// It is a URL, and cannot be read.
    pub fn open(data: &Path, number: Option<u64>) -> Result<Self, ArchiveError> {
        let Some(url) = data.to_str().filter(|text| is_url(text)) else {
            return Ok(Self::Directory(data.to_owned()));
        };
        let archive = Archive::open(url, &Environment::of_process())?;
        let view = match number {
            Some(number) => archive.view_of(number)?,
            None => archive.view()?,
        };
        Ok(Self::Archive(archive, view))
    }

    /// The place of a shard, for a person.
    pub fn path(&self, shard: u16) -> PathBuf {
        match self {
            Self::Directory(data) => shard_directory(data, shard),
            Self::Archive(archive, _) => archive.shard_url(shard),
        }
    }

    /// The files of a shard, for reading, even if a server writes there.
    ///
    /// # Errors
    /// There is no such directory.
    pub fn disk(&self, shard: u16) -> Result<Arc<dyn Disk>, DiskError> {
        Ok(match self {
            Self::Directory(_) => Arc::new(RealDisk::read_only(self.path(shard))?),
            Self::Archive(archive, view) => Arc::new(archive.disk(view, shard)),
        })
    }
}
