//! Contents of a table: the initial values of its rows, and their changes.

use std::ops::Range;

use hashbrown::HashSet;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{Init, UpdateRule};

/// One table of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TableSpec {
    /// Its name, unique in the model.
    pub name: String,
    /// The keys of its rows; no other table of the model has any of them.
    pub keys: Range<u64>,
    /// Number of f32 values of one of its rows, at least 1.
    pub width: usize,
    /// Update rule of its rows.
    pub rule: UpdateRule,
    /// Values of its rows before the first gradient.
    pub init: Init,
}

impl TableSpec {
    /// A table whose rows begin at zero.
    pub fn new(name: impl Into<String>, keys: Range<u64>, width: usize, rule: impl Into<UpdateRule>) -> Self {
        Self { name: name.into(), keys, width, rule: rule.into(), init: Init::Zero }
    }
}

/// A fault of the tables of a store.
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
    /// A number of the rule or of the initial values that training cannot use.
    #[error("table {table:?}: {field} = {value} must be {wanted}")]
    Number {
        /// Its name.
        table: String,
        /// The field of [`UpdateRule`] or [`Init`], or of what it is made of.
        field: &'static str,
        /// The value.
        value: f32,
        /// Condition that it must meet.
        wanted: &'static str,
    },
    /// A schedule beside FTRL-proximal, whose formula holds only for a rate that falls by itself.
    #[error("table {table:?}: FTRL-proximal takes no schedule, its rate falls by itself")]
    ScheduledFtrl {
        /// Its name.
        table: String,
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

/// A number that training cannot use.
#[derive(Debug, Error, Clone, Copy, PartialEq)]
#[error("{field} = {value} must be {wanted}")]
pub struct OutOfRange {
    /// The field it is in.
    pub field: &'static str,
    /// The value.
    pub value: f32,
    /// Condition that it must meet.
    pub wanted: &'static str,
}

impl OutOfRange {
    pub(crate) fn unless_positive(field: &'static str, value: f32) -> Result<(), Self> {
        let good = value > 0.0 && value.is_finite();
        if good { Ok(()) } else { Err(Self { field, value, wanted: "finite and above 0" }) }
    }

    pub(crate) fn unless_not_negative(field: &'static str, value: f32) -> Result<(), Self> {
        let good = value >= 0.0 && value.is_finite();
        if good { Ok(()) } else { Err(Self { field, value, wanted: "finite and not negative" }) }
    }
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
        if let Err(OutOfRange { field, value, wanted }) = spec.rule.check().and_then(|()| spec.init.check()) {
            return Err(TableError::Number { table: table(), field, value, wanted });
        }
        if spec.rule.schedules_ftrl() {
            return Err(TableError::ScheduledFtrl { table: table() });
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
    use crate::{Clip, Decay, Optimizer, Schedule};

    fn table(name: &str, keys: Range<u64>) -> TableSpec {
        TableSpec {
            name: name.into(),
            keys,
            width: 2,
            rule: Optimizer::Sgd { rate: 0.1 }.into(),
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
        let with = |rule| TableSpec { rule, ..table("a", 0..1) };
        let start = |init| TableSpec { init, ..table("a", 0..1) };
        let of = |optimizer: Optimizer| field(with(optimizer.into()));
        assert_eq!(of(Optimizer::Sgd { rate: 0.0 }), "rate");
        assert_eq!(of(Optimizer::Sgd { rate: f32::NAN }), "rate");
        assert_eq!(of(Optimizer::Momentum { rate: 0.1, momentum: 1.0, nesterov: false }), "momentum");
        assert_eq!(of(Optimizer::Adagrad { rate: 0.1, epsilon: 0.0 }), "epsilon");
        assert_eq!(of(Optimizer::RowAdagrad { rate: -0.1, epsilon: 1.0 }), "rate");
        let adam = |beta1, beta2| Optimizer::Adam { rate: 0.1, beta1, beta2, epsilon: 1e-8 };
        assert_eq!(of(adam(1.0, 0.5)), "beta1");
        assert_eq!(of(adam(0.5, -0.1)), "beta2");
        assert_eq!(of(Optimizer::AdamW { rate: 0.1, beta1: 0.9, beta2: 0.9, epsilon: f32::NAN }), "epsilon");
        let ftrl = |alpha, beta, l1, l2| Optimizer::Ftrl { alpha, beta, l1, l2 };
        assert_eq!(of(ftrl(0.0, 1.0, 0.0, 0.0)), "alpha");
        assert_eq!(of(ftrl(0.1, -1.0, 0.0, 0.0)), "beta");
        assert_eq!(of(ftrl(0.1, 0.0, 0.0, 0.0)), "beta");
        assert_eq!(of(ftrl(0.1, 0.0, f32::INFINITY, 1.0)), "l1");
        assert_eq!(of(ftrl(0.1, 0.0, 0.0, -1.0)), "l2");
        assert_eq!(of(Optimizer::RmsProp { rate: 0.1, decay: 1.0, epsilon: 1e-8 }), "decay");
        assert_eq!(field(start(Init::Uniform { bound: f32::INFINITY })), "bound");
        assert_eq!(field(start(Init::Normal { deviation: -1.0 })), "deviation");
        assert!(order(&[with(adam(0.0, 0.999).into())]).is_ok());
        assert!(order(&[with(ftrl(0.1, 0.0, 0.0, 1.0).into())]).is_ok());
    }

    #[test]
    fn rules_that_cannot_train_are_refused() {
        let with = |rule| order(&[TableSpec { rule, ..table("a", 0..1) }]);
        let field = |rule| match with(rule) {
            Err(TableError::Number { field, .. }) => field,
            other => panic!("{other:?}"),
        };
        let plain: UpdateRule = Optimizer::Sgd { rate: 0.1 }.into();
        let scheduled = |decay| UpdateRule { schedule: Schedule { warmup: 3, decay }, ..plain };
        assert_eq!(field(scheduled(Decay::Step { every: 0, factor: 0.5 })), "every");
        assert_eq!(field(scheduled(Decay::Step { every: 1, factor: 0.0 })), "factor");
        assert_eq!(field(scheduled(Decay::Exponential { every: 1, factor: 1.5 })), "factor");
        assert_eq!(field(scheduled(Decay::Linear { steps: 0, floor: 0.0 })), "steps");
        assert_eq!(field(scheduled(Decay::Cosine { steps: 9, floor: f32::NAN })), "floor");
        assert_eq!(field(UpdateRule { weight_decay: -0.1, ..plain }), "weight_decay");
        assert_eq!(field(UpdateRule { clip: Clip::Value { limit: 0.0 }, ..plain }), "limit");
        assert_eq!(field(UpdateRule { clip: Clip::Norm { limit: f32::INFINITY }, ..plain }), "limit");
        let optimizer = Optimizer::Ftrl { alpha: 0.1, beta: 1.0, l1: 0.0, l2: 0.0 };
        let ftrl = UpdateRule { optimizer, ..scheduled(Decay::InverseRoot) };
        assert_eq!(with(ftrl), Err(TableError::ScheduledFtrl { table: "a".into() }));
        assert!(with(scheduled(Decay::Linear { steps: 1, floor: 0.0 })).is_ok());
    }
}
