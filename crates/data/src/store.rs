//! Files of a place, and ranges of their bytes: from a disk, or from a server with a bounded number of retries.

mod local;
mod remote;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use libra_objects::{Environment, Kind};
use serde::{Deserialize, Serialize};

use crate::dataset::Counts;
use crate::error::{At, DataError, Fault};
use crate::place::{Format, Place, natural_order};

pub(crate) use local::LocalFile;
use remote::Remote;

/// A file of a data set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileInfo {
    /// Its name for messages: a path or URL.
    pub name: String,
    /// Path, or key in the bucket.
    pub(crate) path: String,
    /// Its size.
    pub bytes: u64,
    /// A text that differs when the content differs: the ETag, or the time of the last change.
    pub version: String,
}

impl FileInfo {
    pub(crate) fn at(&self) -> At {
        At::file(&self.name)
    }
}

/// Access to the files of a place.
#[derive(Debug)]
pub(crate) struct Store {
    remote: Option<Remote>,
    bytes_read: AtomicU64,
    groups_opened: AtomicU64,
}

impl Store {
    pub(crate) fn open(
        place: &Place,
        environment: &Environment,
        retries: Option<u32>,
    ) -> Result<Self, DataError> {
        let remote =
            (*place.kind() != Kind::Local).then(|| Remote::open(place, environment, retries)).transpose()?;
        Ok(Self::new(remote))
    }

    /// Returns the same store with counts of its own.
    pub(crate) fn counted_apart(&self) -> Self {
        Self::new(self.remote.as_ref().map(Remote::counted_apart))
    }

    fn new(remote: Option<Remote>) -> Self {
        Self { remote, bytes_read: AtomicU64::new(0), groups_opened: AtomicU64::new(0) }
    }

    pub(crate) fn count_open(&self) {
        self.groups_opened.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn counts(&self) -> Counts {
        let (requests, retries) = self.remote.as_ref().map_or((0, 0), Remote::requests);
        let bytes = self.bytes_read.load(Ordering::Relaxed);
        Counts { requests, retries, bytes, groups: self.groups_opened.load(Ordering::Relaxed) }
    }

    /// Lists the data files of a place in natural order, with their formats.
    pub(crate) fn list(&self, place: &Place) -> Result<Vec<(FileInfo, Format)>, DataError> {
        let found = match &self.remote {
            None => local::list(place)?,
            Some(remote) => remote.list(place)?,
        };
        let mut files = match (found, &place.pattern) {
            (Found::File(file), _) => {
                let format = Format::of_file(&file.path);
                return Ok(vec![(file, format)]);
            }
            (Found::Files(files), Some(pattern)) => {
                let matching = files.into_iter().filter(|file| pattern.is_match(&file.path));
                let files: Vec<_> = matching.map(|file| (Format::of_file(&file.path), file)).collect();
                if files.is_empty() {
                    return Err(place.at().error(Fault::NoMatch));
                }
                files
            }
            (Found::Files(files), None) => {
                let below = |file: &FileInfo| {
                    let relative = file.path.strip_prefix(&place.path).unwrap_or(&file.path);
                    Format::of_listed(relative.trim_start_matches('/'))
                };
                let mut files: Vec<_> =
                    files.into_iter().filter_map(|file| Some((below(&file)?, file))).collect();
                // Kaggle's archive has a test.txt beside it, which has no labels.
                let is_train = |file: &FileInfo| file.path.rsplit('/').next() == Some("train.txt");
                if files.iter().any(|(_, file)| is_train(file)) {
                    files.retain(|(_, file)| is_train(file));
                }
                if files.is_empty() {
                    return Err(place.at().error(Fault::NoFiles));
                }
                files
            }
        };
        let parquet = files.iter().filter(|(format, _)| *format == Format::Parquet).count();
        if parquet != 0 && parquet != files.len() {
            return Err(place.at().error(Fault::MixedFormats));
        }
        files.sort_by(|(_, left), (_, right)| natural_order(&left.path, &right.path));
        Ok(files.into_iter().map(|(format, file)| (file, format)).collect())
    }

    /// Reads a small file beside the data, if it is there; its name for messages is in front.
    pub(crate) fn read_beside(
        &self,
        place: &Place,
        name: &str,
    ) -> Result<Option<(String, Bytes)>, DataError> {
        match &self.remote {
            None => local::read_beside(place, name),
            Some(remote) => remote.read_beside(place, name),
        }
    }

    /// Opens a file for ranges.
    pub(crate) fn file(self: &Arc<Self>, info: &FileInfo) -> Result<Arc<OpenFile>, DataError> {
        let local = self.remote.is_none().then(|| LocalFile::open(info)).transpose()?;
        Ok(Arc::new(OpenFile { store: self.clone(), info: info.clone(), local }))
    }
}

/// Objects of a place.
pub(crate) enum Found {
    File(FileInfo),
    /// All files below the directory.
    Files(Vec<FileInfo>),
}

/// A file whose ranges are read.
#[derive(Debug)]
pub(crate) struct OpenFile {
    store: Arc<Store>,
    pub(crate) info: FileInfo,
    local: Option<LocalFile>,
}

impl OpenFile {
    pub(crate) fn is_local(&self) -> bool {
        self.local.is_some()
    }

    /// Bytes that are worth a request.
    pub(crate) fn window(&self) -> u64 {
        if self.store.remote.is_some() { 1 << 20 } else { 1 << 18 }
    }

    /// Reads a range whole.
    pub(crate) fn read(&self, range: Range<u64>) -> Result<Bytes, DataError> {
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        if range.end > self.info.bytes {
            let reason = format!("bytes {} to {} of {}", range.start, range.end, self.info.bytes);
            return Err(self.info.at().error(Fault::Cut { reason }));
        }
        let length = range.end - range.start;
        let bytes = match (&self.store.remote, &self.local) {
            (Some(remote), _) => remote.read(&self.info, range)?,
            (None, Some(file)) => file.read(&self.info, range)?,
            (None, None) => unreachable!("a file is remote or local"),
        };
        self.store.bytes_read.fetch_add(length, Ordering::Relaxed);
        Ok(bytes)
    }
}
