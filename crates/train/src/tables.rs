//! The tables of a model, as a plan and the training loop see them.

use libra_plan::TableShape;
use libra_store::TableSpec;

/// The first key of layers; rows of embeddings have smaller ones. A layer is one row. Layers are in every push and never hot.
pub const LAYER_KEYS: u64 = 1 << 40;

/// The tables as a plan sees them.
pub fn shapes(tables: Vec<TableSpec>) -> Vec<TableShape> {
    let shape = |table: TableSpec| TableShape {
        hot: table.keys.start < LAYER_KEYS,
        name: table.name,
        keys: table.keys,
        width: u32::try_from(table.width).expect("a checked configuration has narrow rows"),
    };
    tables.into_iter().map(shape).collect()
}

/// How wide the row of each key is.
#[derive(Debug, Clone)]
pub struct Widths {
    /// The first key and the width of each table, by key.
    tables: Vec<(u64, usize)>,
}

impl Widths {
    /// The widths of the rows of these tables.
    pub fn new(tables: &[TableSpec]) -> Self {
        Self::ordered(tables.iter().map(|table| (table.keys.start, table.width)))
    }

    /// The same, of tables as a plan sees them.
    pub fn of_shapes(tables: &[TableShape]) -> Self {
        Self::ordered(tables.iter().map(|table| (table.keys.start, table.width as usize)))
    }

    fn ordered(tables: impl Iterator<Item = (u64, usize)>) -> Self {
        let mut tables: Vec<(u64, usize)> = tables.collect();
        tables.sort_unstable();
        Self { tables }
    }

    /// The width of a row.
    ///
    /// # Panics
    /// If no table begins at the key or before it.
    pub fn of(&self, key: u64) -> usize {
        let after = self.tables.partition_point(|(first, _)| *first <= key);
        self.tables[after - 1].1
    }

    /// How many values the rows of `keys` have together.
    pub fn sum(&self, keys: &[u64]) -> usize {
        keys.iter().map(|&key| self.of(key)).sum()
    }

    /// Each of `keys` with its row, of those that stand one behind the other in `values`.
    ///
    /// # Panics
    /// If there are fewer values than the rows have.
    pub fn rows<'a>(
        &'a self,
        keys: &'a [u64],
        mut values: &'a [f32],
    ) -> impl Iterator<Item = (u64, &'a [f32])> {
        keys.iter().map(move |&key| {
            let row;
            (row, values) = values.split_at(self.of(key));
            (key, row)
        })
    }
}

#[cfg(test)]
mod tests {
    use libra_store::{Init, Optimizer};

    use super::*;

    #[test]
    fn rows_are_as_wide_as_their_tables() {
        let table = |name: &str, keys, width| TableSpec {
            name: name.into(),
            keys,
            width,
            rule: Optimizer::Sgd { rate: 1.0 }.into(),
            init: Init::Zero,
        };
        let tables = vec![
            table("layer", LAYER_KEYS..LAYER_KEYS + 1, 70),
            table("user", 0..5, 3),
            table("item", 5..9, 2),
        ];
        let widths = Widths::new(&tables);
        assert_eq!([0, 4, 5, 8, LAYER_KEYS].map(|key| widths.of(key)), [3, 3, 2, 2, 70]);
        assert_eq!(widths.sum(&[4, 5, LAYER_KEYS, 0]), 78);
        let rows: Vec<(u64, &[f32])> = widths.rows(&[5, 0], &[1.0, 2.0, 3.0, 4.0, 5.0]).collect();
        assert_eq!(rows, [(5, &[1.0, 2.0][..]), (0, &[3.0, 4.0, 5.0][..])]);
        let hot: Vec<bool> = shapes(tables).iter().map(|shape| shape.hot).collect();
        assert_eq!(hot, [false, true, true]);
    }
}
