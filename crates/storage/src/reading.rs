//! A shard while it is read from its disk, for another thread to look at.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use libra_proto::{Restored, Restoring};

use crate::checkpoint::{Checkpoints, Manifest, Outline};
use crate::disk::{Disk, DiskError, RealDisk};
use crate::wal::segments;

/// Progress of [`restore`](crate::restore).
#[derive(Debug, Clone)]
pub struct Reading {
    begins: Restoring,
    /// Bytes that were read before it began, and all by now.
    before: u64,
    counted: Arc<AtomicU64>,
}

impl Reading {
    /// For a shard that is about to be read; `None` if there is no checkpoint that tells whose it is.
    ///
    /// # Errors
    /// The disk refused.
    pub(crate) fn of(disk: &RealDisk) -> Result<Option<Self>, DiskError> {
        let begins = restoring(disk.clone())?;
        let counted = disk.bytes_read();
        let before = counted.load(Ordering::Relaxed);
        Ok(begins.map(|begins| Self { begins, before, counted }))
    }

    /// Returns how much is read by now. A checkpoint is read twice: it is compared with its checksums before its rows are taken.
    pub fn progress(&self) -> Restoring {
        let read = self.counted.load(Ordering::Relaxed) - self.before;
        // If a checkpoint is damaged, an older one is read besides.
        Restoring { read, total: self.begins.total.max(read), ..self.begins }
    }
}

/// The progress of a shard of which nothing is read yet; `None` if there is no checkpoint that tells whose it is.
///
/// # Errors
/// The disk refused.
pub fn restoring<D: Disk + Clone>(disk: D) -> Result<Option<Restoring>, DiskError> {
    let Some(Outline { manifests, state }) = Checkpoints::new(disk.clone()).newest_outline()? else {
        return Ok(None);
    };
    let whose = Restored::whose(&state);
    let total = bytes_ahead(&disk, &manifests);
    Ok(whose.map(|(instance, server)| Restoring { instance, server, read: 0, total }))
}

/// The bytes that are read of a checkpoint with all that it builds on, and of the log after it.
fn bytes_ahead(disk: &impl Disk, manifests: &[Manifest]) -> u64 {
    let of_checkpoint: u64 = manifests.iter().map(Manifest::bytes).sum();
    let from = manifests.last().map(|manifest| manifest.description.covers.next());
    // A log that cannot be read is refused later, in words.
    let segments = segments(disk).unwrap_or_default();
    let needed = segments.partition_point(|segment| Some(segment.first) <= from).saturating_sub(1);
    let of_log: u64 = segments.iter().skip(needed).map(|segment| segment.bytes).sum();
    2 * of_checkpoint + of_log
}
