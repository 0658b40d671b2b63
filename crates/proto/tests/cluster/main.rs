//! Whole clusters of production roles on one thread, in virtual time: the simulator's harness, asked one thing after another.
#![expect(clippy::unwrap_used, reason = "a test that panics has found something")]

mod clocks;
mod membership;
mod operations;
mod protocol_violations;
mod sums;
