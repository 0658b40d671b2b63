//! The files of a shard at a URL as a disk that is only read.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use libra_objects::{Fault, Object, Objects};

use crate::checkpoint::MANIFEST;
use crate::disk::{Disk, DiskError, Entry, Operation};

/// Bytes that are worth a request: a reader goes on from where it was.
const WINDOW: u64 = 4 << 20;
/// Windows that are kept: a reader of rows is at three places of a file, keys, values and state.
const WINDOWS: usize = 4;

/// Objects of a shard, by their paths from there; with checksums, where they are known.
type Files = BTreeMap<String, (Object, Option<u32>)>;

/// The files of a shard at a URL. Nothing can be written.
#[derive(Debug, Clone)]
pub struct ArchiveDisk {
    objects: Arc<Objects>,
    url: PathBuf,
    files: Arc<Files>,
    windows: Arc<Mutex<VecDeque<Window>>>,
}

/// Bytes of an object that were read.
#[derive(Debug, Clone)]
struct Window {
    name: String,
    start: u64,
    bytes: Bytes,
}

impl ArchiveDisk {
    pub(super) fn new(objects: Arc<Objects>, url: PathBuf, files: Files) -> Self {
        Self { objects, url, files: Arc::new(files), windows: Arc::default() }
    }

    fn fail(&self, operation: Operation, name: &str, cause: io::Error) -> DiskError {
        DiskError { operation, path: self.url.join(name).display().to_string(), cause }
    }

    fn refuse<T>(&self, operation: Operation, name: &str) -> Result<T, DiskError> {
        Err(self.fail(operation, name, io::ErrorKind::ReadOnlyFilesystem.into()))
    }

    fn file(&self, operation: Operation, name: &str) -> Result<&(Object, Option<u32>), DiskError> {
        self.files.get(name).ok_or_else(|| self.fail(operation, name, io::ErrorKind::NotFound.into()))
    }

    /// The bytes from `offset` on, as many as one request brings.
    fn window(&self, name: &str, offset: u64) -> Result<Window, DiskError> {
        let (object, checksum) = self.file(Operation::Read, name)?;
        let holds = |window: &Window| {
            window.name == name && window.start <= offset && offset < window.start + window.bytes.len() as u64
        };
        let windows = || self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(window) = windows().iter().find(|window| holds(window)) {
            return Ok(window.clone());
        }
        let is_manifest = name.rsplit('/').next() == Some(MANIFEST);
        // All else is compared with what is in the manifest.
        let (start, end) = if is_manifest { (0, object.bytes) } else { (offset, offset + WINDOW) };
        let read = self.objects.read_range(object, start..end.min(object.bytes));
        let bytes = read.map_err(|fault| self.fail(Operation::Read, name, cause(fault)))?;
        let found = crc32c::crc32c(&bytes);
        if is_manifest && checksum.is_some_and(|expected| expected != found) {
            let other = io::Error::new(io::ErrorKind::InvalidData, "it is not the one that was committed");
            return Err(self.fail(Operation::Read, name, other));
        }
        let window = Window { name: name.to_owned(), start, bytes };
        let mut windows = windows();
        windows.truncate(WINDOWS - 1);
        windows.push_front(window.clone());
        Ok(window)
    }
}

fn cause(fault: Fault) -> io::Error {
    let kind = match &fault {
        Fault::Missing => io::ErrorKind::NotFound,
        Fault::Denied { .. } | Fault::NoCredentials { .. } => io::ErrorKind::PermissionDenied,
        Fault::Changed => io::ErrorKind::InvalidData,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, fault.to_string())
}

impl Disk for ArchiveDisk {
    fn create(&self, name: &str) -> Result<(), DiskError> {
        self.refuse(Operation::Create, name)
    }

    fn create_directory(&self, name: &str) -> Result<(), DiskError> {
        self.refuse(Operation::CreateDirectory, name)
    }

    fn append(&self, name: &str, _: &[u8]) -> Result<(), DiskError> {
        self.refuse(Operation::Append, name)
    }

    fn truncate(&self, name: &str, _: u64) -> Result<(), DiskError> {
        self.refuse(Operation::Truncate, name)
    }

    fn sync(&self, name: &str) -> Result<(), DiskError> {
        self.refuse(Operation::Sync, name)
    }

    fn close(&self, _: &str) {}

    fn bytes(&self, name: &str) -> Result<u64, DiskError> {
        Ok(self.file(Operation::Measure, name)?.0.bytes)
    }

    fn read(&self, name: &str, offset: u64, buffer: &mut [u8]) -> Result<usize, DiskError> {
        let length = self.file(Operation::Read, name)?.0.bytes;
        let mut done = 0;
        while done < buffer.len() && offset + (done as u64) < length {
            let at = offset + done as u64;
            let window = self.window(name, at)?;
            let from = usize::try_from(at - window.start).expect("a place in memory");
            let count = (window.bytes.len() - from).min(buffer.len() - done);
            buffer[done..done + count].copy_from_slice(&window.bytes[from..from + count]);
            done += count;
        }
        Ok(done)
    }

    fn rename(&self, from: &str, _: &str) -> Result<(), DiskError> {
        self.refuse(Operation::Rename, from)
    }

    fn remove(&self, name: &str) -> Result<(), DiskError> {
        self.refuse(Operation::Remove, name)
    }

    fn list(&self, directory: &str) -> Result<Vec<Entry>, DiskError> {
        let prefix = if directory.is_empty() { String::new() } else { format!("{directory}/") };
        let below = self.files.keys().filter_map(|name| name.strip_prefix(&prefix));
        let entries: BTreeSet<Entry> = below
            .map(|rest| match rest.split_once('/') {
                Some((first, _)) => Entry { name: first.to_owned(), is_directory: true },
                None => Entry { name: rest.to_owned(), is_directory: false },
            })
            .collect();
        if entries.is_empty() && !directory.is_empty() {
            return Err(self.fail(Operation::List, directory, io::ErrorKind::NotFound.into()));
        }
        Ok(entries.into_iter().collect())
    }

    fn sync_directory(&self, name: &str) -> Result<(), DiskError> {
        self.refuse(Operation::SyncDirectory, name)
    }
}
