//! The order of chunks in an epoch.

use crate::dataset::Chunk;
use crate::hash::{Random, splitmix64};

/// Decides the order of chunks: equal seeds and epochs give equal orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    /// Seed of the job.
    pub seed: u64,
    /// Number of the epoch.
    pub epoch: u32,
}

impl Order {
    /// Returns the chunks in the order of the epoch.
    pub fn chunks(self, chunks: &[Chunk]) -> Vec<Chunk> {
        let mut chunks = chunks.to_vec();
        Random::new(self.seed ^ splitmix64(u64::from(self.epoch) + 1)).shuffle(&mut chunks);
        chunks
    }
}
