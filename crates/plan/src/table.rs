//! The tables of a model, as far as a plan needs them.

use std::ops::Range;

use hashbrown::HashSet;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Slots of a region that rows can use: a region has at most 2^15 cells (bit 15 of a cell is zero on the
/// wire), and the last one is reserved for padding.
pub const SLOTS_PER_REGION: u16 = 32_767;

/// The name, keys and width of one table of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableShape {
    /// Its name, unique in the model.
    pub name: String,
    /// The keys of its rows; no other table of the model has any of them.
    pub keys: Range<u64>,
    /// Number of f32 values of one of its rows, at least 1.
    pub width: u32,
    /// True if its rows may become hot. False for dense tables, whose every row is in every push.
    pub hot: bool,
}

/// A fault of the tables of a model.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShapeError {
    /// A table without a name.
    #[error("table number {index} has no name")]
    Unnamed {
        /// Its position in the list of tables, from 0.
        index: usize,
    },
    /// Two tables of one name.
    #[error("two tables are named {name:?}")]
    SameName {
        /// The name they share.
        name: String,
    },
    /// A table that has no keys.
    #[error("table {name:?} has no keys")]
    NoKeys {
        /// Its name.
        name: String,
    },
    /// A table with rows of no values.
    #[error("table {name:?} has rows of width 0")]
    ZeroWidth {
        /// Its name.
        name: String,
    },
    /// A table whose rows may be hot, but would not fit in a region.
    #[error(
        "rows of table {name:?} have {width} values, hot ones at most {SLOTS_PER_REGION}: make it `hot = false`"
    )]
    TooWide {
        /// Its name.
        name: String,
        /// The width of its rows.
        width: u32,
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

impl ShapeError {
    /// The name of the table at fault; of two that share keys, the one that starts later.
    #[must_use]
    pub fn table(&self) -> &str {
        match self {
            Self::Unnamed { .. } => "",
            Self::SameName { name } | Self::NoKeys { name } | Self::ZeroWidth { name } => name,
            Self::TooWide { name, .. } => name,
            Self::Overlap { second, .. } => second,
        }
    }
}

/// Tables that were checked, ordered so that the one of a key is found in logarithmic time.
#[derive(Debug, Clone)]
pub(crate) struct Tables {
    shapes: Vec<TableShape>,
    /// First key and position in `shapes` of each table, ascending.
    by_first_key: Vec<(u64, usize)>,
}

impl Tables {
    pub(crate) fn new(shapes: Vec<TableShape>) -> Result<Self, ShapeError> {
        let by_first_key = order(&shapes)?;
        Ok(Self { shapes, by_first_key })
    }

    /// The position of the table that holds `key`, and the table.
    pub(crate) fn find(&self, key: u64) -> Option<(usize, &TableShape)> {
        let after = self.by_first_key.partition_point(|(first, _)| *first <= key);
        let (_, index) = self.by_first_key[..after].last()?;
        let shape = &self.shapes[*index];
        shape.keys.contains(&key).then_some((*index, shape))
    }

    pub(crate) fn shapes(&self) -> &[TableShape] {
        &self.shapes
    }
}

fn order(shapes: &[TableShape]) -> Result<Vec<(u64, usize)>, ShapeError> {
    let mut names = HashSet::new();
    for (index, shape) in shapes.iter().enumerate() {
        let name = || shape.name.clone();
        if shape.name.is_empty() {
            return Err(ShapeError::Unnamed { index });
        }
        if !names.insert(shape.name.as_str()) {
            return Err(ShapeError::SameName { name: name() });
        }
        if shape.keys.is_empty() {
            return Err(ShapeError::NoKeys { name: name() });
        }
        if shape.width == 0 {
            return Err(ShapeError::ZeroWidth { name: name() });
        }
        if shape.hot && shape.width > u32::from(SLOTS_PER_REGION) {
            return Err(ShapeError::TooWide { name: name(), width: shape.width });
        }
    }
    let mut by_first_key: Vec<(u64, usize)> =
        shapes.iter().enumerate().map(|(index, shape)| (shape.keys.start, index)).collect();
    by_first_key.sort_unstable();
    for pair in by_first_key.windows(2) {
        let (first, second) = (&shapes[pair[0].1], &shapes[pair[1].1]);
        if first.keys.end > second.keys.start {
            let key = second.keys.start;
            return Err(ShapeError::Overlap { first: first.name.clone(), second: second.name.clone(), key });
        }
    }
    Ok(by_first_key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(name: &str, keys: Range<u64>) -> TableShape {
        TableShape { name: name.into(), keys, width: 2, hot: true }
    }

    #[test]
    fn a_key_finds_its_table() {
        let tables = Tables::new(vec![table("b", 20..30), table("a", 0..10)]).unwrap();
        let name = |key| tables.find(key).map(|(index, shape)| (index, shape.name.as_str()));
        assert_eq!(name(0), Some((1, "a")));
        assert_eq!(name(9), Some((1, "a")));
        assert_eq!(name(10), None);
        assert_eq!(name(20), Some((0, "b")));
        assert_eq!(name(30), None);
        assert_eq!(name(u64::MAX), None);
    }

    #[test]
    fn bad_shapes_are_refused_by_name() {
        let error = |shapes: Vec<TableShape>| Tables::new(shapes).unwrap_err();
        assert_eq!(error(vec![table("", 0..1)]), ShapeError::Unnamed { index: 0 });
        assert_eq!(
            error(vec![table("a", 0..1), table("a", 1..2)]),
            ShapeError::SameName { name: "a".into() }
        );
        assert_eq!(error(vec![table("a", 1..1)]), ShapeError::NoKeys { name: "a".into() });
        assert_eq!(
            error(vec![TableShape { width: 0, ..table("a", 0..1) }]),
            ShapeError::ZeroWidth { name: "a".into() }
        );
        assert_eq!(
            error(vec![TableShape { width: 32_768, ..table("a", 0..1) }]),
            ShapeError::TooWide { name: "a".into(), width: 32_768 }
        );
        assert_eq!(
            error(vec![table("b", 5..15), table("a", 0..6)]),
            ShapeError::Overlap { first: "a".into(), second: "b".into(), key: 5 }
        );
        assert!(Tables::new(vec![TableShape { width: 32_768, hot: false, ..table("a", 0..1) }]).is_ok());
    }
}
