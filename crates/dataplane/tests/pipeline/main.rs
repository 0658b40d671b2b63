//! The pipeline against what is said about it.
#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

mod burst;
mod bytes;
mod config;
mod exactly_once;
mod model;
mod scene;
mod view;
