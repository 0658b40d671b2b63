//! Inputs in files: those that are stored in `corpus/`, and the one that failed.

use std::fs;
use std::path::{Path, PathBuf};

/// Set to make targets store what they come upon: the shortest input of each outcome that no stored one has.
const COLLECT: &str = "LIBRA_FUZZ_COLLECT";
/// Longer inputs are not stored.
const STORED_BYTES_MAX: usize = 4 << 10;

fn directory(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target)
}

/// The stored inputs of a target, in the order of their names.
pub(crate) fn stored(target: &str) -> Vec<Vec<u8>> {
    let Ok(entries) = fs::read_dir(directory(target)) else { return Vec::new() };
    let mut files: Vec<_> =
        entries.map(|entry| entry.expect("a directory that was opened can be listed").path()).collect();
    files.sort();
    let read = |path: &PathBuf| fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    files.iter().map(read).collect()
}

pub(crate) fn collects() -> bool {
    std::env::var_os(COLLECT).is_some()
}

/// Stores an input under a name that follows from its outcome, unless it is long.
pub(crate) fn store(target: &str, outcome: &str, bytes: &[u8]) {
    if bytes.len() > STORED_BYTES_MAX {
        return;
    }
    let name: String = outcome
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' })
        .take(60)
        .collect();
    write(&directory(target).join(name.trim_matches('-')), bytes);
}

/// Writes an input that failed, over the one before of the same target: the last one is the smallest.
pub(crate) fn failed(target: &str, bytes: &[u8]) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/fuzz").join(target);
    write(&path, bytes);
    path
}

fn write(path: &Path, bytes: &[u8]) {
    let written = fs::create_dir_all(path.parent().expect("a file has a directory"))
        .and_then(|()| fs::write(path, bytes));
    written.unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
}
