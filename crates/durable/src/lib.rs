//! A write-ahead log and checkpoints: formats, and algorithms on any disk that keeps the bytes it has synced.
//!
//! The changes of a shard since its last checkpoint are in the log; those before are in the checkpoint. Both are
//! only bytes here. This crate does not interpret records, and has nothing of shards, packets, sockets, threads or
//! clocks. It never drops or changes anything durable that is damaged: it reports which file, where, and what to do. And
//! it never calls anything durable that a crash could undo.
//!
//! ```text
//!                 append       sync                          log-00000000000000000001.libra
//!  owner ──► Log ─────► memory ────►┐                        log-00000000000000004711.libra
//!    │                              ├──► Disk ──► directory: checkpoint-7/manifest.json
//!    └─────► Writer ──► memory ────►┘    Real,               checkpoint-7/table-0-item-rows-00000.safetensors
//!            rows, a few at a time       Simulated           checkpoint-7/state.bin
//! ```
//!
//! A shard, its crash, and its recovery:
//!
//! ```
//! use libra_durable::checkpoint::{Block, Checkpoints, Description, PartSettings, TableInfo};
//! use libra_durable::disk::SimulatedDisk;
//! use libra_durable::log::{Log, RecordNumber, Settings};
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
//! };
//! let mut writer = checkpoints.begin(description, None, PartSettings::default())?;
//! writer.write_rows(0, &[7, 3], &[0.1, 0.2, 0.3, 0.4], &[1.0, 2.0])?;
//! writer.finish(b"state of the owner besides rows")?;
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

pub mod checkpoint;
pub mod disk;
pub mod log;
