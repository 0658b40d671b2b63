//! The rows of one table that the current step has looked up.

use std::sync::{Arc, OnceLock};

use thiserror::Error;

use crate::ids::{Id, IdError, IdSpace};
use crate::index::{DirectIndex, Index};

/// The slot of the padding id, which has no row.
pub const PADDING: u32 = u32::MAX;

/// Tables of at most so many rows are indexed by row number: 8 bytes a row.
const DIRECT_ROWS_MAX: u64 = 1 << 20;

/// Rows of one table: id to slot, and slot to values.
///
/// It holds each row once, however often it is looked up. [`renew`](Self::renew) forgets all values; look-ups from before can still be
/// translated, since they share the ids of their generation.
#[derive(Debug)]
pub struct WorkingSet {
    width: usize,
    index: Index,
    /// In the place of `index`, for all rows below its length.
    direct: Option<DirectIndex>,
    /// Row numbers by slot.
    ids: Vec<u64>,
    /// Values of the slots below `loaded`.
    values: Vec<f32>,
    loaded: usize,
    generation: Arc<Generation>,
}

/// Ids of a working set after it was renewed.
#[derive(Debug, Default)]
struct Generation {
    ids: OnceLock<Vec<u64>>,
}

/// The slots of one look-up, by position in its input.
#[derive(Debug, Clone)]
pub struct Lookup {
    slots: Vec<u32>,
    generation: Arc<Generation>,
}

/// Values of a look-up that its working set has forgotten.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[error("the rows of this look-up may have changed since, by a step of the optimizer")]
pub struct Outdated;

impl Lookup {
    /// Returns a slot for each position; [`PADDING`] for the padding id.
    pub fn slots(&self) -> &[u32] {
        &self.slots
    }
}

impl WorkingSet {
    /// Returns an empty set of rows of so many values.
    pub fn new(width: usize) -> Self {
        Self {
            width,
            index: Index::new(),
            direct: None,
            ids: Vec::new(),
            values: Vec::new(),
            loaded: 0,
            generation: Arc::default(),
        }
    }

    /// As [`new`](Self::new), for a set that is renewed many times: if the table is small, rows are found by number.
    pub fn of_table(width: usize, space: IdSpace) -> Self {
        let direct = match space {
            IdSpace::Bounded { rows } if rows <= DIRECT_ROWS_MAX => {
                usize::try_from(rows).ok().map(DirectIndex::new)
            }
            _ => None,
        };
        Self { direct, ..Self::new(width) }
    }

    /// Returns the number of values of a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns row numbers by slot.
    pub fn ids(&self) -> &[u64] {
        &self.ids
    }

    /// Returns values by slot, for all slots that [`load`](Self::load) has filled.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// Gives each distinct id a slot. Values of new ones are missing until the next [`load`](Self::load).
    ///
    /// # Errors
    /// An id that the table does not take. The set is as before.
    ///
    /// # Panics
    /// The set has 2^32 - 1 rows.
    pub fn assign<I: Id>(
        &mut self,
        ids: &[I],
        space: IdSpace,
        padding: Option<i64>,
    ) -> Result<Lookup, IdError> {
        space.check(ids)?;
        let mut slots = Vec::with_capacity(ids.len());
        if let Some(padding) = padding {
            slots.extend(ids.iter().map(|id| match id.widen() {
                id if id == padding => PADDING,
                id => self.slot_of(space.row(id)),
            }));
        } else if let Some(direct) = &mut self.direct {
            let mut next = next_slot(self.ids.len());
            next_slot(self.ids.len() + ids.len());
            // A row that is not new is written, too, and the next one over it.
            self.ids.resize(self.ids.len() + ids.len(), 0);
            slots.extend(ids.iter().map(|id| {
                let row = id.widen().cast_unsigned();
                let slot = direct.find_or_insert(place(row), next);
                self.ids[next as usize] = row;
                next += u32::from(slot == next);
                slot
            }));
            self.ids.truncate(next as usize);
        } else {
            slots.extend(ids.iter().map(|id| self.slot_of(space.row(id.widen()))));
        }
        Ok(Lookup { slots, generation: Arc::clone(&self.generation) })
    }

