//! The rows of a benchmark: which there are, what they are, and which of them an operation is about.

use core::fmt;
use core::ops::Range;
use core::str::FromStr;
use std::collections::HashSet;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use libra_plan::splitmix64;
use libra_store::{Init, Optimizer, TableSpec};
use procfs::{Current, Meminfo};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rand_distr::Zipf;
use serde::{Deserialize, Serialize};

/// Batches that are drawn beforehand, and gone through again and again: to draw them takes longer than to push them.
const BATCHES_MIN: usize = 64;
/// So many rows are in them, if the table has at least a quarter as many: more than caches hold, or the second time would be
/// faster than the first.
const DRAWN_MAX: u64 = 1 << 24;

/// The options of the rows.
#[derive(Args, Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Rows {
    /// Rows of the table
    #[arg(long, value_name = "N", default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..=1 << 48))]
    pub(super) keys: u64,
    /// Spreads the keys over all 64 bits by a hash; otherwise they are 0, 1, 2 and so on, which servers find faster
    #[arg(long)]
    pub(super) sparse: bool,
    /// Values of a row
    #[arg(long = "embedding-dim", alias = "width", value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=4096))]
    #[serde(rename = "embedding_dim")]
    pub(super) width: u16,
    /// Optimizer of the rows; it decides how many values of state each has beside its own
    #[arg(long, value_name = "NAME", value_enum, default_value_t = Kind::Sgd)]
    pub(super) optimizer: Kind,
    /// Number of rows that are made before anything is measured, `all` or a number; a push makes those that are missing
    #[arg(long, value_name = "N", default_value_t = Fill::All)]
    pub(super) fill: Fill,
    /// Rows of one operation
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub(super) batch: usize,
    /// Exponent of Zipf's law: 0 makes all rows equally likely
    #[arg(long, value_name = "S", default_value_t = 1.05)]
    pub(super) zipf: f64,
    /// Seed of the rows
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    /// No state
    Sgd,
    /// As many values of state as a row has
    Adagrad,
    /// One value of state
    RowAdagrad,
    /// Twice as many values of state as a row has, and one
    Adam,
    /// Twice as many values of state as a row has
    Ftrl,
}

/// Number of rows that are made before anything is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(super) enum Fill {
    All,
    Rows(u64),
}

impl fmt::Display for Fill {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => formatter.write_str("all"),
            Self::Rows(rows) => write!(formatter, "{rows}"),
        }
    }
}

impl FromStr for Fill {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self::All);
        }
        text.parse().map(Self::Rows).map_err(|_| "expected `all` or a number of rows".to_owned())
    }
}

impl From<Fill> for String {
    fn from(fill: Fill) -> Self {
        fill.to_string()
    }
}

impl TryFrom<String> for Fill {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl Rows {
    pub(super) fn check(&self) -> Result<()> {
        if self.batch == 0 || self.batch as u64 > self.keys {
            bail!("--batch {}: an operation has at least 1 row and at most --keys {}", self.batch, self.keys);
        }
        if self.batch as u64 > self.keys / 2 && self.zipf > 0.0 {
            bail!("--batch {}: more than half of all rows are not drawn in any sensible time", self.batch);
        }
        if !(self.zipf >= 0.0 && self.zipf.is_finite()) {
            bail!("--zipf {}: expected a number from 0 up", self.zipf);
        }
        Ok(())
    }

    /// Checks that this machine has memory for so many times the values and state of all rows.
    pub(super) fn check_memory(&self, times: u64) -> Result<()> {
        let Ok(Meminfo { mem_available: Some(free), .. }) = Meminfo::current() else { return Ok(()) };
        let needed = (self.keys * self.payload_bytes()).saturating_mul(times);
        if needed > free {
            bail!("--keys {}: they need {needed} bytes of memory, of which {free} are free", self.keys);
        }
        Ok(())
    }

    pub(super) fn table(&self) -> TableSpec {
        TableSpec {
            name: "rows".to_owned(),
            keys: 0..if self.sparse { u64::MAX } else { self.keys },
            width: self.width.into(),
            rule: self.optimizer.optimizer().into(),
            init: Init::Zero,
        }
    }

    /// Values of a row.
    pub(super) fn width(&self) -> usize {
        self.width.into()
    }

    /// Bytes of a row: values and state.
    pub(super) fn payload_bytes(&self) -> u64 {
        let words = self.width() + self.optimizer.optimizer().state_len(self.width());
        (words * size_of::<f32>()) as u64
    }

    /// Returns the number of rows that are to be made beforehand.
    pub(super) fn made(&self) -> u64 {
        match self.fill {
            Fill::All => self.keys,
            Fill::Rows(rows) => rows.min(self.keys),
        }
    }

    /// The keys of the rows of some numbers, rising.
    pub(super) fn keys_of(&self, numbers: Range<u64>) -> Vec<u64> {
        let mut keys: Vec<u64> = numbers.map(|number| self.key_of(number)).collect();
        if self.sparse {
            keys.sort_unstable();
        }
        keys
    }

    /// The keys of the rows of some ranks, in an order without a pattern.
    pub(super) fn keys_of_ranks(&self, ranks: Range<u64>) -> Vec<u64> {
        ranks.map(|rank| self.key_of(self.shuffle(rank))).collect()
    }

