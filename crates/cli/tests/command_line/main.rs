//! The binary as a black box: command lines, and their output.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

mod archive;
mod checkpoints;
mod data;
mod data_sets;
mod doctor;
#[path = "../../src/top/testing.rs"]
mod documents;
mod durability;
mod elastic;
mod engines;
mod environment;
mod exit_codes;
mod failover;
mod follow;
mod jobs;
mod names;
mod output;
#[allow(dead_code, reason = "some of it is only for the laboratory")]
mod process;
mod refusals;
mod resume;
mod rolling;
mod security;
#[allow(dead_code, reason = "some of it is only for the tests of the crate")]
#[path = "../../../data/tests/sets/server.rs"]
mod server;
mod serving;
mod shards;
mod slowness;
mod watching;

/// The program under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_libra");
