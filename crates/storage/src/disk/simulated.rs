//! A disk in memory that crashes, fills up, fails and rots on demand.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use libra_store::SplitMix64;

use super::{Disk, DiskError, Entry, Operation};

mod file;
mod tree;

use file::SimulatedFile;
use tree::Tree;

/// A disk in memory whose failures follow from a seed and from its settings, and from nothing else.
///
/// [`crash`](Self::crash) loses data that no sync has made durable, as a real disk may:
/// - of a file, any last part of what was appended since its last sync; of what is left, each sector may be as
///   written, zeros or noise. Bytes that were synced stay, even in a sector that more was written to later.
/// - of a directory, any of the names made, renamed or removed since its last sync. A rename is one thing.
/// - a cut of a file below its synced length is done or not, or undone only behind bytes that were appended after it.
///
/// After a sync that failed ([`fail_syncs`](Self::fail_syncs)), the bytes that it was about are read as if nothing
/// had happened, a later sync succeeds, and they are zeros after a crash: Linux does that. A disk that is
/// [set to](Self::keep_after_failed_syncs) keeps them, so that the next sync writes them: other systems do that.
///
/// Clones share the disk; [`fork`](Self::fork) makes another one. It is as fast as copying memory.
#[derive(Debug, Clone)]
pub struct SimulatedDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Clone)]
struct State {
    tree: Tree,
    random: SplitMix64,
    sector_bytes: usize,
    capacity: Option<u64>,
    operations: u64,
    crash_at: Option<u64>,
    crashed: bool,
    syncs: u64,
    failing_syncs: Range<u64>,
    keeps_after_failed_syncs: bool,
    /// Syncs of directories that will fail.
    failing_directory_syncs: u64,
}

impl SimulatedDisk {
    /// An empty disk.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::of(State {
            tree: Tree::new(),
            random: SplitMix64::new(seed),
            sector_bytes: 512,
            capacity: None,
            operations: 0,
            crash_at: None,
            crashed: false,
            syncs: 0,
            failing_syncs: 0..0,
            keeps_after_failed_syncs: false,
            failing_directory_syncs: 0,
        })
    }

    fn of(state: State) -> Self {
        Self { state: Arc::new(Mutex::new(state)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another disk that is in every respect as this one is now.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self::of(self.state().clone())
    }

    /// Sets the unit that is written whole or not at all; the default is 512 bytes.
    pub fn set_sector_bytes(&self, bytes: usize) {
        self.state().sector_bytes = bytes.max(1);
    }

    /// Sets the most bytes that all files together may have; `None` lifts the limit. Bytes that do not fit are refused after
    /// the part that does was written.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state().capacity = bytes;
    }

    /// Returns the number of bytes of all files together.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.state().tree.used()
    }

    /// Returns the number of operations so far that change something.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// Lets the machine stop before the operation of this number (from 0): that one and all after it fail, until
    /// [`crash`](Self::crash) is called.
    pub fn crash_at(&self, operation: u64) {
        self.state().crash_at = Some(operation);
    }

    /// Returns true if the machine has stopped.
    #[must_use]
    pub fn has_crashed(&self) -> bool {
        self.state().crashed
    }

    /// Returns the number of syncs of files so far.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.state().syncs
    }

    /// Lets the syncs of files with these numbers (from 0) fail.
    pub fn fail_syncs(&self, numbers: Range<u64>) {
        self.state().failing_syncs = numbers;
    }

    /// Sets that a sync that fails leaves its bytes to the next one, rather than to forget them.
    pub fn keep_after_failed_syncs(&self, keeps: bool) {
        self.state().keeps_after_failed_syncs = keeps;
    }

    /// Lets so many next syncs of directories fail. A later one makes the names durable.
    pub fn fail_directory_syncs(&self, count: u64) {
        self.state().failing_directory_syncs = count;
    }

    /// The machine stops, if it has not yet, and starts again; the seed decides what is lost.
    pub fn crash(&self) {
        let state = &mut *self.state();
        let mut random = state.random.clone();
        state.crash(&mut |options| pick(&mut random, options));
        state.random = random;
    }

    /// As [`crash`](Self::crash), with every decision left to the caller: `choose(n)` is a number below `n`.
    /// Always 0 loses all that may be lost.
    pub fn crash_with(&self, choose: &mut dyn FnMut(usize) -> usize) {
        self.state().crash(choose);
    }

    /// Turns over one bit of a file, wherever it is.
    ///
    /// # Panics
    /// There is no such file, or it is shorter.
    pub fn flip_bit(&self, name: &str, offset: u64, bit: u32) {
        let state = &mut *self.state();
        let file = state.tree.file_mut(name).expect("only bits of files that are there rot");
        file.flip_bit(usize::try_from(offset).expect("no longer than memory"), bit);
    }

    /// Makes a file whose bytes are these, durable.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        self.state().tree.put(name, SimulatedFile::durable(bytes));
    }

    /// Runs an operation that changes something, unless the machine stops.
    fn change<T>(
        &self,
        operation: Operation,
        name: &str,
        act: impl FnOnce(&mut State) -> io::Result<T>,
    ) -> Result<T, DiskError> {
        let state = &mut *self.state();
        state.crashed |= state.crash_at == Some(state.operations);
        state.operations += 1;
        let result = if state.crashed { Err(crashed()) } else { act(state) };
        result.map_err(|cause| DiskError { operation, path: name.to_owned(), cause })
    }

    fn look<T>(
        &self,
        operation: Operation,
        name: &str,
        act: impl FnOnce(&State) -> io::Result<T>,
    ) -> Result<T, DiskError> {
        let state = &*self.state();
        let result = if state.crashed { Err(crashed()) } else { act(state) };
        result.map_err(|cause| DiskError { operation, path: name.to_owned(), cause })
    }
}