    /// The batches of a worker: distinct keys each, sorted.
    ///
    /// A rank is drawn by rejection (Hörmann and Derflinger 1996), so it takes as long for any number of rows. Which row has
    /// which rank is shuffled: neighbours in rank are no neighbours in memory.
    pub(super) fn batches(&self, worker: u16) -> Result<Vec<Vec<u64>>> {
        #[expect(clippy::cast_precision_loss, reason = "so many keys need no exact count")]
        let ranks = Zipf::new(self.keys as f64, self.zipf).context("--zipf: no law of Zipf")?;
        let mut random = SmallRng::seed_from_u64(self.seed.wrapping_add(u64::from(worker)));
        let drawn = usize::try_from(self.keys.saturating_mul(4).min(DRAWN_MAX))?;
        let mut batches = Vec::new();
        for _ in 0..(drawn / self.batch).max(BATCHES_MIN) {
            let mut keys = HashSet::with_capacity(self.batch);
            while keys.len() < self.batch {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a rank is a whole number"
                )]
                let rank = random.sample(ranks) as u64 - 1;
                keys.insert(self.key_of(self.shuffle(rank)));
            }
            let mut keys: Vec<u64> = keys.into_iter().collect();
            keys.sort_unstable();
            batches.push(keys);
        }
        Ok(batches)
    }

    /// The key of a row.
    fn key_of(&self, number: u64) -> u64 {
        if !self.sparse {
            return number;
        }
        // Another key for each number, without a pattern.
        splitmix64(number)
    }

    /// A permutation of the rows: each has one rank, as the factor is prime and does not divide their number.
    fn shuffle(&self, rank: u64) -> u64 {
        const PRIMES: [u128; 2] = [2_654_435_761, 4_294_967_291];
        let keys = u128::from(self.keys);
        let prime = if keys.is_multiple_of(PRIMES[0]) { PRIMES[1] } else { PRIMES[0] };
        u64::try_from(u128::from(rank) * prime % keys).expect("it is below the number of keys")
    }
}

impl Kind {
    fn optimizer(self) -> Optimizer {
        match self {
            Self::Sgd => Optimizer::Sgd { rate: 0.5 },
            Self::Adagrad => Optimizer::Adagrad { rate: 0.1, epsilon: 1e-6 },
            Self::RowAdagrad => Optimizer::RowAdagrad { rate: 0.1, epsilon: 1e-6 },
            Self::Adam => Optimizer::Adam { rate: 0.001, beta1: 0.9, beta2: 0.999, epsilon: 1e-8 },
            Self::Ftrl => Optimizer::Ftrl { alpha: 0.1, beta: 1.0, l1: 0.0, l2: 0.0 },
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Sgd => "SGD",
            Self::Adagrad => "Adagrad",
            Self::RowAdagrad => "row-wise Adagrad",
            Self::Adam => "Adam",
            Self::Ftrl => "FTRL",
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::bench) fn rows(keys: u64, sparse: bool) -> Rows {
        Rows {
            keys,
            sparse,
            width: 1,
            optimizer: Kind::Adagrad,
            fill: Fill::All,
            batch: 50,
            zipf: 1.05,
            seed: 1,
        }
    }

    #[test]
    fn each_rank_is_a_row_and_each_row_a_key() {
        for sparse in [false, true] {
            let rows = rows(1000, sparse);
            let keys: HashSet<u64> = (0..1000).map(|rank| rows.key_of(rows.shuffle(rank))).collect();
            assert_eq!(keys, rows.keys_of(0..1000).into_iter().collect());
            assert_eq!(keys.len(), 1000);
            assert!(keys.iter().all(|key| rows.table().keys.contains(key)));
        }
    }

    #[test]
    fn batches_are_sorted_and_distinct_and_have_the_first_ranks() {
        let rows = rows(100_000, false);
        let batches = rows.batches(0).unwrap();
        assert!(batches.iter().all(|keys| keys.len() == 50 && keys.windows(2).all(|pair| pair[0] < pair[1])));
        let frequent = batches.iter().filter(|keys| keys.contains(&rows.shuffle(0))).count();
        assert!(frequent > batches.len() * 9 / 10, "{frequent} of {}", batches.len());
        assert_ne!(batches, rows.batches(1).unwrap());
    }

    /// Four hundred million rows, of which the shares of the first ranks are known: rank r has r^-1.05 / 13.17.
    #[test]
    fn ranks_of_very_many_rows_are_as_frequent_as_the_law_says() {
        let rows = Rows { batch: 1, ..rows(400_000_000, false) };
        let ranks = Zipf::new(rows.keys as f64, rows.zipf).unwrap();
        let mut random = SmallRng::seed_from_u64(3);
        let drawn: Vec<f64> = (0..200_000).map(|_| random.sample(ranks)).collect();
        let share = |upto: f64| drawn.iter().filter(|rank| **rank <= upto).count() as f64 / 200_000.0;
        let law: f64 = (1..=1000).map(|rank: u32| f64::from(rank).powf(-1.05)).sum();
        // The sum over all ranks, by Euler and Maclaurin from 1,000 on.
        let tail = (1000_f64.powf(-0.05) - 4e8_f64.powf(-0.05)) / 0.05;
        assert!((share(1.0) - 1.0 / (law + tail)).abs() < 0.005, "{}", share(1.0));
        assert!((share(1000.0) - law / (law + tail)).abs() < 0.005, "{}", share(1000.0));
        assert!(drawn.iter().all(|rank| *rank >= 1.0 && *rank <= 4e8));
        assert!(drawn.iter().any(|rank| *rank > 3.9e8));
    }

    #[test]
    fn fills_are_all_or_a_number() {
        assert_eq!("all".parse(), Ok(Fill::All));
        assert_eq!("17".parse(), Ok(Fill::Rows(17)));
        assert!("most".parse::<Fill>().is_err());
        assert_eq!(Rows { fill: Fill::Rows(7), ..rows(5, false) }.made(), 5);
    }
}
