//! The program in the kernel beside the pipeline of `libra-dataplane`: the same packets must have the same answers, and leave
//! the same sums, contents and counts, to the bit. It is run by the kernel on frames that no interface has seen.
//!
//! The kernel permits that to root. Without it the tests report that they were skipped; `cargo xtask xdp` requires them to run.

#![cfg(has_programs)]
#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

mod conformance;
mod differential;
mod fuzz;
mod merging;
mod scene;
mod special;
mod tags;
