//! What the workers of a benchmark push and pull.

use std::collections::HashSet;

use anyhow::{Context, Result};
use clap::ValueEnum;
use libra_proto::ValueFormat;
use libra_store::{Init, Optimizer, TableSpec};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rand_distr::Zipf;
use serde::{Deserialize, Serialize};

/// Batches that a worker draws beforehand, and goes through again and again: to draw them takes longer than to push them.
const BATCHES: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Operation {
    /// Adds gradients to rows
    Push,
    /// Reads rows
    Pull,
    /// Adds gradients and reads the new values in one trip
    PushPull,
}

impl Operation {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Push => "pushes",
            Self::Pull => "pulls",
            Self::PushPull => "pushes with pulls",
        }
    }
}

/// What the controller tells the workers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Load {
    pub(super) operation: Operation,
    /// Rows of the table.
    pub(super) keys: u64,
    /// Values of a row.
    pub(super) width: usize,
    /// How messages carry gradients and values.
    pub(super) wire: ValueFormat,
    /// Rows of one operation.
    pub(super) batch: usize,
    /// Exponent of Zipf's law: how likely a row is by its rank.
    pub(super) zipf: f64,
    /// Operations of a worker that are under way at once.
    pub(super) open: usize,
    pub(super) seconds: f64,
    pub(super) workers: u16,
    pub(super) seed: u64,
}

impl Load {
    pub(super) fn to_text(&self) -> Result<String> {
        serde_json::to_string(self).context("the load cannot be written down")
    }

    pub(super) fn from_text(text: &str) -> Result<Self> {
        serde_json::from_str(text).context("the controller's task is not that of a benchmark")
    }

    pub(super) fn tables(&self) -> Vec<TableSpec> {
        vec![TableSpec {
            name: "rows".to_owned(),
            keys: 0..self.keys,
            width: self.width,
            rule: Optimizer::Sgd { rate: 0.5 }.into(),
            init: Init::Zero,
        }]
    }

    /// The batches of a worker: distinct keys each, sorted.
    ///
    /// Which key has which rank is shuffled: neighbours in rank are no neighbours in memory.
    pub(super) fn batches(&self, worker: u16) -> Result<Vec<Vec<u64>>> {
        #[expect(clippy::cast_precision_loss, reason = "so many keys need no exact count")]
        let ranks = Zipf::new(self.keys as f64, self.zipf).context("--zipf: no law of Zipf")?;
        let mut random = SmallRng::seed_from_u64(self.seed.wrapping_add(u64::from(worker)));
        let mut batches = Vec::new();
        for _ in 0..BATCHES {
            let mut keys = HashSet::with_capacity(self.batch);
            while keys.len() < self.batch {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a rank is a whole number"
                )]
                let rank = random.sample(ranks) as u64 - 1;
                keys.insert(self.key_of(rank));
            }
            let mut keys: Vec<u64> = keys.into_iter().collect();
            keys.sort_unstable();
            batches.push(keys);
        }
        Ok(batches)
    }

    /// A permutation of the keys: each has one rank, as the factor is prime and does not divide their number.
    fn key_of(&self, rank: u64) -> u64 {
        const PRIMES: [u128; 2] = [2_654_435_761, 4_294_967_291];
        let keys = u128::from(self.keys);
        let prime = if keys.is_multiple_of(PRIMES[0]) { PRIMES[1] } else { PRIMES[0] };
        u64::try_from(u128::from(rank) * prime % keys).expect("it is below the number of keys")
    }

    /// The keys that a worker must push once before anything is measured.
    pub(super) fn share(&self, worker: u16) -> core::ops::Range<u64> {
        let at = |worker: u16| self.keys * u64::from(worker) / u64::from(self.workers);
        at(worker)..at(worker + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(keys: u64) -> Load {
        Load {
            operation: Operation::Push,
            keys,
            width: 1,
            wire: ValueFormat::F32,
            batch: 50,
            zipf: 1.05,
            open: 4,
            seconds: 1.0,
            workers: 3,
            seed: 1,
        }
    }

    #[test]
    fn ranks_are_a_permutation_of_the_keys() {
        let load = load(1000);
        let keys: HashSet<u64> = (0..1000).map(|rank| load.key_of(rank)).collect();
        assert_eq!(keys.len(), 1000);
        assert!(keys.iter().all(|key| *key < 1000));
    }

    #[test]
    fn batches_are_sorted_and_distinct_and_the_first_ranks_are_in_most() {
        let load = load(100_000);
        let batches = load.batches(0).unwrap();
        assert!(batches.iter().all(|keys| keys.len() == 50 && keys.windows(2).all(|pair| pair[0] < pair[1])));
        let frequent = batches.iter().filter(|keys| keys.contains(&load.key_of(0))).count();
        assert!(frequent > BATCHES * 9 / 10, "{frequent}");
        assert_ne!(batches, load.batches(1).unwrap());
    }

    #[test]
    fn shares_are_everything_once() {
        let load = load(1000);
        let all: Vec<u64> = (0..3).flat_map(|worker| load.share(worker)).collect();
        assert!(all.into_iter().eq(0..1000));
    }
}
