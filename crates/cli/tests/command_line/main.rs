//! The binary as a black box: what a person types, and what they get.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

mod checkpoints;
mod durability;
mod failover;
mod jobs;
mod paper;
mod process;
mod record;
mod refusals;
