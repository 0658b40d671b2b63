//! Sums of gradients by row.

use std::hint::select_unpredictable;

use thiserror::Error;

use crate::working_set::{PADDING, WorkingSet};

const NONE: u32 = u32::MAX;

/// The sums of gradients of rows, in the order in which rows came first.
///
/// Rows are found by the slots of one generation of a working set; [`rebase`](Self::rebase) moves them to the next.
#[derive(Debug, Clone, Default)]
pub struct RowSums {
    width: usize,
    ids: Vec<u64>,
    values: Vec<f32>,
    /// The slots of the rows.
    slots: Vec<u32>,
    /// Position of a slot's row, or [`NONE`].
    places: Vec<u32>,
    /// Positions of the rows of a look-up, in memory that is used again.
    found: Vec<u32>,
}

/// A sum that is infinite or not a number.
#[derive(Debug, Error, Clone, Copy, PartialEq)]
#[error("value {column} of the gradient of row {id} is {value}")]
pub struct NotFinite {
    /// The row.
    pub id: u64,
    /// Position in the row.
    pub column: usize,
    /// The value.
    pub value: f32,
}

impl RowSums {
    /// Returns no sums, of rows of so many values.
    pub fn new(width: usize) -> Self {
        Self { width, ..Self::default() }
    }

    /// Returns the rows.
    pub fn ids(&self) -> &[u64] {
        &self.ids
    }

    /// Returns the sums, one row after the other.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// Returns true if no row has a gradient.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Forgets all sums, and keeps the memory.
    pub fn clear(&mut self) {
        for slot in self.slots.drain(..) {
            self.places[slot as usize] = NONE;
        }
        self.ids.clear();
        self.values.clear();
    }

    /// Adds `scale` times a gradient to the row `id`, which has this slot.
    #[inline]
    pub fn add(&mut self, slot: u32, id: u64, gradient: &[f32], scale: f32) {
        let (row, is_new) = self.row(slot, id);
        let pairs = row.iter_mut().zip(gradient);
        match (is_new, scale == 1.0) {
            (true, true) => row.copy_from_slice(gradient),
            (true, false) => pairs.for_each(|(sum, value)| *sum = scale * value),
            (false, true) => pairs.for_each(|(sum, value)| *sum += value),
            (false, false) => pairs.for_each(|(sum, value)| *sum += scale * value),
        }
    }

    /// Adds gradients to the rows of a look-up, which has these slots: for each term the position in the look-up, the gradient, and its factor.
    /// `ids` are row numbers by slot. Rows of all positions but padding are there afterwards.
    pub(crate) fn add_many<'g>(
        &mut self,
        slots: &[u32],
        ids: &[u64],
        terms: impl Iterator<Item = (usize, &'g [f32], f32)>,
    ) {
        self.find_or_make(slots, ids);
        // Where the compiler knows the width, a row takes a third of the time.
        match self.width {
            8 => self.add_terms::<8>(terms),
            16 => self.add_terms::<16>(terms),
            32 => self.add_terms::<32>(terms),
            64 => self.add_terms::<64>(terms),
            _ => terms.for_each(|(position, gradient, scale)| {
                if let Some(place) = place_of(self.found[position]) {
                    let row = &mut self.values[place * self.width..][..self.width];
                    row.iter_mut().zip(gradient).for_each(|(sum, value)| *sum += scale * value);
                }
            }),
        }
    }

