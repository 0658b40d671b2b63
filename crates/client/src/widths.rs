//! Widths of rows by key.

use libra_plan::TableShape;
use libra_store::TableSpec;

/// The width of the row of each key.
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

    /// Returns the width of a row.
    ///
    /// # Panics
    /// If no table begins at the key or before it.
    pub fn of(&self, key: u64) -> usize {
        let after = self.tables.partition_point(|(first, _)| *first <= key);
        self.tables[after - 1].1
    }

    /// Returns the number of values that the rows of `keys` have together.
    pub fn sum(&self, keys: &[u64]) -> usize {
        keys.iter().map(|&key| self.of(key)).sum()
    }

    /// Returns each of `keys` with its row, from rows that follow one another in `values`.
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
    use super::*;

    #[test]
    fn rows_are_as_wide_as_their_tables() {
        let shape = |name: &str, keys, width| TableShape { name: name.to_owned(), keys, width, hot: true };
        let widths =
            Widths::of_shapes(&[shape("wide", 900..901, 70), shape("user", 0..5, 3), shape("item", 5..9, 2)]);
        assert_eq!([0, 4, 5, 8, 900].map(|key| widths.of(key)), [3, 3, 2, 2, 70]);
        assert_eq!(widths.sum(&[4, 5, 900, 0]), 78);
        let rows: Vec<(u64, &[f32])> = widths.rows(&[5, 0], &[1.0, 2.0, 3.0, 4.0, 5.0]).collect();
        assert_eq!(rows, [(5, &[1.0, 2.0][..]), (0, &[3.0, 4.0, 5.0][..])]);
    }
}
