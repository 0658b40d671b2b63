//! The rows of one shard in memory, and the optimizers that update them.
//!
//! It never sees a packet, a socket, a thread or a clock, and draws no randomness: the first value of a row
//! follows from the seed and the key alone, so any shard on any machine makes the same row, whenever it is
//! first asked for.
//!
//! ```text
//!  key ──► table ──► index ──► arena of the table: │ values │ optimizer state │ values │ optimizer state │ ..
//!                      └─ none: the first value, computed and not kept until the first update
//! ```
//!
//! ```
//! use libra_store::{Init, Optimizer, Store, TableSpec};
//!
//! let item = TableSpec {
//!     name: "item".into(),
//!     keys: 0..1_000_000_000,
//!     width: 2,
//!     optimizer: Optimizer::Sgd { rate: 0.5 },
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

mod init;
mod optimizer;
mod store;
mod table;

pub use init::Init;
pub use optimizer::Optimizer;
pub use store::{RowError, Store};
pub use table::{TableError, TableSpec};