    fn add_terms<'g, const WIDTH: usize>(&mut self, terms: impl Iterator<Item = (usize, &'g [f32], f32)>) {
        let (rows, _) = self.values.as_chunks_mut::<WIDTH>();
        terms.for_each(|(position, gradient, scale)| {
            let gradient = gradient.first_chunk::<WIDTH>().expect("it is as wide as a row");
            if let Some(place) = place_of(self.found[position]) {
                rows[place].iter_mut().zip(gradient).for_each(|(sum, value)| *sum += scale * value);
            }
        });
    }

    /// Finds the places of the rows of slots. Rows that are missing are made, and are 0.
    fn find_or_make(&mut self, slots: &[u32], ids: &[u64]) {
        if ids.len() > self.places.len() {
            self.places.resize(ids.len().next_power_of_two(), NONE);
        }
        let mut next = self.ids.len();
        // A row that is not new is written, too, and the next one over it: which are new cannot be predicted.
        self.ids.resize(next + slots.len(), 0);
        self.slots.resize(next + slots.len(), 0);
        self.found.clear();
        self.found.extend(slots.iter().map(|slot| {
            if *slot == PADDING {
                return NONE;
            }
            let place = &mut self.places[*slot as usize];
            let is_new = *place == NONE;
            *place = select_unpredictable(is_new, narrow(next), *place);
            (self.ids[next], self.slots[next]) = (ids[*slot as usize], *slot);
            next += usize::from(is_new);
            *place
        }));
        self.ids.truncate(next);
        self.slots.truncate(next);
        self.values.resize(next * self.width, 0.0);
    }

    /// Adds to one value of a row.
    pub(crate) fn add_value(&mut self, slot: u32, id: u64, column: usize, gradient: f32) {
        self.row(slot, id).0[column] += gradient;
    }

    /// Returns the sum of a row, and true if it is new and 0.
    #[inline]
    fn row(&mut self, slot: u32, id: u64) -> (&mut [f32], bool) {
        if slot as usize >= self.places.len() {
            self.places.resize((slot as usize + 1).next_power_of_two(), NONE);
        }
        let place = &mut self.places[slot as usize];
        let is_new = *place == NONE;
        if is_new {
            *place = narrow(self.ids.len());
            self.ids.push(id);
            self.slots.push(slot);
            self.values.resize(self.values.len() + self.width, 0.0);
        }
        let start = *place as usize * self.width;
        (&mut self.values[start..start + self.width], is_new)
    }

    /// Adds the sums of another, whose slots are of the same generation.
    pub fn merge(&mut self, other: &Self) {
        for (index, (slot, id)) in other.slots.iter().zip(&other.ids).enumerate() {
            let row = &other.values[index * other.width..][..other.width];
            self.add(*slot, *id, row, 1.0);
        }
    }

    /// Forgets the sums of the rows for which `keeps` is false.
    pub fn retain(&mut self, keeps: impl Fn(u64) -> bool) {
        let (width, mut kept) = (self.width, 0);
        for place in 0..self.ids.len() {
            let (id, slot) = (self.ids[place], self.slots[place]);
            if !keeps(id) {
                self.places[slot as usize] = NONE;
                continue;
            }
            self.places[slot as usize] = narrow(kept);
            (self.ids[kept], self.slots[kept]) = (id, slot);
            self.values.copy_within(place * width..(place + 1) * width, kept * width);
            kept += 1;
        }
        self.ids.truncate(kept);
        self.slots.truncate(kept);
        self.values.truncate(kept * width);
    }

    /// Finds all rows by the slots of the current generation of `set` from here on.
    pub fn rebase(&mut self, set: &mut WorkingSet) {
        for slot in &self.slots {
            self.places[*slot as usize] = NONE;
        }
        for (place, (slot, id)) in (0..).zip(self.slots.iter_mut().zip(&self.ids)) {
            *slot = set.slot_of(*id);
            if *slot as usize >= self.places.len() {
                self.places.resize((*slot as usize + 1).next_power_of_two(), NONE);
            }
            self.places[*slot as usize] = place;
        }
    }

    /// Multiplies all sums. Products are rounded once.
    #[expect(clippy::cast_possible_truncation, reason = "sums are f32")]
    pub fn scale(&mut self, factor: f64) {
        self.values.iter_mut().for_each(|value| *value = (f64::from(*value) * factor) as f32);
    }

    /// Returns the Euclidean norm of all sums together, computed in f64: no square of an f32 is too large or too small for it. It is not
    /// a number or infinite if one of the sums is.
    pub fn norm(&self) -> f64 {
        // Several sums side by side, which the compiler may add at once.
        let mut sums = [0.0_f64; 8];
        let chunks = self.values.chunks_exact(8);
        let rest = chunks.remainder();
        for chunk in chunks {
            for (sum, value) in sums.iter_mut().zip(chunk) {
                *sum += f64::from(*value) * f64::from(*value);
            }
        }
        let rest: f64 = rest.iter().map(|value| f64::from(*value) * f64::from(*value)).sum();
        (sums.iter().sum::<f64>() + rest).sqrt()
    }

    /// Checks that all sums are finite.
    ///
    /// # Errors
    /// The first that is not.
    pub fn check_finite(&self) -> Result<(), NotFinite> {
        match self.values.iter().position(|value| !value.is_finite()) {
            None => Ok(()),
            Some(at) => {
                let (id, column) = (self.ids[at / self.width], at % self.width);
                Err(NotFinite { id, column, value: self.values[at] })
            }
        }
    }

    /// Appends all rows and `factor` times their sums to a push.
    #[expect(clippy::cast_possible_truncation, reason = "sums are f32")]
    pub fn gather(&self, factor: f64, ids: &mut Vec<u64>, gradients: &mut Vec<f32>) {
        ids.extend_from_slice(&self.ids);
        if factor == 1.0 {
            gradients.extend_from_slice(&self.values);
        } else {
            gradients.extend(self.values.iter().map(|value| (f64::from(*value) * factor) as f32));
        }
    }
}

