//! The paper's Principle 1: how many of the ranked rows are hot.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::frequency::Ranked;

/// Share of the updates that hot rows are to take by default.
pub const DEFAULT_P: f64 = 0.9;
/// Share of the on-chip memory that hot rows may take by default. The paper advises 0.05 to 0.1.
pub const DEFAULT_C: f64 = 0.05;
/// On-chip memory of the switch that the paper assumes, 20 MiB.
pub const DEFAULT_ON_CHIP_BYTES: u64 = 20 << 20;
/// On-chip memory that one slot takes, as the paper counts it: a second bank and the values that workers read
/// are not in it.
pub const SLOT_BYTES: u64 = 4;

/// The two design parameters of Principle 1 and the memory they are about.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// Share of all updates that the hot rows are to take, in (0, 1].
    pub p: f64,
    /// Share of the on-chip memory that the hot rows may take, in (0, 1].
    pub c: f64,
    /// On-chip memory of the switch, in bytes.
    pub on_chip_bytes: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { p: DEFAULT_P, c: DEFAULT_C, on_chip_bytes: DEFAULT_ON_CHIP_BYTES }
    }
}

/// A fault of a [`Budget`].
#[derive(Debug, Error, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum BudgetError {
    /// The target share is no share.
    #[error("p = {p} is the share of updates to take in the network: it must be above 0 and at most 1")]
    Share {
        /// The p that was given.
        p: f64,
    },
    /// The memory share is no share.
    #[error("c = {c} is the share of on-chip memory to use: it must be above 0 and at most 1")]
    Memory {
        /// The c that was given.
        c: f64,
    },
}

impl Budget {
    /// Returns the number of slots that the memory has room for.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a u64 is a u64")]
    pub fn slots(&self) -> u64 {
        (self.c * self.on_chip_bytes as f64) as u64 / SLOT_BYTES
    }

    /// # Errors
    /// A share is not in (0, 1].
    pub fn check(&self) -> Result<(), BudgetError> {
        let share = |value: f64| value > 0.0 && value <= 1.0;
        if !share(self.p) {
            return Err(BudgetError::Share { p: self.p });
        }
        if !share(self.c) {
            return Err(BudgetError::Memory { c: self.c });
        }
        Ok(())
    }
}

/// Limit that ended the search for hot rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// The target share is reached: both conditions of Principle 1 hold.
    Share,
    /// The memory is full before the target share is reached.
    Memory,
    /// Every row that may be hot is, and the target share is not reached: the rest are updates of rows that
    /// may not.
    Rows,
}

/// Number of hot rows, and their share of updates and memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// The first this many of the ranked rows are hot (the paper's k).
    pub rows: usize,
    /// The slots they take: the sum of their widths.
    pub slots: u64,
    /// The share of the counted updates that are theirs (the paper's T_k / T_n). Optimistic about data that
    /// was not counted, because the rows were picked for being frequent in just this sample.
    pub observed_share: f64,
    /// Reason why there are not more.
    pub limit: Limit,
}

/// The paper's Principle 1: the fewest rows from the top of the ranking with `T_k / T_n >= p`, as long as `4
/// bytes x slots <= c x on-chip bytes`. When both cannot hold the memory wins, and [`Choice::limit`] shows it.
///
/// `ranked` comes from [`Frequencies::ranked`](crate::Frequencies::ranked) and `total` is T_n, the updates of
/// all rows, including those that may not be hot. A row counts as one update however wide it is.
#[must_use]
pub fn principle_1(ranked: &[Ranked], total: u64, budget: &Budget) -> Choice {
    let share = |updates: u64| if total == 0 { 0.0 } else { updates as f64 / total as f64 };
    let slots_max = budget.slots();
    let (mut rows, mut slots, mut updates) = (0, 0, 0);
    let mut limit = Limit::Rows;
    for row in ranked {
        if share(updates) >= budget.p {
            break;
        }
        let wider = slots + u64::from(row.width);
        if wider > slots_max {
            limit = Limit::Memory;
            break;
        }
        rows += 1;
        slots = wider;
        updates += row.count;
    }
    if share(updates) >= budget.p {
        limit = Limit::Share;
    }
    Choice { rows, slots, observed_share: share(updates), limit }
}

#[cfg(test)]
mod tests;
