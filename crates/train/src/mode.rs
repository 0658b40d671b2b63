//! How far workers may be apart.

use std::fmt;

use libra_proto::{ClientError, Parameters, Tick};
use serde::{Deserialize, Serialize};

/// Which steps of others a step of a worker waits for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// None.
    #[default]
    Async,
    /// Bounded staleness (Ho et al. 2013): what a step reads misses at most this many steps of any worker.
    Ssp {
        /// How many, at least one: the next batch is pulled while one is computed.
        staleness: u32,
    },
    /// All before it. All workers read the same values, so they train as one would with their batches as one.
    Sync,
}

/// Steps that are counted are those of this worker since the last barrier, from 0. A tick of its clock says that its part of a step is visible; and in
/// [`Mode::Sync`], where a step has two ticks, the first one that it has read.
impl Mode {
    /// Whether the next batch is pulled while one is computed.
    pub(crate) fn pulls_ahead(self) -> bool {
        self != Self::Sync
    }

    /// Waits until a step may read.
    pub(crate) fn before_pull(self, step: u64, parameters: &mut dyn Parameters) -> Result<(), ClientError> {
        let least = match self {
            Self::Async => 0,
            Self::Ssp { staleness } => step.saturating_sub(staleness.into()),
            Self::Sync => 2 * step,
        };
        if least > 0 { parameters.wait_for_clocks(least) } else { Ok(()) }
    }

    /// A step has read.
    pub(crate) fn after_pull(self, parameters: &mut dyn Parameters) -> Result<(), ClientError> {
        if self == Self::Sync { parameters.tick(Tick::Now) } else { Ok(()) }
    }

    /// Waits until a step may change what others read.
    pub(crate) fn before_push(self, step: u64, parameters: &mut dyn Parameters) -> Result<(), ClientError> {
        if self == Self::Sync { parameters.wait_for_clocks(2 * step + 1) } else { Ok(()) }
    }

    /// A step is done when its push is visible.
    pub(crate) fn after_push(self, parameters: &mut dyn Parameters) -> Result<(), ClientError> {
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

#[cfg(test)]
mod tests;
