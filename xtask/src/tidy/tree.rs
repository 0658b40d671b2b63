//! The text files that are, or are about to be, in the repository.

use anyhow::Result;

use crate::shell;

#[derive(Debug, Clone)]
pub(crate) struct File {
    /// From the root of the repository, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl File {
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Files that hold nothing but tests.
    pub(crate) fn is_test(&self) -> bool {
        self.name() == "tests.rs" || self.path.split('/').any(|folder| folder == "tests")
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Tree {
    pub(crate) files: Vec<File>,
}

impl Tree {
    /// All files that git tracks, or would with the next `git add`; without those that are no text.
    pub(crate) fn read() -> Result<Self> {
        let list = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
        let mut paths: Vec<_> = shell::output(shell::program("git", &list))?
            .split('\0')
            .filter(|path| !path.is_empty())
            .map(str::to_owned)
            .collect();
        paths.sort();
        paths.dedup();
        // A file that git lists but is gone, or whose bytes are no text, has nothing to be checked.
        let read =
            |path: String| std::fs::read_to_string(shell::root().join(&path)).map(|text| File { path, text });
        Ok(Self { files: paths.into_iter().filter_map(|path| read(path).ok()).collect() })
    }

    pub(crate) fn find(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let file = |&(path, text): &(&str, &str)| File { path: path.to_owned(), text: text.to_owned() };
        Self { files: files.iter().map(file).collect() }
    }
}