fn crashed() -> io::Error {
    io::Error::other("the simulated machine has stopped")
}

/// A number below `options`.
fn pick(random: &mut SplitMix64, options: usize) -> usize {
    usize::try_from(random.below(options.max(1) as u64)).expect("below a usize")
}

impl State {
    fn crash(&mut self, choose: &mut dyn FnMut(usize) -> usize) {
        self.tree.crash(self.sector_bytes, choose);
        self.crashed = false;
        self.crash_at = None;
    }
}

impl Disk for SimulatedDisk {
    fn create(&self, name: &str) -> Result<(), DiskError> {
        self.change(Operation::Create, name, |state| state.tree.create(name))
    }

    fn create_directory(&self, name: &str) -> Result<(), DiskError> {
        self.change(Operation::CreateDirectory, name, |state| state.tree.create_directory(name))
    }

    fn append(&self, name: &str, bytes: &[u8]) -> Result<(), DiskError> {
        self.change(Operation::Append, name, |state| {
            let room = state.capacity.map_or(u64::MAX, |capacity| capacity.saturating_sub(state.tree.used()));
            let fits = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
            state.tree.append(name, &bytes[..fits])?;
            if fits < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
        })
    }

    fn truncate(&self, name: &str, bytes: u64) -> Result<(), DiskError> {
        self.change(Operation::Truncate, name, |state| state.tree.truncate(name, bytes))
    }

    fn sync(&self, name: &str) -> Result<(), DiskError> {
        self.change(Operation::Sync, name, |state| {
            let fails = state.failing_syncs.contains(&state.syncs);
            state.syncs += 1;
            let keeps = state.keeps_after_failed_syncs;
            let file = state.tree.file_mut(name)?;
            if fails {
                if !keeps {
                    file.forget_unsynced();
                }
                return Err(io::Error::other("the simulated disk could not write"));
            }
            file.sync();
            Ok(())
        })
    }

    fn close(&self, _name: &str) {}

    fn bytes(&self, name: &str) -> Result<u64, DiskError> {
        self.look(Operation::Measure, name, |state| Ok(state.tree.file(name)?.data().len() as u64))
    }

    fn read(&self, name: &str, offset: u64, buffer: &mut [u8]) -> Result<usize, DiskError> {
        self.look(Operation::Read, name, |state| {
            let data = state.tree.file(name)?.data();
            let start = usize::try_from(offset).unwrap_or(usize::MAX).min(data.len());
            let count = buffer.len().min(data.len() - start);
            buffer[..count].copy_from_slice(&data[start..start + count]);
            Ok(count)
        })
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        self.change(Operation::Rename, from, |state| state.tree.rename(from, to))
    }

    fn remove(&self, name: &str) -> Result<(), DiskError> {
        self.change(Operation::Remove, name, |state| state.tree.remove(name))
    }

    fn list(&self, directory: &str) -> Result<Vec<Entry>, DiskError> {
        self.look(Operation::List, directory, |state| state.tree.list(directory))
    }

    fn sync_directory(&self, directory: &str) -> Result<(), DiskError> {
        self.change(Operation::SyncDirectory, directory, |state| {
            if let Some(left) = state.failing_directory_syncs.checked_sub(1) {
                state.failing_directory_syncs = left;
                return Err(io::Error::other("the simulated disk could not write"));
            }
            state.tree.sync_directory(directory)
        })
    }
}

/// The contents of the whole disk, by name, as a reader would see them.
impl SimulatedDisk {
    /// All files with their bytes, those of directories with both names.
    #[must_use]
    pub fn contents(&self) -> BTreeMap<String, Vec<u8>> {
        self.state().tree.contents()
    }
}

#[cfg(test)]
mod tests;
