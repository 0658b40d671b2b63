//! The difference between exported rows and those of a checkpoint.

use std::cmp::Ordering;

use super::format::Rows;
use super::spool::Record;

/// The difference of a part of a table.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    /// All rows, by rising key.
    pub(super) next: Rows,
    /// Those that are new, or other ones.
    pub(super) changed: Rows,
    /// Keys of rows that are no more.
    pub(super) removed: Vec<u64>,
}

impl Change {
    /// Adds the changed rows of another part.
    pub(super) fn append(&mut self, mut other: Self) {
        self.changed.keys.append(&mut other.changed.keys);
        self.changed.rows.append(&mut other.changed.rows);
        self.removed.append(&mut other.removed);
    }

    /// Bytes of what has changed.
    pub(super) fn bytes(&self) -> usize {
        8 * (self.changed.keys.len() + self.removed.len()) + self.changed.rows.len()
    }
}

/// Compares rows, by rising key, with those of a checkpoint, in the order in which they came: of a key the last one counts. If they are
/// only those that were written since, others are as before; otherwise others are no more.
///
/// # Errors
/// The key of a row that two shards have.
pub(super) fn compare(
    before: &Rows,
    records: &[Record],
    rows: &[u8],
    stride: usize,
    is_incremental: bool,
) -> Result<Change, u64> {
    let mut order: Vec<(u64, usize)> = records.iter().map(|record| record.key).zip(0..).collect();
    order.sort_unstable();
    let mut change = Change::default();
    let (mut at, mut old) = (0, 0);
    while at < order.len() || old < before.keys.len() {
        let next = order.get(at).map(|(key, _)| *key);
        let there = before.keys.get(old).copied();
        let side = match (there, next) {
            (Some(there), Some(next)) => there.cmp(&next),
            (Some(_), None) => Ordering::Less,
            _ => Ordering::Greater,
        };
        if side == Ordering::Less {
            let key = before.keys[old];
            if is_incremental {
                change.next.push(key, before.row(old, stride));
            } else {
                change.removed.push(key);
            }
            old += 1;
            continue;
        }
        let key = order[at].0;
        let of_key = order[at..].partition_point(|(other, _)| *other == key);
        let last = last_of(records, &order[at..at + of_key]).map_err(|()| key)?;
        at += of_key;
        let is_there = side == Ordering::Equal;
        match last {
            None if is_there => change.removed.push(key),
            None => {}
            Some(position) => {
                let row = &rows[position * stride..][..stride];
                change.next.push(key, row);
                if !is_there || before.row(old, stride) != row {
                    change.changed.push(key, row);
                }
            }
        }
        old += usize::from(is_there);
    }
    Ok(change)
}

/// The position of the row that counts, of those of a key by rising position; `None` if it is no more.
fn last_of(records: &[Record], of_key: &[(u64, usize)]) -> Result<Option<usize>, ()> {
    // Each shard has an order of its own.
    let mut found: Option<(u16, usize)> = None;
    for (number, (_, position)) in of_key.iter().enumerate() {
        let record = records[*position];
        let is_last = of_key.get(number + 1).is_none_or(|(_, next)| records[*next].shard != record.shard);
        if is_last && !record.is_removed {
            if found.is_some_and(|(shard, _)| shard != record.shard) {
                return Err(());
            }
            found = Some((record.shard, *position));
        }
    }
    Ok(found.map(|(_, position)| position))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use std::collections::BTreeMap;

    fn record(key: u64, shard: u16, is_removed: bool) -> Record {
        Record { key, shard, is_removed }
    }

    #[test]
    fn a_row_of_two_shards_is_named() {
        let rows = [1, 2, 3];
        let both = [record(5, 0, false), record(5, 1, false)];
        assert_eq!(compare(&Rows::default(), &both, &rows, 1, false), Err(5));
        // One that has moved.
        let moved = [record(5, 0, false), record(5, 0, true), record(5, 1, false)];
        let change = compare(&Rows::default(), &moved, &rows, 1, false).unwrap();
        assert_eq!((change.changed.keys, change.changed.rows), (vec![5], vec![3]));
    }

    proptest! {
        #[test]
        fn differences_are_those_of_maps(
            before in prop::collection::btree_map(0..40_u64, 0..3_u8, 0..40),
            steps in prop::collection::vec((0..40_u64, prop::option::of(0..3_u8)), 0..80),
            is_incremental: bool,
        ) {
            let mut after = if is_incremental { before.clone() } else { BTreeMap::new() };
            for (key, value) in &steps {
                match value {
                    Some(value) => drop(after.insert(*key, *value)),
                    None => drop(after.remove(key)),
                }
            }
            let of = |map: &BTreeMap<u64, u8>| Rows {
                keys: map.keys().copied().collect(),
                rows: map.values().copied().collect(),
            };
            let records: Vec<Record> = steps.iter().map(|(key, value)| record(*key, 0, value.is_none())).collect();
            let rows: Vec<u8> = steps.iter().map(|(_, value)| value.unwrap_or(9)).collect();
            let change = compare(&of(&before), &records, &rows, 1, is_incremental).unwrap();
            prop_assert_eq!(&change.next, &of(&after));
            let changed: BTreeMap<u64, u8> =
                after.iter().filter(|(key, value)| before.get(key) != Some(value)).map(|(key, value)| (*key, *value)).collect();
            prop_assert_eq!(&change.changed, &of(&changed));
            let removed: Vec<u64> = before.keys().filter(|key| !after.contains_key(key)).copied().collect();
            prop_assert_eq!(&change.removed, &removed);
        }
    }
}
