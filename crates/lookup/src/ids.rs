//! Ids of rows as callers have them, and the numbers of the rows that they name.

use thiserror::Error;

/// Ids of a table without a bound are below this: 2^56.
pub const OPEN_IDS: u64 = 1 << 56;

/// An integer type of ids.
pub trait Id: Copy {
    /// Returns the id in the widest type.
    fn widen(self) -> i64;
}

impl Id for i64 {
    fn widen(self) -> i64 {
        self
    }
}

impl Id for i32 {
    fn widen(self) -> i64 {
        self.into()
    }
}

/// The ids that a table takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdSpace {
    /// From 0 up to the number of rows.
    Bounded {
        /// Rows of the table.
        rows: u64,
    },
    /// From 0 up to [`OPEN_IDS`].
    Open,
    /// All of 64 bits, hashed to [`OPEN_IDS`] numbers. Of a billion ids about 7 pairs share a number.
    Hashed,
}

/// An id that a table does not take.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[error("id {id} at position {position} is out of range: ids are from 0 to {}", end - 1)]
pub struct IdError {
    /// Position in the input.
    pub position: usize,
    /// The id.
    pub id: i64,
    /// Lowest number that is too large.
    pub end: u64,
}

impl IdSpace {
    /// Checks all ids. The padding id is checked as the others are.
    ///
    /// # Errors
    /// The first id that the table does not take.
    pub fn check<I: Id>(self, ids: &[I]) -> Result<(), IdError> {
        let end = match self {
            Self::Bounded { rows } => rows,
            Self::Open => OPEN_IDS,
            Self::Hashed => return Ok(()),
        };
        // Negative ids are the largest unsigned numbers. Without an early exit the loop is vectorised.
        let largest = ids.iter().map(|id| id.widen().cast_unsigned()).fold(0, u64::max);
        if ids.is_empty() || largest < end {
            return Ok(());
        }
        let is_outside = |id: &I| id.widen().cast_unsigned() >= end;
        let position = ids.iter().position(is_outside).expect("the largest id is outside");
        Err(IdError { position, id: ids[position].widen(), end })
    }

    /// Returns the number of the row of an id that passed [`check`](Self::check).
    #[inline]
    pub fn row(self, id: i64) -> u64 {
        let id = id.cast_unsigned();
        if self == Self::Hashed { mix(id) >> 8 } else { id }
    }
}

/// The finalizer of splitmix64 (Steele, Lea, Flood 2014), which is a bijection of 64 bits.
fn mix(id: u64) -> u64 {
    let mut mixed = id.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_outside_of_a_table_are_refused_by_position() {
        let space = IdSpace::Bounded { rows: 10 };
        assert_eq!(space.check(&[0_i64, 9]), Ok(()));
        assert_eq!(space.check::<i64>(&[]), Ok(()));
        assert_eq!(space.check(&[3, -1, 10]), Err(IdError { position: 1, id: -1, end: 10 }));
        assert_eq!(space.check(&[3_i32, 10]), Err(IdError { position: 1, id: 10, end: 10 }));
        let error = IdSpace::Open.check(&[1_i64 << 56]).unwrap_err();
        assert_eq!((error.position, error.end), (0, OPEN_IDS));
        assert_eq!(IdSpace::Bounded { rows: 0 }.check::<i64>(&[]), Ok(()));
        assert_eq!(IdSpace::Hashed.check(&[i64::MIN, -1, i64::MAX]), Ok(()));
    }

    #[test]
    fn hashed_ids_are_below_the_end_of_open_ones() {
        let rows = [i64::MIN, -1, 0, 1, i64::MAX].map(|id| IdSpace::Hashed.row(id));
        assert!(rows.iter().all(|row| *row < OPEN_IDS));
        assert!(rows.windows(2).all(|pair| pair[0] != pair[1]));
        assert_eq!(IdSpace::Open.row(77), 77);
    }
}
