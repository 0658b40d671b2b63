//! Computations of a front end for tensors around its look-ups: distinct ids, pooling of rows and its gradient, and sums of
//! gradients by id until they are pushed.
//!
//! It computes only. Rows come from a function of the caller ([`WorkingSet::load`]), and ids, values and gradients are slices. It
//! knows no Python, no tensor library and no network, so all of it is compared with naive models on random cases.
//!
//! ```text
//!  ids ─► WorkingSet: id ─► slot ─► values ─► gather, Bags::pool ─► output
//!                             │
//!  gradient of the output ────┴─► RowSums of one pass ─► Accumulator: sums by id, norm ─► push
//! ```
//!
//! A gradient belongs to an id and never to a position in a batch: an id that occurs in several bags, look-ups, passes or
//! micro-batches has one sum.
//!
//! ```
//! use libra_lookup::{Bags, IdSpace, Mode, RowSums, Rows, WorkingSet};
//!
//! let mut set = WorkingSet::new(2);
//! let lookup = set.assign(&[7_i64, 3, 7], IdSpace::Bounded { rows: 10 }, None)?;
//! set.load(|ids, values| {
//!     assert_eq!(ids, [7, 3]);
//!     values.copy_from_slice(&[1.0, 2.0, 10.0, 20.0]);
//!     Ok::<(), ()>(())
//! }).unwrap();
//!
//! let bags = Bags::from_offsets(&[0_i64, 2], false, 3)?;
//! let mut output = [0.0; 4];
//! bags.pool(Mode::Sum, set.values(), 2, lookup.slots(), None, &mut output);
//! assert_eq!(output, [11.0, 22.0, 1.0, 2.0]);
//!
//! let mut sums = RowSums::new(2);
//! let gradient = Rows::new(&[1.0, 1.0, 0.5, 0.5], 2);
//! bags.add_gradient(Mode::Sum, lookup.slots(), None, gradient, set.ids(), &mut sums);
//! assert_eq!(sums.ids(), [7, 3]);
//! assert_eq!(sums.values(), [1.5, 1.5, 1.0, 1.0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod accumulator;
mod bags;
mod ids;
mod index;
mod rows;
mod sums;
mod working_set;

pub use accumulator::{Accumulator, CommitError, Pass};
pub use bags::{Bags, BagsError, Mode};
pub use ids::{Id, IdError, IdSpace, OPEN_IDS};
pub use rows::{Rows, add_rows, frequency_scales, gather};
pub use sums::{NotFinite, RowSums};
pub use working_set::{Lookup, Outdated, PADDING, WorkingSet};
