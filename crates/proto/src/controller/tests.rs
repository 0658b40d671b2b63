//! The controller without a network: the test is its driver and all its members.

mod awaited_job;
mod checkpoints;
mod clocks;
mod drains;
mod ends;
mod harness;
mod holes;
mod leases;
mod numbers;
mod proposals;
mod protocol_violations;
mod recovery;
mod refusals;
mod rejoining;
mod restoring;
mod rivals;
mod shards;
mod strangers;
mod tags;
mod timeouts;
mod views;
