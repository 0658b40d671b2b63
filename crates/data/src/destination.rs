//! Destination of a data set that is written: a directory, or objects below a URL.

use std::fs::{self, DirBuilder, File};
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
    spool: PathBuf,
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
        let spool = temporary_directory()?;
        let directory = spool.clone();
        Ok(Self { directory, store: Some(Arc::new(Store { objects, root, spool })) })
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

impl Drop for Store {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.spool);
    }
}

fn read(source: &mut File, bytes: u64) -> io::Result<Bytes> {
    let mut buffer = vec![0; usize::try_from(bytes).expect("a part fits into memory")];
    source.read_exact(&mut buffer)?;
    Ok(buffer.into())
}

/// Makes a directory that only this user may read.
fn temporary_directory() -> Result<PathBuf, DataError> {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let all = std::env::temp_dir();
    loop {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = all.join(format!("libra-data-{}-{number}", std::process::id()));
        match DirBuilder::new().mode(0o700).create(&path) {
            // One that a process of this number has left.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(At::file(path.to_string_lossy()).error(Fault::io("creating", error))),
            Ok(()) => return Ok(path),
        }
    }
}
