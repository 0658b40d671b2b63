//! Destination of a data set that is written: a directory, or objects below a URL.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use libra_objects::{Environment, Kind, Objects, PART_BYTES, Upload, normal};

use crate::error::{At, DataError, Fault};
use crate::place::parse_root;

/// Destination of a data set: a directory, or objects of a store. Files for a store are written to a temporary directory, and
/// uploaded and removed there one by one as each is complete.
#[derive(Debug, Clone)]
pub struct Destination {
    directory: PathBuf,
    store: Option<Arc<Store>>,
}

/// Objects below a URL, and the directory of files that are not uploaded yet.
#[derive(Debug)]
struct Store {
    objects: Objects,
    root: libra_objects::Place,
    /// Removed with this.
    _spool: Spool,
}

/// Names of temporary directories begin so; the number of the process and one of its own follow.
const SPOOL: &str = "libra-data-";

/// A temporary directory that is locked as long as its process lives: one without a lock is of a process that was killed.
#[derive(Debug)]
struct Spool {
    path: PathBuf,
    /// The lock, if the file system has locks.
    _directory: File,
}

impl From<&Path> for Destination {
    fn from(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), store: None }
    }
}

impl Destination {
    /// Opens a destination: a path, or a URL of `file`, `s3`, `gs` or `az`. A store is asked for what is there already.
    ///
    /// # Errors
    /// The text is no such place, something is there, or the store refused.
    pub fn open(to: &str, environment: &Environment) -> Result<Self, DataError> {
        let mut root = parse_root(to)?;
        match root.kind {
            Kind::Local => {
                let opened = Self::from(Path::new(&root.path));
                return if opened.has_files()? {
                    Err(opened.at("").error(Fault::NotEmpty))
                } else {
                    Ok(opened)
                };
            }
            Kind::Http(_) => return Err(At::file(to).error(Fault::ReadOnly)),
            Kind::S3(_) | Kind::Google(_) | Kind::Azure(_) => root.path = normal(&root.path),
        }
        let at = At::file(root.name_of(&root.path));
        let refused = |fault: libra_objects::Fault| at.clone().error(fault.into());
        let objects = Objects::open(&root.kind, environment, None).map_err(refused)?;
        if !objects.list(&root.path).map_err(refused)?.is_empty() {
            return Err(at.error(Fault::NotEmpty));
        }
        let spool = Spool::create(&std::env::temp_dir())?;
        let directory = spool.path.clone();
        Ok(Self { directory, store: Some(Arc::new(Store { objects, root, _spool: spool })) })
    }

    /// The directory in which files are written.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// One of its files, or all of it, for messages.
    pub(crate) fn at(&self, name: &str) -> At {
        At::file(match &self.store {
            Some(store) => store.root.name_of(&store.path(name)),
            None if name.is_empty() => self.directory.to_string_lossy().into_owned(),
            None => self.directory.join(name).to_string_lossy().into_owned(),
        })
    }

    /// True if the directory is there, and not empty.
    pub(crate) fn has_files(&self) -> Result<bool, DataError> {
        match fs::read_dir(&self.directory) {
            Ok(mut entries) => Ok(entries.next().is_some()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(self.at("").error(Fault::io("listing", error))),
        }
    }

    /// Uploads a file that is complete, if it goes to a store. Returns its size.
    pub(crate) fn complete(&self, name: &str) -> Result<u64, DataError> {
        let path = self.directory.join(name);
        let failed = |doing| {
            let path = &path;
            move |error| At::file(path.to_string_lossy()).error(Fault::io(doing, error))
        };
        let bytes = fs::metadata(&path).map_err(failed("reading"))?.len();
        if let Some(store) = &self.store {
            store.upload(&path, bytes, name)?;
            fs::remove_file(&path).map_err(failed("removing"))?;
        }
        Ok(bytes)
    }

    /// Removes files as far as they are there, and, if it was made for them, the directory. The error that led here is the one to
    /// show.
    pub(crate) fn remove(&self, names: &[String], with_directory: bool) {
        for name in names {
            let _ = fs::remove_file(self.directory.join(name));
        }
        if let Some(store) = &self.store {
            // A store that does not answer is asked once.
            let _ = names.iter().try_for_each(|name| store.objects.delete(&store.path(name)));
        } else if with_directory {
            let _ = fs::remove_dir(&self.directory);
        }
    }
}

impl Store {
    fn path(&self, name: &str) -> String {
        match (self.root.path.as_str(), name) {
            (root, "") => root.to_owned(),
            ("", name) => name.to_owned(),
            (root, name) => format!("{root}/{name}"),
        }
    }

