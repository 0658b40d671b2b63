//! The rows of one shard in memory, and the optimizers that update them.
//!
//! It never sees a packet, a socket, a thread or a clock, and draws no randomness: the first value of a row
//! follows from the seed and the key alone, so any shard on any machine makes the same row, whenever it is
//! first asked for.
//!
//! ```text
//!  keys ──► table ──► dense chunk of neighbouring keys: │ values │ optimizer state │ values │ optimizer state │ ..
//!               ├───► bucket of a narrow row: │ key │ values │ optimizer state │ key │ values │ ..
//!               ├───► index ──► slabs of wide rows: │ key │ values │ optimizer state │ key │ values │ ..
//!               └─ none: the first value, computed and not kept until the first update
//! ```
//!
//! A table may have more keys than memory has room for rows: its [`RowLifecycle`] says which rows are made, and which ones go
//! when [`Store::evict`] comes by; or a [limit](Store#memory-limit) of memory, and rows that were not used for long lie in a
//! [file](BlockFile). A checkpoint is a [snapshot](Store#snapshots), read while updates go on.
//!
//! The change of a table's rows by gradients is its [`UpdateRule`]: an [`Optimizer`], a [`Schedule`] of its rate over the
//! steps of the table, weight decay and [`Clip`]ping. The formulas are compared with PyTorch, Keras and torchrec
//! over 1,000 steps (`tests/optimizers`).
//!
//! | optimizer | formula | words of state of a row of `w` values |
//! |---|---|---|
//! | [`Sgd`](Optimizer::Sgd) | | 0 |
//! | [`Momentum`](Optimizer::Momentum) | Polyak 1964; Nesterov's: Sutskever et al. 2013 | `w` |
//! | [`Adagrad`](Optimizer::Adagrad) | Duchi, Hazan, Singer 2011 | `w` |
//! | [`RowAdagrad`](Optimizer::RowAdagrad) | FBGEMM, torchrec | 1 |
//! | [`Adam`](Optimizer::Adam) | Kingma, Ba 2015 | `2 w + 1` |
//! | [`AdamW`](Optimizer::AdamW) | Loshchilov, Hutter 2019 | `2 w + 1` |
//! | [`Ftrl`](Optimizer::Ftrl) | McMahan et al. 2013 | `2 w` |
//! | [`RmsProp`](Optimizer::RmsProp) | Tieleman, Hinton 2012 | `w` |
//!
//! ```
//! use libra_store::{Init, Optimizer, Store, TableSpec};
//!
//! let item = TableSpec {
//!     name: "item".into(),
//!     keys: 0..1_000_000_000,
//!     width: 2,
//!     rule: Optimizer::Sgd { rate: 0.5 }.into(),
//!     init: Init::Zero,
//! };
//! let mut store = Store::new(vec![item], 42)?;
//! store.update(7, &[1.0, -2.0])?;
//!
//! let mut row = [0.0; 2];
//! store.read(7, &mut row)?;
//! assert_eq!(row, [-0.5, 1.0]);
//! assert_eq!(store.rows(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod block_file;
mod buckets;
mod dense;
mod directory;
mod exact;
mod finite;
mod index;
mod init;
mod key;
mod optimizer;
mod prefetch;
mod row_lifecycle;
mod schedule;
mod slab;
mod store;
mod table;
mod update;
mod update_rule;

pub use block_file::{BLOCK_WORDS, Block, BlockFile, BlockFileError, SimulatedBlockFile};
pub use finite::first_non_finite;
pub use init::Init;
pub use libra_plan::SplitMix64;
pub use optimizer::Optimizer;
pub use row_lifecycle::{Admission, Eviction, RowLifecycle};
pub use schedule::{Decay, Schedule};
pub use store::{DiskCounts, Evicted, Extent, KeyBatch, LifecycleCounts, LimitTooLow};
pub use store::{RowBlock, RowError, Store, StoreFault};
pub use table::{OutOfRange, TableError, TableSpec};
pub use update::Update;
pub use update_rule::{Clip, UpdateRule};
