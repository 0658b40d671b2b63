//! A server, spoken to directly: the test is its driver, its controller, and all who call it.

mod cold;
mod counter;
mod durability;
mod failing_disk;
mod growth;
mod hot_and_cold;
mod refusals;
mod regions;
mod replay;
mod strangers;
