//! The interface between log, checkpoints and a disk.

use std::fmt;
use std::io;
use std::sync::Arc;

use thiserror::Error;

mod lock;
mod real;
mod simulated;

pub(crate) use lock::holder;
pub use real::RealDisk;
pub(crate) use real::{DIRECTORY_MODE, FILE_MODE, is_refused};
pub use simulated::SimulatedDisk;

/// A directory on a disk: files that only grow, and one level of directories below it.
///
/// Names are relative to the directory, with `/` between a directory and a file in it; `""` is the directory
/// itself. A change is *durable*, that is, there after a crash, only once it was synced: bytes of a file by
/// [`sync`](Self::sync), names (made, renamed or removed) by [`sync_directory`](Self::sync_directory) of the
/// directory that they are in. Without, a crash may undo any part of it.
///
/// A handle is cheap to share; all methods take `&self`, so that a log and the writer of a checkpoint can be at
/// work on one disk.
pub trait Disk: Send + Sync {
    /// Makes an empty file.
    ///
    /// # Errors
    /// The name is taken, or the disk refused.
    fn create(&self, name: &str) -> Result<(), DiskError>;

    /// The same, for a file that will be large and is not read soon: appended bytes may be nowhere but in memory until it is
    /// synced, and is to be read only then.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    fn create_stream(&self, name: &str) -> Result<(), DiskError> {
        self.create(name)
    }

    /// Makes an empty directory.
    ///
    /// # Errors
    /// The name is taken, or the disk refused.
    fn create_directory(&self, name: &str) -> Result<(), DiskError>;

    /// Adds bytes to the end of a file. On failure any first part of them may be there.
    ///
    /// # Errors
    /// There is no such file, or the disk refused or is full.
    fn append(&self, name: &str, bytes: &[u8]) -> Result<(), DiskError>;

    /// Cuts a file to its first `bytes` bytes.
    ///
    /// # Errors
    /// There is no such file, or the disk refused.
    fn truncate(&self, name: &str, bytes: u64) -> Result<(), DiskError>;

    /// Makes all bytes of a file durable.
    ///
    /// A failure is reported once: data that the system could not write may be lost then, and a later success proves
    /// nothing about it.
    ///
    /// # Errors
    /// There is no such file, or the disk refused.
    fn sync(&self, name: &str) -> Result<(), DiskError>;

    /// Ends writing to a file for now, so that nothing need be kept open for it.
    fn close(&self, name: &str);

    /// Returns the length of a file.
    ///
    /// # Errors
    /// There is no such file, or the disk refused.
    fn bytes(&self, name: &str) -> Result<u64, DiskError>;

    /// Reads from `offset` on until the buffer is full or the file ends, and returns the number of bytes read.
    ///
    /// # Errors
    /// There is no such file, or the disk refused.
    fn read(&self, name: &str, offset: u64, buffer: &mut [u8]) -> Result<usize, DiskError>;

    /// Gives a file or directory another name in the same directory; a file that has that name is replaced.
    ///
    /// # Errors
    /// There is no such file or directory, or the disk refused.
    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError>;

    /// Removes a file, or a directory that is empty.
    ///
    /// # Errors
    /// There is none, it is not empty, or the disk refused.
    fn remove(&self, name: &str) -> Result<(), DiskError>;

    /// Lists a directory, by name.
    ///
    /// # Errors
    /// There is no such directory, or the disk refused.
    fn list(&self, directory: &str) -> Result<Vec<Entry>, DiskError>;

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// There is no such directory, or the disk refused.
    fn sync_directory(&self, directory: &str) -> Result<(), DiskError>;
}

/// A file or directory in a [`Disk::list`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// Its name, without that of the directory it is in.
    pub name: String,
    /// True if it is a directory.
    pub is_directory: bool,
}

