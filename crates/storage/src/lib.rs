//! The disks of servers: a write-ahead log, checkpoints, and what a server asks of both, on any disk that keeps what it was asked to sync.
//!
//! Operations since the last checkpoint of a shard are in the log, its state before that is in the checkpoint. [`disk`], [`wal`] and
//! [`checkpoint`] hold formats and algorithms: they know bytes and columns of rows, no shard, packet or message. The rest carries out
//! [`StorageRequest`](libra_proto::StorageRequest)s with them. Nothing here decides when something is written, which is for the server,
//! nor on which thread, which is for its driver: all calls wait for the disk. `libra-net` gives the log and the checkpoints a thread
//! each, the simulator calls both in virtual time. Durable data that is damaged is never dropped or changed: errors name the file, the
//! place and the remedy. Nothing that a crash could undo is reported as durable.
//!
//! ```text
//!   server ── Append, TrimLog, RestartLog ──▶ ShardLog ─────────▶ wal ────────┐           ┌ log-*.libra
//!          ── Begin, Rows, Finish ──────────▶ ShardCheckpoints ─▶ checkpoint ─┼─▶ disk ──▶│ checkpoint-<n>/manifest.json, *.safetensors
//!          ◀─ Restored ────────────────────── restore ◀───────────────────────┘  Real,    └ in DIR/shard-<n>/
//!                                                                                Simulated
//! ```
//!
//! A shard whose process ends, and the one after it:
//!
//! ```
//! use libra_storage::disk::SimulatedDisk;
//! use libra_proto::{Instant, StorageEvent, StorageRequest};
//! use libra_storage::{create, restore};
//!
//! let disk = SimulatedDisk::new(1);
//! // Nothing was ever written there: a server started there joins a job as a new one.
//! assert!(restore(disk.clone(), None)?.is_none());
//!
//! let (log, _checkpoints) = create(disk.clone(), 7, 0, true, false)?;
//! let mut log = log.expect("it was asked for");
//! log.handle(StorageRequest::Append { number: 1, record: b"a push".to_vec() });
//! assert_eq!(log.sync(Instant::ZERO), Some(StorageEvent::Durable { record: 1 }));
//! assert_eq!(log.sync(Instant::ZERO), None);
//! disk.crash();
//!
//! // A log without the checkpoint that it goes on from cannot be understood, and is not passed over.
//! assert!(restore(disk, None).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The log and the checkpoints alone, a crash, and the recovery:
//!
//! ```
//! use libra_storage::checkpoint::{Block, Checkpoints, Description, PartSettings, TableInfo};
//! use libra_storage::disk::SimulatedDisk;
//! use libra_storage::wal::{Log, RecordNumber, Settings};
//!
//! let disk = SimulatedDisk::new(42);
//! let (mut log, _) = Log::open(disk.clone(), Settings::new(1, 0), RecordNumber::NONE, |_, _| Ok(()))?;
//! log.append(b"a push")?;
//! log.append(b"another push")?;
//! let covers = log.sync()?;
//!
//! // The rows as of now, in as many pieces as the owner likes.
//! let checkpoints = Checkpoints::new(disk.clone());
//! let item = TableInfo { name: "item".into(), keys: 0..100, width: 2, state: 1, rule: "adagrad".into() };
//! let description = Description {
//!     number: 1, job: 1, seed: 42, shards: 1, shard: 0, covers, steps: [].into(), tables: vec![item],
//!     position: None,
//! };
//! let mut writer = checkpoints.begin(description, None, PartSettings::default())?;
//! writer.write_rows(0, &[7, 3], &[0.1, 0.2, 0.3, 0.4], &[1.0, 2.0])?;
//! writer.finish(b"what the owner needs besides rows")?;
//! log.remove_before(covers.next())?;
//!
//! log.append(b"durable")?;
//! log.sync()?;
//! log.append(b"lost")?;
//! disk.crash();
//!
//! let newest = checkpoints.newest_valid()?;
//! assert!(newest.skipped.is_empty());
//! let checkpoint = newest.checkpoint.expect("one was written");
//! let mut blocks = checkpoint.blocks(1000);
//! while let Some(block) = blocks.next_block()? {
//!     assert!(matches!(block, Block::Rows { table: 0, keys: [7, 3], .. }));
//! }
//! let from = checkpoint.manifest().description.covers.next();
//! let mut redo = Vec::new();
//! let (log, recovery) = Log::open(disk, Settings::new(1, 0), from, |number, record| {
//!     redo.push((number.0, record.to_vec()));
//!     Ok(())
//! })?;
//! assert_eq!(redo, [(3, b"durable".to_vec())]);
//! assert_eq!(recovery.newest, log.durable());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

pub mod archive;
pub mod checkpoint;
pub mod disk;
pub mod serving;
pub mod wal;

mod create;
mod load;
mod place;
mod reading;
mod restore;
mod row_file;
mod shard_checkpoints;
mod shard_log;
mod source;

pub use libra_objects::without_secrets;

pub use create::{CreateError, create};
pub use load::{LoadError, Loaded, load};
pub use place::{Found, PlaceError, find, note_address, shard_directory, shard_in};
pub use reading::{Reading, restoring};
pub use restore::{Recovered, RestoreFailure, restore};
pub use row_file::RowFiles;
pub use shard_checkpoints::ShardCheckpoints;
pub use shard_log::ShardLog;
pub use source::{Source, is_url};
