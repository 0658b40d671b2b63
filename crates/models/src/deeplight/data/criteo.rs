//! The log of Criteo's display advertising challenge (Kaggle 2014): one row a line.

use super::{rows::RawRow, vocabulary::Value};
use crate::data::{DataError, Line};

/// Fields with whole numbers, in front.
const NUMBERS: usize = 13;
/// Fields with hashes, behind them.
const HASHES: usize = 26;
/// All fields.
pub(super) const FIELDS: usize = NUMBERS + HASHES;

const LINE: &str = "40 columns between tabs: a label, 13 whole numbers, 26 hashes";
const LABEL: &str = "a label, 0 or 1";
const NUMBER: &str = "a whole number, or nothing";
const HASH: &str = "a hash of up to 8 hexadecimal digits, or nothing";

pub(super) fn parse(line: Line<'_>, row: &mut RawRow) -> Result<(), DataError> {
    let columns: [&[u8]; 1 + FIELDS] = line.exactly(LINE)?;
    row.clicked = label(line, columns[0])?;
    row.values.clear();
    for (field, column) in columns[1..].iter().enumerate() {
        row.values.push(if column.is_empty() {
            Value::missing(field)
        } else if field < NUMBERS {
            Value::new(field, bin(line.number::<i64>(column, NUMBER)? as f64))
        } else {
            Value::new(field, hash(column).ok_or_else(|| line.malformed(HASH, column))?)
        });
    }
    Ok(())
}

/// Returns true for a click.
pub(super) fn label(line: Line<'_>, column: &[u8]) -> Result<bool, DataError> {
    match column {
        b"0" => Ok(false),
        b"1" => Ok(true),
        _ => Err(line.malformed(LABEL, column)),
    }
}

/// Numbers up to 2 stand for themselves, larger ones for the whole part of the square of their logarithm, as in the solution that won the
/// challenge (Juan, Zhuang, Chin 2014).
///
/// The number is whole.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative, and below 2^34")]
pub(super) fn bin(number: f64) -> u64 {
    const LOWEST: f64 = -4_294_967_296.0;
    if number > 2.0 { (1 << 33) + number.ln().powi(2) as u64 } else { (number.max(LOWEST) - LOWEST) as u64 }
}

fn hash(column: &[u8]) -> Option<u64> {
    if column.len() > 8 {
        return None;
    }
    let mut hash = 0;
    for &byte in column {
        hash = hash << 4 | u64::from(char::from(byte).to_digit(16)?);
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_numbers_are_binned() {
        let bin = |number: i64| bin(number as f64);
        let small: Vec<u64> = (-3..=2).map(bin).collect();
        assert!(small.is_sorted_by(|a, b| a < b));
        // ln(3)^2 = 1.2 and ln(5)^2 = 2.6: bins 1 and 2, which are not the numbers 1 and 2.
        assert_eq!([3, 4, 5, 1382].map(|number| bin(number) - bin(3)), [0, 0, 1, 51]);
        assert!(bin(3) > bin(2) && bin(i64::MAX) < bin(3) + 2000);
        assert_eq!(bin(i64::MIN), 0);
    }

    #[test]
    fn hashes_are_hexadecimal() {
        assert_eq!(hash(b"68fd1e64"), Some(0x68fd_1e64));
        assert_eq!((hash(b"xyz"), hash(b"123456789"), hash(b"+1")), (None, None, None));
    }
}
