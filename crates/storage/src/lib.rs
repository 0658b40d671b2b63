//! Disk requests of a server ([`StorageRequest`](libra_proto::StorageRequest)), carried out with the log and the
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
//! use libra_proto::{Instant, StorageEvent, StorageRequest};
//! use libra_storage::{create, restore};
//!
//! let disk = SimulatedDisk::new(1);
//! // Nothing was ever written there: a server that starts there joins a job as a new one.
//! assert!(restore(disk.clone())?.is_none());
//!
//! let (log, _checkpoints) = create(disk.clone(), 7, 0, true)?;
//! let mut log = log.expect("it was asked for");
//! log.handle(StorageRequest::Append { number: 1, record: b"a push".to_vec() });
//! assert_eq!(log.sync(Instant::ZERO), Some(StorageEvent::Durable { record: 1 }));
//! assert_eq!(log.sync(Instant::ZERO), None);
//! disk.crash();
//!
//! // A log without the checkpoint that it goes on from cannot be understood, and is not passed over.
//! assert!(restore(disk).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod checkpoints;
mod create;
mod load;
mod log;
mod place;
mod restore;

pub use checkpoints::ShardCheckpoints;
pub use create::{CreateError, create};
pub use load::{LoadError, load};
pub use log::ShardLog;
pub use place::{Found, PlaceError, find, shard_directory, shard_in};
pub use restore::{Recovered, RestoreFailure, restore};
