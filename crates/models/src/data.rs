//! Files of data sets.

mod error;
mod lines;

use std::{
    fs,
    path::{Path, PathBuf},
};

pub use error::DataError;
pub(crate) use lines::{Line, LinePlace, LineReader, TextFile};
use serde::{Deserialize, Serialize};

/// A file of a data set, as it was when it was opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataFile {
    /// Its name, without the directory.
    pub name: String,
    /// Its length.
    pub bytes: u64,
}

impl DataFile {
    pub(crate) fn new(path: &Path, bytes: u64) -> Self {
        let name = path.file_name().unwrap_or(path.as_os_str());
        Self { name: name.to_string_lossy().into_owned(), bytes }
    }
}

/// The file names of a directory.
pub(crate) struct Directory {
    pub(crate) path: PathBuf,
    pub(crate) names: Vec<String>,
}

impl Directory {
    pub(crate) fn list(path: &Path) -> Result<Self, DataError> {
        let unreadable = |source| DataError::Unreadable { path: path.to_owned(), source };
        if !path.exists() {
            return Err(DataError::Missing { path: path.to_owned() });
        }
        let mut names = Vec::new();
        for entry in fs::read_dir(path).map_err(unreadable)? {
            // A name that is not text is none of those that are looked for.
            if let Ok(name) = entry.map_err(unreadable)?.file_name().into_string() {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(Self { path: path.to_owned(), names })
    }

    /// The only file with one of these suffixes; the first suffix that occurs counts.
    pub(crate) fn the_one(&self, suffixes: &[&'static str]) -> Result<Option<PathBuf>, DataError> {
        for &suffix in suffixes {
            let found: Vec<&String> = self.names.iter().filter(|name| has_suffix(name, suffix)).collect();
            match found[..] {
                [] => {}
                [name] => return Ok(Some(self.path.join(name))),
                _ => {
                    let files = found.into_iter().cloned().collect();
                    return Err(DataError::Ambiguous { path: self.path.clone(), suffix, files });
                }
            }
        }
        Ok(None)
    }

    pub(crate) fn require(&self, suffix: &'static str) -> Result<PathBuf, DataError> {
        let found = self.the_one(&[suffix])?;
        found.ok_or_else(|| DataError::Incomplete { path: self.path.clone(), suffix })
    }

    pub(crate) fn name(&self) -> String {
        name_of(&self.path)
    }
}

/// `name` is `suffix`, or ends in a dot and `suffix`.
fn has_suffix(name: &str, suffix: &str) -> bool {
    name.strip_suffix(suffix).is_some_and(|prefix| prefix.is_empty() || prefix.ends_with('.'))
}

/// The last part of a path, for people.
pub(crate) fn name_of(path: &Path) -> String {
    let resolved = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    resolved
        .file_name()
        .map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}
