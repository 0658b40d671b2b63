//! A deterministic simulator: whole clusters of production roles on one thread, in virtual time, under every fault; and
//! checkers that see only the wire and the events of users.
//!
//! It never reads a clock, starts a thread, opens a socket or a file, or asks the operating system for randomness. One
//! seed decides everything: how many members there are, how bad the network is, what fails when, what users do and how
//! the cluster is configured. The same seed gives the same run, to the bit, on every machine.
//!
//! ```text
//!  seed ─▶ Scenario ─▶ runner: starts, kills, pauses, cuts off ───┐
//!                        │ users: push, pull, flush, barrier      │
//!                        ▼                                        ▼
//!                      World: one queue of all that will happen, streams, the clocks of processes
//!                        │  ▲                            │
//!                        ▼  │                            ▼
//!        the roles of libra-proto, as they ship        Network: delay, loss, copies, flipped bits, partitions
//!                        │
//!                        ▼
//!        Observer ─▶ check: what was sent, acknowledged, committed, read  ─▶ Report
//! ```
//!
//! A run has two phases. In the first, faults happen, and nothing may ever be wrong: no gradient twice, none lost that a
//! worker received as safe, no value read that cannot be. In the second the faults are over, and everything that is under
//! way must come to its end within [`LIVENESS_BOUND`]. What the checkers check is in [`check`]. What a scenario may not have
//! is what Libra does not promise to survive: a server that keeps nothing never dies, and one worker lives to the end.
//!
//! ```
//! use libra_faultsim::{Options, run};
//!
//! let report = run(7, Options::default());
//! assert_eq!(report.violation, None);
//! assert_eq!(report.trace_hash, run(7, Options::default()).trace_hash);
//! ```
//!
//! The parts are of use alone, too: a [`ClusterHarness`] is a small cluster for tests that ask it one thing after another, and a
//! [`World`] drives any processes over any [`Network`].
#![forbid(unsafe_code)]

mod async_device;
pub mod check;
mod checksum;
mod chunks;
mod clocks;
mod disks;
mod drain;
mod faults;
mod flips;
mod harness;
mod links;
mod network;
mod observer;
mod open_work;
mod process;
mod random;
mod rows;
mod run;
mod runner;
mod scenario;
mod set_rows;
mod shards;
mod streams;
mod trace;
mod workload;
mod world;

pub use async_device::{DelayedDevice, DelayedP4, DelayedSoft};
pub use flips::FlippedBits;
pub use harness::{ClusterHarness, HarnessConfig, HarnessObserver, draw_push, whole};
pub use network::{Arrival, Bursts, Host, Network, NetworkCounts, Quality};
pub use observer::{Observer, Recorder, SentDatagram, SentMessage};
pub use process::{Actor, AnyRole, Event};
pub use random::Random;
pub use rows::{Rows, SetTable, Sums};
pub use run::{Counts, Options, Report, run, run_scenario};
pub use runner::LIVENESS_BOUND;
pub use scenario::{
    CutOff, Disagreement, Fault, NarrowLink, OPEN_WORK_FROM, Proposals, Scenario, Side, Target,
};
pub use set_rows::SetWorkload;
pub use trace::{TraceHash, TraceWriter};
pub use workload::Workload;
pub use world::{Step, World, WorldCounts, address_of};
