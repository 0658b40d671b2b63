//! Holders of rows: stores of this process, or a cluster.

pub(crate) mod alone;

use libra_client::{Rule, TableSpec};
use libra_lookup::WorkingSet;
use pyo3::prelude::*;

use self::alone::Alone;
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

/// A holder of rows.
pub(crate) enum Backend {
    Alone(Alone),
}

impl Backend {
    pub(crate) fn add_table(&self, spec: TableSpec) -> Result<(), Failure> {
        match self {
            Self::Alone(alone) => alone.add_table(spec),
        }
    }

    pub(crate) fn set_rule(&self, table: usize, rule: Rule, keeps_state: bool) -> Result<(), Failure> {
        match self {
            Self::Alone(alone) => alone.set_rule(table, rule, keeps_state),
        }
    }

    /// Reads what sets miss.
    pub(crate) fn load(&self, wanted: Vec<Wanted<'_>>) -> Result<(), Failure> {
        match self {
            Self::Alone(alone) => alone.load(wanted),
        }
    }

    pub(crate) fn push(&self, parts: Vec<Part>) -> Result<(), Failure> {
        match self {
            Self::Alone(alone) => alone.push(parts),
        }
    }

    /// Waits until all pushes of this process can be read.
    pub(crate) fn flush(&self) -> Result<(), Failure> {
        match self {
            Self::Alone(alone) => alone.flush(),
        }
    }

    /// The stores, if rows are in this process.
    pub(crate) fn stores(&self) -> Option<&Alone> {
        match self {
            Self::Alone(alone) => Some(alone),
        }
    }
}

/// Raises a `KeyboardInterrupt` if there was one: waits call it every 50 ms.
pub(crate) fn check_signals() -> Result<(), Failure> {
    Python::attach(|py| py.check_signals()).map_err(Failure::Raised)
}
