//! Durability of a job.

use core::time::Duration;

use serde::{Deserialize, Serialize};

/// Durability of a job: the state that servers keep on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Durability {
    /// Servers write to a log what they apply, and answer when it is on the disk: then a server that dies loses nothing.
    pub log: bool,
    /// Interval of checkpoints; none: never, nor at the end of the job.
    pub checkpoint_every: Option<Duration>,
    /// Moments at which there may be one.
    pub checkpoint_at: CheckpointAt,
    /// A checkpoint is also made when the log of a server has grown by this many bytes since the one before.
    pub log_bytes_max: u64,
    /// Number of checkpoints that each server keeps.
    pub keep: u16,
    /// Number of checkpoints between two full ones that hold only changes.
    pub increments: u16,
    /// A server writes no more of a checkpoint in a second while it serves.
    pub checkpoint_bytes_per_second: u64,
    /// The checkpoint that rows begin with.
    pub load: Option<Load>,
    /// The URL that servers upload checkpoints to.
    pub upload: Option<Upload>,
}

/// A place of checkpoints besides the disks of servers, where they count when the process of the controller has committed them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upload {
    /// Its URL, without secrets.
    pub url: String,
    /// The number by which the job owns it.
    pub owner: u64,
    /// The newest checkpoint that is there when the job begins: those of the job have higher numbers.
    pub above: u64,
}

/// Moments of checkpoints.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckpointAt {
    /// Any: a job that resumes does chunks again that were under way.
    #[default]
    Steps,
    /// Moments at which no chunk of the work is under way: workers wait until servers have begun it (rule K7).
    Chunks,
}

/// A checkpoint of another job, or of an earlier run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// The data directory that it is in, as servers see it.
    pub directory: String,
    /// Its number.
    pub number: u64,
    /// The number of the first checkpoint of this job, if it resumes the one of that checkpoint: above all in that directory, which it may go
    /// on in (rule K8).
    pub resumes_with: Option<u64>,
}

impl Durability {
    /// Nothing is kept.
    pub const NONE: Self = Self {
        log: false,
        checkpoint_every: None,
        checkpoint_at: CheckpointAt::Steps,
        log_bytes_max: 4 << 30,
        keep: 2,
        increments: 0,
        checkpoint_bytes_per_second: 64_000_000,
        load: None,
        upload: None,
    };

    /// Returns true if servers need a disk.
    pub fn needs_disk(&self) -> bool {
        self.log || self.checkpoint_every.is_some() || self.load.is_some()
    }

    /// Returns the checkpoint at which the job resumes, if it does.
    pub fn resumed(&self) -> Option<&Load> {
        self.load.as_ref().filter(|load| load.resumes_with.is_some())
    }

    /// Returns the number of the checkpoint that a shard with a disk begins with: without it, it could not be started again.
    pub fn first_checkpoint(&self) -> u64 {
        let above = self.upload.as_ref().map_or(0, |upload| upload.above);
        let resumed = self.resumed().and_then(|load| load.resumes_with).unwrap_or(1);
        above.saturating_add(1).max(resumed)
    }
}
