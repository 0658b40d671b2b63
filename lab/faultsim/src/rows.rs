//! The rows of the simulated model: where their values lie in one long list of sums.

use core::ops::Range;

use libra_plan::{Budget, HotRow, Plan, Provenance, Scale, TableShape};
use libra_store::{Init, Optimizer, TableSpec};

/// The first key of rows that are never hot.
const FIRST_COLD_KEY: u64 = 1000;
/// The first key of rows that workers set.
const FIRST_SET_KEY: u64 = 2000;

/// Two tables: one with rows that may be hot, one with rows that never are. Gradient descent at rate 1 from zero, so that
/// a row is minus the sum of its gradients. In some scenarios a third one, whose rows workers also set.
#[derive(Debug, Clone, PartialEq)]
pub struct Rows {
    /// Rows of the first table, and the values of each.
    pub embedding: (u64, usize),
    /// Rows of the second table, and the values of each.
    pub dense: (u64, usize),
    /// Number of rows of the first table that are hot in the plan; they are the first ones.
    pub hot: u64,
    /// The power of two that the gradients of hot rows are multiplied with.
    pub scale: i8,
    /// See [`Plan::headroom_bits`].
    pub headroom_bits: u8,
    /// The table whose rows workers also set.
    pub set: Option<SetTable>,
}

/// A table whose rows workers set, reset and scan. Its optimizer has a state, which is the last gradient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetTable {
    /// Number of rows.
    pub rows: u64,
    /// Values of each.
    pub width: usize,
    /// Number of rows that are hot in the plan; they are the first ones.
    pub hot: u64,
}

impl SetTable {
    /// Its position among the tables.
    pub const POSITION: u16 = 2;

    /// Its keys.
    pub fn keys(&self) -> Range<u64> {
        FIRST_SET_KEY..FIRST_SET_KEY + self.rows
    }

    /// True if a row is hot in the plan.
    pub fn is_hot(&self, key: u64) -> bool {
        key < FIRST_SET_KEY + self.hot
    }
}

impl Rows {
    /// The tables.
    pub fn tables(&self) -> Vec<TableSpec> {
        let table = |name: &str, keys, width, optimizer: Optimizer| TableSpec {
            name: name.into(),
            keys,
            width,
            rule: optimizer.into(),
            init: Init::Zero,
        };
        let sgd = Optimizer::Sgd { rate: 1.0 };
        let mut tables = vec![
            table("embedding", 0..self.embedding.0, self.embedding.1, sgd),
            table("dense", FIRST_COLD_KEY..FIRST_COLD_KEY + self.dense.0, self.dense.1, sgd),
        ];
        let last_gradient = Optimizer::Momentum { rate: 1.0, momentum: 0.0, nesterov: false };
        tables.extend(self.set.map(|set| table("set", set.keys(), set.width, last_gradient)));
        tables
    }

    /// The plan.
    pub fn plan(&self) -> Plan {
        let shape = |table: &TableSpec| TableShape {
            name: table.name.clone(),
            keys: table.keys.clone(),
            width: u32::try_from(table.width).expect("rows of a small model"),
            hot: table.name != "dense",
        };
        let scale = Scale(self.scale);
        let rows = (0..self.hot).map(|key| HotRow { key, count: self.hot - key, scale });
        let set = self.set.into_iter().flat_map(|set| set.keys().take_while(move |key| set.is_hot(*key)));
        let set = set.map(|key| HotRow { key, count: 0, scale });
        Plan {
            number: 4,
            provenance: Provenance::default(),
            tables: self.tables().iter().map(shape).collect(),
            budget: Budget::default(),
            headroom_bits: self.headroom_bits,
            predicted_share: 0.5,
            rows: rows.chain(set).collect(),
        }
    }

    /// Every key, in the order of [`range`](Self::range).
    pub fn keys(&self) -> Vec<u64> {
        let cold = FIRST_COLD_KEY..FIRST_COLD_KEY + self.dense.0;
        (0..self.embedding.0).chain(cold).chain(self.set.into_iter().flat_map(|set| set.keys())).collect()
    }

    /// The key at a position of [`keys`](Self::keys) below [`len`](Self::len).
    pub fn key(&self, position: u64) -> u64 {
        if position < self.embedding.0 { position } else { FIRST_COLD_KEY + position - self.embedding.0 }
    }

    /// Number of rows, those that workers set not included.
    pub fn len(&self) -> u64 {
        self.embedding.0 + self.dense.0
    }

    /// True if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of values of a row.
    pub fn width(&self, key: u64) -> usize {
        match self.set {
            Some(set) if set.keys().contains(&key) => set.width,
            _ if key < FIRST_COLD_KEY => self.embedding.1,
            _ => self.dense.1,
        }
    }

