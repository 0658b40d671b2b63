//! Real members over loopback.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

mod leases;
mod modes;
mod shards;
mod stream;
mod unchecked;
