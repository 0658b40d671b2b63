//! Rows in memory, by columns.

use crate::hash::splitmix64;

/// Rows of a data set, by columns: what readers append to, and what a batch is. Two are equal to the bit if their checksums are;
/// a missing number is unequal to itself.
#[derive(Debug, Clone, Default)]
pub struct Columns {
    /// Labels, 0 or 1.
    pub labels: Vec<f32>,
    /// Weights of the rows; empty if the set has none.
    pub weights: Vec<f32>,
    /// Times of the rows, in the unit of the file; empty if the set has none.
    pub times: Vec<i64>,
    /// Values of each numeric column; NaN is a missing one, for a NaN in a file is an error. Whole numbers are exact up to 2^53.
    pub numbers: Vec<Vec<f64>>,
    /// Ids of each category.
    pub categories: Vec<Ids>,
}

/// Ids of one category: any number a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ids {
    /// For each row the end of its ids in `ids`; one more in front, 0.
    pub offsets: Vec<u32>,
    /// The ids of all rows, one row after the other. A row without ids has a missing value.
    pub ids: Vec<u64>,
}

impl Default for Ids {
    fn default() -> Self {
        Self { offsets: vec![0], ids: Vec::new() }
    }
}

impl Ids {
    /// Returns the ids of a row.
    #[inline]
    pub fn row(&self, row: usize) -> &[u64] {
        &self.ids[self.offsets[row] as usize..self.offsets[row + 1] as usize]
    }

    /// Appends a row that has the ids behind the last row.
    #[inline]
    pub(crate) fn end_row(&mut self) {
        self.offsets.push(u32::try_from(self.ids.len()).expect("a batch has fewer than 2^32 ids"));
    }

    fn truncate(&mut self, rows: usize) {
        self.offsets.truncate(rows + 1);
        self.ids.truncate(self.offsets.last().map_or(0, |&end| end as usize));
    }
}

impl Columns {
    /// No rows, of so many numeric columns and categories.
    pub fn new(numbers: usize, categories: usize) -> Self {
        Self {
            numbers: vec![Vec::new(); numbers],
            categories: vec![Ids::default(); categories],
            ..Self::default()
        }
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.labels.len()
    }

    /// Removes all rows, and keeps their memory.
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// Removes the rows behind the first `rows`.
    pub(crate) fn truncate(&mut self, rows: usize) {
        self.labels.truncate(rows);
        self.weights.truncate(rows);
        self.times.truncate(rows);
        self.numbers.iter_mut().for_each(|column| column.truncate(rows));
        self.categories.iter_mut().for_each(|column| column.truncate(rows));
    }

    /// Appends a row of others of the same shape.
    pub fn push_row(&mut self, from: &Self, row: usize) {
        self.push_rows(from, &[u32::try_from(row).expect("a row of a batch")]);
    }

    /// Appends rows of others of the same shape, column by column.
    pub(crate) fn push_rows(&mut self, from: &Self, rows: &[u32]) {
        self.push_each(|_| from, rows.iter().map(|&row| (0, row)));
    }

    /// Appends rows of several others of the same shape, column by column: each by the number of the others, and its row there.
    pub(crate) fn push_drawn<'a>(&mut self, from: impl Fn(u32) -> &'a Self, drawn: &[(u32, u32)]) {
        self.push_each(from, drawn.iter().copied());
    }

    fn push_each<'a>(
        &mut self,
        from: impl Fn(u32) -> &'a Self,
        drawn: impl ExactSizeIterator<Item = (u32, u32)> + Clone,
    ) {
        fn pick<'a, T: Copy + 'a>(
            into: &mut Vec<T>,
            from: impl Fn(u32) -> &'a [T],
            drawn: impl ExactSizeIterator<Item = (u32, u32)>,
        ) {
            into.extend(drawn.map(|(place, row)| from(place)[row as usize]));
        }
        let Some((first, _)) = drawn.clone().next() else { return };
        pick(&mut self.labels, |place| &from(place).labels, drawn.clone());
        if !from(first).weights.is_empty() {
            pick(&mut self.weights, |place| &from(place).weights, drawn.clone());
        }
        if !from(first).times.is_empty() {
            pick(&mut self.times, |place| &from(place).times, drawn.clone());
        }
        for (column, into) in self.numbers.iter_mut().enumerate() {
            pick(into, |place| &from(place).numbers[column], drawn.clone());
        }
        for (column, into) in self.categories.iter_mut().enumerate() {
            into.offsets.reserve(drawn.len());
            for (place, row) in drawn.clone() {
                match *from(place).categories[column].row(row as usize) {
                    // Nearly all rows.
                    [id] => into.ids.push(id),
                    ref ids => into.ids.extend_from_slice(ids),
                }
                into.end_row();
            }
        }
    }

    /// Returns a checksum of all content, to the bit: equal sets have equal ones, whatever their format.
    pub fn checksum(&self) -> u64 {
        let mut sum = splitmix64(self.rows() as u64);
        let mut add = |bits: u64| sum = splitmix64(sum ^ bits);
        self.labels.iter().for_each(|label| add(u64::from(label.to_bits())));
        self.weights.iter().for_each(|weight| add(u64::from(weight.to_bits())));
        self.times.iter().for_each(|time| add(time.cast_unsigned()));
        self.numbers.iter().flatten().for_each(|number| add(number.to_bits()));
        for column in &self.categories {
            column.offsets.iter().for_each(|offset| add(u64::from(*offset)));
            column.ids.iter().for_each(|id| add(*id));
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Columns {
        let mut columns = Columns::new(1, 1);
        for row in 0..3u32 {
            columns.labels.push(0.0);
            columns.numbers[0].push(f64::from(row));
            columns.categories[0].ids.extend((0..row).map(u64::from));
            columns.categories[0].end_row();
        }
        columns
    }

    #[test]
    fn rows_are_moved_whole() {
        let columns = example();
        let mut picked = Columns::new(1, 1);
        picked.push_rows(&columns, &[2, 0]);
        assert_eq!(picked.numbers[0], [2.0, 0.0]);
        assert_eq!((picked.categories[0].row(0), picked.categories[0].row(1)), (&[0, 1][..], &[][..]));
        picked.truncate(1);
        assert_eq!((picked.rows(), picked.categories[0].ids.len()), (1, 2));
    }

    #[test]
    fn a_checksum_sees_every_bit() {
        let sum = example().checksum();
        let mut other = example();
        other.categories[0].ids[2] ^= 1 << 63;
        assert_ne!(other.checksum(), sum);
        let mut other = example();
        other.numbers[0][0] = -0.0;
        assert_ne!(other.checksum(), sum);
    }
}