    fn upload(&self, file: &Path, bytes: u64, name: &str) -> Result<(), DataError> {
        let path = self.path(name);
        let refused = |fault: libra_objects::Fault| At::file(self.root.name_of(&path)).error(fault.into());
        let unread = |error| At::file(file.to_string_lossy()).error(Fault::io("reading", error));
        let mut source = File::open(file).map_err(unread)?;
        let upload =
            if bytes <= PART_BYTES { None } else { self.objects.begin_upload(&path).map_err(refused)? };
        let Some(mut upload) = upload else {
            let whole = read(&mut source, bytes).map_err(unread)?;
            return self.objects.put(&path, whole).map_err(refused);
        };
        let mut send = |upload: &mut Upload| {
            let next = |bytes| read(&mut source, bytes).map_err(unread);
            self.objects.send_all(upload, bytes, PART_BYTES, next, refused)?;
            self.objects.finish_upload(upload).map_err(refused)
        };
        let sent = send(&mut upload);
        if sent.is_err() {
            let _ = self.objects.abort_upload(upload);
        }
        sent
    }
}

fn read(source: &mut File, bytes: u64) -> io::Result<Bytes> {
    let mut buffer = vec![0; usize::try_from(bytes).expect("a part fits into memory")];
    source.read_exact(&mut buffer)?;
    Ok(buffer.into())
}

impl Spool {
    /// Makes a directory that only this user may read, and removes what killed processes have left.
    fn create(all: &Path) -> Result<Self, DataError> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        sweep(all);
        loop {
            let number = MADE.fetch_add(1, Ordering::Relaxed);
            let path = all.join(format!("{SPOOL}{}-{number}", std::process::id()));
            let created = DirBuilder::new().mode(0o700).create(&path).and_then(|()| File::open(&path));
            let directory = match created {
                // There is one of another container, or another process has removed this one already.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) if error.kind() == io::ErrorKind::NotFound && all.is_dir() => continue,
                Err(error) => {
                    return Err(At::file(path.to_string_lossy()).error(Fault::io("creating", error)));
                }
                Ok(directory) => directory,
            };
            let is_locked = !matches!(directory.try_lock(), Err(TryLockError::WouldBlock));
            // Another process may have removed it before it was locked.
            if is_locked && path.is_dir() {
                return Ok(Self { path, _directory: directory });
            }
        }
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes temporary directories that have no lock, as far as this user may.
fn sweep(all: &Path) {
    let Ok(entries) = fs::read_dir(all) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let numbers = name.to_str().and_then(|name| name.strip_prefix(SPOOL)?.split_once('-'));
        let is_own = numbers.is_some_and(|(process, number)| {
            [process, number].iter().all(|text| text.parse::<u64>().is_ok())
        });
        if is_own && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let path = entry.path();
            let Ok(directory) = File::open(&path) else { continue };
            // The lock is held until it is gone, so that its process does not take it for its own.
            if directory.try_lock().is_ok() {
                let _ = fs::remove_dir_all(path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_without_a_lock_are_removed() {
        let all = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            fs::create_dir(all.path().join(name)).unwrap();
            fs::write(all.path().join(name).join("part-00000.parquet"), "PAR1").unwrap();
        };
        let others = ["libra-data-1", "libra-data-1-b", "libra-data-1-2-3", "data-1-2"];
        others.iter().chain(&["libra-data-1-7"]).for_each(|name| make(name));
        fs::write(all.path().join("libra-data-2-2"), "a file").unwrap();
        let live = [(); 2].map(|()| Spool::create(all.path()).unwrap());
        assert!(live.iter().all(|spool| spool.path.is_dir()));
        assert!(!all.path().join("libra-data-1-7").exists());
        assert!(others.iter().chain(&["libra-data-2-2"]).all(|name| all.path().join(name).exists()));
        let paths = live.each_ref().map(|spool| spool.path.clone());
        drop(live);
        assert!(!paths.iter().any(|path| path.exists()));
    }
}
