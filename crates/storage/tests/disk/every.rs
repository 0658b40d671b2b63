//! Common parts of several tests of this crate: all choices of a small case, and disks with a planted bug.

use libra_storage::disk::{Disk, DiskError, Entry, SimulatedDisk};

/// Walks through all sequences of choices, however many there are of them and whatever they depend on.
#[derive(Default)]
pub(crate) struct Every {
    /// The choices made, and the number of alternatives of each.
    path: Vec<(usize, usize)>,
    at: usize,
    begun: bool,
}

impl Every {
    /// Goes on to the next sequence; false if there is none.
    pub(crate) fn next(&mut self) -> bool {
        self.at = 0;
        if !std::mem::replace(&mut self.begun, true) {
            return true;
        }
        while let Some((chosen, options)) = self.path.last_mut() {
            *chosen += 1;
            if chosen < options {
                return true;
            }
            self.path.pop();
        }
        false
    }

    pub(crate) fn choose(&mut self, options: usize) -> usize {
        if self.at == self.path.len() {
            self.path.push((0, options));
        }
        self.at += 1;
        self.path[self.at - 1].0
    }

    /// As `choose`, but of many options only a few: the first and the last ones, and one between.
    pub(crate) fn choose_coarsely(&mut self, options: usize) -> usize {
        if options <= 5 {
            return self.choose(options);
        }
        [0, 1, options / 2, options - 2, options - 1][self.choose(5)]
    }
}

/// Bugs of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bug {
    /// `sync` returns success without a sync.
    Sync,
    /// `sync_directory` returns success without a sync.
    SyncDirectory,
    /// `truncate` returns success without a cut.
    Truncate,
    /// `sync` is tried again when it failed, and returns the result of the second try.
    SyncRetried,
}

/// A disk with a bug, to show that the tests would find one.
#[derive(Clone)]
pub(crate) struct Planted {
    pub(crate) disk: SimulatedDisk,
    pub(crate) bug: Option<Bug>,
}

impl Disk for Planted {
    fn create(&self, name: &str) -> Result<(), DiskError> {
        self.disk.create(name)
    }
    fn create_directory(&self, name: &str) -> Result<(), DiskError> {
        self.disk.create_directory(name)
    }
    fn append(&self, name: &str, bytes: &[u8]) -> Result<(), DiskError> {
        self.disk.append(name, bytes)
    }
    fn truncate(&self, name: &str, bytes: u64) -> Result<(), DiskError> {
        if self.bug == Some(Bug::Truncate) { Ok(()) } else { self.disk.truncate(name, bytes) }
    }
    fn sync(&self, name: &str) -> Result<(), DiskError> {
        match self.bug {
            Some(Bug::Sync) => Ok(()),
            Some(Bug::SyncRetried) => self.disk.sync(name).or_else(|_| self.disk.sync(name)),
            _ => self.disk.sync(name),
        }
    }
    fn close(&self, name: &str) {
        self.disk.close(name);
    }
    fn bytes(&self, name: &str) -> Result<u64, DiskError> {
        self.disk.bytes(name)
    }
    fn read(&self, name: &str, offset: u64, buffer: &mut [u8]) -> Result<usize, DiskError> {
        self.disk.read(name, offset, buffer)
    }
    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        self.disk.rename(from, to)
    }
    fn remove(&self, name: &str) -> Result<(), DiskError> {
        self.disk.remove(name)
    }
    fn list(&self, directory: &str) -> Result<Vec<Entry>, DiskError> {
        self.disk.list(directory)
    }
    fn sync_directory(&self, directory: &str) -> Result<(), DiskError> {
        if self.bug == Some(Bug::SyncDirectory) { Ok(()) } else { self.disk.sync_directory(directory) }
    }
}
