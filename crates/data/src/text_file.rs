//! Criteo's logs: a row a line, of a label, 13 whole numbers and 26 hashes between tabs. A missing value is empty.
//!
//! Kaggle's set and the one of a terabyte have the same lines.

mod index;
mod lines;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::columns::Columns;
use crate::description::{CRITEO_CATEGORIES, CRITEO_NUMBERS, Description, Keys};
use crate::error::{DataError, Fault, Row};
use crate::hash::{field_key, text_id};
use crate::place::Packing;
use crate::store::OpenFile;

pub(crate) use index::open as open_index;
use lines::Lines;

const COLUMNS: usize = 1 + CRITEO_NUMBERS + CRITEO_CATEGORIES;
const LINE: &str = "40 columns between tabs: a label, 13 whole numbers, 26 hashes";
const LABEL: &str = "a label, 0 or 1";
const NUMBER: &str = "a whole number, or nothing";
const HEX: &str = "up to 16 hexadecimal digits, or nothing";

/// A run of lines that is read by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Run {
    /// Bytes in front of it; 0 in a packed file, which is one run.
    pub(crate) offset: u64,
    /// Lines in front of it.
    pub(crate) line: u64,
    /// Its rows: lines that are not blank.
    pub(crate) rows: u64,
}

/// Names of the columns, and hashes of those of categories if ids are hashed.
#[derive(Debug, Clone)]
pub(crate) struct TextColumns {
    label: String,
    numbers: Vec<String>,
    categories: Vec<(String, Option<u64>)>,
}

impl TextColumns {
    /// The columns of a description, which must be those of Criteo.
    pub(crate) fn new(description: &Description) -> Result<Self, Fault> {
        let criteo = Description::criteo();
        if (Description { keys: criteo.keys, ..description.clone() }) != criteo {
            let reason =
                "text is Criteo's: label, numbers I1 to I13, categories C1 to C26 with text = \"hex\"";
            return Err(Fault::BadDescription { reason: reason.to_owned() });
        }
        let hash = |name: &str| (description.keys == Keys::Hashed).then(|| text_id(name.as_bytes()));
        let categories = criteo.categories.into_iter().map(|category| (hash(&category.name), category.name));
        Ok(Self {
            label: criteo.label,
            numbers: criteo.numbers,
            categories: categories.map(|(hash, name)| (name, hash)).collect(),
        })
    }
}

/// Reads the rows of a run.
pub(crate) struct TextReader {
    lines: Lines,
    columns: TextColumns,
    rows: u64,
}

impl TextReader {
    /// Opens `rows` rows of a run behind `skipped` ones.
    pub(crate) fn open(
        file: &Arc<OpenFile>,
        packing: Packing,
        columns: &TextColumns,
        run: Run,
        skipped: u64,
        rows: u64,
    ) -> Result<Self, DataError> {
        let mut lines = Lines::open(file, packing, run)?;
        for _ in 0..skipped {
            if lines.next()?.is_none() {
                return Err(file.info.at().error(Fault::Changed));
            }
        }
        Ok(Self { lines, columns: columns.clone(), rows })
    }

    /// Goes on with the next `rows` rows of the run.
    pub(crate) fn go_on(&mut self, rows: u64) {
        self.rows = rows;
    }

    /// Appends up to `rows` rows; returns their number, 0 at the end.
    pub(crate) fn read(&mut self, rows: usize, into: &mut Columns) -> Result<usize, DataError> {
        let rows = usize::try_from(self.rows).map_or(rows, |left| left.min(rows));
        for _ in 0..rows {
            let at = self.lines.at();
            let Some((number, line)) = self.lines.next()? else {
                return Err(at.error(Fault::Changed));
            };
            let place = |column: Option<&str>| {
                let at = at.clone().row(Row::Line(number));
                column.map_or_else(|| at.clone(), |column| at.clone().column(column))
            };
            parse(line, &self.columns, into).map_err(|(column, fault)| place(column).error(fault))?;
        }
        self.rows -= rows as u64;
        Ok(rows)
    }
}

/// Appends the row of a line; an error has the column.
fn parse<'a>(
    line: &[u8],
    columns: &'a TextColumns,
    into: &mut Columns,
) -> Result<(), (Option<&'a str>, Fault)> {
    let mut ends = memchr::memchr_iter(b'\t', line).chain([line.len()]);
    let mut start = 0;
    let mut missing = false;
    let mut next = || {
        let field = ends.next().map(|end| &line[start..end]);
        start += field.map_or(0, |field| field.len() + 1);
        missing |= field.is_none();
        field.unwrap_or_default()
    };
    let label = next();
    let label_value = match label {
        b"0" => Some(0.0),
        b"1" => Some(1.0),
        _ => None,
    };
    for (name, into) in columns.numbers.iter().zip(&mut into.numbers) {
        let field = next();
        into.push(if field.is_empty() {
            f64::NAN
        } else {
            number(field).ok_or_else(|| (Some(name.as_str()), Fault::bad_value(NUMBER, shown(field))))?
        });
    }
    for ((name, hash), into) in columns.categories.iter().zip(&mut into.categories) {
        let field = next();
        if !field.is_empty() {
            let value = hexadecimal(field).map_err(|fault| (Some(name.as_str()), fault))?;
            into.ids.push(hash.map_or(value, |hash| field_key(hash, value)));
        }
        into.end_row();
    }
    if missing || ends.next().is_some() {
        let found = memchr::memchr_iter(b'\t', line).count() + 1;
        return Err((None, Fault::bad_value(LINE, format!("{found} columns: {}", shown(line)))));
    }
    let label_value =
        label_value.ok_or_else(|| (Some(columns.label.as_str()), Fault::bad_value(LABEL, shown(label))))?;
    into.labels.push(label_value);
    debug_assert_eq!(memchr::memchr_iter(b'\t', line).count() + 1, COLUMNS);
    Ok(())
}

fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A whole number, exact in an f64.
fn number(field: &[u8]) -> Option<f64> {
    let (digits, sign) = field.strip_prefix(b"-").map_or((field, 1.0), |digits| (digits, -1.0));
    if digits.is_empty() || digits.len() > 18 {
        return None;
    }
    let mut value = 0i64;
    for &digit in digits {
        value = value * 10 + i64::from(digit.is_ascii_digit().then(|| digit - b'0')?);
    }
    // Zero has no sign in a whole number.
    Some(if value == 0 { 0.0 } else { sign * value as f64 })
}

/// Values of bytes as hexadecimal digits; [`NO_DIGIT`] of others.
const HEX_DIGITS: [u8; 256] = {
    let mut values = [NO_DIGIT; 256];
    let mut value = 0;
    while value < 16 {
        values[b"0123456789abcdef"[value as usize] as usize] = value;
        values[b"0123456789ABCDEF"[value as usize] as usize] = value;
        value += 1;
    }
    values
};
const NO_DIGIT: u8 = 0x80;

/// The value of hexadecimal digits. Whether they are is asked once for all: random digits make a branch for each as slow as a branch can be.
pub(crate) fn hexadecimal(field: &[u8]) -> Result<u64, Fault> {
    let (mut value, mut seen) = (0, 0);
    for &byte in field {
        let digit = HEX_DIGITS[usize::from(byte)];
        value = value << 4 | u64::from(digit);
        seen |= digit;
    }
    if (1..=16).contains(&field.len()) && seen & NO_DIGIT == 0 {
        Ok(value)
    } else {
        Err(Fault::bad_value(HEX, shown(field)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(line: &str) -> Result<Columns, String> {
        let columns = TextColumns::new(&Description::criteo()).unwrap();
        let mut into = Columns::new(CRITEO_NUMBERS, CRITEO_CATEGORIES);
        parse(line.as_bytes(), &columns, &mut into)
            .map(|()| into)
            .map_err(|(column, fault)| format!("{column:?} {fault}"))
    }

    fn line(label: &str, number: &str, hash: &str) -> String {
        let mut fields = vec![label.to_owned()];
        fields.extend(
            (0..CRITEO_NUMBERS).map(|index| if index == 4 { number.to_owned() } else { String::new() }),
        );
        fields.extend(
            (0..CRITEO_CATEGORIES).map(|index| if index == 25 { hash.to_owned() } else { String::new() }),
        );
        fields.join("\t")
    }

    #[test]
    fn a_line_becomes_a_row() {
        let columns = row(&line("1", "-3", "68fd1e64")).unwrap();
        assert_eq!((columns.labels[0], columns.numbers[4][0]), (1.0, -3.0));
        assert!(columns.numbers[0][0].is_nan());
        assert_eq!(
            (columns.categories[25].row(0), columns.categories[0].row(0)),
            (&[0x68fd_1e64][..], &[][..])
        );
    }

    #[test]
    fn hexadecimal_digits_are_those_of_the_standard_library() {
        for high in 0..=255 {
            for low in 0..=255 {
                let field = [high, low];
                let is_signed = high == b'+';
                let known = str::from_utf8(&field).ok().and_then(|text| u64::from_str_radix(text, 16).ok());
                assert_eq!(hexadecimal(&field).ok(), known.filter(|_| !is_signed), "{field:?}");
            }
        }
        assert_eq!(hexadecimal(b"fFfF0000aBcD0123").unwrap(), 0xffff_0000_abcd_0123);
        assert!(hexadecimal(b"").is_err() && hexadecimal(b"00000000000000001").is_err());
    }

    #[test]
    fn bad_values_name_their_column() {
        for (line, shown) in [
            (line("2", "", ""), "\"label\") expected a label, 0 or 1, found \"2\""),
            (line("", "", ""), "\"label\") expected"),
            (line("1", "1.5", ""), "\"I5\") expected a whole number, or nothing, found \"1.5\""),
            (line("1", "nan", ""), "\"I5\")"),
            (line("1", "-", ""), "\"I5\")"),
            (line("1", "", "xyz"), "\"C26\") expected up to 16 hexadecimal digits"),
            (line("1", "", "+1"), "\"C26\")"),
            (
                line("1", "", "1\t2"),
                "None expected 40 columns between tabs: a label, 13 whole numbers, 26 hashes, found \"41 columns",
            ),
            ("1\t2".to_owned(), "found \"2 columns: 1\\t2\""),
        ] {
            let error = row(&line).unwrap_err();
            assert!(error.contains(shown), "{error}");
        }
    }
}