fn narrow(place: usize) -> u32 {
    u32::try_from(place).expect("a step looks up fewer rows")
}

#[inline]
fn place_of(found: u32) -> Option<usize> {
    (found != NONE).then_some(found as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::IdSpace;

    #[test]
    fn sums_survive_a_renewed_working_set() {
        let mut set = WorkingSet::new(1);
        let space = IdSpace::Bounded { rows: 100 };
        set.assign(&[40_i64, 50, 60], space, None).unwrap();
        let mut sums = RowSums::new(1);
        sums.add(2, 60, &[1.0], 1.0);
        sums.add(0, 40, &[2.0], 0.5);
        set.renew();
        set.assign(&[70_i64, 60], space, None).unwrap();
        sums.rebase(&mut set);
        sums.add(1, 60, &[5.0], 1.0);
        sums.add(0, 70, &[7.0], 1.0);
        assert_eq!(sums.ids(), [60, 40, 70]);
        assert_eq!(sums.values(), [6.0, 1.0, 7.0]);
        sums.clear();
        assert!(sums.is_empty());
        sums.add(1, 60, &[5.0], 1.0);
        assert_eq!(sums.values(), [5.0]);
    }

    #[test]
    fn rows_that_are_not_retained_may_come_again() {
        let mut sums = RowSums::new(2);
        for (slot, id) in [(3, 30_u8), (1, 10), (2, 20), (0, 40)] {
            sums.add(slot, id.into(), &[1.0, id.into()], 1.0);
        }
        sums.retain(|id| id != 30 && id != 20);
        assert_eq!((sums.ids(), sums.values()), (&[10, 40][..], &[1.0, 10.0, 1.0, 40.0][..]));
        for (slot, id) in [(0, 40_u8), (3, 30), (1, 10)] {
            sums.add(slot, id.into(), &[1.0, 1.0], 1.0);
        }
        assert_eq!((sums.ids(), sums.values()), (&[10, 40, 30][..], &[2.0, 11.0, 2.0, 41.0, 1.0, 1.0][..]));
        sums.retain(|_| false);
        assert!(sums.is_empty() && sums.values().is_empty());
        sums.add(1, 10, &[5.0, 6.0], 1.0);
        assert_eq!(sums.values(), [5.0, 6.0]);
    }

    #[test]
    fn norms_reach_beyond_what_squares_of_f32_can() {
        let norm = |value: f32| {
            let mut sums = RowSums::new(2);
            sums.add(0, 0, &[value, value], 1.0);
            sums.norm()
        };
        let expected = |value: f32| f64::from(value) * 2.0_f64.sqrt();
        for value in [1e-43, 1e-30, 1.0, 1e30, f32::MAX] {
            assert!((norm(value) / expected(value) - 1.0).abs() < 1e-12, "{value}");
        }
        assert!(norm(f32::NAN).is_nan());
        assert_eq!(norm(f32::INFINITY), f64::INFINITY);
    }

    #[test]
    fn sums_that_are_not_finite_are_named() {
        let mut sums = RowSums::new(3);
        sums.add(0, 9, &[1.0; 3], 1.0);
        assert_eq!(sums.check_finite(), Ok(()));
        sums.add(1, 4, &[1.0, f32::NEG_INFINITY, f32::NAN], 1.0);
        let expected = NotFinite { id: 4, column: 1, value: f32::NEG_INFINITY };
        assert_eq!(sums.check_finite(), Err(expected));
    }
}
