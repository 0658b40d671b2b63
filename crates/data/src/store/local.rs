//! Files of this machine.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::UNIX_EPOCH;

use bytes::Bytes;

use super::{FileInfo, Found};
use crate::error::{At, DataError, Fault};
use crate::place::Place;

/// An open file.
#[derive(Debug)]
pub(crate) struct LocalFile(File);

impl LocalFile {
    /// Opens a file, if it is the one that was listed.
    pub(super) fn open(info: &FileInfo) -> Result<Self, DataError> {
        let failed = |source| info.at().error(Fault::io("opening", source));
        let file = File::open(&info.path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if metadata.len() != info.bytes || version(&metadata) != info.version {
            return Err(info.at().error(Fault::Changed));
        }
        Ok(Self(file))
    }

    pub(super) fn read(&self, info: &FileInfo, range: Range<u64>) -> Result<Bytes, DataError> {
        let length = usize::try_from(range.end - range.start).expect("a range fits into memory");
        let mut bytes = vec![0; length];
        match self.0.read_exact_at(&mut bytes, range.start) {
            Ok(()) => Ok(bytes.into()),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(info.at().error(Fault::Changed))
            }
            Err(error) => Err(info.at().error(Fault::io("reading", error))),
        }
    }
}

/// Time of the last change, in nanoseconds.
fn version(metadata: &fs::Metadata) -> String {
    let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    modified.map_or_else(String::new, |time| time.as_nanos().to_string())
}

pub(super) fn list(place: &Place) -> Result<Found, DataError> {
    let root = if place.path.is_empty() { Path::new(".") } else { Path::new(&place.path) };
    let failed = |source| place.at().error(Fault::io("listing", source));
    let metadata = fs::metadata(root).map_err(failed)?;
    if metadata.is_file() {
        return Ok(Found::File(info(&place.path, &metadata)));
    }
    let mut files = Vec::new();
    let mut directories = vec![place.path.clone()];
    while let Some(directory) = directories.pop() {
        let read = if directory.is_empty() { Path::new(".") } else { Path::new(&directory) };
        for entry in fs::read_dir(read).map_err(failed)? {
            // A name that is not text is none of a data set.
            let Ok(name) = entry.map_err(failed)?.file_name().into_string() else { continue };
            let path = if directory.is_empty() {
                name
            } else {
                format!("{}/{name}", directory.trim_end_matches('/'))
            };
            // A link without a target, or a file that was just removed, is no data.
            let Ok(metadata) = fs::metadata(&path) else { continue };
            if metadata.is_dir() {
                directories.push(path);
            } else {
                files.push(info(&path, &metadata));
            }
        }
    }
    Ok(Found::Files(files))
}

fn info(path: &str, metadata: &fs::Metadata) -> FileInfo {
    FileInfo {
        name: path.to_owned(),
        path: path.to_owned(),
        bytes: metadata.len(),
        version: version(metadata),
    }
}

pub(super) fn read_beside(place: &Place, name: &str) -> Result<Option<(String, Bytes)>, DataError> {
    let path = Path::new(&place.path);
    let directory = if path.is_file() { path.parent().unwrap_or(path) } else { path };
    let path = directory.join(name);
    match fs::read(&path) {
        Ok(bytes) => Ok(Some((path.to_string_lossy().into_owned(), bytes.into()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(At::file(path.to_string_lossy()).error(Fault::io("reading", error))),
    }
}