/// Operations of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// To open the directory that everything is in.
    Open,
    /// To be the only process that writes there.
    Lock,
    /// [`Disk::create`].
    Create,
    /// [`Disk::create_directory`].
    CreateDirectory,
    /// [`Disk::append`].
    Append,
    /// [`Disk::truncate`].
    Truncate,
    /// [`Disk::sync`].
    Sync,
    /// [`Disk::bytes`].
    Measure,
    /// [`Disk::read`].
    Read,
    /// [`Disk::rename`].
    Rename,
    /// [`Disk::remove`].
    Remove,
    /// [`Disk::list`].
    List,
    /// [`Disk::sync_directory`].
    SyncDirectory,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "open",
            Self::Lock => "lock",
            Self::Create => "create",
            Self::CreateDirectory => "create directory",
            Self::Append => "write to",
            Self::Truncate => "cut",
            Self::Sync => "sync",
            Self::Measure => "measure",
            Self::Read => "read",
            Self::Rename => "rename",
            Self::Remove => "remove",
            Self::List => "list",
            Self::SyncDirectory => "sync directory",
        })
    }
}

/// A disk did not do what it was asked. Its text has the cause, as that of each error of this crate, so it names no source.
#[derive(Debug, Error)]
#[error("cannot {operation} {path}: {cause}")]
pub struct DiskError {
    /// The attempted operation.
    pub operation: Operation,
    /// On which file or directory.
    pub path: String,
    /// Error of the system.
    pub cause: io::Error,
}

impl DiskError {
    /// Returns true if there was no room: it may work again once there is.
    #[must_use]
    pub fn is_full(&self) -> bool {
        is_full(&self.cause)
    }

    /// Returns true if another process writes to the directory.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.cause.kind() == io::ErrorKind::ResourceBusy
    }

    /// Returns true if there is no such file or directory.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        self.cause.kind() == io::ErrorKind::NotFound
    }
}

/// Returns true if there was no room.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

/// Reads exactly the bytes of `buffer`; a file that ends before is an error.
pub(crate) fn read_exact(
    disk: &impl Disk,
    name: &str,
    offset: u64,
    buffer: &mut [u8],
) -> Result<(), DiskError> {
    let read = disk.read(name, offset, buffer)?;
    if read < buffer.len() {
        let cause = io::Error::new(io::ErrorKind::UnexpectedEof, "it became shorter while it was read");
        return Err(DiskError { operation: Operation::Read, path: name.to_owned(), cause });
    }
    Ok(())
}

/// Removes a file that may not be there.
pub(crate) fn remove_if_there(disk: &impl Disk, name: &str) -> Result<(), DiskError> {
    match disk.remove(name) {
        Err(error) if error.is_missing() => Ok(()),
        other => other,
    }
}

impl<D: Disk + ?Sized> Disk for Arc<D> {
    fn create(&self, name: &str) -> Result<(), DiskError> {
        (**self).create(name)
    }

    fn create_stream(&self, name: &str) -> Result<(), DiskError> {
        (**self).create_stream(name)
    }

    fn create_directory(&self, name: &str) -> Result<(), DiskError> {
        (**self).create_directory(name)
    }

    fn append(&self, name: &str, bytes: &[u8]) -> Result<(), DiskError> {
        (**self).append(name, bytes)
    }

    fn truncate(&self, name: &str, bytes: u64) -> Result<(), DiskError> {
        (**self).truncate(name, bytes)
    }

    fn sync(&self, name: &str) -> Result<(), DiskError> {
        (**self).sync(name)
    }

    fn close(&self, name: &str) {
        (**self).close(name);
    }

    fn bytes(&self, name: &str) -> Result<u64, DiskError> {
        (**self).bytes(name)
    }

    fn read(&self, name: &str, offset: u64, buffer: &mut [u8]) -> Result<usize, DiskError> {
        (**self).read(name, offset, buffer)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        (**self).rename(from, to)
    }

    fn remove(&self, name: &str) -> Result<(), DiskError> {
        (**self).remove(name)
    }

    fn list(&self, directory: &str) -> Result<Vec<Entry>, DiskError> {
        (**self).list(directory)
    }

    fn sync_directory(&self, directory: &str) -> Result<(), DiskError> {
        (**self).sync_directory(directory)
    }
}
