//! Files of a place, and ranges of their bytes: from a disk, or from a server with a bounded number of retries.

mod local;
mod remote;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::error::{At, DataError, Fault};
use crate::place::{Format, Kind, Place, natural_order};

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

/// Settings and credentials of object stores: variables of an environment, as `AWS_REGION`. Values are never printed.
#[derive(Clone)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// The environment of this process.
    pub fn of_process() -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        std::env::vars_os().filter_map(text).collect()
    }

    /// The variables that begin with one of the prefixes, in lower case.
    fn settings(&self, prefixes: &[&str]) -> impl Iterator<Item = (String, &String)> {
        let has = |name: &String| prefixes.iter().any(|prefix| name.starts_with(prefix));
        self.0
            .iter()
            .filter(move |(name, _)| has(name))
            .map(|(name, value)| (name.to_ascii_lowercase(), value))
    }
}

impl FromIterator<(String, String)> for Environment {
    fn from_iter<T: IntoIterator<Item = (String, String)>>(variables: T) -> Self {
        Self(variables.into_iter().collect())
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.0.keys()).finish()
    }
}

/// Counts of what was read.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) requests: AtomicU64,
    pub(crate) retries: AtomicU64,
    pub(crate) bytes: AtomicU64,
}

impl Counters {
    fn add(counter: &AtomicU64, number: u64) {
        counter.fetch_add(number, Ordering::Relaxed);
    }
}

/// Access to the files of a place.
#[derive(Debug)]
pub(crate) struct Store {
    remote: Option<Arc<Remote>>,
    pub(crate) counters: Counters,
}

impl Store {
    pub(crate) fn open(
        place: &Place,
        environment: &Environment,
        retries: Option<u32>,
    ) -> Result<Self, DataError> {
        let remote =
            (place.kind != Kind::Local).then(|| Remote::open(place, environment, retries)).transpose()?;
        Ok(Self { remote: remote.map(Arc::new), counters: Counters::default() })
    }

    /// Returns the same store with counts of its own.
    pub(crate) fn counted_apart(&self) -> Self {
        Self { remote: self.remote.clone(), counters: Counters::default() }
    }

    /// Lists the data files of a place in natural order, with their formats.
    pub(crate) fn list(&self, place: &Place) -> Result<Vec<(FileInfo, Format)>, DataError> {
        let found = match &self.remote {
            None => local::list(place)?,
            Some(remote) => remote.list(place, &self.counters)?,
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

    /// Reads a small file beside the data, if it is there.
    pub(crate) fn read_beside(&self, place: &Place, name: &str) -> Result<Option<Bytes>, DataError> {
        match &self.remote {
            None => local::read_beside(place, name),
            Some(remote) => remote.read_beside(place, name, &self.counters),
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
            (Some(remote), _) => remote.read(&self.info, range, &self.store.counters)?,
            (None, Some(file)) => file.read(&self.info, range)?,
            (None, None) => unreachable!("a file is remote or local"),
        };
        Counters::add(&self.store.counters.bytes, length);
        Ok(bytes)
    }
}
