//! Decides which rows of a model are hot, how their gradients become integers, and where in a switch they
//! live.
//!
//! Pure functions over data: this crate never opens a file or a socket, reads no clock, starts no thread and
//! draws no randomness. The same counts give the same plan, and the same plan gives the same placement, on
//! every machine; workers, shards and switches therefore agree without talking about it.
//!
//! ```text
//!   pushes of a profile run                 the plan, a file a person can read
//!  ┌─────────────┐  ranked   ┌─────────────┐  ┌──────┐  shards   ┌───────────┐
//!  │ Frequencies ├──────────►│ principle_1 ├─►│ Plan ├──────────►│ Placement │ key ──► region, slot
//!  └──────┬──────┘           └─────────────┘  └──▲───┘           └───────────┘
//!         │ largest gradient seen per row        │
//!         └──────────────────► Scale ────────────┘
//! ```
//!
//! The rules come from the Libra paper, sections "Identifying Hot Parameters" and "Parameter Orchestration".
//!
//! ```
//! use libra_plan::{
//!     Budget, DEFAULT_HEADROOM_BITS, Frequencies, Placement, Plan, Provenance, RegionSlots, SLOTS_PER_REGION,
//!     TableShape,
//! };
//!
//! let tables = vec![TableShape { name: "item".into(), keys: 0..1000, width: 4, hot: true }];
//! let mut frequencies = Frequencies::new(tables)?;
//! for push in 0..100 {
//!     // Rows 7 and 3 are in every push, one other row is new each time.
//!     frequencies.record_push([7, 3, 100 + push]);
//!     frequencies.record_gradient(7, 0.25);
//! }
//!
//! let budget = Budget { p: 0.6, ..Budget::default() };
//! let plan = Plan::new(1, Provenance::default(), &frequencies, budget, DEFAULT_HEADROOM_BITS)?;
//! assert_eq!(plan.rows.iter().map(|row| row.key).collect::<Vec<_>>(), [3, 7]);
//! assert_eq!(Plan::from_toml(&plan.to_toml())?, plan);
//!
//! let placement = Placement::new(&plan, 1, RegionSlots::by_key(SLOTS_PER_REGION))?;
//! let place = placement.find(7).expect("row 7 is hot");
//! assert_eq!((place.region, place.slot, place.width), (0, 4, 4));
//! assert_eq!(placement.find(100), None);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod file;
mod frequency;
mod hot_set;
mod placement;
mod plan;
mod scale;
mod shard;
mod splitmix;
mod summary;
mod table;

pub use file::PlanError;
pub use frequency::{FOLDS, Frequencies, Ranked};
pub use hot_set::{
    Budget, BudgetError, Choice, DEFAULT_C, DEFAULT_ON_CHIP_BYTES, DEFAULT_P, Limit, SLOT_BYTES, principle_1,
};
pub use placement::{
    Place, PlacedRow, Placement, PlacementError, REGIONS_MAX, RegionLayout, RegionSlots, Run, Search,
};
pub use plan::{HotRow, Invalid, Misfit, Plan, Provenance};
pub use scale::{DEFAULT_HEADROOM_BITS, HEADROOM_BITS_MAX, MARGIN, Quantizer, Scale, bound};
pub use shard::{Shard, Shards, shard_of};
pub use splitmix::{SplitMix64, finalizer, splitmix64};
pub use summary::Summary;
pub use table::{SLOTS_PER_REGION, ShapeError, TableShape};
