//! Assignment of the windows of a region: windows are of workers that are there, and numbers of all that ever were.

use std::collections::BTreeMap;

/// The same in all regions of a plane.
#[derive(Debug, Clone, Default)]
pub(super) struct Places {
    /// The worker at each place.
    workers: Vec<Option<u16>>,
    of: BTreeMap<u16, u16>,
}

impl Places {
    /// Returns the number of windows that a region needs.
    pub(super) fn windows(&self) -> u16 {
        u16::try_from(self.workers.len()).expect("workers are numbered by u16").max(1)
    }

    pub(super) fn of(&self, worker: u16) -> Option<u16> {
        self.of.get(&worker).copied()
    }

    pub(super) fn worker(&self, place: u16) -> Option<u16> {
        self.workers.get(usize::from(place)).copied().flatten()
    }

    /// The workers that have one, ascending.
    pub(super) fn workers(&self) -> impl Iterator<Item = u16> {
        self.of.keys().copied()
    }

    /// The first place that is free, for a worker that has none.
    pub(super) fn give(&mut self, worker: u16) -> u16 {
        let free = self.workers.iter().position(Option::is_none);
        let place = free.unwrap_or_else(|| {
            self.workers.push(None);
            self.workers.len() - 1
        });
        self.workers[place] = Some(worker);
        let place = u16::try_from(place).expect("workers are numbered by u16");
        let before = self.of.insert(worker, place);
        assert_eq!(before, None, "worker {worker} has a place already");
        place
    }

    /// A place is free again. Its windows must be empty.
    pub(super) fn free(&mut self, worker: u16) {
        if let Some(place) = self.of.remove(&worker) {
            self.workers[usize::from(place)] = None;
        }
    }
}
