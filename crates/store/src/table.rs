//! What a table holds, and how its rows begin and change.

use std::ops::Range;

use hashbrown::HashSet;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{Init, Optimizer};

/// One table of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TableSpec {
    /// Its name, unique in the model.
    pub name: String,
    /// The keys of its rows; no other table of the model has any of them.
    pub keys: Range<u64>,
    /// How many f32 values one of its rows has, at least 1.
    pub width: usize,
    /// How gradients change its rows.
    pub optimizer: Optimizer,
    /// What its rows are before the first gradient.
    pub init: Init,
}

/// What is wrong with the tables of a store.
#[derive(Debug, Error, Clone, PartialEq)]
#[non_exhaustive]
pub enum TableError {
    /// A table without a name.
    #[error("table number {index} has no name")]
    Unnamed {
        /// Its position in the list of tables, from 0.
        index: usize,
    },
    /// Two tables of one name.
    #[error("two tables are named {table:?}")]
    SameName {
        /// The name they share.
        table: String,
    },
    /// A table that has no keys.
    #[error("table {table:?} has no keys")]
    NoKeys {
        /// Its name.
        table: String,
    },
    /// A table with rows of no values.
    #[error("table {table:?} has rows of width 0")]
    ZeroWidth {
        /// Its name.
        table: String,
    },
    /// A number of the optimizer or of the initial values that training cannot use.
    #[error("table {table:?}: {field} = {value} must be {wanted}")]
    Number {
        /// Its name.
        table: String,
        /// The field of [`Optimizer`] or [`Init`].
        field: &'static str,
        /// What it is.
        value: f32,
        /// What it should be.
        wanted: &'static str,
    },
    /// Two tables that share keys.
    #[error("tables {first:?} and {second:?} share keys, from {key} on")]
    Overlap {
        /// The table with the lower first key.
        first: String,
        /// The other one.
        second: String,
        /// The lowest key that is in both.
        key: u64,
    },
}

/// A number that is out of range.
pub(crate) struct OutOfRange {
    pub(crate) field: &'static str,
    pub(crate) value: f32,
    pub(crate) wanted: &'static str,
}

/// Checks the tables and orders their positions by first key.
pub(crate) fn order(tables: &[TableSpec]) -> Result<Vec<usize>, TableError> {
    let mut names = HashSet::new();
    for (index, spec) in tables.iter().enumerate() {
        let table = || spec.name.clone();
        if spec.name.is_empty() {
            return Err(TableError::Unnamed { index });
        }
        if !names.insert(spec.name.as_str()) {
            return Err(TableError::SameName { table: table() });
        }
        if spec.keys.is_empty() {
            return Err(TableError::NoKeys { table: table() });
        }
        if spec.width == 0 {
            return Err(TableError::ZeroWidth { table: table() });
        }
        if let Err(OutOfRange { field, value, wanted }) =
            spec.optimizer.check().and_then(|()| spec.init.check())
        {
            return Err(TableError::Number { table: table(), field, value, wanted });
        }
    }
    let mut by_first_key: Vec<usize> = (0..tables.len()).collect();
    by_first_key.sort_unstable_by_key(|index| tables[*index].keys.start);
    for pair in by_first_key.windows(2) {
        let (first, second) = (&tables[pair[0]], &tables[pair[1]]);
        if first.keys.end > second.keys.start {
            let key = second.keys.start;
            return Err(TableError::Overlap { first: first.name.clone(), second: second.name.clone(), key });
        }
    }
    Ok(by_first_key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(name: &str, keys: Range<u64>) -> TableSpec {
        TableSpec {
            name: name.into(),
            keys,
            width: 2,
            optimizer: Optimizer::Sgd { rate: 0.1 },
            init: Init::Zero,
        }
    }

    #[test]
    fn bad_tables_are_refused_by_name() {
        let error = |tables: Vec<TableSpec>| order(&tables).unwrap_err();
        let a = || "a".to_owned();
        assert_eq!(error(vec![table("a", 0..1), table("", 1..2)]), TableError::Unnamed { index: 1 });
        assert_eq!(error(vec![table("a", 0..1), table("a", 1..2)]), TableError::SameName { table: a() });
        assert_eq!(error(vec![table("a", 3..3)]), TableError::NoKeys { table: a() });
        let flat = TableSpec { width: 0, ..table("a", 0..1) };
        assert_eq!(error(vec![flat]), TableError::ZeroWidth { table: a() });
        let overlap = TableError::Overlap { first: a(), second: "b".into(), key: 9 };
        assert_eq!(error(vec![table("b", 9..20), table("a", 0..10)]), overlap);
        assert_eq!(order(&[table("b", 10..20), table("a", 0..10)]), Ok(vec![1, 0]));
    }

    #[test]
    fn numbers_that_cannot_train_are_refused() {
        let field = |spec: TableSpec| match order(&[spec]) {
            Err(TableError::Number { field, .. }) => field,
            other => panic!("{other:?}"),
        };
        let with = |optimizer| TableSpec { optimizer, ..table("a", 0..1) };
        let start = |init| TableSpec { init, ..table("a", 0..1) };
        assert_eq!(field(with(Optimizer::Sgd { rate: 0.0 })), "rate");
        assert_eq!(field(with(Optimizer::Sgd { rate: f32::NAN })), "rate");
        assert_eq!(field(with(Optimizer::Adagrad { rate: 0.1, epsilon: 0.0 })), "epsilon");
        let adam = |beta1, beta2| Optimizer::Adam { rate: 0.1, beta1, beta2, epsilon: 1e-8 };
        assert_eq!(field(with(adam(1.0, 0.5))), "beta1");
        assert_eq!(field(with(adam(0.5, -0.1))), "beta2");
        assert_eq!(field(start(Init::Uniform { bound: f32::INFINITY })), "bound");
        assert_eq!(field(start(Init::Normal { deviation: -1.0 })), "deviation");
        assert!(order(&[with(adam(0.0, 0.999))]).is_ok());
    }
}
