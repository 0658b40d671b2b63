//! Data sets of all formats and places, good and bad.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

mod bad_input;
mod followed;
mod formats;
mod killed;
mod order;
mod parquet;
mod server;
mod servers;
mod support;