    /// Returns the slot of a row, new if it has none.
    #[inline]
    pub(crate) fn slot_of(&mut self, row: u64) -> u32 {
        let next = next_slot(self.ids.len());
        let slot = match &mut self.direct {
            Some(direct) => direct.find_or_insert(place(row), next),
            None => self.index.find_or_insert(row, next),
        };
        if slot == next {
            self.ids.push(row);
        }
        slot
    }

    /// Reads the values that are missing: `read` gets row numbers, and the place for their values one row after the other. It is not
    /// called if there are none.
    ///
    /// # Errors
    /// Those of `read`. The values are still missing then.
    pub fn load<E>(&mut self, read: impl FnOnce(&[u64], &mut [f32]) -> Result<(), E>) -> Result<(), E> {
        let missing = &self.ids[self.loaded..];
        if missing.is_empty() {
            return Ok(());
        }
        let start = self.loaded * self.width;
        self.values.resize(self.ids.len() * self.width, 0.0);
        let outcome = read(missing, &mut self.values[start..]);
        if outcome.is_ok() {
            self.loaded = self.ids.len();
        } else {
            self.values.truncate(start);
        }
        outcome
    }

    /// Returns row numbers whose values are missing, for a caller that reads several sets at once.
    pub fn missing(&self) -> &[u64] {
        &self.ids[self.loaded..]
    }

    /// Begins a new generation without rows, because values may have changed.
    pub fn renew(&mut self) {
        let mut old = std::mem::take(&mut self.ids);
        if Arc::strong_count(&self.generation) == 1 {
            // There is no look-up that could be translated.
            old.clear();
            self.ids = old;
        } else {
            self.generation.ids.set(old).expect("a generation ends once");
            self.generation = Arc::default();
        }
        self.index.clear();
        if let Some(direct) = &mut self.direct {
            direct.clear();
        }
        self.values.clear();
        self.loaded = 0;
    }

    /// Makes this set, which is of one look-up alone, the owner of nothing: returns its values, for a gradient of weights.
    pub fn retire(mut self) -> Vec<f32> {
        let values = std::mem::take(&mut self.values);
        self.renew();
        values
    }

    /// Returns true if the look-up is of the current generation: its slots are those of this set.
    pub fn is_current(&self, lookup: &Lookup) -> bool {
        Arc::ptr_eq(&self.generation, &lookup.generation)
    }

    /// Returns the values of the look-up's slots.
    ///
    /// # Errors
    /// The set was renewed since the look-up.
    pub fn values_of(&self, lookup: &Lookup) -> Result<&[f32], Outdated> {
        if self.is_current(lookup) { Ok(&self.values) } else { Err(Outdated) }
    }

    /// Returns the look-up with slots of the current generation. Rows that it does not have get one, with values missing.
    ///
    /// # Panics
    /// The look-up is of another set that was not renewed or retired.
    pub fn translate(&mut self, lookup: &Lookup) -> Lookup {
        let generation = Arc::clone(&self.generation);
        if self.is_current(lookup) {
            return lookup.clone();
        }
        let ids = lookup.generation.ids.get().expect("the generation of the look-up has ended");
        let of_slot = |slot: u32| if slot == PADDING { PADDING } else { self.slot_of(ids[slot as usize]) };
        Lookup { slots: lookup.slots.iter().copied().map(of_slot).collect(), generation }
    }
}

