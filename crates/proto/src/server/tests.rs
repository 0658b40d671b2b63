//! A server without a network: the test is its driver, its controller, and all its callers.

mod assignments;
mod cold;
mod drains;
mod durability;
mod failing_disk;
mod growth;
mod harness;
mod hot_and_cold;
mod memory_limit;
mod positions;
mod refusals;
mod regions;
mod replay;
mod strangers;
mod uploads;
