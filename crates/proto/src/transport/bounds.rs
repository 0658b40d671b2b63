//! Bounds of the packets of a worker that may be open.

use crate::cluster::HotPath;

/// Number of packets that a worker sends without an answer, and keeps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// On their way to one switch (rule T3).
    pub(crate) in_flight: u32,
    /// Of one flow, not durable (rule T2).
    pub(crate) undurable: u32,
}

impl Bounds {
    pub(crate) fn of(hot_path: &HotPath) -> Self {
        Self { in_flight: hot_path.packets_in_flight_max, undurable: hot_path.undurable_max() }
    }
}
