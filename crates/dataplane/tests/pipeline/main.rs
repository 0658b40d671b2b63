//! The pipeline against its specification.
#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

mod against_model;
mod burst;
mod bytes;
mod config;
mod exactly_once;
mod model;
mod scene;
mod tags;
mod view;
