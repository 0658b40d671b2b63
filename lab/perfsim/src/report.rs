//! What comes of a simulation.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::costs::Work;

/// Who did what.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Usage {
    /// Share of its time that one of them was busy, of all of a kind.
    pub mean: f64,
    /// Of the one that was busy most.
    pub most: f64,
    /// Nanoseconds of all of them for each pair.
    #[serde(rename = "ns_per_row")]
    pub ns_per_pair: f64,
}

/// What a link carried.
#[derive(Debug, Clone, Default, Serialize)]
pub struct LinkUsage {
    /// Bytes and packets a second, of all machines.
    pub bytes_per_second: f64,
    /// See above.
    pub packets_per_second: f64,
    /// Packets that were lost behind it, of datagrams and of streams.
    pub packets_lost: u64,
    /// Share of its time that the busiest one was busy.
    pub most: f64,
}

/// What came of a simulation.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Updates of rows that were pushed and accepted, and the time in which they were.
    #[serde(rename = "rows")]
    pub pairs: u64,
    /// See above.
    pub seconds: f64,
    /// The same, each second.
    #[serde(rename = "rows_per_second")]
    pub pairs_per_second: f64,
    /// Pushes, likewise.
    pub pushes_per_second: f64,
    /// From the begin of a push to its end: median and 99%.
    pub latency_us: [f64; 2],
    /// Roles, by kind.
    pub roles: BTreeMap<&'static str, Usage>,
    /// Cores of each machine that were busy, of those it has: the most.
    pub cores_most: f64,
    /// Links from machines, and to them.
    pub up: LinkUsage,
    /// See above.
    pub down: LinkUsage,
    /// Streams on which servers got messages while it was measured.
    pub connections: usize,
    /// Pairs that went to servers as messages of workers, of all: by bytes of messages against keys.
    #[serde(rename = "bytes_to_servers_per_row")]
    pub bytes_to_servers_per_pair: f64,
    /// Bytes that were dropped because a queue was full.
    pub bytes_dropped: u64,
    /// Things that happened.
    pub steps: u64,
    /// What each kind of role did while it was measured, for each pair.
    #[serde(skip)]
    pub work_per_pair: BTreeMap<&'static str, Work>,
}
