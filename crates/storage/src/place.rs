//! Directories of shards in a data directory: one each, `shard-<number>`.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::disk::{DiskError, RealDisk, holder};
use thiserror::Error;

use crate::reading::Reading;
use crate::restore::{Recovered, RestoreFailure, restore};
use crate::row_file::RowFiles;

/// File in the directory of a shard.
const ADDRESS: &str = "address";

/// Returns the directory of a shard.
pub fn shard_directory(data: &Path, shard: u16) -> PathBuf {
    data.join(format!("shard-{shard}"))
}

/// The shard that a directory of this name is for, if it is for one.
pub fn shard_in(name: &str) -> Option<u16> {
    let digits = name.strip_prefix("shard-")?;
    // Not shard-007: each has one name.
    digits.parse().ok().filter(|number: &u16| number.to_string() == digits)
}

/// A shard that no process has.
#[derive(Debug)]
pub struct Found {
    /// The shard.
    pub recovered: Recovered<RealDisk>,
    /// Its disk, which no other process can write to now.
    pub disk: RealDisk,
}

/// The reason for which nothing can be started in a data directory.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PlaceError {
    /// The directory cannot be read.
    #[error("cannot read the data directory {directory}")]
    Directory {
        /// The directory.
        directory: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// Other processes have all shards.
    #[error("the data directory {} is in use by {}: wait until that has ended, or choose another --state-dir", directory.display(), holders.join(", "))]
    Busy {
        /// The directory.
        directory: PathBuf,
        /// The processes, and where they can be reached.
        holders: Vec<String>,
    },
    /// Others could put another shard into the directory.
    #[error("others may write to the data directory {} (mode {mode:o}): `chmod go-w {}` takes that from them", directory.display(), directory.display())]
    Writable {
        /// The directory.
        directory: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// There can be no files for the rows that have no place in memory.
    #[error("{0}")]
    Rows(DiskError),
    /// There is a shard that cannot go on.
    #[error("{directory}: {cause}")]
    Shard {
        /// The directory.
        directory: PathBuf,
        /// The reason.
        cause: RestoreFailure,
    },
}

impl PlaceError {
    /// Returns true if another process has shards of the directory, and may end.
    pub fn is_busy(&self) -> bool {
        match self {
            Self::Busy { .. } => true,
            Self::Shard { cause: RestoreFailure::Disk(error), .. } => error.is_busy(),
            _ => false,
        }
    }
}

/// Looks for the shards of a process that has ended: the one with the lowest number, and those that listened at its address. None if
/// there are none. With files for rows, the memory limit of the process is divided among them. They are read
/// one after the other; `begins` is called before each.
///
/// # Errors
/// One is there, and cannot go on; or its job was done. Or other processes have all that are there.
pub fn find(
    data: &Path,
    row_files: Option<&RowFiles>,
    mut begins: impl FnMut(Reading),
) -> Result<Vec<Found>, PlaceError> {
    let mut found: Vec<Found> = Vec::new();
    let (mut running, mut address) = (BTreeSet::new(), None);
    let mut holders = Vec::new();
    let directories = shard_directories(data)?;
    let addresses: Vec<Option<String>> =
        directories.iter().map(|directory| noted_address(directory)).collect();
    for (directory, noted) in directories.iter().zip(&addresses) {
        // A process takes its shards one after the other: with the first of them, all are its own.
        let has_process = noted.as_ref().is_some_and(|noted| running.contains(noted));
        if has_process || !found.is_empty() && (noted.is_none() || *noted != address) {
            continue;
        }
        let at = |cause| PlaceError::Shard { directory: directory.clone(), cause };
        let disk = match RealDisk::open(directory) {
            Ok(disk) => disk,
            Err(error) if found.is_empty() && error.is_busy() => {
                running.extend(noted.clone());
                holders.push(named(holder(directory), noted.as_deref()));
                continue;
            }
            Err(error) => return Err(at(error.into())),
        };
        let shards = || {
            let of_process = addresses.iter().filter(|other| noted.is_some() && *other == noted);
            u16::try_from(of_process.count()).unwrap_or(u16::MAX).max(1)
        };
        let memory_limit = row_files.map(|files| files.limit_of_shard(shards())).transpose();
        let memory_limit = memory_limit.map_err(|error| at(error.into()))?;
        Reading::of(&disk).map_err(|error| at(error.into()))?.into_iter().for_each(&mut begins);
        if let Some(recovered) = restore(disk.clone(), memory_limit).map_err(at)? {
            address.clone_from(noted);
            found.push(Found { recovered, disk });
        }
    }
    if found.is_empty() && !holders.is_empty() {
        return Err(PlaceError::Busy { directory: data.to_owned(), holders });
    }
    Ok(found)
}

/// Returns the directories of shards, by rising number.
fn shard_directories(data: &Path) -> Result<Vec<PathBuf>, PlaceError> {
    let fail = |source| PlaceError::Directory { directory: data.to_owned(), source };
    let entries = match std::fs::read_dir(data) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(fail(error)),
    };
    let mode = std::fs::metadata(data).map_err(fail)?.permissions().mode() & 0o7777;
    // In a directory with the sticky bit others cannot remove our files; see rule S5.
    if mode & 0o022 != 0 && mode & 0o1000 == 0 {
        return Err(PlaceError::Writable { directory: data.to_owned(), mode });
    }
    let mut shards = Vec::new();
    for entry in entries {
        let entry = entry.map_err(fail)?;
        let name = entry.file_name();
        let number = name.to_str().and_then(shard_in);
        shards.extend(number.map(|number| (number, entry.path())));
    }
    shards.sort_unstable();
    Ok(shards.into_iter().map(|(_, directory)| directory).collect())
}

/// Notes the address at which the process of a new shard listens, in the directory of the shard. The shards of a process have it in
/// common, and it is read without the lock that a process has on its shards.
///
/// # Errors
/// Those of the disk.
pub fn note_address(directory: &Path, address: SocketAddr) -> io::Result<()> {
    let (path, new) = (directory.join(ADDRESS), directory.join(format!("{ADDRESS}.new")));
    let mut file = File::create(&new)?;
    file.write_all(address.to_string().as_bytes())?;
    file.sync_all()?;
    std::fs::rename(new, path)?;
    File::open(directory)?.sync_all()
}

fn noted_address(directory: &Path) -> Option<String> {
    std::fs::read_to_string(directory.join(ADDRESS)).ok()
}

/// Names the process that has a shard.
fn named(holder: Option<String>, address: Option<&str>) -> String {
    let holder = holder.unwrap_or_else(|| "another process".to_owned());
    match address {
        Some(address) => format!("{holder} (the server at {address})"),
        None => holder,
    }
}

#[cfg(test)]
mod tests;
