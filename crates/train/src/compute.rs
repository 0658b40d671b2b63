//! What can go wrong with candle.

use thiserror::Error;

/// The computation failed.
#[derive(Debug, Error)]
#[error("the computation failed: {0}")]
pub struct ComputeError(#[from] candle_core::Error);
