//! The simulator itself: its checkers, its world, and clusters in it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

mod checkers;
mod growth;
mod jobs;
mod narrow_paths;
mod seeds;
mod stalls;
mod world;
