//! Messages that set and read the rows of a table with the states of their optimizers (rules C12, C13).

use serde::{Deserialize, Serialize};

use crate::bulk::Bulk;
use crate::keys::Keys;

/// From a worker to a shard: rows of one table have these values from now on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Assign {
    /// Counted with the pushes of the worker: a shard applies each number once.
    pub number: u64,
    /// The position of the table in [`Cluster::tables`](crate::Cluster::tables).
    pub table: u16,
    /// Rows of that shard and table.
    pub keys: Keys,
    /// Their values one after the other.
    pub values: Bulk<f32>,
    /// States of their optimizers one after the other; empty: those of rows that never had a gradient.
    pub states: Bulk<f32>,
}

/// From a worker to a shard: all rows of a table become those that never had a gradient.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reset {
    /// As in [`Assign`].
    pub number: u64,
    /// As in [`Assign`].
    pub table: u16,
    /// Number of steps of the table, which its schedule depends on.
    pub steps: u64,
}

/// Some rows of a table in one shard.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TablePage {
    /// Ascending, without a gap.
    pub keys: Keys,
    /// Values of the rows one after the other.
    pub values: Bulk<f32>,
    /// States of their optimizers one after the other.
    pub states: Bulk<f32>,
    /// Steps of the table in the shard.
    pub steps: u64,
    /// The key behind which the next page begins; none if this is the last.
    pub next: Option<u64>,
}

impl Assign {
    pub(crate) fn bytes_about(&self) -> usize {
        self.keys.bytes() + 4 * (self.values.0.len() + self.states.0.len())
    }
}

impl TablePage {
    pub(crate) fn bytes_about(&self) -> usize {
        self.keys.bytes() + 4 * (self.values.0.len() + self.states.0.len())
    }
}
