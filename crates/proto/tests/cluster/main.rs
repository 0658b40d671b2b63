//! Whole clusters of production roles on one thread, in virtual time.
#![expect(clippy::unwrap_used, reason = "a test that panics has found something")]

mod link;
mod membership;
mod nonsense;
mod operations;
mod shard;
mod sums;
mod traffic;
mod user;
mod world;
