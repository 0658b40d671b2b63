//! The memory limit of a server: rows beyond it lie in a file, and a failure of that file ends the server.

use libra_store::{BlockFile, LimitTooLow, StoreFault};

use super::{Server, ServerEvent};
use crate::server::shard::Shard;

/// Memory that the rows of a shard may take, and the file for the others.
#[derive(Debug)]
pub struct MemoryLimit {
    /// Bytes of rows and their indexes.
    pub bytes: usize,
    /// Shards among which the limit of the process is divided.
    pub process_shards: u16,
    /// The file.
    pub file: Box<dyn BlockFile>,
}

impl Clone for MemoryLimit {
    fn clone(&self) -> Self {
        panic!("a server with a memory limit has no copy: its file is of one store")
    }
}

/// Describes a failure of a store for a person, who has set the limit of a process.
pub(super) fn describe(fault: &StoreFault, process_shards: u16) -> String {
    match fault {
        StoreFault::Limit(LimitTooLow { needed, .. }) => {
            let mib = needed.saturating_mul(process_shards.into()).div_ceil(1 << 20);
            format!("{fault}; for {process_shards} such shards --memory-limit must be {mib}MiB at least")
        }
        fault => fault.to_string(),
    }
}

impl Shard {
    /// The reason for which its rows mean nothing any more, if there is one.
    pub(super) fn store_fault(&self) -> Option<String> {
        self.store.fault().map(|fault| describe(fault, self.process_shards))
    }
}

impl Server {
    /// Returns true if nothing may leave any more: it would rest on rows that are not what they were. Replies that are not sent and records
    /// that are not written were acknowledged to no worker.
    pub(super) fn has_failed(&self) -> bool {
        self.shard.as_ref().is_some_and(|shard| shard.store.fault().is_some())
    }

    /// The failure of the store, once.
    pub(super) fn poll_failure(&mut self) -> Option<ServerEvent> {
        if std::mem::replace(&mut self.failure_reported, true) {
            return None;
        }
        let shard = self.shard.as_ref()?;
        let reason = format!("server {}: {}", shard.number, shard.store_fault()?);
        Some(ServerEvent::StoreFailed { reason })
    }

    /// Reports that the disk has no room for rows, or has room again.
    pub(super) fn report_full_disk(&mut self) {
        let Some(shard) = &self.shard else { return };
        let is_full = shard.store.disk_counts().is_full;
        if std::mem::replace(&mut self.disk_is_full, is_full) != is_full {
            let event = if is_full { ServerEvent::MemoryLimitExceeded } else { ServerEvent::MemoryLimitKept };
            self.events.push_back(event);
        }
    }
}
