//! The binary as a black box: what a person types, and what they get.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

mod checkpoints;
mod failover;
mod jobs;
mod process;
mod refusals;
