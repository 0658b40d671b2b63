//! Logs whose features were hashed: `label<tab>key key ..`, one row a line.

use super::{criteo::label, rows::RawRow, vocabulary::Value};
use crate::data::{DataError, Line};

/// Keys are below this.
const KEYS: u64 = 1 << 20;
/// A row has at most so many.
const KEYS_MAX: usize = 1024;

const LINE: &str = "`label<tab>key key ..`";
const KEY: &str = "a key, a whole number below 1048576";
const SHORTER: &str = "at most 1024 keys";

/// A row without keys has the value that is missing.
pub(super) fn parse(line: Line<'_>, row: &mut RawRow) -> Result<(), DataError> {
    let [clicked, keys] = line.exactly(LINE)?;
    row.clicked = label(line, clicked)?;
    row.values.clear();
    for key in keys.split(|&byte| byte == b' ').filter(|key| !key.is_empty()) {
        let number: u64 = line.number(key, KEY)?;
        if number >= KEYS {
            return Err(line.malformed(KEY, key));
        }
        if row.values.len() == KEYS_MAX {
            return Err(line.malformed(SHORTER, keys));
        }
        row.values.push(Value::new(0, number));
    }
    if row.values.is_empty() {
        row.values.push(Value::missing(0));
    }
    Ok(())
}
