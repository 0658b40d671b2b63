//! The index of a text, which has where its runs begin: made by one pass, and kept beside it or in a cache.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Run;
use super::lines::Lines;
use crate::error::{DataError, Fault};
use crate::hash::text_id;
use crate::place::Packing;
use crate::store::OpenFile;

/// Rows of a run of plain text.
const RUN_ROWS: u64 = 1 << 14;
/// Version of the format.
const VERSION: u32 = 2;

/// The runs of a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TextIndex {
    version: u32,
    /// Size and version of the file that it is of.
    bytes: u64,
    file: String,
    pub(crate) runs: Vec<Run>,
}

/// Opens the index of a file, and makes it if there is none of this file as it is.
pub(crate) fn open(
    file: &Arc<OpenFile>,
    packing: Packing,
    cache: Option<&Path>,
    progress: &mut dyn FnMut(u64),
) -> Result<TextIndex, DataError> {
    let places = places(file, cache);
    let is_of_file = |index: &TextIndex| {
        index.version == VERSION && index.bytes == file.info.bytes && index.file == file.info.version
    };
    for place in &places {
        let stored = fs::read(place).ok().and_then(|text| serde_json::from_slice::<TextIndex>(&text).ok());
        if let Some(index) = stored.filter(is_of_file) {
            return Ok(index);
        }
    }
    let index = make(file, packing, progress)?;
    // Without an index the next opening takes as long as this one; the data are the same.
    let _ = places.iter().any(|place| write(place, &index).is_ok());
    Ok(index)
}

/// Files of an index: beside a local file, and in the cache.
fn places(file: &OpenFile, cache: Option<&Path>) -> Vec<PathBuf> {
    let mut places = Vec::new();
    if file.is_local() && cache.is_none() {
        let path = Path::new(&file.info.path);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        places.push(path.with_file_name(format!(".{name}.libra-index")));
    }
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cached = || std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
    let directory = cache.map(Path::to_owned).or_else(|| cached().map(|cache| cache.join("libra")));
    let absolute = fs::canonicalize(&file.info.path).map(|path| path.to_string_lossy().into_owned());
    let name = text_id(absolute.as_ref().unwrap_or(&file.info.name).as_bytes());
    places.extend(directory.map(|directory| directory.join(format!("{name:016x}.libra-index"))));
    places
}

/// Writes a file whole or not at all: several processes may open a set at once.
fn write(place: &Path, index: &TextIndex) -> std::io::Result<()> {
    fs::create_dir_all(place.parent().unwrap_or(place))?;
    let draft = place.with_extension(format!("draft-{}", std::process::id()));
    fs::write(&draft, serde_json::to_vec(index)?)?;
    fs::rename(&draft, place)
}

/// Counts the rows of a file.
fn make(
    file: &Arc<OpenFile>,
    packing: Packing,
    progress: &mut dyn FnMut(u64),
) -> Result<TextIndex, DataError> {
    let mut lines = Lines::open(file, packing, Run { offset: 0, line: 0, rows: 0 })?;
    let mut runs: Vec<Run> = Vec::new();
    loop {
        let (offset, line) = lines.place();
        if lines.next()?.is_none() {
            break;
        }
        match runs.last_mut() {
            Some(run) if run.rows < RUN_ROWS || packing != Packing::Plain => run.rows += 1,
            _ => {
                runs.push(Run { offset, line, rows: 1 });
                progress(offset);
            }
        }
    }
    // A packed file is read from its beginning, blank lines too.
    if packing != Packing::Plain {
        runs.iter_mut().for_each(|run| *run = Run { offset: 0, line: 0, ..*run });
    }
    if runs.is_empty() {
        return Err(file.info.at().error(Fault::Empty));
    }
    progress(file.info.bytes);
    Ok(TextIndex { version: VERSION, bytes: file.info.bytes, file: file.info.version.clone(), runs })
}
