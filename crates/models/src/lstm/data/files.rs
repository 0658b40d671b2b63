//! Texts in files: those of the Penn Treebank, and those of the One Billion Word Benchmark.

use std::path::{Path, PathBuf};

use super::{
    Text,
    vocabulary::{Census, Vocabulary},
};
use crate::data::{DataError, Directory, Line, TextFile};

const TRAINING: &str = "training-monolingual.tokenized.shuffled";
const HELD_OUT: &str = "heldout-monolingual.tokenized.shuffled";

/// Words of the One Billion Word Benchmark that occur less often are unknown (Chelba et al. 2013, section 2).
const OCCURRENCES_MIN: u64 = 3;

/// The file that results on the One Billion Word Benchmark are published for (Jozefowicz et al. 2016, section 4.1).
const TEST: &str = "news.en.heldout-00000-of-00050";

pub(super) fn read(directory: &Directory, vocabulary: usize) -> Result<Text, DataError> {
    if let Some(train) = directory.the_one(&["train.txt"])? {
        let valid = directory.require("valid.txt")?;
        return build(directory.name(), &[train], &valid, 1, vocabulary);
    }
    if !directory.names.iter().any(|name| name == TRAINING) {
        return Err(DataError::NoText { path: directory.path.clone() });
    }
    let train = parts(&directory.path.join(TRAINING), |name| {
        name.starts_with("news.en-") && name.ends_with("-of-00100")
    })?;
    let held_out = directory.path.join(HELD_OUT);
    let valid = parts(&held_out, |name| name.starts_with("news.en.heldout-") && name.ends_with("-of-00050"))?;
    // One of the fifty is enough to measure on, but not the one of published results, unless there is no other.
    let valid = valid.iter().find(|path| !path.ends_with(TEST)).unwrap_or(&valid[0]);
    build(directory.name(), &train, valid, OCCURRENCES_MIN, vocabulary)
}

/// The files of a directory with such names, by name; at least one.
fn parts(path: &Path, wanted: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>, DataError> {
    let directory = Directory::list(path)?;
    let names = directory.names.iter().filter(|name| wanted(name));
    let files: Vec<PathBuf> = names.map(|name| path.join(name)).collect();
    if files.is_empty() { Err(DataError::NoText { path: path.to_owned() }) } else { Ok(files) }
}

/// Reads every training file twice: to count words, then to number them. So no more than one file is in memory as text.
fn build(
    name: String,
    train: &[PathBuf],
    valid: &Path,
    occurrences_min: u64,
    vocabulary: usize,
) -> Result<Text, DataError> {
    let mut census = Census::default();
    for path in train {
        let file = TextFile::read(path)?;
        let mut empty = true;
        for line in file.lines() {
            census.add(words(line)?);
            empty = false;
        }
        if empty {
            return Err(DataError::Empty { path: path.clone() });
        }
    }
    let vocabulary = census.finish(vocabulary, occurrences_min);
    let mut text = vocabulary.start();
    let words = usize::try_from(vocabulary.counts.iter().sum::<u64>()).expect("files hold as many words");
    // No more than that: growing it step by step would take twice the memory.
    text.reserve_exact(words);
    let mut files = Vec::new();
    for path in train {
        let file = TextFile::read(path)?;
        append(&vocabulary, &file, &mut text)?;
        files.push(file.data_file());
    }
    let file = TextFile::read(valid)?;
    let mut valid = vocabulary.start();
    append(&vocabulary, &file, &mut valid)?;
    if valid.len() < 2 {
        return Err(DataError::Empty { path: file.path().to_owned() });
    }
    files.push(file.data_file());
    Ok(Text { name, counts: vocabulary.counts, train: text, valid, files })
}

fn append(vocabulary: &Vocabulary, file: &TextFile, text: &mut Vec<u32>) -> Result<(), DataError> {
    for line in file.lines() {
        vocabulary.append(text, words(line)?);
    }
    Ok(())
}

/// The words of a line.
fn words(line: Line<'_>) -> Result<impl Iterator<Item = &str>, DataError> {
    const EXPECTED: &str = "words in UTF-8 between blanks";
    let text = std::str::from_utf8(line.bytes()).map_err(|_| line.malformed(EXPECTED, line.bytes()))?;
    // A file that is packed, or no text at all, has such bytes.
    if text.contains('\0') {
        return Err(line.malformed(EXPECTED, line.bytes()));
    }
    Ok(text.split_ascii_whitespace())
}
