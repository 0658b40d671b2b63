//! The laboratory as a black box: what a person types, and what they get.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

mod benchmarks;
mod memory_limits;
mod paper;
#[path = "../../../../crates/cli/tests/command_line/process.rs"]
#[allow(dead_code, reason = "some of it is only for clusters of `libra`")]
mod process;
#[path = "../../../../crates/cli/tests/command_line/program.rs"]
mod program;
mod record;
mod refusals;
mod slow_disk;
mod soaks;

/// The program under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_libra-lab");
