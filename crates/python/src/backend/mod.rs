//! Holders of rows: stores of this process, or a cluster.

pub(crate) mod alone;
pub(crate) mod cluster;

use core::ops::Range;
use core::time::Duration;

use libra_client::{TableSpec, UpdateRule};
use libra_lookup::WorkingSet;
use pyo3::prelude::*;

use self::alone::Alone;
use self::cluster::Cluster;
use crate::failure::Failure;

/// Rows of one table in a push.
#[derive(Debug)]
pub(crate) struct Part {
    /// Number of the table.
    pub(crate) table: usize,
    /// Keys, distinct.
    pub(crate) keys: Vec<u64>,
    /// Gradients, one row after the other.
    pub(crate) gradients: Vec<f32>,
}

/// The missing rows of a set, and the table that they are of.
pub(crate) struct Wanted<'a> {
    pub(crate) table: usize,
    /// Key of the row 0.
    pub(crate) first_key: u64,
    pub(crate) set: &'a mut WorkingSet,
}

/// The first rows of a table, and the place for their values.
pub(crate) struct Whole<'a> {
    pub(crate) table: usize,
    /// Key of the row 0.
    pub(crate) first_key: u64,
    pub(crate) rows: u64,
    /// One row after the other.
    pub(crate) values: &'a mut [f32],
}

impl Whole<'_> {
    fn keys(&self) -> Range<u64> {
        self.first_key..self.first_key + self.rows
    }
}

/// Rows of one table, and what they are set to.
#[derive(Debug)]
pub(crate) struct Written {
    /// Number of the table.
    pub(crate) table: usize,
    /// Keys, distinct.
    pub(crate) keys: Vec<u64>,
    /// Values, one row after the other.
    pub(crate) values: Vec<f32>,
    /// States of their rules; empty: those of rows that never had a gradient.
    pub(crate) states: Vec<f32>,
}

/// Rows that are kept of a table, ascending, in one shard.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) keys: Vec<u64>,
    pub(crate) values: Vec<f32>,
    pub(crate) states: Vec<f32>,
    /// Steps of the table in the shard.
    pub(crate) steps: u64,
    /// The key behind which the next page begins; none if this is the last.
    pub(crate) next: Option<u64>,
    /// Number of shards.
    pub(crate) shards: u16,
}

/// A holder of rows.
pub(crate) enum Backend {
    Alone(Alone),
    Cluster(Box<Cluster>),
}

impl Backend {
    pub(crate) fn add_table(&self, spec: TableSpec) -> Result<(), Failure> {
        match self {
            Self::Alone(alone) => alone.add_table(spec),
            Self::Cluster(cluster) => cluster.add_table(spec),
        }
    }

    pub(crate) fn set_rule(&self, table: usize, rule: UpdateRule, keeps_state: bool) -> Result<(), Failure> {
        match self {
            Self::Alone(alone) => alone.set_rule(table, rule, keeps_state),
            Self::Cluster(cluster) => cluster.set_rule(table, rule),
        }
    }

    /// Reads what sets miss, as a part of a step or beside it.
    pub(crate) fn load(&self, wanted: Vec<Wanted<'_>>, is_step: bool) -> Result<(), Failure> {
        match self {
            Self::Alone(alone) => alone.load(wanted),
            Self::Cluster(cluster) => cluster.load(wanted, is_step),
        }
    }

    /// Reads what sets miss and the first rows of tables, as a part of a step and in one turn.
    pub(crate) fn load_with(&self, wanted: Vec<Wanted<'_>>, whole: Vec<Whole<'_>>) -> Result<(), Failure> {
        match self {
            Self::Alone(alone) => {
                alone.load(wanted)?;
                whole.into_iter().try_for_each(|whole| alone.read(whole))
            }
            Self::Cluster(cluster) => cluster.pull(wanted, whole, true),
        }
    }

    /// Sets rows of a table.
    pub(crate) fn write(&self, rows: Written) -> Result<(), Failure> {
        match self {
            Self::Alone(alone) => alone.write(&rows),
            Self::Cluster(cluster) => cluster.write(rows),
        }
    }

    /// Makes all rows of a table those that never had a gradient, in a table of so many steps.
    pub(crate) fn reset(&self, table: usize, steps: u64) -> Result<(), Failure> {
        match self {
            Self::Alone(alone) => alone.reset(table, steps),
            Self::Cluster(cluster) => cluster.reset(table, steps),
        }
    }

    /// Reads a page of the rows that are kept of a table.
    pub(crate) fn scan(&self, table: usize, shard: u16, after: Option<u64>) -> Result<Page, Failure> {
        match self {
            Self::Alone(alone) => alone.scan(table, after),
            Self::Cluster(cluster) => cluster.scan(table, shard, after),
        }
    }

    /// Pushes rows, and waits at most for room.
    pub(crate) fn push(&self, parts: Vec<Part>) -> Result<(), Failure> {
        match self {
            Self::Alone(alone) => alone.push(parts),
            Self::Cluster(cluster) => cluster.push(parts),
        }
    }

    /// Ends a step.
    pub(crate) fn tick(&self) -> Result<(), Failure> {
        match self {
            Self::Alone(_) => Ok(()),
            Self::Cluster(cluster) => cluster.tick(),
        }
    }

    /// Takes note of samples that this process has trained on, above 0, and their mean loss, for those who watch the job.
    pub(crate) fn note_trained(&self, samples: u64, loss: f64) -> Result<(), Failure> {
        self.cluster().map_or(Ok(()), |cluster| cluster.note_trained(samples, loss))
    }

    /// Takes note of the samples that this process will train on.
    pub(crate) fn note_planned(&self, samples: u64) -> Result<(), Failure> {
        self.cluster().map_or(Ok(()), |cluster| cluster.note_planned(samples))
    }

    /// Waits until all pushes of this process can be read.
    pub(crate) fn flush(&self) -> Result<(), Failure> {
        match self {
            Self::Alone(alone) => alone.flush(),
            Self::Cluster(cluster) => cluster.flush(),
        }
    }

    /// Waits until all workers have come here, and all pushes can be read.
    pub(crate) fn barrier(&self) -> Result<(), Failure> {
        match self {
            Self::Alone(alone) => alone.flush(),
            Self::Cluster(cluster) => cluster.barrier(),
        }
    }

    /// Ends the part of this process. Returns the packets that switches of this process have added.
    pub(crate) fn finish(&self, is_done: bool, timeout: Duration) -> Result<u64, Failure> {
        match self {
            Self::Alone(alone) => alone.flush().map(|()| 0),
            Self::Cluster(cluster) => cluster.finish(is_done, timeout),
        }
    }

    /// The stores, if rows are in this process.
    pub(crate) fn stores(&self) -> Option<&Alone> {
        match self {
            Self::Alone(alone) => Some(alone),
            Self::Cluster(_) => None,
        }
    }

    /// The cluster, if rows are in one.
    pub(crate) fn cluster(&self) -> Option<&Cluster> {
        match self {
            Self::Alone(_) => None,
            Self::Cluster(cluster) => Some(cluster),
        }
    }
}

/// Raises a `KeyboardInterrupt` if there was one: waits call it every 50 ms.
pub(crate) fn check_signals() -> Result<(), Failure> {
    Python::attach(|py| py.check_signals()).map_err(Failure::Raised)
}