fn next_slot(rows: usize) -> u32 {
    let next = u32::try_from(rows).ok().filter(|next| *next != PADDING);
    next.expect("a step looks up fewer rows")
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "a row of a table that is indexed by number")]
fn place(row: u64) -> usize {
    row as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPACE: IdSpace = IdSpace::Bounded { rows: 100 };

    fn load(set: &mut WorkingSet) -> Vec<u64> {
        let mut asked = Vec::new();
        let read = |ids: &[u64], values: &mut [f32]| {
            asked.extend_from_slice(ids);
            for (row, id) in values.chunks_mut(2).zip(ids) {
                row.fill(u16::try_from(*id).unwrap().into());
            }
            Ok::<(), ()>(())
        };
        set.load(read).unwrap();
        asked
    }

    #[test]
    fn a_row_is_read_once_in_a_generation() {
        let mut set = WorkingSet::new(2);
        assert_eq!(set.assign(&[5_i64, 9, 5], SPACE, None).unwrap().slots(), [0, 1, 0]);
        assert_eq!(load(&mut set), [5, 9]);
        assert_eq!(set.assign(&[9_i32, 4, 7], SPACE, Some(7)).unwrap().slots(), [1, 2, PADDING]);
        assert_eq!(load(&mut set), [4]);
        assert_eq!(load(&mut set), []);
        assert_eq!(set.values(), [5.0, 5.0, 9.0, 9.0, 4.0, 4.0]);
        set.renew();
        assert_eq!(set.assign(&[4_i64], SPACE, None).unwrap().slots(), [0]);
        assert_eq!(load(&mut set), [4]);
    }

    #[test]
    fn sets_of_small_tables_give_the_same_slots() {
        let mut sets = [WorkingSet::new(2), WorkingSet::of_table(2, SPACE)];
        let slots = sets.each_mut().map(|set| {
            let mut slots = set.assign(&[5_i64, 9, 5], SPACE, None).unwrap().slots().to_vec();
            slots.extend(set.assign(&[9_i32, 4, 7], SPACE, Some(7)).unwrap().slots());
            assert!(set.assign(&[1_i64, 100], SPACE, None).is_err());
            load(set);
            set.renew();
            slots.extend(set.assign(&[4_i64, 9, 4, 99], SPACE, None).unwrap().slots());
            assert_eq!(set.ids(), [4, 9, 99]);
            slots
        });
        assert_eq!(slots[0], slots[1]);
    }

    #[test]
    fn a_read_that_fails_leaves_the_rows_missing() {
        let mut set = WorkingSet::new(2);
        set.assign(&[1_i64], SPACE, None).unwrap();
        load(&mut set);
        set.assign(&[1_i64, 2], SPACE, None).unwrap();
        assert_eq!(set.load(|_, _| Err("gone")), Err("gone"));
        assert_eq!(set.values(), [1.0, 1.0]);
        assert_eq!(load(&mut set), [2]);
        assert_eq!(set.values(), [1.0, 1.0, 2.0, 2.0]);
    }

    #[test]
    fn bad_ids_change_nothing() {
        let mut set = WorkingSet::new(2);
        assert!(set.assign(&[1_i64, 100], SPACE, None).is_err());
        assert_eq!(set.ids(), []);
    }

    #[test]
    fn lookups_of_old_generations_are_translated() {
        let mut set = WorkingSet::new(2);
        let old = set.assign(&[8_i64, 3, 8, 1], SPACE, Some(1)).unwrap();
        load(&mut set);
        assert_eq!(set.values_of(&old).unwrap(), [8.0, 8.0, 3.0, 3.0]);
        set.renew();
        set.assign(&[3_i64], SPACE, None).unwrap();
        assert_eq!(set.values_of(&old), Err(Outdated));
        assert_eq!(set.translate(&old).slots(), [1, 0, 1, PADDING]);
        assert_eq!(set.ids(), [3, 8]);

        let mut alone = WorkingSet::new(2);
        let lookup = alone.assign(&[50_i64], SPACE, None).unwrap();
        load(&mut alone);
        assert_eq!(alone.retire(), [50.0, 50.0]);
        assert_eq!(set.translate(&lookup).slots(), [2]);
    }
}