    /// The table whose rows workers set, if this row is of it.
    pub fn set_table_of(&self, key: u64) -> Option<SetTable> {
        self.set.filter(|set| set.keys().contains(&key))
    }

    /// Range of the values of a row in a list of all values.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn range(&self, key: u64) -> Range<usize> {
        let place = |number: u64, rows: u64, before: usize, width: usize| {
            assert!(number < rows, "no row has the key {key}");
            let start = before + usize::try_from(number).expect("a small model") * width;
            start..start + width
        };
        let ((rows, width), (cold_rows, cold_width)) = (self.embedding, self.dense);
        if key < FIRST_COLD_KEY {
            return place(key, rows, 0, width);
        }
        match self.set_table_of(key) {
            Some(set) => place(key - FIRST_SET_KEY, set.rows, self.values_of_sums(), set.width),
            None => place(key - FIRST_COLD_KEY, cold_rows, values_of(self.embedding), cold_width),
        }
    }

    /// Number of values of all rows.
    pub fn values(&self) -> usize {
        self.values_of_sums() + self.set.map_or(0, |set| values_of((set.rows, set.width)))
    }

    /// Number of values of the rows that are minus the sums of their gradients. They are the first ones.
    pub fn values_of_sums(&self) -> usize {
        values_of(self.embedding) + values_of(self.dense)
    }
}

/// Rows are set to multiples of this, and have fewer pushes of ones after that.
pub(crate) const SET_STEP: f32 = 1024.0;

/// The value that a row was set to, given its value now.
pub(crate) fn base_of(value: f32) -> f32 {
    (value / SET_STEP).ceil() * SET_STEP
}

/// Number of values of so many rows of a width.
fn values_of((rows, width): (u64, usize)) -> usize {
    usize::try_from(rows).expect("a small model") * width
}

/// For each value of each row a sum of gradients: whole numbers, or whole multiples of a power of two, which f64 adds
/// exactly in any order.
#[derive(Debug, Clone, PartialEq)]
pub struct Sums(pub Vec<f64>);

impl Sums {
    /// All zero.
    pub fn zero(rows: &Rows) -> Self {
        Self(vec![0.0; rows.values()])
    }

    /// Adds gradients of rows, which lie one behind the other.
    pub fn add(&mut self, rows: &Rows, keys: &[u64], gradients: &[f32]) {
        let mut rest = gradients.iter();
        for &key in keys {
            for (sum, gradient) in self.0[rows.range(key)].iter_mut().zip(&mut rest) {
                *sum += f64::from(*gradient);
            }
        }
    }

    /// Adds other sums.
    pub fn add_all(&mut self, other: &Self) {
        for (sum, more) in self.0.iter_mut().zip(&other.0) {
            *sum += more;
        }
    }

    /// Expected values of a row, given these sums: minus them. Compared as numbers, so that zero has no sign.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "gradients are chosen so that an f32 holds their sums"
    )]
    pub fn row(&self, rows: &Rows, key: u64) -> impl Iterator<Item = f32> {
        self.0[rows.range(key)].iter().map(|sum| -*sum as f32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: Rows = Rows {
        embedding: (10, 3),
        dense: (2, 5),
        hot: 4,
        scale: 0,
        headroom_bits: 12,
        set: Some(SetTable { rows: 3, width: 4, hot: 2 }),
    };

    #[test]
    fn every_row_has_a_place_of_its_own() {
        let mut next = 0;
        for (position, key) in (0..).zip(ROWS.keys()) {
            assert!(position >= ROWS.len() || ROWS.key(position) == key);
            let range = ROWS.range(key);
            assert_eq!((range.start, range.len()), (next, ROWS.width(key)));
            next = range.end;
        }
        assert_eq!((next, ROWS.values_of_sums(), ROWS.len()), (ROWS.values(), ROWS.values() - 12, 12));
        assert_eq!(ROWS.plan().rows.len(), 6);
        assert_eq!(ROWS.plan().check(), Ok(()));
    }

    #[test]
    fn a_row_is_minus_the_sum_of_its_gradients() {
        let mut sums = Sums::zero(&ROWS);
        sums.add(&ROWS, &[3, 9, 3], &[1.0, 2.0, 3.0, 7.0, 7.0, 7.0, 10.0, 20.0, 30.0]);
        let mut twice = sums.clone();
        twice.add_all(&sums);
        assert!(twice.row(&ROWS, 3).eq([-22.0, -44.0, -66.0]));
        assert!(twice.row(&ROWS, 0).eq([0.0; 3]));
    }
}
