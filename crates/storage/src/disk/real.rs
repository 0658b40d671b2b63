//! A directory of the machine that runs this.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::lock::lock;
use super::{Disk, DiskError, Entry, Operation};
use stream::Stream;
pub(crate) use stream::is_refused;

mod stream;

/// Files made here have the rows of a job: no other user may read them, whatever the umask (rule S5).
pub(crate) const FILE_MODE: u32 = 0o600;
pub(crate) const DIRECTORY_MODE: u32 = 0o700;
/// Group and others may write.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// A directory of a real file system.
///
/// Files that are written stay open until [`Disk::close`]: a failed write-back is reported to the descriptors that had the file
/// open, so the descriptor that is synced must be the one that was written to.
#[derive(Debug, Clone)]
pub struct RealDisk {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    root: PathBuf,
    /// Files that were written to and not closed, by name.
    open: Mutex<BTreeMap<String, Open>>,
    /// `None` if this handle only reads.
    lock: Option<File>,
    /// Bytes that were read.
    read: Arc<AtomicU64>,
}

/// A file that is written to.
#[derive(Debug, Clone)]
enum Open {
    Cached(Arc<File>),
    Streamed(Arc<Mutex<Stream>>),
}

impl Open {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Cached(file) => (&**file).write_all(bytes),
            Self::Streamed(stream) => unpoisoned(stream).append(bytes),
        }
    }

    fn sync(&self) -> io::Result<()> {
        match self {
            // The length of the file is data in this sense; times are not.
            Self::Cached(file) => file.sync_data(),
            Self::Streamed(stream) => unpoisoned(stream).sync(),
        }
    }
}

fn make_directory(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(DIRECTORY_MODE).create(path)
}

/// Users who may write to a directory may replace the files that a server goes on from.
fn refuse_writable_by_others(path: &Path) -> io::Result<()> {
    let mode = fs::metadata(path)?.permissions().mode();
    if mode & WRITABLE_BY_OTHERS == 0 {
        return Ok(());
    }
    let text = format!(
        "others may write there (mode {:03o}): `chmod go-w {}` takes that from them",
        mode & 0o777,
        path.display()
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a directory and its parents, so that none of them is lost with later contents: the name of each is
/// synced before anything is made in it. One that was there may have been made a moment ago, and its name not be durable.
fn make_durably(root: &Path, sync: &mut impl FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    let parent = match root.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Ok(()),
    };
    match make_directory(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make_durably(parent, sync)?;
            // Another shard of this server may have been faster.
            make_directory(root).or_else(|error| allow_existing(root, error))?;
        }
        // A directory of another user may lie where its parent cannot be opened.
        Ok(()) => sync_parent(parent, sync)?,
        Err(error) => allow_existing(root, error)?,
    }
    sync(parent)
}

/// No error if a directory could not be made because it is there.
fn allow_existing(path: &Path, error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() { Ok(()) } else { Err(error) }
}

/// Syncs the name of a directory that was there, if that can be done.
fn sync_parent(directory: &Path, sync: &mut impl FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty());
    match parent.map_or(Ok(()), sync) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        result => result,
    }
}

