//! The directory of servers for logs and checkpoints: one that was given, or a temporary one for checkpoints that go to a URL.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, bail};
use rand::TryRngCore;
use rand::rngs::OsRng;

use crate::arguments::DurabilityArguments;

/// The value of `--state-dir` for no directory. One of this name is `./none`.
const NONE: &str = "none";

/// Returns the directory of `--state-dir`, unless it is `none`.
///
/// # Errors
/// It is none, and there is a memory limit: rows beyond it are in a file there.
pub fn given(state_dir: Option<&Path>, is_limited: bool) -> Result<Option<&Path>> {
    let given = state_dir.filter(|path| *path != Path::new(NONE));
    if given.is_none() && is_limited {
        bail!("--memory-limit needs --state-dir DIR: rows beyond it are in a file there");
    }
    Ok(given)
}

/// The state directory of a job whose servers are in this process.
#[derive(Debug)]
pub enum StateDirectory {
    /// It stays.
    Kept(PathBuf),
    /// It is removed at the end: checkpoints are at a URL.
    Temporary(TemporaryDirectory),
}

impl StateDirectory {
    /// Finds the directory for a job; `None` for one that keeps nothing.
    ///
    /// # Errors
    /// The job keeps something, and has no place for it.
    pub fn of_job(
        state_dir: Option<&Path>,
        is_limited: bool,
        durability: &DurabilityArguments,
    ) -> Result<Option<Self>> {
        let given = given(state_dir, is_limited)?.map(Path::to_owned);
        // The run that is resumed goes on in its own, unless there is to be none.
        let resumed = if state_dir.is_none() { durability.resumed_directory() } else { None };
        if let Some(kept) = given.or(resumed) {
            return Ok(Some(Self::Kept(kept)));
        }
        if durability.checkpoints.is_some() && !durability.log {
            let temporary = TemporaryDirectory::new()?;
            let made = fs::DirBuilder::new().mode(0o700).create(temporary.path());
            made.with_context(|| format!("cannot make the directory {}", temporary.path().display()))?;
            return Ok(Some(Self::Temporary(temporary)));
        }
        let asked = durability.asked();
        if !asked.is_empty() {
            let (options, verb) = (asked.join(", "), if asked.len() == 1 { "needs" } else { "need" });
            bail!("{options} {verb} --state-dir DIR, where servers keep logs and checkpoints");
        }
        Ok(None)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        match self {
            Self::Kept(path) => path,
            Self::Temporary(directory) => directory.path(),
        }
    }
}

/// A path among temporary files, which is removed with all that is there then.
#[derive(Debug)]
pub struct TemporaryDirectory(PathBuf);

impl TemporaryDirectory {
    /// Chooses a name that no other has. Nothing is there yet.
    ///
    /// # Errors
    /// The machine has no random numbers.
    pub fn new() -> Result<Self> {
        let number = OsRng.try_next_u64().context("the machine has no random number for a name")?;
        let path = std::env::temp_dir().join(format!("libra-state-{number:016x}"));
        temporary().push(path.clone());
        Ok(Self(path))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        // Mostly nothing was put there.
        let _ = fs::remove_dir_all(&self.0);
        temporary().retain(|path| *path != self.0);
    }
}

/// Paths of this process that are removed at its end.
static TEMPORARY: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn temporary() -> MutexGuard<'static, Vec<PathBuf>> {
    TEMPORARY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes all temporary directories of a process that is about to end.
pub(crate) fn remove_temporary() {
    for path in temporary().drain(..) {
        let _ = fs::remove_dir_all(path);
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        durability: DurabilityArguments,
    }

    fn of_job(state_dir: Option<&str>, options: &[&str]) -> Result<Option<StateDirectory>> {
        let line = Line::parse_from([&["libra"], options].concat());
        StateDirectory::of_job(state_dir.map(Path::new), false, &line.durability)
    }

    #[test]
    fn checkpoints_at_a_url_have_a_temporary_directory() {
        for state_dir in [None, Some("none")] {
            let found = of_job(state_dir, &["--checkpoints", "s3://b/run", "--resume", "s3://b/run"]);
            let Some(StateDirectory::Temporary(directory)) = found.unwrap() else { panic!("{state_dir:?}") };
            let path = directory.path().to_owned();
            fs::write(path.join("checkpoint"), "rows").unwrap();
            drop(directory);
            assert!(!path.exists());
            let error = of_job(state_dir, &["--checkpoints", "s3://b/run", "--log"]).unwrap_err().to_string();
            assert!(error.starts_with("--log, --checkpoints need --state-dir DIR"), "{error}");
            let error = of_job(state_dir, &["--checkpoint-every", "9"]).unwrap_err().to_string();
            assert!(error.starts_with("--checkpoint-every needs --state-dir DIR"), "{error}");
            assert!(of_job(state_dir, &[]).unwrap().is_none());
        }
    }

    #[test]
    fn directories_that_are_given_are_kept() {
        let path = |state_dir, options: &[&str]| {
            of_job(state_dir, options).unwrap().map(|found| found.path().to_owned())
        };
        assert_eq!(path(Some("run"), &["--checkpoints", "s3://b/run"]), Some("run".into()));
        assert_eq!(path(Some("./none"), &[]), Some("./none".into()));
        assert_eq!(path(None, &["--resume", "run@7"]), Some("run".into()));
        let error = given(Some(Path::new("none")), true).unwrap_err().to_string();
        assert!(error.starts_with("--memory-limit needs"), "{error}");
    }
}
