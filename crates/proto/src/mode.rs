//! Training modes: how far the workers of a job may be apart.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::client::{ClientError, Parameters, Tick};

/// The steps of others that a step of a worker waits for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// None.
    #[default]
    Async,
    /// Bounded staleness (Ho et al. 2013): what a step reads misses at most this many steps of any worker.
    Ssp {
        /// Steps, at least one: the next batch is pulled while one is computed.
        staleness: u32,
    },
    /// All before it. All workers read the same values, so they train as one would with their batches as one.
    Sync,
}

/// A training loop calls these around each step; `step` counts those of this worker since the last barrier, from 0. A tick of a worker's clock
/// means that its part of a step is visible. In [`Mode::Sync`] a step has two ticks, and the first means that it has read.
impl Mode {
    /// Returns true if the next batch is pulled while one is computed.
    pub fn pulls_ahead(self) -> bool {
        self != Self::Sync
    }

    /// Returns the ticks that a worker's clock advances by with each step.
    pub fn ticks_of_a_step(self) -> u64 {
        if self == Self::Sync { 2 } else { 1 }
    }

    /// Waits until a step may read.
    pub fn before_pull(self, step: u64, parameters: &mut dyn Parameters) -> Result<(), ClientError> {
        let least = match self {
            Self::Async => 0,
            Self::Ssp { staleness } => step.saturating_sub(staleness.into()),
            Self::Sync => 2 * step,
        };
        if least > 0 { parameters.wait_for_clocks(least) } else { Ok(()) }
    }

    /// Ends the reading of a step.
    pub fn after_pull(self, parameters: &mut dyn Parameters) -> Result<(), ClientError> {
        if self == Self::Sync { parameters.tick(Tick::Now) } else { Ok(()) }
    }

    /// Waits until a step may change what others read.
    pub fn before_push(self, step: u64, parameters: &mut dyn Parameters) -> Result<(), ClientError> {
        if self == Self::Sync { parameters.wait_for_clocks(2 * step + 1) } else { Ok(()) }
    }

    /// Ends a step, once its push is visible.
    pub fn after_push(self, parameters: &mut dyn Parameters) -> Result<(), ClientError> {
        if self == Self::Async { Ok(()) } else { parameters.tick(Tick::Visible) }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Async => f.write_str("async"),
            Self::Ssp { staleness } => write!(f, "ssp, staleness {staleness}"),
            Self::Sync => f.write_str("sync"),
        }
    }
}
