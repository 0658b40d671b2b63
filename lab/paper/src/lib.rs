//! The paper to the letter, for comparison: the algorithms that Pan et al., Enabling Fast and Flexible Distributed Deep
//! Learning with Programmable Switches (arXiv:2205.05243), describe and Libra does otherwise or not at all, and the
//! arithmetic of what the paper compares itself with.
//!
//! Pure functions over data and state machines without a network: this crate never opens a file or a socket, reads no
//! clock, starts no thread and draws no randomness but from a seed. Nothing that ships runs on it; experiments do. The words
//! are the paper's: a *parameter* is named by its rank, a *register* is what `dataplane` calls a lane.
//!
//! | section of the paper | here |
//! |---|---|
//! | Table 1: models; traffic of NCF | [`Model`], [`Traffic`] |
//! | "Parameter layout in switch registers" | [`Layout`] |
//! | "Packaging gradients at workers", Algorithm 1 | [`orchestrate`], [`Packing`] |
//! | "Precision of Hot Parameter Identification" | [`Growth`], [`Identified`] |
//! | "Evaluation of Hot Parameter Layout and Orchestration" | [`recirculations`], [`Skew`] |
//! | "Benefit of Floating-Point Summation" | [`precision_of_sums`], [`Negotiated`] |
//! | "Resource consumption on Switches" | [`PaperResources`], [`OurResources`] |
//! | SwitchML, the baseline | [`switchml`] |
//!
//! For anything that the paper leaves open, the documentation says what was taken. Figures in it are asserted by tests.
//!
//! ```
//! use libra_paper::{Layout, Packing, Skew, recirculations};
//!
//! // 20 pushes as in the paper's search engine, 16 registers, 16 entries in a packet.
//! let skew = Skew::search_engine();
//! let pushes: Vec<Vec<u32>> = skew.pushes(4000, 1).take(20).collect();
//!
//! let by_heat = Layout::heat(30_000, 16);
//! let packed = recirculations(pushes.clone(), &by_heat, Packing::Algorithm1, 16);
//! let at_random = Layout::random(30_000, 16, 1);
//! let baseline = recirculations(pushes, &at_random, Packing::Arrival, 16);
//! assert!(packed.recirculations < 0.3 && baseline.recirculations > 1.9);
//! ```

#![forbid(unsafe_code)]

mod float_to_integer;
mod identification;
mod layout;
mod models;
mod packaging;
mod random;
mod recirculation;
mod resources;
mod skew;
mod sums;
pub mod switchml;

pub use float_to_integer::{Factor, Negotiated, WORKERS_MAX, exponent};
pub use identification::{Growth, Identified};
pub use layout::{Layout, Place};
pub use models::{Layer, Model, Source, Table, Traffic, rows_touched};
pub use packaging::{
    ENTRIES_PER_PACKET, HEADERS_BYTES, PACKET_BYTES, Packed, Packing, entries_that_fit, estimate_packets,
    orchestrate, pack,
};
pub use recirculation::{RECIRCULATIONS_MAX, Summary, recirculations};
pub use resources::{Computed, ON_CHIP_BYTES, OurResources, PaperResources, Quoted, Used};
pub use skew::{HOT_PARAMETERS, Skew};
pub use sums::{Adder, Measure, PAIRS, Precision, precision_of_sums, random_bits_pairs, uniform_pairs};
