//! The lock of a directory: one process writes there, and others learn which. The system takes it from a process that ends, in whichever
//! way.

use std::fs::{File, OpenOptions, TryLockError, read_to_string};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::real::FILE_MODE;

/// Locked by the process that writes. Its text names that process, and outlives it.
const LOCK: &str = "lock";
/// Longest name of a process that is believed.
const HOLDER_CHARACTERS_MAX: usize = 200;

/// Locks a directory until the file is closed.
///
/// # Errors
/// The file cannot be opened, or, as [`io::ErrorKind::ResourceBusy`], another handle has the lock.
pub(super) fn lock(directory: &Path) -> io::Result<File> {
    let path = directory.join(LOCK);
    let mut file = OpenOptions::new().create(true).truncate(false).write(true).mode(FILE_MODE).open(path)?;
    file.try_lock().map_err(|error| match error {
        TryLockError::Error(error) => error,
        TryLockError::WouldBlock => {
            let holder = holder(directory).unwrap_or_else(|| "it did not leave its name".to_owned());
            io::Error::new(io::ErrorKind::ResourceBusy, format!("another process writes there: {holder}"))
        }
    })?;
    // On a full disk the lock has no name, and holds all the same.
    let _ = file.set_len(0).and_then(|()| file.write_all(this_process().as_bytes()));
    Ok(file)
}

/// Returns the name of the process that locked a directory last.
pub(crate) fn holder(directory: &Path) -> Option<String> {
    let text = read_to_string(directory.join(LOCK)).ok()?;
    let is_name = !text.is_empty() && !text.contains(char::is_control);
    is_name.then(|| text.chars().take(HOLDER_CHARACTERS_MAX).collect())
}

/// The number of a process is one of its machine or container, and directories may be shared among those.
fn this_process() -> String {
    let process = format!("process {}", std::process::id());
    match read_to_string("/proc/sys/kernel/hostname") {
        Ok(host) => format!("{process} on {}", host.trim_end()),
        Err(_) => process,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_handle_learns_who_has_the_lock() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(holder(directory.path()), None);
        let first = lock(directory.path()).unwrap();
        let error = lock(directory.path()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
        let name = format!("process {}", std::process::id());
        assert!(error.to_string().contains(&name), "{error}");
        drop(first);
        // The name of a longer one before it is gone.
        std::fs::write(directory.path().join(LOCK), "process 1 on a host with a very long name".repeat(3))
            .unwrap();
        let _second = lock(directory.path()).unwrap();
        assert_eq!(holder(directory.path()), Some(this_process()));
    }

    #[test]
    fn text_that_is_no_name_is_not_repeated() {
        let directory = tempfile::tempdir().unwrap();
        for text in ["", "process 1\nlibra: all is well", "\u{1b}[2J"] {
            std::fs::write(directory.path().join(LOCK), text).unwrap();
            assert_eq!(holder(directory.path()), None);
        }
    }
}
