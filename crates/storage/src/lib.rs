//! What a server asks of its disk ([`StorageRequest`](libra_proto::StorageRequest)), carried out with the log and the
//! checkpoints of [`libra_durable`], on any disk.
//!
//! It never decides when something is written, which is for the server, nor on which thread, which is for its driver: all calls wait
//! for the disk. `libra-net` gives the log and the checkpoints a thread each, and the simulator calls both in virtual time.
//!
//! ```text
//!   server ── Append, TrimLog, RestartLog ──▶ ShardLog ─────────▶ log-*.libra          ┐
//!          ── Begin, Rows, Finish ──────────▶ ShardCheckpoints ─▶ checkpoint-<n>/      ├ DIR/shard-<n>/
//!          ◀─ Restored ────────────────────── restore ◀───────────────────────────────  ┘
//! ```
//!
//! A shard whose process ends, and the one after it:
//!
//! ```
//! use libra_durable::disk::SimulatedDisk;
//! use libra_proto::{Cluster, Durability, HotPath, Instant, Peer, Role, Server};
//! use libra_storage::{ShardLog, restore};
//!
//! let disk = SimulatedDisk::new(1);
//! // Nothing was ever written there: whoever starts a server there joins a job as a new one.
//! assert!(restore(disk.clone())?.is_none());
//!
//! let mut log = ShardLog::begin(disk.clone(), 7, 0)?;
//! log.append(1, b"what a push brought")?;
//! assert_eq!(log.sync()?, Some(1));
//! assert_eq!(log.sync()?, None);
//! disk.crash();
//!
//! // A log without the checkpoint that it goes on from cannot be understood, and is not passed over.
//! assert!(restore(disk).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod checkpoints;
mod load;
mod log;
mod place;
mod restore;

pub use checkpoints::ShardCheckpoints;
pub use load::{Complete, LoadError, complete, load};
pub use log::ShardLog;
pub use place::{Found, PlaceError, find, shard_directory};
pub use restore::{Recovered, RestoreFailure, restore};