impl RealDisk {
    /// Opens a directory for reading and writing, and makes it if there is none. No other process can do so
    /// until all clones of this handle are gone.
    ///
    /// # Errors
    /// The directory cannot be made, or another process has it open.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, DiskError> {
        let root = root.into();
        let fail = |operation| {
            let path = root.display().to_string();
            move |cause| DiskError { operation, path, cause }
        };
        make_durably(&root, &mut |parent| File::open(parent).and_then(|parent| parent.sync_all()))
            .map_err(fail(Operation::Open))?;
        refuse_writable_by_others(&root).map_err(fail(Operation::Open))?;
        let lock = lock(&root).map_err(fail(Operation::Lock))?;
        Ok(Self::with(root, Some(lock)))
    }

    /// Opens a directory for reading, even if another process has it open.
    ///
    /// # Errors
    /// There is no such directory.
    pub fn read_only(root: impl Into<PathBuf>) -> Result<Self, DiskError> {
        let root = root.into();
        match fs::read_dir(&root) {
            Ok(_) => Ok(Self::with(root, None)),
            Err(cause) => {
                Err(DiskError { operation: Operation::Open, path: root.display().to_string(), cause })
            }
        }
    }

    /// Returns the count of the bytes that were read, which goes on.
    pub(crate) fn bytes_read(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.shared.read)
    }

    fn with(root: PathBuf, lock: Option<File>) -> Self {
        let read = Arc::default();
        Self { shared: Arc::new(Shared { root, open: Mutex::default(), lock, read }) }
    }

    /// The directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.shared.root
    }

    fn open_files(&self) -> MutexGuard<'_, BTreeMap<String, Open>> {
        unpoisoned(&self.shared.open)
    }

    /// Does something with the path of a name, and adds the operation and the name to an error.
    fn at<T>(
        &self,
        operation: Operation,
        name: &str,
        act: impl FnOnce(&Path) -> io::Result<T>,
    ) -> Result<T, DiskError> {
        let path = if name.is_empty() { self.root().to_owned() } else { self.root().join(name) };
        // Names come from manifests, too, which any user can write.
        let leaves = !name.is_empty() && name.split('/').any(|part| matches!(part, "" | "." | ".."));
        let result = if leaves {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "the name leaves the directory"))
        } else {
            act(&path)
        };
        result.map_err(|cause| DiskError { operation, path: path.display().to_string(), cause })
    }

    /// As [`at`](Self::at), unless this handle only reads.
    fn write_at<T>(
        &self,
        operation: Operation,
        name: &str,
        act: impl FnOnce(&Path) -> io::Result<T>,
    ) -> Result<T, DiskError> {
        let may = self.shared.lock.is_some();
        self.at(
            operation,
            name,
            |path| if may { act(path) } else { Err(io::ErrorKind::ReadOnlyFilesystem.into()) },
        )
    }

    /// The open file of this name, or the file opened now.
    fn writable(&self, name: &str, path: &Path) -> io::Result<Open> {
        let mut open = self.open_files();
        if let Some(file) = open.get(name) {
            return Ok(file.clone());
        }
        let file = Open::Cached(Arc::new(OpenOptions::new().append(true).open(path)?));
        open.insert(name.to_owned(), file.clone());
        Ok(file)
    }
}

impl Disk for RealDisk {
    fn create(&self, name: &str) -> Result<(), DiskError> {
        let file = self.write_at(Operation::Create, name, |path| {
            OpenOptions::new().append(true).create_new(true).mode(FILE_MODE).open(path)
        })?;
        self.open_files().insert(name.to_owned(), Open::Cached(Arc::new(file)));
        Ok(())
    }

    fn create_stream(&self, name: &str) -> Result<(), DiskError> {
        let stream = self.write_at(Operation::Create, name, Stream::create)?;
        self.open_files().insert(name.to_owned(), Open::Streamed(Arc::new(Mutex::new(stream))));
        Ok(())
    }

    fn create_directory(&self, name: &str) -> Result<(), DiskError> {
        self.write_at(Operation::CreateDirectory, name, make_directory)
    }

    fn append(&self, name: &str, bytes: &[u8]) -> Result<(), DiskError> {
        self.write_at(Operation::Append, name, |path| self.writable(name, path)?.append(bytes))
    }

    fn truncate(&self, name: &str, bytes: u64) -> Result<(), DiskError> {
        self.write_at(Operation::Truncate, name, |path| match self.writable(name, path)? {
            Open::Cached(file) => file.set_len(bytes),
            Open::Streamed(_) => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is a stream")),
        })
    }

    fn sync(&self, name: &str) -> Result<(), DiskError> {
        self.write_at(Operation::Sync, name, |path| self.writable(name, path)?.sync())
    }

    fn close(&self, name: &str) {
        let file = self.open_files().remove(name);
        // The file is not read soon. Memory that is given back is used for the next writes, which otherwise would take that of
        // others; and a virtual machine need not get new memory from its host for it.
        if let Some(Open::Cached(file)) = file {
            let _ = rustix::fs::fadvise(&*file, 0, None, rustix::fs::Advice::DontNeed);
        }
    }

    fn bytes(&self, name: &str) -> Result<u64, DiskError> {
        self.at(Operation::Measure, name, |path| Ok(fs::metadata(path)?.len()))
    }

