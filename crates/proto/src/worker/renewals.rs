//! Flows of pushes that have used up their numbers, until they restart.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::View;

/// A flow of pushes of a worker that can restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Renewal {
    pub(crate) region: u8,
    /// The view in which it began, 0 if that was with the worker.
    pub(crate) view_id: u64,
}

/// The flows of a worker that have no numbers left (rule T18).
#[derive(Debug, Clone)]
pub(crate) struct Renewals {
    worker: u16,
    /// Their packets are not all durable.
    ended: BTreeSet<u8>,
    /// Flows that were reported to the controller.
    asked: BTreeMap<u8, u64>,
    /// The view in which each flow that has restarted did so last.
    begun: BTreeMap<u8, u64>,
}

impl Renewals {
    pub(crate) fn new(worker: u16) -> Self {
        Self { worker, ended: BTreeSet::new(), asked: BTreeMap::new(), begun: BTreeMap::new() }
    }

    /// The flow of a region has no number for another packet.
    pub(crate) fn note_end(&mut self, region: u8) {
        if !self.asked.contains_key(&region) {
            self.ended.insert(region);
        }
    }

    /// The flows that have ended, and were not reported to the controller.
    pub(crate) fn ended(&self) -> impl Iterator<Item = u8> {
        self.ended.iter().copied()
    }

    /// Notes that a flow is reported to the controller.
    pub(crate) fn ask(&mut self, region: u8) -> Renewal {
        let view_id = self.begun.get(&region).copied().unwrap_or_default();
        self.ended.remove(&region);
        self.asked.insert(region, view_id);
        Renewal { region, view_id }
    }

    /// Returns the reports to the controller.
    pub(crate) fn asked(&self) -> impl Iterator<Item = Renewal> {
        self.asked.iter().map(|(&region, &view_id)| Renewal { region, view_id })
    }

    /// Returns true if a flow that was asked for restarts with this view.
    pub(crate) fn restarts(&mut self, region: u8, view: &View) -> bool {
        let view_id = view.flow(region, self.worker);
        let begins = self.asked.get(&region).is_some_and(|before| *before < view_id);
        if begins {
            self.asked.remove(&region);
            self.begun.insert(region, view_id);
        }
        begins
    }
}
