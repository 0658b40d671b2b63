//! Interfaces of the machine, and runs of datagrams over loopback.

mod ethtool;
mod judge;
mod read;

pub(crate) use self::judge::{judge, judge_runs};
pub(crate) use self::read::{read, run_over_loopback};
use crate::finding::Unseen;

/// Facts of an interface.
#[derive(Debug, Clone)]
pub(crate) struct Nic {
    /// Its name.
    pub(crate) name: String,
    /// The kernel's driver; none if it is virtual.
    pub(crate) driver: Option<String>,
    /// Megabits a second.
    pub(crate) speed: Result<u64, Unseen>,
    /// Bytes of a packet.
    pub(crate) mtu: Result<u64, Unseen>,
    /// Its node of memory; none where there is one.
    pub(crate) node: Option<u64>,
    /// Queues of received packets.
    pub(crate) queues: Result<Queues, Unseen>,
    /// Offloads that are on, by the kernel's names.
    pub(crate) features: Result<Vec<String>, Unseen>,
    /// Rings of received packets.
    pub(crate) rings: Result<Rings, Unseen>,
    /// Microseconds for which it keeps packets back, so that one interrupt does for many.
    pub(crate) coalescing: Result<u32, Unseen>,
    /// The ports of UDP decide the queue of a packet.
    pub(crate) hashes_ports: Result<bool, Unseen>,
    /// Its driver runs XDP programs.
    pub(crate) native_xdp: Result<bool, Unseen>,
}

/// Queues of received packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Queues {
    /// Those of the device.
    pub(crate) count: usize,
    /// The kernel spreads what comes over cores (RPS).
    pub(crate) are_spread: bool,
}

/// Sizes of rings, in packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rings {
    /// As it is.
    pub(crate) now: u32,
    /// As it may be.
    pub(crate) most: u32,
}

/// A run of datagrams that was sent over loopback in one call.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    /// Datagrams in it.
    pub(crate) sent: usize,
    /// Most datagrams that came in one piece.
    pub(crate) merged: Result<usize, Unseen>,
}

#[cfg(test)]
mod tests;