    fn read(&self, name: &str, offset: u64, buffer: &mut [u8]) -> Result<usize, DiskError> {
        self.at(Operation::Read, name, |path| {
            let file = File::open(path)?;
            let mut done = 0;
            while done < buffer.len() {
                match file.read_at(&mut buffer[done..], offset + done as u64) {
                    Ok(0) => break,
                    Ok(count) => done += count,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            self.shared.read.fetch_add(done as u64, Ordering::Relaxed);
            Ok(done)
        })
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        let target = self.at(Operation::Rename, to, |path| Ok(path.to_owned()))?;
        self.write_at(Operation::Rename, from, |path| fs::rename(path, target))?;
        let below = format!("{from}/");
        let mut open = self.open_files();
        open.remove(to);
        let moved: Vec<_> =
            open.keys().filter(|name| *name == from || name.starts_with(&below)).cloned().collect();
        for name in moved {
            if let Some(file) = open.remove(&name) {
                open.insert(format!("{to}{}", &name[from.len()..]), file);
            }
        }
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<(), DiskError> {
        self.write_at(Operation::Remove, name, |path| {
            if fs::symlink_metadata(path)?.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) }
        })?;
        self.close(name);
        Ok(())
    }

    fn list(&self, directory: &str) -> Result<Vec<Entry>, DiskError> {
        let mut entries = self.at(Operation::List, directory, |path| {
            let mut entries = Vec::new();
            for entry in fs::read_dir(path)? {
                let entry = entry?;
                // A name that is no text was not given by us.
                if let Ok(name) = entry.file_name().into_string() {
                    entries.push(Entry { name, is_directory: entry.file_type()?.is_dir() });
                }
            }
            Ok(entries)
        })?;
        entries.sort();
        Ok(entries)
    }

    fn sync_directory(&self, directory: &str) -> Result<(), DiskError> {
        self.write_at(Operation::SyncDirectory, directory, |path| File::open(path)?.sync_all())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_every_directory_that_is_made_is_synced() {
        let temporary = tempfile::tempdir().unwrap();
        let base = temporary.path();
        let made = |path: &str| {
            let mut synced = Vec::new();
            make_durably(&base.join(path), &mut |directory| {
                synced.push(directory.strip_prefix(base).ok().map(Path::to_owned));
                Ok(())
            })
            .unwrap();
            assert!(base.join(path).is_dir());
            // Directories above are not of this test.
            synced.into_iter().flatten().map(|path| path.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(made("a/b/c"), ["", "a", "a/b"]);
        assert_eq!(made("a/b/c"), ["a/b"]);
        // Directories above may have been made by a process that then died.
        assert_eq!(made("a/b/d"), ["a", "a/b"]);
        fs::write(base.join("file"), b"").unwrap();
        make_durably(&base.join("file"), &mut |_| Ok(())).unwrap_err();
        make_durably(&base.join("a/x"), &mut |_| Err(io::ErrorKind::Other.into())).unwrap_err();
    }

    #[test]
    fn shards_that_begin_at_once_make_their_parents_together() {
        const SHARDS: usize = 8;
        let folder = tempfile::tempdir().unwrap();
        for run in 0..50 {
            let state = folder.path().join(format!("run-{run}/job/server-0"));
            let barrier = std::sync::Barrier::new(SHARDS);
            std::thread::scope(|scope| {
                for shard in 0..SHARDS {
                    let (barrier, place) = (&barrier, state.join(format!("shard-{shard}")));
                    scope.spawn(move || {
                        barrier.wait();
                        make_durably(&place, &mut |_| Ok(())).unwrap();
                        assert!(place.is_dir());
                    });
                }
            });
        }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    // rule S5
    #[test]
    fn files_are_for_their_owner_alone_whatever_the_umask() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("state/shard-0");
        // Of the process: no other test of this crate looks at modes.
        let before = rustix::process::umask(rustix::fs::Mode::empty());
        let disk = RealDisk::open(&root).unwrap();
        disk.create("log").unwrap();
        disk.create_stream("rows").unwrap();
        disk.create_directory("checkpoint").unwrap();
        disk.create("checkpoint/manifest").unwrap();
        rustix::process::umask(before);
        for file in ["log", "rows", "checkpoint/manifest", "lock"] {
            assert_eq!(mode(&root.join(file)), 0o600, "{file}");
        }
        for directory in ["", "checkpoint", ".."] {
            assert_eq!(mode(&root.join(directory)), 0o700, "{directory}");
        }
    }

    // rule S5
    #[test]
    fn a_directory_that_others_may_write_is_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        for mode in [0o770, 0o702] {
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
            let error = RealDisk::open(folder.path()).unwrap_err();
            let text = error.cause.to_string();
            assert!(text.contains(&format!("`chmod go-w {}`", folder.path().display())), "{text}");
            assert!(RealDisk::read_only(folder.path()).is_ok(), "reading is harmless");
        }
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(RealDisk::open(folder.path()).is_ok());
    }
}
