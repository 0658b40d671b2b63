//! Packets that a round or a region has taken.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// For flows of a region, exactly which sequence numbers it has taken so far. A flow that is not in it has nothing new: in that of a
/// round no packet of the round, in that of a region no packet at all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundContents {
    /// By worker.
    pub flows: BTreeMap<u16, AckedSet>,
}

impl RoundContents {
    /// Makes the contents of a region those of one round later.
    pub fn advance(&mut self, round: Self) {
        self.flows.extend(round.flows);
    }

    /// A worker's flow restarts: nothing of it was taken.
    pub(crate) fn begin_flow(&mut self, worker: u16) {
        self.flows.remove(&worker);
    }

    pub(crate) fn bytes_about(&self) -> usize {
        self.flows.values().map(|flow| 10 + 10 * flow.above.len()).sum()
    }
}

/// The sequence numbers that were taken of one flow.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AckedSet {
    /// Every sequence number below this one.
    pub below: u32,
    /// And these runs above it: first and count, ascending.
    pub above: Vec<(u32, u32)>,
}
