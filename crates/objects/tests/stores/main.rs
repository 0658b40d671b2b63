//! Files, servers, and stores that are slow.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

mod answers;
mod files;
mod upload;
